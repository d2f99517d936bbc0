package lxdbroker_test

import (
	"net/http"
	"testing"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/lxd/lxdbroker"
)

// What LXD says on a create, and what that means for the next attempt. The
// texts are those of LXD 5.0.
func TestErrorsOfACreate(t *testing.T) {
	const unmarked = errors.ConstError("")
	for _, test := range []struct {
		why    string
		create http.HandlerFunc // nil: an operation
		wait   http.HandlerFunc
		want   error
		then   provisioner.OutcomeKind
	}{
		{"not trusted", failed(403, "not authorized"), nil, provisioner.ErrUnauthorized, provisioner.OutcomePermanent},
		{"too fast", failed(429, "slow down"), nil, provisioner.ErrRateLimited, provisioner.OutcomeRateLimited},
		{"a bad image", failed(404, "Image alias not found"), nil, provisioner.ErrZoneIndependent, provisioner.OutcomeZoneIndependent},
		{"a bad image is NotFound too", failed(404, "Image alias not found"), nil, errors.NotFound, provisioner.OutcomeZoneIndependent},
		{"a bad image, found late", nil, ended(400, "Image not provided for instance creation"), provisioner.ErrZoneIndependent, provisioner.OutcomeZoneIndependent},
		{"a member that is not there", failed(404, "Cluster member not found"), nil, unmarked, provisioner.OutcomeZoneFailed},
		{"a member that does not answer", failed(500, `Post "https://x/1.0/instances": Unable to connect to: x ([dial tcp x: connect: connection refused])`), nil, unmarked, provisioner.OutcomeZoneFailed},
		{"a member that is lost", failed(500, "Missing event connection with target cluster member"), nil, unmarked, provisioner.OutcomeZoneFailed},
		{"a quota", failed(500, `Failed checking if instance creation allowed: Reached maximum aggregate value "1" for "limits.memory" in project "p"`), nil, provisioner.ErrQuota, provisioner.OutcomeZoneIndependent},
		{"a full pool", nil, ended(400, "Failed creating instance from image: Unable to unpack image, run out of disk space"), provisioner.ErrOutOfCapacity, provisioner.OutcomeZoneFailed},
		{"a full pool, in the kernel's words", nil, ended(400, "write /x: no space left on device"), provisioner.ErrOutOfCapacity, provisioner.OutcomeZoneFailed},
		{"a bad key", nil, ended(400, "Failed creating instance record: Unknown configuration key: limits.x"), provisioner.ErrZoneIndependent, provisioner.OutcomeZoneIndependent},
		{"a bad request", failed(400, "nonsense"), nil, provisioner.ErrZoneIndependent, provisioner.OutcomeZoneIndependent},
		{"an operation that failed as none did before", nil, ended(400, "the moon is full"), unmarked, provisioner.OutcomeZoneFailed},

		// From here on nobody knows whether there is an instance.
		{"an operation that was cancelled", nil, ended(401, "cancelled"), provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"a 5xx that is not known", failed(500, "EOF"), nil, provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"a 503", failed(503, "LXD is shutting down"), nil, provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"a proxy's page", says(502, "<html>bad gateway"), nil, provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"a proxy's page that says 404", says(404, "<html>not found"), nil, provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"a page that says all is well", says(200, "<html>hello"), nil, provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"half an answer", says(200, async[:40]), nil, provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"an operation without a name", says(202, `{"type":"async"}`), nil, provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"an operation somewhere else", says(202, `{"type":"async","operation":"/1.0/instances/x"}`), nil, provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"the connection ends at once", hangsUp, nil, provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"the connection ends while waiting", nil, hangsUp, provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"LXD has forgotten the operation", nil, failed(404, "Operation not found"), provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
		{"the end of the operation makes no sense", nil, sync200(`[1]`), provisioner.ErrAmbiguous, provisioner.OutcomeUnknown},
	} {
		t.Run(test.why, func(t *testing.T) {
			b, f := fakeBroker(t, map[string]http.HandlerFunc{post: test.create, wait: test.wait})
			_, err := b.Start(t.Context(), fakeRequest())
			if err == nil {
				t.Fatal("no error")
			}
			if test.want != unmarked && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if got := provisioner.OutcomeOf(err).Kind; got != test.then {
				t.Errorf("outcome %d, want %d: %v", got, test.then, err)
			}
			if n := f.saw("DELETE " + seven); n > 0 {
				t.Errorf("what was not made was deleted %d times", n)
			}
		})
	}
}

func TestWordsOfAnError(t *testing.T) {
	b, _ := fakeBroker(t, map[string]http.HandlerFunc{post: failed(400, "nonsense")})
	_, err := b.Start(t.Context(), fakeRequest())
	if got, want := err.Error(), "machine 7: LXD, POST /1.0/instances: nonsense (400)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var api *lxdbroker.APIError
	if !errors.As(err, &api) || api.Code != 400 || api.Message != "nonsense" || api.Operation {
		t.Errorf("as an APIError it is %+v", api)
	}
}
