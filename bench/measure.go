package main

import (
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// cpu is the processor time that this process has used, the collector's
// included: unlike the time on the wall it says little about the neighbours.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A side is one of several ways to do the same n things; run gives the processor
// time that they took, without what was needed to prepare them.
type side struct {
	name string
	n    int
	run  func() time.Duration
}

// timed is the run of a side that needs no preparation.
func timed(do func()) func() time.Duration {
	return func() time.Duration {
		began := cpu()
		do()
		return cpu() - began
	}
}

// compare runs the sides in turn, so that whatever else goes on meets all of
// them, and gives for each the nanoseconds for one thing in its best round: what
// disturbs can only add.
func compare(rounds int, sides ...side) []float64 {
	best := make([]float64, len(sides))
	for round := range rounds {
		for i, s := range sides {
			runtime.GC()
			if one := float64(s.run()) / float64(s.n); round == 0 || one < best[i] {
				best[i] = one
			}
		}
	}
	return best
}

// uncollected runs without the collector, whose work depends on what else is in
// memory; what it would have had to do is the second result: bytes allocated.
func uncollected(do func()) (took time.Duration, bytes float64) {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	took = timed(do)()
	runtime.ReadMemStats(&after)
	return took, float64(after.TotalAlloc - before.TotalAlloc)
}

// live is how much memory is in use.
func live() float64 {
	runtime.GC()
	runtime.GC() // what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
