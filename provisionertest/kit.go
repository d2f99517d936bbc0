package provisionertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// The frame of the conformance suites: what a rule is, how one is checked, and
// what is told of it. The rules are in kitbroker.go and kitstate.go.

// HostOptions tell TestBroker, CheckBroker, TestState and CheckState about a
// host. The zero value does for a broker that needs nothing but a machine and
// a zone to start something; a state needs NewMachine and SetLife.
type HostOptions struct {
	// Optional names capabilities explicitly, as Config.Optional does.
	Optional provisioner.Optional

	// Must names what has to be found: capabilities by their interfaces
	// ("ZoneLister"), promises by their fields ("Traits.Labels"). Without it
	// the rules of what is not found are passed over.
	Must []string

	// Skip passes rules over, by name, and says why.
	Skip map[string]string

	// Settle is how long it may take until a listing or watcher shows what has
	// happened. Defaults to 30 s, for Broker.Instances only where the broker
	// doesn't promise consistent reads.
	Settle time.Duration

	// Soon is how long a call may take to return after its context has ended.
	// Defaults to 5 s.
	Soon time.Duration

	// Timeout bounds each call. Defaults to 5 min.
	Timeout time.Duration

	// Parallel is how many rules are checked at once. Defaults to 1.
	Parallel int

	// Clock is where all waiting is done. Defaults to the real one, which is
	// virtual inside a synctest bubble.
	Clock clock.Clock

	// Controller labels what is started, so that what is left can be told.
	// Defaults to a new name each time.
	Controller string

	// NewID gives the id of the n-th machine, n from 1: containers', for a
	// host that serves only those. Defaults to kit-1, kit-2…
	NewID func(n int) provisioner.MachineID

	// Request completes the start request of a machine with what the broker
	// can't do without: an image, a size, a container's host.
	Request func(*provisioner.StartRequest)

	// Provoke lists starts that must fail in a certain way.
	Provoke []Provocation

	// Jam makes an instance impossible to stop until release is called.
	Jam func(provisioner.InstanceID) (release func())

	// PowerOff switches an instance off without ending it.
	PowerOff func(context.Context, provisioner.InstanceID) error

	// NewMachine makes a record like the given one, which is alive and
	// pending. It may choose another id, and returns it. TestState needs it.
	NewMachine func(context.Context, provisioner.Machine) (provisioner.MachineID, error)

	// SetLife makes a machine dying or dead. TestState needs it.
	SetLife func(context.Context, provisioner.MachineID, provisioner.Life) error

	// Watch opens a watcher of machines, as for Config.Changes.
	Watch func() (provisioner.Stream[[]provisioner.MachineID], error)

	// SetRetryable makes the machine one that RetryMachines gives.
	SetRetryable func(context.Context, provisioner.MachineID) error

	// SetGroup puts machines into one group.
	SetGroup func(ctx context.Context, key string, members ...provisioner.MachineID) error

	// SetProfileChange gives a machine a change of its profiles to be made.
	SetProfileChange func(context.Context, provisioner.ProfileChange) error
}

// A Provocation is a start that must fail in a certain way, and leave nothing.
type Provocation struct {
	Name    string
	Request func(*provisioner.StartRequest) // makes the request one that fails so
	Want    error                           // what errors.Is finds, such as provisioner.ErrOutOfCapacity
}

// A Rule is one thing that a host's broker or state has to keep.
type Rule struct {
	Name        string   // of its subtest, and in HostOptions.Skip
	Explanation string   // what has to hold, and what it is for
	Needs       []string // capabilities, promises and options without which it is passed over
}

// BrokerRules lists the rules of TestBroker and CheckBroker, in their order.
func BrokerRules() []Rule { return explained(brokerRules) }

// StateRules lists the rules of TestState and CheckState, in their order.
func StateRules() []Rule { return explained(stateRules) }

// A BrokenRule is one that a host does not keep, and how that was seen.
type BrokenRule struct {
	Rule Rule
	Err  error
}

