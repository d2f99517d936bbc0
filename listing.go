package provisioner

import (
	"slices"
	"time"

	"github.com/juju/errors"
)

// A listState is where the reading of listings stands. A listing is gone
// through in stages, a slice at a time, so that a large one holds up nothing.
type listState struct {
	op     *op // under way
	tries  uint8
	retry  moment
	rhythm moment // of the sweep
	wanted bool   // another, as soon as may be
	listed bool   // one has ended, well or not, and its zones are counted

	unplaced bool // some provisioned machine has no zone in its record

	stage   listStage
	at      int
	got     Listing // being gone through
	sight   sight   // its call
	arrived time.Time
	seq     uint64  // the reading of records that has to be newer than it
	pass    *survey // what is found

	down time.Time // since when it cannot be read; zero: it can

	last   *survey // the last complete listing that was gone through
	freeze freeze
	told   map[InstanceID]bool // reported as unknown
}

type listStage uint8

const (
	listIdle    listStage = iota
	listPlace             // machines are found in it, and who is in it besides
	listMissing           // machines that are not in it are counted
	listFresh             // waits until the records were read once more (HV9)
	listJudge             // what no machine has is judged
)

// A survey is what one listing has brought.
type survey struct {
	complete  bool
	failed    []ZoneName
	unclaimed []Instance // of any controller; may hold one twice
	listed    int        // instances that are ours, or may be
	seen      map[InstanceID]*sighting
	spared    map[InstanceID]bool // of those that were left running
	told      map[InstanceID]bool // of those that were reported
	worth     bool                // to be judged
	began     time.Time           // the call
	gate      *gate
	unsure    string
}

// backlog says whether there is something to be gone through at once.
func (e *engine) backlog() bool {
	return e.look.backlog() || e.list.stage != listIdle && e.list.stage != listFresh && e.recordsKnown()
}

// recordsKnown says whether all claims of the last whole reading are known.
func (e *engine) recordsKnown() bool {
	return e.look.loaded && e.look.stage != stageApply && e.look.stage != stageSweep
}

// readListing lists what the broker runs.
func (e *engine) readListing() {
	if e.quiet || e.list.op != nil {
		return
	}
	working := e.list.at > 0 || e.list.stage == listMissing || e.list.stage == listJudge
	if e.list.wanted = working || e.clogged(opListing); e.list.wanted {
		return
	}
	e.agenda.Drop(&e.list.retry.item)
	e.agenda.Drop(&e.list.rhythm.item)
	e.list.op = &op{kind: opListing}
	e.begin(e.list.op)
}

// sweepNow lists as soon as may be, for something has changed that counts for
// instances that no machine has.
func (e *engine) sweepNow() {
	if e.look.loaded {
		e.list.wanted = e.list.op != nil
		e.readListing()
	}
}

// armSweep sets when the broker is listed without a reason: the sweep has a
// rhythm of its own.
func (e *engine) armSweep() {
	if e.cfg.sweep > 0 && !e.quiet {
		jitter := 0.9 + 0.2*e.cfg.spread()
		e.at(&e.list.rhythm, e.now.Add(time.Duration(min(float64(e.cfg.sweep)*jitter, float64(longest)))))
	}
}

// listingRead: each listing arrives here. Its call began at o.began, so it says
// nothing of what came later.
func (e *engine) listingRead(o *op, m *message) {
	e.list.op = nil
	if e.quiet {
		return
	}
	if m.err != nil {
		e.placed()
		if e.list.down.IsZero() {
			e.list.down = o.began
		}
		next := e.now.Add(e.backoff(&e.list.tries))
		e.at(&e.list.retry, next)
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err, Next: next})
		e.censusFailed(m.err)
		return
	}
	e.list.tries, e.list.down = 0, time.Time{}
	e.reaper.settle(e.now)
	l, _ := m.result.(Listing)
	e.list.stage, e.list.at, e.list.got, e.list.sight = listPlace, 0, l, sight{o.id, o.began}
	e.list.arrived, e.list.seq = e.now, e.seq
	e.list.pass = &survey{complete: l.Complete, failed: l.Failed, began: o.began,
		seen: map[InstanceID]*sighting{}, spared: map[InstanceID]bool{}, told: map[InstanceID]bool{}}
	e.armSweep()
}

// goThrough does one slice of what there is to do about a listing.
func (e *engine) goThrough() {
	if e.quiet || !e.recordsKnown() {
		return
	}
	switch e.list.stage {
	case listPlace:
		e.placeListed()
	case listMissing:
		e.countMissing()
	case listJudge:
		e.judgeSlice()
	}
	if e.list.wanted && e.list.op == nil && e.list.stage == listIdle {
		e.readListing()
	}
}

