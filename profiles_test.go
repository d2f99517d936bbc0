package provisioner_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// The stage of profile changes is in testdata/scenarios/lx-*.txt; here is what
// text can't say.

// epochs notes the epoch of each write about profiles.
type epochs struct {
	mu   sync.Mutex
	seen map[string]uint64
}

func (e *epochs) note(what string, epoch uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[what] = epoch
}

type epochBroker struct {
	*provisionertest.Broker
	*epochs
	meanwhile func()
}

func (b epochBroker) ChangeProfile(ctx context.Context, req provisioner.ProfileChangeRequest) ([]string, error) {
	b.note("change", req.Epoch)
	b.meanwhile()
	return b.Broker.ChangeProfile(ctx, req)
}

type epochState struct {
	*provisionertest.State
	*epochs
}

func (s epochState) SetProfiles(ctx context.Context, rec provisioner.ProfileRecord) error {
	s.note("record", rec.Epoch)
	return s.State.SetProfiles(ctx, rec)
}

func (s epochState) SetProfileStatus(ctx context.Context, u provisioner.ProfileStatusUpdate) error {
	s.note("document", u.Epoch)
	return s.State.SetProfileStatus(ctx, u)
}

func (s epochState) RemoveProfileChange(ctx context.Context, req provisioner.Removal) error {
	s.note("removal", req.Epoch)
	return s.State.RemoveProfileChange(ctx, req)
}

// LC6: the epoch of the lease goes into every write, and without the lease
// nothing is written.
func TestProfilesUnderLease(t *testing.T) {
	for _, c := range []struct {
		why             string
		lost, meanwhile bool
		want            map[string]uint64
	}{
		{"the lease is held", false, false, map[string]uint64{"change": 2, "record": 2, "document": 2, "removal": 2}},
		{"the lease is lost", true, false, map[string]uint64{}},
		{"the lease is lost while the profiles are changed", false, true, map[string]uint64{"change": 2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := fleetOf(t, reliable, 0, 1)
			must(t, w.Add(
				provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i-0", Zone: "a"},
				provisioner.Machine{ID: "1", Life: provisioner.Alive, Instance: "i-1", Zone: "a"}))
			must(t,
				w.SetProfileChange(provisioner.ProfileChange{Machine: "0", Profile: &provisioner.Profile{Name: "juju-m-a-1"}}),
				w.SetProfileChange(provisioner.ProfileChange{Machine: "1", Profile: &provisioner.Profile{Name: "juju-m-b-1"}, Subordinate: true}))
			w.TakeLease()
			lease := w.TakeLease() // epoch 2
			if c.lost {
				lease.Drop()
			}
			seen := &epochs{seen: map[string]uint64{}}
			cfg := configOf(w, nil)
			cfg.Broker, cfg.State = epochBroker{w.Broker(), seen, func() {
				if c.meanwhile {
					lease.Drop()
				}
			}}, epochState{w.State(), seen}
			cfg.Lease = unlost{lease}
			stop := start(t, newTask(t, cfg))
			pass(time.Minute)
			if err := stop(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if diff := cmp.Diff(c.want, seen.seen); diff != "" {
				t.Errorf("%s: epochs (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// unlost is a lease whose loss nobody tells of.
type unlost struct{ *provisionertest.Lease }

func (unlost) Lost() <-chan struct{} { return nil }

// LX2: changes of a large fleet are read in bulk, at most 500 in one call, and of
// those that have one to be made the records too.
func TestProfilesOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(reliable)
		for n := range 1203 {
			id := provisioner.MachineID(fmt.Sprint(n))
			must(t, w.Add(provisioner.Machine{ID: id, Life: provisioner.Alive, Instance: provisioner.InstanceID("i-" + id)}))
			if n%3 == 0 {
				must(t, w.SetProfileChange(provisioner.ProfileChange{Machine: id, Profile: &provisioner.Profile{Name: fmt.Sprintf("juju-m-a-%d", n)}}))
			}
		}
		var mu sync.Mutex
		read := map[provisionertest.Call][]int{}
		cfg := configOf(w, func(_ context.Context, call provisionertest.Call, about ...string) error {
			mu.Lock()
			defer mu.Unlock()
			if call == provisionertest.CallProfiles || call == provisionertest.CallMachines {
				read[call] = append(read[call], len(about))
			}
			return nil
		})
		cfg.Limits.Profiles = 100
		cfg.ProfileChanges = provisioner.Stream[[]provisioner.MachineID]{}
		stop := start(t, newTask(t, cfg))
		pass(5 * time.Minute)
		for _, sizes := range read { // they run side by side
			slices.Sort(sizes)
		}
		want := map[provisionertest.Call][]int{provisionertest.CallProfiles: {203, 500, 500}, provisionertest.CallMachines: {67, 167, 167}}
		if diff := cmp.Diff(want, read); diff != "" {
			t.Errorf("machines asked for (-want +got):\n%s", diff)
		}
		for _, m := range w.Machines() {
			if c := w.ProfileChange(m.ID); c.Machine != "" && c.Status != provisioner.ProfileSuccess {
				t.Errorf("machine %s has the word %q", m.ID, c.Status)
			}
		}
		stopCleanly(t, w, stop)
	})
}

// A change that the state has no ability for is told of, and harms nothing.
func TestProfileChangesWithoutState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, reliable, 1, 1)
		news := make(chan []provisioner.MachineID, 1)
		news <- []provisioner.MachineID{"0"}
		cfg := configOf(w, nil)
		cfg.State = w.PlainState()
		cfg.ProfileChanges = provisioner.Stream[[]provisioner.MachineID]{C: news}
		var told []error
		cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
			if e.Kind == provisioner.EventCallFailed {
				told = append(told, e.Err)
			}
		})}
		stop := start(t, newTask(t, cfg))
		pass(time.Minute)
		stopCleanly(t, w, stop)
		if len(told) != 1 || !errors.Is(told[0], errors.NotSupported) {
			t.Errorf("told of %v, want one NotSupported error", told)
		}
	})
}

