package provisioner_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

var harvestModes = []provisioner.HarvestMode{provisioner.HarvestDestroyed, provisioner.HarvestNone, provisioner.HarvestUnknown, provisioner.HarvestAll}

func TestHarvestMode(t *testing.T) {
	tests := []struct {
		why                string
		mode               provisioner.HarvestMode
		text               string
		destroyed, unknown bool
	}{
		{"HV1: the zero value and default", provisioner.HarvestMode(0), "destroyed", true, false},
		{"HV1: none", provisioner.HarvestNone, "none", false, false},
		{"HV1: unknown", provisioner.HarvestUnknown, "unknown", false, true},
		{"HV1: all = unknown + destroyed", provisioner.HarvestAll, "all", true, true},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			if got, err := provisioner.ParseHarvestMode(test.text); got != test.mode || err != nil {
				t.Errorf("parsed: %v, %v", got, err)
			}
			if got := test.mode.String(); got != test.text {
				t.Errorf("printed: %q", got)
			}
			encoded, err := json.Marshal(test.mode)
			if string(encoded) != `"`+test.text+`"` || err != nil {
				t.Errorf("marshalled: %s, %v", encoded, err)
			}
			decoded := provisioner.HarvestAll
			if err := json.Unmarshal(encoded, &decoded); decoded != test.mode || err != nil {
				t.Errorf("unmarshalled: %v, %v", decoded, err)
			}
			if test.mode.Destroyed() != test.destroyed || test.mode.Unknown() != test.unknown {
				t.Errorf("HV2: destroyed %v, unknown %v", test.mode.Destroyed(), test.mode.Unknown())
			}
			if err := test.mode.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHarvestModeInvalid(t *testing.T) {
	const want = `harvest mode "Destroyed": want none, unknown, destroyed or all: not valid`
	_, err := provisioner.ParseHarvestMode("Destroyed")
	if !errors.Is(err, errors.NotValid) || err.Error() != want {
		t.Errorf("HV1: parsing: %v", err)
	}
	mode := provisioner.HarvestAll
	if err := mode.UnmarshalText([]byte("Destroyed")); !errors.Is(err, errors.NotValid) || mode != provisioner.HarvestAll {
		t.Errorf("HV1: unmarshalling: %v, and the mode is %v", err, mode)
	}
	bad := provisioner.HarvestAll + 1
	if err := bad.Validate(); !errors.Is(err, errors.NotValid) ||
		err.Error() != "harvest mode 4: want HarvestDestroyed, HarvestNone, HarvestUnknown or HarvestAll: not valid" {
		t.Errorf("HV1: validating: %v", err)
	}
	if _, err := bad.MarshalText(); !errors.Is(err, errors.NotValid) {
		t.Errorf("HV1: marshalling: %v", err)
	}
	if bad.String() != "invalid" || bad.Destroyed() || bad.Unknown() {
		t.Errorf("HV1: an invalid mode allows nothing: %v", bad)
	}
}

func FuzzHarvestMode(f *testing.F) {
	for _, s := range []string{"", "none", "unknown", "destroyed", "all", "ALL", " none", "invalid", "none\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		mode, err := provisioner.ParseHarvestMode(s)
		var other provisioner.HarvestMode
		if e := other.UnmarshalText([]byte(s)); (e == nil) != (err == nil) || other != mode {
			t.Fatalf("%q: parse says %v, %v; unmarshal %v, %v", s, mode, err, other, e)
		}
		if err != nil {
			if !errors.Is(err, errors.NotValid) || mode != 0 {
				t.Fatalf("%q: %v, %v", s, mode, err)
			}
			return
		}
		if mode.String() != s || mode.Validate() != nil {
			t.Fatalf("%q became %v", s, mode)
		}
	})
}

func TestFateOf(t *testing.T) {
	tests := []struct {
		why   string
		in    provisioner.Machine
		other provisioner.MachineID
		want  map[provisioner.HarvestMode]provisioner.Fate // those that are missing: as HarvestDestroyed
	}{
		{"HV2: the modes govern the instances of the dead", provisioner.Machine{ID: "0", Life: provisioner.Dead, Instance: "i-0"}, "",
			map[provisioner.HarvestMode]provisioner.Fate{provisioner.HarvestDestroyed: provisioner.FateStop, provisioner.HarvestAll: provisioner.FateStop, provisioner.HarvestNone: provisioner.FateSpared, provisioner.HarvestUnknown: provisioner.FateSpared}},
		{"HV3: keep-instance wins over every mode", provisioner.Machine{ID: "0", Life: provisioner.Dead, Instance: "i-0", Keep: true}, "",
			map[provisioner.HarvestMode]provisioner.Fate{provisioner.HarvestDestroyed: provisioner.FateKept}},
		{"HV3: what could not be looked up is kept for now, in every mode", provisioner.Machine{ID: "0", Life: provisioner.Dead, Instance: "i-0", Unread: provisioner.FieldKeep}, "",
			map[provisioner.HarvestMode]provisioner.Fate{provisioner.HarvestDestroyed: provisioner.FateUnclear}},
		{"HV3: what an unread keep holds is not looked at", provisioner.Machine{ID: "0", Life: provisioner.Dead, Instance: "i-0", Keep: true, Unread: provisioner.FieldKeep}, "",
			map[provisioner.HarvestMode]provisioner.Fate{provisioner.HarvestDestroyed: provisioner.FateUnclear}},
		{"HV5: shared with a machine that isn't dead: never stopped", provisioner.Machine{ID: "0", Life: provisioner.Dead, Instance: "i-0"}, "1",
			map[provisioner.HarvestMode]provisioner.Fate{provisioner.HarvestDestroyed: provisioner.FateShared, provisioner.HarvestNone: provisioner.FateSpared, provisioner.HarvestUnknown: provisioner.FateSpared}},
		{"HV6: never had one: nothing to settle", provisioner.Machine{ID: "0", Life: provisioner.Dead}, "",
			map[provisioner.HarvestMode]provisioner.Fate{provisioner.HarvestDestroyed: provisioner.FateNone}},
		{"HV6: without an instance there is nothing to keep", provisioner.Machine{ID: "0", Life: provisioner.Dead, Keep: true}, "",
			map[provisioner.HarvestMode]provisioner.Fate{provisioner.HarvestDestroyed: provisioner.FateNone}},
		{"HV6: nor does it matter that keep is unread", provisioner.Machine{ID: "0", Life: provisioner.Dead, Unread: provisioner.FieldKeep}, "",
			map[provisioner.HarvestMode]provisioner.Fate{provisioner.HarvestDestroyed: provisioner.FateNone}},
		{"CL9: the instance id is unread: not taken for none", provisioner.Machine{ID: "0", Life: provisioner.Dead, Unread: provisioner.FieldInstance}, "",
			map[provisioner.HarvestMode]provisioner.Fate{provisioner.HarvestDestroyed: provisioner.FateUnclear}},
		{"CL9: what an unread instance id holds is not looked at", provisioner.Machine{ID: "0", Life: provisioner.Dead, Instance: "i-0", Unread: provisioner.FieldInstance}, "",
			map[provisioner.HarvestMode]provisioner.Fate{provisioner.HarvestDestroyed: provisioner.FateUnclear}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			for _, mode := range harvestModes {
				want, ok := test.want[mode]
				if !ok {
					want = test.want[provisioner.HarvestDestroyed]
				}
				fate, reason := provisioner.FateOf(test.in, test.other, mode)
				if fate != want {
					t.Errorf("%v: %v, want %v", mode, fate, want)
				}
				if reason == "" {
					t.Errorf("%v: no reason (HV13)", mode)
				}
			}
		})
	}
}

