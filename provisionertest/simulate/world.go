package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
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
	asked     map[string]provisioner.ZoneName // by token: where an attempt was made
	intents   map[provisioner.MachineID]provisioner.Intent
	stored    map[string]bool                // tokens of intents
	pending   map[string]bool                // tokens of starts that come to pass later
	gave      map[provisioner.MachineID]bool // its start was given up
	spared    map[provisioner.InstanceID]provisioner.Spared
	hidden    map[provisioner.MachineID]hidden
	backup    *backup
	restored  bool          // an old backup, at some time
	recently  time.Duration // when that was
	epoch     uint64        // of the lease
	zones     []zone
	gone      []provisioner.MachineID        // whose records the host itself took away
	away      map[provisioner.MachineID]bool // was taken away at some time
	removedBy map[provisioner.MachineID]*task
}

// hidden is a record that can't be read until then, whole or its instance.
type hidden struct {
	until time.Duration
	whole bool
}

type zone struct {
	provisioner.Zone
	listed bool
}

type instance struct {
	id       provisioner.InstanceID
	machine  provisioner.MachineID // that it was made for
	zone     provisioner.ZoneName
	labels   provisioner.Labels // that can be seen
	nonce    string
	token    string
	at       time.Duration // when it was made
	free     time.Duration // when it last had a record
	slow     time.Duration // how long it takes to be up
	live     bool
	stranger bool  // and not ours at all
	foreign  bool  // not made by a Task
	spared   *task // that has taken its record away, as it was to be left
	lost     bool  // no rule would find it
	blind    bool  // it was stopped by a broker that could not tell whose it was
	recorded bool  // SetInstance has said so
}

func newWorld(s *sim) *world {
	return &world{s: s, machines: map[provisioner.MachineID]*provisioner.Machine{}, retryable: map[provisioner.MachineID]bool{},
		byID: map[provisioner.InstanceID]*instance{}, tokens: map[string]*instance{}, away: map[provisioner.MachineID]bool{},
		asked: map[string]provisioner.ZoneName{}, intents: map[provisioner.MachineID]provisioner.Intent{}, stored: map[string]bool{}, pending: map[string]bool{},
		removedBy: map[provisioner.MachineID]*task{}, gave: map[provisioner.MachineID]bool{}, hidden: map[provisioner.MachineID]hidden{},
		spared: map[provisioner.InstanceID]provisioner.Spared{}}
}

func (w *world) add(id provisioner.MachineID) {
	if w.machines[id] != nil {
		return
	}
	w.machines[id] = &provisioner.Machine{ID: id, Life: provisioner.Alive, Status: provisioner.StatusPending}
	w.order = append(w.order, id)
	for _, t := range w.s.tasks {
		delete(t.forgot, id)
	}
}

