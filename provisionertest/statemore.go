package provisionertest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// WriteStatus implements provisioner.StatusWriter.
func (s *State) WriteStatus(ctx context.Context, u provisioner.StatusUpdate) error {
	c := call{kind: CallStatus, machine: u.Machine, epoch: u.Epoch}
	if !s.w.set.Silent {
		c.detail = func() string { return showStatus(u) }
	}
	_, err := do(ctx, s.w, &c, showNone, func() (none, error) {
		m, err := s.w.existing(u.Machine)
		if err != nil {
			return none{}, err
		}
		m.setStatus(u.Status, u.InstanceStatus, u.Text)
		if u.Status == provisioner.StatusPending {
			delete(s.w.retryable, m.ID)
		}
		s.w.echo(m.ID)
		return none{}, nil
	})
	return err
}

func showStatus(u provisioner.StatusUpdate) string {
	if u.Status != "" {
		return fmt.Sprintf("%s/%s %q", u.Status, u.InstanceStatus, u.Text)
	}
	return fmt.Sprintf("%s %q", u.InstanceStatus, u.Text)
}

// setStatus leaves alone what is empty.
func (m *machine) setStatus(status provisioner.Status, instance provisioner.InstanceStatus, text string) {
	m.Status = cmp.Or(status, m.Status)
	m.InstanceStatus = cmp.Or(instance, m.InstanceStatus)
	m.text = text
}

// EnsureDead implements provisioner.LifeSetter. The error for a machine that is
// alive is Forbidden.
func (s *State) EnsureDead(ctx context.Context, req provisioner.LifeRequest) error {
	c := call{kind: CallDead, machine: req.Machine, epoch: req.Epoch}
	_, err := do(ctx, s.w, &c, showNone, func() (none, error) {
		m, err := s.w.existing(req.Machine)
		switch {
		case err != nil:
			return none{}, err
		case m.Life == provisioner.Alive:
			return none{}, errors.Forbiddenf("machine %s is alive: making it dead", m.ID)
		}
		m.Life = provisioner.Dead
		s.w.echo(m.ID)
		return none{}, nil
	})
	return err
}

// RetryMachines implements provisioner.RetryLister with the machines that
// SetRetryable marked and whose status has not been set to pending since.
func (s *State) RetryMachines(ctx context.Context) ([]provisioner.MachineResult, error) {
	c := call{kind: CallRetries}
	return do(ctx, s.w, &c, showMachines, func() ([]provisioner.MachineResult, error) {
		ids := slices.SortedFunc(maps.Keys(s.w.retryable), provisioner.MachineID.Compare)
		results := make([]provisioner.MachineResult, len(ids))
		for i, id := range ids {
			results[i] = provisioner.MachineResult{ID: id, Machine: s.w.machines[id].Machine}
		}
		return machineKind.twist(&c, results), nil
	})
}

// Groups implements provisioner.GroupFinder with what SetGroup says.
func (s *State) Groups(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.GroupResult, error) {
	c := call{kind: CallGroups, machines: ids}
	return do(ctx, s.w, &c, showGroups, func() ([]provisioner.GroupResult, error) {
		results := make([]provisioner.GroupResult, len(ids))
		for i, id := range ids {
			results[i].ID = id
			m, err := s.w.existing(id)
			switch {
			case err != nil:
				results[i].Err = err
			case m.group != nil:
				results[i].Group = copyGroup(m.group)
			}
		}
		return groupKind.twist(&c, results), nil
	})
}

func showGroups(results []provisioner.GroupResult) string {
	return showResults(results, func(r provisioner.GroupResult) (string, error) {
		return fmt.Sprintf("%s(%s)", r.ID, r.Group.Key), r.Err
	}, func(r provisioner.GroupResult) provisioner.MachineID { return r.ID })
}

// Authenticate implements provisioner.Authenticator: the tag is "machine-" and
// the id with dashes, the password is made of the nonce.
func (s *State) Authenticate(ctx context.Context, reqs ...provisioner.AuthRequest) ([]provisioner.AuthResult, error) {
	c := call{kind: CallAuth}
	if !s.w.plain.Load() {
		for _, r := range reqs {
			c.machines = append(c.machines, r.Machine)
		}
	}
	return do(ctx, s.w, &c, showAuth, func() ([]provisioner.AuthResult, error) {
		results := make([]provisioner.AuthResult, len(reqs))
		for i, r := range reqs {
			results[i].ID = r.Machine
			if _, err := s.w.existing(r.Machine); err != nil {
				results[i].Err = err
				continue
			}
			tag := "machine-" + strings.ReplaceAll(string(r.Machine), "/", "-")
			results[i].Auth = instancecfg.Auth{Tag: tag, Password: instancecfg.Hide("password of " + r.Nonce)}
		}
		return authKind.twist(&c, results), nil
	})
}

