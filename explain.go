package provisioner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/juju/errors"
)

// An Explanation is where one machine stands (LC7).
type Explanation struct {
	Machine   MachineID
	Record    Machine // as last read
	Phase     Phase
	Reason    string       // why it is left alone, or what is going on
	Attempt   int          // of the start under way; 0: none
	Zone      ZoneName     // of that attempt
	Instance  InstanceID   // made, and not known to be recorded
	LastError error        // of the start, or what failed last; nil: nothing
	Next      time.Time    // when something is done about it by itself; zero: not
	Zones     []RankedZone // for a top-level machine that has no instance yet
	Missing   int          // complete listings in a row that lacked its instance, at most 3 are counted (HV14)
}

// String gives the explanation as text for a person.
func (x Explanation) String() string {
	var b strings.Builder
	phase := x.Phase
	if phase == PhaseResting {
		phase = "resting"
	}
	fmt.Fprintf(&b, "machine %s: %s: %s\n", x.Machine, phase, x.Reason)
	if x.Attempt > 0 {
		in := ""
		if x.Zone != "" {
			in = " in " + zoneOrNone(x.Zone)
		}
		fmt.Fprintf(&b, "  attempt %d%s\n", x.Attempt, in)
	}
	if x.Instance != "" {
		fmt.Fprintf(&b, "  instance %s is there and not recorded\n", x.Instance)
	}
	if x.Missing > 0 {
		fmt.Fprintf(&b, "  instance %s is missing from the last %d complete listings, or more\n", x.Record.Instance, x.Missing)
	}
	if x.LastError != nil {
		fmt.Fprintf(&b, "  last error: %v\n", x.LastError)
	}
	if !x.Next.IsZero() {
		fmt.Fprintf(&b, "  next: %s\n", x.Next.UTC().Format(time.RFC3339))
	}
	for _, z := range x.Zones {
		if z.Rank > 0 {
			fmt.Fprintf(&b, "  zone %s: choice %d (group %d, all %d)\n", z.Zone, z.Rank, z.Group, z.Total)
		} else {
			fmt.Fprintf(&b, "  zone %s: out: %s\n", z.Zone, z.Reason)
		}
	}
	return b.String()
}

// Explain says where a machine stands. A machine that the Task does not know
// is NotFound; it knows those that Run, Reconcile or Apply has read, and a Plan
// does not count. It asks nobody, and waits only for the turn that is under way.
func (t *Task) Explain(id MachineID) (Explanation, error) {
	if t.engine == nil {
		return Explanation{}, ErrNotNew
	}
	e := <-t.engine
	defer func() { t.engine <- e }()
	u := e.units[id]
	if u == nil {
		return Explanation{}, errors.NotFoundf("machine %s", id)
	}
	return e.explain(u), nil
}

// Orphans lists the instances that have to go and are still there, by instance
// (ST12). It asks nobody, and waits only for the turn that is under way.
func (t *Task) Orphans() []Orphan {
	if t.engine == nil {
		return nil
	}
	e := <-t.engine
	defer func() { t.engine <- e }()
	return e.orphans()
}

// An InstanceExplanation is where one instance stands (HV13).
type InstanceExplanation struct {
	Instance  InstanceID
	Machine   MachineID // whose it is, or is labelled for
	Zone      ZoneName
	Listed    bool      // in the last complete listing, and no machine's record has it
	Verdict   Verdict   // what becomes of it; empty: it is recorded, or not there
	Reason    string    // never empty
	First     time.Time // when a complete listing first showed it unclaimed
	LastError error     // of its stop
	Next      time.Time // when that is tried again
}

// String gives the explanation as text for a person.
func (x InstanceExplanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "instance %s: ", x.Instance)
	if x.Verdict != "" {
		fmt.Fprintf(&b, "%s: ", x.Verdict)
	}
	fmt.Fprintf(&b, "%s\n", x.Reason)
	if !x.First.IsZero() {
		fmt.Fprintf(&b, "  unclaimed since %s\n", x.First.UTC().Format(time.RFC3339))
	}
	if x.LastError != nil {
		fmt.Fprintf(&b, "  last error: %v\n", x.LastError)
	}
	if !x.Next.IsZero() {
		fmt.Fprintf(&b, "  next: %s\n", x.Next.UTC().Format(time.RFC3339))
	}
	return b.String()
}

// ExplainInstance says why an instance is left alone, or what becomes of it, by
// the last complete listing of Run, Reconcile or Apply. It asks nobody, and waits
// only for the turn that is under way.
func (t *Task) ExplainInstance(id InstanceID) (InstanceExplanation, error) {
	if t.engine == nil {
		return InstanceExplanation{}, ErrNotNew
	}
	e := <-t.engine
	defer func() { t.engine <- e }()
	return e.explainInstance(id), nil
}

