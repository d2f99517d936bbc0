package provisioner

import (
	"maps"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/internal/agenda"
)

// maxIDs bounds the ids of one bulk call.
const maxIDs = 500

// maxReads bounds how many calls read single machines at once.
const maxReads = 16

// slice bounds how many records of a whole reading are applied in one step, so
// that a large fleet does not hold up what is urgent.
const slice = 1024

// lookState is where the reading of records and listings stands.
type lookState struct {
	loaded bool   // a whole reading has succeeded (LD1)
	woken  uint64 // the newest reading when somebody began to drive

	fleet  *op  // a whole reading under way
	minor  bool // it, or what is being applied, is for the sweep alone
	wanted bool // and another after it
	tries  uint8
	down   time.Time // since when records cannot be read; zero: they can
	retry  moment
	resync moment

	results []MachineResult // of a whole reading, being applied
	began   uint64          // when that reading began
	at      int
	stage   lookStage

	// Records at fault of the last whole reading, and of the one being
	// applied. Nothing is decided by them, but an instance that one of them
	// has is not stopped (HV5).
	suspects, suspecting []Machine

	blind   bool // some record of the last whole reading has no valid id
	obscure int  // units whose instance could not be read the last time

	buried map[MachineID]uint64 // forgotten while a whole reading was under way: the newest reading then

	toRead []*unit   // changed, and not yet being read
	apart  [][]*unit // not to be read in one call with others
	reads  int       // calls under way that read single machines
}

type lookStage uint8

const (
	stageIdle     lookStage = iota
	stageApply              // records are taken over, so that all claims are known
	stageSweep              // machines that are absent are forgotten
	stageConsider           // and then decided about
	stageProfiles           // changes of profiles are asked for
)

func (s *lookState) backlog() bool { return s.stage != stageIdle }

// changed: the host says that machines have changed. The first time everything
// is read, whatever it says (LD1).
func (e *engine) changed(ids []MachineID) {
	if e.quiet {
		return
	}
	if !e.look.loaded {
		if e.look.fleet == nil && !e.look.backlog() && !e.look.retry.item.On() {
			e.startLook()
		} else {
			e.look.wanted = e.look.wanted || len(ids) > 0
		}
		return
	}
	for _, id := range ids {
		if err := id.Validate(); err != nil {
			e.tell(Event{Kind: EventMachineFailed, Machine: id, Err: err})
			continue
		}
		e.read(e.unitOf(id))
	}
}

// read wants one machine's record, once, also if asked for twice (LD6).
func (e *engine) read(u *unit) {
	if u.has(flagReading) {
		u.set(flagAgain)
		return
	}
	u.set(flagReading)
	e.look.toRead = append(e.look.toRead, u)
}

func (e *engine) flushReads() {
	if e.quiet || e.clogged(opMachines) {
		return
	}
	for e.look.reads < maxReads {
		units := e.nextReads()
		if len(units) == 0 {
			break
		}
		// One that was forgotten meanwhile may be wanted anew, under the same id.
		units = slices.DeleteFunc(units, func(u *unit) bool { return !e.knows(u) })
		if len(units) == 0 {
			continue
		}
		ids := make([]MachineID, len(units))
		for i, u := range units {
			u.drop(flagAgain)
			ids[i] = u.rec.ID
		}
		e.seq++
		e.look.reads++
		e.begin(&op{kind: opMachines, units: units, seq: e.seq, req: ids})
	}
}

// nextReads takes the units of the next call that reads single machines.
func (e *engine) nextReads() []*unit {
	if n := len(e.look.apart); n > 0 {
		units := e.look.apart[n-1]
		e.look.apart = e.look.apart[:n-1]
		return units
	}
	units := e.look.toRead[:min(len(e.look.toRead), maxIDs)]
	if e.look.toRead = e.look.toRead[len(units):]; len(e.look.toRead) == 0 {
		e.look.toRead = nil
	}
	return units
}

func (e *engine) machinesRead(o *op, m *message) {
	e.look.reads--
	if e.quiet {
		for _, u := range o.units {
			u.drop(flagReading | flagAgain)
		}
		return
	}
	if n := len(o.units); errors.Is(m.err, ErrPanic) && n > 1 {
		// One of them has made the call crash; it keeps no other from being read.
		e.look.apart = append(e.look.apart, o.units[:n/2], o.units[n/2:])
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err, Next: e.now})
		return
	}
	if m.err != nil {
		if !errors.Is(m.err, ErrPanic) { // that may be one machine's
			e.unread(o)
		}
		again := &reread{units: o.units}
		next := e.retryRead(again, e.backoff(&e.look.tries))
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err, Next: next})
		return
	}
	e.look.tries, e.look.down = 0, time.Time{}
	results, _ := m.result.([]MachineResult)
	for _, u := range o.units {
		u.drop(flagReading)
	}
	was := e.takeRecords(o.units, results, o.seq)
	e.considerRecords(o.units, was)
}

