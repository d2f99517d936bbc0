package provisioner_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/seed81ba69f2/provisioner"
)

func up(names ...provisioner.ZoneName) []provisioner.Zone {
	var zones []provisioner.Zone
	for _, name := range names {
		zones = append(zones, provisioner.Zone{Name: name, Available: true})
	}
	return zones
}

// AZ13
func TestAllocations(t *testing.T) {
	type (
		where = map[provisioner.InstanceID]provisioner.ZoneName
		ids   = []provisioner.InstanceID
		alloc = []provisioner.Allocation
	)
	down := provisioner.Zone{Name: "down"}
	tests := []struct {
		why   string
		zones []provisioner.Zone
		where where
		group ids
		want  alloc
	}{
		{"fewest first, then by name", up("c", "b", "a"), where{"1": "a", "2": "a", "3": "b", "4": "c"}, ids{"1", "2", "3", "4"},
			alloc{{"b", ids{"3"}}, {"c", ids{"4"}}, {"a", ids{"1", "2"}}}},
		{"instances sorted", up("a"), where{"3": "a", "1": "a", "2": "a"}, ids{"2", "3", "1"}, alloc{{"a", ids{"1", "2", "3"}}}},
		{"only the group's", up("a", "b"), where{"1": "a", "2": "a", "3": "b"}, ids{"3"}, alloc{{"a", nil}, {"b", ids{"3"}}}},
		{"an empty group means all", up("a", "b"), where{"1": "a", "2": "a", "3": "b"}, nil, alloc{{"b", ids{"3"}}, {"a", ids{"1", "2"}}}},
		{"an unavailable zone is left out, with what is in it", append(up("a"), down), where{"1": "a", "2": "down"}, nil, alloc{{"a", ids{"1"}}}},
		{"an instance without a zone", up("a"), where{"1": "a", "2": ""}, nil, alloc{{"a", ids{"1"}}}},
		{"an instance in a zone that is not listed", up("a"), where{"1": "z"}, nil, alloc{{"a", nil}}},
		{"an instance of the group that nobody knows", up("a"), where{"1": "a"}, ids{"1", "9"}, alloc{{"a", ids{"1"}}}},
		{"an instance without an id", up("a"), where{"": "a"}, nil, alloc{{"a", nil}}},
		{"a group of one without an id is not empty", up("a"), where{"1": "a", "": "a"}, ids{""}, alloc{{"a", nil}}},
		{"an id that begins alike is another", up("a"), where{"i-1": "a", "i-10": "a"}, ids{"i-1"}, alloc{{"a", ids{"i-1"}}}},
		{"an id given twice counts once", up("a", "b"), where{"1": "a", "2": "b", "3": "b"}, ids{"1", "1", "1", "2", "3"}, alloc{{"a", ids{"1"}}, {"b", ids{"2", "3"}}}},
		{"a zone without a name", up("a", ""), where{"1": ""}, nil, alloc{{"a", nil}}},
		{"a zone listed twice", up("a", "a"), where{"1": "a"}, nil, alloc{{"a", ids{"1"}}}},
		{"no zones", nil, where{"1": "a"}, nil, nil},
		{"nothing at all", nil, nil, nil, nil},
		{"no instances", up("b", "a"), nil, nil, alloc{{"a", nil}, {"b", nil}}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got := provisioner.Allocations(test.zones, test.where, test.group)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// at places machines: "0", "a", "1", "b" is 0 in a and 1 in b.
func at(pairs ...string) []provisioner.Machine {
	var machines []provisioner.Machine
	for i := 0; i < len(pairs); i += 2 {
		machines = append(machines, provisioner.Machine{
			ID: provisioner.MachineID(pairs[i]), Zone: provisioner.ZoneName(pairs[i+1]),
		})
	}
	return machines
}

// AZ14
func TestDistribute(t *testing.T) {
	type (
		ids    = []provisioner.MachineID
		limits = []provisioner.ZoneName
	)
	tests := []struct {
		why               string
		candidates, group []provisioner.Machine
		limits            limits
		want              ids
	}{
		{"the zone with fewest", at("0", "a", "1", "b", "2", "c"), at("5", "a", "6", "b", "7", "b"), nil, ids{"2"}},
		{"all in it", at("3", "c", "0", "a", "2", "c"), at("5", "a"), nil, ids{"2", "3"}},
		{"all zones that have as few", at("0", "a", "1", "b", "2", "c"), at("5", "a", "6", "b", "7", "c", "8", "c"), nil, ids{"0", "1"}},
		{"an empty group: all zones are equal", at("10", "a", "2", "b", "1", "a"), nil, nil, ids{"1", "2", "10"}},
		{"allowed zones only", at("0", "a", "1", "b", "2", "c"), at("5", "a", "6", "b", "7", "b"), limits{"a", "b"}, ids{"0"}},
		{"an allowed zone without a candidate is no choice", at("0", "a", "1", "b"), at("5", "a"), limits{"a", "c"}, ids{"0"}},
		{"a zone of the group without a candidate neither", at("0", "a"), at("5", "a", "6", "a", "7", "b"), nil, ids{"0"}},
		{"no candidate in an allowed zone", at("0", "a"), nil, limits{"b"}, nil},
		{"zones are exact: one that begins alike", at("0", "az1", "1", "az10", "2", "az"), nil, limits{"az1"}, ids{"0"}},
		{"the population too", at("0", "az1", "1", "az10"), at("5", "az10"), nil, ids{"0"}},
		{"a neighbour in the order is no match", at("0", "b"), nil, limits{"a", "c"}, nil},
		{"a candidate of the group counts where it is", at("0", "a", "1", "b"), at("0", "a"), nil, ids{"1"}},
		{"and may be chosen", at("0", "a", "1", "b"), at("0", "a", "1", "b", "2", "b"), nil, ids{"0"}},
		{"a candidate without a zone is left out", at("0", "", "1", "b"), at("5", "b"), nil, ids{"1"}},
		{"also where an empty zone would be allowed", at("0", ""), nil, limits{""}, nil},
		{"no zones at all", at("0", "", "1", ""), nil, nil, nil},
		{"a member without a zone counts for nothing", at("0", "a", "1", "b"), at("5", "", "6", "b"), nil, ids{"0"}},
		{"a machine given twice counts once", at("0", "a", "1", "b", "0", "a"), at("5", "a", "5", "a", "6", "b", "7", "b"), nil, ids{"0"}},
		{"a container sits where its host does", at("0", "a", "0/lxd/1", "", "1", "b"), at("5", "b"), nil, ids{"0", "0/lxd/1"}},
		{"a member that is a container too", at("0", "a", "1", "b"), at("1/lxd/0", ""), nil, ids{"0"}},
		{"the nearest zone counts", at("0", "a", "0/kvm/0", "b", "0/kvm/0/lxd/0", ""), at("5", "a"), nil, ids{"0/kvm/0", "0/kvm/0/lxd/0"}},
		{"one list may know what the other lacks", at("0", "", "1", "b"), at("0", "a", "1", "b", "2", "b"), nil, ids{"0"}},
		{"a malformed id is no machine's", at("0/lxd", "a", "", "a", "1", "b"), at("0//1", "b", "6", "b"), nil, ids{"1"}},
		{"no candidates", nil, at("5", "a"), nil, nil},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got := provisioner.Distribute(test.candidates, test.group, test.limits)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// AZ15
func TestSpreadContainers(t *testing.T) {
	type ids = []provisioner.MachineID
	tests := []struct {
		why     string
		hosts   []provisioner.Machine
		members ids
		want    ids
		ties    int // hosts that follow in an order that hangs on the key
	}{
		{"another zone before another host", at("0", "a", "1", "a", "2", "b"), ids{"0/lxd/0"}, ids{"2", "1", "0"}, 0},
		{"though there is more on it", at("0", "a", "1", "a", "2", "b"), ids{"0/lxd/0", "0/lxd/1", "2/lxd/0"}, ids{"2", "1", "0"}, 0},
		{"zones equal: the host with fewest", at("0", "a", "1", "a", "2", "b"), ids{"0/lxd/0", "2/lxd/0"}, ids{"1"}, 2},
		{"a member that is the host itself counts", at("0", "a", "1", "b"), ids{"0"}, ids{"1", "0"}, 0},
		{"a member deeper in it too", at("0", "a", "1", "b"), ids{"0/kvm/0/lxd/3"}, ids{"1", "0"}, 0},
		{"a host whose id begins alike is another", at("1", "a", "10", "b", "11", "c"), ids{"10/lxd/0", "11/lxd/0"}, ids{"1"}, 2},
		{"hosts that are containers: the machine around has the zone", at("0", "a", "0/kvm/0", "", "1", "b"), ids{"0/kvm/0/lxd/0"}, ids{"1"}, 2},
		{"and a member counts once in it", at("0", "a", "0/kvm/0", "", "1", "b", "2", "b", "3", "a"), ids{"0/kvm/0/lxd/0", "1/lxd/0", "1/lxd/1"}, ids{"3"}, 4},
		{"no zones: the host with fewest", at("0", "", "1", "", "2", ""), ids{"0/lxd/0", "2/lxd/0", "2/lxd/1"}, ids{"1", "0", "2"}, 0},
		{"a member on none of the hosts counts for nothing", at("0", "a", "1", "b"), ids{"7/lxd/0", "1/lxd/0"}, ids{"0", "1"}, 0},
		{"nor does it where no zone is known", at("0", "", "1", "b"), ids{"7/lxd/0", "8/lxd/0", "1/lxd/0"}, ids{"0", "1"}, 0},
		{"a member given twice counts once", at("0", "a", "1", "b"), ids{"0/lxd/0", "0/lxd/0", "1/lxd/0", "1/lxd/1"}, ids{"0", "1"}, 0},
		{"a malformed id is no machine's", at("0", "a", "1", "b", "1/lxd", "c", "", "d"), ids{"0/lxd/x", "0/lxd/00", "1/lxd/0"}, ids{"0", "1"}, 0},
		{"a host given twice", at("0", "a", "1", "b", "0", "a"), ids{"1/lxd/0"}, ids{"0", "1"}, 0},
		{"no hosts", nil, ids{"0/lxd/0"}, nil, 0},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			// Under any key: these do not hang on how ties are broken.
			for _, key := range []string{"", "apps:a", "apps:b", "apps:c", "apps:d", "apps:e"} {
				got := provisioner.SpreadContainers(test.hosts, provisioner.Group{Key: key, Members: test.members})
				if len(got) != len(test.want)+test.ties {
					t.Fatalf("key %q: got %v, want %v and %d more", key, got, test.want, test.ties)
				}
				if diff := cmp.Diff(test.want, got[:len(test.want)]); diff != "" {
					t.Errorf("key %q (-want +got):\n%s", key, diff)
				}
			}
		})
	}
}

// AZ15: containers that are placed one after the other fill zones evenly, and
// the hosts of each zone evenly.
func TestSpreadContainersOneAfterTheOther(t *testing.T) {
	hosts := at("0", "a", "1", "b", "2", "b", "3", "c", "4", "c", "5", "c")
	group := provisioner.Group{Key: "apps:mysql"}
	zones := map[provisioner.MachineID]provisioner.ZoneName{}
	for _, h := range hosts {
		zones[h.ID] = h.Zone
	}
	inZone := map[provisioner.ZoneName]int{"a": 0, "b": 0, "c": 0}
	onHost := map[provisioner.MachineID]int{}
	for n := range 30 {
		host := provisioner.SpreadContainers(hosts, group)[0]
		group.Members = append(group.Members, provisioner.MachineID(fmt.Sprintf("%s/lxd/%d", host, n)))
		inZone[zones[host]]++
		onHost[host]++
		counts := slices.Sorted(maps.Values(inZone))
		if counts[2]-counts[0] > 1 {
			t.Fatalf("after %d: zones hold %v", n+1, inZone)
		}
		for a := range zones {
			for b := range zones {
				if zones[a] == zones[b] && onHost[a]-onHost[b] > 1 {
					t.Fatalf("after %d: hosts hold %v", n+1, onHost)
				}
			}
		}
	}
}

// AZ15: the first containers of many groups do not all go to one host.
func TestSpreadContainersOfManyGroups(t *testing.T) {
	hosts := at("0", "a", "1", "a", "2", "b", "3", "b", "4", "c")
	first := map[provisioner.MachineID]int{}
	for i := range 1000 {
		first[provisioner.SpreadContainers(hosts, provisioner.Group{Key: fmt.Sprint("apps:", i)})[0]]++
	}
	for _, h := range hosts {
		if n := first[h.ID]; n < 150 || n > 250 {
			t.Errorf("host %s is the first of %d groups in 1000, want about 200", h.ID, n)
		}
	}
}

// AZ13, AZ14, AZ15: the arguments stay as they are, and their order is of no
// account.
func TestPlacementFunctionsArePure(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		var zones []provisioner.Zone
		for z := range 1 + r.IntN(5) {
			zones = append(zones, provisioner.Zone{Name: provisioner.ZoneName(fmt.Sprint("z", z)), Available: r.IntN(4) > 0})
		}
		var machines []provisioner.Machine
		where := map[provisioner.InstanceID]provisioner.ZoneName{}
		var instances []provisioner.InstanceID
		for i := range r.IntN(20) {
			m := provisioner.Machine{ID: provisioner.MachineID(fmt.Sprint(i))}
			if i > 0 && r.IntN(3) == 0 {
				m.ID = provisioner.MachineID(fmt.Sprintf("%d/lxd/%d", r.IntN(i), i))
			}
			if r.IntN(4) > 0 {
				m.Zone = zones[r.IntN(len(zones))].Name
			}
			machines = append(machines, m)
			id := provisioner.InstanceID(fmt.Sprint("i", i))
			where[id] = m.Zone
			instances = append(instances, id)
		}
		cut := 0
		if len(machines) > 0 {
			cut = r.IntN(len(machines))
		}
		candidates, group, members := slices.Clone(machines[:cut]), slices.Clone(machines[cut:]), instances[:cut]
		var limits []provisioner.ZoneName
		for _, z := range zones {
			if r.IntN(2) == 0 {
				limits = append(limits, z.Name)
			}
		}
		named := provisioner.Group{Key: fmt.Sprint(seed)}
		for _, m := range group {
			named.Members = append(named.Members, m.ID)
		}

		all := func() string {
			before := fmt.Sprint(zones, where, members, candidates, group, limits, named)
			out := fmt.Sprint(
				provisioner.Allocations(zones, where, members),
				provisioner.Distribute(candidates, group, limits),
				provisioner.SpreadContainers(candidates, named))
			if after := fmt.Sprint(zones, where, members, candidates, group, limits, named); before != after {
				t.Fatalf("seed %d: the arguments were changed:\n%s\n%s", seed, before, after)
			}
			return out
		}
		want := all()
		checkDistribute(t, seed, candidates, group, limits)
		shuffle(r, zones)
		shuffle(r, members)
		shuffle(r, candidates)
		shuffle(r, group)
		shuffle(r, limits)
		shuffle(r, named.Members)
		if diff := cmp.Diff(want, all()); diff != "" {
			t.Fatalf("seed %d: another order, another answer:\n%s", seed, diff)
		}
	}
}

func shuffle[T any](r *rand.Rand, s []T) {
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

// checkDistribute asks of each candidate whether a better one was there.
func checkDistribute(t *testing.T, seed uint64, candidates, group []provisioner.Machine, limits []provisioner.ZoneName) {
	t.Helper()
	zone := func(id provisioner.MachineID) provisioner.ZoneName {
		for ; id != ""; id = id.Host() {
			for _, m := range slices.Concat(candidates, group) {
				if m.ID == id && m.Zone != "" {
					return m.Zone
				}
			}
		}
		return ""
	}
	allowed := func(z provisioner.ZoneName) bool {
		return z != "" && (len(limits) == 0 || slices.Contains(limits, z))
	}
	population := func(z provisioner.ZoneName) (n int) {
		for _, m := range group {
			if zone(m.ID) == z {
				n++
			}
		}
		return n
	}
	var want []provisioner.MachineID
	for _, c := range candidates {
		better := slices.ContainsFunc(candidates, func(o provisioner.Machine) bool {
			return allowed(zone(o.ID)) && population(zone(o.ID)) < population(zone(c.ID))
		})
		if allowed(zone(c.ID)) && !better {
			want = append(want, c.ID)
		}
	}
	slices.SortFunc(want, provisioner.MachineID.Compare)
	got := provisioner.Distribute(candidates, group, limits)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("seed %d: Distribute(%v, %v, %v) (-want +got):\n%s", seed, candidates, group, limits, diff)
	}
}

func ExampleAllocations() {
	zones := []provisioner.Zone{{Name: "az1", Available: true}, {Name: "az2", Available: true}, {Name: "az3"}, {Name: "az4", Available: true}}
	where := map[provisioner.InstanceID]provisioner.ZoneName{"i0": "az1", "i1": "az1", "i2": "az2", "i3": "az3", "i4": ""}
	for _, a := range provisioner.Allocations(zones, where, nil) {
		fmt.Println(a.Zone, a.Instances)
	}
	// Output:
	// az4 []
	// az2 [i2]
	// az1 [i0 i1]
}

// A new unit of an application is to land on one of the machines that stand
// empty, apart from the application's other machines.
func ExampleDistribute() {
	empty := []provisioner.Machine{{ID: "4", Zone: "az1"}, {ID: "5", Zone: "az2"}, {ID: "6", Zone: "az3"}, {ID: "7", Zone: "az3"}}
	group := []provisioner.Machine{{ID: "0", Zone: "az1"}, {ID: "1", Zone: "az1"}, {ID: "2", Zone: "az2"}}
	fmt.Println(provisioner.Distribute(empty, group, nil))
	fmt.Println(provisioner.Distribute(empty, group, []provisioner.ZoneName{"az1", "az2"}))
	// Output:
	// [6 7]
	// [5]
}

// Four containers of one group: zones first, then machines.
func ExampleSpreadContainers() {
	hosts := []provisioner.Machine{{ID: "0", Zone: "az1"}, {ID: "1", Zone: "az1"}, {ID: "2", Zone: "az2"}, {ID: "3", Zone: "az2"}}
	group := provisioner.Group{Key: "apps:mysql"}
	for range 4 {
		host := provisioner.SpreadContainers(hosts, group)[0]
		group.Members = append(group.Members, host+"/lxd/0")
	}
	fmt.Println(group.Members)
	// Output:
	// [2/lxd/0 1/lxd/0 3/lxd/0 0/lxd/0]
}
