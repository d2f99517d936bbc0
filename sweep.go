package provisioner

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/internal/agenda"
)

// sweepState holds the instances without a unit that have to be stopped.
type sweepState struct {
	doomed  map[InstanceID]*doomed
	fresh   []*doomed // of this pass, not yet in their order
	waiting []*doomed // for a place among the stops, after those of dead machines (HV8)
	spent   int       // how many have gone through the gate since spentAt
	spentAt time.Time
}

// A doomed is an instance that has to be stopped and is that of no unit: one
// too many of a machine, say. There is one entry for each instance; it stays,
// visible, until the instance is stopped or turns out to be spoken for.
type doomed struct {
	id      InstanceID
	machine MachineID // that it was made for, as far as is known
	why     string
	kind    doomKind
	op      *op // its stop, or what is asked before, while that is under way
	tries   uint8
	err     error // why it could not be stopped, so far
	item    agenda.Item[due]
}

// doomKind is what makes an instance one that has to go.
type doomKind uint8

const (
	doomSurplus doomKind = iota // the Task knows that it made it, and that it is one too many
	doomUnknown                 // it went through the gate (HV9 to HV11)
	doomSpared                  // the host has asked for it (HV4)
)

// due: its back-off is over.
func (d *doomed) due(e *engine) { e.sweep.fresh = append(e.sweep.fresh, d) }

// doom wants an instance stopped that the Task has made and that is one too many
// of its machine. Once is enough; whether it still may be stopped is looked at
// again right before.
func (e *engine) doom(id InstanceID, machine MachineID, why string) {
	e.condemn(doomed{id: id, machine: machine, why: why})
}

func (e *engine) condemn(one doomed) {
	if one.id == "" || e.sweep.doomed[one.id] != nil {
		return
	}
	d := &one
	d.item.Value = d
	if e.sweep.doomed == nil {
		e.sweep.doomed = map[InstanceID]*doomed{}
	}
	e.sweep.doomed[d.id] = d
	e.sweep.fresh = append(e.sweep.fresh, d)
	e.condemned(d)
}

// reap wants an instance stopped that has gone through the gate.
func (e *engine) reap(s *sighting) {
	if e.allowsReap(s.Instance.ID) {
		e.condemn(doomed{id: s.Instance.ID, machine: s.Instance.Labels.Machine, why: s.Reason, kind: doomUnknown})
		e.sweep.spent++
	}
}

// spent is how much of MaxUnknown is gone: there may be many listings for other
// reasons, and those that come soon after a pass are no further one (HV11).
func (e *engine) spent() int {
	if e.now.Sub(e.sweep.spentAt) >= e.policy.unknownGrace() {
		return 0
	}
	return e.sweep.spent
}

// reapSpared wants instances stopped that a mode has spared; none: all of them.
func (e *engine) reapSpared(ids []InstanceID) {
	if len(ids) == 0 {
		ids = e.reaper.those(FateSpared)
	}
	for _, id := range ids {
		if s, ok := e.reaper.spared[id]; ok && s.fate == FateSpared {
			e.condemn(doomed{id: id, machine: s.machine, why: "it was spared, and is now asked for", kind: doomSpared})
		}
	}
}

// pardon drops an entry whose stop is not under way.
func (e *engine) pardon(d *doomed) {
	e.agenda.Drop(&d.item)
	if e.sweep.doomed[d.id] == d {
		delete(e.sweep.doomed, d.id)
	}
}

// placeDoomed gives the places that dead machines leave over to the doomed.
func (e *engine) placeDoomed() {
	if e.quiet || e.look.woken > 0 && (e.look.began <= e.look.woken || !e.recordsKnown()) {
		return // what is known may be old
	}
	slices.SortStableFunc(e.sweep.fresh, func(a, b *doomed) int { return cmp.Compare(a.id, b.id) })
	e.sweep.waiting = append(e.sweep.waiting, e.sweep.fresh...)
	e.sweep.fresh = nil
	for len(e.sweep.waiting) > 0 && e.stops.Take() {
		d := e.sweep.waiting[0]
		if e.sweep.waiting = e.sweep.waiting[1:]; len(e.sweep.waiting) == 0 {
			e.sweep.waiting = nil
		}
		if e.sweep.doomed[d.id] != d || d.op != nil || d.item.On() {
			e.stops.Done("")
			continue
		}
		e.stopDoomed(d)
	}
}

