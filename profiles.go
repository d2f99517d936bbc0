package provisioner

import (
	"maps"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/internal/agenda"
	"github.com/seed81ba69f2/provisioner/internal/lane"
)

// This file is the stage of profile changes (LX2 to LX7). A change is read in
// bulk, together with the record of its machine, and decided about by
// decideProfile. What nothing is to be applied for is written down at once,
// whatever goes on with the machine; the rest waits until the machine rests and
// is then its one operation (lifeProfiling): broker, record, statuses, document.
// Each try begins with the reading, so it never goes by what was true once.

// decideProfile is the rule for one change: the status word that says that
// nothing is to be applied, or "" if it is to be made. An error means that it
// can't be told yet.
func decideProfile(m Machine, c ProfileChange, supported bool) (word string, err error) {
	switch {
	case !supported:
		return ProfileNotSupported, nil // LX6
	case m.Life == Dead:
		return ProfileNotRequired, nil // LX7
	}
	if err := Classify(m).Err; err != nil {
		return "", err
	}
	if m.Instance == "" || c.Old == "" && c.Profile == nil {
		return ProfileNotRequired, nil // LX7
	}
	return "", nil
}

// Validate returns a NotValid error if the change can't be made.
func (c ProfileChange) Validate() error {
	if c.Profile != nil && c.Profile.Name == "" {
		return errors.NotValidf("profile change of machine %s: profile name %q: want a name:", c.Machine, c.Profile.Name)
	}
	return nil
}

// String says in a few words what changes; empty for no machine's.
func (c ProfileChange) String() string {
	switch {
	case c.Machine == "":
		return ""
	case c.Profile == nil && c.Old == "":
		return "nothing"
	case c.Profile == nil:
		return "remove " + c.Old
	case c.Old == "":
		return "add " + c.Profile.Name
	}
	return "replace " + c.Old + " by " + c.Profile.Name
}

// first says whether this is the first profile of a subordinate (LX5).
func (c ProfileChange) first() bool { return c.Subordinate && c.Old == "" }

// names are the profiles that must not be changed elsewhere meanwhile.
func (c ProfileChange) names() []string {
	var names []string
	if c.Old != "" {
		names = append(names, c.Old)
	}
	if c.Profile != nil && c.Profile.Name != c.Old {
		names = append(names, c.Profile.Name)
	}
	return names
}

// same says whether it still is the change that it was.
func (c ProfileChange) same(o ProfileChange) bool {
	if (c.Profile == nil) != (o.Profile == nil) || c.ID != o.ID || c.Old != o.Old || c.Subordinate != o.Subordinate {
		return false
	}
	return c.Profile == nil || c.Profile.Name == o.Profile.Name && c.Profile.Description == o.Profile.Description &&
		maps.Equal(c.Profile.Config, o.Profile.Config) && maps.EqualFunc(c.Profile.Devices, o.Profile.Devices, maps.Equal)
}

// profileState is where the changes of profiles stand.
type profileState struct {
	early  map[MachineID]bool // named before the records were known
	toRead []*unit
	apart  [][]*unit // not to be read in one call with others
	reads  int       // calls under way that read changes
	writes int       // documents being written of machines that something else may go on with
	tries  uint8

	lane    lane.Lane[*unit]
	taken   map[string]*unit   // profiles that are being changed, and whose
	waiting map[string][]*unit // for a profile that is taken
}

func (s *profileState) init() {
	s.early, s.taken, s.waiting = map[MachineID]bool{}, map[string]*unit{}, map[string][]*unit{}
}

func (s *profileState) busy() bool {
	return s.reads+s.writes+len(s.toRead)+len(s.apart) > 0
}

// A profiling is one machine's profile change, while there is something to be
// done about it.
type profiling struct {
	unit   *unit
	change ProfileChange
	word   string // to be written into its document; "" removes that (LX5)
	doc    *op    // that is being done while something else may go on with the machine
	walk   Walk   // what the broker has failed
	tries  uint8  // back-off of what else has failed
	err    error  // what failed last
	again  bool   // to be read once the machine rests and doc has ended
	queued bool   // waits for a place
	shown  bool   // waits until its status is written
	waits  string // the profile that it waits for
	item   agenda.Item[due]
}

// due of a profiling: it is tried again.
func (p *profiling) due(e *engine) {
	if e.knows(p.unit) {
		e.readChange(p.unit)
	}
}