// takeRecords takes over what one reading says of some machines, one result
// each and in that order, and gives what was known of them before.
func (e *engine) takeRecords(units []*unit, results []MachineResult, seq uint64) (was []Machine) {
	was = make([]Machine, len(units))
	for i, u := range units {
		if was[i] = u.rec; e.knows(u) {
			e.applyResult(u, &results[i], seq)
		}
	}
	return was
}

// considerRecords decides anew about machines whose records were read.
func (e *engine) considerRecords(units []*unit, was []Machine) {
	for _, u := range units {
		if !e.knows(u) {
			continue
		}
		if u.has(flagAgain) {
			e.read(u)
		}
		e.consider(u)
		e.hostReady(u)
	}
	for i, u := range units {
		e.rivals(was[i].Instance, u)
		if u.rec.Instance != was[i].Instance {
			e.rivals(u.rec.Instance, u)
		}
	}
}

// A reread is machines that are to be read again after a while (LD4, LD5).
type reread struct {
	units []*unit
	tries uint8
	seq   uint64 // the last reading that failed for a single machine
	err   error  // why, if the record could not be read at all
	item  agenda.Item[due]
}

func (r *reread) due(e *engine) {
	for _, u := range r.units {
		if u.reread != r {
			u.drop(flagReading) // left on by the call that failed, lest it is read meanwhile
		}
		if e.knows(u) {
			e.read(u)
		}
	}
}

func (e *engine) retryRead(r *reread, after time.Duration) time.Time {
	r.item.Value = r
	at := e.now.Add(after)
	e.agenda.Set(&r.item, at)
	return at
}

// lookAgain reads one machine again after its back-off, if wanted.
func (e *engine) lookAgain(u *unit, wanted bool) (next time.Time) {
	if !wanted {
		return next
	}
	if u.reread == nil {
		u.reread = &reread{units: []*unit{u}}
	}
	return e.retryRead(u.reread, e.backoff(&u.reread.tries))
}

// bury remembers that a machine was forgotten while a whole reading is under
// way that began before: what that says of it is history.
func (e *engine) bury(id MachineID) {
	if !e.reading() {
		return
	}
	if e.look.buried == nil {
		e.look.buried = map[MachineID]uint64{}
	}
	e.look.buried[id] = e.seq
}

func (e *engine) reading() bool {
	return e.look.fleet != nil || e.look.backlog()
}

// history says whether a whole reading began before a machine was forgotten.
func (e *engine) history(id MachineID, seq uint64) bool {
	buried, ok := e.look.buried[id]
	return ok && seq <= buried
}

// applyResult takes over what one reading says of one machine.
func (e *engine) applyResult(u *unit, r *MachineResult, seq uint64) {
	if seq < u.seq {
		return // a newer reading, or our own writing, was first
	}
	err := checkResult(r)
	gone := errors.Is(err, errors.NotFound)
	if !gone {
		e.named(u)
	}
	e.obscure(u, !gone && (err != nil || r.Machine.Unread.Has(FieldInstance)))
	switch {
	case err == nil:
		u.seq = seq
		e.applyRecord(u, r.Machine)
	case gone:
		u.seq = seq
		e.gone(u)
	default:
		next := e.lookAgain(u, true)
		u.reread.seq = seq
		told := u.reread.err
		if u.reread.err = err; told == nil || told.Error() != err.Error() {
			e.tell(Event{Kind: EventMachineFailed, Machine: u.rec.ID, Err: err, Next: next})
		}
		e.settled(u, Result{Kind: ActionLeave, Reason: "its record could not be read: " + err.Error(), Err: err})
	}
}

// obscure notes whether the instance of a unit could not be read.
func (e *engine) obscure(u *unit, yes bool) {
	switch {
	case yes && !u.has(flagObscure):
		u.set(flagObscure)
		e.look.obscure++
	case !yes && u.has(flagObscure):
		u.drop(flagObscure)
		e.look.obscure--
	}
}

