package lxdbroker

import (
	"context"
	"net/url"
	"regexp"
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

func (i instance) everRan() bool { return i.Used.Unix() > 0 }

// state tells one that was made and not started yet from one that was powered
// off.
func (i instance) state() provisioner.InstanceState {
	switch {
	case i.StatusCode == lxdRunning:
		return provisioner.InstanceUp
	case i.StatusCode == lxdStarting, i.StatusCode == lxdStopped && !i.everRan():
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

// FindInstances lists the instances with the given labels. LXD is asked only for
// those of the machine, where it is given, and for those whose member is silent:
// it knows their names, so what cannot be the machine's is not missed.
func (b *Broker) FindInstances(ctx context.Context, want provisioner.Labels) (provisioner.Listing, error) {
	zoneOf, err := b.zoneNames(ctx)
	if err != nil {
		return provisioner.Listing{}, err
	}
	var instances []instance
	if _, err := b.lxd.get(ctx, "/1.0/instances", search(want), &instances); err != nil {
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

// plain are values that mean themselves in LXD's filters, whose quoting is not
// to be relied on.
var plain = regexp.MustCompile(`^[0-9A-Za-z/-]+$`)

// search is the query for instances with the given labels. What it finds has
// to be looked at again, and may be more.
func search(want provisioner.Labels) url.Values {
	query := url.Values{"recursion": {"1"}}
	if plain.MatchString(string(want.Machine)) {
		query.Set("filter", "config."+labelMachine+" eq "+string(want.Machine)+" or status eq Error")
	}
	return query
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
