package provisioner_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// LX1
func TestProfileNameParse(t *testing.T) {
	type (
		known = provisioner.ProfileNaming
		parts = provisioner.ProfileName
	)
	tests := []struct {
		why   string
		known known
		name  string
		want  parts // zero: NotValid
	}{
		{"by form", known{}, "juju-default-mysql-0", parts{"juju", "default", "mysql", 0}},
		{"a revision of many digits", known{}, "juju-default-mysql-1207", parts{"juju", "default", "mysql", 1207}},
		{"a guess: the model is as short as it can be", known{}, "juju-a-b-c-1", parts{"juju", "a", "b-c", 1}},
		{"a part of digits alone is the model's", known{}, "juju-a-b-2-c-d-1", parts{"juju", "a-b-2", "c-d", 1}},
		{"an application begins with a letter", known{}, "juju-m-2b-c-1", parts{"juju", "m-2b", "c", 1}},
		{"it may hold digits", known{}, "juju-m-k8s-node2-1", parts{"juju", "m", "k8s-node2", 1}},
		{"a guess that is wrong: the profile of model a-b-2", known{}, "juju-a-b-2", parts{"juju", "a", "b", 2}},
		{"another prefix", known{Prefix: "my-lab"}, "my-lab-m-mysql-1", parts{"my-lab", "m", "mysql", 1}},

		{"a known model decides", known{Model: "a-b"}, "juju-a-b-c-1", parts{"juju", "a-b", "c", 1}},
		{"the profile of the model a-b-2", known{Model: "a-b-2"}, "juju-a-b-2", parts{}},
		{"an application of it", known{Model: "a-b-2"}, "juju-a-b-2-c-3", parts{"juju", "a-b-2", "c", 3}},
		{"which may have digits alone in its name", known{Model: "m"}, "juju-m-c-7-3", parts{"juju", "m", "c-7", 3}},
		{"another model", known{Model: "a"}, "juju-b-c-1", parts{}},
		{"a model that begins alike", known{Model: "a"}, "juju-ab-c-1", parts{}},
		{"the model of the name alone", known{Model: "a"}, "juju-a-1", parts{}},

		{"known applications decide", known{Applications: []string{"c"}}, "juju-a-b-c-1", parts{"juju", "a-b", "c", 1}},
		{"the longest", known{Applications: []string{"c", "b-c", "d"}}, "juju-a-b-c-1", parts{"juju", "a", "b-c", 1}},
		{"in any order", known{Applications: []string{"b-c", "d", "c"}}, "juju-a-b-c-1", parts{"juju", "a", "b-c", 1}},
		{"if a model is left", known{Applications: []string{"c", "a-b-c"}}, "juju-a-b-c-1", parts{"juju", "a-b", "c", 1}},
		{"none of them", known{Applications: []string{"d"}}, "juju-a-b-c-1", parts{}},
		{"one that ends alike", known{Applications: []string{"sql"}}, "juju-m-mysql-1", parts{}},
		{"model and applications decide", known{Model: "a", Applications: []string{"c", "b-c"}}, "juju-a-b-c-1", parts{"juju", "a", "b-c", 1}},
		{"another model's application", known{Model: "a", Applications: []string{"c"}}, "juju-a-b-c-1", parts{}},
		{"the profile of a-b-2 is no b of a that has none", known{Model: "a", Applications: []string{"c"}}, "juju-a-b-2", parts{}},

		{"empty", known{}, "", parts{}},
		{"LXD's own", known{}, "default", parts{}},
		{"the model's", known{}, "juju-default", parts{}},
		{"the model's, which ends in a number", known{}, "juju-default-2", parts{}},
		{"another prefix than the default", known{}, "lab-m-mysql-1", parts{}},
		{"the default where another is set", known{Prefix: "lab"}, "juju-m-mysql-1", parts{}},
		{"a prefix that begins alike", known{}, "jujube-m-mysql-1", parts{}},
		{"no model", known{}, "juju--mysql-1", parts{}},
		{"no model before a known application", known{Applications: []string{"c"}}, "juju--c-1", parts{}},
		{"no application", known{}, "juju-m--1", parts{}},
		{"no application of a known model", known{Model: "m"}, "juju-m--1", parts{}},
		{"no revision", known{}, "juju-m-mysql", parts{}},
		{"an empty one", known{}, "juju-m-mysql-", parts{}},
		{"a revision that is no number", known{}, "juju-m-mysql-1a", parts{}},
		{"below zero", known{}, "juju-m-mysql--1", parts{}},
		{"below zero, of a known model", known{Model: "m"}, "juju-m-mysql--1", parts{}},
		{"with a leading zero", known{}, "juju-m-mysql-01", parts{}},
		{"too large", known{}, "juju-m-mysql-99999999999999999999", parts{}},
		{"a character that no name has", known{}, "juju-m/x-mysql-1", parts{}},
		{"in the application", known{Model: "m"}, "juju-m-my sql-1", parts{}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, err := test.known.Parse(test.name)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Parse(%q) (-want +got), error %v:\n%s", test.name, err, diff)
			}
			if bad := test.want == (parts{}); bad != (err != nil) || bad && !errors.Is(err, errors.NotValid) {
				t.Errorf("Parse(%q): error %v", test.name, err)
			}
			if err == nil && got.String() != test.name {
				t.Errorf("Parse(%q).String() = %q", test.name, got)
			}
		})
	}
}

