package provisionertest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// listed gives the ids and states that the broker lists.
func listed(t testing.TB, w *provisionertest.World) []string {
	t.Helper()
	l, err := w.Broker().Instances(t.Context())
	must(t, err)
	got := []string{}
	for _, i := range l.Instances {
		got = append(got, string(i.ID)+" "+string(i.State))
	}
	return got
}

func wantListed(t testing.TB, w *provisionertest.World, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), listed(t, w)); diff != "" {
		t.Errorf("listed:\n%s", diff)
	}
}

func TestInstancesAppearAndGoLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := kind(t, provisionertest.Settings{Visibility: 10 * time.Second, Lingering: time.Minute}, 1, 1)
		start(t, w, provisioner.StartRequest{Machine: "0"})
		wantListed(t, w)
		time.Sleep(10*time.Second - 1)
		wantListed(t, w)
		time.Sleep(time.Nanosecond)
		wantListed(t, w, "i-0 running")
		must(t, w.Broker().Stop(t.Context(), provisioner.StopRequest{Instances: []provisioner.InstanceID{"i-0"}}))
		wantListed(t, w, "i-0 shutting-down")
		time.Sleep(time.Minute)
		wantListed(t, w, "i-0 terminated")
		time.Sleep(time.Minute)
		wantListed(t, w)
	})
}

func TestKindnessAndDefaults(t *testing.T) {
	for _, test := range []struct {
		why                  string
		settings             provisionertest.Settings
		takes, visible, gone bool
	}{
		{"unkind by default", provisionertest.Settings{}, true, false, false},
		{"kind", provisionertest.Settings{Kind: true}, false, true, true},
		{"consistent reads are kept", provisionertest.Settings{Traits: provisioner.Traits{ConsistentReads: true}}, true, true, false},
		{"switched off one by one", provisionertest.Settings{Visibility: provisioner.Off, Lingering: provisioner.Off,
			Latency: map[provisionertest.Call]time.Duration{provisionertest.AnyCall: provisioner.Off}}, false, true, true},
		{"kind with one thing that isn't", provisionertest.Settings{Kind: true, Visibility: time.Minute}, false, false, true},
		{"kind with one slow call", provisionertest.Settings{Kind: true, Latency: map[provisionertest.Call]time.Duration{provisionertest.CallList: time.Second}}, true, true, true},
	} {
		t.Run(test.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.settings.LostReplies = provisionertest.NeverLost
				w := provisionertest.New(test.settings)
				must(t, w.AddPending("0", "1"))
				begun := time.Now()
				id := start(t, w, provisioner.StartRequest{Machine: "0"})
				l, err := w.Broker().Instances(t.Context())
				must(t, err)
				visible := len(l.Instances) == 1
				takes := time.Since(begun) > 0
				must(t, w.Broker().Stop(t.Context(), provisioner.StopRequest{Instances: []provisioner.InstanceID{id}}))
				gone := len(listed(t, w)) == 0
				if diff := cmp.Diff([]bool{test.takes, test.visible, test.gone}, []bool{takes, visible, gone}); diff != "" {
					t.Errorf("takes time, visible at once, gone at once:\n%s", diff)
				}
			})
		})
	}
}

