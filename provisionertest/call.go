package provisionertest

import (
	"context"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// A Call is one kind of call that a Task makes of its host. Its name is the
// first word of the call in a transcript and in a fault's text.
type Call string

// The calls: those of a broker, then those of a state.
const (
	AnyCall Call = "" // in a Fault and in Settings.Latency; "*" in text

	CallList          Call = "list"           // Broker.Instances
	CallStart         Call = "start"          // Broker.Start
	CallStop          Call = "stop"           // Broker.Stop
	CallZones         Call = "zones"          // ZoneLister.Zones
	CallDerive        Call = "derive"         // ZoneDeriver.DeriveZones
	CallFind          Call = "find"           // InstanceFinder.FindInstances
	CallMaintain      Call = "maintain"       // Maintainer.Maintain
	CallChangeProfile Call = "change-profile" // ProfileBroker.ChangeProfile
	CallProfileNames  Call = "profile-names"  // ProfileNamer.ProfileNames

	CallFleet         Call = "fleet"          // State.Fleet
	CallMachines      Call = "machines"       // State.Machines
	CallInfo          Call = "info"           // State.StartInfo
	CallRecord        Call = "record"         // State.SetInstance
	CallRemove        Call = "rm"             // State.Remove
	CallStatus        Call = "status"         // StatusWriter.WriteStatus
	CallDead          Call = "dead"           // LifeSetter.EnsureDead
	CallRetries       Call = "retries"        // RetryLister.RetryMachines
	CallGroups        Call = "groups"         // GroupFinder.Groups
	CallAuth          Call = "auth"           // Authenticator.Authenticate
	CallAgents        Call = "agents"         // AgentFinder.FindAgents
	CallIntents       Call = "intents"        // IntentStore.Intents
	CallIntent        Call = "intent"         // IntentStore.SwapIntent
	CallSpared        Call = "spared"         // SparedStore.Spared
	CallSpare         Call = "spare"          // SparedStore.AddSpared
	CallUnspare       Call = "unspare"        // SparedStore.RemoveSpared
	CallProfiles      Call = "profiles"       // ProfileState.ProfileChanges
	CallSetProfiles   Call = "set-profiles"   // ProfileState.SetProfiles
	CallProfileStatus Call = "profile-status" // ProfileState.SetProfileStatus
	CallRemoveProfile Call = "rm-profile"     // ProfileState.RemoveProfileChange
)

var brokerCalls = []Call{CallList, CallStart, CallStop, CallZones, CallDerive, CallFind, CallMaintain, CallChangeProfile, CallProfileNames}

var stateCalls = []Call{CallFleet, CallMachines, CallInfo, CallRecord, CallRemove, CallStatus, CallDead, CallRetries,
	CallGroups, CallAuth, CallAgents, CallIntents, CallIntent, CallSpared, CallSpare, CallUnspare,
	CallProfiles, CallSetProfiles, CallProfileStatus, CallRemoveProfile}

// Calls lists every kind of call, those of the broker first.
func Calls() []Call { return slices.Concat(brokerCalls, stateCalls) }

// Writes says whether calls of this kind change something.
func (k Call) Writes() bool {
	switch k {
	case CallStart, CallStop, CallMaintain, CallChangeProfile, CallRecord, CallRemove, CallStatus, CallDead,
		CallIntent, CallSpare, CallUnspare, CallSetProfiles, CallProfileStatus, CallRemoveProfile:
		return true
	}
	return false
}

// call is one call that is under way.
type call struct {
	kind      Call
	machine   provisioner.MachineID   // for calls about one machine
	machines  []provisioner.MachineID // for bulk calls
	zone      provisioner.ZoneName
	instance  provisioner.InstanceID
	instances []provisioner.InstanceID
	profiles  []string // that are being changed, "" for none; or the id of a change
	epoch     uint64
	detail    func() string // the rest of its text; nil: none

	journey
	hits  []*scripted // faults that hit it
	text  string
	begun int // number of its begin record
	locks []string
}

// do makes one call of the host: the way there, its effect under the lock, the
// way back, and whatever was scripted to go wrong.
func do[T any](ctx context.Context, w *World, c *call, show func(T) string, effect func() (T, error)) (T, error) {
	if w.plain.Load() {
		if err := ctx.Err(); err != nil {
			var zero T
			return zero, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fence(c)
		return effect()
	}
	return doSlowly(ctx, w, c, show, effect)
}

func doSlowly[T any](ctx context.Context, w *World, c *call, show func(T) string, effect func() (T, error)) (result T, err error) {
	var none T
	w.depart(c)
	if err := w.travel(ctx, c, c.there); err != nil {
		w.end(c, "", errors.Annotate(err, "on the way there"))
		return none, err
	}
	w.arrive(c)
	if err := w.suffer(ctx, c, false); err != nil {
		w.travelBack(ctx, c)
		w.end(c, "", err)
		return none, err
	}
	result, err = locked(w, c, effect)
	if err == nil {
		err = w.suffer(ctx, c, true)
	}
	if err == nil && c.lost {
		err = provisioner.Ambiguous(errors.New("connection lost before the reply"))
	}
	if late := w.travelBack(ctx, c); late != nil && err == nil {
		err = late
	}
	if err != nil {
		w.end(c, "", err)
		return none, err
	}
	w.end(c, show(result), nil)
	return result, nil
}

func locked[T any](w *World, c *call, effect func() (T, error)) (T, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fence(c)
	return effect()
}

// now is the World's time.
func (w *World) now() time.Time { return w.clock.Now() }

// none is the result of calls that have none.
type none = struct{}

func showNone(none) string { return "" }
