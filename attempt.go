package provisioner

import (
	"cmp"
	"slices"

	"github.com/juju/errors"
)

// An attempted is what one attempt came to. Where both errors are nil the
// instance is recorded.
type attempted struct {
	record   InstanceRecord // what was to be written down; no Instance: none was made
	start    error          // why none was made
	unwanted error          // one was made that must not stay: why
	write    error          // one was made and could not be written down: why
	profiles error          // why the broker could not tell the profiles that it has
	stored   *Intent        // what was stored before the broker was asked
	intent   error          // why that could not be stored, and the broker was not asked
	token    string         // what was to be stored then
}

// attemptEnded is where an attempt becomes a success, a retry, or something to
// be cleared up.
func attemptEnded(e *engine, u *unit, m *message) {
	s := u.start
	r, ok := m.result.(*attempted)
	if !ok {
		r = &attempted{start: m.err}
	}
	if r.profiles != nil {
		e.tell(Event{Kind: EventProfilesUnread, Machine: u.rec.ID, Instance: r.record.Instance, Err: r.profiles})
	}
	if r.stored != nil {
		s.stored = *r.stored
	}
	switch {
	case r.intent != nil:
		e.intentFailed(u, r)
		return
	case r.record.Instance == "":
		e.attemptFailed(u, m.op, r.start)
		return
	case s.adopting:
	case r.record.Zone == e.ledger.name(s.zone) && e.cool.of(s.shape).succeeded(s.zone, e.opID, e.now):
		defer e.zonesChanged()
	default:
		e.probe(u, noZone) // it is elsewhere, and may take long to be cleared up
	}
	s.open = false // what it has made is known
	switch {
	case r.unwanted != nil:
		s.made = &madeInstance{record: r.record, err: r.unwanted}
		e.beginUndo(u)
	case r.write != nil:
		s.made = &madeInstance{record: r.record, err: r.write}
		e.reaper.undoing[r.record.Instance] = true // it is known whose it is, however long it has been listed
		e.tell(Event{Kind: EventRecordFailed, Machine: u.rec.ID, Instance: r.record.Instance, Err: r.write})
		e.enter(u, lifeConfirming)
		confirmAgain(e, u, nil)
	default:
		e.started(u, r.record)
	}
}

// started: the instance runs and is recorded. Readings that began earlier do
// not know it yet, and are not believed.
func (e *engine) started(u *unit, r InstanceRecord) {
	attempt, adopting, surplus := u.start.attempt, u.start.adopting, u.start.surplus
	// Since the instance was asked for, as far as is known: what a reading that
	// is under way will say is not believed.
	changed := u.has(flagDirty) || u.has(flagGone) || u.has(flagReading) || u.start.cancelled
	if u.has(flagGone) {
		// It was recorded all the same, so the record has come back: nothing is
		// decided by what was known of it before.
		u.rec.Life = Alive
		u.drop(flagGone | flagKnown)
	}
	e.show(u, StatusUpdate{InstanceStatus: InstanceRunning}, showFinal)
	e.unclaim(u)
	u.rec.Instance, u.rec.Zone = r.Instance, r.Zone
	u.listed, u.missed = true, 0
	e.claim(u)
	u.seq = e.seq + 1
	e.seq++
	u.drop(flagSettled | flagToldKept)
	delete(e.reaper.undoing, r.Instance)
	zone := e.ledger.intern(r.Zone)
	if u.rec.ID.IsContainer() {
		zone = noZone
	}
	e.ledger.place(u.slot, zone)
	e.endStart(u, true)
	u.set(flagLooked)
	if adopting {
		e.tell(Event{Kind: EventAdopted, Machine: u.rec.ID, Instance: r.Instance, Zone: r.Zone})
		e.settled(u, Result{Kind: ActionStart, Instance: r.Instance, Zone: r.Zone, Reason: "adopted: it was there already"})
	} else {
		e.tell(Event{Kind: EventStarted, Machine: u.rec.ID, Instance: r.Instance, Zone: r.Zone, Attempt: attempt})
		e.settled(u, Result{Kind: ActionStart, Instance: r.Instance, Zone: r.Zone, Reason: "started"})
	}
	e.adopted(u, surplus)
	e.enter(u, lifeResting)
	e.hostReady(u)
	if changed {
		e.read(u) // and look what that record says now
	}
}

