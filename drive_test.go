package provisioner_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// everyCall are the calls that a Task of today makes of its host.
var everyCall = []provisionertest.Call{
	provisionertest.CallList, provisionertest.CallStart, provisionertest.CallStop, provisionertest.CallZones,
	provisionertest.CallDerive, provisionertest.CallMaintain, provisionertest.CallFleet, provisionertest.CallMachines,
	provisionertest.CallInfo, provisionertest.CallRecord, provisionertest.CallRemove, provisionertest.CallStatus,
	provisionertest.CallDead, provisionertest.CallRetries, provisionertest.CallGroups, provisionertest.CallAuth,
	provisionertest.CallProfiles, provisionertest.CallChangeProfile, provisionertest.CallSetProfiles, provisionertest.CallProfileStatus, provisionertest.CallRemoveProfile,
}

// busyWorld needs every call: machines to start, to stop, to make dead, to look
// after, and to try again.
func busyWorld(t testing.TB, s provisionertest.Settings) *provisionertest.World {
	t.Helper()
	w := fleetOf(t, s, 3, 2)
	must(t, w.Add(
		provisioner.Machine{ID: "10", Life: provisioner.Dead, Instance: "i-10", Zone: "a"},
		provisioner.Machine{ID: "11", Life: provisioner.Dead, Instance: "i-11", Zone: "b"},
		provisioner.Machine{ID: "12", Life: provisioner.Dying},
		provisioner.Machine{ID: "13", Life: provisioner.Alive, Instance: "i-13", Zone: "a"},
		provisioner.Machine{ID: "13/lxd/0", Life: provisioner.Alive, Instance: "i-13-0", Zone: "a"},
		provisioner.Machine{ID: "14", Life: provisioner.Alive, Status: provisioner.StatusError, InstanceStatus: provisioner.InstanceProvisioningError},
	))
	must(t, w.SetRetryable("14", true))
	must(t,
		w.SetProfileChange(provisioner.ProfileChange{Machine: "13", Old: "juju-m-a-1", Profile: &provisioner.Profile{Name: "juju-m-a-2"}}),
		w.SetProfileChange(provisioner.ProfileChange{Machine: "13/lxd/0", Profile: &provisioner.Profile{Name: "juju-m-a-2"}, Subordinate: true}),
		w.SetProfileChange(provisioner.ProfileChange{Machine: "14", Profile: &provisioner.Profile{Name: "juju-m-a-2"}}))
	return w
}

// stir makes the calls that a look alone doesn't.
func stir(w *provisionertest.World) {
	w.Changed("0", "1", "13", "13/lxd/0")
	w.Tick()
}

// wantBusyDone demands that all that busyWorld asks for is done.
func wantBusyDone(t testing.TB, w *provisionertest.World) {
	t.Helper()
	want := []provisioner.MachineID{"0", "1", "2", "13", "13/lxd/0", "14"}
	if diff := cmp.Diff(want, provisioned(w)); diff != "" {
		t.Errorf("provisioned (-want +got):\n%s\n%s", diff, w.Transcript())
	}
	if n := len(w.Machines()); n != len(want) {
		t.Errorf("there are %d records, want %d: the dead ones are to be removed", n, len(want))
	}
	words := map[provisioner.MachineID]string{}
	for _, m := range w.Machines() {
		if c := w.ProfileChange(m.ID); c.Machine != "" {
			words[m.ID] = c.Status
		}
	}
	if diff := cmp.Diff(map[provisioner.MachineID]string{"13": provisioner.ProfileSuccess, "14": provisioner.ProfileNotRequired}, words); diff != "" {
		t.Errorf("profile changes (-want +got):\n%s\n%s", diff, w.Transcript())
	}
}

type markKey struct{}

// callBack uses a Task the way a host or an observer may: from within a call.
// The host calls that this makes have a context with a mark.
func callBack(t testing.TB, task *provisioner.Task, about string) {
	t.Helper()
	if _, err := task.Explain(provisioner.MachineID(about)); err != nil && !errors.Is(err, errors.NotFound) {
		t.Errorf("Explain: %v", err)
	}
	if err := task.SetHarvestMode(provisioner.HarvestDestroyed); err != nil {
		t.Errorf("SetHarvestMode: %v", err)
	}
	if err := task.SetLimits(provisioner.Limits{}); err != nil {
		t.Errorf("SetLimits: %v", err)
	}
	if _, err := task.Plan(context.WithValue(context.Background(), markKey{}, true)); err != nil {
		t.Errorf("Plan: %v", err)
	}
	task.Capabilities()
}

