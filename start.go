package provisioner

import (
	"cmp"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// A start is one machine on its way to an instance, from its first place in the
// lane on, over all its attempts.
type start struct {
	nonce    string // the same over all attempts (ST10)
	own      string // in its place before that of an instance that was there; or empty
	info     *StartInfo
	config   instancecfg.Config
	authed   string      // the nonce that the credentials in config were made for
	members  []MachineID // of its group
	joined   uint64      // how many machines had been forgotten when their slots were looked up
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
	token   string   // of that attempt, if it can't be made from its number
	stored  Intent   // what the state holds
	unasked string   // the token of an attempt that could not be stored, perhaps, and was not made
	planned ZoneName // an applied plan's choice for the first attempt
	began   time.Time
	history StartError
	trouble error // why it waits, where that is no attempt's failure

	known    bool       // what there is of earlier attempts
	since    uint64     // the last operation when the open attempt ended
	looked   sight      // the first look since that has shown none
	none     bool       // there is none, for certain
	once     bool       // one look is enough
	awaits   bool       // the next listing
	found    []Instance // by the last search
	unsure   *unsure    // the attempt that is being looked up
	adopting bool       // an instance that was there
	surplus  []Instance // that were there, too

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
	if e.inDoubt(u) {
		e.tell(Event{Kind: EventQueued, Machine: u.rec.ID})
		e.search(u)
		return
	}
	e.enter(u, lifeQueued)
	e.enqueue(u)
	e.tell(Event{Kind: EventQueued, Machine: u.rec.ID})
}

// inDoubt says whether something of the machine's may be there that takes
// longer to find out than its turn may be held up for.
func (e *engine) inDoubt(u *unit) bool {
	switch {
	case e.leaving(u.rec.ID):
		e.newStart(u)
		return true
	case !e.cfg.searches(), u.left == nil && (e.cfg.intents || u.has(flagLooked|flagFresh)):
		return false
	}
	if e.newStart(u); len(e.candidates(u)) == 0 && e.nothing(u) {
		u.start = nil
		if u.left == nil {
			u.set(flagLooked)
		}
		return false
	}
	return true
}

// newStart begins a start, or goes on with one that has left an attempt open.
func (e *engine) newStart(u *unit) {
	s := &start{zone: noZone, history: StartError{Machine: u.rec.ID}, planned: e.plannedZone(u.rec.ID)}
	s.wish = wish{slot: u.slot, hash: hashString(string(u.rec.ID))}
	s.known = u.has(flagLooked)
	u.start = s
	if u.left != nil {
		e.reopen(u, u.left.Intent)
		s.own, s.since = u.left.own, u.left.op
	}
}

// reopen goes on with an attempt that has neither made an instance that is
// recorded nor certainly failed: it keeps nonce, zone and token (ST10).
func (e *engine) reopen(u *unit, i Intent) {
	s := u.start
	s.nonce, s.attempt, s.token, s.zone = cmp.Or(i.Nonce, s.nonce), i.Attempt, i.Token, noZone
	if i.Zone != "" {
		s.zone = e.ledger.intern(i.Zone)
	}
	s.open, s.known = true, false
	s.again, s.keep = e.cfg.dedupes, e.cfg.dedupes
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
		e.newStart(u)
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
	Ready   bool // information and intent are there
	Auth    bool // credentials are not
	Nonce   string
	Info    *StartInfo
	Config  *instancecfg.Config // if it is ready, and only credentials are missing
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
			needs = append(needs, e.need(u))
		}
		batch = batch[n:]
		if len(needs) > 0 {
			o.req = needs
			e.begin(o)
		}
	}
}

// need is what is to be read for a machine. An instance that is there has its
// credentials, and others might take their place, so none are made before it is
// known under which nonce something is started.
func (e *engine) need(u *unit) need {
	s := u.start
	n := need{Machine: u.rec.ID, Ready: s.ready, Nonce: s.nonce, Info: s.info, Auth: !s.ready && s.own == "" && len(e.candidates(u)) == 0}
	if s.ready && s.authed != s.nonce {
		config := s.config
		n.Auth, n.Config = true, &config
	}
	return n
}

// A prepared is what was read for one machine.
type prepared struct {
	nonce  string
	intent Intent
	info   *StartInfo
	config instancecfg.Config
	authed bool // its credentials are there
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
	none := &prepared{err: m.err}
	for i, u := range o.units {
		if u.op != o {
			continue // dropped since
		}
		u.op = nil
		if each.result = none; m.err == nil && i < len(results) {
			results[i].seq = o.seq
			each.result = &results[i]
		}
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
	nonce := s.nonce
	s.trouble = nil
	if !s.ready {
		s.ready, s.nonce, s.info, s.config, s.stored = true, r.nonce, r.info, r.config, r.intent
		u.tries = 0
		s.wish.constraint = e.ledger.set(zoneNames(r.info.Constraints.Zones))
		s.shape = shapeOf(r.info.Constraints)
	}
	if r.authed {
		s.config, s.authed = r.config, s.nonce
	}
	s.groupAt, s.members, s.joined = e.now, r.group.Members, e.forgotten
	if !u.rec.ID.IsContainer() {
		e.ledger.join(&s.wish, u.rec.ID, r.group, r.seq, e.slotOf)
	}
	if err := e.takeUp(u, nonce); err != nil {
		e.leavePlace(u)
		e.giveUp(u, err)
		return
	}
	e.deriveOrAttempt(u)
}

// takeUp goes on with the attempt that is stored, unless it is one of this
// Task's that is known. One that can neither be asked for again nor be looked
// for has to be decided by a person, who does so by asking for a further try.
func (e *engine) takeUp(u *unit, nonce string) error {
	s := u.start
	mine := s.stored.Nonce == nonce && s.attempt >= s.stored.Attempt || s.stored.Token == s.unasked
	if s.stored.Attempt == 0 || u.has(flagLooked) && s.unasked == "" || mine {
		s.attempt = max(s.attempt, s.stored.Attempt)
		return nil
	}
	e.reopen(u, s.stored)
	switch {
	case e.cfg.dedupes || e.cfg.searches():
	case u.has(flagAsked):
		s.open = false
	default:
		return Permanent(errors.Errorf("attempt %d, begun before the task was started, may have made an instance, and the broker can neither be asked again nor searched", s.attempt))
	}
	return nil
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
	u.start.trouble = err
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
	if !s.known {
		if found := e.candidates(u); len(found) > 0 {
			e.adopt(u, found)
			return
		}
		if !e.nothing(u) {
			e.leavePlace(u)
			e.search(u)
			return
		}
		e.nothingOpen(u)
	}
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
	if !s.again && s.own != "" { // under another, numbers may be taken that nobody here knows
		s.nonce, s.config.Nonce, s.own = s.own, s.own, ""
	}
	if s.authed != s.nonce {
		joinBatch(e, u, nil)
		return
	}
	switch {
	case s.again: // where it was, whatever is known of zones now
		e.ledger.place(u.slot, s.zone)
		e.probe(u, s.zone)
	case e.zoneless(u):
		s.zone = noZone
		e.ledger.place(u.slot, noZone)
	case !e.chooseZone(u):
		return
	}
	if s.noZones != "" {
		e.show(u, StatusUpdate{InstanceStatus: InstanceAllocating, Text: "starting"}, showPlain)
	}
	if !s.again {
		s.attempt++
		s.token = ""
	}
	e.ask(u)
}

// ask gives the attempt out.
func (e *engine) ask(u *unit) {
	s := u.start
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
	if s.wish.group != nil && s.joined != e.forgotten { // a member's slot may be another machine's by now
		s.joined = e.forgotten
		s.wish.group, _ = slotsOf(s.members, e.slotOf)
	}
	s.wish.failed, s.wish.cool, s.wish.now = &s.failed, e.cool.of(s.shape), e.now
	return &s.wish
}

// chooseZone picks and reserves a zone (AZ7), or deals with there being none.
func (e *engine) chooseZone(u *unit) bool {
	s, w := u.start, e.wish(u)
	if s.keep && s.zone != noZone && e.ledger.available(s.zone, w) {
		e.ledger.place(u.slot, s.zone)
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
	q.Nonce, q.Labels.Nonce, q.Token = s.nonce, s.nonce, s.token
	if host, ok := e.units[q.Host]; ok {
		q.HostInstance = host.rec.Instance
	}
	return startCall{request: q, group: s.members, stored: s.stored, at: e.now}
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

// A startCall is the request of one attempt, or the instance to be recorded.
type startCall struct {
	request StartRequest
	group   []MachineID
	stored  Intent // what the state holds
	at      time.Time
	adopt   *InstanceRecord
}

// dropStart lets go of a start that has left no mark yet. What an attempt may
// have made all the same is looked for first.
func dropStart(e *engine, u *unit, _ *message) {
	e.leavePlace(u)
	u.op = nil
	if s := u.start; s != nil && s.open && e.cfg.searches() && !e.quiet {
		s.cancelled, s.again = true, false
		e.agenda.Drop(&u.item)
		e.search(u)
		return
	}
	e.cancelStart(u, nil)
}

// cancelOp cancels the call of a start; its outcome is dealt with when it comes.
func cancelOp(e *engine, u *unit, _ *message) {
	if !u.start.cancelled {
		u.start.cancelled = true
		if u.op.phase != phaseRecord {
			e.cuts = append(e.cuts, cut{op: u.op, phase: u.op.phase, cause: errUnwanted, hard: e.cfg.searches()})
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
	if s := u.start; s != nil {
		e.probe(u, noZone)
		u.left = e.leftOpen(u, recorded)
	}
	u.start, u.tries = nil, 0
	if !recorded {
		e.ledger.place(u.slot, noZone)
		e.populate(u) // somebody else may have provisioned it
	}
	e.endShow(u)
}

// leftOpen is the attempt of a start that ends without being known to have come
// to nothing, so that the next one goes on with it.
func (e *engine) leftOpen(u *unit, recorded bool) *openAttempt {
	s := u.start
	if recorded || !s.open || !e.cfg.dedupes && !e.cfg.searches() {
		return nil
	}
	i := Intent{Machine: u.rec.ID, Attempt: s.attempt, Token: s.token, Nonce: s.nonce, Zone: e.ledger.name(s.zone)}
	return &openAttempt{i, s.own, e.opID}
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
