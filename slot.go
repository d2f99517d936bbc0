package provisioner

import (
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/internal/agenda"
	"github.com/seed81ba69f2/provisioner/internal/lane"
)

// shown is the one status slot of a machine (ST20): one write is under way at
// a time, the latest text wins, and none follows the final one of a start.
type shown struct {
	unit   *unit
	op     *op // the write under way
	late   bool
	want   StatusUpdate
	wanted bool
	kind   showKind // of want, or of what is being written
	final  bool     // the start has had its last word
	tries  uint8
	item   agenda.Item[due]
}

// showKind is what a text is to its start.
type showKind uint8

const (
	showPlain showKind = iota
	showFirst          // the start waits for it to be written
	showFinal          // nothing of the start comes after it; tried again until written
	showReset          // of a retry or a profile change; the machine waits for it
)

// show writes a status as soon as the slot is free. It returns false if nobody
// can be shown anything, or nothing may come after the final word.
func (e *engine) show(u *unit, up StatusUpdate, kind showKind) bool {
	if !e.cfg.status {
		return false
	}
	if u.shown == nil {
		u.shown = &shown{unit: u}
	}
	s := u.shown
	if kind == showFirst || kind == showReset {
		s.final = false
	}
	if s.final {
		return false
	}
	up.Machine = u.rec.ID
	queued := s.wanted && s.op == nil
	s.want, s.wanted, s.kind, s.tries = up, true, kind, 0
	s.final = kind == showFinal
	e.agenda.Drop(&s.item)
	switch {
	case s.op != nil:
		// A write that hangs holds the slot but not the machine.
		return !s.late
	case !queued || kind == showFirst:
		e.writeShown(s)
	}
	return true
}

// maxWrites bounds how many statuses are written at once: a retry signal, or
// zones that go down, may bring one for each machine of a large fleet.
const maxWrites = 64

// writeShown writes what is wanted as soon as there is a place. What a start
// waits for is written at once: the start has a place.
func (e *engine) writeShown(s *shown) {
	if s.wanted = true; s.kind == showFirst {
		e.beginWrite(s, nil)
		return
	}
	e.writes.Push("", s.unit)
	e.pumpWrites()
}

func (e *engine) pumpWrites() {
	for {
		u, ok := e.writes.Pop(func(u *unit) bool {
			return u.shown != nil && u.shown.wanted && u.shown.op == nil && e.knows(u)
		})
		if !ok {
			break
		}
		e.beginWrite(u.shown, &e.writes)
	}
}

// dropWrites gives up the statuses that wait for a place, at the end of the
// grace.
func (e *engine) dropWrites() {
	if e.writes.Waiting() == 0 {
		return
	}
	waiting := map[*unit]struct{}{}
	for _, u := range e.units {
		if u.shown != nil && u.shown.wanted && u.shown.op == nil {
			waiting[u] = struct{}{}
		}
	}
	for _, u := range sortedUnits(waiting) {
		u.shown.wanted = false
		e.tell(Event{Kind: EventStatusFailed, Machine: u.rec.ID, Text: u.shown.want.Text, Err: errShutdown})
		e.endShow(u)
	}
}

func (e *engine) beginWrite(s *shown, place *lane.Lane[*unit]) {
	s.wanted = false
	s.op = &op{kind: opStatus, unit: s.unit, req: s.want, lane: place}
	e.begin(s.op)
}

// showRunning mends the status of a machine whose last word was lost, by a
// crash between its record and its status (ST8).
func (e *engine) showRunning(u *unit) {
	lost := u.rec.InstanceStatus == InstanceAllocating && !u.rec.Unread.Has(FieldInstanceStatus)
	if lost && u.rec.Life == Alive && u.rec.Instance != "" && !u.rec.Unread.Has(FieldInstance) && u.shown == nil {
		e.show(u, StatusUpdate{InstanceStatus: InstanceRunning}, showPlain)
	}
}

// due of a slot: a final word that was not written is tried again.
func (s *shown) due(e *engine) {
	if s.op == nil && !e.quiet {
		e.writeShown(s)
	}
}

func (e *engine) statusWritten(o *op, m *message) {
	u := o.unit
	s := u.shown
	if s == nil || s.op != o {
		return
	}
	s.op, s.late = nil, false
	if m.err != nil {
		e.tell(Event{Kind: EventStatusFailed, Machine: u.rec.ID, Text: o.req.(StatusUpdate).Text, Err: m.err})
	}
	if e.writing[u.rec.ID] == s {
		delete(e.writing, u.rec.ID)
		return
	}
	if s.wanted {
		e.writeShown(s)
		return
	}
	switch {
	case s.kind == showFirst || s.kind == showReset:
		e.fire(u, evWritten, &message{err: m.err})
	case s.kind == showFinal && m.err != nil && !e.quiet && e.knows(u):
		s.item.Value = s
		e.agenda.Set(&s.item, e.now.Add(e.backoff(&s.tries)))
		return
	}
	e.endShow(u)
}

