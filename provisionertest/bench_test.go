package provisionertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// BenchmarkCalls measures what a kind, silent World costs by itself: the five
// calls that one start of a machine makes.
//
//	go test -run '^$' -bench Calls -count 6 ./provisionertest | benchstat -
func BenchmarkCalls(b *testing.B) {
	for _, n := range []int{1000, 50000} {
		b.Run(fmt.Sprintf("machines=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			ctx := context.Background()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				w := kind(b, provisionertest.Settings{Silent: true}, n, 3)
				broker, state := w.Broker(), w.State()
				fleet, err := state.Fleet(ctx)
				must(b, err)
				b.StartTimer()
				for _, m := range fleet {
					calls(b, ctx, broker, state, m.ID)
				}
			}
			perMachine := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(n)
			b.ReportMetric(perMachine, "ns/machine")
			b.ReportMetric(perMachine/5, "ns/call")
		})
	}
}

func calls(b *testing.B, ctx context.Context, broker *provisionertest.Broker, state *provisionertest.State, id provisioner.MachineID) {
	must(b, state.WriteStatus(ctx, provisioner.StatusUpdate{Machine: id, Instance: provisioner.InstanceAllocating, Text: "starting"}))
	_, err := state.StartInfo(ctx, id)
	must(b, err)
	res, err := broker.Start(ctx, provisioner.StartRequest{Machine: id, Zone: "a"})
	must(b, err)
	must(b, state.SetInstance(ctx, provisioner.InstanceRecord{Machine: id, Instance: res.Instance, Zone: res.Zone}))
	must(b, state.WriteStatus(ctx, provisioner.StatusUpdate{Machine: id, Instance: provisioner.InstanceRunning}))
}
