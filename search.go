package provisioner

import (
	"cmp"
	"slices"
	"time"

	"github.com/juju/errors"
)

// Before the first attempt for a machine in a Task's life, and whenever it is
// not known what has come of one, its instances are looked for by their labels:
// in the listings of everything, or, of a broker that can search, by a call of
// its own. What is found is adopted; none is only believed when it can be (ST19).

// A sight is a look at all instances, or at all of one machine: when it began.
type sight struct {
	op uint64
	at time.Time
}

// A census is what is known of labelled instances that no record has: from the
// listings, or, where those show no labels, from a search of its own.
type census struct {
	op          *op                      // that search
	read        bool                     // one has ended, well or not
	first, last sight                    // complete ones, of this Task
	machines    map[MachineID][]Instance // of the last one
	seen        map[MachineID]sight      // the last one that had any, of those in doubt
	waiting     []*unit                  // for the next listing
	again       moment                   // when one is wanted for what was removed
}

// drop forgets an instance that was stopped: the last look may be old.
func (c *census) drop(machine MachineID, id InstanceID) {
	left := slices.DeleteFunc(slices.Clone(c.machines[machine]), func(i Instance) bool { return i.ID == id })
	if len(left) > 0 {
		c.machines[machine] = left
	} else {
		delete(c.machines, machine)
	}
}

// searches says whether instances can be looked for at all.
func (c *engineConfig) searches() bool { return c.labels || c.finder }

// readCensus looks at everything that carries labels.
func (e *engine) readCensus() {
	switch {
	case e.quiet:
	case e.cfg.labels:
		if !e.list.retry.item.On() {
			e.readListing()
		}
	case e.cfg.finder && e.census.op == nil && !e.clogged(opCensus):
		e.census.op = &op{kind: opCensus, req: Labels{Controller: e.cfg.controller}}
		e.begin(e.census.op)
	}
}

func (e *engine) censusRead(o *op, m *message) {
	if e.census.op, e.census.read = nil, true; e.quiet {
		return
	}
	if m.err != nil {
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err})
		e.censusFailed(m.err)
		return
	}
	l, _ := m.result.(Listing)
	e.takeCensus(sight{o.id, o.began}, l, FindUnknown(l, e.accounted))
}

// takeCensus takes over what a listing says of labelled instances. unclaimed are
// those that no record has.
func (e *engine) takeCensus(began sight, l Listing, unclaimed []Instance) {
	c := &e.census
	was := c.machines
	c.machines = map[MachineID][]Instance{}
	for _, i := range unclaimed {
		if m := i.Labels.Machine; m != "" && i.Labels.Controller == e.cfg.controller {
			c.machines[m] = append(c.machines[m], i)
		}
	}
	whole := l.Complete && len(l.Failed) == 0
	for m, instances := range was {
		if has(c.machines, m) {
			continue
		}
		if !whole {
			c.machines[m] = instances // they may still be there
		} else if !e.cfg.consistent {
			if c.seen == nil {
				c.seen = map[MachineID]sight{}
			}
			c.seen[m] = c.last
		}
	}
	if whole {
		if c.last = began; c.first.op == 0 {
			c.first = began
		}
		for m, s := range c.seen {
			if began.at.Sub(s.at) > 2*e.cfg.visibility {
				delete(c.seen, m)
			}
		}
	}
	e.nobodys(began, whole)
	waiting := c.waiting
	c.waiting = nil
	for _, u := range waiting {
		if u.life == lifeSearching && u.start.awaits && u.op == nil {
			u.start.awaits = false
			e.shown(u, l, began)
		}
	}
	e.judgeIfFresh()
}

// censusFailed: a listing has failed.
func (e *engine) censusFailed(err error) {
	waiting := e.census.waiting
	e.census.waiting = nil
	for _, u := range waiting {
		if u.life == lifeSearching && u.start.awaits && u.op == nil {
			u.start.awaits = false
			e.lookLater(u, err)
		}
	}
}

