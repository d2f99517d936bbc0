package groups_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/groups"
)

type (
	ids       = []provisioner.MachineID
	instances = []provisioner.InstanceID
)

// topology reads one machine or unit a word: "3" is a machine, "3=i3" one that
// is provisioned, "*5=i5" a controller's; "mysql@0" is a unit, "mysql@" one
// that is not assigned, "-nrpe@0" a subordinate one.
func topology(t testing.TB, text string) *groups.Topology {
	t.Helper()
	machines, units := parse(text)
	topology, err := groups.NewTopology(machines, units)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func parse(text string) (machines []groups.Machine, units []groups.Unit) {
	for word := range strings.FieldsSeq(text) {
		if application, machine, unit := strings.Cut(word, "@"); unit {
			application, subordinate := strings.CutPrefix(application, "-")
			units = append(units, groups.Unit{
				Application: application, Machine: provisioner.MachineID(machine), Subordinate: subordinate,
			})
			continue
		}
		word, controller := strings.CutPrefix(word, "*")
		id, instance, _ := strings.Cut(word, "=")
		machines = append(machines, groups.Machine{
			ID: provisioner.MachineID(id), Instance: provisioner.InstanceID(instance), Controller: controller,
		})
	}
	return machines, units
}

func TestDistributionGroup(t *testing.T) {
	const example = `0 1=i1 2=i2 3=i3 *5=i5 *6 *7=i7
		mysql@0 mysql@3 wordpress@0 wordpress@2 wordpress@`
	tests := []struct {
		why       string
		topology  string
		machine   provisioner.MachineID
		machines  ids
		instances instances
	}{
		{"DG1: all that host an application of it", example, "0", ids{"2", "3"}, instances{"i2", "i3"}},
		{"DG1: its unit is not assigned", example, "1", nil, nil},
		{"DG2: its own instance counts, that of 0 is still to come", example, "2", ids{"0"}, instances{"i2"}},
		{"DG2: likewise", example, "3", ids{"0"}, instances{"i3"}},
		{"DG1: a controller goes with controllers", example, "5", ids{"6", "7"}, instances{"i5", "i7"}},
		{"DG2: so does one that is not provisioned", example, "6", ids{"5", "7"}, instances{"i5", "i7"}},

		{"DG1: a controller's units do not matter to it", "*0=i0 1=i1 mysql@0 mysql@1", "0", nil, instances{"i0"}},
		{"DG1: they matter to the others", "*0=i0 1=i1 mysql@0 mysql@1", "1", ids{"0"}, instances{"i0", "i1"}},
		{"DG1: a subordinate never counts", "0 1=i1 2=i2 -nrpe@0 -nrpe@1 mysql@0 mysql@2", "0", ids{"2"}, instances{"i2"}},
		{"DG1: nor when it is all there is", "0=i0 1=i1 -nrpe@0 -nrpe@1", "0", nil, nil},
		{"DG1: each once, though two applications and two units lead to it", "0=i0 1=i1 a@0 a@1 a@1 b@0 b@1", "0", ids{"1"}, instances{"i0", "i1"}},
		{"DG1: the group of a group is not the machine's", "0=i0 1=i1 2=i2 a@0 a@1 b@1 b@2", "0", ids{"1"}, instances{"i0", "i1"}},
		{"DG1: sorted, numbers by value", "10=b 2=c 0=a a@10 a@2 a@0", "0", ids{"2", "10"}, instances{"a", "b", "c"}},
		{"DG2: alone in its application", "0=i0 a@0", "0", nil, instances{"i0"}},
		{"DG2: one instance that two machines claim", "0=i 1=i a@0 a@1", "0", ids{"1"}, instances{"i"}},
		{"a unit on a machine that is not listed", "0=i0 a@0 a@9", "0", nil, instances{"i0"}},

		{"a container is a machine of its own", "0=i0 0/lxd/0=c0 1/lxd/0=c1 a@0/lxd/0 a@1/lxd/0", "0/lxd/0", ids{"1/lxd/0"}, instances{"c0", "c1"}},
		{"its units are not its host's", "0=i0 0/lxd/0=c0 1/lxd/0=c1 a@0/lxd/0 a@1/lxd/0", "0", nil, nil},
		{"nor is a neighbour's id that begins alike", "1=i1 10=i10 1/lxd/1 a@1 b@10 c@1/lxd/1", "1", nil, instances{"i1"}},
		{"machines and containers mix", "3=i3 4=i4 3/lxd/0=c a@3/lxd/0 a@3 a@4", "4", ids{"3", "3/lxd/0"}, instances{"c", "i3", "i4"}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			topology := topology(t, test.topology)
			machines, err := topology.DistributionGroup(test.machine)
			if diff := cmp.Diff(test.machines, machines); diff != "" || err != nil {
				t.Errorf("machines (-want +got), error %v:\n%s", err, diff)
			}
			got, err := topology.DistributionInstances(test.machine)
			if diff := cmp.Diff(test.instances, got); diff != "" || err != nil {
				t.Errorf("instances (-want +got), error %v:\n%s", err, diff)
			}
		})
	}
}

