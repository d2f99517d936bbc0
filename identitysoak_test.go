package provisioner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// TestIdentitySoak drives Tasks of hosts of every kind through replies that are
// lost, starts that are cut off, processes that are killed and leases that are
// taken. Where instances can be looked for, no machine ever has two, none is
// left behind, and every machine gets one (ST9 to ST14, ST18, ST19, LC6).
func TestIdentitySoak(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newIdentitySoak(t, seed).play() })
		})
	}
}

type identitySoak struct {
	soak
	set    provisionertest.Settings
	host   provisionertest.Host
	leased bool
	lives  []*taskLife
	bareAt time.Time // when a machine without an instance was last on its way out

	// What no Task can help, and what is not held then.
	strange bool // an instance has appeared that nobody has asked for: two at once
	reused  bool // a record came back under its id, or what appeared isn't up: the same, and what is left
	forgot  bool // a Task ended that was about to look for what a removed machine had: what is left
	overlap bool // calls of an earlier Task were out when the next began: all but what a lease forbids
}

// A taskLife is one Task, and its link to the host.
type taskLife struct {
	dead  atomic.Bool   // its process was killed
	out   atomic.Int32  // its calls
	death chan struct{} // cuts them off
	stop  context.CancelFunc
	done  chan struct{}
	lease *provisionertest.Lease
}

func newIdentitySoak(t *testing.T, seed uint64) *identitySoak {
	s := &identitySoak{soak: soak{t: t, r: rand.New(rand.NewPCG(seed, 7)), next: 100}}
	s.set = provisionertest.Settings{Controller: "c", Seed: seed, Echo: s.pick(2), Reports: s.pick(2), LostReplies: provisionertest.NeverLost,
		Visibility: s.seconds(0, 25), // less than any VisibilityGrace below
		Traits:     provisioner.Traits{DedupesByToken: s.pick(2), ConsistentReads: s.pick(2), Labels: s.pick(2)}}
	if s.pick(2) {
		s.set.LostReplies = 3 + s.r.IntN(20)
	}
	s.w, s.leased = provisionertest.New(s.set), s.pick(4)
	b, st := s.w.Broker(), s.w.State()
	s.host = provisionertest.Host{Broker: s.w.PlainBroker(), State: s.w.PlainState(),
		Optional: provisioner.Optional{Traits: b, Life: st, Retries: st, Groups: st}}
	o := &s.host.Optional
	for _, give := range []func(){
		func() { o.Zones = b }, func() { o.Deriver = b }, func() { o.Finder = b },
		func() { o.Intents = st }, func() { o.Status = st }, func() { o.Authenticator = st },
	} {
		if s.pick(2) {
			give()
		}
	}
	s.cfg = provisioner.Config{
		Controller: "c",
		Policy:     provisioner.Policy{Retry: provisioner.RetryPolicy{Retries: 1 + s.r.IntN(4)}, MaxSkew: max(0, s.r.IntN(6)-3)},
		Limits:     s.limits(),
	}
	if s.pick(4) {
		s.cfg.Policy.Retry.Deadline = s.seconds(30, 300)
	}
	if s.pick(3) {
		s.cfg.LaunchTimeout = s.seconds(2, 30)
	}
	if s.pick(3) {
		s.cfg.ShutdownGrace = provisioner.Off
	}
	if s.pick(3) {
		s.cfg.Policy.Harvest = provisioner.HarvestAll
	}
	if s.pick(3) {
		s.cfg.VisibilityGrace = 26 * time.Second
	}
	s.must(s.w.Load(provisionertest.NewFleet(2+s.r.IntN(8), 1+s.r.IntN(3), s.r.IntN(3))))
	return s
}

func (s *identitySoak) seconds(from, to int) time.Duration {
	return time.Duration(from+s.r.IntN(to-from)) * time.Second
}

func (s *identitySoak) limits() provisioner.Limits {
	return provisioner.Limits{Starts: 1 + s.r.IntN(6), ContainerStarts: 1, Stops: 1 + s.r.IntN(3)}
}

func (s *identitySoak) sleep(most time.Duration) {
	time.Sleep(time.Duration(s.r.Int64N(int64(most)))) // in a bubble
}

// searches: what was made is found again.
func (s *identitySoak) searches() bool { return s.host.Optional.Finder != nil || s.set.Traits.Labels }

// tells: of what was begun it is known what came of it.
func (s *identitySoak) tells() bool {
	return s.searches() || s.set.Traits.DedupesByToken && s.host.Optional.Intents != nil
}

func (s *identitySoak) play() {
	s.begin()
	for range 5 + s.r.IntN(25) {
		s.sleep(15 * time.Second)
		s.deed()
	}
	s.settle()
	for _, l := range s.lives {
		l.dead.Store(false) // what is still under way may end
		l.stop()
		<-l.done
	}
	s.w.Release()
	time.Sleep(12 * time.Hour) // in a bubble
	synctest.Wait()
	if n := s.w.OpenWatchers(); n != 0 {
		s.t.Errorf("LC2: %d watchers are open", n)
	}
}