// shown goes on with what a look has shown.
func (e *engine) shown(u *unit, l Listing, began sight) {
	var err error
	complete := l.Complete && (len(l.Failed) == 0 || e.elsewhere(u, l.Failed))
	if u.start.look(e, complete, began); !complete {
		err = errIncomplete
	}
	e.searched(u, err)
}

var errIncomplete = errors.New("the listing is not complete")

// elsewhere says whether the zones that did not answer cannot hold what an
// open attempt may have made.
func (e *engine) elsewhere(u *unit, failed []ZoneName) bool {
	s := u.start
	if !s.open || s.zone == noZone {
		return false
	}
	return !slices.Contains(failed, e.ledger.name(s.zone))
}

// look notes a look, complete or not, that has shown none of the machine's.
func (s *start) look(e *engine, complete bool, began sight) {
	switch {
	case !complete || began.op <= s.since || began.op == s.looked.op || began.op <= e.census.seen[s.history.Machine].op:
	case e.cfg.consistent || s.once:
		s.none = true
	case s.looked.op == 0 || began.at.Before(s.looked.at):
		s.looked = began
	case began.at.Sub(s.looked.at) >= e.cfg.visibility:
		s.none = true
	}
}

// nothing says whether it is certain that no instance of the machine is there, so
// that one may be made. Where nothing can be looked for, the broker's tokens
// and the host's intents are all there is.
func (e *engine) nothing(u *unit) bool {
	s := u.start
	if s.known || !e.cfg.searches() {
		return true
	}
	s.once = e.oneLook(u)
	s.look(e, e.census.first.op != 0, e.census.first)
	s.look(e, e.census.last.op != 0, e.census.last)
	return s.none || s.once
}

// oneLook says whether no attempt can be out that must not be missed, so that
// one look is enough: nothing was stored, the machine is new, or the open
// attempt can be asked for once more.
func (e *engine) oneLook(u *unit) bool {
	s := u.start
	if s.open {
		return e.cfg.dedupes && !s.cancelled && s.unsure == nil
	}
	return u.has(flagFresh) || e.cfg.intents && s.ready
}

// candidates are the instances of a machine that could be its own, the best
// first, as far as the last listing or search has shown.
func (e *engine) candidates(u *unit) []Instance {
	s := u.start
	instances := s.found
	if s.found == nil {
		instances = e.census.machines[u.rec.ID]
	}
	found := ours(instances, e.cfg.controller, u.rec.ID, e.openToken(u))
	left := found[:0]
	for _, i := range found {
		// One that was to go, and isn't on its way yet, is better than another.
		doomed := e.sweep.doomed[i.ID]
		if !e.reaper.accounted(i.ID) && (doomed == nil || doomed.op == nil) && e.spokenFor(i.ID, u.rec.ID) == "" {
			left = append(left, i)
		}
	}
	return left
}

// openToken is the token of a machine's open attempt, or "".
func (e *engine) openToken(u *unit) string {
	switch s := u.start; {
	case !s.open:
		return ""
	case s.token != "":
		return s.token
	default:
		return attemptToken(e.cfg.controller, u.rec.ID, s.nonce, s.attempt)
	}
}

// search lets a machine wait, without a place, until it is known what is there.
func (e *engine) search(u *unit) {
	s := u.start
	s.none, s.looked, s.found, s.known, s.once = false, sight{}, nil, false, e.oneLook(u)
	if !s.open {
		e.ledger.place(u.slot, noZone)
		e.populate(u)
	}
	u.tries = 0
	e.enter(u, lifeSearching)
	if s.open {
		e.tell(Event{Kind: EventSearching, Machine: u.rec.ID, Attempt: s.attempt, Err: s.doubt()})
	}
	lookUp(e, u, nil)
}

// doubt is why a search is needed, nil before the first attempt.
func (s *start) doubt() error {
	if s.unsure == nil {
		return nil
	}
	return s.unsure.err
}

