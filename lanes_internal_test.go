package provisioner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/juju/errors"
)

// A rig is an engine whose operations are ended by the test, one by one.
type rig struct {
	t   testing.TB
	e   *engine
	now time.Time
	s   Snapshot
	out []*op // under way
}

func newRig(t testing.TB, l Limits, fleet ...Machine) *rig {
	g := &rig{t: t, now: time.Unix(1000, 0)}
	for _, m := range fleet {
		g.s.Fleet = append(g.s.Fleet, MachineResult{ID: m.ID, Machine: m})
	}
	g.e = newEngine(engineConfig{controller: "c", call: time.Minute, launch: 5 * time.Minute, grace: 30 * time.Second,
		refresh: time.Minute, random: func() float64 { return 0.5 }, launchPhase: phaseLaunch}, Policy{}, l)
	g.step(message{kind: msgWake, flag: true}, message{kind: msgLook})
	return g
}

// step handles messages, and ends all readings at once.
func (g *rig) step(in ...message) {
	for more := true; more; {
		g.e.step(g.now, in...)
		out, _, _ := g.e.take()
		in = nil
		b := &bench{e: g.e, s: g.s}
		for _, o := range slices.Clone(out) {
			switch o.kind {
			case opStart, opStop, opRemove:
				g.out = append(g.out, o)
			default:
				m, _ := b.answer(o)
				in = append(in, m)
			}
		}
		more = len(in) > 0 || g.e.look.backlog()
	}
}

// end ends the operations of one kind that are under way now, all in one step.
func (g *rig) end(kind opKind, err error) (n int) {
	var in []message
	g.out = slices.DeleteFunc(g.out, func(o *op) bool {
		if o.kind != kind {
			return false
		}
		m := message{kind: msgOutcome, op: o, err: err}
		if kind == opStart {
			m.err, m.result = nil, &attempted{start: err}
			if err == nil {
				m.result = &attempted{record: InstanceRecord{Machine: o.unit.rec.ID, Instance: InstanceID("i-" + o.unit.rec.ID)}}
			}
		}
		in = append(in, m)
		return true
	})
	g.step(in...)
	return len(in)
}

func (g *rig) under(kind opKind) (n int) {
	for _, o := range g.out {
		if o.kind == kind {
			n++
		}
	}
	return n
}

