package provisioner_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// TestSoak drives whole Tasks through random trouble, seed by seed: faults of
// every kind, lives that end at any moment, zones that go and come, limits and
// modes that change, restarts. Whatever happens, nothing is made twice or
// stopped wrongly; and when the trouble ends everything comes to rest: no leak,
// no orphan, nothing left to do.
func TestSoak(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newSoak(t, seed).play() })
		})
	}
}

type soak struct {
	t    *testing.T
	r    *rand.Rand
	w    *provisionertest.World
	cfg  provisioner.Config
	task *provisioner.Task
	stop context.CancelFunc
	done chan error
	next int
	news int // profile changes so far
}

func newSoak(t *testing.T, seed uint64) *soak {
	s := &soak{t: t, r: rand.New(rand.NewPCG(seed, 3))}
	set := provisionertest.Settings{Controller: "c", Seed: seed, LostReplies: provisionertest.NeverLost, Echo: s.pick(2), Reports: s.pick(2)}
	set.Traits.DedupesByToken = s.pick(2)
	set.Traits.ConsistentReads = s.pick(2)
	set.Traits.Labels = s.pick(2)
	s.w = provisionertest.New(set)
	s.cfg = provisioner.Config{
		Controller: "c", Broker: s.w.Broker(), State: s.w.State(),
		Policy: provisioner.Policy{Retry: provisioner.RetryPolicy{Retries: 3}},
		Limits: provisioner.Limits{Starts: 1 + s.r.IntN(6), ContainerStarts: 1, Stops: 1 + s.r.IntN(3)},
	}
	s.must(s.w.Load(provisionertest.NewFleet(4+s.r.IntN(12), 1+s.r.IntN(4), s.r.IntN(4))))
	s.next = 100
	return s
}

func (s *soak) pick(n int) bool { return s.r.IntN(n) == 0 }

func (s *soak) must(err error) {
	if err != nil {
		s.t.Helper()
		s.t.Fatal(err)
	}
}

func (s *soak) start() {
	cfg := s.cfg
	cfg.Changes, cfg.Retry, cfg.ProfileChanges = s.w.Changes(), s.w.Retries(), s.w.ProfileChanges()
	task, err := provisioner.New(cfg)
	s.must(err)
	ctx, stop := context.WithCancel(s.t.Context())
	s.task, s.stop, s.done = task, stop, make(chan error, 1)
	go func() { s.done <- task.Run(ctx) }()
}

func (s *soak) play() {
	s.start()
	for range 10 + s.r.IntN(40) {
		time.Sleep(time.Duration(s.r.IntN(20_000)) * time.Millisecond) // in a bubble
		s.deed()
	}
	s.settle()
	s.stop()
	<-s.done
	synctest.Wait()
	if n := s.w.OpenWatchers(); n != 0 {
		s.t.Errorf("LC2: %d watchers are open", n)
	}
}

func (s *soak) machine() provisioner.MachineID {
	all := s.w.Machines()
	if len(all) == 0 {
		return "0"
	}
	return all[s.r.IntN(len(all))].ID
}

// deed does one thing to the world or the Task; what does not fit is nothing.
func (s *soak) deed() {
	id := s.machine()
	switch s.r.IntN(16) {
	case 0, 1, 2, 3:
		s.fault(id)
	case 4:
		if m, ok := s.w.Machine(id); ok && m.Life == provisioner.Alive { // no life goes back
			_ = s.w.SetLife(id, provisioner.Dying)
		}
	case 5, 6:
		_ = s.w.SetLife(id, provisioner.Dead)
	case 7:
		s.next++
		_ = s.w.AddPending(provisioner.MachineID(fmt.Sprint(s.next)), id.Top()+provisioner.MachineID(fmt.Sprintf("/lxd/%d", s.next)))
	case 8:
		s.w.SetZone("a", s.pick(2))
	case 9:
		s.must(s.task.SetLimits(provisioner.Limits{Starts: 1 + s.r.IntN(5), Stops: 1 + s.r.IntN(3)}))
	case 10:
		s.retry()
	case 11:
		s.w.Changed(id, s.machine(), "4711")
	case 12:
		if s.pick(2) {
			s.w.ClearFaults()
			s.w.Release()
			time.Sleep(12 * time.Minute) // in a bubble; what a Task leaves behind is not known to the next yet
			s.stop()
			<-s.done
			s.start()
		} else {
			ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(s.r.IntN(30))*time.Second)
			_, _ = s.task.Reconcile(ctx)
			cancel()
		}
	case 13:
		if m, ok := s.w.Machine(id); ok && m.Instance == "" {
			_ = s.w.Forget(id)
		}
	case 14, 15:
		s.profile(id)
	}
}

