//go:build lxd

package lxdbroker_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/lxd/lxdbroker"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// The broker keeps every rule of the kit, on the real thing.
func TestConformance(t *testing.T) {
	b, err := lxdbroker.New(config(t, "1"))
	if err != nil {
		t.Fatal(err)
	}
	provisionertest.TestBroker(t, b, provisionertest.HostOptions{
		Must: []string{"ZoneLister", "ZoneDeriver", "InstanceFinder", "ProfileBroker", "ProfileNamer",
			"Traits.DedupesByToken", "Traits.Labels"},
		Soon:     10 * time.Second, // a request that was cut off is cancelled on LXD's side, too
		Settle:   5 * time.Second,
		Timeout:  2 * time.Minute,
		Parallel: 4,
		Request: func(req *provisioner.StartRequest) {
			req.Config.Tags = map[string]string{"provisionertest": "conformance"}
		},
		PowerOff: func(ctx context.Context, id provisioner.InstanceID) error {
			return ask(ctx, t, "PUT", string(id)+"/state", `{"action":"stop","force":true,"timeout":30}`)
		},
		Jam: func(id provisioner.InstanceID) func() {
			protect := func(value string) {
				if err := ask(context.Background(), t, "PATCH", string(id), `{"config":{"security.protection.delete":"`+value+`"}}`); err != nil {
					t.Error(err)
				}
			}
			protect("true")
			return func() { protect("false") }
		},
		Provoke: []provisionertest.Provocation{{
			Name: "a container on a machine", Want: provisioner.ErrPermanent,
			Request: func(req *provisioner.StartRequest) { req.Host, req.HostInstance = "0", "m-0" },
		}, {
			Name: "an image that isn't there", Want: provisioner.ErrZoneIndependent,
			Request: func(req *provisioner.StartRequest) { req.Constraints.ImageID = "no-such-image" },
		}, {
			Name: "a pool without room", Want: provisioner.ErrOutOfCapacity,
			Request: func(req *provisioner.StartRequest) { req.RootDisk = &provisioner.RootDisk{Source: "small"} },
		}},
	})
}

// ask does to an instance what the broker has no call for.
func ask(ctx context.Context, t *testing.T, method, path, body string) error {
	out, err := exec.CommandContext(ctx, "curl", "-sS", "--fail", "--unix-socket", env(t, "LXD_TEST_SOCKET_1"), "-X", method,
		"-d", body, "http://lxd/1.0/instances/"+path).CombinedOutput()
	return errors.Annotate(err, string(out))
}
