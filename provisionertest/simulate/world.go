package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/instancecfg"
	"github.com/seed81ba69f2/provisioner/internal/bridge"
)

// A world is the host: what the state and the cloud hold. Its effects are
// instantaneous; how long its calls take, and what goes wrong in them, is
// decided by the seed.
type world struct {
	s         *sim
	machines  map[provisioner.MachineID]*provisioner.Machine
	order     []provisioner.MachineID // as they came
	retryable map[provisioner.MachineID]bool
	instances []*instance
	byID      map[provisioner.InstanceID]*instance
	tokens    map[string]*instance
	zones     []zone
	gone      []provisioner.MachineID        // whose records the host itself took away
	away      map[provisioner.MachineID]bool // was taken away at some time
}

type zone struct {
	provisioner.Zone
	listed bool
}

type instance struct {
	id       provisioner.InstanceID
	zone     provisioner.ZoneName
	labels   provisioner.Labels
	nonce    string
	live     bool
	foreign  bool  // not made by the Task
	spared   *task // that has taken its record away, as it was to be left
	lost     bool  // nobody heard that it was made, or its Task has ended and named it: the identity rules would find it
	recorded bool  // SetInstance has said so
}

func newWorld(s *sim) *world {
	return &world{s: s, machines: map[provisioner.MachineID]*provisioner.Machine{}, retryable: map[provisioner.MachineID]bool{},
		byID: map[provisioner.InstanceID]*instance{}, tokens: map[string]*instance{}, away: map[provisioner.MachineID]bool{}}
}

func (w *world) add(id provisioner.MachineID) {
	if w.machines[id] != nil {
		return
	}
	w.machines[id] = &provisioner.Machine{ID: id, Life: provisioner.Alive, Status: provisioner.StatusPending}
	w.order = append(w.order, id)
	if w.s.task != nil {
		delete(w.s.task.forgot, id)
	}
}

func (w *world) remove(id provisioner.MachineID) {
	delete(w.machines, id)
	w.away[id] = true
	w.order = slices.DeleteFunc(w.order, func(o provisioner.MachineID) bool { return o == id })
}

// owner is the machine that has the instance in its record, or nil.
func (w *world) owner(id provisioner.InstanceID) *provisioner.Machine {
	for _, m := range w.machines {
		if m.Instance == id {
			return m
		}
	}
	return nil
}

// adrift are the living instances that no record has and that should not be.
func (w *world) adrift() (ids []provisioner.InstanceID) {
	for _, i := range w.instances {
		if i.live && i.spared == nil && !i.lost && !i.foreign && w.owner(i.id) == nil {
			ids = append(ids, i.id)
		}
	}
	return ids
}

// do makes one host call: it waits, has its effect, and waits again; what the
// seed decides goes wrong before or after the effect.
func (w *world) do(ctx context.Context, c callKind, id provisioner.MachineID, effect func() error) (f fate, err error) {
	s := w.s
	f = s.fateOf(c, id)
	happened := false
	defer func() {
		if err != nil {
			s.logf("%s %s: %v", c, id, err)
		}
		switch p := recover().(type) {
		case nil:
		case crashed:
			if !happened && c != callStart && f.coin {
				_ = effect()
			}
			panic(p)
		case scripted:
			s.logf("%s %s: panic", c, id)
			panic(p)
		default:
			s.fail("simulator", "%v in %s", p, c)
			panic(p)
		}
	}()
	if !s.wait(ctx, f.before, f.obeys()) {
		return f, ctx.Err()
	}
	if !f.after {
		if err := f.strike(c); err != nil {
			return f, err
		}
	}
	happened = true
	if err := effect(); err != nil {
		return f, err
	}
	// A start that has made an instance is heard of, unless it can be asked
	// for again: the identity rules are not in force yet.
	heard := s.wait(ctx, f.then, f.obeys() && c != callStart)
	if f.after {
		if err := f.strike(c); err != nil {
			return f, err
		}
	}
	if !heard {
		return f, ctx.Err()
	}
	return f, nil
}

// The state.

type state struct{ *world }