// profile gives a machine another change of one of few profiles.
func (s *soak) profile(id provisioner.MachineID) {
	s.news++
	c := provisioner.ProfileChange{Machine: id, ID: fmt.Sprint(s.news), Subordinate: s.pick(3)}
	if s.pick(2) {
		c.Old = fmt.Sprintf("juju-m-a-%d", s.r.IntN(3))
	}
	if !s.pick(4) {
		c.Profile = &provisioner.Profile{Name: fmt.Sprintf("juju-m-a-%d", s.r.IntN(3))}
	}
	_ = s.w.SetProfileChange(c)
}

func (s *soak) fault(id provisioner.MachineID) {
	calls := provisionertest.Calls()
	f := provisionertest.Fault{Call: calls[s.r.IntN(len(calls))], Count: 1 + s.r.IntN(3)}
	if s.pick(2) {
		f.Machine = id
	}
	troubles := []provisionertest.Trouble{provisionertest.TroubleError, provisionertest.TroubleError, provisionertest.TroubleDelay, provisionertest.TroublePanic,
		provisionertest.TroubleGoexit, provisionertest.TroubleHang, provisionertest.TroubleStuck, provisionertest.TroubleMissing,
		provisionertest.TroubleDouble, provisionertest.TroubleForeign, provisionertest.TroubleAstray, provisionertest.TroubleEmpty}
	f.What = troubles[s.r.IntN(len(troubles))]
	if f.What == provisionertest.TroubleDelay || f.What == provisionertest.TroubleStuck {
		f.For = time.Duration(1+s.r.IntN(600)) * time.Second
	}
	if f.Call == provisionertest.CallStart || f.Call == provisionertest.AnyCall {
		// One that is cut off may have made an instance, see below.
		f.For = min(f.For, 15*time.Second)
		if f.What == provisionertest.TroubleHang {
			return
		}
	}
	// What a start has made before it was lost: see TestIdentitySoak.
	f.After = f.Call != provisionertest.CallStart && s.pick(3)
	if f.Validate() == nil {
		s.must(s.w.Inject(f))
	}
}

func (s *soak) retry() {
	for _, m := range s.w.Machines() {
		_ = s.w.SetRetryable(m.ID, true)
	}
	s.w.Tick()
}

// settle ends the trouble and waits for everything to come to rest.
func (s *soak) settle() {
	s.w.ClearFaults()
	s.w.Release()
	s.w.SetZone("a", true)
	for range 4 {
		s.retry()
		time.Sleep(20 * time.Minute) // in a bubble
	}
	synctest.Wait()
	if err := s.w.Check(); err != nil {
		s.fail(err.Error())
	}
	plan, err := s.task.Plan(s.t.Context())
	s.must(err)
	// Upkeep is never done: a container has it at each look.
	if slices.ContainsFunc(plan.Actions, func(a provisioner.Action) bool { return a.Kind != provisioner.ActionMaintain }) {
		s.fail("something is left to do: " + plan.String())
	}
	for _, m := range s.w.Machines() {
		if c := s.w.ProfileChange(m.ID); c.Machine != "" && !provisioner.ProfileTerminal(c.Status) {
			x, _ := s.task.Explain(m.ID)
			s.fail(fmt.Sprintf("machine %s: its profile change was not made: %+v\n%v", m.ID, c, x))
		}
		container := m.ID.IsContainer() // its host may be going away
		if m.Life == provisioner.Dead || m.Life == provisioner.Alive && m.Instance == "" && !container {
			x, _ := s.task.Explain(m.ID)
			s.fail(fmt.Sprintf("machine %s did not come to rest: %+v\n%v", m.ID, m, x))
		}
	}
}

func (s *soak) fail(text string) {
	s.t.Errorf("%s\n%s", text, s.w.Transcript())
	s.t.FailNow()
}
