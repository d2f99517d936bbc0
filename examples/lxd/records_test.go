package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
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