func TestTraitsAreKept(t *testing.T) {
	labels := provisioner.Labels{Controller: "c", Machine: "0", Nonce: "n", Token: "t1"}
	req := provisioner.StartRequest{Machine: "0", Token: "t1", Labels: labels}
	for _, test := range []struct {
		why    string
		traits provisioner.Traits
		second provisioner.InstanceID
		labels provisioner.Labels
	}{
		{"nothing promised", provisioner.Traits{}, "i-0~2", provisioner.Labels{}},
		{"dedupes by token", provisioner.Traits{DedupesByToken: true}, "i-0", provisioner.Labels{}},
		{"labels", provisioner.Traits{Labels: true}, "i-0~2", labels},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := kind(t, provisionertest.Settings{Traits: test.traits, Visibility: time.Nanosecond}, 1, 1)
			if got := start(t, w, req); got != "i-0" {
				t.Errorf("first: got %s, want i-0", got)
			}
			if got := start(t, w, req); got != test.second {
				t.Errorf("same token again: got %s, want %s", got, test.second)
			}
			other := req
			other.Token = "t2"
			if got := start(t, w, other); got == "i-0" {
				t.Errorf("another token: got %s, want a new instance", got)
			}
			l, err := w.Broker().Instances(t.Context())
			must(t, err)
			if diff := cmp.Diff(test.labels, l.Instances[0].Labels); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.traits, w.Broker().Traits()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestZonesOfAStart(t *testing.T) {
	for _, test := range []struct {
		why   string
		setup func(w *provisionertest.World)
		zone  provisioner.ZoneName
		want  provisioner.ZoneName
		err   string
		is    error
	}{
		{"the one asked for", nil, "b", "b", "", nil},
		{"the first, if none is", nil, "", "a", "", nil},
		{"not one that isn't there", nil, "c", "", `zone "c" not found`, errors.NotFound},
		{"not one that is down", func(w *provisionertest.World) { w.SetZone("b", false) }, "b", "", `zone "b" is not available`, nil},
		{"not one that has vanished", func(w *provisionertest.World) { w.RemoveZone("b") }, "b", "", `zone "b" not found`, errors.NotFound},
		{"one that has come", func(w *provisionertest.World) { w.SetZone("c", true) }, "c", "c", "", nil},
		{"not one that is full", func(w *provisionertest.World) { w.SetCapacity("b", 0) }, "b", "", `zone "b" has no room for more than 0`, provisioner.ErrOutOfCapacity},
		{"the next, if one is full", func(w *provisionertest.World) { w.SetCapacity("a", 0) }, "", "b", "", nil},
		{"one that has room again", func(w *provisionertest.World) { w.SetCapacity("b", 0); w.SetCapacity("b", -1) }, "b", "b", "", nil},
		{"none, where there are none", func(w *provisionertest.World) { w.SetZones() }, "", "", "", nil},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := kind(t, provisionertest.Settings{}, 1, 2)
			if test.setup != nil {
				test.setup(w)
			}
			res, err := w.Broker().Start(t.Context(), provisioner.StartRequest{Machine: "0", Zone: test.zone})
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff([]any{test.want, test.err}, []any{res.Zone, text}); diff != "" {
				t.Error(diff)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want one that is %v", err, test.is)
			}
		})
	}
}

// A machine that is added with an instance has it labelled as its own.
func TestLabelsOfAddedMachines(t *testing.T) {
	for labels, want := range map[bool]provisioner.Labels{true: {Controller: "c", Machine: "0"}, false: {}} {
		w := kind(t, provisionertest.Settings{Controller: "c", Traits: provisioner.Traits{Labels: labels}}, 0, 1)
		must(t, w.Add(provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i", Zone: "a"}))
		if diff := cmp.Diff(want, w.Live()[0].Labels); diff != "" {
			t.Error(diff)
		}
		if id := start(t, w, provisioner.StartRequest{Machine: "0"}); id == "i" {
			t.Error("a new instance has an old one's id")
		}
	}
}

func TestStopFreesRoom(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 2, 1)
	w.SetCapacity("a", 1)
	stop := provisioner.StopRequest{Instances: []provisioner.InstanceID{start(t, w, provisioner.StartRequest{Machine: "0", Zone: "a"})}}
	if _, err := w.Broker().Start(t.Context(), provisioner.StartRequest{Machine: "1", Zone: "a"}); !errors.Is(err, provisioner.ErrOutOfCapacity) {
		t.Fatalf("got %v, want out of capacity", err)
	}
	for range 2 { // twice: stopping is idempotent
		must(t, w.Broker().Stop(t.Context(), stop))
	}
	start(t, w, provisioner.StartRequest{Machine: "1", Zone: "a"})
	if _, err := w.Broker().Start(t.Context(), provisioner.StartRequest{Machine: "0", Zone: "a"}); !errors.Is(err, provisioner.ErrOutOfCapacity) {
		t.Fatalf("got %v, want out of capacity: room was freed twice", err)
	}
}

// HV7: unknown and repeated ids are a success, and a stop may succeed in part.
func TestStop(t *testing.T) {
	for _, test := range []struct {
		fault, why string
		ids        []provisioner.InstanceID
		failed     []provisioner.InstanceID
		whole      bool
		live       []string
	}{
		{"*: delay 1ns", "an id that nobody knows", []provisioner.InstanceID{"i-0", "i-7"}, nil, false, []string{"i-1", "i-2"}},
		{"stop: error", "the whole call fails", []provisioner.InstanceID{"i-0", "i-1"}, nil, true, []string{"i-0", "i-1", "i-2"}},
		{"stop after: error", "its reply is lost", []provisioner.InstanceID{"i-0", "i-1"}, nil, true, []string{"i-2"}},
		{"stop instance=i-1: error", "one of them fails", []provisioner.InstanceID{"i-0", "i-1", "i-2"}, []provisioner.InstanceID{"i-1"}, false, []string{"i-1"}},
		{"stop instance=i-1 after: error", "one of them fails although it is stopped", []provisioner.InstanceID{"i-0", "i-1"}, []provisioner.InstanceID{"i-1"}, false, []string{"i-2"}},
		{"stop machine=2: error", "one machine's fails", []provisioner.InstanceID{"i-0", "i-2"}, []provisioner.InstanceID{"i-2"}, false, []string{"i-1", "i-2"}},
		{"stop zone=a: error", "one zone's fail", []provisioner.InstanceID{"i-0", "i-1", "i-2"}, []provisioner.InstanceID{"i-0", "i-2"}, false, []string{"i-0", "i-2"}},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := kind(t, provisionertest.Settings{}, 3, 2)
			for i, id := range []provisioner.MachineID{"0", "1", "2"} {
				start(t, w, provisioner.StartRequest{Machine: id, Zone: []provisioner.ZoneName{"a", "b"}[i%2]})
			}
			inject(t, w, test.fault)
			err := w.Broker().Stop(t.Context(), provisioner.StopRequest{Instances: test.ids})
			var failed []provisioner.InstanceID
			var partly *provisioner.StopError
			if errors.As(err, &partly) {
				for _, id := range test.ids {
					if partly.Failed[id] != nil {
						failed = append(failed, id)
					}
				}
			}
			live := []string{}
			for _, i := range w.Live() {
				live = append(live, string(i.ID))
			}
			if diff := cmp.Diff([]any{test.failed, test.whole, test.live}, []any{failed, err != nil && partly == nil, live}); diff != "" {
				t.Errorf("failed ids, whole call failed, still live:\n%s", diff)
			}
		})
	}
}

