package provisioner

import (
	"slices"
	"time"
)

// A ledger counts the machines of each zone and picks zones for new ones: the
// fast second form of FilterZones and SortZones, with the same predicate and
// comparator. Zones are interned to small numbers, machines are slots that the
// owner hands out; a slot is counted in at most one zone (AZ7). It has one
// owner and no lock.
type ledger struct {
	policy Policy
	zones  []ledgerZone
	index  map[ZoneName]int32
	at     []int32                 // the zone of each slot; noZone if it is counted nowhere
	keyed  map[string]*ledgerGroup // groups that have a key
	in     [][]*ledgerGroup        // those of each slot, once for each time it is a member

	group []int32   // of the wish in hand: members of its group by zone
	limit skewLimit // and what MaxSkew leaves to it
}

type ledgerZone struct {
	name      ZoneName
	hash      uint64
	weight    int
	listed    bool
	available bool
	total     int32
}

const noZone int32 = -1

func newLedger(p Policy) *ledger {
	return &ledger{policy: p, index: map[ZoneName]int32{}, keyed: map[string]*ledgerGroup{}}
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
	l.zones = append(l.zones, ledgerZone{name: name, hash: hashString(string(name)), weight: weightOf(l.policy.Weights, name)})
	l.index[name] = z
	l.group = append(l.group, 0)
	return z
}

