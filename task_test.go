package provisioner_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// A hook is called before each call that a Task makes of its host, with the
// machines or instances that it is about. An error is what the call returns.
type hook func(ctx context.Context, call provisionertest.Call, about ...string) error

// hookedBroker and hookedState put a hook before the calls of a World, which
// doesn't look at the context itself: whether to obey it is the hook's business.
type hookedBroker struct {
	*provisionertest.Broker
	before hook
}

type hookedState struct {
	*provisionertest.State
	before hook
}

func texts[S ~string](ids []S) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = string(id)
	}
	return all
}

// hooked makes one call, if the hook lets it.
func hooked[R any](ctx context.Context, before hook, call provisionertest.Call, about []string, do func() (R, error)) (R, error) {
	if err := before(ctx, call, about...); err != nil {
		var none R
		return none, err
	}
	return do()
}

func hookedErr(ctx context.Context, before hook, call provisionertest.Call, about string, do func() error) error {
	if err := before(ctx, call, about); err != nil {
		return err
	}
	return do()
}

func (b hookedBroker) Instances(ctx context.Context) (provisioner.Listing, error) {
	return hooked(ctx, b.before, provisionertest.CallList, nil, func() (provisioner.Listing, error) { return b.Broker.Instances(context.WithoutCancel(ctx)) })
}

func (b hookedBroker) Start(ctx context.Context, req provisioner.StartRequest) (provisioner.StartResult, error) {
	return hooked(ctx, b.before, provisionertest.CallStart, []string{string(req.Machine)}, func() (provisioner.StartResult, error) { return b.Broker.Start(context.WithoutCancel(ctx), req) })
}

func (b hookedBroker) Stop(ctx context.Context, req provisioner.StopRequest) error {
	return hookedErr(ctx, b.before, provisionertest.CallStop, strings.Join(texts(req.Instances), " "), func() error { return b.Broker.Stop(context.WithoutCancel(ctx), req) })
}

func (b hookedBroker) Zones(ctx context.Context) ([]provisioner.Zone, error) {
	return hooked(ctx, b.before, provisionertest.CallZones, nil, func() ([]provisioner.Zone, error) { return b.Broker.Zones(context.WithoutCancel(ctx)) })
}

func (b hookedBroker) DeriveZones(ctx context.Context, req provisioner.StartRequest) ([]provisioner.ZoneName, error) {
	return hooked(ctx, b.before, provisionertest.CallDerive, []string{string(req.Machine)}, func() ([]provisioner.ZoneName, error) { return b.Broker.DeriveZones(context.WithoutCancel(ctx), req) })
}

func (b hookedBroker) Maintain(ctx context.Context, req provisioner.MaintainRequest) error {
	return hookedErr(ctx, b.before, provisionertest.CallMaintain, string(req.Machine), func() error { return b.Broker.Maintain(context.WithoutCancel(ctx), req) })
}

func (b hookedBroker) ChangeProfile(ctx context.Context, req provisioner.ProfileChangeRequest) ([]string, error) {
	return hooked(ctx, b.before, provisionertest.CallChangeProfile, []string{string(req.Machine)}, func() ([]string, error) { return b.Broker.ChangeProfile(context.WithoutCancel(ctx), req) })
}

func (s hookedState) ProfileChanges(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.ProfileChangeResult, error) {
	return hooked(ctx, s.before, provisionertest.CallProfiles, texts(ids), func() ([]provisioner.ProfileChangeResult, error) {
		return s.State.ProfileChanges(context.WithoutCancel(ctx), ids...)
	})
}

func (s hookedState) SetProfiles(ctx context.Context, rec provisioner.ProfileRecord) error {
	return hookedErr(ctx, s.before, provisionertest.CallSetProfiles, string(rec.Machine), func() error { return s.State.SetProfiles(context.WithoutCancel(ctx), rec) })
}

func (s hookedState) SetProfileStatus(ctx context.Context, u provisioner.ProfileStatusUpdate) error {
	return hookedErr(ctx, s.before, provisionertest.CallProfileStatus, string(u.Machine), func() error { return s.State.SetProfileStatus(context.WithoutCancel(ctx), u) })
}

func (s hookedState) RemoveProfileChange(ctx context.Context, req provisioner.Removal) error {
	return hookedErr(ctx, s.before, provisionertest.CallRemoveProfile, string(req.Machine), func() error { return s.State.RemoveProfileChange(context.WithoutCancel(ctx), req) })
}

func (s hookedState) Fleet(ctx context.Context) ([]provisioner.MachineResult, error) {
	return hooked(ctx, s.before, provisionertest.CallFleet, nil, func() ([]provisioner.MachineResult, error) { return s.State.Fleet(context.WithoutCancel(ctx)) })
}