// The fleets are real ones in shape: hosts, containers, subordinates, and
// machines that failed or wait. Each application's machines are exact ids.
func TestDistributionGroupOfFleets(t *testing.T) {
	tests := []struct{ why, topology, application, want string }{
		{"hosts", cellar, "hyperv", "0 1 2 3"},
		{"containers over hosts", cellar, "identity", "0/lxd/0 1/lxd/0 2/lxd/0"},
		{"a pending container", cellar, "queue", "0/lxd/2 7/lxd/0"},
		{"containers with gaps in their numbers", cellar, "relstore", "0/lxd/1 1/lxd/3 3/lxd/0"},
		{"containers of one host, one of them failed", loom, "spindle", "0/lxd/0 0/lxd/1 2 3"},
		{"failed and lost machines stay", loom, "weaver", "0 1 4 6"},
		{"a container alone", garden, "gnome", "3/lxd/0"},
		{"its host with another", garden, "hedge", "3 4"},
		{"a pending machine", garden, "pond", "0 1 2 5"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			topology := topology(t, test.topology)
			var want ids
			for id := range strings.FieldsSeq(test.want) {
				want = append(want, provisioner.MachineID(id))
			}
			for i, id := range want {
				others := slices.Delete(slices.Clone(want), i, i+1)
				if got, err := topology.DistributionGroup(id); err != nil || !slices.Equal(others, got) {
					t.Errorf("DistributionGroup(%s) = %v, %v; want %v", id, got, err, others)
				}
				got, err := topology.Group(id)
				if diff := cmp.Diff(provisioner.Group{Key: "apps:" + test.application, Members: want}, got); diff != "" || err != nil {
					t.Errorf("Group(%s) (-want +got), error %v:\n%s", id, err, diff)
				}
			}
		})
	}
}

const (
	cellar = `0=a 1=b 2=c 3=d 7=e 0/lxd/0=f 0/lxd/1=g 0/lxd/2=h 1/lxd/0=i 1/lxd/3=j 2/lxd/0=k 3/lxd/0=l 7/lxd/0
		hyperv@0 hyperv@1 hyperv@2 hyperv@3 identity@0/lxd/0 identity@1/lxd/0 identity@2/lxd/0
		queue@0/lxd/2 queue@7/lxd/0 relstore@0/lxd/1 relstore@1/lxd/3 relstore@3/lxd/0
		-probe@0 -probe@1 -probe@2 -probe@3 -probe@0/lxd/0 -probe@1/lxd/3`
	loom = `0=a 1 2 3 4 5 6=b 7 8=c 0/lxd/0 0/lxd/1 1/lxd/0
		spindle@2 spindle@3 spindle@0/lxd/0 spindle@0/lxd/1 weaver@0 weaver@1 weaver@4 weaver@6`
	garden = `0=a 1=b 2=c 3=d 4=e 5 3/lxd/0=f
		gnome@3/lxd/0 hedge@3 hedge@4 pond@0 pond@1 pond@2 pond@5 -snip@3 -snip@4`
)

