package provisioner

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// ledgerModel is what a ledger should hold, in maps and lists.
type ledgerModel struct {
	listed []Zone
	at     map[int32]ZoneName
}

func (m *ledgerModel) total(but int32) map[ZoneName]int {
	totals := map[ZoneName]int{}
	for slot, zone := range m.at {
		if slot != but {
			totals[zone]++
		}
	}
	return totals
}

// ranking asks the pure form what the wish asks the ledger.
func (m *ledgerModel) ranking(p Policy, machine MachineID, slot int32, group []int32) Ranking {
	members := map[ZoneName]int{}
	for _, s := range group {
		if zone, ok := m.at[s]; ok && s != slot {
			members[zone]++
		}
	}
	return Ranking{Machine: machine, Zones: m.listed, Population: Population{members, m.total(slot), p.Weights},
		Tie: p.Tie, MaxSkew: p.MaxSkew, MinZones: p.MinZones}
}

// FuzzZoneRanking holds the two forms of placement together: FilterZones,
// SortZones and RankZones on one side, the ledger on the other (AZ4, AZ5).
func FuzzZoneRanking(f *testing.F) {
	f.Add(uint64(1), uint16(3), uint16(20), false)
	f.Add(uint64(2), uint16(0), uint16(5), false)
	f.Add(uint64(3), uint16(1), uint16(1), true)
	f.Add(uint64(4), uint16(16), uint16(100), true)
	f.Add(uint64(5), uint16(128), uint16(300), false)
	f.Add(uint64(6), uint16(129), uint16(300), false)
	f.Add(uint64(7), uint16(300), uint16(50), false)
	f.Add(uint64(8), uint16(257), uint16(0), true)
	f.Add(uint64(9), uint16(3), uint16(300), false)
	f.Fuzz(func(t *testing.T, seed uint64, zones, machines uint16, byName bool) {
		if zones > 300 || machines > 300 {
			t.Skip()
		}
		r := rand.New(rand.NewPCG(seed, seed))
		policy := Policy{MaxSkew: r.IntN(4), Weights: map[ZoneName]int{}}
		if byName {
			policy.Tie = TieName
		}
		if policy.MaxSkew > 0 {
			policy.MinZones = r.IntN(int(zones) + 2)
		}
		for i := range zones {
			if r.IntN(3) == 0 {
				policy.Weights[ZoneName(fmt.Sprintf("zone-%d", i))] = r.IntN(5)
			}
		}
		l, model := newLedger(policy), &ledgerModel{at: map[int32]ZoneName{}}
		cool := newCooldowns(policy)
		// One name in ten is never listed.
		name := func() ZoneName { return ZoneName(fmt.Sprintf("zone-%d", r.IntN(int(zones)+int(zones)/10+1))) }
		some := func(most int) []ZoneName {
			var list []ZoneName
			for range r.IntN(most + 1) {
				list = append(list, name())
			}
			return list
		}
		list := func() []Zone {
			var all []Zone
			for i := range zones {
				if r.IntN(8) > 0 {
					all = append(all, Zone{ZoneName(fmt.Sprintf("zone-%d", i)), r.IntN(6) > 0})
				}
			}
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			if len(all) > 0 && r.IntN(3) == 0 { // as a careless broker would
				all = append(all, Zone{"", true}, Zone{all[0].Name, !all[0].Available})
			}
			return all
		}
		setZones := func() {
			next := list()
			model.listed = next
			before := slices.Clone(next)
			l.setZones(next)
			if !slices.Equal(before, next) {
				t.Fatal("AZ6: the list was changed")
			}
		}
		place := func(slot int32, zone ZoneName) {
			l.place(slot, l.intern(zone))
			if delete(model.at, slot); zone != "" {
				model.at[slot] = zone
			}
		}

		setZones()
		for range 2 * int(machines) {
			zone := name()
			if r.IntN(5) == 0 {
				zone = ""
			}
			place(int32(r.IntN(int(machines)+1)), zone)
		}
		setZones()
		for range 4 {
			slot := int32(r.IntN(int(machines) + 2))
			var group []int32
			for s := range int32(machines) + 5 {
				if r.IntN(4) == 0 {
					group = append(group, s)
				}
			}
			machine := MachineID(fmt.Sprint(slot))
			pure := model.ranking(policy, machine, slot, group)
			pure.Failed = some(int(zones)/2 + 1)
			if r.IntN(2) == 0 {
				pure.Constraint = some(int(zones))
			}
			if r.IntN(2) == 0 {
				pure.Derived = some(2 * int(zones))
			}
			w := &wish{slot: slot, hash: hashString(string(machine)),
				constraint: l.set(pure.Constraint), derived: l.set(pure.Derived), failed: &zoneSet{}, now: time.Unix(1, 0)}
			for _, z := range pure.Failed {
				w.failed.add(l.intern(z))
			}
			for _, z := range some(int(zones) / 4) {
				cool.failed(shape{}, l.intern(z), 1, 1, w.now)
				pure.Cooling = append(pure.Cooling, z)
			}
			w.cool = cool.of(shape{})
			for z := range l.zones {
				if w.cool.closed(int32(z), slot, w.now) {
					pure.Cooling = append(pure.Cooling, l.zones[z].name)
				}
			}
			joinModel(r, l, w, machine, group)
			sameRanking(t, l, w, model, pure)
			place(slot, l.name(l.choose(w)))
			sameCounts(t, l, model)
			if r.IntN(3) == 0 {
				delete(model.at, slot)
				l.leave(slot)
				sameCounts(t, l, model)
			}
		}
	})
}

