package provisioner

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/juju/errors"
)

// A Call is one call of the host, as a [Config].Trace is told of it. Which
// fields besides Name are set depends on the call; those of one that reads many
// machines are their number.
type Call struct {
	Name     string // the interface and its method, such as "Broker.Start"; names do not change
	Machine  MachineID
	Machines int // how many machines a bulk call is for
	Instance InstanceID
	Zone     ZoneName
	Attempt  int
}

// A TraceFunc is called before each call of the host, and what it returns when
// that is over, with its error. See [Config].Trace.
type TraceFunc func(ctx context.Context, c Call) (spanContext context.Context, end func(err error))

// The calls, in the order of callNames.
type callID uint8

const (
	callInstances callID = iota
	callStart
	callStop
	callZones
	callDeriveZones
	callFindInstances
	callMaintain
	callChangeProfile
	callProfileNames
	callFleet
	callMachines
	callStartInfo
	callSetInstance
	callRemove
	callWriteStatus
	callEnsureDead
	callRetryMachines
	callGroups
	callAuthenticate
	callFindAgents
	callIntents
	callSwapIntent
	callSpared
	callAddSpared
	callRemoveSpared
	callProfileChanges
	callSetProfiles
	callSetProfileStatus
	callRemoveProfileChange
	callStartLimiter
	callStopLimiter
	callMayStop
	callDrain
	callIDs
)

var callNames = [callIDs]string{
	"Broker.Instances", "Broker.Start", "Broker.Stop", "ZoneLister.Zones", "ZoneDeriver.DeriveZones", "InstanceFinder.FindInstances",
	"Maintainer.Maintain", "ProfileBroker.ChangeProfile", "ProfileNamer.ProfileNames",
	"State.Fleet", "State.Machines", "State.StartInfo", "State.SetInstance", "State.Remove",
	"StatusWriter.WriteStatus", "LifeSetter.EnsureDead", "RetryLister.RetryMachines", "GroupFinder.Groups", "Authenticator.Authenticate",
	"AgentFinder.FindAgents", "IntentStore.Intents", "IntentStore.SwapIntent", "SparedStore.Spared", "SparedStore.AddSpared", "SparedStore.RemoveSpared",
	"ProfileState.ProfileChanges", "ProfileState.SetProfiles", "ProfileState.SetProfileStatus", "ProfileState.RemoveProfileChange",
	"StartLimiter.Wait", "StopLimiter.Wait", "Veto.MayStop", "Drainer.Drain",
}

// calls counts the calls of one Task's host, and traces them.
type calls struct {
	counts [callIDs]callCounts
	trace  atomic.Pointer[TraceFunc] // nil: none, or cut off
	failed func(err error)           // told when the trace panics
}

type callCounts struct{ began, ended, failed, timedOut, cancelled, panicked atomic.Uint64 }

// spanContext has the values of a trace's context and the end of the Task's,
// which no trace can lengthen, shorten or lose.
type spanContext struct {
	context.Context
	values context.Context
}

func (c spanContext) Value(key any) any { return c.values.Value(key) }

// A calling is one call under way.
type calling struct {
	calls  *calls
	counts *callCounts
	ctx    context.Context
	end    func(error)
}

// begin counts a call that is about to be made, and begins its span. Until the
// call returns, its error is that it has not.
func (s *calls) begin(ctx context.Context, id callID, c Call, err *error) (context.Context, calling) {
	*err = ErrPanic
	now := calling{calls: s, counts: &s.counts[id], ctx: ctx}
	now.counts.began.Add(1)
	if trace := s.trace.Load(); trace != nil {
		c.Name = callNames[id]
		s.guard(func() {
			var span context.Context
			if span, now.end = (*trace)(ctx, c); span != nil && span != ctx {
				ctx = spanContext{ctx, span}
			}
		})
	}
	return ctx, now
}

// done is deferred, so that it sees a panic and a Goexit too.
func (c *calling) done(ended *error) {
	err := *ended
	c.counts.ended.Add(1)
	switch {
	case err == nil:
	case err == ErrPanic:
		c.counts.panicked.Add(1)
	case errors.Is(context.Cause(c.ctx), ErrTimedOut):
		c.counts.timedOut.Add(1)
	case c.ctx.Err() != nil:
		c.counts.cancelled.Add(1)
	default:
		c.counts.failed.Add(1)
	}
	if c.end != nil {
		c.calls.guard(func() { c.end(tame(err)) })
	}
}

