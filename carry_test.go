package provisioner_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/instancecfg"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// These tests are about what a start carries, in and out, on its way through a
// whole Task.

// carryWorld has the machines 0, 1, 2… in one zone, and is kind.
func carryWorld(t *testing.T, machines int) *provisionertest.World {
	return fleetOf(t, provisionertest.Settings{Kind: true, Controller: "ctl"}, machines, 1)
}

// look lets a Task of the World look at everything once.
func look(t *testing.T, w *provisionertest.World, change func(*provisioner.Config)) (provisioner.Report, *log) {
	t.Helper()
	events := &log{}
	cfg := configOf(w, nil)
	cfg.Policy.Retry.Jitter = provisioner.NoJitter
	cfg.Observers = []provisioner.Observer{events}
	if change != nil {
		change(&cfg)
	}
	report, err := newTask(t, cfg).Reconcile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return report, events
}

// calls are the texts of the recorder's calls of one kind.
func calls(w *provisionertest.World, kind string) []string {
	var found []string
	for line := range strings.Lines(w.Transcript()) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == kind && !strings.HasSuffix(strings.TrimSpace(line), "...") {
			found = append(found, strings.Join(fields[2:], " "))
		}
	}
	return found
}

// IC1–IC3, IC5: what the host tells reaches the broker, in order, chosen and
// with its defaults; and what the broker tells reaches the record, whole.
func TestWhatAStartCarries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 2)
		info := fullInfo()
		info.Constraints.Zones = nil
		info.Instance.ControllerConfig = instancecfg.Hide(map[string]any{"ca-key": "k"})
		must(t, w.SetStartInfo("1", info))
		seven := uint64(7)
		result := provisioner.StartResult{
			DisplayName: "one",
			Hardware:    constraints.Hardware{Arch: "arm64", Cores: &seven, Mem: &seven, AvailabilityZone: "a"},
			Network: []provisioner.NetworkInterface{{Name: "eth0", MAC: "00:16:3e:aa:bb:0c", Addresses: []string{"10.0.0.7/24", "fd00::7"}, Gateway: "10.0.0.1",
				DNSServers: []string{"fe80::1%eth0"}, Space: "db", Subnet: "10.0.0.0/24"}},
			Volumes: []provisioner.VolumeResult{{Volume: "7", VolumeID: "vol-7", HardwareID: "h", WWN: "w", SizeM: 1024, Persistent: true}},
			Attachments: []provisioner.VolumeAttachmentResult{{Volume: "9", DeviceName: "sdb", DeviceLink: "/dev/disk/x", BusAddress: "scsi@1", ReadOnly: true,
				PlanType: "iscsi", PlanAttributes: map[string]string{"iqn": "i"}}},
			Profiles: []string{"default", "extra"},
		}
		_, _ = look(t, w, func(cfg *provisioner.Config) {
			cfg.HostTag = "machine-7"
			cfg.Broker = tampered{w.Broker(), func(q provisioner.StartRequest, r *provisioner.StartResult) {
				if q.Machine == "1" {
					result.Instance, result.Zone = r.Instance, r.Zone
					*r = result
				}
			}}
		})
		got, rec := w.Request("1"), w.Recorded("1")
		if !strings.HasPrefix(got.Nonce, "machine-7:") || got.Token == "" {
			t.Errorf("ST10: nonce %q, token %q", got.Nonce, got.Token)
		}
		want := provisioner.StartRequest{
			Machine: "1", Attempt: 1, Zone: "a", Nonce: got.Nonce, Token: got.Token,
			Labels:      provisioner.Labels{Controller: "ctl", Machine: "1", Nonce: got.Nonce, Token: got.Token},
			Constraints: info.Constraints,
			Config: instancecfg.Config{Info: info.Instance, Machine: "1", Nonce: got.Nonce,
				Auth: instancecfg.Auth{Tag: "machine-1", Password: instancecfg.Hide("password of " + got.Nonce)}},
			Agents:    []provisioner.AgentBinary{{Version: "3.6.1", Base: "ubuntu@24.04", Arch: "arm64", URL: "https://agents.invalid/3.6.1"}}, // the AgentFinder's
			Placement: info.Placement, RootDisk: info.RootDisk, Volumes: info.Volumes, Attachments: info.Attachments,
			Subnets:      []provisioner.SpaceSubnets{info.Subnets[1], info.Subnets[0]}, // by space
			EndpointBind: info.EndpointBind, Images: info.Images[:1], Profiles: info.Profiles,
		}
		want.Config.Jobs, want.Config.ControllerConfig = []instancecfg.Job{instancecfg.JobHostUnits}, instancecfg.Secret[map[string]any]{}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(provisioner.StartRequest{}, "Group", "Report")); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
		record := provisioner.InstanceRecord{Machine: "1", Instance: "i-1", DisplayName: "one", Nonce: got.Nonce, Zone: "a", Hardware: result.Hardware,
			Network: result.Network, Volumes: result.Volumes, Attachments: result.Attachments, Profiles: result.Profiles}
		if diff := cmp.Diff(record, rec); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
		if n := len(calls(w, "record")); n != 2 {
			t.Errorf("IC5: %d record calls for 2 machines", n)
		}
		if err := w.Check(); err != nil {
			t.Error(err)
		}
	})
}

