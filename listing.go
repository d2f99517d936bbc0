package provisioner

// A listState is where the reading of listings stands, and what the last one
// showed.
type listState struct {
	op     *op // under way
	tries  uint8
	retry  moment
	wanted bool // as soon as one that is late has returned
	listed bool // one has ended, well or not

	seen        []Instance // of a listing, until the records are known
	unplaced    bool       // some provisioned machine has no zone in its record
	unclaimed   []Instance
	unclaimedAt uint64 // the reading that has to be newer than the listing
}

// readListing lists what the broker runs.
func (e *engine) readListing() {
	if e.quiet || e.list.op != nil {
		return
	}
	if e.list.wanted = e.clogged(opListing); e.list.wanted {
		return
	}
	e.agenda.Drop(&e.list.retry.item)
	e.list.op = &op{kind: opListing}
	e.begin(e.list.op)
}

func (e *engine) listingRead(o *op, m *message) {
	e.list.op, e.list.listed = nil, true
	e.census.read = e.census.read || e.cfg.labels
	if e.quiet {
		return
	}
	if m.err != nil {
		next := e.now.Add(e.backoff(&e.list.tries))
		e.at(&e.list.retry, next)
		e.tell(Event{Kind: EventCallFailed, Text: o.kind.String(), Err: m.err, Next: next})
		e.censusFailed(m.err)
		return
	}
	e.list.tries = 0
	e.reaper.settle(e.now)
	// The call began at o.began: what it says is of no earlier moment.
	l, _ := m.result.(Listing)
	e.list.seen = l.Instances
	if e.look.loaded && e.look.stage != stageApply && e.look.stage != stageSweep {
		e.placeSeen()
	}
	e.list.unclaimed = FindUnknown(l, e.accounted)
	e.list.unclaimedAt = e.seq
	if e.cfg.labels {
		e.takeCensus(sight{o.id, o.began}, l, e.list.unclaimed)
	}
	e.tellUnknown()
}

// placeSeen counts machines whose records tell no zone in the zones that the
// listing tells (AZ2).
func (e *engine) placeSeen() {
	for _, i := range e.list.seen {
		for u := e.claims[i.ID]; u != nil && i.Zone != ""; u = u.nextClaim {
			if !u.rec.ID.IsContainer() && u.start == nil && !u.has(flagSettled) && e.ledger.zoneOf(u.slot) == noZone {
				e.ledger.place(u.slot, e.ledger.intern(i.Zone))
			}
		}
	}
	e.list.seen = nil
}

// accounted says whether it is known why an instance is there.
func (e *engine) accounted(id InstanceID) bool {
	return e.claims[id] != nil || e.reaper.accounted(id) || e.sweep.doomed[id] != nil
}

// tellUnknown reports instances that no machine claims: only once each, and
// only when every record was read after the listing, lest one that has just
// been recorded is taken for unknown (HV9).
func (e *engine) tellUnknown() {
	if len(e.list.unclaimed) == 0 || !e.look.loaded || e.look.backlog() || e.look.fleet != nil {
		return
	}
	unclaimed := e.list.unclaimed[:0]
	for _, i := range e.list.unclaimed {
		owner := e.units[i.Labels.Machine]
		starting := owner != nil && owner.start != nil
		if !starting && !e.accounted(i.ID) && !e.reaper.told[i.ID] {
			unclaimed = append(unclaimed, i)
		}
	}
	e.list.unclaimed = unclaimed
	if len(unclaimed) == 0 {
		return
	}
	if e.look.began <= e.list.unclaimedAt {
		e.startFleet()
		return
	}
	if e.look.blind || e.look.obscure > 0 {
		return // one of those that could not be read may have it
	}
	e.list.unclaimed = nil
	for _, i := range unclaimed {
		if i.Labels.Machine == "" && e.startsUnderWay() {
			continue // it may be the product of one of them
		}
		e.reaper.told[i.ID] = true
		e.tell(Event{Kind: EventUnknown, Instance: i.ID, Zone: i.Zone, Text: ReasonUnknown})
	}
}