// joinModel gives the wish its group, with or without a key; the members come
// in any order, and with or without the machine itself.
func joinModel(r *rand.Rand, l *ledger, w *wish, machine MachineID, group []int32) {
	g := Group{Key: []string{"", "k1", "k2"}[r.IntN(3)]}
	for _, slot := range group {
		for slot != w.slot || r.IntN(2) == 0 {
			g.Members = append(g.Members, MachineID(fmt.Sprint(slot)))
			if r.IntN(8) > 0 { // else it is named once more
				break
			}
		}
	}
	r.Shuffle(len(g.Members), func(i, j int) { g.Members[i], g.Members[j] = g.Members[j], g.Members[i] })
	for range 1 + r.IntN(2) { // the second reading says the same
		l.join(w, machine, g, 0, func(id MachineID) (int32, bool) {
			slot, err := strconv.Atoi(string(id))
			return int32(slot), err == nil
		})
	}
}

func sameRanking(t *testing.T, l *ledger, w *wish, model *ledgerModel, r Ranking) {
	t.Helper()
	pure := RankZones(r)
	var first ZoneName
	usable := 0
	for _, z := range pure {
		if z.Rank == 1 {
			first = z.Zone
		}
		if z.Rank > 0 {
			usable++
		}
	}
	best := l.choose(w)
	n, cooling := l.left(w)
	for _, z := range pure {
		if z.Reason == ReasonCoolingDown {
			cooling--
		}
	}
	if cooling != 0 {
		t.Fatalf("AZ11: %d zones more than should are cooling down\n%+v", cooling, pure)
	}
	if l.name(best) != first || n != usable {
		t.Fatalf("AZ5: chose %q of %d, want %q of %d\n%+v", l.name(best), n, first, usable, pure)
	}
	waitable := slices.ContainsFunc(r.Zones, func(z Zone) bool {
		return z.Name != "" && (len(r.Constraint) == 0 || slices.Contains(r.Constraint, z.Name)) &&
			(len(r.Derived) == 0 || slices.Contains(r.Derived, z.Name))
	})
	if got := l.waitable(w); got != waitable {
		t.Fatalf("AZ9: waitable %v, want %v\n%+v", got, waitable, pure)
	}

	// The ledger has no place for a careless broker's extra zones, and still
	// knows those that have vanished while machines are in them.
	var want []RankedZone
	seen := map[ZoneName]bool{"": true}
	for _, z := range pure {
		if z.Zone != "" && z.Reason != reasonListedAlready {
			want = append(want, z)
			seen[z.Zone] = true
		}
	}
	for zone := range model.total(-1) {
		if !seen[zone] {
			want = append(want, RankedZone{Zone: zone, Group: r.Population.Group[zone], Total: r.Population.Total[zone], Reason: ReasonVanished})
		}
	}
	order := func(a, b RankedZone) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Zone, b.Zone))
	}
	got := l.ranked(r.Machine, w)
	for i := range usable {
		if got[i].Rank != i+1 {
			t.Fatalf("the ranks are out of order: %+v", got)
		}
	}
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("LC7: ranked (-pure +ledger):\n%s", diff)
	}
	var out []Excluded
	for _, z := range want {
		if z.Rank == 0 {
			out = append(out, Excluded{z.Zone, z.Reason})
		}
	}
	excluded := l.excluded(w)
	slices.SortFunc(excluded, func(a, b Excluded) int { return cmp.Compare(a.Zone, b.Zone) })
	if diff := gocmp.Diff(out, excluded, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("AZ9: excluded (-pure +ledger):\n%s", diff)
	}
}

