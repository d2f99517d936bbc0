package provisioner_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// LC6: a leader stalls inside a start, and wakes up after its successor has
// begun. It makes no second live instance that stays, and stops none that the
// new one has; what it does under its old lease is refused or undone.
func TestStalledLeader(t *testing.T) {
	type traits = provisioner.Traits
	for _, c := range []struct {
		why     string
		traits  traits
		finds   bool
		intents bool
		before  bool // the broker has not made it when the leader stalls
		doubles int  // at any moment
	}{
		{"made before the stall, and found by its label", traits{Labels: true, ConsistentReads: true}, false, false, false, 0},
		{"made before the stall, and found late", traits{Labels: true}, false, true, false, 0},
		{"made before the stall, and searched for", traits{ConsistentReads: true}, true, false, false, 0},
		{"made before the stall, asked for again", traits{DedupesByToken: true}, false, true, false, 0},
		{"made after it: the stored token makes no other", traits{DedupesByToken: true}, false, true, true, 0},
		{"made after it: the same with labels", traits{DedupesByToken: true, Labels: true}, true, true, true, 0},
		{"made after it, by a broker that neither dedupes nor refuses an old epoch: the second goes", traits{Labels: true}, true, true, true, 1},
	} {
		t.Run(c.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fleetOf(t, provisionertest.Settings{Controller: "ctl", LostReplies: provisionertest.NeverLost, Traits: c.traits}, 1, 2)
				fault := "start machine=0 after: stuck 10m"
				if c.before {
					fault = "start machine=0: stuck 10m"
				}
				inject(t, w, fault)
				host := func() provisioner.Config {
					cfg := configOf(w, nil)
					cfg.Broker, cfg.State, cfg.Lease = w.PlainBroker(), w.PlainState(), w.TakeLease()
					cfg.Optional = provisioner.Optional{Traits: w.Broker(), Zones: w.Broker(), Status: w.State(), Life: w.State()}
					if c.finds {
						cfg.Optional.Finder = w.Broker()
					}
					if c.intents {
						cfg.Optional.Intents = w.State()
					}
					cfg.Changes, cfg.Controller = provisioner.Stream[[]provisioner.MachineID]{}, "ctl"
					return cfg
				}
				old := start(t, newTask(t, host()))
				pass(2 * time.Minute) // past the wait for a second look
				next := start(t, newTask(t, host()))
				pass(2 * time.Hour)
				var late *provisioner.CallsOutError
				if err := old(); !errors.Is(err, provisioner.ErrLeaseLost) || !errors.As(err, &late) {
					t.Errorf("the old leader ended with %v", err)
				}
				_ = next()
				m, _ := w.Machine("0")
				if live := w.Live(); len(live) != 1 || m.Instance != live[0].ID {
					t.Errorf("machine 0 has %q, and there are %v", m.Instance, live)
				}
				if n := len(w.Doubles()); n != c.doubles {
					t.Errorf("%d doubles, want %d: %v", n, c.doubles, w.Doubles())
				}
				if err := errors.Join(wrongStops(w)); err != nil {
					t.Error(err)
				}
				if t.Failed() {
					t.Log(w.Transcript())
				}
			})
		})
	}
}

func wrongStops(w *provisionertest.World) error {
	for _, s := range w.WrongStops() {
		return errors.New(s.String())
	}
	return nil
}