// tampered is a broker that tells something else than it has done.
type tampered struct {
	*provisionertest.Broker
	tamper func(provisioner.StartRequest, *provisioner.StartResult)
}

func (b tampered) Start(ctx context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
	r, err := b.Broker.Start(ctx, q)
	if err == nil {
		b.tamper(q, &r)
	}
	return r, err
}

// ST15, IC1–IC4: what is not valid in a machine's information is its final
// error, before its credentials are made or anything is started; the others
// start. A plan says the same.
func TestInformationThatIsNotValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 3)
		must(t, w.SetStartInfo("1", provisioner.StartInfo{Volumes: []provisioner.Volume{{ID: "7"}}, Instance: instancecfg.Info{Base: "\t"}}))
		const text = `start information of machine 1: Instance: instance config of machine "1": Base "\t": want printable text; ` +
			`Volumes[0] "7": SizeM 0: want 1 MiB or more; Volumes[0] "7": Attachments: want one of this volume: not valid`
		plan, err := newTask(t, configOf(w, nil)).Plan(t.Context())
		must(t, err)
		if len(plan.Actions) != 2 || len(plan.Left) != 1 || plan.Left[0].Err == nil || plan.Left[0].Err.Error() != text {
			t.Errorf("the plan doesn't leave machine 1 alone for that:\n%v", plan)
		}
		_, events := look(t, w, nil)
		if diff := cmp.Diff([]provisioner.MachineID{"0", "2"}, provisioned(w)); diff != "" {
			t.Error(diff)
		}
		if got := w.StatusText("1"); got != text {
			t.Errorf("status %q, want %q", got, text)
		}
		m, _ := w.Machine("1")
		if m.Status != provisioner.StatusError || m.InstanceStatus != provisioner.InstanceProvisioningError {
			t.Errorf("status %s/%s", m.Status, m.InstanceStatus)
		}
		failed := events.of(provisioner.EventStartFailed)
		if len(failed) != 1 || !errors.Is(failed[0].Err, errors.NotValid) || failed[0].Attempt != 0 {
			t.Errorf("got %v, want one start-failed before any attempt", failed)
		}
		for _, c := range calls(w, "auth") {
			if strings.Contains(c, "1") && !strings.HasPrefix(c, "auth 0 2") {
				t.Errorf("credentials were made for a machine that won't start: %s", c)
			}
		}
	})
}

// ST15: nor are credentials that aren't valid.
func TestCredentialsThatAreNotValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 2)
		look(t, w, func(cfg *provisioner.Config) { cfg.State = oddAuth{w.State()} })
		if diff := cmp.Diff([]provisioner.MachineID{"0"}, provisioned(w)); diff != "" {
			t.Error(diff)
		}
		const text = `instance config of machine "1": Auth.Tag "", Auth.Password "REDACTED": want both or neither: not valid`
		if got := w.StatusText("1"); got != text {
			t.Errorf("status %q, want %q", got, text)
		}
	})
}

type oddAuth struct{ *provisionertest.State }

func (s oddAuth) Authenticate(ctx context.Context, reqs ...provisioner.AuthRequest) ([]provisioner.AuthResult, error) {
	results, err := s.State.Authenticate(ctx, reqs...)
	for i := range results {
		if results[i].ID == "1" {
			results[i].Auth.Tag = ""
		}
	}
	return results, err
}