// A BrokenRulesError is what CheckBroker and CheckState found.
type BrokenRulesError struct {
	Broken []BrokenRule // in the order of the rules
	Left   []string     // instances or records that are left, and of which rule
}

// Error names each rule that is broken, how, and what it is for, and then what
// is left.
func (e *BrokenRulesError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rules are broken:", len(e.Broken))
	for _, x := range e.Broken {
		fmt.Fprintf(&b, "\n%s: %v\n\t%s", x.Rule.Name, x.Err, x.Rule.Explanation)
	}
	if e.Left != nil {
		fmt.Fprintf(&b, "\nleft: %s", strings.Join(e.Left, "; "))
	}
	return b.String()
}

// TestBroker checks that a broker keeps its word: every rule of BrokerRules is
// a subtest. It starts and stops instances, a few for each rule; what is left
// at the end is named and stopped.
func TestBroker(t *testing.T, b provisioner.Broker, o HostOptions) {
	t.Helper()
	newSuite(b, nil, o, brokerRules).test(t)
}

// CheckBroker is TestBroker outside of tests. Its error is a *BrokenRulesError,
// or says what is wrong with the options.
func CheckBroker(ctx context.Context, b provisioner.Broker, o HostOptions) error {
	return newSuite(b, nil, o, brokerRules).run(ctx)
}

// TestState checks that a state keeps its word: every rule of StateRules is a
// subtest. It makes records, and removes them again.
func TestState(t *testing.T, s provisioner.State, o HostOptions) {
	t.Helper()
	newSuite(nil, s, o, stateRules).test(t)
}

// CheckState is TestState outside of tests. Its error is a *BrokenRulesError,
// or says what is wrong with the options.
func CheckState(ctx context.Context, s provisioner.State, o HostOptions) error {
	return newSuite(nil, s, o, stateRules).run(ctx)
}

// rule is a Rule and how it is checked.
type rule struct {
	Rule
	stage stage
	check func(*probe)
}

// stage says when a rule is checked.
type stage uint8

const (
	normal stage = iota
	basic        // before the others, which mean nothing if it is broken
	last         // after all others, whatever has become of them
)

func explained(rules []rule) []Rule {
	list := make([]Rule, len(rules))
	for i, r := range rules {
		list[i] = r.Rule
		list[i].Needs = slices.Clone(r.Needs)
	}
	return list
}

// suite is one run through a table of rules.
type suite struct {
	HostOptions
	provisioner.Optional // those that were found
	broker               provisioner.Broker
	state                provisioner.State
	traits               provisioner.Traits
	rules                []rule
	has                  map[string]bool // capabilities and promises
	fault                error           // of the options

	mu        sync.Mutex
	ids       int                                // given out
	instances map[provisioner.InstanceID]string  // started, and by which rule
	records   map[provisioner.MachineID]string   // made, and by which rule
	uncertain map[provisioner.MachineID]struct{} // that an instance may have come of without its id
	unsound   string                             // the basic rule that is broken
	faulty    bool                               // some rule is broken
	left      []string                           // what is left at the end
}

func newSuite(b provisioner.Broker, st provisioner.State, o HostOptions, rules []rule) *suite {
	s := &suite{
		HostOptions: o, broker: b, state: st, rules: rules, has: map[string]bool{},
		instances: map[provisioner.InstanceID]string{}, records: map[provisioner.MachineID]string{},
		uncertain: map[provisioner.MachineID]struct{}{},
	}
	s.fault = s.prepare()
	return s
}

