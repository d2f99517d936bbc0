package provisioner_test

import (
	"context"
	stderrors "errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// A story is one start, told by what happens at each attempt: the zone in
// which it is made, and what is decided after it.
type story struct {
	zones  []provisioner.ZoneName // tried in this order in each round; none: no zones
	policy provisioner.RetryPolicy
	r      float64
}

// play steps a Walk as a Task does, until it fails or the outcomes are used up.
func (s story) play(outcome func(attempt int, zone provisioner.ZoneName) (provisioner.Outcome, bool)) (attempts []provisioner.ZoneName, decisions []provisioner.Decision) {
	var w provisioner.Walk
	failed := map[provisioner.ZoneName]bool{}
	pick := func() (zone provisioner.ZoneName) {
		for _, z := range s.zones {
			if !failed[z] {
				return z
			}
		}
		return ""
	}
	zone := pick()
	for {
		o, more := outcome(w.Attempts+1, zone)
		attempts = append(attempts, zone)
		if !more {
			return attempts, decisions
		}
		if o.Kind == provisioner.OutcomeZoneFailed {
			failed[zone] = true
		}
		usable := 0
		for _, z := range s.zones {
			if !failed[z] && z != zone {
				usable++
			}
		}
		before := w.Retries
		var d provisioner.Decision
		w, d = w.Next(s.policy, o, usable, s.r)
		decisions = append(decisions, d)
		if w.Retries != before {
			clear(failed)
		}
		switch d.Step {
		case provisioner.StepFail:
			return attempts, decisions
		case provisioner.StepNextZone, provisioner.StepNewRound:
			zone = pick()
		}
	}
}

// always gives the outcomes in turn, the last one for ever.
func always(outcomes ...provisioner.Outcome) func(int, provisioner.ZoneName) (provisioner.Outcome, bool) {
	return func(attempt int, _ provisioner.ZoneName) (provisioner.Outcome, bool) {
		return outcomes[min(attempt, len(outcomes))-1], true
	}
}

func TestWalk(t *testing.T) {
	var (
		zoneFailed  = provisioner.Outcome{Kind: provisioner.OutcomeZoneFailed}
		independent = provisioner.Outcome{Kind: provisioner.OutcomeZoneIndependent}
		rolledBack  = provisioner.Outcome{Kind: provisioner.OutcomeRolledBack}
		unknown     = provisioner.Outcome{Kind: provisioner.OutcomeUnknown}
		permanent   = provisioner.Outcome{Kind: provisioner.OutcomePermanent}
		slowDown    = provisioner.Outcome{Kind: provisioner.OutcomeRateLimited, After: 7 * time.Second}
	)
	abc := []provisioner.ZoneName{"a", "b", "c"}
	quick := func(n int) provisioner.RetryPolicy { return provisioner.FixedRetry(0, n) }
	tests := []struct {
		why      string
		story    story
		outcomes []provisioner.Outcome
		want     []provisioner.ZoneName
		steps    []provisioner.Step
	}{
		{"ST2: a round tries each zone once, Retries more rounds follow", story{zones: abc, policy: quick(1)}, []provisioner.Outcome{zoneFailed},
			[]provisioner.ZoneName{"a", "b", "c", "a", "b", "c"}, []provisioner.Step{provisioner.StepNextZone, provisioner.StepNextZone, provisioner.StepNewRound, provisioner.StepNextZone, provisioner.StepNextZone, provisioner.StepFail}},
		{"ST2: no retries means one round", story{zones: abc, policy: quick(0)}, []provisioner.Outcome{zoneFailed},
			[]provisioner.ZoneName{"a", "b", "c"}, []provisioner.Step{provisioner.StepNextZone, provisioner.StepNextZone, provisioner.StepFail}},
		{"section 4: zones=A, R=2, two failures: three starts in A", story{zones: abc[:1], policy: quick(2)}, []provisioner.Outcome{zoneFailed},
			[]provisioner.ZoneName{"a", "a", "a"}, []provisioner.Step{provisioner.StepNewRound, provisioner.StepNewRound, provisioner.StepFail}},
		{"ST3: a zone-independent error keeps the zone, at most Retries+1 starts", story{zones: abc, policy: quick(2)}, []provisioner.Outcome{independent},
			[]provisioner.ZoneName{"a", "a", "a"}, []provisioner.Step{provisioner.StepSameZone, provisioner.StepSameZone, provisioner.StepFail}},
		{"ST3: it ends the round: all zones are there again", story{zones: abc, policy: quick(1)}, []provisioner.Outcome{zoneFailed, independent, zoneFailed},
			[]provisioner.ZoneName{"a", "b", "b", "a", "c"}, []provisioner.Step{provisioner.StepNextZone, provisioner.StepSameZone, provisioner.StepNextZone, provisioner.StepNextZone, provisioner.StepFail}},
		{"ST3: a broker without zones", story{policy: quick(2)}, []provisioner.Outcome{zoneFailed},
			[]provisioner.ZoneName{"", "", ""}, []provisioner.Step{provisioner.StepNewRound, provisioner.StepNewRound, provisioner.StepFail}},
		{"ST4: a permanent error ends the start, whatever is left", story{zones: abc, policy: quick(5)}, []provisioner.Outcome{permanent},
			[]provisioner.ZoneName{"a"}, []provisioner.Step{provisioner.StepFail}},
		{"ST4: a rate limit costs no retry, and the round goes on", story{zones: abc, policy: quick(0)}, []provisioner.Outcome{zoneFailed, slowDown, slowDown, slowDown, zoneFailed},
			[]provisioner.ZoneName{"a", "b", "b", "b", "b", "c"}, []provisioner.Step{provisioner.StepNextZone, provisioner.StepSameZone, provisioner.StepSameZone, provisioner.StepSameZone, provisioner.StepNextZone, provisioner.StepFail}},
		{"ST11: unknown never leads to another zone", story{zones: abc, policy: quick(2)}, []provisioner.Outcome{unknown},
			[]provisioner.ZoneName{"a", "a", "a"}, []provisioner.Step{provisioner.StepSameAgain, provisioner.StepSameAgain, provisioner.StepFail}},
		{"ST12: a rollback costs one retry and keeps the zone", story{zones: abc, policy: quick(1)}, []provisioner.Outcome{rolledBack},
			[]provisioner.ZoneName{"a", "a"}, []provisioner.Step{provisioner.StepSameZone, provisioner.StepFail}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			attempts, decisions := test.story.play(always(test.outcomes...))
			if diff := cmp.Diff(test.want, attempts); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			var steps []provisioner.Step
			for _, d := range decisions {
				steps = append(steps, d.Step)
			}
			if diff := cmp.Diff(test.steps, steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWalkDefaultRetries(t *testing.T) {
	attempts, decisions := story{zones: []provisioner.ZoneName{"a", "b"}}.play(always(provisioner.Outcome{}))
	if len(attempts) != 22 {
		t.Errorf("ST2: %d starts in 2 zones by default, want (10+1)×2", len(attempts))
	}
	left := 10
	for i, d := range decisions[:len(decisions)-1] {
		if d.Left != left {
			t.Errorf("ST6: %d retries left after attempt %d, want %d", d.Left, i+1, left)
		}
		if d.Step == provisioner.StepNewRound {
			left--
		}
	}
}

func TestWalkWaits(t *testing.T) {
	s := time.Second
	failed, slow := []provisioner.Outcome{{}}, func(after time.Duration) []provisioner.Outcome {
		return []provisioner.Outcome{{Kind: provisioner.OutcomeRateLimited, After: after}, {Kind: provisioner.OutcomePermanent}}
	}
	tests := []struct {
		why      string
		policy   provisioner.RetryPolicy
		zones    int
		r        float64
		outcomes []provisioner.Outcome
		want     []time.Duration // without that of the failure
	}{
		{"ST5: between zones none, between rounds 10 s ×2 up to 5 min", provisioner.RetryPolicy{Jitter: provisioner.NoJitter, Retries: 7}, 2, 0, failed,
			[]time.Duration{0, 10 * s, 0, 20 * s, 0, 40 * s, 0, 80 * s, 0, 160 * s, 0, 300 * s, 0, 300 * s, 0}},
		{"ST5: ±20 % of jitter: least", provisioner.RetryPolicy{Retries: 6}, 1, 0, failed, []time.Duration{8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 240 * s}},
		{"ST5: ±20 % of jitter: middle", provisioner.RetryPolicy{Retries: 2}, 1, 0.5, failed, []time.Duration{10 * s, 20 * s}},
		{"ST5: ±20 % of jitter: most", provisioner.RetryPolicy{Retries: 6}, 1, 1, failed, []time.Duration{12 * s, 24 * s, 48 * s, 96 * s, 192 * s, 360 * s}},
		{"ST5: another jitter", provisioner.RetryPolicy{Retries: 1, Jitter: 1}, 1, 0, failed, []time.Duration{0}},
		{"ST5: a delay between zones, without jitter", provisioner.RetryPolicy{Retries: provisioner.NoRetries, ZoneDelay: 3 * s}, 3, 0.9, failed, []time.Duration{3 * s, 3 * s}},
		{"ST5: FixedRetry is constant", provisioner.FixedRetry(4*s, 3), 1, 0.9, failed, []time.Duration{4 * s, 4 * s, 4 * s}},
		{"ST5: FixedRetry may wait longer than the usual most", provisioner.FixedRetry(time.Hour, 2), 1, 0.9, failed, []time.Duration{time.Hour, time.Hour}},
		{"ST5: FixedRetry without a wait", provisioner.FixedRetry(0, 2), 1, 0.9, failed, []time.Duration{0, 0}},
		{"ST5: FixedRetry below nothing is nothing", provisioner.FixedRetry(-s, -3), 2, 0.9, failed, []time.Duration{0}},
		{"Off switches the wait between rounds off", provisioner.RetryPolicy{Retries: 2, RoundDelay: provisioner.Off}, 1, 0.9, failed, []time.Duration{0, 0}},
		{"Off of MaxDelay: no bound", provisioner.RetryPolicy{Retries: 7, MaxDelay: provisioner.Off, Jitter: provisioner.NoJitter}, 1, 0, failed,
			[]time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 320 * s, 640 * s}},
		{"MaxDelay bounds the first wait too", provisioner.RetryPolicy{Retries: 2, RoundDelay: time.Minute, MaxDelay: s, Jitter: provisioner.NoJitter}, 1, 0, failed, []time.Duration{s, s}},
		{"Factor 1 is constant", provisioner.RetryPolicy{Retries: 2, Factor: 1, Jitter: provisioner.NoJitter}, 1, 0, failed, []time.Duration{10 * s, 10 * s}},
		{"Factor 3", provisioner.RetryPolicy{Retries: 3, Factor: 3, RoundDelay: s, Jitter: provisioner.NoJitter}, 1, 0, failed, []time.Duration{s, 3 * s, 9 * s}},
		{"ST4: the wait that a broker asks for is obeyed as it is", provisioner.RetryPolicy{}, 1, 0.9, slow(7 * s), []time.Duration{7 * s}},
		{"ST4: also if it is longer than any other", provisioner.RetryPolicy{}, 1, 0.9, slow(time.Hour), []time.Duration{time.Hour}},
		{"ST4: a broker that does not tell how long is left alone as before a round", provisioner.RetryPolicy{Jitter: provisioner.NoJitter}, 1, 0, slow(0), []time.Duration{10 * s}},
		{"ST4: Off is no wait", provisioner.RetryPolicy{}, 1, 0, slow(provisioner.Off), []time.Duration{0}},
		{"ST3: zone-independent errors wait as rounds do", provisioner.RetryPolicy{Retries: 2, Jitter: provisioner.NoJitter}, 3, 0,
			[]provisioner.Outcome{{Kind: provisioner.OutcomeZoneIndependent}}, []time.Duration{10 * s, 20 * s}},
		{"ST11: so do unknown outcomes", provisioner.RetryPolicy{Retries: 2, Jitter: provisioner.NoJitter}, 3, 0, []provisioner.Outcome{{Kind: provisioner.OutcomeUnknown}}, []time.Duration{10 * s, 20 * s}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			zones := []provisioner.ZoneName{"a", "b", "c"}[:test.zones]
			_, decisions := story{zones: zones, policy: test.policy, r: test.r}.play(always(test.outcomes...))
			var waits []time.Duration
			for _, d := range decisions[:len(decisions)-1] {
				waits = append(waits, d.Wait)
			}
			if diff := cmp.Diff(test.want, waits); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if last := decisions[len(decisions)-1]; last != (provisioner.Decision{Step: provisioner.StepFail}) {
				t.Errorf("the failure is %+v", last)
			}
		})
	}
}

// A wait is never negative, which it would be if it were more than a Duration holds, however often
// a start was tried and however odd the policy is.
func TestWalkWaitsStayInRange(t *testing.T) {
	for _, p := range []provisioner.RetryPolicy{
		{Retries: math.MaxInt, MaxDelay: provisioner.Off},
		{Retries: math.MaxInt, MaxDelay: provisioner.Off, Factor: 1000, Jitter: 1},
		{Retries: math.MaxInt, MaxDelay: math.MaxInt64, RoundDelay: math.MaxInt64},
		{Retries: math.MaxInt, RoundDelay: provisioner.Off, MaxDelay: provisioner.Off, Factor: 1000},
	} {
		for _, retries := range []int{0, 1, 63, 1000, math.MaxInt - 2} {
			for _, r := range []float64{0, 0.5, 0.999} {
				_, d := provisioner.Walk{Retries: retries}.Next(p, provisioner.Outcome{}, 0, r)
				if d.Step != provisioner.StepNewRound || d.Wait < 0 {
					t.Errorf("%+v after %d retries: %+v", p, retries, d)
				}
			}
		}
	}
}

func FuzzWalk(f *testing.F) {
	f.Add(3, 2, []byte{0, 0, 0, 1, 4, 0, 5})
	f.Add(0, -1, []byte{0})
	f.Add(1, 0, []byte{4, 4, 4, 3, 2, 1, 0})
	f.Add(7, 3, []byte{0, 4, 0, 4, 0, 4, 0, 4})
	f.Fuzz(func(t *testing.T, zones, retries int, script []byte) {
		if zones < 0 || zones > 20 || retries < -1 || retries > 20 || len(script) == 0 {
			t.Skip()
		}
		list := make([]provisioner.ZoneName, zones)
		for i := range list {
			list[i] = provisioner.ZoneName(fmt.Sprintf("z%02d", i))
		}
		// Rate limits cost nothing, so a script of nothing else would never end.
		limited := 0
		byZone := map[provisioner.ZoneName]int{}
		outcome := func(attempt int, zone provisioner.ZoneName) (provisioner.Outcome, bool) {
			o := provisioner.Outcome{Kind: provisioner.OutcomeKind(script[(attempt-1)%len(script)] % 6)}
			if o.Kind == provisioner.OutcomeRateLimited {
				if limited++; limited > 1000 {
					return o, false
				}
				return o, true
			}
			byZone[zone]++
			return o, true
		}
		attempts, decisions := story{zones: list, policy: provisioner.FixedRetry(time.Second, retries)}.play(outcome)

		rounds := max(retries, 0) + 1
		if most := rounds * max(zones, 1); len(attempts)-limited > most {
			t.Fatalf("ST2: %d starts, at most %d: %v", len(attempts)-limited, most, attempts)
		}
		for zone, n := range byZone {
			if n > rounds {
				// A zone is tried again within a round only by ST3, ST11 or
				// ST12, and those end the round.
				t.Fatalf("ST2: zone %s was tried %d times in %d rounds", zone, n, rounds)
			}
		}
		for i, d := range decisions {
			if d.Wait < 0 || d.Left < 0 || d.Left > max(retries, 0) {
				t.Fatalf("%+v", d)
			}
			kind := provisioner.OutcomeKind(script[i%len(script)] % 6)
			stays := d.Step == provisioner.StepSameAgain || d.Step == provisioner.StepSameZone
			switch {
			case kind == provisioner.OutcomePermanent && d.Step != provisioner.StepFail:
				t.Fatalf("ST4: permanent led to %+v", d)
			case kind == provisioner.OutcomeUnknown && d.Step != provisioner.StepSameAgain && d.Step != provisioner.StepFail:
				t.Fatalf("ST11: unknown led to %+v", d)
			case stays && attempts[i+1] != attempts[i]:
				t.Fatalf("ST3: from zone %s to %s by %+v", attempts[i], attempts[i+1], d)
			case d.Step == provisioner.StepNextZone && (attempts[i+1] == attempts[i] || kind != provisioner.OutcomeZoneFailed):
				t.Fatalf("ST2: from zone %s to %s by %+v", attempts[i], attempts[i+1], d)
			}
		}
		if limited <= 1000 && decisions[len(decisions)-1].Step != provisioner.StepFail {
			t.Fatalf("it did not end with a failure: %+v", decisions)
		}
	})
}

// A timeout is an error as net/http and others make them.
type timeout struct{ is bool }

func (e timeout) Error() string { return fmt.Sprintf("timeout: %v", e.is) }
func (e timeout) Timeout() bool { return e.is }

// wrapped are the ways in which errors get from a broker to the Task.
var wrapped = map[string]func(error) error{
	"bare":     func(err error) error { return err },
	"fmt":      func(err error) error { return fmt.Errorf("starting: %w", err) },
	"annotate": func(err error) error { return errors.Annotate(err, "starting") },
	"trace":    errors.Trace,
	"join":     func(err error) error { return stderrors.Join(errors.New("first"), err) },
	"two":      func(err error) error { return fmt.Errorf("%w, then %w", errors.New("first"), err) },
	"deep": func(err error) error {
		return errors.Trace(fmt.Errorf("x: %w", stderrors.Join(errors.Annotate(err, "y"))))
	},
}

func TestOutcomeOf(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		why  string
		err  error
		want provisioner.Outcome
	}{
		{"an unmarked error is the zone's", boom, provisioner.Outcome{Kind: provisioner.OutcomeZoneFailed}},
		{"no capacity is the zone's", provisioner.OutOfCapacity(boom), provisioner.Outcome{Kind: provisioner.OutcomeZoneFailed}},
		{"ST3: zone-independent", provisioner.ZoneIndependent(boom), provisioner.Outcome{Kind: provisioner.OutcomeZoneIndependent}},
		{"ST3: a quota holds for all zones", provisioner.Quota(boom), provisioner.Outcome{Kind: provisioner.OutcomeZoneIndependent}},
		{"ST3: a zone-independent lack of capacity", provisioner.ZoneIndependent(provisioner.OutOfCapacity(boom)), provisioner.Outcome{Kind: provisioner.OutcomeZoneIndependent}},
		{"ST4: permanent", provisioner.Permanent(boom), provisioner.Outcome{Kind: provisioner.OutcomePermanent}},
		{"ST4: credentials do not mend", provisioner.Unauthorized(boom), provisioner.Outcome{Kind: provisioner.OutcomePermanent}},
		{"ST4: permanent before all others", provisioner.Permanent(provisioner.RetryAfter(provisioner.Ambiguous(boom), time.Second)), provisioner.Outcome{Kind: provisioner.OutcomePermanent}},
		{"ST4: rate-limited, with its wait", provisioner.RetryAfter(boom, 9*time.Second), provisioner.Outcome{Kind: provisioner.OutcomeRateLimited, After: 9 * time.Second}},
		{"ST4: rate-limited before zone-independent", provisioner.ZoneIndependent(provisioner.RetryAfter(boom, time.Second)), provisioner.Outcome{Kind: provisioner.OutcomeRateLimited, After: time.Second}},
		{"ST4: a quota that says when to come back", provisioner.Quota(provisioner.RetryAfter(boom, time.Second)), provisioner.Outcome{Kind: provisioner.OutcomeRateLimited, After: time.Second}},
		{"ST11: an error that says so", provisioner.Ambiguous(boom), provisioner.Outcome{Kind: provisioner.OutcomeUnknown}},
		{"ST11: a time-out of juju/errors", errors.Timeoutf("starting"), provisioner.Outcome{Kind: provisioner.OutcomeUnknown}},
		{"ST11: one that was made by its other constructor", errors.NewTimeout(boom, "starting"), provisioner.Outcome{Kind: provisioner.OutcomeUnknown}},
		{"ST11: a context's deadline", context.DeadlineExceeded, provisioner.Outcome{Kind: provisioner.OutcomeUnknown}},
		{"ST11: an error with a Timeout method", timeout{true}, provisioner.Outcome{Kind: provisioner.OutcomeUnknown}},
		{"ST11: a Timeout method that says no", timeout{false}, provisioner.Outcome{Kind: provisioner.OutcomeZoneFailed}},
		{"ST11: one that says no does not hide another", stderrors.Join(timeout{false}, timeout{true}), provisioner.Outcome{Kind: provisioner.OutcomeUnknown}},
		{"ST11: unknown before rate-limited: it may be there", provisioner.RetryAfter(timeout{true}, time.Second), provisioner.Outcome{Kind: provisioner.OutcomeUnknown}},
		{"ST11: unknown before zone-independent", provisioner.ZoneIndependent(provisioner.Ambiguous(boom)), provisioner.Outcome{Kind: provisioner.OutcomeUnknown}},
		{"ST19: what exists already must not be made in another zone", provisioner.AlreadyExists(boom), provisioner.Outcome{Kind: provisioner.OutcomeUnknown}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			for how, wrap := range wrapped {
				if diff := cmp.Diff(test.want, provisioner.OutcomeOf(wrap(test.err))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestMarkers(t *testing.T) {
	tests := []struct {
		name string
		mark func(error) error
		is   error
	}{
		{"ZoneIndependent", provisioner.ZoneIndependent, provisioner.ErrZoneIndependent},
		{"Permanent", provisioner.Permanent, provisioner.ErrPermanent},
		{"RetryAfter", func(err error) error { return provisioner.RetryAfter(err, time.Second) }, provisioner.ErrRateLimited},
		{"OutOfCapacity", provisioner.OutOfCapacity, provisioner.ErrOutOfCapacity},
		{"Ambiguous", provisioner.Ambiguous, provisioner.ErrAmbiguous},
		{"AlreadyExists", provisioner.AlreadyExists, provisioner.ErrAlreadyExists},
		{"Unauthorized", provisioner.Unauthorized, provisioner.ErrUnauthorized},
		{"Quota", provisioner.Quota, provisioner.ErrQuota},
	}
	cause := timeout{true}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.mark(nil); got != nil {
				t.Errorf("nil in, %v out", got)
			}
			marked := test.mark(cause)
			if marked.Error() != cause.Error() {
				t.Errorf("the text became %q", marked)
			}
			for how, wrap := range wrapped {
				err := wrap(marked)
				if !errors.Is(err, test.is) || !errors.Is(err, cause) {
					t.Errorf("%s: is the mark %v, is the cause %v", how, errors.Is(err, test.is), errors.Is(err, cause))
				}
				var as timeout
				if !errors.As(err, &as) || as != cause {
					t.Errorf("%s: As does not find the cause", how)
				}
				for _, other := range tests {
					if other.is != test.is && errors.Is(err, other.is) {
						t.Errorf("%s: is also %v", how, other.is)
					}
				}
				// Marks add up.
				if both := provisioner.OutOfCapacity(wrap(marked)); !errors.Is(both, test.is) || !errors.Is(both, provisioner.ErrOutOfCapacity) {
					t.Errorf("%s: a second mark hides the first", how)
				}
			}
		})
	}
	for how, wrap := range wrapped {
		var after *provisioner.RetryAfterError
		if !errors.As(wrap(provisioner.RetryAfter(cause, time.Minute)), &after) || after.After != time.Minute {
			t.Errorf("ST4: %s: As finds %v", how, after)
		}
	}
	if got := (&provisioner.RetryAfterError{}).Error(); got != "rate limited" {
		t.Errorf("an empty RetryAfterError says %q", got)
	}
}

func TestStartError(t *testing.T) {
	boom := provisioner.ZoneIndependent(errors.New("boom"))
	at := time.Date(2026, 3, 7, 8, 12, 44, 0, time.FixedZone("", 3600))
	err := &provisioner.StartError{
		Machine: "7",
		Attempts: []provisioner.AttemptError{
			{Attempt: 11, Zone: "a", At: at, Err: errors.New("full")},
			{Attempt: 12, At: at.Add(time.Minute), Err: boom},
		},
		Tried: map[provisioner.ZoneName]int{"a": 11, "": 1},
		Out:   []provisioner.Excluded{{"b", provisioner.ReasonUnavailable}, {"", provisioner.ReasonWithoutAName}},
		Cause: boom,
	}
	if err.Error() != "boom" {
		t.Errorf("ST7: the text is the last cause, got %q", err)
	}
	for how, wrap := range wrapped {
		var as *provisioner.StartError
		if w := wrap(err); !errors.Is(w, provisioner.ErrStart) || !errors.Is(w, provisioner.ErrZoneIndependent) || !errors.As(w, &as) || as != err {
			t.Errorf("%s: not found: %v", how, w)
		}
	}
	want := `machine 7: boom
  10 earlier attempts
  attempt 11  2026-03-07T07:12:44Z  zone "a"  full
  attempt 12  2026-03-07T07:13:44Z  no zone  boom
  zone "b" was out: unavailable
  no zone was out: without a name
`
	if diff := cmp.Diff(want, err.Table()); diff != "" {
		t.Errorf("ST7 (-want +got):\n%s", diff)
	}
	empty := &provisioner.StartError{Machine: "7"}
	if empty.Error() != string(provisioner.ErrStart) || empty.Unwrap() != nil || empty.Table() != "machine 7: machine could not be started\n" {
		t.Errorf("without a cause: %q, %v, %q", empty, empty.Unwrap(), empty.Table())
	}
}

func TestStopError(t *testing.T) {
	first, last := provisioner.Unauthorized(errors.New("denied")), errors.New("busy")
	err := &provisioner.StopError{Failed: map[provisioner.InstanceID]error{"i-9": last, "i-10": first, "i-2": nil, "i-3": last, "i-4": last}}
	want := "instances could not be stopped: i-10: denied; i-2: <nil>; i-3: busy; i-4: busy; i-9: busy"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
	for how, wrap := range wrapped {
		var as *provisioner.StopError
		if w := wrap(err); !errors.Is(w, provisioner.ErrStop) || !errors.Is(w, provisioner.ErrUnauthorized) || !errors.As(w, &as) || as != err {
			t.Errorf("HV7: %s: not found: %v", how, w)
		}
	}
	for range 20 {
		if got := err.Unwrap(); !slices.Equal(got, []error{first, last, last, last}) {
			t.Fatalf("in another order: %v", got)
		}
	}
}

func TestErrNoZone(t *testing.T) {
	plan := provisioner.MakePlan(provisioner.Snapshot{
		Fleet: []provisioner.MachineResult{{ID: "0", Machine: provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusPending}}},
		Zones: []provisioner.Zone{{"a", false}, {"b", true}, {"c", true}},
		Needs: map[provisioner.MachineID]provisioner.Needs{"0": {Zones: []provisioner.ZoneName{"a", "c"}, Derived: []provisioner.ZoneName{"a", "b"}}},
	}, provisioner.Policy{})
	if len(plan.Left) != 1 || len(plan.Actions) != 0 {
		t.Fatalf("AZ9: %v", plan)
	}
	err := plan.Left[0].Err
	var start *provisioner.StartError
	if !errors.Is(err, provisioner.ErrNoZone) || !errors.Is(err, provisioner.ErrStart) || !errors.As(err, &start) {
		t.Fatalf("AZ9: %#v", err)
	}
	if err.Error() != "suitable availability zone for machine 0 not found" {
		t.Errorf("AZ9: %q", err)
	}
	wantOut := []provisioner.Excluded{{"a", provisioner.ReasonUnavailable}, {"b", provisioner.ReasonConstraint}, {"c", provisioner.ReasonDerived}}
	if diff := cmp.Diff(wantOut, start.Out); diff != "" {
		t.Errorf("AZ9: why each zone was out (-want +got):\n%s", diff)
	}
	if !strings.HasSuffix(plan.Left[0].Reason, "not found: a unavailable; b not in the machine's zone constraint; "+
		"c not among the zones its start parameters imply") {
		t.Errorf("AZ9: %q", plan.Left[0].Reason)
	}
}

// ST4: a moment that has passed is no promise, and a broker that names one is
// not asked again without a pause.
func TestRetryAfterAMomentThatHasPassed(t *testing.T) {
	p := provisioner.RetryPolicy{Jitter: provisioner.NoJitter}
	_, d := provisioner.Walk{}.Next(p, provisioner.OutcomeOf(provisioner.RetryAfter(errors.New("slow down"), -3*time.Second)), 2, 0)
	if want := (provisioner.Decision{Step: provisioner.StepSameZone, Wait: 10 * time.Second, Left: 10}); d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
}