func showAuth(results []provisioner.AuthResult) string {
	return showResults(results, func(r provisioner.AuthResult) (string, error) { return r.Auth.Tag, r.Err },
		func(r provisioner.AuthResult) provisioner.MachineID { return r.ID })
}

// FindAgents implements provisioner.AgentFinder with what SetAgents says, or,
// if it was never called, with one binary that fits.
func (s *State) FindAgents(ctx context.Context, q provisioner.AgentQuery) ([]provisioner.AgentBinary, error) {
	c := call{kind: CallAgents}
	if !s.w.set.Silent {
		c.detail = func() string { return fmt.Sprintf("%s/%s/%s", q.Version, q.Base, q.Arch) }
	}
	return do(ctx, s.w, &c, showAgents, func() ([]provisioner.AgentBinary, error) {
		if s.w.agents == nil {
			return []provisioner.AgentBinary{{Version: q.Version, Base: q.Base, Arch: q.Arch, URL: "https://agents.invalid/" + q.Version}}, nil
		}
		var found []provisioner.AgentBinary
		for _, a := range s.w.agents {
			if (q.Version == "" || a.Version == q.Version) && (q.Base == "" || a.Base == q.Base) && (q.Arch == "" || a.Arch == q.Arch) {
				found = append(found, a)
			}
		}
		return found, nil
	})
}

func showAgents(agents []provisioner.AgentBinary) string { return fmt.Sprintf("%d found", len(agents)) }

// Intents implements provisioner.IntentStore: one for each id, in that order.
func (s *State) Intents(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.IntentResult, error) {
	c := call{kind: CallIntents, machines: ids}
	return do(ctx, s.w, &c, showIntents, func() ([]provisioner.IntentResult, error) {
		results := make([]provisioner.IntentResult, len(ids))
		for i, id := range ids {
			results[i].ID = id
			if m, err := s.w.existing(id); err != nil {
				results[i].Err = err
			} else {
				results[i].Intent = m.intent
			}
		}
		return intentKind.twist(&c, results), nil
	})
}

func showIntents(results []provisioner.IntentResult) string {
	return showResults(results, func(r provisioner.IntentResult) (string, error) { return showIntent(r.Intent), r.Err },
		func(r provisioner.IntentResult) provisioner.MachineID { return r.ID })
}

func showIntent(i provisioner.Intent) string {
	if i.Attempt == 0 {
		return "none"
	}
	if i.Zone == "" {
		return fmt.Sprintf("#%d", i.Attempt)
	}
	return fmt.Sprintf("#%d@%s", i.Attempt, i.Zone)
}

// SwapIntent implements provisioner.IntentStore. An old intent with nothing but
// a machine counts as zero. The error is NotFound for a machine that is gone,
// AlreadyExists for another intent.
func (s *State) SwapIntent(ctx context.Context, old, next provisioner.Intent) error {
	id := cmp.Or(next.Machine, old.Machine)
	c := call{kind: CallIntent, machine: id, zone: next.Zone, epoch: next.Epoch}
	if !s.w.set.Silent {
		c.detail = func() string { return showIntent(old) + " to " + showIntent(next) }
	}
	_, err := do(ctx, s.w, &c, showNone, func() (none, error) {
		m, err := s.w.existing(id)
		if err != nil {
			return none{}, err
		}
		if !sameIntent(old, m.intent) {
			return none{}, errors.AlreadyExistsf("machine %s: intent %s", id, showIntent(m.intent))
		}
		m.intent = next
		return none{}, nil
	})
	return err
}

func sameIntent(a, b provisioner.Intent) bool {
	sameTime := a.At.Equal(b.At)
	a.At = b.At
	if b.Machine == "" {
		a.Machine = ""
	} else if a.Machine == "" {
		b.Machine = ""
	}
	return a == b && sameTime
}

// Spared implements provisioner.SparedStore, ordered by instance.
func (s *State) Spared(ctx context.Context) ([]provisioner.Spared, error) {
	c := call{kind: CallSpared}
	return do(ctx, s.w, &c, showSpared, func() ([]provisioner.Spared, error) {
		ids := slices.Sorted(maps.Keys(s.w.spared))
		all := make([]provisioner.Spared, len(ids))
		for i, id := range ids {
			all[i] = s.w.spared[id]
		}
		return all, nil
	})
}

