package provisioner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/internal/agenda"
	"github.com/seed81ba69f2/provisioner/internal/lane"
)

// An engine owns all state of a Task and decides everything, and does no I/O:
// step takes what has come in, and leaves behind operations to be run (out),
// operations to be cancelled (cuts) and events. It has one owner at a time and
// needs no lock. It is routing only: what one machine goes through is a table
// in life.go, zones are in ledger.go, reading in look.go, texts in slot.go.
type engine struct {
	cfg    engineConfig
	policy Policy
	now    time.Time
	seq    uint64 // grows with each reading, so that stale ones show

	units     map[MachineID]*unit
	claims    map[InstanceID]*unit  // head of a chain through unit.nextClaim
	children  map[MachineID][]*unit // containers that wait for their host
	depths    []int                 // units by depth that a reading has named
	writing   map[MachineID]*shown  // status slots of forgotten machines that are being written
	astir     map[*unit]struct{}    // whose life isn't resting
	dead      map[*unit]struct{}    // whose record says so, and perhaps some others
	bySlot    []*unit               // nil where a slot is free
	free      []int32
	forgotten uint64 // machines, so far
	ledger    *ledger
	cool      cooldowns
	reaper    reaper
	census    census

	starts   lane.Lane[*unit]
	finds    lane.Lane[*unit] // searches for the instances of one machine
	stops    lane.Lane[*unit]
	removals lane.Lane[*unit]
	upkeep   lane.Lane[*unit]
	writes   lane.Lane[*unit] // of statuses
	newStops []*unit          // of this pass, not yet in their lane
	batch    []*unit          // have a place and wait for one bulk reading

	agenda agenda.Agenda[due]
	ops    []*op // under way, in any order
	stuck  int   // operations whose time is over
	opID   uint64
	lives  [lives]int // units in each life

	look     lookState
	list     listState
	sweep    sweepState
	zones    zoneState
	profiles profileState
	retry    retryState
	watch    []*watch // looks that somebody waits for
	running  bool     // Run drives, so everything is wanted
	quiet    bool     // nothing new is begun
	shutdown bool     // for good
	over     bool     // the grace is over
	grace    moment

	out    []*op
	cuts   []cut
	events []Event
	number uint64 // of the last event
	told   map[EventKind]uint64
}

// engineConfig is what the engine knows of the host and the configuration.
type engineConfig struct {
	controller string
	launch     time.Duration
	call       time.Duration
	rollback   time.Duration
	grace      time.Duration
	resync     time.Duration
	sweep      time.Duration
	drain      time.Duration
	refresh    time.Duration
	random     func() float64 // in [0,1)
	spread     func() float64 // likewise, of the sweep's own, so that it changes no other wait

	zones, deriver, maintainer, status, life, retries bool
	profiles, profileBroker                           bool
	finder, intents                                   bool
	dedupes, labels, consistent                       bool // what the broker promises
	visibility                                        time.Duration
	spares, asks                                      bool

	launchPhase opPhase // the first of a start: phaseLimit if a Limiter is set
	stopPhase   opPhase
	askPhase    opPhase // the first of what is asked before a stop
}

// due is something on the agenda.
type due interface{ due(e *engine) }

// A moment is an agenda entry that calls a function of the engine.
type moment struct {
	item agenda.Item[due]
	do   func(e *engine)
}

func (m *moment) due(e *engine) { m.do(e) }

func (e *engine) at(m *moment, at time.Time) {
	m.item.Value = m
	e.agenda.Set(&m.item, at)
}

// A unit is one machine as the engine knows it.
type unit struct {
	rec    Machine
	slot   int32
	life   life
	tries  uint8 // back-off of what is being tried again
	flags  unitFlags
	listed bool   // found in the listing that is being gone through, or newer than that
	missed uint8  // complete listings in a row that lacked its instance, up to missingOften
	seq    uint64 // the reading that rec comes from
	told   string // the reason last told
	op     *op    // what is under way for it; it is locked by that
	item   agenda.Item[due]
	start  *start       // only while it is being started
	left   *openAttempt // of a start that has ended, and may have made an instance
	failed error        // why its start was given up, or what failed last of its stop or removal
	shown  *shown       // its status slot, while in use
	reread *reread

	nextClaim *unit
	profile   *profiling // its profile change, while there is something to be done about it
}

