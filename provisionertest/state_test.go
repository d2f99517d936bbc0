package provisionertest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/instancecfg"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// SetInstance is a compare-and-set on "not provisioned".
func TestSetInstance(t *testing.T) {
	machine := func(life provisioner.Life, instance provisioner.InstanceID) []provisioner.Machine {
		return []provisioner.Machine{{ID: "0", Life: life, Instance: instance}}
	}
	for _, test := range []struct {
		why      string
		machines []provisioner.Machine
		set      provisioner.InstanceID
		is       error
		after    provisioner.InstanceID
	}{
		{"not provisioned", machine(provisioner.Alive, ""), "i-1", nil, "i-1"},
		{"dying, not provisioned", machine(provisioner.Dying, ""), "i-1", nil, "i-1"},
		{"holds it already", machine(provisioner.Alive, "i-1"), "i-1", nil, "i-1"},
		{"holds it already and is dead", machine(provisioner.Dead, "i-1"), "i-1", nil, "i-1"},
		{"holds another", machine(provisioner.Alive, "i-2"), "i-1", errors.AlreadyExists, "i-2"},
		{"dead", machine(provisioner.Dead, ""), "i-1", errors.Forbidden, ""},
		{"gone", nil, "i-1", errors.NotFound, ""},
		{"nothing to record", machine(provisioner.Alive, ""), "", errors.NotValid, ""},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := kind(t, provisionertest.Settings{}, 0, 1)
			must(t, w.Add(test.machines...))
			rec := provisioner.InstanceRecord{Machine: "0", Instance: test.set, Zone: "a", Nonce: "n"}
			err := w.State().SetInstance(t.Context(), rec)
			if test.is == nil && err != nil || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want %v", err, test.is)
			}
			m, _ := w.Machine("0")
			if m.Instance != test.after {
				t.Errorf("the record holds %q, want %q", m.Instance, test.after)
			}
			if test.after == test.set && err == nil && len(test.machines) > 0 && test.machines[0].Instance == "" {
				if diff := cmp.Diff(rec, w.Recorded("0")); diff != "" || m.Zone != "a" {
					t.Errorf("zone %q, recorded:\n%s", m.Zone, diff)
				}
			}
		})
	}
}

func TestRemoveAndEnsureDead(t *testing.T) {
	for _, test := range []struct {
		why          string
		life         provisioner.Life // empty: no record
		dead, remove error
	}{
		{"alive", provisioner.Alive, errors.Forbidden, errors.Forbidden},
		{"dying", provisioner.Dying, nil, errors.Forbidden},
		{"dead", provisioner.Dead, nil, nil},
		{"gone", "", errors.NotFound, nil},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := kind(t, provisionertest.Settings{}, 0, 0)
			if test.life != "" {
				must(t, w.Add(provisioner.Machine{ID: "0", Life: test.life}))
			}
			s := w.State()
			check := func(what string, err, want error) {
				t.Helper()
				if want == nil && err != nil || want != nil && !errors.Is(err, want) {
					t.Errorf("%s: got %v, want %v", what, err, want)
				}
			}
			check("remove", s.Remove(t.Context(), provisioner.Removal{Machine: "0"}), test.remove)
			if _, there := w.Machine("0"); there != (test.remove != nil) {
				t.Errorf("there: %v", there)
			}
			must(t, w.Load(provisionertest.Fleet{}))
			if test.remove == nil && test.life != "" {
				must(t, w.Add(provisioner.Machine{ID: "0", Life: test.life}))
			}
			for range 2 { // idempotent
				check("ensure dead", s.EnsureDead(t.Context(), provisioner.LifeRequest{Machine: "0"}), test.dead)
			}
			if m, there := w.Machine("0"); there && (m.Life == provisioner.Dead) != (test.dead == nil) {
				t.Errorf("life: got %s", m.Life)
			}
		})
	}
}

