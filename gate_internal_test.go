package provisioner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
)

var noon = time.Unix(1_000_000, 0).UTC()

// HV9, HV10: each guard by itself keeps an instance that would be stopped
// otherwise.
func TestJudge(t *testing.T) {
	type facts struct {
		i        Instance
		first    time.Time
		odd      bool
		labels   bool
		unsure   string
		failed   []ZoneName
		left     Verdict
		starting bool
		m        *Machine
		shown    bool
		mode     HarvestMode
		grace    time.Duration
	}
	for _, test := range []struct {
		why    string
		change func(f *facts)
		want   Verdict
	}{
		{"HV9: all of it holds", func(f *facts) {}, VerdictStop},
		{"HV3: kept", func(f *facts) { f.left = VerdictKept }, VerdictKept},
		{"HV10: another controller's", func(f *facts) { f.i.Labels.Controller = "other" }, VerdictForeign},
		{"HV10: also of a broker that says that it can't label", func(f *facts) { f.i.Labels.Controller, f.labels = "other", false }, VerdictForeign},
		{"HV10: no label, of a broker that labels", func(f *facts) { f.i.Labels = Labels{} }, VerdictUnlabelled},
		{"HV10: no label, of one that can't: the mode decides", func(f *facts) { f.i.Labels, f.labels = Labels{}, false }, VerdictStop},
		{"HV10: a machine's label, and no controller's", func(f *facts) { f.i.Labels.Controller = "" }, VerdictUnlabelled},
		{"HV10: ours, and no machine's", func(f *facts) { f.i.Labels.Machine = "" }, VerdictUnlabelled},
		{"HV10: ours, and not a machine's id", func(f *facts) { f.i.Labels.Machine = "0/" }, VerdictUnlabelled},
		{"HV10: that holds also of a broker that can't label", func(f *facts) { f.i.Labels.Machine, f.labels = "", false }, VerdictUnlabelled},
		{"HV9: perhaps a start's", func(f *facts) { f.starting = true }, VerdictStarting},
		{"HV9: a record could not be read", func(f *facts) { f.unsure = "why" }, VerdictUnsure},
		{"listed twice, and not alike", func(f *facts) { f.odd = true }, VerdictUnsure},
		{"HV9: its zone did not answer", func(f *facts) { f.failed = []ZoneName{"b", "a"} }, VerdictUnsure},
		{"HV9: perhaps its zone", func(f *facts) { f.failed, f.i.Zone = []ZoneName{"b"}, "" }, VerdictUnsure},
		{"another zone did not", func(f *facts) { f.failed = []ZoneName{"b"} }, VerdictStop},
		{"ST19: its machine has no instance", func(f *facts) { f.m = &Machine{ID: "9", Life: Alive} }, VerdictAdopt},
		{"HV2: one too many, in a mode that stops none", func(f *facts) {
			f.m, f.shown, f.mode = &Machine{ID: "9", Life: Alive, Instance: "i-9"}, true, HarvestNone
		}, VerdictStop},
		{"its machine's own is not there", func(f *facts) { f.m = &Machine{ID: "9", Life: Alive, Instance: "i-9"} }, VerdictUnsure},
		{"HV3: its machine is to keep its instance", func(f *facts) { f.m, f.shown = &Machine{ID: "9", Instance: "i-9", Keep: true}, true }, VerdictKept},
		{"HV3: or may be", func(f *facts) { f.m, f.shown = &Machine{ID: "9", Instance: "i-9", Unread: FieldKeep}, true }, VerdictKept},
		{"one too many is seen twice as well", func(f *facts) {
			f.m, f.shown, f.first = &Machine{ID: "9", Life: Alive, Instance: "i-9"}, true, noon
		}, VerdictOnce},
		{"HV2: the mode forbids it", func(f *facts) { f.mode = HarvestDestroyed }, VerdictMode},
		{"HV9: too young", func(f *facts) { f.i.Created = noon.Add(-59 * time.Second) }, VerdictYoung},
		{"HV9: made in the future of our clock", func(f *facts) { f.i.Created = noon.Add(time.Hour) }, VerdictYoung},
		{"HV9: the broker does not tell when", func(f *facts) { f.i.Created = time.Time{} }, VerdictStop},
		{"HV9: not seen before", func(f *facts) { f.first = time.Time{} }, VerdictOnce},
		{"HV9: seen too shortly before", func(f *facts) { f.first = noon.Add(-59 * time.Second) }, VerdictOnce},
		{"HV9: with no grace it is seen twice all the same", func(f *facts) { f.first, f.grace = time.Time{}, Off }, VerdictOnce},
		{"no grace", func(f *facts) { f.first, f.grace = noon, Off }, VerdictStop},
	} {
		f := facts{i: Instance{ID: "i-x", Zone: "a", Created: noon.Add(-time.Minute), Labels: Labels{Controller: "c", Machine: "9"}}, first: noon.Add(-time.Minute), labels: true, mode: HarvestAll}
		test.change(&f)
		s := &sighting{Unclaimed: Unclaimed{Instance: f.i, First: f.first}, odd: f.odd}
		got, reason := judge(s, &gateFacts{
			at: noon, controller: "c", labels: f.labels, unsure: f.unsure, failed: f.failed,
			left: func(InstanceID) (Verdict, string) { return f.left, string(f.left) },
			start: func(MachineID, time.Time) string {
				if f.starting {
					return "a start"
				}
				return ""
			},
			machine: func(id MachineID) (Machine, bool, bool) {
				if f.m == nil || id != f.m.ID {
					return Machine{}, false, false
				}
				return *f.m, true, f.shown
			},
		}, Policy{Harvest: f.mode, UnknownGrace: f.grace})
		if got != test.want || reason == "" {
			t.Errorf("%s: %s (%s), want %s", test.why, got, reason, test.want)
		}
	}
}

