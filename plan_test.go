package provisioner_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// fleet makes the results of a reading without errors.
func fleet(machines ...provisioner.Machine) []provisioner.MachineResult {
	var results []provisioner.MachineResult
	for _, m := range machines {
		results = append(results, provisioner.MachineResult{ID: m.ID, Machine: m})
	}
	return results
}

func pendingMachine(id provisioner.MachineID) provisioner.Machine {
	return provisioner.Machine{ID: id, Life: provisioner.Alive, Status: provisioner.StatusPending}
}

func runningMachine(id provisioner.MachineID, instance provisioner.InstanceID, zone provisioner.ZoneName) provisioner.Machine {
	return provisioner.Machine{ID: id, Life: provisioner.Alive, Status: provisioner.StatusStarted, Instance: instance, Zone: zone}
}

func deadMachine(id provisioner.MachineID, instance provisioner.InstanceID) provisioner.Machine {
	return provisioner.Machine{ID: id, Life: provisioner.Dead, Instance: instance}
}

// brief is an action in short: what is done about which machine, and where.
func brief(actions []provisioner.Action) []string {
	var all []string
	for _, a := range actions {
		s := string(a.Kind) + " " + string(a.Was.ID)
		if a.Kind == provisioner.ActionStop {
			s += " " + string(a.Was.Instance)
		}
		if a.Zone != "" {
			s += " @" + string(a.Zone)
		}
		all = append(all, s)
	}
	return all
}

func reasonOf(t *testing.T, p provisioner.Plan, id provisioner.MachineID) provisioner.Action {
	t.Helper()
	for _, a := range slices.Concat(p.Actions, p.Left) {
		if a.Was.ID == id {
			return a
		}
	}
	t.Fatalf("machine %s is not in the plan:\n%v", id, p)
	return provisioner.Action{}
}

