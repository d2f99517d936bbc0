package provisioner

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/juju/errors"
)

// A Config is all that a Task needs. It is copied by New. Broker, State and
// Controller are required; every other field has a default.
type Config struct {
	// Controller names the host's controller. It goes into labels and tokens,
	// so two controllers on one cloud must not share it. Required.
	Controller string

	// HostTag is what nonces begin with. Defaults to Controller.
	HostTag string

	// Broker and State are the host. Required.
	Broker Broker
	State  State

	// Optional names capabilities explicitly. Defaults to those that Broker
	// and State have themselves.
	Optional Optional

	// Changes delivers the ids of machines that have changed. The first
	// delivery makes the Task read everything, whatever it names, nil too;
	// until it comes Run does nothing, and Resync does not count. A Stream
	// without a C makes Run look at everything when it begins.
	Changes Stream[[]MachineID]

	// Retry delivers a signal to try failed machines again (ST16). It needs a
	// RetryLister.
	Retry Stream[struct{}]

	// ProfileChanges delivers the ids of machines whose profiles are to be
	// changed (LX2). It needs a ProfileState, which is also asked for every
	// machine at each whole look.
	ProfileChanges Stream[[]MachineID]

	// ProfileNaming is what is known about the names of profiles: only those
	// that it accepts are recorded after a change (LX2). Defaults to the prefix
	// and form alone.
	ProfileNaming ProfileNaming

	// Policy is the pure half: how to decide.
	Policy Policy

	// Limits bound what goes on at once.
	Limits Limits

	// StartLimiter and StopLimiter slow starts and stops down. They are
	// waited for in the lane. Default to none.
	StartLimiter Limiter
	StopLimiter  Limiter

	// LaunchTimeout bounds one Broker.Start. Defaults to 5 min; Off for none.
	// As with the other timeouts, the call's context is then cancelled; it has
	// no Deadline, and its error is context.Canceled, for the time is Clock's.
	LaunchTimeout time.Duration

	// CallTimeout bounds every other host call. Defaults to 1 min; Off for
	// none.
	CallTimeout time.Duration

	// RollbackTimeout bounds the stop of an instance that could not be
	// recorded. Defaults to 30 s; Off for none.
	RollbackTimeout time.Duration

	// ShutdownGrace is how long Run waits, when its context has ended, for
	// calls that may leave something behind. Defaults to 30 s; Off for not at
	// all.
	ShutdownGrace time.Duration

	// Resync is how often the whole fleet is looked at without a change,
	// spread by ±10 %. Defaults to 10 min; Off for never.
	Resync time.Duration

	// Sweep is how often the broker's instances are listed without a reason,
	// spread by ±10 %: for those that no machine has (HV9), and for machines
	// whose instance is missing (HV14). Defaults to 2 min; Off for only when
	// the fleet is looked at.
	Sweep time.Duration

	// ZoneRefresh is how old the list of zones may be when something is
	// placed. Defaults to 1 min; Off reads it for each pass that places.
	ZoneRefresh time.Duration

	// VisibilityGrace is how long an instance may be missing from listings
	// after it was made: where the broker doesn't promise consistent reads
	// ([Traits]), two complete listings that far apart have to be without a
	// machine's instance before there is taken to be none (ST19). Defaults to
	// 30 s; Off for two listings in a row.
	VisibilityGrace time.Duration

	// Veto may forbid the stop of an instance. Drain is called before one.
	// Both are asked before each try, of dead machines' instances and of those
	// that no machine has, and not of those that the Task made and could not
	// record. While they fail, or run into their time, nothing is stopped.
	// Default to none.
	Veto  Veto
	Drain Drainer

	// DrainTimeout bounds one call of Drain. Defaults to 5 min; Off for none.
	DrainTimeout time.Duration

	// Lease says whether this controller may act. Defaults to always.
	Lease Lease

	// Observers are told everything that happens.
	Observers []Observer

	// EventBuffer is how many events each observer may lag behind. Defaults
	// to 4096.
	EventBuffer int

	// Trace is called around each call of the host, for spans of a tracing
	// library. The call gets a context with the values of the one that Trace
	// returns (nil: as it was), and its own end. Trace may be called from several
	// goroutines, and what it and its end function take, the call takes; they
	// must neither wait nor end their goroutine. One that panics is cut off, as
	// an observer is. Defaults to none, which costs nothing.
	Trace TraceFunc

	// Clock is where all waiting is done; only Now and Timer are used.
	// Defaults to the real one.
	Clock clock.Clock

	// Random gives random numbers for nonces and jitter; it may be called
	// from several goroutines. Defaults to crypto/rand.
	Random func() uint64
}

