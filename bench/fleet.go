package main

import (
	"context"
	"strconv"

	"github.com/seed81ba69f2/provisioner"
)

// fleet is a host of the least cost: records in memory that are found by their
// number. What a machine's calls do, the measurements say.
type fleet struct {
	provisioner.Broker
	provisioner.State
	records []provisioner.MachineResult
	read    func(machines int) // is told of each reading of single machines; may be nil
}

// newFleet has machines 0, 1, 2…, running in zones a, b and c, or pending.
func newFleet(machines int, running bool) *fleet {
	f := &fleet{records: make([]provisioner.MachineResult, machines)}
	for i := range f.records {
		id := provisioner.MachineID(strconv.Itoa(i))
		m := provisioner.Machine{ID: id, Life: provisioner.Alive, Status: provisioner.StatusPending}
		if running {
			m.Status, m.Instance, m.Zone = provisioner.StatusStarted, provisioner.InstanceID("i-"+string(id)), zones[i%len(zones)].Name
		}
		f.records[i] = provisioner.MachineResult{ID: id, Machine: m}
	}
	return f
}

var zones = []provisioner.Zone{{Name: "a", Available: true}, {Name: "b", Available: true}, {Name: "c", Available: true}}

// number is which machine an id means.
func number(id string) int {
	n, err := strconv.Atoi(id)
	if err != nil {
		panic(err)
	}
	return n
}

func (f *fleet) Zones(context.Context) ([]provisioner.Zone, error) { return zones, nil }

func (f *fleet) Instances(context.Context) (provisioner.Listing, error) {
	l := provisioner.Listing{Complete: true}
	for i := range f.records {
		if m := &f.records[i].Machine; m.Instance != "" {
			l.Instances = append(l.Instances, provisioner.Instance{ID: m.Instance, Zone: m.Zone})
		}
	}
	return l, nil
}

func (f *fleet) Fleet(context.Context) ([]provisioner.MachineResult, error) { return f.records, nil }

func (f *fleet) Machines(_ context.Context, ids ...provisioner.MachineID) ([]provisioner.MachineResult, error) {
	results := make([]provisioner.MachineResult, len(ids))
	for i, id := range ids {
		results[i] = f.records[number(string(id))]
	}
	if f.read != nil {
		f.read(len(ids))
	}
	return results, nil
}

func (f *fleet) StartInfo(_ context.Context, ids ...provisioner.MachineID) ([]provisioner.StartInfoResult, error) {
	results := make([]provisioner.StartInfoResult, len(ids))
	for i, id := range ids {
		results[i].ID = id
	}
	return results, nil
}

func (f *fleet) SetInstance(context.Context, provisioner.InstanceRecord) error { return nil }

func (f *fleet) WriteStatus(context.Context, provisioner.StatusUpdate) error { return nil }
