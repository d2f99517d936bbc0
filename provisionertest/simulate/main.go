// Simulate proves the engine by walking it through fleets in trouble. A seed
// decides everything: the fleet, what the broker is able to do, what happens
// to the machines and to the Task, how long each call takes and what goes
// wrong in it, and in which order everything arrives. Time is virtual, and one
// seed runs in one goroutine at a time, so a run can be repeated to the byte.
//
//	go run ./provisionertest/simulate -seeds 50000     walk, and count
//	go run ./provisionertest/simulate -from 17 -v      one seed, all that happens
//	go run ./provisionertest/simulate -mutants         see that it would notice
//
// After every step it holds what must never break: nothing of a machine that
// isn't dead is stopped, keep and mode are honoured, a machine is counted in
// one zone, no zone would have been better for it, limits hold, a machine has
// one operation and one instance at a time, a shutdown shows no failure. When the trouble is over, everything has
// to come to rest: no leak, no orphan, and nothing left to do. A seed that
// fails is shrunk to the deeds and faults that it needs, printed, and the exit
// status is 1.
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	seeds := flag.Uint64("seeds", 10_000, "how many seeds to walk")
	from := flag.Uint64("from", 0, "the first seed")
	verbose := flag.Bool("v", false, "show all that happens in the first seed, and walk no other")
	only := flag.String("only", "", "with -v: only these deeds and faults, as a shrunk seed names them")
	mutate := flag.Bool("mutants", false, "put deliberate faults into the engine, each of which must be noticed within 5,000 seeds (needs the go command and the source)")
	off := flag.Bool("off", false, "list the faults that no seed has, and why")
	flag.Parse()
	ok := true
	switch {
	case *off:
		printOff(os.Stdout)
	case *mutate:
		ok = mutants(os.Stdout)
	case *verbose:
		ok = show(os.Stdout, *from, keysOf(*only))
	default:
		ok = walk(os.Stdout, *from, *seeds)
	}
	if !ok {
		os.Exit(1)
	}
}

// keysOf reads a list of deeds and faults; nil if there is none.
func keysOf(list string) map[string]bool {
	if list == "" {
		return nil
	}
	keys := map[string]bool{}
	for key := range strings.SplitSeq(list, ",") {
		keys[key] = true
	}
	return keys
}

// show plays one seed and prints all of it.
func show(out io.Writer, seed uint64, only map[string]bool) bool {
	s := newSim(seed, only)
	s.log = &strings.Builder{}
	s.play()
	fmt.Fprint(out, s.log)
	return s.bad == nil
}

// A tally is what came of many seeds.
type tally struct {
	seeds, steps int
	faults       map[string]int
	failed       uint64 // the lowest seed that did
	bad          *violation
}

func (t *tally) add(s *sim) {
	t.seeds++
	t.steps += s.steps
	for kind, n := range s.faults {
		t.faults[kind] += n
	}
	if s.bad != nil && (t.bad == nil || s.seed < t.failed) {
		t.failed, t.bad = s.seed, s.bad
	}
}

// walkAll plays seeds on all cores, and stops at the first that fails.
func walkAll(from, seeds uint64) *tally {
	all := &tally{faults: map[string]int{}}
	var next atomic.Uint64
	var stop atomic.Bool
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !stop.Load() {
				n := next.Add(1) - 1
				if n >= seeds {
					return
				}
				s := newSim(from+n, nil)
				s.play()
				mu.Lock()
				all.add(s)
				mu.Unlock()
				if s.bad != nil {
					stop.Store(true)
				}
			}
		})
	}
	workers.Wait()
	return all
}

func walk(out io.Writer, from, seeds uint64) bool {
	began := time.Now()
	all := walkAll(from, seeds)
	took := time.Since(began)
	fmt.Fprintf(out, "%d seeds, %d steps in %v: %.0f fleets a second\n", all.seeds, all.steps, took.Round(time.Millisecond), float64(all.seeds)/took.Seconds())
	for _, kind := range slices.Sorted(maps.Keys(all.faults)) {
		fmt.Fprintf(out, "  %-10s %d\n", kind, all.faults[kind])
	}
	if all.bad == nil {
		return true
	}
	fmt.Fprintf(out, "seed %d fails after %v\n", all.failed, all.bad)
	shrink(out, all.failed)
	return false
}

// shrink drops deeds and faults while the seed still breaks the same rule, and
// prints what is left and all that happens then.
func shrink(out io.Writer, seed uint64) {
	full := newSim(seed, nil)
	full.play()
	keep := full.struck
	breaks := func(keys []string) *sim {
		s := newSim(seed, setOf(keys))
		s.log = &strings.Builder{}
		s.play()
		if s.bad == nil || s.bad.rule != full.bad.rule {
			return nil
		}
		return s
	}
	least := breaks(keep)
	for size := len(keep) / 2; least != nil && size > 0; {
		smaller := false
		for at := 0; at < len(keep); {
			without := slices.Delete(slices.Clone(keep), at, min(at+size, len(keep)))
			if s := breaks(without); s != nil {
				keep, least, smaller = without, s, true
			} else {
				at += size
			}
		}
		if !smaller || size > 1 {
			size /= 2
		}
	}
	if least == nil {
		fmt.Fprintln(out, "it does not fail again: the run cannot be repeated, which is a fault of the simulator")
		return
	}
	fmt.Fprintf(out, "it needs %d of %d deeds and faults; see it again with\n\n\t-from %d -v -only %s\n\n%s", len(keep), len(full.struck), seed, strings.Join(keep, ","), least.log)
}

func setOf(keys []string) map[string]bool {
	set := map[string]bool{}
	for _, k := range keys {
		set[k] = true
	}
	return set
}

func printOff(out io.Writer) {
	for _, x := range off {
		fmt.Fprintf(out, "%s:\n\t%s\n", x.fault, x.why)
	}
}
