package provisioner

// Counters are what a Task has counted since it was made, for a host's own
// metrics. Numbers that are of now, and go down as well, say so.
type Counters struct {
	Events    map[EventKind]uint64   // told so far; those that observers have missed count too
	Calls     map[string]CallCounter // by Call.Name; those never made are left out
	Lanes     map[string]LaneCounter // "starts", "stops", "removals", "upkeep", "statuses", "profiles"
	Machines  map[Phase]int          // known now, by what is being done about them
	Observers []ObserverCounter      // in the order of Config.Observers
}

// A CallCounter counts one kind of call. Those that have ended without an error
// are Began less all others.
type CallCounter struct {
	Began     uint64
	Out       uint64 // of now: not ended
	Failed    uint64 // with an error
	TimedOut  uint64 // with an error after their time was over
	Cancelled uint64 // with an error after they were no longer wanted
	Panicked  uint64 // or ended their goroutine
}

// A LaneCounter is how full a lane is now.
type LaneCounter struct {
	Limit   int
	Used    int // places taken
	Waiting int // for a place; some may turn out not to want one any more
}

// An ObserverCounter is how one observer keeps up.
type ObserverCounter struct {
	Waiting int    // events that wait for it now
	Dropped uint64 // events that it has missed (LC4)
	CutOff  bool   // it has panicked
}

// Counters reads the counters. It asks nobody, and waits only for the turn that
// is under way. Each map belongs to the caller.
func (t *Task) Counters() Counters {
	if t.engine == nil {
		return Counters{}
	}
	c := Counters{Calls: t.calls.counted(), Observers: make([]ObserverCounter, len(t.feeds))}
	for i, f := range t.feeds {
		c.Observers[i] = f.counted()
	}
	e := <-t.engine
	c.Events, c.Lanes, c.Machines = e.counted()
	t.engine <- e
	return c
}

func (s *calls) counted() map[string]CallCounter {
	all := map[string]CallCounter{}
	for id := range callIDs {
		n := &s.counts[id]
		if began := n.began.Load(); began > 0 {
			all[callNames[id]] = CallCounter{
				Began: began, Out: began - min(began, n.ended.Load()),
				Failed: n.failed.Load(), TimedOut: n.timedOut.Load(), Cancelled: n.cancelled.Load(), Panicked: n.panicked.Load(),
			}
		}
	}
	return all
}

func (f *feed) counted() ObserverCounter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ObserverCounter{Waiting: int(f.behind.Load()), Dropped: f.missed, CutOff: f.dead}
}