// guard runs host code that a call must not suffer from. A trace that panics
// is cut off.
func (s *calls) guard(do func()) {
	defer func() {
		if r := recover(); r != nil && s.trace.Swap(nil) != nil {
			s.failed(fmt.Errorf("trace panicked: %v", r))
		}
	}()
	do()
}

// observed has all calls of the host go through s.
func (h *host) observed(s *calls) {
	h.broker, h.state = observedBroker{h.broker, s}, observedState{h.state, s}
	through(&h.Zones, observedZones{h.Zones, s})
	through(&h.Deriver, observedDeriver{h.Deriver, s})
	through(&h.Finder, observedFinder{h.Finder, s})
	through(&h.Maintainer, observedMaintainer{h.Maintainer, s})
	through(&h.Profiles, observedProfiles{h.Profiles, s})
	through(&h.Namer, observedNamer{h.Namer, s})
	through(&h.Status, observedStatus{h.Status, s})
	through(&h.Life, observedLife{h.Life, s})
	through(&h.Retries, observedRetries{h.Retries, s})
	through(&h.Groups, observedGroups{h.Groups, s})
	through(&h.Authenticator, observedAuthenticator{h.Authenticator, s})
	through(&h.Agents, observedAgents{h.Agents, s})
	through(&h.Intents, observedIntents{h.Intents, s})
	through(&h.SparedStore, observedSpared{h.SparedStore, s})
	through(&h.ProfileState, observedProfileState{h.ProfileState, s})
	through(&h.startLimiter, observedLimiter{h.startLimiter, s, callStartLimiter})
	through(&h.stopLimiter, observedLimiter{h.stopLimiter, s, callStopLimiter})
	through(&h.veto, observedVeto{h.veto, s})
	through(&h.drainer, observedDrainer{h.drainer, s})
}

// through puts one in the place of a capability that is there.
func through[T any](capability *T, one any) {
	if any(*capability) != nil {
		*capability = one.(T)
	}
}

type (
	observedBroker struct {
		to Broker
		s  *calls
	}
	observedZones struct {
		to ZoneLister
		s  *calls
	}
	observedDeriver struct {
		to ZoneDeriver
		s  *calls
	}
	observedFinder struct {
		to InstanceFinder
		s  *calls
	}
	observedMaintainer struct {
		to Maintainer
		s  *calls
	}
	observedProfiles struct {
		to ProfileBroker
		s  *calls
	}
	observedNamer struct {
		to ProfileNamer
		s  *calls
	}
	observedState struct {
		to State
		s  *calls
	}
	observedStatus struct {
		to StatusWriter
		s  *calls
	}
	observedLife struct {
		to LifeSetter
		s  *calls
	}
	observedRetries struct {
		to RetryLister
		s  *calls
	}
	observedGroups struct {
		to GroupFinder
		s  *calls
	}
	observedAuthenticator struct {
		to Authenticator
		s  *calls
	}
	observedAgents struct {
		to AgentFinder
		s  *calls
	}
	observedIntents struct {
		to IntentStore
		s  *calls
	}
	observedSpared struct {
		to SparedStore
		s  *calls
	}
	observedProfileState struct {
		to ProfileState
		s  *calls
	}
	observedVeto struct {
		to Veto
		s  *calls
	}
	observedDrainer struct {
		to Drainer
		s  *calls
	}
	observedLimiter struct {
		to Limiter
		s  *calls
		id callID
	}
)

func (o observedVeto) MayStop(ctx context.Context, n StopNotice) (err error) {
	ctx, now := o.s.begin(ctx, callMayStop, Call{Machine: n.Machine, Instance: n.Instance}, &err)
	defer now.done(&err)
	return o.to.MayStop(ctx, n)
}

func (o observedDrainer) Drain(ctx context.Context, n StopNotice) (err error) {
	ctx, now := o.s.begin(ctx, callDrain, Call{Machine: n.Machine, Instance: n.Instance}, &err)
	defer now.done(&err)
	return o.to.Drain(ctx, n)
}

func (o observedBroker) Instances(ctx context.Context) (r Listing, err error) {
	ctx, now := o.s.begin(ctx, callInstances, Call{}, &err)
	defer now.done(&err)
	return o.to.Instances(ctx)
}

