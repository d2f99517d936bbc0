//go:build lxd

package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// Instances that no machine has are stopped as the harvest mode says, which may
// change meanwhile; other people's are left alone in each (HV1, HV9, HV10, HV12).
func TestHarvest(t *testing.T) {
	f := newRun(t)
	f.want("0-1")
	f.finish("2 of 2 machines run")
	ours := func(machine string) map[string]string {
		return map[string]string{"user.provisioner.controller": t.Name(), "user.provisioner.machine": machine}
	}
	stay := []provisioner.InstanceID{"harvest-nobody", "harvest-somebody", "harvest-unclear"}
	for _, id := range stay {
		t.Cleanup(func() {
			_ = f.Stop(context.Background(), provisioner.StopRequest{Instances: []provisioner.InstanceID{id}})
		})
	}
	f.create("harvest-nobody", "m1", map[string]string{}) // a person's
	f.create("harvest-somebody", "m2", map[string]string{"user.provisioner.controller": "another", "user.provisioner.machine": "0"})
	f.create("harvest-unclear", "m3", ours("")) // ours; of which machine, it does not say
	for _, i := range f.instances() {
		if i.Labels.Machine != "" {
			stay = append(stay, i.ID)
		}
	}

	r := opened(t, f.name)
	changed := make(chan []provisioner.MachineID, 1)
	changed <- nil
	task, err := provisioner.New(provisioner.Config{
		Controller: t.Name(), Broker: f.Broker, State: r,
		Changes: provisioner.Stream[[]provisioner.MachineID]{C: changed},
		Policy:  provisioner.Policy{Harvest: provisioner.HarvestNone, UnknownGrace: time.Second},
		Sweep:   time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- task.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	}()
	for _, test := range []struct {
		mode  provisioner.HarvestMode
		stops bool
	}{
		{provisioner.HarvestNone, false},
		{provisioner.HarvestDestroyed, false},
		{provisioner.HarvestUnknown, true},
		{provisioner.HarvestAll, true},
	} {
		lost := provisioner.InstanceID("harvest-lost-" + test.mode.String()) // of a machine that nobody knows any more
		f.create(lost, "m2", ours("9"))
		if err := task.SetHarvestMode(test.mode); err != nil {
			t.Fatal(err)
		}
		var got []provisioner.InstanceID
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			l, err := f.Instances(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			for _, i := range l.Instances { // of this test
				if i.Labels.Controller == t.Name() || strings.HasPrefix(string(i.ID), "harvest-") {
					got = append(got, i.ID)
				}
			}
			why, err := task.ExplainInstance(lost)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(got, lost) || why.Verdict == provisioner.VerdictMode {
				break
			}
		}
		want := slices.Clone(stay)
		if !test.stops {
			want = append(want, lost)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("mode %s: instances (-want +got):\n%s", test.mode, diff)
		}
		if !test.stops {
			if err := f.Stop(t.Context(), provisioner.StopRequest{Instances: []provisioner.InstanceID{lost}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id, want := range map[provisioner.InstanceID]provisioner.Verdict{
		"harvest-somebody": provisioner.VerdictForeign, "harvest-unclear": provisioner.VerdictUnlabelled,
	} {
		if why, err := task.ExplainInstance(id); err != nil || why.Verdict != want {
			t.Errorf("%s: %+v, %v, want the verdict %s", id, why, err, want)
		}
	}
}
