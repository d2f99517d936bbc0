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
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						w := &wishes[i&1023]
						z := l.choose(w)
						l.place(w.slot, z) // choosing reserves (AZ7)
						i++
					}
				})
			}
		}
	}
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
