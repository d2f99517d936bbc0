package provisioner

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/juju/errors"
)

// A Verdict is what becomes of a listed instance that no machine's record has.
type Verdict string

// The verdicts. All but VerdictStop leave the instance alone.
const (
	VerdictStop       Verdict = "stop"        // unknown (HV9), or one too many of a machine
	VerdictKept       Verdict = "kept"        // keep-instance left it running (HV3)
	VerdictSpared     Verdict = "spared"      // a mode left it running (HV4)
	VerdictStopped    Verdict = "stopped"     // by us, and it is still listed or on its way out
	VerdictForeign    Verdict = "foreign"     // labelled for another controller (HV10)
	VerdictUnlabelled Verdict = "unlabelled"  // labelled for no machine, by a broker that labels (HV10)
	VerdictStarting   Verdict = "starting"    // perhaps the product of a start that is under way (HV9)
	VerdictAdopt      Verdict = "to-adopt"    // of a machine that has no instance yet (ST19)
	VerdictUnsure     Verdict = "unsure"      // something that it depends on could not be read
	VerdictMode       Verdict = "mode"        // the harvest mode forbids it (HV2)
	VerdictYoung      Verdict = "too-young"   // younger than UnknownGrace (HV9)
	VerdictOnce       Verdict = "seen-once"   // not yet in two listings UnknownGrace apart (HV9)
	VerdictBudget     Verdict = "over-budget" // others come first in this pass (HV11)
	VerdictFrozen     Verdict = "frozen"      // there are too many of them (HV11)
)

// An Unclaimed is a listed instance that no machine's record has, and what
// becomes of it.
type Unclaimed struct {
	Instance Instance
	Verdict  Verdict
	Reason   string    // never empty
	First    time.Time // when a complete listing first showed it unclaimed; zero: none before this one
}

// A Sweep is what becomes of all of them.
type Sweep struct {
	Listed int         // instances of the listing that are ours, or may be: what limits are measured by
	Stop   []Unclaimed // by id (HV8)
	Left   []Unclaimed // by id
	Frozen *Frozen     // nil: not frozen
}

// A Frozen says that more instances are unknown than is believed, so none of
// them is stopped until a person has looked, or it has passed (HV11).
type Frozen struct {
	Plan      string       // its id: the same for the same set of instances, and no other
	Reason    string       // for a person
	Unknown   int          // how many would be stopped
	Listed    int          // of how many that are ours, or may be
	Calm      int          // listings in a row that had less than half of what freezes; the second thaws
	Since     time.Time    // when it froze
	Instances []InstanceID // exactly those that would be stopped, sorted
}

// Limits of HV11.
const (
	fewUnknown = 3
	calmEnough = 2
)

// breaks says whether so many unknown instances are more than can be believed.
func breaks(unknown, listed int) bool { return unknown > fewUnknown && unknown*5 > listed }

// calm says whether they are less than half of what breaks.
func calm(unknown, listed int) bool { return unknown*10 < max(fewUnknown*5, listed) }

func (p Policy) unknownGrace() time.Duration { return orDefault(p.UnknownGrace, time.Minute) }

func (p Policy) maxUnknown(listed int) int { return positiveOr(p.MaxUnknown, max(1, listed/10)) }

// A sighting is an unclaimed instance and what was seen of it so far.
type sighting struct {
	Unclaimed
	odd  bool    // listed more than once, each time otherwise
	pass *survey // that has judged it last
}

// age is by what the oldest come first: when it was made, or first seen.
func (s *sighting) age() time.Time {
	if s.Instance.Created.IsZero() {
		return s.First
	}
	return s.Instance.Created
}

// gateFacts is all that a judgement looks at besides instance and policy.
type gateFacts struct {
	at         time.Time // when the listing was asked for
	controller string
	labels     bool                                       // the broker labels what it makes
	unsure     string                                     // why nothing can be told now, or ""
	failed     []ZoneName                                 // zones that did not answer
	left       func(InstanceID) (v Verdict, why string)   // why it is known to be there, or ""
	start      func(id MachineID, first time.Time) string // the start that may have made it, of one machine or, without an id, of any; or ""
	machine    func(MachineID) (m Machine, known, shown bool)
}

// mayBeOurs says by its labels whether an instance may be ours at all.
func mayBeOurs(l Labels, controller string, labels bool) bool {
	return l.Controller != "" && l.Controller == controller || l.Controller == "" && !labels
}

