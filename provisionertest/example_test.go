package provisionertest_test

import (
	"context"
	"fmt"

	"github.com/benbjohnson/clock"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// A start whose reply is lost, and that nobody looks after, leaks.
func ExampleWorld() {
	w := provisionertest.New(provisionertest.Settings{Kind: true, Clock: clock.NewMock()})
	if err := w.Load(provisionertest.NewFleet(2, 2, 0)); err != nil {
		fmt.Println(err)
	}
	lost, err := provisionertest.ParseFault(`start machine=1 after: error ambiguous "connection reset"`)
	if err != nil {
		fmt.Println(err)
	}
	if err := w.Inject(lost); err != nil {
		fmt.Println(err)
	}

	// What a Task would do:
	ctx := context.Background()
	for _, id := range []provisioner.MachineID{"0", "1"} {
		res, err := w.Broker().Start(ctx, provisioner.StartRequest{Machine: id, Zone: "b"})
		if err != nil {
			continue
		}
		rec := provisioner.InstanceRecord{Machine: id, Instance: res.Instance, Zone: res.Zone}
		if err := w.State().SetInstance(ctx, rec); err != nil {
			fmt.Println(err)
		}
	}

	fmt.Print(w.Transcript())
	fmt.Println(w.Check())
	// Output:
	// 1 0s = zones [a b]
	// 2 0s = add 0 1
	// 3 0s = fault start machine=1 after: error ambiguous "connection reset"
	// 4 0s start 0@b ...
	// 5 0s start 0@b -> i-0@b
	// 6 0s record 0 i-0@b ...
	// 7 0s record 0 i-0@b -> ok
	// 8 0s start 1@b ...
	// 9 0s start 1@b -> error: connection reset
	// instance i-1 in zone "b", made for machine 1, is claimed by no record
}