// attemptFailed: no instance was made, as far as the error tells.
func (e *engine) attemptFailed(u *unit, o *op, err error) {
	s := u.start
	if err == nil {
		err = errors.WithType(errors.New("the broker gave neither an instance nor an error"), errNoInstance)
	}
	e.heard(u, o, err)
	last := OutcomeOf(err)
	switch {
	case s.open && (o.phase == phaseLimit || errors.Is(err, ErrLeaseLost)),
		errors.Is(err, errNoInstance) && (e.cfg.dedupes || e.cfg.searches()):
		last = Outcome{Kind: OutcomeUnknown} // the broker was not even asked, or has told nothing (ST11)
	}
	was := s.open
	s.open = last.Kind == OutcomeUnknown
	search := e.cfg.searches() && !e.quiet
	if !s.cancelled && !e.quiet {
		s.history.add(AttemptError{s.attempt, e.ledger.name(s.zone), e.now, err})
	}
	switch {
	case search && s.open && (s.cancelled || !e.cfg.dedupes || errors.Is(err, ErrAlreadyExists)), search && was && !s.open:
		// Also what is said to have failed was perhaps made before it was
		// asked for again.
		e.release(o)
		e.lookInto(u, unsure{last: last, err: err})
	case s.cancelled || e.quiet:
		if !s.open {
			err = nil
		}
		e.cancelStart(u, err)
	case s.open && !e.cfg.dedupes:
		err = Permanent(errors.Annotate(err, "an instance may have been made, and the broker can neither be asked again nor searched"))
		s.history.Attempts[len(s.history.Attempts)-1].Err = err
		e.goOn(u, OutcomeOf(err), err, o)
	default:
		e.goOn(u, last, err, o)
	}
}

// intentFailed: the attempt could not be stored, so the broker was not asked.
// Perhaps somebody else is at it: all is read again (ST10).
func (e *engine) intentFailed(u *unit, r *attempted) {
	s := u.start
	if s.cancelled || e.quiet {
		e.cancelStart(u, nil)
		return
	}
	s.ready, s.stored = false, Intent{}
	if s.open { // made before, and stored anew for another lease
		s.again, s.keep = e.cfg.dedupes, e.cfg.dedupes
	} else {
		s.unasked, s.zone = r.token, noZone
		e.ledger.place(u.slot, noZone)
	}
	e.read(u)
	e.waitUnreachable(u, errors.Annotate(r.intent, "storing the attempt"))
}

// heard: a failed attempt may tell something about the zone for all machines
// of its shape (AZ11), and makes room for another that probes it.
func (e *engine) heard(u *unit, o *op, err error) {
	s := u.start
	if lacksCapacity(err) {
		if until, began := e.cool.failed(s.shape, s.zone, o.id, e.opID, e.now); began {
			e.tell(Event{Kind: EventZoneCooling, Zone: e.ledger.name(s.zone), Text: s.shape.String(), Err: err, Next: until})
			e.zonesChanged()
			return
		}
	}
	e.probe(u, noZone)
}

// goOn is what comes after an attempt that has failed. o holds the place, if
// it is still held.
func (e *engine) goOn(u *unit, last Outcome, err error, o *op) {
	s := u.start
	usable := 0
	if last.Kind == OutcomeZoneFailed && s.zone != noZone {
		s.failed.add(s.zone)
		e.ledger.place(u.slot, noZone)
		usable = e.roundLeft(u)
	}
	failedIn := e.ledger.name(s.zone)
	var d Decision
	s.walk, d = s.walk.Next(e.policy.Retry, last, usable, e.cfg.random())
	if limit := e.policy.Retry.Deadline; d.Step == StepFail || limit > 0 && !e.now.Add(d.Wait).Before(s.began.Add(limit)) {
		if s.open && e.cfg.searches() {
			if o != nil {
				e.release(o)
			}
			e.lookInto(u, unsure{last: last, err: err, final: true})
			return
		}
		e.tell(Event{Kind: EventAttemptFailed, Machine: u.rec.ID, Zone: failedIn, Attempt: s.attempt, Err: err})
		e.giveUp(u, err)
		return
	}
	s.keep = d.Step == StepSameZone || d.Step == StepSameAgain
	s.again = d.Step == StepSameAgain
	if d.Step != StepNextZone && last.Kind != OutcomeRateLimited {
		s.failed.clear()
	}
	if last.Kind == OutcomeRateLimited {
		d.Left++ // the next attempt costs none of those that are left (ST4)
	}
	text := retryText(u.rec.ID, failedIn, d, err)
	e.tell(Event{Kind: EventAttemptFailed, Machine: u.rec.ID, Zone: failedIn, Attempt: s.attempt, Err: err, Text: text, Next: e.now.Add(d.Wait)})
	e.show(u, StatusUpdate{InstanceStatus: InstanceAllocating, Text: text}, showPlain)
	switch {
	case d.Wait > 0:
		e.wake(u, d.Wait)
		e.enter(u, lifeWaiting)
	case o == nil:
		e.enter(u, lifeQueued)
		e.enqueue(u)
	case e.takeOver(u, o):
		e.attempt(u)
	}
}

