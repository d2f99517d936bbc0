package provisioner

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/juju/errors"
)

// Off switches a duration off, where zero means its default.
const Off time.Duration = -1

// Named values for counts and fractions, where zero means the default.
const (
	NoRetries = -1 // RetryPolicy.Retries: one round and no more
	NoJitter  = -1 // RetryPolicy.Jitter: waits are exactly as computed
)

// A RetryPolicy says how often and how fast a start is tried again (ST2, ST5).
// It is data; the zero value is the default policy.
type RetryPolicy struct {
	// Retries is the number of rounds after the first. Defaults to 10;
	// NoRetries for none.
	Retries int

	// ZoneDelay is the wait before the next zone of a round. Defaults to none.
	ZoneDelay time.Duration

	// RoundDelay is the wait before the second round. Defaults to 10 s; Off
	// for none.
	RoundDelay time.Duration

	// Factor multiplies the wait from round to round. Defaults to 2; 1 for a
	// constant wait.
	Factor float64

	// MaxDelay bounds the wait between rounds, before jitter. Defaults to
	// 5 min; Off for no bound.
	MaxDelay time.Duration

	// Jitter spreads the wait between rounds by ± this part of it. Defaults
	// to 0.2; NoJitter for none.
	Jitter float64

	// Deadline bounds a start from its first attempt on: no further attempt
	// begins after it. Defaults to none.
	Deadline time.Duration
}

// FixedRetry is a policy of n retries with a constant wait; n below 1 means
// none, delay below or at 0 no wait.
func FixedRetry(delay time.Duration, n int) RetryPolicy {
	if n < 1 {
		n = NoRetries
	}
	if delay <= 0 {
		delay = Off
	}
	return RetryPolicy{Retries: n, RoundDelay: delay, MaxDelay: delay, Factor: 1, Jitter: NoJitter}
}

// faults names every field that has no meaning.
func (p RetryPolicy) faults(field string) []error {
	var faults []error
	bad := func(name string, value any, want string) {
		faults = append(faults, errors.NotValidf("%s.%s %v: want %s:", field, name, value, want))
	}
	if p.Retries < NoRetries {
		bad("Retries", p.Retries, "NoRetries or more")
	}
	if p.Factor != 0 && !(p.Factor >= 1 && p.Factor <= 1000) {
		bad("Factor", p.Factor, "1 to 1000, or 0 for the default")
	}
	if p.Jitter != NoJitter && !(p.Jitter >= 0 && p.Jitter <= 1) {
		bad("Jitter", p.Jitter, "NoJitter, or 0 to 1")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"ZoneDelay", p.ZoneDelay}, {"RoundDelay", p.RoundDelay}, {"MaxDelay", p.MaxDelay}, {"Deadline", p.Deadline}} {
		if d.value < Off {
			bad(d.name, d.value, "Off, 0 for the default, or more")
		}
	}
	return faults
}

func (p RetryPolicy) retries() int {
	switch {
	case p.Retries < 0:
		return 0
	case p.Retries == 0:
		return 10
	}
	return p.Retries
}

// longest bounds what is waited for: twice that still is a Duration.
const longest = 100 * 365 * 24 * time.Hour

// wait is the pause before round n+1, n from 1; r in [0,1) picks within the
// jitter.
func (p RetryPolicy) wait(n int, r float64) time.Duration {
	wait := float64(orDefault(p.RoundDelay, 10*time.Second))
	switch {
	case wait == 0:
		return 0
	case p.Factor == 0:
		wait *= math.Pow(2, float64(n-1))
	case p.Factor > 1:
		wait *= math.Pow(p.Factor, float64(n-1))
	}
	wait = min(wait, float64(longest))
	if p.MaxDelay != Off {
		wait = min(wait, float64(orDefault(p.MaxDelay, 5*time.Minute)))
	}
	switch {
	case p.Jitter == 0:
		wait *= 1 + 0.2*(2*r-1)
	case p.Jitter > 0:
		wait *= 1 + p.Jitter*(2*r-1)
	}
	return time.Duration(wait)
}

// orDefault resolves the convention for durations: 0 is the default, Off is 0.
func orDefault(d, def time.Duration) time.Duration {
	switch {
	case d == 0:
		return def
	case d < 0:
		return 0
	}
	return d
}

// An Outcome is what an attempt came to, as far as the next one is concerned.
type Outcome struct {
	Kind  OutcomeKind
	After time.Duration // OutcomeRateLimited: how long to wait; 0: as before the next round; Off: not at all
}

