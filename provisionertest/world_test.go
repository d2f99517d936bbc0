package provisionertest_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// kind makes a kind world with a fleet of pending machines in zones.
func kind(t testing.TB, s provisionertest.Settings, machines, zones int) *provisionertest.World {
	t.Helper()
	s.Kind = true
	w := provisionertest.New(s)
	must(t, w.Load(provisionertest.NewFleet(machines, zones, 0)))
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start starts an instance and says which.
func start(t testing.TB, w *provisionertest.World, req provisioner.StartRequest) provisioner.InstanceID {
	t.Helper()
	res, err := w.Broker().Start(t.Context(), req)
	must(t, err)
	return res.Instance
}

func TestTranscriptOfOneStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := kind(t, provisionertest.Settings{}, 1, 2)
		w.ResetRecords()
		ctx := context.Background()
		b, s := w.Broker(), w.State()
		must(t, s.WriteStatus(ctx, provisioner.StatusUpdate{Machine: "0", InstanceStatus: provisioner.InstanceAllocating, Text: "starting"}))
		id := start(t, w, provisioner.StartRequest{Machine: "0", Zone: "a"})
		must(t, s.SetInstance(ctx, provisioner.InstanceRecord{Machine: "0", Instance: id, Zone: "a"}))
		must(t, w.SetLife("0", provisioner.Dead))
		must(t, b.Stop(ctx, provisioner.StopRequest{Instances: []provisioner.InstanceID{id}}))
		must(t, s.Remove(ctx, provisioner.Removal{Machine: "0"}))
		must(t, w.Check())
		want := `1 0s status 0 allocating "starting" ...
2 0s status 0 allocating "starting" -> ok
3 0s start 0@a ...
4 0s start 0@a -> i-0@a
5 0s record 0 i-0@a ...
6 0s record 0 i-0@a -> ok
7 0s = 0 dead
8 0s stop i-0 ...
9 0s stop i-0 -> ok
10 0s rm 0 ...
11 0s rm 0 -> ok
`
		if diff := cmp.Diff(want, w.Transcript()); diff != "" {
			t.Error(diff)
		}
	})
}
