package lxdbroker_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/lxd/lxdbroker"
	"golang.org/x/sync/errgroup"
)

// Every fault is told at once, by field name.
func TestNew(t *testing.T) {
	cert, key := certificate(t)
	for _, test := range []struct {
		why  string
		cfg  lxdbroker.Config
		want []string // fields that are named; none: it is fine
	}{
		{"a socket is enough", lxdbroker.Config{Endpoints: []string{"unix:///s"}}, nil},
		{"https needs who we are", lxdbroker.Config{Endpoints: []string{"https://h:8443"}}, []string{"ClientCert"}},
		{"https with it", lxdbroker.Config{Endpoints: []string{"https://h:8443", "https://[::1]:8443"}, ClientCert: cert, ClientKey: key, ServerCert: cert}, nil},
		{"nothing", lxdbroker.Config{}, []string{"Endpoints"}},
		{"no port", lxdbroker.Config{Endpoints: []string{"https://h"}}, []string{"Endpoints[0]"}},
		{"not encrypted", lxdbroker.Config{Endpoints: []string{"http://h:8443"}}, []string{"Endpoints[0]"}},
		{"a socket without a path", lxdbroker.Config{Endpoints: []string{"unix://"}}, []string{"Endpoints[0]"}},
		{"no URL", lxdbroker.Config{Endpoints: []string{"://"}}, []string{"Endpoints[0]"}},
		{"one of each", lxdbroker.Config{Endpoints: []string{"unix:///s", "https://h:1"}}, []string{"Endpoints[1]"}},
		{"a server's key for its certificate", lxdbroker.Config{Endpoints: []string{"https://h:1"}, ClientCert: cert, ClientKey: key, ServerCert: key}, []string{"ServerCert"}},
		{"a server certificate that isn't PEM", lxdbroker.Config{Endpoints: []string{"https://h:1"}, ClientCert: cert, ClientKey: key, ServerCert: []byte("x")}, []string{"ServerCert"}},
		{"all at once", lxdbroker.Config{ZonesAre: "racks", NamePrefix: "9", AddressWait: -2}, []string{"Endpoints", "ZonesAre", "NamePrefix", "AddressWait"}},
	} {
		_, err := lxdbroker.New(test.cfg)
		if (err == nil) != (len(test.want) == 0) || err != nil && !errors.Is(err, errors.NotValid) {
			t.Errorf("%s: %v", test.why, err)
		}
		for _, field := range test.want {
			if err != nil && !strings.Contains(err.Error(), field) {
				t.Errorf("%s: %v does not name %s", test.why, err, field)
			}
		}
	}
}

const members = `[
	{"server_name":"m3","status":"Online","failure_domain":"b"},
	{"server_name":"m1","status":"Online","failure_domain":"a"},
	{"server_name":"m2","status":"Offline","failure_domain":"a"},
	{"server_name":"m4","status":"Evacuated","failure_domain":"c"},
	{"server_name":"m5","status":"Blocked"}]`

func TestZones(t *testing.T) {
	for _, test := range []struct {
		kind    lxdbroker.ZoneKind
		members http.HandlerFunc
		want    []provisioner.Zone
		err     error
	}{
		{lxdbroker.Members, sync200(members), []provisioner.Zone{{Name: "m1", Available: true}, {Name: "m2"}, {Name: "m3", Available: true}, {Name: "m4"}, {Name: "m5"}}, nil},
		{lxdbroker.FailureDomains, sync200(members), []provisioner.Zone{{Name: "a", Available: true}, {Name: "b", Available: true}, {Name: "c"}, {Name: "default"}}, nil},
		{lxdbroker.Members, failed(500, "Server is not clustered"), nil, errors.NotSupported}, // AZ1
		{lxdbroker.Members, failed(403, "not authorized"), nil, provisioner.ErrUnauthorized},
	} {
		b, _ := fakeBroker(t, map[string]http.HandlerFunc{"GET /1.0/cluster/members": test.members}, func(c *lxdbroker.Config) { c.ZonesAre = test.kind })
		got, err := b.Zones(t.Context())
		if diff := cmp.Diff(test.want, got); diff != "" || !errors.Is(err, test.err) {
			t.Errorf("%s: %v (-want +got):\n%s", test.kind, err, diff)
		}
	}
}

