package main

import (
	"fmt"

	"github.com/seed81ba69f2/provisioner"
)

// planning measures MakePlan for fleets of which 5 % are pending and 1 % dead.
func planning(set settings) section {
	s := section{Title: "Planning, for each machine", Unit: "µs"}
	for _, n := range set.sizes {
		snapshot := mixed(n)
		ns := compare(set.roundsOf(n), side{n: n, run: timed(func() { provisioner.MakePlan(snapshot, provisioner.Policy{}) })})
		s.add(planned, n, ns[0]/1000)
	}
	return s
}

func mixed(machines int) provisioner.Snapshot {
	s := provisioner.Snapshot{Fleet: newFleet(machines, true).records, Zones: zones}
	s.Listing.Complete = true
	for i := range s.Fleet {
		m := &s.Fleet[i].Machine
		switch {
		case i%20 == 7:
			m.Status, m.Instance, m.Zone = provisioner.StatusPending, "", ""
			continue
		case i%100 == 3:
			m.Life = provisioner.Dead
		}
		s.Listing.Instances = append(s.Listing.Instances, provisioner.Instance{ID: m.Instance, Zone: m.Zone})
	}
	return s
}

// placing measures what the choice of a zone adds to a plan in which every
// machine starts: it is the difference to the same plan of a broker without
// zones.
func placing(set settings) section {
	s := section{Title: "Placing one machine", Unit: "µs"}
	for _, n := range set.sizes {
		plan := func(s provisioner.Snapshot) side {
			return side{n: n, run: timed(func() { provisioner.MakePlan(s, provisioner.Policy{}) })}
		}
		pending := provisioner.Snapshot{Fleet: newFleet(n, false).records}
		grouped := pending
		grouped.Needs = map[provisioner.MachineID]provisioner.Needs{}
		var group provisioner.Group
		for i := range n {
			if i%10 == 0 {
				group = provisioner.Group{Key: fmt.Sprint(i)}
				for j := i; j < min(i+10, n); j++ {
					group.Members = append(group.Members, pending.Fleet[j].ID)
				}
			}
			grouped.Needs[pending.Fleet[i].ID] = provisioner.Needs{Group: group}
		}
		few, many, groups := pending, pending, grouped
		few.Zones, many.Zones, groups.Zones = zones, manyZones, zones
		ns := compare(set.roundsOf(n), plan(pending), plan(few), plan(many), plan(grouped), plan(groups))
		s.add(fewZones, n, (ns[1]-ns[0])/1000)
		s.add("100 zones", n, (ns[2]-ns[0])/1000)
		s.add("3 zones, groups of 10", n, (ns[4]-ns[3])/1000)
	}
	return s
}

var manyZones = func() (list []provisioner.Zone) {
	for i := range 100 {
		list = append(list, provisioner.Zone{Name: provisioner.ZoneName(fmt.Sprintf("zone-%03d", i)), Available: true})
	}
	return list
}()
