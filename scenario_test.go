package provisioner_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/groups"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// Scenario files show behaviour as text: directives, and below "----" what
// came of them, up to an empty line. They are run in a bubble of virtual time
// against an in-memory World, whose calls each arrive at an instant of their
// own, so a transcript is the same each time. After a change of behaviour run
//
//	go test -run TestScenarios -update .
//
// and review the difference.
//
// Directives, one a line; # begins a comment:
//
//	world kind | lossy | finds | intents | spares | asks | nameless | labels | dedupes | consistent | echo | reports | asksgroup | CALL=LATENCY   how the World is; before all else
//	config NAME=VALUE…    of the Task: retries zonedelay rounddelay jitter=off deadline harvest tie starts containers stops profiles containerprofiles profileretries launch call rollback grace resync refresh visibility sweep unknowngrace maxunknown draintime cooldown skew minzones weight=ZONE:N startevery stopevery
//	lacks NAME…           abilities that the host does not have: status life groups zones derive maintain retries auth profilebroker profilestream
//	zones a b c!          the broker's zones; ! is unavailable
//	zone a up|down|gone|full
//	machine ID [life=] [instance=] [zone=] [keep] [status=] [istatus=] [only=a,b] [want=CONSTRAINTS] [derived=a,b] [unread=instance,status,istatus,keep]
//	group KEY ID…
//	profiles [model=M] [apps=A,B]   the host can have profile changes, and what it knows of names; before the Task is made
//	profile ID [old=NAME] [new=NAME] [subordinate] [word=WORD]   gives it a change
//	withdraw ID           takes its change back
//	given INSTANCE NAME…  profiles that an instance has
//	foreign ID [zone=] [machine=] [controller=] [nonce=] [token=] [state=] [age=]
//	intent ID N@ZONE      an attempt that an earlier life has stored
//	fault LINE            as provisionertest.ParseFault reads it; faults clear; release
//	unread ID none|instance,status,istatus,keep | unlisted INSTANCE DURATION | vanish INSTANCE
//	life ID LIFE | keep ID | unkeep ID | forget ID | off INSTANCE | status ID STATUS ISTATUS | retryable ID | has ID INSTANCE
//	changed ID…           tells of a change that was none
//	retry                 sends a retry signal
//	close changes|retries|profiles closes a watcher
//	show CALL…            shows these calls too; hide CALL… hides them; events shows events
//	run DURATION          lets the Task run on; starts it the first time
//	sleep DURATION        lets time pass without starting anything
//	reconcile [DURATION]  one look; the context ends after DURATION
//	mode MODE | limits starts=N containers=N stops=N profiles=N containerprofiles=N
//	frozen | approve [PLAN] | reap INSTANCE… | instance ID   what is frozen, or approves it; asks for spared ones; explains an instance
//	veto on|off | drain fails|hangs|waits|works   what the host says before a stop, where the world asks
//	topology WORD… | kept-apart ID…   who hosts what, and who is kept apart from whom
//	plan | apply | explain ID | why ID | check | state | documents | stop | restart
//
// run and the last two lines give output, and so does what follows "plan".
var update = flag.Bool("update", false, "rewrite the expected parts of testdata")

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "scenarios", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = playScenario(t, string(want)) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got; see the comment of -update):\n%s", file, diff)
			}
		})
	}
}

// playScenario runs the directives of a scenario and returns its whole text
// with the outputs that came of them.
func playScenario(t *testing.T, text string) string {
	s := &scene{t: t, cfg: provisioner.Config{Controller: "ctl"}, set: provisionertest.Settings{Controller: "ctl", LostReplies: provisionertest.NeverLost}}
	s.hidden = map[provisionertest.Call]bool{}
	for _, c := range provisionertest.Calls() {
		s.hidden[c] = true
	}
	for _, c := range []provisionertest.Call{"start", "stop", "record", "rm", "status", "dead", "maintain", "spare", "unspare"} {
		s.hidden[c] = false
	}
	var out strings.Builder
	block, skip := "", false
	flush := func() {
		if block != "" {
			out.WriteString("----\n" + block)
		}
		block = ""
	}
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "----":
			skip = true
			continue
		case trimmed == "":
			flush()
			out.WriteString("\n")
			skip = false
			continue
		case skip:
			continue
		}
		out.WriteString(line + "\n")
		if !strings.HasPrefix(trimmed, "#") {
			block += s.do(trimmed)
			synctest.Wait() // each deed is seen by itself, whoever runs first
		}
	}
	flush()
	s.end()
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// A scene is a scenario being played.
type scene struct {
	t      *testing.T
	set    provisionertest.Settings
	world  *provisionertest.World
	cfg    provisioner.Config
	lacks  []string
	extra  []string
	hidden map[provisionertest.Call]bool
	events bool
	shown  int

	task   *provisioner.Task
	cancel context.CancelFunc
	ended  chan error
	plan   provisioner.Plan

	vetoed atomic.Bool
	drains atomic.Value

	topology *groups.Topology
	profiles bool
	changes  int // of profiles, so far
}