// IC3: without an AgentFinder the information's agents are chosen from; a
// machine that names no version needs none; and images likewise.
func TestAgentsAndImagesAreChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 6)
		agents := []provisioner.AgentBinary{{Version: "3.6.1", Arch: "arm64", URL: "u/arm"}, {Version: "3.6.1", Arch: "amd64", URL: "u/amd"}}
		images := []provisioner.ImageMetadata{{ID: "arm", Arch: "arm64"}, {ID: "amd", Arch: "amd64"}}
		arm := constraints.Value{Arch: "arm64"}
		for id, info := range map[provisioner.MachineID]provisioner.StartInfo{
			"0": {Agents: agents, Images: images}, // names no version: all as they were told
			"1": {Instance: instancecfg.Info{AgentVersion: "3.6.1"}, Agents: agents, Images: images},
			"2": {Instance: instancecfg.Info{AgentVersion: "3.6.1"}, Agents: agents, Images: images, Constraints: arm},
			"3": {Instance: instancecfg.Info{AgentVersion: "3.6.2"}, Agents: agents},
			"4": {Instance: instancecfg.Info{AgentVersion: "3.6.2"}},
			"5": {Images: images, Constraints: constraints.Value{ImageID: "riscv"}},
		} {
			must(t, w.SetStartInfo(id, info))
		}
		report, _ := look(t, w, func(cfg *provisioner.Config) {
			cfg.State, cfg.Optional.Status = w.PlainState(), w.State()
		})
		got := map[provisioner.MachineID]string{}
		for _, m := range w.Machines() {
			if q := w.Request(m.ID); m.Instance != "" {
				for _, a := range q.Agents {
					got[m.ID] += a.URL + " "
				}
				for _, i := range q.Images {
					got[m.ID] += i.ID + " "
				}
			} else {
				got[m.ID] = w.StatusText(m.ID)
			}
		}
		want := map[provisioner.MachineID]string{
			"0": "u/arm u/amd arm amd ",
			"1": "u/amd amd ",
			"2": "u/arm arm ",
			"3": "no matching agent binaries available",
			"4": "no matching agent binaries available",
			"5": "no matching images available",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for _, r := range report.Results {
			var failed *provisioner.StartError
			if r.Machine != "3" || !errors.As(r.Err, &failed) {
				continue
			}
			const table = `machine 3: no matching agent binaries available
  no matching agent binaries available: wanted version 3.6.2, arch amd64
    u/arm: version 3.6.1, want 3.6.2; arch arm64, want amd64
    u/amd: version 3.6.1, want 3.6.2
`
			if got, _, _ := strings.Cut(failed.Table(), "  zone"); got != table || !errors.Is(r.Err, provisioner.ErrNoAgents) {
				t.Errorf("got %s, want %s", got, table)
			}
		}
	})
}

// A finder is an AgentFinder that counts and is at fault for some versions.
type finder struct {
	*provisionertest.State
	mu    sync.Mutex
	asked map[provisioner.AgentQuery]int
}

func (f *finder) FindAgents(ctx context.Context, q provisioner.AgentQuery) ([]provisioner.AgentBinary, error) {
	f.mu.Lock()
	f.asked[q]++
	n := f.asked[q]
	f.mu.Unlock()
	found := []provisioner.AgentBinary{{Version: q.Version, Arch: "arm64"}, {Version: q.Version, Arch: "amd64", URL: "u/" + q.Version}}
	switch q.Version {
	case "none":
		return nil, nil
	case "wrong":
		return found[:1], nil
	case "not-found":
		return nil, errors.NotFoundf("agents")
	case "not-valid":
		return nil, errors.NotValidf("version %q", q.Version)
	}
	if n > 2 {
		return found, nil
	}
	switch q.Version {
	case "error":
		return nil, errors.New("store is away")
	case "panic":
		panic("finder")
	case "goexit":
		runtime.Goexit()
	case "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return found, nil
}

// IC3, ST15: one look-up for each query of a bulk; what goes wrong with one is
// that of the machines it is for.
func TestAgentsAreLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		versions := []string{"good", "good", "", "none", "wrong", "not-found", "not-valid", "error", "panic", "goexit", "hang", "good"}
		w := carryWorld(t, len(versions))
		for i, v := range versions {
			info := provisioner.StartInfo{Instance: instancecfg.Info{AgentVersion: v, Base: "b"},
				Agents: []provisioner.AgentBinary{{Version: v, URL: "u/not-looked-at"}}}
			must(t, w.SetStartInfo(provisioner.MachineID(fmt.Sprint(i)), info))
		}
		f := &finder{State: w.State(), asked: map[provisioner.AgentQuery]int{}}
		cfg := configOf(w, nil)
		cfg.State, cfg.Optional.Agents = w.PlainState(), f // no status to be written first, so that they come in one bulk
		cfg.CallTimeout = 20 * time.Second
		events := &log{}
		cfg.Observers = []provisioner.Observer{events}
		stop := start(t, newTask(t, cfg))
		pass(19 * time.Second)
		if n := len(provisioned(w)); n != 0 {
			t.Errorf("%d machines have started while the look-ups of their bulk went on", n)
		}
		pass(1500 * time.Millisecond)
		if diff := cmp.Diff([]provisioner.MachineID{"0", "1", "2", "11"}, provisioned(w)); diff != "" {
			t.Errorf("once the look-up that hangs is over (-want +got):\n%s", diff)
		}
		pass(5 * time.Minute)
		stopCleanly(t, w, stop)
		texts := map[provisioner.MachineID]string{}
		for _, e := range events.of(provisioner.EventStartFailed) {
			texts[e.Machine] = e.Err.Error()
		}
		none := "no matching agent binaries available"
		if diff := cmp.Diff(map[provisioner.MachineID]string{"3": none, "4": none, "5": none, "6": `agent binaries: version "not-valid" not valid`}, texts); diff != "" {
			t.Errorf("IC3: provisioning errors (-want +got):\n%s", diff)
		}
		if q := w.Request("0"); len(q.Agents) != 1 || q.Agents[0].URL != "u/good" {
			t.Errorf("agents of machine 0: %v", q.Agents)
		}
		for q := range f.asked {
			if q.Version == "" || q.Base != "b" || q.Arch != "amd64" {
				t.Errorf("asked for %+v", q)
			}
		}
	})
}