// slice gives the bounds of the next slice of n, and whether it is the last.
func (l *listState) slice(n int) (from, to int, last bool) {
	from, to = l.at, min(l.at+slice, n)
	l.at = to
	return from, to, to == n
}

// placeListed finds the machines that a listing is about, and counts those
// whose records tell no zone in the zones that the listing tells (AZ2).
func (e *engine) placeListed() {
	p := e.list.pass
	from, to, last := e.list.slice(len(e.list.got.Instances))
	for n := from; n < to; n++ {
		i := &e.list.got.Instances[n]
		if i.ID == "" {
			continue
		}
		u := e.claims[i.ID]
		for c := u; c != nil; c = c.nextClaim {
			if i.Zone != "" && e.ledger.zoneOf(c.slot) == noZone && !c.rec.ID.IsContainer() && c.start == nil && !c.has(flagSettled) {
				e.ledger.place(c.slot, e.ledger.intern(i.Zone))
			}
			c.listed = c.listed || i.State != InstanceTerminated
		}
		switch {
		case i.State == InstanceTerminated:
		case u != nil:
			p.listed++
		default:
			e.unclaimed(p, *i)
		}
	}
	if last {
		e.placed()
		e.list.got = Listing{Complete: p.complete, Failed: p.failed}
		e.list.stage, e.list.at = listMissing, 0
		if e.cfg.labels {
			e.takeCensus(e.list.sight, e.list.got, p.unclaimed)
		}
		if !p.complete {
			e.dropPass()
		}
	}
}

// placed: a listing has ended, well or not, and its zones are counted.
func (e *engine) placed() {
	e.list.listed = true
	e.census.read = e.census.read || e.cfg.labels
}

// unclaimed takes an instance down that no machine has. What was seen of it
// before stays known, unless it may be another one by the same id.
func (e *engine) unclaimed(p *survey, i Instance) {
	if has(e.reaper.spared, i.ID) {
		p.spared[i.ID] = true
	}
	p.unclaimed = append(p.unclaimed, i)
	ours := mayBeOurs(i.Labels, e.cfg.controller, e.cfg.labels)
	p.worth = p.worth || e.worth(&i, ours)
	if e.list.told[i.ID] {
		p.told[i.ID] = true
	}
	if !ours {
		return
	}
	if p.seen[i.ID] != nil {
		return
	}
	p.listed++
	before := e.sighted(i.ID)
	if before != nil && before.Instance.Labels == i.Labels && before.Instance.Created.Equal(i.Created) && !has(e.reaper.stopped, i.ID) {
		p.seen[i.ID] = &sighting{Unclaimed: Unclaimed{Instance: i, Verdict: before.Verdict, Reason: before.Reason, First: before.First}}
	}
}

// sighted is what was seen of an instance in the last complete listing.
func (e *engine) sighted(id InstanceID) *sighting {
	if e.list.last == nil {
		return nil
	}
	return e.list.last.seen[id]
}

// Machines whose instance is missing in so many complete listings in a row are
// reported (HV14).
const missingOften = 3

// countMissing counts the machines whose instance a complete listing lacks.
// Where a zone did not answer nothing is missing.
func (e *engine) countMissing() {
	from, to, last := e.list.slice(len(e.bySlot))
	for _, u := range e.bySlot[from:to] {
		if u == nil {
			continue
		}
		switch listed := u.listed; {
		case listed:
			u.listed, u.missed = false, 0
		case u.rec.Instance == "" || u.start != nil:
			u.missed = 0
		case e.inFailed(u, e.list.pass.failed):
		case u.missed < missingOften:
			if u.missed++; u.missed == missingOften && u.rec.Life != Dead {
				e.tell(Event{Kind: EventMissing, Machine: u.rec.ID, Instance: u.rec.Instance, N: missingOften})
			}
		}
	}
	if last {
		e.list.at = 0
		e.passSeen()
	}
}

// inFailed says whether a machine's instance may be in a zone that did not
// answer.
func (e *engine) inFailed(u *unit, failed []ZoneName) bool {
	if len(failed) == 0 {
		return false
	}
	zone := u.rec.Zone
	if zone == "" {
		zone = e.ledger.name(e.ledger.zoneOf(u.slot))
	}
	return zone == "" || slices.Contains(failed, zone)
}

// passSeen: it is known who is in a complete listing. What may be stopped, or is
// to be reported, is judged once the records were read anew.
func (e *engine) passSeen() {
	p, last := e.list.pass, e.list.last
	if last != nil && len(p.failed) > 0 {
		for id, s := range last.seen { // zones that did not answer change nothing
			if p.seen[id] == nil && (s.Instance.Zone == "" || slices.Contains(p.failed, s.Instance.Zone)) {
				p.seen[id] = s
			}
		}
	}
	if len(p.failed) == 0 {
		e.list.told = p.told
	}
	e.list.last = p
	e.forgetSpared(p)
	e.list.stage = listIdle
	if p.worth || e.list.freeze.frozen != nil {
		e.list.stage = listFresh
		e.judgeIfFresh()
	}
}

