package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/fleet"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// A report is what came of a fleet, or, of a plan, what would. Its JSON form is
// an interface: keys are added, never changed.
type report struct {
	Machines []row                    `json:"machines"` // by id
	Zones    []zoneRow                `json:"zones"`    // by name
	Stopped  []provisioner.InstanceID `json:"stopped"`  // sorted; of a plan: to be stopped
	Kept     []provisioner.InstanceID `json:"kept"`     // sorted; they outlive the record of their machine
	Warnings []string                 `json:"warnings"`

	fleet    fleet.Fleet
	planOnly bool
	took     time.Duration
	before   map[provisioner.ZoneName]int // machines in each zone at the beginning
	fates    map[provisioner.MachineID]provisioner.Event
	spread   *spread
	ended    []provisioner.Event
}

// A row is one machine.
type row struct {
	ID       provisioner.MachineID  `json:"id"`
	Parent   provisioner.MachineID  `json:"parent"` // of a container
	Class    string                 `json:"class"`  // at the beginning: none, pending, dead or maintain
	Reason   string                 `json:"reason"`
	Instance provisioner.InstanceID `json:"instance"`
	Zone     provisioner.ZoneName   `json:"zone"`    // of a container: its host's
	Group    string                 `json:"group"`   // several are joined with ","
	Outcome  string                 `json:"outcome"` // see the outcomes

	had  provisioner.InstanceID // at the beginning
	odd  bool                   // worth a row even in a large fleet
	base string                 // the reason without what is this machine's alone
}

// The outcomes of a plan are those of provisioner.ActionKind: leave, stop,
// remove, maintain, start. What can come of them:
const (
	outcomeLeft       = "left"       // nothing was to be done
	outcomeStarted    = "started"    //
	outcomeFailed     = "failed"     // given up; it waits for a retry signal
	outcomeWaiting    = "waiting"    // not yet done when the account ended
	outcomeRemoved    = "removed"    // the record is gone, and the instance too unless it is kept
	outcomeMaintained = "maintained" //
)

// A zoneRow is one zone.
type zoneRow struct {
	Name      provisioner.ZoneName `json:"name"`
	Available bool                 `json:"available"`
	Machines  int                  `json:"machines"` // top-level ones; of a plan: planned ones included
}

// newReport tells what is planned.
func newReport(f fleet.Fleet, plan provisioner.Plan, planOnly bool) *report {
	r := &report{
		Machines: []row{}, Zones: []zoneRow{}, Stopped: []provisioner.InstanceID{}, Kept: []provisioner.InstanceID{},
		fleet: f, planOnly: planOnly, before: newSpread(f).total,
	}
	r.Warnings = append([]string{}, f.Warnings...)
	r.Warnings = append(r.Warnings, plan.Warnings...)
	for _, u := range slices.Concat(plan.Sweep.Stop, plan.Sweep.Left) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("instance %s: %s", u.Instance.ID, u.Reason))
	}
	actions := map[provisioner.MachineID]provisioner.Action{}
	for _, a := range slices.Concat(plan.Actions, plan.Left) {
		actions[a.Was.ID] = a
	}
	for _, m := range f.Machines {
		r.Machines = append(r.Machines, newRow(f, m, actions[m.Record.ID]))
	}
	for _, a := range plan.Actions {
		switch {
		case a.Kind == provisioner.ActionStop:
			r.Stopped = append(r.Stopped, a.Was.Instance)
		case a.Kind == provisioner.ActionRemove && a.Was.Instance != "":
			r.Kept = append(r.Kept, a.Was.Instance)
		}
	}
	r.spread = planned(f, plan)
	for _, z := range plan.Zones {
		r.Zones = append(r.Zones, zoneRow{z.Zone, z.Available, z.Machines})
	}
	if planOnly {
		for i := range r.Machines {
			r.Machines[i].explain(r)
		}
	}
	r.sort()
	return r
}

// planned is the spread that a plan leads to.
func planned(f fleet.Fleet, plan provisioner.Plan) *spread {
	s := newSpread(f)
	for _, a := range plan.Actions {
		if a.Kind == provisioner.ActionStart {
			s.choose(a.Was.ID, a.Zone)
		}
	}
	return s
}

