package provisioner

import (
	"cmp"
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
}

// A doomed is an instance that has to be stopped and is that of no unit: one
// too many of a machine, say. There is one entry for each instance; it stays,
// visible, until the instance is stopped or turns out to be spoken for.
type doomed struct {
	id      InstanceID
	machine MachineID // that it was made for, as far as is known
	why     string
	op      *op // its stop, while that is under way
	tries   uint8
	err     error // why it could not be stopped, so far
	item    agenda.Item[due]
}

// due: its back-off is over.
func (d *doomed) due(e *engine) { e.sweep.fresh = append(e.sweep.fresh, d) }

// doom wants an instance stopped that is no unit's. Once is enough; whether it
// still may be is looked at again right before.
func (e *engine) doom(id InstanceID, machine MachineID, why string) {
	if id == "" || e.sweep.doomed[id] != nil {
		return
	}
	d := &doomed{id: id, machine: machine, why: why}
	d.item.Value = d
	if e.sweep.doomed == nil {
		e.sweep.doomed = map[InstanceID]*doomed{}
	}
	e.sweep.doomed[id] = d
	e.sweep.fresh = append(e.sweep.fresh, d)
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
	if e.quiet {
		return
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
	if why := e.spokenFor(d.id); why != "" {
		e.stops.Done("")
		e.pardon(d)
		e.tell(Event{Kind: EventOrphan, Machine: d.machine, Instance: d.id, Err: errors.Errorf("instance %s %s, so it is not stopped", d.id, why)})
		return
	}
	if e.reaper.accounted(d.id) { // it is stopped already, or about to be by whoever made it
		e.stops.Done("")
		e.pardon(d)
		return
	}
	d.op = &op{kind: opStop, doomed: d, phase: e.cfg.stopPhase, lane: &e.stops, req: StopRequest{Instances: []InstanceID{d.id}}}
	e.tell(Event{Kind: EventReaping, Machine: d.machine, Instance: d.id, Text: d.why})
	e.begin(d.op)
}

func (e *engine) doomedEnded(d *doomed, m *message) {
	d.op = nil
	if d.err = stopFailure(m.err, d.id); d.err != nil {
		next := e.now.Add(e.backoff(&d.tries))
		e.agenda.Set(&d.item, next)
		e.tell(Event{Kind: EventReapFailed, Machine: d.machine, Instance: d.id, Err: d.err, Next: next})
		return
	}
	e.pardon(d)
	e.reaper.stop(d.id, e.now)
	e.tell(Event{Kind: EventReaped, Machine: d.machine, Instance: d.id})
}

// A doomInfo is what a doomed instance shows of itself.
type doomInfo struct {
	instance InstanceID
	machine  MachineID
	why      string
	err      error     // of its last stop
	next     time.Time // when it is tried again; zero: as soon as there is a place, or it is under way
}

// dooms lists the doomed instances by id.
func (e *engine) dooms() []doomInfo {
	var list []doomInfo
	for _, d := range e.sweep.doomed {
		list = append(list, doomInfo{d.id, d.machine, d.why, d.err, d.item.At()})
	}
	slices.SortFunc(list, func(a, b doomInfo) int { return cmp.Compare(a.instance, b.instance) })
	return list
}
