package provisioner

import "slices"

// life is where one machine stands. What can happen to it there is the table
// below; nothing else changes a life.
type life uint8

const (
	lifeResting     life = iota // nothing is under way
	lifeQueued                  // waits for a place to start
	lifeAnnouncing              // has a place; its first status is being written
	lifePreparing               // has a place; what it needs is being read
	lifeDeriving                // has a place; the broker derives its zones
	lifeStarting                // has a place; an attempt is under way
	lifeSearching               // for instances that earlier attempts may have made; holds no place
	lifeWaiting                 // for its next attempt; holds no place
	lifeConfirming              // an instance is there; was it recorded?
	lifeUndoing                 // an instance is there and has to go
	lifeStopping                // dead: its instance is stopped
	lifeRemoving                // dead: its record is removed
	lifeResetting               // its statuses are reset for a retry
	lifeMaintaining             // its upkeep is under way
	lifeProfiling               // its profiles are changed, and that is shown
	lifeFailed                  // given up; waits for a retry signal
	lives
)

var lifeNames = [lives]string{"resting", "queued", "announcing", "preparing", "deriving", "starting", "searching", "waiting",
	"confirming", "undoing", "stopping", "removing", "resetting", "maintaining", "profiling", "failed"}

func (l life) String() string { return lifeNames[l] }

var lifePhases = [lives]Phase{PhaseResting, PhaseQueued, PhasePreparing, PhasePreparing, PhasePreparing, PhaseStarting, PhaseSearching, PhaseWaiting,
	PhaseConfirming, PhaseUndoing, PhaseStopping, PhaseRemoving, PhaseResetting, PhaseMaintaining, PhaseProfiling, PhaseFailed}

// lifeEvent is something that can happen to a machine.
type lifeEvent uint8

const (
	evStart    lifeEvent = iota // decided: start it
	evCancel                    // decided: its start is no longer wanted
	evStop                      // decided: stop its instance
	evRemove                    // decided: remove its record
	evMaintain                  // decided: upkeep
	evReset                     // a retry signal names it
	evProfile                   // decided: change its profiles
	evPlace                     // its lane has a place for it
	evDone                      // the operation under way has ended
	evWritten                   // the status it waited for was written, or not
	evDue                       // its wait is over
	evQuiet                     // the task shuts down
	lifeEvents
)

var lifeEventNames = [lifeEvents]string{"start", "cancel", "stop", "remove", "maintain", "reset", "profile", "place", "done", "written", "due", "quiet"}

func (v lifeEvent) String() string { return lifeEventNames[v] }

// A transition is what is done when something happens in a life, or why
// nothing is.
type transition struct {
	do  func(e *engine, u *unit, m *message)
	why string // set when do is nil
}

func on(do func(e *engine, u *unit, m *message)) transition { return transition{do: do} }
func not(why string) transition                             { return transition{why: why} }

// lifeTable is the life cycle: every life against every event. It is filled
// by init, for what it calls fires events again.
var lifeTable [lives][lifeEvents]transition