// An OutcomeKind is one way in which an attempt can end.
type OutcomeKind uint8

// The ways in which an attempt can end, and what each means for the next.
const (
	// OutcomeZoneFailed: this zone did not work; try the next.
	OutcomeZoneFailed OutcomeKind = iota
	// OutcomeZoneIndependent: no other zone would have done better; the round
	// is over and the zone is kept.
	OutcomeZoneIndependent
	// OutcomeRolledBack: it was made, could not be recorded, and is gone
	// again (ST12); treated as zone-independent.
	OutcomeRolledBack
	// OutcomeUnknown: whether an instance was made cannot be told; the same
	// attempt is asked for again (ST11).
	OutcomeUnknown
	// OutcomeRateLimited: too fast; wait, and pay nothing (ST4).
	OutcomeRateLimited
	// OutcomePermanent: no attempt can work (ST4).
	OutcomePermanent
)

// OutcomeOf sorts the error of a failed start by its markers. The first that
// holds decides:
//
//   - [Permanent], [Unauthorized]: permanent
//   - [Ambiguous], [AlreadyExists], a time-out (errors.Timeout, or an error in
//     the tree whose Timeout method says true): unknown
//   - [RetryAfter]: rate-limited
//   - [ZoneIndependent], [Quota]: zone-independent
//   - everything else, [OutOfCapacity] too: the zone failed
func OutcomeOf(err error) Outcome {
	var after *RetryAfterError
	switch {
	case errors.Is(err, ErrPermanent), errors.Is(err, ErrUnauthorized):
		return Outcome{Kind: OutcomePermanent}
	case errors.Is(err, ErrAmbiguous), errors.Is(err, ErrAlreadyExists),
		errors.Is(err, errors.Timeout), isTimeout(err):
		return Outcome{Kind: OutcomeUnknown}
	case errors.As(err, &after):
		return Outcome{Kind: OutcomeRateLimited, After: after.After}
	case errors.Is(err, ErrZoneIndependent), errors.Is(err, ErrQuota):
		return Outcome{Kind: OutcomeZoneIndependent}
	}
	return Outcome{Kind: OutcomeZoneFailed}
}

// isTimeout looks at the whole tree: errors.As would stop at the first error
// that has a Timeout method, also if that says no.
func isTimeout(err error) bool {
	if t, ok := err.(interface{ Timeout() bool }); ok && t.Timeout() {
		return true
	}
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		return isTimeout(u.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(u.Unwrap(), isTimeout)
	}
	return false
}

// A Walk is where one start stands in its rounds over the zones. It is a
// small value: copy it, keep it, step it. The zero value is the beginning.
type Walk struct {
	Attempts int // attempts that have ended
	Retries  int // retries used up
}

// A Decision is what comes after an attempt.
type Decision struct {
	Step Step
	Wait time.Duration // before it
	Left int           // retries that are left after it has begun, it included
}

// A Step is one way to go on.
type Step uint8

// The ways to go on.
const (
	StepNextZone  Step = iota // this round's next zone
	StepNewRound              // all zones anew
	StepSameZone              // the same zone, as a new attempt; a new round if that costs a retry
	StepSameAgain             // the same attempt again: same zone, same token
	StepFail                  // no more
)

// Next is one step of the retry rules. usable is the number of zones that the
// round still has, the one that has just failed left out, and 0 from a broker
// without zones. r in [0,1) picks within the jitter. In order:
//
//   - permanent: fail (ST4)
//   - rate-limited: the same zone after the wait asked for; costs nothing, and
//     the round goes on (ST4)
//   - the zone failed and others are left: the next one (ST2)
//   - no retry is left: fail
//   - otherwise one retry is used up, and a new round begins after a wait that
//     grows with the retries used; zone-independent errors and rollbacks keep
//     the zone (ST3, ST12), unknown outcomes the whole attempt (ST11)
func (w Walk) Next(p RetryPolicy, last Outcome, usable int, r float64) (Walk, Decision) {
	w.Attempts++
	left := p.retries() - w.Retries
	switch {
	case last.Kind == OutcomePermanent:
		return w, Decision{Step: StepFail}
	case last.Kind == OutcomeRateLimited:
		after := last.After
		if after < Off { // a moment that has passed is no promise that it will work now
			after = 0
		}
		return w, Decision{Step: StepSameZone, Wait: orDefault(after, p.wait(w.Retries+1, r)), Left: left}
	case last.Kind == OutcomeZoneFailed && usable > 0:
		return w, Decision{Step: StepNextZone, Wait: orDefault(p.ZoneDelay, 0), Left: left}
	case left <= 0:
		return w, Decision{Step: StepFail}
	}
	w.Retries++
	d := Decision{Step: StepNewRound, Wait: p.wait(w.Retries, r), Left: left}
	switch last.Kind {
	case OutcomeZoneIndependent, OutcomeRolledBack:
		d.Step = StepSameZone
	case OutcomeUnknown:
		d.Step = StepSameAgain
	}
	return w, d
}

