package provisionertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// A cell of the grid: what a host gives, where its Task is cut off, and whether
// the machine is dead when the next Task begins.
type cell struct {
	broker     brokerKind
	intents    bool
	consistent bool
	point      provisionertest.CrashPoint
	dies       bool
}

// A brokerKind is one way in which a broker helps to find an instance again.
type brokerKind struct {
	name   string
	traits provisioner.Traits
	finds  bool
	nonce  bool // the host makes one with each record
}

var brokerKinds = []brokerKind{
	{name: "labels", traits: provisioner.Traits{Labels: true}},
	{name: "can look up", finds: true},
	{name: "dedupes by token, nonce in the record", traits: provisioner.Traits{DedupesByToken: true}, nonce: true},
	{name: "dedupes by token", traits: provisioner.Traits{DedupesByToken: true}},
	{name: "none of it"},
}

func (c cell) String() string {
	return fmt.Sprintf("%s, intents %v, consistent %v, %s, dies %v", c.broker.name, c.intents, c.consistent, c.point, c.dies)
}

// atStart says whether the point is one of a start.
func (c cell) atStart() bool {
	return slices.Contains(provisionertest.CrashPoints()[:5], c.point)
}

// What can come of a cell.
const (
	settled = "settled"     // as if nothing had happened
	second  = "second made" // the machine has another instance; the first is left
	held    = "held back"   // the machine is not started again
	heldOne = "held back, one left"
	oneLeft = "one left" // the machine is gone
)

var meanings = []struct{ word, meaning string }{
	{settled, "Each machine that is to have an instance has one, that one is recorded, and there is no other; there never were two. Of a machine that is gone, none is left."},
	{second, "The next Task knows of no attempt and makes another instance. The first is left, and reported as unknown."},
	{held, "The next Task knows that there was an attempt, and can't know what came of it: the machine has the status `provisioning error`, which says so, until somebody has looked and a retry signal comes."},
	{heldOne, "As above, and an instance was made: it is left, and reported as unknown."},
	{oneLeft, "The record is removed, the instance that was made for it is left, and reported as unknown."},
}

// loss is what the documents say of a cell: the contract. Nothing is lost where
// instances can be looked for; where they can't, a stored intent keeps a second
// one from being made, and a token then finds the first again.
func (c cell) loss() string {
	unheard := c.point == provisionertest.CrashAfterStart || c.point == provisionertest.CrashBeforeRecord
	stored := c.intents && (unheard || c.point == provisionertest.CrashAfterIntent)
	switch {
	case c.broker.finds || c.broker.traits.Labels, !unheard && !stored:
		return settled
	case c.dies && unheard:
		return oneLeft
	case c.dies, c.broker.nonce, stored && c.broker.traits.DedupesByToken:
		return settled
	case stored && unheard:
		return heldOne
	case stored:
		return held
	}
	return second
}

// outcome cuts a Task off, lets the next one converge, and says what came of it.
func (c cell) outcome(t *testing.T) string {
	w, host := c.host(t)
	crash, err := provisionertest.CrashAt(host, c.point, 1)
	must(t, err)
	endFirst := runTask(t, w, crash.Host)
	if !c.atStart() {
		time.Sleep(10 * time.Minute) // in a bubble: all are started
		for _, m := range w.Machines() {
			must(t, w.SetLife(m.ID, provisioner.Dead))
		}
	}
	<-crash.Crashed() // a bubble in which that never happens says so
	if c.dies {
		must(t, w.SetLife("0", provisioner.Dead))
	}
	endSecond := runTask(t, w, host)
	time.Sleep(2 * time.Hour) // in a bubble
	endFirst()
	endSecond()
	return c.judge(t, w)
}

// host is a World that gives no more than the cell says.
func (c cell) host(t *testing.T) (*provisionertest.World, provisionertest.Host) {
	t.Helper()
	traits := c.broker.traits
	traits.ConsistentReads = c.consistent
	w := provisionertest.New(provisionertest.Settings{Controller: "c", Traits: traits,
		LostReplies: provisionertest.NeverLost, Visibility: 20 * time.Second}) // less than Config.VisibilityGrace
	machines := 1
	if !c.atStart() {
		machines = 2 // of a stop of several half is done
	}
	must(t, w.Load(provisionertest.NewFleet(machines, 2, 0)))
	b, s := w.Broker(), w.State()
	host := provisionertest.Host{Broker: w.PlainBroker(), State: w.PlainState(),
		Optional: provisioner.Optional{Zones: b, Traits: b, Status: s, Life: s}}
	if c.broker.finds {
		host.Optional.Finder = b
	}
	for _, m := range w.Machines() {
		if c.broker.nonce {
			must(t, w.SetStartInfo(m.ID, provisioner.StartInfo{Nonce: "c:" + string(m.ID)}))
		}
	}
	if c.intents {
		host.Optional.Intents = s
	}
	return w, host
}

