//go:build lxd

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/lxd/lxdbroker"
)

// A fleetRun is the command with a fleet file of the test's own.
type fleetRun struct {
	*lxdbroker.Broker
	t    *testing.T
	name string
}

func newRun(t *testing.T) fleetRun {
	t.Helper()
	b, err := lxdbroker.New(lxdbroker.Config{Endpoints: []string{"unix://" + os.Getenv("LXD_TEST_SOCKET_1")}, Image: os.Getenv("LXD_TEST_IMAGE")})
	if err != nil {
		t.Fatal(err)
	}
	f := fleetRun{b, t, fleetFile(t, "")}
	t.Cleanup(func() { // whatever went wrong
		l, _ := b.FindInstances(context.Background(), provisioner.Labels{Controller: t.Name()})
		for _, i := range l.Instances {
			_ = b.Stop(context.Background(), provisioner.StopRequest{Instances: []provisioner.InstanceID{i.ID}})
		}
	})
	return f
}

// want writes the fleet file; no ids are no machines.
func (f fleetRun) want(ids string) {
	f.t.Helper()
	machines := `{"ids":"` + ids + `"}`
	if ids == "" {
		machines = ""
	}
	write(f.t, f.name, `{"controller":"`+f.t.Name()+`","machines":[`+machines+`]}`)
}

func (f fleetRun) args() []string {
	return []string{"-fleet", f.name, "-lxd", "unix://" + os.Getenv("LXD_TEST_SOCKET_1"), "-image", os.Getenv("LXD_TEST_IMAGE")}
}

// run gives the command so long.
func (f fleetRun) run(long time.Duration) (out string, err error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), long)
	defer cancel()
	var b strings.Builder
	err = run(ctx, f.args(), &b)
	return b.String(), err
}

// finish lets it come to its end.
func (f fleetRun) finish(says string) {
	f.t.Helper()
	if out, err := f.run(2 * time.Minute); err != nil || !strings.Contains(out, says) {
		f.t.Fatalf("%v, want %q\n%s", err, says, out)
	}
}

// zones counts the instances in each zone. No machine may have two.
func (f fleetRun) zones() map[provisioner.ZoneName]int {
	f.t.Helper()
	l, err := f.FindInstances(context.Background(), provisioner.Labels{Controller: f.t.Name()})
	if err != nil {
		f.t.Fatal(err)
	}
	seen, zones := map[provisioner.MachineID]bool{}, map[provisioner.ZoneName]int{}
	for _, i := range l.Instances {
		if seen[i.Labels.Machine] {
			f.t.Errorf("machine %s has more than one instance", i.Labels.Machine)
		}
		seen[i.Labels.Machine] = true
		zones[i.Zone]++
	}
	return zones
}

func (f fleetRun) check(why string, want map[provisioner.ZoneName]int) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.zones()); diff != "" {
		f.t.Errorf("%s: instances by zone (-want +got):\n%s", why, diff)
	}
}

// Thirty machines are spread evenly, and so are the nine of a group among them
// (AZ5, DG1).
func TestSpread(t *testing.T) {
	f := newRun(t)
	write(t, f.name, `{"controller":"`+t.Name()+`","machines":[{"ids":"0-8","group":"web"},{"ids":"9-29"}]}`)
	f.finish("30 of 30 machines run")
	f.check("all", map[provisioner.ZoneName]int{"m1": 10, "m2": 10, "m3": 10})
	group := map[provisioner.ZoneName]int{}
	for _, i := range f.instances() {
		if len(i.Labels.Machine) == 1 && i.Labels.Machine != "9" {
			group[i.Zone]++
		}
	}
	if diff := cmp.Diff(map[provisioner.ZoneName]int{"m1": 3, "m2": 3, "m3": 3}, group); diff != "" {
		t.Errorf("the group (-want +got):\n%s", diff)
	}
}

