package lxdbroker

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/seed81ba69f2/provisioner"
)

// An instance is what LXD tells of one instance.
type instance struct {
	Name            string                       `json:"name"`
	Type            string                       `json:"type"`
	Architecture    string                       `json:"architecture"`
	StatusCode      int                          `json:"status_code"`
	Location        string                       `json:"location"`
	Created         time.Time                    `json:"created_at"`
	Used            time.Time                    `json:"last_used_at"` // 1970 or nothing: never started
	Config          map[string]string            `json:"config"`
	Profiles        []string                     `json:"profiles"`
	ExpandedConfig  map[string]string            `json:"expanded_config"`
	ExpandedDevices map[string]map[string]string `json:"expanded_devices"`
}

// LXD's status codes of instances that matter here.
const (
	lxdStopped  = 102
	lxdRunning  = 103
	lxdStarting = 106
	lxdError    = 112
)

// unanswered says that the member that has the instance did not answer: LXD
// then knows the name, and nothing else.
func (i instance) unanswered() bool { return i.StatusCode == lxdError && i.Architecture == "" }

// state tells one that was made and not started yet from one that was powered
// off.
func (i instance) state() provisioner.InstanceState {
	switch {
	case i.StatusCode == lxdRunning:
		return provisioner.InstanceUp
	case i.StatusCode == lxdStarting, i.StatusCode == lxdStopped && i.Used.Unix() <= 0:
		return provisioner.InstanceStarting
	case i.StatusCode == lxdStopped:
		return provisioner.InstanceStopped
	}
	return provisioner.InstancePresent
}

// Instances lists every instance of the project. It is complete, save the
// zones of members that did not answer: LXD has their instances' names, but
// neither labels nor state, so these are left out.
func (b *Broker) Instances(ctx context.Context) (provisioner.Listing, error) {
	return b.FindInstances(ctx, provisioner.Labels{})
}

// FindInstances lists the instances with the given labels. LXD cannot search
// by them, so it reads what Instances reads. A machine's instance has a name of its
// own, and LXD knows the names of members that did not answer too: what cannot be
// the machine's is not missed.
func (b *Broker) FindInstances(ctx context.Context, want provisioner.Labels) (provisioner.Listing, error) {
	zoneOf, err := b.zoneNames(ctx)
	if err != nil {
		return provisioner.Listing{}, err
	}
	var instances []instance
	if _, err := b.lxd.get(ctx, "/1.0/instances", url.Values{"recursion": {"1"}}, &instances); err != nil {
		return provisioner.Listing{}, mark(err)
	}
	listing := provisioner.Listing{Complete: true}
	for _, i := range instances {
		if zone := zoneOf(i.Location); i.unanswered() {
			if cannotBe(i.Name, want) {
				continue
			}
			if !slices.Contains(listing.Failed, zone) {
				listing.Failed = append(listing.Failed, zone)
			}
			continue
		}
		labels := labelsOf(i.Config)
		b.known.add(i.Name, labels.Machine)
		if matches(labels, want) {
			listing.Instances = append(listing.Instances, provisioner.Instance{
				ID: provisioner.InstanceID(i.Name), Zone: zoneOf(i.Location),
				State: i.state(), Created: i.Created, Labels: labels,
			})
		}
	}
	slices.Sort(listing.Failed)
	return listing, nil
}

// A machineIndex remembers whose instance is whose, for LXD's events tell
// only names, and may tell them of instances that are gone.
type machineIndex struct {
	mu       sync.Mutex
	machines map[string]provisioner.MachineID
}

func (x *machineIndex) add(name string, machine provisioner.MachineID) {
	if machine == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.machines == nil {
		x.machines = map[string]provisioner.MachineID{}
	}
	x.machines[name] = machine
}

func (x *machineIndex) find(name string) provisioner.MachineID {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.machines[name]
}

func (x *machineIndex) forget(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.machines, name)
}

// all gives every machine, sorted.
func (x *machineIndex) all() []provisioner.MachineID {
	x.mu.Lock()
	defer x.mu.Unlock()
	var ids []provisioner.MachineID
	for _, id := range x.machines {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