// begin makes a Task, and lets it run.
func (s *identitySoak) begin() {
	l := &taskLife{death: make(chan struct{}), done: make(chan struct{})}
	s.lives = append(s.lives, l)
	cfg := s.cfg
	if s.leased {
		l.lease = s.w.TakeLease()
		cfg.Lease = l.lease
	}
	provisionertest.Intercept(s.host, func(ctx context.Context, c provisionertest.HostCall, do func(context.Context) error) error {
		if l.lease != nil && c.Call.Writes() && !l.lease.Held() {
			s.t.Errorf("LC6: %s of %v %v without the lease", c.Call, c.Machines, c.Instances)
		}
		return l.call(ctx, do)
	}).Configure(&cfg)
	cfg.Observers = []provisioner.Observer{s.w}
	cfg.Changes, cfg.Retry = s.w.Changes(), s.w.Retries()
	task, err := provisioner.New(cfg)
	s.must(err)
	var ctx context.Context
	ctx, l.stop = context.WithCancel(s.t.Context())
	s.task = task
	go func() {
		defer close(l.done)
		_ = task.Run(ctx)
	}()
}

// call makes a call, unless its process is dead; a dead one gets no reply.
func (l *taskLife) call(ctx context.Context, do func(context.Context) error) error {
	if !l.dead.Load() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		l.out.Add(1)
		ended := make(chan struct{})
		go func() {
			select {
			case <-l.death:
				cancel()
			case <-ended:
			}
		}()
		defer func() { // also when it panics
			close(ended)
			l.out.Add(-1)
		}()
		if err := do(ctx); !l.dead.Load() {
			return err
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(30 * time.Minute): // nobody drives the Task any more, so nobody ends its calls
	}
	return errors.New("its process is dead")
}

// deed does one thing to the world or the Task; what does not fit is nothing.
func (s *identitySoak) deed() {
	id := s.machine()
	defer func() {
		if m, ok := s.w.Machine(id); !ok || m.Life != provisioner.Alive && m.Instance == "" {
			s.bareAt = time.Now()
		}
	}()
	switch s.r.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		s.fault(id)
	case 6:
		if m, ok := s.w.Machine(id); ok && m.Life == provisioner.Alive { // no life goes back
			_ = s.w.SetLife(id, provisioner.Dying)
		}
	case 7, 8:
		_ = s.w.SetLife(id, provisioner.Dead)
	case 9:
		s.next++
		_ = s.w.AddPending(provisioner.MachineID(fmt.Sprint(s.next)), id.Top()+provisioner.MachineID(fmt.Sprintf("/lxd/%d", s.next)))
	case 10:
		s.retry()
	case 11, 12:
		s.w.SetZone([]provisioner.ZoneName{"a", "b"}[s.r.IntN(2)], s.pick(2))
	case 13:
		if m, ok := s.w.Machine(id); ok && m.Instance == "" && s.pick(2) {
			s.reused = true
			_ = s.w.Forget(id)
			s.sleep(3 * time.Second)
			_ = s.w.AddPending(id)
		}
	case 14:
		s.appear(id)
	case 15:
		s.must(s.task.SetLimits(s.limits()))
	case 16:
		s.within(30*time.Second, func(ctx context.Context) { _, _ = s.task.Reconcile(ctx) })
	case 17:
		if plan, err := s.task.Plan(s.t.Context()); err == nil {
			s.sleep(3 * time.Second)
			s.within(time.Minute, func(ctx context.Context) { _, _ = s.task.Apply(ctx, plan) })
		}
	case 18, 19:
		s.restart()
	}
}

func (s *identitySoak) within(most time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(s.r.Int64N(int64(most))))
	defer cancel()
	do(ctx)
}

// appear lets an instance show that is labelled for a machine, as if an attempt
// had come true late.
func (s *identitySoak) appear(id provisioner.MachineID) {
	s.next++
	s.strange = true
	i := provisioner.Instance{ID: provisioner.InstanceID(fmt.Sprintf("late-%d", s.next)), Zone: "a",
		Labels: provisioner.Labels{Controller: "c", Machine: id, Nonce: "c:late", Token: fmt.Sprint("late", s.next)}}
	if s.pick(4) {
		i.Labels.Controller = "other"
	}
	if s.pick(3) { // those are not stopped as one too many
		s.reused = true
		i.State = []provisioner.InstanceState{provisioner.InstanceStarting, provisioner.InstanceStopped, provisioner.InstanceTerminated}[s.r.IntN(3)]
	}
	if s.pick(2) {
		i.Created = time.Now().Add(-s.seconds(0, 1000))
	}
	_ = s.w.AddInstance(i)
}