func init() {
	const (
		busy     = "one operation a machine at a time; it is decided anew when that ends"
		noWait   = "it waits for nothing that could come due"
		noOp     = "no operation of its own is under way"
		noPlace  = "it asks for no place"
		noStart  = "no start is under way"
		noStatus = "it waits for no status"
		nothing  = "there is nothing to let go of"
		mustEnd  = "what is under way may leave something behind, so it is seen to its end"
		same     = "it is on its way already"
	)
	all := func(why string) (row [lifeEvents]transition) {
		for v := range row {
			row[v] = not(why)
		}
		return row
	}
	row := func(base string, cells map[lifeEvent]transition) (row [lifeEvents]transition) {
		row = all(base)
		row[evPlace], row[evDone], row[evWritten], row[evDue] = not(noPlace), not(noOp), not(noStatus), not(noWait)
		row[evCancel], row[evQuiet] = not(noStart), not(nothing)
		for v, t := range cells {
			row[v] = t
		}
		return row
	}
	lifeTable = [lives][lifeEvents]transition{
		lifeResting: row(busy, map[lifeEvent]transition{
			evStart: on(queueStart), evStop: on(queueStop), evRemove: on(queueRemove), evMaintain: on(queueUpkeep), evReset: on(resetStatus),
			evProfile: on(queueProfile),
		}),
		lifeFailed: row(busy, map[lifeEvent]transition{
			evStart: not("a failed machine waits for a retry signal"), evStop: on(queueStop), evRemove: on(queueRemove),
			evMaintain: on(queueUpkeep), evReset: on(resetStatus), evProfile: not("it has no instance whose profiles could be changed"),
		}),
		lifeQueued: row(busy, map[lifeEvent]transition{
			evStart: not(same), evCancel: on(dropStart), evPlace: on(placeGot), evQuiet: on(dropStart),
		}),
		lifeAnnouncing: row(busy, map[lifeEvent]transition{
			evStart: not(same), evCancel: on(dropStart), evWritten: on(joinBatch), evQuiet: on(dropStart),
		}),
		lifePreparing: row(busy, map[lifeEvent]transition{
			evStart: not(same), evCancel: on(dropStart), evDone: on(preparedOne), evQuiet: on(dropStart),
		}),
		lifeDeriving: row(busy, map[lifeEvent]transition{
			evStart: not(same), evCancel: on(cancelOp), evDone: on(derived), evQuiet: on(cancelOp),
		}),
		lifeStarting: row(busy, map[lifeEvent]transition{
			evStart: not(same), evCancel: on(cancelOp), evDone: on(attemptEnded), evQuiet: not(mustEnd),
		}),
		lifeSearching: row(busy, map[lifeEvent]transition{
			evStart: not(same), evCancel: on(cancelSearch), evPlace: on(find), evDone: on(found), evDue: on(lookUp), evQuiet: on(quietSearch),
		}),
		lifeWaiting: row(busy, map[lifeEvent]transition{
			evStart: not(same), evCancel: on(dropStart), evDue: on(waitOver), evQuiet: on(dropStart),
		}),
		lifeConfirming: row(busy, map[lifeEvent]transition{
			evStart: not(same), evCancel: on(noteCancel), evDone: on(confirmed), evDue: on(confirmAgain), evQuiet: not(mustEnd),
		}),
		lifeUndoing: row(busy, map[lifeEvent]transition{
			evStart: not(same), evCancel: on(noteCancel), evPlace: on(undo), evDone: on(undone), evDue: on(queueUndo), evQuiet: not(mustEnd),
		}),
		lifeStopping: row(busy, map[lifeEvent]transition{
			evStop: not(same), evPlace: on(stop), evDone: on(stopped), evDue: on(decideAgain), evQuiet: on(letGo),
		}),
		lifeRemoving: row(busy, map[lifeEvent]transition{
			evRemove: not(same), evPlace: on(remove), evDone: on(removed), evDue: on(decideAgain), evQuiet: on(letGo),
		}),
		lifeResetting: row(busy, map[lifeEvent]transition{
			evReset: not(same), evWritten: on(resetDone), evQuiet: on(letGo),
		}),
		lifeMaintaining: row(busy, map[lifeEvent]transition{
			evMaintain: not(same), evPlace: on(maintain), evDone: on(maintained), evQuiet: on(letGo),
		}),
		lifeProfiling: row(busy, map[lifeEvent]transition{
			evProfile: not(same), evPlace: on(changeProfile), evDone: on(profiled), evWritten: on(profileShown), evQuiet: on(letGo),
		}),
	}
}

// quiet says whether nothing is under way in that life.
func (l life) quiet() bool { return l == lifeResting || l == lifeFailed }

// fire does what the table says.
func (e *engine) fire(u *unit, v lifeEvent, m *message) {
	if t := lifeTable[u.life][v]; t.do != nil {
		t.do(e, u, m)
	}
}

// enter changes the life of a unit. Resting means that nothing of it is left
// under way, so what came meanwhile is looked at now (LD6).
func (e *engine) enter(u *unit, l life) {
	was := u.life
	e.lives[was]--
	e.lives[l]++
	if u.life = l; l == lifeResting {
		delete(e.astir, u)
	} else {
		e.astir[u] = struct{}{}
	}
	if was == lifeProfiling {
		e.freeProfiles(u)
	}
	switch {
	case l.quiet():
		e.agenda.Drop(&u.item)
		e.ceased(u)
		e.profileAgain(u)
	case was.quiet():
		e.begun(u)
	}
}

// rest ends what was under way for a unit.
func (e *engine) rest(u *unit) {
	e.enter(u, lifeResting)
	if u.has(flagGone) {
		e.forget(u)
		return
	}
	e.consider(u)
}

// decideAgain: its wait is over; the facts may have changed.
func decideAgain(e *engine, u *unit, _ *message) { e.rest(u) }

// letGo: nothing is under way yet, so nothing is begun; what is under way ends.
func letGo(e *engine, u *unit, _ *message) {
	if u.op == nil {
		e.enter(u, lifeResting)
	}
}

// actionEvents turn a decision into an event of the life cycle.
var actionEvents = map[ActionKind]lifeEvent{
	ActionStart: evStart, ActionCancel: evCancel, ActionStop: evStop, ActionRemove: evRemove, ActionMaintain: evMaintain,
}