// LC3: no call of the host is made with anything held: each may use the Task.
func TestHostCallsBack(t *testing.T) {
	for _, kind := range []struct {
		name string
		run  func(t *testing.T, w *provisionertest.World, task *provisioner.Task)
	}{
		{"Run", func(t *testing.T, w *provisionertest.World, task *provisioner.Task) {
			stop := start(t, task)
			pass(10 * time.Second)
			stir(w)
			pass(10 * time.Minute)
			stopCleanly(t, w, stop)
			wantBusyDone(t, w)
		}},
		{"Reconcile", func(t *testing.T, w *provisionertest.World, task *provisioner.Task) {
			if _, err := task.Reconcile(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		{"Apply", func(t *testing.T, w *provisionertest.World, task *provisioner.Task) {
			plan, err := task.Plan(t.Context())
			must(t, err)
			if _, err := task.Apply(t.Context(), plan); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := busyWorld(t, provisionertest.Settings{AsksGroup: true, Reports: true, LostReplies: provisionertest.NeverLost})
				var task *provisioner.Task
				var mu sync.Mutex
				seen := map[provisionertest.Call]bool{}
				back := func(about string) { callBack(t, task, about) }
				cfg := configOf(w, func(ctx context.Context, call provisionertest.Call, about ...string) error {
					if ctx.Value(markKey{}) != nil {
						return nil
					}
					mu.Lock()
					seen[call] = true
					mu.Unlock()
					back(strings.Join(about, " "))
					return nil
				})
				cfg.Lease = leaseFunc{w.TakeLease(), func() { back("0") }}
				limiter := limiterFunc(func(context.Context) error { back("0"); return nil })
				cfg.StartLimiter, cfg.StopLimiter = limiter, limiter
				for _, stop := range []*func() error{&cfg.Changes.Stop, &cfg.Retry.Stop, &cfg.ProfileChanges.Stop} {
					before := *stop
					*stop = func() error { back("0"); return before() }
				}
				task = newTask(t, cfg)
				kind.run(t, w, task)
				if kind.name != "Run" {
					return
				}
				for _, call := range everyCall {
					if !seen[call] {
						t.Errorf("%s was not called, so nothing was tried from within it", call)
					}
				}
			})
		})
	}
}

type limiterFunc func(ctx context.Context) error

func (f limiterFunc) Wait(ctx context.Context) error { return f(ctx) }

// leaseFunc calls a function whenever the lease is looked at.
type leaseFunc struct {
	*provisionertest.Lease
	before func()
}

func (l leaseFunc) Held() bool    { l.before(); return l.Lease.Held() }
func (l leaseFunc) Epoch() uint64 { l.before(); return l.Lease.Epoch() }

// LC4: a host call that panics or ends its goroutine has failed, once, and
// nothing else: all gets done, and it is said what happened.
func TestHostCallCrashes(t *testing.T) {
	for _, call := range everyCall {
		for name, crash := range map[string]func(){"panic": func() { panic("the driver has a bug") }, "goexit": runtime.Goexit} {
			t.Run(string(call)+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := busyWorld(t, provisionertest.Settings{Kind: true, Traits: provisioner.Traits{DedupesByToken: true}})
					var mu sync.Mutex
					crashed := false
					first := func() bool {
						mu.Lock()
						defer mu.Unlock()
						was := crashed
						crashed = true
						return !was
					}
					cfg := configOf(w, func(_ context.Context, c provisionertest.Call, _ ...string) error {
						if c == call && first() {
							crash()
						}
						return nil
					})
					seen := &log{}
					cfg.Observers = []provisioner.Observer{seen}
					stop := start(t, newTask(t, cfg))
					pass(10 * time.Second)
					stir(w)
					pass(10 * time.Minute)
					stir(w) // ST16: a retry signal that failed is given again
					pass(20 * time.Minute)
					stopCleanly(t, w, stop)
					wantBusyDone(t, w)
					if !crashed {
						t.Errorf("%s was not called", call)
					}
					told := slices.DeleteFunc(seen.all(), func(e provisioner.Event) bool { return !errors.Is(e.Err, provisioner.ErrPanic) })
					if len(told) == 0 {
						t.Errorf("nobody was told of the crash")
					}
					for _, e := range told {
						if name == "panic" && (!strings.Contains(e.Err.Error(), "the driver has a bug") || !strings.Contains(e.Err.Error(), "drive_test.go")) {
							t.Errorf("an error without the panic or its stack: %v", e.Err)
						}
					}
				})
			})
		}
	}
}

