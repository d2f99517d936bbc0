package provisionertest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// started makes a kind world with one machine, started and recorded.
func started(t testing.TB) *provisionertest.World {
	t.Helper()
	w := kind(t, provisionertest.Settings{}, 2, 1)
	id := start(t, w, provisioner.StartRequest{Machine: "0"})
	must(t, w.State().SetInstance(t.Context(), provisioner.InstanceRecord{Machine: "0", Instance: id}))
	return w
}

func stopInstance(t testing.TB, w *provisionertest.World, id provisioner.InstanceID) {
	t.Helper()
	must(t, w.Broker().Stop(t.Context(), provisioner.StopRequest{Instances: []provisioner.InstanceID{id}}))
}

func TestLeaks(t *testing.T) {
	other := provisioner.Labels{Controller: "other", Machine: "0"}
	for _, test := range []struct {
		why  string
		do   func(w *provisionertest.World) error
		want []string
	}{
		{"no longer kept", func(w *provisionertest.World) error {
			must(t, w.SetKeep("0", true))
			must(t, w.SetKeep("0", false))
			return w.Forget("0")
		}, []string{"i-0"}},
		{"recorded is none", func(*provisionertest.World) error { return nil }, nil},
		{"started and not recorded", func(w *provisionertest.World) error { start(t, w, provisioner.StartRequest{Machine: "1"}); return nil }, []string{"i-1"}},
		{"rolled back is none", func(w *provisionertest.World) error {
			stopInstance(t, w, start(t, w, provisioner.StartRequest{Machine: "1"}))
			return nil
		}, nil},
		{"of a forgotten record", func(w *provisionertest.World) error { return w.Forget("0") }, []string{"i-0"}},
		{"of a removed record that kept it is none", func(w *provisionertest.World) error {
			must(t, w.SetKeep("0", true))
			must(t, w.SetLife("0", provisioner.Dead))
			return w.State().Remove(t.Context(), provisioner.Removal{Machine: "0"})
		}, nil},
		{"spared is none", func(w *provisionertest.World) error {
			must(t, w.Forget("0"))
			return w.State().AddSpared(t.Context(), provisioner.Spared{Instance: "i-0"})
		}, nil},
		{"excused is none", func(w *provisionertest.World) error { must(t, w.Forget("0")); return w.Excuse("i-0") }, nil},
		{"protected is none", func(w *provisionertest.World) error { must(t, w.Forget("0")); return w.Protect("i-0") }, nil},
		{"vanished is none", func(w *provisionertest.World) error { must(t, w.Forget("0")); return w.Vanish("i-0") }, nil},
		{"powered off is one", func(w *provisionertest.World) error { must(t, w.Forget("0")); return w.PowerOff("i-0") }, []string{"i-0"}},
		{"claimed by another record is none", func(w *provisionertest.World) error {
			must(t, w.Forget("0"))
			return w.Edit("1", func(m *provisioner.Machine) { m.Instance = "i-0" })
		}, nil},
		{"recorded for another machine is none", func(w *provisionertest.World) error {
			must(t, w.Forget("0"))
			return w.State().SetInstance(t.Context(), provisioner.InstanceRecord{Machine: "1", Instance: "i-0"})
		}, nil},
		{"another's is none", func(w *provisionertest.World) error {
			return w.AddInstance(provisioner.Instance{ID: "x", Labels: other})
		}, nil},
		{"one that a crash left behind", func(w *provisionertest.World) error {
			return w.AddInstance(provisioner.Instance{ID: "x", Labels: provisioner.Labels{Machine: "1"}})
		}, []string{"x"}},
		{"of a machine that was added with it is none", func(w *provisionertest.World) error {
			return w.Add(provisioner.Machine{ID: "2", Life: provisioner.Alive, Instance: "i-2"})
		}, nil},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := started(t)
			must(t, test.do(w))
			var got []string
			for _, l := range w.Leaks() {
				got = append(got, string(l.Instance))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if err := w.Check(); (err != nil) != (test.want != nil) {
				t.Errorf("Check: got %v", err)
			}
		})
	}
}

func TestDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := kind(t, provisionertest.Settings{}, 2, 1)
		first := start(t, w, provisioner.StartRequest{Machine: "0"})
		start(t, w, provisioner.StartRequest{Machine: "1"})
		stopInstance(t, w, first)
		start(t, w, provisioner.StartRequest{Machine: "0"})
		if got := w.Doubles(); len(got) != 0 {
			t.Errorf("one after the other is none: got %v", got)
		}
		time.Sleep(time.Second)
		third := start(t, w, provisioner.StartRequest{Machine: "0"})
		stopInstance(t, w, third)
		want := []provisionertest.Double{{Machine: "0", Instances: []provisioner.InstanceID{"i-0~2", "i-0~3"}, At: time.Second}}
		if diff := cmp.Diff(want, w.Doubles()); diff != "" {
			t.Errorf("one that is over is one:\n%s", diff)
		}
		if err := w.Check(); err == nil || !strings.Contains(err.Error(), "machine 0 had the instances i-0~2 i-0~3 at once, at 1s") {
			t.Errorf("Check: got %v", err)
		}
	})
}

