package provisioner

import (
	"context"
	stderrors "errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/juju/errors"
)

// inbox collects what comes in for the engine.
type inbox struct {
	mu     sync.Mutex
	queue  []message
	driven bool
	idlers []chan standing // answered when nothing is in flight
	notify chan struct{}
}

// post hands a message over without waiting. Without a driver the poster takes
// a turn itself, so that a result that comes late is still dealt with (ST14).
func (t *Task) post(m message) {
	t.inbox.mu.Lock()
	t.inbox.queue = append(t.inbox.queue, m)
	driven := t.inbox.driven
	t.inbox.mu.Unlock()
	if !driven {
		t.turn()
		return
	}
	t.poke()
}

func (t *Task) poke() {
	select {
	case t.inbox.notify <- struct{}{}:
	default:
	}
}

// take empties the queue into the memory of used, which nobody may need any
// more.
func (b *inbox) take(used []message) []message {
	clear(used)
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.queue
	b.queue = used[:0]
	return m
}

func (b *inbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) == 0
}

// A standing is what a driver needs to know after a turn.
type standing struct {
	next    time.Time // zero: nothing is due by itself
	more    bool      // there is something to do at once
	busy    bool
	hushed  bool
	watched bool     // somebody waits for a look
	out     []string // calls that are still out
	orphans []string // instances that are neither recorded nor stopped
	number  uint64   // of the last event
	left    bool     // the driver has left: ask again
}

// turn takes the engine and lets it handle all that has come in.
func (t *Task) turn(more ...message) standing {
	s := t.step(more...)
	for s.more {
		s = t.step()
	}
	return s
}

// step takes the engine for one step: what has come in so far, and one slice
// of a whole reading.
func (t *Task) step(more ...message) standing {
	now := t.cfg.Clock.Now() // with nothing held
	e := <-t.engine
	defer func() { t.engine <- e }()
	t.spare = append(t.inbox.take(t.spare), more...)
	e.step(now, t.spare...)
	t.perform(e)
	s := standing{more: !t.inbox.empty() || !e.quiet && e.backlog(), busy: e.busy(), number: e.number, watched: len(e.watch) > 0}
	s.next, _ = e.next()
	if e.quiet {
		if s.hushed = e.hushed(); s.hushed {
			s.out, s.orphans = e.callsOut(), e.orphanNames()
		}
	}
	return s
}

// perform does what a step has left behind; nothing in it waits.
func (t *Task) perform(e *engine) {
	out, cuts, events := e.take()
	if len(events) > 0 {
		for _, f := range t.feeds {
			f.put(events)
		}
	}
	for _, o := range out {
		t.pool.run(t.host.prepareToRun(t.base, o, t.poster))
	}
	for _, c := range cuts {
		c.op.call.cut(c)
	}
	clear(out)
	clear(cuts)
	clear(events)
}

// pool keeps goroutines for operations. How many there are, the engine
// decides: it never gives out more than its limits allow.
type pool struct {
	mu   sync.Mutex
	open bool // idle goroutines stay for the next job
	idle []chan *running
	all  sync.WaitGroup
}

func (p *pool) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = true
}

// end ends the idle goroutines; busy ones end with their job.
func (p *pool) end() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.open = nil, false
	p.mu.Unlock()
	for _, jobs := range idle {
		close(jobs)
	}
}

func (p *pool) run(job *running) {
	p.mu.Lock()
	n := len(p.idle)
	if n == 0 {
		p.mu.Unlock()
		p.all.Add(1)
		go p.work(job)
		return
	}
	jobs := p.idle[n-1]
	p.idle = p.idle[:n-1]
	p.mu.Unlock()
	jobs <- job // it has room for one, and nobody else sends
}

func (p *pool) work(job *running) {
	defer p.all.Done()
	jobs := make(chan *running, 1)
	for job != nil {
		job.run()
		p.mu.Lock()
		if !p.open {
			p.mu.Unlock()
			return
		}
		p.idle = append(p.idle, jobs)
		p.mu.Unlock()
		job = <-jobs
	}
}