type unitFlags uint16

const (
	flagKnown    unitFlags = 1 << iota // has been read
	flagReading                        // a reading is under way
	flagAgain                          // and another is wanted after it
	flagDirty                          // its record came while something was under way
	flagGone                           // its record is no more
	flagSettled                        // its instance was stopped
	flagFailSeen                       // the host has seen that it failed
	flagToldKept                       // EventKept was told
	flagNamed                          // a reading has named it, perhaps with an error
	flagObscure                        // its instance could not be read the last time
	flagDocRead                        // its profile change is being read
	flagDocAgain                       // and is to be read once more after that
	flagDocError                       // its status was made that of a failed profile change
	flagFresh                          // its record is newer than the Task's first reading
	flagLooked                         // what earlier lives of the Task began for it is known
	flagAsked                          // somebody asked for a further try after its start was given up
)

func (u *unit) has(f unitFlags) bool { return u.flags&f != 0 }
func (u *unit) set(f unitFlags)      { u.flags |= f }
func (u *unit) drop(f unitFlags)     { u.flags &^= f }

// due of a unit: the wait of its life is over.
func (u *unit) due(e *engine) { e.fire(u, evDue, nil) }

func (e *engine) wake(u *unit, after time.Duration) time.Time {
	u.item.Value = u
	at := e.now.Add(after)
	e.agenda.Set(&u.item, at)
	return at
}

// backoff is the next wait of what is tried again for ever.
func (e *engine) backoff(tries *uint8) time.Duration {
	if *tries < 255 {
		*tries++
	}
	return e.policy.backoff(int(*tries), e.cfg.random())
}

// A message is something that has come in.
type message struct {
	kind   messageKind
	phase  opPhase
	mode   HarvestMode
	flag   bool  // msgWake: Run drives; msgQuiet: for good
	place  int32 // msgObserver: in Config.Observers
	op     *op
	ids    []MachineID
	spared []InstanceID
	plan   string
	limits *Limits
	update *StatusUpdate
	watch  *watch
	result any
	err    error
	note   error // a fault of a call's results that spoils nothing else
}

type messageKind uint8

const (
	msgOutcome messageKind = iota // op has ended: result, err
	msgPhase                      // op has reached phase
	msgReport                     // a broker shows progress: op, update
	msgChanged                    // ids have changed
	msgRetry                      // the retry signal
	msgMode
	msgLimits
	msgLook  // look at everything; watch may be nil
	msgQuiet // begin nothing new
	msgWake  // the end of quiet
	msgUnwatch
	msgObserver // an observer was cut off
	msgProfiles // ids have profile changes
	msgApprove  // the frozen plan named text
	msgReap     // the spared instances
)

func newEngine(cfg engineConfig, p Policy, l Limits) *engine {
	e := &engine{
		cfg: cfg, policy: p,
		astir: map[*unit]struct{}{}, dead: map[*unit]struct{}{},
		units: map[MachineID]*unit{}, claims: map[InstanceID]*unit{}, children: map[MachineID][]*unit{}, writing: map[MachineID]*shown{},
		ledger: newLedger(p), cool: newCooldowns(p), reaper: newReaper(),
		told:  map[EventKind]uint64{},
		quiet: true, // until somebody drives it
	}
	e.profiles.init()
	if e.cfg.spread == nil {
		e.cfg.spread = cfg.random
	}
	e.resize(l)
	e.grace.do = (*engine).graceOver
	e.look.resync.do = (*engine).resync
	e.look.retry.do = (*engine).startLook
	e.list.retry.do = (*engine).readListing
	e.list.rhythm.do = (*engine).readListing
	e.reaper.retry.do = (*engine).readSpared
	e.zones.retry.do = (*engine).readZones
	e.census.again.do = (*engine).lookForBare
	return e
}

func (e *engine) resize(l Limits) {
	l = l.withDefaults()
	e.starts.Resize(l.Starts, l.ContainerStarts)
	e.stops.Resize(l.Stops, l.Stops)
	e.removals.Resize(l.Stops, l.Stops)
	e.upkeep.Resize(l.Stops, l.Stops)
	e.finds.Resize(maxReads, maxReads)
	e.writes.Resize(maxWrites, maxWrites)
	e.profiles.lane.Resize(l.Profiles, l.ContainerProfiles)
}

