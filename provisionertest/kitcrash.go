package provisionertest

import (
	"context"
	"slices"
	"sync"

	"github.com/juju/errors"
)

// A CrashPoint is a moment at which a process can end.
type CrashPoint string

// The crash points, in the order of a machine's life.
const (
	CrashBeforeIntent CrashPoint = "before intent" // an attempt is to be stored; without an IntentStore: to be made
	CrashAfterIntent  CrashPoint = "after intent"  // it is stored, and not made; without an IntentStore: as before
	CrashAfterStart   CrashPoint = "after start"   // the instance is made, and its caller hasn't heard of it
	CrashBeforeRecord CrashPoint = "before record" // the caller has
	CrashAfterRecord  CrashPoint = "after record"  // it is recorded, and the caller hasn't heard of that
	CrashMidStop      CrashPoint = "mid stop"      // the first half of the instances is stopped: of one, none
	CrashAfterStop    CrashPoint = "after stop"    // all are
	CrashMidRemoval   CrashPoint = "mid removal"   // the instance is gone, the record isn't
)

// CrashPoints lists them, in that order.
func CrashPoints() []CrashPoint {
	return []CrashPoint{CrashBeforeIntent, CrashAfterIntent, CrashAfterStart, CrashBeforeRecord, CrashAfterRecord,
		CrashMidStop, CrashAfterStop, CrashMidRemoval}
}

// A CrashingHost is a host until it is cut off from its Task. From then on
// every call, those under way too, waits until its context ends and fails: what
// it had not done by then it never does, and nobody hears what it has. So the
// Task is as one whose process was killed; end it, make another one from the
// host as it was, and see what that makes of what it finds.
//
// The Task's watchers aren't calls: give each Task its own.
type CrashingHost struct {
	Host

	point   CrashPoint
	intents bool
	crashed chan struct{}

	mu   sync.Mutex
	left int // times that the point is still to be reached
}

// ErrCutOff is the error of calls of a CrashingHost that is cut off.
const ErrCutOff = errors.ConstError("the host is cut off")

// CrashAt cuts a host off when it reaches a point for the n-th time, n from 1.
func CrashAt(h Host, point CrashPoint, n int) (*CrashingHost, error) {
	if !slices.Contains(CrashPoints(), point) {
		return nil, errors.NotValidf("crash point %q: want one of %s:", string(point), words(CrashPoints()))
	}
	if n < 1 {
		return nil, errors.NotValidf("crash point reached %d times: want 1 or more:", n)
	}
	found, _ := h.Optional.Find(h.Broker, h.State)
	c := &CrashingHost{point: point, intents: found.Intents != nil, crashed: make(chan struct{}), left: n}
	c.Host = Intercept(h, c.call)
	return c, nil
}

// Crashed is closed when the host is cut off.
func (c *CrashingHost) Crashed() <-chan struct{} { return c.crashed }

func (c *CrashingHost) isCrashed() bool {
	select {
	case <-c.crashed:
		return true
	default:
		return false
	}
}

// reached counts, and says whether it is time.
func (c *CrashingHost) reached(points []CrashPoint) bool {
	if !slices.Contains(points, c.point) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left--
	return c.left == 0
}

func (c *CrashingHost) call(ctx context.Context, h HostCall, do func(context.Context) error) error {
	if c.isCrashed() {
		return cutOff(ctx)
	}
	if c.reached(c.before(h)) {
		if h.stop != nil {
			if h.stop.Instances = h.stop.Instances[:len(h.stop.Instances)/2]; len(h.stop.Instances) > 0 {
				_ = do(ctx)
			}
		}
		close(c.crashed)
		return cutOff(ctx)
	}
	err := do(ctx)
	if err == nil && c.reached(c.after(h)) {
		close(c.crashed)
	}
	if c.isCrashed() {
		return cutOff(ctx)
	}
	return err
}

func cutOff(ctx context.Context) error {
	<-ctx.Done()
	return ErrCutOff
}

// before are the points that a call is at before it has an effect.
func (c *CrashingHost) before(h HostCall) []CrashPoint {
	switch {
	case h.Call == CallIntent && h.opens:
		return []CrashPoint{CrashBeforeIntent}
	case h.Call == CallStart && !c.intents:
		return []CrashPoint{CrashBeforeIntent, CrashAfterIntent}
	case h.Call == CallRecord:
		return []CrashPoint{CrashBeforeRecord}
	case h.Call == CallStop:
		return []CrashPoint{CrashMidStop}
	case h.Call == CallRemove:
		return []CrashPoint{CrashMidRemoval}
	}
	return nil
}

// after are the points that a call is at when it has had its effect.
func (c *CrashingHost) after(h HostCall) []CrashPoint {
	switch {
	case h.Call == CallIntent && h.opens:
		return []CrashPoint{CrashAfterIntent}
	case h.Call == CallStart:
		return []CrashPoint{CrashAfterStart}
	case h.Call == CallRecord:
		return []CrashPoint{CrashAfterRecord}
	case h.Call == CallStop:
		return []CrashPoint{CrashAfterStop}
	}
	return nil
}
