package main

import (
	"fmt"
	"slices"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/internal/bridge"
)

// checkChoice looks at the zone that a turn has chosen: of those that the
// machine can use, none has fewer of its group, and of these none has fewer
// machines (AZ5). It counts for itself, so it looks only at turns in which
// nothing else has moved.
func (s *sim) checkChoice(t *task, ops []bridge.Op) {
	var id provisioner.MachineID
	var chosen provisioner.ZoneName
	for _, op := range ops {
		if op.Kind == "starting" && op.Zone != "" {
			if chosen != "" {
				return
			}
			if op.Again { // it is asked for where it was
				return
			}
			id, chosen = provisioner.MachineID(op.Machine), provisioner.ZoneName(op.Zone)
		}
	}
	if chosen == "" || t.zones[id] == chosen { // or it is where it was
		return
	}
	p := provisioner.Population{Group: map[provisioner.ZoneName]int{}, Total: map[provisioner.ZoneName]int{}}
	members := s.groupOf(id).Members
	for _, other := range s.known {
		u, _ := t.Unit(other)
		zone := provisioner.ZoneName(u.Zone)
		switch {
		case other == id:
			continue
		case zone != t.zones[other]:
			return
		}
		p.Total[zone]++
		if slices.Contains(members, other) {
			p.Group[zone]++
		}
	}
	for _, z := range t.Zones(id) {
		fewer := p.Group[z.Zone] < p.Group[chosen] || p.Group[z.Zone] == p.Group[chosen] && p.Total[z.Zone] < p.Total[chosen]
		if z.Rank > 0 && fewer {
			s.fail("AZ5", "machine %s goes to zone %s and not to %s: group %v, all %v", id, chosen, z.Zone, p.Group, p.Total)
		}
	}
}

// checkSpread: where every machine may go anywhere and no attempt has failed,
// groups are even, and so is the fleet if it has none.
func (s *sim) checkSpread() {
	if !s.set.even || s.uneven {
		return
	}
	w := s.world
	members := w.order
	for _, id := range w.order {
		if g := s.groupOf(id); len(g.Members) > 0 {
			members = g.Members
		}
	}
	counts := map[provisioner.ZoneName]int{}
	for _, z := range w.zones {
		counts[z.Name] = 0
	}
	for _, id := range members {
		if m := w.machines[id]; m != nil && !id.IsContainer() {
			counts[w.byID[m.Instance].zone]++
		}
	}
	least, most := len(members), 0
	for _, n := range counts {
		least, most = min(least, n), max(most, n)
	}
	if most-least > 1 {
		s.fail("AZ7", "machines that are to be spread sit in %s", fmt.Sprint(counts))
	}
}