// prepare finds the capabilities, fills in the defaults, and gives what is
// wrong with the options.
func (s *suite) prepare() (fault error) {
	defer func() { // Unwrap and Traits are the host's
		if r := recover(); r != nil {
			fault = errors.Errorf("looking for capabilities: panic: %v\n%s", r, debug.Stack())
		}
	}()
	if s.broker == nil && s.state == nil {
		return errors.NotValidf("nil host: want a broker or a state:")
	}
	var found []provisioner.Capability
	s.Optional, found = s.HostOptions.Optional.Find(s.broker, s.state)
	for _, c := range found {
		s.has[c.Name] = c.Found != ""
	}
	if s.Traits != nil {
		s.traits = s.Traits.Traits()
	}
	for trait, promised := range eachTrait(s.traits) {
		s.has["Traits."+trait] = promised
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{{"Settle", &s.Settle, 30 * time.Second}, {"Soon", &s.Soon, 5 * time.Second}, {"Timeout", &s.Timeout, 5 * time.Minute}} {
		if *d.value < 0 {
			return errors.NotValidf("HostOptions.%s %v: want more than 0, or 0 for the default:", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if s.Parallel < 0 {
		return errors.NotValidf("HostOptions.Parallel %d: want 1 or more, or 0 for the default:", s.Parallel)
	}
	s.Parallel = max(s.Parallel, 1)
	if s.Clock == nil {
		s.Clock = clock.New()
	}
	if s.Controller == "" {
		s.Controller = "kit-" + strings.ToLower(rand.Text()[:8])
	}
	if s.NewID == nil {
		s.NewID = func(n int) provisioner.MachineID { return provisioner.MachineID(fmt.Sprintf("kit-%d", n)) }
	}
	return s.faults()
}

func (s *suite) faults() error {
	for _, name := range s.Must {
		if _, known := s.has[name]; !known {
			return errors.NotValidf("HostOptions.Must %q: want one of %s:", name, strings.Join(slices.Sorted(maps.Keys(s.has)), ", "))
		}
	}
	for name, reason := range s.Skip {
		switch {
		case !slices.ContainsFunc(s.rules, func(r rule) bool { return r.Name == name }):
			return errors.NotValidf("HostOptions.Skip %q: want the name of a rule:", name)
		case reason == "":
			return errors.NotValidf("HostOptions.Skip[%q] %q: want a reason:", name, reason)
		}
	}
	for i, p := range s.Provoke {
		if p.Name == "" || p.Request == nil || p.Want == nil {
			return errors.NotValidf("HostOptions.Provoke[%d] %q: want name, request and error:", i, p.Name)
		}
	}
	if s.state != nil && (s.NewMachine == nil || s.SetLife == nil) {
		return errors.NotValidf("HostOptions.NewMachine or SetLife nil: want both, to make machines:")
	}
	return nil
}

// eachTrait gives the promises by name.
func eachTrait(t provisioner.Traits) map[string]bool {
	traits, v := map[string]bool{}, reflect.ValueOf(t)
	for i := range v.NumField() {
		traits[v.Type().Field(i).Name] = v.Field(i).Bool()
	}
	return traits
}

// test checks every rule in a subtest of its own.
func (s *suite) test(t *testing.T) {
	t.Helper()
	if s.fault != nil {
		t.Fatal(s.fault)
	}
	one := func(t *testing.T, r rule) {
		v := s.judge(t.Context(), r)
		switch {
		case v.passed != "":
			t.Skip(v.passed)
		case v.err != nil:
			t.Errorf("%v\nthe rule: %s", v.err, r.Explanation)
		}
	}
	for _, r := range s.at(basic) {
		t.Run(r.Name, func(t *testing.T) { one(t, r) })
	}
	places := make(chan struct{}, s.Parallel)
	for _, r := range s.at(normal) {
		if s.Parallel == 1 {
			t.Run(r.Name, func(t *testing.T) { one(t, r) })
		}
	}
	if s.Parallel > 1 {
		t.Run("parallel", func(t *testing.T) {
			for _, r := range s.at(normal) {
				t.Run(r.Name, func(t *testing.T) {
					t.Parallel()
					places <- struct{}{}
					defer func() { <-places }()
					one(t, r)
				})
			}
		})
	}
	for _, r := range s.at(last) {
		t.Run(r.Name, func(t *testing.T) { one(t, r) })
	}
}

// run checks every rule and joins what is broken.
func (s *suite) run(ctx context.Context) error {
	if s.fault != nil {
		return s.fault
	}
	verdicts := make([]verdict, len(s.rules))
	places := make(chan struct{}, s.Parallel)
	for _, when := range []stage{basic, normal, last} {
		var going sync.WaitGroup
		for i, r := range s.rules {
			switch {
			case r.stage != when:
			case when == normal:
				places <- struct{}{}
				going.Go(func() {
					defer func() { <-places }()
					verdicts[i] = s.judge(ctx, r)
				})
			default:
				verdicts[i] = s.judge(ctx, r)
			}
		}
		going.Wait()
	}
	var broken []BrokenRule
	for i, v := range verdicts {
		if v.err != nil {
			broken = append(broken, BrokenRule{explained(s.rules[i : i+1])[0], v.err})
		}
	}
	if broken == nil {
		return nil
	}
	return &BrokenRulesError{broken, s.left}
}

func (s *suite) at(when stage) []rule {
	return slices.DeleteFunc(slices.Clone(s.rules), func(r rule) bool { return r.stage != when })
}

// verdict is what came of one rule: nothing if it is kept.
type verdict struct {
	passed string // why it was passed over
	err    error
}

// judge checks one rule, and takes away what that has made.
func (s *suite) judge(ctx context.Context, r rule) verdict {
	if reason := s.reasonAgainst(r); reason != "" {
		return verdict{passed: reason}
	}
	p := &probe{suite: s, ctx: ctx, rule: r.Name}
	passed, err := caught(func() { r.check(p) })
	p.clean()
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.stage == last && len(s.left) > 0 {
		if text := "left: " + strings.Join(s.left, "; "); s.faulty {
			passed = text
		} else {
			err = errors.New(text)
		}
	}
	if err != nil {
		s.faulty = true
		if r.stage == basic {
			s.unsound = r.Name
		}
	}
	return verdict{passed, err}
}

// reasonAgainst says why a rule is passed over, if it is.
func (s *suite) reasonAgainst(r rule) string {
	s.mu.Lock()
	unsound := s.unsound
	s.mu.Unlock()
	switch reason := s.Skip[r.Name]; {
	case reason != "":
		return reason
	case unsound != "" && r.stage != last:
		return "means nothing while " + unsound + " is broken"
	}
	for _, need := range r.Needs {
		if option, ok := strings.CutPrefix(need, "HostOptions."); ok {
			if reflect.ValueOf(s.HostOptions).FieldByName(option).IsZero() {
				return "needs " + need
			}
		} else if !s.has[need] {
			return "the host has no " + need
		}
	}
	return ""
}

// probe is what a rule is checked with. Its methods end the check when
// something is not as it has to be, so that a rule reads like a test.
type probe struct {
	*suite
	ctx  context.Context
	rule string
}

// What ends a check.
type (
	broken struct{ err error }
	passed struct{ reason string }
)

// caught calls a check and gives what ended it.
func caught(check func()) (reason string, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case broken:
			err = r.err
		case passed:
			reason = r.reason
		default:
			panic(r)
		}
	}()
	check()
	return "", nil
}

// fail says how the rule is broken.
func (p *probe) fail(format string, args ...any) { panic(broken{errors.Errorf(format, args...)}) }

// must says that a call that has to succeed did not.
func (p *probe) must(err error, what string, args ...any) {
	if err != nil {
		panic(broken{errors.Annotatef(err, what, args...)})
	}
}

// pass says why the rule does not apply after all.
func (p *probe) pass(reason string) { panic(passed{reason}) }

// ask makes one call of the host. One that panics, or doesn't return in time,
// breaks whatever rule is being checked.
func ask[T any](p *probe, what string, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	late := p.Clock.Timer(p.Timeout)
	defer late.Stop()
	answers := begin(ctx, what, do)
	select {
	case a := <-answers:
		return a.get(p)
	case <-late.C:
		p.fail("%s has not returned within %v", what, p.Timeout)
	case <-p.ctx.Done():
		p.fail("%s: %v", what, context.Cause(p.ctx))
	}
	panic("unreachable")
}

// askEnded makes one call whose context ends after a time, at once if that is
// 0, and wants it back soon after that.
func askEnded[T any](p *probe, what string, after time.Duration, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(p.ctx)
	if after == 0 {
		cancel()
	}
	defer cancel()
	answers := begin(ctx, what, do)
	if after > 0 {
		p.sleep(after)
		cancel()
	}
	late := p.Clock.Timer(p.Soon)
	defer late.Stop()
	select {
	case a := <-answers:
		return a.get(p)
	case <-late.C:
	}
	p.fail("%s has not returned within %v of the end of its context", what, p.Soon)
	panic("unreachable")
}

type answer[T any] struct {
	value T
	err   error
	fault error // it did not return
}

func (a answer[T]) get(p *probe) (T, error) {
	if a.fault != nil {
		panic(broken{a.fault})
	}
	return a.value, a.err
}

// begin makes a call in a goroutine of its own.
func begin[T any](ctx context.Context, what string, do func(context.Context) (T, error)) <-chan answer[T] {
	answers := make(chan answer[T], 1)
	go func() {
		a := answer[T]{fault: errors.Errorf("%s has ended its goroutine", what)}
		defer func() {
			if r := recover(); r != nil {
				a.fault = errors.Errorf("%s has panicked: %v\n%s", what, r, debug.Stack())
			}
			answers <- a
		}()
		a.value, a.err = do(ctx)
		a.fault = nil
	}()
	return answers
}

// call is ask for what returns nothing but an error.
func (p *probe) call(what string, do func(context.Context) error) error {
	_, err := ask(p, what, func(ctx context.Context) (none, error) { return none{}, do(ctx) })
	return err
}

// together does things at once, and fails as the first of them that did.
func (p *probe) together(things ...func()) {
	errs := make([]error, len(things))
	var going sync.WaitGroup
	for i, thing := range things {
		going.Go(func() { _, errs[i] = caught(thing) })
	}
	going.Wait()
	for _, err := range errs {
		if err != nil {
			panic(broken{err})
		}
	}
}

// eventually tries until there is no error, for so long, and gives the last.
func (p *probe) eventually(long time.Duration, try func() error) error {
	const first, most = 10 * time.Millisecond, time.Second
	end := p.Clock.Now().Add(long)
	for wait := first; ; wait = min(2*wait, most) {
		err := try()
		left := end.Sub(p.Clock.Now())
		if err == nil || left <= 0 {
			return err
		}
		p.sleep(min(wait, left))
	}
}

func (p *probe) sleep(d time.Duration) {
	t := p.Clock.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.ctx.Done():
		p.fail("%v", context.Cause(p.ctx))
	}
}

// leave names something that is left at the end.
func (p *probe) leave(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, fmt.Sprintf(format, args...))
}

// newID gives the id of a machine that no rule has used yet, and its number.
func (p *probe) newID() (provisioner.MachineID, int) {
	p.mu.Lock()
	p.ids++
	n := p.ids
	p.mu.Unlock()
	return p.NewID(n), n
}

// clean takes away what the rule has made. What cannot be is found at the end.
func (p *probe) clean() {
	if p.broker != nil {
		p.stopAll()
	}
	if p.state != nil {
		p.removeAll()
	}
}

// checkCapabilities is the first rule of both tables.
func checkCapabilities(p *probe) {
	var missing []string
	for _, name := range p.Must {
		if !p.has[name] {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		p.fail("not found: %s", strings.Join(missing, ", "))
	}
}

// scribble changes everything that can be reached from v by slices, maps and
// pointers, as a careless caller may with what is its own.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			scribble(v.Elem())
			wipe(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				scribble(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(v.Index(i))
			wipe(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			scribble(v.MapIndex(key))
		}
		v.Clear()
	}
}

func wipe(v reflect.Value) {
	if v.CanSet() {
		v.SetZero()
	}
}