// runTask runs a Task of the host until the function that it gives is called.
func runTask(t *testing.T, w *provisionertest.World, host provisionertest.Host) (end func()) {
	t.Helper()
	cfg := provisioner.Config{Controller: "c", Changes: w.Changes(), Observers: []provisioner.Observer{w},
		Policy: provisioner.Policy{Retry: provisioner.FixedRetry(time.Minute, 3)}}
	host.Configure(&cfg)
	task, err := provisioner.New(cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = task.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// judge says what has become of machines and instances, and what must not have.
func (c cell) judge(t *testing.T, w *provisionertest.World) string {
	t.Helper()
	leaks := w.Leaks()
	for _, l := range leaks {
		if !slices.ContainsFunc(w.Records(), func(r provisionertest.Record) bool {
			return r.Phase == provisionertest.Seen && strings.HasPrefix(r.Text, "unknown") && strings.Contains(r.Text, string(l.Instance))
		}) {
			t.Errorf("%s is left, and not reported\n%s", l.Instance, w.Transcript())
		}
	}
	if wrong := w.WrongStops(); len(wrong) > 0 || len(leaks) > 1 {
		t.Errorf("wrong stops %v, left %v", wrong, leaks)
	}
	without := 0
	for _, m := range w.Machines() {
		if m.Life == provisioner.Dead {
			t.Errorf("the record of machine %s is left", m.ID)
		}
		if m.Instance == "" {
			without++
			if m.InstanceStatus != provisioner.InstanceProvisioningError || !strings.Contains(w.StatusText(m.ID), "may have made an instance") {
				t.Errorf("machine %s is not started, and says %s %q", m.ID, m.InstanceStatus, w.StatusText(m.ID))
			}
		}
	}
	switch doubles := len(w.Doubles()); {
	case len(leaks) == 0 && without == 0 && doubles == 0:
		return settled
	case len(leaks) == 1 && without == 0 && doubles == 1:
		return second
	case len(leaks) == 0 && without == 1 && doubles == 0:
		return held
	case len(leaks) == 1 && without == 1 && doubles == 0:
		return heldOne
	case len(leaks) == 1 && len(w.Machines()) == 0 && doubles == 0:
		return oneLeft
	}
	return fmt.Sprintf("left %v, doubles %v, without an instance %d", leaks, w.Doubles(), without)
}

// TestCrashGrid cuts a Task off at every point, with every kind of host, and
// holds what the next one makes of it against the documents. With -update it
// writes their table.
func TestCrashGrid(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# What a crash can cost

A Task is cut off from its host at a point, as if its process had been killed, and
another one begins from what there is (` + "`provisionertest.CrashAt`" + `). Columns are what
the host gives: how its broker helps to find an instance again, and whether its state
keeps intents (` + "`IntentStore`" + `). Consistent and late reads come to the same: each cell
is both. A broker that both dedupes and labels is as good as one that labels. A
test runs every cell, and writes this file
(` + "`go test ./provisionertest -run CrashGrid -update`" + `).

`)
	for _, m := range meanings {
		fmt.Fprintf(&b, "- **%s**: %s\n", m.word, m.meaning)
	}
	b.WriteString(`
A token without a stored intent helps over a crash only if the host makes a nonce
with each record (` + "`StartInfo.Nonce`" + `), for tokens are made from it, and then only for
the first attempt: how many there were is lost. Between the answer of the
broker and the record (` + "`before record`" + `) nothing is called, so that is as ` + "`after start`" + `.
Without a place for intents the points before and after one are the same.
`)
	b.WriteString("\n## The machine still wants its instance, or is on its way out\n\n")
	crashTable(t, &b, false)
	b.WriteString("\n## The machine that was being started is dead when the next Task begins\n\n")
	crashTable(t, &b, true)
	wantFile(t, "../docs/crashes.md", b.String())
}

func crashTable(t *testing.T, b *strings.Builder, dies bool) {
	t.Helper()
	b.WriteString("| cut off |")
	for _, kind := range brokerKinds {
		fmt.Fprintf(b, " %s | %s, intents |", kind.name, kind.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", 2*len(brokerKinds)) + "\n")
	for _, point := range provisionertest.CrashPoints() {
		if dies && !(cell{point: point}).atStart() {
			continue
		}
		fmt.Fprintf(b, "| %s |", point)
		for _, kind := range brokerKinds {
			for _, intents := range []bool{false, true} {
				c := cell{broker: kind, intents: intents, point: point, dies: dies}
				for _, c.consistent = range []bool{true, false} {
					t.Run(c.String(), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							if got := c.outcome(t); got != c.loss() {
								t.Errorf("got %s, want %s", got, c.loss())
							}
						})
					})
				}
				fmt.Fprintf(b, " %s |", c.loss())
			}
		}
		b.WriteString("\n")
	}
}
