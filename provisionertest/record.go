package provisionertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed81ba69f2/provisioner"
)

// A Phase says what kind of thing a Record tells.
type Phase uint8

// The phases.
const (
	Begin Phase = iota // a call has reached the host
	End                // a call returns to the Task
	Deed               // the test changed the world
	Seen               // an event that the Task told its observers
)

// A Record is one line of the transcript.
type Record struct {
	Seq    int           // 1, 2, 3…
	At     time.Duration // since the World was made
	Phase  Phase
	Call   Call   // Begin, End
	Begun  int    // End: the Seq of its beginning; 0: it never reached the host
	Text   string // the call with its arguments, the deed, the event
	Result string // End: empty if there is none to show
	Err    error  // End: what it returned, a *Crash if it didn't
}

// A Crash is in the record of a call that did not return.
type Crash struct{ How string }

// Error tells how.
func (c *Crash) Error() string { return c.How }

// String gives the record without its number and time: "start 0@a ..." when a
// call begins, "start 0@a -> i-0", "stop i-0 -> ok" or
// "rm 0 -> error: machine is alive" when it ends, "= 0 is dead" for a deed and
// "* started machine=0" for an event.
func (r Record) String() string {
	switch {
	case r.Phase == Begin:
		return r.Text + " ..."
	case r.Phase == Deed:
		return "= " + r.Text
	case r.Phase == Seen:
		return "* " + r.Text
	case r.Err != nil:
		return r.Text + " -> error: " + r.Err.Error()
	case r.Result == "":
		return r.Text + " -> ok"
	}
	return r.Text + " -> " + r.Result
}

// Records returns what was recorded since the World was made, or since
// ResetRecords.
func (w *World) Records() []Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.records)
}

// ResetRecords forgets what was recorded, and begins again at 1.
func (w *World) ResetRecords() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = nil
}

// Transcript gives every record in its order, a line each: number, time since
// the World was made, text.
func (w *World) Transcript() string {
	var b strings.Builder
	for _, r := range w.Records() {
		fmt.Fprintf(&b, "%d %s %s\n", r.Seq, r.At, r)
	}
	return b.String()
}

// Ties counts the calls that reached the host at the same instant as the one
// before. While it is 0 the order of the transcript is no accident.
func (w *World) Ties() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ties
}

// Observe writes an event of the Task into the transcript: put the World among
// the Task's observers. Observers run beside the Task, so where among the
// calls of the same instant an event ends up is an accident.
func (w *World) Observe(e provisioner.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record(Record{Phase: Seen, Text: e.String()})
}

// record appends one under the lock and returns its number.
func (w *World) record(r Record) int {
	if w.set.Silent {
		return 0
	}
	r.Seq = len(w.records) + 1
	r.At = w.now().Sub(w.born)
	w.records = append(w.records, r)
	return r.Seq
}

// deed records what the test does.
func (w *World) deed(format string, args ...any) {
	if !w.set.Silent {
		w.record(Record{Phase: Deed, Text: fmt.Sprintf(format, args...)})
	}
}

// arrive records that a call has reached the host, and finds what hits it.
func (w *World) arrive(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if now.Equal(w.arrived) {
		w.ties++
	}
	w.arrived = now
	c.begun = w.record(Record{Phase: Begin, Call: c.kind, Text: w.describe(c)})
	c.hits = w.hit(c)
	w.checkUse(c)
}

// end records that a call returns.
func (w *World) end(c *call, result string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record(Record{Phase: End, Call: c.kind, Begun: c.begun, Text: w.describe(c), Result: result, Err: err})
	w.endUse(c)
}

// describe gives the call's text.
func (w *World) describe(c *call) string {
	if w.set.Silent {
		return ""
	}
	if c.text == "" {
		c.text = c.String()
	}
	return c.text
}

// String gives the kind and the arguments.
func (c *call) String() string {
	var b strings.Builder
	b.WriteString(string(c.kind))
	if c.machine != "" {
		b.WriteString(" " + string(c.machine))
	}
	if len(c.machines) > 0 {
		b.WriteString(" " + some(c.machines))
	}
	if c.instance != "" {
		b.WriteString(" " + string(c.instance))
	}
	if len(c.instances) > 0 {
		b.WriteString(" " + some(c.instances))
	}
	if c.zone != "" {
		b.WriteString("@" + string(c.zone))
	}
	if c.detail != nil {
		b.WriteString(" " + c.detail())
	}
	return b.String()
}

// some joins the first few of many, and says how many there are.
func some[S ~string](all []S) string {
	const few = 10
	texts := make([]string, 0, few)
	for _, s := range all[:min(few, len(all))] {
		texts = append(texts, string(s))
	}
	text := strings.Join(texts, " ")
	if len(all) > few {
		text += fmt.Sprintf(" ... (%d)", len(all))
	}
	return text
}
