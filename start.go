package provisioner

import (
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// A start is one machine on its way to an instance, from its first place in the
// lane on, over all its attempts.
type start struct {
	nonce    string // the same over all attempts (ST10)
	info     *StartInfo
	config   instancecfg.Config
	members  []MachineID // of its group
	ready    bool        // info and config are there
	groupAt  time.Time
	derivedZ bool // the broker was asked for zones

	wish    wish
	shape   shape
	failed  zoneSet // in this round
	walk    Walk
	attempt int
	zone    int32
	keep    bool     // the next attempt is in the same zone (ST3)
	again   bool     // and is the same attempt (ST11)
	open    bool     // whether the last attempt has made an instance is not known
	planned ZoneName // an applied plan's choice for the first attempt
	began   time.Time
	history StartError

	cancelled bool
	made      *madeInstance
	noZones   string // why no zone can be used, as was told last
	waits     bool   // for a zone
	listed    bool   // in zoneState.waiting
}

// madeInstance is an instance that is there and not known to be recorded.
type madeInstance struct {
	record InstanceRecord
	err    error // why it was not recorded
	stop   error // why it could not be stopped, so far
}

// zoneless says whether a start has no zone of its own to choose.
func (e *engine) zoneless(u *unit) bool {
	return u.rec.ID.IsContainer() || !e.cfg.zones || !e.ledger.zoned()
}

func queueStart(e *engine, u *unit, _ *message) {
	u.failed = nil
	e.enter(u, lifeQueued)
	e.enqueue(u)
	e.tell(Event{Kind: EventQueued, Machine: u.rec.ID})
}

func (e *engine) enqueue(u *unit) {
	e.zones.stale = true
	e.starts.Push(laneKey(u.rec.ID), u)
}

// leavePlace gives back the place that a start holds.
func (e *engine) leavePlace(u *unit) {
	switch u.life {
	case lifeAnnouncing, lifePreparing:
		e.starts.Done(laneKey(u.rec.ID))
	}
}

// takeOver gives the place that an operation holds back to its unit. One that
// was late has lost it, and the unit queues again.
func (e *engine) takeOver(u *unit, o *op) bool {
	if o.lane == nil {
		e.enter(u, lifeQueued)
		e.enqueue(u)
		return false
	}
	o.lane = nil
	e.enter(u, lifePreparing)
	return true
}

// placeGot: a place in the lane comes first, then the first status, then what
// the start needs (ST1).
func placeGot(e *engine, u *unit, _ *message) {
	if u.start == nil {
		u.start = &start{zone: noZone, history: StartError{Machine: u.rec.ID}, planned: e.plannedZone(u.rec.ID)}
		u.start.wish = wish{slot: u.slot, hash: hashString(string(u.rec.ID))}
	}
	s := u.start
	switch {
	case !s.ready && s.began.IsZero():
		s.began = e.now
		e.enter(u, lifeAnnouncing)
		e.tell(Event{Kind: EventStarting, Machine: u.rec.ID})
		if !e.show(u, StatusUpdate{InstanceStatus: InstanceAllocating, Text: "starting"}, showFirst) {
			e.fire(u, evWritten, nil)
		}
	case !s.ready || e.now.Sub(s.groupAt) > time.Minute:
		joinBatch(e, u, nil) // a group that old is read again (DG5)
	default:
		e.enter(u, lifePreparing)
		e.deriveOrAttempt(u)
	}
}

func joinBatch(e *engine, u *unit, _ *message) {
	e.enter(u, lifePreparing)
	e.batch = append(e.batch, u)
}

// A need is what is to be read for one machine that has got its place.
type need struct {
	Machine MachineID
	Ready   bool // information and credentials are there: only the group
	Nonce   string
	Info    *StartInfo
}

// flushBatch reads in bulk for those that have just got a place.
func (e *engine) flushBatch() {
	if len(e.batch) == 0 || e.clogged(opPrepare) {
		return
	}
	batch := e.batch
	e.batch = nil
	for len(batch) > 0 {
		n := min(len(batch), maxIDs)
		e.seq++
		o := &op{kind: opPrepare, seq: e.seq}
		needs := make([]need, 0, n)
		for _, u := range batch[:n] {
			if u.life != lifePreparing || u.op != nil {
				continue // dropped since
			}
			u.op = o
			o.units = append(o.units, u)
			needs = append(needs, need{u.rec.ID, u.start.ready, u.start.nonce, u.start.info})
		}
		batch = batch[n:]
		if len(needs) > 0 {
			o.req = needs
			e.begin(o)
		}
	}
}

// A prepared is what was read for one machine.
type prepared struct {
	nonce  string
	info   *StartInfo
	config instancecfg.Config
	group  Group
	seq    uint64 // of the reading
	err    error
	final  bool // err is the machine's provisioning error (DG5, ST15)
}

// prepared hands the result of a bulk reading to each of its machines.
func (e *engine) prepared(o *op, m *message) {
	results, _ := m.result.([]prepared)
	if m.err != nil && !e.quiet {
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err})
	}
	alone := errors.Is(m.err, ErrPanic) || o.phase == phaseAgents && errors.Is(m.err, ErrTimedOut)
	if alone && len(o.units) > 1 && !e.quiet {
		e.prepareApart(o)
		return
	}
	var each message
	for i, u := range o.units {
		if u.op != o {
			continue // dropped since
		}
		u.op = nil
		one := &prepared{err: m.err}
		if m.err == nil && i < len(results) {
			one = &results[i]
			one.seq = o.seq
		}
		each.result = one
		e.fire(u, evDone, &each)
	}
}

