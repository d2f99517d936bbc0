package provisioner_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// sameEvents compares events; errors by identity.
var sameEvents = cmpopts.EquateErrors()

// LC4: every observer is told everything, in order, numbered without a gap.
func TestEventsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{}, 30, 3)
		inject(t, w, "start machine=3 count=2: error", "status machine=4: error")
		must(t, w.Add(provisioner.Machine{ID: "90", Life: provisioner.Dead, Instance: "i-90", Zone: "a"}))
		cfg := configOf(w, nil)
		one, two := &log{}, &log{}
		cfg.Observers = []provisioner.Observer{one, two}
		stop := start(t, newTask(t, cfg))
		pass(30 * time.Minute)
		stop()
		synctest.Wait()
		events := one.all()
		if diff := cmp.Diff(events, two.all(), sameEvents); diff != "" {
			t.Errorf("two observers were told different things:\n%s", diff)
		}
		if len(events) < 100 {
			t.Errorf("only %d events", len(events))
		}
		for i, e := range events {
			if e.Seq != uint64(i+1) {
				t.Errorf("event %d is number %d: %s", i+1, e.Seq, e)
			}
			if i > 0 && e.At.Before(events[i-1].At) {
				t.Errorf("event %d is before the one before it: %s", e.Seq, e)
			}
		}
		if last := events[len(events)-1]; last.Kind != provisioner.EventShutdown {
			t.Errorf("the last event is %s, want %s", last, provisioner.EventShutdown)
		}
	})
}

// LC4: one that can't keep up is told how many it missed, where it missed
// them, and holds up nobody.
func TestSlowObserver(t *testing.T) {
	var clean, slowed []string
	for _, slow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := fleetOf(t, provisionertest.Settings{}, 20, 2)
			cfg := configOf(w, nil)
			cfg.EventBuffer = 8
			fast, kept := &log{}, &log{}
			cfg.Observers = []provisioner.Observer{fast, provisioner.ObserverFunc(func(e provisioner.Event) {
				if slow {
					time.Sleep(70 * time.Millisecond)
				}
				kept.Observe(e)
			})}
			stop := start(t, newTask(t, cfg))
			pass(10 * time.Minute)
			if !slow {
				stop()
				clean = strings.Split(w.Transcript(), "\n")
				return
			}
			slowed = strings.Split(w.Transcript(), "\n")
			stop()
			if n := len(kept.of(provisioner.EventsDropped)); n < 2 || n == len(kept.all()) {
				t.Fatalf("%d of %d events are %s; the test is of no use", n, len(kept.all()), provisioner.EventsDropped)
			}
			if one, other := lastNumber(t, fast.all()), lastNumber(t, kept.all()); one != other {
				t.Errorf("events and drops come to %d and %d, want the same", one, other)
			}
		})
	}
	if diff := cmp.Diff(clean[:len(slowed)], slowed); diff != "" {
		t.Errorf("a slow observer changes what is done:\n%s", diff)
	}
}

// lastNumber is the number of the last event, drops counted in, of which each
// must stand where the numbers have a gap.
func lastNumber(t *testing.T, events []provisioner.Event) (last uint64) {
	t.Helper()
	for i, e := range events {
		if e.Kind != provisioner.EventsDropped {
			if last++; e.Seq != last {
				t.Errorf("event %d is told as the %d.", e.Seq, last)
			}
			continue
		}
		if e.Seq != 0 || e.N < 1 || e.At.IsZero() {
			t.Errorf("dropped events without what they need: %+v", e)
		}
		if i > 0 && events[i-1].Kind == provisioner.EventsDropped {
			t.Errorf("two in a row tell of drops: %+v", e)
		}
		last += uint64(e.N)
	}
	return last
}

// LC4: at most EventBuffer events wait for an observer.
func TestEventBufferBounds(t *testing.T) {
	for _, buffer := range []int{1, 2, 16} {
		synctest.Test(t, func(t *testing.T) {
			w := provisionertest.New(provisionertest.Settings{Kind: true})
			cfg := configOf(w, nil)
			cfg.EventBuffer = buffer
			kept, hold := &log{}, make(chan struct{})
			cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
				kept.Observe(e)
				<-hold
			})}
			task := newTask(t, cfg)
			happen := func(n int) {
				for range n {
					must(t, task.SetHarvestMode(provisioner.HarvestNone))
				}
				synctest.Wait()
			}
			happen(1)          // it is at this
			happen(buffer)     // these wait for it
			hold <- struct{}{} // it has taken all of them, and is at the first
			synctest.Wait()
			happen(100) // so there is room for one
			close(hold)
			synctest.Wait()
			got := kept.all()
			if n := len(got); n != 1+buffer+1+1 {
				t.Errorf("EventBuffer %d: it was told %d times, want 1 and %d that waited, 1 more, and 1 for the rest", buffer, n, buffer)
			}
			if last := got[len(got)-1]; last.Kind != provisioner.EventsDropped || last.N != 99 {
				t.Errorf("EventBuffer %d: the last is %+v, want 99 dropped", buffer, last)
			}
		})
	}
}

