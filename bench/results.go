package main

import (
	"fmt"
	"os"
	"time"
)

// settings say how much is measured.
type settings struct {
	sizes   []int // of fleets, the smallest first
	longest int   // of the fleets, if larger, whose makespan is measured
	rounds  int   // at least; more for small fleets
	changes int   // in each round
}

func (s settings) roundsOf(machines int) int { return s.rounds * max(1, min(10, 100_000/machines)) }

// spans are the sizes of the fleets whose makespan is measured.
func (s settings) spans() []int {
	if last := s.sizes[len(s.sizes)-1]; last < s.longest {
		return append(s.sizes[:len(s.sizes):len(s.sizes)], s.longest)
	}
	return s.sizes
}

// results are all that one run has measured.
type results struct {
	Placing, Planning, Passes, Change, Allocated, Makespan, Delay, Memory section
}

func (r *results) sections() []section {
	return []section{r.Planning, r.Placing, r.Passes, r.Change, r.Allocated, r.Makespan, r.Delay, r.Memory}
}

// Series that floors are about.
const (
	theTask        = "Task"
	classicQueue   = "classic queue, 1 worker"
	classicQueue10 = "classic queue, 10 workers"
	planned        = "MakePlan"
	fewZones       = "3 zones"
	startsAll      = "every machine starts"
	startCalls     = "the host's calls of that"
	nothingToDo    = "nothing to do"
	queued         = "waiting for a place"
)

// measure takes all measurements, one after the other.
func measure(s settings) *results {
	var r results
	for _, part := range []struct {
		name string
		do   func()
	}{
		{"one change", func() { r.Change, r.Allocated = oneChange(s) }},
		{"planning", func() { r.Planning = planning(s) }},
		{"placing", func() { r.Placing = placing(s) }},
		{"passes", func() { r.Passes = passes(s) }},
		{"makespan", func() { r.Makespan = makespan(s.spans()) }},
		{"delay", func() { r.Delay = delay(s.sizes) }},
		{"memory", func() { r.Memory = memory(s.sizes) }},
	} {
		began := time.Now()
		part.do()
		fmt.Fprintf(os.Stderr, "%s: %v\n", part.name, time.Since(began).Round(100*time.Millisecond))
	}
	return &r
}