// LC4, ST15: a machine that makes a call crash each time it is in it, also a
// call about many, keeps no other from anything.
func TestPoisonedMachine(t *testing.T) {
	for _, call := range []provisionertest.Call{provisionertest.CallStart, provisionertest.CallRecord, provisionertest.CallStatus,
		provisionertest.CallDerive, provisionertest.CallInfo, provisionertest.CallGroups, provisionertest.CallAuth, provisionertest.CallMachines,
		provisionertest.CallMaintain, provisionertest.CallStop, provisionertest.CallRemove, provisionertest.CallDead} {
		t.Run(string(call), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := provisionertest.New(provisionertest.Settings{Kind: true, Traits: provisioner.Traits{DedupesByToken: true}})
				must(t, w.Load(provisionertest.NewFleet(4, 2, 0)))
				for _, id := range []string{"4", "5"} {
					must(t, w.Add(
						provisioner.Machine{ID: provisioner.MachineID(id), Life: provisioner.Alive, Instance: provisioner.InstanceID("i-" + id), Zone: "a"},
						provisioner.Machine{ID: provisioner.MachineID(id + "/lxd/0"), Life: provisioner.Alive, Instance: provisioner.InstanceID("i-" + id + "/lxd/0"), Zone: "a"},
					))
				}
				poison := map[string]bool{"0": true, "i-4": true, "4": true, "4/lxd/0": true, "6": true}
				cfg := configOf(w, func(_ context.Context, c provisionertest.Call, about ...string) error {
					if c == call && slices.ContainsFunc(about, func(id string) bool { return poison[id] }) {
						panic("poison")
					}
					return nil
				})
				if call != provisionertest.CallStatus {
					// Without a status to be written first, all are prepared in one call.
					s := cfg.State.(hookedState)
					cfg.State = struct {
						provisioner.State
						provisioner.LifeSetter
						provisioner.GroupFinder
						provisioner.Authenticator
					}{s, s, s, s}
				}
				cfg.Policy.Backoff.Jitter, cfg.Policy.Retry.Jitter = provisioner.NoJitter, provisioner.NoJitter
				cfg.Resync, cfg.Sweep = provisioner.Off, provisioner.Off
				seen := &log{}
				cfg.Observers = []provisioner.Observer{seen}
				stop := start(t, newTask(t, cfg))
				pass(time.Second)
				for _, id := range []provisioner.MachineID{"1", "2", "3"} {
					if m, _ := w.Machine(id); m.Instance == "" {
						t.Errorf("machine %s was not started at once", id)
					}
				}
				must(t, w.AddPending("6", "7"), w.SetLife("4", provisioner.Dead), w.SetLife("5", provisioner.Dead))
				pass(time.Second)
				if m, _ := w.Machine("7"); m.Instance == "" {
					t.Error("machine 7 was not started at once")
				}
				if _, there := w.Machine("5"); there {
					t.Error("machine 5 was not removed at once")
				}
				for _, e := range seen.of(provisioner.EventMaintained) {
					if e.Machine == "5/lxd/0" {
						seen = nil
						break
					}
				}
				if seen != nil {
					t.Error("machine 5/lxd/0 has had no upkeep")
				}
				if err := stop(); !errors.Is(err, context.Canceled) {
					t.Errorf("Run ended with %v", err)
				}
			})
		})
	}
}

// ST18: LaunchTimeout bounds a start, CallTimeout every other call.
func TestCallsHaveDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busyWorld(t, provisionertest.Settings{Kind: true})
		var mu sync.Mutex
		took := map[provisionertest.Call]time.Duration{}
		cfg := configOf(w, func(ctx context.Context, call provisionertest.Call, _ ...string) error {
			mu.Lock()
			_, again := took[call]
			if !again {
				took[call] = 0
			}
			mu.Unlock()
			if again {
				return nil
			}
			began := time.Now()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			took[call] = time.Since(began)
			return ctx.Err()
		})
		cfg.LaunchTimeout, cfg.CallTimeout = 7*time.Minute, 3*time.Minute
		stop := start(t, newTask(t, cfg))
		for range 10 {
			pass(10 * time.Minute)
			stir(w)
		}
		stop()
		for _, call := range everyCall {
			want := cfg.CallTimeout
			if call == provisionertest.CallStart {
				want = cfg.LaunchTimeout
			}
			if took[call] != want {
				t.Errorf("%s was given %v, want %v", call, took[call], want)
			}
		}
	})
}