// stopDoomed stops a doomed instance, if that is still what is to be done: the
// facts may have changed while it waited. It has a place among the stops.
func (e *engine) stopDoomed(d *doomed) {
	switch why, hold := e.reprieve(d); {
	case hold:
		e.stops.Done("")
		e.delay(d, errors.WithType(errors.New(why), ErrHeld))
	case why != "":
		e.stops.Done("")
		e.letBe(d, why)
	case e.cfg.asks:
		d.op = e.askFirst(StopNotice{Instance: d.id, Machine: d.machine, Reason: d.why})
		d.op.doomed = d
		e.begin(d.op)
	default:
		e.stopDoomedNow(d)
	}
}

func (e *engine) stopDoomedNow(d *doomed) {
	d.op = &op{kind: opStop, doomed: d, phase: e.cfg.stopPhase, lane: &e.stops, req: StopRequest{Instances: []InstanceID{d.id}}}
	e.tell(Event{Kind: EventReaping, Machine: d.machine, Instance: d.id, Text: d.why})
	e.begin(d.op)
}

// reprieve is why a doomed instance must not be stopped: for good, or, with
// hold, for now.
func (e *engine) reprieve(d *doomed) (why string, hold bool) {
	id := d.id
	if why := e.recorded(id, ""); why != "" {
		return "it " + why, false
	}
	if left := e.reaper.spared[id].fate; left == FateKept || left == FateSpared && d.kind != doomSpared {
		return "it was left running when its record was removed (" + left.String() + ")", false
	}
	if has(e.reaper.stopped, id) || e.reaper.undoing[id] {
		return "it is stopped already, or about to be", false
	}
	if d.kind == doomUnknown {
		s := e.sighted(id)
		if s == nil {
			return "it is not listed any more", false
		}
		if e.list.freeze.frozen != nil {
			return e.list.freeze.frozen.Reason, false
		}
		if v, why := judge(s, e.gateFacts(e.list.last.began), e.policy); v != VerdictStop {
			return why, false
		}
	}
	if u := e.units[d.machine]; d.kind == doomSurplus && u != nil && u.rec.Life == Alive && u.rec.Instance == "" {
		return "its machine has no other instance yet", true
	}
	if d.kind == doomSpared && (!e.look.loaded || e.look.blind || e.look.obscure > 0) {
		return reasonUnread, true
	}
	if why := e.dark(); why != "" {
		e.brighten()
		return why, true
	}
	return "", false
}

// holdBack: an instance has an owner now, so a stop of it that still waits for
// the Limiter is not made.
func (e *engine) holdBack(id InstanceID) {
	if d := e.sweep.doomed[id]; d != nil && d.op != nil && d.op.phase == phaseLimit {
		e.cuts = append(e.cuts, cut{op: d.op, phase: phaseLimit, cause: errSpokenFor})
	}
}

var errSpokenFor = errors.New("the instance is in a machine's record")

// letBe ends an entry without a stop.
func (e *engine) letBe(d *doomed, why string) {
	e.pardon(d)
	e.tell(Event{Kind: EventPardoned, Machine: d.machine, Instance: d.id, Text: why})
	e.reprieved(d, Result{Kind: ActionLeave, Reason: why})
}

// forgive lets what is unknown be when nobody drives the task any more: it has to
// be seen anew.
func (e *engine) forgive(d *doomed) {
	e.pardon(d)
	e.reprieved(d, Result{Kind: ActionLeave, Reason: "nobody drives the task any more"})
}

func (e *engine) forgiveAll() {
	for _, id := range slices.Sorted(maps.Keys(e.sweep.doomed)) {
		if d := e.sweep.doomed[id]; d.kind == doomUnknown && d.op == nil {
			e.forgive(d)
		}
	}
}

// delay tries again after a back-off.
func (e *engine) delay(d *doomed, err error) {
	if e.quiet && d.kind == doomUnknown {
		e.forgive(d)
		return
	}
	d.err = err
	next := e.now.Add(e.backoff(&d.tries))
	e.agenda.Set(&d.item, next)
	e.tell(Event{Kind: EventReapFailed, Machine: d.machine, Instance: d.id, Err: err, Next: next})
	e.reprieved(d, Result{Kind: ActionStop, Reason: "it could not be stopped", Err: err})
}

