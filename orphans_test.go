package provisioner_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// ST12, ST19: what has to go is shown until it is gone: one that could not be
// recorded, and one too many of a machine.
func TestOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{Controller: "c", Kind: true, Traits: provisioner.Traits{Labels: true, ConsistentReads: true}})
		must(t, w.AddPending("0", "1"))
		labels := provisioner.Labels{Controller: "c", Machine: "1"}
		must(t, w.AddInstance(provisioner.Instance{ID: "one", Labels: labels, Created: time.Now().Add(-time.Hour)}),
			w.AddInstance(provisioner.Instance{ID: "two", Labels: labels}))
		broken := errors.New("out of order")
		must(t, w.Inject(provisionertest.Fault{Call: provisionertest.CallStop, Count: provisionertest.Always, What: provisionertest.TroubleError, Err: broken}),
			w.Inject(provisionertest.Fault{Call: provisionertest.CallRecord, Machine: "0", What: provisionertest.TroubleError, Text: "disk full"}))
		task, err := provisioner.New(provisioner.Config{Controller: "c", Broker: w.Broker(), State: w.State(),
			Policy: provisioner.Policy{Backoff: provisioner.FixedRetry(time.Minute, 1)}})
		must(t, err)
		if got := task.Orphans(); got != nil {
			t.Errorf("before anything is done: %v", got)
		}
		began := time.Now()
		_, err = task.Reconcile(t.Context())
		var left *provisioner.CallsOutError
		if !errors.As(err, &left) || len(left.Orphans) != 2 {
			t.Errorf("the look does not tell what is left: %v", err)
		}
		want := []provisioner.Orphan{
			{Instance: "i-0", Machine: "0", Reason: "disk full", Err: broken, Next: began.Add(time.Minute)},
			{Instance: "two", Machine: "1", Reason: "machine 1 has another instance, one", Err: broken, Next: began.Add(time.Minute)},
		}
		sameError := cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) || errors.Is(b, a) })
		if diff := cmp.Diff(want, task.Orphans(), sameError); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		w.ClearFaults()
		time.Sleep(time.Minute) // in a bubble
		_, err = task.Reconcile(t.Context())
		must(t, err)
		_, err = task.Reconcile(t.Context())
		must(t, err)
		if got := task.Orphans(); got != nil {
			t.Errorf("after they were stopped: %v", got)
		}
		must(t, w.Check())
	})
	if got := new(provisioner.Task).Orphans(); got != nil {
		t.Errorf("of a Task that New has not made: %v", got)
	}
}