func (s hookedState) Machines(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.MachineResult, error) {
	return hooked(ctx, s.before, provisionertest.CallMachines, texts(ids), func() ([]provisioner.MachineResult, error) {
		return s.State.Machines(context.WithoutCancel(ctx), ids...)
	})
}

func (s hookedState) StartInfo(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.StartInfoResult, error) {
	return hooked(ctx, s.before, provisionertest.CallInfo, texts(ids), func() ([]provisioner.StartInfoResult, error) {
		return s.State.StartInfo(context.WithoutCancel(ctx), ids...)
	})
}

func (s hookedState) SetInstance(ctx context.Context, rec provisioner.InstanceRecord) error {
	return hookedErr(ctx, s.before, provisionertest.CallRecord, string(rec.Machine), func() error { return s.State.SetInstance(context.WithoutCancel(ctx), rec) })
}

func (s hookedState) Remove(ctx context.Context, req provisioner.Removal) error {
	return hookedErr(ctx, s.before, provisionertest.CallRemove, string(req.Machine), func() error { return s.State.Remove(context.WithoutCancel(ctx), req) })
}

func (s hookedState) WriteStatus(ctx context.Context, u provisioner.StatusUpdate) error {
	return hookedErr(ctx, s.before, provisionertest.CallStatus, string(u.Machine), func() error { return s.State.WriteStatus(context.WithoutCancel(ctx), u) })
}

func (s hookedState) EnsureDead(ctx context.Context, req provisioner.LifeRequest) error {
	return hookedErr(ctx, s.before, provisionertest.CallDead, string(req.Machine), func() error { return s.State.EnsureDead(context.WithoutCancel(ctx), req) })
}

func (s hookedState) RetryMachines(ctx context.Context) ([]provisioner.MachineResult, error) {
	return hooked(ctx, s.before, provisionertest.CallRetries, nil, func() ([]provisioner.MachineResult, error) { return s.State.RetryMachines(context.WithoutCancel(ctx)) })
}

func (s hookedState) Groups(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.GroupResult, error) {
	return hooked(ctx, s.before, provisionertest.CallGroups, texts(ids), func() ([]provisioner.GroupResult, error) { return s.State.Groups(context.WithoutCancel(ctx), ids...) })
}

func (s hookedState) Authenticate(ctx context.Context, reqs ...provisioner.AuthRequest) ([]provisioner.AuthResult, error) {
	var ids []string
	for _, r := range reqs {
		ids = append(ids, string(r.Machine))
	}
	return hooked(ctx, s.before, provisionertest.CallAuth, ids, func() ([]provisioner.AuthResult, error) {
		return s.State.Authenticate(context.WithoutCancel(ctx), reqs...)
	})
}

// configOf is a configuration on a World, with its watchers and random numbers
// that are the same each time.
func configOf(w *provisionertest.World, before hook) provisioner.Config {
	random := new(atomic.Uint64)
	cfg := provisioner.Config{
		Controller:     "ctl",
		Broker:         w.Broker(),
		State:          w.State(),
		Changes:        w.Changes(),
		Retry:          w.Retries(),
		ProfileChanges: w.ProfileChanges(),
		Random:         func() uint64 { return random.Add(0x9e3779b97f4a7c15) },
	}
	if before != nil {
		cfg.Broker, cfg.State = hookedBroker{w.Broker(), before}, hookedState{w.State(), before}
	}
	return cfg
}

