package provisioner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/instancecfg"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// noTime leaves the time of a line out.
func noTime(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && len(groups) == 0 {
		return slog.Attr{}
	}
	return a
}

func TestLogObserver(t *testing.T) {
	at := time.Date(2026, 3, 7, 8, 12, 44, 0, time.UTC)
	for _, c := range []struct {
		why  string
		in   provisioner.Event
		want string
	}{
		{"every field, in one order", provisioner.Event{
			Seq: 7, At: at, Kind: provisioner.EventAttemptFailed, Machine: "0", Instance: "i-0", Zone: "east wing", Attempt: 2, N: 3,
			Next: at.Add(10 * time.Second), Text: "retrying", Err: errors.New(`no "room"`),
		}, `time=2026-03-07T08:12:44.000Z level=WARN msg=attempt-failed machine=0 instance=i-0 zone="east wing" attempt=2 n=3 next=2026-03-07T08:12:54.000Z text=retrying err="no \"room\"" seq=7`},
		{"the error of a start is one text, as any other", provisioner.Event{
			At: at, Kind: provisioner.EventStartFailed, Machine: "0", Err: &provisioner.StartError{Machine: "0", Cause: errors.New("boom")},
		}, `time=2026-03-07T08:12:44.000Z level=ERROR msg=start-failed machine=0 err=boom`},
		{"a stack stays on one line", provisioner.Event{At: at, Kind: provisioner.EventStarted, Machine: "0", Err: errors.New("a\n\tb")},
			`time=2026-03-07T08:12:44.000Z level=INFO msg=started machine=0 err="a\n\tb"`},
		{"a kind that is not known yet", provisioner.Event{At: at, Kind: "danced"}, `time=2026-03-07T08:12:44.000Z level=INFO msg=danced`},
		{"below the logger's level", provisioner.Event{At: at, Kind: provisioner.EventLeft}, ``},
	} {
		t.Run(c.why, func(t *testing.T) {
			var b bytes.Buffer
			provisioner.LogObserver{Logger: slog.New(slog.NewTextHandler(&b, nil))}.Observe(c.in)
			if diff := cmp.Diff(c.want, strings.TrimSuffix(b.String(), "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogObserverSettings(t *testing.T) {
	var b bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: noTime})))
	provisioner.LogObserver{}.Observe(provisioner.Event{Kind: provisioner.EventStarted, Machine: "0"})
	provisioner.LogObserver{Level: func(provisioner.EventKind) slog.Level { return slog.LevelError }}.Observe(provisioner.Event{Kind: provisioner.EventLeft, Machine: "1"})
	provisioner.LogObserver{Level: func(provisioner.EventKind) slog.Level { return slog.LevelDebug }}.Observe(provisioner.Event{Kind: provisioner.EventStarted})
	want := "level=INFO msg=started machine=0\nlevel=ERROR msg=left machine=1\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("the default logger was told (-want +got):\n%s", diff)
	}
}

// LC4: one line for each event of a run, in order.
func TestLogObserverOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 5, 2)
		cfg := configOf(w, nil)
		var b bytes.Buffer
		seen := &log{}
		cfg.Observers = []provisioner.Observer{seen, provisioner.LogObserver{Logger: slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))}}
		stop := start(t, newTask(t, cfg))
		pass(time.Minute)
		stopCleanly(t, w, stop)
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		events := seen.all()
		if len(lines) != len(events) {
			t.Fatalf("%d lines of %d events", len(lines), len(events))
		}
		for i, e := range events {
			var line struct {
				Msg string
				Seq uint64
			}
			must(t, json.Unmarshal([]byte(lines[i]), &line))
			if line.Msg != string(e.Kind) || line.Seq != e.Seq {
				t.Errorf("line %d is %s, want %s", i+1, lines[i], e)
			}
		}
	})
}

