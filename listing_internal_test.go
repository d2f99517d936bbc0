package provisioner

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A lister is an engine that is shown listings, one after the other.
type lister struct {
	*engine
	fleet   []MachineResult
	stopped []InstanceID
}

func newLister(cfg engineConfig, fleet ...Machine) *lister {
	cfg.controller, cfg.random = "c", func() float64 { return 0.5 }
	l := &lister{engine: newEngine(cfg, Policy{Harvest: HarvestAll, MaxUnknown: 9}, Limits{})}
	for _, m := range fleet {
		l.fleet = append(l.fleet, MachineResult{ID: m.ID, Machine: m})
	}
	l.step(noon, message{kind: msgWake, flag: true})
	return l
}

// see shows a whole look, at some time after noon. Stops succeed.
func (l *lister) see(after time.Duration, instances ...Instance) {
	at := noon.Add(after)
	l.step(at, message{kind: msgLook})
	for len(l.ops) > 0 || l.backlog() {
		var in []message
		for _, o := range l.ops {
			m := message{kind: msgOutcome, op: o}
			switch o.kind {
			case opFleet:
				m.result = slices.Clone(l.fleet)
			case opListing:
				m.result = Listing{Instances: slices.Clone(instances), Complete: true}
			case opStop:
				l.stopped = append(l.stopped, o.req.(StopRequest).Instances...)
			}
			in = append(in, m)
		}
		l.step(at, in...)
	}
}

// HV9: two sightings are of one and the same instance, so that nothing is stopped
// by what was seen of another.
func TestSightingsAreOfOneInstance(t *testing.T) {
	ours := Labels{Controller: "c", Machine: "9"}
	of := func(l Labels) Instance { return Instance{ID: "x", Zone: "a", Labels: l} }
	made := func(ago time.Duration) Instance {
		return Instance{ID: "x", Zone: "a", Labels: ours, Created: noon.Add(-ago)}
	}
	for _, test := range []struct {
		why           string
		first, second []Instance
		want          bool
	}{
		{"alike", []Instance{of(ours)}, []Instance{of(ours)}, true},
		{"twice, and alike", []Instance{of(ours), of(ours)}, []Instance{of(ours), of(ours)}, true},
		{"twice, the second time another controller's", []Instance{of(ours)}, []Instance{of(ours), of(Labels{Controller: "other"})}, false},
		{"twice, the first time another controller's", []Instance{of(ours)}, []Instance{of(Labels{Controller: "other"}), of(ours)}, false},
		{"twice, the first time another machine's", []Instance{of(ours)}, []Instance{of(Labels{Controller: "c", Machine: "8"}), of(ours)}, false},
		{"relabelled", []Instance{of(ours)}, []Instance{of(Labels{Controller: "c", Machine: "8"})}, false},
		{"made anew by the same id", []Instance{made(time.Hour)}, []Instance{made(30 * time.Minute)}, false},
	} {
		l := newLister(engineConfig{labels: true}, Machine{ID: "0", Life: Alive, Instance: "i-0", Zone: "a"})
		own := Instance{ID: "i-0", Zone: "a", Labels: Labels{Controller: "c", Machine: "0"}}
		l.see(0, append(test.first, own)...)
		l.see(2*time.Minute, append(test.second, own)...)
		if got := len(l.stopped) > 0; got != test.want {
			t.Errorf("%s: stopped %v, want %v", test.why, l.stopped, test.want)
		}
	}
}

// HV9: what we have stopped, and is listed again under its id, may be another one
// that a start has made since, so it is seen anew.
func TestStoppedIsSeenAnew(t *testing.T) {
	l := newLister(engineConfig{})
	x := Instance{ID: "x", Zone: "a"}
	l.see(0, x)
	l.see(2*time.Minute, x)
	if diff := cmp.Diff([]InstanceID{"x"}, l.stopped); diff != "" {
		t.Fatal(diff)
	}
	for _, after := range []time.Duration{3, 6, 8} {
		l.see(after*time.Minute, x)
	}
	if first := l.sighted("x").First; len(l.stopped) > 1 || !first.Equal(noon.Add(8*time.Minute)) {
		t.Errorf("seen since %v, stopped %v", first, l.stopped)
	}
	if l.see(10*time.Minute, x); len(l.stopped) != 2 {
		t.Errorf("it is there still, and stopped %v", l.stopped)
	}
}