func newTask(t testing.TB, cfg provisioner.Config) *provisioner.Task {
	t.Helper()
	task, err := provisioner.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// start lets a Task run until the function that it returns is called, which
// gives Run's error.
func start(t testing.TB, task *provisioner.Task) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- task.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// stopCleanly stops a Task and demands that its context is why it ended, and
// that nothing is wrong in the World.
func stopCleanly(t testing.TB, w *provisionertest.World, stop func() error) {
	t.Helper()
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v, want %v", err, context.Canceled)
	}
	if err := w.Check(); err != nil {
		t.Errorf("%v\n%s", err, w.Transcript())
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fleetOf loads pending machines 0, 1, 2… and zones a, b, c… into a new World.
func fleetOf(t testing.TB, s provisionertest.Settings, machines, zones int) *provisionertest.World {
	t.Helper()
	w := provisionertest.New(s)
	if err := w.Load(provisionertest.NewFleet(machines, zones, 0)); err != nil {
		t.Fatal(err)
	}
	return w
}

func inject(t testing.TB, w *provisionertest.World, lines ...string) {
	t.Helper()
	for _, line := range lines {
		f, err := provisionertest.ParseFault(line)
		if err == nil {
			err = w.Inject(f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// provisioned lists the machines that have an instance.
func provisioned(w *provisionertest.World) []provisioner.MachineID {
	var ids []provisioner.MachineID
	for _, m := range w.Machines() {
		if m.Instance != "" {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// A log is an observer that keeps what it is told.
type log struct {
	mu     sync.Mutex
	events []provisioner.Event
}

func (l *log) Observe(e provisioner.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *log) all() []provisioner.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// leftBehind gives the stacks of goroutines that belong to a Task.
func leftBehind() []string {
	buf := make([]byte, 1<<20)
	var left []string
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "seed81ba69f2/provisioner.(") {
			left = append(left, stack)
		}
	}
	return left
}

// of gives the events of one kind.
func (l *log) of(kind provisioner.EventKind) []provisioner.Event {
	return slices.DeleteFunc(l.all(), func(e provisioner.Event) bool { return e.Kind != kind })
}

// LC1: every fault at once, each by the name of its field.
func TestNewNamesEveryFault(t *testing.T) {
	w := provisionertest.New(provisionertest.Settings{Kind: true})
	var noObserver *log
	full := provisioner.Config{Controller: "ctl", Broker: w.Broker(), State: w.State()}
	cases := []struct {
		why    string
		change func(*provisioner.Config)
		want   string
	}{
		{"two controllers must not share a name, so there is none by default", func(c *provisioner.Config) { c.Controller = "" }, "Controller"},
		{"no nonce could be made of it, and no machine start", func(c *provisioner.Config) { c.Controller = "ctl\n" }, "Controller"},
		{"nor of this", func(c *provisioner.Config) { c.HostTag = ":7" }, "HostTag"},
		{"nothing works without one", func(c *provisioner.Config) { c.Broker = nil }, "Broker"},
		{"a typed nil is none either", func(c *provisioner.Config) { c.Broker = (*provisionertest.Broker)(nil) }, "Broker"},
		{"nothing works without one", func(c *provisioner.Config) { c.State = nil }, "State"},
		{"HV1: not a mode", func(c *provisioner.Config) { c.Policy.Harvest = 99 }, "Policy.Harvest"},
		{"not a tie-break", func(c *provisioner.Config) { c.Policy.Tie = 9 }, "Policy.Tie"},
		{"less than none", func(c *provisioner.Config) { c.Policy.Retry.Retries = -7 }, "Policy.Retry.Retries"},
		{"more than all", func(c *provisioner.Config) { c.Policy.Backoff.Jitter = 3 }, "Policy.Backoff.Jitter"},
		{"a lane without places", func(c *provisioner.Config) { c.Limits.Starts = -1 }, "Limits.Starts"},
		{"a lane without places", func(c *provisioner.Config) { c.Limits.ContainerStarts = -1 }, "Limits.ContainerStarts"},
		{"a lane without places", func(c *provisioner.Config) { c.Limits.Stops = -1 }, "Limits.Stops"},
		{"a lane without places", func(c *provisioner.Config) { c.Limits.Profiles = -1 }, "Limits.Profiles"},
		{"a lane without places", func(c *provisioner.Config) { c.Limits.ContainerProfiles = -1 }, "Limits.ContainerProfiles"},
		{"less than none", func(c *provisioner.Config) { c.Policy.Profiles.Retries = -7 }, "Policy.Profiles.Retries"},
		{"LX1: no profile could have such a name", func(c *provisioner.Config) { c.ProfileNaming.Model = "-m" }, "ProfileNaming"},
		{"negative and not Off", func(c *provisioner.Config) { c.LaunchTimeout = -time.Minute }, "LaunchTimeout"},
		{"negative and not Off", func(c *provisioner.Config) { c.CallTimeout = -time.Minute }, "CallTimeout"},
		{"negative and not Off", func(c *provisioner.Config) { c.RollbackTimeout = -time.Minute }, "RollbackTimeout"},
		{"negative and not Off", func(c *provisioner.Config) { c.ShutdownGrace = -time.Minute }, "ShutdownGrace"},
		{"negative and not Off", func(c *provisioner.Config) { c.Resync = -time.Minute }, "Resync"},
		{"negative and not Off", func(c *provisioner.Config) { c.ZoneRefresh = -time.Minute }, "ZoneRefresh"},
		{"no room for an event", func(c *provisioner.Config) { c.EventBuffer = -1 }, "EventBuffer"},
		{"a typed nil is no limiter", func(c *provisioner.Config) { c.StartLimiter = limiterFunc(nil) }, "StartLimiter"},
		{"a typed nil is no limiter", func(c *provisioner.Config) { c.StopLimiter = limiterFunc(nil) }, "StopLimiter"},
		{"a typed nil is no lease, and would end Run by a panic", func(c *provisioner.Config) { c.Lease = (*provisionertest.Lease)(nil) }, "Lease"},
		{"a typed nil is no clock", func(c *provisioner.Config) { c.Clock = (*clock.Mock)(nil) }, "Clock"},
		{"a typed nil is no ability", func(c *provisioner.Config) { c.Optional.Zones = (*provisionertest.Broker)(nil) }, "Optional.Zones"},
		{"a typed nil is no ability", func(c *provisioner.Config) { c.Optional.Status = (*provisionertest.State)(nil) }, "Optional.Status"},
		{"nobody to tell", func(c *provisioner.Config) { c.Observers = []provisioner.Observer{w, noObserver} }, "Observers[1]"},
	}
	bad := full
	for _, c := range cases {
		one := full
		c.change(&one)
		c.change(&bad)
		_, err := provisioner.New(one)
		var faults *provisioner.ConfigError
		if !errors.Is(err, provisioner.ErrConfig) || !errors.Is(err, errors.NotValid) || !errors.As(err, &faults) || len(faults.Faults) != 1 {
			t.Errorf("%s (%s): got %v, want one NotValid fault", c.want, c.why, err)
			continue
		}
		if text := faults.Faults[0].Error(); !strings.HasPrefix(text, c.want+" ") && !strings.HasPrefix(text, c.want+":") {
			t.Errorf("%s (%s): got %q, want it to begin with the field", c.want, c.why, text)
		}
	}
	_, err := provisioner.New(bad)
	for _, c := range cases {
		if err == nil || !strings.Contains(err.Error(), "\t"+c.want) {
			t.Errorf("%s is missing from the faults of a configuration where everything is wrong: %v", c.want, err)
		}
	}
	if _, err := provisioner.New(full); err != nil {
		t.Errorf("a full configuration: %v", err)
	}
}

// LC1: New asks the host nothing and leaves nothing running.
func TestNewDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{}, 3, 2)
		w.ResetRecords()
		cfg := configOf(w, func(_ context.Context, call provisionertest.Call, _ ...string) error {
			t.Errorf("New has called %s", call)
			return nil
		})
		cfg.Lease = untouched{t}
		cfg.Observers = []provisioner.Observer{w}
		newTask(t, cfg)
		synctest.Wait()
		if left := leftBehind(); left != nil {
			t.Errorf("New has left %d goroutines:\n%s", len(left), strings.Join(left, "\n\n"))
		}
		if text := w.Transcript(); text != "" {
			t.Errorf("New has done something:\n%s", text)
		}
	})
}

// untouched is a lease that may not be asked.
type untouched struct{ t *testing.T }

func (l untouched) Held() bool            { l.t.Error("the lease was asked"); return true }
func (l untouched) Epoch() uint64         { l.t.Error("the lease was asked"); return 1 }
func (l untouched) Lost() <-chan struct{} { l.t.Error("the lease was asked"); return nil }

// The zero value is no Task, and says so at once.
func TestZeroTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		methods := map[string]func(*provisioner.Task) error{
			"Run":            func(z *provisioner.Task) error { return z.Run(ctx) },
			"Wait":           func(z *provisioner.Task) error { return z.Wait() },
			"Kill, Wait":     func(z *provisioner.Task) error { z.Kill(); return z.Wait() },
			"Plan":           func(z *provisioner.Task) error { _, err := z.Plan(ctx); return err },
			"Apply":          func(z *provisioner.Task) error { _, err := z.Apply(ctx, provisioner.Plan{}); return err },
			"Reconcile":      func(z *provisioner.Task) error { _, err := z.Reconcile(ctx); return err },
			"Explain":        func(z *provisioner.Task) error { _, err := z.Explain("0"); return err },
			"Idle":           func(z *provisioner.Task) error { _, err := z.Idle(ctx); return err },
			"SetHarvestMode": func(z *provisioner.Task) error { return z.SetHarvestMode(provisioner.HarvestAll) },
			"SetLimits":      func(z *provisioner.Task) error { return z.SetLimits(provisioner.Limits{}) },
		}
		for name, call := range methods {
			if err := call(new(provisioner.Task)); !errors.Is(err, provisioner.ErrNotNew) {
				t.Errorf("%s of a zero Task: got %v, want %v", name, err, provisioner.ErrNotNew)
			}
		}
		if caps := new(provisioner.Task).Capabilities(); len(caps) != 0 {
			t.Errorf("a zero Task has capabilities: %v", caps)
		}
	})
}

