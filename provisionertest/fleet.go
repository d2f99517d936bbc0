package provisionertest

import (
	"fmt"
	"strconv"

	"github.com/seed81ba69f2/provisioner"
)

// A Fleet is what to begin a test with.
type Fleet struct {
	Machines []provisioner.Machine
	Zones    []provisioner.Zone
	Groups   []provisioner.Group
}

// NewFleet makes the machines 0, 1, 2…, all pending, the available zones a, b,
// c…, and groups g0, g1, g2… of so many machines each that follow one another;
// a group size below 1 makes none. It remembers nothing and gives the same each
// time.
func NewFleet(machines, zones, groupSize int) Fleet {
	var f Fleet
	for i := range machines {
		id := provisioner.MachineID(strconv.Itoa(i))
		f.Machines = append(f.Machines, Pending(id))
		if groupSize < 1 {
			continue
		}
		if i%groupSize == 0 {
			f.Groups = append(f.Groups, provisioner.Group{Key: fmt.Sprintf("g%d", i/groupSize)})
		}
		g := &f.Groups[len(f.Groups)-1]
		g.Members = append(g.Members, id)
	}
	for i := range zones {
		f.Zones = append(f.Zones, provisioner.Zone{Name: zoneName(i), Available: true})
	}
	return f
}

// zoneName counts a … z, a1 … z1, a2 …
func zoneName(i int) provisioner.ZoneName {
	name := string(rune('a' + i%26))
	if i >= 26 {
		name += strconv.Itoa(i / 26)
	}
	return provisioner.ZoneName(name)
}

// Load adds a fleet to the World, its zones in the place of those there are,
// its machines with one change.
func (w *World) Load(f Fleet) error {
	if len(f.Zones) > 0 {
		w.SetZones(f.Zones...)
	}
	for _, g := range f.Groups {
		w.SetGroup(g.Key, g.Members...)
	}
	return w.Add(f.Machines...)
}