func TestReadsGiveEachMachineItsResult(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 2, 0)
	must(t, w.SetLife("1", provisioner.Dead))
	must(t, w.State().Remove(t.Context(), provisioner.Removal{Machine: "1"}))
	must(t, w.AddPending("1/lxd/0"))
	fleet, err := w.State().Fleet(t.Context())
	must(t, err)
	want := []provisioner.MachineResult{
		{ID: "0", Machine: provisionertest.Pending("0")},
		{ID: "1/lxd/0", Machine: provisionertest.Pending("1/lxd/0")},
	}
	if diff := cmp.Diff(want, fleet); diff != "" {
		t.Error(diff)
	}
	got, err := w.State().Machines(t.Context(), "1", "0")
	must(t, err)
	if len(got) != 2 || got[0].ID != "1" || !errors.Is(got[0].Err, errors.NotFound) || got[1].Machine.ID != "0" || got[1].Err != nil {
		t.Errorf("got %v", got)
	}
	infos, err := w.State().StartInfo(t.Context(), "1", "0")
	must(t, err)
	if !errors.Is(infos[0].Err, errors.NotFound) || infos[1].Err != nil {
		t.Errorf("got %v", infos)
	}
	// A record that is added again is there once.
	must(t, w.AddPending("1"))
	fleet, err = w.State().Fleet(t.Context())
	must(t, err)
	if len(fleet) != 3 {
		t.Errorf("got %v, want three", fleet)
	}
}

func TestSnapshotsAreCopies(t *testing.T) {
	make := func() provisioner.StartInfo {
		cores := uint64(2)
		return provisioner.StartInfo{
			Constraints:  constraints.Value{Cores: &cores, Zones: []string{"a"}},
			Instance:     instancecfg.Info{Tags: map[string]string{"k": "v"}, Jobs: []instancecfg.Job{"j"}, UserData: instancecfg.Hide(map[string]any{"k": "v"})},
			Group:        provisioner.Group{Key: "g", Members: []provisioner.MachineID{"0", "1"}},
			Subnets:      []provisioner.SpaceSubnets{{Space: "s", Subnets: []provisioner.SubnetZones{{Subnet: "n", Zones: []provisioner.ZoneName{"a"}}}}},
			Volumes:      []provisioner.Volume{{ID: "v", Tags: map[string]string{"k": "v"}}},
			RootDisk:     &provisioner.RootDisk{SizeM: 1},
			EndpointBind: map[string]string{"e": "s"},
			Profiles:     []string{"p"},
		}
	}
	spoil := func(s provisioner.StartInfo) {
		*s.Constraints.Cores, s.Constraints.Zones[0] = 9, "x"
		s.Instance.Tags["k"], s.Instance.Jobs[0], s.Instance.UserData.Reveal()["k"] = "x", "x", "x"
		s.Group.Members[0] = "x"
		s.Subnets[0].Subnets[0].Zones[0] = "x"
		s.Volumes[0].Tags["k"], s.RootDisk.SizeM = "x", 9
		s.EndpointBind["e"], s.Profiles[0] = "x", "x"
	}
	w := kind(t, provisionertest.Settings{}, 2, 1)
	read := func() provisioner.StartInfo {
		infos, err := w.State().StartInfo(t.Context(), "0")
		must(t, err)
		return infos[0].Info
	}
	given := make()
	must(t, w.SetStartInfo("0", given))
	spoil(given)
	spoil(read())
	if diff := cmp.Diff(make(), read()); diff != "" {
		t.Error(diff)
	}
	w.SetGroup("h", "0", "1")
	for range 2 {
		groups, err := w.State().Groups(t.Context(), "0")
		must(t, err)
		if diff := cmp.Diff(provisioner.Group{Key: "h", Members: []provisioner.MachineID{"0", "1"}}, groups[0].Group); diff != "" {
			t.Error(diff)
		}
		groups[0].Group.Members[0] = "x"
	}

	zones, err := w.Broker().Zones(t.Context())
	must(t, err)
	zones[0].Name = "x"
	zones, err = w.Broker().Zones(t.Context())
	must(t, err)
	if zones[0].Name != "a" {
		t.Error("the list of zones was changed from outside")
	}

	req := provisioner.StartRequest{Machine: "0", Profiles: []string{"p"}, Labels: provisioner.Labels{Token: "t"}}
	id := start(t, w, req)
	req.Profiles[0] = "x"
	w.Request("0").Profiles[0] = "x"
	if diff := cmp.Diff([]string{"p"}, w.Request("0").Profiles); diff != "" {
		t.Error(diff)
	}
	rec := provisioner.InstanceRecord{Machine: "0", Instance: id, Network: []provisioner.NetworkInterface{{Addresses: []string{"a"}}},
		Attachments: []provisioner.VolumeAttachmentResult{{PlanAttributes: map[string]string{"k": "v"}}}}
	must(t, w.State().SetInstance(t.Context(), rec))
	rec.Network[0].Addresses[0], rec.Attachments[0].PlanAttributes["k"] = "x", "x"
	if got := w.Recorded("0"); got.Network[0].Addresses[0] != "a" || got.Attachments[0].PlanAttributes["k"] != "v" {
		t.Errorf("got %v", got)
	}
	if got := w.Recorded("1"); got.Instance != "" || w.Request("1").Machine != "" || w.Recorded("9").Machine != "" {
		t.Errorf("got %v, want nothing of a machine that was not started", got)
	}
}

