// Package groups works out which machines are to be kept apart: the
// distribution group of each machine of a model, from what the machines are
// and which units they host.
//
// A [Topology] is made once from plain data and answers any number of
// questions about it. It is a value: nothing it does has an effect, it never
// changes, and it may be used from several goroutines at once. Each answer is
// sorted, holds each id once, and belongs to the caller.
//
// A container is a machine of its own: a unit on 0/lxd/0 is hosted by 0/lxd/0
// and not by 0, so containers are grouped with the machines, containers or
// not, that host the same applications, and never count for their host. Where
// containers of one group should go is the business of
// [provisioner.SpreadContainers].
package groups

import (
	"slices"
	"strings"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// A Machine is a machine as far as groups need it.
type Machine struct {
	ID         provisioner.MachineID
	Instance   provisioner.InstanceID // empty: not provisioned
	Controller bool                   // runs a controller
}

// A Unit is one unit of an application. Only principal units that have a
// machine count.
type Unit struct {
	Application string
	Machine     provisioner.MachineID // empty: not assigned yet
	Subordinate bool
}

// A Topology tells which machine hosts what. Its zero value has no machines.
// Machines and applications are held as positions in sorted lists, so that
// sorting an answer is sorting small integers.
type Topology struct {
	machines    []Machine // sorted by id
	position    map[provisioner.MachineID]int
	controllers []int

	applications []string // sorted
	hosts        [][]int  // of each application: machines
	hosted       [][]int  // by each machine: applications
}

// NewTopology makes a Topology; the slices are not kept. A unit on a machine
// that is not among the machines counts for nothing: the two lists may have
// been read at different times.
//
// The error satisfies NotValid, and names the entry, if a machine's id is
// malformed or given twice, or if a unit that counts has no application or a
// malformed machine id.
func NewTopology(machines []Machine, units []Unit) (*Topology, error) {
	t := &Topology{
		machines: slices.Clone(machines),
		position: make(map[provisioner.MachineID]int, len(machines)),
		hosted:   make([][]int, len(machines)),
	}
	for i, m := range machines {
		if err := m.ID.Validate(); err != nil {
			return nil, errors.Annotatef(err, "machines[%d]", i)
		}
		if first, twice := t.position[m.ID]; twice {
			return nil, errors.NotValidf("machines[%d]: id %q: given already by machines[%d], want each once:", i, m.ID, first)
		}
		t.position[m.ID] = i
	}
	slices.SortFunc(t.machines, func(a, b Machine) int { return a.ID.Compare(b.ID) })
	for i, m := range t.machines {
		t.position[m.ID] = i
		if m.Controller {
			t.controllers = append(t.controllers, i)
		}
	}
	if err := t.seat(units); err != nil {
		return nil, err
	}
	return t, nil
}

// seat enters the units that count.
func (t *Topology) seat(units []Unit) error {
	on := map[string][]int{}
	for i, u := range units {
		if u.Subordinate || u.Machine == "" {
			continue
		}
		if u.Application == "" {
			return errors.NotValidf("units[%d]: application %q: want a name:", i, u.Application)
		}
		if err := u.Machine.Validate(); err != nil {
			return errors.Annotatef(err, "units[%d]", i)
		}
		if m, known := t.position[u.Machine]; known {
			on[u.Application] = append(on[u.Application], m)
		}
	}
	for name := range on {
		t.applications = append(t.applications, name)
	}
	slices.Sort(t.applications)
	for a, name := range t.applications {
		hosts := sortedSet(on[name])
		t.hosts = append(t.hosts, hosts)
		for _, m := range hosts {
			t.hosted[m] = append(t.hosted[m], a)
		}
	}
	return nil
}

func sortedSet(positions []int) []int {
	slices.Sort(positions)
	return slices.Compact(positions)
}

// DistributionGroup returns the ids of the machines that the given one is to
// be kept apart from. In order (DG1, DG2):
//
//   - for a controller's machine: all controllers' machines
//   - for any other: the machines that host a principal unit of an application
//     of which the machine hosts one too; a controller's may be among them
//   - the machine itself is left out; machines that are not provisioned are in
//   - sorted by MachineID.Compare
//
// The error satisfies NotValid for a malformed id, and NotFound for a machine
// that is not there.
func (t *Topology) DistributionGroup(id provisioner.MachineID) ([]provisioner.MachineID, error) {
	m, err := t.find(id)
	if err != nil {
		return nil, err
	}
	return t.others(m), nil
}

// DistributionInstances returns the instances that the machine's own is to be
// kept apart from. It differs from [Topology.DistributionGroup] in this (DG2):
// it gives the instances of those machines that are provisioned, the machine's
// own included once it has one, sorted as text. A machine that is in no group
// has none, not even its own.
func (t *Topology) DistributionInstances(id provisioner.MachineID) ([]provisioner.InstanceID, error) {
	m, err := t.find(id)
	if err != nil {
		return nil, err
	}
	return t.instances(m), nil
}

// Group returns the machine's group in the form in which a host hands it to
// the provisioner: all members, the machine itself included, under a key.
// Machines that host the same set of applications share a key, which lists
// them sorted ("apps:mysql,wordpress"); controllers share "controllers". A
// machine that is in no group has a zero Group. Errors are those of
// [Topology.DistributionGroup].
func (t *Topology) Group(id provisioner.MachineID) (provisioner.Group, error) {
	m, err := t.find(id)
	if err != nil {
		return provisioner.Group{}, err
	}
	group := provisioner.Group{Key: t.key(m)}
	for _, p := range t.members(m) {
		group.Members = append(group.Members, t.machines[p].ID)
	}
	return group, nil
}

// Groups gives the result of [Topology.Group] for each id, in the order of
// ids: what a host's [provisioner.GroupFinder] returns.
func (t *Topology) Groups(ids ...provisioner.MachineID) []provisioner.GroupResult {
	results := make([]provisioner.GroupResult, len(ids))
	for i, id := range ids {
		results[i].ID = id
		results[i].Group, results[i].Err = t.Group(id)
	}
	return results
}

// find returns a machine's position.
func (t *Topology) find(id provisioner.MachineID) (int, error) {
	if err := id.Validate(); err != nil {
		return 0, err
	}
	m, known := t.position[id]
	if !known {
		return 0, errors.NotFoundf("machine %s", id)
	}
	return m, nil
}

// members is the whole group of a machine: sorted, and not to be changed.
func (t *Topology) members(m int) []int {
	if t.machines[m].Controller {
		return t.controllers
	}
	applications := t.hosted[m]
	if len(applications) == 1 {
		return t.hosts[applications[0]]
	}
	var all []int
	for _, a := range applications {
		all = append(all, t.hosts[a]...)
	}
	return sortedSet(all)
}

func (t *Topology) others(m int) []provisioner.MachineID {
	var ids []provisioner.MachineID
	for _, p := range t.members(m) {
		if p != m {
			ids = append(ids, t.machines[p].ID)
		}
	}
	return ids
}

func (t *Topology) instances(m int) []provisioner.InstanceID {
	var instances []provisioner.InstanceID
	for _, p := range t.members(m) {
		if i := t.machines[p].Instance; i != "" {
			instances = append(instances, i)
		}
	}
	slices.Sort(instances)
	return slices.Compact(instances)
}

// escape keeps keys apart whatever applications are called.
var escape = strings.NewReplacer(`\`, `\\`, `,`, `\,`)

func (t *Topology) key(m int) string {
	if t.machines[m].Controller {
		return "controllers"
	}
	var names []string
	for _, a := range t.hosted[m] {
		names = append(names, escape.Replace(t.applications[a]))
	}
	if names == nil {
		return ""
	}
	return "apps:" + strings.Join(names, ",")
}