// lookUp begins the next look, by itself or with a listing.
func lookUp(e *engine, u *unit, _ *message) {
	if e.cfg.finder && u.start.open {
		e.finds.Push("", u)
		return
	}
	u.start.awaits = true
	e.census.waiting = append(e.census.waiting, u)
	e.readCensus()
}

func find(e *engine, u *unit, _ *message) {
	u.op = &op{kind: opFind, unit: u, lane: &e.finds, req: Labels{Controller: e.cfg.controller, Machine: u.rec.ID}}
	e.begin(u.op)
}

func found(e *engine, u *unit, m *message) {
	s := u.start
	if e.quiet {
		e.cancelStart(u, s.doubt())
		return
	}
	l, _ := m.result.(Listing)
	s.found = l.Instances
	if m.err != nil {
		e.searched(u, m.err)
		return
	}
	if s.found == nil && l.Complete {
		s.found = []Instance{} // and what was listed before is not there any more
	}
	e.shown(u, l, sight{m.op.id, m.op.began})
}

// searched decides by what is seen. Nothing is only believed if it can be.
func (e *engine) searched(u *unit, err error) {
	s := u.start
	s.trouble = nil
	switch found := e.candidates(u); {
	case len(found) > 0 && s.cancelled:
		e.undoFound(u, found)
	case len(found) > 0 && s.unsure != nil && e.halfMade(found[0]) && found[0].Labels.Token == e.openToken(u):
		e.askedInVain(u)
	case len(found) > 0:
		if !e.zoneless(u) && !e.halfMade(found[0]) { // it is there, so it counts
			s.zone = e.whereIs(u, found[0])
			e.ledger.place(u.slot, s.zone)
		}
		e.queueAgain(u) // to record it is a part of the start
	case s.cancelled && !s.open:
		e.cancelStart(u, nil)
	case e.leaving(u.rec.ID):
		e.lookLater(u, err)
	case s.none || s.once && (err == nil || errors.Is(err, errIncomplete)):
		e.nothingThere(u)
	default:
		e.lookLater(u, err)
	}
}

// askedInVain: an instance is there that was asked for once more and still isn't up,
// whatever the broker said. That counts as any attempt whose outcome is unknown.
func (e *engine) askedInVain(u *unit) {
	x := u.start.unsure
	if u.start.unsure = nil; x.final {
		e.giveUp(u, x.err)
		return
	}
	e.goOn(u, Outcome{Kind: OutcomeUnknown}, x.err, nil)
}

// leaving says whether an instance of the machine is being stopped: another is
// not made before that is gone (ST12).
func (e *engine) leaving(id MachineID) bool {
	for _, d := range e.sweep.doomed {
		if d.machine == id && d.op != nil {
			return e.cfg.searches()
		}
	}
	return false
}

// lookLater: nothing is seen, and that can't be believed yet. One that fails is
// as good as none.
func (e *engine) lookLater(u *unit, err error) {
	s := u.start
	after := s.looked.at.Add(e.cfg.visibility).Sub(e.now)
	if s.looked.op == 0 || err != nil || after <= 0 {
		after = e.backoff(&u.tries)
	}
	s.found = nil
	next := e.wake(u, after)
	if s.trouble = errors.Annotate(err, "searching for its instances"); err != nil {
		e.tell(Event{Kind: EventMachineFailed, Machine: u.rec.ID, Err: s.trouble, Next: next})
		e.settled(u, Result{Kind: ActionStart, Reason: "it is not known whether an instance of it is there", Err: err})
	}
}

// nothingThere: no attempt so far has made an instance, for certain.
func (e *engine) nothingThere(u *unit) {
	s := u.start
	e.nothingOpen(u)
	switch unsure := s.unsure; {
	case s.cancelled || e.quiet:
		e.cancelStart(u, nil)
	case unsure == nil:
		e.queueAgain(u)
	case unsure.final:
		e.giveUp(u, unsure.err)
	default:
		s.unsure = nil
		e.goOn(u, unsure.last, unsure.err, nil)
	}
}