func TestGroup(t *testing.T) {
	topology := topology(t, `0 1 2 3 4 5 *6 *7
		b@0 a@0 a@1 b@1 a,b@2 a\@3 a\,b@4 controllers@5`)
	tests := []struct {
		why     string
		machine provisioner.MachineID
		want    provisioner.Group
	}{
		{"a key lists applications sorted", "0", provisioner.Group{Key: "apps:a,b", Members: ids{"0", "1"}}},
		{"the same applications, the same key", "1", provisioner.Group{Key: "apps:a,b", Members: ids{"0", "1"}}},
		{"a comma in a name makes no other group's key", "2", provisioner.Group{Key: `apps:a\,b`, Members: ids{"2"}}},
		{"nor does a backslash", "3", provisioner.Group{Key: `apps:a\\`, Members: ids{"3"}}},
		{"nor do both", "4", provisioner.Group{Key: `apps:a\\\,b`, Members: ids{"4"}}},
		{"nor does an application called controllers", "5", provisioner.Group{Key: "apps:controllers", Members: ids{"5"}}},
		{"controllers", "6", provisioner.Group{Key: "controllers", Members: ids{"6", "7"}}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, err := topology.Group(test.machine)
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("(-want +got), error %v:\n%s", err, diff)
			}
		})
	}
}

func TestGroups(t *testing.T) {
	topology := topology(t, "0 1 2 a@0 a@1")
	got := topology.Groups("1", "9", "2", "1")
	group := provisioner.Group{Key: "apps:a", Members: ids{"0", "1"}}
	want := []provisioner.GroupResult{
		{ID: "1", Group: group},
		{ID: "9"}, // NotFound
		{ID: "2"}, // in no group
		{ID: "1", Group: group},
	}
	if err := got[1].Err; !errors.Is(err, errors.NotFound) {
		t.Errorf("machine 9: %v, want NotFound", err)
	}
	got[1].Err = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got[0].Group.Members[0] = "changed"
	if diff := cmp.Diff(want[3], got[3]); diff != "" {
		t.Errorf("an answer shares memory with another (-want +got):\n%s", diff)
	}
	if again := topology.Groups("1"); !cmp.Equal(want[:1], again) {
		t.Errorf("an answer shares memory with the topology: %v", again)
	}
}