// judge is the one rule about an unclaimed instance, limits left aside: the
// first that holds decides. Where in doubt it is left alone.
func judge(s *sighting, f *gateFacts, p Policy) (Verdict, string) {
	i, l := &s.Instance, s.Instance.Labels
	ours := l.Controller != "" && l.Controller == f.controller
	if v, why := f.left(i.ID); v != "" {
		return v, why
	}
	if l.Controller != "" && !ours {
		return VerdictForeign, fmt.Sprintf("it is labelled for controller %q", l.Controller)
	}
	why := f.start(l.Machine, s.First)
	if why == "" && !ours && l.Machine != "" { // that label may be anybody's
		why = f.start("", s.First)
	}
	if why != "" {
		return VerdictStarting, why
	}
	if !ours && f.labels {
		return VerdictUnlabelled, "it carries no label, and the broker labels what it makes"
	}
	if ours && l.Machine.Validate() != nil {
		return VerdictUnlabelled, "it carries our label, and no machine's"
	}
	m, known, shown := f.machine(l.Machine)
	spare := ""
	switch {
	case f.unsure != "":
		return VerdictUnsure, f.unsure
	case s.odd:
		return VerdictUnsure, "it is listed more than once, and not alike"
	case len(f.failed) > 0 && (i.Zone == "" || slices.Contains(f.failed, i.Zone)):
		return VerdictUnsure, "its zone did not answer"
	case !known:
	case m.Instance == "":
		return VerdictAdopt, "it is labelled for machine " + string(m.ID) + ", which has no instance: it is adopted when that starts"
	case m.Keep || m.Unread.Has(FieldKeep):
		return VerdictKept, "it is labelled for machine " + string(m.ID) + ", whose instance is to be kept"
	case !shown:
		return VerdictUnsure, "it is labelled for machine " + string(m.ID) + ", whose own instance " + string(m.Instance) + " is not listed"
	case ours:
		spare = "one too many of machine " + string(m.ID) + ", which has " + string(m.Instance)
	}
	grace := p.unknownGrace()
	why = ReasonUnknown
	if spare != "" {
		why = spare
	}
	switch {
	case spare == "" && !p.Harvest.Unknown():
		return VerdictMode, why + "; harvest mode " + p.Harvest.String() + " leaves unknown instances alone"
	case !i.Created.IsZero() && f.at.Sub(i.Created) < grace:
		return VerdictYoung, why + "; it is younger than " + grace.String()
	case s.First.IsZero() || f.at.Sub(s.First) < grace:
		if why += "; it was not yet seen in two listings"; grace > 0 {
			why += " " + grace.String() + " apart"
		}
		return VerdictOnce, why
	}
	return VerdictStop, why
}

// A gate takes the instances of one listing, one after the other, and then
// says which of them are stopped (HV11).
type gate struct {
	policy  Policy
	listed  int
	partial bool        // zones of the listing did not answer
	budget  int         // what earlier passes have left of it
	ripe    []*sighting // all that may be stopped, limits left aside
	doomed  int         // of them: on their way out since an earlier pass
	oldest  ageHeap     // of the others: as many as the budget allows
	sum     [4]uint64   // over the ids of ripe, in any order
}

func newGate(p Policy, listed, spent int) *gate {
	return &gate{policy: p, listed: listed, budget: max(0, p.maxUnknown(listed)-spent)}
}

// add judges one instance. What is doomed already takes no share of the budget.
func (g *gate) add(s *sighting, f *gateFacts, doomed bool) {
	if s.Verdict, s.Reason = judge(s, f, g.policy); s.Verdict != VerdictStop {
		return
	}
	g.ripe = append(g.ripe, s)
	sum := sha256.Sum256([]byte(s.Instance.ID))
	for i := range g.sum {
		g.sum[i] += binary.BigEndian.Uint64(sum[8*i:])
	}
	if doomed {
		g.doomed++
		return
	}
	heap.Push(&g.oldest, s)
	if len(g.oldest) > g.budget {
		over := heap.Pop(&g.oldest).(*sighting)
		over.Verdict = VerdictBudget
		over.Reason += fmt.Sprintf("; no more than %d are stopped in one pass", g.policy.maxUnknown(g.listed))
	}
}

// A freeze is what is remembered from pass to pass.
type freeze struct {
	frozen   *Frozen
	approved map[InstanceID]bool // by the host: that very set, or what is left of it
}

// covers says whether all that is ripe was approved.
func (f freeze) covers(ripe []*sighting) bool {
	for _, s := range ripe {
		if !f.approved[s.Instance.ID] {
			return false
		}
	}
	return len(f.approved) > 0
}

