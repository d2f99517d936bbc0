package provisionertest

import (
	"context"
	"slices"

	"github.com/seed81ba69f2/provisioner"
)

// A Host is what a Task calls: three fields of a Config.
type Host struct {
	Broker   provisioner.Broker
	State    provisioner.State
	Optional provisioner.Optional
}

// Configure puts the host into a Config.
func (h Host) Configure(c *provisioner.Config) {
	c.Broker, c.State, c.Optional = h.Broker, h.State, h.Optional
}

// A HostCall is a call of a host that is about to be made.
type HostCall struct {
	Call      Call
	Machines  []provisioner.MachineID  // that it is about; none: about everything, or about instances only
	Zone      provisioner.ZoneName     // of a start
	Instances []provisioner.InstanceID // of a stop, and of what is done to one instance

	opens bool                     // an intent that opens an attempt
	stop  *provisioner.StopRequest // as do will make it
}

// A Hook stands in the place of each call of a host: it makes the call by do,
// or doesn't. If its error isn't nil, that is all the caller gets. It may be
// called from several goroutines.
type Hook func(ctx context.Context, c HostCall, do func(context.Context) error) error

// Intercept gives the same host with a hook in each of its calls. It has every
// capability that the host has, and no other: they are named in
// Host.Optional, so none is lost, and none is bypassed. Traits are the host's.
func Intercept(h Host, hook Hook) Host {
	found, _ := h.Optional.Find(h.Broker, h.State)
	b := &hookedBroker{h.Broker, found, hook}
	s := &hookedState{h.State, found, hook}
	hooked := provisioner.Optional{Traits: found.Traits}
	inPlace(&hooked.Zones, found.Zones, b)
	inPlace(&hooked.Deriver, found.Deriver, b)
	inPlace(&hooked.Finder, found.Finder, b)
	inPlace(&hooked.Maintainer, found.Maintainer, b)
	inPlace(&hooked.Profiles, found.Profiles, b)
	inPlace(&hooked.Namer, found.Namer, b)
	inPlace(&hooked.Status, found.Status, s)
	inPlace(&hooked.Life, found.Life, s)
	inPlace(&hooked.Retries, found.Retries, s)
	inPlace(&hooked.Groups, found.Groups, s)
	inPlace(&hooked.Authenticator, found.Authenticator, s)
	inPlace(&hooked.Agents, found.Agents, s)
	inPlace(&hooked.Intents, found.Intents, s)
	inPlace(&hooked.SparedStore, found.SparedStore, s)
	inPlace(&hooked.ProfileState, found.ProfileState, s)
	// What can do everything must not be taken at its word.
	return Host{struct{ provisioner.Broker }{b}, struct{ provisioner.State }{s}, hooked}
}

// inPlace puts next, which can do everything, into the field if the host has
// that capability.
func inPlace[T any](field *T, has T, next any) {
	if any(has) != nil {
		*field = next.(T)
	}
}

type hookedBroker struct {
	broker provisioner.Broker
	has    provisioner.Optional
	hook   Hook
}

type hookedState struct {
	state provisioner.State
	has   provisioner.Optional
	hook  Hook
}

// through makes one call by the hook.
func through[T any](ctx context.Context, hook Hook, c HostCall, do func(context.Context) (T, error)) (T, error) {
	var result, none T
	err := hook(ctx, c, func(ctx context.Context) (err error) {
		result, err = do(ctx)
		return err
	})
	if err != nil {
		return none, err
	}
	return result, nil
}

// about is a call about some machines.
func about(k Call, ids ...provisioner.MachineID) HostCall {
	return HostCall{Call: k, Machines: slices.Clone(ids)}
}

func (b *hookedBroker) Instances(ctx context.Context) (provisioner.Listing, error) {
	return through(ctx, b.hook, about(CallList), b.broker.Instances)
}

func (b *hookedBroker) Start(ctx context.Context, req provisioner.StartRequest) (provisioner.StartResult, error) {
	c := about(CallStart, req.Machine)
	c.Zone = req.Zone
	return through(ctx, b.hook, c, func(ctx context.Context) (provisioner.StartResult, error) { return b.broker.Start(ctx, req) })
}

