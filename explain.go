package provisioner

import (
	"context"
	"fmt"
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
	s.Doing, s.Kept, s.Accounted = e.doing(), e.reaper.kept(), e.reaper.known()
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
	if len(gate) == 0 {
		return Report{passed}.sorted(), nil
	}
	report, err := t.lookOnce(ctx, gate)
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