// prepareApart reads for each machine by itself: one of them has made the call
// for all of them crash, or its agents are looked up for too long, and must not
// keep the others from starting.
func (e *engine) prepareApart(all *op) {
	needs := all.req.([]need)
	for i, u := range all.units {
		if u.op == all {
			e.seq++
			u.op = &op{kind: opPrepare, units: []*unit{u}, seq: e.seq, req: []need{needs[i]}}
			e.begin(u.op)
		}
	}
}

func preparedOne(e *engine, u *unit, m *message) {
	s, r := u.start, m.result.(*prepared)
	switch {
	case r.err != nil && r.final:
		e.leavePlace(u)
		e.giveUp(u, r.err)
		return
	case r.err != nil:
		e.leavePlace(u)
		e.waitUnreachable(u, r.err)
		return
	}
	if !s.ready {
		s.ready, s.nonce, s.info, s.config = true, r.nonce, r.info, r.config
		u.tries = 0
		s.wish.constraint = e.ledger.set(zoneNames(r.info.Constraints.Zones))
		s.shape = shapeOf(r.info.Constraints)
	}
	s.groupAt, s.members = e.now, r.group.Members
	if !u.rec.ID.IsContainer() {
		e.ledger.join(&s.wish, u.rec.ID, r.group, r.seq, e.slotOf)
	}
	e.deriveOrAttempt(u)
}

// deriveOrAttempt asks the broker for zones, once in a start, before the first
// attempt.
func (e *engine) deriveOrAttempt(u *unit) {
	if s := u.start; e.cfg.deriver && !s.derivedZ && !e.zoneless(u) {
		u.op = &op{kind: opDerive, unit: u, lane: &e.starts, key: laneKey(u.rec.ID), req: e.request(u)}
		e.enter(u, lifeDeriving)
		e.begin(u.op)
		return
	}
	e.attempt(u)
}

func zoneNames(names []string) []ZoneName {
	zones := make([]ZoneName, len(names))
	for i, n := range names {
		zones[i] = ZoneName(n)
	}
	return zones
}

func (e *engine) slotOf(id MachineID) (int32, bool) {
	if u := e.units[id]; u != nil {
		return u.slot, true
	}
	return 0, false
}

// waitUnreachable: what a start needs could not be reached; that is a back-off
// and no failure (ST15).
func (e *engine) waitUnreachable(u *unit, err error) {
	e.probe(u, noZone)
	next := e.wake(u, e.backoff(&u.tries))
	e.enter(u, lifeWaiting)
	if errors.Is(err, errors.NotFound) {
		e.read(u) // perhaps it is the machine that is gone (LD3)
	}
	e.tell(Event{Kind: EventMachineFailed, Machine: u.rec.ID, Err: err, Next: next})
	e.settled(u, Result{Kind: ActionStart, Reason: "what its start needs could not be reached", Err: err})
}