// Who may not use LXD is told so at once.
func TestNotTrusted(t *testing.T) {
	f := newRun(t)
	f.want("0")
	for _, cert := range []string{"client", "server"} {
		t.Run(cert, func(t *testing.T) {
			own := [...]string{os.Getenv("LXD_TEST_CERT"), os.Getenv("LXD_TEST_KEY"), os.Getenv("LXD_TEST_SERVER_CERT")}
			dir := t.TempDir()
			if out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
				"-days", "1", "-subj", "/CN=x", "-keyout", dir+"/key", "-out", dir+"/cert").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if cert == "client" {
				own[0], own[1] = dir+"/cert", dir+"/key"
			} else {
				own[2] = dir + "/cert"
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := run(ctx, []string{"-fleet", f.name, "-lxd", os.Getenv("LXD_TEST_URL_1"), "-cert", own[0], "-key", own[1], "-server-cert", own[2]}, io.Discard)
			if !errors.Is(err, provisioner.ErrUnauthorized) {
				t.Errorf("%v, want unauthorized", err)
			}
		})
	}
}

// Interrupted at any moment, the command goes on where it was when it is run
// again; each machine ends with exactly one instance, in balance.
func TestInterruptedFleet(t *testing.T) {
	f := newRun(t)
	for _, after := range []time.Duration{20 * time.Millisecond, 400 * time.Millisecond} {
		f.want("0-5")
		if out, err := f.run(after); err != nil && !strings.Contains(err.Error(), "run it again") {
			t.Errorf("cut after %v: %v\n%s", after, err, out)
		}
		f.finish("6 of 6 machines run")
		f.check("started, cut after "+after.String(), map[provisioner.ZoneName]int{"m1": 2, "m2": 2, "m3": 2})
		f.want("")
		_, _ = f.run(after)
		f.finish("0 of 0 machines run")
		f.check("stopped, cut after "+after.String(), map[provisioner.ZoneName]int{})
	}
}

// The starts of a member that fails go elsewhere, its instances aren't taken
// for gone, and it is used again when it is back.
func TestFleetWithoutAMember(t *testing.T) {
	f := newRun(t)
	member := func(action string) {
		t.Helper()
		if out, err := exec.Command(os.Getenv("LXD_TEST_CLUSTER"), action, "2").CombinedOutput(); err != nil {
			t.Fatalf("cluster %s 2: %v\n%s", action, err, out)
		}
	}
	f.want("0-2")
	f.finish("3 of 3 machines run")
	member("stop")
	t.Cleanup(func() { member("start") }) // it runs before the one of newRun
	f.want("0-6")
	f.finish("7 of 7 machines run")
	f.check("m2 is down", map[provisioner.ZoneName]int{"m1": 3, "m3": 3})

	member("start")
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		zones, err := f.Zones(t.Context())
		if err == nil && !slices.ContainsFunc(zones, func(z provisioner.Zone) bool { return !z.Available }) && f.zones()["m2"] == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("m2 does not come back: %v %v", zones, err)
		}
	}
	f.want("0-8")
	f.finish("9 of 9 machines run")
	f.check("m2 is back", map[provisioner.ZoneName]int{"m1": 3, "m2": 3, "m3": 3})
}

// get reads LXD.
func get(t *testing.T, path string, into any) {
	t.Helper()
	ask(t, "GET", path, "", into)
}

// ask asks LXD itself.
func ask(t *testing.T, method, path, body string, into any) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", os.Getenv("LXD_TEST_SOCKET_1"))
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
	var answer struct {
		Error    string
		Metadata any
	}
	answer.Metadata = into
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Error != "" {
		t.Fatalf("%s: %s %s %v", path, resp.Status, answer.Error, err)
	}
}

// A container is what LXD tells of one.
type container struct {
	Profiles []string
	Config   map[string]string `json:"expanded_config"`
	Pid      int64
}

// containers are those of the fleet, by machine.
func (f fleetRun) containers() map[provisioner.MachineID]container {
	f.t.Helper()
	l, err := f.FindInstances(context.Background(), provisioner.Labels{Controller: f.t.Name()})
	if err != nil {
		f.t.Fatal(err)
	}
	all := map[provisioner.MachineID]container{}
	for _, i := range l.Instances {
		var c container
		get(f.t, "/1.0/instances/"+string(i.ID), &c)
		get(f.t, "/1.0/instances/"+string(i.ID)+"/state", &c)
		all[i.Labels.Machine] = c
	}
	return all
}

// Profiles that the fleet file defines are added to running containers, replaced in
// their place and removed, as LXD itself tells; the containers run on. One machine's
// failure is its own, shown, and mended by the next file.
func TestFleetProfiles(t *testing.T) {
	f := newRun(t)
	was := map[provisioner.MachineID]int64{}
	step := func(why, profiles, machines string, want map[provisioner.MachineID][]string, values ...string) {
		t.Helper()
		write(t, f.name, `{"controller":"`+t.Name()+`","profiles":{`+profiles+`},"machines":[`+machines+`]}`)
		f.finish("2 of 2 machines run")
		got := map[provisioner.MachineID][]string{}
		for id, c := range f.containers() {
			got[id] = c.Profiles
			if before := was[id]; before != 0 && before != c.Pid || c.Pid == 0 {
				t.Errorf("%s: machine %s had process %d and has %d: it was to run on", why, id, before, c.Pid)
			}
			if was[id] = c.Pid; id == "0" {
				if diff := cmp.Diff(values, []string{c.Config["user.a"], c.Config["user.b"]}); diff != "" {
					t.Errorf("%s: what the profiles say (-want +got):\n%s", why, diff)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: LXD's profiles (-want +got):\n%s", why, diff)
		}
	}
	const (
		a1 = `"juju-t-a-1":{"config":{"user.a":"1"}}`
		a2 = `"juju-t-a-2":{"config":{"user.a":"2"}}`
		b1 = `"juju-t-b-1":{"config":{"user.b":"1"},"devices":{"none":{"type":"none"}}}`
	)
	type by = map[provisioner.MachineID][]string
	step("started without", "", `{"ids":"0-1"}`, by{"0": {"default"}, "1": {"default"}}, "", "")
	step("two are added, in order", a1+","+b1, `{"ids":"0","profiles":["juju-t-a-1","juju-t-b-1"]},{"ids":"1","profiles":["juju-t-a-1"]}`,
		by{"0": {"default", "juju-t-a-1", "juju-t-b-1"}, "1": {"default", "juju-t-a-1"}}, "1", "1")
	step("the first is replaced in its place, the other machine's stays", a1+","+a2+","+b1, `{"ids":"0","profiles":["juju-t-a-2","juju-t-b-1"]},{"ids":"1","profiles":["juju-t-a-1"]}`,
		by{"0": {"default", "juju-t-a-2", "juju-t-b-1"}, "1": {"default", "juju-t-a-1"}}, "2", "1")

	write(t, f.name, `{"controller":"`+t.Name()+`","profiles":{`+a2+`,"juju-t-b-2":{"config":{"nonsense":"1"}}},"machines":[{"ids":"0","profiles":["juju-t-a-2","juju-t-b-2"]},{"ids":"1","profiles":["juju-t-a-2"]}]}`)
	if out, err := f.run(2 * time.Minute); err == nil || !strings.Contains(err.Error(), "1 failed") || !strings.Contains(out, "nonsense") {
		t.Errorf("a profile that LXD refuses: %v\n%s", err, out)
	}
	step("one is refused and the other made; then one is removed", a2, `{"ids":"0-1","profiles":["juju-t-a-2"]}`, by{"0": {"default", "juju-t-a-2"}, "1": {"default", "juju-t-a-2"}}, "2", "")
	step("all are removed", "", `{"ids":"0-1"}`, by{"0": {"default"}, "1": {"default"}}, "", "")
	var left []string
	get(t, "/1.0/profiles", &left)
	if slices.ContainsFunc(left, func(p string) bool { return strings.Contains(p, "juju-t-") }) {
		t.Errorf("profiles that nothing uses any more are left: %v", left)
	}
}
