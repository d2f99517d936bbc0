package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/fleet"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// patience is how long the account may take.
const patience = 8 * time.Second

// reconcile makes a cloud of the fleet and lets a Task look at it once: it
// plans, and unless that is all that is wanted, does it.
func reconcile(ctx context.Context, f fleet.Fleet, planOnly bool, p pace, live screen) (*report, error) {
	world, err := newCloud(f, p.latency)
	if err != nil {
		return nil, err
	}
	account := newAccount(f, live)
	task, err := provisioner.New(provisioner.Config{
		Controller: "quickstart",
		Broker:     newBroker(world),
		State:      world.State(),
		Optional:   provisioner.Optional{Groups: groups(f)},
		Observers:  []provisioner.Observer{account},
		// A person is watching: be quick about trying again.
		Policy: provisioner.Policy{
			Harvest: f.Harvest,
			Retry:   provisioner.FixedRetry(400*time.Millisecond, 2),
			Backoff: provisioner.FixedRetry(400*time.Millisecond, 1),
		},
		Limits:      p.limits,
		EventBuffer: 1 << 20,
	})
	if err != nil {
		return nil, errors.Trace(err)
	}
	plan, err := task.Plan(ctx)
	if err != nil {
		return nil, errors.Annotate(err, "planning")
	}
	account.begin(plan, planOnly)
	r := newReport(f, plan, planOnly)
	if planOnly {
		return r, nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for looks := 3; looks > 0; looks-- {
		done, err := task.Reconcile(ctx)
		if err != nil && ctx.Err() == nil {
			return nil, errors.Annotate(err, "reconciling")
		}
		if !lookAgain(done) {
			break
		}
	}
	r.took = time.Since(began)
	if ctx.Err() != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the account ends here, after %s: what is waiting would go on", patience))
	}
	if _, err := task.Idle(context.WithoutCancel(ctx)); err != nil { // until all is told
		return nil, errors.Trace(err)
	}
	account.end(r)
	r.settle(world)
	return r, nil
}

// A broker is the World's with the abilities that matter here. Above all it
// derives no zones: no start implies any.
type broker struct {
	provisioner.Broker
	provisioner.ZoneLister
	provisioner.InstanceFinder
	provisioner.Maintainer
	provisioner.TraitsReporter
}

func newBroker(world *provisionertest.World) broker {
	b := world.Broker()
	return broker{b, b, b, b, b}
}

// lookAgain says whether something is left that a Task under Run would try
// again by itself soon: a stop or a removal that failed. Zones that are down
// would be waited for, too, but by nobody who watches.
func lookAgain(done provisioner.Report) bool {
	return slices.ContainsFunc(done.Results, func(r provisioner.Result) bool {
		return r.Err != nil && (r.Kind == provisioner.ActionStop || r.Kind == provisioner.ActionRemove)
	})
}

// newCloud makes a World of the fleet: its records are the state, the
// instances they hold run.
func newCloud(f fleet.Fleet, latency map[provisionertest.Call]time.Duration) (*provisionertest.World, error) {
	world := provisionertest.New(provisionertest.Settings{
		Kind:       true,
		Silent:     true,
		Controller: "quickstart",
		Latency:    latency,
		Traits:     provisioner.Traits{DedupesByToken: true, Labels: true, ConsistentReads: true},
	})
	world.SetZones(f.Zones...)
	for zone, most := range f.Capacity {
		world.SetCapacity(zone, most)
	}
	var records []provisioner.Machine
	for _, m := range f.Machines {
		records = append(records, m.Record)
	}
	if err := world.Add(records...); err != nil {
		return nil, errors.Trace(err)
	}
	for _, i := range f.Instances {
		if err := world.AddInstance(i); err != nil {
			return nil, errors.Trace(err)
		}
	}
	for _, m := range f.Machines {
		if err := needs(world, m); err != nil {
			return nil, errors.Trace(err)
		}
	}
	return world, errors.Trace(world.Inject(f.Trouble...))
}

// needs tells the World what a machine needs to start, and which of that, or
// of its record, could not be read.
func needs(world *provisionertest.World, m fleet.Machine) error {
	id := m.Record.ID
	var zones []string
	for _, z := range m.Zones {
		zones = append(zones, string(z))
	}
	info := provisioner.StartInfo{Constraints: constraints.Value{Zones: zones}}
	if err := world.SetStartInfo(id, info); err != nil {
		return err
	}
	fail := func(call provisionertest.Call, err error) error {
		return world.Inject(provisionertest.Fault{
			Call: call, Machine: id, Count: provisionertest.Always, What: provisionertest.TroubleError, Err: err,
		})
	}
	if m.Needs != nil {
		return fail(provisionertest.CallInfo, errors.NewNotValid(m.Needs, ""))
	}
	if m.Err == nil {
		return nil
	}
	if err := fail(provisionertest.CallFleet, m.Err); err != nil {
		return err
	}
	return fail(provisionertest.CallMachines, m.Err)
}

// A pace is how fast a cloud is, and how much it is asked at once.
type pace struct {
	latency map[provisionertest.Call]time.Duration
	limits  provisioner.Limits
}

// watchable is for people: starts are slow enough to be watched, and those of
// a large fleet quick enough to be waited for.
func watchable(f fleet.Fleet) pace {
	const lanes, most, inAll = 16, time.Second, 3 * time.Second
	starts := 1
	for _, m := range f.Machines {
		if provisioner.Classify(m.Record).Class == provisioner.ClassPending {
			starts++
		}
	}
	start := min(most, inAll*lanes/time.Duration(starts))
	return pace{latency: map[provisionertest.Call]time.Duration{
		provisionertest.CallStart: start,
		provisionertest.CallStop:  start / 2,
		provisionertest.AnyCall:   start / 50,
	}}
}

// repeatable is for programs: one thing after the other, so that the same file
// gives the same answer. Nothing is started before the zones are known, so a
// slow list of them lets stops and removals come first.
func repeatable() pace {
	return pace{
		latency: map[provisionertest.Call]time.Duration{provisionertest.CallZones: 100 * time.Millisecond},
		limits:  provisioner.Limits{Starts: 1, ContainerStarts: 1, Stops: 1},
	}
}

// groups tells the Task which machines are to be kept apart. A machine may be
// in several groups here, so it gets all who share one with it.
func groups(f fleet.Fleet) provisioner.GroupFinder {
	return &groupFinder{f, f.Members()}
}

type groupFinder struct {
	fleet   fleet.Fleet
	members map[string][]provisioner.MachineID
}

// Groups implements provisioner.GroupFinder.
func (g *groupFinder) Groups(_ context.Context, ids ...provisioner.MachineID) ([]provisioner.GroupResult, error) {
	results := make([]provisioner.GroupResult, len(ids))
	for i, id := range ids {
		results[i].ID = id
		if m := g.fleet.Find(id); m != nil {
			results[i].Group = m.GroupOf(g.members)
		} else {
			results[i].Err = errors.NotFoundf("machine %q", string(id))
		}
	}
	return results, nil
}
