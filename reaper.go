package provisioner

import (
	"maps"
	"slices"
	"time"
)

// lingers is how long an instance that we have stopped may still be listed
// before it is reported.
const lingers = 5 * time.Minute

// goneFor is how long an instance that a mode has spared must be missing from
// complete listings before it is no longer remembered: it may be off for weeks.
// One that was kept is remembered as long as it is not stopped (HV3).
const goneFor = 30 * 24 * time.Hour

// A reaper remembers instances that must not be taken for unknown ones.
type reaper struct {
	spared  map[InstanceID]sparing   // left running when their record was removed
	stopped map[InstanceID]time.Time // by us, and perhaps still listed
	room    int                      // how many of those are put up with until the old ones are forgotten
	undoing map[InstanceID]bool      // made by us, and not known to be recorded

	bare map[MachineID]time.Time // removed without an instance: which may still show: when

	// What the host remembers over restarts, if it does.
	read     bool // all of it was read
	reading  *op
	tries    uint8
	retry    moment
	stored   map[InstanceID]bool // the host remembers them, or may
	surplus  []InstanceID        // that it need not remember any more
	removing *op
	balked   bool                     // it could not: tried again after the next listing
	absent   map[InstanceID]time.Time // spared and missing since then
}

// A sparing is why an instance was left running, and whose it was.
type sparing struct {
	fate    Fate
	machine MachineID
}

func newReaper() reaper {
	return reaper{spared: map[InstanceID]sparing{}, stopped: map[InstanceID]time.Time{}, undoing: map[InstanceID]bool{},
		stored: map[InstanceID]bool{}, absent: map[InstanceID]time.Time{}, bare: map[MachineID]time.Time{}}
}

// spare remembers a kept or spared instance: it does not become unknown when
// its machine's record is gone (HV3, HV4).
func (r *reaper) spare(m Machine, fate Fate) {
	if s := r.spared[m.Instance]; m.Instance != "" && (s.fate != FateKept || s.machine == m.ID) {
		r.spared[m.Instance] = sparing{fate, m.ID}
	}
}

// keptBy says whether a machine other than this one has kept the instance.
func (r *reaper) keptBy(id InstanceID, but MachineID) bool {
	s := r.spared[id]
	return s.fate == FateKept && s.machine != but
}

// left is why an instance that no record has is there all the same, or "".
func (r *reaper) left(id InstanceID) (Verdict, string) {
	s, spared := r.spared[id]
	switch {
	case spared && s.fate == FateKept:
		return VerdictKept, reasonKept
	case spared:
		return VerdictSpared, reasonSpared
	case has(r.stopped, id):
		return VerdictStopped, "it was stopped, and is still listed"
	case r.undoing[id]:
		return VerdictStopped, "it could not be recorded, and is recorded or stopped yet"
	}
	return "", ""
}

const (
	reasonKept   = "it was kept when its machine's record was removed"
	reasonSpared = "the harvest mode spared it when its machine's record was removed"
)