// ST18: a call that ignores its context frees its place, and keeps its machine
// locked until it returns; a further call of the same operation has a deadline
// again.
func TestStuckStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 2, 1)
		release := make(chan struct{})
		var record time.Duration
		cfg := configOf(w, func(ctx context.Context, call provisionertest.Call, about ...string) error {
			switch {
			case call == provisionertest.CallStart && about[0] == "0":
				<-release
			case call == provisionertest.CallRecord && about[0] == "0":
				began := time.Now()
				<-ctx.Done()
				record = time.Since(began)
				return ctx.Err()
			}
			return nil
		})
		cfg.Limits.Starts = 1
		seen := &log{}
		cfg.Observers = []provisioner.Observer{seen}
		task := newTask(t, cfg)
		stop := start(t, task)
		pass(4 * time.Minute)
		if got := provisioned(w); got != nil {
			t.Errorf("%v were started, want none while the one place is taken", got)
		}
		pass(time.Minute)
		if diff := cmp.Diff([]provisioner.MachineID{"1"}, provisioned(w)); diff != "" {
			t.Errorf("once LaunchTimeout was over (-want +got):\n%s", diff)
		}
		pass(time.Minute)
		if stuck := seen.of(provisioner.EventCallStuck); len(stuck) != 1 || stuck[0].Machine != "0" {
			t.Errorf("told was %v, want that the start of machine 0 is stuck", stuck)
		}
		must(t, w.SetLife("0", provisioner.Dead)) // LD3, ST13: not wanted any more
		pass(time.Minute)
		if _, there := w.Machine("0"); !there {
			t.Error("machine 0 was removed while its start was under way")
		}
		must(t, w.SetLife("0", provisioner.Alive))
		pass(time.Second)
		close(release)
		pass(20 * time.Minute)
		if record > time.Minute {
			t.Errorf("the record of the late start was given %v, want CallTimeout at most", record)
		}
		stopCleanly(t, w, stop)
	})
}

// ST18: the record after a start that came back late has its deadline too.
func TestLateStartThenRecordHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true, Traits: provisioner.Traits{DedupesByToken: true}}, 1, 1)
		var took time.Duration
		cfg := configOf(w, func(ctx context.Context, call provisionertest.Call, _ ...string) error {
			switch {
			case call == provisionertest.CallStart:
				time.Sleep(6 * time.Minute) // whatever its context says
			case call == provisionertest.CallRecord && took == 0:
				began := time.Now()
				<-ctx.Done()
				took = time.Since(began)
				return ctx.Err()
			}
			return nil
		})
		stop := start(t, newTask(t, cfg))
		pass(time.Hour)
		stopCleanly(t, w, stop)
		if took != time.Minute {
			t.Errorf("the record was given %v, want CallTimeout", took)
		}
	})
}

// gauge counts what is under way at once.
type gauge struct {
	mu        sync.Mutex
	now, most map[string]int
}

func (g *gauge) enter(keys ...string) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now == nil {
		g.now, g.most = map[string]int{}, map[string]int{}
	}
	for _, k := range keys {
		g.now[k]++
		g.most[k] = max(g.most[k], g.now[k])
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, k := range keys {
			g.now[k]--
		}
	}
}

// reset begins to look for the most anew.
func (g *gauge) reset() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	most := g.most
	g.most = maps.Clone(g.now)
	return most
}

