package provisionertest

import (
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// A Fault is something that is to go wrong. It is data: see [ParseFault] for
// its text.
type Fault struct {
	// Which calls: those of this kind (AnyCall: all) that are about this
	// machine, zone and instance (empty: any). A bulk call is about each of
	// its machines, a listing and a fleet about everything, a stop about its
	// instances, their machines and zones.
	Call     Call
	Machine  provisioner.MachineID
	Zone     provisioner.ZoneName
	Instance provisioner.InstanceID

	// Nth is the first of the matching calls that is hit. Defaults to 1.
	Nth int
	// Count is how many are hit from there on. Defaults to 1; Always.
	Count int

	// After: the call has its effect first.
	After bool

	// What goes wrong. Must be set.
	What Trouble
	// For is how long a TroubleDelay takes; how long TroubleStuck ignores the
	// context (0: until World.Release); what MarkRetryAfter asks for.
	For time.Duration
	// Mark says what kind of error a TroubleError is. Empty: none in particular.
	Mark Mark
	// Text is that of the error or panic. Defaults to "scripted trouble".
	Text string
	// Err is the error, where Mark and Text can't say it. It has no text form.
	Err error
}

// Always is the value of Fault.Count for "every time".
const Always = -1

// Trouble is what goes wrong.
type Trouble string

// The kinds of trouble. Those from TroubleMissing on twist a result that is otherwise
// good; in which calls, each says.
const (
	// TroubleError: the call fails. Where the fault names a machine, a bulk call
	// fails for that machine only; where it names a machine, zone or instance,
	// a stop fails for those instances only.
	TroubleError Trouble = "error"
	// TroubleDelay: the call takes so much longer, unless its context ends.
	TroubleDelay Trouble = "delay"
	// TroublePanic: the call panics.
	TroublePanic Trouble = "panic"
	// TroubleGoexit: the call ends its goroutine.
	TroubleGoexit Trouble = "goexit"
	// TroubleHang: the call waits until its context ends.
	TroubleHang Trouble = "hang"
	// TroubleStuck: the call ignores its context until World.Release, or for a time,
	// and goes on.
	TroubleStuck Trouble = "stuck"

	// TroubleMissing: the result for Fault.Machine, Instance or Zone is left out, or
	// the first one. Bulk calls, list, find, zones.
	TroubleMissing Trouble = "missing"
	// TroubleDouble: that result is there twice. Bulk calls, list, find, zones.
	TroubleDouble Trouble = "double"
	// TroubleForeign: there is one more, for something nobody asked for. Bulk calls,
	// list, find, zones.
	TroubleForeign Trouble = "foreign"
	// TroublePartial: Fault.Zone did not answer, or, without one, every other
	// instance is missing from a listing that says it isn't complete. List, find.
	TroublePartial Trouble = "partial"
	// TroubleEmpty: the result has no instance, and none was made, unless After. Start.
	TroubleEmpty Trouble = "empty"
	// TroubleAstray: the instance is made in another zone than asked. Start.
	TroubleAstray Trouble = "astray"
)

// troubles are all of them; those that end a call before it is made or after,
// or only slow it down, come first.
var troubles = []Trouble{TroubleError, TroubleDelay, TroublePanic, TroubleGoexit, TroubleHang, TroubleStuck,
	TroubleMissing, TroubleDouble, TroubleForeign, TroublePartial, TroubleEmpty, TroubleAstray}

// Mark says what kind of error a TroubleError is.
type Mark string

// The marks: those of package provisioner, then those of the host's state.
const (
	MarkZoneIndependent Mark = "zone-independent"
	MarkPermanent       Mark = "permanent"
	MarkCapacity        Mark = "capacity"
	MarkAmbiguous       Mark = "ambiguous"
	MarkExists          Mark = "exists"
	MarkDenied          Mark = "denied" // provisioner.Unauthorized
	MarkQuota           Mark = "quota"
	MarkRetryAfter      Mark = "retry-after" // with Fault.For

	MarkNotFound       Mark = "not-found"
	MarkUnauthorized   Mark = "unauthorized"
	MarkNotValid       Mark = "not-valid"
	MarkNotImplemented Mark = "not-implemented"
	MarkNotSupported   Mark = "not-supported"
	MarkTimeout        Mark = "timeout"
)

var marks = []Mark{MarkZoneIndependent, MarkPermanent, MarkCapacity, MarkAmbiguous, MarkExists, MarkDenied, MarkQuota,
	MarkRetryAfter, MarkNotFound, MarkUnauthorized, MarkNotValid, MarkNotImplemented, MarkNotSupported, MarkTimeout}

// put gives err the mark.
func (m Mark) put(err error, after time.Duration) error {
	switch m {
	case MarkZoneIndependent:
		return provisioner.ZoneIndependent(err)
	case MarkPermanent:
		return provisioner.Permanent(err)
	case MarkCapacity:
		return provisioner.OutOfCapacity(err)
	case MarkAmbiguous:
		return provisioner.Ambiguous(err)
	case MarkExists:
		return provisioner.AlreadyExists(err)
	case MarkDenied:
		return provisioner.Unauthorized(err)
	case MarkQuota:
		return provisioner.Quota(err)
	case MarkRetryAfter:
		return provisioner.RetryAfter(err, after)
	case MarkNotFound:
		return errors.WithType(err, errors.NotFound)
	case MarkUnauthorized:
		return errors.WithType(err, errors.Unauthorized)
	case MarkNotValid:
		return errors.WithType(err, errors.NotValid)
	case MarkNotImplemented:
		return errors.WithType(err, errors.NotImplemented)
	case MarkNotSupported:
		return errors.WithType(err, errors.NotSupported)
	case MarkTimeout:
		return errors.WithType(err, errors.Timeout)
	}
	return err
}

// error is the error that the fault causes.
func (f Fault) error() error {
	if f.Err != nil {
		return f.Err
	}
	return f.Mark.put(errors.New(f.message()), f.For)
}

func (f Fault) message() string {
	if f.Text == "" {
		return "scripted trouble"
	}
	return f.Text
}

// Validate returns a NotValid error that names the field at fault.
func (f Fault) Validate() error {
	switch {
	case f.Call != AnyCall && !slices.Contains(brokerCalls, f.Call) && !slices.Contains(stateCalls, f.Call):
		return errors.NotValidf("fault call %q: want one of %s, or * for any:", string(f.Call), words(Calls()))
	case !slices.Contains(troubles, f.What):
		return errors.NotValidf("fault trouble %q: want one of %s:", string(f.What), words(troubles))
	case f.Mark != "" && !slices.Contains(marks, f.Mark):
		return errors.NotValidf("fault mark %q: want one of %s:", string(f.Mark), words(marks))
	case f.Mark != "" && f.What != TroubleError:
		return errors.NotValidf("fault mark %q with trouble %s: want it with error only:", string(f.Mark), f.What)
	case f.Nth < 0:
		return errors.NotValidf("fault nth %d: want 1 or more, or 0 for the default:", f.Nth)
	case f.Count < Always:
		return errors.NotValidf("fault count %d: want 1 or more, Always, or 0 for the default:", f.Count)
	case f.For < 0:
		return errors.NotValidf("fault duration %v: want 0 or more:", f.For)
	case f.What == TroubleDelay && f.For == 0:
		return errors.NotValidf("fault delay without a duration: want delay 5s or the like:")
	}
	return nil
}

// Inject scripts faults. Each counts the calls that match it from now on; those
// that hit the same call happen in the order in which they were scripted. The
// error is that of the first fault that isn't valid; then none is scripted.
func (w *World) Inject(faults ...Fault) error {
	for _, f := range faults {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range faults {
		w.deed("fault %s", f)
		w.faults = append(w.faults, &scripted{Fault: f})
	}
	w.setPlain()
	return nil
}

// ClearFaults forgets every scripted fault. Calls that are in one stay in it.
func (w *World) ClearFaults() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deed("faults cleared")
	w.faults = nil
	w.setPlain()
}

// Unused lists the scripted faults that have hit no call.
func (w *World) Unused() []Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	var unused []Fault
	for _, f := range w.faults {
		if f.hits == 0 {
			unused = append(unused, f.Fault)
		}
	}
	return unused
}

