package provisioner_test

import (
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
