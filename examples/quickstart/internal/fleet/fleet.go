// Package fleet holds what a fleet file says, whatever its format, and reads
// the quickstart's own format.
package fleet

import (
	"slices"
	"strings"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// A Fleet is what a file says.
type Fleet struct {
	Title     string // for people
	Harvest   provisioner.HarvestMode
	Zones     []provisioner.Zone           // sorted by name; none: a broker without zones
	Machines  []Machine                    // sorted by id, each once
	Instances []provisioner.Instance       // that no machine claims
	Capacity  map[provisioner.ZoneName]int // of the zones that have a bound
	Trouble   []provisionertest.Fault
	Warnings  []string // what was odd, in the order of the file
}

// A Machine is one machine record, with what a start of it needs.
type Machine struct {
	Record provisioner.Machine
	Err    error                  // the record could not be read; only Record.ID is set
	Zones  []provisioner.ZoneName // it may only go there; none: anywhere
	Needs  error                  // why it can't be told what its start needs, or nil
	Groups []string               // names of the groups it belongs to, sorted
	Note   string                 // what its status says besides
}

// Find returns the machine with the id, or nil.
func (f *Fleet) Find(id provisioner.MachineID) *Machine {
	i, ok := slices.BinarySearchFunc(f.Machines, id, func(m Machine, id provisioner.MachineID) int { return m.Record.ID.Compare(id) })
	if !ok {
		return nil
	}
	return &f.Machines[i]
}

// ZoneOf is where a machine is: its own zone, else that of the nearest host
// that has one, for a container has no place of its own.
func (f *Fleet) ZoneOf(id provisioner.MachineID) provisioner.ZoneName {
	for ; id != ""; id = id.Host() {
		if m := f.Find(id); m != nil && m.Record.Zone != "" {
			return m.Record.Zone
		}
	}
	return ""
}

// Members lists the machines of each group, by id.
func (f *Fleet) Members() map[string][]provisioner.MachineID {
	members := map[string][]provisioner.MachineID{}
	for _, m := range f.Machines {
		for _, g := range m.Groups {
			members[g] = append(members[g], m.Record.ID)
		}
	}
	return members
}

// GroupOf is the distribution group of a machine: all that share one of its
// groups with it.
func (m Machine) GroupOf(members map[string][]provisioner.MachineID) provisioner.Group {
	switch len(m.Groups) {
	case 0:
		return provisioner.Group{}
	case 1:
		return provisioner.Group{Key: m.Groups[0], Members: members[m.Groups[0]]}
	}
	var all []provisioner.MachineID
	for _, g := range m.Groups {
		all = append(all, members[g]...)
	}
	slices.SortFunc(all, provisioner.MachineID.Compare)
	return provisioner.Group{Key: strings.Join(m.Groups, ","), Members: slices.Compact(all)}
}

// Sort puts everything in its order; readers call it at their end.
func (f *Fleet) Sort() {
	slices.SortStableFunc(f.Machines, func(a, b Machine) int { return a.Record.ID.Compare(b.Record.ID) })
	slices.SortStableFunc(f.Zones, func(a, b provisioner.Zone) int { return strings.Compare(string(a.Name), string(b.Name)) })
	for i := range f.Machines {
		slices.Sort(f.Machines[i].Groups)
		f.Machines[i].Groups = slices.Compact(f.Machines[i].Groups)
	}
}
