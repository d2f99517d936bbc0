package provisionertest

import (
	"slices"

	"github.com/seed81ba69f2/provisioner"
)

// Machine gives a machine's record, and whether there is one.
func (w *World) Machine(id provisioner.MachineID) (provisioner.Machine, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.existing(id)
	if err != nil {
		return provisioner.Machine{}, false
	}
	return m.Machine, true
}

// Machines gives every record, ordered by id.
func (w *World) Machines() []provisioner.Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []provisioner.Machine
	for _, m := range w.fleet {
		if m.exists {
			all = append(all, m.Machine)
		}
	}
	slices.SortFunc(all, func(a, b provisioner.Machine) int { return a.ID.Compare(b.ID) })
	return all
}

// StatusText gives the text of a machine's latest status; empty if there is no
// such machine.
func (w *World) StatusText(id provisioner.MachineID) string {
	return ofMachine(w, id, func(m *machine) string { return m.text })
}

// Recorded gives what a machine was recorded with by SetInstance, zero if it
// wasn't. A silent World remembers none.
func (w *World) Recorded(id provisioner.MachineID) provisioner.InstanceRecord {
	return ofMachine(w, id, func(m *machine) provisioner.InstanceRecord {
		if m.recorded == nil {
			return provisioner.InstanceRecord{}
		}
		return *copyRecord(m.recorded)
	})
}

// Request gives the latest start request for a machine that reached the
// broker, without its functions, zero if none did. A silent World remembers
// none.
func (w *World) Request(id provisioner.MachineID) provisioner.StartRequest {
	return ofMachine(w, id, func(m *machine) provisioner.StartRequest {
		if m.request == nil {
			return provisioner.StartRequest{}
		}
		return *copyRequest(m.request)
	})
}

// Profiles gives the profiles that are recorded for a machine.
func (w *World) Profiles(id provisioner.MachineID) []string {
	return ofMachine(w, id, func(m *machine) []string { return slices.Clone(m.profiles) })
}

// ProfileChange gives the change of profiles that a machine has, zero if none.
func (w *World) ProfileChange(id provisioner.MachineID) provisioner.ProfileChange {
	return ofMachine(w, id, func(m *machine) provisioner.ProfileChange {
		if m.change == nil {
			return provisioner.ProfileChange{}
		}
		change := *m.change
		change.Profile = copyProfile(change.Profile)
		return change
	})
}

func ofMachine[T any](w *World, id provisioner.MachineID, get func(*machine) T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.machine(id); m != nil {
		return get(m)
	}
	var zero T
	return zero
}

// Live gives the instances that are not stopped, in the order in which they
// were made, whether they can be listed yet or not.
func (w *World) Live() []provisioner.Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []provisioner.Instance
	for _, i := range w.listing {
		if i.live() {
			all = append(all, provisioner.Instance{ID: i.id, Zone: i.zone, State: i.state, Created: i.created, Labels: i.labels})
		}
	}
	return all
}
