package main

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/internal/bridge"
)

// A sim is one fleet in virtual time, in one goroutine at a time. The seed
// decides everything, so a run can be repeated to the byte.
type sim struct {
	seed  uint64
	r     *rand.Rand // the order of what happens at the same instant
	set   settings
	deeds []deed
	only  map[string]bool // if it isn't nil: the deeds and faults there are

	world   *world
	tasks   []*task // that still do something
	task    *task   // the one that has the lease
	current *job    // whose call is being made
	mode    provisioner.HarvestMode
	limits  provisioner.Limits
	known   []provisioner.MachineID // in the order in which they came
	count   map[counted]int

	now     time.Duration
	jump    time.Duration // the Task's clock is ahead by that
	items   []item
	over    bool
	calmAt  time.Duration
	calm    bool
	leaving bool // the last Task ends
	uneven  bool // some attempt has failed

	bad    *violation
	steps  int
	struck []string
	faults map[string]int
	log    *strings.Builder
}

// An item is something that happens at its time.
type item struct {
	at time.Duration
	do func()
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newSim(seed uint64, only map[string]bool) *sim {
	s := &sim{seed: seed, only: only, r: rand.New(rand.NewPCG(seed, 1)),
		count: map[counted]int{}, faults: map[string]int{}}
	s.world = newWorld(s)
	s.decide()
	return s
}

// strikes says whether a deed or a fault is to happen, and notes it.
func (s *sim) strikes(key, kind string) bool {
	if s.only != nil && !s.only[key] {
		return false
	}
	s.struck = append(s.struck, key)
	s.faults[kind]++
	s.logf("trouble %s (%s)", key, kind)
	return true
}

func (s *sim) logf(format string, args ...any) {
	if s.log != nil {
		fmt.Fprintf(s.log, "%12s  %s\n", s.now, fmt.Sprintf(format, args...))
	}
}

func oneLine(text string) string {
	line, _, _ := strings.Cut(text, `\n`)
	return line
}

func (s *sim) newEngine(cfg provisioner.Config) Engine {
	e, err := bridge.NewEngine(cfg)
	if err != nil {
		panic(err)
	}
	return e.(Engine)
}

func (s *sim) random() uint64 { return s.r.Uint64() }

func (s *sim) later(d time.Duration, do func()) { s.items = append(s.items, item{s.now + d, do}) }

// play runs the whole life of a fleet.
func (s *sim) play() {
	defer func() {
		if p := recover(); p != nil {
			s.fail("panic", "%v", p)
			s.logf("%s", debug.Stack())
		}
		s.over = true
		for _, t := range slices.Clone(s.tasks) {
			s.die(t)
		}
	}()
	span := time.Duration(0)
	s.newTask()
	for _, x := range s.deeds {
		if x.at == 0 {
			s.act(x)
		} else {
			s.later(x.at, func() { s.act(x) })
			span = max(span, x.at)
		}
	}
	s.run(span + time.Minute)
	s.settle()
	s.finish()
}

// settle ends the trouble and waits until everything rests.
func (s *sim) settle() {
	s.calm, s.calmAt = true, s.now
	s.world.mend()
	s.logf("everything is well now")
	for i := range s.world.zones {
		s.world.zones[i].Available, s.world.zones[i].listed = true, true
	}
	for _, t := range s.tasks {
		s.thaw(t)
		s.release(t)
	}
	why := ""
	for range 16 {
		if len(s.tasks) > 1 || s.task.ending {
			s.run(s.now + 2*time.Minute)
			for _, t := range s.tasks {
				s.release(t)
			}
		}
		s.retry()
		s.run(s.now + 15*time.Minute)
		if why = s.unrest(); why == "" || s.bad != nil {
			break
		}
	}
	if why != "" {
		s.fail("convergence", "4 hours after the trouble %s", why)
	}
	if s.bad == nil {
		s.checkRest()
	}
}

// finish ends the Task, which leaves nothing behind.
func (s *sim) finish() {
	s.leaving = true
	s.end()
	for range 10 {
		s.run(s.now + time.Minute)
		if hushed, calls, orphans := s.task.Hushed(); hushed {
			orphans = slices.DeleteFunc(orphans, func(o string) bool { // it may yet be adopted
				_, id, _ := strings.Cut(o, " of machine ")
				return s.world.waits(provisioner.MachineID(id))
			})
			if len(calls)+len(orphans) > 0 {
				s.fail("ST14", "left behind: %v %v", calls, orphans)
			}
			return
		}
	}
	s.fail("ST14", "it does not end")
}

// run lets happen what is due until then, one thing after the other; what is
// due at the same time, in any order.
func (s *sim) run(until time.Duration) {
	for s.bad == nil {
		at, n := s.soonest()
		if n == 0 || at > until {
			s.now = max(s.now, until)
			return
		}
		s.now = max(s.now, at)
		if s.steps++; s.steps > 200_000 {
			s.fail("convergence", "it does not stand still")
		}
		s.one(at, s.r.IntN(n))
	}
}

// soonest is when something happens next, and how many things do.
func (s *sim) soonest() (at time.Duration, n int) {
	at = forever
	see := func(when time.Duration) {
		switch when = max(when, s.now); {
		case when < at:
			at, n = when, 1
		case when == at:
			n++
		}
	}
	for _, t := range s.tasks {
		if t.frozen {
			continue
		}
		if when, ok := s.turnDue(t); ok {
			see(when)
		}
		for _, j := range t.jobs {
			see(j.at)
		}
	}
	for _, x := range s.items {
		see(x.at)
	}
	if at >= forever {
		return at, 0
	}
	return at, n
}

// one lets the k-th of the things happen that are due at a time.
func (s *sim) one(at time.Duration, k int) {
	due := func(when time.Duration) bool {
		if max(when, s.now) != at {
			return false
		}
		k--
		return k < 0
	}
	for _, t := range s.tasks {
		if t.frozen {
			continue
		}
		if when, ok := s.turnDue(t); ok && due(when) {
			s.turn(t)
			return
		}
		for _, j := range t.jobs {
			if due(j.at) {
				s.resume(j)
				return
			}
		}
	}
	for i, x := range s.items {
		if due(x.at) {
			s.items = append(s.items[:i], s.items[i+1:]...)
			x.do()
			return
		}
	}
}

// turnDue is when the engine turns next.
func (s *sim) turnDue(t *task) (at time.Duration, ok bool) {
	if t.Waiting() || t.Backlog() {
		if !t.poked { // sometimes more comes in before it is heard
			t.poked, t.pokedFor = true, s.now+time.Duration(max(0, s.r.IntN(4)-2))*time.Millisecond
		}
		return t.pokedFor, true
	}
	next, ok := t.Next()
	return next.Sub(epoch) - s.jump, ok
}

func (s *sim) turn(t *task) {
	t.poked = false
	for _, id := range s.world.order {
		if !slices.Contains(s.known, id) {
			s.known = append(s.known, id)
		}
	}
	ops, cuts, events := t.Step(epoch.Add(s.now + s.jump))
	for _, e := range events {
		s.heard(t, e)
	}
	if !slices.ContainsFunc(events, func(e provisioner.Event) bool { return e.Kind == provisioner.EventZones }) {
		s.checkChoice(t, ops) // else the zones of the choice are not known any more
	}
	for _, op := range ops {
		s.begin(t, op)
	}
	t.quiet, t.before = t.hushed, t.mode
	if cuts > 0 {
		s.cutCalls(t)
	}
	s.checkTurn(t)
	if hushed, calls, orphans := t.Hushed(); hushed && !s.leaving {
		if s.release(t); s.set.exits || len(t.jobs) == 0 && !t.Waiting() {
			s.logf("ended; left behind: %v %v", calls, orphans)
			s.succeed(t)
		}
	}
}

// succeed is the end of a Task, and of the calls that it has left behind. If
// it had the lease, a new one comes.
func (s *sim) succeed(t *task) {
	s.die(t)
	if t == s.task {
		s.world.disown()
		s.newTask()
	}
}

// stall lets the Task stand still where it is, while another gets the lease.
func (s *sim) stall(d time.Duration) {
	t := s.task
	t.frozen = true
	s.world.disown()
	s.newTask()
	s.later(d, func() { s.thaw(t) })
}

// thaw lets a Task go on that has stood still: soon it hears that its lease is
// lost.
func (s *sim) thaw(t *task) {
	if !t.frozen {
		return
	}
	t.frozen = false
	s.logf("the stalled task goes on")
	s.later(time.Duration(s.r.IntN(3))*time.Second, func() {
		if !t.ending {
			t.ending = true
			t.Quiet(true)
		}
	})
}