func TestStatuses(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 1, 0)
	s := w.State()
	must(t, s.WriteStatus(t.Context(), provisioner.StatusUpdate{Machine: "0", InstanceStatus: provisioner.InstanceProvisioningError, Text: "boom"}))
	m, _ := w.Machine("0")
	if m.Status != provisioner.StatusPending || m.InstanceStatus != provisioner.InstanceProvisioningError || w.StatusText("0") != "boom" {
		t.Errorf("got %v %q: an empty status leaves the machine's as it is", m, w.StatusText("0"))
	}
	must(t, s.WriteStatus(t.Context(), provisioner.StatusUpdate{Machine: "0", Status: provisioner.StatusError}))
	m, _ = w.Machine("0")
	if m.Status != provisioner.StatusError {
		t.Errorf("got %v", m)
	}
	if err := s.WriteStatus(t.Context(), provisioner.StatusUpdate{Machine: "9"}); !errors.Is(err, errors.NotFound) {
		t.Errorf("got %v, want NotFound", err)
	}
}

// ST16: what a retry signal finds.
func TestRetryMachines(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 12, 0)
	find := func() (ids []provisioner.MachineID) {
		results, err := w.State().RetryMachines(t.Context())
		must(t, err)
		for _, r := range results {
			ids = append(ids, r.Machine.ID)
		}
		return ids
	}
	for _, id := range []provisioner.MachineID{"10", "2", "3", "4"} {
		must(t, w.SetRetryable(id, true))
	}
	if diff := cmp.Diff([]provisioner.MachineID{"2", "3", "4", "10"}, find()); diff != "" {
		t.Error(diff)
	}
	must(t, w.State().WriteStatus(t.Context(), provisioner.StatusUpdate{Machine: "2", Status: provisioner.StatusPending}))
	must(t, w.SetRetryable("3", false))
	must(t, w.Forget("4"))
	if diff := cmp.Diff([]provisioner.MachineID{"10"}, find()); diff != "" {
		t.Errorf("reset, unmarked and gone ones are out:\n%s", diff)
	}
}

func TestAuthenticateAndAgents(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 0, 0)
	must(t, w.AddPending("0/lxd/1"))
	auths, err := w.State().Authenticate(t.Context(), provisioner.AuthRequest{Machine: "0/lxd/1", Nonce: "n"}, provisioner.AuthRequest{Machine: "9"})
	must(t, err)
	if diff := cmp.Diff(instancecfg.Auth{Tag: "machine-0-lxd-1", Password: instancecfg.Hide("password of n")}, auths[0].Auth); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(auths[1].Err, errors.NotFound) {
		t.Errorf("got %v, want NotFound", auths[1].Err)
	}

	query := provisioner.AgentQuery{Version: "1", Base: "b", Arch: "amd64"}
	find := func() int {
		found, err := w.State().FindAgents(t.Context(), query)
		must(t, err)
		return len(found)
	}
	if find() != 1 {
		t.Error("there always is one that fits")
	}
	w.SetAgents(provisioner.AgentBinary{Version: "1", Base: "b", Arch: "arm64"}, provisioner.AgentBinary{Version: "1", Base: "b", Arch: "amd64"})
	if find() != 1 {
		t.Error("one of the two fits")
	}
	w.SetAgents()
	if find() != 0 {
		t.Error("there are none")
	}
}

