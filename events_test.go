package provisioner_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

func TestEventString(t *testing.T) {
	at := time.Date(2026, 3, 7, 8, 12, 44, 0, time.UTC)
	tests := []struct {
		why  string
		in   provisioner.Event
		want string
	}{
		{"only a kind; number and time are left out", provisioner.Event{Seq: 7, At: at, Kind: provisioner.EventForgotten}, "forgotten"},
		{"every field, in one order", provisioner.Event{
			Seq: 7, At: at, Kind: provisioner.EventAttemptFailed, Machine: "0", Instance: "i-0", Zone: "east wing", Attempt: 2, N: 3,
			Next: at.Add(10*time.Second + 300*time.Millisecond), Text: "retrying", Err: errors.New(`no "room"`),
		}, `attempt-failed machine=0 instance=i-0 zone=east wing attempt=2 n=3 next=10s text="retrying" err="no \"room\""`},
		{"text that breaks lines stays on one", provisioner.Event{Kind: provisioner.EventLeft, Machine: "0", Text: "a\nb"}, `left machine=0 text="a\nb"`},
		{"less than a second is told exactly", provisioner.Event{At: at, Kind: provisioner.EventStopFailed, Next: at.Add(250 * time.Millisecond)}, "stop-failed next=250ms"},
		{"at once", provisioner.Event{At: at, Kind: provisioner.EventStopFailed, Next: at}, "stop-failed next=0s"},
		{"not by itself", provisioner.Event{At: at, Kind: provisioner.EventStopFailed}, "stop-failed"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.in.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestObserverFunc(t *testing.T) {
	var got provisioner.Event
	var o provisioner.Observer = provisioner.ObserverFunc(func(e provisioner.Event) { got = e })
	o.Observe(provisioner.Event{Kind: provisioner.EventLooked, N: 3})
	if diff := cmp.Diff(provisioner.Event{Kind: provisioner.EventLooked, N: 3}, got); diff != "" {
		t.Error(diff)
	}
}

const eventsDoc = "docs/events.md"

// docs/events.md is made from the comments in events.go; run with -update after
// a change. A name or field that has gone from it breaks somebody's observer.
func TestEventsAreDocumented(t *testing.T) {
	made := documentEvents(t)
	if *update {
		must(t, os.WriteFile(eventsDoc, []byte(made), 0o666))
	}
	kept, err := os.ReadFile(eventsDoc)
	must(t, err)
	if diff := cmp.Diff(string(kept), made); diff != "" {
		t.Errorf("%s is not what events.go says (-kept +made); run go test -run TestEventsAreDocumented -update . and read what has changed:\n%s", eventsDoc, diff)
	}
}

func documentEvents(t *testing.T) string {
	var b strings.Builder
	b.WriteString("# Events\n\nMade from the comments in events.go; `go test -run TestEventsAreDocumented -update .` makes it anew.\n" + `
An ` + "`Observer`" + ` is told each of these, in order. Kinds and the fields that go with
them are interface: they do not change, and a kind is not told for anything else
later. New kinds may come, and new fields; pass over what you don't know. Texts
and the order of events of different machines are not interface.

| field | what |
| --- | --- |
`)
	file := parsedEvents(t)
	for _, f := range eventStruct(t, file).Fields.List {
		fmt.Fprintf(&b, "| `%s` | %s |\n", f.Names[0].Name, strings.TrimSpace(f.Comment.Text()))
	}
	b.WriteString(`
` + "`Seq`, `At` and `Kind`" + ` are set in all. The level is that of ` + "`LogObserver`" + `, unless
it is told otherwise.
`)
	b.WriteString("\n| kind | when, and with which fields | level |\n| --- | --- | --- |\n")
	for _, k := range eventKinds(t, file) {
		text := eventField.ReplaceAllString(k.doc, "`$0`")
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.kind, strings.ToUpper(text[:1])+text[1:], strings.ToLower(k.kind.Level().String()))
	}
	return b.String()
}

// eventField finds the names of fields in the comment of a kind.
var eventField = regexp.MustCompile(`\b(Machine|Instance|Zone|Attempt|N|Next|Text|Err)\b`)

type documentedKind struct {
	kind provisioner.EventKind
	doc  string
}

func parsedEvents(t *testing.T) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "events.go", nil, parser.ParseComments)
	must(t, err)
	return file
}