func derived(e *engine, u *unit, m *message) {
	s := u.start
	switch {
	case s.cancelled || e.quiet:
		e.cancelStart(u, nil)
		return
	case errors.Is(m.err, errors.NotValid):
		e.giveUp(u, m.err) // AZ10
		return
	case errors.Is(m.err, errors.NotImplemented), errors.Is(m.err, errors.NotSupported):
	case m.err != nil:
		e.waitUnreachable(u, m.err)
		return
	default:
		zones, _ := m.result.([]ZoneName)
		s.wish.derived = e.ledger.set(zones)
	}
	s.derivedZ = true
	if e.takeOver(u, m.op) {
		e.attempt(u)
	}
}

// attempt chooses a zone and asks the broker. The unit has a place, which the
// operation takes over.
func (e *engine) attempt(u *unit) {
	if e.decide(u).Kind == ActionCancel { // its record has come, and its turn in that reading not yet
		dropStart(e, u, nil)
		return
	}
	s := u.start
	if e.policy.Retry.Deadline > 0 && s.walk.Attempts > 0 && e.now.Sub(s.began) >= e.policy.Retry.Deadline {
		e.leavePlace(u)
		e.giveUp(u, s.history.Cause)
		return
	}
	if host := u.rec.ID.Host(); host != "" && !s.again {
		if reason := e.hostState(host).reason(host); reason != "" {
			e.leavePlace(u)
			e.show(u, StatusUpdate{InstanceStatus: InstanceAllocating, Text: reason}, showPlain)
			e.passOver(u, reason)
			return
		}
	}
	asIs := s.again && s.zone == noZone // it was asked for when the broker had no zones
	if !asIs && !e.zoneless(u) && !e.chooseZone(u) {
		return
	}
	if s.noZones != "" {
		e.show(u, StatusUpdate{InstanceStatus: InstanceAllocating, Text: "starting"}, showPlain)
	}
	if !s.again {
		s.attempt++
	}
	s.keep, s.again, s.noZones, s.history.Out = false, false, "", nil
	o := &op{kind: opStart, unit: u, phase: e.cfg.launchPhase, lane: &e.starts, key: laneKey(u.rec.ID), req: e.request(u)}
	u.op, u.tries = o, 0
	e.enter(u, lifeStarting)
	e.tell(Event{Kind: EventAttempt, Machine: u.rec.ID, Zone: e.ledger.name(s.zone), Attempt: s.attempt})
	e.begin(o)
}

// wish is what a start's next choice is made by.
func (e *engine) wish(u *unit) *wish {
	s := u.start
	s.wish.failed, s.wish.cool, s.wish.now = &s.failed, e.cool.of(s.shape), e.now
	return &s.wish
}

// chooseZone picks and reserves a zone (AZ7), or deals with there being none.
func (e *engine) chooseZone(u *unit) bool {
	s, w := u.start, e.wish(u)
	if s.keep && s.zone != noZone && (s.again || e.ledger.available(s.zone, w)) {
		e.probe(u, s.zone)
		return true
	}
	e.ledger.place(u.slot, noZone)
	if s.planned != "" && s.attempt == 0 {
		s.zone = e.ledger.intern(s.planned)
		if reason := e.ledger.reason(s.zone, w); reason != "" {
			e.leavePlace(u)
			e.passOver(u, "zone "+string(s.planned)+" can no longer be used: "+reason)
			return false
		}
	} else {
		s.zone = e.ledger.choose(w)
	}
	if s.zone != noZone {
		e.ledger.place(u.slot, s.zone)
		e.probe(u, s.zone)
		return true
	}
	e.leavePlace(u)
	e.probe(u, noZone)
	e.nowhere(u)
	return false
}

// nowhere: no zone can be used now.
func (e *engine) nowhere(u *unit) {
	if s := u.start; !s.failed.empty() && e.roundLeft(u) == 0 {
		// What the round still had went away meanwhile: the round is over, and
		// what comes now is waited for as after any other.
		s.waits = false
		e.agenda.Drop(&u.item)
		e.goOn(u, Outcome{Kind: OutcomeZoneFailed}, s.history.Cause, nil)
		return
	}
	e.noZone(u)
}

