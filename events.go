package provisioner

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/juju/errors"
)

// An EventKind names what happened. Names and the fields that go with them are
// part of the interface: they do not change. New kinds may come; an observer
// passes over those it does not know. docs/events.md lists all of them.
type EventKind string

// What can happen, and the fields of [Event] that are set besides Seq, At and
// Kind.
const (
	// EventLooked: a whole look at the fleet was applied. N: machines.
	EventLooked EventKind = "looked"
	// EventLeft: a machine was looked at and needs nothing now; told when the
	// reason changes. Machine, Text; Instance if it has one.
	EventLeft EventKind = "left"
	// EventMachineFailed: a machine's record is at fault or could not be read.
	// Machine, Err; Instance if it has one; Next when it is looked at again.
	EventMachineFailed EventKind = "machine-failed"
	// EventForgotten: a machine's record is gone. Machine.
	EventForgotten EventKind = "forgotten"

	// EventQueued: a machine waits for a place to start. Machine.
	EventQueued EventKind = "queued"
	// EventStarting: a machine has got its place. Machine.
	EventStarting EventKind = "starting"
	// EventAttempt: the broker is asked for an instance. Machine, Zone, Attempt.
	EventAttempt EventKind = "attempt"
	// EventAttemptFailed: it made none, or it was undone. Machine, Zone,
	// Attempt, Err; Next and Text if it is tried again.
	EventAttemptFailed EventKind = "attempt-failed"
	// EventSearching: it is looked for what earlier attempts may have made.
	// Machine, Attempt; Err of the last attempt if that is the reason.
	EventSearching EventKind = "searching"
	// EventAdopted: an instance that was there already is recorded as the
	// machine's. Machine, Instance, Zone.
	EventAdopted EventKind = "adopted"
	// EventStarted: an instance runs and is recorded. Machine, Instance, Zone,
	// Attempt.
	EventStarted EventKind = "started"
	// EventStartFailed: a start was given up. Machine, Err, often a *StartError;
	// Attempt, the last, if any was made.
	EventStartFailed EventKind = "start-failed"
	// EventStartCancelled: a start was dropped because its machine no longer
	// wants it, or for shutdown. Machine, Text; Err if an instance may have
	// been made.
	EventStartCancelled EventKind = "start-cancelled"
	// EventZonesOut: no zone can be used now; waited for. Machine, Text, Next.
	EventZonesOut EventKind = "zones-out"
	// EventRecordFailed: an instance is there but could not be written down.
	// Machine, Instance, Err; Next when its record is read again.
	EventRecordFailed EventKind = "record-failed"
	// EventProfilesUnread: the broker could not tell which profiles a container
	// has; those asked for are recorded. Machine, Instance, Err.
	EventProfilesUnread EventKind = "profiles-unread"
	// EventOrphan: an instance that could not be recorded could not be stopped
	// either; tried again. Machine, Instance, Err, Next.
	EventOrphan EventKind = "orphan"
	// EventUndone: an instance that could not be recorded, or is not wanted
	// any more, was stopped. Machine, Instance.
	EventUndone EventKind = "undone"

	// EventStopping: an instance of a dead machine is being stopped. Machine,
	// Instance.
	EventStopping EventKind = "stopping"
	// EventStopped: it is stopped. Machine, Instance.
	EventStopped EventKind = "stopped"
	// EventStopFailed: it is not; tried again. Machine, Instance, Err, Next.
	EventStopFailed EventKind = "stop-failed"
	// EventKept: an instance outlives its record. Machine, Instance, Text.
	EventKept EventKind = "kept"
	// EventRemoved: the record of a dead machine was removed. Machine.
	EventRemoved EventKind = "removed"
	// EventRemoveFailed: it was not; tried again. Machine, Err, Next.
	EventRemoveFailed EventKind = "remove-failed"
	// EventUnknown: an instance that no machine claims was seen. It is told
	// once of each. Instance, Zone, Text what becomes of it.
	EventUnknown EventKind = "unknown"
	// EventMissing: a machine's recorded instance was not in the last N complete
	// listings. It is left as it is. Machine, Instance, N.
	EventMissing EventKind = "missing"
	// EventFrozen: more instances are unknown than is believed, or others than
	// before, so none of them is stopped (Task.Frozen). N: how many. Text.
	EventFrozen EventKind = "frozen"
	// EventThawed: that is over, or was approved. N: how many there were. Text
	// names the plan.
	EventThawed EventKind = "thawed"

	// EventReaping: an instance that is no machine's, or one too many of one, is
	// being stopped. Instance, Text; Machine if it was made for one.
	EventReaping EventKind = "reaping"
	// EventReaped: it is stopped. Instance; Machine as above.
	EventReaped EventKind = "reaped"
	// EventPardoned: it is left alone after all. Instance, Text why; Machine as
	// above.
	EventPardoned EventKind = "pardoned"
	// EventReapFailed: it is not; tried again. Instance, Err, Next; Machine as
	// above.
	EventReapFailed EventKind = "reap-failed"

	// EventMaintained: a container had its upkeep. Machine, Instance.
	EventMaintained EventKind = "maintained"
	// EventMaintainFailed: it had not. Machine, Instance, Err.
	EventMaintainFailed EventKind = "maintain-failed"
	// EventProfileChanged: the profiles of an instance were changed and recorded.
	// Machine, Instance, Text says what changed.
	EventProfileChanged EventKind = "profile-changed"
	// EventProfileFailed: they were not. Machine, Instance, Text, Err; Next if it
	// is tried again.
	EventProfileFailed EventKind = "profile-failed"
	// EventProfileLeft: a profile change was written off with the status word in
	// Text: "Not Required" or "Not Supported". Machine, Instance.
	EventProfileLeft EventKind = "profile-left"
	// EventStatusFailed: a status could not be written. Machine, Text, Err.
	EventStatusFailed EventKind = "status-failed"
	// EventRetryReset: a failed machine starts anew. Machine.
	EventRetryReset EventKind = "retry-reset"
	// EventRetrySkipped: a machine is passed over by a retry signal. Machine,
	// Text or Err.
	EventRetrySkipped EventKind = "retry-skipped"

	// EventZones: the list of zones was read. N: usable ones.
	EventZones EventKind = "zones"
	// EventZoneVanished: a zone is not listed, or no longer, and machines are in
	// it. Zone, N.
	EventZoneVanished EventKind = "zone-vanished"
	// EventZoneUnavailable: a zone is unavailable, and machines are in it. Zone,
	// N.
	EventZoneUnavailable EventKind = "zone-unavailable"
	// EventZoneCooling: a zone lacks room, and is passed over by machines of
	// one shape until Next. Zone, Text (the shape, as constraints), Err, Next.
	EventZoneCooling EventKind = "zone-cooling"
	// EventCallFailed: a call that is no single machine's failed; tried again.
	// Text names the call. Err, Next.
	EventCallFailed EventKind = "call-failed"
	// EventCallStuck: a call ignores that its time is over. Text names the
	// call, Machine whose it is.
	EventCallStuck EventKind = "call-stuck"
	// EventSettings: the harvest mode or the limits changed. Text.
	EventSettings EventKind = "settings"

	// EventShutdown: no new work is begun. N: calls still out.
	EventShutdown EventKind = "shutdown"
	// EventObserverFailed: an observer panicked and was cut off. N: its place
	// in Config.Observers, or -1 for Config.Trace. Err.
	EventObserverFailed EventKind = "observer-failed"
	// EventsDropped: an observer was too slow and missed N events here.
	EventsDropped EventKind = "events-dropped"
)

