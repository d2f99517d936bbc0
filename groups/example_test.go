package groups_test

import (
	"context"
	"fmt"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/groups"
)

// host is a state as far as groups are concerned.
type host struct {
	machines []groups.Machine
	units    []groups.Unit
}

// Groups makes host a GroupFinder. The records are indexed once for each call,
// however many machines are asked for.
func (h *host) Groups(_ context.Context, ids ...provisioner.MachineID) ([]provisioner.GroupResult, error) {
	topology, err := groups.NewTopology(h.machines, h.units)
	if err != nil {
		return nil, err
	}
	return topology.Groups(ids...), nil
}

var _ provisioner.GroupFinder = (*host)(nil)

// A host that knows its machines and units has a GroupFinder in a few lines.
func ExampleTopology_Groups() {
	h := &host{
		machines: []groups.Machine{{ID: "0"}, {ID: "1", Instance: "i1"}, {ID: "2", Instance: "i2"}, {ID: "3", Instance: "i3"}},
		units: []groups.Unit{
			{Application: "mysql", Machine: "0"},
			{Application: "mysql", Machine: "3"},
			{Application: "wordpress", Machine: "0"},
			{Application: "wordpress", Machine: "2"},
			{Application: "wordpress"}, // has no machine yet
		},
	}
	results, err := h.Groups(context.Background(), "0", "1", "2", "7")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range results {
		fmt.Printf("%s: key %q, members %v, error %v\n", r.ID, r.Group.Key, r.Group.Members, r.Err)
	}
	// Output:
	// 0: key "apps:mysql,wordpress", members [0 2 3], error <nil>
	// 1: key "", members [], error <nil>
	// 2: key "apps:wordpress", members [0 2], error <nil>
	// 7: key "", members [], error machine 7 not found
}

// Each caller learns only what it may know.
func ExampleTopology_Query() {
	topology, err := groups.NewTopology(
		[]groups.Machine{{ID: "0", Instance: "i0"}, {ID: "1", Instance: "i1"}, {ID: "1/lxd/0"}},
		[]groups.Unit{{Application: "mysql", Machine: "0"}, {Application: "mysql", Machine: "1"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range topology.Query(groups.Caller{Machine: "1"}, "1", "1/lxd/0", "0", "mysql/0") {
		fmt.Println(a.Entity, a.Machines, a.Instances, a.Err)
	}
	// Output:
	// 1 [0] [i0 i1] <nil>
	// 1/lxd/0 [] [] <nil>
	// 0 [] [] distribution group of "0": unauthorized
	// mysql/0 [] [] distribution group of "mysql/0": unauthorized
}
