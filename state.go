package provisioner

import (
	"context"
	"time"

	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// A State holds the host's machine records. It is one of the two interfaces
// that a host must bring.
//
// Every method may be called from several goroutines at once and must return
// soon after its context ends; what it returns belongs to the caller, so it
// hands out copies. A machine that does not exist is errors.NotFound (of
// github.com/juju/errors), one that may not be seen errors.Unauthorized; both
// belong into the result of that machine, never into the error of the call,
// which means "state could not be reached".
type State interface {
	// Fleet reads every machine. One that is absent does not exist.
	Fleet(ctx context.Context) ([]MachineResult, error)

	// Machines reads the given machines: one result for each id, in any
	// order. It is never called without ids, nor with one twice.
	Machines(ctx context.Context, ids ...MachineID) ([]MachineResult, error)

	// StartInfo reads what starts of the given machines need: one result for
	// each id, in any order. Only machines that are about to start are asked
	// for, at most 500 in one call.
	StartInfo(ctx context.Context, ids ...MachineID) ([]StartInfoResult, error)

	// SetInstance writes down what a machine was provisioned with. It is a
	// compare-and-set on "not provisioned": nil if the record now holds
	// exactly this instance (also when it did before), an error and no change
	// if it holds another, or if the machine is dead or gone.
	SetInstance(ctx context.Context, rec InstanceRecord) error

	// Remove takes the record of a dead machine away. It is idempotent:
	// removing what is not there is a success. The record of a machine that
	// isn't dead is not removed, and that is an error.
	Remove(ctx context.Context, req Removal) error
}

// A MachineResult is one machine's record, or why it could not be read.
type MachineResult struct {
	ID      MachineID // always set
	Machine Machine   // without meaning if Err isn't nil; its ID equals ID
	Err     error     // NotFound, Unauthorized, or anything else
}

// A StartInfoResult is what one machine needs to start, or why it could not
// be read. A NotValid error is final for the machine; any other is tried again.
type StartInfoResult struct {
	ID   MachineID // always set
	Info StartInfo // without meaning if Err isn't nil
	Err  error
}

// StartInfo is what the host tells about a machine that is about to start.
// Its zero value starts a machine anywhere, with nothing special. Whether the
// rest is valid, Validate says.
type StartInfo struct {
	Constraints constraints.Value // Constraints.Zones limits the zones
	Instance    instancecfg.Info
	Placement   string

	// Nonce is the machine's, "<host tag>:<uuid>", where the host makes one
	// with each record; never that of another record, nor of an earlier one
	// with the same id. Empty: a start draws one. With it a start that a crash
	// has cut off keeps its first token, also without an IntentStore.
	Nonce string

	// Group is the machine's distribution group. It is used where the host
	// has no GroupFinder; the zero value means no group.
	Group Group

	RootDisk     *RootDisk
	Volumes      []Volume
	Attachments  []VolumeAttachment
	Subnets      []SpaceSubnets
	EndpointBind map[string]string
	Images       []ImageMetadata
	Agents       []AgentBinary // used where the host has no AgentFinder; needed if Instance.AgentVersion is set
	Profiles     []string
}

// A Group is a set of machines to be kept apart.
type Group struct {
	// Key names the group: groups with one key have the same members. With a
	// key the work of a choice does not grow with the group; empty is fine.
	Key string

	// Members may hold the machine itself, and machines that are not
	// provisioned yet. Machines that the Task does not know count for nothing.
	Members []MachineID
}

// An InstanceRecord is all that is written down about a new instance, in one
// call.
type InstanceRecord struct {
	Machine     MachineID
	Instance    InstanceID
	DisplayName string
	Nonce       string
	Zone        ZoneName
	Hardware    constraints.Hardware
	Network     []NetworkInterface
	Volumes     []VolumeResult
	Attachments []VolumeAttachmentResult
	Profiles    []string
	Epoch       uint64 // of the lease that allows this, 0 without one
}

// A Removal names the machine whose record, or profile change, is to go.
type Removal struct {
	Machine MachineID
	Epoch   uint64 // of the lease that allows this, 0 without one
	Change  string // RemoveProfileChange: the ProfileChange.ID
}

// A StatusWriter is a state that shows progress. Without it nothing is shown
// but events, and a machine that failed for good starts again after a restart.
type StatusWriter interface {
	// WriteStatus is never called twice at once for one machine, and never
	// with an older text after a newer one.
	WriteStatus(ctx context.Context, u StatusUpdate) error
}

// A StatusUpdate is what to show of one machine.
type StatusUpdate struct {
	Machine        MachineID
	Status         Status         // of the machine; empty: leave it as it is
	InstanceStatus InstanceStatus // of its instance
	Text           string
	Epoch          uint64 // of the lease that allows this, 0 without one
}

// A LifeSetter is a state that can make a dying machine dead. Without it a
// machine that dies before it was provisioned is reported and left (CL3).
type LifeSetter interface {
	// EnsureDead is idempotent. It fails if the machine is alive.
	EnsureDead(ctx context.Context, req LifeRequest) error
}

// A LifeRequest names a machine that is to become dead.
type LifeRequest struct {
	Machine MachineID
	Epoch   uint64 // of the lease that allows this, 0 without one
}

// A RetryLister is a state that knows which failed machines are to be tried
// again. It is asked at each retry signal (ST16).
type RetryLister interface {
	// RetryMachines reads the machines whose errors may pass.
	RetryMachines(ctx context.Context) ([]MachineResult, error)
}

// A GroupFinder is a state that knows the distribution groups of machines.
// Where it is there, StartInfo.Group is not looked at.
type GroupFinder interface {
	// Groups gives one result for each id, in any order. A machine without a
	// group has a zero Group.
	Groups(ctx context.Context, ids ...MachineID) ([]GroupResult, error)
}

// A GroupResult is one machine's group, or why it could not be told. The
// error is that machine's provisioning error (DG5).
type GroupResult struct {
	ID    MachineID // always set
	Group Group
	Err   error
}

// An Authenticator is a state that makes the credentials a machine's agent
// logs in with.
type Authenticator interface {
	// Authenticate gives one result for each request, in any order. It is
	// called once for all attempts of a start, and not for an instance that
	// is there already and is adopted. A start that is gone on with, after a
	// restart or when something could not be reached, asks again under the
	// same nonce: an agent may have what was given for that before, so it must
	// still be good. A NotValid error is final for the machine; any other is
	// tried again.
	Authenticate(ctx context.Context, reqs ...AuthRequest) ([]AuthResult, error)
}

// An AuthRequest asks for one machine's credentials.
type AuthRequest struct {
	Machine MachineID
	Nonce   string
	Epoch   uint64 // of the lease that allows this, 0 without one
}

// An AuthResult is one machine's credentials, or why there are none.
type AuthResult struct {
	ID   MachineID // always set
	Auth instancecfg.Auth
	Err  error
}

// An AgentFinder is a state that can look up agent binaries (IC3).
type AgentFinder interface {
	// FindAgents returns what matches, best first; nothing is not an error. It
	// is called once for each query of a bulk of starts, and not for machines
	// whose information names no agent version. A NotValid error is final for
	// these machines; any other is tried again.
	FindAgents(ctx context.Context, q AgentQuery) ([]AgentBinary, error)
}

// An AgentQuery says which agent binaries would do.
type AgentQuery struct {
	Version string
	Base    string
	Arch    string // "amd64" by default
}

// An Intent is an attempt that is written down before the broker is called,
// so that a crash cannot hide it (ST10).
type Intent struct {
	Machine MachineID
	Attempt int // 0: no attempt is open
	Token   string
	Nonce   string // the machine's, also where no attempt is open; empty: it has none yet
	Zone    ZoneName
	At      time.Time // when the broker was first asked, by Config.Clock
	Epoch   uint64    // of the lease that allows this, 0 without one
}

// An IntentResult is one machine's stored intent, or why it could not be read.
type IntentResult struct {
	ID     MachineID // always set
	Intent Intent    // zero: none is stored
	Err    error
}

// An IntentStore is a state that can keep intents, one for each machine that
// is being started. An intent goes when its machine's record is removed; once
// the machine is provisioned it is not looked at any more. Machine is set in old
// and next, always; an intent with nothing besides means that none is stored.
// Compare At with Equal.
type IntentStore interface {
	// Intents gives one result for each id, in any order.
	Intents(ctx context.Context, ids ...MachineID) ([]IntentResult, error)

	// SwapIntent puts next in the place of old, if old is what is stored
	// (one with only Machine: nothing is), and fails without a change otherwise. An
	// error ends that start: the machine and its intent are read again.
	SwapIntent(ctx context.Context, old, next Intent) error
}

// A Spared is an instance that was left running on purpose when its record
// was removed, and must not be taken for an unknown one later (HV3, HV4). One
// that was kept is remembered until it is stopped by us; one that a mode has
// spared until it has been missing from all listings for 30 days.
type Spared struct {
	Instance InstanceID
	Machine  MachineID // whose it was
	Kept     bool      // by keep-instance; else by the harvest mode
	Epoch    uint64    // of the lease that allows this, 0 without one
}

// A SparedRemoval names instances that need not be remembered any more.
type SparedRemoval struct {
	Instances []InstanceID // never empty
	Epoch     uint64       // of the lease that allows this, 0 without one
}

// A SparedStore is a state that remembers spared instances over restarts. Without
// it they are remembered for the life of the Task: after a restart in a mode that
// stops unknown instances, those that were kept or spared before are unknown. It is
// read once; before that nothing unknown is stopped, and before an instance is
// remembered its record is not removed.
type SparedStore interface {
	// Spared gives all that are remembered, in any order.
	Spared(ctx context.Context) ([]Spared, error)
	// AddSpared remembers an instance, in the place of what was said of it
	// before. It is idempotent.
	AddSpared(ctx context.Context, s Spared) error
	// RemoveSpared is idempotent: an instance that is not remembered is a
	// success.
	RemoveSpared(ctx context.Context, req SparedRemoval) error
}

// A ProfileState is a state that has LXD profile changes to be made. Each is a
// document of one machine's, which has one at a time.
type ProfileState interface {
	// ProfileChanges gives one result for each id, in any order. It is asked for
	// at most 500 in one call: those that Config.ProfileChanges names, and all
	// machines at each whole look. A machine without a change is NotFound. A
	// change whose status word is terminal (LX8) is left alone; to have it made
	// again, the host empties the word.
	ProfileChanges(ctx context.Context, ids ...MachineID) ([]ProfileChangeResult, error)
	// SetProfiles records the profiles that a machine has now. A NotValid error
	// is the change's failure; any other is tried again. It is idempotent.
	SetProfiles(ctx context.Context, rec ProfileRecord) error
	// SetProfileStatus writes the status word of the change's document (LX8).
	// If the machine has another change by now, or none, that is NotFound, and
	// nothing is written. An error is tried again, with the change.
	SetProfileStatus(ctx context.Context, u ProfileStatusUpdate) error
	// RemoveProfileChange takes the document, and not the machine's record,
	// away (LX5). It is idempotent, and leaves another change alone.
	RemoveProfileChange(ctx context.Context, req Removal) error
}

// A ProfileRecord is the profiles that a machine has now.
type ProfileRecord struct {
	Machine  MachineID
	Profiles []string // names, in order
	Epoch    uint64   // of the lease that allows this, 0 without one
}

// A ProfileStatusUpdate is what has come of one machine's change.
type ProfileStatusUpdate struct {
	Machine MachineID
	Change  string // the ProfileChange.ID
	Status  string // the document's status word (LX8)
	Epoch   uint64 // of the lease that allows this, 0 without one
}

// A ProfileChange is one change of one machine's profiles: Profile takes the
// place of Old, comes after all others (without Old), or Old goes (without
// Profile). With neither there is nothing to do.
type ProfileChange struct {
	Machine     MachineID
	ID          string   // tells it from the machine's other changes, for the host; given back with what is written about it
	Old         string   // name of the profile that goes; empty: none
	Profile     *Profile // what comes; nil: nothing
	Subordinate bool     // asked for by a subordinate's application
	Status      string   // the document's status word (LX8)
}

// A ProfileChangeResult is one machine's change, or why it could not be read.
type ProfileChangeResult struct {
	ID     MachineID // always set
	Change ProfileChange
	Err    error
}

// A Lease says that this controller, and no other, may act (LC6).
type Lease interface {
	// Held is asked right before each effect; like Epoch it answers from
	// memory.
	Held() bool
	// Epoch grows each time the lease changes hands, and is never 0.
	Epoch() uint64
	// Lost is closed when the lease is lost.
	Lost() <-chan struct{}
}

// A Stream is a watcher that the host has opened for the Task.
type Stream[T any] struct {
	// C delivers. Closing it ends Run with an error (LD5). A nil C means that
	// there is no such watcher.
	C <-chan T

	// Stop releases the watcher and tells why it closed, if it did by itself.
	// It may be nil, is called once when Run ends, and does not wait.
	Stop func() error
}
