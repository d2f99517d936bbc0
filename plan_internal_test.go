package provisioner

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
)

// randomSnapshot makes the same fleet from the same seed: small, and full of
// what must not happen.
func randomSnapshot(seed uint64, machines int) (Snapshot, Policy) {
	r := rand.New(rand.NewPCG(seed, 7))
	pick := func(n int) bool { return r.IntN(n) == 0 }
	zone := func() ZoneName {
		return ZoneName([]string{"a", "b", "c", "d", "gone", ""}[r.IntN(6)])
	}
	names := func() (list []ZoneName) {
		for range r.IntN(4) {
			list = append(list, zone())
		}
		return list
	}
	id := func() MachineID {
		top := MachineID(fmt.Sprint(r.IntN(machines + 1)))
		switch r.IntN(12) {
		case 0, 1, 2:
			return top + "/lxd/" + MachineID(fmt.Sprint(r.IntN(3)))
		case 3:
			return top + "/kvm/0/lxd/" + MachineID(fmt.Sprint(r.IntN(2)))
		case 4:
			return []MachineID{"", "x/", "0/lxd", "-", "web-1"}[r.IntN(5)]
		}
		return top
	}
	phases := []Phase{PhaseResting, PhaseQueued, PhasePreparing, PhaseStarting, PhaseWaiting, PhaseConfirming, PhaseUndoing,
		PhaseStopping, PhaseRemoving, PhaseResetting, PhaseMaintaining, PhaseFailed, "invented"}
	s := Snapshot{CanEnsureDead: pick(2), CanMaintain: pick(2), ZonesUnread: pick(10), Needs: map[MachineID]Needs{}, Doing: map[MachineID]Doing{}}
	keyed := []Group{{Key: "k0"}, {Key: "k1"}}
	for i := range keyed {
		for range r.IntN(machines + 1) {
			keyed[i].Members = append(keyed[i].Members, id())
		}
	}
	for range machines {
		m := Machine{ID: id(), Life: []Life{Alive, Alive, Alive, Dying, Dead, Dead, "odd"}[r.IntN(7)], Keep: pick(4)}
		if !pick(3) {
			m.Instance = InstanceID(fmt.Sprint("i-", r.IntN(machines*2)))
			m.Zone = zone()
		}
		m.Status = []Status{StatusPending, StatusPending, StatusStarted, StatusError, ""}[r.IntN(5)]
		m.InstanceStatus = []InstanceStatus{InstanceAllocating, InstanceRunning, InstanceProvisioningError, ""}[r.IntN(4)]
		if pick(6) {
			m.Unread = Fields(r.IntN(16))
		}
		result := MachineResult{ID: m.ID, Machine: m}
		switch r.IntN(20) {
		case 0:
			result.Err = errors.New("unreadable")
		case 1:
			result.Machine.ID = id()
		}
		s.Fleet = append(s.Fleet, result)
		if pick(4) {
			s.Doing[m.ID] = Doing{Phase: phases[r.IntN(len(phases))], Zone: zone()}
		}
		if pick(2) {
			needs := Needs{Zones: names(), Derived: names()}
			for range r.IntN(4) {
				needs.Group.Members = append(needs.Group.Members, id())
			}
			if pick(3) {
				needs.Group = keyed[r.IntN(2)]
			}
			if pick(8) {
				needs.Err = errors.New("needless")
			}
			s.Needs[m.ID] = needs
		}
	}
	if !pick(4) {
		for _, z := range []ZoneName{"a", "b", "c", "d"} {
			if !pick(4) {
				s.Zones = append(s.Zones, Zone{z, !pick(4)})
			}
		}
	}
	for i := range machines {
		if pick(2) {
			s.Listing.Instances = append(s.Listing.Instances, Instance{ID: InstanceID(fmt.Sprint("i-", i)), Zone: zone()})
		}
	}
	p := Policy{Harvest: HarvestMode(r.IntN(4)), Tie: TieBreak(r.IntN(2))}
	if pick(3) {
		p.Weights = map[ZoneName]int{"a": r.IntN(5), "c": r.IntN(3)}
	}
	if pick(4) {
		p.MaxSkew, p.MinZones = 1+r.IntN(2), r.IntN(4)
	}
	return s, p
}