// IC3: one query, one look-up for a whole bulk.
func TestOneLookUpForABulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 16)
		for i := range 16 {
			info := provisioner.StartInfo{Instance: instancecfg.Info{AgentVersion: "3.6.1"}}
			if i >= 12 {
				info.Constraints.Arch = "arm64"
			}
			must(t, w.SetStartInfo(provisioner.MachineID(fmt.Sprint(i)), info))
		}
		f := &finder{State: w.State(), asked: map[provisioner.AgentQuery]int{}}
		look(t, w, func(cfg *provisioner.Config) { cfg.State, cfg.Optional.Agents = w.PlainState(), f })
		want := map[provisioner.AgentQuery]int{{Version: "3.6.1", Arch: "amd64"}: 1, {Version: "3.6.1", Arch: "arm64"}: 1}
		if diff := cmp.Diff(want, f.asked); diff != "" || len(provisioned(w)) != 16 || len(calls(w, "info")) != 1 {
			t.Errorf("look-ups (-want +got):\n%s\n%v", diff, provisioned(w))
		}
	})
}

// ST1, DG5: agents are looked up once for all attempts, also when the group is
// read again.
func TestAgentsAreLookedUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 1)
		must(t, w.SetStartInfo("0", provisioner.StartInfo{Instance: instancecfg.Info{AgentVersion: "3.6.1"}}))
		inject(t, w, "start count=2: error zone-independent")
		f := &finder{State: w.State(), asked: map[provisioner.AgentQuery]int{}}
		look(t, w, func(cfg *provisioner.Config) {
			cfg.State = f
			cfg.Policy.Retry = provisioner.FixedRetry(2*time.Minute, 3)
		})
		if groups := len(calls(w, "groups")); groups != 3 || len(provisioned(w)) != 1 {
			t.Errorf("groups were read %d times for 3 attempts, 2 minutes apart; provisioned: %v", groups, provisioned(w))
		}
		if diff := cmp.Diff(map[provisioner.AgentQuery]int{{Version: "3.6.1", Arch: "amd64"}: 1}, f.asked); diff != "" {
			t.Errorf("look-ups (-want +got):\n%s", diff)
		}
		if q := w.Request("0"); q.Attempt != 3 || len(q.Agents) != 1 {
			t.Errorf("attempt %d carries %v", q.Attempt, q.Agents)
		}
	})
}