// LC4: an observer that panics or ends its goroutine is cut off, that is
// reported, and nothing else is different.
func TestObserverFails(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func()
		text string
	}{
		{"panic", func() { panic("out of paper") }, "out of paper"},
		{"panic with nil", func() { panic(nil) }, "nil"},
		{"goexit", runtime.Goexit, "goroutine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fleetOf(t, provisionertest.Settings{Kind: true}, 5, 2)
				cfg := configOf(w, nil)
				bad, good := &log{}, &log{}
				cfg.Observers = []provisioner.Observer{good, provisioner.ObserverFunc(func(e provisioner.Event) {
					bad.Observe(e)
					if e.Kind == provisioner.EventStarting {
						c.fail()
					}
				}), w}
				task := newTask(t, cfg)
				stop := start(t, task)
				pass(time.Minute)
				if _, err := task.Idle(t.Context()); err != nil {
					t.Errorf("Idle: %v", err)
				}
				stopCleanly(t, w, stop)
				synctest.Wait()
				if n := len(provisioned(w)); n != 5 {
					t.Errorf("%d machines were started, want 5", n)
				}
				failed := good.of(provisioner.EventObserverFailed)
				if len(failed) != 1 || failed[0].N != 1 || !strings.Contains(failed[0].Err.Error(), c.text) {
					t.Errorf("told was %v, want one failure of observer 1 with %q", failed, c.text)
				}
				told := bad.all()
				if last := told[len(told)-1]; last.Kind != provisioner.EventStarting {
					t.Errorf("it was told %s after it had failed", last)
				}
				for i, e := range good.all() {
					if e.Seq != uint64(i+1) {
						t.Fatalf("the other observer has missed something before %s", e)
					}
				}
			})
		})
	}
}

// LC4: an observer whose goroutine has just come to its end, and is needed
// again at once, is not taken for one that has failed.
func TestObserverIsNotCutOffForBeingIdle(t *testing.T) {
	w := provisionertest.New(provisionertest.Settings{Kind: true, Silent: true})
	cfg := configOf(w, nil)
	var told, failed atomic.Int64
	for range 8 {
		cfg.Observers = append(cfg.Observers, provisioner.ObserverFunc(func(e provisioner.Event) {
			told.Add(1)
			if e.Kind == provisioner.EventObserverFailed {
				failed.Add(1)
			}
		}))
	}
	task := newTask(t, cfg)
	const changes = 20_000
	for i := range changes {
		must(t, task.SetHarvestMode(provisioner.HarvestNone))
		if i%3 == 0 {
			runtime.Gosched()
		}
	}
	if _, err := task.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if failed.Load() != 0 {
		t.Errorf("%d observers were cut off that have done nothing wrong", failed.Load()/8)
	}
}

// LC3: an observer may ask and set.
func TestObserverCallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{}, 4, 2)
		cfg := configOf(w, nil)
		var task *provisioner.Task
		calls := 0
		cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
			if e.Kind == provisioner.EventSettings {
				return // else it would go on for ever
			}
			callBack(t, task, string(e.Machine))
			calls++
		})}
		task = newTask(t, cfg)
		stop := start(t, task)
		pass(10 * time.Minute)
		stopCleanly(t, w, stop)
		if n := len(provisioned(w)); n != 4 || calls < 10 {
			t.Errorf("%d machines were started and %d times was called back", n, calls)
		}
	})
}

// LC2: Run waits until its observers have been told everything, so that no
// goroutine is left behind and the last events are not lost.
func TestRunWaitsForObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 3, 1)
		cfg := configOf(w, nil)
		seen := &log{}
		cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
			time.Sleep(100 * time.Millisecond)
			seen.Observe(e)
		})}
		stop := start(t, newTask(t, cfg))
		pass(200 * time.Millisecond)
		stopCleanly(t, w, stop)
		if n := len(seen.of(provisioner.EventShutdown)); n != 1 {
			t.Errorf("when Run had returned the observer had seen %d shutdowns, want 1", n)
		}
		if left := leftBehind(); left != nil {
			t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
		}
	})
}

// ST14: but it waits for ShutdownGrace only, and names who is not done.
func TestRunEndsThoughAnObserverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 3, 1)
		cfg := configOf(w, nil)
		hold := make(chan struct{})
		seen := &log{}
		cfg.Observers = []provisioner.Observer{seen, provisioner.ObserverFunc(func(provisioner.Event) { <-hold })}
		stop := start(t, newTask(t, cfg))
		pass(time.Minute)
		began := time.Now()
		err := stop()
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("Run ended after %v, want ShutdownGrace", took)
		}
		var out *provisioner.CallsOutError
		if !errors.As(err, &out) || !errors.Is(err, context.Canceled) {
			t.Fatalf("Run ended with %v, want a CallsOutError and %v", err, context.Canceled)
		}
		if diff := cmp.Diff([]string{"observer 1"}, out.Calls); diff != "" {
			t.Errorf("calls out (-want +got):\n%s", diff)
		}
		if n := len(seen.of(provisioner.EventShutdown)); n != 1 {
			t.Errorf("the other observer has seen %d shutdowns, want 1", n)
		}
		close(hold)
	})
}
