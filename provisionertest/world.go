package provisionertest

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed81ba69f2/provisioner"
)

// Settings say how kind a World is. The zero value is the unkind one: replies
// take their time and some are lost, a new instance is listed late, a stopped
// one lingers, and the broker promises nothing. Durations follow the
// convention of package provisioner: 0 is the default, provisioner.Off is none.
type Settings struct {
	// Clock defaults to clock.New(), which is virtual inside a synctest bubble.
	Clock clock.Clock

	// Kind turns the defaults of the fields below around: no latency, nothing
	// lost, listed at once (and promised to be), gone at once. Fields that are
	// set still count.
	Kind bool

	// Seed varies latencies and lost replies. One seed, one run.
	Seed uint64

	// Latency is about how long a call takes, by its kind; AnyCall stands for
	// the kinds not named. Half of it, more or less, passes before the effect,
	// half after it. How much more or less depends on the call, its arguments
	// and how often it was made, so that no two calls arrive at one instant.
	// Defaults to 2 s for a start, 1 s for a stop, 200 ms for other calls of
	// the broker and 50 ms for calls of the state.
	Latency map[Call]time.Duration

	// LostReplies: of the calls that change something, one in about this many
	// has its effect and returns an error all the same. Defaults to 20;
	// NeverLost for none.
	LostReplies int

	// Visibility is how long a new instance is missing from listings. Defaults
	// to 2 s. It is none where Traits promises consistent reads.
	Visibility time.Duration

	// Lingering is how long a stopped instance is still listed as running
	// down, and then for as long again as terminated. Defaults to 3 s.
	Lingering time.Duration

	// Controller labels the instances of machines that are added with one.
	Controller string

	// Traits is what the broker promises, and keeps. Instances of one that
	// doesn't promise labels are listed without; they can be searched by them
	// all the same.
	Traits provisioner.Traits

	// AsksGroup: Start asks for the machine's group, and fails if that fails.
	AsksGroup bool

	// Reports: Start reports its progress once.
	Reports bool

	// Echo: what the Task writes to the state comes back as a change. Off, a
	// Task can't live on the echoes of its own writes.
	Echo bool

	// Silent switches the recorder off, for benchmarks.
	Silent bool
}

// NeverLost is the value of Settings.LostReplies for none.
const NeverLost = -1

// A World is one truth, seen through the host's interfaces: what [World.State]
// records is what [World.Broker] runs, or isn't. All methods may be called
// from several goroutines. Make one with [New], inside the synctest bubble if
// there is one.
type World struct {
	set   Settings
	clock clock.Clock
	born  time.Time

	// plain: calls need nothing but their effect.
	plain atomic.Bool

	mu        sync.Mutex
	machines  map[provisioner.MachineID]*machine
	fleet     []*machine // in the order in which they were added
	instances map[provisioner.InstanceID]*instance
	listing   []*instance // in the order in which they were made
	strangers []*instance // that are nobody's
	tokens    map[string]*instance
	oddClaims map[provisioner.InstanceID][]*machine
	zones     []provisioner.Zone
	capacity  map[provisioner.ZoneName]int
	running   map[provisioner.ZoneName]int
	retryable map[provisioner.MachineID]bool
	spared    map[provisioner.InstanceID]provisioner.Spared
	agents    []provisioner.AgentBinary
	lease     *Lease

	faults  []*scripted
	release chan struct{}
	stuck   int
	calls   map[uint64]int

	records []Record
	arrived time.Time
	ties    int

	doubles    []Double
	wrongStops []WrongStop
	stale      []StaleWrite
	misuses    []Misuse
	inFlight   map[string]bool

	changes   watchers[[]provisioner.MachineID]
	retries   watchers[struct{}]
	profiling watchers[[]provisioner.MachineID]
}

