package provisioner

import "math"

// A ledger counts the machines of each zone and picks zones for new ones: the
// fast second form of FilterZones and SortZones, with the same predicate and
// comparator. Zones are interned to small numbers, machines are slots that the
// owner hands out; a slot is counted in at most one zone (AZ7). It has one
// owner and no lock.
type ledger struct {
	tie   TieBreak
	zones []ledgerZone
	index map[ZoneName]int32
	at    []int32 // the zone of each slot; noZone if it is counted nowhere

	group []int32 // scratch: members of one group by zone
}

type ledgerZone struct {
	name      ZoneName
	hash      uint64
	listed    bool
	available bool
	total     int32
}

const noZone int32 = -1

func newLedger(tie TieBreak) *ledger {
	return &ledger{tie: tie, index: map[ZoneName]int32{}}
}

// intern gives a zone its number, also one that was never listed: machines may
// sit in it. The empty name is no zone.
func (l *ledger) intern(name ZoneName) int32 {
	if name == "" {
		return noZone
	}
	if z, ok := l.index[name]; ok {
		return z
	}
	z := int32(len(l.zones))
	l.zones = append(l.zones, ledgerZone{name: name, hash: hashString(string(name))})
	l.index[name] = z
	l.group = append(l.group, 0)
	return z
}

// setZones takes over a new list (AZ3) and returns the zones that have
// vanished since the last while machines are counted in them.
func (l *ledger) setZones(zones []Zone) (vanished []ZoneName) {
	was := make([]bool, len(l.zones))
	for i := range l.zones {
		was[i] = l.zones[i].listed
		l.zones[i].listed, l.zones[i].available = false, false
	}
	for _, z := range zones {
		if i := l.intern(z.Name); i != noZone && !l.zones[i].listed {
			l.zones[i].listed, l.zones[i].available = true, z.Available
		}
	}
	for i := range was {
		if z := l.zones[i]; was[i] && !z.listed && z.total > 0 {
			vanished = append(vanished, z.name)
		}
	}
	return vanished
}

// zoned says whether the broker has zones at all (AZ1).
func (l *ledger) zoned() bool {
	for i := range l.zones {
		if l.zones[i].listed {
			return true
		}
	}
	return false
}

// place counts the slot in a zone and nowhere else; noZone takes it out. It
// reserves, commits and releases: it is idempotent.
func (l *ledger) place(slot, zone int32) {
	for int(slot) >= len(l.at) {
		l.at = append(l.at, noZone)
	}
	if old := l.at[slot]; old != noZone {
		l.zones[old].total--
	}
	l.at[slot] = zone
	if zone != noZone {
		l.zones[zone].total++
	}
}

func (l *ledger) zoneOf(slot int32) int32 {
	if int(slot) >= len(l.at) {
		return noZone
	}
	return l.at[slot]
}

func (l *ledger) name(zone int32) ZoneName {
	if zone == noZone {
		return ""
	}
	return l.zones[zone].name
}

// population is the number of machines in a zone.
func (l *ledger) population(name ZoneName) int {
	if z, ok := l.index[name]; ok {
		return int(l.zones[z].total)
	}
	return 0
}

// set interns names; none given means all, which is a nil set.
func (l *ledger) set(names []ZoneName) *zoneSet {
	if len(names) == 0 {
		return nil
	}
	s := &zoneSet{}
	for _, n := range names {
		if z := l.intern(n); z != noZone {
			s.add(z)
		}
	}
	return s
}

// A wish is what one choice is made by.
type wish struct {
	slot       int32
	hash       uint64  // of the machine's id
	group      []int32 // slots; its own does not count
	constraint *zoneSet
	derived    *zoneSet
	failed     *zoneSet
}

// out is the ledger's form of zoneReason.
func (l *ledger) out(z int32, w *wish) string {
	switch zone := &l.zones[z]; {
	case !zone.listed:
		return ReasonVanished
	case !zone.available:
		return ReasonUnavailable
	case w.constraint != nil && !w.constraint.has(z):
		return ReasonConstraint
	case w.derived != nil && !w.derived.has(z):
		return ReasonDerived
	case w.failed != nil && w.failed.has(z):
		return ReasonFailed
	}
	return ""
}

// available says whether the zone would do for the wish in a new round.
func (l *ledger) available(z int32, w *wish) bool {
	anew := *w
	anew.failed = nil
	return l.out(z, &anew) == ""
}