// LX1
func TestProfileNamingName(t *testing.T) {
	type known = provisioner.ProfileNaming
	tests := []struct {
		why         string
		known       known
		application string
		revision    int
		want        string // or part of the error
	}{
		{"the default prefix", known{Model: "default"}, "mysql", 0, "juju-default-mysql-0"},
		{"another", known{Prefix: "lab", Model: "a-b-2"}, "nova-compute", 14, "lab-a-b-2-nova-compute-14"},
		{"a known application", known{Model: "m", Applications: []string{"a", "b"}}, "b", 1, "juju-m-b-1"},
		{"an unknown one", known{Model: "m", Applications: []string{"a", "b"}}, "c", 1, `profile application "c": want one of the model's: not valid`},
		{"no model", known{}, "a", 1, `profile model "": want`},
		{"a model that is none", known{Model: "a/b"}, "a", 1, `profile model "a/b": want`},
		{"no application", known{Model: "m"}, "", 1, `profile application "": want`},
		{"an application that would make the revision look negative", known{Model: "m"}, "a-", 1, `profile application "a-": want no '-' at the end`},
		{"a negative revision", known{Model: "m"}, "a", -1, `profile revision -1: want 0 or more`},
		{"a prefix that is none", known{Prefix: "-", Model: "m"}, "a", 1, `profile prefix "-": want`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, err := test.known.Name(test.application, test.revision)
			if err != nil {
				if got != "" || !errors.Is(err, errors.NotValid) {
					t.Errorf("got %q, %v; want no name, NotValid", got, err)
				}
				got = err.Error()
			}
			if err == nil && got != test.want || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// An error says what was wrong and what was expected.
func TestProfileNameErrors(t *testing.T) {
	tests := []struct {
		known      provisioner.ProfileNaming
		name, want string
	}{
		{provisioner.ProfileNaming{}, "default",
			`profile name "default": want it to begin with "juju-": not valid`},
		{provisioner.ProfileNaming{}, "juju-m-a-x",
			`profile name "juju-m-a-x": revision "x": want a number without leading zeros after the last '-': not valid`},
		{provisioner.ProfileNaming{}, "juju-m-1",
			`profile name "juju-m-1": "m": want a model, '-' and an application: not valid`},
		{provisioner.ProfileNaming{Model: "m"}, "juju-n-a-1",
			`profile name "juju-n-a-1": "n-a": want "m", '-' and an application: not valid`},
		{provisioner.ProfileNaming{Model: "m", Applications: []string{"b"}}, "juju-m-a-1",
			`profile name "juju-m-a-1": "m-a": want "m", '-' and one of the model's applications: not valid`},
		{provisioner.ProfileNaming{Model: "m"}, "juju-m-a/b-1",
			`profile name "juju-m-a/b-1": profile application "a/b": want letters, digits, '.', '_' or '-' that begin with a letter or digit: not valid`},
	}
	for _, test := range tests {
		_, err := test.known.Parse(test.name)
		if diff := cmp.Diff(test.want, fmt.Sprint(err)); diff != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", test.name, diff)
		}
	}
}

// LX1
func TestProfileNamingWithRevision(t *testing.T) {
	tests := []struct {
		why      string
		known    provisioner.ProfileNaming
		name     string
		revision int
		want     string // empty: NotValid
	}{
		{"another", provisioner.ProfileNaming{}, "juju-m-mysql-9", 10, "juju-m-mysql-10"},
		{"the same", provisioner.ProfileNaming{}, "juju-m-mysql-9", 9, "juju-m-mysql-9"},
		{"the last number only", provisioner.ProfileNaming{}, "juju-m-2-k8s-2", 3, "juju-m-2-k8s-3"},
		{"whatever the guess was", provisioner.ProfileNaming{}, "juju-a-b-c-1", 2, "juju-a-b-c-2"},
		{"not the model's number", provisioner.ProfileNaming{Model: "a-b-2"}, "juju-a-b-2", 3, ""},
		{"not a profile's name", provisioner.ProfileNaming{}, "default", 3, ""},
		{"a negative revision", provisioner.ProfileNaming{}, "juju-m-mysql-9", -1, ""},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, err := test.known.WithRevision(test.name, test.revision)
			if got != test.want || (test.want == "") != errors.Is(err, errors.NotValid) {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// LX1
func TestProfileNamingFilter(t *testing.T) {
	tests := []struct {
		why   string
		known provisioner.ProfileNaming
		names []string
		want  []string
	}{
		{"valid names in order", provisioner.ProfileNaming{},
			[]string{"default", "juju-m-b-1", "juju-m", "juju-m-a-2", "x"}, []string{"juju-m-b-1", "juju-m-a-2"}},
		{"the last place of a name given twice counts", provisioner.ProfileNaming{},
			[]string{"juju-m-a-1", "juju-m-b-1", "juju-m-a-1"}, []string{"juju-m-b-1", "juju-m-a-1"}},
		{"two revisions are two names", provisioner.ProfileNaming{},
			[]string{"juju-m-a-1", "juju-m-a-2"}, []string{"juju-m-a-1", "juju-m-a-2"}},
		{"the model decides", provisioner.ProfileNaming{Model: "a-b-2"},
			[]string{"juju-a-b-2", "juju-a-b-2-c-1", "juju-a-b-1"}, []string{"juju-a-b-2-c-1"}},
		{"the applications decide", provisioner.ProfileNaming{Model: "m", Applications: []string{"a"}},
			[]string{"juju-m-a-1", "juju-m-b-1", "juju-m-a-b-1"}, []string{"juju-m-a-1"}},
		{"none", provisioner.ProfileNaming{}, []string{"default"}, nil},
		{"nothing", provisioner.ProfileNaming{}, nil, nil},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			before := slices.Clone(test.names)
			if diff := cmp.Diff(test.want, test.known.Filter(test.names)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.names); diff != "" {
				t.Errorf("the names were changed:\n%s", diff)
			}
		})
	}
}

// LX1
func TestProfileNamingPick(t *testing.T) {
	names := []string{"default", "juju-m-a-1", "juju-m-nova-compute-3", "juju-m-compute-1", "juju-m-a-2", "juju-m-nova-compute-4", "juju-m"}
	model := provisioner.ProfileNaming{Model: "m"}
	tests := []struct {
		why         string
		known       provisioner.ProfileNaming
		application string
		want        string
	}{
		{"the last of several", model, "a", "juju-m-a-2"},
		{"exactly that application", model, "compute", "juju-m-compute-1"},
		{"a longer one", model, "nova-compute", "juju-m-nova-compute-4"},
		{"none", model, "b", ""},
		{"a part of a name is no application", model, "nova", ""},
		{"no application", model, "", ""},
		{"another model's", provisioner.ProfileNaming{Model: "n"}, "a", ""},
		{"one that is not the model's", provisioner.ProfileNaming{Model: "m", Applications: []string{"b"}}, "a", ""},
		{"without a model: the application asked for is known", provisioner.ProfileNaming{}, "nova-compute", "juju-m-nova-compute-4"},
		{"and a guess if its name ends another's", provisioner.ProfileNaming{}, "compute", "juju-m-nova-compute-4"},
		{"which known applications settle", provisioner.ProfileNaming{Applications: []string{"compute", "nova-compute"}}, "compute", "juju-m-compute-1"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			if got := test.known.Pick(names, test.application); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestDiffProfiles(t *testing.T) {
	type (
		names = []string
		diffs = []provisioner.ProfileDiff
	)
	tests := []struct {
		why        string
		known      provisioner.ProfileNaming
		have, want names
		diffs      diffs
	}{
		{"nothing to do", provisioner.ProfileNaming{}, names{"juju-m-a-1"}, names{"juju-m-a-1"}, nil},
		{"nothing at all", provisioner.ProfileNaming{}, nil, nil, nil},
		{"add, in the order of want", provisioner.ProfileNaming{}, nil, names{"juju-m-b-1", "juju-m-a-1"},
			diffs{{New: "juju-m-b-1"}, {New: "juju-m-a-1"}}},
		{"remove, in the order of have", provisioner.ProfileNaming{}, names{"juju-m-b-1", "juju-m-a-1"}, nil,
			diffs{{Old: "juju-m-b-1"}, {Old: "juju-m-a-1"}}},
		{"replace by application", provisioner.ProfileNaming{}, names{"juju-m-a-1", "juju-m-b-1"}, names{"juju-m-b-2", "juju-m-a-2"},
			diffs{{"juju-m-a-1", "juju-m-a-2"}, {"juju-m-b-1", "juju-m-b-2"}}},
		{"back to an earlier revision", provisioner.ProfileNaming{}, names{"juju-m-a-2"}, names{"juju-m-a-1"},
			diffs{{"juju-m-a-2", "juju-m-a-1"}}},
		{"all three", provisioner.ProfileNaming{}, names{"juju-m-a-1", "juju-m-b-1", "juju-m-c-1"}, names{"juju-m-d-1", "juju-m-c-1", "juju-m-b-2"},
			diffs{{Old: "juju-m-a-1"}, {"juju-m-b-1", "juju-m-b-2"}, {New: "juju-m-d-1"}}},
		{"another order is no change", provisioner.ProfileNaming{}, names{"juju-m-a-1", "juju-m-b-1"}, names{"juju-m-b-1", "juju-m-a-1"}, nil},
		{"of several revisions the one in force is replaced", provisioner.ProfileNaming{}, names{"juju-m-a-1", "juju-m-a-2"}, names{"juju-m-a-3"},
			diffs{{Old: "juju-m-a-1"}, {"juju-m-a-2", "juju-m-a-3"}}},
		{"unless the wanted one is there", provisioner.ProfileNaming{}, names{"juju-m-a-3", "juju-m-a-2"}, names{"juju-m-a-3"},
			diffs{{Old: "juju-m-a-2"}}},
		{"an application wanted twice: the last counts", provisioner.ProfileNaming{}, nil, names{"juju-m-a-2", "juju-m-a-1"},
			diffs{{New: "juju-m-a-1"}}},
		{"a name given twice", provisioner.ProfileNaming{}, names{"juju-m-a-1", "juju-m-a-1"}, names{"juju-m-a-2", "juju-m-a-2"},
			diffs{{"juju-m-a-1", "juju-m-a-2"}}},
		{"what is no application's stays, and does not come", provisioner.ProfileNaming{}, names{"default", "juju-m"}, names{"other"}, nil},
		{"another model's stays", provisioner.ProfileNaming{Model: "m"}, names{"juju-n-a-1", "juju-m-a-1"}, nil,
			diffs{{Old: "juju-m-a-1"}}},
		{"the profile of a model called a-b-2 stays", provisioner.ProfileNaming{Model: "a-b-2"}, names{"juju-a-b-2", "juju-a-b-2-c-1"}, names{"juju-a-b-2-c-2"},
			diffs{{"juju-a-b-2-c-1", "juju-a-b-2-c-2"}}},
		{"an application whose name begins or ends alike is another", provisioner.ProfileNaming{Model: "m"}, names{"juju-m-a-1", "juju-m-b-a-1", "juju-m-a-b-1"}, names{"juju-m-a-2"},
			diffs{{"juju-m-a-1", "juju-m-a-2"}, {Old: "juju-m-b-a-1"}, {Old: "juju-m-a-b-1"}}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			have, want := slices.Clone(test.have), slices.Clone(test.want)
			got := provisioner.DiffProfiles(test.known, have, want)
			if diff := cmp.Diff(test.diffs, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !slices.Equal(have, test.have) || !slices.Equal(want, test.want) {
				t.Errorf("the arguments were changed: %v, %v", have, want)
			}
		})
	}
}

// LX2: taking the steps one by one, as a broker would, leads to what is
// wanted, leaves alone what is not an application's, and is then over.
func TestDiffProfilesLeadsToWhatIsWanted(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		have, want := randomProfiles(r), randomProfiles(r)
		known := provisioner.ProfileNaming{}
		if r.IntN(2) == 0 {
			known.Model = "m"
		}
		got := slices.Clone(have)
		for _, d := range provisioner.DiffProfiles(known, have, want) {
			got = applyProfileDiff(got, d)
		}
		goal := map[string]string{}
		for _, name := range known.Filter(want) {
			n, _ := known.Parse(name)
			goal[n.Model+" "+n.Application] = name
		}
		var wanted []string
		for _, name := range goal {
			wanted = append(wanted, name)
		}
		slices.Sort(wanted)
		there := known.Filter(got)
		slices.Sort(there)
		if diff := cmp.Diff(wanted, there); diff != "" {
			t.Fatalf("seed %d: from %v to %v (-want +got):\n%s", seed, have, want, diff)
		}
		if diff := cmp.Diff(without(have, known), without(got, known), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: from %v to %v: others were changed:\n%s", seed, have, want, diff)
		}
		if again := provisioner.DiffProfiles(known, got, want); len(again) > 0 {
			t.Fatalf("seed %d: from %v to %v: %v is left to do", seed, have, want, again)
		}
	}
}

// without leaves out the profiles of applications.
func without(names []string, known provisioner.ProfileNaming) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, err := known.Parse(name)
		return err == nil
	})
}

func randomProfiles(r *rand.Rand) []string {
	all := []string{
		"default", "juju-m", "juju-m-a-1", "juju-m-a-2", "juju-m-a-3", "juju-m-b-1", "juju-m-b-2", "juju-m-a-b-1", "juju-n-a-1", "juju-n-a-2",
	}
	var names []string
	for range r.IntN(7) {
		names = append(names, all[r.IntN(len(all))])
	}
	return names
}

// applyProfileDiff does what a ProfileBroker promises.
func applyProfileDiff(names []string, d provisioner.ProfileDiff) []string {
	if d.Old == "" {
		return append(names, d.New)
	}
	var after []string
	for _, name := range names {
		if name == d.Old {
			name = d.New
		}
		if name != "" {
			after = append(after, name)
		}
	}
	return after
}

// LX8
func TestProfileStatus(t *testing.T) {
	tests := []struct {
		status             string
		finished, terminal bool
	}{
		{"", false, false},
		{"Success", true, true},
		{"Not Required", true, true},
		{"Not known", false, false},
		{"Not Supported", true, true},
		{"Error: boom", false, true},
		{provisioner.ProfileError(errors.New("boom")), false, true},
		{provisioner.ProfileError(errors.New("")), false, true},
		{provisioner.ProfileError(nil), false, false},
		{"success", false, false},
		{"Erroneous", false, false},
	}
	for _, test := range tests {
		if got := provisioner.ProfileFinished(test.status); got != test.finished {
			t.Errorf("ProfileFinished(%q) = %v", test.status, got)
		}
		if got := provisioner.ProfileTerminal(test.status); got != test.terminal {
			t.Errorf("ProfileTerminal(%q) = %v", test.status, got)
		}
	}
	words := []string{
		provisioner.ProfileSuccess, provisioner.ProfileNotRequired, provisioner.ProfileNotKnown, provisioner.ProfileNotSupported,
		provisioner.ProfileError(errors.New("boom")), provisioner.ProfileError(nil),
	}
	want := []string{"Success", "Not Required", "Not known", "Not Supported", "Error: boom", ""}
	if diff := cmp.Diff(want, words); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// LX1: what is read is what would be built; knowing what was read changes
// nothing; and the revision can be replaced and put back.
func FuzzProfileNameParse(f *testing.F) {
	for _, name := range []string{"juju-m-mysql-1", "juju-a-b-2", "juju-a-b-2-c-3", "juju--a--1", "juju-a-é-1", "default", "", "x-m-1-1"} {
		for _, model := range []string{"", "a", "a-b-2"} {
			f.Add("", model, "", name)
			f.Add("x", model, "c", name)
		}
	}
	f.Fuzz(func(t *testing.T, prefix, model, application, name string) {
		known := provisioner.ProfileNaming{Prefix: prefix, Model: model}
		if application != "" {
			known.Applications = []string{application}
		}
		n, err := known.Parse(name)
		if err != nil {
			if n != (provisioner.ProfileName{}) || !errors.Is(err, errors.NotValid) {
				t.Fatalf("Parse(%q) = %+v, %v; want nothing, NotValid", name, n, err)
			}
			return
		}
		if n.String() != name || n.Validate() != nil {
			t.Fatalf("Parse(%q) = %+v, which is %q, %v", name, n, n, n.Validate())
		}
		if model != "" && n.Model != model || application != "" && n.Application != application {
			t.Fatalf("Parse(%q) = %+v, though %+v is known", name, n, known)
		}
		all := provisioner.ProfileNaming{Prefix: n.Prefix, Model: n.Model, Applications: []string{n.Application}}
		if again, err := all.Parse(name); again != n {
			t.Fatalf("Parse(%q) = %+v, and %+v, %v when that is known", name, n, again, err)
		}
		if built, err := all.Name(n.Application, n.Revision); built != name {
			t.Fatalf("Name gives %q, %v for %+v", built, err, n)
		}
		if picked := known.Pick([]string{name}, n.Application); picked != name {
			t.Fatalf("Pick gives %q for %+v", picked, n)
		}
		next, err := known.WithRevision(name, 7)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := known.WithRevision(next, n.Revision); back != name {
			t.Fatalf("%q, revision 7: %q, and back: %q, %v", name, next, back, err)
		}
	})
}

// LX1: a filtered list holds what is valid, each once, in the order of last
// places, and filtering it again changes nothing.
func FuzzProfileNamingFilter(f *testing.F) {
	f.Add("", "juju-m-a-1 default juju-m-b-1 juju-m-a-1")
	f.Add("m", "juju-m-a-1 juju-n-a-1 juju-m")
	f.Fuzz(func(t *testing.T, model, text string) {
		names := strings.Split(text, " ")
		known := provisioner.ProfileNaming{Model: model}
		var want []string
		for i, name := range names {
			if _, err := known.Parse(name); err == nil && !slices.Contains(names[i+1:], name) {
				want = append(want, name)
			}
		}
		got := known.Filter(names)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("Filter(%q) (-want +got):\n%s", names, diff)
		}
		if diff := cmp.Diff(got, known.Filter(got)); diff != "" {
			t.Fatalf("Filter(%q) once and twice (-once +twice):\n%s", names, diff)
		}
	})
}

func ExampleProfileNaming() {
	known := provisioner.ProfileNaming{Model: "a-b-2"}
	name, err := known.Name("nova-compute", 3)
	fmt.Println(name, err)

	parts, err := known.Parse(name)
	fmt.Println(parts.Application, parts.Revision, err)

	next, err := known.WithRevision(name, 4)
	fmt.Println(next, err)

	_, err = known.Parse("juju-a-b-2") // the model's own profile
	fmt.Println(err)
	// Output:
	// juju-a-b-2-nova-compute-3 <nil>
	// nova-compute 3 <nil>
	// juju-a-b-2-nova-compute-4 <nil>
	// profile name "juju-a-b-2": "a-b": want "a-b-2", '-' and an application: not valid
}

func ExampleDiffProfiles() {
	have := []string{"default", "juju-m", "juju-m-mysql-1", "juju-m-nrpe-5"}
	want := []string{"juju-m-lldpd-2", "juju-m-mysql-2"}
	for _, d := range provisioner.DiffProfiles(provisioner.ProfileNaming{Model: "m"}, have, want) {
		fmt.Printf("%q → %q\n", d.Old, d.New)
	}
	// Output:
	// "juju-m-mysql-1" → "juju-m-mysql-2"
	// "juju-m-nrpe-5" → ""
	// "" → "juju-m-lldpd-2"
}