func TestMakePlan(t *testing.T) {
	kept := deadMachine("3", "i-3")
	kept.Keep = true
	keepUnread := deadMachine("3", "i-3")
	keepUnread.Unread = provisioner.FieldKeep
	unread := provisioner.Machine{ID: "3", Life: provisioner.Alive, Unread: provisioner.FieldInstance}
	abc := available("a", "b", "c")
	tests := []struct {
		why    string
		in     provisioner.Snapshot
		policy provisioner.Policy
		want   []string
	}{
		{"nothing to do", provisioner.Snapshot{Fleet: fleet(runningMachine("0", "i-0", "a")), Zones: abc}, provisioner.Policy{}, nil},
		{"an empty fleet", provisioner.Snapshot{}, provisioner.Policy{}, nil},
		{"HV6, HV8, CL11: stops, removals, upkeep, starts; stops by instance, the rest by machine",
			provisioner.Snapshot{CanMaintain: true, Fleet: fleet(
				pendingMachine("10"), pendingMachine("2"), deadMachine("4", ""), runningMachine("1/lxd/10", "c-1", ""), runningMachine("1/lxd/9", "c-2", ""),
				deadMachine("5", "i-9"), deadMachine("6", "i-10"), deadMachine("03", ""), runningMachine("1", "i-1", ""))}, provisioner.Policy{},
			[]string{"stop 6 i-10", "stop 5 i-9", "remove 03", "remove 4", "maintain 1/lxd/9", "maintain 1/lxd/10", "start 2", "start 10"}},
		{"HV2: mode none stops nothing, and removes", provisioner.Snapshot{Fleet: fleet(deadMachine("3", "i-3"))}, provisioner.Policy{Harvest: provisioner.HarvestNone}, []string{"remove 3"}},
		{"HV2: mode unknown likewise", provisioner.Snapshot{Fleet: fleet(deadMachine("3", "i-3"))}, provisioner.Policy{Harvest: provisioner.HarvestUnknown}, []string{"remove 3"}},
		{"HV2: mode all stops the dead", provisioner.Snapshot{Fleet: fleet(deadMachine("3", "i-3"))}, provisioner.Policy{Harvest: provisioner.HarvestAll}, []string{"stop 3 i-3"}},
		{"HV3: a kept instance is not stopped, its record goes", provisioner.Snapshot{Fleet: fleet(kept)}, provisioner.Policy{Harvest: provisioner.HarvestAll}, []string{"remove 3"}},
		{"HV3: kept for now", provisioner.Snapshot{Fleet: fleet(keepUnread)}, provisioner.Policy{}, nil},
		{"HV5: by the id in the record, though the listing lacks it", provisioner.Snapshot{Fleet: fleet(deadMachine("3", "i-3")), Listing: provisioner.Listing{Complete: true}},
			provisioner.Policy{}, []string{"stop 3 i-3"}},
		{"HV5: never what another machine claims that is alive", provisioner.Snapshot{Fleet: fleet(deadMachine("3", "i-3"), runningMachine("9", "i-3", ""))}, provisioner.Policy{}, nil},
		{"HV5: or dying", provisioner.Snapshot{Fleet: fleet(deadMachine("3", "i-3"), provisioner.Machine{ID: "9", Life: provisioner.Dying, Instance: "i-3"})}, provisioner.Policy{}, nil},
		{"HV3: what one of two dead machines keeps stays, and both records go", provisioner.Snapshot{Fleet: fleet(deadMachine("1", "i-3"), kept)}, provisioner.Policy{}, []string{"remove 1", "remove 3"}},
		{"HV3: what was kept once stays kept", provisioner.Snapshot{Fleet: fleet(deadMachine("1", "i-3"), deadMachine("2", "i-2")), Kept: []provisioner.InstanceID{"i-3"}}, provisioner.Policy{}, []string{"stop 2 i-2", "remove 1"}},
		{"HV3, HV5: nor what another may keep", provisioner.Snapshot{Fleet: fleet(deadMachine("1", "i-3"), keepUnread)}, provisioner.Policy{}, nil},
		{"HV7: nothing is stopped twice at once", provisioner.Snapshot{Fleet: fleet(deadMachine("3", "i-3"), deadMachine("10", "i-3"))}, provisioner.Policy{}, []string{"stop 3 i-3"}},
		{"HV7: what is being stopped or removed is left to that", provisioner.Snapshot{
			Fleet: fleet(deadMachine("3", "i-3"), deadMachine("4", "")),
			Doing: map[provisioner.MachineID]provisioner.Doing{"3": {Phase: provisioner.PhaseStopping}, "4": {Phase: provisioner.PhaseRemoving}}}, provisioner.Policy{}, nil},
		{"ST13: a start of a machine that is dead is cancelled first", provisioner.Snapshot{
			Fleet: fleet(deadMachine("9", ""), deadMachine("3", "i-3"), provisioner.Machine{ID: "8", Life: provisioner.Dying}), CanEnsureDead: true,
			Doing: map[provisioner.MachineID]provisioner.Doing{"9": {Phase: provisioner.PhaseWaiting}, "8": {Phase: provisioner.PhaseStarting}}}, provisioner.Policy{},
			[]string{"cancel 8", "cancel 9", "stop 3 i-3"}},
		{"CL3: a host that can make it dead", provisioner.Snapshot{Fleet: fleet(provisioner.Machine{ID: "3", Life: provisioner.Dying}), CanEnsureDead: true}, provisioner.Policy{}, []string{"remove 3"}},
		{"CL3: a host that cannot", provisioner.Snapshot{Fleet: fleet(provisioner.Machine{ID: "3", Life: provisioner.Dying})}, provisioner.Policy{}, nil},
		{"CL7: a broker without upkeep", provisioner.Snapshot{Fleet: fleet(runningMachine("1/lxd/0", "c-0", ""))}, provisioner.Policy{}, nil},
		{"LD6: one operation a machine", provisioner.Snapshot{CanMaintain: true,
			Fleet: fleet(runningMachine("1/lxd/0", "c-0", ""), runningMachine("1/lxd/1", "c-1", ""), deadMachine("1/lxd/2", "c-2"), pendingMachine("2"), pendingMachine("3")),
			Doing: map[provisioner.MachineID]provisioner.Doing{"1/lxd/0": {Phase: provisioner.PhaseMaintaining}, "1/lxd/1": {Phase: provisioner.PhaseStarting}, "1/lxd/2": {Phase: provisioner.PhaseMaintaining},
				"2": {Phase: provisioner.PhaseQueued}, "3": {Phase: provisioner.PhaseResetting}}}, provisioner.Policy{}, nil},
		{"CL6: what has failed waits for a signal", provisioner.Snapshot{Fleet: fleet(pendingMachine("2")), Doing: map[provisioner.MachineID]provisioner.Doing{"2": {Phase: provisioner.PhaseFailed}}}, provisioner.Policy{}, nil},
		{"HV6: but what has failed and is dead goes", provisioner.Snapshot{Fleet: fleet(deadMachine("2", "")), Doing: map[provisioner.MachineID]provisioner.Doing{"2": {Phase: provisioner.PhaseFailed}}}, provisioner.Policy{}, []string{"remove 2"}},
		{"LD4, CL9: one machine's fault does not touch the others", provisioner.Snapshot{Fleet: append(fleet(pendingMachine("2"), unread, provisioner.Machine{ID: "4", Life: "odd"}),
			provisioner.MachineResult{ID: "1", Err: errors.Unauthorizedf("machine 1")})}, provisioner.Policy{}, []string{"start 2"}},
		{"LD2: a machine given twice is left alone", provisioner.Snapshot{Fleet: fleet(pendingMachine("2"), deadMachine("2", "i-2"), pendingMachine("3"))}, provisioner.Policy{}, []string{"start 3"}},
		{"LD2: a foreign record is left alone", provisioner.Snapshot{Fleet: []provisioner.MachineResult{{ID: "2", Machine: pendingMachine("3")}}}, provisioner.Policy{}, nil},
		{"HV5: what a doubtful record claims is not stopped either", provisioner.Snapshot{Fleet: append(fleet(deadMachine("1", "i-1"), deadMachine("2", "i-2"),
			runningMachine("7", "i-1", ""), runningMachine("7", "i-1", "")), provisioner.MachineResult{ID: "8", Machine: runningMachine("2", "i-2", "")})}, provisioner.Policy{}, nil},

		{"a container waits until its host is provisioned", provisioner.Snapshot{Fleet: fleet(pendingMachine("1"), pendingMachine("1/lxd/0"))}, provisioner.Policy{}, []string{"start 1"}},
		{"a container starts on a host that runs, without a zone", provisioner.Snapshot{Zones: abc, Fleet: fleet(runningMachine("1", "i-1", "a"), pendingMachine("1/lxd/0"))},
			provisioner.Policy{}, []string{"start 1/lxd/0"}},
		{"a container does not start on a host that goes", provisioner.Snapshot{Fleet: fleet(provisioner.Machine{ID: "1", Life: provisioner.Dying, Instance: "i-1"}, pendingMachine("1/lxd/0"))}, provisioner.Policy{}, nil},
		{"nor on one whose instance id could not be read", provisioner.Snapshot{Fleet: fleet(provisioner.Machine{ID: "1", Life: provisioner.Alive, Instance: "i-1", Unread: provisioner.FieldInstance}, pendingMachine("1/lxd/0"))}, provisioner.Policy{}, nil},
		{"nor on one that could not be read", provisioner.Snapshot{Fleet: append(fleet(pendingMachine("1/lxd/0")), provisioner.MachineResult{ID: "1", Err: errors.New("down")})}, provisioner.Policy{}, nil},
		{"a container in a container waits for that", provisioner.Snapshot{Fleet: fleet(runningMachine("1", "i-1", ""), pendingMachine("1/kvm/0"), pendingMachine("1/kvm/0/lxd/0"))},
			provisioner.Policy{}, []string{"start 1/kvm/0"}},
		{"a host that is missing among its like is gone", provisioner.Snapshot{Fleet: fleet(runningMachine("2", "i-2", ""), pendingMachine("1/lxd/0"), pendingMachine("2/kvm/0/lxd/0"))}, provisioner.Policy{}, nil},
		{"a Task that serves only the containers of a host sees no host", provisioner.Snapshot{Fleet: fleet(pendingMachine("1/lxd/0"))}, provisioner.Policy{}, []string{"start 1/lxd/0"}},

		{"AZ1: no zones: starts carry none", provisioner.Snapshot{Fleet: fleet(pendingMachine("2"))}, provisioner.Policy{}, []string{"start 2"}},
		{"AZ1: even with a constraint", provisioner.Snapshot{Fleet: fleet(pendingMachine("2")), Needs: map[provisioner.MachineID]provisioner.Needs{"2": {Zones: []provisioner.ZoneName{"a"}}}}, provisioner.Policy{}, []string{"start 2"}},
		{"AZ2: until the zones have been read nothing is started, the rest goes on", provisioner.Snapshot{ZonesUnread: true,
			Fleet: fleet(pendingMachine("2"), deadMachine("3", "i-3"), runningMachine("1", "i-1", ""), pendingMachine("1/lxd/0"))}, provisioner.Policy{}, []string{"stop 3 i-3"}},
		{"AZ2: those that run are counted first", provisioner.Snapshot{Zones: abc, Fleet: fleet(pendingMachine("0"), runningMachine("8", "i-8", "a"), runningMachine("9", "i-9", "b"))},
			provisioner.Policy{Tie: provisioner.TieName}, []string{"start 0 @c"}},
		{"AZ2: a record without a zone counts where it is listed", provisioner.Snapshot{Zones: available("a", "b"), Fleet: fleet(pendingMachine("0"), runningMachine("8", "i-8", "")),
			Listing: provisioner.Listing{Instances: []provisioner.Instance{{ID: "i-8", Zone: "a"}}}}, provisioner.Policy{Tie: provisioner.TieName}, []string{"start 0 @b"}},
		{"AZ2: the record counts before the listing", provisioner.Snapshot{Zones: available("a", "b"), Fleet: fleet(pendingMachine("0"), runningMachine("8", "i-8", "b")),
			Listing: provisioner.Listing{Instances: []provisioner.Instance{{ID: "i-8", Zone: "a"}}}}, provisioner.Policy{Tie: provisioner.TieName}, []string{"start 0 @a"}},
		{"AZ7: reservations count", provisioner.Snapshot{Zones: abc, Fleet: fleet(pendingMachine("0"), pendingMachine("1"), pendingMachine("2")),
			Doing: map[provisioner.MachineID]provisioner.Doing{"1": {Phase: provisioner.PhaseStarting, Zone: "a"}, "2": {Phase: provisioner.PhaseWaiting, Zone: "b"}}}, provisioner.Policy{Tie: provisioner.TieName}, []string{"start 0 @c"}},
		{"containers are not counted", provisioner.Snapshot{Zones: available("a", "b"), Fleet: fleet(pendingMachine("2"), runningMachine("0", "i-0", "b"),
			runningMachine("1/lxd/0", "c-0", "a"), runningMachine("1/lxd/1", "c-1", "a"))}, provisioner.Policy{Tie: provisioner.TieName}, []string{"start 2 @a"}},
		{"AZ5: the group decides before the total", provisioner.Snapshot{Zones: abc, Fleet: fleet(pendingMachine("9"), runningMachine("0", "i-0", "a"),
			runningMachine("1", "i-1", "b"), runningMachine("2", "i-2", "b"), runningMachine("3", "i-3", "c"), runningMachine("4", "i-4", "c"), runningMachine("5", "i-5", "c")),
			Needs: map[provisioner.MachineID]provisioner.Needs{"9": {Group: provisioner.Group{Members: []provisioner.MachineID{"0", "3", "9", "nobody"}}}}}, provisioner.Policy{Tie: provisioner.TieName}, []string{"start 9 @b"}},
		{"AZ9: all zones down is not the same as none", provisioner.Snapshot{Zones: []provisioner.Zone{{"a", false}}, Fleet: fleet(pendingMachine("2"), deadMachine("3", "i-3"))},
			provisioner.Policy{}, []string{"stop 3 i-3"}},
		{"DG5: needs that could not be told are that machine's", provisioner.Snapshot{Fleet: fleet(pendingMachine("1"), pendingMachine("2")),
			Needs: map[provisioner.MachineID]provisioner.Needs{"1": {Err: errors.New("no group")}}}, provisioner.Policy{}, []string{"start 2"}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got := provisioner.MakePlan(test.in, test.policy)
			if diff := cmp.Diff(test.want, brief(got.Actions)); diff != "" {
				t.Errorf("(-want +got):\n%s\n%v", diff, got)
			}
			if got.Empty() != (len(test.want) == 0) {
				t.Errorf("Empty says %v", got.Empty())
			}
		})
	}
}