// What brokers mark their errors with; test with errors.Is.
const (
	ErrZoneIndependent = errors.ConstError("zone independent")
	ErrPermanent       = errors.ConstError("permanent")
	ErrRateLimited     = errors.ConstError("rate limited")
	ErrOutOfCapacity   = errors.ConstError("out of capacity")
	ErrAmbiguous       = errors.ConstError("outcome unknown")
	ErrAlreadyExists   = errors.ConstError("instance already exists")
	ErrUnauthorized    = errors.ConstError("broker denied access")
	ErrQuota           = errors.ConstError("quota used up")
)

// mark is an error that also is one of the sentinels above; its text stays.
type mark struct {
	error
	is errors.ConstError
}

func (m *mark) Unwrap() error        { return m.error }
func (m *mark) Is(target error) bool { return target == m.is }

func marked(err error, is errors.ConstError) error {
	if err == nil {
		return nil
	}
	return &mark{err, is}
}

// ZoneIndependent marks an error that no other zone would have spared (a bad
// image, a broken request). Nil in, nil out, as with all markers.
func ZoneIndependent(err error) error { return marked(err, ErrZoneIndependent) }

// Permanent marks an error that no repetition can mend.
func Permanent(err error) error { return marked(err, ErrPermanent) }

// OutOfCapacity marks an error of a zone that has no room for such an instance.
func OutOfCapacity(err error) error { return marked(err, ErrOutOfCapacity) }

// Ambiguous marks an error after which an instance may or may not exist.
func Ambiguous(err error) error { return marked(err, ErrAmbiguous) }

// AlreadyExists marks an error that says the machine's instance is there.
func AlreadyExists(err error) error { return marked(err, ErrAlreadyExists) }

// Unauthorized marks an error of credentials that the broker does not accept.
func Unauthorized(err error) error { return marked(err, ErrUnauthorized) }

// Quota marks an error of a limit that holds for all zones.
func Quota(err error) error { return marked(err, ErrQuota) }

// RetryAfter marks an error of a broker that was called too fast, and says how
// long to wait: 0 if it does not tell, which makes it the wait before a round;
// Off for no wait. Find it with errors.As and a *RetryAfterError.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &RetryAfterError{After: after, err: err}
}

// A RetryAfterError carries how long a broker asked to be left alone.
type RetryAfterError struct {
	After time.Duration
	err   error
}

// Error gives the text of the marked error.
func (e *RetryAfterError) Error() string {
	if e.err == nil {
		return string(ErrRateLimited)
	}
	return e.err.Error()
}

// Unwrap gives the marked error.
func (e *RetryAfterError) Unwrap() error { return e.err }

// Is makes it match ErrRateLimited.
func (e *RetryAfterError) Is(target error) bool { return target == ErrRateLimited }

// ErrStart is what every *StartError matches.
const ErrStart = errors.ConstError("machine could not be started")

// maxHistory bounds what a StartError remembers in full.
const maxHistory = 64

// A StartError is why a machine could not be started: every attempt, the
// newest 64 of them in full.
type StartError struct {
	Machine  MachineID
	Attempts []AttemptError   // oldest first
	Tried    map[ZoneName]int // attempts in each zone, those no longer in Attempts too
	Out      []Excluded       // zones that could not be tried at the end, and why
	Cause    error            // the last error; never nil
}

// An AttemptError is one failed attempt.
type AttemptError struct {
	Attempt int
	Zone    ZoneName
	At      time.Time // when it ended
	Err     error
}

// Error gives the cause in one line, as a status shows it (ST7).
func (e *StartError) Error() string {
	if e.Cause == nil {
		return string(ErrStart)
	}
	return e.Cause.Error()
}

// Unwrap gives the cause.
func (e *StartError) Unwrap() error { return e.Cause }

// Is makes it match ErrStart.
func (e *StartError) Is(target error) bool { return target == ErrStart }

