package provisioner

import (
	"slices"
	"strings"

	"github.com/juju/errors"
)

// A HarvestMode says which instances may be stopped (HV1, HV2). The zero
// value is HarvestDestroyed.
type HarvestMode uint8

// The harvest modes.
const (
	HarvestDestroyed HarvestMode = iota // the instances of dead machines
	HarvestNone                         // nothing
	HarvestUnknown                      // those that no machine claims
	HarvestAll                          // both
)

var harvestNames = [...]string{"destroyed", "none", "unknown", "all"}

// ParseHarvestMode reads "none", "unknown", "destroyed" or "all"; the error
// for anything else satisfies NotValid.
func ParseHarvestMode(s string) (HarvestMode, error) {
	if i := slices.Index(harvestNames[:], s); i >= 0 {
		return HarvestMode(i), nil
	}
	return 0, errors.NotValidf("harvest mode %q: want none, unknown, destroyed or all:", s)
}

// Validate returns a NotValid error for a value that is none of the modes.
func (m HarvestMode) Validate() error {
	if int(m) < len(harvestNames) {
		return nil
	}
	return errors.NotValidf("harvest mode %d: want HarvestDestroyed, HarvestNone, HarvestUnknown or HarvestAll:", uint8(m))
}

// String gives the name that ParseHarvestMode reads.
func (m HarvestMode) String() string {
	if int(m) < len(harvestNames) {
		return harvestNames[m]
	}
	return "invalid"
}

// MarshalText gives the name; it fails for a value that is none of the modes.
func (m HarvestMode) MarshalText() ([]byte, error) { return []byte(m.String()), m.Validate() }

// UnmarshalText reads what ParseHarvestMode reads.
func (m *HarvestMode) UnmarshalText(text []byte) error {
	mode, err := ParseHarvestMode(string(text))
	if err != nil {
		return err
	}
	*m = mode
	return nil
}

// Destroyed says whether the instances of dead machines may be stopped.
func (m HarvestMode) Destroyed() bool { return m == HarvestDestroyed || m == HarvestAll }

// Unknown says whether instances that no machine claims may be stopped.
func (m HarvestMode) Unknown() bool { return m == HarvestUnknown || m == HarvestAll }