// ST17: so many at once and no more; they can be changed at any time, and
// nothing that is under way is interrupted.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{Kind: true})
		w.SetZones(provisioner.Zone{Name: "a", Available: true})
		for i := range 200 {
			id := provisioner.MachineID(fmt.Sprint(i))
			must(t, w.AddPending(id))
			must(t, w.Add(provisioner.Machine{ID: "9" + id + "9", Life: provisioner.Dead, Instance: provisioner.InstanceID("i-9" + id + "9"), Zone: "a"}))
		}
		for _, host := range []provisioner.MachineID{"5000", "5001"} {
			must(t, w.Add(provisioner.Machine{ID: host, Life: provisioner.Alive, Instance: provisioner.InstanceID("i-" + host), Zone: "a"}))
			for i := range 80 {
				must(t, w.AddPending(provisioner.MachineID(fmt.Sprintf("%s/lxd/%d", host, i))))
			}
		}
		var under gauge
		interrupted := 0
		cfg := configOf(w, func(ctx context.Context, call provisionertest.Call, about ...string) error {
			var leave func()
			switch call {
			case provisionertest.CallStart:
				keys := []string{"start"}
				if host := provisioner.MachineID(about[0]).Host(); host != "" {
					keys = append(keys, "on "+string(host))
				}
				leave = under.enter(keys...)
			case provisionertest.CallStop:
				leave = under.enter("stop")
			default:
				return nil
			}
			time.Sleep(50 * time.Second)
			if ctx.Err() != nil {
				interrupted++
			}
			leave()
			return nil
		})
		cfg.Limits = provisioner.Limits{Starts: 9, ContainerStarts: 2, Stops: 3}
		task := newTask(t, cfg)
		stop := start(t, task)
		for _, step := range []struct {
			why    string
			limits provisioner.Limits
			want   map[string]int
		}{
			{"as configured", cfg.Limits, map[string]int{"start": 9, "stop": 3, "on 5000": 2, "on 5001": 2}},
			{"more", provisioner.Limits{Starts: 20, ContainerStarts: 3, Stops: 5}, map[string]int{"start": 20, "stop": 5, "on 5000": 3, "on 5001": 3}},
			{"fewer", provisioner.Limits{Starts: 4, ContainerStarts: 1, Stops: 1}, map[string]int{"start": 4, "stop": 1, "on 5000": 1, "on 5001": 1}},
			{"zero is the default", provisioner.Limits{}, map[string]int{"start": 16, "stop": 16, "on 5000": 4, "on 5001": 4}},
		} {
			must(t, task.SetLimits(step.limits))
			pass(90 * time.Second) // what is under way ends by itself
			under.reset()
			pass(3 * time.Minute)
			got := under.reset()
			for key, want := range step.want {
				// Hosts share the places of all starts, so they may have fewer.
				if n := got[key]; n > want || n < want && !strings.HasPrefix(key, "on ") {
					t.Errorf("%s: %s: %d at once, want %d", step.why, key, n, want)
				}
			}
		}
		pass(2 * time.Hour)
		stopCleanly(t, w, stop)
		if interrupted > 0 {
			t.Errorf("%d calls were interrupted", interrupted)
		}
		if n := len(provisioned(w)); n != 200+2+160 || len(w.Machines()) != n {
			t.Errorf("%d of %d machines are provisioned", n, len(w.Machines()))
		}
	})
}

// ST17: a start waits for its Limiter in the lane. Once it is cancelled it
// gives its place back, at once.
func TestLimiterCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 2, 1)
		cfg := configOf(w, nil)
		cfg.Limits.Starts = 1
		waits := 0
		cfg.StartLimiter = limiterFunc(func(ctx context.Context) error {
			waits++
			if waits > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		stop := start(t, newTask(t, cfg))
		pass(time.Hour)
		if got := provisioned(w); got != nil {
			t.Errorf("%v were started past the limiter", got)
		}
		must(t, w.SetLife("0", provisioner.Dead))
		synctest.Wait()
		if diff := cmp.Diff([]provisioner.MachineID{"1"}, provisioned(w)); diff != "" {
			t.Errorf("at the instant at which machine 0 died (-want +got):\n%s", diff)
		}
		if _, there := w.Machine("0"); there {
			t.Error("machine 0 was not removed")
		}
		if waits != 2 {
			t.Errorf("the limiter was asked %d times, want 2", waits)
		}
		stopCleanly(t, w, stop)
	})
}

