// Benchmarks of the pure stages. Compare two states of the code with
//
//	go test -run='^$' -bench='Classify|Walk|ChooseZone|MakePlan' -count=10 . > old.txt
//	…change something…
//	go test -run='^$' -bench='Classify|Walk|ChooseZone|MakePlan' -count=10 . > new.txt
//	go run golang.org/x/perf/cmd/benchstat@latest old.txt new.txt
//
// and two sizes within one run (ratios are what counts, for machines differ):
//
//	go run golang.org/x/perf/cmd/benchstat@latest -col /machines new.txt
//	go run golang.org/x/perf/cmd/benchstat@latest -col /group new.txt
//
// What is aimed at: classifying, stepping a walk and choosing a zone allocate
// nothing (TestCoreAllocatesNothing holds that); a choice takes about 0.2 µs
// among 3 zones and 1 µs among 100, at most twice as much with a group of 10 as
// without one, and in a fleet of 100,000 at most twice as much as in one of
// 1,000; a plan for 100,000 machines takes less than 100 ms.

package provisioner

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/juju/errors"
)

// benchMachines are one machine of each way through Classify but the faulty
// ones, which make an error.
var benchMachines = []Machine{
	{ID: "0", Life: Dead, Instance: "i-0"},
	{ID: "1", Life: Dying, Instance: "i-1"},
	{ID: "2", Life: Dying},
	{ID: "3", Life: Alive, Status: StatusPending},
	{ID: "4", Life: Alive, Status: StatusDown, InstanceStatus: InstanceAllocating},
	{ID: "5", Life: Alive, Status: StatusError, InstanceStatus: InstanceProvisioningError},
	{ID: "1/kvm/0/lxd/2", Life: Alive, Instance: "i-6"},
	{ID: "7", Life: Alive, Instance: "i-7"},
	{ID: "8", Life: Alive, Unread: FieldStatus},
}

func BenchmarkClassify(b *testing.B) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		Classify(benchMachines[i])
		if i++; i == len(benchMachines) {
			i = 0
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	outcomes := []Outcome{
		{Kind: OutcomeZoneFailed}, {Kind: OutcomeZoneFailed}, {Kind: OutcomeZoneIndependent},
		{Kind: OutcomeUnknown}, {Kind: OutcomeRateLimited, After: time.Second},
	}
	b.ReportAllocs()
	var w Walk
	i := 0
	for b.Loop() {
		var d Decision
		if w, d = w.Next(RetryPolicy{}, outcomes[i], i&1, 0.5); d.Step == StepFail {
			w = Walk{}
		}
		if i++; i == len(outcomes) {
			i = 0
		}
	}
}

func BenchmarkOutcomeOf(b *testing.B) {
	err := errors.Annotate(ZoneIndependent(errors.New("no such image")), "starting")
	b.ReportAllocs()
	for b.Loop() {
		OutcomeOf(err)
	}
}

// benchLedger is a fleet spread over zones as the ledger itself would, and
// wishes of machines that are still to be placed.
func benchLedger(machines, zones, group int) (*ledger, []wish) {
	r := rand.New(rand.NewPCG(1, 2))
	l := newLedger(Policy{})
	list := make([]Zone, zones)
	for i := range list {
		list[i] = Zone{Name: ZoneName(fmt.Sprintf("zone-%03d", i)), Available: true}
	}
	l.setZones(list)
	for i := range machines {
		l.place(int32(i), int32(r.IntN(zones)))
	}
	wishes := make([]wish, 1024)
	for i := range wishes {
		w := &wishes[i]
		w.slot = int32(machines + i)
		w.hash = hashString(fmt.Sprint(machines + i))
		for range group {
			w.group = append(w.group, int32(r.IntN(machines)))
		}
	}
	return l, wishes
}

func BenchmarkChooseZone(b *testing.B) {
	for _, machines := range []int{1_000, 10_000, 100_000} {
		for _, zones := range []int{3, 16, 100} {
			for _, group := range []int{0, 10, 100} {
				b.Run(fmt.Sprintf("machines=%d/zones=%d/group=%d", machines, zones, group), func(b *testing.B) {
					l, wishes := benchLedger(machines, zones, group)
					benchChoices(b, l, wishes)
				})
			}
		}
	}
}