// step handles what is due at now and then the messages, in their order.
func (e *engine) step(now time.Time, in ...message) {
	if now.After(e.now) { // a clock that was set back makes time stand still
		e.now = now
	}
	for {
		item, ok := e.agenda.Pop(e.now)
		if !ok {
			break
		}
		item.Value.due(e)
	}
	for i := range in {
		e.handle(&in[i])
	}
	e.workOff()
	e.goThrough()
	if !e.reading() {
		e.look.buried = nil
	}
	e.pump()
}

// next is when step has something to do without a message.
func (e *engine) next() (time.Time, bool) { return e.agenda.Next() }

func (e *engine) handle(m *message) {
	switch m.kind {
	case msgOutcome:
		e.ended(m)
	case msgPhase:
		e.reached(m.op, m.phase)
	case msgReport:
		e.reported(m)
	case msgChanged:
		e.changed(m.ids)
	case msgRetry:
		e.retrySignal()
	case msgProfiles:
		e.profilesChanged(m.ids)
	case msgMode:
		e.setMode(m.mode)
	case msgLimits:
		e.resize(*m.limits)
		e.tell(Event{Kind: EventSettings, Text: "limits changed"})
	case msgLook:
		if m.watch != nil {
			e.watch = append(e.watch, m.watch)
		}
		e.startLook()
	case msgQuiet:
		e.hush(m.flag)
	case msgWake:
		e.wakeUp(m.flag)
	case msgUnwatch:
		e.unwatch(m.watch)
	case msgObserver:
		e.tell(Event{Kind: EventObserverFailed, N: int(m.place), Err: m.err})
	case msgApprove:
		e.approve(m.plan)
	case msgReap:
		e.reapSpared(m.spared)
	}
}

// HV12: what is known already is decided anew at once.
func (e *engine) setMode(mode HarvestMode) {
	wider := mode.Unknown() && !e.policy.Harvest.Unknown()
	e.policy.Harvest = mode
	e.tell(Event{Kind: EventSettings, Text: "harvest mode " + mode.String()})
	if !e.look.loaded {
		return
	}
	maps.DeleteFunc(e.dead, func(u *unit, _ struct{}) bool { return u.rec.Life != Dead })
	for _, u := range sortedUnits(e.dead) {
		e.consider(u)
	}
	if wider {
		e.sweepNow()
	}
}

func (e *engine) tell(ev Event) {
	e.number++
	ev.Seq, ev.At = e.number, e.now
	e.told[ev.Kind]++
	e.events = append(e.events, ev)
}

// take gives what step has left behind; it is valid until the next step.
func (e *engine) take() (out []*op, cuts []cut, events []Event) {
	out, cuts, events = e.out, e.cuts, e.events
	e.out, e.cuts, e.events = e.out[:0], e.cuts[:0], e.events[:0]
	return out, cuts, events
}

// pump gives places to what waits: stops before removals, those before upkeep
// and changes of profiles, and starts last (HV6, CL11).
func (e *engine) pump() {
	e.flushReads()
	e.flushChanges()
	e.flushUnspared()
	e.pushStops()
	for {
		u, ok := e.stops.Pop(func(u *unit) bool {
			return u.op == nil && (u.life == lifeStopping || u.life == lifeUndoing) && !u.item.On()
		})
		if !ok {
			break
		}
		e.fire(u, evPlace, nil)
	}
	e.placeDoomed()
	for {
		u, ok := e.removals.Pop(func(u *unit) bool { return u.life == lifeRemoving && u.op == nil && !u.item.On() })
		if !ok {
			break
		}
		e.fire(u, evPlace, nil)
	}
	for {
		u, ok := e.upkeep.Pop(func(u *unit) bool { return u.life == lifeMaintaining && u.op == nil })
		if !ok {
			break
		}
		e.fire(u, evPlace, nil)
	}
	for {
		u, ok := e.profiles.lane.Pop(func(u *unit) bool { return u.life == lifeProfiling && u.op == nil && u.profile.queued })
		if !ok {
			break
		}
		e.fire(u, evPlace, nil)
	}
	for {
		u, ok := e.finds.Pop(func(u *unit) bool { return u.life == lifeSearching && u.op == nil && !u.item.On() })
		if !ok {
			break
		}
		e.fire(u, evPlace, nil)
	}
	for e.mayStart() {
		u, ok := e.starts.Pop(func(u *unit) bool { return u.life == lifeQueued })
		if !ok {
			break
		}
		e.fire(u, evPlace, nil)
	}
	e.flushBatch()
	e.pumpWrites()
	e.checkWatches()
}