// LC2, LD5, LC6: Run ends for these reasons and says which; its watchers are
// stopped once each, and nothing is left behind.
func TestRunEnds(t *testing.T) {
	gone := errors.New("the database went away")
	reason := errors.New("the controller is being upgraded")
	type run struct {
		task   *provisioner.Task
		world  *provisionertest.World
		lease  *provisionertest.Lease
		cancel context.CancelCauseFunc
	}
	cases := []struct {
		name, why string
		before    bool // it happens before Run
		silent    bool // and so the host is not called
		do        func(run)
		want      []error
		text      string
	}{
		{"context", "an ended context is the usual end", false, false, func(r run) { r.cancel(nil) }, []error{context.Canceled}, "run"},
		{"cause", "the context's cause is what a host looks for", false, false, func(r run) { r.cancel(reason) }, []error{reason}, "upgraded"},
		{"context before", "it can end before Run", true, true, func(r run) { r.cancel(reason) }, []error{reason}, "upgraded"},
		{"changes", "LD5: a closed watcher ends Run, with what the watcher says", false, false, func(r run) { r.world.CloseChanges(gone) },
			[]error{provisioner.ErrWatcherClosed, gone}, "machine changes"},
		{"changes without a reason", "LD5: also if it doesn't say why", false, false, func(r run) { r.world.CloseChanges(nil) },
			[]error{provisioner.ErrWatcherClosed}, "machine changes"},
		{"changes before", "LD5: it can close before Run", true, false, func(r run) { r.world.CloseChanges(gone) },
			[]error{provisioner.ErrWatcherClosed, gone}, "machine changes"},
		{"retries", "LD5: whichever watcher it is", false, false, func(r run) { r.world.CloseRetries(gone) },
			[]error{provisioner.ErrWatcherClosed, gone}, "retry signals"},
		{"profile changes", "LD5: whichever watcher it is", false, false, func(r run) { r.world.CloseProfileChanges(gone) },
			[]error{provisioner.ErrWatcherClosed, gone}, "profile changes"},
		{"lease", "LC6: without the lease nothing may be done", false, false, func(r run) { r.lease.Drop() }, []error{provisioner.ErrLeaseLost}, "lease"},
		{"lease before", "LC6: it can be lost before Run", true, false, func(r run) { r.lease.Drop() }, []error{provisioner.ErrLeaseLost}, "lease"},
		{"kill", "a worker tree kills its workers, which is no error", false, false, func(r run) { r.task.Kill() }, nil, ""},
		{"kill twice", "killing again is fine", false, false, func(r run) { r.task.Kill(); r.task.Kill() }, nil, ""},
		{"kill before", "a worker may be killed before it runs", true, true, func(r run) { r.task.Kill() }, nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fleetOf(t, provisionertest.Settings{LostReplies: provisionertest.NeverLost}, 5, 2)
				cfg := configOf(w, nil)
				r := run{world: w, lease: w.TakeLease()}
				cfg.Lease = r.lease
				cfg.Observers = []provisioner.Observer{w}
				stops := map[string]int{}
				counted := func(name string, stop func() error) func() error {
					return func() error { stops[name]++; return stop() }
				}
				cfg.Changes.Stop, cfg.Retry.Stop = counted("changes", cfg.Changes.Stop), counted("retries", cfg.Retry.Stop)
				cfg.ProfileChanges.Stop = counted("profiles", cfg.ProfileChanges.Stop)
				r.task = newTask(t, cfg)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				r.cancel = cancel
				if c.before {
					c.do(r)
					w.ResetRecords()
				}
				ended := make(chan error, 1)
				go func() { ended <- r.task.Run(ctx) }()
				if !c.before {
					pass(1500 * time.Millisecond) // starts are under way
					c.do(r)
				}
				err := <-ended
				synctest.Wait()
				if left := leftBehind(); left != nil {
					t.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
				}
				if c.want == nil && err != nil {
					t.Errorf("%s: Run ended with %v, want nil", c.why, err)
				}
				for _, want := range c.want {
					if !errors.Is(err, want) || !strings.Contains(err.Error(), c.text) {
						t.Errorf("%s: Run ended with %v, want %v and %q", c.why, err, want, c.text)
					}
				}
				if werr := r.task.Wait(); werr != err {
					t.Errorf("Wait gave %v, Run %v", werr, err)
				}
				if diff := cmp.Diff(map[string]int{"changes": 1, "retries": 1, "profiles": 1}, stops); diff != "" {
					t.Errorf("watchers stopped (-want +got):\n%s", diff)
				}
				// Without the lease nothing may be recorded or stopped.
				if err := w.Check(); err != nil && r.lease.Held() {
					t.Errorf("%v\n%s", err, w.Transcript())
				}
				if again := r.task.Run(t.Context()); !errors.Is(again, provisioner.ErrRunTwice) {
					t.Errorf("a second Run: got %v, want %v", again, provisioner.ErrRunTwice)
				}
				if _, err := r.task.Reconcile(t.Context()); !errors.Is(err, provisioner.ErrStopped) {
					t.Errorf("Reconcile after Run: got %v, want %v", err, provisioner.ErrStopped)
				}
				if n := w.OpenWatchers(); n != 0 {
					t.Errorf("%d watchers are open", n)
				}
				if c.silent && strings.Contains(w.Transcript(), "...") {
					t.Errorf("the host was called although it was over before Run:\n%s", w.Transcript())
				}
			})
		})
	}
}

