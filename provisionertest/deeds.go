package provisionertest

import (
	"cmp"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// What a test does to the World. A deed that changes a machine's record tells
// the watchers; one on a machine or instance that doesn't exist does nothing
// and returns NotFound.

// Add adds machines, with one change for all. One that has an instance gets it
// made by the broker too, in its zone and listed at once, unless it is there
// already. The error is that of the first machine that is malformed
// (NotValid) or exists already (AlreadyExists); then none is added.
func (w *World) Add(machines ...provisioner.Machine) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]provisioner.MachineID, len(machines))
	seen := make(map[provisioner.MachineID]bool, len(machines))
	for i, rec := range machines {
		if err := rec.ID.Validate(); err != nil {
			return err
		}
		if m := w.machines[rec.ID]; m != nil && m.exists || seen[rec.ID] {
			return errors.AlreadyExistsf("machine %s", rec.ID)
		}
		ids[i], seen[rec.ID] = rec.ID, true
	}
	for _, rec := range machines {
		w.add(rec)
	}
	w.deed("add %s", some(ids))
	w.changed(ids...)
	return nil
}

// Pending is a machine that is alive and waits for an instance.
func Pending(id provisioner.MachineID) provisioner.Machine {
	return provisioner.Machine{ID: id, Life: provisioner.Alive, Status: provisioner.StatusPending}
}

// AddPending adds machines that wait for an instance.
func (w *World) AddPending(ids ...provisioner.MachineID) error {
	machines := make([]provisioner.Machine, len(ids))
	for i, id := range ids {
		machines[i] = Pending(id)
	}
	return w.Add(machines...)
}

func (w *World) add(rec provisioner.Machine) {
	m := w.known(rec.ID)
	*m = machine{Machine: rec, exists: true, listed: m.listed, group: m.group, made: m.made, live: m.live, instances: m.instances}
	if !m.listed {
		m.listed = true
		w.fleet = append(w.fleet, m)
	}
	if rec.Instance != "" && w.instances[rec.Instance] == nil {
		m.made++
		w.addInstance(&instance{id: rec.Instance, machine: rec.ID, zone: rec.Zone, state: provisioner.InstanceUp,
			created: w.now(), labels: w.labelsOf(rec.ID)}, m)
	}
	w.claim(m)
}

func (w *World) labelsOf(id provisioner.MachineID) provisioner.Labels {
	if !w.set.Traits.Labels {
		return provisioner.Labels{}
	}
	return provisioner.Labels{Controller: w.set.Controller, Machine: id}
}

// Edit changes a record in any way; its id stays.
func (w *World) Edit(id provisioner.MachineID, change func(*provisioner.Machine)) error {
	return w.edit(id, "edited", func(m *machine) {
		change(&m.Machine)
		m.ID = id
		w.claim(m)
	})
}

// SetLife makes a machine alive, dying, dead, or something that has no meaning.
func (w *World) SetLife(id provisioner.MachineID, life provisioner.Life) error {
	return w.edit(id, string(life), func(m *machine) { m.Life = life })
}

// SetKeep says whether the machine's instance is to be kept.
func (w *World) SetKeep(id provisioner.MachineID, keep bool) error {
	what := "keeps its instance"
	if !keep {
		what = "doesn't keep its instance"
	}
	return w.edit(id, what, func(m *machine) { m.Keep = keep })
}

// SetStatus sets those of the statuses that aren't empty.
func (w *World) SetStatus(id provisioner.MachineID, status provisioner.Status, instance provisioner.InstanceStatus) error {
	return w.edit(id, string(status)+"/"+string(instance), func(m *machine) { m.setStatus(status, instance, "") })
}

// edit changes one record and tells the watchers.
func (w *World) edit(id provisioner.MachineID, what string, change func(*machine)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.existing(id)
	if err != nil {
		return err
	}
	w.deed("%s %s", id, what)
	change(m)
	w.changed(id)
	return nil
}

// Forget takes records away, dead or not, as if somebody else had done it. Their
// instances stay.
func (w *World) Forget(ids ...provisioner.MachineID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if _, err := w.existing(id); err != nil {
			return err
		}
	}
	for _, id := range ids {
		w.drop(w.machines[id])
	}
	w.deed("forgotten %s", some(ids))
	w.changed(ids...)
	return nil
}

// SetRetryable says whether the machine's error may pass, for the next retry
// signal. It is no change of the record.
func (w *World) SetRetryable(id provisioner.MachineID, retryable bool) error {
	return w.configure(id, func(*machine) {
		if retryable {
			w.retryable[id] = true
		} else {
			delete(w.retryable, id)
		}
	})
}

// SetStartInfo says what the machine needs to start. Its group is overridden
// by SetGroup.
func (w *World) SetStartInfo(id provisioner.MachineID, info provisioner.StartInfo) error {
	return w.configure(id, func(m *machine) {
		info = copyInfo(info)
		m.info = &info
	})
}

// SetDerived says which zones the machine's start parameters imply; none: all.
func (w *World) SetDerived(id provisioner.MachineID, zones ...provisioner.ZoneName) error {
	return w.configure(id, func(m *machine) { m.derived = slices.Clone(zones) })
}