// roundLeft is how many zones the round still has: those that can be used, or
// else those that are cooling down, so that to wait for them costs no retry.
// But if a new round would have a zone at once, that comes sooner.
func (e *engine) roundLeft(u *unit) int {
	s, w := u.start, e.wish(u)
	usable, cooling := e.ledger.left(w)
	if usable > 0 || cooling == 0 {
		return usable
	}
	anew := *w
	anew.failed = nil
	if e.ledger.choose(&anew) != noZone && s.walk.Retries < e.policy.Retry.retries() {
		return 0
	}
	return cooling
}

// probe makes a machine the one that probes the zone, if that is due, and no
// other. The others wait for what comes of it, or for another to probe.
func (e *engine) probe(u *unit, zone int32) {
	if e.cool.of(u.start.shape).claim(zone, u.slot) {
		e.zonesChanged()
	}
}

// noZone: no zone can be used at the beginning of a round, or those that the
// round still has are cooling down. Zones that are only down or cooling are
// waited for, at no cost; a constraint that fits no zone is final (AZ9).
func (e *engine) noZone(u *unit) {
	s, w := u.start, e.wish(u)
	s.history.Out = e.ledger.excluded(w)
	if s.history.Cause == nil {
		s.history.Cause = noZoneError(u.rec.ID)
	}
	next := e.now.Add(max(e.cfg.refresh, time.Second))
	if due := e.ledger.due(w); !due.IsZero() && due.Before(next) {
		next = due
	}
	if end := s.began.Add(e.policy.Retry.Deadline); e.policy.Retry.Deadline > 0 && s.walk.Attempts > 0 && end.Before(next) {
		next = end
	}
	if !e.ledger.waitable(w) || !e.now.Before(next) {
		e.giveUp(u, s.history.Cause)
		return
	}
	text := statusText(s.history.Cause) + ": " + excludedText(s.history.Out)
	e.wake(u, next.Sub(e.now))
	e.enter(u, lifeWaiting)
	if s.waits = true; !s.listed {
		s.listed = true
		e.zones.waiting = append(e.zones.waiting, u)
	}
	if s.noZones != text {
		s.noZones = text
		e.show(u, StatusUpdate{InstanceStatus: InstanceProvisioningError, Text: text}, showPlain)
		e.tell(Event{Kind: EventZonesOut, Machine: u.rec.ID, Text: text, Next: next})
	}
	e.settled(u, Result{Kind: ActionStart, Reason: text, Err: s.history.clone()})
}

func waitOver(e *engine, u *unit, _ *message) {
	if !u.start.waits {
		e.queueAgain(u)
		return
	}
	e.zones.stale = true
	if e.refreshZones(); e.zones.op == nil {
		e.zoneAgain(u)
	} else {
		e.wake(u, max(e.cfg.refresh, time.Second)) // zonesRead comes first
	}
}

// zoneAgain lets a machine that waits for a zone go on if there is one now.
// Only then does it ask for a place; of many, one claims a zone that is to be
// probed.
func (e *engine) zoneAgain(u *unit) {
	zone := e.ledger.choose(e.wish(u))
	if zone == noZone {
		e.nowhere(u)
		return
	}
	e.queueAgain(u)
	e.probe(u, zone)
}

func (e *engine) queueAgain(u *unit) {
	u.start.waits = false
	e.agenda.Drop(&u.item)
	e.enter(u, lifeQueued)
	e.enqueue(u)
}

// request is all that the broker is given. The shell adds token, epoch and
// functions.
func (e *engine) request(u *unit) startCall {
	s := u.start
	q := requestFor(e.cfg.controller, u.rec.ID, s.info, s.config)
	q.Attempt, q.Zone = s.attempt, e.ledger.name(s.zone)
	q.Nonce, q.Labels.Nonce = s.nonce, s.nonce
	if host, ok := e.units[q.Host]; ok {
		q.HostInstance = host.rec.Instance
	}
	return startCall{q, s.members}
}

