package provisioner_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// A brokenError cannot be looked at when it is nil, as most errors of hosts.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

// LC4, ST15: a typed nil for an error is the most usual slip of a host in Go. It
// is an error of its call like others, and never ends the program.
func TestTypedNilErrors(t *testing.T) {
	for _, typedNil := range []error{
		(*provisioner.StopError)(nil), (*provisioner.RetryAfterError)(nil), (*brokenError)(nil),
		fmt.Errorf("wrapped: %w", (*provisioner.StopError)(nil)), fmt.Errorf("wrapped: %w", (*provisioner.RetryAfterError)(nil)),
		&provisioner.StopError{Failed: map[provisioner.InstanceID]error{"i-90": (*brokenError)(nil)}},
	} {
		for _, call := range provisionertest.Calls() {
			t.Run(fmt.Sprintf("%T/%s", typedNil, call), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := fleetOf(t, reliable, 3, 2)
					must(t, w.Add(
						provisioner.Machine{ID: "90", Life: provisioner.Dead, Instance: "i-90", Zone: "a"},
						provisioner.Machine{ID: "91", Life: provisioner.Alive, Instance: "i-91", Zone: "a"},
						provisioner.Machine{ID: "91/lxd/0", Life: provisioner.Alive, Instance: "i-92", Zone: "a"},
						provisioner.Machine{ID: "92", Life: provisioner.Dying}))
					must(t,
						w.SetProfileChange(provisioner.ProfileChange{Machine: "91", Profile: &provisioner.Profile{Name: "juju-m-a-1"}}),
						w.SetProfileChange(provisioner.ProfileChange{Machine: "91/lxd/0", Profile: &provisioner.Profile{Name: "juju-m-a-1"}, Subordinate: true}))
					var calls atomic.Int64
					cfg := configOf(w, func(_ context.Context, c provisionertest.Call, _ ...string) error {
						if c == call && calls.Add(1) == 1 {
							return typedNil
						}
						return nil
					})
					cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) { _ = e.String() })}
					task := newTask(t, cfg)
					stop := start(t, task)
					pass(10 * time.Minute)
					must(t, w.SetRetryable("0", true), w.SetRetryable("1", true), w.SetRetryable("2", true))
					w.Tick()
					pass(time.Minute)
					if got, want := len(provisioned(w)), 5; got != want {
						t.Errorf("%d machines are provisioned, want %d\n%s", got, want, w.Transcript())
					}
					if c := w.ProfileChange("91"); c.Status != provisioner.ProfileSuccess {
						t.Errorf("its profile change has the word %q", c.Status)
					}
					if c := w.ProfileChange("91/lxd/0"); c.Machine != "" {
						t.Errorf("there still is a profile change, with the word %q", c.Status)
					}
					if _, err := task.Plan(t.Context()); err != nil {
						t.Error(err)
					}
					stopCleanly(t, w, stop)
				})
			})
		}
	}
}

// A tidyState sorts and then spoils what it is given, as far as it is its own.
type tidyState struct{ provisioner.State }

func (s tidyState) spoil(ids []provisioner.MachineID) []provisioner.MachineID {
	own := slices.Clone(ids)
	slices.Sort(own)
	slices.Sort(ids)
	return own
}

func (s tidyState) StartInfo(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.StartInfoResult, error) {
	return s.State.StartInfo(ctx, s.spoil(ids)...)
}

func (s tidyState) Machines(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.MachineResult, error) {
	return s.State.Machines(ctx, s.spoil(ids)...)
}

func (s tidyState) Groups(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.GroupResult, error) {
	return s.State.(provisioner.GroupFinder).Groups(ctx, s.spoil(ids)...)
}

func (s tidyState) Authenticate(ctx context.Context, reqs ...provisioner.AuthRequest) ([]provisioner.AuthResult, error) {
	slices.SortFunc(reqs, func(a, b provisioner.AuthRequest) int { return strings.Compare(string(a.Machine), string(b.Machine)) })
	return s.State.(provisioner.Authenticator).Authenticate(ctx, slices.Clone(reqs)...)
}

// A tidyBroker clears the ids that it has stopped.
type tidyBroker struct{ provisioner.Broker }

