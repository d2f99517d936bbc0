package provisioner_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// A whole fleet, decided about without any effect.
func ExampleMakePlan() {
	read := func(m provisioner.Machine) provisioner.MachineResult {
		return provisioner.MachineResult{ID: m.ID, Machine: m}
	}
	plan := provisioner.MakePlan(provisioner.Snapshot{
		Zones: []provisioner.Zone{{"az1", true}, {"az2", true}, {"az3", false}},
		Fleet: []provisioner.MachineResult{
			read(provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i-0", Zone: "az1"}),
			read(provisioner.Machine{ID: "1", Life: provisioner.Alive, Status: provisioner.StatusPending}),
			read(provisioner.Machine{ID: "1/lxd/0", Life: provisioner.Alive, Status: provisioner.StatusPending}),
			read(provisioner.Machine{ID: "2", Life: provisioner.Dead, Instance: "i-2"}),
			read(provisioner.Machine{ID: "3", Life: provisioner.Dead, Instance: "i-3", Keep: true}),
			read(provisioner.Machine{ID: "4", Life: provisioner.Alive, Status: provisioner.StatusError}),
		},
	}, provisioner.Policy{})
	fmt.Print(plan)
	// Output:
	// plan: 3 to do, 3 left alone, harvest mode destroyed
	//   stop     2 (i-2): dead
	//   remove   3 (i-3): its instance is to be kept
	//   start    1 in az2 (group 0, all 0, before az1 with group 0, all 1): pending
	//   leave    0 (i-0): provisioned
	//   leave    1/lxd/0: waits until its host 1 is provisioned
	//   leave    4: not provisioned and not pending: waits for a retry signal
	//   zone     az1: 1
	//   zone     az2: 1
	//   zone     az3 (unavailable): 0
}

func ExamplePlan_MarshalJSON() {
	m := provisioner.Machine{ID: "1", Life: provisioner.Alive, Status: provisioner.StatusPending}
	plan := provisioner.MakePlan(provisioner.Snapshot{
		Fleet: []provisioner.MachineResult{{ID: "1", Machine: m}},
		Zones: []provisioner.Zone{{"az1", true}},
	}, provisioner.Policy{})
	text, _ := json.MarshalIndent(plan, "", "  ")
	fmt.Println(string(text))
	// Output:
	// {
	//   "harvest": "destroyed",
	//   "actions": [
	//     {
	//       "kind": "start",
	//       "machine": "1",
	//       "zone": "az1",
	//       "choice": {
	//         "group": 0,
	//         "total": 0
	//       },
	//       "reason": "pending",
	//       "record": {
	//         "id": "1",
	//         "life": "alive",
	//         "status": "pending"
	//       }
	//     }
	//   ],
	//   "left": [],
	//   "unknown": [],
	//   "zones": [
	//     {
	//       "zone": "az1",
	//       "available": true,
	//       "machines": 1
	//     }
	//   ],
	//   "warnings": []
	// }
}

func ExampleClassify() {
	for _, m := range []provisioner.Machine{
		{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusPending},
		{ID: "1", Life: provisioner.Alive, Status: provisioner.StatusError, InstanceStatus: provisioner.InstanceAllocating},
		{ID: "2", Life: provisioner.Dying},
		{ID: "3", Life: provisioner.Dying, Instance: "i-3"},
		{ID: "3/lxd/0", Life: provisioner.Alive, Instance: "c-0"},
		{ID: "4", Life: provisioner.Alive, Unread: provisioner.FieldStatus},
	} {
		c := provisioner.Classify(m)
		fmt.Printf("%s: %v: %s\n", m.ID, c.Class, c.Reason)
	}
	// Output:
	// 0: pending: pending
	// 1: pending: an earlier start was cut short
	// 2: dead: dying and never provisioned
	// 3: none: dying: its agent finishes first
	// 3/lxd/0: maintain: a provisioned container
	// 4: none: its status could not be read
}

// Where the next member of a group goes, and why not elsewhere.
func ExampleRankZones() {
	for _, z := range provisioner.RankZones(provisioner.Ranking{
		Machine: "7",
		Zones:   []provisioner.Zone{{"az1", true}, {"az2", true}, {"az3", true}, {"az4", false}},
		Population: provisioner.Population{
			Group: map[provisioner.ZoneName]int{"az1": 1},
			Total: map[provisioner.ZoneName]int{"az1": 1, "az2": 5, "az3": 4},
		},
		Failed: []provisioner.ZoneName{"az3"},
	}) {
		fmt.Printf("%d %s: %d of the group, %d in all: %s\n", z.Rank, z.Zone, z.Group, z.Total, cmp.Or(z.Reason, "usable"))
	}
	// Output:
	// 1 az2: 0 of the group, 5 in all: usable
	// 2 az1: 1 of the group, 1 in all: usable
	// 0 az3: 0 of the group, 4 in all: failed in this round
	// 0 az4: 0 of the group, 0 in all: unavailable
}

// What the zones hold, and where the next member of a group would go.
func ExampleDescribe() {
	fmt.Print(provisioner.Describe(provisioner.RankZones(provisioner.Ranking{
		Machine: "7",
		Zones:   []provisioner.Zone{{"az1", true}, {"az2", true}, {"az3", false}, {"az4", true}},
		Population: provisioner.Population{
			Group: map[provisioner.ZoneName]int{"az1": 1, "az3": 2},
			Total: map[provisioner.ZoneName]int{"az1": 4, "az2": 2, "az3": 8},
		},
		Cooling: []provisioner.ZoneName{"az4"},
	})))
	// Output:
	// az2  ##        2: choice 1
	// az1  +###      4, 1 of the group: choice 2
	// az3  ++######  8, 2 of the group: unavailable
	// az4            0: cooling down after a lack of capacity
}

// A zone was added to two that are full; nothing is done about it on its own.
func ExampleRebalance() {
	s := provisioner.Snapshot{Zones: []provisioner.Zone{{"az1", true}, {"az2", true}, {"az3", true}}}
	for i := range 6 {
		m := provisioner.Machine{ID: provisioner.MachineID(fmt.Sprint(i)), Life: provisioner.Alive,
			Instance: provisioner.InstanceID(fmt.Sprint("i-", i)), Zone: provisioner.ZoneName(fmt.Sprint("az", 1+i%2))}
		s.Fleet = append(s.Fleet, provisioner.MachineResult{ID: m.ID, Machine: m})
	}
	for _, move := range provisioner.Rebalance(s, provisioner.Policy{}, 10) {
		fmt.Println(move)
	}
	// Output:
	// machine 5: launch its like in az3, then stop i-5 in az2: zone az2 has 2 machines besides it, zone az3 has 0
	// machine 4: launch its like in az3, then stop i-4 in az1: zone az1 has 2 machines besides it, zone az3 has 1
}

// A start in two zones, with one more round.
func ExampleWalk_Next() {
	steps := map[provisioner.Step]string{provisioner.StepNextZone: "next zone", provisioner.StepNewRound: "new round", provisioner.StepFail: "give up"}
	policy := provisioner.RetryPolicy{Retries: 1, Jitter: provisioner.NoJitter}
	var w provisioner.Walk
	for _, zonesLeft := range []int{1, 0, 1, 0} {
		var d provisioner.Decision
		w, d = w.Next(policy, provisioner.OutcomeOf(errors.New("boom")), zonesLeft, 0)
		fmt.Printf("attempt %d failed: %s after %v\n", w.Attempts, steps[d.Step], d.Wait)
	}
	// Output:
	// attempt 1 failed: next zone after 0s
	// attempt 2 failed: new round after 10s
	// attempt 3 failed: next zone after 0s
	// attempt 4 failed: give up after 0s
}

// A broker tells what an error means for the next attempt.
func ExampleOutcomeOf() {
	err := errors.Annotate(provisioner.RetryAfter(errors.New("429 Too Many Requests"), 30*time.Second), "starting machine 0")
	fmt.Println(err)
	fmt.Println(errors.Is(err, provisioner.ErrRateLimited), provisioner.OutcomeOf(err).After)
	// Output:
	// starting machine 0: 429 Too Many Requests
	// true 30s
}

func ExampleParseHarvestMode() {
	mode, err := provisioner.ParseHarvestMode("all")
	fmt.Println(mode, mode.Destroyed(), mode.Unknown(), err)
	_, err = provisioner.ParseHarvestMode("everything")
	fmt.Println(err)
	// Output:
	// all true true <nil>
	// harvest mode "everything": want none, unknown, destroyed or all: not valid
}

func ExampleParseMachineID() {
	id, err := provisioner.ParseMachineID("1/kvm/0/lxd/2")
	fmt.Println(id, id.IsContainer(), id.Host(), id.Top(), err)
	_, err = provisioner.ParseMachineID("1/kvm/00")
	fmt.Println(err)
	// Output:
	// 1/kvm/0/lxd/2 true 1/kvm/0 1 <nil>
	// machine id "1/kvm/00": "00": want a number without leading zeros: not valid
}