// ST14, ST17: what only waits for a limiter has left no mark, so shutdown lets
// go of it at once, and begins nothing that it lets through later.
func TestLimiterAtShutdown(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := fleetOf(t, provisionertest.Settings{Kind: true}, 2, 1)
			must(t, w.Add(provisioner.Machine{ID: "9", Life: provisioner.Dead, Instance: "i-9", Zone: "a"}))
			cfg := configOf(w, nil)
			limiter := limiterFunc(func(ctx context.Context) error {
				if deaf {
					time.Sleep(time.Hour + 10*time.Second)
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
			cfg.StartLimiter, cfg.StopLimiter = limiter, limiter
			stop := start(t, newTask(t, cfg))
			pass(time.Hour)
			began := time.Now()
			stopCleanly(t, w, stop)
			took, want := time.Since(began), time.Duration(0)
			if deaf {
				want = 10 * time.Second
			}
			if took != want {
				t.Errorf("deaf %t: Run ended after %v, want %v", deaf, took, want)
			}
			for _, r := range w.Records() {
				if r.Call == provisionertest.CallStart || r.Call == provisionertest.CallStop {
					t.Errorf("deaf %t: begun during shutdown: %s", deaf, r)
				}
			}
		})
	}
}

// ST17, LC4: a limiter that fails or crashes is that start's or stop's failure,
// which is tried again.
func TestLimiterFails(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":  func() error { return errors.New("out of tokens") },
		"panic":  func() error { panic("out of tokens") },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fleetOf(t, provisionertest.Settings{Kind: true}, 3, 2)
				must(t, w.Add(provisioner.Machine{ID: "9", Life: provisioner.Dead, Instance: "i-9", Zone: "a"}))
				cfg := configOf(w, nil)
				var mu sync.Mutex
				calls := 0
				limiter := limiterFunc(func(context.Context) error {
					mu.Lock()
					calls++
					n := calls
					mu.Unlock()
					if n <= 4 {
						return fail()
					}
					return nil
				})
				cfg.StartLimiter, cfg.StopLimiter = limiter, limiter
				stop := start(t, newTask(t, cfg))
				pass(10 * time.Minute)
				stopCleanly(t, w, stop)
				if diff := cmp.Diff([]provisioner.MachineID{"0", "1", "2"}, provisioned(w)); diff != "" {
					t.Errorf("provisioned (-want +got):\n%s", diff)
				}
				if _, there := w.Machine("9"); there {
					t.Error("machine 9 was not removed")
				}
			})
		})
	}
}

