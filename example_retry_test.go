package provisioner_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// attempts starts machine 0 of a world whose broker has the given faults, and
// prints when the broker was asked, where, and how the machine ended up.
func attempts(policy provisioner.Policy, zones string, faults ...string) {
	mock := clock.NewMock()
	world := provisionertest.New(provisionertest.Settings{Kind: true, Clock: mock})
	for _, zone := range strings.Fields(zones) {
		world.SetZone(provisioner.ZoneName(zone), true)
	}
	for _, line := range faults {
		fault, err := provisionertest.ParseFault(line)
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := world.Inject(fault); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := world.AddPending("0"); err != nil {
		fmt.Println(err)
		return
	}
	policy.Retry.Jitter, policy.Tie = provisioner.NoJitter, provisioner.TieName
	task, err := provisioner.New(provisioner.Config{Controller: "c", Broker: world.Broker(), State: world.State(), Policy: policy, Clock: mock, Resync: provisioner.Off})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go task.Run(ctx)
	for {
		next, err := task.Idle(ctx)
		if m, _ := world.Machine("0"); err != nil || m.Instance != "" || m.Status == provisioner.StatusError {
			break
		}
		mock.Add(max(0, next.Sub(mock.Now())))
	}
	for _, r := range world.Records() {
		if r.Call == provisionertest.CallStart && r.Phase == provisionertest.End {
			fmt.Printf("%-6v %s\n", r.At.Round(time.Second), r)
		}
	}
	m, _ := world.Machine("0")
	fmt.Printf("%-6v %s: %s%s\n", mock.Now().Sub(time.Unix(0, 0)).Round(time.Second), m.InstanceStatus, m.Instance, world.StatusText("0"))
	cancel()
	_ = task.Wait()
}

// By default a round tries each zone once, at once; the wait between rounds
// doubles from 10 s up to 5 min.
func ExampleRetryPolicy() {
	attempts(provisioner.Policy{}, "a b", "start count=7: error")
	// Output:
	// 0s     start 0@a -> error: scripted trouble
	// 0s     start 0@b -> error: scripted trouble
	// 10s    start 0@a -> error: scripted trouble
	// 10s    start 0@b -> error: scripted trouble
	// 30s    start 0@a -> error: scripted trouble
	// 30s    start 0@b -> error: scripted trouble
	// 1m10s  start 0@a -> error: scripted trouble
	// 1m10s  start 0@b -> i-0@b
	// 1m10s  running: i-0
}

// A constant wait, and no more than two retries.
func ExampleFixedRetry() {
	attempts(provisioner.Policy{Retry: provisioner.FixedRetry(time.Minute, 2)}, "", "start count=always: error")
	// Output:
	// 0s     start 0 -> error: scripted trouble
	// 1m0s   start 0 -> error: scripted trouble
	// 2m0s   start 0 -> error: scripted trouble
	// 2m0s   provisioning error: scripted trouble
}

// A broker that says how long to wait is obeyed, and that costs no retry.
func ExampleRetryAfter() {
	attempts(provisioner.Policy{Retry: provisioner.RetryPolicy{Retries: 1}}, "a b", "start count=3: error retry-after 45s")
	// Output:
	// 0s     start 0@a -> error: scripted trouble
	// 45s    start 0@a -> error: scripted trouble
	// 1m30s  start 0@a -> error: scripted trouble
	// 2m15s  start 0@a -> i-0@a
	// 2m15s  running: i-0
}

// A zone without room is passed over: the next one is asked at once.
func ExampleOutOfCapacity() {
	attempts(provisioner.Policy{}, "a b", "start zone=a count=always: error capacity")
	// Output:
	// 0s     start 0@a -> error: scripted trouble
	// 0s     start 0@b -> i-0@b
	// 0s     running: i-0
}

// When all zones are without room the broker is left alone until the first of
// them comes due.
func ExampleOutOfCapacity_everywhere() {
	attempts(provisioner.Policy{}, "a b", "start count=4: error capacity")
	// Output:
	// 0s     start 0@a -> error: scripted trouble
	// 0s     start 0@b -> error: scripted trouble
	// 3m0s   start 0@a -> error: scripted trouble
	// 3m0s   start 0@b -> error: scripted trouble
	// 9m0s   start 0@a -> i-0@a
	// 9m0s   running: i-0
}