// profilesWanted says whether anybody who drives the engine wants profiles to
// be changed: an applied plan is not about them.
func (e *engine) profilesWanted() bool {
	return e.cfg.profiles && !e.quiet &&
		(e.running || slices.ContainsFunc(e.watch, func(w *watch) bool { return w.gate == nil }))
}

// profilesChanged: the host says that machines have profile changes.
func (e *engine) profilesChanged(ids []MachineID) {
	switch {
	case e.quiet:
		return
	case !e.cfg.profiles:
		e.tell(Event{Kind: EventCallFailed, Text: opChanges.String(), Err: errors.NotSupportedf("profile changes: the state is no ProfileState:")})
		return
	}
	for _, id := range ids {
		switch err := id.Validate(); {
		case err != nil:
			e.tell(Event{Kind: EventProfileFailed, Machine: id, Err: err})
		case !e.look.loaded:
			e.profiles.early[id] = true // it may be too new for the reading that is under way
		default:
			e.changeNamed(e.unitOf(id))
		}
	}
}

func (e *engine) changeNamed(u *unit) {
	if !u.has(flagKnown) {
		e.read(u) // or nobody finds out that there is no such machine
	}
	e.readChange(u)
}

// lookAtProfiles asks for the changes of every machine, a slice of them at a
// time.
func (e *engine) lookAtProfiles() (done bool) {
	end := min(e.look.at+slice, len(e.bySlot))
	for ; e.look.at < end; e.look.at++ {
		if u := e.bySlot[e.look.at]; u != nil && u.has(flagKnown) {
			e.readChange(u)
		}
	}
	if end < len(e.bySlot) {
		return false
	}
	early := slices.SortedFunc(maps.Keys(e.profiles.early), MachineID.Compare)
	clear(e.profiles.early)
	for _, id := range early {
		e.changeNamed(e.unitOf(id))
	}
	return true
}

// readChange wants one machine's change, once, also if asked for twice; while
// it is being made, after that.
func (e *engine) readChange(u *unit) {
	switch p := u.profile; {
	case !e.profilesWanted():
	case u.has(flagDocRead):
		u.set(flagDocAgain)
	case p != nil && (p.doc != nil || u.life == lifeProfiling):
		p.again = true
	default:
		u.set(flagDocRead)
		e.profiles.toRead = append(e.profiles.toRead, u)
	}
}

// maxChangeReads bounds how many calls read changes at once.
const maxChangeReads = 4

func (e *engine) flushChanges() {
	if e.quiet || e.look.stage == stageProfiles || e.clogged(opChanges) {
		return
	}
	for s := &e.profiles; s.reads < maxChangeReads && len(s.apart)+len(s.toRead) > 0; {
		var units []*unit
		if n := len(s.apart); n > 0 {
			units, s.apart = s.apart[n-1], s.apart[:n-1]
		} else {
			n := min(len(s.toRead), maxIDs)
			units, s.toRead = s.toRead[:n:n], s.toRead[n:]
		}
		units = slices.DeleteFunc(units, func(u *unit) bool { return !e.knows(u) })
		if len(units) == 0 {
			continue
		}
		ids := make([]MachineID, len(units))
		for i, u := range units {
			u.drop(flagDocAgain)
			ids[i] = u.rec.ID
		}
		e.seq++
		s.reads++
		e.begin(&op{kind: opChanges, units: units, seq: e.seq, req: ids})
	}
	if len(e.profiles.toRead) == 0 {
		e.profiles.toRead = nil
	}
}

// hushChanges lets go of the readings that wait.
func (e *engine) hushChanges() {
	for _, u := range append(slices.Concat(e.profiles.apart...), e.profiles.toRead...) {
		u.drop(flagDocRead | flagDocAgain)
	}
	e.profiles.apart, e.profiles.toRead = nil, nil
}

// A changeRead is what was read about one machine: its change and, if there is
// something to be done, its record.
type changeRead struct {
	change ProfileChangeResult
	record *MachineResult
}

// check also finds a result that is no machine's.
func (r *changeRead) check() error {
	if c := r.change; c.Err == nil && c.Change.Machine != c.ID {
		return errors.NotValidf("machine %s: its profile change is that of machine %q:", c.ID, string(c.Change.Machine))
	}
	return r.change.Err
}