// An Event is one thing that happened. Which fields are set, its kind says.
type Event struct {
	Seq      uint64     // 1, 2, 3… for each Task; 0 for EventsDropped
	At       time.Time  // by Config.Clock
	Kind     EventKind  // what happened; never empty
	Machine  MachineID  // whose it is
	Instance InstanceID // the instance it is about
	Zone     ZoneName   // the zone it is about
	Attempt  int        // of the machine's start, from 1
	N        int        // how many, of what the kind says
	Next     time.Time  // when it is tried again; zero: not by itself
	Text     string     // for people, and may change
	Err      error      // what went wrong; branch on it by errors.Is and errors.As
}

// String gives the event in one line, without Seq and At.
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(string(e.Kind))
	if e.Machine != "" {
		fmt.Fprintf(&b, " machine=%s", e.Machine)
	}
	if e.Instance != "" {
		fmt.Fprintf(&b, " instance=%s", e.Instance)
	}
	if e.Zone != "" {
		fmt.Fprintf(&b, " zone=%s", e.Zone)
	}
	if e.Attempt != 0 {
		fmt.Fprintf(&b, " attempt=%d", e.Attempt)
	}
	if e.N != 0 {
		fmt.Fprintf(&b, " n=%d", e.N)
	}
	if !e.Next.IsZero() && !e.At.IsZero() {
		fmt.Fprintf(&b, " next=%s", shortWait(e.Next.Sub(e.At)))
	}
	if e.Text != "" {
		fmt.Fprintf(&b, " text=%q", e.Text)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, " err=%q", e.Err.Error())
	}
	return b.String()
}