// passOf lets instances of some ages go through a gate that each of them passes.
func passOf(p Policy, listed int, was freeze, ages map[InstanceID]time.Duration) (stop []InstanceID, is freeze, verdicts map[InstanceID]Verdict) {
	p.Harvest = HarvestAll
	g := newGate(p, listed, 0)
	f := &gateFacts{
		at: noon, controller: "c",
		left:    func(InstanceID) (Verdict, string) { return "", "" },
		start:   func(MachineID, time.Time) string { return "" },
		machine: func(MachineID) (m Machine, known, shown bool) { return },
	}
	var all []*sighting
	for id, age := range ages {
		all = append(all, &sighting{Unclaimed: Unclaimed{Instance: Instance{ID: id, Created: noon.Add(-age)}, First: noon.Add(-time.Hour)}})
	}
	for _, s := range all {
		g.add(s, f, false)
	}
	gone, is := g.close(was, noon)
	for _, s := range gone {
		stop = append(stop, s.Instance.ID)
	}
	verdicts = map[InstanceID]Verdict{}
	for _, s := range all {
		verdicts[s.Instance.ID] = s.Verdict
	}
	return stop, is, verdicts
}

func agesOf(n int) map[InstanceID]time.Duration {
	ages := map[InstanceID]time.Duration{}
	for i := range n {
		ages[InstanceID(fmt.Sprint("i-", i))] = time.Duration(100+i) * time.Minute
	}
	return ages
}

// HV11: the budget is the larger of 1 and 10 % of those listed; the oldest come
// first, then the lower id.
func TestBudget(t *testing.T) {
	old := map[InstanceID]time.Duration{"i-3": 5 * time.Hour, "i-1": 3 * time.Hour, "i-2": 3 * time.Hour}
	for _, test := range []struct {
		why    string
		policy Policy
		listed int
		want   []InstanceID
	}{
		{"1 of few", Policy{}, 5, []InstanceID{"i-3"}},
		{"10 % of 29", Policy{}, 29, []InstanceID{"i-1", "i-3"}},
		{"10 % of 30", Policy{}, 30, []InstanceID{"i-1", "i-2", "i-3"}},
		{"as many as are said", Policy{MaxUnknown: 2}, 1000, []InstanceID{"i-1", "i-3"}},
	} {
		got, _, verdicts := passOf(test.policy, test.listed, freeze{}, old)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.why, diff)
		}
		for id, v := range verdicts {
			if want := slices.Contains(test.want, id); want != (v == VerdictStop) || !want && v != VerdictBudget {
				t.Errorf("%s: %s is %s", test.why, id, v)
			}
		}
	}
}

