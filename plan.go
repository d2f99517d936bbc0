package provisioner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/juju/errors"
)

// An ActionKind is one thing that can be done about a machine.
type ActionKind string

// What can be done.
const (
	ActionLeave    ActionKind = "leave"    // nothing, for the reason given
	ActionStop     ActionKind = "stop"     // stop its instance, then remove its record
	ActionRemove   ActionKind = "remove"   // remove its record; there is nothing to stop
	ActionMaintain ActionKind = "maintain" // the broker's upkeep of a container
	ActionStart    ActionKind = "start"    // start an instance
	ActionCancel   ActionKind = "cancel"   // drop the start that is under way
	ActionProfile  ActionKind = "profile"  // change its profiles; in reports only, for plans are not about them
)

// An Action is what is to be done about one machine, and why.
type Action struct {
	Kind   ActionKind
	Was    Machine    // the record by which this was decided
	Zone   ZoneName   // ActionStart: where; empty: the broker's choice
	Choice ZoneChoice // why there, if Zone is set
	Fate   Fate       // of a dead machine's instance
	Reason string     // never empty

	// EnsureDead: the host has to make the record dead first (CL3).
	EnsureDead bool

	// LookAgain: something could not be read, so the decision is not final.
	LookAgain bool

	// Err is a fault of the record or of what the start needs, or nil.
	Err error
}

// String gives the action in one line.
func (a Action) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %s", a.Kind, a.Was.ID)
	if a.Was.Instance != "" && a.Kind != ActionStart {
		fmt.Fprintf(&b, " (%s)", a.Was.Instance)
	}
	if a.Zone != "" {
		fmt.Fprintf(&b, " in %s (%s)", a.Zone, a.Choice)
	}
	fmt.Fprintf(&b, ": %s", a.Reason)
	return b.String()
}