// requestFor is what a machine's information alone says of its start.
func requestFor(controller string, id MachineID, info *StartInfo, config instancecfg.Config) StartRequest {
	return StartRequest{
		Machine:      id,
		Labels:       Labels{Controller: controller, Machine: id},
		Host:         id.Host(),
		Constraints:  info.Constraints,
		Config:       config,
		Agents:       info.Agents,
		Placement:    info.Placement,
		RootDisk:     info.RootDisk,
		Volumes:      info.Volumes,
		Attachments:  info.Attachments,
		Subnets:      info.Subnets,
		EndpointBind: info.EndpointBind,
		Images:       info.Images,
		Profiles:     info.Profiles,
	}
}

// A startCall is the request of one attempt.
type startCall struct {
	request StartRequest
	group   []MachineID
}

// dropStart lets go of a start that has left no mark yet.
func dropStart(e *engine, u *unit, _ *message) {
	e.leavePlace(u)
	u.op = nil
	e.cancelStart(u, nil)
}

// cancelOp cancels the call of a start; its outcome is dealt with when it comes.
func cancelOp(e *engine, u *unit, _ *message) {
	if !u.start.cancelled {
		u.start.cancelled = true
		if u.op.phase != phaseRecord {
			e.cuts = append(e.cuts, cut{u.op, u.op.phase, errUnwanted})
		}
	}
}

func noteCancel(_ *engine, u *unit, _ *message) { u.start.cancelled = true }

// cancelStart ends a start without a failure (ST13, ST14). unknown is why it
// cannot be told whether an instance was made, or nil.
func (e *engine) cancelStart(u *unit, unknown error) {
	text := "the machine no longer wants an instance"
	switch {
	case e.over || e.quiet && e.shutdown:
		text = "the task is shutting down"
	case e.quiet:
		text = "nobody drives the task any more"
	}
	if unknown != nil {
		text += "; an instance may have been made"
	}
	e.endStart(u, false)
	e.tell(Event{Kind: EventStartCancelled, Machine: u.rec.ID, Text: text, Err: unknown})
	e.rest(u)
}

// endStart lets go of all that a start holds. Its zone is committed or
// released (AZ7).
func (e *engine) endStart(u *unit, recorded bool) {
	if u.start != nil {
		e.probe(u, noZone)
	}
	u.start, u.tries = nil, 0
	if !recorded {
		e.ledger.place(u.slot, noZone)
		e.populate(u) // somebody else may have provisioned it
	}
	e.endShow(u)
}

// giveUp ends a start for good: it waits for a retry signal (ST7).
func (e *engine) giveUp(u *unit, cause error) {
	s := u.start
	failed := s.history.clone()
	if cause != nil {
		failed.Cause = cause
	}
	if failed.Out == nil && !e.zoneless(u) {
		failed.Out = e.ledger.excluded(e.wish(u))
	}
	u.failed = failed
	u.drop(flagFailSeen)
	text := statusText(failed)
	if errors.Is(cause, ErrNoZone) {
		text += ": " + excludedText(failed.Out)
	}
	e.show(u, StatusUpdate{Status: StatusError, InstanceStatus: InstanceProvisioningError, Text: text}, showFinal)
	e.endStart(u, false)
	e.enter(u, lifeFailed)
	e.tell(Event{Kind: EventStartFailed, Machine: u.rec.ID, Attempt: s.attempt, Err: failed})
	e.settled(u, Result{Kind: ActionStart, Reason: "its start has failed", Err: failed})
	e.catchUp(u)
}

// catchUp looks at what came while something was under way that has failed.
func (e *engine) catchUp(u *unit) {
	switch {
	case u.has(flagGone):
		e.forget(u)
	case u.has(flagDirty):
		if u.life == lifeFailed {
			e.failedRecord(u)
		}
		e.consider(u)
	}
}

// passOver ends a start that an applied plan no longer covers, or that has to
// wait for its host again.
func (e *engine) passOver(u *unit, reason string) {
	e.endStart(u, false)
	e.tell(Event{Kind: EventStartCancelled, Machine: u.rec.ID, Text: reason})
	e.settled(u, Result{Kind: ActionLeave, Reason: reason})
	for _, w := range e.watch {
		delete(w.gate, u.rec.ID)
	}
	e.rest(u)
}