func TestWrongStops(t *testing.T) {
	for _, test := range []struct {
		why  string
		do   func(w *provisionertest.World) error
		want string // why it is wrong; empty: it isn't
	}{
		{"of an alive machine", func(*provisionertest.World) error { return nil }, "the machine is alive"},
		{"of a dying machine", func(w *provisionertest.World) error { return w.SetLife("0", provisioner.Dying) }, "the machine is dying"},
		{"of a dead machine", func(w *provisionertest.World) error { return w.SetLife("0", provisioner.Dead) }, ""},
		{"of a dead machine that keeps it", func(w *provisionertest.World) error {
			must(t, w.SetKeep("0", true))
			return w.SetLife("0", provisioner.Dead)
		}, "it was to be kept"},
		{"of a dead machine, claimed by another (HV5)", func(w *provisionertest.World) error {
			must(t, w.Edit("1", func(m *provisioner.Machine) { m.Instance = "i-0" }))
			return w.SetLife("0", provisioner.Dead)
		}, "the machine is alive"},
		{"of no record: a rollback", func(w *provisionertest.World) error { return w.Forget("0") }, ""},
		{"of no record any more, but kept (HV3)", func(w *provisionertest.World) error {
			must(t, w.SetKeep("0", true))
			return w.Forget("0")
		}, "it was protected"},
		{"of a protected one", func(w *provisionertest.World) error { must(t, w.Forget("0")); return w.Protect("i-0") }, "it was protected"},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := started(t)
			must(t, test.do(w))
			for range 2 {
				stopInstance(t, w, "i-0")
			}
			var got []string
			for _, s := range w.WrongStops() {
				got = append(got, s.Why)
			}
			if text := strings.Join(got, ", "); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
			if err := w.Check(); (err != nil) != (test.want != "") {
				t.Errorf("Check: got %v", err)
			}
		})
	}
}

