package main

import (
	"fmt"
	"strings"
)

// A floor is what a run must hold: a ratio within it, or a number that does not
// depend on the machine it runs on. Times are compared with nothing but each
// other.
type floor struct {
	What      string
	Got, Most float64
	Unit      string
}

func (f floor) holds() bool { return f.Got <= f.Most } // false for NaN, too

// maxGrowth is how many times as much a machine may cost in the largest fleet as
// in one of 10,000: what is quadratic would be at 10 for 100,000 and at 100 for
// 1,000,000.
const maxGrowth = 5

func floors(r *results) []floor {
	task, starts := r.Change.find(theTask), r.Passes.find(startsAll)
	list := []floor{
		{"one change, against an item of the classic queue and its worker, in any fleet", task.over(r.Change.find(classicQueue)), 1, "×"},
		{"one change, against an item of the classic queue and 10 workers, in any fleet", task.over(r.Change.find(classicQueue10)), 1, "×"},
		{"a started machine, against the host's calls, in the largest fleet", starts.last() / r.Passes.find(startCalls).last(), 20, "×"},
		{"makespan above the ideal, in the largest fleet", r.Makespan.find(theTask).last(), 2, "%"},
		{"longest delay behind failing machines, in any fleet", r.Delay.find(theTask).most(), 0, "h"},
		{"memory of a machine that waits for a place, in the largest fleet", r.Memory.find(queued).last(), 1000, "B"},
	}
	for _, g := range []struct {
		what   string
		series *series
	}{
		{"planning a machine", r.Planning.find(planned)},
		{"placing a machine among 3 zones", r.Placing.find(fewZones)},
		{"a started machine", starts},
		{"a machine of a pass that has nothing to do", r.Passes.find(nothingToDo)},
		{"one change", task},
	} {
		list = append(list, floor{g.what + ": the largest fleet against 10,000", g.series.growth(), maxGrowth, "×"})
	}
	return list
}

// floorTable is the floors in Markdown.
func floorTable(list []floor) string {
	var b strings.Builder
	b.WriteString("| Within one run | is | at most |\n| --- | ---: | ---: |\n")
	for _, f := range list {
		mark := ""
		if !f.holds() {
			mark = " **too much**"
		}
		fmt.Fprintf(&b, "| %s | %s %s%s | %s %s |\n", f.What, short(f.Got), f.Unit, mark, short(f.Most), f.Unit)
	}
	return b.String()
}