// MarshalJSON gives the action as an object. Its fields do not change: kind,
// machine, zone (where to start), choice (why there, a [ZoneChoice]), fate,
// reason, ensureDead, lookAgain, error (the text of Err) and record (Was, as a
// [Machine] encodes); those that are zero are left out, but kind, machine,
// reason and record never are.
func (a Action) MarshalJSON() ([]byte, error) {
	var choice *ZoneChoice
	if a.Zone != "" {
		choice = &a.Choice
	}
	return json.Marshal(struct {
		Kind       ActionKind  `json:"kind"`
		Machine    MachineID   `json:"machine"`
		Zone       ZoneName    `json:"zone,omitempty"`
		Choice     *ZoneChoice `json:"choice,omitempty"`
		Fate       Fate        `json:"fate,omitempty"`
		Reason     string      `json:"reason"`
		EnsureDead bool        `json:"ensureDead,omitempty"`
		LookAgain  bool        `json:"lookAgain,omitempty"`
		Error      string      `json:"error,omitempty"`
		Record     Machine     `json:"record"`
	}{a.Kind, a.Was.ID, a.Zone, choice, a.Fate, a.Reason, a.EnsureDead, a.LookAgain, errorText(a.Err), a.Was})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A ZoneChoice is why a zone was chosen: what it holds, the machine itself not
// counted, and what would have been next. Both are compared by the order of
// SortZones.
type ZoneChoice struct {
	Group     int      `json:"group"`          // members of the machine's group in the zone
	Total     int      `json:"total"`          // machines in it
	Next      ZoneName `json:"next,omitempty"` // empty: no other can be used
	NextGroup int      `json:"nextGroup,omitempty"`
	NextTotal int      `json:"nextTotal,omitempty"`
}

// String gives the choice in a few words.
func (c ZoneChoice) String() string {
	counts := func(group, total int) string { return fmt.Sprintf("group %d, all %d", group, total) }
	switch {
	case c.Next == "":
		return counts(c.Group, c.Total) + ", the only one"
	case c.Group == c.NextGroup && c.Total == c.NextTotal:
		return counts(c.Group, c.Total) + ", as " + string(c.Next)
	}
	return counts(c.Group, c.Total) + ", before " + string(c.Next) + " with " + counts(c.NextGroup, c.NextTotal)
}

// A Phase is what a Task is doing about a machine.
type Phase string

// The phases.
const (
	PhaseResting     Phase = ""            // nothing
	PhaseQueued      Phase = "queued"      // waits for a place to start
	PhasePreparing   Phase = "preparing"   // what the start needs is being read
	PhaseSearching   Phase = "searching"   // for instances that earlier attempts may have made
	PhaseStarting    Phase = "starting"    // the broker is asked for an instance
	PhaseWaiting     Phase = "waiting"     // for the next attempt
	PhaseConfirming  Phase = "confirming"  // whether its instance was recorded
	PhaseUndoing     Phase = "undoing"     // an instance that could not be recorded
	PhaseStopping    Phase = "stopping"    // its instance
	PhaseRemoving    Phase = "removing"    // its record
	PhaseResetting   Phase = "resetting"   // its statuses, for a retry
	PhaseMaintaining Phase = "maintaining" // its upkeep
	PhaseProfiling   Phase = "profiling"   // its profiles are changed
	PhaseFailed      Phase = "failed"      // given up; waits for a retry signal
)

// Doing is what a Task is doing about a machine, and the zone that it holds.
type Doing struct {
	Phase Phase
	Zone  ZoneName
	Asked time.Time // since when the broker may be making an instance for it; zero: not known
	Open  bool      // it may, since Asked; if not, the phase tells
}

// starting says whether a start is under way in any form.
func (p Phase) starting() bool {
	switch p {
	case PhaseQueued, PhasePreparing, PhaseSearching, PhaseStarting, PhaseWaiting, PhaseConfirming, PhaseUndoing:
		return true
	}
	return false
}

// between says whether a start is under way and no call that would make or
// record an instance is: it can be dropped without a trace.
func (p Phase) between() bool {
	return p.starting() && p != PhaseStarting && p != PhaseConfirming
}

// busy says whether something is under way that has to end first: a machine
// has one operation at a time (LD6).
func (p Phase) busy() bool { return p != PhaseResting && p != PhaseFailed }

// A situation is all that decide looks at besides the record and the policy.
type situation struct {
	phase         Phase
	rival         rival     // of a dead machine with an instance
	settled       bool      // its instance has been stopped
	kept          bool      // its instance was kept by a machine that is gone
	host          hostState // of a container
	canEnsureDead bool
	canMaintain   bool
}

// A rival is another machine that has a dead machine's instance in its record.
type rival struct {
	owner  MachineID // isn't dead, or may be to keep the instance: it must not be stopped
	keeper MachineID // dead too, and is to keep the instance (HV3)
	first  MachineID // dead too, and sees to the stop (HV7: nothing is stopped twice at once)
}

// rivalOf picks the rival of a dead machine from the others with its instance:
// the lowest owner, or else the lowest that comes before the machine itself.
func rivalOf(m Machine, others iter.Seq[Machine]) rival {
	var r rival
	lower := func(id *MachineID, by MachineID) {
		if *id == "" || by.Compare(*id) < 0 {
			*id = by
		}
	}
	for o := range others {
		switch {
		case o.ID == "": // no machine's
		case o.Life != Dead || o.Unread.Has(FieldKeep):
			lower(&r.owner, o.ID)
		case o.Keep:
			lower(&r.keeper, o.ID)
		case o.ID.Compare(m.ID) < 0:
			lower(&r.first, o.ID)
		}
	}
	return r
}

// hostState says whether a container's host can take it.
type hostState uint8

const (
	hostReady    hostState = iota // provisioned and alive, or not ours to see
	hostNotReady                  // not provisioned yet, not readable, or of unknown life
	hostLeaving                   // dying or dead
	hostMissing                   // not in a fleet that shows machines of its depth
)

// hostStateOf is the state of a host that is in the fleet.
func hostStateOf(host Machine) hostState {
	switch {
	case host.Life == Dying, host.Life == Dead:
		return hostLeaving
	case host.Life != Alive, host.Instance == "", host.Unread.Has(FieldInstance):
		return hostNotReady
	}
	return hostReady
}

// reason is why a container has to wait for its host; empty if it hasn't.
func (h hostState) reason(host MachineID) string {
	switch h {
	case hostNotReady:
		return "waits until its host " + string(host) + " is provisioned"
	case hostLeaving:
		return "its host " + string(host) + " is going away"
	case hostMissing:
		return "its host " + string(host) + " is not known"
	}
	return ""
}

// reasonUnderWay is made beforehand, as each attempt decides once more.
var reasonUnderWay = func() map[Phase]string {
	reasons := map[Phase]string{}
	for _, p := range lifePhases {
		reasons[p] = "its start is under way (" + string(p) + ")"
	}
	return reasons
}()

const reasonUnwanted = "its start is under way and no longer wanted"

// decide is the one rule: what is to be done about one machine (LD8). MakePlan
// folds it over a fleet, the engine applies it to one machine.
func decide(m Machine, s situation, p Policy) Action {
	c := Classify(m)
	a := Action{Kind: ActionLeave, Was: m, Reason: c.Reason, LookAgain: c.LookAgain, Err: c.Err}
	if c.Err != nil {
		if (m.Life == Dying || m.Life == Dead) && s.phase.starting() {
			return Action{Kind: ActionCancel, Was: m, Reason: reasonUnwanted}
		}
		return a
	}
	if m.Instance != "" && c.Class != ClassDead && s.phase.between() {
		a.Kind, a.Reason = ActionCancel, "it has an instance now"
		return a
	}
	switch c.Class {
	case ClassPending:
		return decidePending(a, s)
	case ClassDead:
		a.EnsureDead = c.EnsureDead
		return decideDead(a, s, p)
	case ClassMaintain:
		switch {
		case s.phase.busy():
			a.Reason = "busy: " + string(s.phase)
		case s.canMaintain:
			a.Kind = ActionMaintain
		default:
			a.Reason = "a provisioned container, and the broker has no upkeep"
		}
	}
	return a
}

func decidePending(a Action, s situation) Action {
	switch {
	case s.phase.starting():
		a.Reason = reasonUnderWay[s.phase]
	case s.phase == PhaseFailed:
		a.Reason = "its start has failed: waits for a retry signal"
	case s.phase.busy():
		a.Reason = "busy: " + string(s.phase)
	case s.host != hostReady:
		a.Reason = s.host.reason(a.Was.ID.Host())
	default:
		a.Kind = ActionStart
	}
	return a
}

func decideDead(a Action, s situation, p Policy) Action {
	switch {
	case s.phase.starting():
		a.Kind, a.Reason = ActionCancel, reasonUnwanted
		return a
	case s.phase.busy():
		a.Reason = "busy: " + string(s.phase)
		return a
	case a.EnsureDead && !s.canEnsureDead:
		a.Reason = "dying and never provisioned, and the state cannot make it dead"
		a.Err = errors.WithType(errors.Errorf("machine %s: cannot be made dead: the state is no LifeSetter", a.Was.ID), errors.NotSupported)
		return a
	}
	if s.settled {
		a.Kind, a.Reason = ActionRemove, "dead, and its instance is stopped"
		return a
	}
	dead := a.Reason
	a.Fate, a.Reason = fate(a.Was, s.rival, s.kept, p.Harvest)
	switch a.Fate {
	case FateStop:
		if s.rival.first != "" {
			a.Reason = "machine " + string(s.rival.first) + " has the same instance and comes first"
			return a
		}
		a.Kind = ActionStop
	case FateNone:
		a.Kind, a.Reason = ActionRemove, dead+", "+a.Reason
	case FateKept, FateSpared:
		a.Kind = ActionRemove
	case FateShared:
		a.Err = errors.Errorf("machine %s: %s", a.Was.ID, a.Reason)
	case FateUnclear:
		a.LookAgain = true
		a.Err = errors.Errorf("machine %s: %s", a.Was.ID, a.Reason)
	}
	return a
}

// A Snapshot is everything that a plan is made from.
type Snapshot struct {
	// Fleet is the whole fleet, in any order. A machine that is in it twice, or
	// whose result carries another id than its record, is left alone with an
	// error; so are those that cannot be read.
	Fleet []MachineResult

	// Listing is what the broker runs. It gives the zones that records lack,
	// and shows unknown instances.
	Listing Listing

	// Zones is the broker's list; empty: it has none, and starts carry none.
	Zones []Zone

	// ZonesUnread says that the broker has zones and they could not be read:
	// nothing is started (AZ2).
	ZonesUnread bool

	// Needs tells about machines that may start. A machine that is missing
	// here needs nothing special.
	Needs map[MachineID]Needs

	// Doing tells what is going on already. A machine that is missing rests.
	Doing map[MachineID]Doing

	// Kept names the instances that keep-instance has left running though their
	// machine's record is gone: another machine that claims one keeps it (HV3).
	Kept []InstanceID

	// Spared names those that a harvest mode has left running likewise (HV4).
	// SparedUnread says that not all of Kept and Spared could be read: then no
	// unknown instance is stopped.
	Spared       []InstanceID
	SparedUnread bool

	// Accounted names further instances that are there for a known reason though
	// no record has them: stopped and perhaps still listed, or made and on their
	// way out. Like those of Kept and Spared they are not unknown.
	Accounted []InstanceID

	// At is when the listing was asked for. Seen says since when instances have
	// been seen, without a gap, that no machine claims; one that is missing was
	// not seen before. Without either no unknown instance is stopped (HV9).
	At   time.Time
	Seen map[InstanceID]time.Time

	// Controller is the host's (Config.Controller). Labels says that the broker
	// labels what it makes, at once (Traits.Labels).
	Controller string
	Labels     bool

	// Doomed names unknown instances that are on their way out already. They
	// take no share of Policy.MaxUnknown, but Spent of it is gone: listings
	// within Policy.UnknownGrace share it. Frozen is what is frozen, and Approved
	// what was approved of it (HV11).
	Doomed   []InstanceID
	Spent    int
	Frozen   *Frozen
	Approved []InstanceID

	// CanEnsureDead and CanMaintain tell what the host is able to do.
	CanEnsureDead bool
	CanMaintain   bool
}

// Needs is what the choice of a zone for one machine depends on.
type Needs struct {
	Zones   []ZoneName // its constraint; none: all
	Derived []ZoneName // implied by its start parameters; none: all
	Group   Group
	Err     error // it could not be told; the machine is left alone
}

// A ZoneCount is one zone and the machines in it.
type ZoneCount struct {
	Zone      ZoneName `json:"zone"`
	Available bool     `json:"available"`
	Machines  int      `json:"machines"` // top-level ones, planned ones included
}

// A Plan is what would be done about a fleet, and why: plain data. Print it,
// compare it, filter Actions to veto, give it to Task.Apply.
type Plan struct {
	Harvest  HarvestMode
	Actions  []Action   // stops, removals, upkeep, starts; sorted within each
	Left     []Action   // machines that are left alone, by id
	Unknown  []Instance // instances that nobody accounts for, by id; what becomes of them, Sweep says
	Sweep    Sweep      // what becomes of all instances that no machine's record has
	Zones    []ZoneCount
	Warnings []string
}

// MakePlan decides about a whole fleet. It is pure: it changes nothing it is
// given, and gives the same plan for the same snapshot and policy.
func MakePlan(s Snapshot, p Policy) Plan {
	pl := planner{snapshot: s, policy: p, ledger: newLedger(p)}
	pl.index()
	pl.populate()
	// facts → Action of each machine → Actions in order → zones for the starts
	pl.decideAll()
	pl.order()
	pl.placeStarts()
	pl.report()
	return pl.plan
}

type planner struct {
	snapshot Snapshot
	policy   Policy
	fleet    []MachineResult        // sorted by id; twins in any order
	byID     map[MachineID]int32    // only if something has to be looked up
	claims   map[InstanceID][]int32 // who claims the instances of dead machines
	depth    *int                   // what least has found
	ledger   *ledger
	plan     Plan
}

func (pl *planner) index() {
	pl.fleet = sortedFleet(pl.snapshot.Fleet)
	lookups := len(pl.snapshot.Needs) > 0
	dead := false
	for i := range pl.fleet {
		lookups = lookups || pl.fleet[i].ID.IsContainer()
		dead = dead || pl.fleet[i].Machine.Life == Dead
	}
	if lookups {
		pl.byID = make(map[MachineID]int32, len(pl.fleet))
		for i := range pl.fleet {
			pl.byID[pl.fleet[i].ID] = int32(i)
		}
	}
	if dead {
		pl.indexClaims()
	}
}

// indexClaims finds who else has the instances of dead machines.
func (pl *planner) indexClaims() {
	pl.claims = map[InstanceID][]int32{}
	for i := range pl.fleet {
		if r := &pl.fleet[i]; claims(r) && r.Machine.Life == Dead {
			pl.claims[r.Machine.Instance] = nil
		}
	}
	for i := range pl.fleet {
		if r := &pl.fleet[i]; claims(r) {
			if by, wanted := pl.claims[r.Machine.Instance]; wanted {
				pl.claims[r.Machine.Instance] = append(by, int32(i))
			}
		}
	}
}

// sortedFleet is the fleet by id. What it is given is not changed.
func sortedFleet(fleet []MachineResult) []MachineResult {
	if slices.IsSortedFunc(fleet, func(a, b MachineResult) int { return a.ID.Compare(b.ID) }) {
		return fleet
	}
	type place struct { // results are too large to be swapped
		number uint64
		at     int32
	}
	order := make([]place, len(fleet))
	for i := range order {
		order[i] = place{leadingNumber(fleet[i].ID), int32(i)}
	}
	slices.SortFunc(order, func(a, b place) int {
		if a.number != b.number {
			return cmp.Compare(a.number, b.number)
		}
		return fleet[a.at].ID.Compare(fleet[b.at].ID)
	})
	sorted := make([]MachineResult, len(fleet))
	for i, from := range order {
		sorted[i] = fleet[from.at]
	}
	return sorted
}

// leadingNumber is what most ids differ by already: where it differs, its order
// is that of Compare.
func leadingNumber(id MachineID) uint64 {
	number := strings.TrimLeft(string(id[:digits(string(id))]), "0")
	if id != "" && id[0] > '9' || len(number) > 18 {
		return math.MaxUint64
	}
	n := uint64(0)
	for i := range len(number) {
		n = n*10 + uint64(number[i]-'0')
	}
	return n
}

// twin says whether another result has the same id. Neither counts for
// anything then, except that an instance that one of them claims is not stopped.
func (pl *planner) twin(i int) bool {
	id := pl.fleet[i].ID
	return i > 0 && id == pl.fleet[i-1].ID || i+1 < len(pl.fleet) && id == pl.fleet[i+1].ID
}

func claims(r *MachineResult) bool {
	return r.Err == nil && r.Machine.Instance != "" && !r.Machine.Unread.Has(FieldInstance)
}

// populate counts who is where, before anything is placed (AZ2).
func (pl *planner) populate() {
	pl.ledger.setZones(pl.snapshot.Zones)
	listed := map[InstanceID]ZoneName{}
	for i := range pl.fleet {
		if r := &pl.fleet[i]; claims(r) && r.Machine.Zone == "" {
			for _, inst := range pl.snapshot.Listing.Instances {
				listed[inst.ID] = inst.Zone
			}
			break
		}
	}
	for i := range pl.fleet {
		r := &pl.fleet[i]
		zone := zoneOfRecord(r, listed)
		if zone == "" {
			zone = pl.snapshot.Doing[r.ID].Zone
		}
		if r.ID.IsContainer() || zone != "" && (pl.checkResult(i) != nil || r.ID.Validate() != nil) {
			zone = ""
		}
		pl.ledger.place(int32(i), pl.ledger.intern(zone))
	}
}

// zoneOfRecord is where a machine's instance runs, as far as anybody tells.
func zoneOfRecord(r *MachineResult, listed map[InstanceID]ZoneName) ZoneName {
	if !claims(r) {
		return ""
	}
	if r.Machine.Zone != "" {
		return r.Machine.Zone
	}
	return listed[r.Machine.Instance]
}

func (pl *planner) decideAll() {
	pl.plan.Left = make([]Action, 0, len(pl.fleet))
	for i := range pl.fleet {
		var a Action
		r := &pl.fleet[i]
		if i > 0 && r.ID == pl.fleet[i-1].ID {
			continue
		}
		if err := pl.checkResult(i); err != nil {
			a = leaveUnread(r.ID, err)
		} else {
			a = decide(r.Machine, pl.situation(r), pl.policy)
		}
		if a.Kind == ActionLeave {
			pl.plan.Left = append(pl.plan.Left, a)
		} else {
			pl.plan.Actions = append(pl.plan.Actions, a)
		}
	}
}

func leaveUnread(id MachineID, err error) Action {
	return Action{Kind: ActionLeave, Was: Machine{ID: id}, Reason: "its record could not be read: " + err.Error(), LookAgain: true, Err: err}
}

// checkResult is why the i-th result cannot be decided about, or nil.
func (pl *planner) checkResult(i int) error {
	if r := &pl.fleet[i]; pl.twin(i) {
		return twinError(r.ID)
	}
	return checkResult(&pl.fleet[i])
}

func twinError(id MachineID) error {
	return errors.NotValidf("machine %s: given more than once in one reading:", id)
}

// checkResult is why one result cannot be decided about, or nil.
func checkResult(r *MachineResult) error {
	switch {
	case r.Err != nil:
		return r.Err
	case r.Machine.ID != r.ID:
		return errors.NotValidf("machine %s: its record carries the id %q:", r.ID, string(r.Machine.ID))
	}
	return nil
}

func (pl *planner) situation(r *MachineResult) situation {
	s := situation{
		phase:         pl.snapshot.Doing[r.ID].Phase,
		canEnsureDead: pl.snapshot.CanEnsureDead,
		canMaintain:   pl.snapshot.CanMaintain,
	}
	if r.Machine.Life == Dead {
		s.kept = r.Machine.Instance != "" && slices.Contains(pl.snapshot.Kept, r.Machine.Instance)
		s.rival = rivalOf(r.Machine, func(yield func(Machine) bool) {
			for _, i := range pl.claims[r.Machine.Instance] {
				other := pl.fleet[i].Machine
				other.ID = pl.fleet[i].ID // a foreign record claims too
				if other.ID != r.ID && !yield(other) {
					return
				}
			}
		})
	}
	if host := r.ID.Host(); host != "" {
		s.host = pl.hostState(host)
	}
	return s
}

func (pl *planner) hostState(host MachineID) hostState {
	i, ok := pl.byID[host]
	switch {
	case ok && pl.checkResult(int(i)) == nil:
		return hostStateOf(pl.fleet[i].Machine)
	case ok:
		return hostNotReady
	case pl.least() <= host.depth():
		return hostMissing
	}
	return hostReady
}

// least is the smallest depth of the machines in the fleet. A Task may be given
// the containers of one host alone, whose host then is not its to see.
func (pl *planner) least() int {
	if pl.depth == nil {
		least := math.MaxInt
		for i := range pl.fleet {
			if id := pl.fleet[i].ID; id.Validate() == nil {
				least = min(least, id.depth())
			}
		}
		pl.depth = &least
	}
	return *pl.depth
}

// actionOrder is the order in which a pass does things (HV6, CL11).
var actionOrder = map[ActionKind]int{ActionCancel: 0, ActionStop: 1, ActionRemove: 2, ActionMaintain: 3, ActionStart: 4}

func (pl *planner) order() {
	slices.SortStableFunc(pl.plan.Actions, func(a, b Action) int {
		if c := actionOrder[a.Kind] - actionOrder[b.Kind]; c != 0 {
			return c
		}
		if a.Kind == ActionStop {
			return strings.Compare(string(a.Was.Instance), string(b.Was.Instance))
		}
		return 0
	})
}

// placeStarts chooses zones one machine after the other, each choice counted
// before the next.
func (pl *planner) placeStarts() {
	kept := pl.plan.Actions[:0]
	for _, a := range pl.plan.Actions {
		if a.Kind == ActionStart {
			a = pl.placeStart(a)
		}
		if a.Kind == ActionLeave {
			pl.plan.Left = append(pl.plan.Left, a)
		} else {
			kept = append(kept, a)
		}
	}
	clear(pl.plan.Actions[len(kept):])
	if len(kept) < len(pl.plan.Actions) {
		slices.SortFunc(pl.plan.Left, func(a, b Action) int { return a.Was.ID.Compare(b.Was.ID) })
	}
	pl.plan.Actions = kept
}

func (pl *planner) placeStart(a Action) Action {
	id := a.Was.ID
	needs := pl.snapshot.Needs[id]
	leave := func(reason string) Action {
		a.Kind, a.Reason = ActionLeave, reason
		return a
	}
	if needs.Err != nil {
		a.Err = needs.Err
		return leave("what its start needs could not be told: " + needs.Err.Error())
	}
	if pl.snapshot.ZonesUnread {
		a.LookAgain = true
		return leave("the zones of the broker have not been read yet")
	}
	if id.IsContainer() || !pl.ledger.zoned() {
		return a
	}
	slot := pl.slot(id)
	w := pl.wish(slot, id)
	zone := pl.ledger.choose(&w)
	if zone == noZone {
		out := pl.ledger.excluded(&w)
		a.Err = &StartError{Machine: id, Out: out, Cause: noZoneError(id)}
		return leave(a.Err.Error() + ": " + excludedText(out))
	}
	a.Zone, a.Choice = pl.ledger.name(zone), pl.ledger.chosen(&w, zone)
	pl.ledger.place(slot, zone)
	return a
}

func (pl *planner) slot(id MachineID) int32 {
	if i, ok := pl.byID[id]; ok {
		return i
	}
	i, _ := slices.BinarySearchFunc(pl.fleet, id, func(r MachineResult, id MachineID) int { return r.ID.Compare(id) })
	return int32(i)
}

func (pl *planner) wish(slot int32, id MachineID) wish {
	needs := pl.snapshot.Needs[id]
	w := wish{slot: slot, hash: hashString(string(id)), constraint: pl.ledger.set(needs.Zones), derived: pl.ledger.set(needs.Derived)}
	pl.join(&w, id, needs.Group)
	return w
}

// join gives a wish its group. Within one snapshot the members of a key are
// the same, so they are looked up once.
func (pl *planner) join(w *wish, id MachineID, g Group) {
	if k := pl.ledger.keyed[g.Key]; k != nil {
		pl.ledger.admit(k, w.slot)
		w.keyed = k
		return
	}
	pl.ledger.join(w, id, g, 0, func(id MachineID) (int32, bool) {
		i, ok := pl.byID[id]
		return i, ok
	})
}

// ErrNoZone is what a start's error matches when no zone could be used.
const ErrNoZone = errors.ConstError("suitable availability zone not found")

type noZoneFor struct{ id MachineID }

func (e noZoneFor) Error() string {
	return "suitable availability zone for machine " + string(e.id) + " not found"
}
func (e noZoneFor) Is(target error) bool { return target == ErrNoZone }

func noZoneError(id MachineID) error { return noZoneFor{id} }

// excludedText says why each zone was out (AZ9).
func excludedText(out []Excluded) string {
	var reasons []string
	zones := map[string][]string{}
	for _, x := range out {
		if zones[x.Reason] == nil {
			reasons = append(reasons, x.Reason)
		}
		zones[x.Reason] = append(zones[x.Reason], string(x.Zone))
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(zones[reason], ", ") + " " + reason
	}
	return strings.Join(reasons, "; ")
}

// report adds what is not about single machines.
func (pl *planner) report() {
	pl.plan.Harvest = pl.policy.Harvest
	pl.plan.Zones = pl.ledger.counts()
	for _, z := range pl.ledger.zones {
		if z.total == 0 || len(pl.snapshot.Zones) == 0 || z.available {
			continue
		}
		state := "unavailable"
		if !z.listed {
			state = "no longer listed by the broker"
		}
		pl.plan.Warnings = append(pl.plan.Warnings, fmt.Sprintf("zone %s is %s, and machines are in it: %d", z.name, state, z.total))
	}
	claimed := make(map[InstanceID]bool, len(pl.fleet))
	for i := range pl.fleet {
		if r := &pl.fleet[i]; claims(r) {
			claimed[r.Machine.Instance] = true
		}
	}
	pl.plan.Sweep = pl.sweep(claimed)
	pl.plan.Unknown = pl.plan.Sweep.unknown()
}

// Empty says whether there is nothing to do.
func (p Plan) Empty() bool { return len(p.Actions)+len(p.Sweep.Stop) == 0 }

// String gives the plan as text: the same text for the same plan.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan: %d to do, %d left alone, harvest mode %s\n", len(p.Actions)+len(p.Sweep.Stop), len(p.Left), p.Harvest)
	for _, a := range p.Actions {
		fmt.Fprintf(&b, "  %s\n", a)
	}
	for _, u := range p.Sweep.Stop {
		fmt.Fprintf(&b, "  %s\n", u)
	}
	for _, a := range p.Left {
		fmt.Fprintf(&b, "  %s\n", a)
	}
	for _, u := range p.Sweep.Left {
		fmt.Fprintf(&b, "  %s\n", u)
	}
	for _, z := range p.Zones {
		state := ""
		if !z.Available {
			state = " (unavailable)"
		}
		fmt.Fprintf(&b, "  zone     %s%s: %d\n", z.Zone, state, z.Machines)
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "  warning  %s\n", w)
	}
	return b.String()
}