func (o observedBroker) Start(ctx context.Context, q StartRequest) (r StartResult, err error) {
	ctx, now := o.s.begin(ctx, callStart, Call{Machine: q.Machine, Zone: q.Zone, Attempt: q.Attempt}, &err)
	defer now.done(&err)
	return o.to.Start(ctx, q)
}

func (o observedBroker) Stop(ctx context.Context, q StopRequest) (err error) {
	ctx, now := o.s.begin(ctx, callStop, Call{Instance: q.Instances[0]}, &err)
	defer now.done(&err)
	return o.to.Stop(ctx, q)
}

func (o observedZones) Zones(ctx context.Context) (r []Zone, err error) {
	ctx, now := o.s.begin(ctx, callZones, Call{}, &err)
	defer now.done(&err)
	return o.to.Zones(ctx)
}

func (o observedDeriver) DeriveZones(ctx context.Context, q StartRequest) (r []ZoneName, err error) {
	ctx, now := o.s.begin(ctx, callDeriveZones, Call{Machine: q.Machine}, &err)
	defer now.done(&err)
	return o.to.DeriveZones(ctx, q)
}

func (o observedFinder) FindInstances(ctx context.Context, want Labels) (r Listing, err error) {
	ctx, now := o.s.begin(ctx, callFindInstances, Call{Machine: want.Machine}, &err)
	defer now.done(&err)
	return o.to.FindInstances(ctx, want)
}

func (o observedMaintainer) Maintain(ctx context.Context, q MaintainRequest) (err error) {
	ctx, now := o.s.begin(ctx, callMaintain, Call{Machine: q.Machine, Instance: q.Instance}, &err)
	defer now.done(&err)
	return o.to.Maintain(ctx, q)
}

func (o observedProfiles) ChangeProfile(ctx context.Context, q ProfileChangeRequest) (r []string, err error) {
	ctx, now := o.s.begin(ctx, callChangeProfile, Call{Machine: q.Machine, Instance: q.Instance}, &err)
	defer now.done(&err)
	return o.to.ChangeProfile(ctx, q)
}

func (o observedNamer) ProfileNames(ctx context.Context, q ProfileNamesRequest) (r []string, err error) {
	ctx, now := o.s.begin(ctx, callProfileNames, Call{Machine: q.Machine, Instance: q.Instance}, &err)
	defer now.done(&err)
	return o.to.ProfileNames(ctx, q)
}

func (o observedState) Fleet(ctx context.Context) (r []MachineResult, err error) {
	ctx, now := o.s.begin(ctx, callFleet, Call{}, &err)
	defer now.done(&err)
	return o.to.Fleet(ctx)
}

func (o observedState) Machines(ctx context.Context, ids ...MachineID) (r []MachineResult, err error) {
	ctx, now := o.s.begin(ctx, callMachines, Call{Machines: len(ids)}, &err)
	defer now.done(&err)
	return o.to.Machines(ctx, ids...)
}

func (o observedState) StartInfo(ctx context.Context, ids ...MachineID) (r []StartInfoResult, err error) {
	ctx, now := o.s.begin(ctx, callStartInfo, Call{Machines: len(ids)}, &err)
	defer now.done(&err)
	return o.to.StartInfo(ctx, ids...)
}

func (o observedState) SetInstance(ctx context.Context, rec InstanceRecord) (err error) {
	ctx, now := o.s.begin(ctx, callSetInstance, Call{Machine: rec.Machine, Instance: rec.Instance, Zone: rec.Zone}, &err)
	defer now.done(&err)
	return o.to.SetInstance(ctx, rec)
}

func (o observedState) Remove(ctx context.Context, q Removal) (err error) {
	ctx, now := o.s.begin(ctx, callRemove, Call{Machine: q.Machine}, &err)
	defer now.done(&err)
	return o.to.Remove(ctx, q)
}

func (o observedStatus) WriteStatus(ctx context.Context, u StatusUpdate) (err error) {
	ctx, now := o.s.begin(ctx, callWriteStatus, Call{Machine: u.Machine}, &err)
	defer now.done(&err)
	return o.to.WriteStatus(ctx, u)
}