func showSpared(all []provisioner.Spared) string {
	ids := make([]provisioner.InstanceID, len(all))
	for i, s := range all {
		ids[i] = s.Instance
	}
	return bracketed(ids)
}

// AddSpared implements provisioner.SparedStore.
func (s *State) AddSpared(ctx context.Context, sp provisioner.Spared) error {
	c := call{kind: CallSpare, machine: sp.Machine, instance: sp.Instance, epoch: sp.Epoch}
	_, err := do(ctx, s.w, &c, showNone, func() (none, error) {
		s.w.spared[sp.Instance] = sp
		return none{}, nil
	})
	return err
}

// RemoveSpared implements provisioner.SparedStore.
func (s *State) RemoveSpared(ctx context.Context, req provisioner.SparedRemoval) error {
	c := call{kind: CallUnspare, instances: req.Instances, epoch: req.Epoch}
	_, err := do(ctx, s.w, &c, showNone, func() (none, error) {
		for _, id := range req.Instances {
			delete(s.w.spared, id)
		}
		return none{}, nil
	})
	return err
}

// ProfileChanges implements provisioner.ProfileState with what
// SetProfileChange says; a machine without a change is NotFound.
func (s *State) ProfileChanges(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.ProfileChangeResult, error) {
	c := call{kind: CallProfiles, machines: ids}
	return do(ctx, s.w, &c, showProfiles, func() ([]provisioner.ProfileChangeResult, error) {
		results := make([]provisioner.ProfileChangeResult, len(ids))
		for i, id := range ids {
			results[i].ID = id
			if change, err := s.w.profileChange(id); err != nil {
				results[i].Err = err
			} else {
				results[i].Change = *change
				results[i].Change.Profile = copyProfile(change.Profile)
			}
		}
		return profileKind.twist(&c, results), nil
	})
}

func showProfiles(results []provisioner.ProfileChangeResult) string {
	return showResults(results, func(r provisioner.ProfileChangeResult) (string, error) { return string(r.ID), r.Err },
		func(r provisioner.ProfileChangeResult) provisioner.MachineID { return r.ID })
}

func (w *World) profileChange(id provisioner.MachineID) (*provisioner.ProfileChange, error) {
	m, err := w.existing(id)
	if err == nil && m.change == nil {
		err = errors.NotFoundf("profile change of machine %q", string(id))
	}
	if err != nil {
		return nil, err
	}
	return m.change, nil
}

// SetProfiles implements provisioner.ProfileState.
func (s *State) SetProfiles(ctx context.Context, rec provisioner.ProfileRecord) error {
	c := call{kind: CallSetProfiles, machine: rec.Machine, epoch: rec.Epoch, detail: func() string { return bracketed(rec.Profiles) }}
	_, err := do(ctx, s.w, &c, showNone, func() (none, error) {
		m, err := s.w.existing(rec.Machine)
		if err == nil {
			m.profiles = slices.Clone(rec.Profiles)
		}
		return none{}, err
	})
	return err
}

// SetProfileStatus implements provisioner.ProfileState.
func (s *State) SetProfileStatus(ctx context.Context, u provisioner.ProfileStatusUpdate) error {
	c := call{kind: CallProfileStatus, machine: u.Machine, epoch: u.Epoch, profiles: []string{u.Change}, detail: func() string { return fmt.Sprintf("%q", u.Status) }}
	_, err := do(ctx, s.w, &c, showNone, func() (none, error) {
		change, err := s.w.profileChange(u.Machine)
		if err == nil && change.ID != u.Change {
			err = errors.NotFoundf("profile change %q of machine %s", u.Change, u.Machine)
		}
		if err == nil {
			change.Status = u.Status
		}
		return none{}, err
	})
	return err
}

// RemoveProfileChange implements provisioner.ProfileState.
func (s *State) RemoveProfileChange(ctx context.Context, req provisioner.Removal) error {
	c := call{kind: CallRemoveProfile, machine: req.Machine, epoch: req.Epoch, profiles: []string{req.Change}}
	_, err := do(ctx, s.w, &c, showNone, func() (none, error) {
		if m := s.w.machine(req.Machine); m != nil && m.change != nil && m.change.ID == req.Change {
			m.change = nil
		}
		return none{}, nil
	})
	return err
}