// nothingOpen: what began before has come to nothing. An attempt that can be
// asked for again stays open, for one look proves little.
func (e *engine) nothingOpen(u *unit) {
	s := u.start
	s.known = true
	u.set(flagLooked)
	if s.open && s.again && s.unsure == nil && !s.cancelled {
		return
	}
	u.left, s.open, s.again, s.keep, s.token = nil, false, false, false, ""
}

// unsure is an attempt whose outcome is being looked up, and how to go on if it
// has made nothing.
type unsure struct {
	last  Outcome
	err   error
	final bool // no retry is left
}

// lookInto finds out what has become of an attempt that has just ended.
func (e *engine) lookInto(u *unit, x unsure) {
	s := u.start
	if x.last.Kind == OutcomeUnknown {
		if x.last.Kind = OutcomeZoneFailed; errors.Is(x.err, ErrAlreadyExists) {
			x.last.Kind = OutcomeZoneIndependent
		}
	}
	s.open, s.unsure, s.since = true, &x, e.opID
	if !s.cancelled {
		e.show(u, StatusUpdate{InstanceStatus: InstanceAllocating, Text: "looking for the instance that an attempt to start machine " +
			string(u.rec.ID) + " may have made: " + statusText(x.err)}, showPlain)
	}
	e.search(u)
}

// adopt takes an instance that is there for the machine's own. One that is not
// up yet is asked for once more where that makes no other: so what was begun is
// finished. The unit has a place, which the operation takes over.
func (e *engine) adopt(u *unit, found []Instance) {
	s, i := u.start, found[0]
	s.surplus = found[1:]
	asked, zone := e.askedIn(u, i), noZone
	if !e.zoneless(u) {
		zone = e.whereIs(u, i)
	}
	s.zone, s.found, s.unsure = zone, nil, nil
	e.ledger.place(u.slot, s.zone)
	if n := i.Labels.Nonce; n != "" && n != s.nonce {
		s.nonce, s.config.Nonce, s.own = n, n, cmp.Or(s.own, s.nonce)
	}
	if e.halfMade(i) {
		s.known, s.open, s.keep, s.again, s.token = true, true, true, true, i.Labels.Token
		s.zone = asked
		e.ledger.place(u.slot, s.zone)
		s.attempt = max(s.attempt, 1)
		e.attempt(u)
		return
	}
	s.adopting, s.token, s.attempt = true, i.Labels.Token, max(s.attempt, 1)
	record := InstanceRecord{Machine: u.rec.ID, Instance: i.ID, Nonce: s.nonce, Zone: cmp.Or(i.Zone, e.ledger.name(s.zone))}
	u.op = &op{kind: opStart, unit: u, phase: phaseRecord, lane: &e.starts, key: laneKey(u.rec.ID), req: startCall{request: StartRequest{Machine: u.rec.ID, Zone: e.ledger.name(s.zone)}, adopt: &record}}
	e.enter(u, lifeStarting)
	e.begin(u.op)
}

// halfMade says whether an instance is to be asked for once more.
func (e *engine) halfMade(i Instance) bool {
	return i.State == InstanceStarting && e.cfg.dedupes && i.Labels.Token != ""
}

// askedIn is the zone in which an instance was asked for, as far as can be told:
// the list of zones may have changed since.
func (e *engine) askedIn(u *unit, i Instance) int32 {
	switch s := u.start; {
	case u.rec.ID.IsContainer():
		return noZone
	case s.open:
		return s.zone
	case s.stored.Token == i.Labels.Token:
		return e.ledger.intern(s.stored.Zone)
	case !e.cfg.zones:
		return noZone
	}
	return e.ledger.intern(i.Zone)
}

// whereIs is the zone of an instance, which of the open attempt is known also if
// it is not told.
func (e *engine) whereIs(u *unit, i Instance) int32 {
	if i.Zone == "" && i.Labels.Token != "" && i.Labels.Token == e.openToken(u) {
		return u.start.zone
	}
	return e.ledger.intern(i.Zone)
}

