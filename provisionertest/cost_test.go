package provisionertest_test

import (
	"testing"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// A kind, silent World costs a benchmark nothing but results and records.
func TestCallsOfAKindSilentWorldAllocateLittle(t *testing.T) {
	const n = 300
	w := kind(t, provisionertest.Settings{Silent: true}, n, 3)
	b, s, ctx := w.Broker(), w.State(), t.Context()
	fleet := provisionertest.NewFleet(n, 0, 0).Machines
	instances := make(map[provisioner.MachineID]provisioner.InstanceID, n)
	var intents [n]provisioner.Intent
	for _, test := range []struct {
		call string
		most float64
		do   func(i int, id provisioner.MachineID) error
	}{
		{"status", 0, func(_ int, id provisioner.MachineID) error {
			return s.WriteStatus(ctx, provisioner.StatusUpdate{Machine: id, InstanceStatus: provisioner.InstanceAllocating, Text: "starting"})
		}},
		// One of them is the list of ids that goes in.
		{"machines", 2, func(_ int, id provisioner.MachineID) error { _, err := s.Machines(ctx, id); return err }},
		{"info", 2, func(_ int, id provisioner.MachineID) error { _, err := s.StartInfo(ctx, id); return err }},
		{"agents", 2, func(int, provisioner.MachineID) error {
			_, err := s.FindAgents(ctx, provisioner.AgentQuery{Version: "1"})
			return err
		}},
		{"intent", 0, func(i int, id provisioner.MachineID) error {
			old := intents[i]
			intents[i] = provisioner.Intent{Machine: id, Attempt: old.Attempt + 1}
			return s.SwapIntent(ctx, old, intents[i])
		}},
		// The instance, its id, its place in the machine's list; maps that grow.
		{"start", 5, func(_ int, id provisioner.MachineID) error {
			res, err := b.Start(ctx, provisioner.StartRequest{Machine: id, Zone: "a"})
			instances[id] = res.Instance
			return err
		}},
		{"record", 0, func(_ int, id provisioner.MachineID) error {
			return s.SetInstance(ctx, provisioner.InstanceRecord{Machine: id, Instance: instances[id]})
		}},
		{"find", 1, func(_ int, id provisioner.MachineID) error {
			_, err := b.FindInstances(ctx, provisioner.Labels{Machine: id})
			return err
		}},
		{"stop", 3, func(_ int, id provisioner.MachineID) error {
			return b.Stop(ctx, provisioner.StopRequest{Instances: []provisioner.InstanceID{instances[id]}})
		}},
	} {
		i := 0
		got := testing.AllocsPerRun(n-1, func() {
			must(t, test.do(i%n, fleet[i%n].ID))
			i++
		})
		if got > test.most {
			t.Errorf("%s: %v allocations, want at most %v", test.call, got, test.most)
		}
	}
}