func (b *hookedBroker) Stop(ctx context.Context, req provisioner.StopRequest) error {
	c := HostCall{Call: CallStop, Instances: slices.Clone(req.Instances), stop: &req}
	return b.hook(ctx, c, func(ctx context.Context) error { return b.broker.Stop(ctx, req) })
}

func (b *hookedBroker) Zones(ctx context.Context) ([]provisioner.Zone, error) {
	return through(ctx, b.hook, about(CallZones), b.has.Zones.Zones)
}

func (b *hookedBroker) DeriveZones(ctx context.Context, req provisioner.StartRequest) ([]provisioner.ZoneName, error) {
	return through(ctx, b.hook, about(CallDerive, req.Machine), func(ctx context.Context) ([]provisioner.ZoneName, error) {
		return b.has.Deriver.DeriveZones(ctx, req)
	})
}

func (b *hookedBroker) FindInstances(ctx context.Context, want provisioner.Labels) (provisioner.Listing, error) {
	c := about(CallFind)
	if want.Machine != "" {
		c.Machines = []provisioner.MachineID{want.Machine}
	}
	return through(ctx, b.hook, c, func(ctx context.Context) (provisioner.Listing, error) {
		return b.has.Finder.FindInstances(ctx, want)
	})
}

func (b *hookedBroker) Maintain(ctx context.Context, req provisioner.MaintainRequest) error {
	c := about(CallMaintain, req.Machine)
	c.Instances = []provisioner.InstanceID{req.Instance}
	return b.hook(ctx, c, func(ctx context.Context) error { return b.has.Maintainer.Maintain(ctx, req) })
}

func (b *hookedBroker) ChangeProfile(ctx context.Context, req provisioner.ProfileChangeRequest) ([]string, error) {
	c := about(CallChangeProfile, req.Machine)
	c.Instances = []provisioner.InstanceID{req.Instance}
	return through(ctx, b.hook, c, func(ctx context.Context) ([]string, error) { return b.has.Profiles.ChangeProfile(ctx, req) })
}

func (b *hookedBroker) ProfileNames(ctx context.Context, req provisioner.ProfileNamesRequest) ([]string, error) {
	c := about(CallProfileNames, req.Machine)
	c.Instances = []provisioner.InstanceID{req.Instance}
	return through(ctx, b.hook, c, func(ctx context.Context) ([]string, error) { return b.has.Namer.ProfileNames(ctx, req) })
}

func (s *hookedState) Fleet(ctx context.Context) ([]provisioner.MachineResult, error) {
	return through(ctx, s.hook, about(CallFleet), s.state.Fleet)
}

// bulk makes a call for some machines.
func bulk[R any](ctx context.Context, hook Hook, k Call, ids []provisioner.MachineID,
	do func(context.Context, ...provisioner.MachineID) ([]R, error)) ([]R, error) {
	return through(ctx, hook, about(k, ids...), func(ctx context.Context) ([]R, error) { return do(ctx, ids...) })
}

func (s *hookedState) Machines(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.MachineResult, error) {
	return bulk(ctx, s.hook, CallMachines, ids, s.state.Machines)
}

func (s *hookedState) StartInfo(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.StartInfoResult, error) {
	return bulk(ctx, s.hook, CallInfo, ids, s.state.StartInfo)
}

func (s *hookedState) SetInstance(ctx context.Context, rec provisioner.InstanceRecord) error {
	c := about(CallRecord, rec.Machine)
	c.Zone, c.Instances = rec.Zone, []provisioner.InstanceID{rec.Instance}
	return s.hook(ctx, c, func(ctx context.Context) error { return s.state.SetInstance(ctx, rec) })
}

func (s *hookedState) Remove(ctx context.Context, req provisioner.Removal) error {
	return s.hook(ctx, about(CallRemove, req.Machine), func(ctx context.Context) error { return s.state.Remove(ctx, req) })
}