// Table shows every attempt that is remembered in full (its zone, when it ended,
// its error, and a hint where a person can act), how many others there
// were, each candidate that did not match where that is the cause, and every
// zone that was out, a line each, for a person.
func (e *StartError) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine %s: %v\n", e.Machine, e.Error())
	earlier := -len(e.Attempts)
	for _, n := range e.Tried {
		earlier += n
	}
	if earlier > 0 {
		fmt.Fprintf(&b, "  %d earlier attempts\n", earlier)
	}
	for _, a := range e.Attempts {
		fmt.Fprintf(&b, "  attempt %d  %s  %s  %v%s\n", a.Attempt, a.At.UTC().Format(time.RFC3339), zoneOrNone(a.Zone), a.Err, hintText(a.Err))
	}
	var none *NoMatchError
	if errors.As(e.Cause, &none) {
		for line := range strings.Lines(none.Table()) {
			b.WriteString("  " + line)
		}
	}
	for _, x := range e.Out {
		fmt.Fprintf(&b, "  %s was out: %s\n", zoneOrNone(x.Zone), x.Reason)
	}
	return b.String()
}

// hints say what a person can do about a marked error; the first that holds.
var hints = []struct {
	is   error
	hint string
}{
	{ErrUnauthorized, "check the broker's credentials"},
	{ErrQuota, "raise the quota, or remove what is not needed"},
	{ErrOutOfCapacity, "allow more zones, or ask for less"},
	{ErrRateLimited, "start less at once: Limits.Starts, StartLimiter"},
	{ErrAlreadyExists, "look for an instance of that machine in the cloud"},
	{ErrAmbiguous, "look for an instance of that machine in the cloud"},
	{ErrTimedOut, "look at the broker; LaunchTimeout bounds a start"},
}

func hintText(err error) string {
	for _, h := range hints {
		if errors.Is(err, h.is) {
			return " (" + h.hint + ")"
		}
	}
	return ""
}

func zoneOrNone(z ZoneName) string {
	if z == "" {
		return "no zone"
	}
	return fmt.Sprintf("zone %q", string(z))
}

// clone is a copy that does not change any more.
func (e *StartError) clone() *StartError {
	c := *e
	c.Attempts, c.Tried = slices.Clone(e.Attempts), maps.Clone(e.Tried)
	return &c
}

// add appends an attempt and forgets the oldest beyond maxHistory.
func (e *StartError) add(a AttemptError) {
	if len(e.Attempts) == maxHistory {
		e.Attempts = slices.Delete(e.Attempts, 0, 1)
	}
	e.Attempts = append(e.Attempts, a)
	if e.Tried == nil {
		e.Tried = map[ZoneName]int{}
	}
	e.Tried[a.Zone]++
	e.Cause = a.Err
}

// A StopError tells which of the instances of a stop could not be stopped.
// The others were.
type StopError struct {
	Failed map[InstanceID]error
}

// ErrStop is what every *StopError matches.
const ErrStop = errors.ConstError("instances could not be stopped")

// Error names each instance and its error, sorted.
func (e *StopError) Error() string {
	texts := make([]string, 0, len(e.Failed))
	for _, id := range slices.Sorted(maps.Keys(e.Failed)) {
		texts = append(texts, fmt.Sprintf("%s: %v", id, e.Failed[id]))
	}
	return string(ErrStop) + ": " + strings.Join(texts, "; ")
}

// Unwrap gives the errors of the single instances, sorted by instance.
func (e *StopError) Unwrap() []error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(e.Failed)) {
		if err := e.Failed[id]; err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Is makes it match ErrStop.
func (e *StopError) Is(target error) bool { return target == ErrStop }

// retryText is what a waiting machine shows (ST6).
func retryText(id MachineID, zone ZoneName, d Decision, err error) string {
	wait := shortWait(d.Wait)
	if d.Step == StepNextZone {
		return fmt.Sprintf("failed to start machine %s in zone %q, retrying in %s with new availability zone: %s", id, string(zone), wait, statusText(err))
	}
	return fmt.Sprintf("failed to start machine %s (%s), retrying in %s (%d more attempts)", id, statusText(err), wait, d.Left)
}

// statusText is an error as a status shows it: without the stack of a panic.
func statusText(err error) string {
	text := err.Error()
	if errors.Is(err, ErrPanic) {
		text, _, _ = strings.Cut(text, "\n")
	}
	return text
}

// shortWait prints a wait as people say it: whole seconds from one second on,
// and whole milliseconds before.
func shortWait(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(time.Second)
	case d >= time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d
}
