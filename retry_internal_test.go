package provisioner

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
)

func TestRetryText(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		why  string
		zone ZoneName
		d    Decision
		want string
	}{
		{"ST6: another zone at once", "A", Decision{Step: StepNextZone, Left: 3},
			`failed to start machine 0 in zone "A", retrying in 0s with new availability zone: boom`},
		{"ST6: another zone after a while", "A", Decision{Step: StepNextZone, Wait: 1400 * time.Millisecond},
			`failed to start machine 0 in zone "A", retrying in 1s with new availability zone: boom`},
		{"ST6: a new round", "A", Decision{Step: StepNewRound, Wait: 10 * time.Second, Left: 1},
			"failed to start machine 0 (boom), retrying in 10s (1 more attempts)"},
		{"ST6: the same zone, jitter rounded", "A", Decision{Step: StepSameZone, Wait: 11_817_345_123, Left: 10},
			"failed to start machine 0 (boom), retrying in 12s (10 more attempts)"},
		{"ST6: the same attempt, without zones", "", Decision{Step: StepSameAgain, Wait: 5 * time.Minute, Left: 2},
			"failed to start machine 0 (boom), retrying in 5m0s (2 more attempts)"},
		{"ST6: less than a second is not rounded to nothing", "", Decision{Step: StepNewRound, Wait: 250 * time.Millisecond, Left: 2},
			"failed to start machine 0 (boom), retrying in 250ms (2 more attempts)"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			if diff := cmp.Diff(test.want, retryText("0", test.zone, test.d, boom)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// ST7: every attempt is counted, and the newest 64 are remembered in full.
func TestStartErrorIsBounded(t *testing.T) {
	e := &StartError{Machine: "0"}
	for i := range 200 {
		e.add(AttemptError{Attempt: i + 1, Zone: ZoneName("ab"[i%2 : i%2+1]), Err: fmt.Errorf("boom %d", i+1)})
	}
	if len(e.Attempts) != 64 || e.Attempts[0].Attempt != 137 || e.Attempts[63].Attempt != 200 {
		t.Errorf("%d attempts, from %d to %d", len(e.Attempts), e.Attempts[0].Attempt, e.Attempts[len(e.Attempts)-1].Attempt)
	}
	if cap(e.Attempts) > 128 {
		t.Errorf("room for %d attempts", cap(e.Attempts))
	}
	if diff := cmp.Diff(map[ZoneName]int{"a": 100, "b": 100}, e.Tried); diff != "" {
		t.Error(diff)
	}
	if e.Error() != "boom 200" {
		t.Errorf("the last cause is %q", e)
	}
}

func TestBackoffDefaults(t *testing.T) {
	tests := []struct {
		why  string
		in   RetryPolicy
		want []time.Duration
	}{
		{"from 1 s to 1 min", RetryPolicy{Jitter: NoJitter}, []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}},
		{"what is set counts", RetryPolicy{Jitter: NoJitter, RoundDelay: 2 * time.Second, MaxDelay: 5 * time.Second}, []time.Duration{2, 4, 5, 5}},
		{"no wait is not a hot loop", RetryPolicy{RoundDelay: Off}, []time.Duration{10, 10}},
		{"retries are not looked at", RetryPolicy{Jitter: NoJitter, Retries: NoRetries, Deadline: 1}, []time.Duration{1, 2}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			for i, want := range test.want {
				unit := time.Second
				if test.in.RoundDelay == Off {
					unit = time.Millisecond
				}
				if got := (Policy{Backoff: test.in}).backoff(i+1, 0.5); got != want*unit {
					t.Errorf("wait %d is %v, want %v", i+1, got, want*unit)
				}
			}
		})
	}
}