// consider decides about one unit and acts.
func (e *engine) consider(u *unit) {
	u.drop(flagDirty)
	if u.rec.Life == Dead {
		e.dead[u] = struct{}{}
	}
	if e.quiet || !e.look.loaded || !u.has(flagKnown) {
		return
	}
	s := e.situation(u)
	if s.host == hostNotReady || s.host == hostMissing {
		e.waitForHost(u)
	}
	a := decide(u.rec, s, e.policy)
	if a.Kind != ActionCancel && (u.op != nil || u.life != lifeResting && u.life != lifeFailed) {
		u.set(flagDirty)
		e.turnBack(u)
		return
	}
	if !e.allows(u, a) {
		e.passed(u, reasonOtherwise+a.Reason)
		return
	}
	e.tellDecision(u, a)
	e.showRunning(u)
	if v, ok := actionEvents[a.Kind]; ok {
		e.fire(u, v, nil)
	}
}

// turnBack lets go of a stop or a removal that waits for its turn, or to be
// tried again, and is no longer what is to be done (HV12), and of a change of
// profiles whose machine is dead.
func (e *engine) turnBack(u *unit) {
	if u.op == nil && u.life == lifeProfiling && u.rec.Life == Dead {
		u.profile.again = true
		e.rest(u)
		return
	}
	if u.op != nil || u.life != lifeStopping && u.life != lifeRemoving {
		return
	}
	if u.life == lifeStopping != (e.anew(u).Kind == ActionStop) {
		e.rest(u)
	}
}

func (e *engine) decide(u *unit) Action { return decide(u.rec, e.situation(u), e.policy) }

// anew is what would be decided about a unit if nothing were under way.
func (e *engine) anew(u *unit) Action {
	s := e.situation(u)
	s.phase = PhaseResting
	return decide(u.rec, s, e.policy)
}

// situation is what decide looks at besides the record.
func (e *engine) situation(u *unit) situation {
	s := situation{phase: lifePhases[u.life], canEnsureDead: e.cfg.life, canMaintain: e.cfg.maintainer}
	if u.life == lifeStarting && u.op.phase == phaseLimit {
		s.phase = PhasePreparing // the broker has not been asked yet
	}
	if u.rec.Life == Dead && u.rec.Instance != "" {
		if u.has(flagSettled) {
			s.settled = true
		}
		s.kept = e.reaper.keptBy(u.rec.Instance, u.rec.ID)
		s.rival = rivalOf(u.rec, func(yield func(Machine) bool) {
			for c := e.claims[u.rec.Instance]; c != nil; c = c.nextClaim {
				if c != u && !yield(c.rec) {
					return
				}
			}
			for _, m := range e.look.suspects {
				if m.Instance == u.rec.Instance && m.ID != u.rec.ID && !yield(m) {
					return
				}
			}
		})
	}
	if host := u.rec.ID.Host(); host != "" {
		s.host = e.hostState(host)
	}
	return s
}

// hostState is the engine's form of planner.hostState.
func (e *engine) hostState(host MachineID) hostState {
	h := e.units[host]
	switch {
	case h != nil && h.has(flagKnown):
		return hostStateOf(h.rec)
	case h != nil && h.has(flagNamed):
		return hostNotReady
	}
	for _, n := range e.depths[:min(len(e.depths), host.depth()+1)] {
		if n > 0 {
			return hostMissing
		}
	}
	return hostReady
}

// named counts a unit in its depth once a reading has named it.
func (e *engine) named(u *unit) {
	if u.has(flagNamed) {
		return
	}
	u.set(flagNamed)
	d := u.rec.ID.depth()
	for len(e.depths) <= d {
		e.depths = append(e.depths, 0)
	}
	e.depths[d]++
}

func (e *engine) waitForHost(u *unit) {
	host := u.rec.ID.Host()
	if !slices.Contains(e.children[host], u) {
		e.children[host] = append(e.children[host], u)
	}
}

func (e *engine) waitNoMore(u *unit) {
	host := u.rec.ID.Host()
	waiting := slices.DeleteFunc(e.children[host], func(c *unit) bool { return c == u })
	if e.children[host] = waiting; len(waiting) == 0 {
		delete(e.children, host)
	}
}

// hostReady decides anew about the containers that waited for their host.
func (e *engine) hostReady(host *unit) {
	if hostStateOf(host.rec) != hostNotReady {
		e.wakeChildren(host.rec.ID)
	}
}

func (e *engine) wakeChildren(host MachineID) {
	waiting := e.children[host]
	delete(e.children, host)
	for _, u := range waiting {
		if e.knows(u) {
			e.consider(u)
		}
	}
}

