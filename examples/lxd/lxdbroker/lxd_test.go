//go:build lxd

package lxdbroker_test

// These tests need a throw-away LXD cluster of three members:
//
//	eval "$(./cluster up)" && go test -tags lxd ./...; ./cluster down

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/examples/lxd/lxdbroker"
)

func env(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf(`%s is not set: run eval "$(examples/lxd/cluster up)" first`, name)
	}
	return value
}

func envFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(env(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// member runs the cluster script for one member.
func member(t *testing.T, action, n string) {
	t.Helper()
	if out, err := exec.Command(env(t, "LXD_TEST_CLUSTER"), action, n).CombinedOutput(); err != nil {
		t.Fatalf("cluster %s %s: %v\n%s", action, n, err, out)
	}
}

// config reaches the cluster over HTTPS, at the given members.
func config(t *testing.T, members ...string) lxdbroker.Config {
	t.Helper()
	cfg := lxdbroker.Config{
		ClientCert: envFile(t, "LXD_TEST_CERT"), ClientKey: envFile(t, "LXD_TEST_KEY"),
		ServerCert: envFile(t, "LXD_TEST_SERVER_CERT"), Image: env(t, "LXD_TEST_IMAGE"),
	}
	for _, n := range members {
		cfg.Endpoints = append(cfg.Endpoints, env(t, "LXD_TEST_URL_"+n))
	}
	return cfg
}

// A host is a broker and the controller that uses it; what it leaves is taken
// away after the test.
type host struct {
	*lxdbroker.Broker
	t          *testing.T
	controller string
}

func newHost(t *testing.T, cfg lxdbroker.Config) host {
	t.Helper()
	b, err := lxdbroker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := host{b, t, strings.ReplaceAll(t.Name(), "/", "-")}
	t.Cleanup(func() {
		l, err := b.FindInstances(context.Background(), provisioner.Labels{Controller: h.controller})
		if err != nil {
			t.Error(err)
		}
		h.stop(ids(l)...)
	})
	return h
}

func (h host) request(id provisioner.MachineID, zone provisioner.ZoneName, token string) provisioner.StartRequest {
	nonce := "host:" + string(id)
	return provisioner.StartRequest{
		Machine: id, Attempt: 1, Zone: zone, Nonce: nonce, Token: token,
		Labels: provisioner.Labels{Controller: h.controller, Machine: id, Nonce: nonce, Token: token, Epoch: 7},
		Report: func(provisioner.InstanceStatus, string) {},
	}
}

func (h host) start(req provisioner.StartRequest) provisioner.StartResult {
	h.t.Helper()
	r, err := h.Start(h.t.Context(), req)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h host) stop(ids ...provisioner.InstanceID) {
	h.t.Helper()
	if len(ids) == 0 {
		return
	}
	if err := h.Stop(context.Background(), provisioner.StopRequest{Instances: ids}); err != nil {
		h.t.Error(err)
	}
}

// find lists the instances of this test.
func (h host) find() provisioner.Listing {
	h.t.Helper()
	l, err := h.FindInstances(h.t.Context(), provisioner.Labels{Controller: h.controller})
	if err != nil {
		h.t.Fatal(err)
	}
	return l
}

func ids(l provisioner.Listing) (ids []provisioner.InstanceID) {
	for _, i := range l.Instances {
		ids = append(ids, i.ID)
	}
	slices.Sort(ids)
	return ids
}

// lxd asks LXD itself, past the broker; operations are waited for.
func lxd(t *testing.T, method, path, body string, into any) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", env(t, "LXD_TEST_SOCKET_1"))
	}}}
	req, err := http.NewRequest(method, "http://lxd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	var a struct {
		Type, Error, Operation string
		Metadata               json.RawMessage
	}
	if err := json.Unmarshal(data, &a); err != nil || a.Type == "error" {
		t.Fatalf("%s %s: %s %v", method, path, data, err)
	}
	if a.Type == "async" {
		operation, _, _ := strings.Cut(a.Operation, "?")
		lxd(t, "GET", operation+"/wait", "", &struct{}{})
		return
	}
	if into != nil {
		if err := json.Unmarshal(a.Metadata, into); err != nil {
			t.Fatal(err)
		}
	}
}