func TestNewTopologyErrors(t *testing.T) {
	tests := []struct {
		why      string
		machines []groups.Machine
		units    []groups.Unit
		want     []string // parts of the text
	}{
		{"malformed machine", []groups.Machine{{ID: "0"}, {ID: "0/lxd"}}, nil, []string{"machines[1]", `"0/lxd"`, "want parent/type/number"}},
		{"machine without an id", []groups.Machine{{}}, nil, []string{"machines[0]", "empty"}},
		{"machine given twice", []groups.Machine{{ID: "7"}, {ID: "1"}, {ID: "7"}}, nil, []string{"machines[2]", `"7"`, "machines[0]", "want each once"}},
		{"unit without an application", []groups.Machine{{ID: "0"}}, []groups.Unit{{Application: "a"}, {Machine: "0"}}, []string{"units[1]", `application ""`, "want a name"}},
		{"unit on a malformed machine", nil, []groups.Unit{{Application: "a", Machine: "0//1"}}, []string{"units[0]", `"0//1"`}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			topology, err := groups.NewTopology(test.machines, test.units)
			if topology != nil || !errors.Is(err, errors.NotValid) {
				t.Fatalf("got %v, %v; want no topology, NotValid", topology, err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestErrorsOfAMachine(t *testing.T) {
	for _, topology := range []*groups.Topology{new(groups.Topology), topology(t, "0 a@0")} {
		for id, want := range map[provisioner.MachineID]error{"1": errors.NotFound, "": errors.NotValid, "0/lxd": errors.NotValid} {
			if got, err := topology.DistributionGroup(id); got != nil || !errors.Is(err, want) {
				t.Errorf("DistributionGroup(%q) = %v, %v; want %v", id, got, err, want)
			}
			if got, err := topology.DistributionInstances(id); got != nil || !errors.Is(err, want) {
				t.Errorf("DistributionInstances(%q) = %v, %v; want %v", id, got, err, want)
			}
			if got, err := topology.Group(id); !cmp.Equal(got, provisioner.Group{}) || !errors.Is(err, want) {
				t.Errorf("Group(%q) = %v, %v; want %v", id, got, err, want)
			}
		}
	}
}

// DG4
func TestQuery(t *testing.T) {
	topology := topology(t, `0=i0 1=i1 0/lxd/0=c0 0/lxd/0/lxd/0 10/lxd/0 10
		a@0 a@1 b@0/lxd/0 b@10/lxd/0`)
	const unauthorized, notFound = "unauthorized", "not found"
	tests := []struct {
		why    string
		caller groups.Caller
		entity string
		want   string // or an error
	}{
		{"a controller asks about a machine", groups.Caller{Controller: true}, "0", "[1] [i0 i1]"},
		{"about a container", groups.Caller{Controller: true}, "0/lxd/0", unauthorized},
		{"about a container that is not there", groups.Caller{Controller: true}, "0/lxd/9", unauthorized},
		{"about a machine that is not there", groups.Caller{Controller: true}, "9", notFound},
		{"about what is no machine", groups.Caller{Controller: true}, "mysql/0", unauthorized},
		{"about nothing", groups.Caller{Controller: true}, "", unauthorized},
		{"about a malformed id", groups.Caller{Controller: true}, "0/lxd", unauthorized},

		{"an agent asks about its machine", groups.Caller{Machine: "1"}, "1", "[0] [i0 i1]"},
		{"about a container directly in it", groups.Caller{Machine: "0"}, "0/lxd/0", "[10/lxd/0] [c0]"},
		{"about one that is not there", groups.Caller{Machine: "0"}, "0/lxd/9", notFound},
		{"about a container in a container", groups.Caller{Machine: "0"}, "0/lxd/0/lxd/0", unauthorized},
		{"about another machine", groups.Caller{Machine: "0"}, "1", unauthorized},
		{"about one that is not there", groups.Caller{Machine: "0"}, "9", unauthorized},
		{"about a container of a machine whose id begins alike", groups.Caller{Machine: "1"}, "10/lxd/0", unauthorized},
		{"about what is no machine", groups.Caller{Machine: "0"}, "0/lxd", unauthorized},

		{"a container's agent asks about itself", groups.Caller{Machine: "0/lxd/0"}, "0/lxd/0", "[10/lxd/0] [c0]"},
		{"about a container in it", groups.Caller{Machine: "0/lxd/0"}, "0/lxd/0/lxd/0", "[] []"},
		{"about its host", groups.Caller{Machine: "0/lxd/0"}, "0", unauthorized},
		{"the agent of a machine that is gone", groups.Caller{Machine: "9"}, "9", notFound},

		{"a controller's agent may do both", groups.Caller{Controller: true, Machine: "0"}, "0/lxd/0", "[10/lxd/0] [c0]"},
		{"likewise", groups.Caller{Controller: true, Machine: "0"}, "1", "[0] [i0 i1]"},
		{"nobody", groups.Caller{}, "0", unauthorized},
		{"nobody, about nothing", groups.Caller{}, "", unauthorized},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			answers := topology.Query(test.caller, test.entity)
			if len(answers) != 1 || answers[0].Entity != test.entity {
				t.Fatalf("got %v, want one answer for %q", answers, test.entity)
			}
			got := fmt.Sprint(answers[0].Machines, answers[0].Instances)
			switch err := answers[0].Err; {
			case errors.Is(err, errors.Unauthorized) && got == "[] []":
				got = unauthorized
			case errors.Is(err, errors.NotFound) && got == "[] []":
				got = notFound
			case err != nil:
				t.Fatalf("got %v, %v", got, err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// DG4: one that may not be answered does no harm to the others.
func TestQueryAnswersEachOnItsOwn(t *testing.T) {
	topology := topology(t, "0=i0 1 a@0 a@1")
	var got []string
	for _, a := range topology.Query(groups.Caller{Controller: true}, "1", "unit", "mysql/0", "0", "1") {
		got = append(got, fmt.Sprint(a.Entity, " ", a.Machines, a.Instances, " ", a.Err))
	}
	want := []string{
		"1 [0] [i0] <nil>",
		"unit [] [] machine unit not found",
		`mysql/0 [] [] distribution group of "mysql/0": unauthorized`,
		"0 [1] [i0] <nil>",
		"1 [0] [i0] <nil>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := topology.Query(groups.Caller{Controller: true}); len(got) != 0 {
		t.Errorf("no entities: got %v", got)
	}
}

// DG1, DG2: the index says what the rules say when they are read one by one,
// whatever the order of the input, and leaves the input alone.
func TestRandomTopologies(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		machines, units := randomFleet(r, 1+r.IntN(14), r.IntN(5), r.IntN(30))
		kept := fmt.Sprint(machines, units)
		topology, err := groups.NewTopology(machines, units)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if now := fmt.Sprint(machines, units); now != kept {
			t.Fatalf("seed %d: the input was changed:\n%s\n%s", seed, kept, now)
		}
		keys := map[string]provisioner.Group{}
		for _, m := range machines {
			want := groupByTheRules(machines, units, m)
			got := describe(t, topology, m.ID)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, machine %s (-want +got):\n%s", seed, m.ID, diff)
			}
			group, _ := topology.Group(m.ID)
			if other, known := keys[group.Key]; known && !cmp.Equal(other, group) {
				t.Fatalf("seed %d: one key, two groups: %v, %v", seed, other, group)
			}
			keys[group.Key] = group
		}

		r.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		r.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
		shuffled, err := groups.NewTopology(machines, units)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, m := range machines {
			if diff := cmp.Diff(describe(t, topology, m.ID), describe(t, shuffled, m.ID)); diff != "" {
				t.Fatalf("seed %d, machine %s: another order, another answer:\n%s", seed, m.ID, diff)
			}
		}
	}
}

func randomFleet(r *rand.Rand, machines, applications, units int) ([]groups.Machine, []groups.Unit) {
	var ms []groups.Machine
	for i := range machines {
		id := provisioner.MachineID(fmt.Sprint(i))
		if i > 0 && r.IntN(3) == 0 {
			id = provisioner.MachineID(fmt.Sprintf("%d/lxd/%d", r.IntN(i), i))
		}
		m := groups.Machine{ID: id, Controller: r.IntN(8) == 0}
		if r.IntN(3) > 0 {
			m.Instance = provisioner.InstanceID(fmt.Sprint("i", i))
		}
		ms = append(ms, m)
	}
	var us []groups.Unit
	for range units {
		u := groups.Unit{Application: fmt.Sprint("app", r.IntN(applications+1)), Subordinate: r.IntN(5) == 0}
		switch r.IntN(6) {
		case 0:
		case 1:
			u.Machine = "gone"
		default:
			u.Machine = ms[r.IntN(len(ms))].ID
		}
		us = append(us, u)
	}
	return ms, us
}

func describe(t *testing.T, topology *groups.Topology, id provisioner.MachineID) string {
	t.Helper()
	machines, err := topology.DistributionGroup(id)
	if err != nil {
		t.Fatal(err)
	}
	instances, err := topology.DistributionInstances(id)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(machines, instances)
}

// groupByTheRules asks of each machine whether it belongs.
func groupByTheRules(machines []groups.Machine, units []groups.Unit, m groups.Machine) string {
	hosts := func(id provisioner.MachineID, application string) bool {
		return slices.ContainsFunc(units, func(u groups.Unit) bool {
			return u.Machine == id && u.Application == application && !u.Subordinate
		})
	}
	var others ids
	var all instances
	for _, o := range machines {
		together := o.Controller
		if !m.Controller {
			together = slices.ContainsFunc(units, func(u groups.Unit) bool {
				return hosts(m.ID, u.Application) && hosts(o.ID, u.Application)
			})
		}
		if together && o.ID != m.ID {
			others = append(others, o.ID)
		}
		if together && o.Instance != "" {
			all = append(all, o.Instance)
		}
	}
	slices.SortFunc(others, provisioner.MachineID.Compare)
	slices.Sort(all)
	return fmt.Sprint(others, all)
}

func BenchmarkTopology(b *testing.B) {
	machines, units := randomFleet(rand.New(rand.NewPCG(1, 0)), 10_000, 500, 20_000)
	topology, err := groups.NewTopology(machines, units)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("New10000", func(b *testing.B) {
		for b.Loop() {
			if _, err := groups.NewTopology(machines, units); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Group", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := topology.Group(machines[i%len(machines)].ID); err != nil {
				b.Fatal(err)
			}
		}
	})
}
