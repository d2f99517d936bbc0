//go:build lxd

package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/lxd/lxdbroker"
)

// Interrupted at any moment, the command goes on where it was when it is run
// again; each machine ends with exactly one instance, in balance.
func TestInterruptedFleet(t *testing.T) {
	const wanted, none = `{"controller":"TestInterruptedFleet","machines":[{"ids":"0-11"}]}`, `{"controller":"TestInterruptedFleet"}`
	name := fleetFile(t, wanted)
	socket := "unix://" + os.Getenv("LXD_TEST_SOCKET_1")
	args := []string{"-fleet", name, "-lxd", socket, "-image", os.Getenv("LXD_TEST_IMAGE")}
	b, err := lxdbroker.New(lxdbroker.Config{Endpoints: []string{socket}})
	if err != nil {
		t.Fatal(err)
	}
	instances := func() map[provisioner.ZoneName]int {
		t.Helper()
		l, err := b.FindInstances(context.Background(), provisioner.Labels{Controller: "TestInterruptedFleet"})
		if err != nil || len(l.Failed) > 0 {
			t.Fatal(l.Failed, err)
		}
		seen, zones := map[provisioner.MachineID]bool{}, map[provisioner.ZoneName]int{}
		for _, i := range l.Instances {
			if seen[i.Labels.Machine] {
				t.Errorf("machine %s has more than one", i.Labels.Machine)
			}
			seen[i.Labels.Machine] = true
			zones[i.Zone]++
		}
		return zones
	}
	t.Cleanup(func() { // whatever went wrong
		l, _ := b.FindInstances(context.Background(), provisioner.Labels{Controller: "TestInterruptedFleet"})
		for _, i := range l.Instances {
			_ = b.Stop(context.Background(), provisioner.StopRequest{Instances: []provisioner.InstanceID{i.ID}})
		}
	})
	for round, after := range []time.Duration{20 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
		write(t, name, wanted)
		ctx, cancel := context.WithTimeout(t.Context(), after)
		if err := run(ctx, args, &strings.Builder{}); err != nil && !strings.Contains(err.Error(), "run it again") {
			t.Error(err)
		}
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		var out strings.Builder
		if err := run(ctx, args, &out); err != nil || !strings.Contains(out.String(), "12 of 12 machines run") {
			t.Fatalf("round %d: %v\n%s", round, err, &out)
		}
		cancel()
		if got := instances(); got["m1"] != 4 || got["m2"] != 4 || got["m3"] != 4 {
			t.Errorf("round %d: instances by zone %v, want 4 each", round, got)
		}
		write(t, name, none)
		ctx, cancel = context.WithTimeout(t.Context(), after)
		_ = run(ctx, args, &strings.Builder{})
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		if err := run(ctx, args, &out); err != nil {
			t.Errorf("round %d: %v\n%s", round, err, &out)
		}
		cancel()
		if got := instances(); len(got) > 0 {
			t.Errorf("round %d: left %v", round, got)
		}
	}
}
