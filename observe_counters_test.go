package provisioner_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// LC4: what is counted is what was told.
func TestCountersOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{}, 20, 3)
		inject(t, w, "start machine=3 count=2: error", "status machine=4: error")
		cfg := configOf(w, nil)
		seen := &log{}
		cfg.Observers = []provisioner.Observer{seen}
		task := newTask(t, cfg)
		stop := start(t, task)
		pass(30 * time.Minute)
		_ = stop()
		told := map[provisioner.EventKind]uint64{}
		for _, e := range seen.all() {
			told[e.Kind]++
		}
		if diff := cmp.Diff(told, task.Counters().Events); diff != "" {
			t.Errorf("events told, and counted:\n%s", diff)
		}
	})
}

// Each way in which a call can end is counted as that and nothing else.
func TestCountersOfCalls(t *testing.T) {
	const zones = "ZoneLister.Zones"
	for _, c := range []struct {
		why  string
		call func(ctx context.Context) error
		want provisioner.CallCounter
	}{
		{"it returned", func(context.Context) error { return nil }, provisioner.CallCounter{Began: 1}},
		{"it failed", func(context.Context) error { return context.Canceled }, provisioner.CallCounter{Began: 1, Failed: 1}},
		{"it panicked", func(context.Context) error { panic("no paper") }, provisioner.CallCounter{Began: 1, Panicked: 1}},
		{"its time was over", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, provisioner.CallCounter{Began: 1, TimedOut: 1}},
		{"its time was over, and it has succeeded", func(ctx context.Context) error { <-ctx.Done(); return nil }, provisioner.CallCounter{Began: 1}},
		{"it has not ended", func(ctx context.Context) error { time.Sleep(time.Hour); return nil }, provisioner.CallCounter{Began: 1, Out: 1}},
	} {
		t.Run(c.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fleetOf(t, provisionertest.Settings{Kind: true}, 1, 1)
				cfg := configOf(w, func(ctx context.Context, call provisionertest.Call, _ ...string) error {
					if call == provisionertest.CallZones {
						return c.call(ctx)
					}
					return nil
				})
				cfg.Policy.Backoff.RoundDelay = 2 * time.Hour
				cfg.Policy.Backoff.MaxDelay = 2 * time.Hour
				task := newTask(t, cfg)
				stop := start(t, task)
				pass(61 * time.Second)
				if diff := cmp.Diff(c.want, task.Counters().Calls[zones]); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				_ = stop()
				pass(2 * time.Hour)
			})
		})
	}
}

// Shutdown's cancellations are no failures, and no time-outs.
func TestCountersOfCancelledCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 1, 1)
		cfg := configOf(w, func(ctx context.Context, call provisionertest.Call, _ ...string) error {
			if call == provisionertest.CallZones {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		task := newTask(t, cfg)
		stop := start(t, task)
		pass(time.Second)
		_ = stop()
		if got, want := task.Counters().Calls["ZoneLister.Zones"], (provisioner.CallCounter{Began: 1, Cancelled: 1}); got != want {
			t.Errorf("calls of Zones are %+v, want %+v", got, want)
		}
	})
}

// ST17: lanes tell their limits, what they are at, and what waits.
func TestCountersOfLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 10, 2)
		hold := make(chan struct{})
		cfg := configOf(w, func(_ context.Context, call provisionertest.Call, _ ...string) error {
			if call == provisionertest.CallStart {
				<-hold
			}
			return nil
		})
		cfg.Limits.Starts = 3
		task := newTask(t, cfg)
		stop := start(t, task)
		pass(time.Second)
		c := task.Counters()
		if got, want := c.Lanes["starts"], (provisioner.LaneCounter{Limit: 3, Used: 3, Waiting: 7}); got != want {
			t.Errorf("lane of starts: %+v, want %+v", got, want)
		}
		want := map[provisioner.Phase]int{provisioner.PhaseStarting: 3, provisioner.PhaseQueued: 7}
		if diff := cmp.Diff(want, c.Machines); diff != "" {
			t.Errorf("machines by phase (-want +got):\n%s", diff)
		}
		close(hold)
		pass(time.Minute)
		if diff := cmp.Diff(map[provisioner.Phase]int{provisioner.PhaseResting: 10}, task.Counters().Machines); diff != "" {
			t.Errorf("machines by phase, in the end (-want +got):\n%s", diff)
		}
		for name, l := range task.Counters().Lanes {
			if l.Used != 0 || l.Waiting != 0 || l.Limit == 0 {
				t.Errorf("lane of %s, in the end: %+v", name, l)
			}
		}
		stopCleanly(t, w, stop)
	})
}

// LC4: what an observer has missed is counted, and that it was cut off.
func TestCountersOfObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{Kind: true})
		cfg := configOf(w, nil)
		cfg.EventBuffer = 4
		hold := make(chan struct{})
		cfg.Observers = []provisioner.Observer{
			provisioner.ObserverFunc(func(provisioner.Event) {}),
			provisioner.ObserverFunc(func(provisioner.Event) { <-hold }),
			provisioner.ObserverFunc(func(provisioner.Event) { panic("no paper") }),
		}
		task := newTask(t, cfg)
		for range 10 {
			must(t, task.SetHarvestMode(provisioner.HarvestNone))
			synctest.Wait()
		}
		want := []provisioner.ObserverCounter{{}, {Waiting: 4, Dropped: 6}, {CutOff: true}} // one is at it, and that the third was cut off is told as well
		if diff := cmp.Diff(want, task.Counters().Observers); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		close(hold)
	})
}

func TestCountersOfNothing(t *testing.T) {
	if diff := cmp.Diff(provisioner.Counters{}, new(provisioner.Task).Counters()); diff != "" {
		t.Error(diff)
	}
}