// laneKey is what a start is limited by besides the lane: its host.
func laneKey(id MachineID) string { return string(id.Host()) }

// An op is one operation of the shell: one or a few host calls.
type op struct {
	id     uint64
	place  int // in engine.ops, counted from 1; 0: it has ended
	kind   opKind
	unit   *unit // whose it is; nil for a bulk one, and for a doomed instance's
	units  []*unit
	doomed *doomed // whose stop it is, if it is no unit's
	seq    uint64  // of a reading
	began  time.Time
	req    any // what the shell needs; not changed after it was given out

	phase  opPhase
	lane   *lane.Lane[*unit] // where it holds a place; nil: nowhere
	key    string
	late   bool // its time is over
	warned bool
	item   agenda.Item[due]

	call *call // the shell's side
}

// A cut cancels the call that an operation is making, if it still is in phase.
type cut struct {
	op    *op
	phase opPhase
	cause error
	hard  bool // also a start that may have made an instance by then: it can be found
}

type opKind uint8

const (
	opFleet opKind = iota
	opMachines
	opListing
	opCensus
	opZones
	opRetries
	opChanges
	opSpared
	opUnspare
	opPrepare
	opDerive
	opStart
	opFind
	opConfirm
	opAsk
	opStop
	opRemove
	opMaintain
	opProfile
	opDocument
	opStatus
)

var opNames = [...]string{"reading the fleet", "reading machines", "listing instances", "searching for labelled instances", "reading zones",
	"reading machines to retry", "reading profile changes", "reading spared instances", "forgetting spared instances",
	"reading start information", "deriving zones", "starting", "searching for instances",
	"reading the record again", "asking before a stop", "stopping", "removing", "upkeep", "changing profiles", "writing what has become of a profile change", "writing a status"}

func (k opKind) String() string { return opNames[k] }

// An opPhase is the call that an operation is at; each has its own deadline.
type opPhase uint8

const (
	phaseCall   opPhase = iota // its only or first call
	phaseLimit                 // waiting for a Limiter
	phaseIntent                // IntentStore.SwapIntent
	phaseLaunch                // Broker.Start
	phaseRecord                // State.SetInstance, ProfileState.SetProfiles
	phaseNext                  // a further call with the usual deadline
	phaseNext2
	phaseIntents  // IntentStore.Intents
	phaseAgents   // AgentFinder.FindAgents
	phaseProfiles // ProfileNamer.ProfileNames
	phaseDrain    // Drainer.Drain
)

// begin gives an operation out.
func (e *engine) begin(o *op) {
	e.opID++
	o.id, o.began, o.item.Value = e.opID, e.now, o
	e.ops = append(e.ops, o)
	o.place = len(e.ops)
	e.out = append(e.out, o)
	e.reached(o, o.phase)
}

// reached sets the deadline of the call that an operation has come to.
func (e *engine) reached(o *op, phase opPhase) {
	if o.place == 0 {
		return // it has ended
	}
	o.phase = phase
	limit := e.cfg.call
	switch {
	case phase == phaseLimit:
		limit = 0
	case phase == phaseLaunch:
		limit = e.cfg.launch
	case phase == phaseDrain:
		limit = e.cfg.drain
	case o.undoes():
		limit = e.cfg.rollback
	}
	if limit > 0 {
		e.agenda.Set(&o.item, e.now.Add(limit))
	} else {
		e.agenda.Drop(&o.item)
	}
}