// confirmAgain reads the record anew, to see whether it holds the instance
// after all; as often as it takes (ST12).
func confirmAgain(e *engine, u *unit, _ *message) {
	e.seq++
	u.op = &op{kind: opConfirm, unit: u, seq: e.seq, req: []MachineID{u.rec.ID}}
	e.begin(u.op)
}

func confirmed(e *engine, u *unit, m *message) {
	s := u.start
	results, _ := m.result.([]MachineResult)
	err := m.err
	var record Machine
	if err == nil && len(results) == 1 {
		if err = checkResult(&results[0]); err == nil {
			record = results[0].Machine
		}
	}
	switch {
	case errors.Is(err, errors.NotFound):
		u.set(flagGone)
		s.cancelled = true
		e.beginUndo(u)
	case err != nil || record.Unread.Has(FieldInstance):
		if err == nil {
			err = errors.Errorf("machine %s: its instance could not be read", u.rec.ID)
		}
		next := e.wake(u, e.backoff(&u.tries))
		e.tell(Event{Kind: EventRecordFailed, Machine: u.rec.ID, Instance: s.made.record.Instance, Err: err, Next: next})
		e.settled(u, Result{Kind: ActionStart, Instance: s.made.record.Instance, Reason: "it is not known whether its instance was recorded", Err: err})
	case record.Instance == s.made.record.Instance:
		u.rec.Life, u.rec.Keep = record.Life, record.Keep // started sets the rest
		e.started(u, s.made.record)
	case s.adopting && record.Life == Alive && record.Instance == "":
		// It runs, perhaps since long, and is the machine's: tried again.
		failed := s.made.err
		delete(e.reaper.undoing, s.made.record.Instance)
		// Until then it is what an open attempt has made.
		s.made, s.adopting, s.known = nil, false, false
		s.open, s.since, s.none, s.looked = true, e.opID, false, sight{}
		s.again, s.keep = e.cfg.dedupes && s.token != "", e.cfg.dedupes && s.token != ""
		e.waitUnreachable(u, errors.Annotate(failed, "recording the instance that is there"))
	default:
		s.cancelled = s.cancelled || record.Life != Alive || record.Instance != ""
		if m.op.seq >= u.seq {
			u.seq = m.op.seq
			e.applyRecord(u, record) // or it would be started by what it was
		}
		e.beginUndo(u)
	}
}

// beginUndo: an instance of ours that is not recorded has to go. The machine
// isn't started again before it is gone (ST12).
func (e *engine) beginUndo(u *unit) {
	e.reaper.undoing[u.start.made.record.Instance] = true
	u.tries = 0
	e.enter(u, lifeUndoing)
	e.stops.Push("", u)
}

func queueUndo(e *engine, u *unit, _ *message) { e.stops.Push("", u) }

// undo stops the instance. It is not the instance in the record: that was read.
func undo(e *engine, u *unit, _ *message) {
	id := u.start.made.record.Instance
	if why := e.spokenFor(id, ""); why != "" {
		// The broker has given an instance away twice.
		e.stops.Done("")
		e.tell(Event{Kind: EventOrphan, Machine: u.rec.ID, Instance: id, Err: errors.Errorf("instance %s %s, so it is not stopped", id, why)})
		e.afterUndo(u)
		return
	}
	e.beginStop(u, id)
}

