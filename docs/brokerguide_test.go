package docs_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// The broker of docs/broker-guide.md, for a cloud of which acmeClient is the
// client library: it is at the end.

type acmeBroker struct{ api *acmeClient }

func (b acmeBroker) Instances(ctx context.Context) (provisioner.Listing, error) {
	return b.FindInstances(ctx, provisioner.Labels{}) // all of them
}

func (b acmeBroker) Stop(ctx context.Context, req provisioner.StopRequest) error {
	failed := map[provisioner.InstanceID]error{}
	for _, id := range req.Instances {
		err := b.api.Delete(ctx, string(id))
		if e := (*acmeError)(nil); errors.As(err, &e) && e.Code == "not-found" {
			continue // that is what was asked for
		}
		if err != nil {
			failed[id] = mark(err) // the others are stopped all the same
		}
	}
	if len(failed) > 0 {
		return &provisioner.StopError{Failed: failed}
	}
	return nil
}

func (b acmeBroker) Start(ctx context.Context, req provisioner.StartRequest) (provisioner.StartResult, error) {
	if req.Host != "" {
		return provisioner.StartResult{}, provisioner.Permanent(errors.New("containers are not for this cloud"))
	}
	data, err := userData(req)
	if err != nil {
		return provisioner.StartResult{}, provisioner.Permanent(err)
	}
	server, err := b.api.Create(ctx, acmeServer{
		Image:    "base", // of req.Images, the first that fits
		Zone:     string(req.Zone),
		Tags:     tags(req.Labels), // by the same call: a crash must not come in between
		UserData: data,
	}, req.Token) // the cloud's idempotency key
	if err != nil {
		return provisioner.StartResult{}, mark(err)
	}
	return provisioner.StartResult{Instance: provisioner.InstanceID(server.ID), Zone: provisioner.ZoneName(server.Zone)}, nil
}

// userData is what the machine boots with. It holds secrets.
func userData(req provisioner.StartRequest) (string, error) {
	if req.Config.Machine == "" {
		return "", nil
	}
	data, err := req.Config.CloudInit()
	return data.Reveal(), err
}

func (b acmeBroker) Zones(ctx context.Context) ([]provisioner.Zone, error) {
	names, err := b.api.Zones(ctx)
	var zones []provisioner.Zone
	for _, name := range slices.Sorted(maps.Keys(names)) {
		zones = append(zones, provisioner.Zone{Name: provisioner.ZoneName(name), Available: names[name] == "up"})
	}
	return zones, err
}

func tags(l provisioner.Labels) map[string]string {
	return map[string]string{
		"controller": l.Controller, "machine": string(l.Machine), "nonce": l.Nonce, "token": l.Token,
		"epoch": strconv.FormatUint(l.Epoch, 10),
	}
}

func labels(tags map[string]string) provisioner.Labels {
	epoch, _ := strconv.ParseUint(tags["epoch"], 10, 64)
	return provisioner.Labels{Controller: tags["controller"], Machine: provisioner.MachineID(tags["machine"]),
		Nonce: tags["nonce"], Token: tags["token"], Epoch: epoch}
}

func (b acmeBroker) FindInstances(ctx context.Context, want provisioner.Labels) (provisioner.Listing, error) {
	filter := tags(want)
	maps.DeleteFunc(filter, func(_, value string) bool { return value == "" || value == "0" })
	servers, err := b.api.List(ctx, filter) // every page of it
	if err != nil {
		return provisioner.Listing{}, err
	}
	listing := provisioner.Listing{Complete: true}
	for _, s := range servers {
		listing.Instances = append(listing.Instances, provisioner.Instance{
			ID: provisioner.InstanceID(s.ID), Zone: provisioner.ZoneName(s.Zone),
			State: states[s.State], Created: s.Created, Labels: labels(s.Tags),
		})
	}
	return listing, nil
}

var states = map[string]provisioner.InstanceState{
	"building": provisioner.InstanceStarting, "active": provisioner.InstanceUp,
	"off": provisioner.InstanceStopped, "deleted": provisioner.InstanceTerminated,
}

func (b acmeBroker) Traits() provisioner.Traits {
	return provisioner.Traits{Labels: true, DedupesByToken: true}
}

func mark(err error) error {
	var e *acmeError
	switch {
	case !errors.As(err, &e):
		return provisioner.Ambiguous(err) // no answer: there may be an instance
	case e.Code == "no-capacity":
		return provisioner.OutOfCapacity(err)
	case e.Code == "too-fast":
		return provisioner.RetryAfter(err, e.RetryAfter)
	case e.Code == "bad-image":
		return provisioner.ZoneIndependent(err)
	case e.Code == "quota":
		return provisioner.Quota(err)
	case e.Code == "forbidden":
		return provisioner.Unauthorized(err)
	case e.Code == "internal":
		return provisioner.Ambiguous(err) // it may have got as far as making one
	}
	return err // the zone's: the next one is tried
}