func (s *scene) w() *provisionertest.World {
	if s.world == nil {
		s.world = provisionertest.New(s.set)
	}
	return s.world
}

// do runs one directive and returns its output.
func (s *scene) do(line string) string {
	name, rest, _ := strings.Cut(line, " ")
	args := strings.Fields(rest)
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		s.t.Fatalf("%q: want more words", line)
		return ""
	}
	ids := func() (ids []provisioner.MachineID) {
		for _, a := range args {
			ids = append(ids, provisioner.MachineID(a))
		}
		return ids
	}
	must := func(err error) {
		if err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
	}
	switch name {
	case "world":
		for _, a := range args {
			switch a {
			case "kind":
				s.set.Kind = true
			case "finds", "intents", "spares", "asks", "nameless": // abilities that a host has only if it is said
				s.extra = append(s.extra, a)
			case "lossy":
				s.set.LostReplies = 0
			case "labels":
				s.set.Traits.Labels = true
			case "dedupes":
				s.set.Traits.DedupesByToken = true
			case "consistent":
				s.set.Traits.ConsistentReads = true
			case "echo":
				s.set.Echo = true
			case "reports":
				s.set.Reports = true
			case "asksgroup":
				s.set.AsksGroup = true
			default:
				call, v, _ := strings.Cut(a, "=")
				d, err := time.ParseDuration(v)
				must(err)
				if d == 0 {
					d = provisioner.Off
				}
				if s.set.Latency == nil {
					s.set.Latency = map[provisionertest.Call]time.Duration{}
				}
				s.set.Latency[provisionertest.Call(call)] = d
			}
		}
	case "config":
		for _, a := range args {
			must(s.configure(a))
		}
	case "lacks":
		s.lacks = append(s.lacks, args...)
	case "zones":
		var zones []provisioner.Zone
		for _, a := range args {
			n, down := strings.CutSuffix(a, "!")
			zones = append(zones, provisioner.Zone{Name: provisioner.ZoneName(n), Available: !down})
		}
		s.w().SetZones(zones...)
	case "zone":
		z := provisioner.ZoneName(arg(0))
		switch arg(1) {
		case "up", "down":
			s.w().SetZone(z, arg(1) == "up")
		case "gone":
			s.w().RemoveZone(z)
		case "full":
			s.w().SetCapacity(z, 0)
		case "room":
			s.w().SetCapacity(z, -1)
		}
	case "machine":
		must(s.machine(args))
	case "group":
		s.w().SetGroup(strings.TrimPrefix(arg(0), "-"), ids()[1:]...) // - is no key
	case "profiles":
		s.profiles = true
		for _, c := range []provisionertest.Call{"change-profile", "set-profiles", "profile-status", "rm-profile"} {
			s.hidden[c] = false
		}
		for _, a := range args {
			if v, ok := strings.CutPrefix(a, "model="); ok {
				s.cfg.ProfileNaming.Model = v
			} else if v, ok := strings.CutPrefix(a, "apps="); ok {
				s.cfg.ProfileNaming.Applications = strings.Split(v, ",")
			}
		}
	case "profile":
		must(s.profileChange(args))
	case "withdraw":
		c := s.w().ProfileChange(ids()[0])
		must(s.w().State().RemoveProfileChange(s.t.Context(), provisioner.Removal{Machine: c.Machine, Change: c.ID}))
	case "given":
		must(s.w().SetInstanceProfiles(provisioner.InstanceID(arg(0)), args[1:]...))
	case "foreign":
		must(s.foreign(args))
	case "veto":
		s.vetoed.Store(arg(0) == "on")
	case "drain":
		s.drains.Store(arg(0))
	case "frozen":
		f := s.made().Frozen()
		if f == nil {
			return "not frozen\n"
		}
		return fmt.Sprintf("plan %s since %s, calm %d: %v\n  %s\n", f.Plan, f.Since.UTC().Format(time.TimeOnly), f.Calm, f.Instances, f.Reason)
	case "approve":
		plan := strings.Join(args, "")
		if f := s.made().Frozen(); f != nil && plan == "" {
			plan = f.Plan
		}
		if err := s.made().Approve(plan); err != nil {
			return "error: " + err.Error() + "\n"
		}
	case "reap":
		var instances []provisioner.InstanceID
		for _, a := range args {
			instances = append(instances, provisioner.InstanceID(a))
		}
		if err := s.made().ReapSpared(instances...); err != nil {
			return "error: " + err.Error() + "\n"
		}
	case "instance":
		x, err := s.made().ExplainInstance(provisioner.InstanceID(arg(0)))
		must(err)
		return x.String()
	case "intent":
		n, zone, _ := strings.Cut(arg(1), "@")
		attempt, err := strconv.Atoi(n)
		must(err)
		must(s.w().State().SwapIntent(s.t.Context(), provisioner.Intent{}, provisioner.Intent{Machine: ids()[0], Attempt: attempt,
			Token: "token-" + n, Nonce: "ctl:earlier", Zone: provisioner.ZoneName(zone), At: time.Now()}))
	case "fault":
		f, err := provisionertest.ParseFault(rest)
		must(err)
		must(s.w().Inject(f))
	case "faults":
		s.w().ClearFaults()
	case "release":
		s.w().Release()
	case "life":
		must(s.w().SetLife(ids()[0], provisioner.Life(arg(1))))
	case "keep", "unkeep":
		must(s.w().SetKeep(ids()[0], name == "keep"))
	case "forget":
		must(s.w().Forget(ids()...))
	case "off":
		must(s.w().PowerOff(provisioner.InstanceID(arg(0))))
	case "unlisted":
		d, err := time.ParseDuration(arg(1))
		must(err)
		must(s.w().Hide(d, provisioner.InstanceID(arg(0))))
	case "vanish":
		must(s.w().Vanish(provisioner.InstanceID(arg(0))))
	case "unread":
		unread, err := fields(arg(1))
		must(err)
		must(s.w().Edit(ids()[0], func(m *provisioner.Machine) { m.Unread = unread }))
	case "status":
		must(s.w().SetStatus(ids()[0], provisioner.Status(arg(1)), provisioner.InstanceStatus(strings.Join(args[2:], " "))))
	case "retryable":
		must(s.w().SetRetryable(ids()[0], true))
	case "has":
		instance := provisioner.InstanceID(strings.TrimPrefix(arg(1), "-")) // - is none
		must(s.w().Edit(ids()[0], func(m *provisioner.Machine) { m.Instance = instance }))
	case "changed":
		s.w().Changed(ids()...)
	case "retry":
		s.w().Tick()
	case "close":
		map[string]func(error){"changes": s.w().CloseChanges, "retries": s.w().CloseRetries,
			"profiles": s.w().CloseProfileChanges}[arg(0)](fmt.Errorf("the host went away"))
	case "show", "hide":
		for _, a := range args {
			s.hidden[provisionertest.Call(a)] = name == "hide"
		}
	case "events":
		s.events = true
	case "run":
		d, err := time.ParseDuration(arg(0))
		must(err)
		s.start()
		time.Sleep(d)
		synctest.Wait()
		return s.news() + s.runEnded()
	case "sleep":
		d, err := time.ParseDuration(arg(0))
		must(err)
		time.Sleep(d)
		synctest.Wait()
		return s.news()
	case "reconcile":
		ctx := s.t.Context()
		if len(args) > 0 {
			d, err := time.ParseDuration(arg(0))
			must(err)
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, d)
			defer cancel()
		}
		report, err := s.made().Reconcile(ctx)
		return s.news() + reportText(report, err)
	case "mode":
		mode, err := provisioner.ParseHarvestMode(arg(0))
		must(err)
		must(s.made().SetHarvestMode(mode))
	case "limits":
		var l provisioner.Limits
		for _, a := range args {
			k, v, _ := strings.Cut(a, "=")
			n, err := strconv.Atoi(v)
			must(err)
			switch k {
			case "starts":
				l.Starts = n
			case "containers":
				l.ContainerStarts = n
			case "stops":
				l.Stops = n
			case "profiles":
				l.Profiles = n
			case "containerprofiles":
				l.ContainerProfiles = n
			}
		}
		must(s.made().SetLimits(l))
	case "plan":
		var err error
		if s.plan, err = s.made().Plan(s.t.Context()); err != nil {
			return "error: " + err.Error() + "\n"
		}
		s.news()
		return strings.ReplaceAll(s.plan.String(), "\n\n", "\n")
	case "apply":
		report, err := s.made().Apply(s.t.Context(), s.plan)
		return s.news() + reportText(report, err)
	case "explain":
		x, err := s.made().Explain(ids()[0])
		if err != nil {
			return "error: " + err.Error() + "\n"
		}
		return x.String()
	case "why":
		x, err := s.made().Explain(ids()[0])
		must(err)
		var failed *provisioner.StartError
		if errors.As(x.LastError, &failed) {
			return failed.Table()
		}
		return fmt.Sprintf("no start error: %v\n", x.LastError)
	case "check":
		if err := s.w().Check(); err != nil {
			return "wrong: " + err.Error() + "\n"
		}
		return "nothing wrong\n"
	case "state":
		return s.state()
	case "documents":
		return s.documents()
	case "stop":
		s.cancel()
		err := <-s.ended
		s.task, s.ended = nil, nil
		return s.news() + fmt.Sprintf("run ended: %v\n", err)
	case "topology":
		must(s.setTopology(args))
	case "kept-apart":
		return s.keptApart(ids())
	case "restart":
		s.task, s.ended = nil, nil
	default:
		s.t.Fatalf("%q: unknown directive", line)
	}
	return ""
}

