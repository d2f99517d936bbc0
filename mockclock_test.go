package provisioner_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// mocked is a World and a Task on one mock clock, and a watcher that the test
// feeds. Once a change is taken, Run has begun.
func mocked(t *testing.T, machines int, change func(*provisioner.Config)) (*clock.Mock, *provisionertest.World, *provisioner.Task, chan<- []provisioner.MachineID) {
	t.Helper()
	mock := clock.NewMock()
	w := fleetOf(t, provisionertest.Settings{Clock: mock, Kind: true}, machines, 2)
	changed := make(chan []provisioner.MachineID)
	cfg := configOf(w, nil)
	must(t, cfg.Changes.Stop())
	cfg.Clock, cfg.Changes = mock, provisioner.Stream[[]provisioner.MachineID]{C: changed}
	if change != nil {
		change(&cfg)
	}
	return mock, w, newTask(t, cfg), changed
}

// idle is the time of the next thing to do, once all is quiet.
func idle(t *testing.T, task *provisioner.Task) time.Time {
	t.Helper()
	next, err := task.Idle(t.Context())
	must(t, err)
	return next
}

// LC9, ST5: with Idle before each Add a Task on a mock clock does everything
// when it is due, without a sleep and the same each time.
func TestMockClockTellsEveryWait(t *testing.T) {
	for range 20 {
		seen := &log{}
		mock, w, task, changed := mocked(t, 2, func(c *provisioner.Config) {
			c.Policy.Retry = provisioner.RetryPolicy{Retries: 2, ZoneDelay: 3 * time.Second, RoundDelay: time.Minute, Jitter: provisioner.NoJitter}
			c.Policy.Backoff.Jitter = provisioner.NoJitter
			c.Resync, c.Sweep = provisioner.Off, provisioner.Off
			c.Observers = []provisioner.Observer{seen}
		})
		inject(t, w, "start machine=0 count=5: error", "record machine=1: error", "stop instance=i-1: error")
		stop := start(t, task)
		changed <- nil
		began := mock.Now()
		for next := idle(t, task); !next.IsZero(); next = idle(t, task) {
			mock.Add(next.Sub(mock.Now()))
		}
		if n := len(provisioned(w)); n != 2 {
			t.Errorf("%d machines are started, want 2", n)
		}
		var attempts []string
		for _, e := range seen.of(provisioner.EventAttempt) {
			if e.Machine == "0" {
				attempts = append(attempts, fmt.Sprint(e.At.Sub(began)))
			}
		}
		// Two zones a round, three rounds.
		if diff := cmp.Diff([]string{"0s", "3s", "1m3s", "1m6s", "3m6s", "3m9s"}, attempts); diff != "" {
			t.Errorf("attempts of machine 0 (-want +got):\n%s", diff)
		}
		stopCleanly(t, w, stop)
		if t.Failed() {
			return
		}
	}
}

// LC9: a change that the watcher holds is handled before Idle returns, so is
// what follows from it, and so are the observers.
func TestIdleWaitsForWhatHasCome(t *testing.T) {
	w := provisionertest.New(provisionertest.Settings{Kind: true})
	w.SetZones(provisioner.Zone{Name: "a", Available: true})
	cfg := configOf(w, nil)
	var told atomic.Int64
	began := make(chan struct{})
	cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
		switch e.Kind {
		case provisioner.EventLooked:
			select {
			case <-began:
			default:
				close(began)
			}
		case provisioner.EventStarted:
			told.Add(1)
		}
	})}
	task := newTask(t, cfg)
	stop := start(t, task)
	<-began
	for i := range 1000 {
		w.Changed()
		must(t, w.AddPending(provisioner.MachineID(fmt.Sprint(i))))
		idle(t, task)
		if m, _ := w.Machine(provisioner.MachineID(fmt.Sprint(i))); m.Instance == "" {
			t.Fatalf("Idle has returned and machine %d is not started", i)
		}
		if n := told.Load(); n != int64(i+1) {
			t.Fatalf("Idle has returned and the observer was told of %d starts, want %d", n, i+1)
		}
	}
	stopCleanly(t, w, stop)
}