// worth says whether an instance may be stopped, or is to be reported.
func (e *engine) worth(i *Instance, ours bool) bool {
	switch {
	case e.reaper.accounted(i.ID), i.Labels.Controller != "" && i.Labels.Controller != e.cfg.controller:
		return false
	}
	if d := e.sweep.doomed[i.ID]; d != nil && d.kind == doomSurplus {
		return false
	}
	u := e.units[i.Labels.Machine]
	if u != nil && u.rec.Instance == "" {
		return false // it is that machine's, or will be
	}
	return !e.list.told[i.ID] || ours && (e.policy.Harvest.Unknown() || u != nil)
}

// judgeIfFresh goes on once every record was read after the listing, lest an
// instance that has just been recorded is taken for unknown (HV9), and, where
// listings show no labels, a search has ended that began after it.
func (e *engine) judgeIfFresh() {
	if e.list.stage != listFresh || !e.look.loaded || e.look.backlog() || e.look.fleet != nil {
		return
	}
	if e.look.began <= e.list.seq {
		if !e.look.retry.item.On() {
			e.startFleet()
		}
		if e.look.fleet == nil {
			e.dropPass() // readings are late, or fail
		}
		return
	}
	if e.cfg.finder && !e.cfg.labels && e.policy.Harvest.Unknown() && e.census.last.op < e.list.sight.op {
		e.readCensus() // only that shows whose an instance is
		return
	}
	p := e.list.pass
	e.list.stage, e.list.at = listJudge, 0
	p.gate = newGate(e.policy, p.listed, e.spent())
	p.gate.partial = len(p.failed) > 0
	p.unsure = e.unsure()
}

// dropPass ends a pass before its time. What it has seen counts for nothing
// but for where machines are.
func (e *engine) dropPass() {
	e.list.stage, e.list.at, e.list.pass = listIdle, 0, nil
}

// unsure is why nothing can be told now of instances that no machine has, or "".
func (e *engine) unsure() string {
	switch {
	case !e.look.loaded:
		return "the records have not been read yet"
	case e.look.blind, e.look.obscure > 0:
		return reasonUnread
	case e.cfg.spares && !e.reaper.read:
		return reasonSparedUnread
	}
	return e.dark()
}

// judgeSlice judges a slice of what no machine has, and after the last says what
// is stopped.
func (e *engine) judgeSlice() {
	p := e.list.pass
	f := e.gateFacts(p.began)
	from, to, last := e.list.slice(len(p.unclaimed))
	if p.unsure == "" {
		p.unsure = f.unsure
	}
	f.unsure = p.unsure
	for n := from; n < to; n++ {
		i := p.unclaimed[n]
		if e.claims[i.ID] != nil {
			delete(p.seen, i.ID)
			continue
		}
		s := p.seen[i.ID]
		switch {
		case s == nil:
			s = &sighting{Unclaimed: Unclaimed{Instance: i}}
		case s.Instance != i:
			s.odd = true // twice in the listing
		}
		if s.pass == p {
			continue
		}
		s.pass = p
		p.gate.add(s, f, e.sweep.doomed[i.ID] != nil)
		if p.unsure == "" && mayBeOurs(i.Labels, e.cfg.controller, e.cfg.labels) {
			p.seen[i.ID] = s
			if s.First.IsZero() {
				s.First = e.list.arrived
			}
		}
		if p.unsure == "" { // or some record may have it
			e.report(s)
		}
	}
	if last {
		e.dropPass()
		e.passJudged(p)
	}
}

// report tells once of an instance that nobody accounts for.
func (e *engine) report(s *sighting) {
	switch s.Verdict {
	case VerdictKept, VerdictSpared, VerdictStopped, VerdictForeign, VerdictStarting, VerdictAdopt, VerdictUnsure:
		return
	}
	if e.list.told[s.Instance.ID] || e.sweep.doomed[s.Instance.ID] != nil {
		return
	}
	if e.list.told == nil {
		e.list.told = map[InstanceID]bool{}
	}
	e.list.told[s.Instance.ID] = true
	e.tell(Event{Kind: EventUnknown, Instance: s.Instance.ID, Zone: s.Instance.Zone, Text: s.Reason})
}

// passJudged: what is ripe goes through the limits of HV11.
func (e *engine) passJudged(p *survey) {
	if p.unsure != "" {
		return
	}
	was := e.list.freeze
	var stop []*sighting
	stop, e.list.freeze = p.gate.close(was, e.now)
	p.gate = nil
	e.tellFreeze(was.frozen, e.list.freeze.frozen)
	if e.spent() == 0 {
		e.sweep.spent, e.sweep.spentAt = 0, e.now
	}
	for _, s := range stop {
		e.reap(s)
	}
}