// An Observer is told everything that happens, in order, by one goroutine at a
// time, off the Task's loop. One that is slow gets an EventsDropped in the
// place of what it missed; one that panics is cut off.
type Observer interface {
	Observe(Event)
}

// ObserverFunc makes an Observer of a function.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// feed is one observer's bounded queue. Its goroutine lives only while there
// is something to deliver, so nothing has to be closed.
type feed struct {
	to     Observer
	limit  int
	failed func(err error) // told once, when the observer panics

	behind atomic.Int64 // events that wait for it

	mu      sync.Mutex
	queue   []Event
	spare   []Event
	dropped Event // of the kind EventsDropped; N is 0 if none was
	missed  uint64
	running bool
	dead    bool
	idle    chan struct{} // closed when nothing is queued; nil while none waits
}

// put hands events over without waiting.
func (f *feed) put(events []Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return
	}
	for _, e := range events {
		if f.behind.Load() >= int64(f.limit) {
			f.dropped = Event{Kind: EventsDropped, At: e.At, N: f.dropped.N + 1}
			f.missed++
			continue
		}
		f.queueDropped()
		f.queue = append(f.queue, e)
		f.behind.Add(1)
	}
	if !f.running && len(f.queue) > 0 {
		f.running = true
		go f.run()
	}
}

// queueDropped puts what was missed in its place.
func (f *feed) queueDropped() {
	if f.dropped.N > 0 {
		f.queue = append(f.queue, f.dropped)
		f.behind.Add(1)
		f.dropped = Event{}
	}
}

func (f *feed) run() {
	done := false
	defer func() {
		// A panic and a Goexit of the observer both end here with work left.
		if !done {
			f.cutOff(recover())
		}
	}()
	for {
		f.mu.Lock()
		if len(f.queue) == 0 {
			f.queueDropped()
		}
		batch := f.queue
		f.queue, f.spare = f.spare[:0], nil
		if len(batch) == 0 {
			f.running, done = false, true
			f.release()
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		for _, e := range batch {
			f.behind.Add(-1)
			f.to.Observe(e)
		}
		f.recycle(batch)
	}
}

// recycle keeps the memory of a batch for the next.
func (f *feed) recycle(batch []Event) {
	clear(batch)
	f.mu.Lock()
	f.spare = batch
	f.mu.Unlock()
}

// cutOff ends a feed whose observer has panicked or ended its goroutine.
func (f *feed) cutOff(recovered any) {
	f.mu.Lock()
	f.running, f.dead, f.queue = false, true, nil
	f.release()
	f.mu.Unlock()
	err := errors.New("observer ended its goroutine")
	if recovered != nil {
		err = fmt.Errorf("observer panicked: %v", recovered)
	}
	f.failed(err)
}

func (f *feed) release() {
	if f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// drained returns a channel that is closed once nothing is queued.
func (f *feed) drained() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle == nil {
		f.idle = make(chan struct{})
		if !f.running {
			defer f.release()
		}
	}
	return f.idle
}
