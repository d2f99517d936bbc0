package lxdbroker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/examples/lxd/lxdbroker"
	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// there is machine 7's instance with other labels or in another state.
func there(code int, change ...string) http.HandlerFunc {
	used := time.Time{}
	config := map[string]string{
		"user.provisioner.controller": "c", "user.provisioner.machine": "7",
		"user.provisioner.nonce": "n", "user.provisioner.token": "t",
	}
	for i := 0; i < len(change); i += 2 {
		if change[i] == "used" {
			used, _ = time.Parse(time.RFC3339, change[i+1])
		}
		config["user.provisioner."+change[i]] = change[i+1]
	}
	text, _ := json.Marshal(map[string]any{
		"name": "x", "status_code": code, "architecture": "x86_64", "location": "m1", "config": config, "last_used_at": used,
	})
	return sync200(string(text))
}

// The labels go into the request that makes the instance (ST10).
func TestRequestOfAStart(t *testing.T) {
	b, f := fakeBroker(t, nil)
	req := fakeRequest()
	cores, mem, disk := uint64(2), uint64(512), uint64(1024)
	req.Constraints = constraints.Value{Arch: "arm64", Cores: &cores, Mem: &mem, RootDisk: &disk, RootDiskSource: "fast", InstanceType: "t3.micro"}
	req.Profiles = []string{"juju-m-a-1", "default"}
	if _, err := b.Start(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(f.body[post]), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"name": strings.TrimPrefix(seven, "/1.0/instances/"), "type": "container",
		"architecture": "aarch64", "instance_type": "t3.micro",
		"source": map[string]any{"type": "image", "alias": "img"},
		"config": map[string]any{
			"user.provisioner.controller": "c", "user.provisioner.machine": "7", "user.provisioner.nonce": "n",
			"user.provisioner.token": "t", "user.provisioner.epoch": "3",
			"limits.cpu": "2", "limits.memory": "512MiB",
		},
		"devices":  map[string]any{"root": map[string]any{"type": "disk", "path": "/", "pool": "fast", "size": "1024MiB"}},
		"profiles": []any{"default", "juju-m-a-1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if f.query[post] != "target=m1" {
		t.Errorf("query %q, want the zone's member", f.query[post])
	}
}

// A machine's name is no other's, and one that LXD takes, whatever the id.
func TestNames(t *testing.T) {
	valid := regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]{0,61}[a-zA-Z0-9]$`)
	seen := map[string]string{}
	for _, controller := range []string{"c", "d", ""} {
		for _, id := range []provisioner.MachineID{"0", "0/lxd/1", "0-lxd-1", "-", "ünï", provisioner.MachineID(strings.Repeat("9", 200)), provisioner.MachineID(strings.Repeat("9", 201))} {
			b, f := fakeBroker(t, nil)
			req := fakeRequest()
			req.Machine, req.Labels.Controller, req.Labels.Machine = id, controller, id
			r, err := b.Start(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			name, who := string(r.Instance), fmt.Sprintf("%s of %s", id, controller)
			if !valid.MatchString(name) {
				t.Errorf("%s: LXD does not take %q", who, name)
			}
			if other, ok := seen[name]; ok {
				t.Errorf("%s and %s are both %q", who, other, name)
			}
			seen[name] = who
			if !strings.Contains(f.body[post], `"name":"`+name+`"`) {
				t.Errorf("%s: result %q, request %s", who, name, f.body[post])
			}
		}
	}
}

// "Already exists" is told apart by the labels of what exists: the same token
// is the same attempt (ST11), another one is for the library to adopt (ST19).
func TestResume(t *testing.T) {
	exists := ended(400, `Failed creating instance record: Add instance info to the database: This "instances" entry already exists`)
	lost := failed(500, "Missing event connection with target cluster member")
	for _, test := range []struct {
		why    string
		there  http.HandlerFunc
		state  http.HandlerFunc
		starts int
		want   error // nil: started
		not    error
		gone   int // how often it is deleted
	}{
		{"the same token, running", there(103), nil, 0, nil, nil, 0},
		{"the same token, made and not started", there(102), nil, 1, nil, nil, 0},
		{"started by somebody else just now", there(102), failed(400, "The instance is already running"), 1, nil, nil, 0},
		{"the earlier call is at work", there(102), failed(400, `Instance is busy running a "create" operation`), 1, provisioner.ErrAmbiguous, nil, 0},
		{"nobody knows whether it starts", there(102), hangsUp, 1, provisioner.ErrAmbiguous, nil, 0},
		{"left half made", there(102), failed(400, "Failed to run: forkstart"), 1, provisioner.ErrZoneIndependent, provisioner.ErrAmbiguous, 1},
		{"left without room", there(102), failed(400, "no space left on device"), 1, provisioner.ErrOutOfCapacity, provisioner.ErrAmbiguous, 1},
		{"it ran, and may hold something", there(102, "used", "2026-01-02T03:04:05Z"), failed(400, "no"), 1, provisioner.ErrAmbiguous, nil, 0},
		{"another token", there(103, "token", "t2"), nil, 0, provisioner.ErrAlreadyExists, nil, 0},
		{"another token, made and not started", there(102, "token", "t2"), nil, 1, provisioner.ErrAlreadyExists, nil, 0},
		{"another token, and it does not start", there(102, "token", "t2"), failed(400, "no"), 1, provisioner.ErrAmbiguous, provisioner.ErrAlreadyExists, 0},
		{"another controller", there(102, "controller", "d"), nil, 0, provisioner.ErrZoneIndependent, provisioner.ErrAlreadyExists, 0},
		{"another machine", there(102, "machine", "8"), nil, 0, provisioner.ErrZoneIndependent, provisioner.ErrAlreadyExists, 0},
		{"without labels", sync200(`{"status_code":103}`), nil, 0, provisioner.ErrZoneIndependent, provisioner.ErrAlreadyExists, 0},
		{"gone again", failed(404, "Instance not found"), nil, 0, provisioner.ErrAmbiguous, nil, 0},
		{"on a member that does not answer", lost, nil, 0, provisioner.ErrAmbiguous, nil, 0},
	} {
		t.Run(test.why, func(t *testing.T) {
			if test.state == nil {
				test.state = sync200("{}")
			}
			b, f := fakeBroker(t, map[string]http.HandlerFunc{post: says(202, async), wait: exists, "GET " + seven: test.there,
				"DELETE " + seven: sync200("{}"), state: first(test.state, sync200("{}"))})
			r, err := b.Start(t.Context(), fakeRequest())
			if !errors.Is(err, test.want) || test.not != nil && errors.Is(err, test.not) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if err == nil && (r.Instance == "" || r.Zone != "m1") {
				t.Errorf("result %+v", r)
			}
			if got := f.saw(state) - test.gone; got != test.starts { // it is stopped before it is deleted
				t.Errorf("started %d times, want %d", got, test.starts)
			}
			if got := f.saw("DELETE " + seven); got != test.gone {
				t.Errorf("deleted %d times, want %d", got, test.gone)
			}
		})
	}
}

// A start that certainly failed leaves nothing; one whose outcome is unknown
// is left alone.
func TestUndo(t *testing.T) {
	for _, test := range []struct {
		why     string
		state   http.HandlerFunc
		del     http.HandlerFunc
		want    provisioner.OutcomeKind
		deletes int
	}{
		{"it does not start", failed(400, "Failed to run: forkstart"), sync200("{}"), provisioner.OutcomeZoneIndependent, 1},
		{"no memory to start it", failed(400, "fork: cannot allocate memory"), sync200("{}"), provisioner.OutcomeZoneFailed, 1},
		{"it stays", failed(400, "Failed to run: forkstart"), failed(400, "Failed deleting"), provisioner.OutcomeUnknown, 1},
		{"nobody knows", hangsUp, sync200("{}"), provisioner.OutcomeUnknown, 0},
	} {
		t.Run(test.why, func(t *testing.T) {
			b, f := fakeBroker(t, map[string]http.HandlerFunc{
				"DELETE " + seven: test.del,
				state:             first(test.state, says(202, async)), // then the stop that goes before the delete
			})
			_, err := b.Start(t.Context(), fakeRequest())
			if got := provisioner.OutcomeOf(err).Kind; err == nil || got != test.want {
				t.Errorf("outcome %d, want %d: %v", got, test.want, err)
			}
			if got := f.saw("DELETE " + seven); got != test.deletes {
				t.Errorf("deleted %d times, want %d", got, test.deletes)
			}
		})
	}
}

// When the context ends the operation is cancelled, where LXD lets us.
func TestCancel(t *testing.T) {
	for _, may := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		b, f := fakeBroker(t, map[string]http.HandlerFunc{
			post: says(202, fmt.Sprintf(`{"type":"async","operation":"/1.0/operations/op","metadata":{"may_cancel":%v}}`, may)),
			wait: func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() },
		})
		_, err := b.Start(ctx, fakeRequest())
		if !errors.Is(err, provisioner.ErrAmbiguous) || !errors.Is(err, context.Canceled) {
			t.Errorf("may cancel %v: %v, want cancelled and ambiguous", may, err)
		}
		if got := f.saw("DELETE /1.0/operations/op") == 1; got != may {
			t.Errorf("may cancel %v: cancelled %v", may, got)
		}
	}
}

// Volumes are made first, so a start that fails takes them away again, and
// one that is unknown leaves them for the same attempt to find.
func TestVolumes(t *testing.T) {
	const create, volume = "POST /1.0/storage-pools/fast/volumes/custom", "/1.0/storage-pools/fast/volumes/custom/"
	name := strings.TrimPrefix(seven, "/1.0/instances/") + "-9"
	ours := sync200(`{"config":{"user.provisioner.controller":"c","user.provisioner.machine":"7","user.provisioner.volume":"9"}}`)
	for _, test := range []struct {
		why     string
		answers map[string]http.HandlerFunc
		want    error
		deletes int
	}{
		{"made", nil, nil, 0},
		{"made by an earlier attempt", map[string]http.HandlerFunc{create: failed(409, "Volume already exists"), "GET " + volume + name: ours}, nil, 0},
		{"somebody else's", map[string]http.HandlerFunc{create: failed(409, "Volume already exists"), "GET " + volume + name: sync200(`{"config":{}}`)}, provisioner.ErrAlreadyExists, 0},
		{"no instance comes of it", map[string]http.HandlerFunc{post: failed(400, "nonsense")}, provisioner.ErrZoneIndependent, 1},
		{"an earlier attempt's, and no instance comes of it", map[string]http.HandlerFunc{post: failed(400, "nonsense"), create: failed(409, "Volume already exists"), "GET " + volume + name: ours}, provisioner.ErrZoneIndependent, 0},
		{"nobody knows", map[string]http.HandlerFunc{post: hangsUp}, provisioner.ErrAmbiguous, 0},
	} {
		t.Run(test.why, func(t *testing.T) {
			b, f := fakeBroker(t, test.answers)
			req := fakeRequest()
			req.Volumes = []provisioner.Volume{{ID: "9", SizeM: 5, Attributes: map[string]string{"pool": "fast", "path": "/data"}}}
			req.Attachments = []provisioner.VolumeAttachment{{Volume: "9", ReadOnly: true}, {Volume: "old", VolumeID: "m1/slow/v"}}
			r, err := b.Start(t.Context(), req)
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if got := f.saw("DELETE " + volume + name); got != test.deletes {
				t.Errorf("deleted %d times, want %d", got, test.deletes)
			}
			if err != nil {
				return
			}
			var made struct{ Devices map[string]map[string]string }
			_ = json.Unmarshal([]byte(f.body[post]), &made)
			want := map[string]map[string]string{
				"volume-9":   {"type": "disk", "pool": "fast", "source": name, "path": "/data", "readonly": "true"},
				"volume-old": {"type": "disk", "pool": "slow", "source": "v", "path": "/srv/volume-old"},
			}
			if diff := cmp.Diff(want, made.Devices); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]provisioner.VolumeResult{{Volume: "9", VolumeID: "m1/fast/" + name, SizeM: 5, Persistent: true}}, r.Volumes); diff != "" {
				t.Errorf("volumes (-want +got):\n%s", diff)
			}
		})
	}
}

// What LXD says of the hardware, in its ways of writing it.
func TestHardware(t *testing.T) {
	n := func(n uint64) *uint64 { return &n }
	for _, test := range []struct {
		cpu, memory, size string
		want              constraints.Hardware
	}{
		{"", "", "", constraints.Hardware{}},
		{"2", "512MiB", "10GiB", constraints.Hardware{Cores: n(2), Mem: n(512), RootDisk: n(10240)}},
		{"0-3,6", "1GB", "1TiB", constraints.Hardware{Cores: n(5), Mem: n(953), RootDisk: n(1 << 20)}},
		{"1-1", "1073741824", "2G", constraints.Hardware{Cores: n(1), Mem: n(1024), RootDisk: n(1907)}},
		{"3-1", "50%", "-1", constraints.Hardware{}},
		{"many", "much", "99999999999999999999XiB", constraints.Hardware{}},
	} {
		text, _ := json.Marshal(map[string]any{
			"name": "x", "type": "container", "status_code": 103, "architecture": "aarch64", "location": "m1",
			"expanded_config":  map[string]string{"limits.cpu": test.cpu, "limits.memory": test.memory},
			"expanded_devices": map[string]any{"r": map[string]string{"type": "disk", "path": "/", "pool": "p", "size": test.size}},
		})
		b, _ := fakeBroker(t, map[string]http.HandlerFunc{"GET " + seven: sync200(string(text))})
		r, err := b.Start(t.Context(), fakeRequest())
		test.want.Arch, test.want.VirtType, test.want.AvailabilityZone, test.want.RootDiskSource = "arm64", "container", "m1", "p"
		if diff := cmp.Diff(test.want, r.Hardware); diff != "" || err != nil {
			t.Errorf("cpu %q, memory %q, size %q: %v (-want +got):\n%s", test.cpu, test.memory, test.size, err, diff)
		}
	}
}

// An instance that runs is never lost for want of what is told about it (ST9).
func TestReportThatCannotBeRead(t *testing.T) {
	for why, answer := range map[string]http.HandlerFunc{
		"error": failed(500, "no"), "nonsense": says(200, "<html>"), "hangs up": hangsUp, "list": sync200("[]"),
	} {
		b, _ := fakeBroker(t, map[string]http.HandlerFunc{"GET " + seven: answer})
		r, err := b.Start(t.Context(), fakeRequest())
		if err != nil || r.Instance == "" || r.Zone != "m1" {
			t.Errorf("%s: %+v, %v", why, r, err)
		}
	}
}

// The agent's configuration is the instance's user data, unless the host says
// otherwise; what cannot be made of it is final.
func TestUserData(t *testing.T) {
	const secret = "hunter2"
	booted := fakeRequest()
	booted.Config = instancecfg.Config{Machine: "7", Nonce: "h:n", Auth: instancecfg.Auth{Tag: "machine-7", Password: instancecfg.Hide(secret)}}
	spoiled := booted
	spoiled.Config.UserData = instancecfg.Hide(map[string]any{"write_files": "no list"})
	own := func(text string, err error) func(provisioner.StartRequest) (string, error) {
		return func(provisioner.StartRequest) (string, error) { return text, err }
	}
	for _, test := range []struct {
		why  string
		req  provisioner.StartRequest
		own  func(provisioner.StartRequest) (string, error)
		want string // is in it
		err  error
	}{
		{"what the agent boots with", booted, nil, secret, nil},
		{"nothing to boot with", fakeRequest(), nil, "", nil},
		{"the host's own", booted, own("#!/bin/sh", nil), "#!/bin/sh", nil},
		{"the host's own is nothing", booted, own("", nil), "", nil},
		{"the host's own fails", booted, own("", errors.New("boom")), "", provisioner.ErrPermanent},
		{"it makes no cloud-init", spoiled, nil, "", provisioner.ErrPermanent},
	} {
		b, f := fakeBroker(t, nil, func(c *lxdbroker.Config) { c.UserData = test.own })
		_, err := b.Start(t.Context(), test.req)
		if !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", test.why, err, test.err)
		}
		if err != nil {
			if strings.Contains(err.Error(), secret) || f.saw(post) > 0 {
				t.Errorf("%s: %v; LXD was asked %v", test.why, err, f.asked)
			}
			continue
		}
		var made struct{ Config map[string]string }
		_ = json.Unmarshal([]byte(f.body[post]), &made)
		data, ok := made.Config["user.user-data"]
		if ok != (test.want != "") || !strings.Contains(data, test.want) {
			t.Errorf("%s: %q, want %q in it", test.why, data, test.want)
		}
	}
}

// Where the user data goes depends on what LXD can do.
func TestUserDataKey(t *testing.T) {
	for extensions, key := range map[string]string{`["x","cloud_init"]`: "cloud-init.user-data", `["x"]`: "user.user-data"} {
		b, f := fakeBroker(t, map[string]http.HandlerFunc{"GET /1.0": sync200(`{"api_extensions":` + extensions + `}`)}, func(c *lxdbroker.Config) {
			c.UserData = func(provisioner.StartRequest) (string, error) { return "#cloud-config", nil }
		})
		if _, err := b.Start(t.Context(), fakeRequest()); err != nil {
			t.Fatal(err)
		}
		var made struct{ Config map[string]string }
		_ = json.Unmarshal([]byte(f.body[post]), &made)
		if !strings.HasPrefix(made.Config[key], "#cloud-config") {
			t.Errorf("extensions %s: keys %v, want %s", extensions, slices.Sorted(maps.Keys(made.Config)), key)
		}
	}
}

// What no repetition can mend is said before anything is asked of LXD.
func TestBadRequests(t *testing.T) {
	for why, change := range map[string]func(*provisioner.StartRequest){
		"a container on a host": func(r *provisioner.StartRequest) { r.Host = "0" },
		"kind of instance":      func(r *provisioner.StartRequest) { r.Constraints.VirtType = "kvm" },
		"an attachment of nothing": func(r *provisioner.StartRequest) {
			r.Attachments = []provisioner.VolumeAttachment{{Volume: "9"}}
		},
		"a volume id of another broker": func(r *provisioner.StartRequest) {
			r.Attachments = []provisioner.VolumeAttachment{{VolumeID: "vol-1"}}
		},
	} {
		b, f := fakeBroker(t, nil)
		req := fakeRequest()
		change(&req)
		if _, err := b.Start(t.Context(), req); !errors.Is(err, provisioner.ErrPermanent) {
			t.Errorf("%s: %v, want permanent", why, err)
		}
		if f.saw(post) > 0 {
			t.Errorf("%s: an instance was made", why)
		}
	}
	b, _ := fakeBroker(t, nil, func(c *lxdbroker.Config) { c.Image = "" })
	if _, err := b.Start(t.Context(), fakeRequest()); !errors.Is(err, provisioner.ErrPermanent) {
		t.Errorf("no image: %v, want permanent", err)
	}
}

// The project goes with every request.
func TestProject(t *testing.T) {
	b, f := fakeBroker(t, nil, func(c *lxdbroker.Config) { c.Project = "p&q" })
	if _, err := b.Start(t.Context(), fakeRequest()); err != nil {
		t.Fatal(err)
	}
	for key, query := range f.query {
		want := "p&q"
		if key == wait {
			want = "default" // as LXD named it in the operation
		}
		if values, _ := url.ParseQuery(query); values.Get("project") != want {
			t.Errorf("%s?%s, want project %s", key, query, want)
		}
	}
}