func (b tidyBroker) Stop(ctx context.Context, req provisioner.StopRequest) error {
	defer clear(req.Instances)
	req.Instances, _ = slices.Clone(req.Instances), req.Epoch
	return b.Broker.Stop(ctx, req)
}

// ST1, LD2: a host may sort the ids that it is given in place; each machine gets
// what is its own all the same.
func TestHostSortsWhatItIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, reliable, 12, 2)
		for _, m := range w.Machines() {
			must(t, w.SetStartInfo(m.ID, provisioner.StartInfo{Placement: string(m.ID)}))
		}
		must(t, w.Add(provisioner.Machine{ID: "90", Life: provisioner.Dead, Instance: "i-90", Zone: "a"}))
		cfg := configOf(w, nil)
		cfg.State, cfg.Broker = tidyState{w.State()}, tidyBroker{w.Broker()}
		stop := start(t, newTask(t, cfg))
		pass(10 * time.Minute)
		for _, m := range w.Machines() {
			q := w.Request(m.ID)
			if q.Placement != string(m.ID) || string(q.Config.Machine) != string(m.ID) {
				t.Errorf("machine %s was started with placement %q and a configuration for %q", m.ID, q.Placement, q.Config.Machine)
			}
		}
		stopCleanly(t, w, stop)
		if n := strings.Count(w.Transcript(), " stop i-90 -> ok"); n != 1 {
			t.Errorf("%d stops, want 1\n%s", n, w.Transcript())
		}
	})
}

// An unnamedBroker forgets the names of its zones from a moment on.
type unnamedBroker struct {
	*provisionertest.Broker
	forgets func() bool
}

func (b unnamedBroker) Zones(ctx context.Context) ([]provisioner.Zone, error) {
	zones, err := b.Broker.Zones(ctx)
	for i := range zones {
		if b.forgets() {
			zones[i].Name = ""
		}
	}
	return zones, err
}

// AZ1, AZ3: zones without names are not the same as no zones: nothing starts
// without a zone, and a list that was read before stays in force.
func TestZonesWithoutNames(t *testing.T) {
	for _, c := range []struct {
		why  string
		from time.Duration
		want int
	}{
		{"AZ2: no list has been read yet", 0, 0},
		{"AZ3: the last list stays in force", time.Minute, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := fleetOf(t, reliable, 1, 2)
			cfg, began := configOf(w, nil), time.Now()
			cfg.Broker = unnamedBroker{w.Broker(), func() bool { return time.Since(began) >= c.from }}
			task := newTask(t, cfg)
			stop := start(t, task)
			pass(5 * time.Minute)
			must(t, w.AddPending("1"))
			pass(5 * time.Minute)
			if got := len(provisioned(w)); got != c.want {
				t.Errorf("%s: %d machines are provisioned, want %d\n%s", c.why, got, c.want, w.Transcript())
			}
			for _, id := range provisioned(w) {
				if w.Request(id).Zone == "" {
					t.Errorf("%s: machine %s was started without a zone", c.why, id)
				}
			}
			plan, err := task.Plan(t.Context())
			if err != nil || !strings.Contains(plan.String(), "without a name") {
				t.Errorf("%s: the plan says nothing of it: %v\n%s", c.why, err, plan)
			}
			stopCleanly(t, w, stop)
		})
	}
}

// LD2: a machine that is to be read again after an error, and that has changed
// while it waited to be read, is named once in the call that reads it.
func TestReadOnceInOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, reliable, 20, 2)
		inject(t, w, "fleet machine=0 count=5: error")
		cfg := configOf(w, func(_ context.Context, call provisionertest.Call, about ...string) error {
			if call == provisionertest.CallMachines && !slices.Contains(about, "0") {
				time.Sleep(20 * time.Second) // all calls that may be under way at once are
			}
			return nil
		})
		stop := start(t, newTask(t, cfg))
		pass(400 * time.Millisecond)
		for i := 1; i < 18; i++ {
			w.Changed(provisioner.MachineID(fmt.Sprint(i)))
			synctest.Wait()
		}
		w.Changed("0")
		pass(10 * time.Minute)
		if found := w.Misuses(); len(found) > 0 {
			t.Error(found)
		}
		if n := len(provisioned(w)); n != 20 {
			t.Errorf("%d machines are provisioned, want 20", n)
		}
		stopCleanly(t, w, stop)
	})
}

