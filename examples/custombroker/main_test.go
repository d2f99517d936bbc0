package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

func Example() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// machine 0: start slot-1 (started)
	// machine 1: start slot-2 (started)
	// machine 2: remove slot-0 (its record is removed)
	// machine 3: start slot-3 (started)
	// machine 4: start: the shelf is full
}

// Whoever copies the file copies its contract: the kit checks each clause.
func TestBroker(t *testing.T) {
	cloud := &shelf{room: 20}
	provisionertest.TestBroker(t, cloud, provisionertest.HostOptions{
		Must: []string{"Traits.DedupesByToken", "Traits.Labels", "Traits.ConsistentReads"},
		PowerOff: func(_ context.Context, id provisioner.InstanceID) error {
			cloud.mu.Lock()
			defer cloud.mu.Unlock()
			for i := range cloud.slots {
				if cloud.slots[i].ID == id {
					cloud.slots[i].State = provisioner.InstanceStopped
				}
			}
			return nil
		},
	})
}

// A full shelf is full whatever is tried.
func TestFullShelf(t *testing.T) {
	if _, err := (&shelf{}).Start(t.Context(), provisioner.StartRequest{Token: "t"}); !errors.Is(err, provisioner.ErrPermanent) {
		t.Errorf("%v: want a permanent error", err)
	}
}

func TestState(t *testing.T) {
	b := &book{machines: map[provisioner.MachineID]provisioner.Machine{}}
	provisionertest.TestState(t, b, provisionertest.HostOptions{
		NewMachine: func(_ context.Context, m provisioner.Machine) (provisioner.MachineID, error) {
			b.put(m.ID, m)
			return m.ID, nil
		},
		SetLife: func(ctx context.Context, id provisioner.MachineID, life provisioner.Life) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			m := b.machines[id]
			m.Life = life
			b.machines[id] = m
			return nil
		},
	})
}

// The file is to be read in one go.
func TestStaysShort(t *testing.T) {
	text, err := os.ReadFile("host.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 150 {
		t.Errorf("host.go has %d lines: want fewer than 150", n)
	}
}
