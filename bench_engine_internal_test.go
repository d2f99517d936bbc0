package provisioner

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/juju/errors"
)

// BenchmarkChangeToBroker is one changed machine on its way to the broker's
// start, in turns of the engine alone, while others wait for their next
// attempts: it must not depend on how many do.
func BenchmarkChangeToBroker(b *testing.B) {
	for _, others := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			g := newRig(b, Limits{Starts: others + 1}, pendingFleet(others)...)
			g.end(opStart, ZoneIndependent(errors.New("no room")))
			if n := g.e.lives[lifeWaiting]; n != others {
				b.Fatalf("%d wait, want %d", n, others)
			}
			for i := 0; b.Loop(); i++ {
				id := MachineID(fmt.Sprint("new-", i))
				g.s.Fleet = []MachineResult{{ID: id, Machine: Machine{ID: id, Life: Alive, Status: StatusPending}}}
				g.step(message{kind: msgChanged, ids: []MachineID{id}})
				if g.end(opStart, nil) != 1 {
					b.Fatal("not started")
				}
			}
		})
	}
}

// BenchmarkWholeReading applies whole readings and listings of a fleet: one in
// which all machines are new, one with every tenth gone; then the mode changes,
// and the Task ends. The longest step, in time of its thread, is what the engine
// is held for at most. At 1,000,000 machines it is to be below 10 ms (GOGC=off
// leaves the collector out).
func BenchmarkWholeReading(b *testing.B) {
	for _, machines := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			longest := map[string]time.Duration{}
			for b.Loop() {
				b.StopTimer()
				fleet := make([]MachineResult, machines)
				listing := Listing{Complete: true, Instances: make([]Instance, machines)}
				for i := range fleet {
					id := MachineID(fmt.Sprint(i))
					fleet[i] = MachineResult{ID: id, Machine: Machine{ID: id, Life: Alive, Instance: InstanceID("i-" + id), Zone: "a", Status: StatusStarted}}
					listing.Instances[i] = Instance{ID: fleet[i].Machine.Instance, Zone: "a", Labels: Labels{Controller: "c", Machine: id}}
				}
				fleet = sortedFleet(fleet)
				e := newEngine(engineConfig{controller: "c", refresh: time.Minute, labels: true, profiles: true, random: func() float64 { return 0.5 }}, Policy{}, Limits{})
				b.StartTimer()
				e.step(time.Unix(1000, 0), message{kind: msgWake, flag: true})
				for range 2 {
					lookAtAll(e, fleet, listing, longest)
					fleet = fleet[:len(fleet)*9/10]
				}
				timed(longest, "mode", func() { e.step(e.now, message{kind: msgMode, mode: HarvestNone}) })
				timed(longest, "end", func() { e.step(e.now, message{kind: msgQuiet, flag: true}) })
			}
			for step, took := range longest {
				b.ReportMetric(float64(took.Microseconds())/1000, step+"-ms")
			}
		})
	}
}

var errNoChange = errors.NotFoundf("change")

// timed keeps the longest time that each kind of step takes.
func timed(longest map[string]time.Duration, step string, do func()) {
	began := threadTime()
	do()
	longest[step] = max(longest[step], threadTime()-began)
}

func lookAtAll(e *engine, fleet []MachineResult, listing Listing, longest map[string]time.Duration) {
	in, step := []message{{kind: msgLook}}, "begin"
	for {
		timed(longest, step, func() { e.step(e.now, in...) })
		out, _, _ := e.take()
		in, step = nil, fmt.Sprint("stage", e.look.stage)
		if e.look.stage == stageIdle {
			step = fmt.Sprint("listing", e.list.stage)
		}
		for _, o := range out {
			m := message{kind: msgOutcome, op: o}
			switch o.kind {
			case opFleet:
				m.result = fleet
			case opListing:
				m.result, step = listing, "listing"
			case opChanges:
				none := make([]changeRead, len(o.units))
				for i, u := range o.units {
					none[i].change = ProfileChangeResult{ID: u.rec.ID, Err: errNoChange}
				}
				m.result = none
			}
			in = append(in, m)
		}
		if len(in) == 0 && !e.backlog() {
			return
		}
	}
}

// BenchmarkSweep is one sweep of a fleet of which 1 % is unknown, seen for the
// second time: all of the engine's own time, from the listing to the last of what
// it stops, and how long finding them takes for each instance. At 100,000 it is to
// be below 200 ms in all and 100 ns each; no step of it may hold the engine for
// 10 ms. bytes is what the engine keeps for each machine (less than 400).
func BenchmarkSweep(b *testing.B) {
	for _, machines := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			fleet := make([]MachineResult, machines)
			listing := Listing{Complete: true, Instances: make([]Instance, machines)}
			for i := range fleet {
				id := MachineID(fmt.Sprint(i))
				fleet[i] = MachineResult{ID: id, Machine: Machine{ID: id, Life: Alive, Instance: InstanceID("i-" + id), Zone: "a", Status: StatusStarted}}
				listing.Instances[i] = Instance{ID: fleet[i].Machine.Instance, Zone: "a", Labels: Labels{Controller: "c", Machine: id}}
			}
			for i := range machines / 100 {
				id := MachineID(fmt.Sprint(machines + i))
				listing.Instances = append(listing.Instances, Instance{ID: InstanceID("i-" + id), Zone: "a", Labels: Labels{Controller: "c", Machine: id}})
			}
			fleet = sortedFleet(fleet)
			longest := map[string]time.Duration{}
			var find, all time.Duration
			sweeps := 0
			for b.Loop() {
				b.StopTimer()
				before := heapInUse()
				e := newEngine(engineConfig{controller: "c", refresh: time.Minute, labels: true, random: func() float64 { return 0.5 }}, Policy{Harvest: HarvestAll}, Limits{})
				e.step(time.Unix(1000, 0), message{kind: msgWake, flag: true})
				lookAtAll(e, fleet, listing, map[string]time.Duration{})
				b.ReportMetric(float64(heapInUse()-before)/float64(machines), "bytes")
				b.StartTimer()
				began := threadTime()
				e.step(e.now.Add(2 * time.Minute))
				e.readListing()
				out, _, _ := e.take()
				in := []message{{kind: msgOutcome, op: e.list.op, result: listing}}
				for len(out) >= 0 {
					stage := e.list.stage
					step := threadTime()
					e.step(e.now, in...)
					took := threadTime() - step
					if stage == listPlace {
						find += took
					}
					longest[fmt.Sprint("listing", stage)] = max(longest[fmt.Sprint("listing", stage)], took)
					in = nil
					for _, o := range e.ops {
						if o.kind == opFleet {
							in = append(in, message{kind: msgOutcome, op: o, result: fleet})
						}
					}
					if out, _, _ = e.take(); e.list.stage == listIdle && len(in) == 0 {
						break
					}
				}
				if n := len(e.sweep.doomed); n != machines/100 {
					b.Fatalf("%d are stopped, want %d", n, machines/100)
				}
				for len(e.ops) > 0 {
					e.step(e.now, message{kind: msgOutcome, op: e.ops[0]})
					e.take()
				}
				all += threadTime() - began
				sweeps++
			}
			for step, took := range longest {
				b.ReportMetric(float64(took.Microseconds())/1000, step+"-ms")
			}
			b.ReportMetric(float64(find.Nanoseconds())/float64(sweeps*len(listing.Instances)), "find-ns/instance")
			b.ReportMetric(float64(all.Microseconds())/1000/float64(sweeps), "own-ms")
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
