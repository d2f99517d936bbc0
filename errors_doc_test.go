package provisioner_test

import (
	stderrors "errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

const errorsDoc = "docs/errors.md"

// The table in docs/errors.md is what OutcomeOf and Walk.Next say; run with
// -update after a change, and read what has changed against ST2 to ST4, ST11.
func TestErrorTable(t *testing.T) {
	text, err := os.ReadFile(errorsDoc)
	must(t, err)
	before, rest, ok := strings.Cut(string(text), errorTableBegin)
	kept, after, ends := strings.Cut(rest, errorTableEnd)
	if !ok || !ends {
		t.Fatalf("%s has no %q and %q around the table", errorsDoc, errorTableBegin, errorTableEnd)
	}
	made := errorTable()
	if *update {
		must(t, os.WriteFile(errorsDoc, []byte(before+errorTableBegin+made+errorTableEnd+after), 0o666))
		kept = made
	}
	if diff := cmp.Diff(kept, made); diff != "" {
		t.Errorf("%s is not what OutcomeOf and Walk.Next say (-kept +made); run go test -run TestErrorTable -update . and read what has changed:\n%s", errorsDoc, diff)
	}
}

const (
	errorTableBegin = "<!-- the table is made by: go test -run TestErrorTable -update . -->\n"
	errorTableEnd   = "<!-- its end -->\n"
)

var boom = errors.New("boom")

// errorRows are what a broker can say, each stronger than the ones above it
// that mean something else.
var errorRows = []struct {
	name string
	err  error
}{
	{"not marked", boom},
	{"`OutOfCapacity(err)`", provisioner.OutOfCapacity(boom)},
	{"`ZoneIndependent(err)`", provisioner.ZoneIndependent(boom)},
	{"`Quota(err)`", provisioner.Quota(boom)},
	{"`RetryAfter(err, time.Minute)`", provisioner.RetryAfter(boom, time.Minute)},
	{"`RetryAfter(err, 0)`", provisioner.RetryAfter(boom, 0)},
	{"`RetryAfter(err, Off)`", provisioner.RetryAfter(boom, provisioner.Off)},
	{"`Ambiguous(err)`", provisioner.Ambiguous(boom)},
	{"`AlreadyExists(err)`", provisioner.AlreadyExists(boom)},
	{"a time-out: `errors.Timeout`, or a `Timeout()` that is true", timeout{true}},
	{"`Unauthorized(err)`", provisioner.Unauthorized(boom)},
	{"`Permanent(err)`", provisioner.Permanent(boom)},
}

// If several markers hold, the one that is lower in the table wins.
func TestLowerErrorsWin(t *testing.T) {
	for i, lower := range errorRows {
		for _, upper := range errorRows[:i] {
			for _, err := range []error{stderrors.Join(upper.err, lower.err), stderrors.Join(lower.err, upper.err)} {
				if got, want := provisioner.OutcomeOf(err).Kind, provisioner.OutcomeOf(lower.err).Kind; got != want {
					t.Errorf("%s together with %s: %s, want %s", upper.name, lower.name, outcomeWords[got], outcomeWords[want])
				}
			}
		}
	}
}

func errorTable() string {
	var b strings.Builder
	b.WriteString("| error of a start | means | other zones are left | none is left, or there are none | waits (with other zones; without) | no retry is left |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, row := range errorRows {
		o := provisioner.OutcomeOf(row.err)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", row.name, outcomeWords[o.Kind], stepWords(o, 2), stepWords(o, 0), waitWords(o), lastWords(o))
	}
	return b.String()
}

var outcomeWords = map[provisioner.OutcomeKind]string{
	provisioner.OutcomeZoneFailed:      "this zone did not work",
	provisioner.OutcomeZoneIndependent: "no zone would have worked",
	provisioner.OutcomeUnknown:         "there may be an instance",
	provisioner.OutcomeRateLimited:     "too fast",
	provisioner.OutcomePermanent:       "nothing can work",
}

var steady = provisioner.RetryPolicy{Jitter: provisioner.NoJitter, Retries: 5}

func stepWords(o provisioner.Outcome, usable int) string {
	w, d := provisioner.Walk{}.Next(steady, o, usable, 0)
	words := map[provisioner.Step]string{
		provisioner.StepNextZone:  "next zone",
		provisioner.StepNewRound:  "new round, all zones",
		provisioner.StepSameZone:  "same zone, new attempt",
		provisioner.StepSameAgain: "same attempt, zone and token",
		provisioner.StepFail:      "fail",
	}[d.Step]
	if d.Step == provisioner.StepFail {
		return words
	}
	return words + map[int]string{0: ", free", 1: ", costs a retry"}[w.Retries]
}

// waitWords are the waits after the first and the second such failure in a row,
// with another zone left and without.
func waitWords(o provisioner.Outcome) string {
	waits := func(usable int) string {
		w, first := provisioner.Walk{}.Next(steady, o, usable, 0)
		if first.Step == provisioner.StepFail {
			return "–"
		}
		_, second := w.Next(steady, o, usable, 0)
		if first.Wait == second.Wait {
			return first.Wait.String()
		}
		return fmt.Sprintf("%v, then %v…", first.Wait, second.Wait)
	}
	if left, none := waits(2), waits(0); left != none {
		return left + "; " + none
	}
	return waits(0)
}

func lastWords(o provisioner.Outcome) string {
	last := provisioner.Walk{Retries: steady.Retries}
	_, left := last.Next(steady, o, 2, 0)
	_, none := last.Next(steady, o, 0, 0)
	switch {
	case left.Step != provisioner.StepFail && none.Step != provisioner.StepFail:
		return "goes on"
	case left.Step != provisioner.StepFail:
		return "fails when no zone is left"
	}
	return "fails"
}

// Every error that a host can branch on is in the document.
func TestErrorsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(errorsDoc)
	must(t, err)
	exported, err := os.ReadFile("api/provisioner.txt")
	must(t, err)
	found := regexp.MustCompile(`(?m)^(?:const (Err\w+) |type (\w+Error) struct$|func (\w+)\(error(?:, time\.Duration)?\) error$)`).FindAllStringSubmatch(string(exported), -1)
	if len(found) < 30 {
		t.Fatalf("only %d errors and markers were found in api/provisioner.txt", len(found))
	}
	for _, m := range found {
		name := m[1] + m[2] + m[3]
		if !regexp.MustCompile("`[^`]*\\b" + name + "\\b[^`]*`").Match(text) {
			t.Errorf("%s does not say what %s is", errorsDoc, name)
		}
	}
}
