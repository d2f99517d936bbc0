package provisioner_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// The whole of an embedding: the World stands for a host's own broker and state.
func ExampleTask_Run() {
	world := provisionertest.New(provisionertest.Settings{Kind: true})
	world.Load(provisionertest.NewFleet(2, 1, 0))
	ctx, cancel := context.WithCancel(context.Background())

	started := 0
	task, err := provisioner.New(provisioner.Config{
		Controller: "prod-1", // no other controller of this cloud has that name
		Broker:     world.Broker(),
		State:      world.State(),
		Changes:    world.Changes(),
		Observers: []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
			if e.Kind != provisioner.EventStarted {
				return
			}
			if started++; started == 2 {
				cancel() // a daemon would go on
			}
		})},
	})
	if err != nil {
		fmt.Println(err) // names every field that is at fault
		return
	}
	err = task.Run(ctx)
	fmt.Println("started:", started)
	fmt.Println("run ended by its context:", errors.Is(err, context.Canceled))
	// Output:
	// started: 2
	// run ended by its context: true
}

// For a host without watchers: one look, and a report.
func ExampleTask_Reconcile() {
	world := provisionertest.New(provisionertest.Settings{Kind: true})
	world.Load(provisionertest.NewFleet(2, 2, 0)) // machines 0 and 1, zones a and b
	world.Add(provisioner.Machine{ID: "7", Life: provisioner.Dead, Instance: "i-7", Zone: "a"})
	fault, _ := provisionertest.ParseFault(`start machine=1: error permanent "the image is gone"`)
	world.Inject(fault)

	task, err := provisioner.New(provisioner.Config{Controller: "example", Broker: world.Broker(), State: world.State()})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := task.Reconcile(context.Background())
	if err != nil {
		fmt.Println(err) // the fleet could not be read
		return
	}
	for _, r := range report.Results {
		if r.Err != nil {
			fmt.Printf("machine %s: %s: %v\n", r.Machine, r.Reason, r.Err)
			continue
		}
		fmt.Printf("machine %s: %s\n", r.Machine, r.Reason)
	}
	// Output:
	// machine 0: started
	// machine 1: its start has failed: the image is gone
	// machine 7: its record is removed
}

// What would be done, without anything being done; one action is vetoed, and
// the rest applied.
func ExampleTask_Plan() {
	world := provisionertest.New(provisionertest.Settings{Kind: true})
	world.Load(provisionertest.NewFleet(3, 1, 0))
	world.Add(provisioner.Machine{ID: "7", Life: provisioner.Dead, Instance: "i-7", Zone: "a"})

	task, err := provisioner.New(provisioner.Config{Controller: "example", Broker: world.Broker(), State: world.State()})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	plan, err := task.Plan(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan)

	plan.Actions = plan.Actions[1:] // no stops on a Friday
	report, err := task.Apply(ctx, plan)
	for _, r := range report.Results {
		fmt.Println("applied:", r.Kind, r.Machine)
	}
	fmt.Println("error:", err)
	// Output:
	// plan: 4 to do, 0 left alone, harvest mode destroyed
	//   stop     7 (i-7): dead
	//   start    0 in a (group 0, all 1, the only one): pending
	//   start    1 in a (group 0, all 2, the only one): pending
	//   start    2 in a (group 0, all 3, the only one): pending
	//   zone     a: 4
	// applied: start 0
	// applied: start 1
	// applied: start 2
	// error: <nil>
}

// Where a machine stands, and why, for a person.
func ExampleTask_Explain() {
	world := provisionertest.New(provisionertest.Settings{Kind: true})
	world.Load(provisionertest.NewFleet(1, 2, 0))
	world.SetZone("b", false)
	fault, _ := provisionertest.ParseFault(`start count=always: error "no such flavor"`)
	world.Inject(fault)

	task, err := provisioner.New(provisioner.Config{
		Controller: "example",
		Broker:     world.Broker(),
		State:      world.State(),
		Policy:     provisioner.Policy{Retry: provisioner.RetryPolicy{Retries: provisioner.NoRetries}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	task.Reconcile(context.Background())
	why, err := task.Explain("0")
	fmt.Print(why)
	fmt.Println("error:", err)
	// Output:
	// machine 0: failed: its start has failed: waits for a retry signal
	//   last error: no such flavor
	//   zone a: choice 1 (group 0, all 0)
	//   zone b: out: unavailable
	// error: <nil>
}

// An observer is told everything that happens, in order.
func ExampleObserver() {
	world := provisionertest.New(provisionertest.Settings{Kind: true})
	world.Load(provisionertest.NewFleet(1, 1, 0))

	task, err := provisioner.New(provisioner.Config{
		Controller: "example",
		Broker:     world.Broker(),
		State:      world.State(),
		Observers: []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
			if e.Machine != "" {
				fmt.Println(e)
			}
		})},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	task.Reconcile(ctx)
	task.Idle(ctx) // until the observer has been told everything
	// Output:
	// queued machine=0
	// starting machine=0
	// attempt machine=0 zone=a attempt=1
	// started machine=0 instance=i-0 zone=a attempt=1
}

// Testing with a clock that is moved by hand: Idle before each Add.
func ExampleTask_Idle() {
	mock := clock.NewMock()
	world := provisionertest.New(provisionertest.Settings{Kind: true, Clock: mock})
	world.Load(provisionertest.NewFleet(1, 1, 0))
	fault, _ := provisionertest.ParseFault("start count=2: error zone-independent")
	world.Inject(fault)

	changed := make(chan []provisioner.MachineID)
	task, err := provisioner.New(provisioner.Config{
		Controller: "example",
		Broker:     world.Broker(),
		State:      world.State(),
		Changes:    provisioner.Stream[[]provisioner.MachineID]{C: changed},
		Clock:      mock,
		Policy:     provisioner.Policy{Retry: provisioner.FixedRetry(time.Minute, 5)},
		Resync:     provisioner.Off,
		Sweep:      provisioner.Off,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	go task.Run(ctx)
	changed <- nil // it is taken, so Run has begun

	began := mock.Now()
	for {
		next, err := task.Idle(ctx) // nothing goes on now
		if err != nil || next.IsZero() {
			break
		}
		mock.Add(next.Sub(mock.Now()))
	}
	m, _ := world.Machine("0")
	fmt.Printf("%s after %v\n", m.Instance, mock.Now().Sub(began))
	task.Kill()
	fmt.Println(task.Wait())
	// Output:
	// i-0 after 2m0s
	// <nil>
}

// TestExampleInABubble is the other way, to be copied: virtual time that passes
// by itself. Everything is made inside the bubble, and Clock is left out.
func TestExampleInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := provisionertest.New(provisionertest.Settings{}) // its calls take their time
		world.Load(provisionertest.NewFleet(3, 2, 0))
		task, err := provisioner.New(provisioner.Config{Controller: "example", Broker: world.Broker(), State: world.State()})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := task.Reconcile(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < time.Second || took > time.Minute {
			t.Errorf("it took %v of virtual time", took)
		}
		if err := world.Check(); err != nil {
			t.Error(err)
		}
	})
}