// A StopNotice names an instance that is about to be stopped.
type StopNotice struct {
	Instance InstanceID
	Machine  MachineID // whose it is, or was made for; empty: nobody knows
	Reason   string    // why it is to be stopped
}

// A Veto may forbid stops. Its method may be called from several goroutines.
type Veto interface {
	// MayStop returns nil if the instance may be stopped. It has no effect,
	// and is asked before each try. CallTimeout bounds it.
	MayStop(ctx context.Context, n StopNotice) error
}

// VetoFunc makes a Veto of a function.
type VetoFunc func(ctx context.Context, n StopNotice) error

// MayStop calls f.
func (f VetoFunc) MayStop(ctx context.Context, n StopNotice) error { return f(ctx, n) }

// A Drainer gets instances ready to be stopped. Its method may be called from
// several goroutines.
type Drainer interface {
	// Drain is called before each try of a stop, so it is idempotent. It has
	// a place among the stops for as long as it takes, DrainTimeout at most.
	// After it, it is decided anew whether the instance is stopped.
	Drain(ctx context.Context, n StopNotice) error
}

// DrainFunc makes a Drainer of a function.
type DrainFunc func(ctx context.Context, n StopNotice) error

// Drain calls f.
func (f DrainFunc) Drain(ctx context.Context, n StopNotice) error { return f(ctx, n) }

// ErrVetoed is what the error of a stop matches that a Veto has forbidden.
const ErrVetoed = errors.ConstError("vetoed")

// A Policy is the part of a Config that decisions are made by: plain data.
type Policy struct {
	// Harvest says which instances may be stopped. Defaults to
	// HarvestDestroyed.
	Harvest HarvestMode

	// UnknownGrace is how far apart the two listings have to be in which an
	// instance is seen before it may be stopped as unknown, and how old it has
	// to be (HV9). Defaults to 1 min; Off for no matter how far.
	UnknownGrace time.Duration

	// MaxUnknown is how many instances that no machine has are stopped after
	// one listing, the oldest first (HV11); further listings within UnknownGrace
	// share it. Defaults to 10 % of those listed that are ours or may be, and at
	// least 1.
	MaxUnknown int

	// Retry says how starts are tried again.
	Retry RetryPolicy

	// Tie orders zones with equal populations. Defaults to TieHash.
	Tie TieBreak

	// Weights say how much each zone is to hold in proportion to the others,
	// 1 to 1000. A zone that is missing, or has 0, weighs 1.
	Weights map[ZoneName]int

	// MaxSkew is a hard limit on how uneven a group may be: no zone gets a
	// member if it would then hold more than this many (for each unit of its
	// weight) above the emptiest of the zones that are available to the
	// machine by its constraints. A zone that has failed or is cooling down
	// counts as available, so the machine waits for it instead of piling up
	// elsewhere. Defaults to no limit: zones with fewest members come first,
	// and that is all.
	MaxSkew int

	// MinZones is over how many zones a group is to be spread at least: while
	// fewer are available, those that are missing count as empty ones for
	// MaxSkew, which must be set. Defaults to none.
	MinZones int

	// ZoneCooldown is how long a zone that lacks capacity is passed over by
	// machines of the same shape (AZ11). It doubles, up to 30 min, while the
	// machine that probes the zone afterwards finds none either. Defaults to
	// 3 min; Off for never.
	ZoneCooldown time.Duration

	// Backoff is how everything but starts is tried again: reads, stops,
	// removals. Retries and Deadline are not looked at: it is never given up.
	// RoundDelay defaults to 1 s here, and MaxDelay to 1 min; no wait is
	// shorter than 10 ms, lest a host that is down is called without a pause.
	Backoff RetryPolicy

	// Profiles says how a profile change that the broker fails is tried again,
	// until it counts as failed (LX4). ZoneDelay and Deadline are not looked at.
	// RoundDelay defaults to 1 s here, and MaxDelay to 1 min, so the 10 retries of
	// the default take about five minutes. What the state fails is tried again by
	// Backoff.
	Profiles RetryPolicy
}

