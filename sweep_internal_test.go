package provisioner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
)

// ended answers an operation.
func ended(o *op, result any, err error) message {
	return message{kind: msgOutcome, op: o, result: result, err: err}
}

// told are the events of a step, in one line each.
func told(e *engine) (lines []string) {
	_, _, events := e.take()
	for _, ev := range events {
		lines = append(lines, ev.String())
	}
	return lines
}

func sweeper(t *testing.T, stops int) (*engine, time.Time) {
	t.Helper()
	now := time.Unix(1000, 0)
	e := newEngine(engineConfig{random: func() float64 { return 0.5 }}, Policy{}, Limits{Stops: stops})
	e.step(now, message{kind: msgWake, flag: true})
	e.take()
	return e, now
}

// HV7, HV8: what is doomed is stopped once, by id, within the limit of stops,
// and tried again until it is gone.
func TestDoomed(t *testing.T) {
	e, now := sweeper(t, 1)
	for _, id := range []InstanceID{"i-3", "i-1", "", "i-1", "i-2"} {
		e.doom(id, "7", "one too many")
	}
	e.step(now)
	if out, _, _ := e.take(); len(out) != 1 || out[0].String() != "stopping" || out[0].machine() != "7" {
		t.Fatalf("one stop at a time: %v", out)
	}
	if diff := cmp.Diff([]string{"stopping instance i-1"}, e.callsOut()); diff != "" {
		t.Error(diff)
	}
	e.step(now, ended(e.ops[0], nil, errors.New("boom")))
	want := []doomInfo{{"i-1", "7", "one too many", errors.New("boom"), now.Add(time.Second)}, {"i-2", "7", "one too many", nil, time.Time{}}, {"i-3", "7", "one too many", nil, time.Time{}}}
	opts := cmp.Options{cmp.AllowUnexported(doomInfo{}), cmp.Comparer(func(a, b error) bool { return errorText(a) == errorText(b) })}
	if diff := cmp.Diff(want, e.dooms(), opts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 2 {
		e.step(now, ended(e.ops[0], nil, nil))
	}
	if len(e.ops) != 0 {
		t.Fatalf("a stop before its back-off is over: %v", e.ops)
	}
	e.step(now.Add(time.Second))
	e.step(now.Add(time.Second), ended(e.ops[0], nil, nil))
	if got := e.dooms(); got != nil || e.stops.Used() != 0 || !e.reaper.accounted("i-1") {
		t.Errorf("doomed still: %v; places taken: %d", got, e.stops.Used())
	}
	if diff := cmp.Diff([]string{
		`reaping machine=7 instance=i-1 text="one too many"`,
		`reap-failed machine=7 instance=i-1 next=1s err="boom"`,
		`reaping machine=7 instance=i-2 text="one too many"`,
		`reaped machine=7 instance=i-2`,
		`reaping machine=7 instance=i-3 text="one too many"`,
		`reaped machine=7 instance=i-3`,
		`reaping machine=7 instance=i-1 text="one too many"`,
		`reaped machine=7 instance=i-1`,
	}, append([]string{`reaping machine=7 instance=i-1 text="one too many"`}, told(e)...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// HV5: an instance that is spoken for by the time of its turn is let be, and
// nothing is begun while the task is quiet.
func TestDoomedSpokenFor(t *testing.T) {
	e, now := sweeper(t, 1)
	e.doom("i-1", "7", "one too many")
	u := e.unitOf("8")
	e.applyRecord(u, Machine{ID: "8", Life: Alive, Instance: "i-1"})
	e.step(now)
	if got := e.dooms(); got != nil || len(e.ops) != 0 {
		t.Errorf("i-1 is machine 8's now: %v, %v", got, e.ops)
	}
	if diff := cmp.Diff([]string{`pardoned machine=7 instance=i-1 text="it is in the record of machine 8"`}, told(e)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	e.doom("i-2", "7", "one too many")
	e.step(now, message{kind: msgQuiet})
	if len(e.ops) != 0 || len(e.dooms()) != 1 {
		t.Errorf("begun while quiet, or forgotten: %v", e.ops)
	}
	e.step(now, message{kind: msgWake, flag: true})
	if len(e.ops) != 1 {
		t.Errorf("not begun when it goes on: %v", e.ops)
	}
}

// HV3, HV4: an unknown instance that was spared while it waited is let be, and so
// is one that somebody has stopped; one that the host has asked for is not, unless
// it was kept.
func TestReprieve(t *testing.T) {
	e, now := sweeper(t, 1)
	e.look.loaded = true
	e.list.last = &survey{seen: map[InstanceID]*sighting{}, began: now}
	e.reaper.spared["i-kept"], e.reaper.spared["i-spared"] = sparing{FateKept, "1"}, sparing{FateSpared, "2"}
	e.reaper.stopped["i-stopped"] = now
	for _, test := range []struct {
		id   InstanceID
		kind doomKind
		want bool
	}{
		{"i-kept", doomUnknown, false}, {"i-kept", doomSurplus, false}, {"i-kept", doomSpared, false},
		{"i-spared", doomUnknown, false}, {"i-spared", doomSurplus, false}, {"i-spared", doomSpared, true},
		{"i-stopped", doomSurplus, false}, {"i-new", doomSurplus, true}, {"i-new", doomUnknown, false},
	} {
		why, _ := e.reprieve(&doomed{id: test.id, kind: test.kind})
		if (why == "") != test.want {
			t.Errorf("%s, kind %d: %q, want that it goes: %v", test.id, test.kind, why, test.want)
		}
	}
	e.reapSpared([]InstanceID{"i-kept", "i-spared", "i-new"})
	if len(e.sweep.doomed) != 1 || e.sweep.doomed["i-spared"] == nil {
		t.Errorf("HV3: what was kept is never asked for: %v", e.sweep.doomed)
	}
}

// HV8: dead machines' instances come first, whatever the ids.
func TestDeadBeforeDoomed(t *testing.T) {
	e, now := sweeper(t, 1)
	e.look.loaded = true
	e.doom("i-1", "7", "one too many")
	u := e.unitOf("9")
	u.set(flagKnown)
	e.applyRecord(u, Machine{ID: "9", Life: Dead, Instance: "i-9"})
	e.consider(u)
	for _, want := range []InstanceID{"i-9", "i-1"} {
		e.step(now)
		if len(e.ops) != 1 || e.ops[0].req.(StopRequest).Instances[0] != want {
			t.Fatalf("%v are out, want the stop of %s", e.callsOut(), want)
		}
		e.step(now, ended(e.ops[0], nil, nil))
		if len(e.ops) > 0 && e.ops[0].kind == opRemove {
			e.step(now, ended(e.ops[0], nil, nil))
		}
		for _, o := range e.opsInOrder() {
			if o.kind == opRemove {
				e.step(now, ended(o, nil, nil))
			}
		}
	}
}

// LD1: what was to be stopped as unknown when the driver left is not stopped by
// what was known then; what the Task has made still is.
func TestUnknownAreForgivenWhenNobodyDrives(t *testing.T) {
	e, now := sweeper(t, 1)
	for id, kind := range map[InstanceID]doomKind{"i-1": doomSurplus, "i-2": doomUnknown, "i-3": doomUnknown} {
		e.condemn(doomed{id: id, kind: kind})
	}
	e.sweep.doomed["i-3"].op = &op{kind: opStop, doomed: e.sweep.doomed["i-3"]}
	e.hush(false)
	if len(e.sweep.doomed) != 2 || e.sweep.doomed["i-2"] != nil {
		t.Errorf("left are %v", e.sweep.doomed)
	}
	e.doomedEnded(e.sweep.doomed["i-3"], &message{op: &op{kind: opStop}, err: errors.New("cut off")})
	e.step(now)
	if len(e.sweep.doomed) != 1 || e.sweep.doomed["i-1"] == nil {
		t.Errorf("left are %v", e.sweep.doomed)
	}
	if why := e.unsure(); why == "" {
		t.Error("records that have not been read make nothing unsure")
	}
}
