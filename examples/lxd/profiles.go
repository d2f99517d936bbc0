package main

import (
	"context"
	"slices"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// A profile is an LXD profile that the fleet file defines.
type profile struct {
	Description string                       `json:"description"`
	Config      map[string]string            `json:"config"`
	Devices     map[string]map[string]string `json:"devices"`
}

// naming knows nothing but the form: juju-<model>-<application>-<revision>.
var naming provisioner.ProfileNaming

// checkProfiles finds names that no change could ever be recorded under.
func (f fleet) checkProfiles() error {
	for name := range f.Profiles {
		if _, err := naming.Parse(name); err != nil {
			return errors.Annotatef(err, "profiles[%q]", name)
		}
	}
	return nil
}

// defined are those of the names that the fleet file defines: they are put on the
// running instance. The others are LXD's own, and what it starts with.
func (r *records) defined(names []string, wanted bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, ok := r.fleet.Profiles[name]
		return ok != wanted
	})
}

// change is the next step from the profiles that a machine has to those that the
// file wants, with mu held. A new contents needs a new revision.
func (r *records) change(id provisioner.MachineID) (c provisioner.ProfileChange, ok bool) {
	spec, wanted := r.want[id]
	there := r.kept.Machines[id]
	if !wanted || there.Instance == "" {
		return c, false
	}
	steps := provisioner.DiffProfiles(naming, there.Profiles, r.defined(spec.Profiles, true))
	if len(steps) == 0 {
		return c, false
	}
	step := steps[0]
	c = provisioner.ProfileChange{Machine: id, ID: step.Old + ">" + step.New, Old: step.Old}
	if step.New != "" {
		p := r.fleet.Profiles[step.New]
		c.Profile = &provisioner.Profile{Name: step.New, Description: p.Description, Config: p.Config, Devices: p.Devices}
	}
	if word := r.words[id]; word.Change == c.ID {
		c.Status = word.Status
	}
	return c, true
}

// changing says whether a profile change is left that has not failed.
func (r *records) changing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.want {
		if c, ok := r.change(id); ok && !provisioner.ProfileTerminal(c.Status) {
			return true
		}
	}
	return false
}

// changes tells which machines have a next step to be made.
func (r *records) changes() provisioner.Stream[[]provisioner.MachineID] {
	return provisioner.Stream[[]provisioner.MachineID]{C: r.stepped}
}

// ProfileChanges reads each machine's next step.
func (r *records) ProfileChanges(_ context.Context, ids ...provisioner.MachineID) ([]provisioner.ProfileChangeResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var results []provisioner.ProfileChangeResult
	for _, id := range ids {
		c, ok := r.change(id)
		result := provisioner.ProfileChangeResult{ID: id, Change: c}
		if !ok {
			result.Err = errors.NotFoundf("profile change of machine %s", id)
		}
		results = append(results, result)
	}
	return results, nil
}

// SetProfiles writes down which profiles a machine has now.
func (r *records) SetProfiles(_ context.Context, rec provisioner.ProfileRecord) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.machine(rec.Machine).Err; err != nil {
		return err
	}
	is := r.kept.Machines[rec.Machine]
	is.Profiles = rec.Profiles
	return keep(r, r.kept.Machines, rec.Machine, &is)
}

// SetProfileStatus remembers what has become of a step, for as long as this run
// lasts, and has the next one made.
func (r *records) SetProfileStatus(_ context.Context, u provisioner.ProfileStatusUpdate) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.words[u.Machine] = u
	r.tellStep(u.Machine)
	return nil
}

// tellStep tells if a machine has a step to be made, with mu held.
func (r *records) tellStep(id provisioner.MachineID) {
	if c, ok := r.change(id); ok && c.Status == "" {
		select {
		case r.stepped <- []provisioner.MachineID{id}:
		default: // nobody listens: the next look finds it
		}
	}
}

// RemoveProfileChange has nothing to take away: no step is a subordinate's.
func (r *records) RemoveProfileChange(context.Context, provisioner.Removal) error { return nil }