// restart puts a Task in the place of another, which is killed, told to end, or
// deprived of its lease in the middle.
func (s *identitySoak) restart() {
	l := s.lives[len(s.lives)-1]
	s.forgot = s.forgot || time.Since(s.bareAt) < 3*time.Minute
	switch way := s.r.IntN(3); {
	case way == 0:
		l.dead.Store(true)
		close(l.death)
		l.stop()
	case way == 1 || !s.leased:
		l.stop()
		<-l.done
	}
	synctest.Wait()
	s.overlap = s.overlap || l.out.Load() > 0
	if s.pick(2) {
		s.sleep(time.Minute)
	}
	s.begin()
}

// fault scripts trouble of any kind, save lies of the broker: that there is no
// instance where there is one.
func (s *identitySoak) fault(id provisioner.MachineID) {
	calls := provisionertest.Calls()
	for range 5 { // what identity is about, more often
		calls = append(calls, provisionertest.CallStart, provisionertest.CallRecord, provisionertest.CallIntent, provisionertest.CallFind, provisionertest.CallList)
	}
	troubles := []provisionertest.Trouble{provisionertest.TroubleError, provisionertest.TroubleError, provisionertest.TroubleDelay, provisionertest.TroublePanic,
		provisionertest.TroubleGoexit, provisionertest.TroubleHang, provisionertest.TroubleStuck, provisionertest.TroubleMissing,
		provisionertest.TroubleDouble, provisionertest.TroubleForeign, provisionertest.TroubleAstray, provisionertest.TroubleEmpty, provisionertest.TroublePartial}
	marks := []provisionertest.Mark{"", "", provisionertest.MarkZoneIndependent, provisionertest.MarkPermanent, provisionertest.MarkCapacity, provisionertest.MarkQuota}
	unknown := []provisionertest.Mark{provisionertest.MarkAmbiguous, provisionertest.MarkExists, provisionertest.MarkTimeout}
	f := provisionertest.Fault{Call: calls[s.r.IntN(len(calls))], Count: 1 + s.r.IntN(3), What: troubles[s.r.IntN(len(troubles))], After: s.pick(2)}
	if s.pick(2) {
		f.Machine = id
	}
	looks := f.Call == provisionertest.CallList || f.Call == provisionertest.CallFind
	switch f.What {
	case provisionertest.TroubleDelay, provisionertest.TroubleStuck:
		f.For = s.seconds(1, 400)
	case provisionertest.TroubleError:
		if f.Call != provisionertest.CallStart || !f.After {
			unknown = append(unknown, marks...)
		}
		f.Mark = unknown[s.r.IntN(len(unknown))]
	case provisionertest.TroubleMissing:
		if looks {
			return
		}
	}
	if f.Validate() == nil {
		s.must(s.w.Inject(f))
	}
}

// settle ends the trouble, waits for everything to come to rest, and looks.
func (s *identitySoak) settle() {
	s.w.ClearFaults()
	s.w.Release()
	s.w.SetZone("a", true)
	s.w.SetZone("b", true)
	for range 4 {
		s.retry()
		time.Sleep(20 * time.Minute) // in a bubble
	}
	synctest.Wait()
	var wrong []string
	if s.searches() && !s.reused && !s.forgot && !s.overlap {
		wrong = append(wrong, s.left()...)
	}
	if s.tells() && !s.strange && !s.reused && !s.overlap {
		for _, d := range s.w.Doubles() {
			wrong = append(wrong, d.String())
		}
	}
	if s.leased || !s.overlap {
		for _, x := range s.w.WrongStops() {
			wrong = append(wrong, x.String())
		}
	}
	for _, m := range s.w.Machines() {
		waits := m.ID.IsContainer() || !s.searches() // its host may be going away, or what is unknown stays so
		if m.Life == provisioner.Dead || m.Life == provisioner.Alive && m.Instance == "" && !waits {
			x, _ := s.task.Explain(m.ID)
			wrong = append(wrong, fmt.Sprintf("machine %s did not come to rest: %+v\n%v", m.ID, m, x))
		}
	}
	if orphans := s.task.Orphans(); orphans != nil {
		wrong = append(wrong, fmt.Sprintf("orphans: %v", orphans))
	}
	if wrong != nil {
		s.fail(fmt.Sprintf("%s\n%+v\n%+v", strings.Join(wrong, "\n"), s.set, s.host.Optional))
	}
}

// left is what was left behind by the Task. An alive container's instance waits
// for its host, what appeared for a machine that is gone is unknown, and more
// than three at once freeze the harvest.
func (s *identitySoak) left() (texts []string) {
	leaks := s.w.Leaks()
	for _, l := range leaks {
		m, there := s.w.Machine(l.Machine)
		host, _ := s.w.Machine(l.Machine.Host())
		waits := there && l.Machine.IsContainer() && host.Life != provisioner.Alive
		if waits || s.strange && (!there || m.Instance == "" || len(leaks) > 3) {
			continue
		}
		texts = append(texts, l.String())
	}
	return texts
}