// ST9, IC5: an odd result is the broker's error. Its instance is stopped, and
// the machine starts again. Each message in full.
func TestOddResults(t *testing.T) {
	type (
		result = provisioner.StartResult
		vol    = provisioner.VolumeResult
		att    = provisioner.VolumeAttachmentResult
		nic    = provisioner.NetworkInterface
		hw     = constraints.Hardware
	)
	zero := uint64(0)
	tests := []struct {
		why    string
		tamper func(r *result)
		want   string // after "start of machine 0: the broker's result: "
	}{
		{"another zone", func(r *result) { r.Zone = "b" }, `zone "b": want "a", as asked`},
		{"another zone in the hardware", func(r *result) { r.Hardware.AvailabilityZone = "b" }, `Hardware.AvailabilityZone "b": want "a", the zone of the result`},
		{"a name that can't be shown", func(r *result) { r.DisplayName = "\x1b[2J" }, `DisplayName "\x1b[2J": want printable text`},
		{"another architecture", func(r *result) { r.Hardware.Arch = "riscv64" }, `Hardware.Arch "riscv64": want "arm64", as asked`},
		{"hardware that can't be printed", func(r *result) { r.Hardware.Tags = []string{""} }, `Hardware: hardware: tags: item "": want names with a comma between them`},
		{"hardware that can't be", func(r *result) { r.Hardware = hw{Cores: &zero, Mem: &zero, RootDisk: &zero} },
			`Hardware.Cores 0: want 1 or more, or nil if it is not known; Hardware.Mem 0: want 1 or more, or nil if it is not known; Hardware.RootDisk 0: want 1 or more, or nil if it is not known`},
		{"a volume nobody asked for", func(r *result) { r.Volumes = []vol{{Volume: "9", VolumeID: "v"}} }, `Volumes[0] "9": Volume "9": want one that was asked for`},
		{"a volume twice", func(r *result) { r.Volumes = []vol{{Volume: "7", VolumeID: "v"}, {Volume: "7", VolumeID: "w"}} }, `Volumes[1] "7": Volume "7": want each volume once`},
		{"one volume for two", func(r *result) { r.Volumes = []vol{{Volume: "7", VolumeID: "v"}, {Volume: "8", VolumeID: "v"}} },
			`Volumes[1] "8": VolumeID "v": want each volume of the broker once`},
		{"a volume without an id", func(r *result) { r.Volumes = []vol{{Volume: "7"}} }, `Volumes[0] "7": VolumeID "": want the broker's id of the volume, in printable text`},
		{"a volume that is too small", func(r *result) { r.Volumes = []vol{{Volume: "7", VolumeID: "v", SizeM: 1023}} },
			`Volumes[0] "7": SizeM 1023: want 1024 or more, as asked, or 0 if it is not known`},
		{"a volume's texts", func(r *result) { r.Volumes = []vol{{Volume: "7", VolumeID: "v", HardwareID: "\n", WWN: "\t"}} },
			`Volumes[0] "7": HardwareID "\n": want printable text; Volumes[0] "7": WWN "\t": want printable text`},
		{"an attachment nobody asked for", func(r *result) { r.Attachments = []att{{Volume: "10"}} }, `Attachments[0] "10": Volume "10": want one that was asked for`},
		{"an attachment twice", func(r *result) { r.Attachments = []att{{Volume: "9"}, {Volume: "9"}} }, `Attachments[1] "9": Volume "9": want each volume attached once`},
		{"an attachment's texts", func(r *result) {
			r.Attachments = []att{{Volume: "9", DeviceName: "\n", DeviceLink: "\n", BusAddress: "\n", PlanType: "\n"}}
		},
			`Attachments[0] "9": DeviceName "\n": want printable text; Attachments[0] "9": DeviceLink "\n": want printable text; ` +
				`Attachments[0] "9": BusAddress "\n": want printable text; Attachments[0] "9": PlanType "\n": want printable text`},
		{"addresses that are none", func(r *result) {
			r.Network = []nic{{Name: "eth0", Addresses: []string{"10.0.0.1", "10.0.0.256", "10.0.0.1/33"}, Gateway: "10.0.0", DNSServers: []string{"", "dns.example.com"}}}
		}, `Network[0] "eth0": Addresses[1] "10.0.0.256": want an IP address, with or without its prefix length; ` +
			`Network[0] "eth0": Addresses[2] "10.0.0.1/33": want an IP address, with or without its prefix length; ` +
			`Network[0] "eth0": Gateway "10.0.0": want an IP address; Network[0] "eth0": DNSServers[0] "": want an IP address; Network[0] "eth0": DNSServers[1] "dns.example.com": want an IP address`},
		{"addresses in a zone that can't be shown", func(r *result) {
			r.Network = []nic{{Name: "eth0", Addresses: []string{"fe80::1%\x1b[2J"}, Gateway: "fe80::1%\n", DNSServers: []string{"fe80::1%eth0"}}}
		}, `Network[0] "eth0": Addresses[0] "fe80::1%\x1b[2J": want an IP address, with or without its prefix length; Network[0] "eth0": Gateway "fe80::1%\n": want an IP address`},
		{"hardware addresses that are none", func(r *result) { r.Network = []nic{{MAC: "00:16:3e"}, {MAC: "00:16:3e:aa:bb:zz"}} },
			`Network[0] "": MAC "00:16:3e": want 6, 8 or 20 bytes in hexadecimal with colons between them; ` +
				`Network[1] "": MAC "00:16:3e:aa:bb:zz": want 6, 8 or 20 bytes in hexadecimal with colons between them`},
		{"an interface's texts", func(r *result) { r.Network = []nic{{Name: "\n", Space: "\n", Subnet: "\n"}} },
			`Network[0] "\n": Name "\n": want printable text; Network[0] "\n": Space "\n": want printable text; Network[0] "\n": Subnet "\n": want printable text`},
		{"profiles that have no name", func(r *result) { r.Profiles = []string{"a", "a", ""} },
			`Profiles[1] "a": want each profile once; Profiles[2] "": want a profile's name, in printable text without blanks and slashes`},
		{"all of it at once", func(r *result) {
			r.Zone, r.Volumes, r.Network = "b", []vol{{Volume: "x", VolumeID: "v"}}, []nic{{Gateway: "g"}}
		}, `zone "b": want "a", as asked; Network[0] "": Gateway "g": want an IP address; Volumes[0] "x": Volume "x": want one that was asked for`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := carryWorld(t, 1)
				must(t, w.SetStartInfo("0", provisioner.StartInfo{
					Constraints: constraints.Value{Arch: "arm64"},
					Volumes:     []provisioner.Volume{{ID: "7", SizeM: 1024}, {ID: "8", SizeM: 1024}},
					Attachments: []provisioner.VolumeAttachment{{Volume: "7", Machine: "0"}, {Volume: "8", Machine: "0"}, {Volume: "9", VolumeID: "v", Machine: "0"}},
				}))
				_, events := look(t, w, func(cfg *provisioner.Config) {
					cfg.Broker = tampered{w.Broker(), func(q provisioner.StartRequest, r *provisioner.StartResult) {
						if q.Attempt == 1 {
							test.tamper(r)
						}
					}}
				})
				failed := events.of(provisioner.EventAttemptFailed)
				if len(failed) != 1 || !errors.Is(failed[0].Err, errors.NotValid) {
					t.Fatalf("got %v, want one failed attempt that is NotValid", failed)
				}
				if diff := cmp.Diff("start of machine 0: the broker's result: "+test.want+": not valid", failed[0].Err.Error()); diff != "" {
					t.Error(diff)
				}
				if undone := events.of(provisioner.EventUndone); len(undone) != 1 || undone[0].Instance != "i-0" {
					t.Errorf("got %v, want i-0 undone", undone)
				}
				if rec := w.Recorded("0"); rec.Instance != "i-0~2" {
					t.Errorf("recorded: %+v", rec)
				}
				if err := w.Check(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// ST9: also when it never gets better.
func TestOddResultsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 1)
		look(t, w, func(cfg *provisioner.Config) {
			cfg.Policy.Retry.Retries = 2
			cfg.Broker = tampered{w.Broker(), func(_ provisioner.StartRequest, r *provisioner.StartResult) { r.DisplayName = "\n" }}
		})
		const text = `start of machine 0: the broker's result: DisplayName "\n": want printable text: not valid`
		if got := w.StatusText("0"); got != text || len(w.Live()) != 0 || len(calls(w, "start")) != 3 {
			t.Errorf("status %q, %d live, %d starts; want %q, 0, 3", got, len(w.Live()), len(calls(w, "start")), text)
		}
	})
}