// close says which instances are stopped, by id, and what is remembered. It
// changes nothing of what was remembered before.
func (g *gate) close(was freeze, now time.Time) (stop []*sighting, is freeze) {
	n := len(g.ripe)
	switch covered := was.covers(g.ripe); {
	case covered && n > 0:
		is.approved = was.approved
	case was.frozen != nil:
		if is.frozen = g.frozen(was.frozen.Since); calm(n, g.listed) && !g.partial {
			is.frozen.Calm = was.frozen.Calm + 1
		}
		if is.frozen.Calm >= calmEnough {
			is.frozen = nil
		}
	case breaks(n, g.listed):
		is.frozen = g.frozen(now)
	}
	if is.frozen != nil {
		for _, s := range g.ripe {
			s.Verdict, s.Reason = VerdictFrozen, is.frozen.Reason
		}
		return nil, is
	}
	stop = g.oldest
	slices.SortFunc(stop, func(a, b *sighting) int { return cmp.Compare(a.Instance.ID, b.Instance.ID) })
	return stop, is
}

// frozen describes the set; its instances are in any order.
func (g *gate) frozen(since time.Time) *Frozen {
	f := &Frozen{Unknown: len(g.ripe), Listed: g.listed, Since: since}
	sum := make([]byte, 0, 32)
	for _, word := range g.sum {
		sum = binary.BigEndian.AppendUint64(sum, word)
	}
	short := sha256.Sum256(sum)
	f.Plan = hex.EncodeToString(short[:8])
	f.Reason = fmt.Sprintf("%d of %d instances are unknown, which is more than is believed; approve plan %s to have them stopped all the same", f.Unknown, f.Listed, f.Plan)
	f.Instances = make([]InstanceID, len(g.ripe))
	for i, s := range g.ripe {
		f.Instances[i] = s.Instance.ID
	}
	return f
}

// sorted is a copy with its instances in order.
func (f *Frozen) sorted() *Frozen {
	if f == nil {
		return nil
	}
	c := *f
	c.Instances = slices.Clone(f.Instances)
	slices.Sort(c.Instances)
	return &c
}

// ageHeap has the youngest on top.
type ageHeap []*sighting

func (h ageHeap) Len() int { return len(h) }
func (h ageHeap) Less(i, j int) bool {
	if c := h[i].age().Compare(h[j].age()); c != 0 {
		return c > 0
	}
	return h[i].Instance.ID > h[j].Instance.ID
}
func (h ageHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *ageHeap) Push(x any)   { *h = append(*h, x.(*sighting)) }
func (h *ageHeap) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	*h = (*h)[:last]
	return s
}

// sweep is what becomes of the instances of a snapshot that no record has.
func (pl *planner) sweep(claimed map[InstanceID]bool) Sweep {
	s, listing := &pl.snapshot, &pl.snapshot.Listing
	var all []*sighting
	byID := map[InstanceID]*sighting{}
	listed := 0
	shown := map[InstanceID]bool{}
	for n := range listing.Instances {
		i := &listing.Instances[n]
		switch twin := byID[i.ID]; {
		case i.ID == "" || i.State == InstanceTerminated:
		case claimed[i.ID]:
			listed++
			shown[i.ID] = true
		case twin != nil:
			twin.odd = twin.odd || twin.Instance != *i
		default:
			if mayBeOurs(i.Labels, s.Controller, s.Labels) {
				listed++
			}
			byID[i.ID] = &sighting{Unclaimed: Unclaimed{Instance: *i, First: s.Seen[i.ID]}}
			all = append(all, byID[i.ID])
		}
	}
	g := newGate(pl.policy, listed, s.Spent)
	g.partial = len(listing.Failed) > 0
	f := pl.gateFacts(shown)
	doomed := map[InstanceID]bool{}
	for _, id := range s.Doomed {
		doomed[id] = true
	}
	for _, one := range all {
		g.add(one, f, doomed[one.Instance.ID])
	}
	sweep := Sweep{Listed: listed}
	was := freeze{frozen: s.Frozen, approved: map[InstanceID]bool{}}
	for _, id := range s.Approved {
		was.approved[id] = true
	}
	if f.unsure == "" {
		var is freeze
		_, is = g.close(was, s.At)
		sweep.Frozen = is.frozen.sorted()
	} else {
		sweep.Frozen = s.Frozen
	}
	slices.SortFunc(all, func(a, b *sighting) int { return cmp.Compare(a.Instance.ID, b.Instance.ID) })
	for _, one := range all {
		if one.Verdict == VerdictStop {
			sweep.Stop = append(sweep.Stop, one.Unclaimed)
		} else {
			sweep.Left = append(sweep.Left, one.Unclaimed)
		}
	}
	return sweep
}