// profileRetry is Policy.Profiles with its defaults.
func (p Policy) profileRetry() RetryPolicy {
	r := p.Profiles
	if r.RoundDelay == 0 {
		r.RoundDelay = time.Second
	}
	if r.MaxDelay == 0 {
		r.MaxDelay = time.Minute
	}
	return r
}

const shortestBackoff = 10 * time.Millisecond

func (p Policy) backoff(n int, r float64) time.Duration {
	b := p.Backoff
	if b.RoundDelay == 0 {
		b.RoundDelay = time.Second
	}
	if b.MaxDelay == 0 {
		b.MaxDelay = time.Minute
	}
	return max(b.wait(n, r), shortestBackoff)
}

// faults names every field that has no meaning.
func (p Policy) faults() []error {
	var faults []error
	if err := p.Harvest.Validate(); err != nil {
		faults = append(faults, errors.Annotate(err, "Policy.Harvest"))
	}
	if p.UnknownGrace < Off {
		faults = append(faults, errors.NotValidf("Policy.UnknownGrace %v: want Off, 0 for the default, or more:", p.UnknownGrace))
	}
	if p.MaxUnknown < 0 {
		faults = append(faults, errors.NotValidf("Policy.MaxUnknown %d: want 1 or more, or 0 for the default:", p.MaxUnknown))
	}
	if p.Tie > TieName {
		faults = append(faults, errors.NotValidf("Policy.Tie %d: want TieHash or TieName:", p.Tie))
	}
	for _, zone := range slices.Sorted(maps.Keys(p.Weights)) {
		if w := p.Weights[zone]; w < 0 || w > maxWeight {
			faults = append(faults, errors.NotValidf("Policy.Weights[%s] %d: want 1 to %d, or 0 for 1:", zone, w, maxWeight))
		}
	}
	if p.MaxSkew < 0 || p.MaxSkew > mostSkew {
		faults = append(faults, errors.NotValidf("Policy.MaxSkew %d: want 1 to %d, or 0 for no limit:", p.MaxSkew, mostSkew))
	}
	if p.MinZones < 0 {
		faults = append(faults, errors.NotValidf("Policy.MinZones %d: want 1 or more, or 0 for none:", p.MinZones))
	} else if p.MinZones > 0 && p.MaxSkew == 0 {
		faults = append(faults, errors.NotValidf("Policy.MinZones %d without MaxSkew: want both:", p.MinZones))
	}
	if p.ZoneCooldown < Off {
		faults = append(faults, errors.NotValidf("Policy.ZoneCooldown %v: want Off, 0 for the default, or more:", p.ZoneCooldown))
	}
	faults = append(faults, p.Retry.faults("Policy.Retry")...)
	faults = append(faults, p.Backoff.faults("Policy.Backoff")...)
	return append(faults, p.Profiles.faults("Policy.Profiles")...)
}

// Limits bound what goes on at once (ST17). They may be changed at any time
// by Task.SetLimits; what is going on then ends by itself.
type Limits struct {
	// Starts is the number of starts at once. Defaults to 16.
	Starts int
	// ContainerStarts is the number of container starts at once on each host,
	// within Starts. Defaults to 4.
	ContainerStarts int
	// Stops is the number of stops at once, that of removals and that of
	// upkeep. Defaults to 16.
	Stops int
	// Profiles is the number of profile changes at once. Defaults to 16.
	Profiles int
	// ContainerProfiles is the number of profile changes at once of containers
	// on each host, within Profiles. Defaults to 4.
	ContainerProfiles int
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Starts:            positiveOr(l.Starts, 16),
		ContainerStarts:   positiveOr(l.ContainerStarts, 4),
		Stops:             positiveOr(l.Stops, 16),
		Profiles:          positiveOr(l.Profiles, 16),
		ContainerProfiles: positiveOr(l.ContainerProfiles, 4),
	}
}