// spokenFor is why an instance that was made for a machine, and that its record
// does not have, must not be stopped all the same (HV3, HV4, HV5), or "". Records
// at fault count, save those of one machine.
func (e *engine) spokenFor(id InstanceID, but MachineID) string {
	if why := e.recorded(id, but); why != "" {
		return why
	}
	if left, ok := e.reaper.spared[id]; ok {
		return "was left running when its record was removed (" + left.fate.String() + ")"
	}
	return ""
}

// recorded is whose record holds an instance, or "".
func (e *engine) recorded(id InstanceID, but MachineID) string {
	if owner := e.claims[id]; owner != nil {
		return "is in the record of machine " + string(owner.rec.ID)
	}
	for _, m := range e.look.suspects {
		if m.Instance == id && m.ID != but {
			return "is in the record of machine " + string(m.ID) + ", which is at fault"
		}
	}
	return ""
}

func undone(e *engine, u *unit, m *message) {
	made := u.start.made
	if err := stopFailure(m.err, made.record.Instance); err != nil {
		made.stop = err
		next := e.wake(u, e.backoff(&u.tries))
		e.tell(Event{Kind: EventOrphan, Machine: u.rec.ID, Instance: made.record.Instance, Err: err, Next: next})
		e.settled(u, Result{Kind: ActionStart, Instance: made.record.Instance, Reason: "its instance could not be recorded and could not be stopped", Err: err})
		return
	}
	e.reaper.stop(made.record.Instance, e.now)
	e.census.drop(u.rec.ID, made.record.Instance)
	e.tell(Event{Kind: EventUndone, Machine: u.rec.ID, Instance: made.record.Instance})
	e.afterUndo(u)
}

// afterUndo goes on with the start; a rollback costs one retry.
func (e *engine) afterUndo(u *unit) {
	s, made := u.start, u.start.made
	delete(e.reaper.undoing, made.record.Instance)
	s.made, u.tries = nil, 0
	if s.cancelled || e.quiet {
		e.cancelStart(u, nil)
		return
	}
	s.history.add(AttemptError{s.attempt, e.ledger.name(s.zone), e.now, made.err})
	e.goOn(u, Outcome{Kind: OutcomeRolledBack}, made.err, nil)
}

// stopFailure is the part of a stop's error that is about the instance.
func stopFailure(err error, id InstanceID) error {
	var partial *StopError
	if errors.As(err, &partial) && partial != nil {
		one, failed := partial.Failed[id]
		if failed && one == nil {
			return err
		}
		return tame(one)
	}
	return err
}

// beginStop gives the stop of one instance out. The unit has a place in the
// lane of stops, which the operation takes over.
func (e *engine) beginStop(u *unit, id InstanceID) {
	u.op = &op{kind: opStop, unit: u, phase: e.cfg.stopPhase, lane: &e.stops, req: StopRequest{Instances: []InstanceID{id}}}
	e.begin(u.op)
}

// queueStop: stops of one pass go into their lane sorted by instance (HV8).
func queueStop(e *engine, u *unit, _ *message) {
	e.enter(u, lifeStopping)
	e.newStops = append(e.newStops, u)
}

func (e *engine) pushStops() {
	slices.SortStableFunc(e.newStops, func(a, b *unit) int { return cmp.Compare(a.rec.Instance, b.rec.Instance) })
	for _, u := range e.newStops {
		e.stops.Push("", u)
	}
	e.newStops = nil
}

// stop stops a dead machine's instance, if that is still what is to be done:
// the facts may have changed while it waited.
func stop(e *engine, u *unit, _ *message) {
	if e.anew(u).Kind != ActionStop {
		e.stops.Done("")
		e.rest(u)
		return
	}
	if why := e.dark(); why != "" {
		e.brighten()
		e.stops.Done("")
		e.stopFailed(u, u.rec.Instance, errors.WithType(errors.New(why), ErrHeld))
		return
	}
	if e.cfg.asks {
		u.op = e.askFirst(StopNotice{Instance: u.rec.Instance, Machine: u.rec.ID, Reason: "dead"})
		u.op.unit = u
		e.begin(u.op)
		return
	}
	e.stopNow(u)
}

func (e *engine) stopNow(u *unit) {
	e.tell(Event{Kind: EventStopping, Machine: u.rec.ID, Instance: u.rec.Instance})
	e.beginStop(u, u.rec.Instance)
}