func (e *engine) changesRead(o *op, m *message) {
	e.profiles.reads--
	switch n := len(o.units); {
	case e.quiet:
		for _, u := range o.units {
			u.drop(flagDocRead | flagDocAgain)
		}
		return
	case errors.Is(m.err, ErrPanic) && n > 1: // one of them keeps no other from being read (LX6)
		e.profiles.apart = append(e.profiles.apart, o.units[:n/2:n/2], o.units[n/2:])
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err, Next: e.now})
		return
	case m.err != nil:
		again := &changesAgain{units: o.units}
		again.item.Value = again
		next := e.now.Add(e.backoff(&e.profiles.tries))
		e.agenda.Set(&again.item, next)
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err, Next: next})
		return
	}
	e.profiles.tries = 0
	results, _ := m.result.([]changeRead)
	var units []*unit
	var records []MachineResult
	for i, u := range o.units {
		u.drop(flagDocRead)
		if r := &results[i]; r.record != nil {
			units, records = append(units, u), append(records, *r.record)
		}
	}
	was := e.takeRecords(units, records, o.seq)
	for i, u := range o.units {
		if !e.knows(u) {
			continue
		}
		e.changeIs(u, &results[i])
		if u.has(flagDocAgain) {
			e.readChange(u)
		}
	}
	// Only what has changed is decided anew, and after the profiles: a container's
	// upkeep would keep it from resting, at each look.
	for i, u := range units {
		if u.rec != was[i] {
			e.considerRecords(units[i:i+1], was[i:i+1])
		}
	}
}

// changesAgain are machines whose changes are to be read again after a while.
type changesAgain struct {
	units []*unit
	item  agenda.Item[due]
}

func (c *changesAgain) due(e *engine) {
	for _, u := range c.units {
		u.drop(flagDocRead | flagDocAgain)
		if e.knows(u) {
			e.readChange(u)
		}
	}
}

// changeIs: the change of a machine is known, and its record is that of now.
func (e *engine) changeIs(u *unit, r *changeRead) {
	c, err := r.change.Change, r.check()
	if errors.Is(err, errors.NotFound) || err == nil && ProfileTerminal(c.Status) {
		e.dropProfile(u)
		return
	}
	if u.profile == nil || err == nil && !u.profile.change.same(c) {
		e.dropProfile(u)
		u.profile = &profiling{unit: u}
	}
	p := u.profile
	if err == nil {
		p.change = c
		err = checkResult(r.record)
	}
	word := ""
	if err == nil {
		word, err = decideProfile(u.rec, c, e.cfg.profileBroker)
	}
	p.again = false
	switch {
	case err != nil:
		e.profileUnreached(u, err)
	case word == ProfileNotRequired && u.start != nil && (u.start.ready || u.life == lifePreparing):
		p.again = true // the profiles that it starts with may have been read before the change
	case word != "":
		e.agenda.Drop(&p.item)
		p.word, p.err = word, nil
		p.doc = e.beginDocument(u)
		e.profiles.writes++
	case p.item.On(): // it is tried again in its time
		e.settled(u, p.notYet())
	default:
		e.fire(u, evProfile, nil)
		p.again = u.life != lifeProfiling // once it rests
	}
}

// dropProfile: nothing is to be done about a machine's profiles any more.
func (e *engine) dropProfile(u *unit) {
	if u.profile != nil {
		e.agenda.Drop(&u.profile.item)
		u.profile = nil
	}
}

// profileUnreached: the state has failed, or what is needed can't be told yet;
// tried again for ever.
func (e *engine) profileUnreached(u *unit, err error) {
	p := u.profile
	e.profileLater(u, err, e.backoff(&p.tries))
}

// profileGone: the machine, or its change, is not there any more, which is no
// failure. Perhaps another has taken its place.
func (e *engine) profileGone(u *unit) {
	p := u.profile
	p.item.Value = p
	e.agenda.Set(&p.item, e.now.Add(e.backoff(&p.tries)))
}

func (e *engine) profileLater(u *unit, err error, wait time.Duration) {
	p := u.profile
	p.err, p.item.Value = err, p
	next := e.now.Add(wait)
	e.agenda.Set(&p.item, next)
	e.tell(Event{Kind: EventProfileFailed, Machine: u.rec.ID, Instance: u.rec.Instance, Text: p.change.String(), Err: err, Next: next})
	e.settled(u, p.notYet())
}

func (p *profiling) notYet() Result {
	return Result{Kind: ActionProfile, Instance: p.unit.rec.Instance, Reason: "its profiles could not be changed yet", Err: p.err}
}

