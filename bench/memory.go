package main

import (
	"runtime"
)

// memory measures what a Task keeps of a machine besides what the host's own
// strings take: of one that runs, and of one that waits for a place to start.
// None of them has a goroutine: operations do, of which there are as many as
// there are places.
func memory(sizes []int) section {
	s := section{Title: "Memory, for each machine", Unit: "B"}
	for _, n := range sizes {
		for _, running := range []bool{true, false} {
			f := newFleet(n, running)
			before := live()
			v := newVirtual(f)
			v.recorded = nil
			v.load()
			bytes := (live() - before) / float64(n)
			runtime.KeepAlive(v)
			if running {
				s.add("running", n, bytes)
			} else {
				s.add(queued, n, bytes)
			}
		}
	}
	return s
}

// load goes on until the whole fleet is read and whatever has a place is being
// started.
func (v *virtual) load() {
	v.Wake(true)
	v.Changed()
	for more := true; more; {
		ops, _, _ := v.Step(v.now)
		for _, op := range ops {
			if op.Kind != "starting" {
				op.Run()
			}
		}
		more = v.Waiting() || v.Backlog()
	}
}