// applyRecord replaces a record. What of it could not be read stays as last
// seen, so that a claim is not lost by a bad reading.
func (e *engine) applyRecord(u *unit, m Machine) {
	if m.Unread.Has(FieldInstance) {
		m.Instance, m.Zone = u.rec.Instance, u.rec.Zone
	}
	if m.Unread.Has(FieldKeep) {
		m.Keep = u.rec.Keep
	}
	claimed := m.Instance == u.rec.Instance
	if !claimed {
		e.unclaim(u)
		u.drop(flagSettled | flagToldKept)
		u.listed, u.missed = true, 0 // a listing that is under way may be older
		if u.rec.Instance != "" && u.start == nil {
			e.ledger.place(u.slot, noZone) // another one may be elsewhere
		}
	}
	if m.Instance == "" && u.rec.Instance != "" {
		// An old record has come back, and what it had is there perhaps: all
		// that was seen before proves nothing.
		u.drop(flagLooked | flagFresh)
		e.census.first, e.census.last = sight{}, sight{}
	}
	if m.Keep != u.rec.Keep && u.has(flagToldKept) { // decided anew
		delete(e.reaper.spared, u.rec.Instance)
		u.drop(flagToldKept)
	}
	u.rec = m
	u.set(flagKnown)
	u.drop(flagGone)
	if !claimed {
		e.claim(u)
	}
	if m.Unread == 0 && u.reread != nil && u.seq >= u.reread.seq {
		e.agenda.Drop(&u.reread.item)
		u.reread = nil
	}
	if u.life == lifeFailed {
		e.failedRecord(u)
	}
	e.populate(u)
}

// failedRecord: a host that has shown a failure and then asks anew, by the
// record, is obeyed; a record that still asks as it did before is not.
func (e *engine) failedRecord(u *unit) {
	switch {
	case u.rec.Instance != "" && !u.rec.Unread.Has(FieldInstance): // somebody else has seen to it
		u.failed, u.left = nil, nil
		e.enter(u, lifeResting)
	case Classify(u.rec).Class != ClassPending:
		u.set(flagFailSeen)
	case u.has(flagFailSeen):
		u.failed = nil
		u.set(flagAsked)
		e.enter(u, lifeResting)
	}
}

// populate counts a provisioned machine in its zone (AZ2). A start counts by
// its reservation.
func (e *engine) populate(u *unit) {
	if u.start != nil || u.rec.ID.IsContainer() {
		return
	}
	switch {
	case u.rec.Instance == "" || u.has(flagSettled):
		e.ledger.place(u.slot, noZone)
	case u.rec.Zone != "":
		e.ledger.place(u.slot, e.ledger.intern(u.rec.Zone))
	case e.ledger.zoneOf(u.slot) == noZone:
		e.list.unplaced = true
	}
}

// gone: the record is no more. While something is under way the machine is
// treated as dead, then it is forgotten (LD3).
func (e *engine) gone(u *unit) {
	u.set(flagGone)
	e.settled(u, Result{Kind: ActionLeave, Reason: "its record is gone"})
	e.passed(u, reasonGone)
	if u.op == nil && (u.life == lifeResting || u.life == lifeFailed) {
		e.forget(u)
		return
	}
	u.rec.Life = Dead
	e.consider(u)
}

// startLook reads everything: the records, the listing, the zones.
func (e *engine) startLook() {
	if e.quiet {
		return
	}
	if e.look.fleet != nil || e.look.backlog() || e.clogged(opFleet) {
		e.look.wanted = true
		return
	}
	e.look.wanted = false
	e.agenda.Drop(&e.look.retry.item)
	e.beginFleet()
	for _, w := range e.watch {
		w.began = true
	}
	e.readListing()
	if !e.census.read {
		e.readCensus()
	}
	e.readSpared()
	e.refreshZones()
	e.armResync()
}

// armResync sets when everything is looked at without a change (LD7).
func (e *engine) armResync() {
	if e.cfg.resync > 0 {
		jitter := 0.9 + 0.2*e.cfg.random()
		e.at(&e.look.resync, e.now.Add(time.Duration(min(float64(e.cfg.resync)*jitter, float64(longest)))))
	}
}

func (e *engine) resync() { e.startLook() }

func (e *engine) fleetRead(o *op, m *message) {
	e.look.fleet = nil
	if e.quiet {
		return
	}
	if m.err != nil {
		e.unread(o)
		if e.list.stage == listFresh {
			e.dropPass()
		}
		next := e.now.Add(e.backoff(&e.look.tries))
		e.at(&e.look.retry, next)
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err, Next: next})
		e.failWatches(m.err)
		return
	}
	e.look.tries, e.look.down = 0, time.Time{}
	e.look.results, _ = m.result.([]MachineResult)
	e.look.began, e.look.at, e.look.stage, e.look.blind = o.seq, 0, stageApply, false
}