// FindUnknown returns the instances of a listing that no machine claims, by
// id. An instance without an id, and one that has terminated, is none. Being
// unclaimed is only the first of HV9's conditions: never stop what this
// returns on its word alone.
func FindUnknown(l Listing, claimed func(InstanceID) bool) []Instance {
	var unknown []Instance
	for _, i := range l.Instances {
		if i.ID != "" && i.State != InstanceTerminated && !claimed(i.ID) {
			unknown = append(unknown, i)
		}
	}
	slices.SortStableFunc(unknown, func(a, b Instance) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return slices.CompactFunc(unknown, func(a, b Instance) bool { return a.ID == b.ID })
}

// Fate is what becomes of a dead machine's instance.
type Fate uint8

// The fates.
const (
	FateNone    Fate = iota // there never was an instance
	FateStop                // stop it, then remove the record
	FateKept                // keep-instance: remove the record, leave the instance (HV3)
	FateSpared              // the mode forbids: the same (HV4)
	FateShared              // another machine claims it: leave both, report (HV5)
	FateUnclear             // something could not be read: leave both, look again
)

var fateNames = [...]string{"none", "stop", "kept", "spared", "shared", "unclear"}

// String gives the fate in lower case: "none", "stop", "kept", "spared",
// "shared", "unclear".
func (f Fate) String() string {
	if int(f) < len(fateNames) {
		return fateNames[f]
	}
	return "invalid"
}

// MarshalText gives the fate as String does.
func (f Fate) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// FateOf decides what becomes of the instance of a dead machine. other is a
// machine that isn't dead and claims the same instance, or "". In order:
//
//   - the instance id could not be read: unclear (CL9)
//   - no instance: none
//   - keep-instance could not be read: unclear (HV3)
//   - keep-instance: kept, whatever the mode (HV3)
//   - the mode does not allow destroyed ones: spared (HV4)
//   - another machine claims it: shared (HV5)
//   - otherwise: stop
func FateOf(m Machine, other MachineID, mode HarvestMode) (Fate, string) {
	switch {
	case m.Unread.Has(FieldInstance):
		return FateUnclear, "its instance id could not be read"
	case m.Instance == "":
		return FateNone, "never had an instance"
	case m.Unread.Has(FieldKeep):
		return FateUnclear, "whether its instance is to be kept could not be read"
	case m.Keep:
		return FateKept, "its instance is to be kept"
	case !mode.Destroyed():
		return FateSpared, "harvest mode " + mode.String() + " spares the instances of dead machines"
	case other != "":
		return FateShared, "its instance " + string(m.Instance) + " is also claimed by machine " + string(other)
	}
	return FateStop, "dead"
}

// fate is what becomes of the instance of a dead machine that has a rival: it
// is FateOf, but what another dead machine is to keep, or has kept, stays (HV3).
func fate(m Machine, by rival, kept bool, mode HarvestMode) (Fate, string) {
	f, reason := FateOf(m, by.owner, mode)
	switch {
	case f != FateStop:
	case by.keeper != "":
		return FateKept, "its instance is to be kept by machine " + string(by.keeper)
	case kept:
		return FateKept, "its instance was kept by another machine"
	}
	return f, reason
}

// A DeadMachine is a dead machine and, where there is one, another that isn't
// dead and claims the same instance.
type DeadMachine struct {
	Machine   Machine
	ClaimedBy MachineID
}

// A HarvestSet says what to stop and what to leave.
type HarvestSet struct {
	Stop []InstanceID // known dead first, then unknown; sorted within each (HV8)
	Left []Leftover   // by instance
}

// A Leftover is an instance that is not stopped, and why (HV13).
type Leftover struct {
	Instance InstanceID
	Machine  MachineID // empty for an unknown instance
	Fate     Fate
	Reason   string
}

// ReasonUnknown is what the reasons about unknown instances begin with.
const ReasonUnknown = "no machine claims it"

// Harvest says what becomes of the instances of dead machines. An instance that
// several of the dead have is stopped only if each of them would have it
// stopped. The unknown ones are listed as left alone whatever the mode: what it
// takes to stop one (HV9 to HV11) cannot be told from a single listing. MakePlan
// decides about them, by what its Snapshot says was seen before.
func Harvest(dead []DeadMachine, unknown []Instance, mode HarvestMode) HarvestSet {
	claims := map[InstanceID][]Machine{}
	for _, d := range dead {
		id := d.Machine.Instance
		if claims[id] = append(claims[id], d.Machine); d.ClaimedBy != "" {
			claims[id] = append(claims[id], Machine{ID: d.ClaimedBy, Life: Alive})
		}
	}
	delete(claims, "")
	var set HarvestSet
	for _, d := range dead {
		by := rivalOf(d.Machine, func(yield func(Machine) bool) {
			for _, other := range claims[d.Machine.Instance] {
				if other.ID != d.Machine.ID && !yield(other) {
					return
				}
			}
		})
		switch fate, reason := fate(d.Machine, by, false, mode); fate {
		case FateNone:
		case FateStop:
			set.Stop = append(set.Stop, d.Machine.Instance)
		default:
			set.Left = append(set.Left, Leftover{d.Machine.Instance, d.Machine.ID, fate, reason})
		}
	}
	for _, i := range unknown {
		set.Left = append(set.Left, Leftover{Instance: i.ID, Fate: FateSpared, Reason: ReasonUnknown})
	}
	slices.Sort(set.Stop)
	set.Stop = slices.Compact(set.Stop)
	slices.SortStableFunc(set.Left, func(a, b Leftover) int { return strings.Compare(string(a.Instance), string(b.Instance)) })
	return set
}