// ST14: what is out when the context ends.
func TestShutdown(t *testing.T) {
	type host struct {
		w     *provisionertest.World
		began time.Time // of the shutdown
	}
	cases := []struct {
		name, why string
		cfg       func(*provisioner.Config)
		hook      func(h *host, ctx context.Context, call provisionertest.Call) error
		took      time.Duration
		out       []string // in a CallsOutError
		later     time.Duration
		recorded  bool // in the end
		made      int  // instances there are in the end
	}{
		{
			name: "comes back in time", why: "a start that returns within the grace is recorded",
			hook: func(_ *host, _ context.Context, call provisionertest.Call) error {
				if call == provisionertest.CallStart {
					time.Sleep(20 * time.Second)
				}
				return nil
			},
			took: 10 * time.Second, recorded: true, made: 1,
		},
		{
			name: "fails in time", why: "the failure of a start is not shown, and not tried again",
			hook: func(_ *host, _ context.Context, call provisionertest.Call) error {
				if call == provisionertest.CallStart {
					time.Sleep(20 * time.Second)
					return errors.New("no")
				}
				return nil
			},
			took: 10 * time.Second,
		},
		{
			name: "record fails in time", why: "what can't be recorded is stopped",
			hook: func(_ *host, _ context.Context, call provisionertest.Call) error {
				switch call {
				case provisionertest.CallStart:
					time.Sleep(20 * time.Second)
				case provisionertest.CallRecord:
					return errors.New("no")
				}
				return nil
			},
			took: 10 * time.Second,
		},
		{
			name: "hangs", why: "after the grace the call is cancelled, and named; it returns by itself then",
			hook: func(_ *host, ctx context.Context, call provisionertest.Call) error {
				if call == provisionertest.CallStart {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			},
			took: 30 * time.Second, out: []string{"starting 0"},
		},
		{
			name: "late", why: "a start that returns after Run has is recorded all the same",
			hook: func(_ *host, _ context.Context, call provisionertest.Call) error {
				if call == provisionertest.CallStart {
					time.Sleep(2 * time.Minute)
				}
				return nil
			},
			took: 30 * time.Second, out: []string{"starting 0"}, later: time.Hour, recorded: true, made: 1,
		},
		{
			name: "late and slow to be recorded", why: "nobody's deadline is over because the task's is",
			hook: func(_ *host, ctx context.Context, call provisionertest.Call) error {
				switch call {
				case provisionertest.CallStart:
					time.Sleep(2 * time.Minute)
				case provisionertest.CallRecord:
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return nil
			},
			took: 30 * time.Second, out: []string{"starting 0"}, later: time.Hour, recorded: true, made: 1,
		},
		{
			name: "late, and can't be recorded", why: "it is stopped, after Run has returned",
			hook: func(_ *host, ctx context.Context, call provisionertest.Call) error {
				switch call {
				case provisionertest.CallStart:
					time.Sleep(2 * time.Minute)
				case provisionertest.CallRecord:
					return errors.New("no")
				case provisionertest.CallStop:
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return nil
			},
			took: 30 * time.Second, out: []string{"starting 0"}, later: time.Hour,
		},
		{
			name: "being recorded", why: "a record under way is seen to its end, though late",
			hook: func(_ *host, _ context.Context, call provisionertest.Call) error {
				if call == provisionertest.CallRecord {
					time.Sleep(time.Minute)
				}
				return nil
			},
			took: 30 * time.Second, out: []string{"recording 0"}, later: time.Hour, recorded: true, made: 1,
		},
		{
			name: "no grace", why: "Off waits for nothing",
			cfg: func(c *provisioner.Config) { c.ShutdownGrace = provisioner.Off },
			hook: func(_ *host, _ context.Context, call provisionertest.Call) error {
				if call == provisionertest.CallStart {
					time.Sleep(20 * time.Second)
				}
				return nil
			},
			took: 0, out: []string{"starting 0"}, later: time.Hour, recorded: true, made: 1,
		},
		{
			name: "reading", why: "what only reads is cancelled at once",
			hook: func(_ *host, ctx context.Context, call provisionertest.Call) error {
				if call == provisionertest.CallInfo {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			},
			took: 0,
		},
		{
			name: "nothing", why: "when nothing is out Run returns at once",
			hook: func(*host, context.Context, provisionertest.Call) error { return nil },
			took: 0, recorded: true, made: 1,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &host{w: fleetOf(t, provisionertest.Settings{Kind: true}, 1, 1)}
				cfg := configOf(h.w, func(ctx context.Context, call provisionertest.Call, _ ...string) error { return c.hook(h, ctx, call) })
				if c.cfg != nil {
					c.cfg(&cfg)
				}
				task := newTask(t, cfg)
				stop := start(t, task)
				pass(10 * time.Second)
				h.began = time.Now()
				err := stop()
				if took := time.Since(h.began); took != c.took || !errors.Is(err, context.Canceled) {
					t.Errorf("%s: Run ended after %v with %v, want after %v with %v", c.why, took, err, c.took, context.Canceled)
				}
				var out *provisioner.CallsOutError
				if errors.As(err, &out); out == nil && c.out != nil || out != nil && !slices.Equal(out.Calls, c.out) {
					t.Errorf("%s: Run ended with %v, want the calls %q", c.why, err, c.out)
				}
				if n := h.w.OpenWatchers(); n != 0 {
					t.Errorf("%d watchers are open", n)
				}
				// The Task answers also while calls are out.
				if _, err := task.Explain("0"); err != nil {
					t.Errorf("Explain: %v", err)
				}
				if _, err := task.Idle(t.Context()); err != nil {
					t.Errorf("Idle: %v", err)
				}
				if err := task.SetLimits(provisioner.Limits{}); err != nil {
					t.Errorf("SetLimits: %v", err)
				}
				pass(c.later)
				if left := leftBehind(); left != nil {
					t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
				}
				if m, _ := h.w.Machine("0"); (m.Instance != "") != c.recorded {
					t.Errorf("%s: its instance is %q in the end", c.why, string(m.Instance))
				}
				if n := len(h.w.Live()); n != c.made {
					t.Errorf("%s: there are %d instances in the end, want %d\n%s", c.why, n, c.made, h.w.Transcript())
				}
				if m, _ := h.w.Machine("0"); m.InstanceStatus == provisioner.InstanceProvisioningError || m.Status == provisioner.StatusError {
					t.Errorf("%s: an error was shown: %q", c.why, h.w.StatusText("0"))
				}
				if err := h.w.Check(); err != nil {
					t.Errorf("%v\n%s", err, h.w.Transcript())
				}
			})
		})
	}
}

// What is queued has no goroutine: a large fleet costs what its limits allow.
func TestGoroutinesAreBounded(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := fleetOf(t, provisionertest.Settings{Kind: true, Silent: true}, 5000, 3)
			most, before := 0, 0
			var mu sync.Mutex
			cfg := configOf(w, func(_ context.Context, call provisionertest.Call, _ ...string) error {
				mu.Lock()
				most = max(most, runtime.NumGoroutine()-before)
				mu.Unlock()
				switch call {
				case provisionertest.CallStart:
					time.Sleep(time.Second)
					if fails {
						return provisioner.RetryAfter(errors.New("busy"), 10*time.Minute)
					}
				case provisionertest.CallStatus:
					time.Sleep(100 * time.Millisecond)
				}
				return nil
			})
			task := newTask(t, cfg)
			before = runtime.NumGoroutine()
			stop := start(t, task)
			pass(8 * time.Minute)
			if fails {
				stop()
			} else {
				stopCleanly(t, w, stop)
				if n := len(provisioned(w)); n != 5000 {
					t.Errorf("%d machines were started, want all", n)
				}
			}
			// 16 starts and the last status of the 16 before, Run and a few reads.
			if limit := 16 + 16 + 16; most > limit {
				t.Errorf("fails %t: there were %d goroutines at once, want at most %d", fails, most, limit)
			}
		})
	}
}