// tellDecision tells why a machine is left alone, or its instance kept, once.
func (e *engine) tellDecision(u *unit, a Action) {
	switch {
	case a.Fate == FateKept || a.Fate == FateSpared:
		e.reaper.spare(u.rec, a.Fate)
		if !u.has(flagToldKept) {
			u.set(flagToldKept)
			e.tell(Event{Kind: EventKept, Machine: u.rec.ID, Instance: u.rec.Instance, Text: a.Reason})
		}
		return
	case a.Kind != ActionLeave:
		u.told = ""
		return
	case a.LookAgain || a.Err != nil:
		next := e.lookAgain(u, a.LookAgain)
		if a.Err != nil && a.Reason != u.told {
			e.tell(Event{Kind: EventMachineFailed, Machine: u.rec.ID, Instance: u.rec.Instance, Err: a.Err, Next: next})
		}
		e.settled(u, Result{Kind: ActionLeave, Reason: a.Reason, Err: a.Err})
	case a.Reason != u.told && (u.rec.Instance == "" || u.rec.Life != Alive):
		e.tell(Event{Kind: EventLeft, Machine: u.rec.ID, Instance: u.rec.Instance, Text: a.Reason})
	}
	u.told = a.Reason
}

// unitOf finds or makes the unit of an id.
func (e *engine) unitOf(id MachineID) *unit {
	u := e.units[id]
	if u == nil {
		u = &unit{rec: Machine{ID: id}}
		if e.look.loaded && !e.reading() {
			u.set(flagFresh)
		}
		if n := len(e.free); n > 0 {
			u.slot, e.free = e.free[n-1], e.free[:n-1]
		} else {
			u.slot = int32(len(e.bySlot))
			e.bySlot = append(e.bySlot, nil)
		}
		e.bySlot[u.slot] = u
		e.ledger.place(u.slot, noZone)
		e.units[id] = u
		e.lives[lifeResting]++
		e.takeSlot(u)
	}
	return u
}

// knows says whether a unit was not forgotten, whatever its id stands for now.
func (e *engine) knows(u *unit) bool { return e.bySlot[u.slot] == u }

// forget drops everything that is known of a machine (LD3).
func (e *engine) forget(u *unit) {
	if !e.knows(u) {
		return
	}
	e.unclaim(u)
	e.ledger.leave(u.slot)
	e.bySlot[u.slot] = nil
	e.free = append(e.free, u.slot)
	e.forgotten++
	e.agenda.Drop(&u.item)
	e.ceased(u)
	e.waitNoMore(u)
	if u.reread != nil {
		e.agenda.Drop(&u.reread.item)
	}
	if u.shown != nil {
		e.agenda.Drop(&u.shown.item)
	}
	e.dropProfile(u)
	e.leaveSlot(u)
	delete(e.units, u.rec.ID)
	e.bury(u.rec.ID)
	e.lives[u.life]--
	delete(e.astir, u)
	delete(e.dead, u)
	u.life = lifeResting // what still waits in a lane wants nothing any more
	e.obscure(u, false)
	if u.has(flagNamed) {
		e.depths[u.rec.ID.depth()]--
	}
	if u.has(flagKnown) {
		e.tell(Event{Kind: EventForgotten, Machine: u.rec.ID})
	}
	e.wakeChildren(u.rec.ID)
	e.rivals(u.rec.Instance, u)
	if u.rec.Life != Alive && u.rec.Instance == "" {
		e.bare(u)
	}
}

func (e *engine) claim(u *unit) {
	if u.rec.Instance != "" {
		u.nextClaim = e.claims[u.rec.Instance]
		e.claims[u.rec.Instance] = u
		e.holdBack(u.rec.Instance)
	}
}

func (e *engine) unclaim(u *unit) {
	if u.rec.Instance == "" {
		return
	}
	head := e.claims[u.rec.Instance]
	switch {
	case head == u && u.nextClaim == nil:
		delete(e.claims, u.rec.Instance)
	case head == u:
		e.claims[u.rec.Instance] = u.nextClaim
	default:
		for c := head; c != nil; c = c.nextClaim {
			if c.nextClaim == u {
				c.nextClaim = u.nextClaim
				break
			}
		}
	}
	u.nextClaim = nil
}

// rivals decides anew about the other dead machines that share an instance:
// what has become of the unit may be what they waited for.
func (e *engine) rivals(id InstanceID, but *unit) {
	if id == "" {
		return
	}
	var dead []*unit
	for c := e.claims[id]; c != nil; c = c.nextClaim {
		if c != but && c.rec.Life == Dead {
			dead = append(dead, c)
		}
	}
	for _, u := range dead {
		e.consider(u)
	}
}