// due of an operation: its call has run into its deadline. It is cancelled and
// gives its place back; the machine stays locked until it returns (ST18).
func (o *op) due(e *engine) {
	e.cuts = append(e.cuts, cut{op: o, phase: o.phase, cause: ErrTimedOut})
	if o.late {
		// Stuck, or a further call of an operation that was late has run into
		// its own deadline.
		if !o.warned {
			o.warned = true
			e.tell(Event{Kind: EventCallStuck, Machine: o.machine(), Text: o.String()})
		}
		return
	}
	e.release(o)
	o.late = true
	e.stuck++
	e.agenda.Set(&o.item, e.now.Add(time.Second))
	e.overdue(o)
}

// bulk says whether the operation locks no machine.
func (o *op) bulk() bool { return o.kind <= opPrepare }

// maxLate bounds how many operations of one kind that ignore their deadline
// are put up with before no more are begun, until one of them returns.
const maxLate = 4

// resume begins what was not begun because of those that were late.
func (e *engine) resume(kind opKind) {
	switch {
	case kind == opFleet && e.look.wanted:
		e.startLook()
	case kind == opListing && e.list.wanted:
		e.readListing()
	case kind == opCensus && len(e.census.waiting) > 0:
		e.readCensus()
	case kind == opRetries:
		e.retryAgain()
	}
}

func (e *engine) clogged(kind opKind) bool {
	late := 0
	if e.stuck >= maxLate {
		for _, o := range e.ops {
			if o.kind == kind && o.late {
				late++
			}
		}
	}
	return late >= maxLate
}

func (e *engine) opsInOrder() []*op {
	return slices.SortedFunc(slices.Values(e.ops), func(a, b *op) int { return cmp.Compare(a.id, b.id) })
}

// String says what the operation is doing now.
func (o *op) String() string {
	if o.phase == phaseRecord {
		return "recording"
	}
	return o.kind.String()
}

func (o *op) machine() MachineID {
	switch {
	case o.unit != nil:
		return o.unit.rec.ID
	case o.doomed != nil:
		return o.doomed.machine
	}
	return ""
}

// undoes says whether the operation stops what was made and not recorded.
func (o *op) undoes() bool { return o.kind == opStop && (o.unit == nil || o.unit.life == lifeUndoing) }

// release gives an operation's place back.
func (e *engine) release(o *op) {
	if o.lane != nil {
		o.lane.Done(o.key)
		o.lane = nil
	}
}

// ended routes the outcome of an operation.
func (e *engine) ended(m *message) {
	o := m.op
	if o.place == 0 {
		return
	}
	last := e.ops[len(e.ops)-1]
	e.ops[o.place-1], last.place = last, o.place
	e.ops[len(e.ops)-1] = nil
	e.ops, o.place = e.ops[:len(e.ops)-1], 0
	e.agenda.Drop(&o.item)
	if m.note != nil {
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.note})
	}
	if o.late {
		e.stuck--
		if o.bulk() {
			e.resume(o.kind)
			return // it was dealt with when its time was over
		}
	}
	switch {
	case o.bulk():
		e.wasRead(o, m)
	case o.kind == opStatus:
		e.statusWritten(o, m)
	case o.doomed != nil:
		e.doomedEnded(o.doomed, m)
	case o.unit.op == o:
		o.unit.op = nil
		e.fire(o.unit, evDone, m)
	case o.kind == opDocument:
		e.documentWritten(o, m)
	}
	e.release(o)
}

// wasRead routes the outcome of an operation that locks no machine.
func (e *engine) wasRead(o *op, m *message) {
	switch o.kind {
	case opFleet:
		e.fleetRead(o, m)
	case opMachines:
		e.machinesRead(o, m)
	case opListing:
		e.listingRead(o, m)
	case opCensus:
		e.censusRead(o, m)
	case opZones:
		e.zonesRead(o, m)
	case opRetries:
		e.retriesRead(m)
	case opChanges:
		e.changesRead(o, m)
	case opSpared:
		e.sparedRead(o, m)
	case opUnspare:
		e.unspared(o, m)
	case opPrepare:
		e.prepared(o, m)
	}
}

// overdue deals at once with a late operation that locks no machine.
func (e *engine) overdue(o *op) {
	switch {
	case o.bulk():
		e.wasRead(o, &message{op: o, err: ErrTimedOut})
	case o.kind == opStatus:
		e.statusLate(o)
	case o.kind == opStart:
		e.probe(o.unit, noZone) // others must not wait for a call that may never return (AZ11)
	}
}

