package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

func fleetFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fleet.json")
	write(t, name, text)
	return name
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, name string) *records {
	t.Helper()
	r, err := open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

// What is wrong in a fleet file is told by field, with its value.
func TestBadFleets(t *testing.T) {
	for _, test := range []struct{ why, text, says string }{
		{"no file's text", `{`, "fleet.json"},
		{"a word that means nothing", `{"controller":"c","machine":[]}`, `"machine"`},
		{"no controller", `{"machines":[]}`, `controller ""`},
		{"a profile that could not be recorded", `{"controller":"c","profiles":{"gpu":{}},"machines":[]}`, `profiles["gpu"]`},
		{"a harvest mode that is none", `{"controller":"c","harvest":"some"}`, "some"},
		{"no ids", `{"controller":"c","machines":[{}]}`, `machines[0].ids ""`},
		{"a range that goes back", `{"controller":"c","machines":[{"ids":"3-1"}]}`, `"3-1"`},
		{"a range without an end", `{"controller":"c","machines":[{"ids":"3-"}]}`, `"3-"`},
		{"a range of a slip", `{"controller":"c","machines":[{"ids":"0-3000000"}]}`, `"0-3000000"`},
		{"a name for an id", `{"controller":"c","machines":[{"ids":"web"}]}`, `"web"`},
		{"an id given twice", `{"controller":"c","machines":[{"ids":"0-3"},{"ids":"3"}]}`, "machine 3"},
		{"constraints that are none", `{"controller":"c","machines":[{"ids":"0","constraints":"mem=lots"}]}`, "mem"},
	} {
		if _, err := open(fleetFile(t, test.text)); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want it to say %s", test.why, err, test.says)
		}
	}
	if _, err := open(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// Two runs never work on one fleet.
func TestLock(t *testing.T) {
	name := fleetFile(t, `{"controller":"c"}`)
	first := opened(t, name)
	if _, err := open(name); err == nil || !strings.Contains(err.Error(), "at work already") {
		t.Errorf("second: %v", err)
	}
	first.close()
	opened(t, name)
}

// What was made is there again after a crash; a machine that is no longer
// wanted is dead until it is removed.
func TestRecords(t *testing.T) {
	name := fleetFile(t, `{"controller":"c","machines":[{"ids":"0-1","constraints":"zones=a","group":"g"}]}`)
	r := opened(t, name)
	rec := provisioner.InstanceRecord{Machine: "0", Instance: "i", Zone: "a", Nonce: "n"}
	for range 2 { // idempotent
		if err := r.SetInstance(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	other := rec
	other.Instance = "j"
	if err := r.SetInstance(t.Context(), other); !errors.Is(err, errors.AlreadyExists) {
		t.Errorf("a second instance: %v", err)
	}
	if err := r.Remove(t.Context(), provisioner.Removal{Machine: "0"}); err == nil {
		t.Error("a machine that is wanted was removed")
	}
	_ = r.WriteStatus(t.Context(), provisioner.StatusUpdate{Machine: "1", Status: provisioner.StatusError, InstanceStatus: provisioner.InstanceProvisioningError})
	pending := provisioner.Machine{Life: provisioner.Alive, Status: provisioner.StatusPending}
	check := func(r *records, want ...provisioner.Machine) {
		t.Helper()
		results, err := r.Fleet(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []provisioner.Machine
		for _, result := range results {
			got = append(got, result.Machine)
		}
		slices.SortFunc(got, func(a, b provisioner.Machine) int { return a.ID.Compare(b.ID) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
	}
	zero, one := pending, pending
	zero.ID, zero.Instance, zero.Zone = "0", "i", "a"
	one.ID, one.Status, one.InstanceStatus = "1", provisioner.StatusError, provisioner.InstanceProvisioningError
	check(r, zero, one)
	infos, _ := r.StartInfo(t.Context(), "1", "5")
	if !slices.Contains(infos[0].Info.Group.Members, "0") || infos[0].Info.Constraints.Zones[0] != "a" || !errors.Is(infos[1].Err, errors.NotFound) {
		t.Errorf("start info %+v", infos)
	}
	r.close()

	write(t, name, `{"controller":"c","machines":[{"ids":"1"}]}`)
	r = opened(t, name)
	zero.Life = provisioner.Dead
	one.Status, one.InstanceStatus = provisioner.StatusPending, "" // a new run tries again
	check(r, zero, one)
	if err := r.SetInstance(t.Context(), provisioner.InstanceRecord{Machine: "0", Instance: "i"}); err == nil {
		t.Error("a dead machine was given an instance")
	}
	for range 2 {
		if err := r.Remove(t.Context(), provisioner.Removal{Machine: "0"}); err != nil {
			t.Error(err)
		}
	}
	check(r, one)
	r.close()
	check(opened(t, name), one)
}

// A machine's profile changes are the steps from those it has to those that the
// file wants, one at a time; a crash in between makes the step again.
func TestProfileSteps(t *testing.T) {
	name := fleetFile(t, `{"controller":"c","profiles":{"juju-c-a-2":{"config":{"k":"v"}},"juju-c-b-1":{}},
		"machines":[{"ids":"0","profiles":["theirs","juju-c-a-2","juju-c-b-1"]},{"ids":"1"}]}`)
	r := opened(t, name)
	for id, profiles := range map[provisioner.MachineID][]string{"0": {"default", "theirs", "juju-c-a-1"}, "1": {"default"}} {
		if err := r.SetInstance(t.Context(), provisioner.InstanceRecord{Machine: id, Instance: provisioner.InstanceID("i" + id), Profiles: profiles}); err != nil {
			t.Fatal(err)
		}
	}
	if next := <-r.stepped; next[0] != "0" {
		t.Errorf("first is %v", next)
	}
	infos, _ := r.StartInfo(t.Context(), "0")
	if diff := cmp.Diff([]string{"theirs"}, infos[0].Info.Profiles); diff != "" {
		t.Errorf("a start asks for LXD's own profiles only (-want +got):\n%s", diff)
	}
	check := func(want provisioner.ProfileChange) {
		t.Helper()
		results, err := r.ProfileChanges(t.Context(), "0", "1", "2")
		if err != nil || !errors.Is(results[1].Err, errors.NotFound) || !errors.Is(results[2].Err, errors.NotFound) {
			t.Errorf("%v %v", results, err)
		}
		if want.Machine == "" {
			if !errors.Is(results[0].Err, errors.NotFound) || r.changing() {
				t.Errorf("a step is left: %v", results[0])
			}
			return
		}
		if diff := cmp.Diff(provisioner.ProfileChangeResult{ID: "0", Change: want}, results[0]); diff != "" {
			t.Errorf("step (-want +got):\n%s", diff)
		}
		if r.changing() == provisioner.ProfileTerminal(want.Status) {
			t.Errorf("changing: %v, at %+v", r.changing(), want)
		}
	}
	done := func(change, word string, profiles ...string) {
		t.Helper()
		if profiles != nil {
			if err := r.SetProfiles(t.Context(), provisioner.ProfileRecord{Machine: "0", Profiles: profiles}); err != nil {
				t.Error(err)
			}
		}
		if err := r.SetProfileStatus(t.Context(), provisioner.ProfileStatusUpdate{Machine: "0", Change: change, Status: word}); err != nil {
			t.Error(err)
		}
	}
	first := provisioner.ProfileChange{Machine: "0", ID: "juju-c-a-1>juju-c-a-2", Old: "juju-c-a-1", Profile: &provisioner.Profile{Name: "juju-c-a-2", Config: map[string]string{"k": "v"}}}
	second := provisioner.ProfileChange{Machine: "0", ID: ">juju-c-b-1", Profile: &provisioner.Profile{Name: "juju-c-b-1"}}
	check(first)
	done(first.ID, provisioner.ProfileSuccess, "juju-c-a-2")
	if next := <-r.stepped; next[0] != "0" {
		t.Errorf("next is %v", next)
	}
	check(second)
	done(second.ID, "Error: refused")
	failed := second
	failed.Status = "Error: refused"
	check(failed)
	r.close()
	r = opened(t, name) // a new run tries again
	check(second)
	done(second.ID, provisioner.ProfileSuccess, "juju-c-a-2", "juju-c-b-1")
	check(provisioner.ProfileChange{})
	if err := r.SetProfiles(t.Context(), provisioner.ProfileRecord{Machine: "7"}); !errors.Is(err, errors.NotFound) {
		t.Errorf("profiles of a machine that is none: %v", err)
	}
}

// An attempt is kept before LXD is asked, by compare-and-set, and is there again
// after a crash. A machine that was asked for and is no longer wanted is dead.
func TestIntents(t *testing.T) {
	name := fleetFile(t, `{"controller":"c","machines":[{"ids":"0"}]}`)
	r := opened(t, name)
	intent := provisioner.Intent{Machine: "0", Attempt: 1, Token: "t", Nonce: "c:n", Zone: "a", At: time.Now()}
	other := intent
	other.Token = "u"
	check := func(why string, want provisioner.Intent) {
		t.Helper()
		results, err := r.Intents(t.Context(), "0")
		if diff := cmp.Diff([]provisioner.IntentResult{{ID: "0", Intent: want}}, results); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", why, err, diff)
		}
	}
	check("none", provisioner.Intent{})
	if err := r.SwapIntent(t.Context(), provisioner.Intent{}, provisioner.Intent{Machine: "9", Attempt: 1}); !errors.Is(err, errors.NotFound) {
		t.Errorf("a machine that is none: %v", err)
	}
	if err := r.SwapIntent(t.Context(), provisioner.Intent{}, intent); err != nil {
		t.Fatal(err)
	}
	if err := r.SwapIntent(t.Context(), provisioner.Intent{}, other); !errors.Is(err, errors.AlreadyExists) {
		t.Errorf("in the place of none: %v", err)
	}
	r.name = filepath.Join(t.TempDir(), "gone", "made.json")
	if err := r.SwapIntent(t.Context(), intent, other); err == nil {
		t.Error("what could not be kept was taken for kept")
	}
	check("kept", intent)
	if running, _ := r.count(); running != 0 {
		t.Errorf("%d run", running)
	}
	r.close()

	r = opened(t, name)
	check("after a crash", intent)
	if err := r.SwapIntent(t.Context(), intent, other); err != nil {
		t.Error(err)
	}
	check("swapped", other)
	if err := r.SetInstance(t.Context(), provisioner.InstanceRecord{Machine: "0", Instance: "i"}); err != nil {
		t.Error(err)
	}
	r.close()

	fleet := fleetFile(t, `{"controller":"c","machines":[{"ids":"0"}]}`)
	r = opened(t, fleet)
	if err := r.SwapIntent(t.Context(), provisioner.Intent{}, intent); err != nil {
		t.Fatal(err)
	}
	r.close()
	write(t, fleet, `{"controller":"c"}`)
	if r = opened(t, fleet); !r.unclear {
		t.Error("nobody looks again for what may come of an attempt")
	}
	results, _ := r.Fleet(t.Context())
	if len(results) != 1 || results[0].Machine.Life != provisioner.Dead || results[0].Machine.Instance != "" {
		t.Errorf("no longer wanted: %+v", results)
	}
}

// The records keep every rule of a State (ST10, HV4).
func TestConformance(t *testing.T) {
	r := opened(t, fleetFile(t, `{"controller":"c"}`))
	provisionertest.TestState(t, r, provisionertest.HostOptions{
		Must: []string{"StatusWriter", "IntentStore", "SparedStore", "ProfileState"},
		Skip: map[string]string{ // see TestRecords
			"machines-by-id":        "it wants a dying machine, and a fleet file knows none",
			"remove-living-refused": "it wants a dying machine, and a fleet file knows none",
		},
		NewMachine: func(_ context.Context, m provisioner.Machine) (provisioner.MachineID, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.want[m.ID] = machineSpec{}
			return m.ID, nil
		},
		// A machine is dead if the fleet no longer names it and something of it is kept.
		SetLife: func(_ context.Context, id provisioner.MachineID, _ provisioner.Life) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.want, id)
			there := r.kept.Machines[id]
			there.Nonce = "kit"
			return keep(r, r.kept.Machines, id, &there)
		},
	})
}

// Instances that were left running on purpose are remembered over runs (HV4).
func TestSpared(t *testing.T) {
	name := fleetFile(t, `{"controller":"c"}`)
	r := opened(t, name)
	spared := provisioner.Spared{Instance: "i-7", Machine: "7"}
	if err := r.AddSpared(t.Context(), spared); err != nil {
		t.Fatal(err)
	}
	r.close()
	r = opened(t, name)
	all, err := r.Spared(t.Context())
	if diff := cmp.Diff([]provisioner.Spared{spared}, all); diff != "" || err != nil {
		t.Errorf("after another run: %v (-want +got):\n%s", err, diff)
	}
}

// What cannot be kept has not been made.
func TestRecordThatCannotBeKept(t *testing.T) {
	name := fleetFile(t, `{"controller":"c","machines":[{"ids":"0"}]}`)
	r := opened(t, name)
	r.name = filepath.Join(t.TempDir(), "gone", "made.json")
	if err := r.SetInstance(t.Context(), provisioner.InstanceRecord{Machine: "0", Instance: "i"}); err == nil {
		t.Error("no error")
	}
	if running, wanted := r.count(); running != 0 || wanted != 1 {
		t.Errorf("%d of %d run", running, wanted)
	}
	if err := r.SwapIntent(t.Context(), provisioner.Intent{}, provisioner.Intent{Machine: "0", Attempt: 1}); err == nil {
		t.Error("an attempt that is not stored was allowed")
	}
	if len(r.kept.Machines) != 0 {
		t.Errorf("kept %+v, want nothing", r.kept)
	}
}

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{nil, "-fleet"},
		{[]string{"-fleet", "f", "more"}, "-fleet"},
		{[]string{"-fleet", "f", "-cert", filepath.Join(t.TempDir(), "none")}, "none"},
		{[]string{"-fleet", fleetFile(t, `{"controller":"c"}`), "-lxd", "http://h:1"}, "Endpoints[0]"},
		{[]string{"-fleet", fleetFile(t, `{"controller":"c"}`), "-zones", "racks"}, "ZonesAre"},
	} {
		if err := run(t.Context(), test.args, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %v, want it to say %s", test.args, err, test.says)
		}
	}
}