func (w *world) remove(id provisioner.MachineID) {
	delete(w.machines, id)
	delete(w.intents, id)
	delete(w.removedBy, id)
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
			if !happened {
				w.outlive(c, f, effect)
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
		if c == callStart && f.coin && !s.set.consistent {
			w.afterwards(c, f, effect)
		}
		return f, ctx.Err()
	}
	if f.what == troubleLate {
		w.afterwards(c, f, effect)
		return f, f.err(c)
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
	heard := s.wait(ctx, f.then, f.obeys())
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

// outlive decides what becomes of a call whose controller has crashed.
func (w *world) outlive(c callKind, f fate, effect func() error) {
	late := true
	switch c {
	case callStart: // a broker that promises consistent reads makes nothing later
		late = !w.s.set.consistent
	case callStop, callRecord, callIntent: // might meet what has been adopted or asked for since
		late = w.s.set.lease
	}
	switch n := f.class % 4; {
	case w.s.over || n < 2:
	case n == 2 && late:
		w.afterwards(c, f, effect)
	default:
		_ = effect()
	}
}

// afterwards lets the effect of a call come after the call has ended, and so
// soon that whoever looks for as long as VisibilityGrace sees it.
func (w *world) afterwards(c callKind, f fate, effect func() error) {
	if c == callStart {
		w.pending[w.s.current.token] = true
	}
	w.s.later(w.s.half()*time.Duration(f.at)/64, func() { _ = effect() })
}

// half is half of VisibilityGrace.
func (s *sim) half() time.Duration {
	if s.set.visibility == 0 {
		return 15 * time.Second
	}
	return s.set.visibility / 2
}

// unheard: nobody has heard that an instance was made. It is found all the same
// if it can be looked for and somebody does; else it is lost, as documented.
func (w *world) unheard(i *instance, by *task) {
	m := w.machines[i.machine]
	switch {
	case !w.s.set.searchable(), w.restored: // an old backup brings back what was found to be so
		i.lost = true
	case slices.Contains(w.s.tasks, by):
	case m == nil: // the Task that has removed the record looks for a while
		i.lost = i.lost || w.removedBy[i.machine] != w.s.task
	case w.anew(i.machine):
		i.lost = true
	case m.Instance != "":
		i.lost = i.lost || m.Instance != i.id
	}
}

// anew says whether a machine has another record than that for which something
// was asked for: intents go with records, and are believed.
func (w *world) anew(id provisioner.MachineID) bool {
	return w.s.set.intents && w.intents[id].Attempt == 0
}

// disown is the end of a controller: the next one finds what its machines want,
// and not what is in its way or no machine's.
func (w *world) disown() {
	for _, i := range w.instances {
		if m := w.machines[i.machine]; i.live && !i.foreign && i.spared == nil && w.owner(i.id) == nil {
			i.lost = i.lost || !w.s.set.searchable() || m == nil || m.Instance != "" || w.anew(i.machine)
		}
	}
}

// abandon: the host takes away the record of a machine that is not dead, or
// gives it another instance. What nothing is under way for is left behind.
func (w *world) abandon(id provisioner.MachineID) {
	switch u, _ := w.s.task.Unit(id); u.Life {
	case "starting", "confirming", "undoing":
		return
	case "searching":
		if w.s.set.labels { // a search that is not seen to its end is made up for by listings
			return
		}
	}
	w.leave(id)
}

func (w *world) leave(id provisioner.MachineID) {
	for _, i := range w.instances {
		i.lost = i.lost || i.live && i.machine == id && !i.foreign && w.owner(i.id) == nil
	}
}

// A backup is what the state held at a time.
type backup struct {
	machines []provisioner.Machine
	intents  map[provisioner.MachineID]provisioner.Intent
	spared   map[provisioner.InstanceID]provisioner.Spared
}

func (w *world) save() {
	w.backup = &backup{intents: maps.Clone(w.intents), spared: maps.Clone(w.spared)}
	for _, id := range w.order {
		w.backup.machines = append(w.backup.machines, *w.machines[id])
	}
}

// restore puts an old backup in the place of the state. What has lost its
// machine is unknown now; what its machine wants again can be found by its label,
// unless intents say that nothing was ever asked for.
func (w *world) restore() {
	if w.backup == nil {
		return
	}
	w.restored, w.recently = true, w.s.now
	told := slices.Clone(w.order)
	for _, i := range w.instances { // may be on their way out
		i.lost = i.lost || i.live && !i.foreign && i.spared == nil && w.owner(i.id) == nil
	}
	dead := map[provisioner.MachineID]bool{}
	for _, id := range told {
		dead[id] = w.machines[id].Life == provisioner.Dead
		w.remove(id)
	}
	for _, m := range w.backup.machines {
		w.add(m.ID)
		if dead[m.ID] { // whoever restores takes no deaths back that are being acted upon
			m.Life = provisioner.Dead
		}
		*w.machines[m.ID] = m
		w.away[m.ID] = true // for a moment
		told = append(told, m.ID)
	}
	w.intents, w.spared = maps.Clone(w.backup.intents), maps.Clone(w.backup.spared)
	for _, i := range w.instances {
		if i.foreign || !i.live {
			i.stranger = i.stranger || i.foreign && w.owner(i.id) == nil
			continue
		}
		switch m := w.machines[i.machine]; {
		case w.owner(i.id) != nil:
			i.spared = nil
		case i.spared == nil:
			i.recorded, i.free = false, w.s.now
			if i.lost = i.lost || !w.s.set.searchable() || w.s.set.intents || m == nil || m.Instance != "" || m.Life != provisioner.Alive; i.lost {
				i.nonce = "" // of no attempt that anybody knows
			}
		}
	}
	for _, id := range told {
		w.s.changed(id)
	}
}

// mend is what a person does who sees that a machine's instance is gone.
func (w *world) mend() {
	if !w.restored {
		return
	}
	for _, id := range w.order {
		if m := w.machines[id]; m.Instance != "" && !w.byID[m.Instance].live {
			m.Life, m.Keep = provisioner.Dead, false
			w.s.changed(id)
		}
	}
}

// fenced refuses what an earlier holder of the lease wants.
func (w *world) fenced(epoch uint64) error {
	if w.s.set.lease && epoch < w.epoch {
		return errors.Errorf("epoch %d is over", epoch)
	}
	return nil
}

// lease is that of one Task.
type lease struct {
	w     *world
	epoch uint64
}

func (l lease) Held() bool            { return l.w.epoch == l.epoch }
func (l lease) Epoch() uint64         { return l.epoch }
func (l lease) Lost() <-chan struct{} { return nil } // the simulator tells it

// newTask begins a controller: a new one, or one after a crash.
func (s *sim) newTask() {
	w := s.world
	w.epoch++
	cfg := provisioner.Config{
		Controller: "c", Broker: plainBroker{broker{w}}, State: plainState{state{w}},
		Policy: provisioner.Policy{Harvest: s.mode, Retry: s.set.retry, MaxSkew: s.set.skew, Tie: s.set.tie},
		Limits: s.limits, Random: s.random,
		ShutdownGrace: s.set.grace, LaunchTimeout: s.set.launch, ZoneRefresh: s.set.refresh, Resync: s.set.resync,
		VisibilityGrace: s.set.visibility,
	}
	if s.set.lease {
		cfg.Lease = lease{w, w.epoch}
	}
	o := &cfg.Optional
	o.Life, o.Retries, o.Status, o.Traits = state{w}, state{w}, state{w}, broker{w}
	if s.set.zoned {
		o.Zones = broker{w}
	}
	if s.set.finder {
		o.Finder = broker{w}
	}
	if s.set.intents {
		o.Intents = state{w}
	}
	if s.set.spares {
		o.SparedStore = state{w}
	}
	if s.set.vetoes {
		cfg.Veto, cfg.Drain = broker{w}, broker{w}
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
	s.task = &task{Engine: s.newEngine(cfg), epoch: w.epoch, mode: s.mode, before: s.mode, limits: s.limits, may: map[provisioner.InstanceID]bool{}, kept: map[provisioner.InstanceID]bool{},
		zones: map[provisioner.MachineID]provisioner.ZoneName{}, shown: map[provisioner.MachineID]bridge.Unit{}, going: map[provisioner.MachineID]bool{}, forgot: map[provisioner.MachineID]bool{}, failed: map[provisioner.MachineID]bool{}, final: map[provisioner.MachineID]bool{}, writing: map[provisioner.MachineID]bool{}}
	s.tasks = append(s.tasks, s.task)
	s.task.Wake(true)
	s.task.Changed()
}

// plainBroker and plainState hide what is optional, which the seed decides.
type (
	plainBroker struct{ provisioner.Broker }
	plainState  struct{ provisioner.State }
)

const forever = 1000 * time.Hour
