package provisioner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// populations counts the live instances of machines by zone.
func populations(w *provisionertest.World, of func(provisioner.MachineID) bool) map[provisioner.ZoneName]int {
	counts := map[provisioner.ZoneName]int{}
	for _, m := range w.Machines() {
		if m.Instance != "" && of(m.ID) {
			counts[m.Zone]++
		}
	}
	return counts
}

func everyone(provisioner.MachineID) bool { return true }

func skew(counts map[provisioner.ZoneName]int, zones int) int {
	least := 0
	if len(counts) == zones {
		least = slices.Min(slices.Collect(maps.Values(counts)))
	}
	if len(counts) == 0 {
		return 0
	}
	return slices.Max(slices.Collect(maps.Values(counts))) - least
}

// runTask lets a Task work on a World until nothing is left to do, and checks
// its ledger on the way. It returns the virtual time that the Task took.
func runTask(t *testing.T, w *provisionertest.World, cfg provisioner.Config, done func() bool, limit time.Duration) time.Duration {
	t.Helper()
	cfg.Controller, cfg.Broker, cfg.State, cfg.Changes = "ctl", w.Broker(), w.State(), w.Changes()
	task, err := provisioner.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- task.Run(ctx) }()
	w.Changed()
	began := time.Now()
	for !done() && time.Since(began) < limit {
		time.Sleep(700 * time.Millisecond)
		synctest.Wait()
		if err := task.CheckLedger(); err != nil {
			t.Errorf("after %v: %v", time.Since(began), err)
			break
		}
	}
	took := time.Since(began)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
	time.Sleep(time.Hour)
	return took
}

// AZ5, AZ7: groups whose machines may go anywhere end as even as can be,
// whatever happens at once: 16 starts in flight, replies late and lost, errors
// that keep the zone, groups read with and without a key and with and without
// the machine itself, machines that are added on the way.
func TestUnconstrainedGroupsAreEven(t *testing.T) {
	runs := 200
	if testing.Short() {
		runs = 20
	}
	for run := range runs {
		synctest.Test(t, func(t *testing.T) { spreadOnce(t, uint64(run)) })
		if t.Failed() {
			t.Fatalf("run %d", run)
		}
	}
}

func spreadOnce(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	settings := provisionertest.Settings{Seed: seed, Controller: "ctl", Traits: provisioner.Traits{DedupesByToken: true}}
	if seed%2 == 0 {
		settings.LostReplies = provisionertest.NeverLost
	}
	w := provisionertest.New(settings)
	zones := 2 + r.IntN(4)
	machines := 16 + r.IntN(48)
	for i := range zones {
		w.SetZone(provisioner.ZoneName(fmt.Sprintf("z%d", i)), true)
	}
	groups := map[int][]provisioner.MachineID{}
	in := map[provisioner.MachineID]int{}
	for i := range machines {
		id := provisioner.MachineID(fmt.Sprint(i))
		g := r.IntN(1 + machines/6)
		groups[g], in[id] = append(groups[g], id), g
	}
	for g, members := range groups {
		key := ""
		if g%2 == 0 {
			key = fmt.Sprint("g", g)
		}
		w.SetGroup(key, members...)
	}
	for range r.IntN(6) * int(1-seed%2) { // a reply that was lost is not answered with an error the second time
		if err := w.Inject(provisionertest.Fault{Call: "start", Nth: 1 + r.IntN(machines), Count: 1 + r.IntN(3),
			What: provisionertest.TroubleError, Mark: provisionertest.MarkZoneIndependent}); err != nil {
			t.Fatal(err)
		}
	}
	later := r.IntN(machines)
	add := func(from, to int) {
		for i := from; i < to; i++ {
			if err := w.Add(provisionertest.Pending(provisioner.MachineID(fmt.Sprint(i)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(later, machines)
	time.AfterFunc(time.Duration(r.IntN(10_000))*time.Millisecond, func() { add(0, later) })
	runTask(t, w, provisioner.Config{}, func() bool { return len(w.Machines()) == machines && everyOneRecorded(w) }, time.Hour)

	if n := len(w.Live()); n != machines || !everyOneRecorded(w) {
		t.Errorf("%d instances for %d machines", n, machines)
	}
	for g := range groups {
		counts := populations(w, func(id provisioner.MachineID) bool { return in[id] == g })
		if skew(counts, zones) > 1 {
			t.Errorf("group %d is uneven: %v", g, counts)
		}
	}
}

func everyOneRecorded(w *provisionertest.World) bool {
	return !slices.ContainsFunc(w.Machines(), func(m provisioner.Machine) bool { return m.Instance == "" })
}

// AZ5: a thousand groups of two over three zones end with zone totals within
// one in a hundred.
func TestManySmallGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{Controller: "ctl", Silent: true, Kind: true, Latency: map[provisionertest.Call]time.Duration{"start": time.Second}})
		if err := w.Load(provisionertest.NewFleet(2000, 3, 2)); err != nil {
			t.Fatal(err)
		}
		runTask(t, w, provisioner.Config{}, func() bool { return everyOneRecorded(w) }, time.Hour)
		counts := populations(w, everyone)
		for zone, n := range counts {
			if n < 660 || n > 673 {
				t.Errorf("zone %s has %d of 2000", zone, n)
			}
		}
		t.Log(counts)
		for g := range 1000 {
			a, _ := w.Machine(provisioner.MachineID(fmt.Sprint(2 * g)))
			b, _ := w.Machine(provisioner.MachineID(fmt.Sprint(2*g + 1)))
			if a.Zone == b.Zone {
				t.Errorf("AZ5: both of group %d are in %s", g, a.Zone)
			}
		}
	})
}

// AZ11, AZ12: with nearly all zones out, a batch finds the good one once, not
// once a machine.
func TestNearlyAllZonesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{Controller: "ctl", LostReplies: provisionertest.NeverLost})
		if err := w.Load(provisionertest.NewFleet(1000, 100, 0)); err != nil {
			t.Fatal(err)
		}
		for _, z := range provisionertest.NewFleet(0, 100, 0).Zones {
			if z.Name != "m2" {
				w.SetCapacity(z.Name, 0)
			}
		}
		took := runTask(t, w, provisioner.Config{}, func() bool { return everyOneRecorded(w) }, 24*time.Hour)
		starts := startsMade(w)
		if !everyOneRecorded(w) || starts >= 1300 {
			t.Errorf("%d starts for 1000 machines, all of them running: %v", starts, everyOneRecorded(w))
		}
		if took > 15*time.Minute {
			t.Errorf("it took %v", took)
		}
		t.Logf("%d starts in %v", starts, took)
	})
}