func TestDeriveZones(t *testing.T) {
	attach := func(ids ...string) (as []provisioner.VolumeAttachment) {
		for _, id := range ids {
			as = append(as, provisioner.VolumeAttachment{VolumeID: id})
		}
		return as
	}
	for _, test := range []struct {
		why  string
		req  provisioner.StartRequest
		want []provisioner.ZoneName
		err  error
	}{
		{"nothing binds it", provisioner.StartRequest{}, nil, nil},
		{"a placement", provisioner.StartRequest{Placement: "zone=m1"}, []provisioner.ZoneName{"m1"}, nil},
		{"a placement of another kind", provisioner.StartRequest{Placement: "rack=1"}, nil, errors.NotValid},
		{"a volume of a member", provisioner.StartRequest{Attachments: attach("m2/p/v", "m2/p/w")}, []provisioner.ZoneName{"m2"}, nil},
		{"a volume of all", provisioner.StartRequest{Attachments: attach("p/v", "")}, nil, nil},
		{"volumes of two", provisioner.StartRequest{Attachments: attach("m1/p/v", "m2/p/v")}, nil, errors.NotValid},
		{"a volume elsewhere", provisioner.StartRequest{Placement: "zone=m1", Attachments: attach("m2/p/v")}, nil, errors.NotValid},
		{"no volume", provisioner.StartRequest{Attachments: attach("v")}, nil, errors.NotValid},
	} {
		b, _ := fakeBroker(t, nil)
		got, err := b.DeriveZones(t.Context(), test.req)
		if diff := cmp.Diff(test.want, got); diff != "" || !errors.Is(err, test.err) {
			t.Errorf("%s: %v (-want +got):\n%s", test.why, err, diff)
		}
	}
}