// A retry signal for a large fleet does not bury the state under writes, nor
// are any of them lost (ST16, ST20).
func TestStatusWritesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const machines = 1000
		w := provisionertest.New(provisionertest.Settings{Kind: true, Silent: true})
		w.SetZones(provisioner.Zone{Name: "a", Available: true})
		for i := range machines {
			id := provisioner.MachineID(fmt.Sprint(i))
			must(t, w.Add(provisioner.Machine{ID: id, Life: provisioner.Alive, Status: provisioner.StatusError, InstanceStatus: provisioner.InstanceProvisioningError}),
				w.SetRetryable(id, true))
		}
		var writes gauge
		cfg := configOf(w, func(_ context.Context, call provisionertest.Call, about ...string) error {
			if call == provisionertest.CallStatus {
				defer writes.enter("status", about[0])()
				time.Sleep(time.Second)
			}
			return nil
		})
		stop := start(t, newTask(t, cfg))
		pass(time.Minute)
		w.Tick()
		pass(10 * time.Minute)
		stopCleanly(t, w, stop)
		most := writes.reset()
		// 64 in their lane, and those that 16 starts wait for.
		if n := most["status"]; n > 64+16 || n < 64 {
			t.Errorf("%d statuses were written at once, want 64 to 80", n)
		}
		if delete(most, "status"); len(most) != machines {
			t.Errorf("statuses of %d machines were written, want of all", len(most))
		}
		for id, n := range most {
			if n != 1 {
				t.Errorf("ST20: machine %s: %d writes at once", id, n)
			}
		}
		for _, m := range w.Machines() {
			if m.Instance == "" || m.InstanceStatus != provisioner.InstanceRunning {
				t.Errorf("machine %s: instance %q, status %q", m.ID, m.Instance, m.InstanceStatus)
			}
		}
	})
}

// HV7: an instance that a broker names as not stopped is not, also if it forgets
// to say why: it is tried again, and the record stays until then.
func TestStopFailsWithoutAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{Kind: true})
		must(t, w.Add(provisioner.Machine{ID: "0", Life: provisioner.Dead, Instance: "i-0"}))
		stops := 0
		cfg := configOf(w, func(_ context.Context, call provisionertest.Call, _ ...string) error {
			if call != provisionertest.CallStop {
				return nil
			}
			if stops++; stops > 1 {
				return nil
			}
			return &provisioner.StopError{Failed: map[provisioner.InstanceID]error{"i-0": nil}}
		})
		stop := start(t, newTask(t, cfg))
		pass(time.Minute)
		stopCleanly(t, w, stop)
		if stops != 2 || len(w.Live()) != 0 || len(w.Machines()) != 0 {
			t.Errorf("%d stops, left: instances %v, machines %v; want 2, none, none", stops, w.Live(), w.Machines())
		}
	})
}
