package provisioner

import (
	"maps"
	"slices"
)

// A Report is what came of a look or an applied plan: one result for each
// machine that something was done about, or that was left alone with an error.
type Report struct {
	Results []Result
}

// A Result is what came of one machine.
type Result struct {
	Machine  MachineID
	Kind     ActionKind // what was done, or ActionLeave
	Instance InstanceID
	Zone     ZoneName
	Reason   string
	Err      error // why it was not done, or not yet
}

// Errs gives the results that carry an error.
func (r Report) Errs() []Result {
	var errs []Result
	for _, x := range r.Results {
		if x.Err != nil {
			errs = append(errs, x)
		}
	}
	return errs
}

// sorted is the report by machine; what happened to one stays in its order.
func (r Report) sorted() Report {
	slices.SortStableFunc(r.Results, func(a, b Result) int { return a.Machine.Compare(b.Machine) })
	return r
}

// A watch is somebody who waits until what one look began is settled or given
// up (LC8).
type watch struct {
	gate    map[MachineID]Action // all that is allowed; nil: everything
	began   bool                 // its reading of the fleet is under way, or done
	applied bool                 // and decided about
	open    map[*unit]struct{}   // something of them is under way
	given   map[*unit]int        // given up for now: where in the report
	acted   map[*unit]bool       // with a gate: something was begun
	reap    map[InstanceID]bool  // with a gate: instances without a machine that may be stopped
	dooms   map[*doomed]struct{} // of them, or of all: on their way out
	report  Report
	err     error
	finish  func() // called once, when the wait is over
}

func newWatch(gate map[MachineID]Action, finish func()) *watch {
	return &watch{gate: gate, open: map[*unit]struct{}{}, given: map[*unit]int{}, acted: map[*unit]bool{}, dooms: map[*doomed]struct{}{}, finish: finish}
}

// allows says whether anybody who drives the engine wants the action.
func (e *engine) allows(u *unit, a Action) bool {
	if e.running || a.Kind == ActionCancel {
		return true
	}
	for _, w := range e.watch {
		if w.gate == nil {
			return true
		}
		planned, ok := w.gate[u.rec.ID]
		if ok && (planned.Kind == a.Kind && planned.Was == a.Was || planned.Kind == ActionStop && a.Kind == ActionRemove && w.acted[u]) {
			return true
		}
	}
	return false
}

// allowsReap says whether anybody who drives the engine wants an instance
// stopped that no machine has.
func (e *engine) allowsReap(id InstanceID) bool {
	return e.running || slices.ContainsFunc(e.watch, func(w *watch) bool { return w.gate == nil || w.reap[id] })
}

// condemned: an instance without a machine is on its way out, and whoever waits
// waits for it.
func (e *engine) condemned(d *doomed) {
	for _, w := range e.watch {
		if w.began && (w.gate == nil || w.reap[d.id]) {
			w.dooms[d] = struct{}{}
			delete(w.reap, d.id)
		}
	}
}

// reprieved: it is stopped, or given up for now, or let be.
func (e *engine) reprieved(d *doomed, r Result) {
	r.Machine, r.Instance = d.machine, d.id
	for _, w := range e.watch {
		if has(w.dooms, d) {
			delete(w.dooms, d)
			w.report.Results = append(w.report.Results, r)
		}
	}
}

// passed: an applied plan is about the unit, and is not what is decided now.
func (e *engine) passed(u *unit, reason string) {
	for _, w := range e.watch {
		if planned, ok := w.gate[u.rec.ID]; ok && w.began && !w.acted[u] {
			if planned.Was != u.rec {
				reason = reasonChanged
			}
			delete(w.gate, u.rec.ID)
			w.report.Results = append(w.report.Results, Result{Machine: u.rec.ID, Kind: ActionLeave, Instance: u.rec.Instance, Reason: reason})
		}
	}
}

// plannedZone is where an applied plan wants the machine.
func (e *engine) plannedZone(id MachineID) ZoneName {
	for _, w := range e.watch {
		if planned, ok := w.gate[id]; ok && planned.Kind == ActionStart {
			return planned.Zone
		}
	}
	return ""
}

// begun: something of the unit is under way, and whoever waits waits for it,
// unless it was given up before: it is tried again for ever.
func (e *engine) begun(u *unit) {
	for _, w := range e.watch {
		if _, given := w.given[u]; w.began && !given && w.covers(u) {
			w.open[u] = struct{}{}
			if w.gate != nil {
				w.acted[u] = true
			}
		}
	}
}

// ceased: nothing of the unit is under way any more.
func (e *engine) ceased(u *unit) {
	for _, w := range e.watch {
		delete(w.open, u)
	}
}

// settled: what is under way for the unit is done, or given up for now. It is
// told while that still counts as under way. What is tried again after it was
// given up is not waited for, but its last result is the one that counts.
func (e *engine) settled(u *unit, r Result) {
	r.Machine = u.rec.ID
	for _, w := range e.watch {
		_, open := w.open[u]
		at, given := w.given[u]
		switch {
		case !w.covers(u) || !open && !given && !(w.began && r.Err != nil):
			continue
		case given:
			w.report.Results[at] = r
			continue
		case r.Err != nil:
			w.given[u] = len(w.report.Results)
		}
		delete(w.open, u)
		w.report.Results = append(w.report.Results, r)
	}
}

func (w *watch) covers(u *unit) bool { return w.gate == nil || has(w.gate, u.rec.ID) }

// failWatches: the reading that they wait for has failed.
func (e *engine) failWatches(err error) {
	for _, w := range e.watch {
		if w.began && !w.applied {
			w.err = err
		}
	}
}

// checkWatches lets those go whose look is settled. The listing, the zones and
// the profile changes of the look count as well.
func (e *engine) checkWatches() {
	if len(e.watch) == 0 {
		return
	}
	waiting := e.watch[:0]
	for _, w := range e.watch {
		settled := w.applied && len(w.open) == 0 && len(w.dooms) == 0 && e.list.op == nil && e.list.stage == listIdle && e.reaper.reading == nil && e.zones.op == nil && !e.profiles.busy()
		if w.err == nil && !settled {
			waiting = append(waiting, w)
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(w.reap)) {
			w.report.Results = append(w.report.Results, Result{Kind: ActionLeave, Instance: id, Reason: reasonOtherwise + e.explainInstance(id).Reason})
		}
		w.finish()
	}
	clear(e.watch[len(waiting):])
	e.watch = waiting
}

// unwatch: somebody does not wait any more.
func (e *engine) unwatch(gone *watch) {
	e.watch = slices.DeleteFunc(e.watch, func(w *watch) bool { return w == gone })
}
