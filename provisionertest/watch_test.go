package provisionertest_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

type ids = []provisioner.MachineID

// next receives what lies ready.
func next[T any](t testing.TB, s provisioner.Stream[T]) T {
	t.Helper()
	select {
	case v, open := <-s.C:
		if !open {
			t.Fatal("the watcher is closed")
		}
		return v
	default:
		t.Fatal("nothing to receive")
		panic("unreachable")
	}
}

func wantNothing[T any](t testing.TB, s provisioner.Stream[T]) {
	t.Helper()
	select {
	case v := <-s.C:
		t.Errorf("got %v, want nothing", v)
	default:
	}
}

func TestChangesCoalesce(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 3, 0)
	s := w.Changes()
	if first := next(t, s); len(first) != 0 {
		t.Errorf("first: got %v, want a change without ids", first)
	}
	wantNothing(t, s)
	must(t, w.SetLife("1", provisioner.Dying))
	must(t, w.SetLife("0", provisioner.Dying))
	must(t, w.SetLife("1", provisioner.Dead))
	if diff := cmp.Diff(ids{"1", "0"}, next(t, s)); diff != "" {
		t.Errorf("each id once:\n%s", diff)
	}
	wantNothing(t, s)
	must(t, w.SetKeep("1", true))
	if diff := cmp.Diff(ids{"1"}, next(t, s)); diff != "" {
		t.Errorf("what was received is forgotten:\n%s", diff)
	}
}

// Each deed on a record tells the watchers, and on them alone.
func TestWhatIsAChange(t *testing.T) {
	for _, test := range []struct {
		why  string
		deed func(w *provisionertest.World) error
		want ids
	}{
		{"added", func(w *provisionertest.World) error { return w.AddPending("2", "3") }, ids{"2", "3"}},
		{"edited", func(w *provisionertest.World) error {
			return w.Edit("0", func(m *provisioner.Machine) { m.Zone = "z" })
		}, ids{"0"}},
		{"life", func(w *provisionertest.World) error { return w.SetLife("0", provisioner.Dead) }, ids{"0"}},
		{"keep", func(w *provisionertest.World) error { return w.SetKeep("0", true) }, ids{"0"}},
		{"status", func(w *provisionertest.World) error { return w.SetStatus("0", provisioner.StatusError, "") }, ids{"0"}},
		{"forgotten", func(w *provisionertest.World) error { return w.Forget("0", "1") }, ids{"0", "1"}},
		{"said so", func(w *provisionertest.World) error { w.Changed("7"); return nil }, ids{"7"}},
		{"retryable is none", func(w *provisionertest.World) error { return w.SetRetryable("0", true) }, nil},
		{"start info is none", func(w *provisionertest.World) error { return w.SetStartInfo("0", provisioner.StartInfo{}) }, nil},
		{"an instance is none", func(w *provisionertest.World) error { return w.AddInstance(provisioner.Instance{ID: "x"}) }, nil},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := kind(t, provisionertest.Settings{}, 2, 0)
			s := w.Changes()
			next(t, s)
			must(t, test.deed(w))
			if test.want == nil {
				wantNothing(t, s)
				return
			}
			if diff := cmp.Diff(test.want, next(t, s)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEcho(t *testing.T) {
	for _, echo := range []bool{false, true} {
		w := kind(t, provisionertest.Settings{Echo: echo}, 2, 0)
		must(t, w.SetLife("1", provisioner.Dying))
		s := w.Changes()
		next(t, s)
		state, ctx := w.State(), t.Context()
		for _, write := range []func() error{
			func() error {
				return state.SetInstance(ctx, provisioner.InstanceRecord{Machine: "0", Instance: "i"})
			},
			func() error { return state.WriteStatus(ctx, provisioner.StatusUpdate{Machine: "0"}) },
			func() error { return state.EnsureDead(ctx, provisioner.LifeRequest{Machine: "1"}) },
			func() error { return state.Remove(ctx, provisioner.Removal{Machine: "1"}) },
		} {
			must(t, write())
			if echo {
				next(t, s)
			} else {
				wantNothing(t, s)
			}
		}
	}
}

func TestRetriesCoalesce(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 0, 0)
	s := w.Retries()
	wantNothing(t, s)
	w.Tick()
	w.Tick()
	next(t, s)
	wantNothing(t, s)
}

func TestWatchersCloseAndStop(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 1, 0)
	changes, other, retries := w.Changes(), w.Changes(), w.Retries()
	if w.OpenWatchers() != 3 {
		t.Errorf("got %d, want 3", w.OpenWatchers())
	}
	must(t, other.Stop())
	boom := errors.New("boom")
	next(t, changes)
	w.CloseChanges(boom)
	if _, open := <-changes.C; open {
		t.Error("the watcher of machines is open")
	}
	if err := changes.Stop(); err != boom {
		t.Errorf("got %v, want what it was closed with", err)
	}
	if changes.Stop() == nil {
		t.Error("a second stop is a fault, and is told")
	}
	must(t, w.SetKeep("0", true)) // to nobody
	w.CloseRetries(nil)
	if _, open := <-retries.C; open {
		t.Error("the watcher of retry signals is open")
	}
	must(t, retries.Stop())
	if w.OpenWatchers() != 0 {
		t.Errorf("got %d, want 0", w.OpenWatchers())
	}
	w.Tick()
}

// The last change is never lost, whatever the reader does meanwhile.
func TestChangesAreNeverLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := kind(t, provisionertest.Settings{Silent: true}, 0, 0)
		s := w.Changes()
		const writers, each = 4, 500
		seen := map[provisioner.MachineID]bool{}
		go func() {
			for batch := range s.C {
				for _, id := range batch {
					seen[id] = true
				}
			}
		}()
		var group sync.WaitGroup
		for n := range writers {
			group.Go(func() {
				for i := range each {
					w.Changed(provisioner.MachineID(fmt.Sprintf("%d-%d", n, i)))
				}
			})
		}
		group.Wait()
		synctest.Wait()
		if len(seen) != writers*each {
			t.Errorf("got %d ids, want %d", len(seen), writers*each)
		}
		w.CloseChanges(nil)
	})
}