// HV11: more than the larger of 3 and 20 % of those listed freeze; two listings
// in a row below half of that thaw.
func TestFreeze(t *testing.T) {
	for _, test := range []struct {
		unknown, listed int
		freezes, calms  bool
	}{
		{3, 3, false, false}, {4, 4, true, false}, {4, 20, false, false}, {4, 19, true, false}, {1, 4, false, true}, {2, 4, false, false},
		{20, 100, false, false}, {21, 100, true, false}, {10, 100, false, false}, {9, 100, false, true}, {0, 0, false, true},
	} {
		_, is, _ := passOf(Policy{}, test.listed, freeze{}, agesOf(test.unknown))
		if got := is.frozen != nil; got != test.freezes {
			t.Errorf("%d of %d: frozen %v, want %v", test.unknown, test.listed, got, test.freezes)
		}
		stop, is, _ := passOf(Policy{}, test.listed, freeze{frozen: &Frozen{}}, agesOf(test.unknown))
		if is.frozen == nil || is.frozen.Calm == 1 != test.calms || stop != nil {
			t.Errorf("%d of %d while frozen: %+v, stopped %v; want one calm listing: %v", test.unknown, test.listed, is.frozen, stop, test.calms)
		}
	}
	_, is, _ := passOf(Policy{}, 100, freeze{frozen: &Frozen{Calm: 1}}, agesOf(1))
	if is.frozen != nil {
		t.Error("two calm listings in a row do not thaw")
	}
	if _, is, _ = passOf(Policy{}, 100, freeze{frozen: &Frozen{Calm: 1}}, agesOf(15)); is.frozen == nil || is.frozen.Calm != 0 {
		t.Errorf("one that is not calm in between counts: %+v", is.frozen)
	}
}

// HV11: an approval holds for that very set, or what is left of it, and no other.
func TestApproval(t *testing.T) {
	set := func(ids ...InstanceID) map[InstanceID]bool {
		m := map[InstanceID]bool{}
		for _, id := range ids {
			m[id] = true
		}
		return m
	}
	five := set("i-0", "i-1", "i-2", "i-3", "i-4")
	for _, test := range []struct {
		why  string
		was  freeze
		n    int
		want bool
	}{
		{"the very set", freeze{&Frozen{}, five}, 5, true},
		{"what is left of it", freeze{&Frozen{}, five}, 4, true},
		{"one more", freeze{&Frozen{}, five}, 6, false},
		{"nothing was approved", freeze{&Frozen{}, nil}, 5, false},
	} {
		stop, is, _ := passOf(Policy{MaxUnknown: 2}, 6, test.was, agesOf(test.n))
		if got := len(stop) > 0; got != test.want || got != (is.frozen == nil) || got != (is.approved != nil) {
			t.Errorf("%s: stopped %v, then %+v", test.why, stop, is)
		}
	}
	if _, is, _ := passOf(Policy{}, 6, freeze{nil, five}, nil); is.approved != nil {
		t.Error("an approval outlives its set")
	}
	_, a, _ := passOf(Policy{}, 6, freeze{}, agesOf(5))
	_, b, _ := passOf(Policy{}, 9, freeze{}, agesOf(5))
	_, c, _ := passOf(Policy{}, 6, freeze{}, agesOf(4))
	if a.frozen.Plan != b.frozen.Plan || a.frozen.Plan == c.frozen.Plan || len(a.frozen.Plan) != 16 {
		t.Errorf("plans %q and %q are of one set, %q is of another", a.frozen.Plan, b.frozen.Plan, c.frozen.Plan)
	}
}

