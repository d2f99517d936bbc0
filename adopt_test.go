package provisioner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// ST10, ST19: an instance that is there keeps the credentials that it has: none are
// made when it is adopted, and those with which it is asked for once more, or
// another is made in its place, are those of the nonce that they come with.
func TestCredentialsOfWhatIsThere(t *testing.T) {
	tests := []struct {
		why    string
		state  provisioner.InstanceState
		gone   bool // before it is recorded, or asked for once more
		stored bool // another attempt
		auths  int
		nonce  string // of the last start, if there is one; "own": one that is new
	}{
		{"it is up", provisioner.InstanceUp, false, false, 0, ""},
		{"it is half made", provisioner.InstanceStarting, false, false, 1, "c:earlier"},
		{"it is half made, and another attempt is stored", provisioner.InstanceStarting, false, true, 1, "c:earlier"},
		{"it is up, and vanishes", provisioner.InstanceUp, true, false, 1, "own"},
		{"it is half made, and vanishes", provisioner.InstanceStarting, true, false, 2, "own"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := provisionertest.New(provisionertest.Settings{Controller: "c", Kind: true,
					Traits: provisioner.Traits{Labels: true, ConsistentReads: true, DedupesByToken: test.state == provisioner.InstanceStarting}})
				must(t, w.AddPending("0"), w.AddInstance(provisioner.Instance{ID: "i-9", State: test.state,
					Labels: provisioner.Labels{Controller: "c", Machine: "0", Nonce: "c:earlier", Token: "t"}}))
				if test.stored {
					must(t, w.State().SwapIntent(t.Context(), provisioner.Intent{}, provisioner.Intent{Machine: "0", Attempt: 1, Nonce: "c:stored", Token: "s"}))
				}
				auths, gone := 0, false
				cfg := provisioner.Config{Controller: "c"}
				provisionertest.Intercept(provisionertest.Host{Broker: w.Broker(), State: w.State()},
					func(ctx context.Context, c provisionertest.HostCall, do func(context.Context) error) error {
						if c.Call == provisionertest.CallAuth {
							auths++
						}
						if test.gone && !gone && (c.Call == provisionertest.CallRecord || c.Call == provisionertest.CallStart) {
							gone = true
							must(t, w.Vanish("i-9"))
							return errors.New("not now")
						}
						return do(ctx)
					}).Configure(&cfg)
				task, err := provisioner.New(cfg)
				must(t, err)
				for range 3 { // what is given up for now is gone on with
					_, err := task.Reconcile(t.Context())
					must(t, err)
					time.Sleep(time.Minute) // in a bubble
				}
				if m, _ := w.Machine("0"); m.Instance == "" || auths != test.auths {
					t.Errorf("%d requests for credentials, want %d; the machine is %+v\n%s", auths, test.auths, m, w.Transcript())
				}
				q := w.Request("0")
				nonce := q.Nonce
				if test.nonce == "own" && nonce != "c:earlier" && nonce != "" {
					nonce = "own"
				}
				if diff := cmp.Diff(test.nonce, nonce); diff != "" {
					t.Errorf("nonce (-want +got):\n%s", diff)
				}
				if test.nonce != "" && (q.Config.Nonce != q.Nonce || q.Config.Auth.Password.Reveal() != "password of "+q.Nonce) {
					t.Errorf("%s is asked for with the nonce %s and the %s", q.Nonce, q.Config.Nonce, q.Config.Auth.Password.Reveal())
				}
			})
		})
	}
}
