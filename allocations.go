package provisioner

import (
	"cmp"
	"slices"
	"strings"
)

// An Allocation is a zone with the instances of a group that are in it.
type Allocation struct {
	Zone      ZoneName
	Instances []InstanceID // sorted, each once
}

// Allocations returns the zones that can be used, with the instances of the
// group in each (AZ13). In order:
//
//   - an unavailable zone is left out, and so are one without a name and the
//     second of a name, as by FilterZones
//   - instanceZones tells where each instance is; one that it lacks, one
//     without a zone, and one whose zone was left out, is in no zone
//   - only instances of the group count; an empty group means all
//   - zones with fewest instances come first, then by name
//
// A zone without instances is there, with none. The arguments are not changed,
// and their order does not matter.
func Allocations(zones []Zone, instanceZones map[InstanceID]ZoneName, group []InstanceID) []Allocation {
	in := map[ZoneName][]InstanceID{}
	members := setOf(group)
	for id, zone := range instanceZones {
		if id != "" && (len(members) == 0 || members[id]) {
			in[zone] = append(in[zone], id)
		}
	}
	var allocations []Allocation
	usable, _ := FilterZones(zones)
	for _, z := range usable {
		slices.Sort(in[z.Name])
		allocations = append(allocations, Allocation{z.Name, in[z.Name]})
	}
	slices.SortFunc(allocations, func(a, b Allocation) int {
		return cmp.Or(
			cmp.Compare(len(a.Instances), len(b.Instances)),
			strings.Compare(string(a.Zone), string(b.Zone)))
	})
	return allocations
}

// Distribute chooses among machines that exist, for a unit that is to land on
// one of them: it returns the candidates that sit in the least populated of
// the allowed zones (AZ14). In order:
//
//   - a machine sits in its Zone; a container without one sits in that of the
//     nearest machine around it that is among the arguments and has one
//   - a candidate without a zone is left out
//   - so is one in a zone that limitZones lacks; an empty limitZones allows all
//   - a zone's population is how many machines of the group sit in it
//   - of the zones in which a candidate is left, those with the smallest
//     population are chosen: a zone without candidates is no choice
//   - the candidates in them are returned, sorted by MachineID.Compare, each
//     once
//
// Only ID and Zone of a Machine are read; a malformed id is no machine's. The
// result is empty only if no candidate sits in an allowed zone: a host whose
// broker has no zones need not ask. The arguments are not changed, and their
// order does not matter as long as no machine is given with two zones.
func Distribute(candidates, group []Machine, limitZones []ZoneName) []MachineID {
	zones := map[MachineID]ZoneName{}
	addZones(zones, group)
	addZones(zones, candidates)

	population := map[ZoneName]int{}
	for id := range machineIDs(group) {
		population[sitsIn(id, zones)]++
	}
	allowed := setOf(limitZones)
	least := -1
	var chosen []MachineID
	for id := range machineIDs(candidates) {
		zone := sitsIn(id, zones)
		if zone == "" || len(allowed) > 0 && !allowed[zone] {
			continue
		}
		n := population[zone]
		if least < 0 || n < least {
			least, chosen = n, nil
		}
		if n == least {
			chosen = append(chosen, id)
		}
	}
	slices.SortFunc(chosen, MachineID.Compare)
	return chosen
}

// SpreadContainers returns the hosts in the order in which the next container
// of a group should try them (AZ15). In order:
//
//   - hosts in the zone in which fewest of the group are
//   - hosts on which fewest of the group are
//   - a stable hash of the group's key and the host, so that the first
//     containers of many groups do not pile up on one host
//   - MachineID.Compare
//
// A member of the group is on a host if it is that host or lies in it at any
// depth, and in the zone in which the host is. A host that is a container and
// has no Zone is in that of the nearest host around it that has one. Hosts
// without any zone count as being in one zone together. Members that are on
// none of the hosts count for nothing, so pass every host and take the first
// that has room.
//
// For several containers call again after each, with its id, or that of the
// host it is to go to, added to the members.
//
// Only ID and Zone of a Machine are read; a malformed id is no machine's. Each
// host is returned once. The arguments are not changed, and their order does
// not matter as long as no host is given with two zones.
func SpreadContainers(hosts []Machine, group Group) []MachineID {
	zones := map[MachineID]ZoneName{}
	addZones(zones, hosts)
	inZone, onHost := countMembers(machineIDs(hosts), zones, group)

	key := hashString(group.Key)
	var order []MachineID
	for id := range machineIDs(hosts) {
		order = append(order, id)
	}
	slices.SortFunc(order, func(a, b MachineID) int {
		return cmp.Or(
			cmp.Compare(inZone[sitsIn(a, zones)], inZone[sitsIn(b, zones)]),
			cmp.Compare(onHost[a], onHost[b]),
			cmp.Compare(mix(key^hashString(string(a))), mix(key^hashString(string(b)))),
			a.Compare(b))
	})
	return order
}

// countMembers counts the members of a group on each host, and in the zones
// of those hosts.
func countMembers(hosts map[MachineID]bool, zones map[MachineID]ZoneName, group Group) (inZone map[ZoneName]int, onHost map[MachineID]int) {
	inZone, onHost = map[ZoneName]int{}, map[MachineID]int{}
	for member := range setOf(group.Members) {
		if member.Validate() != nil {
			continue
		}
		on := false
		for id := member; id != ""; id = id.Host() {
			if hosts[id] {
				onHost[id]++
				on = true
			}
		}
		if on {
			inZone[sitsIn(member, zones)]++
		}
	}
	return inZone, onHost
}

func setOf[T comparable](list []T) map[T]bool {
	set := make(map[T]bool, len(list))
	for _, v := range list {
		set[v] = true
	}
	return set
}

// machineIDs gives the well-formed ids.
func machineIDs(machines []Machine) map[MachineID]bool {
	ids := make(map[MachineID]bool, len(machines))
	for _, m := range machines {
		if m.ID.Validate() == nil {
			ids[m.ID] = true
		}
	}
	return ids
}

func addZones(zones map[MachineID]ZoneName, machines []Machine) {
	for _, m := range machines {
		if m.Zone != "" {
			zones[m.ID] = m.Zone
		}
	}
}

// sitsIn is the zone of a machine or, if that has none, of the nearest around
// it that has one: a container has no zone of its own choosing.
func sitsIn(id MachineID, zones map[MachineID]ZoneName) ZoneName {
	for ; id != ""; id = id.Host() {
		if zone := zones[id]; zone != "" {
			return zone
		}
	}
	return ""
}
