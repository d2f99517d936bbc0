package provisionertest

import (
	"context"
	"fmt"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// A State is the World as a state with every ability there is.
type State struct{ w *World }

// The abilities of a State.
var _ interface {
	provisioner.State
	provisioner.StatusWriter
	provisioner.LifeSetter
	provisioner.RetryLister
	provisioner.GroupFinder
	provisioner.Authenticator
	provisioner.AgentFinder
	provisioner.IntentStore
	provisioner.SparedStore
	provisioner.ProfileState
} = (*State)(nil)

// State gives the World as a state with every ability there is. A Lease is
// had by World.TakeLease.
func (w *World) State() *State { return &State{w} }

// PlainState gives the World as a state with no optional ability.
func (w *World) PlainState() provisioner.State {
	return struct{ provisioner.State }{w.State()}
}

// Fleet implements provisioner.State.
func (s *State) Fleet(ctx context.Context) ([]provisioner.MachineResult, error) {
	c := call{kind: CallFleet}
	return do(ctx, s.w, &c, showMachines, func() ([]provisioner.MachineResult, error) {
		return machineKind.twist(&c, s.w.readFleet()), nil
	})
}

// readFleet reads every record, and forgets the places of those that are gone.
func (w *World) readFleet() []provisioner.MachineResult {
	results := make([]provisioner.MachineResult, 0, len(w.fleet))
	kept := w.fleet[:0]
	for _, m := range w.fleet {
		if !m.exists {
			m.listed = false
			continue
		}
		kept = append(kept, m)
		results = append(results, provisioner.MachineResult{ID: m.ID, Machine: m.Machine})
	}
	clear(w.fleet[len(kept):])
	w.fleet = kept
	return results
}

// Machines implements provisioner.State.
func (s *State) Machines(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.MachineResult, error) {
	c := call{kind: CallMachines, machines: ids}
	return do(ctx, s.w, &c, showMachines, func() ([]provisioner.MachineResult, error) {
		results := make([]provisioner.MachineResult, len(ids))
		for i, id := range ids {
			results[i].ID = id
			if m, err := s.w.existing(id); err != nil {
				results[i].Err = err
			} else {
				results[i].Machine = m.Machine
			}
		}
		return machineKind.twist(&c, results), nil
	})
}

// existing finds the record of a machine; the error is NotFound.
func (w *World) existing(id provisioner.MachineID) (*machine, error) {
	m := w.machines[id]
	if m == nil || !m.exists {
		return nil, errors.NotFoundf("machine %q", string(id))
	}
	return m, nil
}

func showMachines(results []provisioner.MachineResult) string {
	return showResults(results, func(r provisioner.MachineResult) (string, error) {
		text := fmt.Sprintf("%s(%s", r.ID, r.Machine.Life)
		if r.Machine.Instance != "" {
			text += " " + string(r.Machine.Instance)
		}
		return text + ")", r.Err
	}, func(r provisioner.MachineResult) provisioner.MachineID { return r.ID })
}

// showResults shows the results of a bulk call, those that failed by their
// errors.
func showResults[R any](results []R, show func(R) (string, error), id func(R) provisioner.MachineID) string {
	texts := make([]string, len(results))
	for i, r := range results {
		text, err := show(r)
		if err != nil {
			text = fmt.Sprintf("%s(%v)", id(r), err)
		}
		texts[i] = text
	}
	return "[" + some(texts) + "]"
}

// StartInfo implements provisioner.State with what SetStartInfo and SetGroup
// say.
func (s *State) StartInfo(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.StartInfoResult, error) {
	c := call{kind: CallInfo, machines: ids}
	return do(ctx, s.w, &c, showInfo, func() ([]provisioner.StartInfoResult, error) {
		results := make([]provisioner.StartInfoResult, len(ids))
		for i, id := range ids {
			results[i].ID = id
			m, err := s.w.existing(id)
			if err != nil {
				results[i].Err = err
				continue
			}
			if m.info != nil {
				results[i].Info = copyInfo(*m.info)
			}
			if m.group != nil {
				results[i].Info.Group = copyGroup(m.group)
			}
		}
		return infoKind.twist(&c, results), nil
	})
}

func showInfo(results []provisioner.StartInfoResult) string {
	id := func(r provisioner.StartInfoResult) provisioner.MachineID { return r.ID }
	return showResults(results, func(r provisioner.StartInfoResult) (string, error) { return string(r.ID), r.Err }, id)
}

// SetInstance implements provisioner.State. The error is NotFound for a
// machine that is gone, Forbidden for one that is dead, AlreadyExists for one
// that has another instance.
func (s *State) SetInstance(ctx context.Context, rec provisioner.InstanceRecord) error {
	c := call{kind: CallRecord, machine: rec.Machine, instance: rec.Instance, zone: rec.Zone, epoch: rec.Epoch}
	_, err := do(ctx, s.w, &c, showNone, func() (none, error) { return none{}, s.w.setInstance(&rec) })
	return err
}

func (w *World) setInstance(rec *provisioner.InstanceRecord) error {
	m, err := w.existing(rec.Machine)
	switch {
	case err != nil:
		return err
	case rec.Instance == "":
		return errors.NotValidf("machine %s: empty instance id", m.ID)
	case m.Instance == rec.Instance:
		return nil
	case m.Instance != "":
		return errors.AlreadyExistsf("machine %s: instance %s", m.ID, m.Instance)
	case m.Life == provisioner.Dead:
		return errors.Forbiddenf("machine %s is dead: recording an instance", m.ID)
	}
	m.Instance, m.Zone = rec.Instance, rec.Zone
	if !w.set.Silent {
		m.recorded = copyRecord(rec)
	}
	w.claim(m)
	w.echo(m.ID)
	return nil
}

// Remove implements provisioner.State. The error for a machine that isn't dead
// is Forbidden.
func (s *State) Remove(ctx context.Context, req provisioner.Removal) error {
	c := call{kind: CallRemove, machine: req.Machine, epoch: req.Epoch}
	_, err := do(ctx, s.w, &c, showNone, func() (none, error) { return none{}, s.w.remove(req.Machine) })
	return err
}

func (w *World) remove(id provisioner.MachineID) error {
	m, err := w.existing(id)
	if err != nil {
		return nil
	}
	if m.Life != provisioner.Dead {
		return errors.Forbiddenf("machine %s is %s: removing it", id, m.Life)
	}
	w.drop(m)
	w.echo(id)
	return nil
}

// drop takes a record away. What it kept stays kept.
func (w *World) drop(m *machine) {
	if i := w.instances[m.Instance]; i != nil && m.Keep {
		i.protected = true
	}
	m.exists = false
	delete(w.retryable, m.ID)
}

// echo tells the watchers of what the Task wrote itself.
func (w *World) echo(id provisioner.MachineID) {
	if w.set.Echo {
		w.changed(id)
	}
}
