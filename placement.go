package provisioner

import (
	"cmp"
	"slices"
	"strings"
)

// A Zone is an availability zone as the broker lists it.
type Zone struct {
	Name      ZoneName
	Available bool
}

// An Excluded is a zone that is out for a machine, and why.
type Excluded struct {
	Zone   ZoneName
	Reason string
}

// A ZoneRule says why a machine may not use a zone; an empty reason means that
// it may. It must give the same answer each time.
type ZoneRule func(Zone) (reason string)

// OnlyZones is a rule that allows just the given zones; none given allows all.
func OnlyZones(reason string, zones ...ZoneName) ZoneRule {
	return func(z Zone) string {
		if len(zones) == 0 || slices.Contains(zones, z.Name) {
			return ""
		}
		return reason
	}
}

// NotZones is a rule that allows all but the given zones.
func NotZones(reason string, zones ...ZoneName) ZoneRule {
	return func(z Zone) string {
		if slices.Contains(zones, z.Name) {
			return reason
		}
		return ""
	}
}

// Reasons why a zone is out, in the order in which they are looked for.
const (
	ReasonUnavailable   = "unavailable"
	ReasonConstraint    = "not in the machine's zone constraint"
	ReasonDerived       = "not among the zones its start parameters imply"
	ReasonFailed        = "failed in this round"
	ReasonVanished      = "no longer listed"
	ReasonCoolingDown   = "cooling down after a lack of capacity"
	ReasonWithoutAName  = "without a name"
	reasonListedAlready = "listed twice"
)

// FilterZones splits zones into those that a machine can use and those that
// are out, each with its first reason: unavailable zones, then what the rules
// say, in their order. Both results keep the order of zones; zones is not
// changed (AZ6). A zone without a name and the second of a name are out.
func FilterZones(zones []Zone, rules ...ZoneRule) (usable []Zone, out []Excluded) {
	for i, z := range zones {
		if reason := zoneReason(zones[:i], z, rules); reason != "" {
			out = append(out, Excluded{z.Name, reason})
		} else {
			usable = append(usable, z)
		}
	}
	return usable, out
}

func zoneReason(before []Zone, z Zone, rules []ZoneRule) string {
	switch {
	case z.Name == "":
		return ReasonWithoutAName
	case slices.ContainsFunc(before, func(b Zone) bool { return b.Name == z.Name }):
		return reasonListedAlready
	case !z.Available:
		return ReasonUnavailable
	}
	for _, rule := range rules {
		if reason := rule(z); reason != "" {
			return reason
		}
	}
	return ""
}

// A Population counts machines by zone: those of a machine's group, and all.
type Population struct {
	Group map[ZoneName]int
	Total map[ZoneName]int
}

// A TieBreak orders zones with equal populations (AZ5).
type TieBreak uint8

const (
	// TieHash spreads ties by a stable hash of machine and zone, so that they
	// do not all fall on the first name. The default.
	TieHash TieBreak = iota
	// TieName takes the first name, as Juju did.
	TieName
)

// SortZones returns the zones in the order in which the machine should try
// them: fewest members of its group, fewest machines in all, then the
// tie-break, then the name. The order is total; zones is not changed.
func SortZones(zones []Zone, machine MachineID, p Population, tie TieBreak) []Zone {
	sorted := slices.Clone(zones)
	h := hashString(string(machine))
	slices.SortFunc(sorted, func(a, b Zone) int {
		return compareZones(
			zoneRank{p.Group[a.Name], p.Total[a.Name], tieValue(tie, h, hashString(string(a.Name))), a.Name},
			zoneRank{p.Group[b.Name], p.Total[b.Name], tieValue(tie, h, hashString(string(b.Name))), b.Name})
	})
	return sorted
}

// zoneRank is what zones are compared by.
type zoneRank struct {
	group, total int
	tie          uint64
	name         ZoneName
}

// compareZones is the one order of zones: SortZones and the ledger both use it.
func compareZones(a, b zoneRank) int {
	return cmp.Or(
		cmp.Compare(a.group, b.group),
		cmp.Compare(a.total, b.total),
		cmp.Compare(a.tie, b.tie),
		strings.Compare(string(a.name), string(b.name)))
}

func tieValue(tie TieBreak, machine, zone uint64) uint64 {
	if tie == TieName {
		return 0
	}
	return mix(machine ^ zone)
}

// hashString is FNV-1a: the same on every machine and in every release, so
// that a restart places as before.
func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix spreads every bit over the word (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A RankedZone is where one zone stands for one machine.
type RankedZone struct {
	Zone   ZoneName `json:"zone"`
	Rank   int      `json:"rank"`  // 1 is tried first; 0 is out
	Group  int      `json:"group"` // members of the machine's group in it
	Total  int      `json:"total"` // machines in it
	Reason string   `json:"reason,omitempty"`
}

// A Ranking asks for the order of zones for one machine.
type Ranking struct {
	Machine    MachineID
	Zones      []Zone
	Population Population
	Constraint []ZoneName // none: all
	Derived    []ZoneName // none: all
	Failed     []ZoneName // in this round
	Tie        TieBreak
}

// RankZones gives each zone its rank for the machine, or the reason why it is
// out: first those that can be used, in the order in which they are tried,
// then the others in the order of r.Zones (AZ4, AZ5).
func RankZones(r Ranking) []RankedZone {
	usable, out := FilterZones(r.Zones,
		OnlyZones(ReasonConstraint, r.Constraint...),
		OnlyZones(ReasonDerived, r.Derived...),
		NotZones(ReasonFailed, r.Failed...))
	ranked := make([]RankedZone, 0, len(r.Zones))
	for i, z := range SortZones(usable, r.Machine, r.Population, r.Tie) {
		ranked = append(ranked, RankedZone{
			Zone: z.Name, Rank: i + 1,
			Group: r.Population.Group[z.Name], Total: r.Population.Total[z.Name],
		})
	}
	for _, x := range out {
		ranked = append(ranked, RankedZone{
			Zone: x.Zone, Reason: x.Reason,
			Group: r.Population.Group[x.Zone], Total: r.Population.Total[x.Zone],
		})
	}
	return ranked
}
