package provisionertest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// capabilities names what a Task of the host has.
func capabilities(t *testing.T, h provisionertest.Host) (found []string) {
	t.Helper()
	cfg := provisioner.Config{Controller: "c"}
	h.Configure(&cfg)
	task, err := provisioner.New(cfg)
	must(t, err)
	for _, c := range task.Capabilities() {
		if c.Found != "" {
			found = append(found, c.Name)
		}
	}
	return found
}

// A hook loses no capability, and gives none.
func TestInterceptKeepsCapabilities(t *testing.T) {
	w := provisionertest.New(provisionertest.Settings{})
	for _, test := range []struct {
		why  string
		host provisionertest.Host
		want int
	}{
		{"all", provisionertest.Host{Broker: w.Broker(), State: w.State()}, 16},
		{"none", provisionertest.Host{Broker: w.PlainBroker(), State: w.PlainState()}, 0},
		{"some, by name", provisionertest.Host{Broker: w.PlainBroker(), State: w.PlainState(),
			Optional: provisioner.Optional{Zones: w.Broker(), Intents: w.State()}}, 2},
	} {
		want := capabilities(t, test.host)
		if len(want) != test.want {
			t.Errorf("%s: the host has %d capabilities: want %d", test.why, len(want), test.want)
		}
		hooked := provisionertest.Intercept(test.host, func(ctx context.Context, _ provisionertest.HostCall, do func(context.Context) error) error {
			return do(ctx)
		})
		if diff := cmp.Diff(want, capabilities(t, hooked)); diff != "" {
			t.Errorf("%s: capabilities (-want +got):\n%s", test.why, diff)
		}
	}
}

// Every call of a host goes through the hook, and is as good as before.
func TestInterceptHooksEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newKitHost(t, provisionertest.Settings{Traits: provisioner.Traits{DedupesByToken: true, Labels: true}})
		var mu sync.Mutex
		seen := map[provisionertest.Call]bool{}
		hooked := provisionertest.Intercept(provisionertest.Host{Broker: h.Broker(), State: h.State()},
			func(ctx context.Context, c provisionertest.HostCall, do func(context.Context) error) error {
				mu.Lock()
				seen[c.Call] = true
				mu.Unlock()
				return do(ctx)
			})
		h.HostOptions.Optional = hooked.Optional
		if err := provisionertest.CheckBroker(t.Context(), hooked.Broker, h.HostOptions); err != nil {
			t.Error(err)
		}
		if err := provisionertest.CheckState(t.Context(), hooked.State, h.HostOptions); err != nil {
			t.Error(err)
		}
		all := provisionertest.Calls()
		slices.Sort(all)
		if diff := cmp.Diff(all, slices.Sorted(maps.Keys(seen))); diff != "" {
			t.Errorf("calls that the hook has seen (-want +got):\n%s", diff)
		}
	})
}

// A hookedHost is a World with two machines and a Host of it.
func hookedHost(t *testing.T) (*provisionertest.World, provisionertest.Host) {
	t.Helper()
	w := kind(t, provisionertest.Settings{Traits: provisioner.Traits{Labels: true}}, 2, 1)
	return w, provisionertest.Host{Broker: w.Broker(), State: w.State()}
}

// At each point exactly so much has happened, and nothing more does.
func TestCrashPointsCutOff(t *testing.T) {
	for _, test := range []struct {
		point provisionertest.CrashPoint
		plain bool // without an IntentStore
		want  string
	}{
		{provisionertest.CrashBeforeIntent, false, "intent 0, 0 live, recorded 0, 2 records"},
		{provisionertest.CrashBeforeIntent, true, "intent 0, 0 live, recorded 0, 2 records"},
		{provisionertest.CrashAfterIntent, false, "intent 1, 0 live, recorded 0, 2 records"},
		{provisionertest.CrashAfterIntent, true, "intent 0, 0 live, recorded 0, 2 records"},
		{provisionertest.CrashAfterStart, false, "intent 1, 1 live, recorded 0, 2 records"},
		{provisionertest.CrashBeforeRecord, false, "intent 1, 1 live, recorded 0, 2 records"},
		{provisionertest.CrashAfterRecord, false, "intent 1, 1 live, recorded 1, 2 records"},
		{provisionertest.CrashMidStop, false, "intent 1, 1 live, recorded 2, 2 records"},
		{provisionertest.CrashAfterStop, false, "intent 1, 0 live, recorded 2, 2 records"},
		{provisionertest.CrashMidRemoval, false, "intent 1, 0 live, recorded 2, 2 records"},
	} {
		t.Run(fmt.Sprint(test.point, test.plain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, host := hookedHost(t)
				if test.plain {
					host.State = w.PlainState()
				}
				c, err := provisionertest.CrashAt(host, test.point, 1)
				must(t, err)
				call := func(do func(context.Context) error) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					began := time.Now()
					err := do(ctx)
					select {
					case <-c.Crashed():
						if !errors.Is(err, provisionertest.ErrCutOff) || time.Since(began) < time.Second {
							t.Errorf("a call of a host that is cut off: %v after %v", err, time.Since(began))
						}
					default:
						must(t, err)
					}
				}
				var ids []instID
				for i, id := range []machineID{"0", "1"} {
					if s := c.Optional.Intents; s != nil && i == 0 {
						call(func(ctx context.Context) error {
							return s.SwapIntent(ctx, intent{Machine: id}, intent{Machine: id, Nonce: "n"})
						})
						call(func(ctx context.Context) error {
							return s.SwapIntent(ctx, intent{Machine: id, Nonce: "n"}, intent{Machine: id, Nonce: "n", Attempt: 1})
						})
					}
					var r startRes
					call(func(ctx context.Context) (err error) { r, err = c.Broker.Start(ctx, startReq{Machine: id}); return err })
					call(func(ctx context.Context) error {
						return c.State.SetInstance(ctx, provisioner.InstanceRecord{Machine: id, Instance: r.Instance})
					})
					if ids = append(ids, r.Instance); r.Instance != "" {
						must(t, w.SetLife(id, provisioner.Dead))
					}
				}
				call(func(ctx context.Context) error { return c.Broker.Stop(ctx, stopReq{Instances: ids}) })
				for _, id := range []machineID{"0", "1"} {
					call(func(ctx context.Context) error {
						return c.State.Remove(ctx, provisioner.Removal{Machine: id})
					})
				}
				select {
				case <-c.Crashed():
				default:
					t.Fatal("the point was not reached")
				}
				recorded := 0
				for _, m := range w.Machines() {
					if m.Instance != "" {
						recorded++
					}
				}
				stored, err := w.State().Intents(t.Context(), "0")
				must(t, err)
				got := fmt.Sprintf("intent %d, %d live, recorded %d, %d records", stored[0].Intent.Attempt, len(w.Live()), recorded, len(w.Machines()))
				if got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
			})
		})
	}
}