// HV13: everything left alone has a reason, and what is at fault an error.
func TestMakePlanReasons(t *testing.T) {
	shared := deadMachine("3", "i-3")
	kept := deadMachine("4", "i-4")
	kept.Keep = true
	unclear := deadMachine("5", "i-5")
	unclear.Unread = provisioner.FieldKeep
	in := provisioner.Snapshot{
		Zones: []provisioner.Zone{{"a", true}, {"b", false}},
		Fleet: append(fleet(
			runningMachine("0", "i-0", "a"), pendingMachine("0/lxd/0"), runningMachine("0/lxd/1", "c-1", ""),
			pendingMachine("1"), pendingMachine("1/lxd/0"), provisioner.Machine{ID: "2", Life: provisioner.Dying},
			shared, runningMachine("30", "i-3", ""), kept, unclear,
			pendingMachine("6"), pendingMachine("7"), pendingMachine("8"), pendingMachine("8"), provisioner.Machine{ID: "9", Life: provisioner.Dying, Instance: "i-9"}, pendingMachine("9/lxd/0"), pendingMachine("90/lxd/0"),
			provisioner.Machine{ID: "10", Life: provisioner.Alive, Status: provisioner.StatusError}, pendingMachine("11"), provisioner.Machine{ID: "x/", Life: provisioner.Alive}),
			provisioner.MachineResult{ID: "12", Machine: pendingMachine("13")},
			provisioner.MachineResult{ID: "14", Err: errors.Unauthorizedf("machine 14")}),
		Needs: map[provisioner.MachineID]provisioner.Needs{"1": {Zones: []provisioner.ZoneName{"b", "c"}}, "11": {Err: errors.New("no group")}},
		Doing: map[provisioner.MachineID]provisioner.Doing{"6": {Phase: provisioner.PhaseWaiting}, "7": {Phase: provisioner.PhaseFailed}, "0/lxd/0": {Phase: provisioner.PhaseResetting}},
	}
	got := provisioner.MakePlan(in, provisioner.Policy{Tie: provisioner.TieName})
	tests := []struct {
		id        provisioner.MachineID
		fate      provisioner.Fate
		lookAgain bool
		reason    string
		err       string
	}{
		{"0", provisioner.FateNone, false, "provisioned", ""},
		{"0/lxd/0", provisioner.FateNone, false, "busy: resetting", ""},
		{"0/lxd/1", provisioner.FateNone, false, "a provisioned container, and the broker has no upkeep", ""},
		{"1", provisioner.FateNone, false, "suitable availability zone for machine 1 not found: a not in the machine's zone constraint; b unavailable",
			"suitable availability zone for machine 1 not found"},
		{"1/lxd/0", provisioner.FateNone, false, "waits until its host 1 is provisioned", ""},
		{"2", provisioner.FateNone, false, "dying and never provisioned, and the state cannot make it dead", "machine 2: cannot be made dead: the state is no LifeSetter"},
		{"3", provisioner.FateShared, false, "its instance i-3 is also claimed by machine 30", "machine 3: its instance i-3 is also claimed by machine 30"},
		{"4", provisioner.FateKept, false, "its instance is to be kept", ""},
		{"5", provisioner.FateUnclear, true, "whether its instance is to be kept could not be read", "machine 5: whether its instance is to be kept could not be read"},
		{"6", provisioner.FateNone, false, "its start is under way (waiting)", ""},
		{"7", provisioner.FateNone, false, "its start has failed: waits for a retry signal", ""},
		{"8", provisioner.FateNone, true, "its record could not be read: machine 8: given more than once in one reading: not valid", "machine 8: given more than once in one reading: not valid"},
		{"9", provisioner.FateNone, false, "dying: its agent finishes first", ""},
		{"9/lxd/0", provisioner.FateNone, false, "its host 9 is going away", ""},
		{"90/lxd/0", provisioner.FateNone, false, "its host 90 is not known", ""},
		{"10", provisioner.FateNone, false, "not provisioned and not pending: waits for a retry signal", ""},
		{"11", provisioner.FateNone, false, "what its start needs could not be told: no group", "no group"},
		{"12", provisioner.FateNone, true, `its record could not be read: machine 12: its record carries the id "13": not valid`, `machine 12: its record carries the id "13": not valid`},
		{"14", provisioner.FateNone, true, "its record could not be read: machine 14", "machine 14"},
		{"x/", provisioner.FateNone, false, "its id is malformed", `machine id "x/": want parent/type/number, the type in lower-case letters and digits: not valid`},
	}
	for _, test := range tests {
		t.Run(string(test.id), func(t *testing.T) {
			a := reasonOf(t, got, test.id)
			err := ""
			if a.Err != nil {
				err = a.Err.Error()
			}
			if a.Fate != test.fate || a.LookAgain != test.lookAgain {
				t.Errorf("fate %v, look again %v; want %v, %v", a.Fate, a.LookAgain, test.fate, test.lookAgain)
			}
			if diff := cmp.Diff([]string{test.reason, test.err}, []string{a.Reason, err}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if !errors.Is(reasonOf(t, got, "2").Err, errors.NotSupported) || !errors.Is(reasonOf(t, got, "14").Err, errors.Unauthorized) {
		t.Error("errors lose what they are")
	}
}

// The examples of section 4.
func TestMakePlanZoneExamples(t *testing.T) {
	machines := func(ids ...provisioner.MachineID) (results []provisioner.MachineResult) {
		for _, id := range ids {
			results = append(results, fleet(pendingMachine(id))...)
		}
		return results
	}
	counts := func(p provisioner.Plan) map[provisioner.ZoneName]int {
		all := map[provisioner.ZoneName]int{}
		for _, z := range p.Zones {
			all[z.Zone] = z.Machines
		}
		return all
	}
	sorted := func(m map[provisioner.ZoneName]int) (all []int) {
		for _, n := range m {
			all = append(all, n)
		}
		slices.Sort(all)
		return all
	}
	for _, tie := range []provisioner.TieBreak{provisioner.TieHash, provisioner.TieName} {
		p := provisioner.MakePlan(provisioner.Snapshot{Zones: available("az1", "az2", "az3"), Fleet: machines("0", "1", "2", "3")}, provisioner.Policy{Tie: tie})
		if diff := cmp.Diff([]int{1, 1, 2}, sorted(counts(p))); diff != "" {
			t.Errorf("machines 0–3 in three zones (-want +got):\n%s", diff)
		}
		p = provisioner.MakePlan(provisioner.Snapshot{Zones: available("A", "B", "C"), Fleet: machines("1", "2", "3", "4"),
			Needs: map[provisioner.MachineID]provisioner.Needs{"1": {Zones: []provisioner.ZoneName{"C"}}}}, provisioner.Policy{Tie: tie})
		where := map[provisioner.MachineID]provisioner.ZoneName{}
		for _, a := range p.Actions {
			where[a.Was.ID] = a.Zone
		}
		if where["1"] != "C" || where["2"] == "C" || where["3"] == "C" || where["2"] == where["3"] {
			t.Errorf("1 with zones=C, then 2 and 3 in A and B: %v", where)
		}
		if diff := cmp.Diff([]int{1, 1, 2}, sorted(counts(p))); diff != "" {
			t.Errorf("AZ8: the constraint of one says nothing about the next (-want +got):\n%s", diff)
		}
		p = provisioner.MakePlan(provisioner.Snapshot{Zones: []provisioner.Zone{{"zone1", true}, {"zone2", false}, {"zone3", true}, {"zone4", true}}, Fleet: machines("3"),
			Needs: map[provisioner.MachineID]provisioner.Needs{"3": {Derived: []provisioner.ZoneName{"zone1", "zone4"}}}}, provisioner.Policy{Tie: tie})
		if z := p.Actions[0].Zone; z != "zone1" && z != "zone4" {
			t.Errorf("derived zones: started in %s", z)
		}
		in := provisioner.Snapshot{Zones: available("A", "B", "C"), Fleet: machines("9"), Needs: map[provisioner.MachineID]provisioner.Needs{"9": {Group: provisioner.Group{Members: []provisioner.MachineID{"0"}}}}}
		for i := range 5 {
			in.Fleet = append(in.Fleet, fleet(runningMachine(provisioner.MachineID(fmt.Sprint(i)), provisioner.InstanceID(fmt.Sprint("i-", i)), "A"))...)
		}
		if z := provisioner.MakePlan(in, provisioner.Policy{Tie: tie}).Actions[0].Zone; z == "A" {
			t.Error("totals 5,0,0 and a group member in A: went to A")
		}
	}
}

func planForText() provisioner.Plan {
	kept := deadMachine("4", "i-4")
	kept.Keep = true
	return provisioner.MakePlan(provisioner.Snapshot{
		Zones: []provisioner.Zone{{"a", true}, {"b", true}, {"c", false}},
		Fleet: append(fleet(runningMachine("0", "i-0", "c"), runningMachine("0/lxd/0", "c-0", ""), pendingMachine("1"), pendingMachine("2"),
			deadMachine("3", "i-3"), kept, provisioner.Machine{ID: "5", Life: provisioner.Dying}, runningMachine("6", "i-6", "gone"), pendingMachine("7"),
			provisioner.Machine{ID: "8", Life: provisioner.Alive, Unread: provisioner.FieldStatus | provisioner.FieldInstanceStatus}),
			provisioner.MachineResult{ID: "9", Err: errors.New(`no "answer"`)}),
		Listing: provisioner.Listing{Instances: []provisioner.Instance{{ID: "i-0"}, {ID: "i-77", Zone: "b", State: provisioner.InstanceStopped, Labels: provisioner.Labels{Nonce: "secret"},
			Created: time.Date(2026, 3, 7, 8, 12, 44, 0, time.UTC)}, {ID: "i-6"}}},
		Needs:         map[provisioner.MachineID]provisioner.Needs{"1": {Zones: []provisioner.ZoneName{"b"}}, "7": {Zones: []provisioner.ZoneName{"c"}}},
		CanEnsureDead: true, CanMaintain: true,
	}, provisioner.Policy{Tie: provisioner.TieName})
}

func TestPlanText(t *testing.T) {
	const want = `plan: 6 to do, 5 left alone, harvest mode destroyed
  stop     3 (i-3): dead
  remove   4 (i-4): its instance is to be kept
  remove   5: dying and never provisioned, never had an instance
  maintain 0/lxd/0 (c-0): a provisioned container
  start    1 in b (group 0, all 0, the only one): pending
  start    2 in a (group 0, all 0, before b with group 0, all 1): pending
  leave    0 (i-0): provisioned
  leave    6 (i-6): provisioned
  leave    7: suitable availability zone for machine 7 not found: a, b not in the machine's zone constraint; c unavailable; gone no longer listed
  leave    8: its status could not be read
  leave    9: its record could not be read: no "answer"
  unknown  i-77: the record of some machine could not be read, and may have it
  zone     a: 1
  zone     b: 1
  zone     c (unavailable): 1
  zone     gone (unavailable): 1
  warning  zone c is unavailable, and machines are in it: 1
  warning  zone gone is no longer listed by the broker, and machines are in it: 1
`
	if diff := cmp.Diff(want, planForText().String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := (provisioner.Plan{}).String(); got != "plan: 0 to do, 0 left alone, harvest mode destroyed\n" {
		t.Errorf("an empty plan: %q", got)
	}
}

func TestPlanJSON(t *testing.T) {
	const want = `{
 "harvest": "destroyed",
 "actions": [
  {"kind":"stop","machine":"3","fate":"stop","reason":"dead","record":{"id":"3","life":"dead","instance":"i-3"}},
  {"kind":"remove","machine":"4","fate":"kept","reason":"its instance is to be kept","record":{"id":"4","life":"dead","instance":"i-4","keep":true}},
  {"kind":"remove","machine":"5","reason":"dying and never provisioned, never had an instance","ensureDead":true,"record":{"id":"5","life":"dying"}},
  {"kind":"maintain","machine":"0/lxd/0","reason":"a provisioned container","record":{"id":"0/lxd/0","life":"alive","instance":"c-0","status":"started"}},
  {"kind":"start","machine":"1","zone":"b","choice":{"group":0,"total":0},"reason":"pending","record":{"id":"1","life":"alive","status":"pending"}},
  {"kind":"start","machine":"2","zone":"a","choice":{"group":0,"total":0,"next":"b","nextTotal":1},"reason":"pending","record":{"id":"2","life":"alive","status":"pending"}}
 ],
 "left": [
  {"kind":"leave","machine":"0","reason":"provisioned","record":{"id":"0","life":"alive","instance":"i-0","zone":"c","status":"started"}},
  {"kind":"leave","machine":"6","reason":"provisioned","record":{"id":"6","life":"alive","instance":"i-6","zone":"gone","status":"started"}},
  {"kind":"leave","machine":"7","reason":"suitable availability zone for machine 7 not found: a, b not in the machine's zone constraint; c unavailable; gone no longer listed","error":"suitable availability zone for machine 7 not found","record":{"id":"7","life":"alive","status":"pending"}},
  {"kind":"leave","machine":"8","reason":"its status could not be read","lookAgain":true,"record":{"id":"8","life":"alive","unread":"status, instance status"}},
  {"kind":"leave","machine":"9","reason":"its record could not be read: no \"answer\"","lookAgain":true,"error":"no \"answer\"","record":{"id":"9"}}
 ],
 "unknown": [
  {"instance":"i-77","zone":"b","state":"stopped","created":"2026-03-07T08:12:44Z","reason":"the record of some machine could not be read, and may have it","verdict":"unsure"}
 ],
 "zones": [
  {"zone":"a","available":true,"machines":1},
  {"zone":"b","available":true,"machines":1},
  {"zone":"c","available":false,"machines":1},
  {"zone":"gone","available":false,"machines":1}
 ],
 "warnings": [
  "zone c is unavailable, and machines are in it: 1",
  "zone gone is no longer listed by the broker, and machines are in it: 1"
 ],
 "sweep": {"listed":3,"stop":[],"left":[{"instance":"i-77","zone":"b","state":"stopped","created":"2026-03-07T08:12:44Z","reason":"the record of some machine could not be read, and may have it","verdict":"unsure"}]}
}`
	encoded, err := json.Marshal(planForText())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, spread(t, encoded)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	encoded, err = json.Marshal(provisioner.Plan{Harvest: provisioner.HarvestAll})
	if want := `{"harvest":"all","actions":[],"left":[],"unknown":[],"zones":[],"warnings":[]}`; string(encoded) != want || err != nil {
		t.Errorf("an empty plan: %s, %v", encoded, err)
	}
	if _, err := json.Marshal(provisioner.Plan{Harvest: 99}); err == nil {
		t.Error("an invalid mode is written without an error")
	}
}

// spread puts each entry of the lists of an object on a line of its own.
func spread(t *testing.T, object []byte) string {
	t.Helper()
	var fields []string
	d := json.NewDecoder(strings.NewReader(string(object)))
	d.Token()
	for d.More() {
		key, _ := d.Token()
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			t.Fatal(err)
		}
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			fields = append(fields, fmt.Sprintf(" %q: %s", key, raw))
			continue
		}
		var entries []string
		for _, e := range list {
			entries = append(entries, "  "+string(e))
		}
		fields = append(fields, fmt.Sprintf(" %q: [\n%s\n ]", key, strings.Join(entries, ",\n")))
	}
	return "{\n" + strings.Join(fields, ",\n") + "\n}"
}

// HV3, HV4, HV9: an instance is unknown to a plan only if nobody knows why it
// is there.
func TestPlanUnknown(t *testing.T) {
	listing := provisioner.Listing{Instances: []provisioner.Instance{{ID: "i-0"}, {ID: "i-x"}, {ID: "i-1", Labels: provisioner.Labels{Machine: "1"}}}}
	doing := func(phase provisioner.Phase) map[provisioner.MachineID]provisioner.Doing {
		return map[provisioner.MachineID]provisioner.Doing{"1": {Phase: phase}}
	}
	records := fleet(runningMachine("0", "i-0", "a"), pendingMachine("1"))
	tests := []struct {
		why  string
		in   provisioner.Snapshot
		want []provisioner.InstanceID
	}{
		{"no machine claims two of them", provisioner.Snapshot{}, []provisioner.InstanceID{"i-1", "i-x"}},
		{"HV3: one was kept", provisioner.Snapshot{Kept: []provisioner.InstanceID{"i-x"}}, []provisioner.InstanceID{"i-1"}},
		{"HV4: one was spared", provisioner.Snapshot{Accounted: []provisioner.InstanceID{"i-x"}}, []provisioner.InstanceID{"i-1"}},
		{"HV9: one may be the product of its machine's start, the other of the broker's call", provisioner.Snapshot{Doing: doing(provisioner.PhaseStarting)}, nil},
		{"HV9: or is on its way out", provisioner.Snapshot{Doing: doing(provisioner.PhaseUndoing)}, nil},
		{"HV9: between two attempts only what its machine's label says", provisioner.Snapshot{Doing: doing(provisioner.PhaseWaiting)}, []provisioner.InstanceID{"i-x"}},
		{"its start was given up", provisioner.Snapshot{Doing: doing(provisioner.PhaseFailed)}, []provisioner.InstanceID{"i-1", "i-x"}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			test.in.Fleet, test.in.Listing = records, listing
			var got []provisioner.InstanceID
			for _, i := range provisioner.MakePlan(test.in, provisioner.Policy{}).Unknown {
				got = append(got, i.ID)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