// LD8, HV13: what the engine does about unclaimed instances is what a plan says
// that is made from the same facts, and each has a reason.
func TestPlanSaysWhatTheSweepDoes(t *testing.T) {
	stops, seenOnce := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		labels := r.IntN(2) == 0
		policy := Policy{Harvest: HarvestMode(r.IntN(4)), MaxUnknown: r.IntN(3)}
		var fleet []MachineResult
		for i := range r.IntN(12) {
			id := MachineID(fmt.Sprint(i))
			m := Machine{ID: id, Life: Alive, Zone: "a", Status: StatusStarted, Keep: r.IntN(9) == 0}
			if r.IntN(4) > 0 {
				m.Instance = InstanceID("i-" + id)
			}
			one := MachineResult{ID: id, Machine: m}
			if r.IntN(60) == 0 {
				one.Err = errors.Unauthorizedf("machine %s", id)
			}
			fleet = append(fleet, one)
		}
		fleet = sortedFleet(fleet)
		listing := func(whole bool) Listing {
			l := Listing{Complete: whole || r.IntN(12) > 0}
			if r.IntN(6) == 0 {
				l.Failed = []ZoneName{"b"}
			}
			for i := range 16 {
				id := MachineID(fmt.Sprint(i))
				if i < len(fleet) && r.IntN(30) > 0 || r.IntN(12) == 0 {
					l.Instances = append(l.Instances, Instance{ID: InstanceID("i-" + id), Zone: "a", Labels: Labels{Controller: "c", Machine: id}})
				}
				x := Instance{ID: InstanceID("x-" + id), Zone: []ZoneName{"a", "b"}[i%2], Created: noon.Add(-time.Duration(i*i) * 10 * time.Second)}
				if i%5 > 0 {
					x.Labels = Labels{Controller: []string{"c", "c", "c", "other"}[i%4], Machine: id}
				}
				if i%4 == 0 && r.IntN(5) > 0 || r.IntN(16) == 0 {
					l.Instances = append(l.Instances, x)
				}
			}
			return l
		}
		e := newEngine(engineConfig{controller: "c", labels: labels, refresh: time.Minute, random: func() float64 { return 0.5 }}, policy, Limits{Stops: 1000})
		e.step(noon, message{kind: msgWake, flag: true})
		e.reaper.spared["x-1"], e.reaper.spared["x-2"] = sparing{FateKept, "90"}, sparing{FateSpared, "91"}
		look := func(at time.Time, l Listing) {
			e.step(at, message{kind: msgLook})
			for len(e.ops) > 0 || e.backlog() {
				var in []message
				for _, o := range e.ops {
					switch o.kind {
					case opFleet:
						in = append(in, message{kind: msgOutcome, op: o, result: fleet})
					case opListing:
						in = append(in, message{kind: msgOutcome, op: o, result: Listing{slices.Clone(l.Instances), l.Complete, l.Failed}})
					}
				}
				e.step(at, in...)
				e.take()
				reading := func(o *op) bool { return o.kind == opFleet || o.kind == opListing }
				if slices.ContainsFunc(e.ops, reading) {
					continue
				}
				if len(in) == 0 && !e.backlog() {
					break // only stops are out
				}
			}
		}
		look(noon, listing(true))
		s := Snapshot{Fleet: fleet, Controller: "c", Labels: labels}
		e.addSeen(&s)
		s.Doing = e.doing()
		s.At = noon.Add(2 * time.Minute)
		s.Listing = listing(false)
		look(s.At, s.Listing)
		plan := MakePlan(s, policy)
		if !s.Listing.Complete {
			if len(plan.Sweep.Stop) > 0 {
				t.Fatalf("seed %d: a listing that is not complete stops %v", seed, plan.Sweep.Stop)
			}
			continue
		}
		var doomed, planned []InstanceID
		for id := range e.sweep.doomed {
			if !slices.Contains(s.Doomed, id) {
				doomed = append(doomed, id)
			}
		}
		slices.Sort(doomed)
		for _, u := range plan.Sweep.Stop {
			planned = append(planned, u.Instance.ID)
		}
		if diff := cmp.Diff(planned, doomed); diff != "" {
			t.Fatalf("seed %d, mode %s (-planned +done):\n%s\n%s", seed, policy.Harvest, diff, plan)
		}
		stops += len(doomed)
		for _, u := range plan.Sweep.Left {
			x := e.explainInstance(u.Instance.ID)
			if u.Verdict == VerdictOnce {
				seenOnce++
				continue // the engine has seen them now
			}
			if x.Verdict != u.Verdict || x.Reason != u.Reason {
				t.Fatalf("seed %d: %s is planned to be %s (%s), and is %s (%s)", seed, u.Instance.ID, u.Verdict, u.Reason, x.Verdict, x.Reason)
			}
		}
	}
	if stops < 500 || seenOnce < 500 {
		t.Errorf("%d were stopped, %d seen once: too few to tell", stops, seenOnce)
	}
}