func positiveOr(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

func (l Limits) faults() []error {
	var faults []error
	for _, f := range []struct {
		name  string
		value int
	}{{"Starts", l.Starts}, {"ContainerStarts", l.ContainerStarts}, {"Stops", l.Stops},
		{"Profiles", l.Profiles}, {"ContainerProfiles", l.ContainerProfiles}} {
		if f.value < 0 {
			faults = append(faults, errors.NotValidf("Limits.%s %d: want 1 or more, or 0 for the default:", f.name, f.value))
		}
	}
	return faults
}

// Optional holds the capabilities that a host may have besides Broker and
// State. A field that is nil is looked for in the Broker or State itself, then
// in what its Unwrap method (Unwrap() Broker, Unwrap() State) leads to, at most
// 16 steps; the decorator is then bypassed for it. Task.Capabilities shows
// what was found.
type Optional struct {
	// Of the broker.
	Zones      ZoneLister
	Deriver    ZoneDeriver
	Finder     InstanceFinder
	Maintainer Maintainer
	Profiles   ProfileBroker
	Namer      ProfileNamer
	Traits     TraitsReporter

	// Of the state.
	Status        StatusWriter
	Life          LifeSetter
	Retries       RetryLister
	Groups        GroupFinder
	Authenticator Authenticator
	Agents        AgentFinder
	Intents       IntentStore
	SparedStore   SparedStore
	ProfileState  ProfileState
}

// A Capability is one optional ability of the host, and where it was found.
type Capability struct {
	Name    string // the interface's, such as "ZoneLister"
	Found   string // "config", "broker", "state", "broker, unwrapped", "state, unwrapped"; empty: absent
	Without string // what the Task does without it
}

// Find resolves every capability as New does, and says where each was found:
// for decorators, which must not lose one. Either of b and s may be nil.
func (o Optional) Find(b Broker, s State) (Optional, []Capability) {
	var list []Capability
	brokers, states := chain(b), chain(s)
	findOne(&list, &o.Zones, "broker", brokers, "starts carry no zone")
	findOne(&list, &o.Deriver, "broker", brokers, "start parameters imply no zones")
	findOne(&list, &o.Finder, "broker", brokers, "instances are not searched by label")
	findOne(&list, &o.Maintainer, "broker", brokers, "running containers get no upkeep")
	findOne(&list, &o.Profiles, "broker", brokers, "LXD profiles are not changed")
	findOne(&list, &o.Namer, "broker", brokers, "the profiles asked for are recorded")
	findOne(&list, &o.Traits, "broker", brokers, "the broker promises nothing about itself")
	findOne(&list, &o.Status, "state", states, "progress is shown in events only, and failed machines start again after a restart")
	findOne(&list, &o.Life, "state", states, "machines that die before they were provisioned are reported and not removed")
	findOne(&list, &o.Retries, "state", states, "retry signals find nothing")
	findOne(&list, &o.Groups, "state", states, "groups come with StartInfo")
	findOne(&list, &o.Authenticator, "state", states, "starts carry no credentials")
	findOne(&list, &o.Agents, "state", states, "agent binaries come with StartInfo")
	findOne(&list, &o.Intents, "state", states, "attempts are not stored before they are made")
	findOne(&list, &o.SparedStore, "state", states, "spared instances are remembered for the life of the Task")
	findOne(&list, &o.ProfileState, "state", states, "there are no profile changes")
	return o, list
}

// findOne fills field from the first value of the chain that can serve.
func findOne[T any](list *[]Capability, field *T, owner string, values []any, without string) {
	c := Capability{Name: reflect.TypeFor[T]().Name(), Without: without}
	if any(*field) != nil {
		c.Found = "config"
	} else {
		for i, v := range values {
			if found, ok := v.(T); ok {
				*field, c.Found = found, owner
				if i > 0 {
					c.Found += ", unwrapped"
				}
				break
			}
		}
	}
	*list = append(*list, c)
}

// chain is v and what its Unwrap leads to, 16 steps at most.
func chain[T any](v T) []any {
	var values []any
	for range 17 {
		if isNil(v) {
			break
		}
		values = append(values, v)
		u, ok := any(v).(interface{ Unwrap() T })
		if !ok {
			break
		}
		v = u.Unwrap()
	}
	return values
}

// isNil also finds the typed nils that a comparison with nil misses.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice, reflect.Interface:
		return rv.IsNil()
	}
	return false
}