// A namer is a broker whose containers have profiles that are its own choice.
type namer struct {
	tampered
	name func(ctx context.Context, asked []string) ([]string, error)
}

func (n namer) ProfileNames(ctx context.Context, req provisioner.ProfileNamesRequest) ([]string, error) {
	if want := provisioner.InstanceID("i-" + req.Machine); req.Instance != want {
		return nil, fmt.Errorf("asked about instance %q, want %q", req.Instance, want)
	}
	return n.name(ctx, req.Asked)
}

// IC7: a container's profiles are those that the broker tells; if it can't,
// that is an event, and those asked for are recorded.
func TestProfilesOfAContainer(t *testing.T) {
	asked := []string{"default", "juju-m-app-1"}
	told := func(names ...string) func(context.Context, []string) ([]string, error) {
		return func(context.Context, []string) ([]string, error) { return names, nil }
	}
	tests := []struct {
		why  string
		name func(context.Context, []string) ([]string, error)
		give []string // what Start tells by itself
		want []string
		err  string
	}{
		{"the broker knows better", told("default", "other"), nil, []string{"default", "other"}, ""},
		{"it has none", told(), nil, nil, ""},
		{"it is given those asked for", func(_ context.Context, asked []string) ([]string, error) { return append(asked, "last"), nil }, nil, append(slices.Clone(asked), "last"), ""},
		{"Start has told", told("other"), []string{"started"}, []string{"started"}, ""},
		{"it fails", func(context.Context, []string) ([]string, error) { return []string{"x"}, errors.New("lxd is away") }, nil, asked, "lxd is away"},
		{"it scribbles on what it is given", func(_ context.Context, asked []string) ([]string, error) {
			asked[0] = "x"
			return nil, errors.New("lxd is away")
		}, nil, asked, "lxd is away"},
		{"it tells nonsense", told("a", "a"), nil, asked, `profiles of machine 0/lxd/0: the broker's result: Profiles[1] "a": want each profile once: not valid`},
		{"it panics", func(context.Context, []string) ([]string, error) { panic("namer") }, nil, asked, "a host call panicked: namer"},
		{"it ends its goroutine", func(context.Context, []string) ([]string, error) { runtime.Goexit(); return nil, nil }, nil, asked, "a host call ended its goroutine"},
		{"it hangs", func(ctx context.Context, _ []string) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() }, nil, asked, "timed out: context canceled"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := carryWorld(t, 0)
				must(t, w.Add(provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i-0", Zone: "a"}), w.AddPending("0/lxd/0"),
					w.SetStartInfo("0/lxd/0", provisioner.StartInfo{Profiles: asked}))
				_, events := look(t, w, func(cfg *provisioner.Config) {
					cfg.Broker = namer{tampered{w.Broker(), func(_ provisioner.StartRequest, r *provisioner.StartResult) { r.Profiles = test.give }}, test.name}
				})
				if diff := cmp.Diff(test.want, w.Recorded("0/lxd/0").Profiles); diff != "" {
					t.Errorf("recorded (-want +got):\n%s", diff)
				}
				var got []string
				for _, e := range events.of(provisioner.EventProfilesUnread) {
					line, _, _ := strings.Cut(e.Err.Error(), "\n")
					got = append(got, fmt.Sprintf("%s %s %s", e.Machine, e.Instance, line))
				}
				var want []string
				if test.err != "" {
					want = []string{"0/lxd/0 i-0/lxd/0 " + test.err}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if n := len(calls(w, "start")); n != 1 || w.Check() != nil {
					t.Errorf("%d starts, %v", n, w.Check())
				}
			})
		})
	}
}