func (s *scene) configure(arg string) error {
	k, v, _ := strings.Cut(arg, "=")
	n, _ := strconv.Atoi(v)
	d, err := time.ParseDuration(v)
	if v == "off" {
		d, err, n = provisioner.Off, nil, -1
	}
	p, l := &s.cfg.Policy, &s.cfg.Limits
	durations := map[string]*time.Duration{
		"zonedelay": &p.Retry.ZoneDelay, "rounddelay": &p.Retry.RoundDelay, "deadline": &p.Retry.Deadline,
		"launch": &s.cfg.LaunchTimeout, "call": &s.cfg.CallTimeout, "rollback": &s.cfg.RollbackTimeout,
		"grace": &s.cfg.ShutdownGrace, "resync": &s.cfg.Resync, "refresh": &s.cfg.ZoneRefresh, "visibility": &s.cfg.VisibilityGrace,
		"sweep": &s.cfg.Sweep, "unknowngrace": &p.UnknownGrace, "draintime": &s.cfg.DrainTimeout, "cooldown": &p.ZoneCooldown,
	}
	if to, ok := durations[k]; ok {
		*to = d
		return err
	}
	switch k {
	case "startevery":
		s.cfg.StartLimiter = &every{d: d}
		return err
	case "stopevery":
		s.cfg.StopLimiter = &every{d: d}
		return err
	case "retries":
		p.Retry.Retries = n
		if n == 0 {
			p.Retry.Retries = provisioner.NoRetries
		}
	case "maxunknown":
		p.MaxUnknown = n
	case "profileretries":
		p.Profiles.Retries = n
		if n == 0 {
			p.Profiles.Retries = provisioner.NoRetries
		}
	case "jitter":
		p.Retry.Jitter, p.Backoff.Jitter, p.Profiles.Jitter = provisioner.NoJitter, provisioner.NoJitter, provisioner.NoJitter
	case "harvest":
		p.Harvest, err = provisioner.ParseHarvestMode(v)
		return err
	case "tie":
		p.Tie = provisioner.TieName
	case "skew":
		p.MaxSkew = n
	case "minzones":
		p.MinZones = n
	case "weight":
		zone, weight, _ := strings.Cut(v, ":")
		if p.Weights == nil {
			p.Weights = map[provisioner.ZoneName]int{}
		}
		p.Weights[provisioner.ZoneName(zone)], err = strconv.Atoi(weight)
		return err
	case "starts":
		l.Starts = n
	case "containers":
		l.ContainerStarts = n
	case "stops":
		l.Stops = n
	case "profiles":
		l.Profiles = n
	case "containerprofiles":
		l.ContainerProfiles = n
	default:
		return fmt.Errorf("unknown setting %q", k)
	}
	return nil
}