// ST10: intents are compared and set.
func TestIntents(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 2, 0)
	s, ctx := w.State(), t.Context()
	first := provisioner.Intent{Machine: "0", Attempt: 1, Token: "t1", Nonce: "n", Zone: "a", At: time.Now()}
	second := first
	second.Attempt, second.Token = 2, "t2"
	swap := func(why string, old, next provisioner.Intent, want error) {
		t.Helper()
		err := s.SwapIntent(ctx, old, next)
		if want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", why, err, want)
		}
	}
	swap("nothing is stored, something expected", second, first, errors.AlreadyExists)
	swap("nothing is stored", provisioner.Intent{}, first, nil)
	swap("something is stored, nothing expected", provisioner.Intent{}, second, errors.AlreadyExists)
	later := first
	later.At = first.At.Add(1)
	swap("what is stored, but of another time", later, second, errors.AlreadyExists)
	sameInstant := first
	sameInstant.At = first.At.UTC()
	swap("what is stored, by another clock's zone", sameInstant, second, nil)
	swap("what was stored before", first, second, errors.AlreadyExists)
	swap("no such machine", provisioner.Intent{}, provisioner.Intent{Machine: "9"}, errors.NotFound)
	swap("nothing but a machine is nothing", provisioner.Intent{Machine: "1"}, provisioner.Intent{Machine: "1", Attempt: 1}, nil)

	got, err := s.Intents(ctx, "9", "0")
	must(t, err)
	if len(got) != 2 || !errors.Is(got[0].Err, errors.NotFound) {
		t.Fatalf("got %v, want NotFound, and an intent", got)
	}
	if diff := cmp.Diff(provisioner.IntentResult{ID: "0", Intent: second}, got[1]); diff != "" {
		t.Error(diff)
	}
	swap("taken away", second, provisioner.Intent{}, nil)
	got, err = s.Intents(ctx, "0")
	must(t, err)
	if diff := cmp.Diff([]provisioner.IntentResult{{ID: "0"}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSparedStore(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 0, 0)
	s, ctx := w.State(), t.Context()
	b, a := provisioner.Spared{Instance: "i-b", Machine: "1"}, provisioner.Spared{Instance: "i-a", Machine: "0", Kept: true}
	for _, sp := range []provisioner.Spared{b, a, a} {
		must(t, s.AddSpared(ctx, sp))
	}
	got, err := s.Spared(ctx)
	must(t, err)
	if diff := cmp.Diff([]provisioner.Spared{a, b}, got); diff != "" {
		t.Error(diff)
	}
	for range 2 {
		must(t, s.RemoveSpared(ctx, provisioner.SparedRemoval{Instances: []provisioner.InstanceID{"i-a"}}))
	}
	got, err = s.Spared(ctx)
	must(t, err)
	if diff := cmp.Diff([]provisioner.Spared{b}, got); diff != "" {
		t.Error(diff)
	}
}

func TestProfileState(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 2, 0)
	s, ctx := w.State(), t.Context()
	make := func(status string) provisioner.ProfileChange {
		return provisioner.ProfileChange{Machine: "0", Old: "p", Status: status,
			Profile: &provisioner.Profile{Name: "q", Config: map[string]string{"k": "v"}, Devices: map[string]map[string]string{"d": {"k": "v"}}}}
	}
	spoil := func(c provisioner.ProfileChange) {
		c.Profile.Name, c.Profile.Config["k"], c.Profile.Devices["d"]["k"] = "x", "x", "x"
	}
	given := make("")
	must(t, w.SetProfileChange(given))
	spoil(given)
	got, err := s.ProfileChanges(ctx, "0", "1")
	must(t, err)
	if diff := cmp.Diff(make(""), got[0].Change); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(got[1].Err, errors.NotFound) {
		t.Errorf("got %v, want NotFound", got[1].Err)
	}
	spoil(got[0].Change)
	must(t, s.SetProfileStatus(ctx, provisioner.ProfileStatusUpdate{Machine: "0", Status: "Success"}))
	spoil(w.ProfileChange("0"))
	if diff := cmp.Diff(make("Success"), w.ProfileChange("0")); diff != "" {
		t.Error(diff)
	}
	must(t, s.SetProfiles(ctx, provisioner.ProfileRecord{Machine: "0", Profiles: []string{"q"}}))
	if diff := cmp.Diff([]string{"q"}, w.Profiles("0")); diff != "" {
		t.Error(diff)
	}
	for range 2 {
		must(t, s.RemoveProfileChange(ctx, provisioner.Removal{Machine: "0"}))
	}
	if got := w.ProfileChange("0"); got.Machine != "" {
		t.Errorf("got %v, want none", got)
	}
	if err := s.SetProfileStatus(ctx, provisioner.ProfileStatusUpdate{Machine: "0"}); !errors.Is(err, errors.NotFound) {
		t.Errorf("got %v, want NotFound", err)
	}
}

