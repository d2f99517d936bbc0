package provisioner

import (
	"context"
	stderrors "errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/juju/errors"
)

// A Task keeps a fleet true to its records. Make one with New. All methods may
// be called from several goroutines at once.
//
// A Task is driven by Run, or, while Run isn't going on, by Reconcile and
// Apply for as long as they last. Undriven it begins nothing.
type Task struct {
	cfg  Config
	caps []Capability
	host host

	engine chan *engine    // one slot: whoever took it out is the loop
	spare  []message       // memory for the inbox; whoever has the engine has it
	base   context.Context // of host calls: the driver's values, not its end; as spare
	poster func(message)
	inbox  inbox
	pool   pool
	feeds  []*feed
	calls  *calls

	seat     chan struct{} // one token: whoever has it drives
	handover chan struct{} // a driver gives way to Run
	began    atomic.Bool
	killed   chan struct{}
	kill     sync.Once
	done     chan struct{} // closed when Run has returned
	err      error         // of Run; read after done
}

// Why Run ended; test with errors.Is. An ended context gives its own error.
const (
	ErrWatcherClosed = errors.ConstError("watcher closed")
	ErrRunTwice      = errors.ConstError("Run was called before")
	ErrStopped       = errors.ConstError("the task has stopped")
	ErrNotNew        = errors.ConstError("not a Task made by New")
)

// New makes a Task. It checks the whole configuration, reports every fault at
// once in a *ConfigError, and does no I/O (LC1).
func New(cfg Config) (_ *Task, err error) {
	defer func() { // Unwrap, Traits and Random are the host's
		if r := recover(); r != nil {
			err = &ConfigError{[]error{faultOf(r)}}
		}
	}()
	if faults := cfg.faults(); len(faults) > 0 {
		return nil, &ConfigError{faults}
	}
	cfg = cfg.withDefaults()
	t := &Task{
		cfg:      cfg,
		engine:   make(chan *engine, 1),
		seat:     make(chan struct{}, 1),
		handover: make(chan struct{}),
		killed:   make(chan struct{}),
		done:     make(chan struct{}),
	}
	t.base, t.poster = context.Background(), t.post
	t.inbox.notify = make(chan struct{}, 1)
	t.host = host{
		broker: cfg.Broker, state: cfg.State,
		startLimiter: cfg.StartLimiter, stopLimiter: cfg.StopLimiter,
		veto: cfg.Veto, drainer: cfg.Drain,
		lease: cfg.Lease, naming: cfg.ProfileNaming, controller: cfg.Controller, tag: cfg.HostTag, random: cfg.Random,
	}
	t.host.Optional, t.caps = cfg.Optional.Find(cfg.Broker, cfg.State)
	t.calls = &calls{failed: func(err error) { t.post(message{kind: msgObserver, err: err, place: -1}) }}
	if cfg.Trace != nil {
		t.calls.trace.Store(&cfg.Trace)
	}
	t.host.observed(t.calls)
	for i, o := range cfg.Observers {
		f := &feed{to: o, limit: cfg.EventBuffer}
		f.failed = func(err error) { t.post(message{kind: msgObserver, err: err, place: int32(i)}) }
		t.feeds = append(t.feeds, f)
	}
	t.seat <- struct{}{}
	t.engine <- newEngine(t.engineConfig(), cfg.Policy, cfg.Limits)
	return t, nil
}

func (t *Task) engineConfig() engineConfig {
	o := t.host.Optional
	seed1, seed2 := t.cfg.Random(), t.cfg.Random()
	c := engineConfig{
		controller: t.cfg.Controller,
		launch:     t.cfg.LaunchTimeout, call: t.cfg.CallTimeout, rollback: t.cfg.RollbackTimeout,
		grace: t.cfg.ShutdownGrace, resync: t.cfg.Resync, refresh: t.cfg.ZoneRefresh,
		sweep: t.cfg.Sweep, drain: t.cfg.DrainTimeout, spares: o.SparedStore != nil, asks: t.cfg.Veto != nil || t.cfg.Drain != nil,
		// The engine draws from a source of its own: the host is not called
		// while the engine is held.
		random: rand.New(rand.NewPCG(seed1, seed2)).Float64,
		spread: rand.New(rand.NewPCG(seed2, seed1)).Float64,
		zones:  o.Zones != nil, deriver: o.Deriver != nil, maintainer: o.Maintainer != nil,
		status: o.Status != nil, life: o.Life != nil, retries: o.Retries != nil, profiles: o.ProfileState != nil, profileBroker: o.Profiles != nil,
		launchPhase: phaseLaunch,
	}
	if o.Traits != nil {
		traits := o.Traits.Traits()
		c.dedupes, c.labels, c.consistent = traits.DedupesByToken, traits.Labels, traits.ConsistentReads
	}
	if t.cfg.Veto == nil {
		c.askPhase = phaseDrain
	}
	c.finder, c.intents, c.visibility = o.Finder != nil, o.Intents != nil, t.cfg.VisibilityGrace
	if t.cfg.StartLimiter != nil {
		c.launchPhase = phaseLimit
	}
	if t.cfg.StopLimiter != nil {
		c.stopPhase = phaseLimit
	}
	return c
}

// Capabilities lists the optional abilities of the host, which were found, and
// where. A decorator that loses one is seen here.
func (t *Task) Capabilities() []Capability { return append([]Capability(nil), t.caps...) }

// Run keeps the fleet true to its records until ctx ends, Kill is called, a
// watcher closes, or the lease is lost; its error says which, and is nil after
// Kill. It may be called once. When it returns the watchers are stopped and no
// goroutine is left, save calls that are named in a *CallsOutError, of the host's
// and of observers (ST14).
func (t *Task) Run(ctx context.Context) (err error) {
	if t.engine == nil {
		return ErrNotNew
	}
	if !t.began.CompareAndSwap(false, true) {
		return ErrRunTwice
	}
	defer close(t.done)
	defer func() { // the clock and the lease are the host's
		if r := recover(); r != nil {
			t.err = faultOf(r)
			err = t.err
		}
	}()
	t.err = t.run(ctx)
	return t.err
}

// Kill ends Run, without waiting. Killing again, or before Run, is fine.
func (t *Task) Kill() {
	if t.killed != nil {
		t.kill.Do(func() { close(t.killed) })
	}
}

// Wait returns what Run returns, once it does.
func (t *Task) Wait() error {
	if t.done == nil {
		return ErrNotNew
	}
	<-t.done
	return t.err
}

func (t *Task) run(ctx context.Context) error {
	over := func() error { return stderrors.Join(errors.Annotate(context.Cause(ctx), "run"), t.stopWatchers()) }
	select { // what is over before it begins asks the host for nothing
	case <-ctx.Done():
		return over()
	case <-t.killed:
		return over()
	default:
	}
	for seated := false; !seated; {
		select {
		case <-t.seat:
			seated = true
		case t.handover <- struct{}{}: // whoever drives now gives way
		case <-ctx.Done():
			return over()
		case <-t.killed:
			return over()
		}
	}
	d := driver{Task: t, changes: t.cfg.Changes.C, retries: t.cfg.Retry.C, news: t.cfg.ProfileChanges.C}
	first := []message{{kind: msgWake, flag: true}}
	if d.changes == nil {
		first = append(first, message{kind: msgLook})
	}
	err := d.drive(ctx, first...)
	return stderrors.Join(err, t.stopWatchers(), t.drain())
}

// drain waits until the observers have been told everything, at most for
// ShutdownGrace, and names those that have not.
func (t *Task) drain() error {
	var out []string
	var late <-chan time.Time
	if t.cfg.ShutdownGrace > 0 {
		timer := t.cfg.Clock.Timer(t.cfg.ShutdownGrace)
		defer timer.Stop()
		late = timer.C
	}
	for i, f := range t.feeds {
		drained := f.drained()
		if len(out) == 0 && late != nil {
			select {
			case <-drained:
			case <-late:
			}
		}
		select {
		case <-drained:
		default:
			out = append(out, fmt.Sprintf("observer %d", i))
		}
	}
	if out == nil {
		return nil
	}
	return &CallsOutError{Calls: out}
}