// statusLate: a write hangs. It keeps the slot; the machine goes on.
func (e *engine) statusLate(o *op) {
	s := o.unit.shown
	if s == nil || s.op != o {
		return
	}
	s.late = true
	e.tell(Event{Kind: EventStatusFailed, Machine: o.unit.rec.ID, Text: o.req.(StatusUpdate).Text, Err: ErrTimedOut})
	if s.kind == showFirst || s.kind == showReset {
		e.fire(o.unit, evWritten, &message{err: ErrTimedOut})
	}
}

// leaveSlot keeps the slot of a machine that is forgotten while it is written:
// a new one of that name takes it over.
func (e *engine) leaveSlot(u *unit) {
	if u.shown != nil && u.shown.op != nil {
		e.writing[u.rec.ID] = u.shown
	}
}

func (e *engine) takeSlot(u *unit) {
	if s := e.writing[u.rec.ID]; s != nil {
		delete(e.writing, u.rec.ID)
		*s = shown{unit: u, op: s.op, late: s.late}
		s.op.unit, u.shown = u, s
	}
}

// endShow forgets a slot that is not used any more.
func (e *engine) endShow(u *unit) {
	if s := u.shown; s != nil && s.op == nil && !s.wanted && !s.item.On() && u.start == nil {
		u.shown = nil
	}
}

// reported: a broker shows progress of a start that is under way.
func (e *engine) reported(m *message) {
	if u := m.op.unit; u.op == m.op && u.life == lifeStarting && !e.quiet {
		e.show(u, *m.update, showPlain)
	}
}

// retryState is where the retry signal stands.
type retryState struct {
	op    *op
	again bool // signals coalesce
}

// retrySignal asks which failed machines are to be tried again (ST16).
func (e *engine) retrySignal() {
	switch {
	case e.quiet:
	case !e.cfg.retries:
		e.tell(Event{Kind: EventRetrySkipped, Text: "the state cannot list machines to be tried again"})
	case e.retry.op != nil || !e.look.loaded || e.clogged(opRetries):
		e.retry.again = true
	default:
		e.seq++
		e.retry.op = &op{kind: opRetries, seq: e.seq}
		e.begin(e.retry.op)
	}
}

func (e *engine) retriesRead(m *message) {
	e.retry.op = nil
	if e.quiet {
		return
	}
	if m.err != nil {
		e.tell(Event{Kind: EventCallFailed, Text: m.op.kind.String(), Err: m.err})
	}
	results, _ := m.result.([]MachineResult)
	for i := range results {
		e.retryOne(&results[i], m.op.seq)
	}
	e.retryAgain()
}

// retryAgain serves a signal that came too early.
func (e *engine) retryAgain() {
	if e.retry.again && e.retry.op == nil && e.look.loaded && !e.clogged(opRetries) {
		e.retry.again = false
		e.retrySignal()
	}
}

func (e *engine) retryOne(r *MachineResult, seq uint64) {
	skip := func(text string, err error) {
		e.tell(Event{Kind: EventRetrySkipped, Machine: r.ID, Text: text, Err: err})
	}
	if err := checkResult(r); err != nil {
		skip("", err)
		return
	}
	u := e.units[r.ID]
	switch {
	case u == nil || !u.has(flagKnown):
		skip("not known yet; it is looked at now", nil)
		e.changed([]MachineID{r.ID})
	case u.op != nil || u.life != lifeResting && u.life != lifeFailed:
		skip("busy: "+u.life.String(), nil)
	case seq < u.seq:
		skip("its record has changed since", nil)
	case r.Machine.Life != Alive:
		skip(string(r.Machine.Life), nil)
	case r.Machine.Instance != "" || r.Machine.Unread.Has(FieldInstance):
		skip("provisioned", nil)
	default:
		u.seq = seq
		e.applyRecord(u, r.Machine)
		e.fire(u, evReset, nil)
	}
}

// resetStatus makes a failed machine pending again, in the state too.
func resetStatus(e *engine, u *unit, _ *message) {
	e.enter(u, lifeResetting)
	if u.shown != nil && u.shown.late {
		e.fire(u, evWritten, &message{err: errors.New("an earlier status is still being written")})
		return
	}
	if !e.show(u, StatusUpdate{Status: StatusPending, InstanceStatus: InstanceAllocating}, showReset) {
		e.fire(u, evWritten, &message{})
	}
}

func resetDone(e *engine, u *unit, m *message) {
	if m.err != nil || e.quiet {
		reason := "its status could not be reset"
		e.tell(Event{Kind: EventRetrySkipped, Machine: u.rec.ID, Text: reason, Err: m.err})
		if u.failed != nil {
			e.enter(u, lifeFailed)
		} else {
			e.enter(u, lifeResting)
		}
		e.catchUp(u)
		return
	}
	u.failed = nil
	u.drop(flagFailSeen)
	u.set(flagAsked)
	u.rec.Status, u.rec.InstanceStatus = StatusPending, InstanceAllocating
	e.seq++
	u.seq = e.seq
	if u.has(flagReading) {
		e.read(u) // once more, for what is under way began before
	}
	e.tell(Event{Kind: EventRetryReset, Machine: u.rec.ID})
	e.rest(u)
}