// setZones takes over a new list (AZ3).
func (l *ledger) setZones(zones []Zone) {
	for i := range l.zones {
		l.zones[i].listed, l.zones[i].available = false, false
	}
	for _, z := range zones {
		if i := l.intern(z.Name); i != noZone && !l.zones[i].listed {
			l.zones[i].listed, l.zones[i].available = true, z.Available
		}
	}
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
	old := l.at[slot]
	if old == zone {
		return
	}
	if l.at[slot] = zone; old != noZone {
		l.zones[old].total--
	}
	if zone != noZone {
		l.zones[zone].total++
	}
	for _, g := range l.groupsOf(slot) {
		g.count(old, -1)
		g.count(zone, 1)
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
	hash       uint64       // of the machine's id
	group      []int32      // slots of a group without a key; its own does not count
	keyed      *ledgerGroup // or the group
	constraint *zoneSet
	derived    *zoneSet
	failed     *zoneSet
	cool       *cooling
	now        time.Time // for cool
}

// look works out what the reasons and the order depend on besides a zone
// itself: everything that is asked about a wish begins with it.
func (l *ledger) look(w *wish) {
	l.countGroup(w)
	l.limit = skewLimit{}
	if l.policy.MaxSkew == 0 || w.keyed == nil && len(w.group) == 0 {
		return
	}
	l.limit.most = min(l.policy.MaxSkew, mostSkew)
	for z := range l.zones {
		if l.closed(int32(z), w) == "" {
			l.limit.see(int(l.group[z]), l.zones[z].weight)
		}
	}
	l.limit.want(l.policy.MinZones)
}

// closed is why the machine may not use the zone, now and in later rounds.
func (l *ledger) closed(z int32, w *wish) string {
	switch zone := &l.zones[z]; {
	case !zone.listed:
		return ReasonVanished
	case !zone.available:
		return ReasonUnavailable
	case w.constraint != nil && !w.constraint.has(z):
		return ReasonConstraint
	case w.derived != nil && !w.derived.has(z):
		return ReasonDerived
	}
	return ""
}

// out is the ledger's form of zoneReason.
func (l *ledger) out(z int32, w *wish) string {
	if reason := l.closed(z, w); reason != "" {
		return reason
	}
	switch {
	case w.failed != nil && w.failed.has(z):
		return ReasonFailed
	case w.cool != nil && w.cool.closed(z, w.slot, w.now):
		return ReasonCoolingDown
	case l.limit.most > 0 && l.limit.forbids(int(l.group[z]), l.zones[z].weight):
		return ReasonSkew
	}
	return ""
}

// reason is why a zone is out for the wish, or "".
func (l *ledger) reason(z int32, w *wish) string {
	l.look(w)
	return l.out(z, w)
}

// available says whether the zone would do for the wish in a new round.
func (l *ledger) available(z int32, w *wish) bool {
	anew := *w
	anew.failed = nil
	return l.reason(z, &anew) == ""
}

// choose picks the zone that SortZones would put first, or noZone. Nothing is
// reserved.
func (l *ledger) choose(w *wish) (best int32) {
	l.look(w)
	return l.best(w, noZone)
}

// best picks the first zone besides one, from what look has worked out.
func (l *ledger) best(w *wish, but int32) (best int32) {
	own := l.zoneOf(w.slot)
	best = noZone
	var least shareOf
	for i := range l.zones {
		z := int32(i)
		if z == but || l.out(z, w) != "" {
			continue
		}
		n := l.shareOf(z, own)
		if best == noZone || n.less(least) || !least.less(n) && compareZones(l.tieRank(z, w), l.tieRank(best, w)) < 0 {
			best, least = z, n
		}
	}
	return best
}

// chosen says why a zone that choose has just picked is better than the others.
func (l *ledger) chosen(w *wish, zone int32) ZoneChoice {
	own := l.zoneOf(w.slot)
	c := ZoneChoice{Group: int(l.group[zone]), Total: int(l.totalBut(zone, own))}
	if next := l.best(w, zone); next != noZone {
		c.Next, c.NextGroup, c.NextTotal = l.zones[next].name, int(l.group[next]), int(l.totalBut(next, own))
	}
	return c
}

// shareOf is what compareZones looks at first, in a form that is quick to
// compare.
type shareOf struct{ group, total, weight int32 }

// shareOf counts the zone without the machine that is in own.
func (l *ledger) shareOf(z, own int32) shareOf {
	return shareOf{l.group[z], l.totalBut(z, own), int32(l.zones[z].weight)}
}

func (a shareOf) less(b shareOf) bool {
	if a.weight == b.weight {
		// Both counts in one number, so that one comparison does.
		return int64(a.group)<<32|int64(a.total) < int64(b.group)<<32|int64(b.total)
	}
	return a.fewerOfGroup(b) || !b.fewerOfGroup(a) && int64(a.total)*int64(b.weight) < int64(b.total)*int64(a.weight)
}

func (a shareOf) fewerOfGroup(b shareOf) bool {
	return int64(a.group)*int64(b.weight) < int64(b.group)*int64(a.weight)
}

// left is how many zones the round still has for the wish, those that are only
// cooling down too.
func (l *ledger) left(w *wish) (usable, cooling int) {
	l.look(w)
	for z := range l.zones {
		switch l.out(int32(z), w) {
		case "":
			usable++
		case ReasonCoolingDown:
			cooling++
		}
	}
	return usable, cooling
}

// due is when the first zone that is cooling down for the wish comes due.
func (l *ledger) due(w *wish) (first time.Time) {
	l.look(w)
	for z := range l.zones {
		if l.out(int32(z), w) != ReasonCoolingDown {
			continue
		}
		if at, ok := w.cool.due(int32(z)); ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// totalBut is the number of machines in the zone besides the one in own.
func (l *ledger) totalBut(z, own int32) int32 {
	if z == own {
		return l.zones[z].total - 1
	}
	return l.zones[z].total
}

// tieRank is what zones with equal shares are compared by.
func (l *ledger) tieRank(z int32, w *wish) zoneRank {
	return zoneRank{tie: tieValue(l.policy.Tie, w.hash, l.zones[z].hash), name: l.zones[z].name}
}

func (l *ledger) countGroup(w *wish) {
	at, group := l.at, l.group
	clear(group)
	if w.keyed != nil {
		copy(group, w.keyed.counts)
		if own := l.zoneOf(w.slot); own != noZone {
			for _, g := range l.groupsOf(w.slot) {
				if g == w.keyed {
					group[own]--
				}
			}
		}
		return
	}
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
	l.look(w)
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
	l.look(w)
	own := l.zoneOf(w.slot)
	p := Population{map[ZoneName]int{}, map[ZoneName]int{}, l.policy.Weights}
	var usable []Zone
	var out []RankedZone
	for i := range l.zones {
		z, zone := int32(i), &l.zones[i]
		if !zone.listed && zone.total == 0 {
			continue
		}
		p.Group[zone.name], p.Total[zone.name] = int(l.group[z]), int(l.totalBut(z, own))
		if reason := l.out(z, w); reason == "" {
			usable = append(usable, Zone{zone.name, true})
		} else {
			out = append(out, RankedZone{Zone: zone.name, Group: p.Group[zone.name], Total: p.Total[zone.name], Reason: reason})
		}
	}
	return append(RankZones(Ranking{Machine: machine, Zones: usable, Population: p, Tie: l.policy.Tie}), out...)
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

// A ledgerGroup counts the members of a group that has a key, so that a choice
// need not.
type ledgerGroup struct {
	key     string
	seq     uint64  // the newest reading that it is known from
	sum     uint64  // of the hashes of its members' ids
	stale   bool    // a member was not known, or has left since
	members []int32 // slots
	counts  []int32 // by zone; shorter than the ledger's
}

func (g *ledgerGroup) count(z, by int32) {
	if z == noZone {
		return
	}
	for int(z) >= len(g.counts) {
		g.counts = append(g.counts, 0)
	}
	g.counts[z] += by
}

func (l *ledger) groupsOf(slot int32) []*ledgerGroup {
	if int(slot) >= len(l.in) {
		return nil
	}
	return l.in[slot]
}

// join gives a wish its group, as reading seq has it for the machine. It is one
// of the group, whether that names it or not (DG2). A container counts where
// its host is; slotOf finds a top-level machine.
func (l *ledger) join(w *wish, machine MachineID, g Group, seq uint64, slotOf func(MachineID) (int32, bool)) {
	w.group, w.keyed = nil, nil
	if g.Key == "" {
		w.group, _ = slotsOf(g.Members, slotOf)
		return
	}
	k := l.keyed[g.Key]
	if k == nil {
		k = &ledgerGroup{key: g.Key, stale: true}
		l.keyed[g.Key] = k
	}
	w.keyed = k
	if seq < k.seq { // who has joined since is counted, and stays so
		l.admit(k, w.slot)
		return
	}
	k.seq = seq
	sum, named := sumOf(g.Members, machine)
	if k.sum == sum && !k.stale {
		return
	}
	slots, all := slotsOf(g.Members, slotOf)
	if !named {
		slots = append(slots, w.slot)
	}
	l.setMembers(k, slots)
	k.sum, k.stale = sum, !all
}

// sumOf is the same for the same members in any order, the machine among them.
func sumOf(members []MachineID, machine MachineID) (sum uint64, named bool) {
	for _, id := range members {
		sum += mix(hashString(string(id)))
		named = named || id == machine
	}
	if !named {
		sum += mix(hashString(string(machine)))
	}
	return sum, named
}

func slotsOf(members []MachineID, slotOf func(MachineID) (int32, bool)) (slots []int32, all bool) {
	if len(members) == 0 {
		return nil, true
	}
	slots, all = make([]int32, 0, len(members)+1), true
	seen := make(map[MachineID]bool, len(members))
	for _, id := range members {
		if seen[id] {
			continue
		}
		seen[id] = true
		if slot, ok := slotOf(id.Top()); ok {
			slots = append(slots, slot)
		} else {
			all = false
		}
	}
	return slots, all
}

func (l *ledger) setMembers(g *ledgerGroup, slots []int32) {
	for _, slot := range g.members {
		l.in[slot] = slices.DeleteFunc(l.in[slot], func(x *ledgerGroup) bool { return x == g })
	}
	clear(g.counts)
	g.members = slots
	for _, slot := range slots {
		for int(slot) >= len(l.in) {
			l.in = append(l.in, nil)
		}
		l.in[slot] = append(l.in[slot], g)
		g.count(l.zoneOf(slot), 1)
	}
}

// admit makes sure that a slot is a member.
func (l *ledger) admit(g *ledgerGroup, slot int32) {
	if !slices.Contains(l.groupsOf(slot), g) {
		l.setMembers(g, append(g.members, slot))
	}
}

// leave takes a slot out of everything.
func (l *ledger) leave(slot int32) {
	l.place(slot, noZone)
	for _, g := range slices.Clone(l.groupsOf(slot)) {
		g.stale = true
		g.members = slices.DeleteFunc(g.members, func(m int32) bool { return m == slot })
		if len(g.members) == 0 {
			delete(l.keyed, g.key)
		}
	}
	if int(slot) < len(l.in) {
		l.in[slot] = nil
	}
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