// ST19: what a look-up by label sees.
func TestFindInstances(t *testing.T) {
	w := kind(t, provisionertest.Settings{Traits: provisioner.Traits{Labels: true}}, 2, 1)
	for _, l := range []provisioner.Labels{
		{Controller: "c", Machine: "0", Nonce: "n0", Token: "t1", Epoch: 1},
		{Controller: "c", Machine: "0", Nonce: "n0", Token: "t2", Epoch: 2},
		{Controller: "c", Machine: "1", Nonce: "n1", Token: "t3", Epoch: 2},
	} {
		start(t, w, provisioner.StartRequest{Machine: l.Machine, Labels: l})
	}
	must(t, w.AddInstance(provisioner.Instance{ID: "x", Labels: provisioner.Labels{Controller: "other", Machine: "0"}}))
	for _, test := range []struct {
		why  string
		want provisioner.Labels
		ids  []provisioner.InstanceID
	}{
		{"by machine and controller", provisioner.Labels{Controller: "c", Machine: "0"}, []provisioner.InstanceID{"i-0", "i-0~2"}},
		{"by machine, whoever's", provisioner.Labels{Machine: "0"}, []provisioner.InstanceID{"i-0", "i-0~2", "x"}},
		{"by token", provisioner.Labels{Token: "t2"}, []provisioner.InstanceID{"i-0~2"}},
		{"by nonce", provisioner.Labels{Nonce: "n1"}, []provisioner.InstanceID{"i-1"}},
		{"by epoch", provisioner.Labels{Epoch: 2}, []provisioner.InstanceID{"i-0~2", "i-1"}},
		{"no such machine", provisioner.Labels{Machine: "9"}, nil},
		{"all", provisioner.Labels{}, []provisioner.InstanceID{"i-0", "i-0~2", "i-1", "x"}},
	} {
		t.Run(test.why, func(t *testing.T) {
			l, err := w.Broker().FindInstances(t.Context(), test.want)
			must(t, err)
			var ids []provisioner.InstanceID
			for _, i := range l.Instances {
				ids = append(ids, i.ID)
			}
			if diff := cmp.Diff(test.ids, ids); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProfilesOfAnInstance(t *testing.T) {
	for _, test := range []struct {
		why, old string
		profile  *provisioner.Profile
		want     []string
	}{
		{"replaced in its place", "p1", &provisioner.Profile{Name: "q"}, []string{"q", "p2"}},
		{"appended", "", &provisioner.Profile{Name: "q"}, []string{"p1", "p2", "q"}},
		{"appended twice is appended once", "", &provisioner.Profile{Name: "p2"}, []string{"p1", "p2"}},
		{"taken away", "p1", nil, []string{"p2"}},
		{"taken away again", "p9", nil, []string{"p1", "p2"}},
		{"replaced again", "p9", &provisioner.Profile{Name: "p2"}, []string{"p1", "p2"}},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := kind(t, provisionertest.Settings{}, 1, 1)
			id := start(t, w, provisioner.StartRequest{Machine: "0", Profiles: []string{"p1", "p2"}})
			got, err := w.Broker().ChangeProfile(t.Context(), provisioner.ProfileChangeRequest{Machine: "0", Instance: id, Old: test.old, Profile: test.profile})
			must(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	w := kind(t, provisionertest.Settings{}, 1, 1)
	if _, err := w.Broker().ChangeProfile(t.Context(), provisioner.ProfileChangeRequest{Instance: "i-9"}); !errors.Is(err, errors.NotFound) {
		t.Errorf("no such instance: got %v, want NotFound", err)
	}
	names, err := w.Broker().ProfileNames(t.Context(), provisioner.ProfileNamesRequest{Machine: "0", Asked: []string{"p"}})
	must(t, err)
	if diff := cmp.Diff([]string{"p"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestDeriveZonesAndMaintain(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 2, 2)
	must(t, w.SetDerived("0", "b"))
	for id, want := range map[provisioner.MachineID][]provisioner.ZoneName{"0": {"b"}, "1": nil, "9": nil} {
		got, err := w.Broker().DeriveZones(t.Context(), provisioner.StartRequest{Machine: id})
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	must(t, w.Broker().Maintain(t.Context(), provisioner.MaintainRequest{Machine: "0", Instance: "i-0"}))
}

// DG3, ST20: what a broker may ask for and tell during a start.
func TestStartAsksAndReports(t *testing.T) {
	w := kind(t, provisionertest.Settings{AsksGroup: true, Reports: true}, 1, 1)
	var reported []string
	req := provisioner.StartRequest{
		Machine: "0",
		Group:   func(context.Context) ([]provisioner.InstanceID, error) { return nil, errors.New("no group") },
		Report: func(status provisioner.InstanceStatus, text string) {
			reported = append(reported, string(status)+" "+text)
		},
	}
	if _, err := w.Broker().Start(t.Context(), req); err == nil || err.Error() != "asking for the group: no group" {
		t.Errorf("got %v, want the group's error", err)
	}
	req.Group = func(context.Context) ([]provisioner.InstanceID, error) { return nil, nil }
	start(t, w, req)
	if diff := cmp.Diff([]string{"allocating booting", "allocating booting"}, reported); diff != "" {
		t.Error(diff)
	}
}

func TestPlainViewsHaveNoAbility(t *testing.T) {
	w := provisionertest.New(provisionertest.Settings{})
	b, s := any(w.PlainBroker()), any(w.PlainState())
	has := func(is bool, name string) {
		if is {
			t.Errorf("a plain view is a %s", name)
		}
	}
	_, is := b.(provisioner.ZoneLister)
	has(is, "ZoneLister")
	_, is = b.(provisioner.ZoneDeriver)
	has(is, "ZoneDeriver")
	_, is = b.(provisioner.InstanceFinder)
	has(is, "InstanceFinder")
	_, is = b.(provisioner.Maintainer)
	has(is, "Maintainer")
	_, is = b.(provisioner.ProfileBroker)
	has(is, "ProfileBroker")
	_, is = b.(provisioner.ProfileNamer)
	has(is, "ProfileNamer")
	_, is = b.(provisioner.TraitsReporter)
	has(is, "TraitsReporter")
	_, is = s.(provisioner.StatusWriter)
	has(is, "StatusWriter")
	_, is = s.(provisioner.LifeSetter)
	has(is, "LifeSetter")
	_, is = s.(provisioner.RetryLister)
	has(is, "RetryLister")
	_, is = s.(provisioner.GroupFinder)
	has(is, "GroupFinder")
	_, is = s.(provisioner.Authenticator)
	has(is, "Authenticator")
	_, is = s.(provisioner.AgentFinder)
	has(is, "AgentFinder")
	_, is = s.(provisioner.IntentStore)
	has(is, "IntentStore")
	_, is = s.(provisioner.SparedStore)
	has(is, "SparedStore")
	_, is = s.(provisioner.ProfileState)
	has(is, "ProfileState")
}

func TestACallWhoseContextHasEndedHasNoEffect(t *testing.T) {
	for _, s := range []provisionertest.Settings{{Silent: true}, {}} {
		w := kind(t, s, 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := w.Broker().Start(ctx, provisioner.StartRequest{Machine: "0"})
		if !errors.Is(err, context.Canceled) || len(w.Live()) != 0 {
			t.Errorf("got %v and %d instances, want a cancelled context and none", err, len(w.Live()))
		}
	}
}