// LC6
func TestLease(t *testing.T) {
	w := kind(t, provisionertest.Settings{Clock: clock.NewMock()}, 1, 0)
	first := w.TakeLease()
	if !first.Held() || first.Epoch() != 1 {
		t.Errorf("got %v %d, want a lease that is held, of epoch 1", first.Held(), first.Epoch())
	}
	second := w.TakeLease()
	select {
	case <-first.Lost():
	default:
		t.Error("the first holder is not told")
	}
	if first.Held() || !second.Held() || second.Epoch() != 2 {
		t.Error("the second holder holds it, with epoch 2")
	}
	s, ctx := w.State(), t.Context()
	must(t, s.WriteStatus(ctx, provisioner.StatusUpdate{Machine: "0", Epoch: 2}))
	_, err := s.Fleet(ctx)
	must(t, err)
	if stale := w.StaleWrites(); len(stale) != 0 {
		t.Errorf("got %v, want none", stale)
	}
	must(t, s.WriteStatus(ctx, provisioner.StatusUpdate{Machine: "0", Epoch: 1}))
	must(t, s.WriteStatus(ctx, provisioner.StatusUpdate{Machine: "0"}))
	second.Drop()
	second.Drop()
	must(t, s.WriteStatus(ctx, provisioner.StatusUpdate{Machine: "0", Epoch: 2}))
	if stale := w.StaleWrites(); len(stale) != 3 {
		t.Errorf("got %v, want an old epoch, none, and one whose lease was dropped", stale)
	}
	if err := w.Check(); err == nil || !strings.Contains(err.Error(), `status 0  "" at 0s with epoch 1, which does not hold the lease`) {
		t.Errorf("Check: got %v", err)
	}
	must(t, s.AddSpared(ctx, provisioner.Spared{Instance: "i", Epoch: 2}))
	must(t, s.RemoveSpared(ctx, provisioner.SparedRemoval{Epoch: 2}))
	must(t, s.SetProfiles(ctx, provisioner.ProfileRecord{Machine: "0", Epoch: 2}))
	must(t, s.RemoveProfileChange(ctx, provisioner.Removal{Machine: "0", Epoch: 2}))
	_ = s.SetProfileStatus(ctx, provisioner.ProfileStatusUpdate{Machine: "0", Epoch: 2})
	if stale := w.StaleWrites(); len(stale) != 8 {
		t.Errorf("got %v, want what is spared and profiles too", stale)
	}
	if w.TakeLease().Epoch() != 3 {
		t.Error("epochs grow")
	}
}