func (g *rig) want(what string, got, want int) {
	g.t.Helper()
	if got != want {
		g.t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func pendingFleet(n int) (fleet []Machine) {
	for i := range n {
		fleet = append(fleet, Machine{ID: MachineID(fmt.Sprint(i)), Life: Alive, Status: StatusPending})
	}
	return fleet
}

// ST17: 500 pending at limit 4 start four at a time, each once.
func TestFiveHundredAtLimitFour(t *testing.T) {
	g := newRig(t, Limits{Starts: 4}, pendingFleet(500)...)
	started := 0
	for g.under(opStart) > 0 {
		if n := g.under(opStart); n > 4 {
			t.Fatalf("ST17: %d starts at once, and 4 are allowed", n)
		}
		started += g.end(opStart, nil)
	}
	g.want("started", started, 500)
	g.want("resting", g.e.lives[lifeResting], 500)
}

// ST17: a limit that changes counts at once, and pre-empts nothing.
func TestResizing(t *testing.T) {
	g := newRig(t, Limits{Starts: 2}, pendingFleet(20)...)
	g.want("at limit 2", g.under(opStart), 2)
	g.step(message{kind: msgLimits, limits: &Limits{Starts: 5}})
	g.want("raised to 5", g.under(opStart), 5)
	g.step(message{kind: msgLimits, limits: &Limits{Starts: 1}})
	g.want("lowered to 1, and those under way go on", g.under(opStart), 5)
	g.want("they end", g.end(opStart, nil), 5)
	g.want("at limit 1", g.under(opStart), 1)
}

// ST17: every worker of a full lane ends with something that has to be stopped,
// and goes on only when it is: nothing waits for itself.
func TestFullLaneOfUndos(t *testing.T) {
	g := newRig(t, Limits{Starts: 3, Stops: 1}, pendingFleet(9)...)
	g.want("starts", g.under(opStart), 3)
	var in []message
	for _, o := range g.out {
		made := &attempted{record: InstanceRecord{Machine: o.unit.rec.ID, Instance: InstanceID("odd-" + o.unit.rec.ID)}, unwanted: errors.New("odd")}
		in = append(in, message{kind: msgOutcome, op: o, result: made})
	}
	g.out = nil
	g.step(in...)
	g.want("stops at once", g.under(opStop), 1)
	g.want("their places are others' meanwhile", g.under(opStart), 3)
	g.want("undoing", g.e.lives[lifeUndoing], 3)
	for range 3 {
		g.want("stop by stop", g.end(opStop, nil), 1)
	}
	for range 20 {
		g.end(opStart, nil)
		g.now = g.now.Add(time.Minute)
		g.step()
	}
	g.want("resting", g.e.lives[lifeResting], 9)
}

// LD6: ids that are given twice, or again while something is under way, lead to
// one operation.
func TestIDsTwice(t *testing.T) {
	g := newRig(t, Limits{}, pendingFleet(2)...)
	g.step(message{kind: msgChanged, ids: []MachineID{"0", "0", "1"}}, message{kind: msgChanged, ids: []MachineID{"0"}})
	g.want("starts", g.under(opStart), 2)
	// Forgotten while it waits to be read, and told of again: read once.
	g.e.quiet = false
	u := g.e.units["0"]
	g.e.read(u)
	g.e.forget(u)
	g.e.read(g.e.unitOf("0"))
	g.e.flushReads()
	for _, o := range g.e.out {
		if ids, ok := o.req.([]MachineID); ok && len(ids) != 1 {
			t.Errorf("LD6: read %v, want [0]", ids)
		}
	}
}

// ST13: a machine that dies at any moment of its start is stopped if an
// instance came of it, once, and its record goes.
func TestKillingDuringAnything(t *testing.T) {
	var lived [lives]bool // in which it was killed
	for _, recorded := range []bool{true, false} {
		for moment := range 12 {
			g := &rig{t: t, now: time.Unix(1000, 0)}
			g.s.Fleet = []MachineResult{{ID: "0", Machine: pendingFleet(1)[0]}}
			g.e = newEngine(engineConfig{controller: "c", refresh: time.Minute, random: func() float64 { return 0.5 },
				status: true, launchPhase: phaseLaunch}, Policy{}, Limits{})
			stops, made := killedAfter(g, moment, recorded, &lived)
			if u := g.e.units["0"]; u != nil {
				t.Errorf("moment %d, recorded %v: machine 0 is still there: %v", moment, recorded, u.life)
			}
			if stops != made {
				t.Errorf("moment %d, recorded %v: %d instances made, %d stops", moment, recorded, made, stops)
			}
		}
	}
	for _, l := range []life{lifeResting, lifeAnnouncing, lifePreparing, lifeStarting, lifeConfirming, lifeUndoing, lifeWaiting} {
		if !lived[l] {
			t.Errorf("it was never killed while %v", l)
		}
	}
}

// killedAfter ends operations in their order, one at a time, and kills machine
// 0 after some of them.
func killedAfter(g *rig, moment int, recorded bool, lived *[lives]bool) (stops, made int) {
	record := &g.s.Fleet[0]
	b := &bench{e: g.e, did: map[MachineID]string{}}
	in := []message{{kind: msgWake, flag: true}, {kind: msgLook}}
	var out []*op
	for ended := 0; ended < 60; ended++ {
		g.e.step(g.now, in...)
		given, _, _ := g.e.take()
		out, in = append(out, given...), nil
		for g.e.look.backlog() {
			g.e.step(g.now)
			given, _, _ = g.e.take()
			out = append(out, given...)
		}
		if ended == moment {
			if u := g.e.units["0"]; u != nil {
				lived[u.life] = true
			}
			record.Machine.Life = Dead
			in = append(in, message{kind: msgChanged, ids: []MachineID{"0"}})
			continue
		}
		if len(out) == 0 {
			g.now = g.now.Add(time.Minute)
			continue
		}
		o := out[0]
		out = out[1:]
		b.s = g.s
		m, _ := b.answer(o)
		switch o.kind {
		case opStart:
			made++
			a := &attempted{record: InstanceRecord{Machine: "0", Instance: InstanceID(fmt.Sprint("i-", made))}}
			if record.Machine.Life == Dead || !recorded {
				a.write = errors.New("not recorded")
			} else {
				record.Machine.Instance = a.record.Instance
			}
			m.result = a
		case opConfirm:
			m.result = b.machines([]MachineID{"0"})
		case opStop:
			stops++
		case opRemove:
			g.s.Fleet = nil
		}
		in = append(in, m)
	}
	return stops, made
}

// ST17: what was queued twice, because its wait ended while it was queued, is
// done once, also if its record goes with that.
func TestQueuedTwice(t *testing.T) {
	dead := Machine{ID: "0", Life: Dead}
	g := newRig(t, Limits{Stops: 1}, Machine{ID: "1", Life: Dead}, dead)
	g.e.removals.Push("", g.e.units["0"])
	g.e.removals.Push("", g.e.units["1"])
	for range 4 {
		g.want("removals at once", min(g.under(opRemove), 2), min(len(g.e.units), 1))
		g.end(opRemove, nil)
	}
}
