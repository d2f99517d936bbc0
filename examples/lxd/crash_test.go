//go:build lxd

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/lxd/lxdbroker"
)

// TestMain is the command itself where a test wants a process that it can kill.
func TestMain(m *testing.M) {
	if os.Getenv("LXD_TEST_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// kill runs the command as a process of its own and kills it after so long, unless
// it has ended.
func (f fleetRun) kill(after time.Duration) {
	f.t.Helper()
	cmd := exec.Command(os.Args[0], f.args()...)
	cmd.Env = append(os.Environ(), "LXD_TEST_COMMAND=1")
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // killed, or done, or it failed at what the last one left: the next goes on
	timer.Stop()
}

// settled checks that each of the machines, and nothing else, has one instance,
// which is the recorded one and runs.
func (f fleetRun) settled(why string, ids ...provisioner.MachineID) {
	f.t.Helper()
	r := opened(f.t, f.name)
	defer r.close()
	want, got := map[provisioner.MachineID][]provisioner.Instance{}, map[provisioner.MachineID][]provisioner.Instance{}
	for _, id := range ids {
		m := r.kept.Machines[id]
		want[id] = []provisioner.Instance{{ID: m.Instance, Zone: m.Zone, State: provisioner.InstanceUp,
			Labels: provisioner.Labels{Controller: f.t.Name(), Machine: id, Nonce: m.Nonce}}}
	}
	for _, i := range f.instances() {
		i.Created, i.Labels.Token = time.Time{}, ""
		got[i.Labels.Machine] = append(got[i.Labels.Machine], i)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		f.t.Errorf("%s: instances by machine (-recorded +there):\n%s", why, diff)
	}
	if len(r.kept.Machines) != len(ids) {
		f.t.Errorf("%s: %d machines are kept, want %d: %v", why, len(r.kept.Machines), len(ids), r.kept.Machines)
	}
}

// Killed at any moment, while it starts, stops or changes its mind, the command
// goes on: each machine ends with exactly one instance, and nothing is left over
// (ST10, ST11, ST19).
func TestKilled(t *testing.T) {
	f := newRun(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kill := func(times int) {
		for range times {
			f.kill(time.Duration(random.Int64N(int64(1500 * time.Millisecond))))
		}
	}
	for range 3 {
		f.want("0-4")
		kill(5)
		f.want("1-5") // machine 0 may be under way, and nobody wants it any more
		f.finish("5 of 5 machines run")
		f.settled("started", "1", "2", "3", "4", "5")
		f.want("")
		kill(5)
		f.finish("0 of 0 machines run")
		f.settled("stopped")
	}
}

// A run that has lost all that was written down takes the instances that are there
// for its own, finishes what was only made, and starts what is missing (ST19).
func TestAdopted(t *testing.T) {
	f := newRun(t)
	f.want("0-2")
	f.finish("3 of 3 machines run")
	before := f.instances()
	three := f.made("3", "m1") // a run was killed between making it and starting it
	if err := os.Remove(strings.TrimSuffix(f.name, ".json") + ".made.json"); err != nil {
		t.Fatal(err)
	}
	f.want("0-4")
	f.finish("5 of 5 machines run")
	f.settled("adopted", "0", "1", "2", "3", "4")
	after := f.instances()
	if diff := gocmp.Diff(before, after[:3]); diff != "" {
		t.Errorf("those that were there (-before +after):\n%s", diff)
	}
	if got := after[3].Labels; got != three {
		t.Errorf("machine 3 has the labels %+v: want those it was made with, %+v", got, three)
	}
}

// "Already exists" is adoption: somebody makes a machine's instance right before
// its first start, so that no look could have seen it.
func TestAlreadyExists(t *testing.T) {
	f := newRun(t)
	f.want("0")
	r := opened(t, f.name)
	b := &overtaken{Broker: f.Broker}
	task, err := provisioner.New(provisioner.Config{Controller: t.Name(), Broker: b, State: r})
	if err != nil {
		t.Fatal(err)
	}
	report, err := task.Reconcile(t.Context())
	if err != nil || len(report.Results) != 1 || !strings.Contains(report.Results[0].Reason, "adopted") {
		t.Errorf("%v: %+v: want machine 0 to be adopted", err, report)
	}
	if m := r.kept.Machines["0"]; m.Instance != b.made.Instance || m.Nonce != "somebody:0" {
		t.Errorf("recorded %+v: want the instance of before, %s, and its nonce", m, b.made.Instance)
	}
	r.close()
	f.settled("adopted", "0")
}

// An overtaken broker starts a machine for somebody else right before its first
// start.
type overtaken struct {
	*lxdbroker.Broker
	made provisioner.StartResult
}

func (b *overtaken) Start(ctx context.Context, req provisioner.StartRequest) (provisioner.StartResult, error) {
	if b.made.Instance == "" {
		other := req
		other.Token, other.Labels.Token, other.Labels.Nonce = "somebody's", "somebody's", "somebody:0"
		var err error
		if b.made, err = b.Broker.Start(ctx, other); err != nil {
			return b.made, err
		}
	}
	return b.Broker.Start(ctx, req)
}

// made makes a machine's instance and does not start it.
func (f fleetRun) made(id provisioner.MachineID, zone provisioner.ZoneName) provisioner.Labels {
	f.t.Helper()
	labels := provisioner.Labels{Controller: f.t.Name(), Machine: id, Nonce: "earlier:" + string(id), Token: "earlier"}
	r, err := f.Start(f.t.Context(), provisioner.StartRequest{Machine: id, Zone: zone, Token: labels.Token, Labels: labels,
		Report: func(provisioner.InstanceStatus, string) {}})
	if err != nil {
		f.t.Fatal(err)
	}
	var was struct{ Config map[string]string }
	get(f.t, "/1.0/instances/"+string(r.Instance), &was)
	if err := f.Stop(f.t.Context(), provisioner.StopRequest{Instances: []provisioner.InstanceID{r.Instance}}); err != nil {
		f.t.Fatal(err)
	}
	config := map[string]string{}
	for key, value := range was.Config {
		if strings.HasPrefix(key, "user.provisioner.") {
			config[key] = value
		}
	}
	f.create(r.Instance, zone, config)
	return labels
}

// create makes an instance past the broker.
func (f fleetRun) create(name provisioner.InstanceID, zone provisioner.ZoneName, config map[string]string) {
	f.t.Helper()
	body, err := json.Marshal(map[string]any{"name": name, "config": config, "source": map[string]string{"type": "image", "alias": os.Getenv("LXD_TEST_IMAGE")}})
	if err != nil {
		f.t.Fatal(err)
	}
	var begun struct{ ID string }
	ask(f.t, "POST", "/1.0/instances?target="+string(zone), string(body), &begun)
	var ended struct{ Err string }
	get(f.t, "/1.0/operations/"+begun.ID+"/wait", &ended)
	if ended.Err != "" {
		f.t.Fatal(ended.Err)
	}
}

// instances are those of the fleet, by machine.
func (f fleetRun) instances() []provisioner.Instance {
	f.t.Helper()
	l, err := f.FindInstances(context.Background(), provisioner.Labels{Controller: f.t.Name()})
	if err != nil || len(l.Failed) > 0 {
		f.t.Fatal(err, l.Failed)
	}
	slices.SortFunc(l.Instances, func(a, b provisioner.Instance) int { return cmp.Compare(a.Labels.Machine, b.Labels.Machine) })
	return l.Instances
}