// IC7: nobody is asked about a top-level machine, nor where nobody knows.
func TestProfilesAsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 1)
		must(t, w.SetStartInfo("0", provisioner.StartInfo{Profiles: []string{"p"}}), w.AddPending("0/lxd/0"), w.SetStartInfo("0/lxd/0", provisioner.StartInfo{Profiles: []string{"q"}}))
		look(t, w, func(cfg *provisioner.Config) {
			cfg.Broker = w.PlainBroker()
		})
		got := map[string][]string{"0": w.Recorded("0").Profiles, "0/lxd/0": w.Recorded("0/lxd/0").Profiles}
		if diff := cmp.Diff(map[string][]string{"0": {"p"}, "0/lxd/0": {"q"}}, got); diff != "" {
			t.Error(diff)
		}
		w = carryWorld(t, 1)
		look(t, w, nil)
		if asked := calls(w, string(provisionertest.CallProfileNames)); len(asked) != 0 {
			t.Errorf("asked about a top-level machine: %v", asked)
		}
	})
}

// ST13: a container that is no longer wanted while its profiles are asked for
// is stopped, and not recorded.
func TestUnwantedWhileProfilesAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 0)
		must(t, w.Add(provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i-0", Zone: "a"}), w.AddPending("0/lxd/0"))
		cfg := configOf(w, nil)
		cfg.Broker = namer{tampered{w.Broker(), func(provisioner.StartRequest, *provisioner.StartResult) {}}, func(ctx context.Context, _ []string) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		stop := start(t, newTask(t, cfg))
		pass(time.Second)
		must(t, w.SetLife("0/lxd/0", provisioner.Dying))
		pass(time.Second)
		if live, recorded := len(w.Live()), calls(w, "record"); live != 1 || len(recorded) != 0 {
			t.Errorf("%d live, recorded %v; want the host alone, and nothing", live, recorded)
		}
		stopCleanly(t, w, stop)
	})
}

// asksGroup is a broker that asks for the group of some machines.
type asksGroup struct {
	*provisionertest.Broker
	mu    sync.Mutex
	wants map[provisioner.MachineID]bool
	got   map[provisioner.MachineID][]provisioner.InstanceID
}

func (b *asksGroup) Start(ctx context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
	if b.wants[q.Machine] {
		group, err := q.Group(ctx)
		if err != nil {
			return provisioner.StartResult{}, err
		}
		b.mu.Lock()
		b.got[q.Machine] = group
		b.mu.Unlock()
	}
	return b.Broker.Start(ctx, q)
}

// DG2, DG3: the group is read when the broker asks, and not otherwise: the
// instances of its provisioned members, sorted, each once.
func TestGroupIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 3)
		for id, instance := range map[provisioner.MachineID]provisioner.InstanceID{"7": "i-b", "8": "i-a"} {
			must(t, w.Add(provisioner.Machine{ID: id, Life: provisioner.Alive, Instance: instance, Zone: "a"}))
		}
		w.SetGroup("db", "0", "1", "7", "8", "7", "99") // one twice, one that does not exist
		broker := &asksGroup{Broker: w.Broker(), wants: map[provisioner.MachineID]bool{"0": true, "2": true}, got: map[provisioner.MachineID][]provisioner.InstanceID{}}
		look(t, w, func(cfg *provisioner.Config) { cfg.Broker = broker; cfg.Limits.Starts = 1 })
		want := map[provisioner.MachineID][]provisioner.InstanceID{"0": {"i-a", "i-b"}, "2": nil} // 2 is in no group
		if diff := cmp.Diff(want, broker.got); diff != "" {
			t.Errorf("DG2 (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{`machines 0 1 7 8 99 -> [0(alive) 1(alive) 7(alive i-b) 8(alive i-a) 99(machine "99" not found)]`}, calls(w, "machines")); diff != "" {
			t.Errorf("DG3: what was read for it (-want +got):\n%s", diff)
		}
		if n := len(provisioned(w)); n != 5 {
			t.Errorf("%d machines are provisioned", n)
		}
	})
}