// every is a Limiter that lets one pass in each d.
type every struct {
	d    time.Duration
	mu   sync.Mutex
	free time.Time
}

func (l *every) Wait(ctx context.Context) error {
	l.mu.Lock()
	at := l.free
	if now := time.Now(); at.Before(now) {
		at = now
	}
	l.free = at.Add(l.d)
	l.mu.Unlock()
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *scene) machine(args []string) error {
	m := provisionertest.Pending(provisioner.MachineID(args[0]))
	var info *provisioner.StartInfo
	var derived []provisioner.ZoneName
	for _, a := range args[1:] {
		k, v, _ := strings.Cut(a, "=")
		v = strings.ReplaceAll(v, "_", " ")
		switch k {
		case "life":
			m.Life = provisioner.Life(v)
		case "instance":
			m.Instance = provisioner.InstanceID(v)
			m.Status, m.InstanceStatus = provisioner.StatusStarted, provisioner.InstanceRunning
		case "zone":
			m.Zone = provisioner.ZoneName(v)
		case "keep":
			m.Keep = true
		case "status":
			m.Status = provisioner.Status(v)
		case "istatus":
			m.InstanceStatus = provisioner.InstanceStatus(v)
		case "only":
			info = &provisioner.StartInfo{Constraints: constraints.Value{Zones: strings.Split(v, ",")}}
		case "want":
			value, err := constraints.Parse(v)
			if err != nil {
				return err
			}
			info = &provisioner.StartInfo{Constraints: value}
		case "derived":
			for _, z := range strings.Split(v, ",") {
				derived = append(derived, provisioner.ZoneName(z))
			}
		case "unread":
			var err error
			if m.Unread, err = fields(v); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unknown word %q", a)
		}
	}
	if err := s.w().Add(m); err != nil {
		return err
	}
	if info != nil {
		if err := s.w().SetStartInfo(m.ID, *info); err != nil {
			return err
		}
	}
	if derived != nil {
		return s.w().SetDerived(m.ID, derived...)
	}
	return nil
}