func benchChoices(b *testing.B, l *ledger, wishes []wish) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		w := &wishes[i&1023]
		l.place(w.slot, l.choose(w)) // choosing reserves (AZ7)
		i++
	}
}

// BenchmarkChooseZoneAll has everything switched on: weights, a skew limit, a
// tenth of the zones cooling down, and groups that have a key, of which the
// largest holds a tenth of the fleet. The "plain" metric is how many times as
// long the same choice takes when it is made as one would write it down first:
// copy, intersect, sort (plainChoice), in the same run, with the counts given.
func BenchmarkChooseZoneAll(b *testing.B) {
	for _, machines := range []int{1_000, 10_000, 100_000} {
		for _, zones := range []int{3, 16, 100} {
			for _, group := range []int{10, machines / 10} {
				b.Run(fmt.Sprintf("machines=%d/zones=%d/group=%d", machines, zones, group), func(b *testing.B) {
					l, wishes, members := benchLedgerAll(machines, zones, group)
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ { // what is reserved is given back, so that all choices are alike
						w := &wishes[i&1023]
						l.place(w.slot, l.choose(w))
						l.place(w.slot, noZone)
					}
					fast := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
					const choices = 200
					r := plainRanking(l, &wishes[0], members)
					began := time.Now()
					for i := range choices {
						r.Machine = MachineID(fmt.Sprint(machines + i))
						if plainChoice(r) != l.name(l.choose(&wishes[i])) {
							b.Fatal("the two choices differ")
						}
					}
					plain := float64(time.Since(began).Nanoseconds())/choices - fast
					b.ReportMetric(plain/fast, "plain-ratio")
				})
			}
		}
	}
}

// benchLedgerAll is a fleet with weights, a skew limit, cooldowns, and a group.
func benchLedgerAll(machines, zones, group int) (*ledger, []wish, []int32) {
	r := rand.New(rand.NewPCG(1, 2))
	p := Policy{MaxSkew: 2, MinZones: 2, Weights: map[ZoneName]int{}}
	var list []Zone
	for i := range zones {
		list = append(list, Zone{Name: ZoneName(fmt.Sprintf("zone-%03d", i)), Available: true})
		p.Weights[list[i].Name] = 1 + i%3
	}
	l := newLedger(p)
	l.setZones(list)
	for i := range machines {
		l.place(int32(i), int32(r.IntN(zones)))
	}
	k := &ledgerGroup{key: "k"}
	l.keyed["k"] = k
	var members []int32
	for i := range group {
		members = append(members, int32(i))
	}
	cool, now := newCooldowns(p), time.Unix(0, 0)
	for z := 1; z < zones; z += 10 {
		cool.failed(shape{}, int32(z), 1, 1, now)
	}
	wishes := make([]wish, 1024)
	for i := range wishes {
		wishes[i] = wish{slot: int32(machines + i), hash: hashString(fmt.Sprint(machines + i)), keyed: k, cool: cool.of(shape{}), now: now}
		members = append(members, wishes[i].slot)
		l.place(wishes[i].slot, noZone)
	}
	l.setMembers(k, members)
	return l, wishes, members
}

// plainRanking counts what plainChoice is given.
func plainRanking(l *ledger, w *wish, members []int32) Ranking {
	r := Ranking{Tie: l.policy.Tie, MaxSkew: l.policy.MaxSkew, MinZones: l.policy.MinZones,
		Population: Population{Group: map[ZoneName]int{}, Total: map[ZoneName]int{}, Weight: l.policy.Weights}}
	for z := range l.zones {
		r.Zones = append(r.Zones, Zone{l.zones[z].name, l.zones[z].available})
		r.Population.Total[l.zones[z].name] = int(l.zones[z].total)
		if w.cool.closed(int32(z), w.slot, w.now) {
			r.Cooling = append(r.Cooling, l.zones[z].name)
		}
	}
	for _, slot := range members {
		if z := l.at[slot]; z != noZone {
			r.Population.Group[l.zones[z].name]++
		}
	}
	return r
}