// undoFound stops what was made for a machine that no longer wants it (ST13).
func (e *engine) undoFound(u *unit, found []Instance) {
	for _, i := range found[1:] {
		e.doom(i.ID, u.rec.ID, "it was made for machine "+string(u.rec.ID)+", which no longer wants it")
	}
	u.start.made = &madeInstance{record: InstanceRecord{Machine: u.rec.ID, Instance: found[0].ID, Zone: found[0].Zone}, err: errUnwanted}
	e.beginUndo(u)
}

// wanted are the instances that searches have shown to be of machines that have
// none, where listings show no labels.
func (e *engine) wanted() map[InstanceID]MachineID {
	all := map[InstanceID]MachineID{}
	for id, instances := range e.census.machines {
		if u := e.units[id]; u != nil && u.rec.Instance == "" {
			for _, i := range instances {
				all[i.ID] = id
			}
		}
	}
	for u := range e.astir {
		if u.start != nil {
			for _, i := range u.start.found {
				all[i.ID] = u.rec.ID
			}
		}
	}
	return all
}

// adopted: of several instances of one machine those that it does not have are
// stopped (ST19).
func (e *engine) adopted(u *unit, surplus []Instance) {
	for _, i := range surplus {
		e.doom(i.ID, u.rec.ID, "machine "+string(u.rec.ID)+" has another instance, "+string(u.rec.Instance))
	}
}

// bare: a record was removed without an instance, by us as far as can be told.
// If an earlier Task has made one, or an attempt was left open, it is waited for
// until it would have shown.
func (e *engine) bare(u *unit) {
	if !e.cfg.searches() {
		return
	}
	e.reaper.bare[u.rec.ID] = e.now
	e.nobodys(sight{}, false)
	begun := u.left != nil || !u.has(flagFresh|flagLooked)
	seen := e.cfg.consistent && e.census.last.op != 0 && (u.left == nil || e.census.last.op > u.left.op)
	if begun && !seen && !e.quiet && !e.census.again.item.On() {
		e.lookForBareLater()
	}
}

// lookForBareLater: a second more than needed, so that one look does for those
// that are removed together.
func (e *engine) lookForBareLater() {
	e.at(&e.census.again, e.now.Add(e.cfg.visibility+time.Second))
}

func (e *engine) lookForBare() {
	if len(e.reaper.bare) > 0 {
		e.readCensus()
		e.lookForBareLater()
	}
}

// nobodys stops what was made for machines whose records were removed without
// an instance, as the last census shows it. A whole one, late enough, is the
// last that is needed.
func (e *engine) nobodys(began sight, whole bool) {
	for id, removed := range e.reaper.bare {
		if e.units[id] != nil {
			delete(e.reaper.bare, id)
			continue
		}
		for _, i := range ours(e.census.machines[id], e.cfg.controller, id, "") {
			if !e.accounted(i.ID) {
				e.doom(i.ID, id, "it was made for machine "+string(id)+", which was removed before it was provisioned")
			}
		}
		if whole && began.at.Sub(removed) >= e.cfg.visibility {
			delete(e.reaper.bare, id)
		}
	}
}

// cancelSearch: a start is no longer wanted. What may have been made for it is
// looked for all the same.
func cancelSearch(e *engine, u *unit, _ *message) {
	if u.start.open {
		u.start.cancelled = true
	} else if u.op == nil {
		dropStart(e, u, nil)
	} else {
		cancelOp(e, u, nil)
	}
}

// quietSearch: the next life begins the search anew.
func quietSearch(e *engine, u *unit, _ *message) {
	if u.op != nil {
		e.cuts = append(e.cuts, cut{op: u.op, phase: u.op.phase, cause: errShutdown})
		return
	}
	e.cancelStart(u, u.start.doubt())
}