// fields reads names of fields, or "none".
func fields(names string) (set provisioner.Fields, err error) {
	known := map[string]provisioner.Fields{"none": 0, "instance": provisioner.FieldInstance, "status": provisioner.FieldStatus,
		"istatus": provisioner.FieldInstanceStatus, "keep": provisioner.FieldKeep}
	for name := range strings.SplitSeq(names, ",") {
		f, ok := known[name]
		if !ok {
			return 0, fmt.Errorf("unknown field %q", name)
		}
		set |= f
	}
	return set, nil
}

func (s *scene) profileChange(args []string) error {
	s.changes++
	c := provisioner.ProfileChange{Machine: provisioner.MachineID(args[0]), ID: fmt.Sprintf("c%d", s.changes)}
	for _, a := range args[1:] {
		k, v, _ := strings.Cut(a, "=")
		v = strings.ReplaceAll(v, "_", " ")
		switch k {
		case "old":
			c.Old = v
		case "new":
			c.Profile = &provisioner.Profile{Name: v}
		case "subordinate":
			c.Subordinate = true
		case "word":
			c.Status = v
		default:
			return fmt.Errorf("unknown word %q", a)
		}
	}
	return s.w().SetProfileChange(c)
}

// documents shows each machine's recorded profiles and what became of its
// change.
func (s *scene) documents() string {
	var b strings.Builder
	for _, m := range s.w().Machines() {
		c := s.w().ProfileChange(m.ID)
		document := "none"
		if c.Machine != "" {
			document = fmt.Sprintf("%s %q", c.ID, c.Status)
		}
		fmt.Fprintf(&b, "machine %s recorded %v, document %s\n", m.ID, s.w().Profiles(m.ID), document)
	}
	return b.String()
}