// panicsOnce is a state whose first reading of machines, which is for a group,
// panics.
type panicsOnce struct {
	*provisionertest.State
	once *sync.Once
}

func (s panicsOnce) Machines(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.MachineResult, error) {
	s.once.Do(func() { panic("state") })
	return s.State.Machines(ctx, ids...)
}

// DG3: a fault of the host while a group is read comes back from the broker's
// call as an error: no instance was made, so the start is tried again.
func TestGroupThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 1)
		w.SetGroup("db", "0", "1")
		broker := &asksGroup{Broker: w.Broker(), wants: map[provisioner.MachineID]bool{"0": true}, got: map[provisioner.MachineID][]provisioner.InstanceID{}}
		_, events := look(t, w, func(cfg *provisioner.Config) {
			cfg.Broker, cfg.State = broker, panicsOnce{w.State(), new(sync.Once)}
		})
		failed := events.of(provisioner.EventAttemptFailed)
		if len(failed) != 1 || !errors.Is(failed[0].Err, provisioner.ErrPanic) || !strings.HasPrefix(failed[0].Err.Error(), "a host call panicked: state") {
			t.Errorf("got %v, want one attempt that failed of the panic", failed)
		}
		if diff := cmp.Diff([]provisioner.MachineID{"0"}, provisioned(w)); diff != "" {
			t.Errorf("it was not tried again (-want +got):\n%s", diff)
		}
	})
}

// ST1: information is read once, in bulk, for those that have just got a place,
// at most 500 in one call, and for no machine that won't start.
func TestInformationIsReadInBulk(t *testing.T) {
	for _, c := range []struct {
		why    string
		status bool
		want   []int // ids in each call; nil: at most 500
	}{
		{"those that get a place at once are read at once", false, []int{500, 500}},
		{"a status that is written first takes its time, for each its own", true, nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { readInBulk(t, c.status, c.want) })
		})
	}
}

func readInBulk(t *testing.T, status bool, want []int) {
	w := carryWorld(t, 1000)
	must(t, w.Add(
		provisioner.Machine{ID: "alive", Life: provisioner.Alive, Instance: "i-alive", Zone: "a"},
		provisioner.Machine{ID: "dead", Life: provisioner.Dead, Instance: "i-dead", Zone: "a"},
		provisioner.Machine{ID: "dying", Life: provisioner.Dying},
		provisioner.Machine{ID: "failed", Life: provisioner.Alive, Status: provisioner.StatusError, InstanceStatus: provisioner.InstanceProvisioningError},
		provisioner.Machine{ID: "unread", Life: provisioner.Alive, Status: provisioner.StatusPending, Unread: provisioner.FieldInstance},
		provisioner.Machine{ID: "host/lxd/0", Life: provisioner.Alive, Status: provisioner.StatusPending},
		provisioner.Machine{ID: "host", Life: provisioner.Alive, Status: provisioner.StatusError},
	))
	var mu sync.Mutex
	var sizes []int
	asked := map[string]int{}
	cfg := configOf(w, func(_ context.Context, call provisionertest.Call, about ...string) error {
		if call != provisionertest.CallInfo {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(about))
		for _, id := range about {
			asked[id]++
		}
		return nil
	})
	if !status {
		cfg.State = struct{ provisioner.State }{cfg.State}
	}
	cfg.Limits.Starts = 1000
	stop := start(t, newTask(t, cfg))
	pass(time.Minute)
	stopCleanly(t, w, stop)
	slices.SortFunc(sizes, func(a, b int) int { return b - a })
	if sizes[0] > 500 || want != nil && !slices.Equal(want, sizes) {
		t.Errorf("calls for so many machines each: %v; want %v, and at most 500", sizes, want)
	}
	for i := range 1000 {
		if id := fmt.Sprint(i); asked[id] != 1 {
			t.Errorf("machine %s was asked for %d times, want once", id, asked[id])
		}
		delete(asked, fmt.Sprint(i))
	}
	if len(asked) > 0 {
		t.Errorf("asked for machines that won't start: %v", slices.Sorted(maps.Keys(asked)))
	}
}
