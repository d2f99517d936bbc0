// Custombroker is the smallest host there is: host.go has a Broker and a State
// and is there to be copied, this file runs a Task on them.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/seed81ba69f2/provisioner"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "custombroker:", err)
		os.Exit(1)
	}
}

// run makes a Task of the host and lets it look at the machines twice.
func run(ctx context.Context, out io.Writer) error {
	cloud := &shelf{room: 3, slots: []provisioner.Instance{{ID: "slot-0"}}}
	records := &book{machines: map[provisioner.MachineID]provisioner.Machine{}}
	records.put("0", provisioner.Machine{Life: provisioner.Alive, Status: provisioner.StatusPending})
	records.put("1", provisioner.Machine{Life: provisioner.Alive, Status: provisioner.StatusPending})
	records.put("2", provisioner.Machine{Life: provisioner.Dead, Instance: "slot-0"})

	task, err := provisioner.New(provisioner.Config{
		Controller: "shelves", // on every label: two controllers must not share it
		Broker:     cloud,
		State:      records,
		Limits:     provisioner.Limits{Starts: 1}, // one after the other, so that the output is the same each time
	})
	if err != nil {
		return err
	}
	if err := reconcile(ctx, task, out); err != nil {
		return err
	}
	// Something has changed. A host with a watcher would give it to the Task
	// (Config.Changes) and call Run; this one asks for another look.
	records.put("3", provisioner.Machine{Life: provisioner.Alive, Status: provisioner.StatusPending})
	records.put("4", provisioner.Machine{Life: provisioner.Alive, Status: provisioner.StatusPending})
	return reconcile(ctx, task, out)
}

// reconcile looks once at everything, waits until what is to be done is done
// or given up, and prints it.
func reconcile(ctx context.Context, task *provisioner.Task, out io.Writer) error {
	report, err := task.Reconcile(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(report.Results, func(a, b provisioner.Result) int { return a.Machine.Compare(b.Machine) })
	for _, r := range report.Results {
		if r.Err != nil {
			fmt.Fprintf(out, "machine %s: %s: %v\n", r.Machine, r.Kind, r.Err)
		} else {
			fmt.Fprintf(out, "machine %s: %s %s (%s)\n", r.Machine, r.Kind, r.Instance, r.Reason)
		}
	}
	return nil
}

// put adds or changes a record.
func (b *book) put(id provisioner.MachineID, m provisioner.Machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.ID = id
	b.machines[id] = m
}