// The attempts on a failure domain go round its members that are online.
func TestTargetsInAFailureDomain(t *testing.T) {
	both := `[{"server_name":"m1","status":"Online"},{"server_name":"m2","status":"Online"},{"server_name":"m3","status":"Offline"}]`
	b, f := fakeBroker(t, map[string]http.HandlerFunc{"GET /1.0/cluster/members": sync200(both)}, func(c *lxdbroker.Config) { c.ZonesAre = lxdbroker.FailureDomains })
	seen := map[string]int{}
	for attempt := range 10 {
		req := fakeRequest()
		req.Zone, req.Attempt = "default", attempt+1
		if _, err := b.Start(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		seen[f.query[post]]++
	}
	if diff := cmp.Diff(map[string]int{"target=m1": 5, "target=m2": 5}, seen); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}

// Members that do not answer are told of; their instances are not.
func TestListing(t *testing.T) {
	const instances = `[
		{"name":"a","status_code":103,"architecture":"x86_64","location":"m1","created_at":"2026-01-02T03:04:05Z",
		 "config":{"user.provisioner.controller":"c","user.provisioner.machine":"7","user.provisioner.nonce":"n","user.provisioner.token":"t","user.provisioner.epoch":"3"}},
		{"name":"b","status_code":102,"architecture":"x86_64","location":"m1","last_used_at":"2026-01-02T03:04:05Z","config":{"user.provisioner.epoch":"no number"}},
		{"name":"c","status_code":112,"location":"m2","config":null},
		{"name":"d","status_code":112,"location":"m2"},
		{"name":"e","status_code":112,"architecture":"x86_64","location":"m3"},
		{"name":"f","status_code":106,"architecture":"x86_64","location":"none"},
		{"name":"g","status_code":102,"architecture":"x86_64","location":"m1","last_used_at":"1970-01-01T00:00:00Z"}]`
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a := provisioner.Instance{ID: "a", Zone: "m1", State: provisioner.InstanceUp, Created: created, Labels: fakeRequest().Labels}
	all := provisioner.Listing{Complete: true, Failed: []provisioner.ZoneName{"m2"}, Instances: []provisioner.Instance{
		a, {ID: "b", Zone: "m1", State: provisioner.InstanceStopped}, {ID: "e", Zone: "m3"}, {ID: "f", State: provisioner.InstanceStarting}, {ID: "g", Zone: "m1", State: provisioner.InstanceStarting},
	}}
	b, f := fakeBroker(t, map[string]http.HandlerFunc{"GET /1.0/instances": sync200(instances)})
	got, err := b.Instances(t.Context())
	if diff := cmp.Diff(all, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, test := range []struct {
		want provisioner.Labels
		n    int
	}{
		{provisioner.Labels{Controller: "c"}, 1}, {provisioner.Labels{Controller: "d"}, 0},
		{provisioner.Labels{Machine: "7"}, 1}, {provisioner.Labels{Machine: "8"}, 0},
		{provisioner.Labels{Nonce: "n"}, 1}, {provisioner.Labels{Nonce: "o"}, 0},
		{provisioner.Labels{Token: "t"}, 1}, {provisioner.Labels{Token: "u"}, 0},
		{provisioner.Labels{Epoch: 3}, 1}, {provisioner.Labels{Epoch: 4}, 0},
		{provisioner.Labels{Machine: `7 or "`}, 0},
	} {
		l, err := b.FindInstances(t.Context(), test.want)
		if err != nil || len(l.Instances) != test.n || !cmp.Equal(l.Failed, all.Failed) {
			t.Errorf("%+v: %d instances, failed %v, %v; want %d, and the same zone failed", test.want, len(l.Instances), l.Failed, err, test.n)
		}
		query, _ := url.ParseQuery(f.query["GET /1.0/instances"])
		filter := ""
		if m := test.want.Machine; m == "7" || m == "8" {
			filter = "config.user.provisioner.machine eq " + string(m) + " or status eq Error"
		}
		if query.Get("filter") != filter || query.Get("recursion") != "1" {
			t.Errorf("%+v: query %v, want filter %q", test.want, query, filter)
		}
	}

	// Of one machine it is known what a silent member has: LXD has the names.
	l, err := b.FindInstances(t.Context(), fakeRequest().Labels)
	if diff := cmp.Diff(provisioner.Listing{Complete: true, Instances: []provisioner.Instance{a}}, l); diff != "" || err != nil {
		t.Errorf("machine 7: %v (-want +got):\n%s", err, diff)
	}
	silent := `[{"name":"old-3ee5f441850c-7","status_code":112,"location":"m2"}]`
	b, _ = fakeBroker(t, map[string]http.HandlerFunc{"GET /1.0/instances": sync200(silent)})
	l, err = b.FindInstances(t.Context(), fakeRequest().Labels)
	if diff := cmp.Diff(provisioner.Listing{Complete: true, Failed: []provisioner.ZoneName{"m2"}}, l); diff != "" || err != nil {
		t.Errorf("machine 7, on a silent member: %v (-want +got):\n%s", err, diff)
	}
}

// Many calls at once, some of which end early, never keep LXD from accepting the
// next.
func TestManyAtOnce(t *testing.T) {
	b, _ := fakeBroker(t, map[string]http.HandlerFunc{"GET /1.0/instances": sync200("[]")})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 30 {
		var group errgroup.Group
		for n := range 20 {
			group.Go(func() error {
				if n%4 == 0 {
					cut, stop := context.WithTimeout(ctx, time.Duration(n)*50*time.Microsecond)
					defer stop()
					_, _ = b.Instances(cut)
					return nil
				}
				_, err := b.Instances(ctx)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// A listing that could not be read is an error, never an empty one.
func TestListingThatCannotBeRead(t *testing.T) {
	for why, answer := range map[string]http.HandlerFunc{
		"error": failed(500, "no"), "page": says(200, "<html>"), "object": sync200(`{"x":1}`), "nothing": says(200, ""),
		"hangs up": hangsUp, "half": says(200, `{"type":"sync","metadata":[{"name":"a"}`), "no metadata": says(200, `{"type":"sync"}`),
	} {
		b, _ := fakeBroker(t, map[string]http.HandlerFunc{"GET /1.0/instances": answer})
		if l, err := b.Instances(t.Context()); err == nil || l.Complete {
			t.Errorf("%s: %+v, %v; want an error", why, l, err)
		}
	}
}

func TestStop(t *testing.T) {
	const x = "/1.0/instances/x"
	for _, test := range []struct {
		why       string
		stop, del http.HandlerFunc
		wait      http.HandlerFunc
		get       http.HandlerFunc
		ok        bool
	}{
		{"it runs", nil, nil, nil, nil, true},
		{"it is not there", failed(404, "Instance not found"), nil, nil, nil, true},
		{"it is stopped", failed(400, "The instance is already stopped"), nil, nil, nil, true},
		{"it ends with its stop", nil, failed(404, "Instance not found"), nil, nil, true},
		{"somebody else deletes it meanwhile", nil, nil, ended(400, "Failed"), failed(404, "Instance not found"), true},
		{"it is kept", nil, failed(400, "Instance is protected"), nil, nil, false},
		{"its member does not answer", failed(500, "Missing event connection with target cluster member"), nil, nil, nil, false},
		{"the stop fails", nil, nil, ended(400, "Failed"), there(103), false},
		{"nobody knows", nil, hangsUp, nil, nil, false},
		{"a page says 404", says(404, "<html>"), nil, nil, nil, false},
	} {
		b, _ := fakeBroker(t, map[string]http.HandlerFunc{
			"PUT " + x + "/state": test.stop, "DELETE " + x: test.del, wait: test.wait, "GET " + x: test.get,
			"PUT /1.0/instances/y/state": failed(404, "Instance not found"),
		})
		err := b.Stop(t.Context(), provisioner.StopRequest{Instances: []provisioner.InstanceID{"x", "y"}})
		var stop *provisioner.StopError
		switch {
		case test.ok && err != nil:
			t.Errorf("%s: %v", test.why, err)
		case !test.ok && (!errors.As(err, &stop) || len(stop.Failed) != 1 || stop.Failed["x"] == nil):
			t.Errorf("%s: %v, want a StopError of x alone", test.why, err)
		}
	}
}

// A stop that was cut short goes on in LXD, which is busy with it for a while.
func TestStopOfWhatIsBusy(t *testing.T) {
	busy := 0
	b, f := fakeBroker(t, map[string]http.HandlerFunc{"DELETE /1.0/instances/x": func(w http.ResponseWriter, r *http.Request) {
		if busy++; busy == 1 {
			failed(400, `Failed to create instance delete operation: Instance is busy running a "stop" operation`)(w, r)
			return
		}
		fmt.Fprint(w, async)
	}})
	if err := b.Stop(t.Context(), provisioner.StopRequest{Instances: []provisioner.InstanceID{"x"}}); err != nil {
		t.Error(err)
	}
	if n := f.saw("DELETE /1.0/instances/x"); n != 2 {
		t.Errorf("deleted %d times, want 2", n)
	}
}

// Another endpoint takes over for one that cannot be reached, and what never
// reached LXD is no unknown outcome.
func TestEndpoints(t *testing.T) {
	f := &fake{}
	up := f.start(t)
	b, err := lxdbroker.New(lxdbroker.Config{Endpoints: []string{"unix:///nowhere", up}, Image: "i", AddressWait: provisioner.Off})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Start(t.Context(), fakeRequest()); err != nil {
		t.Error(err)
	}
	b, _ = lxdbroker.New(lxdbroker.Config{Endpoints: []string{"unix:///nowhere", "unix:///neither"}, Image: "i"})
	if _, err := b.Start(t.Context(), fakeRequest()); !errors.Is(err, provisioner.ErrZoneIndependent) || errors.Is(err, provisioner.ErrAmbiguous) {
		t.Errorf("nobody there: %v, want zone-independent", err)
	}
}

// LXD is trusted by its very certificate, whatever name is in it.
func TestServerCertificate(t *testing.T) {
	f := &fake{query: map[string]string{}, body: map[string]string{}}
	server := httptest.NewTLSServer(f)
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the refused
	cert, key := certificate(t)
	its := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for _, test := range []struct {
		why  string
		cert []byte
		want error
	}{
		{"its own", its, nil},
		{"another", cert, provisioner.ErrUnauthorized},
		{"none, and no root vouches for it", nil, provisioner.ErrUnauthorized},
	} {
		b, err := lxdbroker.New(lxdbroker.Config{Endpoints: []string{server.URL}, ClientCert: cert, ClientKey: key, ServerCert: test.cert, Image: "i", AddressWait: provisioner.Off})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Start(t.Context(), fakeRequest())
		if !errors.Is(err, test.want) || test.want != nil && f.saw(post) > 1 {
			t.Errorf("%s: %v, want %v; LXD was asked %v", test.why, err, test.want, f.asked)
		}
	}
}

// A change is made anew when somebody else changed the instance meanwhile,
// and what they did is kept (LX2).
func TestProfileChangedMeanwhile(t *testing.T) {
	profiles := []string{`["default"]`, `["default","theirs"]`}
	tries := 0
	b, f := fakeBroker(t, map[string]http.HandlerFunc{
		"GET /1.0/instances/x": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", fmt.Sprint(tries))
			fmt.Fprintf(w, `{"type":"sync","metadata":{"name":"x","profiles":%s}}`, profiles[min(tries, 1)])
		},
		"PATCH /1.0/instances/x": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-Match") != fmt.Sprint(tries) {
				t.Errorf("If-Match %q, want %d", r.Header.Get("If-Match"), tries)
			}
			if tries++; tries == 1 {
				failed(412, "ETag doesn't match")(w, r)
				return
			}
			fmt.Fprint(w, async)
		},
	})
	got, err := b.ChangeProfile(t.Context(), provisioner.ProfileChangeRequest{Instance: "x", Profile: &provisioner.Profile{Name: "ours"}})
	if diff := cmp.Diff([]string{"default", "theirs", "ours"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if want := `{"profiles":["default","theirs","ours"]}`; f.body["PATCH /1.0/instances/x"] != want {
		t.Errorf("sent %s, want %s", f.body["PATCH /1.0/instances/x"], want)
	}
}

// A profile that somebody else wrote is neither changed nor deleted.
func TestProfilesOfOthers(t *testing.T) {
	b, f := fakeBroker(t, map[string]http.HandlerFunc{
		"POST /1.0/profiles":    failed(500, `Error inserting "p" into database: The profile already exists`),
		"GET /1.0/profiles/p":   sync200(`{"name":"p","config":{"user.x":"y"}}`),
		"GET /1.0/instances/x":  sync200(`{"name":"x","profiles":["p"]}`),
		"PATCH /1.0/profiles/p": failed(500, "not to be asked"),
	})
	_, err := b.ChangeProfile(t.Context(), provisioner.ProfileChangeRequest{Instance: "x", Profile: &provisioner.Profile{Name: "p"}})
	if !errors.Is(err, errors.AlreadyExists) {
		t.Errorf("got %v, want AlreadyExists", err)
	}
	got, err := b.ChangeProfile(t.Context(), provisioner.ProfileChangeRequest{Instance: "x", Old: "p"})
	if len(got) != 0 || err != nil {
		t.Errorf("removed: %v, %v", got, err)
	}
	if f.saw("PUT /1.0/profiles/p")+f.saw("DELETE /1.0/profiles/p") > 0 {
		t.Error("it was changed or deleted")
	}
}

// A profile that LXD finds fault with is not valid; one that it could not write now
// is not said to be.
func TestProfileRefused(t *testing.T) {
	for _, test := range []struct {
		code  int
		says  string
		valid bool
	}{
		{400, "Unknown configuration key: nonsense", false},
		{500, "Failed to begin transaction: database is locked", true},
		{503, "LXD is shutting down", true},
	} {
		b, _ := fakeBroker(t, map[string]http.HandlerFunc{"POST /1.0/profiles": failed(test.code, test.says)})
		_, err := b.ChangeProfile(t.Context(), provisioner.ProfileChangeRequest{Instance: "x", Profile: &provisioner.Profile{Name: "p"}})
		if err == nil || errors.Is(err, errors.NotValid) == test.valid {
			t.Errorf("%d %s: got %v", test.code, test.says, err)
		}
	}
}

func TestProfileNames(t *testing.T) {
	b, _ := fakeBroker(t, nil)
	got, err := b.ProfileNames(t.Context(), provisioner.ProfileNamesRequest{Machine: "7", Asked: []string{"juju-m-a-1", "default"}})
	if diff := cmp.Diff([]string{"default", "juju-m-a-1"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// Changes delivers the machines of instances that end, and everything it
// knows when it is connected; it passes over what is not ours or makes no
// sense, and ends when it is stopped.
func TestChanges(t *testing.T) {
	event := func(action, source string) string {
		return fmt.Sprintf(`{"type":"lifecycle","metadata":{"action":%q,"source":%q}}`, action, source)
	}
	b, _ := fakeBroker(t, map[string]http.HandlerFunc{
		"GET /1.0/instances": sync200(`[{"name":"a","architecture":"x86_64","config":{"user.provisioner.machine":"1"}}]`),
		"GET " + seven:       there(103),
		"GET /1.0/events": func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for _, message := range []string{
				"<html>", `{}`, `[]`, event("instance-started", "/1.0/instances/a"), event("instance-stopped", "%zz"),
				event("instance-stopped", "/1.0/instances/not-ours"), event("image-deleted", "/1.0/images/a"),
				event("instance-shutdown", "/1.0/instances/a?project=default"), event("instance-deleted", seven),
			} {
				_ = conn.Write(r.Context(), websocket.MessageText, []byte(message))
			}
			conn.Read(r.Context())
		},
	})
	if _, err := b.Instances(t.Context()); err != nil {
		t.Fatal(err)
	}
	changes := b.Changes(context.Background())
	for _, want := range []provisioner.MachineID{"1", "1", "7"} { // known, died, deleted
		if diff := cmp.Diff([]provisioner.MachineID{want}, <-changes.C); diff != "" {
			t.Errorf("change (-want +got):\n%s", diff)
		}
	}
	if err := changes.Stop(); err != nil {
		t.Error(err)
	}
}
