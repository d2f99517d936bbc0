package provisioner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
)

// bench is an engine on a test bench: what it asks of the host is answered
// from a snapshot, at once and in order; what it does is only noted.
type bench struct {
	e   *engine
	s   Snapshot
	did map[MachineID]string
}

func newBench(s Snapshot, p Policy) *bench {
	b := &bench{s: s, did: map[MachineID]string{}}
	b.e = newEngine(engineConfig{
		controller: "c", refresh: time.Minute, random: func() float64 { return 0.5 },
		zones: len(s.Zones) > 0 || s.ZonesUnread, deriver: true, maintainer: s.CanMaintain, life: s.CanEnsureDead,
	}, p, Limits{Starts: 1000, ContainerStarts: 1000, Stops: 1000})
	return b
}

// step lets the engine work until it asks for nothing more.
func (b *bench) step(in ...message) {
	for {
		b.e.step(time.Unix(1000, 0), in...)
		out, _, _ := b.e.take()
		in = nil
		for _, o := range slices.Clone(out) {
			if m, answered := b.answer(o); answered {
				in = append(in, m)
			}
		}
		if len(in) == 0 && !b.e.look.backlog() {
			return
		}
	}
}

func (b *bench) answer(o *op) (message, bool) {
	m := message{kind: msgOutcome, op: o}
	switch o.kind {
	case opFleet:
		m.result = sortedFleet(slices.Clone(b.s.Fleet))
	case opMachines:
		m.result = b.machines(o.req.([]MachineID))
	case opListing:
		m.result = b.s.Listing
	case opZones:
		m.result = b.s.Zones
		if b.s.ZonesUnread {
			m.err = errors.New("unread")
		}
	case opPrepare:
		var all []prepared
		for _, n := range o.req.([]need) {
			needs := b.s.Needs[n.Machine]
			info := StartInfo{Group: needs.Group}
			for _, z := range needs.Zones {
				info.Constraints.Zones = append(info.Constraints.Zones, string(z))
			}
			all = append(all, prepared{nonce: "n", info: &info, authed: n.Auth, group: needs.Group, err: needs.Err, final: needs.Err != nil})
		}
		m.result = all
	case opDerive:
		m.result = b.s.Needs[o.unit.rec.ID].Derived
	case opStart:
		b.did[o.unit.rec.ID] = fmt.Sprintf("start in %q", string(o.req.(startCall).request.Zone))
		return m, false
	case opStop:
		b.did[o.unit.rec.ID] = "stop " + string(o.req.(StopRequest).Instances[0])
		return m, false
	case opRemove:
		b.did[o.unit.rec.ID] = fmt.Sprintf("remove %v", o.req.(removalCall).ensureDead)
		return m, false
	case opMaintain:
		b.did[o.unit.rec.ID] = "maintain"
	}
	return m, true
}

func (b *bench) machines(ids []MachineID) []MachineResult {
	var results []MachineResult
	for _, id := range ids {
		r := MachineResult{ID: id, Err: errors.NotFoundf("machine %s", id)}
		for _, known := range b.s.Fleet {
			if known.ID == id {
				r = known
			}
		}
		results = append(results, r)
	}
	return results
}

// planned is what a plan says, in the words of the bench.
func planned(p Plan) map[MachineID]string {
	does := map[MachineID]string{}
	for _, a := range p.Actions {
		switch a.Kind {
		case ActionStart:
			does[a.Was.ID] = fmt.Sprintf("start in %q", string(a.Zone))
		case ActionStop:
			does[a.Was.ID] = "stop " + string(a.Was.Instance)
		case ActionRemove:
			does[a.Was.ID] = fmt.Sprintf("remove %v", a.EnsureDead)
		case ActionMaintain:
			does[a.Was.ID] = "maintain"
		}
	}
	return does
}

// FuzzEngineAsPlan holds LD8: the engine does to a fleet what MakePlan says,
// whether it reads it whole or hears of its machines one by one.
func FuzzEngineAsPlan(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed, int(seed*7%60))
	}
	f.Fuzz(func(t *testing.T, seed uint64, machines int) {
		if machines < 0 || machines > 80 {
			t.Skip()
		}
		s, policy := randomSnapshot(seed, machines)
		s.Doing = nil
		want := planned(MakePlan(s, policy))

		whole := newBench(s, policy)
		whole.step(message{kind: msgWake, flag: true}, message{kind: msgLook})
		if diff := cmp.Diff(want, whole.did); diff != "" {
			t.Fatalf("LD8: read whole (-plan +engine):\n%s\n%v", diff, MakePlan(s, policy))
		}

		// Told of one by one, no record can be at fault for another's sake. Nor
		// may it matter who comes first, as it does where places are limited.
		policy.MaxSkew, policy.MinZones = 0, 0
		s.Fleet = sound(s.Fleet)
		want = planned(MakePlan(s, policy))
		if diff := cmp.Diff(withoutZones(want), withoutZones(changedAtOnce(s, policy, seed).did)); diff != "" {
			t.Fatalf("LD8: told of its changes (-plan +engine):\n%s\n%v", diff, MakePlan(s, policy))
		}
	})
}

// changedAtOnce has an engine read a fleet in which nothing is to do, and then
// tells it of all changes, in any order.
func changedAtOnce(s Snapshot, policy Policy, seed uint64) *bench {
	before := s
	before.Fleet, before.Listing = nil, Listing{Complete: true}
	var ids []MachineID
	for _, r := range s.Fleet {
		ids = append(ids, r.ID)
		m := Machine{ID: r.ID, Life: Alive, Instance: InstanceID("before-" + r.ID), Zone: "before"}
		before.Fleet = append(before.Fleet, MachineResult{ID: r.ID, Machine: m})
	}
	b := newBench(before, policy)
	b.step(message{kind: msgWake, flag: true}, message{kind: msgLook})
	clear(b.did)
	b.s = s
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	b.step(message{kind: msgChanged, ids: ids})
	return b
}

// sound is a fleet without records that are at fault.
func sound(fleet []MachineResult) (kept []MachineResult) {
	seen := map[MachineID]bool{}
	for _, r := range fleet {
		if r.ID.Validate() == nil && checkResult(&r) == nil && !seen[r.ID] {
			kept = append(kept, r)
		}
		seen[r.ID] = true
	}
	return kept
}

// LD3: a container that is gone is forgotten by those that wait for its host,
// too, however often it comes and goes.
func TestForgottenWhileItWaits(t *testing.T) {
	result := func(id MachineID) MachineResult {
		return MachineResult{ID: id, Machine: Machine{ID: id, Life: Alive, Status: StatusPending}}
	}
	b := newBench(Snapshot{Fleet: []MachineResult{result("0"), result("0/lxd/0")}}, Policy{})
	b.step(message{kind: msgWake, flag: true}, message{kind: msgLook})
	if n := len(b.e.children["0"]); n != 1 {
		t.Fatalf("%d containers wait for their host, want 1", n)
	}
	b.s.Fleet = b.s.Fleet[:1]
	b.step(message{kind: msgLook})
	if b.e.units["0/lxd/0"] != nil || len(b.e.children) != 0 {
		t.Errorf("it is still known, or still waits: %v", b.e.children)
	}
}

// withoutZones leaves out where machines start: that depends on the order in
// which they come.
func withoutZones(does map[MachineID]string) map[MachineID]string {
	kinds := map[MachineID]string{}
	for id, what := range does {
		kinds[id], _, _ = strings.Cut(what, " in ")
	}
	return kinds
}