// plainChoice copies the zones, takes out what may not be used, and sorts.
func plainChoice(r Ranking) ZoneName {
	if ranked := RankZones(r); len(ranked) > 0 && ranked[0].Rank == 1 {
		return ranked[0].Zone
	}
	return ""
}

// benchFleet is mostly provisioned, 5 % pending and 1 % dead, in three zones.
func benchFleet(machines int) Snapshot {
	s := Snapshot{
		Zones:         []Zone{{"a", true}, {"b", true}, {"c", true}},
		CanEnsureDead: true,
	}
	for i := range machines {
		m := Machine{ID: MachineID(fmt.Sprint(i)), Life: Alive, Status: StatusStarted, InstanceStatus: InstanceRunning,
			Instance: InstanceID(fmt.Sprintf("i-%06d", i)), Zone: ZoneName("abc"[i%3 : i%3+1])}
		switch {
		case i%20 == 7:
			m.Status, m.InstanceStatus, m.Instance, m.Zone = StatusPending, InstanceAllocating, "", ""
		case i%100 == 3:
			m.Life = Dead
		}
		s.Fleet = append(s.Fleet, MachineResult{ID: m.ID, Machine: m})
	}
	return s
}

// benchFullFleet also has a listing, needs and work under way, which make the
// planner look everything up.
func benchFullFleet(machines int) Snapshot {
	s := benchFleet(machines)
	s.Listing.Complete = true
	s.Needs = map[MachineID]Needs{}
	s.Doing = map[MachineID]Doing{}
	for i, r := range s.Fleet {
		switch {
		case r.Machine.Instance != "":
			s.Listing.Instances = append(s.Listing.Instances, Instance{ID: r.Machine.Instance, Zone: r.Machine.Zone})
		case i%40 == 7:
			s.Needs[r.ID] = Needs{Zones: []ZoneName{"a", "b"}, Group: Group{Members: []MachineID{"0", "1", "2", "4", "5", "6", "8", "9", "10", "11"}}}
		default:
			s.Doing[r.ID] = Doing{Phase: PhaseWaiting, Zone: "c"}
		}
	}
	return s
}

// benchShuffledFleet is in no order, as a host may read it.
func benchShuffledFleet(machines int) Snapshot {
	s := benchFleet(machines)
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(machines, func(i, j int) { s.Fleet[i], s.Fleet[j] = s.Fleet[j], s.Fleet[i] })
	return s
}

// benchOneGroup is 15,000 machines that run and 10,000 that are to start, all
// in one group, as one application with many units.
func benchOneGroup(key string) Snapshot {
	const running, pending = 15_000, 10_000
	s := Snapshot{Zones: []Zone{{"a", true}, {"b", true}, {"c", true}}, Needs: map[MachineID]Needs{}}
	g := Group{Key: key}
	for i := range running + pending {
		m := Machine{ID: MachineID(fmt.Sprint(i)), Life: Alive, Status: StatusStarted, Instance: InstanceID(fmt.Sprint("i-", i)), Zone: "a"}
		if i >= running {
			m.Status, m.Instance, m.Zone = StatusPending, "", ""
		}
		g.Members = append(g.Members, m.ID)
		s.Fleet = append(s.Fleet, MachineResult{ID: m.ID, Machine: m})
	}
	for _, r := range s.Fleet[running:] {
		s.Needs[r.ID] = Needs{Group: g}
	}
	return s
}

func BenchmarkMakePlanOneGroup(b *testing.B) {
	s := benchOneGroup("app")
	for b.Loop() {
		MakePlan(s, Policy{})
	}
}

func BenchmarkMakePlan(b *testing.B) {
	for _, machines := range []int{1_000, 10_000, 100_000} {
		for _, facts := range []struct {
			name string
			make func(machines int) Snapshot
		}{{"plain", benchFleet}, {"full", benchFullFleet}, {"shuffled", benchShuffledFleet}} {
			s := facts.make(machines)
			b.Run(fmt.Sprintf("machines=%d/facts=%s", machines, facts.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					MakePlan(s, Policy{})
				}
			})
		}
	}
}