// doomedEnded: what was under way for a doomed instance has ended.
func (e *engine) doomedEnded(d *doomed, m *message) {
	d.op = nil
	if m.op.kind == opAsk {
		e.doomedAsked(d, m)
		return
	}
	if err := stopFailure(m.err, d.id); err != nil {
		e.delay(d, err)
		return
	}
	e.pardon(d)
	e.reaper.stop(d.id, e.now)
	e.census.drop(d.machine, d.id)
	e.tell(Event{Kind: EventReaped, Machine: d.machine, Instance: d.id})
	e.reprieved(d, Result{Kind: ActionStop, Reason: d.why})
}

func (e *engine) doomedAsked(d *doomed, m *message) {
	switch err := e.askedFirst(m); {
	case e.quiet && d.kind == doomUnknown:
		e.forgive(d)
	case e.quiet:
		e.sweep.fresh = append(e.sweep.fresh, d)
	case err != nil:
		e.delay(d, err)
	default:
		m.op.lane = nil // its place is the stop's now
		if why, hold := e.reprieve(d); hold {
			e.stops.Done("")
			e.delay(d, errors.WithType(errors.New(why), ErrHeld))
		} else if why != "" {
			e.stops.Done("")
			e.letBe(d, why)
		} else {
			e.stopDoomedNow(d)
		}
	}
}

// askFirst asks the host before a stop, with the place of that stop.
func (e *engine) askFirst(n StopNotice) *op {
	return &op{kind: opAsk, lane: &e.stops, phase: e.cfg.askPhase, req: n}
}

// askedFirst is why a stop has to wait after the host was asked, or nil.
func (e *engine) askedFirst(m *message) error {
	if m.err == nil && m.op.lane == nil { // its time was over, and its place is gone
		return errors.Annotate(ErrTimedOut, "getting ready for the stop")
	}
	return m.err
}

// approve lets exactly the instances of a frozen plan go (HV11).
func (e *engine) approve(plan string) {
	f := e.list.freeze.frozen
	if f == nil || f.Plan != plan {
		return
	}
	e.list.freeze.approved = make(map[InstanceID]bool, len(f.Instances))
	for _, id := range f.Instances {
		e.list.freeze.approved[id] = true
	}
	e.tell(Event{Kind: EventSettings, Text: "plan " + plan + " is approved"})
	e.sweepNow()
}

// explainInstance says where an instance stands.
func (e *engine) explainInstance(id InstanceID) InstanceExplanation {
	x := InstanceExplanation{Instance: id}
	d := e.sweep.doomed[id]
	if d != nil {
		x.Machine, x.LastError, x.Next = d.machine, d.err, d.item.At()
	}
	if u := e.claims[id]; u != nil {
		x.Machine, x.Reason = u.rec.ID, "it is in the record of machine "+string(u.rec.ID)
		return x
	}
	s := e.sighted(id)
	if s == nil && e.list.last != nil {
		for n := range e.list.last.unclaimed {
			if i := &e.list.last.unclaimed[n]; i.ID == id {
				s = &sighting{Unclaimed: Unclaimed{Instance: *i}}
			}
		}
	}
	switch {
	case s != nil:
		x.Zone, x.First, x.Listed = s.Instance.Zone, s.First, true
		if x.Machine == "" {
			x.Machine = s.Instance.Labels.Machine
		}
		x.Verdict, x.Reason = judge(s, e.gateFacts(e.list.last.began), e.policy)
		if x.Verdict == VerdictStop && (s.Verdict == VerdictBudget || s.Verdict == VerdictFrozen) {
			x.Verdict, x.Reason = s.Verdict, s.Reason
		}
	case d != nil:
		x.Verdict, x.Reason = VerdictStop, d.why
	default:
		if x.Verdict, x.Reason = e.reaper.left(id); x.Verdict == "" {
			x.Reason = "it is neither recorded nor in the last complete listing"
		}
	}
	return x
}

// A doomInfo is what a doomed instance shows of itself.
type doomInfo struct {
	instance InstanceID
	machine  MachineID
	why      string
	err      error     // of its last stop
	next     time.Time // when it is tried again; zero: as soon as there is a place, or it is under way
}

// dooms lists, by id, the doomed instances that the Task knows that it made.
func (e *engine) dooms() []doomInfo {
	var list []doomInfo
	for _, d := range e.sweep.doomed {
		if d.kind != doomSurplus {
			continue
		}
		list = append(list, doomInfo{d.id, d.machine, d.why, d.err, d.item.At()})
	}
	slices.SortFunc(list, func(a, b doomInfo) int { return cmp.Compare(a.instance, b.instance) })
	return list
}
