package provisionertest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	jujuerrors "github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// A kitHost is a World, and what the suites are told about it.
type kitHost struct {
	*provisionertest.World
	provisionertest.HostOptions
}

func newKitHost(t testing.TB, s provisionertest.Settings) kitHost {
	t.Helper()
	s.LostReplies = provisionertest.NeverLost // a lost reply is no fault of the broker's
	w := provisionertest.New(s)
	must(t, w.Load(provisionertest.NewFleet(0, 3, 0)))
	w.SetZone("full", true)
	w.SetCapacity("full", 0)
	w.SetZone("down", false)
	w.SetZone("d", true)
	return kitHost{w, provisionertest.HostOptions{
		Provoke: []provisionertest.Provocation{{
			Name: "a zone without room", Want: provisioner.ErrOutOfCapacity,
			Request: func(req *provisioner.StartRequest) { req.Zone = "full" },
		}},
		Jam: func(id provisioner.InstanceID) func() {
			must(t, w.Inject(provisionertest.Fault{Call: provisionertest.CallStop, Instance: id, Count: provisionertest.Always, What: provisionertest.TroubleError}))
			return w.ClearFaults
		},
		PowerOff: func(_ context.Context, id provisioner.InstanceID) error { return w.PowerOff(id) },
		NewMachine: func(_ context.Context, m provisioner.Machine) (provisioner.MachineID, error) {
			return m.ID, w.Add(m)
		},
		SetLife: func(_ context.Context, id provisioner.MachineID, life provisioner.Life) error {
			return w.SetLife(id, life)
		},
		Watch: func() (provisioner.Stream[[]provisioner.MachineID], error) { return w.Changes(), nil },
		SetRetryable: func(_ context.Context, id provisioner.MachineID) error {
			return w.SetRetryable(id, true)
		},
		SetGroup: func(_ context.Context, key string, members ...provisioner.MachineID) error {
			w.SetGroup(key, members...)
			return nil
		},
		SetProfileChange: func(_ context.Context, c provisioner.ProfileChange) error { return w.SetProfileChange(c) },
	}}
}

// everyTraits are all combinations of promises.
func everyTraits() (all []provisioner.Traits) {
	for i := range 8 {
		all = append(all, provisioner.Traits{DedupesByToken: i&1 != 0, Labels: i&2 != 0, ConsistentReads: i&4 != 0})
	}
	return all
}

// The World keeps every rule, whatever it promises, however late it is and how
// many rules are checked at once.
func TestWorldKeepsEveryRule(t *testing.T) {
	for _, traits := range everyTraits() {
		for _, kind := range []bool{true, false} {
			for _, parallel := range []int{1, 8} {
				t.Run(fmt.Sprintf("%+v kind=%v parallel=%d", traits, kind, parallel), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := newKitHost(t, provisionertest.Settings{Kind: kind, Traits: traits})
						h.Parallel = parallel
						if err := provisionertest.CheckBroker(t.Context(), h.Broker(), h.HostOptions); err != nil {
							t.Errorf("%v\n%s", err, h.Transcript())
						}
						if err := provisionertest.CheckState(t.Context(), h.State(), h.HostOptions); err != nil {
							t.Error(err)
						}
						time.Sleep(time.Minute)
						if leaks := h.Leaks(); len(leaks) > 0 {
							t.Errorf("left: %v", leaks)
						}
						if left := h.Machines(); len(left) > 0 {
							t.Errorf("left: %v", left)
						}
						if n := h.OpenWatchers(); n > 0 {
							t.Errorf("%d watchers are left open", n)
						}
					})
				})
			}
		}
	}
}

// A host without any ability keeps the rest.
func TestPlainWorldKeepsEveryRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newKitHost(t, provisionertest.Settings{})
		h.RemoveZone("full")
		o := h.HostOptions
		o.Provoke = nil
		if err := provisionertest.CheckBroker(t.Context(), h.PlainBroker(), o); err != nil {
			t.Error(err)
		}
		if err := provisionertest.CheckState(t.Context(), h.PlainState(), o); err != nil {
			t.Error(err)
		}
	})
}

// Both run as tests, too.
func TestWorldsBroker(t *testing.T) {
	h := newKitHost(t, provisionertest.Settings{Kind: true, Traits: provisioner.Traits{DedupesByToken: true, Labels: true, ConsistentReads: true}})
	h.Must = []string{"ZoneLister", "InstanceFinder", "Traits.Labels"}
	provisionertest.TestBroker(t, h.Broker(), h.HostOptions)
}

func TestWorldsState(t *testing.T) {
	h := newKitHost(t, provisionertest.Settings{Kind: true})
	h.Parallel = 4
	h.Must = []string{"IntentStore", "StatusWriter"}
	provisionertest.TestState(t, h.State(), h.HostOptions)
}