// HV11: listings in which zones are missing thaw nothing.
func TestPartialListingsDoNotThaw(t *testing.T) {
	g := newGate(Policy{}, 50, 0)
	g.partial = true

	if _, is := g.close(freeze{frozen: &Frozen{Calm: 1}}, noon); is.frozen == nil || is.frozen.Calm != 0 {
		t.Errorf("%+v", is.frozen)
	}
}

// LC8: whoever waits for a look is not left waiting for what was let be as the
// driver left.
func TestForgivenAreNotWaitedFor(t *testing.T) {
	e, now := sweeper(t, 1)
	e.running = false
	w := newWatch(nil, func() {})
	w.began, w.applied = true, true
	e.watch = append(e.watch, w)
	e.condemn(doomed{id: "x-1", kind: doomUnknown})
	e.condemn(doomed{id: "x-2", kind: doomUnknown})
	e.sweep.doomed["x-2"].op = &op{kind: opStop, doomed: e.sweep.doomed["x-2"]}
	e.step(now, message{kind: msgQuiet})
	e.doomedEnded(e.sweep.doomed["x-2"], &message{op: &op{kind: opStop}, err: ErrTimedOut})
	if len(w.dooms) != 0 || len(w.report.Results) != 2 {
		t.Errorf("waits for %v; was told %v", w.dooms, w.report.Results)
	}
}

// HV5, LD1: what is to be stopped from before is not stopped by what was known
// when somebody drove the task the last time.
func TestDoomedWaitForNewRecords(t *testing.T) {
	l := newLister(engineConfig{}, Machine{ID: "0", Life: Alive, Instance: "i-0", Zone: "a"})
	l.reaper.spared["x"], l.reaper.spared["y"] = sparing{FateSpared, "8"}, sparing{FateSpared, "9"}
	l.see(0, Instance{ID: "i-0"}, Instance{ID: "x"}, Instance{ID: "y"})
	l.step(noon, message{kind: msgQuiet})
	l.step(noon, message{kind: msgReap, spared: []InstanceID{"x", "y"}})
	l.fleet[0].Machine.Instance = "x"
	l.step(noon.Add(time.Hour), message{kind: msgWake})
	if len(l.ops) != 0 {
		t.Fatalf("before the records were read: %v", l.callsOut())
	}
	l.see(time.Hour, Instance{ID: "x"}, Instance{ID: "y"})
	if diff := cmp.Diff([]InstanceID{"y"}, l.stopped); diff != "" {
		t.Error(diff)
	}
}

// HV3: what the host remembers is older than what has been decided since.
func TestRememberedIsOlder(t *testing.T) {
	e := newEngine(engineConfig{spares: true, random: func() float64 { return 0.5 }}, Policy{}, Limits{})
	e.quiet = false
	e.reaper.spare(Machine{ID: "1", Instance: "i-1"}, FateKept)
	e.reaper.spare(Machine{ID: "2", Instance: "i-2"}, FateSpared)
	e.sparedRead(&op{kind: opSpared}, &message{result: []Spared{
		{Instance: "i-1", Machine: "1"}, {Instance: "i-2", Machine: "3", Kept: true}, {Instance: "i-3", Machine: "4"}}})
	want := map[InstanceID]sparing{"i-1": {FateKept, "1"}, "i-2": {FateKept, "3"}, "i-3": {FateSpared, "4"}}
	if diff := cmp.Diff(want, e.reaper.spared, cmp.AllowUnexported(sparing{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// HV13: a plan tells of many unknown instances in a time that grows with their
// number only, as with a wrong credential.
func TestPlanOfManyUnknown(t *testing.T) {
	s := Snapshot{Controller: "c", Labels: true, At: noon, Listing: Listing{Complete: true}}
	for i := range 50_000 {
		s.Listing.Instances = append(s.Listing.Instances, Instance{ID: InstanceID(fmt.Sprint("x-", i)), Labels: Labels{Controller: "other"}})
	}
	began := time.Now()
	text, err := json.Marshal(MakePlan(s, Policy{Harvest: HarvestAll}))
	if took := time.Since(began); err != nil || len(text) < 50_000 || took > 20*time.Second {
		t.Errorf("%d bytes in %v, %v", len(text), took, err)
	}
}