// LC2: a watcher that can't be stopped well does not keep Run from ending, nor
// the other from being stopped.
func TestRunEndsThoughWatchersFail(t *testing.T) {
	odd := errors.New("cannot unsubscribe")
	for _, c := range []struct {
		name string
		stop func() error
		want error
	}{
		{"error", func() error { return odd }, odd},
		{"panic", func() error { panic("odd") }, provisioner.ErrPanic},
		{"goexit", func() error { runtime.Goexit(); return nil }, provisioner.ErrPanic},
		{"none", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fleetOf(t, provisionertest.Settings{Kind: true}, 1, 1)
				cfg := configOf(w, nil)
				stopped := false
				cfg.Changes.Stop, cfg.Retry.Stop = c.stop, func() error { stopped = true; return nil }
				task := newTask(t, cfg)
				go task.Run(t.Context())
				pass(time.Second)
				task.Kill()
				err := task.Wait()
				if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
					t.Errorf("Run ended with %v, want %v", err, c.want)
				}
				if c.want != nil && (err == nil || !strings.Contains(err.Error(), "watcher of machine changes")) {
					t.Errorf("Run ended with %v, want it to say which watcher", err)
				}
				if !stopped {
					t.Error("the other watcher was not stopped")
				}
			})
		})
	}
}