// A call that is under way when the host is cut off has its effect; its caller
// does not hear of it.
func TestCrashSilencesWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, host := hookedHost(t)
		slow, err := provisionertest.WithFaults(host, nil, provisionertest.Fault{Call: provisionertest.CallStart, Machine: "1", What: provisionertest.TroubleDelay, For: time.Minute})
		must(t, err)
		c, err := provisionertest.CrashAt(slow, provisionertest.CrashAfterStart, 1)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, id := range []machineID{"1", "0"} {
			go func() { _, err := c.Broker.Start(ctx, startReq{Machine: id}); ended <- err }()
			synctest.Wait()
		}
		<-c.Crashed()
		time.Sleep(time.Hour)
		if n := len(w.Live()); n != 2 || len(ended) > 0 {
			t.Errorf("%d instances and %d calls that have ended: want 2 and none", n, len(ended))
		}
		cancel()
		for range 2 {
			if err := <-ended; !errors.Is(err, provisionertest.ErrCutOff) {
				t.Error(err)
			}
		}
	})
}

func TestCrashAtOddPoints(t *testing.T) {
	_, host := hookedHost(t)
	for _, test := range []struct {
		point provisionertest.CrashPoint
		n     int
		says  string
	}{{"before breakfast", 1, `"before breakfast"`}, {provisionertest.CrashAfterStart, 0, "0 times"}} {
		if _, err := provisionertest.CrashAt(host, test.point, test.n); !errors.Is(err, errors.NotValid) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s, %d: %v", test.point, test.n, err)
		}
	}
}

// Faults hit a host that is no World as they hit one.
func TestWithFaults(t *testing.T) {
	for _, test := range []struct {
		why   string
		fault string
		made  int           // instances
		took  time.Duration // until the call returned
		says  string
	}{
		{"none that matches", "start machine=1: error", 1, 0, ""},
		{"before the effect", "start machine=0: error capacity", 0, 0, "scripted trouble"},
		{"after the effect", "start machine=0 after: error ambiguous", 1, 0, "scripted trouble"},
		{"another zone", "start zone=b: error", 1, 0, ""},
		{"the second call", "start nth=2: error", 1, 0, ""},
		{"slow", "start: delay 5s", 1, 5 * time.Second, ""},
		{"too slow", "start: delay 5m", 0, time.Minute, "deadline"},
		{"deaf", "start: stuck 5m", 0, 5 * time.Minute, "deadline"},
		{"hangs", "*: hang", 0, time.Minute, "deadline"},
		{"hangs after the effect", "start after: hang", 1, time.Minute, "deadline"},
		{"panics", "start: panic", 0, 0, "scripted trouble"},
	} {
		t.Run(test.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, host := hookedHost(t)
				fault, err := provisionertest.ParseFault(test.fault)
				must(t, err)
				host, err = provisionertest.WithFaults(host, nil, fault)
				must(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				err = func() (err error) {
					defer func() {
						if r := recover(); r != nil {
							err = fmt.Errorf("%v", r)
						}
					}()
					_, err = host.Broker.Start(ctx, startReq{Machine: "0"})
					return err
				}()
				if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
					t.Errorf("%v: want it to say %q", err, test.says)
				}
				if n := len(w.Live()); n != test.made {
					t.Errorf("%d instances: want %d", n, test.made)
				}
				if took := time.Since(began); took != test.took {
					t.Errorf("took %v: want %v", took, test.took)
				}
			})
		})
	}
	_, host := hookedHost(t)
	for _, fault := range []provisionertest.Fault{
		{Call: "nonsense", What: provisionertest.TroubleError},
		{What: provisionertest.TroubleMissing},
		{What: provisionertest.TroubleStuck},
	} {
		if _, err := provisionertest.WithFaults(host, nil, fault); !errors.Is(err, errors.NotValid) {
			t.Errorf("%v: got %v", fault, err)
		}
	}
}