// Frozen says that too many instances are unknown to be believed, and which, or
// gives nil (HV11).
func (t *Task) Frozen() *Frozen {
	if t.engine == nil {
		return nil
	}
	e := <-t.engine
	f := e.list.freeze.frozen // is replaced, never changed
	t.engine <- e
	return f.sorted()
}

// Approve lets the instances of the frozen plan with that id be stopped, in
// passes of MaxUnknown, as long as no others become unknown. It does not wait.
// The error satisfies NotFound if no such plan is frozen.
func (t *Task) Approve(plan string) error {
	if t.engine == nil {
		return ErrNotNew
	}
	if f := t.Frozen(); f == nil || f.Plan != plan {
		return errors.NotFoundf("frozen plan %q", plan)
	}
	return t.set(message{kind: msgApprove, plan: plan})
}

// ReapSpared has instances stopped that a harvest mode spared when their
// machines' records were removed (HV4); without ids all that are known. It does
// not wait. The error satisfies NotFound if one of them was not spared by the
// mode; then none is stopped. What was kept is never stopped.
func (t *Task) ReapSpared(ids ...InstanceID) error {
	if t.engine == nil {
		return ErrNotNew
	}
	e := <-t.engine
	known := e.reaper.those(FateSpared)
	t.engine <- e
	for _, id := range ids {
		if !slices.Contains(known, id) {
			return errors.NotFoundf("spared instance %q", string(id))
		}
	}
	return t.set(message{kind: msgReap, spared: slices.Clone(ids)})
}

// Plan reads everything and says what would be done, and why, without any
// effect (LC5). What is going on already is taken into account. Its error
// means that the records could not be read; a listing or zones that could not
// be read are warnings of the plan.
func (t *Task) Plan(ctx context.Context) (Plan, error) {
	plan, _, err := t.plan(ctx)
	return plan, err
}

func (t *Task) plan(ctx context.Context) (Plan, Snapshot, error) {
	if t.engine == nil {
		return Plan{}, Snapshot{}, ErrNotNew
	}
	s, warnings, err := t.host.snapshot(ctx, t.cfg.Clock, t.cfg.CallTimeout)
	if err != nil {
		return Plan{}, Snapshot{}, err
	}
	e := <-t.engine
	policy := e.policy
	s.Doing, s.Accounted = e.doing(), e.reaper.known()
	e.addSeen(&s)
	t.engine <- e
	plan := MakePlan(s, policy)
	plan.Warnings = append(warnings, plan.Warnings...)
	return plan, s, nil
}

// Apply does what a plan says and no more, and returns when that is settled or
// given up, as Reconcile does. Each action whose machine or instance is no
// longer as it was when it was decided is passed over, with the reason in the
// report. Filter plan.Actions before, to veto.
func (t *Task) Apply(ctx context.Context, plan Plan) (Report, error) {
	now, _, err := t.plan(ctx)
	if err != nil {
		return Report{}, err
	}
	fresh := make(map[MachineID]Action, len(now.Actions)+len(now.Left))
	for _, a := range append(now.Left, now.Actions...) {
		fresh[a.Was.ID] = a
	}
	gate := make(map[MachineID]Action, len(plan.Actions))
	var passed []Result
	for _, a := range plan.Actions {
		reason := passedOver(a, fresh)
		if _, twice := gate[a.Was.ID]; twice {
			reason = "the plan names it twice"
		}
		if reason != "" {
			passed = append(passed, Result{Machine: a.Was.ID, Kind: ActionLeave, Instance: a.Was.Instance, Reason: reason})
			continue
		}
		gate[a.Was.ID] = a
	}
	reap, all := map[InstanceID]bool{}, now.Sweep.byID()
	for _, u := range plan.Sweep.Stop {
		x, ok := all[u.Instance.ID]
		if ok && x.Verdict == VerdictStop {
			reap[u.Instance.ID] = true
			continue
		}
		reason := "it is not there, or some machine's"
		if ok {
			reason = x.Reason
		}
		passed = append(passed, Result{Kind: ActionLeave, Instance: u.Instance.ID, Reason: reasonOtherwise + reason})
	}
	if len(gate)+len(reap) == 0 {
		return Report{passed}.sorted(), nil
	}
	report, err := t.lookOnce(ctx, gate, reap)
	report.Results = append(passed, report.Results...)
	return report.sorted(), err
}

// Why an action of a plan is passed over.
const (
	reasonGone      = "its machine is gone"
	reasonChanged   = "its machine has changed since the plan was made"
	reasonOtherwise = "it would be decided otherwise now: "
)

// passedOver is why a planned action is not done any more, or "".
func passedOver(a Action, fresh map[MachineID]Action) string {
	now, ok := fresh[a.Was.ID]
	switch {
	case !ok:
		return reasonGone
	case now.Err != nil && now.Was != a.Was:
		return "its machine could not be read: " + now.Err.Error()
	case now.Was != a.Was:
		return reasonChanged
	case now.Kind != a.Kind:
		return reasonOtherwise + now.Reason
	}
	return ""
}