// unread notes that records could not be read.
func (e *engine) unread(o *op) {
	if e.look.down.IsZero() {
		e.look.down = o.began
	}
}

// workOff applies one slice of a whole reading.
func (e *engine) workOff() {
	if e.look.stage == stageIdle || e.quiet {
		return
	}
	switch e.look.stage {
	case stageSweep:
		if e.findGone() {
			e.look.stage, e.look.at = stageConsider, 0
		}
		return
	case stageProfiles:
		if e.lookAtProfiles() {
			e.lookDone()
		}
		return
	}
	end := min(e.look.at+slice, len(e.look.results))
	for ; e.look.at < end; e.look.at++ {
		r := &e.look.results[e.look.at]
		if e.look.stage == stageApply {
			e.applyWhole(r)
		} else if u := e.units[r.ID]; u != nil && u.seq == e.look.began && !(e.look.minor && e.anew(u).Kind == ActionMaintain) {
			e.consider(u)
			e.hostReady(u)
		}
	}
	if end < len(e.look.results) {
		return
	}
	if e.look.stage == stageApply {
		e.look.stage, e.look.at, e.look.loaded = stageSweep, 0, true
		e.look.suspects, e.look.suspecting = e.look.suspecting, nil
		return
	}
	if e.look.stage, e.look.at = stageProfiles, 0; !e.profilesWanted() {
		e.lookDone()
	}
}

func (e *engine) applyWhole(r *MachineResult) {
	i, all := e.look.at, e.look.results
	err := r.ID.Validate()
	twin := i > 0 && all[i-1].ID == r.ID || i+1 < len(all) && all[i+1].ID == r.ID
	bad := err != nil || twin || checkResult(r) != nil
	if claims(r) && bad {
		suspect := r.Machine
		suspect.ID = r.ID
		e.look.suspecting = append(e.look.suspecting, suspect)
	}
	e.look.blind = e.look.blind || err != nil
	switch {
	case e.history(r.ID, e.look.began):
	case err != nil:
		e.tell(Event{Kind: EventMachineFailed, Machine: r.ID, Err: err})
	case twin:
		e.applyResult(e.unitOf(r.ID), &MachineResult{ID: r.ID, Err: twinError(r.ID)}, e.look.began)
	default:
		e.applyResult(e.unitOf(r.ID), r, e.look.began)
	}
}

// findGone finds the machines that a whole reading did not name, a slice of them
// at a time.
func (e *engine) findGone() (done bool) {
	named := func(id MachineID) bool {
		_, ok := slices.BinarySearchFunc(e.look.results, id, func(r MachineResult, id MachineID) int { return r.ID.Compare(id) })
		return ok
	}
	end := min(e.look.at+slice, len(e.bySlot))
	for ; e.look.at < end; e.look.at++ {
		if u := e.bySlot[e.look.at]; u != nil && u.seq < e.look.began && u.has(flagKnown) && !named(u.rec.ID) {
			u.seq = e.look.began
			e.gone(u)
		}
	}
	return end == len(e.bySlot)
}

func (e *engine) lookDone() {
	e.look.stage = stageIdle
	e.tell(Event{Kind: EventLooked, N: len(e.look.results)})
	e.look.results = nil
	for _, w := range e.watch {
		if w.began {
			w.applied = true
		}
	}
	e.warnZones()
	e.judgeIfFresh()
	e.retryAgain()
	if e.look.wanted {
		e.startLook()
	}
}

func sortedUnits(set map[*unit]struct{}) []*unit {
	return slices.SortedFunc(maps.Keys(set), func(a, b *unit) int { return a.rec.ID.Compare(b.rec.ID) })
}

// startFleet reads the records once more, and nothing else. It is no look, so
// there is no upkeep after it.
func (e *engine) startFleet() {
	if e.look.fleet == nil && !e.clogged(opFleet) {
		e.beginFleet()
		e.look.minor = true
	}
}

func (e *engine) beginFleet() {
	e.seq++
	e.look.minor = false
	e.look.fleet, e.look.buried = &op{kind: opFleet, seq: e.seq}, nil
	e.begin(e.look.fleet)
}