func FuzzMakePlan(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, int(seed*seed%60))
	}
	f.Fuzz(func(t *testing.T, seed uint64, machines int) {
		if machines < 0 || machines > 80 {
			t.Skip()
		}
		s, policy := randomSnapshot(seed, machines)
		plan := MakePlan(s, policy)
		if untouched, _ := randomSnapshot(seed, machines); !reflect.DeepEqual(untouched, s) {
			t.Fatal("the snapshot was changed")
		}
		everyMachineOnce(t, s, plan)
		nothingForbidden(t, s, policy, plan)
		startsAreSound(t, s, plan)
		inOrder(t, plan)

		shuffled := s
		r := rand.New(rand.NewPCG(seed, 8))
		shuffled.Fleet = slices.Clone(s.Fleet)
		r.Shuffle(len(shuffled.Fleet), func(i, j int) {
			shuffled.Fleet[i], shuffled.Fleet[j] = shuffled.Fleet[j], shuffled.Fleet[i]
		})
		shuffled.Listing.Instances = slices.Clone(s.Listing.Instances)
		slices.Reverse(shuffled.Listing.Instances)
		again := MakePlan(shuffled, policy)
		one, err := json.Marshal(plan)
		other, err2 := json.Marshal(again)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if diff := cmp.Diff(string(one), string(other)); diff != "" {
			t.Fatalf("the order of the fleet or the listing matters:\n%s", diff)
		}
		if diff := cmp.Diff(plan.String(), again.String()); diff != "" {
			t.Fatal(diff)
		}
		slices.Reverse(shuffled.Zones)
		moved := MakePlan(shuffled, policy)
		for i := range plan.Actions {
			if one, other := plan.Actions[i].String(), moved.Actions[i].String(); one != other {
				t.Fatalf("AZ5: the order of the zones matters: %s, or %s", one, other)
			}
		}
	})
}

func everyMachineOnce(t *testing.T, s Snapshot, plan Plan) {
	t.Helper()
	times := map[MachineID]int{}
	for _, r := range s.Fleet {
		times[r.ID] = 0
	}
	for _, a := range slices.Concat(plan.Actions, plan.Left) {
		if _, ok := times[a.Was.ID]; !ok {
			t.Fatalf("machine %q came from nowhere", a.Was.ID)
		}
		if times[a.Was.ID]++; a.Reason == "" {
			t.Fatalf("HV13: no reason: %+v", a)
		}
	}
	for id, n := range times {
		if n != 1 {
			t.Fatalf("machine %q is in the plan %d times:\n%v", id, n, plan)
		}
	}
	for _, a := range plan.Left {
		if a.Kind != ActionLeave || a.Zone != "" {
			t.Fatalf("left alone: %+v", a)
		}
	}
}

// nothingForbidden holds what is stopped and removed to HV2–HV7.
func nothingForbidden(t *testing.T, s Snapshot, policy Policy, plan Plan) {
	t.Helper()
	stopped := map[InstanceID]bool{}
	for _, a := range plan.Actions {
		m := a.Was
		if a.Err != nil || a.LookAgain {
			t.Fatalf("done without knowing: %+v", a)
		}
		if p := s.Doing[m.ID].Phase; a.Kind != ActionCancel && p != PhaseResting && p != PhaseFailed {
			t.Fatalf("LD6: %s of a machine that is %s", a.Kind, p)
		}
		switch a.Kind {
		case ActionStop:
			if m.Life != Dead || m.Instance == "" || m.Unread.Has(FieldInstance) || !policy.Harvest.Destroyed() {
				t.Fatalf("HV2: in mode %v stopped %+v", policy.Harvest, m)
			}
			if m.Keep || m.Unread.Has(FieldKeep) {
				t.Fatalf("HV3: stopped %+v", m)
			}
			if stopped[m.Instance] {
				t.Fatalf("HV7: %s is stopped twice", m.Instance)
			}
			stopped[m.Instance] = true
			for _, r := range s.Fleet {
				o := r.Machine
				claims := r.Err == nil && o.Instance == m.Instance && !o.Unread.Has(FieldInstance) && r.ID != m.ID && r.ID != ""
				if claims && (o.Life != Dead || o.Keep || o.Unread.Has(FieldKeep)) {
					t.Fatalf("HV5: %s is stopped, and %+v has it", m.Instance, r)
				}
			}
		case ActionRemove:
			settled := m.Instance == "" || a.Fate == FateKept && keptByOne(s, m.Instance) || !policy.Harvest.Destroyed()
			if m.Unread.Has(FieldInstance) || !settled {
				t.Fatalf("HV6: removed %+v", m)
			}
			if m.Life != Dead && !(m.Life == Dying && m.Instance == "" && a.EnsureDead && s.CanEnsureDead) {
				t.Fatalf("CL3: removed %+v", a)
			}
		case ActionMaintain:
			if m.Life != Alive || m.Instance == "" || !m.ID.IsContainer() || !s.CanMaintain {
				t.Fatalf("CL7: upkeep of %+v", m)
			}
		case ActionCancel:
			if m.Life == Alive && m.Instance == "" {
				t.Fatalf("ST13: cancelled the start of %+v", m)
			}
		case ActionStart:
		default:
			t.Fatalf("to do: %+v", a)
		}
	}
}