func newRow(f fleet.Fleet, m fleet.Machine, a provisioner.Action) row {
	id := m.Record.ID
	x := row{
		ID: id, Parent: id.Host(), Instance: m.Record.Instance, Zone: f.ZoneOf(id), Group: strings.Join(m.Groups, ","),
		Class: provisioner.ClassNone.String(), Reason: a.Reason, Outcome: string(a.Kind),
	}
	if m.Err == nil {
		x.Class = provisioner.Classify(m.Record).Class.String()
	}
	if a.Zone != "" {
		x.Zone = a.Zone
	}
	x.had, x.odd = m.Record.Instance, a.Err != nil
	switch {
	case m.Record.Instance == "" && m.Record.InstanceStatus == provisioner.InstanceProvisioningError && a.Kind == provisioner.ActionLeave:
		x.Reason = "failed earlier"
		if m.Note != "" {
			x.Reason += " (" + m.Note + ")"
		}
		x.Reason += ": waits for a retry signal"
	case strings.HasPrefix(string(m.Record.Instance), "manual:") && a.Kind == provisioner.ActionLeave:
		x.Reason = "added by hand: not ours to start or stop"
	case m.Record.Instance != "" && m.Record.Life == provisioner.Alive && m.Record.Status == provisioner.StatusDown:
		x.Reason += "; its agent is lost, which is not ours to mend"
	}
	x.base = a.Reason
	return x
}

// settle turns what was planned into what came of it.
func (r *report) settle(world *provisionertest.World) {
	r.Stopped, r.Kept = []provisioner.InstanceID{}, []provisioner.InstanceID{}
	for _, e := range r.ended {
		if e.Kind == provisioner.EventStopped {
			r.Stopped = append(r.Stopped, e.Instance)
		} else {
			r.Kept = append(r.Kept, e.Instance)
		}
	}
	counts := map[provisioner.ZoneName]int{}
	for i := range r.Machines {
		x := &r.Machines[i]
		rec, there := world.Machine(x.ID)
		x.settle(rec, there, r.fates[x.ID])
		x.explain(r)
		if there && !x.ID.IsContainer() && rec.Zone != "" {
			counts[rec.Zone]++
		}
	}
	for i := range r.Machines { // containers follow their hosts
		x := &r.Machines[i]
		for host := x.Parent; x.Zone == "" && host != ""; host = host.Host() {
			if h := r.find(host); h != nil {
				x.Zone = h.Zone
			}
		}
	}
	for i := range r.Zones {
		r.Zones[i].Machines = counts[r.Zones[i].Name]
	}
	r.sort()
}

func (r *report) find(id provisioner.MachineID) *row {
	i, ok := slices.BinarySearchFunc(r.Machines, id, func(x row, id provisioner.MachineID) int { return x.ID.Compare(id) })
	if !ok {
		return nil
	}
	return &r.Machines[i]
}

// settle: what came of one machine, by its record and the latest event that
// says more.
func (x *row) settle(rec provisioner.Machine, there bool, fate provisioner.Event) {
	planned := provisioner.ActionKind(x.Outcome)
	if planned == provisioner.ActionStart && !x.ID.IsContainer() {
		x.Zone = rec.Zone
	}
	switch {
	case !there:
		x.Outcome, x.Instance, x.Zone = outcomeRemoved, "", ""
		return
	case x.had == "" && rec.Instance != "": // also one that was to wait for its host
		x.Outcome, x.Instance = outcomeStarted, rec.Instance
		x.Reason, x.base = string(provisioner.StatusPending), string(provisioner.StatusPending)
		return
	case planned == provisioner.ActionLeave && (fate.Kind == "" || fate.Kind == provisioner.EventMachineFailed):
		x.Outcome = outcomeLeft
		return
	}
	x.Outcome = outcomeWaiting
	switch fate.Kind {
	case provisioner.EventMaintained:
		x.Outcome = outcomeMaintained
	case provisioner.EventStartFailed:
		x.Outcome, x.Reason = outcomeFailed, errText(fate.Err)
	case provisioner.EventZonesOut:
		x.Reason = fate.Text
	default:
		if fate.Err != nil {
			x.Reason = errText(fate.Err)
		}
	}
}

// explain adds to the reason what is this machine's alone: why it is in its
// zone, and what became of its instance.
func (x *row) explain(r *report) {
	switch provisioner.ActionKind(x.Outcome) {
	case outcomeStarted, provisioner.ActionStart:
		if why := r.spread.story(x.ID); why != "" {
			x.Reason += ": " + why
		}
	case outcomeRemoved:
		switch {
		case x.had == "":
		case slices.Contains(r.Kept, x.had):
			x.Reason += "; " + string(x.had) + " stays"
		default:
			x.Reason += "; " + string(x.had) + " was stopped"
		}
	case outcomeFailed, outcomeWaiting:
		x.odd = true
	}
}

func (r *report) sort() {
	slices.Sort(r.Stopped)
	slices.Sort(r.Kept)
	r.Stopped, r.Kept = slices.Compact(r.Stopped), slices.Compact(r.Kept) // a thing may be told twice
	slices.SortFunc(r.Zones, func(a, b zoneRow) int { return strings.Compare(string(a.Name), string(b.Name)) })
}

func (r *report) writeJSON(out screen) error {
	sorted := *r
	sorted.Warnings = slices.Sorted(slices.Values(r.Warnings))
	if sorted.Warnings == nil {
		sorted.Warnings = []string{}
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(&sorted)
}