// zoneState is where the reading of zones stands.
type zoneState struct {
	op    *op
	read  bool // the list was read once; false gates every start (AZ2)
	at    time.Time
	tries uint8
	retry moment
	err   error // why it could not be read so far
	stale bool  // something to place has come since

	warned map[ZoneName]EventKind // of zones that can't be used

	waiting []*unit // for any zone
}

// refreshZones reads the list of zones if it is too old for what is to be
// placed (AZ3).
func (e *engine) refreshZones() {
	old := e.now.Sub(e.zones.at) >= e.cfg.refresh
	if e.cfg.refresh == 0 {
		old = e.zones.stale
	}
	if !e.zones.read || old {
		e.readZones()
	}
}

func (e *engine) readZones() {
	if e.quiet || !e.cfg.zones || e.zones.op != nil || e.zones.retry.item.On() || e.clogged(opZones) {
		return
	}
	e.zones.op, e.zones.stale = &op{kind: opZones}, false
	e.begin(e.zones.op)
}

// zonesUnread: nothing can be placed until the zones have been read (AZ2).
// Whoever waits for a look doesn't wait for that.
func (e *engine) zonesUnread(err error) {
	e.zones.err = errors.Annotate(err, "the zones could not be read")
	if len(e.watch) == 0 {
		return
	}
	for _, u := range sortedUnits(e.astir) {
		if u.life == lifeQueued {
			e.settled(u, Result{Kind: ActionStart, Reason: "it waits for the zones to be read", Err: e.zones.err})
		}
	}
}

func (e *engine) zonesRead(o *op, m *message) {
	e.zones.op = nil
	if e.quiet {
		return
	}
	zones, _ := m.result.([]Zone)
	err := m.err
	zoned := e.ledger.zoned() // and no answer undoes that (AZ3)
	switch {
	case !zoned && (errors.Is(err, errors.NotImplemented) || errors.Is(err, errors.NotSupported)):
		e.cfg.zones = false // AZ1
		return
	case zoned && err == nil && len(zones) == 0:
		err = errors.New("no zones any more; the last list stays in force")
	}
	if err != nil {
		var next time.Time
		e.zones.at = e.now
		if !e.zones.read {
			next = e.now.Add(e.backoff(&e.zones.tries))
			e.at(&e.zones.retry, next)
			e.zonesUnread(err)
		}
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: err, Next: next})
		e.zonesChanged() // the last list is in force, and a zone may have come due
		return
	}
	e.zones.read, e.zones.at, e.zones.tries, e.zones.err = true, e.now, 0, nil
	e.ledger.setZones(zones)
	e.warnZones()
	usable, out := FilterZones(zones)
	for _, x := range out {
		if x.Reason != ReasonUnavailable {
			e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: errors.NotValidf("zone %q %s:", string(x.Zone), x.Reason)})
		}
	}
	e.tell(Event{Kind: EventZones, N: len(usable)})
	e.zonesChanged()
}

// warnZones tells of the zones that have machines in them and can't be used,
// once each (AZ3).
func (e *engine) warnZones() {
	if !e.zones.read {
		return
	}
	if e.zones.warned == nil {
		e.zones.warned = map[ZoneName]EventKind{}
	}
	for _, z := range e.ledger.zones {
		was, now := e.zones.warned[z.name], EventKind("")
		switch {
		case z.total == 0 || z.available:
		case z.listed:
			now = EventZoneUnavailable
		default:
			now = EventZoneVanished
		}
		if e.zones.warned[z.name] = now; now != "" && now != was {
			e.tell(Event{Kind: now, Zone: z.name, N: int(z.total)})
		}
	}
}

// zonesChanged: those who wait for a zone may have one now.
func (e *engine) zonesChanged() {
	waiting := e.zones.waiting
	e.zones.waiting = nil
	for _, u := range waiting {
		if u.start == nil {
			continue
		}
		u.start.listed = false
		if u.start.waits && !e.quiet {
			e.zoneAgain(u)
		}
	}
}

// mayStart says whether anything may be placed now: the records are known, and
// the zones are, freshly enough (AZ2, AZ3).
func (e *engine) mayStart() bool {
	if e.quiet || !e.look.loaded || e.starts.Waiting() == 0 {
		return false
	}
	if e.list.unplaced && !e.list.listed || e.cfg.searches() && !e.census.read {
		return false // who is where (AZ2), and what is there already (ST19)
	}
	if e.cfg.zones {
		e.refreshZones()
		return e.zones.read && e.zones.op == nil
	}
	return true
}