func queueProfile(e *engine, u *unit, _ *message) {
	e.enter(u, lifeProfiling)
	e.queueChange(u)
}

func (e *engine) queueChange(u *unit) {
	u.profile.queued, u.profile.waits = true, ""
	e.profiles.lane.Push(laneKey(u.rec.ID), u)
}

// changeProfile has the broker change the profiles, unless the facts have
// changed while the machine waited, or another one has one of the profiles.
func changeProfile(e *engine, u *unit, _ *message) {
	p, key := u.profile, laneKey(u.rec.ID)
	p.queued = false
	if word, err := decideProfile(u.rec, p.change, e.cfg.profileBroker); word != "" || err != nil {
		e.profiles.lane.Done(key)
		p.again = true
		e.leaveProfile(u)
		return
	}
	if err := p.change.Validate(); err != nil {
		e.profiles.lane.Done(key)
		e.profileFailed(u, err)
		return
	}
	for _, name := range p.change.names() {
		if e.profiles.taken[name] != nil {
			e.profiles.lane.Done(key)
			p.waits = name
			e.profiles.waiting[name] = append(e.profiles.waiting[name], u)
			return
		}
	}
	for _, name := range p.change.names() {
		e.profiles.taken[name] = u
	}
	u.op = &op{kind: opProfile, unit: u, lane: &e.profiles.lane, key: key, req: ProfileChangeRequest{
		Machine: u.rec.ID, Instance: u.rec.Instance, Old: p.change.Old, Profile: p.change.Profile}}
	e.begin(u.op)
}

// freeProfiles lets others have the profiles of a machine. Of those that wait
// for one, the first that still does is next.
func (e *engine) freeProfiles(u *unit) {
	if u.profile == nil {
		return
	}
	for _, name := range u.profile.change.names() {
		if e.profiles.taken[name] == u {
			delete(e.profiles.taken, name)
		}
		waiting := e.profiles.waiting[name]
		for e.profiles.taken[name] == nil && len(waiting) > 0 {
			next := waiting[0]
			if waiting = waiting[1:]; next.waitsFor(name) {
				e.queueChange(next)
				break
			}
		}
		if e.profiles.waiting[name] = waiting; len(waiting) == 0 {
			delete(e.profiles.waiting, name)
		}
	}
}

func (u *unit) waitsFor(profile string) bool {
	return u.life == lifeProfiling && u.op == nil && u.profile.waits == profile
}

// profiled: the broker has changed the profiles and they are recorded, or not;
// or the document is written.
func profiled(e *engine, u *unit, m *message) {
	p, err := u.profile, m.err
	recording := m.op.phase == phaseRecord
	if m.op.kind == opProfile {
		e.freeProfiles(u)
	}
	switch {
	case m.op.kind == opDocument:
		e.documentEnded(u, err)
		e.leaveProfile(u)
	case err == nil:
		p.walk, p.tries, p.err = Walk{}, 0, nil
		e.tell(Event{Kind: EventProfileChanged, Machine: u.rec.ID, Instance: u.rec.Instance, Text: p.change.String()})
		if p.word = ProfileSuccess; p.change.first() {
			p.word = "" // LX5
			e.writeDocument(u)
			return
		}
		e.showProfile(u, nil)
	case e.quiet:
		p.again = true
		e.leaveProfile(u)
	case !recording && unsupported(err):
		p.word, p.err = ProfileNotSupported, nil // LX6
		e.writeDocument(u)
	case recording && errors.Is(err, errors.NotFound):
		e.profileGone(u)
		e.leaveProfile(u)
	case recording && (p.change.first() || !errors.Is(err, errors.NotValid)):
		e.profileUnreached(u, err) // LX5
		e.leaveProfile(u)
	default:
		e.profileRetry(u, err)
	}
}

func unsupported(err error) bool {
	return errors.Is(err, errors.NotSupported) || errors.Is(err, errors.NotImplemented)
}

// profileRetry: the broker has failed; tried again as long as that may help.
func (e *engine) profileRetry(u *unit, err error) {
	p := u.profile
	last := OutcomeOf(err)
	if errors.Is(err, errors.NotValid) {
		last.Kind = OutcomePermanent
	}
	var d Decision
	if p.walk, d = p.walk.Next(e.policy.profileRetry(), last, 0, e.cfg.random()); d.Step == StepFail {
		e.profileFailed(u, err)
		return
	}
	e.profileLater(u, err, max(d.Wait, shortestBackoff))
	e.leaveProfile(u)
}