func (e *engine) tellFreeze(was, is *Frozen) {
	switch {
	case is != nil && (was == nil || was.Plan != is.Plan):
		e.tell(Event{Kind: EventFrozen, N: is.Unknown, Text: is.Reason})
	case is == nil && was != nil:
		e.tell(Event{Kind: EventThawed, N: was.Unknown, Text: "plan " + was.Plan})
	}
}

// gateFacts is what the engine knows, for a listing that was asked for at a
// moment.
func (e *engine) gateFacts(at time.Time) *gateFacts {
	f := &gateFacts{
		at: at, controller: e.cfg.controller, labels: e.cfg.labels, unsure: e.unsure(),
		left: e.reaper.left, start: e.startOf(),
	}
	if e.list.last != nil {
		f.failed = e.list.last.failed
	}
	if e.cfg.finder && !e.cfg.labels {
		wanted := e.wanted()
		f.left = func(id InstanceID) (Verdict, string) {
			if m, ok := wanted[id]; ok {
				return VerdictAdopt, "a search has shown it to be machine " + string(m) + "'s, which has no instance: it is adopted when that starts"
			}
			return e.reaper.left(id)
		}
	}
	f.machine = func(id MachineID) (m Machine, known, shown bool) {
		u := e.units[id]
		if u == nil || u.has(flagGone) {
			return m, false, false
		}
		return u.rec, true, u.missed == 0 && !e.inFailed(u, f.failed)
	}
	return f
}

// asking says since when, at the earliest, the broker may be making an instance
// for a machine, by an attempt that has not been settled.
func (u *unit) asking() (since time.Time, asking bool) {
	s := u.start
	switch {
	case u.left != nil, s != nil && s.open: // perhaps by an attempt of an earlier start
		return since, true
	case s == nil:
		return since, false
	case s.made != nil:
		return s.began, true
	case u.life == lifeStarting && u.op != nil && u.op.phase != phaseLimit:
		return u.op.began, true
	}
	return since, false
}

// asking is the same for any broker. One that shows no labels but makes nothing
// twice may have made what an earlier Task has asked for, as long as the machine
// has not got so far that it is asked once more.
func (e *engine) asking(u *unit) (since time.Time, asking bool) {
	if since, asking = u.asking(); asking || e.cfg.labels || !e.cfg.dedupes || u.has(flagLooked|flagFresh) {
		return since, asking
	}
	return since, lifePhases[u.life].starting()
}

// startOf gives the start that an instance may come of that was first seen then:
// of its machine, or, where it carries no label, of any. Later ones can't have
// made it (HV9).
func (e *engine) startOf() func(id MachineID, first time.Time) string {
	var any struct {
		looked, asking bool
		since          time.Time
	}
	return func(id MachineID, first time.Time) string {
		var since time.Time
		asking := false
		if u := e.units[id]; u != nil {
			since, asking = e.asking(u)
		}
		if id == "" {
			if !any.looked {
				any.looked = true
				for u := range e.astir {
					if at, yes := e.asking(u); yes && (!any.asking || at.Before(any.since)) {
						any.asking, any.since = true, at
					}
				}
			}
			since, asking = any.since, any.asking
		}
		if asking && (first.IsZero() || !since.After(first)) {
			return reasonStarting(id)
		}
		return ""
	}
}

func reasonStarting(id MachineID) string {
	if id == "" {
		return "it may come of a start that is under way"
	}
	return "it may come of the start of machine " + string(id)
}

// accounted says whether it is known why an instance is there.
func (e *engine) accounted(id InstanceID) bool {
	return e.claims[id] != nil || e.reaper.accounted(id) || e.sweep.doomed[id] != nil
}

// darkAfter is how long records or listing may be unreadable before nothing is
// stopped any more.
const darkAfter = 30 * time.Second

// dark is why nothing may be stopped now, or "": what the host or the broker
// said last is too old to destroy anything by.
func (e *engine) dark() string {
	long := func(since time.Time) bool { return !since.IsZero() && e.now.Sub(since) > darkAfter }
	switch {
	case long(e.look.down):
		return "the records could not be read for more than " + darkAfter.String()
	case long(e.list.down):
		return "the instances could not be listed for more than " + darkAfter.String()
	}
	return ""
}

// brighten: something waits until the records can be read, and perhaps nothing
// else would read them before the next resync.
func (e *engine) brighten() {
	if !e.look.down.IsZero() && !e.look.backlog() && !e.look.retry.item.On() {
		e.startFleet()
	}
}

// ErrHeld is what the error of a stop matches that is held back because records
// or listing have been unreadable for too long.
const ErrHeld = errors.ConstError("nothing is stopped now")