func TestFateText(t *testing.T) {
	var words []string
	for f := provisioner.FateNone; f <= provisioner.FateUnclear+1; f++ {
		text, err := f.MarshalText()
		if err != nil {
			t.Error(err)
		}
		words = append(words, string(text))
	}
	if diff := cmp.Diff([]string{"none", "stop", "kept", "spared", "shared", "unclear", "invalid"}, words); diff != "" {
		t.Error(diff)
	}
}

func TestFindUnknown(t *testing.T) {
	claimed := func(id provisioner.InstanceID) bool { return id == "i-claimed" || id == "" }
	listing := provisioner.Listing{Instances: []provisioner.Instance{
		{ID: "i-9", Zone: "a"},
		{ID: "i-claimed"},
		{ID: "i-10", State: provisioner.InstanceStopped},
		{ID: ""},
		{ID: "i-gone", State: provisioner.InstanceTerminated},
		{ID: "i-9", Zone: "a"},
	}}
	before := slices.Clone(listing.Instances)
	got := provisioner.FindUnknown(listing, claimed)
	want := []provisioner.Instance{{ID: "i-10", State: provisioner.InstanceStopped}, {ID: "i-9", Zone: "a"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("HV9: unclaimed ones by id, each once, powered-off ones too, without the terminated (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, listing.Instances); diff != "" {
		t.Errorf("the listing was changed:\n%s", diff)
	}
	all := provisioner.FindUnknown(provisioner.Listing{Instances: []provisioner.Instance{{ID: ""}, {ID: "i-1"}}}, func(provisioner.InstanceID) bool { return false })
	if diff := cmp.Diff([]provisioner.Instance{{ID: "i-1"}}, all); diff != "" {
		t.Errorf("HV9: an empty id matches nothing (-want +got):\n%s", diff)
	}
	if got := provisioner.FindUnknown(provisioner.Listing{}, claimed); got != nil {
		t.Errorf("nothing listed, nothing unknown: %v", got)
	}
}

func TestHarvest(t *testing.T) {
	dead := []provisioner.DeadMachine{
		{Machine: provisioner.Machine{ID: "9", Life: provisioner.Dead, Instance: "i-9"}},
		{Machine: provisioner.Machine{ID: "1", Life: provisioner.Dead, Instance: "i-1"}, ClaimedBy: "7"},
		{Machine: provisioner.Machine{ID: "2", Life: provisioner.Dead, Instance: "i-2", Keep: true}},
		{Machine: provisioner.Machine{ID: "3", Life: provisioner.Dead}},
		{Machine: provisioner.Machine{ID: "10", Life: provisioner.Dead, Instance: "i-10"}},
		{Machine: provisioner.Machine{ID: "4", Life: provisioner.Dead, Instance: "i-4", Unread: provisioner.FieldKeep}},
		{Machine: provisioner.Machine{ID: "11", Life: provisioner.Dead, Instance: "i-10"}},
	}
	unknown := []provisioner.Instance{{ID: "i-0"}, {ID: "i-5"}}
	kept := provisioner.Leftover{"i-2", "2", provisioner.FateKept, "its instance is to be kept"}
	unclear := provisioner.Leftover{"i-4", "4", provisioner.FateUnclear, "whether its instance is to be kept could not be read"}
	stranger := func(id provisioner.InstanceID) provisioner.Leftover {
		return provisioner.Leftover{id, "", provisioner.FateSpared, provisioner.ReasonUnknown}
	}
	spared := func(i provisioner.InstanceID, m provisioner.MachineID, mode string) provisioner.Leftover {
		return provisioner.Leftover{i, m, provisioner.FateSpared, "harvest mode " + mode + " spares the instances of dead machines"}
	}
	shared := provisioner.Leftover{"i-1", "1", provisioner.FateShared, "its instance i-1 is also claimed by machine 7"}
	destroyed := provisioner.HarvestSet{
		Stop: []provisioner.InstanceID{"i-10", "i-9"},
		Left: []provisioner.Leftover{stranger("i-0"), shared, kept, unclear, stranger("i-5")},
	}
	nothing := func(mode string) provisioner.HarvestSet {
		return provisioner.HarvestSet{Left: []provisioner.Leftover{stranger("i-0"), spared("i-1", "1", mode), spared("i-10", "10", mode),
			spared("i-10", "11", mode), kept, unclear, stranger("i-5"), spared("i-9", "9", mode)}}
	}
	tests := []struct {
		why  string
		mode provisioner.HarvestMode
		want provisioner.HarvestSet
	}{
		{"HV5, HV7, HV8: by the ids in the records, sorted, each once, never a shared one", provisioner.HarvestDestroyed, destroyed},
		{"unknown instances are only reported, in this mode too", provisioner.HarvestAll, destroyed},
		{"HV4: mode none spares", provisioner.HarvestNone, nothing("none")},
		{"HV4: mode unknown spares, and unknown ones are only reported", provisioner.HarvestUnknown, nothing("unknown")},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			before := slices.Clone(dead)
			got := provisioner.Harvest(dead, unknown, test.mode)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, dead); diff != "" {
				t.Errorf("the machines were changed:\n%s", diff)
			}
			for _, left := range got.Left {
				if left.Reason == "" {
					t.Errorf("HV13: no reason for %v", left)
				}
			}
		})
	}
	two := func(first, second provisioner.DeadMachine) []provisioner.DeadMachine {
		for _, d := range []*provisioner.DeadMachine{&first, &second} {
			d.Machine.Life, d.Machine.Instance = provisioner.Dead, "i-0"
		}
		return []provisioner.DeadMachine{first, second}
	}
	for _, test := range []struct {
		why  string
		dead []provisioner.DeadMachine
	}{
		{"HV3: one of two dead machines keeps the instance of both", two(provisioner.DeadMachine{Machine: provisioner.Machine{ID: "0"}}, provisioner.DeadMachine{Machine: provisioner.Machine{ID: "1", Keep: true}})},
		{"HV3: one of them may have to keep it", two(provisioner.DeadMachine{Machine: provisioner.Machine{ID: "0"}}, provisioner.DeadMachine{Machine: provisioner.Machine{ID: "1", Unread: provisioner.FieldKeep}})},
		{"HV5: what is said of one claim counts for both", two(provisioner.DeadMachine{Machine: provisioner.Machine{ID: "0"}}, provisioner.DeadMachine{Machine: provisioner.Machine{ID: "1"}, ClaimedBy: "7"})},
	} {
		if got := provisioner.Harvest(test.dead, nil, provisioner.HarvestAll); got.Stop != nil || len(got.Left) != 2 {
			t.Errorf("%s: %+v", test.why, got)
		}
	}
	if got := provisioner.Harvest(nil, nil, provisioner.HarvestAll); got.Stop != nil || got.Left != nil {
		t.Errorf("nothing dead, nothing unknown: %+v", got)
	}
}