// MarshalJSON gives the plan as an object, the same bytes for the same plan.
// Its fields do not change: harvest, actions, left, unknown, zones, warnings,
// and sweep if there is anything in it; a list is never null. The instances of unknown, and of stop and left in
// sweep, have instance, zone, state, created, reason, verdict and first; their
// labels are left out, for they hold a nonce. Sweep also has listed and, if it is
// frozen, frozen: plan, reason, unknown, listed, since and instances.
func (p Plan) MarshalJSON() ([]byte, error) {
	instances, all := []Unclaimed{}, p.Sweep.byID()
	for _, i := range p.Unknown {
		u := Unclaimed{Instance: i, Reason: ReasonUnknown}
		if known, ok := all[i.ID]; ok {
			u = known
		}
		instances = append(instances, u)
	}
	var sweep *Sweep
	if len(p.Sweep.Stop)+len(p.Sweep.Left) > 0 || p.Sweep.Frozen != nil {
		sweep = &p.Sweep
	}
	return json.Marshal(struct {
		Harvest  HarvestMode `json:"harvest"`
		Actions  []Action    `json:"actions"`
		Left     []Action    `json:"left"`
		Unknown  []Unclaimed `json:"unknown"`
		Zones    []ZoneCount `json:"zones"`
		Warnings []string    `json:"warnings"`
		Sweep    *Sweep      `json:"sweep,omitempty"`
	}{p.Harvest, notNil(p.Actions), notNil(p.Left), instances, notNil(p.Zones), notNil(p.Warnings), sweep})
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
