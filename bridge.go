package provisioner

import (
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/internal/bridge"
)

func init() { bridge.NewEngine = newByHand }

// byHand is the engine of a Task, turned by a simulator in the place of the
// loop: it has its operations, and no goroutines. It has one owner.
type byHand struct {
	t  *Task
	e  *engine
	in []message
}

func newByHand(config any) (any, error) {
	t, err := New(config.(Config))
	if err != nil {
		return nil, err
	}
	return &byHand{t: t, e: <-t.engine}, nil
}

func (b *byHand) post(m message) { b.in = append(b.in, m) }

// What comes in is handled by the next Step.

func (b *byHand) Wake(run bool)            { b.post(message{kind: msgWake, flag: run}) }
func (b *byHand) Quiet(forGood bool)       { b.post(message{kind: msgQuiet, flag: forGood}) }
func (b *byHand) Changed(ids ...MachineID) { b.post(message{kind: msgChanged, ids: ids}) }
func (b *byHand) Retry()                   { b.post(message{kind: msgRetry}) }
func (b *byHand) SetMode(mode HarvestMode) { b.post(message{kind: msgMode, mode: mode}) }
func (b *byHand) SetLimits(l Limits)       { b.post(message{kind: msgLimits, limits: &l}) }

// Look looks at everything, and calls finish when that is settled.
func (b *byHand) Look(finish func()) { b.post(message{kind: msgLook, watch: newWatch(nil, finish)}) }

// ProfilesChanged tells of machines that have profile changes.
func (b *byHand) ProfilesChanged(ids ...MachineID) {
	b.post(message{kind: msgProfiles, ids: ids})
}

// Waiting says whether anything has come in since the last Step.
func (b *byHand) Waiting() bool { return len(b.in) > 0 }

// Step lets the engine handle what has come in and is due at now, cancels the
// calls that it wants cancelled, and gives what it wants done.
func (b *byHand) Step(now time.Time) (ops []bridge.Op, cuts int, events []Event) {
	in := b.in
	b.in = nil
	b.e.step(now, in...)
	out, cut, told := b.e.take()
	for _, o := range out {
		ops = append(ops, b.opOf(o, b.t.host.prepareToRun(b.t.base, o, b.post)))
	}
	for _, c := range cut {
		c.op.call.cut(c)
	}
	return ops, len(cut), append(events, told...)
}

func (b *byHand) opOf(o *op, r *running) bridge.Op {
	x := bridge.Op{Kind: o.kind.String(), Machine: string(o.machine()), Run: r.run, Late: func() bool { return o.late }}
	if o.doomed != nil {
		x.Machine = "" // it locks none
	}
	switch req := o.req.(type) {
	case startCall:
		x.Zone, x.Again = string(req.request.Zone), o.unit.start.open || req.adopt != nil || req.request.Token != ""
	case StopRequest:
		x.Instance, x.Undo = string(req.Instances[0]), o.undoes()
		if o.doomed != nil {
			x.Undo, x.Reap = o.doomed.kind == doomSurplus, o.doomed.kind == doomUnknown
		}
	case StatusUpdate:
		x.Error = req.Status == StatusError || req.InstanceStatus == InstanceProvisioningError
	}
	return x
}

// Next is when Step has something to do by itself.
func (b *byHand) Next() (time.Time, bool) { return b.e.next() }

// Backlog says whether Step has more to do at once.
func (b *byHand) Backlog() bool { return !b.e.quiet && b.e.backlog() }

// Hushed says whether a quiet engine has nothing more to wait for, and names
// the calls that are out and the instances that are left behind.
func (b *byHand) Hushed() (hushed bool, calls, orphans []string) {
	if !b.e.quiet || !b.e.hushed() {
		return false, nil, nil
	}
	return true, b.e.callsOut(), b.e.orphanNames()
}

// Unit tells about one machine, false if the engine does not know it.
func (b *byHand) Unit(id MachineID) (x bridge.Unit, ok bool) {
	u := b.e.units[id]
	if u == nil {
		return x, false
	}
	x = bridge.Unit{Life: u.life.String(), Alive: u.rec.Life == Alive, Instance: string(u.rec.Instance), Settled: u.has(flagSettled)}
	x.Zone = string(b.e.ledger.name(b.e.ledger.zoneOf(u.slot)))
	if s := u.start; s != nil {
		x.Held = string(b.e.ledger.name(s.zone))
		if s.made != nil {
			x.Made = string(s.made.record.Instance)
		}
	}
	return x, true
}

// Zones ranks the zones for a machine's start as its last choice saw them, or
// is nil if it has none to choose.
func (b *byHand) Zones(id MachineID) []RankedZone {
	u := b.e.units[id]
	if u == nil || u.start == nil || b.e.zoneless(u) {
		return nil
	}
	return b.e.ledger.ranked(id, b.e.wish(u))
}

// Audit rebuilds what the engine keeps by counting, and says what differs.
func (b *byHand) Audit() error {
	e, l := b.e, b.e.ledger
	totals := make([]int32, len(l.zones))
	counted, lifes := 0, [lives]int{}
	for _, u := range e.units {
		lifes[u.life]++
		if has(e.astir, u) != (u.life != lifeResting) {
			return errors.Errorf("machine %s is %s, and counted as astir: %v", u.rec.ID, u.life, has(e.astir, u))
		}
		if z := l.zoneOf(u.slot); z != noZone {
			totals[z]++
			counted++
		}
	}
	for z := range l.zones {
		if l.zones[z].total != totals[z] {
			return errors.Errorf("zone %s holds %d machines and counts %d", l.zones[z].name, totals[z], l.zones[z].total)
		}
	}
	for _, z := range l.at {
		if z != noZone {
			counted--
		}
	}
	if counted != 0 {
		return errors.Errorf("%d slots of forgotten machines are counted", -counted)
	}
	for key, g := range l.keyed {
		counts := make([]int32, len(g.counts))
		for _, slot := range g.members {
			if z := l.zoneOf(slot); z != noZone {
				counts[z]++
			}
		}
		for z := range counts {
			if counts[z] != g.counts[z] {
				return errors.Errorf("group %s has %d members in zone %s and counts %d", key, counts[z], l.zones[z].name, g.counts[z])
			}
		}
	}
	if lifes != e.lives {
		return errors.Errorf("machines by life are %v, and counted as %v", lifes, e.lives)
	}
	return nil
}