func startsMade(w *provisionertest.World) (n int) {
	for _, r := range w.Records() {
		if r.Phase == provisionertest.End && r.Call == "start" {
			n++
		}
	}
	return n
}

// AZ11: while no zone has room, one machine at a time finds out, at no cost to
// the others; when there is room again all start.
func TestOutageIsProbedByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{Controller: "ctl", LostReplies: provisionertest.NeverLost})
		if err := w.Load(provisionertest.NewFleet(200, 3, 0)); err != nil {
			t.Fatal(err)
		}
		for _, z := range []provisioner.ZoneName{"a", "b", "c"} {
			w.SetCapacity(z, 0)
		}
		before := 0
		time.AfterFunc(2*time.Hour, func() {
			before = startsMade(w)
			w.SetCapacity("b", -1)
		})
		took := runTask(t, w, provisioner.Config{}, func() bool { return everyOneRecorded(w) }, 6*time.Hour)
		// 16 in flight find out, and then one for each zone and cooldown: 3, 6,
		// 12, 24 min and each half an hour.
		if before > 16+3*8 {
			t.Errorf("%d starts in two hours", before)
		}
		if starts := startsMade(w); starts > before+200+10 || !everyOneRecorded(w) {
			t.Errorf("%d starts, all running: %v", starts, everyOneRecorded(w))
		}
		if took > 2*time.Hour+40*time.Minute {
			t.Errorf("it took %v", took)
		}
		t.Logf("%d starts in the outage, %d in all, %v", before, startsMade(w), took)
	})
}

// Weights are proportions; they hold for all machines together and for each
// group.
func TestWeightsInATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{Controller: "ctl", LostReplies: provisionertest.NeverLost})
		if err := w.Load(provisionertest.NewFleet(120, 3, 12)); err != nil {
			t.Fatal(err)
		}
		policy := provisioner.Policy{Weights: map[provisioner.ZoneName]int{"a": 3, "b": 2}}
		runTask(t, w, provisioner.Config{Policy: policy}, func() bool { return everyOneRecorded(w) }, time.Hour)
		if counts := populations(w, everyone); counts["a"] != 60 || counts["b"] != 40 || counts["c"] != 20 {
			t.Errorf("3:2:1 of 120 machines: %v", counts)
		}
	})
}

// A hard limit waits for the zone that the group needs, where the default
// would pile up in the others.
func TestMaxSkewInATask(t *testing.T) {
	for _, test := range []struct {
		why    string
		policy provisioner.Policy
		want   int // running
	}{
		{"no limit", provisioner.Policy{}, 9},
		{"one more than in the zone without room, which has none", provisioner.Policy{MaxSkew: 1}, 2},
		{"two more", provisioner.Policy{MaxSkew: 2}, 4},
		{"a fourth zone is missing, and counts as empty", provisioner.Policy{MaxSkew: 1, MinZones: 4}, 2},
	} {
		t.Run(test.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := provisionertest.New(provisionertest.Settings{Controller: "ctl", LostReplies: provisionertest.NeverLost})
				if err := w.Load(provisionertest.NewFleet(9, 3, 9)); err != nil {
					t.Fatal(err)
				}
				w.SetCapacity("c", 0)
				runTask(t, w, provisioner.Config{Policy: test.policy, Limits: provisioner.Limits{Starts: 1}}, func() bool { return false }, 20*time.Minute)
				if n := len(w.Live()); n != test.want {
					t.Errorf("%d run, want %d: %v", n, test.want, populations(w, everyone))
				}
			})
		})
	}
}

// AZ11: machines of another shape are not held up.
func TestShapesCoolDownApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{Controller: "ctl", LostReplies: provisionertest.NeverLost})
		w.SetZones(provisioner.Zone{Name: "a", Available: true})
		cores := uint64(64)
		for _, id := range []provisioner.MachineID{"0", "1", "2", "3"} {
			if err := w.Add(provisionertest.Pending(id)); err != nil {
				t.Fatal(err)
			}
			if id < "2" {
				if err := w.SetStartInfo(id, provisioner.StartInfo{Constraints: constraints.Value{Cores: &cores}}); err != nil {
					t.Fatal(err)
				}
				if err := w.Inject(provisionertest.Fault{Call: "start", Machine: id, Count: provisionertest.Always, What: provisionertest.TroubleError, Mark: provisionertest.MarkCapacity}); err != nil {
					t.Fatal(err)
				}
			}
		}
		runTask(t, w, provisioner.Config{}, func() bool { return false }, 2*time.Minute)
		if n := len(w.Live()); n != 2 {
			t.Errorf("%d small ones run, want 2", n)
		}
	})
}