// Causes with which calls are cancelled.
var (
	errShutdown = errors.New("the task is shutting down")
	errUnwanted = errors.New("the machine no longer wants an instance")
)

// wakeUp begins anew. For Run everything has to be read once more (LD1).
func (e *engine) wakeUp(run bool) {
	if e.quiet {
		e.look.woken = e.seq
	}
	e.quiet, e.over = false, false
	e.agenda.Drop(&e.grace.item)
	if run {
		// Somebody who waits for a look goes on by what that look has read.
		e.running, e.look.loaded = true, e.look.loaded && len(e.watch) > 0
		e.armResync() // a watcher that never delivers is a lost event, too (LD7)
	}
	for _, w := range e.watch {
		if run || !w.began {
			e.startLook()
			break
		}
	}
}

// ErrTimedOut is what the error of a host call matches that ran into its
// deadline (Config.CallTimeout, LaunchTimeout, RollbackTimeout).
const ErrTimedOut = errors.ConstError("timed out")

// hush begins nothing new, and lets go of what has left no mark yet (ST14).
func (e *engine) hush(shutdown bool) {
	if e.quiet {
		return
	}
	e.quiet, e.shutdown = true, shutdown
	for _, u := range append(slices.Concat(e.look.apart...), e.look.toRead...) {
		u.drop(flagReading | flagAgain)
	}
	e.look.apart, e.look.toRead = nil, nil
	e.hushChanges()
	e.look.stage, e.look.results, e.look.wanted = stageIdle, nil, false
	e.list.wanted, e.list.got = false, Listing{}
	e.dropPass()
	e.forgiveAll()
	for _, m := range []*moment{&e.look.resync, &e.look.retry, &e.list.retry, &e.list.rhythm, &e.reaper.retry, &e.zones.retry, &e.census.again} {
		e.agenda.Drop(&m.item)
	}
	for _, u := range sortedUnits(e.astir) {
		e.fire(u, evQuiet, nil)
	}
	e.batch, e.newStops = nil, nil
	for _, o := range e.opsInOrder() {
		if o.bulk() || o.kind == opDerive || o.kind == opAsk || o.phase == phaseLimit {
			e.cuts = append(e.cuts, cut{op: o, phase: o.phase, cause: errShutdown})
		}
	}
	e.running = false
	for _, w := range e.watch {
		w.began, w.applied = false, false
		if shutdown {
			w.err = ErrStopped
		}
	}
	if shutdown {
		e.tell(Event{Kind: EventShutdown, N: len(e.ops)})
	}
	if e.cfg.grace > 0 {
		e.at(&e.grace, e.now.Add(e.cfg.grace))
	} else {
		e.graceOver()
	}
}

// graceOver cancels what is still out.
func (e *engine) graceOver() {
	e.over = true
	e.dropWrites()
	for _, o := range e.opsInOrder() {
		if !o.late {
			e.cuts = append(e.cuts, cut{op: o, phase: o.phase, cause: errShutdown})
		}
	}
}

// busy says whether something is under way that will end by itself.
func (e *engine) busy() bool {
	return len(e.ops) > e.stuck || e.backlog() || len(e.look.toRead) > 0
}

// hushed says whether a quiet engine has nothing left to wait for.
func (e *engine) hushed() bool {
	if e.over {
		return true
	}
	return len(e.ops) == 0 && e.lives[lifeConfirming] == 0 && e.lives[lifeUndoing] == 0
}

// orphanNames names the instances that are there, and neither recorded nor stopped.
func (e *engine) orphanNames() []string {
	var names []string
	for _, o := range e.orphans() {
		names = append(names, fmt.Sprintf("%s of machine %s", o.Instance, o.Machine))
	}
	return names
}

// callsOut names what is still under way.
func (e *engine) callsOut() []string {
	var names []string
	for _, o := range e.opsInOrder() {
		name := o.String()
		switch {
		case o.unit != nil:
			name += " " + string(o.unit.rec.ID)
		case o.doomed != nil:
			name += " instance " + string(o.doomed.id)
		}
		names = append(names, name)
	}
	return names
}