func (s *scene) foreign(args []string) error {
	i := provisioner.Instance{ID: provisioner.InstanceID(args[0])}
	for _, a := range args[1:] {
		k, v, _ := strings.Cut(a, "=")
		switch k {
		case "zone":
			i.Zone = provisioner.ZoneName(v)
		case "machine":
			i.Labels.Machine = provisioner.MachineID(v)
		case "controller":
			i.Labels.Controller = v
		case "nonce":
			i.Labels.Nonce = v
		case "token":
			i.Labels.Token = v
		case "state":
			i.State = provisioner.InstanceState(v)
		case "age":
			d, err := time.ParseDuration(v)
			if err != nil {
				return err
			}
			i.Created = time.Now().Add(-d)
		default:
			return fmt.Errorf("unknown word %q", a)
		}
	}
	return s.w().AddInstance(i)
}

// A namelessBroker lists one instance more, without an id.
type namelessBroker struct{ provisioner.Broker }

func (b namelessBroker) Instances(ctx context.Context) (provisioner.Listing, error) {
	l, err := b.Broker.Instances(ctx)
	l.Instances = append(l.Instances, provisioner.Instance{})
	return l, err
}

func (s *scene) mayStop(_ context.Context, n provisioner.StopNotice) error {
	if s.vetoed.Load() {
		return fmt.Errorf("%s is needed", n.Instance)
	}
	return nil
}

func (s *scene) drain(ctx context.Context, n provisioner.StopNotice) error {
	switch s.drains.Load() {
	case "fails":
		return fmt.Errorf("%s is busy", n.Instance)
	case "hangs":
		<-ctx.Done()
		return ctx.Err()
	case "waits":
		for s.drains.Load() == "waits" {
			time.Sleep(time.Second) // in a bubble
		}
	}
	return nil
}

// made makes the Task, if there is none.
func (s *scene) made() *provisioner.Task {
	if s.task != nil {
		return s.task
	}
	cfg := s.cfg
	broker, state := s.w().Broker(), s.w().State()
	cfg.Broker, cfg.State = s.w().PlainBroker(), s.w().PlainState()
	has := func(name string) bool { return !slices.Contains(s.lacks, name) }
	o := &cfg.Optional
	o.Traits = broker
	if has("zones") {
		o.Zones = broker
	}
	if has("derive") {
		o.Deriver = broker
	}
	if has("maintain") {
		o.Maintainer = broker
	}
	if has("status") {
		o.Status = state
	}
	if has("life") {
		o.Life = state
	}
	if has("groups") {
		o.Groups = state
	}
	if has("retries") {
		o.Retries = state
	}
	if has("auth") {
		o.Authenticator = state
	}
	if s.profiles {
		o.ProfileState = state
	}
	if s.profiles && has("profilestream") {
		cfg.ProfileChanges = s.w().ProfileChanges()
	}
	if s.profiles && has("profilebroker") {
		o.Profiles = broker
	}
	if slices.Contains(s.extra, "finds") {
		o.Finder = broker
	}
	if slices.Contains(s.extra, "intents") {
		o.Intents = state
	}
	if slices.Contains(s.extra, "spares") {
		o.SparedStore = state
	}
	if slices.Contains(s.extra, "nameless") {
		cfg.Broker = namelessBroker{cfg.Broker}
	}
	if slices.Contains(s.extra, "asks") {
		cfg.Veto, cfg.Drain = provisioner.VetoFunc(s.mayStop), provisioner.DrainFunc(s.drain)
	}
	cfg.Changes, cfg.Retry = s.w().Changes(), s.w().Retries()
	random := uint64(0)
	cfg.Random = func() uint64 { random += 0x9e3779b97f4a7c15; return random }
	cfg.Observers = []provisioner.Observer{s.w(), asDocumented(s.t)}
	task, err := provisioner.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.task = task
	return task
}

func (s *scene) start() {
	task := s.made()
	if s.ended != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	s.cancel, s.ended = cancel, make(chan error, 1)
	go func() { s.ended <- task.Run(ctx) }()
}