func (e *engine) stopFailed(u *unit, id InstanceID, err error) {
	next := e.wake(u, e.backoff(&u.tries))
	e.tell(Event{Kind: EventStopFailed, Machine: u.rec.ID, Instance: id, Err: err, Next: next})
	e.settled(u, Result{Kind: ActionStop, Instance: id, Reason: "its instance could not be stopped", Err: err})
	u.failed = err
	if e.quiet {
		e.enter(u, lifeResting)
	}
}

func stopped(e *engine, u *unit, m *message) {
	if m.op.kind == opAsk {
		stopAllowed(e, u, m)
		return
	}
	req := m.op.req.(StopRequest)
	id := req.Instances[0]
	if err := stopFailure(m.err, id); err != nil {
		e.stopFailed(u, id, err)
		return
	}
	u.tries, u.failed = 0, nil
	e.reaper.stop(id, e.now)
	e.census.drop(u.rec.ID, id)
	if u.rec.Instance == id {
		u.set(flagSettled)
	}
	if u.rec.Life == Dead || u.has(flagSettled) {
		e.ledger.place(u.slot, noZone)
	}
	e.tell(Event{Kind: EventStopped, Machine: u.rec.ID, Instance: id})
	e.rest(u)
}

// stopAllowed: the host was asked, which may have taken long, so it is decided
// anew. Whatever it could not do delays the stop.
func stopAllowed(e *engine, u *unit, m *message) {
	switch err := e.askedFirst(m); {
	case e.quiet:
		e.enter(u, lifeResting)
	case err != nil:
		e.stopFailed(u, u.rec.Instance, err)
	case e.anew(u).Kind != ActionStop || m.op.req.(StopNotice).Instance != u.rec.Instance || e.dark() != "":
		e.rest(u)
	default:
		m.op.lane = nil // its place is the stop's now
		e.stopNow(u)
	}
}

func queueRemove(e *engine, u *unit, _ *message) {
	e.enter(u, lifeRemoving)
	e.removals.Push("", u)
}

// A removalCall takes a record away, after it has been made dead where needed.
type removalCall struct {
	machine    MachineID
	ensureDead bool
	spared     *Spared // to be remembered first
}

func remove(e *engine, u *unit, _ *message) {
	a := e.anew(u)
	if a.Kind != ActionRemove {
		e.removals.Done("")
		e.rest(u)
		return
	}
	u.op = &op{kind: opRemove, unit: u, lane: &e.removals, req: removalCall{u.rec.ID, a.EnsureDead, e.toSpare(u, a)}}
	e.begin(u.op)
}

func removed(e *engine, u *unit, m *message) {
	instance := u.rec.Instance
	if m.err != nil && !errors.Is(m.err, errors.NotFound) {
		next := e.wake(u, e.backoff(&u.tries))
		e.tell(Event{Kind: EventRemoveFailed, Machine: u.rec.ID, Err: m.err, Next: next})
		e.settled(u, Result{Kind: ActionRemove, Reason: "its record could not be removed", Err: m.err})
		u.failed = m.err
		if e.quiet {
			e.enter(u, lifeResting)
		}
		return
	}
	e.tell(Event{Kind: EventRemoved, Machine: u.rec.ID})
	e.settled(u, Result{Kind: ActionRemove, Instance: instance, Reason: "its record is removed"})
	u.seq = e.seq
	e.forget(u)
}

func queueUpkeep(e *engine, u *unit, _ *message) {
	e.enter(u, lifeMaintaining)
	e.upkeep.Push("", u)
}

func maintain(e *engine, u *unit, _ *message) {
	u.op = &op{kind: opMaintain, unit: u, lane: &e.upkeep, req: MaintainRequest{Machine: u.rec.ID, Instance: u.rec.Instance}}
	e.begin(u.op)
}

// maintained: upkeep is done once for each look, not again until the next.
func maintained(e *engine, u *unit, m *message) {
	if m.err != nil {
		e.tell(Event{Kind: EventMaintainFailed, Machine: u.rec.ID, Instance: u.rec.Instance, Err: m.err})
	} else {
		e.tell(Event{Kind: EventMaintained, Machine: u.rec.ID, Instance: u.rec.Instance})
	}
	e.settled(u, Result{Kind: ActionMaintain, Instance: u.rec.Instance, Reason: "upkeep", Err: m.err})
	switch {
	case u.has(flagGone), u.has(flagDirty):
		e.rest(u)
	default:
		e.enter(u, lifeResting)
	}
}