func (s *hookedState) WriteStatus(ctx context.Context, u provisioner.StatusUpdate) error {
	return s.hook(ctx, about(CallStatus, u.Machine), func(ctx context.Context) error { return s.has.Status.WriteStatus(ctx, u) })
}

func (s *hookedState) EnsureDead(ctx context.Context, req provisioner.LifeRequest) error {
	return s.hook(ctx, about(CallDead, req.Machine), func(ctx context.Context) error { return s.has.Life.EnsureDead(ctx, req) })
}

func (s *hookedState) RetryMachines(ctx context.Context) ([]provisioner.MachineResult, error) {
	return through(ctx, s.hook, about(CallRetries), s.has.Retries.RetryMachines)
}

func (s *hookedState) Groups(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.GroupResult, error) {
	return bulk(ctx, s.hook, CallGroups, ids, s.has.Groups.Groups)
}

func (s *hookedState) Authenticate(ctx context.Context, reqs ...provisioner.AuthRequest) ([]provisioner.AuthResult, error) {
	c := about(CallAuth)
	for _, r := range reqs {
		c.Machines = append(c.Machines, r.Machine)
	}
	return through(ctx, s.hook, c, func(ctx context.Context) ([]provisioner.AuthResult, error) {
		return s.has.Authenticator.Authenticate(ctx, reqs...)
	})
}

func (s *hookedState) FindAgents(ctx context.Context, q provisioner.AgentQuery) ([]provisioner.AgentBinary, error) {
	return through(ctx, s.hook, about(CallAgents), func(ctx context.Context) ([]provisioner.AgentBinary, error) {
		return s.has.Agents.FindAgents(ctx, q)
	})
}

func (s *hookedState) Intents(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.IntentResult, error) {
	return bulk(ctx, s.hook, CallIntents, ids, s.has.Intents.Intents)
}

func (s *hookedState) SwapIntent(ctx context.Context, old, next provisioner.Intent) error {
	id := next.Machine
	if id == "" {
		id = old.Machine
	}
	c := about(CallIntent, id)
	c.Zone, c.opens = next.Zone, next.Attempt > 0
	return s.hook(ctx, c, func(ctx context.Context) error { return s.has.Intents.SwapIntent(ctx, old, next) })
}

func (s *hookedState) Spared(ctx context.Context) ([]provisioner.Spared, error) {
	return through(ctx, s.hook, about(CallSpared), s.has.SparedStore.Spared)
}

func (s *hookedState) AddSpared(ctx context.Context, sp provisioner.Spared) error {
	c := HostCall{Call: CallSpare, Instances: []provisioner.InstanceID{sp.Instance}}
	return s.hook(ctx, c, func(ctx context.Context) error { return s.has.SparedStore.AddSpared(ctx, sp) })
}

func (s *hookedState) RemoveSpared(ctx context.Context, req provisioner.SparedRemoval) error {
	c := HostCall{Call: CallUnspare, Instances: slices.Clone(req.Instances)}
	return s.hook(ctx, c, func(ctx context.Context) error { return s.has.SparedStore.RemoveSpared(ctx, req) })
}

func (s *hookedState) ProfileChanges(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.ProfileChangeResult, error) {
	return bulk(ctx, s.hook, CallProfiles, ids, s.has.ProfileState.ProfileChanges)
}

func (s *hookedState) SetProfiles(ctx context.Context, rec provisioner.ProfileRecord) error {
	return s.hook(ctx, about(CallSetProfiles, rec.Machine), func(ctx context.Context) error { return s.has.ProfileState.SetProfiles(ctx, rec) })
}

func (s *hookedState) SetProfileStatus(ctx context.Context, u provisioner.ProfileStatusUpdate) error {
	return s.hook(ctx, about(CallProfileStatus, u.Machine), func(ctx context.Context) error {
		return s.has.ProfileState.SetProfileStatus(ctx, u)
	})
}

func (s *hookedState) RemoveProfileChange(ctx context.Context, req provisioner.Removal) error {
	return s.hook(ctx, about(CallRemoveProfile, req.Machine), func(ctx context.Context) error {
		return s.has.ProfileState.RemoveProfileChange(ctx, req)
	})
}