func (o observedLife) EnsureDead(ctx context.Context, q LifeRequest) (err error) {
	ctx, now := o.s.begin(ctx, callEnsureDead, Call{Machine: q.Machine}, &err)
	defer now.done(&err)
	return o.to.EnsureDead(ctx, q)
}

func (o observedRetries) RetryMachines(ctx context.Context) (r []MachineResult, err error) {
	ctx, now := o.s.begin(ctx, callRetryMachines, Call{}, &err)
	defer now.done(&err)
	return o.to.RetryMachines(ctx)
}

func (o observedGroups) Groups(ctx context.Context, ids ...MachineID) (r []GroupResult, err error) {
	ctx, now := o.s.begin(ctx, callGroups, Call{Machines: len(ids)}, &err)
	defer now.done(&err)
	return o.to.Groups(ctx, ids...)
}

func (o observedAuthenticator) Authenticate(ctx context.Context, reqs ...AuthRequest) (r []AuthResult, err error) {
	ctx, now := o.s.begin(ctx, callAuthenticate, Call{Machines: len(reqs)}, &err)
	defer now.done(&err)
	return o.to.Authenticate(ctx, reqs...)
}

func (o observedAgents) FindAgents(ctx context.Context, q AgentQuery) (r []AgentBinary, err error) {
	ctx, now := o.s.begin(ctx, callFindAgents, Call{}, &err)
	defer now.done(&err)
	return o.to.FindAgents(ctx, q)
}

func (o observedIntents) Intents(ctx context.Context, ids ...MachineID) (r []IntentResult, err error) {
	ctx, now := o.s.begin(ctx, callIntents, Call{Machines: len(ids)}, &err)
	defer now.done(&err)
	return o.to.Intents(ctx, ids...)
}

func (o observedIntents) SwapIntent(ctx context.Context, old, next Intent) (err error) {
	ctx, now := o.s.begin(ctx, callSwapIntent, Call{Machine: next.Machine, Zone: next.Zone, Attempt: next.Attempt}, &err)
	defer now.done(&err)
	return o.to.SwapIntent(ctx, old, next)
}

func (o observedSpared) Spared(ctx context.Context) (r []Spared, err error) {
	ctx, now := o.s.begin(ctx, callSpared, Call{}, &err)
	defer now.done(&err)
	return o.to.Spared(ctx)
}

func (o observedSpared) AddSpared(ctx context.Context, x Spared) (err error) {
	ctx, now := o.s.begin(ctx, callAddSpared, Call{Machine: x.Machine, Instance: x.Instance}, &err)
	defer now.done(&err)
	return o.to.AddSpared(ctx, x)
}

func (o observedSpared) RemoveSpared(ctx context.Context, q SparedRemoval) (err error) {
	ctx, now := o.s.begin(ctx, callRemoveSpared, Call{}, &err)
	defer now.done(&err)
	return o.to.RemoveSpared(ctx, q)
}

func (o observedProfileState) ProfileChanges(ctx context.Context, ids ...MachineID) (r []ProfileChangeResult, err error) {
	ctx, now := o.s.begin(ctx, callProfileChanges, Call{Machines: len(ids)}, &err)
	defer now.done(&err)
	return o.to.ProfileChanges(ctx, ids...)
}

func (o observedProfileState) SetProfiles(ctx context.Context, rec ProfileRecord) (err error) {
	ctx, now := o.s.begin(ctx, callSetProfiles, Call{Machine: rec.Machine}, &err)
	defer now.done(&err)
	return o.to.SetProfiles(ctx, rec)
}

func (o observedProfileState) SetProfileStatus(ctx context.Context, u ProfileStatusUpdate) (err error) {
	ctx, now := o.s.begin(ctx, callSetProfileStatus, Call{Machine: u.Machine}, &err)
	defer now.done(&err)
	return o.to.SetProfileStatus(ctx, u)
}

func (o observedProfileState) RemoveProfileChange(ctx context.Context, q Removal) (err error) {
	ctx, now := o.s.begin(ctx, callRemoveProfileChange, Call{Machine: q.Machine}, &err)
	defer now.done(&err)
	return o.to.RemoveProfileChange(ctx, q)
}

func (o observedLimiter) Wait(ctx context.Context) (err error) {
	ctx, now := o.s.begin(ctx, o.id, Call{}, &err)
	defer now.done(&err)
	return o.to.Wait(ctx)
}