// gateFacts is what a snapshot knows.
func (pl *planner) gateFacts(shown map[InstanceID]bool) *gateFacts {
	s := &pl.snapshot
	left := map[InstanceID][2]string{}
	for _, x := range []struct {
		ids     []InstanceID
		verdict Verdict
		why     string
	}{{s.Accounted, VerdictStopped, "it was stopped, and is still listed, or is about to be"}, {s.Spared, VerdictSpared, reasonSpared}, {s.Kept, VerdictKept, reasonKept}} {
		for _, id := range x.ids {
			left[id] = [2]string{string(x.verdict), x.why}
		}
	}
	return &gateFacts{
		at: s.At, controller: s.Controller, labels: s.Labels, failed: s.Listing.Failed, unsure: pl.unsure(),
		left: func(id InstanceID) (Verdict, string) { return Verdict(left[id][0]), left[id][1] },
		start: func(id MachineID, first time.Time) string {
			for of, d := range s.Doing {
				if of != id && id != "" {
					continue
				}
				asking := d.Open || d.Phase == PhaseStarting || d.Phase == PhaseConfirming || d.Phase == PhaseUndoing ||
					id != "" && first.IsZero() && d.Phase.starting()
				if asking && (first.IsZero() || !d.Asked.After(first)) {
					return reasonStarting(id)
				}
			}
			return ""
		},
		machine: func(id MachineID) (m Machine, known, listed bool) {
			i, ok := slices.BinarySearchFunc(pl.fleet, id, func(r MachineResult, id MachineID) int { return r.ID.Compare(id) })
			if !ok || errors.Is(pl.fleet[i].Err, errors.NotFound) {
				return m, false, false
			}
			m = pl.fleet[i].Machine
			return m, true, shown[m.Instance]
		},
	}
}

// unsure is why nothing can be told of instances that no record has, or "".
func (pl *planner) unsure() string {
	for i := range pl.fleet {
		r := &pl.fleet[i]
		if err := pl.checkResult(i); r.ID.Validate() != nil || err != nil && !errors.Is(err, errors.NotFound) || err == nil && r.Machine.Unread.Has(FieldInstance) {
			return reasonUnread
		}
	}
	switch {
	case pl.snapshot.SparedUnread:
		return reasonSparedUnread
	case !pl.snapshot.Listing.Complete:
		return "the listing is not complete"
	}
	return ""
}

const (
	reasonUnread       = "the record of some machine could not be read, and may have it"
	reasonSparedUnread = "which instances were spared before could not be read yet"
)

// accounted says whether somebody knows why the instance is there.
func (u Unclaimed) accounted() bool {
	switch u.Verdict {
	case VerdictKept, VerdictSpared, VerdictStopped, VerdictStarting:
		return true
	}
	return false
}

// unknown are the instances that nobody accounts for, by id.
func (s Sweep) unknown() []Instance {
	var list []Instance
	for _, u := range slices.Concat(s.Stop, s.Left) {
		if !u.accounted() {
			list = append(list, u.Instance)
		}
	}
	slices.SortFunc(list, func(a, b Instance) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// byID is what becomes of each.
func (s Sweep) byID() map[InstanceID]Unclaimed {
	all := make(map[InstanceID]Unclaimed, len(s.Stop)+len(s.Left))
	for _, u := range slices.Concat(s.Stop, s.Left) {
		all[u.Instance.ID] = u
	}
	return all
}

// String gives it in one line.
func (u Unclaimed) String() string {
	what := "unknown"
	switch {
	case u.Verdict == VerdictStop:
		what = "reap"
	case u.accounted():
		what = string(u.Verdict)
	}
	return fmt.Sprintf("%-8s %s: %s", what, u.Instance.ID, u.Reason)
}

// MarshalJSON gives it as an object: instance, zone, state, created, reason,
// verdict, first.
func (u Unclaimed) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Instance InstanceID    `json:"instance"`
		Zone     ZoneName      `json:"zone,omitempty"`
		State    InstanceState `json:"state,omitempty"`
		Created  time.Time     `json:"created,omitzero"`
		Reason   string        `json:"reason"`
		Verdict  Verdict       `json:"verdict"`
		First    time.Time     `json:"first,omitzero"`
	}{u.Instance.ID, u.Instance.Zone, u.Instance.State, u.Instance.Created, u.Reason, u.Verdict, u.First})
}

// MarshalJSON gives it as an object: listed, stop, left, frozen.
func (s Sweep) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Listed int         `json:"listed"`
		Stop   []Unclaimed `json:"stop"`
		Left   []Unclaimed `json:"left"`
		Frozen *Frozen     `json:"frozen,omitempty"`
	}{s.Listed, notNil(s.Stop), notNil(s.Left), s.Frozen})
}

// MarshalJSON gives it as an object: plan, reason, unknown, listed, since,
// instances.
func (f Frozen) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Plan      string       `json:"plan"`
		Reason    string       `json:"reason"`
		Unknown   int          `json:"unknown"`
		Listed    int          `json:"listed"`
		Since     time.Time    `json:"since,omitzero"`
		Instances []InstanceID `json:"instances"`
	}{f.Plan, f.Reason, f.Unknown, f.Listed, f.Since, notNil(f.Instances)})
}