func (s *scene) runEnded() string {
	select {
	case err := <-s.ended:
		s.task, s.ended = nil, nil
		return fmt.Sprintf("run ended: %v\n", err)
	default:
		return ""
	}
}

// end lets go of everything, so that the bubble can end.
func (s *scene) end() {
	if s.world != nil {
		s.world.ClearFaults()
		s.world.Release()
	}
	if s.ended != nil {
		s.cancel()
		<-s.ended
	}
	time.Sleep(time.Hour) // in a bubble: for calls that are stuck for a time
}

// news shows what has happened since it was asked last.
func (s *scene) news() string {
	var b strings.Builder
	records := s.w().Records()
	for _, r := range records[s.shown:] {
		if r.Phase == provisionertest.Begin || r.Phase == provisionertest.Deed || r.Phase == provisionertest.Seen && !s.events || r.Phase == provisionertest.End && s.hidden[r.Call] {
			continue
		}
		fmt.Fprintf(&b, "%8.3fs %s\n", r.At.Seconds(), strings.ReplaceAll(r.String(), "\n", " "))
	}
	s.shown = len(records)
	return b.String()
}

// setTopology reads machines and units, one a word: "3" is a machine, "3=i3" one
// that is provisioned, "*5=i5" a controller's; "mysql@0" is a unit, "mysql@" one
// that is not assigned, "-nrpe@0" a subordinate one.
func (s *scene) setTopology(words []string) (err error) {
	var machines []groups.Machine
	var units []groups.Unit
	for _, word := range words {
		if application, machine, unit := strings.Cut(word, "@"); unit {
			application, subordinate := strings.CutPrefix(application, "-")
			units = append(units, groups.Unit{Application: application, Machine: provisioner.MachineID(machine), Subordinate: subordinate})
			continue
		}
		word, controller := strings.CutPrefix(word, "*")
		id, instance, _ := strings.Cut(word, "=")
		machines = append(machines, groups.Machine{ID: provisioner.MachineID(id), Instance: provisioner.InstanceID(instance), Controller: controller})
	}
	s.topology, err = groups.NewTopology(machines, units)
	return err
}

func (s *scene) keptApart(ids []provisioner.MachineID) string {
	var b strings.Builder
	for _, id := range ids {
		machines, err := s.topology.DistributionGroup(id)
		instances, err2 := s.topology.DistributionInstances(id)
		if err := errors.Join(err, err2); err != nil {
			fmt.Fprintf(&b, "%s: error: %v\n", id, err)
			continue
		}
		fmt.Fprintf(&b, "%s: machines %v, instances %v\n", id, machines, instances)
	}
	return b.String()
}

func (s *scene) state() string {
	var b strings.Builder
	for _, m := range s.w().Machines() {
		fmt.Fprintf(&b, "machine %s %s", m.ID, m.Life)
		if m.Instance != "" {
			fmt.Fprintf(&b, " has %s in %q", m.Instance, string(m.Zone))
		}
		fmt.Fprintf(&b, " %s/%s %q\n", m.Status, m.InstanceStatus, s.w().StatusText(m.ID))
	}
	for _, i := range s.w().Live() {
		fmt.Fprintf(&b, "instance %s in %q\n", i.ID, string(i.Zone))
	}
	return b.String()
}

func reportText(r provisioner.Report, err error) string {
	var b strings.Builder
	for _, x := range r.Results {
		fmt.Fprintf(&b, "result %s %s", x.Kind, x.Machine)
		if x.Instance != "" {
			fmt.Fprintf(&b, " %s", x.Instance)
		}
		if x.Zone != "" {
			fmt.Fprintf(&b, " in %s", x.Zone)
		}
		fmt.Fprintf(&b, ": %s", x.Reason)
		if x.Err != nil {
			text, _, _ := strings.Cut(x.Err.Error(), "\ngoroutine ") // a stack differs each time
			fmt.Fprintf(&b, " (%s)", strings.ReplaceAll(text, "\n", " "))
		}
		b.WriteString("\n")
	}
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	if b.Len() == 0 {
		return "nothing to report\n"
	}
	return b.String()
}
