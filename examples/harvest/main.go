// Harvest shows what the four harvest modes do about the same fleet, why each
// instance is left alone, and how a pass in which too much is unknown freezes and
// is approved. It needs nothing: the host is one in memory, and time is moved by
// hand.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "harvest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	for _, mode := range []provisioner.HarvestMode{provisioner.HarvestNone, provisioner.HarvestDestroyed, provisioner.HarvestUnknown, provisioner.HarvestAll} {
		if err := sideBySide(ctx, out, mode); err != nil {
			return err
		}
	}
	return frozen(ctx, out)
}

// A yard is a fleet in memory, and the Task that keeps it.
type yard struct {
	*provisionertest.World
	task *provisioner.Task
	now  *clock.Mock
}

func newYard(mode provisioner.HarvestMode) (*yard, error) {
	now := clock.NewMock()
	now.Set(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	w := provisionertest.New(provisionertest.Settings{Kind: true, Clock: now, Controller: "demo", Traits: provisioner.Traits{Labels: true}})
	w.SetZones(provisioner.Zone{Name: "a", Available: true})
	task, err := provisioner.New(provisioner.Config{
		Controller: "demo", Broker: w.Broker(), State: w.State(), Clock: now,
		Policy: provisioner.Policy{Harvest: mode, MaxUnknown: 2},
	})
	return &yard{w, task, now}, err
}

// look lets d pass, and looks at everything once.
func (y *yard) look(ctx context.Context, d time.Duration) error {
	y.now.Add(d)
	_, err := y.task.Reconcile(ctx)
	return err
}

// machine adds a record, with its instance.
func (y *yard) machine(id provisioner.MachineID, life provisioner.Life, keep bool) error {
	return y.Add(provisioner.Machine{ID: id, Life: life, Keep: keep, Zone: "a", Instance: provisioner.InstanceID("i-" + id), Status: provisioner.StatusStarted})
}

// stray adds an instance that no record has.
func (y *yard) stray(id provisioner.InstanceID, machine provisioner.MachineID, controller string, age time.Duration) error {
	return y.AddInstance(provisioner.Instance{ID: id, Zone: "a", Created: y.now.Now().Add(-age),
		Labels: provisioner.Labels{Controller: controller, Machine: machine}})
}

// sideBySide shows what becomes of each instance in one mode.
func sideBySide(ctx context.Context, out io.Writer, mode provisioner.HarvestMode) error {
	y, err := newYard(mode)
	if err != nil {
		return err
	}
	for _, err := range []error{
		y.machine("0", provisioner.Alive, false),
		y.machine("1", provisioner.Dead, false),
		y.machine("2", provisioner.Dead, true),
		y.stray("i-lost", "7", "demo", time.Hour),
		y.stray("i-other", "7", "another", time.Hour),
		y.stray("i-bare", "", "", time.Hour),
	} {
		if err != nil {
			return err
		}
	}
	if err := y.look(ctx, 0); err != nil {
		return err
	}
	if err := y.look(ctx, 2*time.Minute); err != nil { // the second sighting
		return err
	}
	fmt.Fprintf(out, "mode %s\n", mode)
	alive := map[provisioner.InstanceID]bool{}
	for _, i := range y.Live() {
		alive[i.ID] = true
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, id := range []provisioner.InstanceID{"i-0", "i-1", "i-2", "i-lost", "i-other", "i-bare"} {
		fate := "stopped"
		x, err := y.task.ExplainInstance(id)
		if err != nil {
			return err
		}
		if alive[id] {
			fate = "runs: " + x.Reason
		}
		fmt.Fprintf(table, "  %s\t%s\n", id, fate)
	}
	return table.Flush()
}

// frozen restores a backup that knows two of six instances, and approves what
// follows from it.
func frozen(ctx context.Context, out io.Writer) error {
	y, err := newYard(provisioner.HarvestAll)
	if err != nil {
		return err
	}
	for _, id := range []provisioner.MachineID{"0", "1"} {
		if err := y.machine(id, provisioner.Alive, false); err != nil {
			return err
		}
	}
	for i := range 4 {
		id := provisioner.MachineID(fmt.Sprint(i + 2))
		if err := y.stray(provisioner.InstanceID("i-"+id), id, "demo", time.Duration(i+1)*time.Hour); err != nil {
			return err
		}
	}
	for _, d := range []time.Duration{0, 2 * time.Minute} {
		if err := y.look(ctx, d); err != nil {
			return err
		}
	}
	f := y.task.Frozen()
	fmt.Fprintf(out, "an old backup was restored\n  %s\n  %v\n", f.Reason, f.Instances)
	if err := y.task.Approve(f.Plan); err != nil {
		return err
	}
	for pass := 1; pass <= 3; pass++ {
		if err := y.look(ctx, 2*time.Minute); err != nil {
			return err
		}
		fmt.Fprintf(out, "  pass %d after the approval: %d of 6 run\n", pass, len(y.Live()))
	}
	return nil
}