const cannotUpgrade = "cannot upgrade machine's lxd profile: "

// profileFailed gives a change up (LX4).
func (e *engine) profileFailed(u *unit, err error) {
	p := u.profile
	p.err, p.word = err, profileError+statusText(err)
	e.tell(Event{Kind: EventProfileFailed, Machine: u.rec.ID, Instance: u.rec.Instance, Text: p.change.String(), Err: err})
	e.showProfile(u, err)
}

// showProfile shows how a change went. The document comes after the status, for
// once it is written nobody looks at this change again, also after a crash.
func (e *engine) showProfile(u *unit, failure error) {
	up := StatusUpdate{InstanceStatus: InstanceError}
	if failure != nil {
		up.Text = cannotUpgrade + statusText(failure)
	} else if up = mendedStatus(u.rec, u.has(flagDocError)); up == (StatusUpdate{}) {
		e.writeDocument(u)
		return
	}
	u.drop(flagDocError)
	if failure != nil {
		u.set(flagDocError)
	}
	if p := u.profile; e.show(u, up, showReset) {
		p.shown = true
	} else {
		e.writeDocument(u)
	}
}

// mendedStatus takes an earlier profile error back, and nothing else (LX3).
func mendedStatus(m Machine, shown bool) (up StatusUpdate) {
	if !shown && (m.InstanceStatus != InstanceError || m.Unread.Has(FieldInstanceStatus)) {
		return up
	}
	up.InstanceStatus, up.Text = InstanceRunning, "Running"
	if m.Status == StatusError && !m.Unread.Has(FieldStatus) {
		up.Status = StatusStarted
	}
	return up
}

// A documentCall says what has become of a change.
type documentCall struct {
	update ProfileStatusUpdate
	remove bool
}

// profileShown: the status is written, or can't be; now the document. One that
// has hung is told of again when it returns.
func profileShown(e *engine, u *unit, _ *message) {
	if u.profile.shown {
		u.profile.shown = false
		e.writeDocument(u)
	}
}

func (e *engine) writeDocument(u *unit) { u.op = e.beginDocument(u) }

func (e *engine) beginDocument(u *unit) *op {
	p := u.profile
	o := &op{kind: opDocument, unit: u, req: documentCall{ProfileStatusUpdate{Machine: u.rec.ID, Change: p.change.ID, Status: p.word}, p.word == ""}}
	e.begin(o)
	return o
}

// documentWritten: the document of a change that nothing was applied for.
func (e *engine) documentWritten(o *op, m *message) {
	e.profiles.writes--
	u := o.unit
	if !e.knows(u) {
		return
	}
	u.profile.doc = nil
	e.documentEnded(u, m.err)
	e.profileAgain(u)
}

// documentEnded ends a change, if its document could be written. One that is
// not there any more may have made room for another.
func (e *engine) documentEnded(u *unit, err error) {
	p := u.profile
	switch {
	case errors.Is(err, errors.NotFound):
		e.profileGone(u)
	case err != nil:
		e.profileUnreached(u, errors.Annotate(err, "writing what has become of it"))
	default:
		if p.word == ProfileNotRequired || p.word == ProfileNotSupported {
			e.tell(Event{Kind: EventProfileLeft, Machine: u.rec.ID, Instance: u.rec.Instance, Text: p.word})
		}
		e.settled(u, Result{Kind: ActionProfile, Instance: u.rec.Instance, Reason: p.outcome(), Err: p.err})
		again := p.again
		e.dropProfile(u)
		if again {
			u.profile = &profiling{unit: u, again: true}
		}
	}
}

// outcome says what has become of a change.
func (p *profiling) outcome() string {
	switch {
	case p.err != nil:
		return "its profiles could not be changed"
	case p.word == ProfileNotRequired || p.word == ProfileNotSupported:
		return "profiles: " + p.word
	}
	return p.change.String()
}

// leaveProfile ends the operation. What came meanwhile is looked at now.
func (e *engine) leaveProfile(u *unit) {
	if u.has(flagGone) || u.has(flagDirty) {
		e.rest(u)
	} else {
		e.enter(u, lifeResting)
	}
}

// profileAgain reads a change that had to wait.
func (e *engine) profileAgain(u *unit) {
	if p := u.profile; p != nil && p.again {
		p.again = false
		e.readChange(u)
	}
}