// choose picks the zone that SortZones would put first, or noZone. usable is
// the number of zones that could have been picked. Nothing is reserved.
func (l *ledger) choose(w *wish) (best int32, usable int) {
	l.countGroup(w)
	own := l.zoneOf(w.slot)
	best, least := noZone, uint64(math.MaxUint64)
	for i := range l.zones {
		z := int32(i)
		if l.out(z, w) != "" {
			continue
		}
		usable++
		// Group and total in one number: the order of compareZones, in one
		// comparison that seldom goes either way.
		count := uint64(l.group[z])<<32 | uint64(l.totalBut(z, own))
		if count < least || count == least && compareZones(l.tieRank(z, w), l.tieRank(best, w)) < 0 {
			best, least = z, count
		}
	}
	return best, usable
}

// totalBut is the number of machines in the zone besides the one in own.
func (l *ledger) totalBut(z, own int32) int32 {
	if z == own {
		return l.zones[z].total - 1
	}
	return l.zones[z].total
}

// tieRank is what zones with equal counts are compared by.
func (l *ledger) tieRank(z int32, w *wish) zoneRank {
	return zoneRank{tie: tieValue(l.tie, w.hash, l.zones[z].hash), name: l.zones[z].name}
}

func (l *ledger) countGroup(w *wish) {
	at, group := l.at, l.group
	clear(group)
	for _, member := range w.group {
		if int(member) < len(at) && member != w.slot {
			if z := at[member]; z != noZone {
				group[z]++
			}
		}
	}
}

// excluded lists the zones that are out for the wish, and why. Zones that are
// only remembered because machines sit in them are among them.
func (l *ledger) excluded(w *wish) []Excluded {
	var out []Excluded
	for z := range l.zones {
		if reason := l.out(int32(z), w); reason != "" && (l.zones[z].listed || l.zones[z].total > 0) {
			out = append(out, Excluded{l.zones[z].name, reason})
		}
	}
	return out
}

// waitable says whether some zone would do for the wish once it is up again
// and its round is over: whether waiting makes sense (AZ9).
func (l *ledger) waitable(w *wish) bool {
	for z := range l.zones {
		if !l.zones[z].listed {
			continue
		}
		if (w.constraint == nil || w.constraint.has(int32(z))) && (w.derived == nil || w.derived.has(int32(z))) {
			return true
		}
	}
	return false
}

// ranked explains a wish as RankZones does.
func (l *ledger) ranked(machine MachineID, w *wish) []RankedZone {
	l.countGroup(w)
	own := l.zoneOf(w.slot)
	r := Ranking{Machine: machine, Tie: l.tie, Population: Population{map[ZoneName]int{}, map[ZoneName]int{}}}
	reasons := map[ZoneName]string{}
	for z := range l.zones {
		zone := l.zones[z]
		if !zone.listed && zone.total == 0 {
			continue
		}
		r.Zones = append(r.Zones, Zone{zone.name, zone.available})
		r.Population.Group[zone.name], r.Population.Total[zone.name] = int(l.group[z]), int(l.totalBut(int32(z), own))
		reasons[zone.name] = l.out(int32(z), w)
	}
	usable, out := FilterZones(r.Zones, func(z Zone) string { return reasons[z.Name] })
	r.Zones = usable
	ranked := RankZones(r)
	for _, x := range out {
		reason := reasons[x.Zone]
		ranked = append(ranked, RankedZone{Zone: x.Zone, Reason: reason, Group: r.Population.Group[x.Zone], Total: r.Population.Total[x.Zone]})
	}
	return ranked
}

// counts gives every zone that is listed or inhabited.
func (l *ledger) counts() []ZoneCount {
	var counts []ZoneCount
	for _, z := range l.zones {
		if z.listed || z.total > 0 {
			counts = append(counts, ZoneCount{Zone: z.name, Available: z.available, Machines: int(z.total)})
		}
	}
	return counts
}

// A zoneSet is a set of interned zones; it allocates nothing for up to 128.
type zoneSet struct {
	low  [2]uint64
	high []uint64
}

func (s *zoneSet) add(z int32) {
	if z < 128 {
		s.low[z/64] |= 1 << (z % 64)
		return
	}
	for int(z/64)-2 >= len(s.high) {
		s.high = append(s.high, 0)
	}
	s.high[z/64-2] |= 1 << (z % 64)
}

func (s *zoneSet) has(z int32) bool {
	if z < 128 {
		return s.low[z/64]&(1<<(z%64)) != 0
	}
	i := int(z/64) - 2
	return i < len(s.high) && s.high[i]&(1<<(z%64)) != 0
}

func (s *zoneSet) empty() bool {
	for _, w := range s.high {
		if w != 0 {
			return false
		}
	}
	return s.low == [2]uint64{}
}

func (s *zoneSet) clear() {
	s.low = [2]uint64{}
	clear(s.high)
}