// keptByOne says whether a dead machine keeps the instance.
func keptByOne(s Snapshot, id InstanceID) bool {
	return slices.ContainsFunc(s.Fleet, func(r MachineResult) bool {
		return r.Machine.Instance == id && r.Machine.Life == Dead && r.Machine.Keep && !r.Machine.Unread.Has(FieldKeep|FieldInstance)
	})
}

func startsAreSound(t *testing.T, s Snapshot, plan Plan) {
	t.Helper()
	records := map[MachineID]Machine{}
	for _, r := range s.Fleet {
		if records[r.ID] = r.Machine; r.Err != nil {
			records[r.ID] = Machine{ID: r.ID}
		}
	}
	for _, a := range plan.Actions {
		if a.Kind != ActionStart {
			continue
		}
		m, needs := a.Was, s.Needs[a.Was.ID]
		if m.Life != Alive || m.Instance != "" || m.Unread.Has(FieldInstance) || s.ZonesUnread || needs.Err != nil {
			t.Fatalf("CL4: started %+v", m)
		}
		if host, ok := records[m.ID.Host()]; ok && m.ID.IsContainer() && (host.Life != Alive || host.Instance == "" || host.Unread.Has(FieldInstance)) {
			t.Fatalf("started %s on %+v", m.ID, host)
		}
		if m.ID.IsContainer() || len(s.Zones) == 0 {
			if a.Zone != "" {
				t.Fatalf("AZ1: %+v", a)
			}
			continue
		}
		if !slices.Contains(s.Zones, Zone{a.Zone, true}) ||
			len(needs.Zones) > 0 && !slices.Contains(needs.Zones, a.Zone) ||
			len(needs.Derived) > 0 && !slices.Contains(needs.Derived, a.Zone) {
			t.Fatalf("AZ4: %v with %+v among %v", a, needs, s.Zones)
		}
	}
	sum := 0
	for _, z := range plan.Zones {
		sum += z.Machines
	}
	if sum > len(s.Fleet) {
		t.Fatalf("AZ7: %d machines counted of %d", sum, len(s.Fleet))
	}
}

func inOrder(t *testing.T, plan Plan) {
	t.Helper()
	kinds := []ActionKind{ActionCancel, ActionStop, ActionRemove, ActionMaintain, ActionStart}
	if !slices.IsSortedFunc(plan.Actions, func(a, b Action) int {
		if c := slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind); c != 0 {
			return c
		}
		if a.Kind == ActionStop {
			return strings.Compare(string(a.Was.Instance), string(b.Was.Instance))
		}
		return a.Was.ID.Compare(b.Was.ID)
	}) {
		t.Fatalf("HV6, HV8, CL11: out of order:\n%v", plan)
	}
	if !slices.IsSortedFunc(plan.Left, func(a, b Action) int { return a.Was.ID.Compare(b.Was.ID) }) {
		t.Fatalf("out of order:\n%v", plan)
	}
}

func TestSortedFleet(t *testing.T) {
	ids := []MachineID{"", "-", "/", "0", "00", "0/lxd/1", "007", "7", "7/lxd/2", "7/lxd/10", "10", "999999999999999999", "1000000000000000000",
		"18446744073709551616", "000000000000000000000000000001", "99999999999999999999999", "a", "a2", "a10", "z", "é"}
	want := slices.Clone(ids)
	slices.SortFunc(want, MachineID.Compare)
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		var in []MachineResult
		for _, id := range ids {
			in = append(in, MachineResult{ID: id})
		}
		var got []MachineID
		for _, result := range sortedFleet(in) {
			got = append(got, result.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("from %q (-want +got):\n%s", ids, diff)
		}
		for i := range in {
			if in[i].ID != ids[i] {
				t.Fatal("what was given is changed")
			}
		}
	}
}