func sameCounts(t *testing.T, l *ledger, model *ledgerModel) {
	t.Helper()
	totals, sum := model.total(-1), 0
	for _, c := range l.counts() {
		if c.Machines != totals[c.Zone] {
			t.Fatalf("AZ7: %d machines in %s, want %d", c.Machines, c.Zone, totals[c.Zone])
		}
		sum += c.Machines
	}
	if sum != len(model.at) {
		t.Fatalf("AZ7: %d machines are counted, want %d", sum, len(model.at))
	}
	if diff := gocmp.Diff(ledgerCounts(rebuilt(l)), ledgerCounts(l)); diff != "" {
		t.Fatalf("the ledger rebuilt and the ledger kept (-rebuilt +kept):\n%s", diff)
	}
}

// rebuilt is a ledger made anew from where each slot is, and who is in which
// group.
func rebuilt(l *ledger) *ledger {
	anew := newLedger(l.policy)
	for _, z := range l.zones {
		anew.intern(z.name)
	}
	for key, g := range l.keyed {
		k := &ledgerGroup{key: key}
		anew.keyed[key] = k
		anew.setMembers(k, slices.Clone(g.members))
	}
	for slot, zone := range l.at {
		anew.place(int32(slot), zone)
	}
	return anew
}

// ledgerCounts is all that a ledger counts.
func ledgerCounts(l *ledger) map[string]int {
	counts := map[string]int{}
	for i, z := range l.zones {
		counts["all in "+string(z.name)] = int(z.total)
		for key, g := range l.keyed {
			if i < len(g.counts) && g.counts[i] != 0 {
				counts[key+" in "+string(z.name)] = int(g.counts[i])
			}
		}
	}
	for slot, groups := range l.in {
		for _, g := range groups {
			counts[fmt.Sprintf("slot %d in %s", slot, g.key)]++
		}
	}
	return counts
}

func TestLedgerReserves(t *testing.T) {
	l := newLedger(Policy{Tie: TieName})
	l.setZones([]Zone{{"a", true}, {"b", true}, {"c", true}})
	choose := func(slot int32) ZoneName {
		zone := l.choose(&wish{slot: slot})
		l.place(slot, zone)
		return l.name(zone)
	}
	var got []ZoneName
	for slot := range int32(4) {
		got = append(got, choose(slot))
	}
	if diff := gocmp.Diff([]ZoneName{"a", "b", "c", "a"}, got); diff != "" {
		t.Errorf("AZ7: two starts at once do not pick the same gap (-want +got):\n%s", diff)
	}
	if zone := choose(3); zone != "a" {
		t.Errorf("AZ7: a machine that chooses again does not count itself, and went to %s", zone)
	}
	l.place(1, noZone)
	l.place(1, noZone)
	if zone := choose(4); zone != "b" {
		t.Errorf("AZ7: a released place was not taken, but one in %s", zone)
	}
	l.place(4, l.intern("c"))
	want := []ZoneCount{{"a", true, 2}, {"b", true, 0}, {"c", true, 2}}
	if diff := gocmp.Diff(want, l.counts()); diff != "" {
		t.Errorf("AZ7: a machine is counted in at most one zone (-want +got):\n%s", diff)
	}
}

// AZ7, DG5: readings of groups arrive in any order. An older one takes nobody
// out who has joined since, nor what is reserved for him; the machine that it
// was read for is one of the group all the same.
func TestOlderGroupReading(t *testing.T) {
	l := newLedger(Policy{})
	l.setZones([]Zone{{"a", true}, {"b", true}})
	slotOf := func(id MachineID) (int32, bool) {
		slot, err := strconv.Atoi(string(id))
		return int32(slot), err == nil
	}
	newer, older := wish{slot: 1}, wish{slot: 2}
	l.join(&newer, "1", Group{Key: "g", Members: []MachineID{"1", "2"}}, 7, slotOf)
	l.place(1, l.choose(&newer))
	l.join(&older, "2", Group{Key: "g", Members: []MachineID{"2", "3"}}, 6, slotOf)
	if taken, zone := l.zoneOf(1), l.choose(&older); zone == taken {
		t.Errorf("machine 2 goes to zone %s, where 1 of its group has its place", l.name(zone))
	}
	l.place(2, l.intern("b"))
	if n := l.keyed["g"].counts; n[0]+n[1] != 2 {
		t.Errorf("members by zone %v, want two", n)
	}
}

