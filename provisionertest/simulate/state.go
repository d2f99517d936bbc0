package main

import (
	"context"
	"slices"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// state is what the host keeps of its machines.
type state struct{ *world }

// read gives one record as it is now, or as the fate of the call has it.
func (w *world) read(id provisioner.MachineID) provisioner.MachineResult {
	if m := w.machines[id]; m != nil {
		r := provisioner.MachineResult{ID: id, Machine: *m}
		switch h := w.hidden[id]; {
		case w.s.calm || w.s.now >= h.until:
		case h.whole:
			return provisioner.MachineResult{ID: id, Err: errors.WithType(errors.Errorf("machine %s may not be seen", id), errors.Unauthorized)}
		default:
			unread(&r.Machine, provisioner.FieldInstance)
		}
		return r
	}
	return provisioner.MachineResult{ID: id, Err: errors.NotFoundf("machine %s", id)}
}

func (w state) Fleet(ctx context.Context) (all []provisioner.MachineResult, err error) {
	f, err := w.do(ctx, callFleet, "", func() error {
		for _, id := range w.order {
			all = append(all, w.read(id))
		}
		return nil
	})
	return f.twistMachines(all), err
}

func (w state) Machines(ctx context.Context, ids ...provisioner.MachineID) (all []provisioner.MachineResult, err error) {
	w.s.checkIDs(callMachines, ids)
	f, err := w.do(ctx, callMachines, "", func() error {
		for _, id := range ids {
			all = append(all, w.read(id))
		}
		return nil
	})
	return f.twistMachines(all), err
}

func (w state) StartInfo(ctx context.Context, ids ...provisioner.MachineID) (all []provisioner.StartInfoResult, err error) {
	w.s.checkIDs(callInfo, ids)
	f, err := w.do(ctx, callInfo, "", func() error {
		for _, id := range ids {
			r := provisioner.StartInfoResult{ID: id}
			if w.machines[id] == nil {
				r.Err = errors.NotFoundf("machine %s", id)
			} else {
				r.Info = w.s.infoOf(id)
			}
			all = append(all, r)
		}
		return nil
	})
	return twist(f, all, func(r *provisioner.StartInfoResult, err error) { r.Err = err }, provisioner.StartInfoResult{ID: "alien"}), err
}

func (w state) SetInstance(ctx context.Context, rec provisioner.InstanceRecord) error {
	t, i := w.s.current.task, w.byID[rec.Instance]
	w.s.checkHeld(t, callRecord, rec.Epoch)
	if i != nil && i.recorded && !w.restored && (i.spared == nil || i.spared == t) { // a later Task can't know, without a SparedStore
		w.s.fail("ST12", "instance %s is recorded twice", rec.Instance)
	}
	_, err := w.do(ctx, callRecord, rec.Machine, func() error {
		if err := w.fenced(rec.Epoch); err != nil {
			return err
		}
		switch m := w.machines[rec.Machine]; {
		case m == nil:
			return errors.NotFoundf("machine %s", rec.Machine)
		case m.Life == provisioner.Dead:
			return errors.Errorf("machine %s is dead", rec.Machine)
		case m.Instance != "" && m.Instance != rec.Instance:
			return errors.Errorf("machine %s has instance %s", rec.Machine, m.Instance)
		default:
			m.Instance, m.Zone = rec.Instance, rec.Zone
			if w.s.set.zonesUnrecorded {
				m.Zone = ""
			}
		}
		if i != nil && (w.s.set.searchable() || slices.Contains(w.s.tasks, t)) {
			i.lost = false
		}
		w.s.logf("recorded %s for %s", rec.Instance, rec.Machine)
		w.s.changed(rec.Machine)
		return nil
	})
	if err == nil && i != nil {
		i.recorded = true
	}
	return err
}

func (w state) Remove(ctx context.Context, r provisioner.Removal) error {
	t, mode, was := w.s.current.task, w.s.current.mode, w.machines[r.Machine]
	w.s.checkHeld(t, callRemove, r.Epoch)
	_, err := w.do(ctx, callRemove, r.Machine, func() error {
		if err := w.fenced(r.Epoch); err != nil {
			return err
		}
		m := w.machines[r.Machine]
		switch {
		case m == nil:
			return nil
		case m.Life != provisioner.Dead:
			return errors.Errorf("machine %s is %s", r.Machine, m.Life)
		}
		if i := w.byID[m.Instance]; i != nil && i.live {
			if _, remembered := w.spared[i.id]; w.s.set.spares && !remembered && !w.restored && m == was {
				w.s.fail("HV4", "the record of machine %s is removed, and nobody remembers that %s is left", m.ID, i.id)
			}
			if !m.Keep && mode.Destroyed() && m == was && !w.restored { // and no new one of that name
				w.s.fail("HV6", "the record of machine %s is removed and its instance %s is not stopped", m.ID, m.Instance)
			}
			i.spared, i.lost = t, m != was
		}
		if m.Instance != "" { // nobody expects another
			w.leave(r.Machine)
		}
		if w.remove(r.Machine); m.Instance == "" {
			w.removedBy[r.Machine] = t
		}
		if !slices.Contains(w.s.tasks, t) {
			w.disown() // as if it had been removed before
		}
		w.s.logf("removed %s", r.Machine)
		w.s.changed(r.Machine)
		return nil
	})
	return err
}

// What a state may have besides.

func (w state) WriteStatus(ctx context.Context, u provisioner.StatusUpdate) error {
	t := w.s.current.task
	w.s.checkHeld(t, callStatus, u.Epoch)
	w.s.checkStatus(t, u)
	t.writing[u.Machine] = true
	defer delete(t.writing, u.Machine)
	_, err := w.do(ctx, callStatus, u.Machine, func() error {
		if err := w.fenced(u.Epoch); err != nil {
			return err
		}
		m := w.machines[u.Machine]
		if m == nil {
			return errors.NotFoundf("machine %s", u.Machine)
		}
		if u.Status != "" {
			m.Status = u.Status
		}
		m.InstanceStatus = u.InstanceStatus
		w.s.logf("status of %s: %s %s %q", u.Machine, u.Status, u.InstanceStatus, u.Text)
		return nil
	})
	return err
}

func (w state) EnsureDead(ctx context.Context, r provisioner.LifeRequest) error {
	w.s.checkHeld(w.s.current.task, callEnsure, r.Epoch)
	_, err := w.do(ctx, callEnsure, r.Machine, func() error {
		if err := w.fenced(r.Epoch); err != nil {
			return err
		}
		switch m := w.machines[r.Machine]; {
		case m == nil:
			return errors.NotFoundf("machine %s", r.Machine)
		case m.Life == provisioner.Alive:
			return errors.Errorf("machine %s is alive", r.Machine)
		default:
			m.Life = provisioner.Dead
		}
		return nil
	})
	return err
}

func (w state) RetryMachines(ctx context.Context) (all []provisioner.MachineResult, err error) {
	f, err := w.do(ctx, callRetries, "", func() error {
		for _, id := range w.order {
			if w.retryable[id] {
				all = append(all, w.read(id))
			}
		}
		return nil
	})
	return f.twistMachines(all), err
}

func (w state) Groups(ctx context.Context, ids ...provisioner.MachineID) (all []provisioner.GroupResult, err error) {
	w.s.checkIDs(callGroups, ids)
	f, err := w.do(ctx, callGroups, "", func() error {
		for _, id := range ids {
			all = append(all, provisioner.GroupResult{ID: id, Group: w.s.groupOf(id)})
		}
		return nil
	})
	return twist(f, all, func(r *provisioner.GroupResult, err error) { r.Err = err }, provisioner.GroupResult{ID: "alien"}), err
}

func (w state) Intents(ctx context.Context, ids ...provisioner.MachineID) (all []provisioner.IntentResult, err error) {
	w.s.checkIDs(callIntents, ids)
	f, err := w.do(ctx, callIntents, "", func() error {
		for _, id := range ids {
			all = append(all, provisioner.IntentResult{ID: id, Intent: w.intents[id]})
		}
		return nil
	})
	return twist(f, all, func(r *provisioner.IntentResult, err error) { r.Err = err }, provisioner.IntentResult{ID: "alien"}), err
}

func (w state) SwapIntent(ctx context.Context, old, next provisioner.Intent) error {
	id, t := next.Machine, w.s.current.task
	w.s.checkHeld(t, callIntent, next.Epoch)
	_, err := w.do(ctx, callIntent, id, func() error {
		switch {
		case w.fenced(next.Epoch) != nil:
			return w.fenced(next.Epoch)
		case w.machines[id] == nil:
			return errors.NotFoundf("machine %s", id)
		case w.intents[id] != old:
			return errors.Errorf("machine %s has another intent", id)
		}
		w.s.checkSwap(old, next)
		w.intents[id], w.stored[next.Token] = next, true
		w.s.logf("intent of %s: attempt %d", id, next.Attempt)
		return nil
	})
	return err
}

func (w state) Authenticate(ctx context.Context, reqs ...provisioner.AuthRequest) (all []provisioner.AuthResult, err error) {
	f, err := w.do(ctx, callAuth, "", func() error {
		for _, r := range reqs {
			all = append(all, provisioner.AuthResult{ID: r.Machine, Auth: instancecfg.Auth{}})
		}
		return nil
	})
	return twist(f, all, func(r *provisioner.AuthResult, err error) { r.Err = err }, provisioner.AuthResult{ID: "alien"}), err
}

func (w state) Spared(ctx context.Context) (all []provisioner.Spared, err error) {
	t := w.s.current.task
	_, err = w.do(ctx, callSpared, "", func() error {
		for _, i := range w.instances { // in their order
			if s, ok := w.spared[i.id]; ok {
				all = append(all, s)
				t.kept[i.id] = true
			}
		}
		return nil
	})
	return all, err
}

func (w state) AddSpared(ctx context.Context, s provisioner.Spared) error {
	w.s.checkHeld(w.s.current.task, callSpare, s.Epoch)
	_, err := w.do(ctx, callSpare, s.Machine, func() error {
		if err := w.fenced(s.Epoch); err != nil {
			return err
		}
		w.spared[s.Instance] = s
		return nil
	})
	return err
}

func (w state) RemoveSpared(ctx context.Context, r provisioner.SparedRemoval) error {
	w.s.checkHeld(w.s.current.task, callUnspare, r.Epoch)
	_, err := w.do(ctx, callUnspare, "", func() error {
		if err := w.fenced(r.Epoch); err != nil {
			return err
		}
		for _, id := range r.Instances {
			if i := w.byID[id]; i != nil && i.live && i.spared != nil && w.owner(id) == nil {
				w.s.fail("HV4", "instance %s is there, and is not remembered any more", id)
			}
			delete(w.spared, id)
		}
		return nil
	})
	return err
}