// HV5, HV7: who decides about an instance that several records have, in
// whatever order they come.
func TestRivalOf(t *testing.T) {
	alive := func(id MachineID) Machine { return Machine{ID: id, Life: Alive, Instance: "i-5"} }
	dead := func(id MachineID) Machine { return Machine{ID: id, Life: Dead, Instance: "i-5"} }
	keeps, mayKeep := dead("8"), dead("8")
	keeps.Keep, mayKeep.Unread = true, FieldKeep
	tests := []struct {
		why    string
		others []Machine
		want   rival
	}{
		{"nobody", nil, rival{}},
		{"the lowest owner, by number", []Machine{alive("10"), alive("9"), dead("1")}, rival{owner: "9", first: "1"}},
		{"a dying one is an owner", []Machine{{ID: "9", Life: Dying, Instance: "i-5"}}, rival{owner: "9"}},
		{"so is one whose life is unknown", []Machine{{ID: "9", Life: "odd", Instance: "i-5"}}, rival{owner: "9"}},
		{"a dead one that keeps it decides for all (HV3)", []Machine{keeps, dead("3"), alive("9")}, rival{owner: "9", keeper: "8", first: "3"}},
		{"one that may keep it is", []Machine{mayKeep}, rival{owner: "8"}},
		{"the lowest dead one sees to the stop", []Machine{dead("4"), dead("3"), dead("40")}, rival{first: "3"}},
		{"a dead one that comes later leaves it to this", []Machine{dead("6"), dead("10")}, rival{}},
		{"a nameless one is nobody's, and hides nobody", []Machine{alive("9"), alive(""), dead("3"), dead("")}, rival{owner: "9", first: "3"}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			backwards := slices.Clone(test.others)
			slices.Reverse(backwards)
			for _, others := range [][]Machine{test.others, backwards} {
				if got := rivalOf(dead("5"), slices.Values(others)); got != test.want {
					t.Errorf("%+v, want %+v", got, test.want)
				}
			}
		})
	}
}

// FuzzOneRule holds the pure half of LD8: what decide says about one machine is
// what MakePlan says about it in the whole fleet, save that MakePlan also looks
// for a zone. The situation of a machine is worked out here machine by machine.
func FuzzOneRule(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, int(seed*7%60))
	}
	f.Fuzz(func(t *testing.T, seed uint64, machines int) {
		if machines < 0 || machines > 80 {
			t.Skip()
		}
		s, policy := randomSnapshot(seed, machines)
		plan := MakePlan(s, policy)
		planned := map[MachineID]Action{}
		for _, a := range slices.Concat(plan.Actions, plan.Left) {
			planned[a.Was.ID] = a
		}
		for _, r := range s.Fleet {
			if fault(s, r) {
				if a := planned[r.ID]; a.Kind != ActionLeave || !a.LookAgain || a.Err == nil {
					t.Fatalf("LD2, LD4: %+v became %+v", r, a)
				}
				continue
			}
			want, got := decide(r.Machine, situationOf(s, r), policy), planned[r.ID]
			if want.Kind == ActionStart {
				// What MakePlan adds: a zone, or why there is none.
				if got.Kind == ActionLeave {
					noZones := s.ZonesUnread || s.Needs[r.ID].Err != nil || errors.Is(got.Err, ErrNoZone)
					if !noZones {
						t.Fatalf("LD8: %v was left alone: %v", want, got)
					}
					continue
				}
				got.Zone = ""
			}
			if diff := cmp.Diff(inWords(want), inWords(got)); diff != "" {
				t.Fatalf("LD8: (-one machine +whole fleet):\n%s", diff)
			}
		}
	})
}

func inWords(a Action) string {
	text, err := json.Marshal(a)
	return fmt.Sprint(string(text), err)
}

// fault says whether a result cannot be decided about.
func fault(s Snapshot, r MachineResult) bool {
	same := 0
	for _, o := range s.Fleet {
		if o.ID == r.ID {
			same++
		}
	}
	return same > 1 || r.Err != nil || r.Machine.ID != r.ID
}

func situationOf(s Snapshot, r MachineResult) situation {
	st := situation{phase: s.Doing[r.ID].Phase, canEnsureDead: s.CanEnsureDead, canMaintain: s.CanMaintain}
	if r.Machine.Life == Dead {
		st.rival = rivalOf(r.Machine, func(yield func(Machine) bool) {
			for _, o := range s.Fleet {
				m := o.Machine
				m.ID = o.ID
				if o.Err == nil && m.ID != r.ID && m.Instance != "" && m.Instance == r.Machine.Instance &&
					!m.Unread.Has(FieldInstance) && !yield(m) {
					return
				}
			}
		})
	}
	if r.ID.IsContainer() {
		st.host = hostStateIn(s, r.ID.Host())
	}
	return st
}

func hostStateIn(s Snapshot, host MachineID) hostState {
	shows := hostReady
	for _, o := range s.Fleet {
		switch {
		case o.ID == host && fault(s, o):
			return hostNotReady
		case o.ID == host:
			return hostStateOf(o.Machine)
		case o.ID.Validate() == nil && strings.Count(string(o.ID), "/") <= strings.Count(string(host), "/"):
			shows = hostMissing // one like it is there
		}
	}
	return shows
}