// A driver is whoever lets the engine turn: Run, or a single look.
type driver struct {
	*Task
	changes <-chan []MachineID
	retries <-chan struct{}
	news    <-chan []MachineID // of profile changes
	until   *watch             // a single look ends with it; nil: Run
	settled chan struct{}      // closed when it ends

	timer *clock.Timer
	armed time.Time
	why   error // why it ends
	quiet bool  // it ends
}

// drive turns the engine until ctx ends or there is no more reason to. The
// caller has the seat, and no longer when drive returns.
func (d *driver) drive(ctx context.Context, first ...message) error {
	d.inbox.mu.Lock()
	d.inbox.driven = true
	d.inbox.mu.Unlock()
	e := <-d.engine
	d.base = context.WithoutCancel(ctx)
	d.engine <- e
	d.pool.start()
	defer d.disarm()
	var lost <-chan struct{}
	if d.cfg.Lease != nil {
		lost = d.cfg.Lease.Lost()
	}
	for in := first; ; {
		s := d.step(in...)
		clear(in)
		in = in[:0]
		switch {
		case s.more:
			d.poke() // and hear what else there is, lest a flood drowns it
		case d.quiet && s.hushed:
			if d.leave(s) {
				return d.why
			}
			continue
		case !s.next.IsZero() && !s.next.After(d.cfg.Clock.Now()):
			continue
		default:
			d.arm(s.next)
			if !s.busy && !d.quiet && len(d.changes)+len(d.retries)+len(d.news) == 0 {
				d.answerIdlers(s)
			}
		}
		select {
		case <-d.inbox.notify:
			// What ends at the same time is handled in one turn: fewer turns,
			// and larger bulk readings.
			runtime.Gosched()
			in = d.changed(in)
		case <-d.ticks():
			d.disarm()
		case ids, ok := <-d.changes:
			if !ok {
				in = d.end(errors.Annotate(ErrWatcherClosed, "machine changes"))
				break
			}
			in = d.changed(append(in, message{kind: msgChanged, ids: ids}))
		case _, ok := <-d.retries:
			if !ok {
				in = d.end(errors.Annotate(ErrWatcherClosed, "retry signals"))
				break
			}
			in = append(in, message{kind: msgRetry})
		case ids, ok := <-d.news:
			if !ok {
				in = d.end(errors.Annotate(ErrWatcherClosed, "profile changes"))
				break
			}
			in = append(in, message{kind: msgProfiles, ids: ids})
		case <-d.ended(ctx):
			in = d.end(errors.Annotate(context.Cause(ctx), d.name()))
		case <-d.lookDone():
			if d.giveWay() {
				return nil
			}
			in = d.end(nil)
		case <-d.stop():
			in = d.end(nil)
		case <-lost:
			lost = nil
			in = d.end(ErrLeaseLost)
		case <-d.wanted():
			if d.leave(standing{}) {
				return nil
			}
		}
	}
}

// changed adds the changes that are there already, for the same reason.
func (d *driver) changed(in []message) []message {
	for range maxIDs {
		select {
		case ids, ok := <-d.changes:
			if ok {
				in = append(in, message{kind: msgChanged, ids: ids})
				continue
			}
		default:
		}
		break
	}
	return in
}

func (d *driver) name() string {
	if d.until == nil {
		return "run"
	}
	return "looking at the fleet"
}

// The channels of a driver are nil once it ends, so that each is heard once.

func (d *driver) ended(ctx context.Context) <-chan struct{} {
	if d.quiet {
		return nil
	}
	return ctx.Done()
}

func (d *driver) lookDone() <-chan struct{} {
	if d.quiet || d.until == nil {
		return nil
	}
	return d.settled
}

func (d *driver) stop() <-chan struct{} {
	if d.quiet || d.until != nil {
		return nil
	}
	return d.killed
}