// A Resync that is meant to be never is not, by its spread, one in the past.
func TestLongestResync(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			w := fleetOf(t, reliable, 1, 2)
			var looks atomic.Int64
			cfg := configOf(w, func(_ context.Context, call provisionertest.Call, _ ...string) error {
				if call == provisionertest.CallFleet {
					looks.Add(1)
				}
				return nil
			})
			cfg.Resync, cfg.Random = math.MaxInt64, func() uint64 { return seed }
			stop := start(t, newTask(t, cfg))
			pass(time.Hour)
			if n := looks.Load(); n != 1 {
				t.Errorf("seed %d: %d looks in the first hour, want 1", seed, n)
			}
			stopCleanly(t, w, stop)
		})
	}
}

// A givingBroker gives one instance away, whoever asks.
type givingBroker struct {
	hookedBroker
	instance provisioner.InstanceID
}

func (b givingBroker) Start(_ context.Context, req provisioner.StartRequest) (provisioner.StartResult, error) {
	return provisioner.StartResult{Instance: b.instance, Zone: req.Zone}, nil
}

// HV3, HV4, HV5: an instance that the broker gives for a start, and that is
// somebody's or was left running on purpose, is not stopped when it cannot be
// recorded.
func TestGivenAwayTwice(t *testing.T) {
	for _, c := range []struct {
		why  string
		mode provisioner.HarvestMode
		was  []provisioner.Machine
	}{
		{"HV5: it is in the record of another", provisioner.HarvestDestroyed,
			[]provisioner.Machine{{ID: "9", Life: provisioner.Alive, Instance: "i-9", Zone: "a"}}},
		{"HV3: it was kept when its record was removed", provisioner.HarvestDestroyed,
			[]provisioner.Machine{{ID: "9", Life: provisioner.Dead, Instance: "i-9", Zone: "a", Keep: true}}},
		{"HV4: the mode has spared it", provisioner.HarvestNone,
			[]provisioner.Machine{{ID: "9", Life: provisioner.Dead, Instance: "i-9", Zone: "a"}}},
		{"nobody has it", provisioner.HarvestNone, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := fleetOf(t, reliable, 0, 2)
			must(t, w.Add(c.was...))
			var stopped []string
			cfg := configOf(w, func(_ context.Context, call provisionertest.Call, about ...string) error {
				switch call {
				case provisionertest.CallRecord:
					return errors.New("the state refuses it")
				case provisionertest.CallStop:
					stopped = append(stopped, about...)
				}
				return nil
			})
			cfg.Broker = givingBroker{cfg.Broker.(hookedBroker), "i-9"}
			cfg.Policy.Harvest = c.mode
			stop := start(t, newTask(t, cfg))
			pass(time.Minute)
			must(t, w.AddPending("0"))
			pass(10 * time.Minute)
			if got, want := len(stopped) > 0, c.was == nil; got != want {
				t.Errorf("%s: stopped %q", c.why, stopped)
			}
			_ = stop()
		})
	}
}

// LC2: a look that is asked for while Run ends begins nothing any more.
func TestReconcileWhileRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, reliable, 3, 2)
		cfg := configOf(w, nil)
		cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
			if e.Kind == provisioner.EventShutdown {
				time.Sleep(20 * time.Second) // Run waits for it
			}
		})}
		task := newTask(t, cfg)
		stop := start(t, task)
		pass(time.Minute)
		task.Kill()
		pass(time.Second)
		must(t, w.AddPending("90"))
		if _, err := task.Reconcile(t.Context()); !errors.Is(err, provisioner.ErrStopped) {
			t.Errorf("Reconcile: %v, want %v", err, provisioner.ErrStopped)
		}
		must(t, stop())
		if n := len(provisioned(w)); n != 3 {
			t.Errorf("%d machines are provisioned, want 3: nothing is begun after Kill", n)
		}
	})
}