// scripted is a fault and its counts.
type scripted struct {
	Fault
	matched, hits int
}

// strikes counts a call that matches, and says whether it is hit.
func (f *scripted) strikes() bool {
	f.matched++
	first := max(f.Nth, 1)
	if f.matched < first || f.Count != Always && f.matched >= first+max(f.Count, 1) {
		return false
	}
	f.hits++
	return true
}

// hit finds the faults that hit a call, and counts.
func (w *World) hit(c *call) []*scripted {
	var hits []*scripted
	for _, f := range w.faults {
		if !w.concerns(f.Fault, c) {
			continue
		}
		if f.strikes() {
			hits = append(hits, f)
		}
	}
	return hits
}

// concerns says whether a call is one of those that the fault is for.
func (w *World) concerns(f Fault, c *call) bool {
	switch {
	case f.Call != AnyCall && f.Call != c.kind:
		return false
	case f.Machine == "" && f.Zone == "" && f.Instance == "":
		return true
	case c.kind == CallStop:
		return slices.ContainsFunc(c.instances, func(id provisioner.InstanceID) bool { return w.concernsInstance(f, id) })
	}
	return w.concernsMachine(f, c) && concernsZone(f, c) && concernsOneInstance(f, c)
}

// concernsInstance: so much of the fault as says anything of an instance.
func (w *World) concernsInstance(f Fault, id provisioner.InstanceID) bool {
	if f.Instance != "" && f.Instance != id {
		return false
	}
	i := w.instances[id]
	if i == nil {
		return f.Machine == "" && f.Zone == ""
	}
	return (f.Machine == "" || f.Machine == i.machine) && (f.Zone == "" || f.Zone == i.zone)
}

func (w *World) concernsMachine(f Fault, c *call) bool {
	if f.Machine == "" || f.Machine == c.machine || slices.Contains(c.machines, f.Machine) {
		return true
	}
	return c.kind == CallFleet || c.kind == CallRetries || c.kind == CallList
}

func concernsZone(f Fault, c *call) bool {
	return f.Zone == "" || f.Zone == c.zone || c.kind == CallList || c.kind == CallFind || c.kind == CallZones
}

func concernsOneInstance(f Fault, c *call) bool {
	return f.Instance == "" || f.Instance == c.instance || slices.Contains(c.instances, f.Instance) ||
		c.kind == CallList || c.kind == CallFind
}
