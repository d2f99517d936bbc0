package provisioner

import (
	"cmp"
	"fmt"
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
	ReasonSkew          = "fuller of the group than MaxSkew allows"
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

	// Weight says how much each zone is to hold in proportion to the others:
	// counts are compared after they are divided by it. A zone that is missing
	// here, or has 0, weighs 1.
	Weight map[ZoneName]int
}

func (p Population) rank(zone ZoneName) zoneRank {
	return zoneRank{group: p.Group[zone], total: p.Total[zone], weight: weightOf(p.Weight, zone), name: zone}
}

// Bounds that keep products of weights and counts far from any overflow.
const (
	maxWeight = 1000
	mostSkew  = 1_000_000
)

func weightOf(weights map[ZoneName]int, zone ZoneName) int {
	return min(max(weights[zone], 1), maxWeight)
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
	rank := func(z Zone) zoneRank {
		r := p.rank(z.Name)
		r.tie = tieValue(tie, h, hashString(string(z.Name)))
		return r
	}
	slices.SortFunc(sorted, func(a, b Zone) int { return compareZones(rank(a), rank(b)) })
	return sorted
}

// zoneRank is what zones are compared by.
type zoneRank struct {
	group, total, weight int
	tie                  uint64
	name                 ZoneName
}

// compareZones is the one order of zones: SortZones and the ledger both use
// it. Shares are compared as fractions, so that they are exact.
func compareZones(a, b zoneRank) int {
	return cmp.Or(
		cmp.Compare(a.group*b.weight, b.group*a.weight),
		cmp.Compare(a.total*b.weight, b.total*a.weight),
		cmp.Compare(a.tie, b.tie),
		strings.Compare(string(a.name), string(b.name)))
}

// A skewLimit bounds how much fuller of a machine's group a zone may become
// than the emptiest. The zero value bounds nothing.
type skewLimit struct {
	most            int // Policy.MaxSkew
	members, weight int // of the emptiest
	zones           int // seen
}

// see takes in a zone that the machine may use, also if it has failed or is
// cooling down: it is for its sake that the others must not fill up.
func (s *skewLimit) see(members, weight int) {
	if s.zones == 0 || members*s.weight < s.members*weight {
		s.members, s.weight = members, weight
	}
	s.zones++
}

// want notes how many zones there should be: where there are fewer, those that
// are missing count as empty ones.
func (s *skewLimit) want(zones int) {
	if s.zones < zones {
		s.members, s.weight = 0, 1
	}
}

// forbids says whether a zone must not get one more.
func (s *skewLimit) forbids(members, weight int) bool {
	return s.most > 0 && (members+1)*s.weight > (s.most*s.weight+s.members)*weight
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
	Cooling    []ZoneName // after a lack of capacity (AZ11)
	Tie        TieBreak
	MaxSkew    int // as Policy.MaxSkew
	MinZones   int // as Policy.MinZones
}

// RankZones gives each zone its rank for the machine, or the reason why it is
// out: first those that can be used, in the order in which they are tried,
// then the others in the order of r.Zones (AZ4, AZ5).
func RankZones(r Ranking) []RankedZone {
	usable, out := FilterZones(r.Zones,
		OnlyZones(ReasonConstraint, r.Constraint...),
		OnlyZones(ReasonDerived, r.Derived...),
		NotZones(ReasonFailed, r.Failed...),
		NotZones(ReasonCoolingDown, r.Cooling...),
		r.skewRule())
	ranked := make([]RankedZone, 0, len(r.Zones))
	for i, z := range SortZones(usable, r.Machine, r.Population, r.Tie) {
		ranked = append(ranked, r.ranked(z.Name, i+1, ""))
	}
	for _, x := range out {
		ranked = append(ranked, r.ranked(x.Zone, 0, x.Reason))
	}
	return ranked
}

func (r Ranking) ranked(zone ZoneName, rank int, reason string) RankedZone {
	return RankedZone{Zone: zone, Rank: rank, Group: r.Population.Group[zone], Total: r.Population.Total[zone], Reason: reason}
}

// skewRule holds MaxSkew over the zones that the machine may use.
func (r Ranking) skewRule() ZoneRule {
	limit := skewLimit{most: min(r.MaxSkew, mostSkew)}
	usable, _ := FilterZones(r.Zones,
		OnlyZones(ReasonConstraint, r.Constraint...),
		OnlyZones(ReasonDerived, r.Derived...))
	for _, z := range usable {
		limit.see(r.Population.Group[z.Name], weightOf(r.Population.Weight, z.Name))
	}
	limit.want(r.MinZones)
	return func(z Zone) string {
		if limit.forbids(r.Population.Group[z.Name], weightOf(r.Population.Weight, z.Name)) {
			return ReasonSkew
		}
		return ""
	}
}

// Describe draws where machines are and where the next would go, from what
// RankZones returns or an Explanation has as its Zones. A line for each zone: a
// # for each machine, at most 40, the first of them a + for each member of the
// group; the counts; and the zone's rank or why it is out.
//
//	az1  +###      4, 1 of the group: choice 2
//	az2  ##        2: choice 1
//	az3  ++######  8, 2 of the group: unavailable
func Describe(zones []RankedZone) string {
	const most = 40
	name, bar := 0, 0
	for _, z := range zones {
		name, bar = max(name, len(z.Zone)), max(bar, min(z.Total, most))
	}
	var b strings.Builder
	for _, z := range zones {
		length := min(max(z.Total, 0), most)
		group := min(max(z.Group, 0), length)
		fmt.Fprintf(&b, "%-*s  %-*s  %d", name, string(z.Zone), bar, strings.Repeat("+", group)+strings.Repeat("#", length-group), z.Total)
		if z.Group > 0 {
			fmt.Fprintf(&b, ", %d of the group", z.Group)
		}
		if z.Rank > 0 {
			fmt.Fprintf(&b, ": choice %d\n", z.Rank)
		} else {
			fmt.Fprintf(&b, ": %s\n", z.Reason)
		}
	}
	return b.String()
}