func eventStruct(t *testing.T, file *ast.File) (event *ast.StructType) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == "Event" {
			event = spec.Type.(*ast.StructType)
		}
		return true
	})
	if event == nil || len(event.Fields.List) != reflect.TypeFor[provisioner.Event]().NumField() {
		t.Fatal("events.go does not declare Event with one field a line")
	}
	return event
}

// eventKinds are the constants of type EventKind, and what their comments say
// after "Name: ".
func eventKinds(t *testing.T, file *ast.File) []documentedKind {
	t.Helper()
	var kinds []documentedKind
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Type == nil || fmt.Sprint(spec.Type) != "EventKind" {
			return true
		}
		name := spec.Names[0].Name
		doc, ok := strings.CutPrefix(strings.Join(strings.Fields(spec.Doc.Text()), " "), name+": ")
		if !ok || doc == "" {
			t.Fatalf("events.go: the comment of %s should be %q, and then what happened and the fields that are set", name, name+": ")
		}
		kind, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		must(t, err)
		kinds = append(kinds, documentedKind{provisioner.EventKind(kind), doc})
		return true
	})
	if len(kinds) < 30 {
		t.Fatalf("only %d kinds of events were found in events.go", len(kinds))
	}
	return kinds
}

// asDocumented is an observer that knows what docs/events.md promises, and
// fails the test where an event has another field, or is of another kind.
func asDocumented(t *testing.T) provisioner.Observer {
	t.Helper()
	file := parsedEvents(t)
	fields := map[provisioner.EventKind][]string{}
	for _, k := range eventKinds(t, file) {
		fields[k.kind] = append(eventField.FindAllString(k.doc, -1), "Seq", "At", "Kind")
	}
	return provisioner.ObserverFunc(func(e provisioner.Event) {
		if err := undocumented(e, fields[e.Kind]); err != nil {
			t.Error(err)
		}
	})
}

func undocumented(e provisioner.Event, fields []string) error {
	if fields == nil {
		return errors.Errorf("events.go has no constant for %s", e)
	}
	v := reflect.ValueOf(e)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !v.Field(i).IsZero() && !slices.Contains(fields, name) {
			return errors.Errorf("the comment of its kind in events.go does not name %s, which is set: %s", name, e)
		}
	}
	if e.At.IsZero() || (e.Seq == 0) != (e.Kind == provisioner.EventsDropped) {
		return errors.Errorf("event without time or number: %+v", e)
	}
	return nil
}

func TestUndocumentedFieldsAreFound(t *testing.T) {
	at, fields := time.Unix(1, 0), []string{"Seq", "At", "Kind", "Machine"}
	for _, c := range []struct {
		why    string
		in     provisioner.Event
		fields []string
		bad    bool
	}{
		{"as documented", provisioner.Event{Seq: 1, At: at, Kind: provisioner.EventForgotten, Machine: "0"}, fields, false},
		{"a field may be empty", provisioner.Event{Seq: 1, At: at, Kind: provisioner.EventForgotten}, fields, false},
		{"a field more", provisioner.Event{Seq: 1, At: at, Kind: provisioner.EventForgotten, Machine: "0", Zone: "a"}, fields, true},
		{"a kind that there is not", provisioner.Event{Seq: 1, At: at, Kind: "danced"}, nil, true},
		{"no number", provisioner.Event{At: at, Kind: provisioner.EventForgotten}, fields, true},
	} {
		if err := undocumented(c.in, c.fields); (err != nil) != c.bad {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}