// faults names every field that has no meaning (LC1).
func (c Config) faults() []error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, errors.NotValidf(format+":", args...)) }
	if c.Controller == "" {
		bad("Controller %q: want the name of your controller", c.Controller)
	}
	for _, f := range []struct{ name, value string }{{"Controller", c.Controller}, {"HostTag", c.HostTag}} {
		if !printable(f.value) || strings.HasPrefix(f.value, ":") {
			bad("%s %q: want printable text that does not begin with a colon, for nonces and labels", f.name, f.value)
		}
	}
	if isNil(c.Broker) {
		bad("Broker nil: want your broker")
	}
	if isNil(c.State) {
		bad("State nil: want your state")
	}
	faults = append(faults, c.Policy.faults()...)
	faults = append(faults, c.Limits.faults()...)
	if err := c.ProfileNaming.Validate(); err != nil {
		faults = append(faults, errors.Annotate(err, "ProfileNaming"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"LaunchTimeout", c.LaunchTimeout}, {"CallTimeout", c.CallTimeout}, {"RollbackTimeout", c.RollbackTimeout},
		{"ShutdownGrace", c.ShutdownGrace}, {"Resync", c.Resync}, {"Sweep", c.Sweep}, {"ZoneRefresh", c.ZoneRefresh},
		{"VisibilityGrace", c.VisibilityGrace}, {"DrainTimeout", c.DrainTimeout},
	} {
		if d.value < Off {
			bad("%s %v: want Off, 0 for the default, or more", d.name, d.value)
		}
	}
	if c.EventBuffer < 0 {
		bad("EventBuffer %d: want 1 or more, or 0 for the default", c.EventBuffer)
	}
	for _, f := range []struct {
		name  string
		value any
	}{{"StartLimiter", c.StartLimiter}, {"StopLimiter", c.StopLimiter}, {"Veto", c.Veto}, {"Drain", c.Drain}, {"Lease", c.Lease}, {"Clock", c.Clock}} {
		if f.value != nil && isNil(f.value) {
			bad("%s %T(nil): want one that works, or none", f.name, f.value)
		}
	}
	// What is named explicitly must work, or else the first call of it panics.
	optional := reflect.ValueOf(c.Optional)
	for i := range optional.NumField() {
		if v := optional.Field(i).Interface(); v != nil && isNil(v) {
			bad("Optional.%s %T(nil): want one that works, or none", optional.Type().Field(i).Name, v)
		}
	}
	for i, o := range c.Observers {
		if isNil(o) {
			bad("Observers[%d] nil: want an observer", i)
		}
	}
	return faults
}

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	if c.HostTag == "" {
		c.HostTag = c.Controller
	}
	if c.Clock == nil {
		c.Clock = clock.New()
	}
	if c.Random == nil {
		c.Random = secureRandom
	}
	c.EventBuffer = positiveOr(c.EventBuffer, 4096)
	c.Policy.Weights = maps.Clone(c.Policy.Weights)
	c.ProfileNaming.Applications = slices.Clone(c.ProfileNaming.Applications)
	c.Limits = c.Limits.withDefaults()
	c.LaunchTimeout = orDefault(c.LaunchTimeout, 5*time.Minute)
	c.CallTimeout = orDefault(c.CallTimeout, time.Minute)
	c.RollbackTimeout = orDefault(c.RollbackTimeout, 30*time.Second)
	c.ShutdownGrace = orDefault(c.ShutdownGrace, 30*time.Second)
	c.Resync = orDefault(c.Resync, 10*time.Minute)
	c.Sweep = orDefault(c.Sweep, 2*time.Minute)
	c.DrainTimeout = orDefault(c.DrainTimeout, 5*time.Minute)
	c.ZoneRefresh = orDefault(c.ZoneRefresh, time.Minute)
	c.VisibilityGrace = orDefault(c.VisibilityGrace, 30*time.Second)
	return c
}

// ErrConfig is what the error of New matches for a configuration that is not
// valid.
const ErrConfig = errors.ConstError("configuration not valid")

// A ConfigError lists every fault of a configuration.
type ConfigError struct{ Faults []error }

// Error gives every fault, a line each.
func (e *ConfigError) Error() string {
	text := string(ErrConfig) + ":"
	for _, f := range e.Faults {
		text += "\n\t" + f.Error()
	}
	return text
}

// Unwrap gives the faults.
func (e *ConfigError) Unwrap() []error { return e.Faults }

// Is makes it match ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }
