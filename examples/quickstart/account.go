package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/fleet"
)

// An account is the Task's observer: it tells what happens while it happens,
// and remembers how each machine ended.
type account struct {
	fleet fleet.Fleet
	out   screen

	mu     sync.Mutex
	spread *spread
	began  time.Time                                   // zero: nothing is told yet
	brief  bool                                        // there is too much for a line each
	wide   int                                         // of the longest id
	lines  int                                         // told
	starts int                                         // planned
	told   time.Duration                               // brief: until when
	fates  map[provisioner.MachineID]provisioner.Event // the latest that says how it went
	ends   map[provisioner.EventKind]int
	ended  []provisioner.Event // instances that were stopped or kept
}

// most is how many machines get a line for each thing that happens to them.
const most = 60

func newAccount(f fleet.Fleet, out screen) *account {
	return &account{
		fleet:  f,
		out:    out,
		spread: newSpread(f),
		fates:  map[provisioner.MachineID]provisioner.Event{},
		ends:   map[provisioner.EventKind]int{},
	}
}

// begin tells what was found and what is going to be done.
func (a *account) begin(plan provisioner.Plan, planOnly bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.fleet
	if f.Title != "" {
		a.out.paragraph("", a.out.paint(bold, clean(f.Title)))
	}
	a.out.paragraph("", fmt.Sprintf("%s, %s; harvest mode %s", plural(len(f.Machines), "machine"), zonesOf(f), plan.Harvest))
	for _, w := range f.Warnings {
		a.out.paragraph(a.out.paint(yellow, "note: "), clean(w))
	}
	kinds := map[provisioner.ActionKind]int{}
	for _, action := range plan.Actions {
		kinds[action.Kind]++
		a.wide = max(a.wide, len(action.Was.ID))
	}
	a.starts = kinds[provisioner.ActionStart]
	a.brief = len(plan.Actions) > most
	a.wide = min(a.wide, 16)
	var parts []string
	for _, kind := range actionKinds {
		if n := kinds[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n, kind))
		}
	}
	if parts == nil {
		parts = []string{"nothing to do"}
	}
	if n := len(plan.Left); n > 0 {
		parts = append(parts, fmt.Sprintf("%d to leave alone", n))
	}
	a.out.paragraph("Plan: ", strings.Join(parts, ", ")+".")
	fmt.Fprintln(a.out)
	if !planOnly {
		a.began = time.Now()
	}
}

// actionKinds in the order in which they are done.
var actionKinds = []provisioner.ActionKind{
	provisioner.ActionStop, provisioner.ActionRemove, provisioner.ActionMaintain, provisioner.ActionStart,
}

func zonesOf(f fleet.Fleet) string {
	if len(f.Zones) == 0 {
		return "no zones"
	}
	var names []string
	for _, z := range f.Zones {
		name := string(z.Name)
		if !z.Available {
			name += " (down)"
		}
		names = append(names, clean(name))
	}
	const few = 8
	text := strings.Join(names[:min(few, len(names))], ", ")
	if len(names) > few {
		text += ", …"
	}
	return plural(len(names), "zone") + ": " + text
}

// Observe implements provisioner.Observer.
func (a *account) Observe(e provisioner.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.began.IsZero() {
		return // this is still the planning
	}
	text, colour := a.tell(e) // may follow e in a.spread
	a.note(e)
	switch {
	case a.brief:
		a.progress(e, false)
	case text != "":
		a.line(e, a.out.paint(colour, clean(text)))
	}
}

// line is one thing that happened, with its time and machine.
func (a *account) line(e provisioner.Event, text string) {
	a.lines++
	prefix := fmt.Sprintf("%6.2fs  %-*s  ", max(e.At.Sub(a.began), 0).Seconds(), a.wide, e.Machine)
	a.out.paragraph(prefix, text)
}

// progress tells of a large fleet every half second.
func (a *account) progress(e provisioner.Event, last bool) {
	const every = 500 * time.Millisecond
	since := e.At.Sub(a.began)
	if since < a.told+every && !last {
		return
	}
	a.told = since.Truncate(every)
	a.lines++
	var zones []string
	for _, z := range a.fleet.Zones {
		if n := a.spread.total[z.Name]; len(zones) < 6 {
			zones = append(zones, fmt.Sprintf("%s %d", z.Name, n))
		}
	}
	text := fmt.Sprintf("%d of %d started", a.ends[provisioner.EventStarted], a.starts)
	for _, more := range []struct {
		kind provisioner.EventKind
		what string
	}{
		{provisioner.EventRemoved, "removed"}, {provisioner.EventMaintained, "maintained"}, {provisioner.EventStartFailed, "given up"},
	} {
		if n := a.ends[more.kind]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, more.what)
		}
	}
	if n := a.ends[provisioner.EventAttemptFailed]; n > 0 {
		text += ", " + plural(n, "failed attempt")
	}
	if len(zones) > 0 {
		text += "; machines in " + strings.Join(zones, ", ")
	}
	a.out.paragraph(fmt.Sprintf("%6.2fs  ", since.Seconds()), clean(text))
}

// tell puts an event into words; empty: not worth a line.
func (a *account) tell(e provisioner.Event) (text, colour string) {
	switch e.Kind {
	case provisioner.EventAttempt:
		return a.tellAttempt(e), ""
	case provisioner.EventAttemptFailed:
		a.spread.fail(e.Machine, e.Zone, e.Err)
		return "failed" + in(e) + ": " + errText(e.Err) + again(e), yellow
	case provisioner.EventStarted:
		return fmt.Sprintf("runs%s as %s", in(e), e.Instance), green
	case provisioner.EventStartFailed:
		return "given up: " + errText(e.Err), red
	case provisioner.EventStartCancelled:
		if a.fates[e.Machine].Kind == provisioner.EventZonesOut {
			return "", "" // it was waiting, and the account ends
		}
		return "start dropped: " + e.Text, yellow
	case provisioner.EventZonesOut:
		return "waits for a zone: " + e.Text, yellow
	case provisioner.EventStopping:
		return fmt.Sprintf("stopping %s", e.Instance), ""
	case provisioner.EventStopped:
		return fmt.Sprintf("%s is stopped", e.Instance), ""
	case provisioner.EventStopFailed:
		return fmt.Sprintf("%s could not be stopped: %s%s", e.Instance, errText(e.Err), again(e)), yellow
	case provisioner.EventKept:
		return fmt.Sprintf("%s stays: %s", e.Instance, e.Text), ""
	case provisioner.EventRemoved:
		return "its record is removed", green
	case provisioner.EventMaintained:
		return fmt.Sprintf("upkeep of %s is done", e.Instance), green
	case provisioner.EventUndone:
		return fmt.Sprintf("%s could not be recorded, or is not wanted any more, and is stopped again", e.Instance), yellow
	}
	if e.Err != nil {
		return strings.ReplaceAll(string(e.Kind), "-", " ") + ": " + errText(e.Err) + again(e), yellow
	}
	return "", ""
}

func (a *account) tellAttempt(e provisioner.Event) string {
	text := "starting" + in(e)
	if e.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", e.Attempt)
	}
	if why := a.spread.choose(e.Machine, e.Zone); why != "" && !e.Machine.IsContainer() {
		text += ": " + why
	}
	return text
}

// in says where a start is: a container's zone is not its own.
func in(e provisioner.Event) string {
	switch host := e.Machine.Host(); {
	case host != "":
		return " on host " + string(host)
	case e.Zone == "":
		return ""
	}
	return " in " + string(e.Zone)
}

// again says when a thing is tried again.
func again(e provisioner.Event) string {
	switch wait := e.Next.Sub(e.At); {
	case e.Next.IsZero():
		return ""
	case wait <= 0:
		return "; trying again at once"
	default:
		return fmt.Sprintf("; trying again in %s", wait.Round(10*time.Millisecond))
	}
}

// errText says what went wrong. Of a start it also says how often it was tried
// where, or, if it never was, why each zone was out.
func errText(err error) string {
	if err == nil {
		return "no reason given"
	}
	text := err.Error()
	var start *provisioner.StartError
	switch {
	case !errors.As(err, &start):
		return text
	case len(start.Attempts) > 1:
		var tries []string
		for _, zone := range slices.Sorted(maps.Keys(start.Tried)) {
			tries = append(tries, strings.TrimSpace(fmt.Sprintf("%s %d", zone, start.Tried[zone])))
		}
		return fmt.Sprintf("%s (after %d attempts: %s)", text, len(start.Attempts), strings.Join(tries, ", "))
	case len(start.Attempts) == 1:
		return text
	}
	var reasons []string
	zones := map[string][]string{}
	for _, x := range start.Out {
		if zones[x.Reason] == nil {
			reasons = append(reasons, x.Reason)
		}
		zones[x.Reason] = append(zones[x.Reason], string(x.Zone))
	}
	for _, reason := range reasons {
		text += "; " + strings.Join(zones[reason], ", ") + ": " + reason
	}
	return text
}

// note remembers what an event means for the end of the story.
func (a *account) note(e provisioner.Event) {
	a.ends[e.Kind]++
	switch e.Kind {
	case provisioner.EventRemoved:
		a.spread.place(e.Machine, "")
		return
	case provisioner.EventStopped, provisioner.EventKept:
		a.ended = append(a.ended, e)
		return
	case provisioner.EventStartFailed:
		a.spread.place(e.Machine, "")
	case provisioner.EventZonesOut,
		provisioner.EventStopFailed, provisioner.EventRemoveFailed, provisioner.EventMaintained,
		provisioner.EventMaintainFailed, provisioner.EventMachineFailed:
	default:
		return
	}
	a.fates[e.Machine] = e
}

// end hands over how it all ended.
func (a *account) end(r *report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.brief {
		a.progress(provisioner.Event{At: a.began.Add(r.took)}, true)
	}
	if a.lines > 0 {
		fmt.Fprintln(a.out)
	}
	r.fates, r.ended, r.spread = a.fates, a.ended, a.spread
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// clean keeps control characters of a file off the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}