// AZ5: one member of the group weighs more than any number of other machines.
func TestLedgerGroupBeforeTotal(t *testing.T) {
	l := newLedger(Policy{Tie: TieName})
	l.setZones([]Zone{{"crowd", true}, {"member", true}})
	for slot := range int32(100_000) {
		l.place(slot, l.intern("crowd"))
	}
	l.place(100_000, l.intern("member"))
	if zone := l.choose(&wish{slot: 100_001, group: []int32{100_000}}); l.name(zone) != "crowd" {
		t.Errorf("went to %s", l.name(zone))
	}
	if zone := l.choose(&wish{slot: 100_001}); l.name(zone) != "member" {
		t.Errorf("without a group it went to %s", l.name(zone))
	}
}

func TestLedgerZoneList(t *testing.T) {
	l := newLedger(Policy{Tie: TieName})
	if l.zoned() {
		t.Error("AZ1: nothing listed, and yet zones")
	}
	l.setZones([]Zone{{"a", false}})
	if !l.zoned() {
		t.Error("AZ9: zones that are all unavailable are zones")
	}
	l.setZones([]Zone{{"a", true}, {"b", true}, {"c", true}})
	l.place(0, l.intern("b"))
	l.setZones([]Zone{{"a", true}, {"d", true}})
	w := &wish{slot: 1, constraint: l.set([]ZoneName{"b", "d"})}
	zone := l.choose(w)
	usable, _ := l.left(w)
	if l.name(zone) != "d" || usable != 1 {
		t.Errorf("AZ3: a vanished zone is not used, a new one is: %s of %d", l.name(zone), usable)
	}
	want := []ZoneCount{{"a", true, 0}, {"b", false, 1}, {"d", true, 0}}
	if diff := gocmp.Diff(want, l.counts()); diff != "" {
		t.Errorf("AZ3: a vanished zone is kept while machines are in it (-want +got):\n%s", diff)
	}
	l.setZones([]Zone{{"b", true}})
	if zone := l.choose(&wish{slot: 1}); l.name(zone) != "b" {
		t.Errorf("AZ3: a zone that comes back is used: %q", l.name(zone))
	}
}

func TestZoneSet(t *testing.T) {
	s := &zoneSet{}
	in := []int32{0, 1, 63, 64, 127, 128, 191, 192, 1000}
	for _, z := range in {
		s.add(z)
	}
	for z := range int32(1200) {
		if s.has(z) != slices.Contains(in, z) {
			t.Errorf("zone %d: %v", z, s.has(z))
		}
	}
	s.clear()
	for _, z := range in {
		if s.has(z) {
			t.Errorf("zone %d is still there", z)
		}
	}
}

// AZ12 and the speed that the benchmarks aim at: what is done for each machine
// allocates nothing.
func TestCoreAllocatesNothing(t *testing.T) {
	for _, zones := range []int{3, 16, 100, 128} {
		for _, group := range []int{0, 10, 100} {
			l, wishes := benchLedger(1000, zones, group)
			i, failed := 0, &zoneSet{}
			if n := testing.AllocsPerRun(500, func() {
				w := &wishes[i%len(wishes)]
				i++
				failed.clear()
				failed.add(int32(i % zones))
				w.failed = failed
				zone := l.choose(w)
				l.place(w.slot%1000, zone)
			}); n != 0 {
				t.Errorf("a choice among %d zones with a group of %d: %v allocations", zones, group, n)
			}
		}
	}
	for _, zones := range []int{3, 100, 128} {
		l, wishes, _ := benchLedgerAll(1000, zones, 100)
		i := 0
		if n := testing.AllocsPerRun(500, func() { w := &wishes[i%1024]; l.place(w.slot, l.choose(w)); l.left(w); i++ }); n != 0 {
			t.Errorf("a choice among %d zones with everything on: %v allocations", zones, n)
		}
	}
	i := 0
	if n := testing.AllocsPerRun(500, func() { Classify(benchMachines[i%len(benchMachines)]); i++ }); n != 0 {
		t.Errorf("Classify: %v allocations", n)
	}
	var w Walk
	if n := testing.AllocsPerRun(500, func() { w, _ = w.Next(RetryPolicy{}, Outcome{Kind: OutcomeKind(i % 6)}, i&1, 0.5); i++ }); n != 0 {
		t.Errorf("Walk.Next: %v allocations", n)
	}
}
