package provisioner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// ST11: after a call that was cut off nobody knows whether an instance was
// made, so no other zone is tried.
func TestStartThatIsCutOffIsUnknown(t *testing.T) {
	for _, c := range []struct {
		why     string
		err     error
		unknown bool
	}{
		{"the connection was reset", fmt.Errorf("post: %w", syscall.ECONNRESET), true},
		{"the pipe broke", fmt.Errorf("write: %w", syscall.EPIPE), true},
		{"the answer ended early", fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true},
		{"the broker gave up by itself", fmt.Errorf("own deadline: %w", context.DeadlineExceeded), true},
		{"nobody listens, so nothing was asked for", fmt.Errorf("dial: %w", syscall.ECONNREFUSED), false},
	} {
		t.Run(c.why, func(t *testing.T) {
			w := provisionertest.New(provisionertest.Settings{Kind: true})
			if err := errors.Join(
				w.Load(provisionertest.NewFleet(1, 2, 0)),
				w.Inject(provisionertest.Fault{Call: provisionertest.CallStart, What: provisionertest.TroubleError, Err: c.err}),
			); err != nil {
				t.Fatal(err)
			}
			task, err := provisioner.New(provisioner.Config{Controller: "c", Broker: w.PlainBroker(), State: w.State()})
			if err != nil {
				t.Fatal(err)
			}
			report, err := task.Reconcile(t.Context())
			if err != nil || len(report.Results) != 1 {
				t.Fatalf("%+v, %v", report, err)
			}
			got := report.Results[0]
			if errors.Is(got.Err, provisioner.ErrAmbiguous) != c.unknown || (got.Err == nil) == c.unknown {
				t.Errorf("the start ended with %v, want unknown: %t", got.Err, c.unknown)
			}
			if n := len(w.Live()); c.unknown != (n == 0) {
				t.Errorf("%d instances were made", n)
			}
		})
	}
}

// ST18: a host can branch on a call that ran into its deadline.
func TestTimeOutIsTyped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{Kind: true})
		if err := errors.Join(
			w.Load(provisionertest.NewFleet(1, 1, 0)),
			w.Inject(provisionertest.Fault{Call: provisionertest.CallStart, What: provisionertest.TroubleHang}),
		); err != nil {
			t.Fatal(err)
		}
		task, err := provisioner.New(provisioner.Config{Controller: "c", Broker: w.PlainBroker(), State: w.State()})
		if err != nil {
			t.Fatal(err)
		}
		report, err := task.Reconcile(t.Context())
		if err != nil || len(report.Results) != 1 || !errors.Is(report.Results[0].Err, provisioner.ErrTimedOut) {
			t.Errorf("%+v, %v: want an error that is ErrTimedOut", report, err)
		}
	})
}