// LC2: the same outside a bubble, with the real scheduler and the real clock.
func TestRunLeavesNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 40, 3)
		cfg := configOf(w, nil)
		var seen atomic.Int64
		enough := make(chan struct{})
		cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) {
			if e.Kind == provisioner.EventStarted && seen.Add(1) == 20 {
				close(enough)
			}
		})}
		stop := start(t, newTask(t, cfg))
		<-enough // in the middle of it
		stopCleanly(t, w, stop)
	}
	for range 1_000_000 { // those that have only to return are let go on
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("there are %d goroutines more than before", runtime.NumGoroutine()-before)
}

// LC2: Run may be called once, also at the same time.
func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 2, 2)
		task := newTask(t, configOf(w, nil))
		errs := make(chan error, 10)
		for range 10 {
			go func() { errs <- task.Run(t.Context()) }()
		}
		pass(time.Minute)
		if n := len(errs); n != 9 {
			t.Errorf("%d Runs have ended, want 9", n)
		}
		task.Kill()
		if err := task.Wait(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		twice := 0
		for range 10 {
			if err := <-errs; errors.Is(err, provisioner.ErrRunTwice) {
				twice++
			} else if err != nil {
				t.Errorf("Run ended with %v", err)
			}
		}
		if twice != 9 {
			t.Errorf("%d Runs were refused, want 9", twice)
		}
		if diff := cmp.Diff([]provisioner.MachineID{"0", "1"}, provisioned(w)); diff != "" {
			t.Errorf("provisioned (-want +got):\n%s", diff)
		}
	})
}

// Without a watcher Run looks by itself, and again at each resync (LD7).
func TestRunWithoutWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 1, 1)
		cfg := configOf(w, nil)
		must(t, cfg.Changes.Stop(), cfg.Retry.Stop())
		cfg.Changes, cfg.Retry = provisioner.Stream[[]provisioner.MachineID]{}, provisioner.Stream[struct{}]{}
		stop := start(t, newTask(t, cfg))
		pass(time.Minute)
		if diff := cmp.Diff([]provisioner.MachineID{"0"}, provisioned(w)); diff != "" {
			t.Errorf("after a minute (-want +got):\n%s", diff)
		}
		must(t, w.AddPending("1"))
		pass(12 * time.Minute)
		if diff := cmp.Diff([]provisioner.MachineID{"0", "1"}, provisioned(w)); diff != "" {
			t.Errorf("after the resync (-want +got):\n%s", diff)
		}
		stopCleanly(t, w, stop)
	})
}

