package main

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/internal/bridge"
)

// An Engine is the engine of a Task, as the bridge gives it. What comes in is
// handled by the next Step.
type Engine interface {
	Wake(run bool)
	Quiet(forGood bool)
	Changed(ids ...provisioner.MachineID)
	Retry()
	SetMode(mode provisioner.HarvestMode)
	SetLimits(l provisioner.Limits)
	Look(finish func())

	Waiting() bool
	Step(now time.Time) (ops []bridge.Op, cuts int, events []provisioner.Event)
	Next() (time.Time, bool)
	Backlog() bool
	Hushed() (hushed bool, calls, orphans []string)

	Unit(id provisioner.MachineID) (bridge.Unit, bool)
	Zones(id provisioner.MachineID) []provisioner.RankedZone
	Audit() error
}

// A task is an engine with what is under way for it, and what its invariants
// are held by.
type task struct {
	Engine
	epoch    uint64                          // of its lease
	may      map[provisioner.InstanceID]bool // be stopped, as the host has said last
	kept     map[provisioner.InstanceID]bool // left running, as it has said
	before   provisioner.HarvestMode         // the mode in force when its last turn had ended
	iced     bool                            // no unknown instances are stopped
	frozen   bool                            // it stands still, and does not know
	jobs     []*job
	looks    int // that somebody waits for
	mode     provisioner.HarvestMode
	limits   provisioner.Limits
	ending   bool // it was told to end
	hushed   bool // it has heard that
	quiet    bool // and what it had given out before has begun
	used     usage
	failed   map[provisioner.MachineID]bool // was shown to have failed, or is about to be
	final    map[provisioner.MachineID]bool // its start has had its last word
	writing  map[provisioner.MachineID]bool
	forgot   map[provisioner.MachineID]bool                 // and its record has not come back
	shown    map[provisioner.MachineID]bridge.Unit          // in the transcript
	zones    map[provisioner.MachineID]provisioner.ZoneName // where each was counted after the last turn
	going    map[provisioner.MachineID]bool                 // its record says that it wants no instance
	tooLate  bool                                           // somebody was told twice that a look has ended
	poked    bool
	pokedFor time.Duration
}

// A job is one operation under way: a coroutine, so that its host calls can
// be stopped between any two of their steps by the one goroutine there is.
type job struct {
	bridge.Op
	task  *task
	id    provisioner.MachineID
	mode  provisioner.HarvestMode // when it was given out
	token string                  // of its start
	next  func() (struct{}, bool)
	stop  func()

	yield func(struct{}) bool
	at    time.Duration   // when it goes on
	ctx   context.Context // of the call that it is making
	obeys bool            // the call returns when its context ends
	cut   bool
}

// begin carries an operation out up to where it waits.
func (s *sim) begin(t *task, op bridge.Op) {
	j := &job{Op: op, task: t, id: provisioner.MachineID(op.Machine), mode: t.mode}
	s.checkBegin(j)
	j.next, j.stop = iter.Pull(func(yield func(struct{}) bool) {
		j.yield = yield
		op.Run()
	})
	t.jobs = append(t.jobs, j)
	s.resume(j)
}

// resume lets an operation go on to where it waits again.
func (s *sim) resume(j *job) {
	before := s.current
	s.current = j
	_, waits := j.next()
	s.current = before
	if waits {
		return
	}
	j.task.jobs = slices.DeleteFunc(j.task.jobs, func(other *job) bool { return other == j })
}

// wait lets the call that is being made wait. It returns false if the call's
// context has ended, and it obeys.
func (s *sim) wait(ctx context.Context, d time.Duration, obeys bool) bool {
	j := s.current
	if s.calm {
		d = min(d, time.Second)
	}
	j.at, j.ctx, j.obeys, j.cut = s.now+d, ctx, obeys, false
	if obeys && ctx.Err() != nil {
		j.at, j.cut = s.now, true
	}
	if !j.yield(struct{}{}) {
		panic(crashed{})
	}
	s.current = j
	return !obeys || ctx.Err() == nil
}

// crashed is what ends the calls of a controller that has crashed.
type crashed struct{}

// scripted is a panic that the seed has decided.
type scripted struct{ call string }

func (p scripted) String() string { return "scripted panic in " + p.call }

// cutCalls wakes the calls whose contexts have ended.
func (s *sim) cutCalls(t *task) {
	for _, j := range t.jobs {
		if j.ctx == nil || j.ctx.Err() == nil {
			continue
		}
		if j.obeys && !j.cut {
			j.cut = true
			j.at = min(j.at, s.now+obedience[s.r.IntN(len(obedience))])
		}
	}
}

// obedience is how long a call takes to return after its context has ended.
var obedience = []time.Duration{0, 0, time.Millisecond, 500 * time.Millisecond, 3 * time.Second}

// release lets everything go on that would wait for long.
func (s *sim) release(t *task) {
	for _, j := range t.jobs {
		j.at = min(j.at, s.now+time.Duration(s.r.IntN(3))*time.Second)
	}
}

// die ends a controller at once: what its calls were about to do happens now,
// later, or never.
func (s *sim) die(t *task) {
	jobs := t.jobs
	t.jobs = nil
	for _, j := range jobs {
		s.current = j
		j.stop()
	}
	s.current = nil
	s.tasks = slices.DeleteFunc(s.tasks, func(other *task) bool { return other == t })
}