// machine is a record of the state, and what is remembered of it afterwards.
type machine struct {
	provisioner.Machine
	exists bool // else the record is gone
	listed bool // is in World.fleet

	text     string // of the latest status
	recorded *provisioner.InstanceRecord
	info     *provisioner.StartInfo
	group    *provisioner.Group
	derived  []provisioner.ZoneName
	intent   provisioner.Intent
	change   *provisioner.ProfileChange
	profiles []string

	made      int         // instances that were started for it
	live      int         // instances of its that are not stopped
	instances []*instance // all of them
	request   *provisioner.StartRequest
}

// instance is one that the broker runs or ran.
type instance struct {
	id        provisioner.InstanceID
	machine   provisioner.MachineID // whose it is in truth; empty: nobody's
	zone      provisioner.ZoneName
	labels    provisioner.Labels
	mute      bool // it is listed without labels
	state     provisioner.InstanceState
	created   time.Time
	visible   time.Time // zero: at once
	stopped   time.Time // zero: it is live
	gone      bool
	protected bool // no leak, and must not be stopped
	excused   bool // no leak
	profiles  []string
}

func (i *instance) live() bool { return !i.gone && i.stopped.IsZero() }

// New makes an empty World.
func New(s Settings) *World {
	if s.Clock == nil {
		s.Clock = clock.New()
	}
	s.Latency = maps.Clone(s.Latency)
	s.Visibility = s.pick(s.Visibility, 2*time.Second)
	s.Lingering = s.pick(s.Lingering, 3*time.Second)
	if s.Traits.ConsistentReads {
		s.Visibility = 0
	}
	if s.Kind && s.Visibility == 0 {
		s.Traits.ConsistentReads = true
	}
	if s.LostReplies == 0 && !s.Kind {
		s.LostReplies = 20
	}
	w := &World{
		set:       s,
		clock:     s.Clock,
		born:      s.Clock.Now(),
		machines:  map[provisioner.MachineID]*machine{},
		instances: map[provisioner.InstanceID]*instance{},
		tokens:    map[string]*instance{},
		oddClaims: map[provisioner.InstanceID][]*machine{},
		capacity:  map[provisioner.ZoneName]int{},
		running:   map[provisioner.ZoneName]int{},
		retryable: map[provisioner.MachineID]bool{},
		spared:    map[provisioner.InstanceID]provisioner.Spared{},
		calls:     map[uint64]int{},
		inFlight:  map[string]bool{},
		release:   make(chan struct{}),
	}
	w.setPlain()
	return w
}

// pick resolves a duration that is set, or its default in this kind of world.
func (s Settings) pick(d, unkind time.Duration) time.Duration {
	switch {
	case d > 0:
		return d
	case d == 0 && !s.Kind:
		return unkind
	}
	return 0
}

// setPlain works out anew whether calls need nothing but their effect.
func (w *World) setPlain() {
	kind := w.set.Kind && len(w.set.Latency) == 0 && w.set.LostReplies <= 0
	w.plain.Store(kind && w.set.Silent && len(w.faults) == 0)
}

// machine finds the record of a machine, also of one that is gone; nil if
// there never was one.
func (w *World) machine(id provisioner.MachineID) *machine {
	return w.machines[id]
}

// known is like machine, but makes one that doesn't exist if there is none.
func (w *World) known(id provisioner.MachineID) *machine {
	m := w.machines[id]
	if m == nil {
		m = &machine{Machine: provisioner.Machine{ID: id}}
		w.machines[id] = m
	}
	return m
}

// claimants gives the machines whose records hold the instance.
func (w *World) claimants(id provisioner.InstanceID) []*machine {
	var found []*machine
	add := func(m *machine) {
		if m != nil && m.exists && m.Instance == id && !slices.Contains(found, m) {
			found = append(found, m)
		}
	}
	if i := w.instances[id]; i != nil {
		add(w.machines[i.machine])
	}
	for _, m := range w.oddClaims[id] {
		add(m)
	}
	return found
}

// claim notes that a record holds an instance that was not made for it, so
// that claimants finds it.
func (w *World) claim(m *machine) {
	if m.Instance == "" {
		return
	}
	if i := w.instances[m.Instance]; i == nil || i.machine != m.ID {
		w.oddClaims[m.Instance] = append(w.oddClaims[m.Instance], m)
	}
}