// ST10: nonces are a host tag and a UUID out of Config.Random, and everything
// else that is random comes from there too: the same numbers, the same run.
func TestRandomIsTheOnlyChance(t *testing.T) {
	play := func(from uint64, change func(*provisioner.Config)) (transcript string, nonces []string) {
		synctest.Test(t, func(t *testing.T) {
			w := fleetOf(t, provisionertest.Settings{}, 6, 3)
			inject(t, w, "start machine=2 count=4: error", "info machine=3 count=2: error", "fleet nth=2: error")
			cfg := configOf(w, nil)
			var random atomic.Uint64
			random.Store(from)
			cfg.Random = func() uint64 { return random.Add(0x9e3779b97f4a7c15) }
			if change != nil {
				change(&cfg)
			}
			stop := start(t, newTask(t, cfg))
			pass(25 * time.Minute)
			stop()
			transcript = w.Transcript()
			for _, m := range w.Machines() {
				nonces = append(nonces, w.Recorded(m.ID).Nonce)
			}
		})
		return transcript, nonces
	}
	first, nonces := play(1, nil)
	again, _ := play(1, nil)
	if diff := cmp.Diff(strings.Split(first, "\n"), strings.Split(again, "\n")); diff != "" {
		t.Errorf("two runs with the same numbers differ:\n%s", diff)
	}
	other, others := play(1<<62, func(c *provisioner.Config) { c.HostTag = "machine-7" })
	if first == other || nonces[0] == others[0] {
		t.Error("runs with other numbers are the same")
	}
	for tag, all := range map[string][]string{"ctl": nonces, "machine-7": others} {
		form := regexp.MustCompile("^" + tag + ":[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
		seen := map[string]bool{}
		for i, nonce := range all {
			if !form.MatchString(nonce) || seen[nonce] {
				t.Errorf("nonce %d is %q, want %s and one of its own", i, nonce, form)
			}
			seen[nonce] = true
		}
	}
}

// A capability is found in the configuration, else in the value, else in what
// it unwraps to; a decorator that hides one is seen.
func TestCapabilities(t *testing.T) {
	w := provisionertest.New(provisionertest.Settings{Kind: true})
	found := func(cfg provisioner.Config) map[string]string {
		cfg.Controller = "ctl"
		all := map[string]string{}
		task := newTask(t, cfg)
		for _, c := range task.Capabilities() {
			if c.Without == "" {
				t.Errorf("%s: it is not said what is missing without it", c.Name)
			}
			all[c.Name] = c.Found
		}
		task.Capabilities()[0].Name = "changed by a caller"
		if task.Capabilities()[0].Name == "changed by a caller" {
			t.Error("Capabilities hands out its own list")
		}
		return all
	}
	ofBroker := []string{"ZoneLister", "ZoneDeriver", "InstanceFinder", "Maintainer", "ProfileBroker", "ProfileNamer", "TraitsReporter"}
	ofState := []string{"StatusWriter", "LifeSetter", "RetryLister", "GroupFinder", "Authenticator", "AgentFinder", "IntentStore", "SparedStore", "ProfileState"}
	want := func(broker, state string, other map[string]string) map[string]string {
		all := map[string]string{}
		for _, name := range ofBroker {
			all[name] = broker
		}
		for _, name := range ofState {
			all[name] = state
		}
		for name, where := range other {
			all[name] = where
		}
		return all
	}
	loop := &loopedBroker{Broker: w.PlainBroker()}
	loop.next = loop
	for _, c := range []struct {
		why  string
		cfg  provisioner.Config
		want map[string]string
	}{
		{"a World can do everything", provisioner.Config{Broker: w.Broker(), State: w.State()}, want("broker", "state", nil)},
		{"a plain host can do nothing more", provisioner.Config{Broker: w.PlainBroker(), State: w.PlainState()}, want("", "", nil)},
		{"what is given counts first", provisioner.Config{Broker: w.Broker(), State: w.PlainState(),
			Optional: provisioner.Optional{Zones: w.Broker(), Status: w.State()}},
			want("broker", "", map[string]string{"ZoneLister": "config", "StatusWriter": "config"})},
		{"a decorator that unwraps loses none", provisioner.Config{Broker: loopedBroker{w.PlainBroker(), loopedBroker{w.PlainBroker(), w.Broker()}}, State: w.State()},
			want("broker, unwrapped", "state", nil)},
		{"one that unwraps to itself ends", provisioner.Config{Broker: loop, State: w.State()}, want("", "state", nil)},
		{"one that unwraps to nothing ends", provisioner.Config{Broker: loopedBroker{w.PlainBroker(), nil}, State: w.State()}, want("", "state", nil)},
	} {
		if diff := cmp.Diff(c.want, found(c.cfg)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, diff)
		}
	}
}

type loopedBroker struct {
	provisioner.Broker
	next provisioner.Broker
}