// TestFailing is run by TestFailingKit only: it fails.
func TestFailing(t *testing.T) {
	if os.Getenv("PROVISIONERTEST_FAILING") == "" {
		t.Skip("is there to fail")
	}
	h := newKitHost(t, provisionertest.Settings{Kind: true, Traits: provisioner.Traits{Labels: true, ConsistentReads: true}})
	h.Skip = map[string]string{"stop-unknown-succeeds": "our cloud has no such ids"}
	t.Run("markers", func(t *testing.T) {
		provisionertest.TestBroker(t, badBrokers()["errors-carry-markers"].of(h), h.HostOptions)
	})
	t.Run("basic", func(t *testing.T) {
		provisionertest.TestBroker(t, badBrokers()["stop-ends"].of(h), withSettle(h.HostOptions))
	})
	h.Skip = map[string]string{"nonsense": "because"}
	t.Run("options", func(t *testing.T) { provisionertest.TestBroker(t, h.Broker(), h.HostOptions) })
}

func withSettle(o provisionertest.HostOptions) provisionertest.HostOptions {
	o.Settle = time.Millisecond
	return o
}

// A rule that is broken fails its own subtest, which says how, and what the
// rule is for; one that is passed over says why.
func TestFailingKit(t *testing.T) {
	c := exec.Command(os.Args[0], "-test.run=^TestFailing$", "-test.v")
	c.Env = append(os.Environ(), "PROVISIONERTEST_FAILING=1")
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("want a test that fails: %v\n%s", err, out)
	}
	explain := map[string]string{}
	for _, r := range provisionertest.BrokerRules() {
		explain[r.Name] = r.Explanation
	}
	for _, want := range []struct{ why, text string }{
		{"the rule that is broken", "--- FAIL: TestFailing/markers/errors-carry-markers"},
		{"how", `a zone without room: zone "full" has no room for more than 0: want an error that is "out of capacity"`},
		{"what it is for", explain["errors-carry-markers"]},
		{"others go on", "--- PASS: TestFailing/markers/zone-honoured"},
		{"skipped by the options", "our cloud has no such ids"},
		{"skipped for want of a promise", "the host has no Traits.DedupesByToken"},
		{"a basic rule", "--- FAIL: TestFailing/basic/stop-ends"},
		{"what it is for", explain["stop-ends"]},
		{"what builds on a basic rule", "means nothing while stop-ends is broken"},
		{"what is left", "left: i-kit-"},
		{"a fault of the options", `HostOptions.Skip "nonsense": want the name of a rule`},
	} {
		if !strings.Contains(string(out), want.text) {
			t.Errorf("%s: %q is missing", want.why, want.text)
		}
	}
	if n := strings.Count(string(out), "--- FAIL: TestFailing/markers/"); n != 1 {
		t.Errorf("%d rules are broken: want 1", n)
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// Options that have no meaning are named, and nothing is done.
func TestKitOptions(t *testing.T) {
	for _, test := range []struct {
		field string
		o     provisionertest.HostOptions
	}{
		{"HostOptions.Must", provisionertest.HostOptions{Must: []string{"ZoneLister", "Zones"}}},
		{"HostOptions.Skip", provisionertest.HostOptions{Skip: map[string]string{"stop-ends": ""}}},
		{"HostOptions.Settle", provisionertest.HostOptions{Settle: -1}},
		{"HostOptions.Timeout", provisionertest.HostOptions{Timeout: -1}},
		{"HostOptions.Soon", provisionertest.HostOptions{Soon: -1}},
		{"HostOptions.Parallel", provisionertest.HostOptions{Parallel: -1}},
		{"HostOptions.Provoke", provisionertest.HostOptions{Provoke: []provisionertest.Provocation{{Name: "x"}}}},
	} {
		w := provisionertest.New(provisionertest.Settings{Kind: true})
		err := provisionertest.CheckBroker(t.Context(), w.Broker(), test.o)
		if !errors.Is(err, jujuerrors.NotValid) || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: got %v", test.field, err)
		}
		if calls := w.Records(); len(calls) > 0 {
			t.Errorf("%s: the broker was called: %v", test.field, calls)
		}
	}
	w := provisionertest.New(provisionertest.Settings{Kind: true})
	if err := provisionertest.CheckState(t.Context(), w.State(), provisionertest.HostOptions{}); !errors.Is(err, jujuerrors.NotValid) {
		t.Errorf("a state without NewMachine: %v", err)
	}
	if err := provisionertest.CheckBroker(t.Context(), nil, provisionertest.HostOptions{}); !errors.Is(err, jujuerrors.NotValid) {
		t.Errorf("no broker: %v", err)
	}
}

// What a host does wrong in a call is its rule's fault, and never the suite's end.
func TestKitSurvivesTheHost(t *testing.T) {
	for _, what := range []string{"panic", "goexit", "stuck 1h"} {
		synctest.Test(t, func(t *testing.T) {
			h := newKitHost(t, provisionertest.Settings{Kind: true})
			fault, err := provisionertest.ParseFault("zones count=always: " + what)
			must(t, err)
			must(t, h.Inject(fault))
			err = provisionertest.CheckBroker(t.Context(), h.Broker(), h.HostOptions)
			if err == nil || !strings.Contains(err.Error(), "Zones has") {
				t.Errorf("%s: got %v", what, err)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}