// SetProfileChange gives the machine a change of its profiles to be made, in
// the place of the one that it has, and tells the watchers of profile changes.
func (w *World) SetProfileChange(change provisioner.ProfileChange) error {
	return w.configure(change.Machine, func(m *machine) {
		change.Profile = copyProfile(change.Profile)
		w.deed("%s is to have its profiles changed: %s", m.ID, change)
		m.change = &change
		tell(&w.profiling, []provisioner.MachineID{m.ID})
	})
}

// SetInstanceProfiles says which profiles an instance has.
func (w *World) SetInstanceProfiles(id provisioner.InstanceID, names ...string) error {
	return w.eachInstance("has other profiles", []provisioner.InstanceID{id}, func(i *instance) { i.profiles = slices.Clone(names) })
}

// configure sets what belongs to a machine but isn't in its record.
func (w *World) configure(id provisioner.MachineID, change func(*machine)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.existing(id)
	if err == nil {
		change(m)
	}
	return err
}

// SetGroup puts machines into one group, out of any that they were in. None of
// them has to exist.
func (w *World) SetGroup(key string, members ...provisioner.MachineID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	group := &provisioner.Group{Key: key, Members: slices.Clone(members)}
	for _, id := range members {
		w.known(id).group = group
	}
}

// SetAgents says which agent binaries there are, best first. Without a call
// there always is one that fits.
func (w *World) SetAgents(agents ...provisioner.AgentBinary) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.agents = append([]provisioner.AgentBinary{}, agents...)
}

// SetZones says which zones there are, in the broker's order.
func (w *World) SetZones(zones ...provisioner.Zone) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deed("zones %s", showZones(zones))
	w.zones = slices.Clone(zones)
}

// SetZone makes a zone available or not, and adds it if it isn't there.
func (w *World) SetZone(name provisioner.ZoneName, available bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	z := provisioner.Zone{Name: name, Available: available}
	w.deed("zone %s", showZones([]provisioner.Zone{z}))
	if i := slices.IndexFunc(w.zones, func(z provisioner.Zone) bool { return z.Name == name }); i >= 0 {
		w.zones[i] = z
		return
	}
	w.zones = append(w.zones, z)
}

// RemoveZone takes a zone off the list. Its instances stay.
func (w *World) RemoveZone(name provisioner.ZoneName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deed("zone %s vanishes", name)
	w.zones = slices.DeleteFunc(w.zones, func(z provisioner.Zone) bool { return z.Name == name })
}

// SetCapacity says how many instances a zone has room for; below 0 for any
// number, which is the default. A start in a full one is out of capacity.
func (w *World) SetCapacity(name provisioner.ZoneName, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deed("zone %s has room for %d", name, most)
	if most < 0 {
		delete(w.capacity, name)
		return
	}
	w.capacity[name] = most
}

// AddInstance adds an instance that no Start has made: another's, with
// whatever labels, or one that a crash left behind. It is no leak unless it is
// labelled with a machine and with Settings.Controller. It is shown with its
// labels, whatever the traits say; without a time of creation it is created
// now.
func (w *World) AddInstance(i provisioner.Instance) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.ID == "" {
		return errors.NotValidf("instance without an id")
	}
	if w.instances[i.ID] != nil {
		return errors.AlreadyExistsf("instance %s", i.ID)
	}
	w.deed("instance %s appears", i.ID)
	made := &instance{id: i.ID, zone: i.Zone, labels: i.Labels, state: cmp.Or(i.State, provisioner.InstanceUp), created: i.Created}
	if made.created.IsZero() {
		made.created = w.now()
	}
	ours := i.Labels.Machine != "" && i.Labels.Controller == w.set.Controller
	if !ours {
		made.excused = true
		w.strangers = append(w.strangers, made)
		w.addInstance(made, nil)
		return nil
	}
	made.machine = i.Labels.Machine
	if i.Labels.Token != "" {
		w.tokens[i.Labels.Token] = made
	}
	w.addInstance(made, w.known(made.machine))
	return nil
}

// Protect says of instances that they are no leaks and must not be stopped.
func (w *World) Protect(ids ...provisioner.InstanceID) error {
	return w.eachInstance("protected", ids, func(i *instance) { i.protected = true })
}

// Excuse says of instances that they are no leaks; they may be stopped.
func (w *World) Excuse(ids ...provisioner.InstanceID) error {
	return w.eachInstance("excused", ids, func(i *instance) { i.excused = true })
}

// PowerOff makes instances stopped but there: the broker still lists them.
func (w *World) PowerOff(ids ...provisioner.InstanceID) error {
	return w.eachInstance("powered off", ids, func(i *instance) { i.state = provisioner.InstanceStopped })
}

// Vanish takes instances away, as if somebody else had stopped them long ago.
func (w *World) Vanish(ids ...provisioner.InstanceID) error {
	return w.eachInstance("vanished", ids, func(i *instance) {
		if i.live() {
			w.stopInstance(i)
		}
		i.gone = true
	})
}

// Hide keeps instances out of listings for so long from now on. They are there.
func (w *World) Hide(d time.Duration, ids ...provisioner.InstanceID) error {
	return w.eachInstance("hidden", ids, func(i *instance) { i.visible = w.now().Add(d) })
}

func (w *World) eachInstance(what string, ids []provisioner.InstanceID, change func(*instance)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if w.instances[id] == nil {
			return errors.NotFoundf("instance %q", string(id))
		}
	}
	for _, id := range ids {
		change(w.instances[id])
	}
	w.deed("%s %s", some(ids), what)
	return nil
}