// LC8: a look at a fleet that is cut short while changes wait to be read leaves
// none behind: an applied plan makes none, the next look all of them.
func TestProfileReadingsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(reliable)
		for n := range 3000 {
			id := provisioner.MachineID(fmt.Sprint(n))
			must(t, w.Add(provisioner.Machine{ID: id, Life: provisioner.Alive, Instance: provisioner.InstanceID("i-" + id)}))
			if n%100 == 0 {
				must(t, w.SetProfileChange(provisioner.ProfileChange{Machine: id, Profile: &provisioner.Profile{Name: fmt.Sprintf("juju-m-a-%d", n)}}))
			}
		}
		must(t, w.Inject(provisionertest.Fault{Call: provisionertest.CallProfiles, Count: 4, What: provisionertest.TroubleHang}))
		task := newTask(t, configOf(w, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := task.Reconcile(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first look ended with %v", err)
		}
		must(t, w.AddPending("3000"))
		plan, err := task.Plan(t.Context())
		must(t, err)
		if report, err := task.Apply(t.Context(), plan); err != nil || len(report.Results) != 1 {
			t.Errorf("an applied plan is not about profiles: %v %v", report, err)
		}
		for _, m := range w.Machines() {
			if c := w.ProfileChange(m.ID); c.Status != "" {
				t.Errorf("an applied plan is not about profiles: machine %s has the word %q", m.ID, c.Status)
			}
		}
		if report, err := task.Reconcile(t.Context()); err != nil || len(report.Errs()) > 0 {
			t.Errorf("%v %v", report.Errs(), err)
		}
		for _, m := range w.Machines() {
			if c := w.ProfileChange(m.ID); c.Machine != "" && c.Status != provisioner.ProfileSuccess {
				t.Errorf("machine %s has the word %q", m.ID, c.Status)
			}
		}
	})
}

// confusedState gives one machine the change of another.
type confusedState struct{ *provisionertest.State }

func (s confusedState) ProfileChanges(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.ProfileChangeResult, error) {
	results, err := s.State.ProfileChanges(ctx, ids...)
	for i := range results {
		if results[i].ID == "0" {
			results[i].Change.Machine = "1"
		}
	}
	return results, err
}

// LD2: a change that is another machine's is an error of that machine, and is not
// made.
func TestProfileChangeOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(reliable)
		for _, id := range []provisioner.MachineID{"0", "1"} {
			must(t, w.Add(provisioner.Machine{ID: id, Life: provisioner.Alive, Instance: provisioner.InstanceID("i-" + id)}))
			must(t, w.SetProfileChange(provisioner.ProfileChange{Machine: id, Profile: &provisioner.Profile{Name: "juju-m-a-1"}}))
		}
		cfg := configOf(w, nil)
		cfg.State = confusedState{w.State()}
		report, err := newTask(t, cfg).Reconcile(t.Context())
		if err != nil {
			t.Error(err)
		}
		if errs := report.Errs(); len(errs) != 1 || errs[0].Machine != "0" || !errors.Is(errs[0].Err, errors.NotValid) {
			t.Errorf("%v", errs)
		}
		if got := []string{w.ProfileChange("0").Status, w.ProfileChange("1").Status}; got[0] != "" || got[1] != provisioner.ProfileSuccess {
			t.Errorf("words: %q", got)
		}
	})
}

// An id that is none is told of, and keeps no other from being looked at.
func TestProfileChangesOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, reliable, 0, 1)
		must(t, w.Add(provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i-0", Zone: "a"}))
		news := make(chan []provisioner.MachineID)
		cfg := configOf(w, nil)
		cfg.ProfileChanges = provisioner.Stream[[]provisioner.MachineID]{C: news}
		var told []provisioner.MachineID
		cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
			if e.Kind == provisioner.EventProfileFailed {
				told = append(told, e.Machine)
			}
		})}
		stop := start(t, newTask(t, cfg))
		pass(time.Minute)
		must(t, w.SetProfileChange(provisioner.ProfileChange{Machine: "0", Profile: &provisioner.Profile{Name: "juju-m-a-1"}}))
		news <- []provisioner.MachineID{"0/lxd", "4711", "0"}
		pass(time.Minute)
		if diff := cmp.Diff([]provisioner.MachineID{"0/lxd"}, told); diff != "" {
			t.Errorf("told of (-want +got):\n%s", diff)
		}
		if word := w.ProfileChange("0").Status; word != provisioner.ProfileSuccess {
			t.Errorf("the change of machine 0 has the word %q", word)
		}
		stopCleanly(t, w, stop)
	})
}

// What a change's text says.
func TestProfileChangeString(t *testing.T) {
	p := &provisioner.Profile{Name: "new"}
	for want, c := range map[string]provisioner.ProfileChange{
		"":                   {},
		"nothing":            {Machine: "0"},
		"add new":            {Machine: "0", Profile: p},
		"remove old":         {Machine: "0", Old: "old"},
		"replace old by new": {Machine: "0", Old: "old", Profile: p},
	} {
		if got := c.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