// LC9: an observer that is slow, and what it sets in turn, are waited for.
func TestIdleWaitsForObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 1, 1)
		cfg := configOf(w, nil)
		seen := &log{}
		var task *provisioner.Task
		cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
			time.Sleep(time.Second)
			seen.Observe(e)
			if e.Kind == provisioner.EventStarted {
				must(t, task.SetHarvestMode(provisioner.HarvestNone))
			}
		})}
		task = newTask(t, cfg)
		stop := start(t, task)
		synctest.Wait()
		idle(t, task)
		if len(seen.of(provisioner.EventStarted)) != 1 || len(seen.of(provisioner.EventSettings)) != 1 {
			t.Errorf("Idle has returned and the observer has seen only %v", seen.all())
		}
		stopCleanly(t, w, stop)
	})
}

// LC9: it waits for calls that are under way, but not for one whose time is
// over and that does not return.
func TestIdleWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 2, 1)
		inject(t, w, "start machine=0: delay 40s", "start machine=1: stuck")
		task := newTask(t, configOf(w, nil))
		stop := start(t, task)
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if _, err := task.Idle(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "idle") {
			t.Errorf("got %v, want %v and what it waited for", err, context.DeadlineExceeded)
		}
		cancel()
		idle(t, task)
		if took := time.Since(began); took != 5*time.Minute {
			t.Errorf("Idle has returned after %v, want LaunchTimeout", took)
		}
		w.Release()
		synctest.Wait()
		stopCleanly(t, w, stop)
	})
}

// LC9: a Task that nobody drives is idle; one that is driven by a look is once
// that is over.
func TestIdleWithoutRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, reliable, 3, 2)
		task := newTask(t, configOf(w, nil))
		if next := idle(t, task); !next.IsZero() {
			t.Errorf("before anything: next is %v, want never", next)
		}
		done := make(chan error, 1)
		go func() { _, err := task.Reconcile(t.Context()); done <- err }()
		synctest.Wait()
		idle(t, task) // the driver leaves while this waits
		if n := len(provisioned(w)); n != 3 {
			t.Errorf("Idle has returned and %d machines are started, want 3", n)
		}
		must(t, <-done)
	})
}

// LC9: what is next is the earliest of all that is due by itself.
func TestIdleSaysWhatIsNext(t *testing.T) {
	for _, c := range []struct {
		why       string
		change    func(*provisioner.Config)
		fault     string
		from, til time.Duration // 0: never
	}{
		{"HV9: the sweep, ±10 %", nil, "", 108 * time.Second, 132 * time.Second},
		{"LD7: the resync, ±10 %", func(c *provisioner.Config) { c.Sweep = provisioner.Off }, "", 9 * time.Minute, 11 * time.Minute},
		{"nothing, where that is off", func(c *provisioner.Config) { c.Resync, c.Sweep = provisioner.Off, provisioner.Off }, "", 0, 0},
		{"ST5: the next round, ±20 %", nil, "start: error zone-independent", 8 * time.Second, 12 * time.Second},
		{"ST4: as the broker asks", nil, "start: error retry-after 90s", 90 * time.Second, 90 * time.Second},
		{"LD5: the fleet is read again", nil, "fleet: error", time.Second * 8 / 10, time.Second * 12 / 10},
	} {
		t.Run(c.why, func(t *testing.T) {
			mock, w, task, changed := mocked(t, 1, c.change)
			if c.fault != "" {
				inject(t, w, c.fault)
			}
			stop := start(t, task)
			changed <- nil
			next := idle(t, task)
			wait := next.Sub(mock.Now())
			if never := c.til == 0; never != next.IsZero() || !never && (wait < c.from || wait > c.til) {
				t.Errorf("next is in %v, want %v to %v", wait, c.from, c.til)
			}
			if again := idle(t, task); !again.Equal(next) {
				t.Errorf("asked again, next is %v, and was %v", again, next)
			}
			stopCleanly(t, w, stop)
		})
	}
}