func (h host) eventually(what string, within time.Duration, ok func() bool) {
	h.t.Helper()
	for end := time.Now().Add(within); !ok(); {
		if time.Now().After(end) {
			h.t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (h host) zones() string {
	h.t.Helper()
	zones, err := h.Zones(context.WithoutCancel(h.t.Context())) // cleaning up asks too
	if err != nil {
		h.t.Fatal(err)
	}
	var words []string
	for _, z := range zones {
		word := string(z.Name)
		if !z.Available {
			word += "↓"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestWhatAStartReports(t *testing.T) {
	h := newHost(t, config(t, "1"))
	req := h.request("0/lxd/1", "m2", "t")
	cores, mem := uint64(1), uint64(64)
	req.Constraints = constraints.Value{Cores: &cores, Mem: &mem}
	req.Config.Machine, req.Config.Nonce = "0/lxd/1", req.Nonce
	req.Volumes = []provisioner.Volume{{ID: "7", SizeM: 16}}
	req.Attachments = []provisioner.VolumeAttachment{{Volume: "7", Machine: req.Machine}}
	r := h.start(req)
	t.Cleanup(func() {
		lxd(t, "DELETE", "/1.0/storage-pools/default/volumes/custom/"+string(r.Instance)+"-7?target=m2", "", nil)
	})
	t.Cleanup(func() { h.stop(r.Instance) })

	want := provisioner.StartResult{
		Instance: r.Instance, DisplayName: string(r.Instance), Zone: "m2",
		Hardware: constraints.Hardware{Arch: "amd64", Cores: &cores, Mem: &mem, RootDiskSource: "default",
			AvailabilityZone: "m2", VirtType: "container"},
		Volumes:     []provisioner.VolumeResult{{Volume: "7", VolumeID: "m2/default/" + string(r.Instance) + "-7", SizeM: 16, Persistent: true}},
		Attachments: []provisioner.VolumeAttachmentResult{{Volume: "7", DeviceName: "volume-7", DeviceLink: "/srv/volume-7"}},
		Profiles:    []string{"default"},
		Network:     r.Network,
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if len(r.Network) != 1 || r.Network[0].Name != "eth0" || r.Network[0].MAC == "" || len(r.Network[0].Addresses) == 0 {
		t.Errorf("network %+v, want eth0 with a MAC and an address", r.Network)
	}
	var there struct {
		Config  map[string]string
		Devices map[string]map[string]string
	}
	lxd(t, "GET", "/1.0/instances/"+string(r.Instance), "", &there)
	if data := there.Config["cloud-init.user-data"]; !strings.HasPrefix(data, "#cloud-config\n") || !strings.Contains(data, req.Nonce) {
		t.Errorf("user data %q, want cloud-config with the nonce", data)
	}
	if there.Devices["volume-7"]["source"] != string(r.Instance)+"-7" {
		t.Errorf("devices %v, want the volume", there.Devices)
	}
	derived, err := h.DeriveZones(t.Context(), provisioner.StartRequest{Attachments: []provisioner.VolumeAttachment{{VolumeID: r.Volumes[0].VolumeID}}})
	if diff := cmp.Diff([]provisioner.ZoneName{"m2"}, derived); diff != "" || err != nil {
		t.Errorf("zones of the volume: %v %s", err, diff)
	}
}

func TestMemberStopped(t *testing.T) {
	h := newHost(t, config(t, "2", "1", "3")) // it must get along without the first
	on := map[provisioner.ZoneName]provisioner.InstanceID{}
	for _, zone := range []provisioner.ZoneName{"m1", "m2", "m3"} {
		on[zone] = h.start(h.request(provisioner.MachineID(zone), zone, "t")).Instance
	}
	member(t, "stop", "2")
	t.Cleanup(func() { member(t, "start", "2") })

	// Its instances are not taken for gone, at once and once LXD counts it
	// as offline.
	missing := func() {
		t.Helper()
		l := h.find()
		want := provisioner.Listing{Instances: l.Instances, Complete: true, Failed: []provisioner.ZoneName{"m2"}}
		if diff := cmp.Diff(want, l); diff != "" {
			t.Errorf("listing (-want +got):\n%s", diff)
		}
		if len(l.Instances) != 2 {
			t.Errorf("instances %v, want those of m1 and m3", ids(l))
		}
		for m, want := range map[provisioner.MachineID]struct { // LXD's filter must not hide that it is silent
			instances []provisioner.InstanceID
			failed    []provisioner.ZoneName
		}{
			"m1": {instances: []provisioner.InstanceID{on["m1"]}}, "m2": {failed: []provisioner.ZoneName{"m2"}}, "not-there": {},
		} {
			l, err := h.FindInstances(t.Context(), provisioner.Labels{Controller: h.controller, Machine: m})
			if !slices.Equal(ids(l), want.instances) || !slices.Equal(l.Failed, want.failed) || !l.Complete || err != nil {
				t.Errorf("search for machine %s: %v, failed %v, %v, want %v", m, ids(l), l.Failed, err, want)
			}
		}
	}
	missing()
	h.eventually("m2 is unavailable", 40*time.Second, func() bool { return h.zones() == "m1 m2↓ m3" })
	missing()

	_, err := h.Start(t.Context(), h.request("new", "m2", "t"))
	if got := provisioner.OutcomeOf(err).Kind; err == nil || got != provisioner.OutcomeZoneFailed {
		t.Errorf("a start on it is outcome %v, want the zone's failure: %v", got, err)
	}
	h.start(h.request("new", "m3", "t"))

	var stop *provisioner.StopError
	err = h.Stop(t.Context(), provisioner.StopRequest{Instances: []provisioner.InstanceID{on["m1"], on["m2"]}})
	if !errors.As(err, &stop) || len(stop.Failed) != 1 || stop.Failed[on["m2"]] == nil {
		t.Errorf("stop of m1's and m2's: %v, want only %s to fail", err, on["m2"])
	}

	member(t, "start", "2")
	h.eventually("m2 is available", 40*time.Second, func() bool { return h.zones() == "m1 m2 m3" })
	h.eventually("m2's instance is listed", 20*time.Second, func() bool {
		l := h.find()
		return len(l.Failed) == 0 && slices.Contains(ids(l), on["m2"])
	})
	h.eventually("m2 takes a start", 20*time.Second, func() bool {
		_, err := h.Start(t.Context(), h.request("back", "m2", "t"))
		return err == nil
	})
}

func TestEvacuatedMember(t *testing.T) {
	h := newHost(t, config(t, "1"))
	lxd(t, "POST", "/1.0/cluster/members/m3/state", `{"action":"evacuate"}`, nil)
	t.Cleanup(func() {
		lxd(t, "POST", "/1.0/cluster/members/m3/state", `{"action":"restore"}`, nil)
		if got := h.zones(); got != "m1 m2 m3" {
			t.Errorf("zones after the restore: %s", got)
		}
	})
	if got := h.zones(); got != "m1 m2 m3↓" {
		t.Errorf("zones %s, want m3 unavailable", got)
	}
}

func TestFailureDomains(t *testing.T) {
	domain := func(member, domain string) {
		lxd(t, "PUT", "/1.0/cluster/members/"+member, `{"failure_domain":"`+domain+`","roles":["database"],"groups":["default"],"config":{}}`, nil)
	}
	for member, d := range map[string]string{"m1": "rack1", "m2": "rack1", "m3": "rack2"} {
		domain(member, d)
		t.Cleanup(func() { domain(member, "default") })
	}
	cfg := config(t, "1")
	cfg.ZonesAre = lxdbroker.FailureDomains
	h := newHost(t, cfg)
	if got := h.zones(); got != "rack1 rack2" {
		t.Errorf("zones %s", got)
	}
	for machine, zone := range map[provisioner.MachineID]provisioner.ZoneName{"0": "rack1", "1": "rack2"} {
		if r := h.start(h.request(machine, zone, "t")); r.Zone != zone {
			t.Errorf("machine %s is in %q, want %q", machine, r.Zone, zone)
		}
	}
	_, err := h.Start(t.Context(), h.request("2", "rack9", "t"))
	if provisioner.OutcomeOf(err).Kind != provisioner.OutcomeZoneFailed || err == nil {
		t.Errorf("start in a rack that is not there: %v", err)
	}
}

func TestSameMachineTwice(t *testing.T) {
	h := newHost(t, config(t, "1"))
	first := h.start(h.request("0", "m1", "one"))
	again := h.start(h.request("0", "m1", "one"))
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the same token gives another result (-first +again):\n%s", diff)
	}
	for _, zone := range []provisioner.ZoneName{"m1", "m2", ""} {
		_, err := h.Start(t.Context(), h.request("0", zone, "two"))
		if !errors.Is(err, provisioner.ErrAlreadyExists) {
			t.Errorf("another token in zone %q: %v, want AlreadyExists", zone, err)
		}
	}
	if got := ids(h.find()); len(got) != 1 {
		t.Errorf("instances %v, want one", got)
	}
}

// What a start leaves when its context ends, the same token finds again.
func TestStartCutShort(t *testing.T) {
	h := newHost(t, config(t, "1"))
	for n, after := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		id := provisioner.MachineID(fmt.Sprint(n))
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := h.Start(ctx, h.request(id, "m1", "t"))
		if err != nil && provisioner.OutcomeOf(err).Kind != provisioner.OutcomeUnknown {
			t.Errorf("cut short after %v: %v, want unknown", after, err)
		}
		cancel()
		h.eventually("the same token starts it", 10*time.Second, func() bool {
			_, err := h.Start(t.Context(), h.request(id, "m1", "t"))
			if err != nil && provisioner.OutcomeOf(err).Kind != provisioner.OutcomeUnknown {
				t.Fatalf("after a cut at %v: %v, want unknown or success", after, err)
			}
			return err == nil
		})
	}
	l := h.find()
	if len(l.Instances) != 4 {
		t.Errorf("instances %v, want one for each machine", ids(l))
	}
}

func TestStopPartial(t *testing.T) {
	h := newHost(t, config(t, "1"))
	a := h.start(h.request("0", "m1", "t")).Instance
	b := h.start(h.request("1", "m2", "t")).Instance
	protect := func(on string) {
		lxd(t, "PATCH", "/1.0/instances/"+string(b), `{"config":{"security.protection.delete":"`+on+`"}}`, nil)
	}
	protect("true")
	t.Cleanup(func() { protect("false") })

	var stop *provisioner.StopError
	err := h.Stop(t.Context(), provisioner.StopRequest{Instances: []provisioner.InstanceID{a, b, "m-never-there"}})
	if !errors.As(err, &stop) || len(stop.Failed) != 1 || stop.Failed[b] == nil {
		t.Errorf("stop: %v, want only %s to fail", err, b)
	}
	if diff := cmp.Diff([]provisioner.InstanceID{b}, ids(h.find())); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	h.stop(a) // again
}

func TestProfiles(t *testing.T) {
	h := newHost(t, config(t, "1"))
	id := h.start(h.request("0", "m2", "t")).Instance
	other := h.start(h.request("1", "m3", "t")).Instance
	profile := func(name, value string) *provisioner.Profile {
		return &provisioner.Profile{Name: name, Description: value, Config: map[string]string{"user.value": value}}
	}
	for _, step := range []struct {
		why  string
		on   provisioner.InstanceID
		old  string
		new  *provisioner.Profile
		want []string
		gone []string // profiles LXD no longer has
	}{
		{"the first goes to the end", id, "", profile("juju-x-a-1", "a1"), []string{"default", "juju-x-a-1"}, nil},
		{"another after it", id, "", profile("juju-x-b-1", "b1"), []string{"default", "juju-x-a-1", "juju-x-b-1"}, nil},
		{"once more changes nothing", id, "", profile("juju-x-b-1", "b1"), []string{"default", "juju-x-a-1", "juju-x-b-1"}, nil},
		{"another instance uses it too", other, "", profile("juju-x-a-1", "a1"), []string{"default", "juju-x-a-1"}, nil},
		{"replaced in place, while another uses the old", id, "juju-x-a-1", profile("juju-x-a-2", "a2"), []string{"default", "juju-x-a-2", "juju-x-b-1"}, nil},
		{"replaced again is done already", id, "juju-x-a-1", profile("juju-x-a-2", "a2"), []string{"default", "juju-x-a-2", "juju-x-b-1"}, nil},
		{"same name, new contents", id, "juju-x-b-1", profile("juju-x-b-1", "b1 anew"), []string{"default", "juju-x-a-2", "juju-x-b-1"}, nil},
		{"the last user leaves the old", other, "juju-x-a-1", profile("juju-x-a-2", "a2"), []string{"default", "juju-x-a-2"}, []string{"juju-x-a-1"}},
		{"removed", id, "juju-x-a-2", nil, []string{"default", "juju-x-b-1"}, nil},
		{"removed again", id, "juju-x-a-2", nil, []string{"default", "juju-x-b-1"}, nil},
		{"removed from its last", other, "juju-x-a-2", nil, []string{"default"}, []string{"juju-x-a-2"}},
		{"and the other", id, "juju-x-b-1", nil, []string{"default"}, []string{"juju-x-b-1"}},
	} {
		got, err := h.ChangeProfile(t.Context(), provisioner.ProfileChangeRequest{Instance: step.on, Old: step.old, Profile: step.new})
		if diff := cmp.Diff(step.want, got); diff != "" || err != nil {
			t.Fatalf("%s: %v (-want +got):\n%s", step.why, err, diff)
		}
		var there struct {
			Profiles       []string
			Status         string
			ExpandedConfig map[string]string `json:"expanded_config"`
		}
		lxd(t, "GET", "/1.0/instances/"+string(step.on), "", &there)
		if diff := cmp.Diff(step.want, there.Profiles); diff != "" || there.Status != "Running" {
			t.Errorf("%s: LXD has (%s, -want +got):\n%s", step.why, there.Status, diff)
		}
		if step.new != nil {
			var p struct{ Description string }
			lxd(t, "GET", "/1.0/profiles/"+step.new.Name, "", &p)
			if p.Description != step.new.Description {
				t.Errorf("%s: LXD's profile says %q", step.why, p.Description)
			}
		}
		var all []string
		lxd(t, "GET", "/1.0/profiles", "", &all)
		for _, name := range step.gone {
			if slices.Contains(all, "/1.0/profiles/"+name) {
				t.Errorf("%s: profile %s is still there", step.why, name)
			}
		}
	}
	_, err := h.ChangeProfile(t.Context(), provisioner.ProfileChangeRequest{Instance: "m-never-there", Profile: profile("juju-x-c-1", "c")})
	if !errors.Is(err, errors.NotFound) {
		t.Errorf("an instance that is not there: %v, want NotFound", err)
	}
	lxd(t, "DELETE", "/1.0/profiles/juju-x-c-1", "", nil)
	for why, p := range map[string]*provisioner.Profile{
		"a key that is none":    {Name: "juju-x-d-1", Config: map[string]string{"nonsense": "1"}},
		"a device that is none": {Name: "juju-x-d-2", Devices: map[string]map[string]string{"d": {"type": "nonsense"}}},
	} {
		if _, err := h.ChangeProfile(t.Context(), provisioner.ProfileChangeRequest{Instance: id, Profile: p}); !errors.Is(err, errors.NotValid) {
			t.Errorf("%s: %v, want NotValid", why, err)
		}
	}
}

func TestErrors(t *testing.T) {
	lxd(t, "POST", "/1.0/projects", `{"name":"tiny","config":{"limits.containers":"0","features.images":"false","features.profiles":"false"}}`, nil)
	t.Cleanup(func() { lxd(t, "DELETE", "/1.0/projects/tiny", "", nil) })
	cert, key := certificate(t)
	for _, test := range []struct {
		why    string
		change func(*lxdbroker.Config, *provisioner.StartRequest)
		want   error
		says   string
	}{
		{"a certificate that LXD does not trust", func(c *lxdbroker.Config, _ *provisioner.StartRequest) { c.ClientCert, c.ClientKey = cert, key }, provisioner.ErrUnauthorized, "not authorized"},
		{"a server with another certificate", func(c *lxdbroker.Config, _ *provisioner.StartRequest) { c.ServerCert = cert }, provisioner.ErrUnauthorized, "another certificate"},
		{"a server that nobody vouches for", func(c *lxdbroker.Config, _ *provisioner.StartRequest) { c.ServerCert = nil }, provisioner.ErrUnauthorized, "certificate"},
		{"nobody listens", func(c *lxdbroker.Config, _ *provisioner.StartRequest) {
			c.Endpoints = []string{"https://127.0.0.11:1"}
		}, provisioner.ErrZoneIndependent, "refused"},
		{"a pool without room", func(_ *lxdbroker.Config, r *provisioner.StartRequest) {
			r.RootDisk = &provisioner.RootDisk{Source: "small"}
		}, provisioner.ErrOutOfCapacity, "disk space"},
		{"a project at its limit", func(c *lxdbroker.Config, _ *provisioner.StartRequest) { c.Project = "tiny" }, provisioner.ErrQuota, "maximum number"},
		{"a project that is not there", func(c *lxdbroker.Config, _ *provisioner.StartRequest) { c.Project = "none" }, provisioner.ErrZoneIndependent, "not found"},
		{"an alias that is not there", func(c *lxdbroker.Config, _ *provisioner.StartRequest) { c.Image = "none" }, provisioner.ErrZoneIndependent, "alias not found"},
		{"an image that is not there", func(c *lxdbroker.Config, _ *provisioner.StartRequest) {
			c.Image = strings.Repeat("0123", 16)
		}, provisioner.ErrZoneIndependent, "mage"},
		{"a profile that is not there", func(_ *lxdbroker.Config, r *provisioner.StartRequest) { r.Profiles = []string{"none"} }, provisioner.ErrZoneIndependent, "exist"},
		{"a pool that is not there", func(_ *lxdbroker.Config, r *provisioner.StartRequest) {
			r.RootDisk = &provisioner.RootDisk{Source: "none"}
		}, provisioner.ErrZoneIndependent, "not found"},
		{"an image of a container for a virtual machine", func(_ *lxdbroker.Config, r *provisioner.StartRequest) {
			r.Constraints.VirtType = "virtual-machine"
		}, provisioner.ErrZoneIndependent, "doesn't match"},
	} {
		t.Run(strings.ReplaceAll(test.why, " ", "-"), func(t *testing.T) {
			cfg, req := config(t, "1"), host{t: t, controller: "TestErrors"}.request("0", "m1", "t")
			test.change(&cfg, &req)
			b, err := lxdbroker.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.Start(t.Context(), req)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v\nwant %q, saying %q", test.why, err, test.want, test.says)
			}
			if test.want != provisioner.ErrAmbiguous && errors.Is(err, provisioner.ErrAmbiguous) {
				t.Errorf("%s: it is ambiguous too: %v", test.why, err)
			}
		})
	}
	if left := newHost(t, config(t, "1")).find(); len(left.Instances) > 0 {
		t.Errorf("failed starts have left %v", ids(left))
	}
}

func TestUnixSocket(t *testing.T) {
	h := newHost(t, lxdbroker.Config{Endpoints: []string{"unix://" + env(t, "LXD_TEST_SOCKET_1")}, Image: env(t, "LXD_TEST_IMAGE")})
	r := h.start(h.request("0", "", "t"))
	if r.Zone == "" {
		t.Error("LXD's choice of member is not reported")
	}
}

// An instance that dies is noticed through LXD's events, also when the
// connection to them was lost before.
func TestInstanceDies(t *testing.T) {
	h := newHost(t, config(t, "1"))
	id := h.start(h.request("0", "m2", "t")).Instance
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	events, connected := make(chan lxdbroker.Event, 100), make(chan struct{}, 10)
	watching.Go(func() {
		err := h.Watch(ctx, func(e lxdbroker.Event) { events <- e }, func() { connected <- struct{}{} })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	})
	defer watching.Wait()
	defer cancel()
	await := func(action string) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if e.Action == action && e.Instance == id && e.Machine == "0" {
					return
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("no %s", action)
			}
		}
	}
	<-connected
	// Its init ends by itself.
	lxd(t, "POST", "/1.0/instances/"+string(id)+"/exec", `{"command":["/bin/kill","-TERM","1"],"wait-for-websocket":false,"interactive":false}`, nil)
	await("instance-shutdown")

	member(t, "stop", "1")
	member(t, "start", "1")
	select {
	case <-connected:
	case <-time.After(30 * time.Second):
		t.Fatal("not connected again")
	}
	h.eventually("it is started again", 20*time.Second, func() bool {
		_, err := h.Start(t.Context(), h.request("0", "m2", "t"))
		return err == nil
	})
	h.stop(id)
	await("instance-deleted")
}
