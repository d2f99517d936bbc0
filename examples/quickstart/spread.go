package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/fleet"
)

// A spread follows who is in which zone, to say why a zone was chosen. It only
// tells: the choice is the Task's.
type spread struct {
	fleet   fleet.Fleet
	members map[string][]provisioner.MachineID
	at      map[provisioner.MachineID]provisioner.ZoneName
	total   map[provisioner.ZoneName]int
	groups  map[string]map[provisioner.ZoneName]int           // members of each group in each zone
	inside  map[provisioner.MachineID][]provisioner.MachineID // machines with groups: the top-level one, and its containers
	failed  map[provisioner.MachineID][]provisioner.ZoneName  // in this round
	tries   map[provisioner.MachineID]int
	reason  map[provisioner.MachineID]string // why it went where it is
}

func newSpread(f fleet.Fleet) *spread {
	s := &spread{
		fleet:   f,
		members: f.Members(),
		at:      map[provisioner.MachineID]provisioner.ZoneName{},
		total:   map[provisioner.ZoneName]int{},
		groups:  map[string]map[provisioner.ZoneName]int{},
		inside:  map[provisioner.MachineID][]provisioner.MachineID{},
		failed:  map[provisioner.MachineID][]provisioner.ZoneName{},
		tries:   map[provisioner.MachineID]int{},
		reason:  map[provisioner.MachineID]string{},
	}
	for group := range s.members {
		s.groups[group] = map[provisioner.ZoneName]int{}
	}
	for _, m := range f.Machines {
		if top := m.Record.ID.Top(); len(m.Groups) > 0 {
			s.inside[top] = append(s.inside[top], m.Record.ID)
		}
	}
	for _, m := range f.Machines {
		s.place(m.Record.ID, m.Record.Zone)
	}
	return s
}

// place counts a machine in a zone and nowhere else; empty takes it out.
// Containers are not counted: their hosts are. In the counts of a group a
// container is where its host is.
func (s *spread) place(id provisioner.MachineID, zone provisioner.ZoneName) {
	if id.IsContainer() {
		return
	}
	if old := s.at[id]; old != "" {
		s.count(id, old, -1)
	}
	delete(s.at, id)
	if zone != "" {
		s.at[id] = zone
		s.count(id, zone, +1)
	}
}

func (s *spread) count(id provisioner.MachineID, zone provisioner.ZoneName, n int) {
	s.total[zone] += n
	for _, member := range s.inside[id] {
		for _, group := range s.fleet.Find(member).Groups {
			s.groups[group][zone] += n
		}
	}
}

// choose notes that a machine is to be started in a zone, and says why there.
func (s *spread) choose(id provisioner.MachineID, zone provisioner.ZoneName) (why string) {
	switch {
	case id.IsContainer():
		why = "on its host " + string(id.Host())
	case zone == "":
	case s.at[id] == zone:
		return "the same zone again"
	default:
		s.place(id, "")
		why = s.why(id, zone)
		s.place(id, zone)
	}
	s.reason[id] = why
	return why
}

// story is why a machine is where it is.
func (s *spread) story(id provisioner.MachineID) string {
	text := s.reason[id]
	if n := s.tries[id]; n > 0 {
		text = strings.TrimPrefix(text+", after "+plural(n, "failed attempt"), ", ")
	}
	return text
}

// fail notes that an attempt has failed. If that was the zone's fault it is out
// for this round; after the last that may be used a new one begins.
func (s *spread) fail(id provisioner.MachineID, zone provisioner.ZoneName, err error) {
	s.tries[id]++
	if zone == "" || provisioner.OutcomeOf(err).Kind != provisioner.OutcomeZoneFailed {
		delete(s.failed, id)
		return
	}
	s.place(id, "")
	s.failed[id] = append(s.failed[id], zone)
	if len(s.candidates(id)) == 0 {
		delete(s.failed, id)
	}
}

// candidates are the zones that a machine may be started in.
func (s *spread) candidates(id provisioner.MachineID) []provisioner.ZoneName {
	m := s.fleet.Find(id)
	var names []provisioner.ZoneName
	for _, z := range s.fleet.Zones {
		allowed := m == nil || len(m.Zones) == 0 || slices.Contains(m.Zones, z.Name)
		if z.Available && allowed && !slices.Contains(s.failed[id], z.Name) {
			names = append(names, z.Name)
		}
	}
	return names
}

// why says what speaks for a zone that was chosen for a machine, which is not
// counted anywhere. It is empty if what was seen does not tell.
func (s *spread) why(id provisioner.MachineID, zone provisioner.ZoneName) string {
	all := s.candidates(id)
	switch {
	case !slices.Contains(all, zone):
		return ""
	case len(all) == 1:
		if m := s.fleet.Find(id); len(m.Zones) > 0 && len(s.failed[id]) == 0 {
			return "the only zone that its constraint leaves"
		}
		return "the only zone left"
	}
	var reasons []string
	rest := all
	if m := s.fleet.Find(id); len(m.Groups) > 0 {
		rest = fewest("fewest of "+strings.Join(m.Groups, " and "), zone, rest, s.inGroups(m), &reasons)
	}
	rest = fewest("fewest machines", zone, rest, s.total, &reasons)
	switch {
	case rest == nil:
		return ""
	case len(rest) > 1:
		reasons = append(reasons, "a tie with "+names(rest, zone))
	}
	return strings.Join(reasons, ", then ")
}

// inGroups counts those who share a group with a machine, in each zone. The
// machine itself is in none.
func (s *spread) inGroups(m *fleet.Machine) map[provisioner.ZoneName]int {
	if len(m.Groups) == 1 {
		return s.groups[m.Groups[0]]
	}
	counts := map[provisioner.ZoneName]int{}
	for _, member := range m.GroupOf(s.members).Members {
		if at := s.at[member.Top()]; at != "" {
			counts[at]++
		}
	}
	return counts
}

// fewest adds a reason if the zones differ, and returns those that are as good
// as the chosen one; none if others are better.
func fewest(what string, zone provisioner.ZoneName, zones []provisioner.ZoneName, n map[provisioner.ZoneName]int, reasons *[]string) []provisioner.ZoneName {
	same := slices.DeleteFunc(slices.Clone(zones), func(z provisioner.ZoneName) bool { return n[z] != n[zone] })
	switch {
	case slices.ContainsFunc(zones, func(z provisioner.ZoneName) bool { return n[z] < n[zone] }):
		return nil
	case len(same) == len(zones):
		return zones
	}
	const few = 4
	var others []string
	for _, z := range zones {
		if z != zone && len(others) < few {
			others = append(others, fmt.Sprintf("%s %d", z, n[z]))
		}
	}
	*reasons = append(*reasons, fmt.Sprintf("%s (%d; %s)", what, n[zone], strings.Join(others, ", ")))
	return same
}

// names lists zones, without one of them.
func names(zones []provisioner.ZoneName, without provisioner.ZoneName) string {
	var all []string
	for _, z := range zones {
		if z != without {
			all = append(all, string(z))
		}
	}
	return strings.Join(all, " and ")
}
