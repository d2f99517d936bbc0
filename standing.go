package provisioner

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/internal/lane"
)

// doing is what the engine is doing about every machine that does not rest.
func (e *engine) doing() map[MachineID]Doing {
	doing := map[MachineID]Doing{}
	for u := range e.astir {
		d := Doing{Phase: lifePhases[u.life]}
		if u.start != nil {
			d.Zone = e.ledger.name(e.ledger.zoneOf(u.slot))
		}
		d.Asked, d.Open = e.asking(u)
		doing[u.rec.ID] = d
	}
	return doing
}

// counted is what the engine has to say for Counters.
func (e *engine) counted() (events map[EventKind]uint64, lanes map[string]LaneCounter, machines map[Phase]int) {
	lanes, machines = map[string]LaneCounter{}, map[Phase]int{}
	for name, l := range map[string]*lane.Lane[*unit]{
		"starts": &e.starts, "stops": &e.stops, "removals": &e.removals, "upkeep": &e.upkeep, "statuses": &e.writes, "profiles": &e.profiles.lane,
	} {
		lanes[name] = LaneCounter{l.Limit, l.Used(), l.Waiting()}
	}
	for l, n := range e.lives {
		if n > 0 {
			machines[lifePhases[l]] += n
		}
	}
	return maps.Clone(e.told), lanes, machines
}

// addSeen adds what was seen, spared and frozen so far.
func (e *engine) addSeen(s *Snapshot) {
	e.addSpared(s)
	s.Spent = e.spent()
	s.Approved = slices.Sorted(maps.Keys(e.list.freeze.approved))
	s.Frozen = e.list.freeze.frozen.sorted()
	for id := range e.sweep.doomed {
		s.Doomed = append(s.Doomed, id)
	}
	s.Seen = map[InstanceID]time.Time{}
	if e.list.last != nil {
		for id, seen := range e.list.last.seen {
			s.Seen[id] = seen.First
		}
	}
}

// explain says where one unit stands.
func (e *engine) explain(u *unit) Explanation {
	x := Explanation{Machine: u.rec.ID, Record: u.rec, Phase: lifePhases[u.life], Next: u.item.At()}
	a := e.decide(u)
	x.Reason, x.LastError = a.Reason, a.Err
	if u.life == lifeResetting {
		x.Reason = "its statuses are being reset for a retry"
	}
	if p := u.profile; p != nil {
		x.explainProfile(u.life, p)
	}
	if u.op != nil && u.op.late {
		x.Reason = u.op.String() + " has timed out, and the call has not returned"
	}
	if u.reread != nil && u.reread.err != nil {
		x.LastError = errors.Annotate(u.reread.err, "reading its record")
		if !u.has(flagKnown) {
			x.Reason = "its record has not been read yet"
		}
	}
	if u.missed > 0 && u.rec.Instance != "" {
		x.Missing = int(u.missed)
	}
	if x.Next.IsZero() && u.reread != nil {
		x.Next = u.reread.item.At()
	}
	if u.failed != nil {
		x.LastError = u.failed
	}
	if u.life == lifeQueued && e.zones.err != nil {
		x.Reason, x.LastError, x.Next = "it waits for the zones to be read", e.zones.err, e.zones.retry.item.At()
	}
	w := wish{slot: u.slot, hash: hashString(string(u.rec.ID))}
	if s := u.start; s != nil {
		x.Attempt, x.Zone = s.attempt, e.ledger.name(s.zone)
		w = *e.wish(u)
		if s.history.Cause != nil {
			x.LastError = s.history.Cause
		}
		if s.trouble != nil {
			x.LastError = s.trouble
		}
		if s.made != nil {
			x.Instance, x.LastError = s.made.record.Instance, s.made.err
			if s.made.stop != nil {
				x.LastError = s.made.stop
			}
		}
	}
	if u.rec.Instance == "" && u.rec.Life == Alive && !e.zoneless(u) {
		x.Zones = e.ledger.ranked(u.rec.ID, &w)
	}
	var failed *StartError
	if errors.As(u.failed, &failed) {
		x.Zones = withReasons(x.Zones, failed.Out)
	}
	return x
}

// explainProfile says where a machine's profile change stands.
func (x *Explanation) explainProfile(l life, p *profiling) {
	what := p.change.String()
	switch {
	case l != lifeProfiling && !p.item.On():
		return
	case l != lifeProfiling:
		x.Reason += "; its profile change waits for the next try: " + cmp.Or(what, "not read yet")
	case p.waits != "":
		x.Reason = "its profiles are changed (" + what + ") once no other machine's has to do with " + p.waits
	case p.queued:
		x.Reason = "waits for its turn to have its profiles changed: " + what
	default:
		x.Reason = "its profiles are being changed: " + what
	}
	if x.LastError = p.err; p.err != nil {
		x.LastError = errors.Annotate(p.err, "changing its profiles")
	}
	if x.Next.IsZero() {
		x.Next = p.item.At()
	}
}

// withReasons shows the zones that were out for a start that was given up for
// reasons of its own: its constraint is not held any longer.
func withReasons(zones []RankedZone, out []Excluded) []RankedZone {
	for i := range zones {
		z := &zones[i]
		for _, reason := range []string{ReasonConstraint, ReasonDerived} {
			if z.Rank > 0 && slices.Contains(out, Excluded{z.Zone, reason}) {
				z.Rank, z.Reason = 0, reason
			}
		}
	}
	return zones
}
