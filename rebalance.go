package provisioner

import "fmt"

// A Move is a machine that would sit better elsewhere. The Task never moves
// one: an instance cannot be moved, it has to be started anew.
type Move struct {
	Machine  MachineID
	Instance InstanceID // in From; to be stopped last
	From, To ZoneName
	Reason   string
}

// String gives the move in one line, in the order in which it has to be made.
func (m Move) String() string {
	return fmt.Sprintf("machine %s: launch its like in %s, then stop %s in %s: %s", m.Machine, m.To, m.Instance, m.From, m.Reason)
}

// Rebalance says which machines would have to be started anew, and where, for
// groups and zones to be even again: after an outage, when a zone has been
// added, when weights have changed. It is a plan and nothing else. Make the
// moves one after the other, and each of them launch before stop: add a machine
// with the same constraints and group, wait until it does the work, and only
// then make the old one dead.
//
// There are at most `most` moves, none if that is below 1. In order:
//
//   - only live top-level machines count whose instance and zone are known, and
//     whose Needs in the snapshot are not an error; a machine without Needs may
//     go anywhere
//   - a machine whose zone is not available stays: that is an outage, and the
//     zone may come back
//   - first the moves that make groups more even, then those that make the
//     totals more even and leave the groups as they are
//   - of those that could go, the one with the highest id: the newest
//   - no machine moves twice
//
// The same snapshot and policy give the same moves. Nothing is changed.
func Rebalance(s Snapshot, p Policy, most int) []Move {
	pl := planner{snapshot: s, policy: p, ledger: newLedger(p)}
	pl.index()
	pl.populate()
	var moves []Move
	moved := make([]bool, len(pl.fleet))
	for _, groups := range []bool{true, false} {
		for again := true; again; {
			again = false
			for i := len(pl.fleet) - 1; i >= 0 && len(moves) < most; i-- {
				if moved[i] || !pl.movable(i) {
					continue
				}
				if move, ok := pl.better(int32(i), groups); ok {
					moves, moved[i], again = append(moves, move), true, true
				}
			}
		}
	}
	return moves
}

func (pl *planner) movable(i int) bool {
	r := &pl.fleet[i]
	return pl.checkResult(i) == nil && r.ID.Validate() == nil && !r.ID.IsContainer() && claims(r) && r.Machine.Life == Alive &&
		pl.ledger.zoneOf(int32(i)) != noZone && pl.snapshot.Needs[r.ID].Err == nil
}

// better moves a machine where it would be placed today, if that makes its
// group, or the totals, more even.
func (pl *planner) better(slot int32, groups bool) (Move, bool) {
	l, m := pl.ledger, &pl.fleet[slot].Machine
	w := pl.wish(slot, m.ID)
	from := l.zoneOf(slot)
	to := l.choose(&w)
	if to == noZone || to == from || l.closed(from, &w) != "" {
		return Move{}, false
	}
	// Both are counted without the machine: what is fewer there is fewer after
	// the move by more than the move itself.
	a, b := l.shareOf(to, from), l.shareOf(from, from)
	reason := "zone %s has %d of its group besides it, zone %s has %d"
	n, k := b.group, a.group
	if groups && !a.fewerOfGroup(b) {
		return Move{}, false
	}
	if !groups {
		reason = "zone %s has %d machines besides it, zone %s has %d"
		if n, k = b.total, a.total; !a.less(b) {
			return Move{}, false
		}
	}
	l.place(slot, to)
	return Move{m.ID, m.Instance, l.name(from), l.name(to), fmt.Sprintf(reason, l.name(from), n, l.name(to), k)}, true
}
