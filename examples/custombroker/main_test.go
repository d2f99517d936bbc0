package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
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

// Whoever copies the file copies its contract: each clause is held here.
func TestBroker(t *testing.T) {
	ctx := context.Background()
	var s shelf
	req := provisioner.StartRequest{Token: "t1", Labels: provisioner.Labels{Machine: "0", Token: "t1"}}
	first, err := s.Start(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Start(ctx, req); err != nil || again.Instance != first.Instance {
		t.Errorf("the same token again: %v, %v: want %v", again.Instance, err, first.Instance)
	}
	for _, token := range []string{"t2", "t3"} {
		if _, err := s.Start(ctx, provisioner.StartRequest{Token: token, Labels: provisioner.Labels{Token: token}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Start(ctx, provisioner.StartRequest{Token: "t4"}); !errors.Is(err, provisioner.ErrPermanent) {
		t.Errorf("a full shelf: %v: want a permanent error", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Start(ended, req); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v: want %v", err, context.Canceled)
	}
	if err := s.Stop(ctx, provisioner.StopRequest{Instances: []provisioner.InstanceID{"slot-2", "slot-3", "unknown"}}); err != nil {
		t.Errorf("stop: %v: want that an unknown instance is a success", err)
	}
	want := provisioner.Listing{Instances: []provisioner.Instance{{ID: "slot-1", Labels: req.Labels}}, Complete: true}
	if got, err := s.Instances(ctx); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("listing: %v (-want +got):\n%s", err, cmp.Diff(want, got))
	}
}

func TestState(t *testing.T) {
	ctx := context.Background()
	b := book{machines: map[provisioner.MachineID]provisioner.Machine{}}
	b.put("0", provisioner.Machine{Life: provisioner.Alive})
	b.put("1", provisioner.Machine{Life: provisioner.Dead})
	set := func(id provisioner.MachineID, instance provisioner.InstanceID) error {
		return b.SetInstance(ctx, provisioner.InstanceRecord{Machine: id, Instance: instance, Zone: "z"})
	}
	remove := func(id provisioner.MachineID) error { return b.Remove(ctx, provisioner.Removal{Machine: id}) }
	for _, test := range []struct {
		why  string
		err  error
		want error
	}{
		{"a first instance", set("0", "i"), nil},
		{"the same again", set("0", "i"), nil},
		{"another one", set("0", "j"), errors.AlreadyExists},
		{"for a dead machine", set("1", "i"), errors.Forbidden},
		{"for no machine", set("2", "i"), errors.NotFound},
		{"remove one that is alive", remove("0"), errors.Forbidden},
		{"remove a dead one", remove("1"), nil},
		{"remove it again", remove("1"), nil},
	} {
		if test.want == nil && test.err != nil || test.want != nil && !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v: want %v", test.why, test.err, test.want)
		}
	}
	alive := provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i", Zone: "z"}
	results, err := b.Machines(ctx, "0", "1")
	if err != nil || len(results) != 2 || results[0].Machine != alive || !errors.Is(results[1].Err, errors.NotFound) {
		t.Errorf("machines: %v, %v: want 0 and that 1 is not found", results, err)
	}
	if results, err := b.Fleet(ctx); err != nil || len(results) != 1 || results[0].Machine != alive {
		t.Errorf("fleet: %v, %v: want only 0", results, err)
	}
	if infos, err := b.StartInfo(ctx, "0"); err != nil || len(infos) != 1 || infos[0].ID != "0" {
		t.Errorf("start info: %v, %v: want one for 0", infos, err)
	}
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