func TestAcmeBroker(t *testing.T) {
	api := newAcme()
	provisionertest.TestBroker(t, acmeBroker{api}, provisionertest.HostOptions{
		Must: []string{"ZoneLister", "InstanceFinder", "Traits.Labels", "Traits.DedupesByToken"},
		Provoke: []provisionertest.Provocation{{
			Name: "a zone without room", Want: provisioner.ErrOutOfCapacity,
			Request: func(req *provisioner.StartRequest) { req.Zone = "full" },
		}},
		Settle: time.Second, // how late its listings may be
	})
}

// What the guide begins with.
func TestFirstAcmeBroker(t *testing.T) {
	bare := struct{ provisioner.Broker }{acmeBroker{newAcme()}} // no more than the three methods
	provisionertest.TestBroker(t, bare, provisionertest.HostOptions{Settle: time.Second,
		Request: func(req *provisioner.StartRequest) { req.Zone = "north" }})
}

// The errors that the kit can't provoke.
func TestAcmeMarks(t *testing.T) {
	for _, test := range []struct {
		err  error
		want error // nil: not marked
	}{
		{&acmeError{Code: "no-capacity"}, provisioner.ErrOutOfCapacity},
		{&acmeError{Code: "too-fast", RetryAfter: time.Minute}, provisioner.ErrRateLimited},
		{&acmeError{Code: "bad-image"}, provisioner.ErrZoneIndependent},
		{&acmeError{Code: "quota"}, provisioner.ErrQuota},
		{&acmeError{Code: "forbidden"}, provisioner.ErrUnauthorized},
		{&acmeError{Code: "internal"}, provisioner.ErrAmbiguous},
		{io.ErrUnexpectedEOF, provisioner.ErrAmbiguous},
		{&acmeError{Code: "zone-down"}, nil},
	} {
		if got := mark(test.err); test.want != nil && !errors.Is(got, test.want) || test.want == nil && got != test.err {
			t.Errorf("%v: got %v, want %v", test.err, got, test.want)
		}
	}
}

// An acmeClient is the client library of a cloud, with the cloud in it.
type acmeClient struct {
	mu      sync.Mutex
	servers []acmeServer
	byToken map[string]acmeServer
}

type acmeServer struct {
	ID, Image, Zone, State, UserData string
	Created                          time.Time
	Tags                             map[string]string
}

// An acmeError is an answer that says no.
type acmeError struct {
	Code       string
	RetryAfter time.Duration
}

func (e *acmeError) Error() string { return "acme: " + e.Code }

func newAcme() *acmeClient { return &acmeClient{byToken: map[string]acmeServer{}} }

func (a *acmeClient) Zones(ctx context.Context) (map[string]string, error) {
	return map[string]string{"north": "up", "south": "up", "full": "down"}, ctx.Err()
}

func (a *acmeClient) Create(ctx context.Context, s acmeServer, key string) (acmeServer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return acmeServer{}, err
	}
	if made, ok := a.byToken[key]; ok {
		return made, nil
	}
	switch s.Zone {
	case "full":
		return acmeServer{}, &acmeError{Code: "no-capacity"}
	case "north", "south", "":
	default:
		return acmeServer{}, &acmeError{Code: "no-such-zone"}
	}
	s.ID, s.State, s.Created = fmt.Sprintf("srv-%d", len(a.byToken)), "active", time.Now()
	s.Zone, s.Tags = cmp.Or(s.Zone, "north"), maps.Clone(s.Tags)
	a.servers, a.byToken[key] = append(a.servers, s), s
	return s, nil
}

func (a *acmeClient) Delete(ctx context.Context, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.servers)
	a.servers = slices.DeleteFunc(a.servers, func(s acmeServer) bool { return s.ID == id })
	if len(a.servers) == before {
		return &acmeError{Code: "not-found"}
	}
	return ctx.Err()
}

func (a *acmeClient) List(ctx context.Context, filter map[string]string) ([]acmeServer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []acmeServer
	for _, s := range a.servers {
		matches := true
		for key, value := range filter {
			matches = matches && s.Tags[key] == value
		}
		if matches {
			found = append(found, s)
		}
	}
	return found, ctx.Err()
}

func TestAcmeRuns(t *testing.T) {
	world := newWorld(t, provisionertest.Settings{Kind: true}) // machine 0 wants an instance
	task, err := provisioner.New(provisioner.Config{
		Controller: "prod-1", // on every label: no other controller of this cloud has that name
		Broker:     acmeBroker{newAcme()},
		State:      world.State(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range task.Capabilities() {
		if c.Found == "" {
			t.Log("without a", c.Name, c.Without)
		}
	}
	if _, err := task.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m, _ := world.Machine("0"); m.Instance != "srv-0" || m.Zone == "" {
		t.Errorf("machine 0 has %q in zone %q", m.Instance, m.Zone)
	}
}