// read gives one record as it is now, or as the fate of the call has it.
func (w *world) read(id provisioner.MachineID) provisioner.MachineResult {
	if m := w.machines[id]; m != nil {
		return provisioner.MachineResult{ID: id, Machine: *m}
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
	i := w.byID[rec.Instance]
	if i != nil && i.recorded && (i.spared == nil || i.spared == w.s.task) { // a later Task can't know, without a SparedStore
		w.s.fail("ST12", "instance %s is recorded twice", rec.Instance)
	}
	_, err := w.do(ctx, callRecord, rec.Machine, func() error {
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
	mode, was := w.s.current.mode, w.machines[r.Machine]
	_, err := w.do(ctx, callRemove, r.Machine, func() error {
		m := w.machines[r.Machine]
		switch {
		case m == nil:
			return nil
		case m.Life != provisioner.Dead:
			return errors.Errorf("machine %s is %s", r.Machine, m.Life)
		}
		if i := w.byID[m.Instance]; i != nil && i.live {
			if !m.Keep && mode.Destroyed() && m == was { // and no new one of that name
				w.s.fail("HV6", "the record of machine %s is removed and its instance %s is not stopped", m.ID, m.Instance)
			}
			i.spared, i.lost = w.s.task, m != was
		}
		w.remove(r.Machine)
		w.s.logf("removed %s", r.Machine)
		w.s.changed(r.Machine)
		return nil
	})
	return err
}

// What a state may have besides.

func (w state) WriteStatus(ctx context.Context, u provisioner.StatusUpdate) error {
	t := w.s.task
	w.s.checkStatus(u)
	t.writing[u.Machine] = true
	defer delete(t.writing, u.Machine)
	_, err := w.do(ctx, callStatus, u.Machine, func() error {
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
	_, err := w.do(ctx, callEnsure, r.Machine, func() error {
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

func (w state) Authenticate(ctx context.Context, reqs ...provisioner.AuthRequest) (all []provisioner.AuthResult, err error) {
	f, err := w.do(ctx, callAuth, "", func() error {
		for _, r := range reqs {
			all = append(all, provisioner.AuthResult{ID: r.Machine, Auth: instancecfg.Auth{}})
		}
		return nil
	})
	return twist(f, all, func(r *provisioner.AuthResult, err error) { r.Err = err }, provisioner.AuthResult{ID: "alien"}), err
}

// The broker.

type broker struct{ *world }

func (w broker) Instances(ctx context.Context) (l provisioner.Listing, err error) {
	f, err := w.do(ctx, callListing, "", func() error {
		l.Complete = true
		for _, i := range w.instances {
			if i.live {
				l.Instances = append(l.Instances, provisioner.Instance{ID: i.id, Zone: i.zone, Labels: i.labels})
			}
		}
		return nil
	})
	if f.what == troublePartial {
		l.Complete, l.Instances = false, l.Instances[:len(l.Instances)/2]
	}
	return l, err
}

func (w broker) Start(ctx context.Context, q provisioner.StartRequest) (r provisioner.StartResult, err error) {
	s := w.s
	q.Report(provisioner.InstanceAllocating, "being made")
	var made *instance
	heard := false
	defer func() {
		if made != nil && !heard {
			made.lost = true
		}
		if before := w.tokens[q.Token]; err != nil && s.set.dedupes && before != nil && before.live {
			err = provisioner.Ambiguous(err) // any other error would say that there is no instance
		}
	}()
	if s.set.asksGroup {
		if _, err := q.Group(ctx); err != nil {
			return r, err
		}
	}
	f, err := w.do(ctx, callStart, q.Machine, func() error {
		if s.set.dedupes {
			if made = w.tokens[q.Token]; made != nil && made.live {
				made.lost = false
				return nil
			}
		}
		if q.Zone != "" && !slices.ContainsFunc(w.zones, func(z zone) bool { return z.Name == q.Zone && z.Available && z.listed }) {
			return errors.Errorf("zone %s is down", q.Zone)
		}
		made = &instance{id: provisioner.InstanceID(fmt.Sprintf("i-%d", len(w.instances))), zone: q.Zone, nonce: q.Nonce, live: true}
		if s.set.labels {
			made.labels = q.Labels
		}
		made.labels.Machine = q.Machine
		if q.Zone == "" && len(w.zones) > 0 && !q.Machine.IsContainer() {
			made.zone = w.zones[0].Name
		}
		s.logf("made %s for %s in %q, attempt %d", made.id, q.Machine, made.zone, q.Attempt)
		s.checkMade(made, q)
		w.instances = append(w.instances, made)
		w.byID[made.id], w.tokens[q.Token] = made, made
		return nil
	})
	if err != nil {
		return r, err
	}
	heard = true
	q.Report(provisioner.InstanceAllocating, "made")
	r = provisioner.StartResult{Instance: made.id, Zone: q.Zone}
	if f.what == troubleOdd {
		switch {
		case f.class%2 == 0 && q.Zone != "":
			r.Zone = "elsewhere"
		default:
			r.Network = []provisioner.NetworkInterface{{MAC: "nonsense"}}
		}
	}
	return r, nil
}

func (w broker) Stop(ctx context.Context, q provisioner.StopRequest) error {
	id := q.Instances[0]
	undo := w.s.current.Undo
	f, err := w.do(ctx, callStop, w.s.current.id, func() error {
		i := w.byID[id]
		if i == nil || !i.live {
			return nil
		}
		w.s.checkStopped(i, undo)
		i.live = false
		w.s.logf("stopped %s", id)
		return nil
	})
	if err != nil && f.class%2 == 0 && ctx.Err() == nil {
		return &provisioner.StopError{Failed: map[provisioner.InstanceID]error{id: err}}
	}
	return err
}

// What a broker may have besides.

func (w broker) Zones(ctx context.Context) (all []provisioner.Zone, err error) {
	f, err := w.do(ctx, callZones, "", func() error {
		for _, z := range w.zones {
			if z.listed {
				all = append(all, z.Zone)
			}
		}
		return nil
	})
	switch {
	case f.what == troubleMissing && len(all) > 0:
		all = all[1:]
	case f.what == troubleDouble && len(all) > 0:
		all = append(all, all[0])
	}
	return all, err
}

func (w broker) DeriveZones(ctx context.Context, q provisioner.StartRequest) (all []provisioner.ZoneName, err error) {
	_, err = w.do(ctx, callDerive, q.Machine, func() error {
		all = w.s.derivedOf(q.Machine)
		return nil
	})
	return all, err
}

func (w broker) Maintain(ctx context.Context, q provisioner.MaintainRequest) error {
	_, err := w.do(ctx, callMaintain, q.Machine, func() error { return nil })
	return err
}

func (w broker) Traits() provisioner.Traits {
	return provisioner.Traits{DedupesByToken: w.s.set.dedupes, Labels: w.s.set.labels}
}

func (w broker) Wait(ctx context.Context) error {
	_, err := w.do(ctx, callLimit, "", func() error { return nil })
	return err
}

// newTask begins a controller: a new one, or one after a crash.
func (s *sim) newTask() {
	w := s.world
	cfg := provisioner.Config{
		Controller: "c", Broker: plainBroker{broker{w}}, State: plainState{state{w}},
		Policy: provisioner.Policy{Harvest: s.mode, Retry: s.set.retry, MaxSkew: s.set.skew, Tie: s.set.tie},
		Limits: s.limits, Random: s.random,
		ShutdownGrace: s.set.grace, LaunchTimeout: s.set.launch, ZoneRefresh: s.set.refresh, Resync: s.set.resync,
	}
	o := &cfg.Optional
	o.Life, o.Retries, o.Status, o.Traits = state{w}, state{w}, state{w}, broker{w}
	if s.set.zoned {
		o.Zones = broker{w}
	}
	if s.set.derives {
		o.Deriver = broker{w}
	}
	if s.set.maintains {
		o.Maintainer = broker{w}
	}
	if s.set.groups {
		o.Groups = state{w}
	}
	if s.set.auth {
		o.Authenticator = state{w}
	}
	if s.set.limiter {
		cfg.StartLimiter, cfg.StopLimiter = broker{w}, broker{w}
	}
	s.task = &task{Engine: s.newEngine(cfg), mode: s.mode, limits: s.limits,
		zones: map[provisioner.MachineID]provisioner.ZoneName{}, shown: map[provisioner.MachineID]bridge.Unit{}, going: map[provisioner.MachineID]bool{}, forgot: map[provisioner.MachineID]bool{}, failed: map[provisioner.MachineID]bool{}, final: map[provisioner.MachineID]bool{}, writing: map[provisioner.MachineID]bool{}}
	s.task.Wake(true)
	s.task.Changed()
}

// plainBroker and plainState hide what is optional, which the seed decides.
type (
	plainBroker struct{ provisioner.Broker }
	plainState  struct{ provisioner.State }
)

const forever = 1000 * time.Hour
