package provisioner

import (
	"context"
	"time"

	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// A Broker makes and ends instances: a cloud, a cluster, a rack. It is one of
// the two interfaces that a host must bring.
//
// Every method may be called from several goroutines at once, must return soon
// after its context ends, may read but not change what its request holds, and
// owns nothing of it after it has returned; what it returns belongs to the
// caller. A panic in it becomes that
// machine's error.
//
// Interfaces of this package never grow; new abilities are new, optional
// interfaces (see [Optional]).
type Broker interface {
	// Instances lists what the broker runs or is about to run, powered-off
	// instances included. What is missing from a complete listing is taken as
	// not there, so Listing.Complete must only be set when it is.
	Instances(ctx context.Context) (Listing, error)

	// Start makes one instance for one machine, in req.Zone unless that is
	// empty. It must put req.Labels on the instance in the same call that
	// makes it, and should use req.Token as its idempotency key. An error
	// means that there is no instance, unless it is marked [Ambiguous] or the
	// context has ended; what else it means for the next attempt, the
	// markers say ([ZoneIndependent], [Permanent], [RetryAfter],
	// [OutOfCapacity], …). An unmarked error is the zone's.
	Start(ctx context.Context, req StartRequest) (StartResult, error)

	// Stop ends instances for good. It is idempotent: an id that the broker
	// does not know is a success. When only some could be stopped the error
	// is, or wraps, a *[StopError] that tells which failed; any other error
	// means that none is known to have been stopped.
	Stop(ctx context.Context, req StopRequest) error
}

// A Listing is a broker's answer to "what is there?". Its zero value is the
// safe one: nothing seen, and not complete.
type Listing struct {
	Instances []Instance

	// Complete says that every instance is in the listing, save those in the
	// zones of Failed.
	Complete bool

	// Failed names the zones that did not answer.
	Failed []ZoneName
}

// An Instance is what a broker tells of one instance.
type Instance struct {
	ID      InstanceID
	Zone    ZoneName      // empty: the broker does not tell
	State   InstanceState // zero: present
	Created time.Time     // by the broker's clock; zero: it does not tell
	Labels  Labels        // as given to Start; zero: none
}

// InstanceState is how far an instance is. The zero value counts as there.
type InstanceState string

// The states that matter. Brokers may use other words; they count as present.
const (
	InstancePresent    InstanceState = ""
	InstanceStarting   InstanceState = "starting"
	InstanceUp         InstanceState = "running"
	InstanceStopped    InstanceState = "stopped"    // powered off, still there
	InstanceTerminated InstanceState = "terminated" // listed as history only
)

// Labels say whose an instance is. They go into the call that makes it, never
// afterwards.
type Labels struct {
	Controller string // Config.Controller
	Machine    MachineID
	Nonce      string // the machine's, the same over all its attempts
	Token      string // the attempt's
	Epoch      uint64 // the lease's, 0 without one
}

// A StartRequest is all that a broker may need for one instance. A simple
// broker reads Machine, Zone, Token, Labels and Config, and leaves the rest. Its
// lists and maps are those of all attempts, so a broker must not change them.
type StartRequest struct {
	Machine MachineID
	Attempt int      // 1 for the first
	Zone    ZoneName // where to start; empty: the broker's choice
	Nonce   string   // "<host tag>:<uuid>", the same over all attempts
	Token   string   // idempotency key of this attempt
	Labels  Labels   // to be put on the instance by the same call
	Epoch   uint64   // of the lease that allows this, 0 without one

	// Host and HostInstance name what a container is to run on; empty for a
	// top-level machine.
	Host         MachineID
	HostInstance InstanceID

	Constraints  constraints.Value
	Config       instancecfg.Config // what the machine's agent boots with; holds secrets
	Agents       []AgentBinary      // candidates, best first
	Placement    string             // the host's placement directive, verbatim
	RootDisk     *RootDisk          // nil: the broker's default
	Volumes      []Volume           // to be made with the instance
	Attachments  []VolumeAttachment // to be attached to it
	Subnets      []SpaceSubnets     // subnets it may use and their zones, ordered by space
	EndpointBind map[string]string  // endpoint → space
	Images       []ImageMetadata    // candidates, best first
	Profiles     []string           // LXD profiles to apply, in order

	// Group gives the instances that this one should be kept apart from, the
	// machine's own included once it has one (DG2, DG3). It is never nil. It
	// may call the host, so it takes a context and may fail; a broker that
	// does not ask causes no call.
	Group func(ctx context.Context) ([]InstanceID, error)

	// Report shows progress on the machine's instance status. It is never
	// nil, does not wait, may be called from any goroutine, and does nothing
	// once Start has returned.
	Report func(status InstanceStatus, text string)
}

// A StartResult is what came of a start. One that cannot be (no instance,
// another zone or architecture than asked for, a volume that nobody asked for
// or that is given twice, an address that is none, a size of 0) is the broker's
// error: what it made is stopped, and the start tried again (ST9).
type StartResult struct {
	Instance    InstanceID // must not be empty
	DisplayName string
	Zone        ZoneName // must be the one asked for, where one was
	Hardware    constraints.Hardware
	Network     []NetworkInterface
	Volumes     []VolumeResult
	Attachments []VolumeAttachmentResult
	Profiles    []string // those applied; nil: what the ProfileNamer says, else as asked
}

// A StopRequest names instances to be ended for good.
type StopRequest struct {
	Instances []InstanceID // sorted; never empty, no id twice
	Epoch     uint64       // of the lease that allows this, 0 without one
}

// A RootDisk says where an instance's root file system comes from.
type RootDisk struct {
	Source string // a storage pool or the like; empty: the broker's default
	SizeM  uint64 // MiB; 0: the broker's default
}

// A Volume is to be made together with an instance. It needs a
// VolumeAttachment that names its ID (IC4).
type Volume struct {
	ID         string // the host's
	SizeM      uint64 // MiB
	Provider   string
	Attributes map[string]string
	Tags       map[string]string
}

// A VolumeAttachment says that a volume is to be attached to the machine that
// is being started.
type VolumeAttachment struct {
	Volume   string // the host's volume id
	VolumeID string // the broker's id, for a volume that exists
	Machine  MachineID
	Instance InstanceID // must be empty: there is none yet
	Provider string
	ReadOnly bool
}

// SpaceSubnets lists the subnets of one space and the zones each is in.
type SpaceSubnets struct {
	Space   string
	Subnets []SubnetZones
}

// SubnetZones is one subnet and the zones it reaches.
type SubnetZones struct {
	Subnet string
	Zones  []ZoneName
}

// ImageMetadata is one image that could be booted.
type ImageMetadata struct {
	ID          string
	Arch        string
	Base        string
	Stream      string
	Region      string
	VirtType    string
	RootStorage string
	RootSizeM   uint64 // MiB
}

// An AgentBinary is one build of the agent that a machine could run.
type AgentBinary struct {
	Version string
	Base    string
	Arch    string
	URL     string
	SHA256  string
	Size    int64 // bytes
}

// A NetworkInterface is one interface of a started instance.
type NetworkInterface struct {
	Name       string
	MAC        string
	Addresses  []string // CIDR or plain
	Gateway    string
	DNSServers []string
	Space      string
	Subnet     string
}

// A VolumeResult is a volume that was made.
type VolumeResult struct {
	Volume     string // the host's volume id
	VolumeID   string // the broker's
	HardwareID string
	WWN        string
	SizeM      uint64 // MiB
	Persistent bool   // outlives the instance
}

// A VolumeAttachmentResult is a volume that was attached.
type VolumeAttachmentResult struct {
	Volume         string // the host's volume id
	DeviceName     string
	DeviceLink     string
	BusAddress     string
	ReadOnly       bool
	PlanType       string
	PlanAttributes map[string]string
}

// A ZoneLister is a broker that has availability zones. Without it, when it
// answers errors.NotImplemented or errors.NotSupported, and when it lists
// none, starts carry no zone (AZ1).
type ZoneLister interface {
	// Zones lists every zone, those that are unavailable too. A zone's name
	// is never empty and given once.
	Zones(ctx context.Context) ([]Zone, error)
}

// A ZoneDeriver is a broker that can tell which zones a start's parameters
// imply (a placement directive, a subnet, a volume that exists).
type ZoneDeriver interface {
	// DeriveZones returns the zones that the start is bound to; none means
	// all. A NotValid error is the machine's final one, any other is tried
	// again (AZ10). It has no effect.
	DeriveZones(ctx context.Context, req StartRequest) ([]ZoneName, error)
}

// An InstanceFinder is a broker that can search its instances by the labels
// that they were started with, also if its listings do not show any. With it a
// start whose outcome is unknown costs a search for one machine, not a listing
// of everything.
type InstanceFinder interface {
	// FindInstances lists the instances whose labels equal every field of
	// want that isn't zero. It sees an instance as soon as, and for as long
	// as, Instances does, or sooner.
	FindInstances(ctx context.Context, want Labels) (Listing, error)
}

// A Maintainer is a broker that looks after running containers.
type Maintainer interface {
	// Maintain is called for each provisioned container whenever it is looked
	// at (CL11). It is idempotent.
	Maintain(ctx context.Context, req MaintainRequest) error
}

// A MaintainRequest names one running container.
type MaintainRequest struct {
	Machine  MachineID
	Instance InstanceID
	Epoch    uint64 // of the lease that allows this, 0 without one
}

// A ProfileBroker is a broker that can change the LXD profiles of a running
// instance.
type ProfileBroker interface {
	// ChangeProfile puts req.Profile in the place of the profile named
	// req.Old, appends it where Old is empty, or takes Old away where Profile
	// is nil. It is idempotent and returns the names that the instance has
	// afterwards, in order. One instance is changed by one call at a time, and
	// so is one profile, going or coming. An error that satisfies NotSupported
	// or NotImplemented means that this instance has no profiles (LX6). Others
	// are marked as those of Start are: NotValid, Permanent and Unauthorized
	// ones are the change's failure, the rest is tried again (Policy.Profiles).
	ChangeProfile(ctx context.Context, req ProfileChangeRequest) ([]string, error)
}

// A ProfileChangeRequest is one change of one instance's profiles.
type ProfileChangeRequest struct {
	Machine  MachineID
	Instance InstanceID
	Old      string   // name of the profile that goes; empty: none
	Profile  *Profile // what comes; nil: nothing
	Epoch    uint64   // of the lease that allows this, 0 without one
}

// A Profile is an LXD profile.
type Profile struct {
	Name        string
	Description string
	Config      map[string]string
	Devices     map[string]map[string]string
}

// A ProfileNamer is a broker that knows which profiles a container ends up
// with (IC7).
type ProfileNamer interface {
	// ProfileNames is called once the container runs, before it is recorded.
	// If it fails, those asked for are recorded.
	ProfileNames(ctx context.Context, req ProfileNamesRequest) ([]string, error)
}

// A ProfileNamesRequest asks for the profiles of one container.
type ProfileNamesRequest struct {
	Machine  MachineID
	Instance InstanceID
	Asked    []string // those that its start asked for, in order
}

// Traits are promises of a broker about itself. The zero value promises
// nothing and is safe.
type Traits struct {
	// DedupesByToken: Start called again with a token it has seen returns the
	// first call's instance, and makes none.
	DedupesByToken bool

	// Labels: every instance carries the labels it was started with, from the
	// moment it can be listed.
	Labels bool

	// ConsistentReads: a listing or a search that begins after a call of Start
	// has ended, in whatever way, holds what that call has made; it makes
	// nothing later. Without this promise a Task waits for a second look (see
	// Config.VisibilityGrace) before it believes that there is none.
	ConsistentReads bool
}

// A TraitsReporter is a broker that makes promises about itself.
type TraitsReporter interface {
	// Traits does no I/O and gives the same answer each time.
	Traits() Traits
}

// A Limiter slows calls down; golang.org/x/time/rate has one.
type Limiter interface {
	// Wait returns nil when the call may be made, and an error when ctx ends
	// before that.
	Wait(ctx context.Context) error
}