func TestLogValues(t *testing.T) {
	at := time.Date(2026, 3, 7, 8, 12, 44, 0, time.UTC)
	machine := provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i-0", Zone: "a", Keep: true, Status: provisioner.StatusStarted,
		InstanceStatus: provisioner.InstanceRunning, Unread: provisioner.FieldKeep}
	failed := &provisioner.StartError{Machine: "0", Cause: errors.New("boom"), Tried: map[provisioner.ZoneName]int{"b": 1, "a": 2}, Out: []provisioner.Excluded{{Zone: "c", Reason: "unavailable"}}}
	cores, secretive := uint64(2), instancecfg.Config{Auth: instancecfg.Auth{Password: instancecfg.Hide("hush")}}
	for _, c := range []struct {
		in   slog.LogValuer
		want string
	}{
		{provisioner.Event{Seq: 7, At: at, Kind: provisioner.EventLeft, Machine: "0", Text: "all is well"}, `v.kind=left v.machine=0 v.text="all is well" v.seq=7`},
		{machine, `v.machine=0 v.life=alive v.instance=i-0 v.zone=a v.keep=true v.status=started v.instanceStatus=running v.unread=keep`},
		{provisioner.Action{Kind: provisioner.ActionStop, Was: machine, Reason: "dead", EnsureDead: true, LookAgain: true, Err: errors.New("boom")},
			`v.kind=stop v.machine=0 v.instance=i-0 v.reason=dead v.ensureDead=true v.lookAgain=true v.err=boom`},
		{provisioner.Result{Machine: "0", Kind: provisioner.ActionStart, Instance: "i-0", Zone: "a", Reason: "pending", Err: failed}, `v.kind=start v.machine=0 v.instance=i-0 v.zone=a v.reason=pending v.err=boom`},
		{provisioner.Explanation{Machine: "0", Phase: provisioner.PhaseWaiting, Reason: "waits", Attempt: 2, Zone: "a", Instance: "i-0", LastError: errors.New("boom"), Next: at},
			`v.machine=0 v.phase=waiting v.reason=waits v.attempt=2 v.zone=a v.instance=i-0 v.err=boom v.next=2026-03-07T08:12:44.000Z`},
		{provisioner.Call{Name: "Broker.Start", Machine: "0", Machines: 2, Instance: "i-0", Zone: "a", Attempt: 1}, `v.call=Broker.Start v.machine=0 v.machines=2 v.instance=i-0 v.zone=a v.attempt=1`},
		{provisioner.StartRequest{Machine: "0", Attempt: 1, Zone: "a", Nonce: "ctl:1", Token: "t", Host: "1", Constraints: constraints.Value{Cores: &cores}, Config: secretive},
			`v.machine=0 v.attempt=1 v.zone=a v.token=t v.host=1 v.constraints="cores=2"`},
		{provisioner.StartResult{Instance: "i-0", Zone: "a", Hardware: constraints.Hardware{Cores: &cores}}, `v.instance=i-0 v.zone=a v.hardware="cores=2"`},
		{provisioner.InstanceRecord{Machine: "0", Instance: "i-0", Nonce: "ctl:1", Zone: "a"}, `v.machine=0 v.instance=i-0 v.zone=a`},
		{provisioner.StatusUpdate{Machine: "0", Status: provisioner.StatusError, InstanceStatus: provisioner.InstanceProvisioningError, Text: "boom"},
			`v.machine=0 v.status=error v.instanceStatus="provisioning error" v.text=boom`},
		{failed, `v.machine=0 v.err=boom v.tried.a=2 v.tried.b=1 v.out.c=unavailable`},
		{(*provisioner.StartError)(nil), `v=<nil>`},
		{&provisioner.StopError{Failed: map[provisioner.InstanceID]error{"i-1": errors.New("bang"), "i-0": errors.New("boom")}}, `v.i-0=boom v.i-1=bang`},
		{(*provisioner.StopError)(nil), `v=<nil>`},
	} {
		t.Run(reflect.TypeOf(c.in).String(), func(t *testing.T) {
			var b bytes.Buffer
			slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: noTime})).LogAttrs(context.Background(), slog.LevelInfo, "x", slog.Any("v", c.in))
			if diff := cmp.Diff("level=INFO msg=x "+c.want+"\n", b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