// wanted: Run wants the seat of a single look.
func (d *driver) wanted() <-chan struct{} {
	if d.quiet || d.until == nil {
		return nil
	}
	return d.handover
}

// end begins the end: nothing new, and what is out may come home.
func (d *driver) end(why error) []message {
	d.quiet, d.why, d.changes, d.retries, d.news = true, why, nil, nil, nil
	in := []message{{kind: msgQuiet, flag: d.until == nil}}
	if d.until != nil {
		in = append([]message{{kind: msgUnwatch, watch: d.until}}, in...)
	}
	return in
}

// giveWay leaves the seat to somebody else who waits for a look.
func (d *driver) giveWay() bool {
	s := d.turn()
	return s.watched && d.leave(standing{})
}

// leave gives the seat back, for good if it is Run's, unless something has come
// in meanwhile.
func (d *driver) leave(s standing) bool {
	d.inbox.mu.Lock()
	if len(d.inbox.queue) > 0 {
		d.inbox.mu.Unlock()
		return false
	}
	d.inbox.driven = false
	idlers := d.inbox.idlers
	d.inbox.idlers = nil
	d.inbox.mu.Unlock()
	for _, i := range idlers {
		i <- standing{left: true}
	}
	d.pool.end()
	if len(s.out)+len(s.orphans) > 0 {
		d.why = stderrors.Join(d.why, &CallsOutError{s.out, s.orphans})
	}
	if d.quiet && len(s.out) == 0 {
		d.pool.all.Wait()
	}
	if d.until != nil { // after Run nobody drives
		d.seat <- struct{}{}
	}
	return true
}

// arm sets the one timer, anew each time: Reset is not used.
func (d *driver) arm(next time.Time) {
	if d.timer != nil && !next.IsZero() && !d.armed.After(next) {
		return // early is soon enough: it is armed anew then
	}
	d.disarm()
	if !next.IsZero() {
		d.armed = next
		d.timer = d.cfg.Clock.Timer(next.Sub(d.cfg.Clock.Now()))
	}
}

func (d *driver) disarm() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer, d.armed = nil, time.Time{}
	}
}

func (d *driver) ticks() <-chan time.Time {
	if d.timer == nil {
		return nil
	}
	return d.timer.C
}

// answerIdlers tells those who wait for it that nothing is in flight.
func (d *driver) answerIdlers(s standing) {
	d.inbox.mu.Lock()
	defer d.inbox.mu.Unlock()
	if len(d.inbox.queue) > 0 {
		return
	}
	for _, i := range d.inbox.idlers {
		i <- s // it has room for one
	}
	d.inbox.idlers = nil
}

// standstill waits until nothing is in flight.
func (t *Task) standstill(ctx context.Context) (standing, error) {
	for {
		t.inbox.mu.Lock()
		if !t.inbox.driven {
			t.inbox.mu.Unlock()
			return t.turn(), nil
		}
		answer := make(chan standing, 1)
		t.inbox.idlers = append(t.inbox.idlers, answer)
		t.inbox.mu.Unlock()
		t.poke()
		select {
		case s := <-answer:
			if !s.left {
				return s, nil
			}
		case <-ctx.Done():
			return standing{}, errors.Annotate(context.Cause(ctx), "waiting for the task to be idle")
		}
	}
}

// A CallsOutError ends Run when not everything could be brought to its end
// within ShutdownGrace.
type CallsOutError struct {
	Calls   []string // still out; what they bring later is still recorded or stopped
	Orphans []string // instances that are neither recorded nor stopped
}

// Error names all of them.
func (e *CallsOutError) Error() string {
	var texts []string
	if len(e.Calls) > 0 {
		texts = append(texts, fmt.Sprintf("calls still out: %d: %q", len(e.Calls), e.Calls))
	}
	if len(e.Orphans) > 0 {
		texts = append(texts, fmt.Sprintf("instances neither recorded nor stopped: %d: %q", len(e.Orphans), e.Orphans))
	}
	return strings.Join(texts, "; ")
}