// stopWatchers releases the watchers, once, whatever they do.
func (t *Task) stopWatchers() error {
	return stderrors.Join(
		stopWatcher("machine changes", t.cfg.Changes.Stop),
		stopWatcher("retry signals", t.cfg.Retry.Stop),
		stopWatcher("profile changes", t.cfg.ProfileChanges.Stop))
}

// stopWatcher calls stop in a goroutine of its own, as it is the host's and may
// end that.
func stopWatcher(what string, stop func() error) error {
	if stop == nil {
		return nil
	}
	ended := make(chan error, 1)
	go func() {
		var err error
		returned := false
		defer func() {
			if !returned {
				err = faultOf(recover())
			}
			ended <- err
		}()
		err = stop()
		returned = true
	}()
	return errors.Annotatef(<-ended, "watcher of %s", what)
}

// SetHarvestMode changes the mode, at once also for what is known already
// (HV12). It does not wait; the last value wins.
func (t *Task) SetHarvestMode(mode HarvestMode) error {
	if err := mode.Validate(); err != nil {
		return err
	}
	return t.set(message{kind: msgMode, mode: mode})
}

// SetLimits changes the limits. It does not wait and interrupts nothing; the
// last value wins.
func (t *Task) SetLimits(l Limits) error {
	if faults := l.faults(); len(faults) > 0 {
		return &ConfigError{faults}
	}
	return t.set(message{kind: msgLimits, limits: &l})
}

func (t *Task) set(m message) error {
	if t.engine == nil {
		return ErrNotNew
	}
	t.post(m)
	return nil
}

// Reconcile looks once at everything, and returns when what that look began is
// settled or given up (LC8): started or failed for good, stopped and removed.
// What is tried again for ever (a stop that fails, zones that are all down)
// counts as given up after its first failure; the report says so. A start that
// keeps failing is given up after all rounds of Policy.Retry, about half an hour
// by default: bound ctx, or the policy, where that is too long. It works with Run
// going or without. Its own error means that the fleet could not be
// read, that ctx has ended or that the task has stopped; machines have theirs
// in the report.
func (t *Task) Reconcile(ctx context.Context) (Report, error) {
	return t.lookOnce(ctx, nil, nil)
}

// lookOnce waits for one look, and drives it while nobody else does. With a
// gate only what that allows is done.
func (t *Task) lookOnce(ctx context.Context, gate map[MachineID]Action, reap map[InstanceID]bool) (Report, error) {
	if t.engine == nil {
		return Report{}, ErrNotNew
	}
	select {
	case <-t.done:
		return Report{}, ErrStopped
	default:
	}
	done := make(chan struct{})
	w := newWatch(gate, func() { close(done) })
	w.reap = reap
	t.post(message{kind: msgLook, watch: w})
	for {
		select {
		case <-done:
			return w.report.sorted(), w.err
		default:
		}
		select {
		case <-done:
		case <-t.done:
			return Report{}, ErrStopped
		case <-ctx.Done():
			t.turn(message{kind: msgUnwatch, watch: w})
			return w.report.sorted(), errors.Annotate(context.Cause(ctx), "looking at the fleet")
		case <-t.seat:
			d := driver{Task: t, until: w, settled: done}
			if err := d.drive(ctx, message{kind: msgWake}); err != nil {
				return w.report.sorted(), err
			}
		}
	}
}

// Idle returns once nothing is in flight and every event so far is handled, by
// the observers too: what a test with a mock clock calls before it moves the
// clock. next is when the Task does something by itself, zero for never. A
// Task that nobody drives is idle.
func (t *Task) Idle(ctx context.Context) (next time.Time, err error) {
	if t.engine == nil {
		return time.Time{}, ErrNotNew
	}
	for last, first := uint64(0), true; ; first = false {
		s, err := t.standstill(ctx)
		if err != nil {
			return time.Time{}, err
		}
		if !first && s.number == last {
			return s.next, nil
		}
		last = s.number
		for _, f := range t.feeds {
			select {
			case <-f.drained():
			case <-ctx.Done():
				return time.Time{}, errors.Annotate(context.Cause(ctx), "waiting for an observer")
			}
		}
	}
}
