package provisioner

import (
	"fmt"
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

// BenchmarkWholeReading applies a whole reading, twice: of machines that are
// new, and with every tenth gone. The longest step is what the engine is held
// for at most. At 1,000,000 machines it is to be below 10 ms, on cores that
// have nothing else to do (GOGC=off leaves the collector out).
func BenchmarkWholeReading(b *testing.B) {
	for _, machines := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			var longest time.Duration
			for b.Loop() {
				b.StopTimer()
				fleet := make([]MachineResult, machines)
				for i := range fleet {
					id := MachineID(fmt.Sprint(i))
					fleet[i] = MachineResult{ID: id, Machine: Machine{ID: id, Life: Alive, Instance: InstanceID("i-" + id), Zone: "a", Status: StatusStarted}}
				}
				e := newEngine(engineConfig{controller: "c", refresh: time.Minute, random: func() float64 { return 0.5 }}, Policy{}, Limits{})
				b.StartTimer()
				for range 2 {
					longest = max(longest, readWhole(e, fleet))
					fleet = fleet[:len(fleet)*9/10]
				}
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		})
	}
}

func readWhole(e *engine, fleet []MachineResult) (longest time.Duration) {
	now := time.Unix(1000, 0)
	in := []message{{kind: msgWake}, {kind: msgLook}}
	for {
		began := time.Now()
		e.step(now, in...)
		longest = max(longest, time.Since(began))
		out, _, _ := e.take()
		in = nil
		for _, o := range out {
			m := message{kind: msgOutcome, op: o}
			if o.kind == opFleet {
				m.result = fleet
			}
			in = append(in, m)
		}
		if len(in) == 0 && !e.look.backlog() {
			return longest
		}
	}
}