// those lists the instances of one fate.
func (r *reaper) those(fate Fate) []InstanceID {
	var ids []InstanceID
	for id, s := range r.spared {
		if s.fate == fate {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// addSpared adds to a snapshot those whose machine's record is gone.
func (e *engine) addSpared(s *Snapshot) {
	for id, left := range e.reaper.spared {
		own := false
		for c := e.claims[id]; c != nil; c = c.nextClaim {
			own = own || c.rec.ID == left.machine
		}
		switch {
		case own:
		case left.fate == FateKept:
			s.Kept = append(s.Kept, id)
		default:
			s.Spared = append(s.Spared, id)
		}
	}
	slices.Sort(s.Kept)
	slices.Sort(s.Spared)
}

// known lists the instances that are accounted for otherwise, in any order.
func (r *reaper) known() []InstanceID {
	return slices.Concat(slices.Collect(maps.Keys(r.stopped)), slices.Collect(maps.Keys(r.undoing)))
}

// stop remembers an instance that we have stopped at now.
func (r *reaper) stop(id InstanceID, now time.Time) {
	if len(r.stopped) >= r.room { // listings settle them, but there may be none for long
		r.settle(now)
		r.room = max(1024, 2*len(r.stopped))
	}
	r.stopped[id] = now
	delete(r.undoing, id)
	r.unspare(id)
}

// unspare forgets a spared instance, for the host too.
func (r *reaper) unspare(id InstanceID) {
	delete(r.spared, id)
	delete(r.absent, id)
	if r.stored[id] {
		delete(r.stored, id)
		r.surplus = append(r.surplus, id)
	}
}

// accounted says whether it is known why an instance is there that no record has.
func (r *reaper) accounted(id InstanceID) bool {
	return has(r.stopped, id) || r.undoing[id] || has(r.spared, id)
}

// settle forgets the stopped instances that should be gone by now.
func (r *reaper) settle(now time.Time) {
	for id, at := range r.stopped {
		if now.Sub(at) >= lingers {
			delete(r.stopped, id)
		}
	}
}

// readSpared reads what the host remembers, once in the life of a Task: before
// that nothing unknown is stopped.
func (e *engine) readSpared() {
	r := &e.reaper
	if !e.cfg.spares || e.quiet || r.read || r.reading != nil || r.retry.item.On() || e.clogged(opSpared) {
		return
	}
	r.reading = &op{kind: opSpared}
	e.begin(r.reading)
}

func (e *engine) sparedRead(o *op, m *message) {
	r := &e.reaper
	r.reading = nil
	switch {
	case e.quiet:
	case m.err != nil:
		next := e.now.Add(e.backoff(&r.tries))
		e.at(&r.retry, next)
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err, Next: next})
	default:
		all, _ := m.result.([]Spared)
		for _, s := range all {
			fate := FateSpared
			if s.Kept {
				fate = FateKept
			}
			if known, ok := r.spared[s.Instance]; !ok || known.machine != s.Machine { // that is newer
				r.spare(Machine{ID: s.Machine, Instance: s.Instance}, fate)
			}
			r.stored[s.Instance] = true
		}
		r.read, r.tries = true, 0
		e.sweepNow()
	}
}

// toSpare is what the host is to remember before a record is removed, or nil.
func (e *engine) toSpare(u *unit, a Action) *Spared {
	if !e.cfg.spares || a.Fate != FateKept && a.Fate != FateSpared {
		return nil
	}
	e.reaper.stored[u.rec.Instance] = true
	kept := a.Fate == FateKept || e.reaper.keptBy(u.rec.Instance, u.rec.ID)
	return &Spared{Instance: u.rec.Instance, Machine: u.rec.ID, Kept: kept}
}

// forgetSpared forgets spared instances that have been gone for long.
func (e *engine) forgetSpared(p *survey) {
	r := &e.reaper
	if len(p.failed) > 0 {
		return
	}
	for id, s := range r.spared {
		switch since, absent := r.absent[id]; {
		case s.fate == FateKept || p.spared[id] || e.claims[id] != nil:
			delete(r.absent, id)
		case !absent:
			r.absent[id] = e.now
		case e.now.Sub(since) >= goneFor:
			r.unspare(id)
		}
	}
	r.balked = false
}

// flushUnspared lets the host forget what is gone.
func (e *engine) flushUnspared() {
	r := &e.reaper
	if len(r.surplus) == 0 || r.removing != nil || e.quiet || r.balked {
		return
	}
	slices.Sort(r.surplus)
	r.surplus = slices.Compact(r.surplus)
	r.surplus = slices.DeleteFunc(r.surplus, func(id InstanceID) bool { return has(r.spared, id) })
	n := min(len(r.surplus), maxIDs)
	if n == 0 {
		return
	}
	r.removing = &op{kind: opUnspare, req: slices.Clone(r.surplus[:n])}
	r.surplus = r.surplus[n:]
	e.begin(r.removing)
}

func (e *engine) unspared(o *op, m *message) {
	r := &e.reaper
	r.removing = nil
	if m.err != nil {
		r.surplus = append(r.surplus, o.req.([]InstanceID)...)
		r.balked = true
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err})
	}
}