func (b loopedBroker) Unwrap() provisioner.Broker { return b.next }

// LC7: a machine that the Task has not seen is not found.
func TestExplainUnknown(t *testing.T) {
	w := fleetOf(t, provisionertest.Settings{Kind: true}, 1, 1)
	task := newTask(t, configOf(w, nil))
	if _, err := task.Explain("0"); !errors.Is(err, errors.NotFound) {
		t.Errorf("got %v, want NotFound", err)
	}
}

// The setters refuse what has no meaning, and change nothing then.
func TestSettersCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 1, 1)
		cfg := configOf(w, nil)
		seen := &log{}
		cfg.Observers = []provisioner.Observer{seen}
		task := newTask(t, cfg)
		if err := task.SetHarvestMode(99); !errors.Is(err, errors.NotValid) || !strings.Contains(err.Error(), "99") {
			t.Errorf("SetHarvestMode: got %v, want NotValid with the value", err)
		}
		err := task.SetLimits(provisioner.Limits{Starts: -1, Stops: -2})
		for _, want := range []string{"Limits.Starts -1", "Limits.Stops -2"} {
			if !errors.Is(err, provisioner.ErrConfig) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("SetLimits: got %v, want %v with %q", err, provisioner.ErrConfig, want)
			}
		}
		synctest.Wait()
		if n := len(seen.all()); n != 0 {
			t.Errorf("refused settings gave %d events: %v", n, seen.all())
		}
	})
}

// LC6: the epoch of the lease goes into every write and label, and nothing new
// is begun without it.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{LostReplies: provisionertest.NeverLost, Controller: "ctl", Traits: provisioner.Traits{Labels: true}}, 3, 2)
		must(t, w.Add(provisioner.Machine{ID: "9", Life: provisioner.Dead, Instance: "i-dead", Zone: "a"}))
		w.TakeLease()
		lease := w.TakeLease() // epoch 2
		cfg := configOf(w, nil)
		cfg.Lease = lease
		stop := start(t, newTask(t, cfg))
		pass(time.Minute)
		for _, i := range w.Live() {
			if i.Labels.Epoch != lease.Epoch() {
				t.Errorf("instance %s is labelled with epoch %d, want %d", i.ID, i.Labels.Epoch, lease.Epoch())
			}
		}
		must(t, w.AddPending("3", "4"))
		pass(time.Second) // they are being started
		lease.Drop()
		writes := len(w.Records())
		err := stop()
		if !errors.Is(err, provisioner.ErrLeaseLost) {
			t.Errorf("Run ended with %v, want %v", err, provisioner.ErrLeaseLost)
		}
		for _, r := range w.Records()[writes:] {
			if r.Phase == provisionertest.Begin && r.Call.Writes() && r.Call != provisionertest.CallStart {
				t.Errorf("after the lease was lost: %s", r)
			}
		}
	})
}

// LC6: to get a machine ready for its stop is an effect: the lease is looked at
// right before, for the veto may have taken long.
func TestLeaseIsLookedAtBeforeDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{LostReplies: provisionertest.NeverLost}, 1, 0)
		must(t, w.Add(provisioner.Machine{ID: "9", Life: provisioner.Dead, Instance: "i-dead", Zone: "a"}))
		lease := w.TakeLease()
		drained := false
		cfg := configOf(w, nil)
		cfg.Lease = lease
		cfg.Veto = provisioner.VetoFunc(func(context.Context, provisioner.StopNotice) error { lease.Drop(); return nil })
		cfg.Drain = provisioner.DrainFunc(func(context.Context, provisioner.StopNotice) error { drained = true; return nil })
		if err := newTask(t, cfg).Run(t.Context()); !errors.Is(err, provisioner.ErrLeaseLost) {
			t.Error(err)
		}
		if drained {
			t.Error("drained after the lease was lost")
		}
	})
}

type brokenLease struct{ provisioner.Lease }

func (brokenLease) Lost() <-chan struct{} { panic("lost its lease") }

// LC4: a panic of what the host plugs in ends Run with an error, and nobody
// waits for ever.
func TestRunEndsWhenTheLeasePanics(t *testing.T) {
	w := provisionertest.New(provisionertest.Settings{Kind: true})
	task, err := provisioner.New(provisioner.Config{Controller: "c", Broker: w.Broker(), State: w.State(), Lease: brokenLease{w.TakeLease()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Run(t.Context()); !errors.Is(err, provisioner.ErrPanic) {
		t.Errorf("Run: %v, want ErrPanic", err)
	}
	if err := task.Wait(); !errors.Is(err, provisioner.ErrPanic) {
		t.Errorf("Wait: %v, want ErrPanic", err)
	}
}