// LD2, HV7, ST20: what a host may rely on.
func TestMisuses(t *testing.T) {
	many := make([]provisioner.MachineID, 501)
	for i, m := range provisionertest.NewFleet(501, 0, 0).Machines {
		many[i] = m.ID
	}
	ctx := context.Background()
	overlap := func(call func(w *provisionertest.World)) func(w *provisionertest.World) {
		return func(w *provisionertest.World) {
			inject(t, w, "*: delay 1s")
			go call(w)
			synctest.Wait()
			call(w)
		}
	}
	for _, test := range []struct {
		why  string
		call func(w *provisionertest.World)
		want string
	}{
		{"no ids", func(w *provisionertest.World) { _, _ = w.State().Machines(ctx) }, "machines at 0s: it is for nothing"},
		{"an id twice", func(w *provisionertest.World) { _, _ = w.State().Groups(ctx, "0", "1", "0") }, "groups 0 1 0 at 0s: it names 0 twice"},
		{"too many", func(w *provisionertest.World) { _, _ = w.State().StartInfo(ctx, many...) },
			"info 0 1 2 3 4 5 6 7 8 9 ... (501) at 0s: more than 500 machines"},
		{"nothing to stop", func(w *provisionertest.World) { _ = w.Broker().Stop(ctx, provisioner.StopRequest{}) }, "stop at 0s: it is for nothing"},
		{"unsorted", func(w *provisionertest.World) {
			_ = w.Broker().Stop(ctx, provisioner.StopRequest{Instances: []provisioner.InstanceID{"b", "a"}})
		}, "stop b a at 0s: its ids are not sorted"},
		{"two starts at once", overlap(func(w *provisionertest.World) {
			_, _ = w.Broker().Start(ctx, provisioner.StartRequest{Machine: "0"})
		}), "start 0 at 0s: another is under way for machine 0"},
		{"two status writes at once", overlap(func(w *provisionertest.World) {
			_ = w.State().WriteStatus(ctx, provisioner.StatusUpdate{Machine: "0", InstanceStatus: "x"})
		}), `status 0 x "" at 0s: another is under way for the status of machine 0`},
		{"two removals at once", overlap(func(w *provisionertest.World) {
			_ = w.State().Remove(ctx, provisioner.Removal{Machine: "0"})
		}), "rm 0 at 0s: another is under way for machine 0"},
		{"two stops of one instance at once", overlap(func(w *provisionertest.World) {
			_ = w.Broker().Stop(ctx, provisioner.StopRequest{Instances: []provisioner.InstanceID{"i-0"}})
		}), "stop i-0 at 0s: another is under way for instance i-0"},
		{"a stop during a start", func(w *provisionertest.World) {
			inject(t, w, "start nth=2: delay 1s")
			_, _ = w.Broker().Start(ctx, provisioner.StartRequest{Machine: "0"})
			go func() { _, _ = w.Broker().Start(ctx, provisioner.StartRequest{Machine: "0"}) }()
			synctest.Wait()
			_ = w.Broker().Stop(ctx, provisioner.StopRequest{Instances: []provisioner.InstanceID{"i-0"}})
		}, "stop i-0 at 0s: another is under way for machine 0"},
		{"a status during a start, another machine's start", func(w *provisionertest.World) {
			inject(t, w, "start: delay 1s")
			go func() { _, _ = w.Broker().Start(ctx, provisioner.StartRequest{Machine: "0"}) }()
			synctest.Wait()
			_ = w.State().WriteStatus(ctx, provisioner.StatusUpdate{Machine: "0"})
			_, _ = w.Broker().Start(ctx, provisioner.StartRequest{Machine: "1"})
		}, ""},
		{"one after the other", func(w *provisionertest.World) {
			for range 2 {
				_ = w.State().WriteStatus(ctx, provisioner.StatusUpdate{Machine: "0"})
				_ = w.Broker().Stop(ctx, provisioner.StopRequest{Instances: []provisioner.InstanceID{"i-0", "i-1"}})
			}
		}, ""},
	} {
		t.Run(test.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := kind(t, provisionertest.Settings{}, 2, 1)
				test.call(w)
				var got []string
				for _, m := range w.Misuses() {
					got = append(got, m.String())
				}
				if diff := cmp.Diff(test.want, strings.Join(got, "\n")); diff != "" {
					t.Error(diff)
				}
				if err := w.Check(); test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("Check: got %v", err)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// What a deed on something that isn't there does: nothing, and it says so.
func TestDeedsSayWhatIsMissing(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 1, 1)
	must(t, w.AddInstance(provisioner.Instance{ID: "x"}))
	for why, err := range map[string]error{
		"edit":           w.Edit("9", nil),
		"forget":         w.Forget("0", "9"),
		"retryable":      w.SetRetryable("9", true),
		"start info":     w.SetStartInfo("9", provisioner.StartInfo{}),
		"profile change": w.SetProfileChange(provisioner.ProfileChange{Machine: "9"}),
		"vanish":         w.Vanish("x", "y"),
		"hide":           w.Hide(time.Second, "y"),
	} {
		if !errors.Is(err, errors.NotFound) {
			t.Errorf("%s: got %v, want NotFound", why, err)
		}
	}
	if _, there := w.Machine("0"); !there || len(w.Live()) != 1 {
		t.Error("half of a deed was done")
	}
	for why, test := range map[string]struct{ err, want error }{
		"a machine that is there":     {w.AddPending("1", "0"), errors.AlreadyExists},
		"a machine twice":             {w.AddPending("1", "1"), errors.AlreadyExists},
		"a malformed machine":         {w.AddPending("1", "0/"), errors.NotValid},
		"an instance that is there":   {w.AddInstance(provisioner.Instance{ID: "x"}), errors.AlreadyExists},
		"an instance without its id":  {w.AddInstance(provisioner.Instance{}), errors.NotValid},
		"and nothing else is wrong":   {w.AddPending("1"), nil},
		"an instance that is not yet": {w.AddInstance(provisioner.Instance{ID: "y"}), nil},
	} {
		if test.want == nil && test.err != nil || test.want != nil && !errors.Is(test.err, test.want) {
			t.Errorf("%s: got %v, want %v", why, test.err, test.want)
		}
	}
}

// What vanishes leaves room, and an id that is taken is not given again.
func TestVanishedAndTaken(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 1, 1)
	w.SetCapacity("a", 1)
	must(t, w.Add(provisioner.Machine{ID: "1", Life: provisioner.Alive, Instance: "i-0", Zone: "a"}))
	must(t, w.Vanish("i-0"))
	must(t, w.Vanish("i-0"))
	if id := start(t, w, provisioner.StartRequest{Machine: "0", Zone: "a"}); id != "i-0~2" {
		t.Errorf("got %s, want i-0~2", id)
	}
	if _, err := w.Broker().Start(t.Context(), provisioner.StartRequest{Machine: "0", Zone: "a"}); !errors.Is(err, provisioner.ErrOutOfCapacity) {
		t.Errorf("got %v, want out of capacity", err)
	}
}

func TestHiddenAndPoweredOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		must(t, w.PowerOff("i-0"))
		wantListed(t, w, "i-0 stopped")
		must(t, w.Hide(time.Minute, "i-0"))
		wantListed(t, w)
		time.Sleep(time.Minute)
		wantListed(t, w, "i-0 stopped")
	})
}
