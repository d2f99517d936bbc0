package provisioner

import (
	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"
)

// CheckLedger compares what a Task has counted with what it would count if it
// began anew, from its records and the zones that its starts hold.
func (t *Task) CheckLedger() error {
	e := <-t.engine
	defer func() { t.engine <- e }()
	if diff := cmp.Diff(ledgerCounts(rebuilt(e.ledger)), ledgerCounts(e.ledger)); diff != "" {
		return errors.Errorf("the ledger rebuilt and the ledger kept (-rebuilt +kept):\n%s", diff)
	}
	counted := 0
	for id, u := range e.units {
		zone := e.ledger.name(e.ledger.zoneOf(u.slot))
		if zone != "" {
			counted++
		}
		switch {
		case id.IsContainer() && zone != "":
			return errors.Errorf("container %s is counted in %s", id, zone)
		case u.start != nil && zone != "" && zone != e.ledger.name(u.start.zone):
			return errors.Errorf("machine %s is started in %s and counted in %s", id, e.ledger.name(u.start.zone), zone)
		case u.life == lifeStarting && zone == "" && e.ledger.zoned() && !id.IsContainer():
			return errors.Errorf("machine %s is being started and counted nowhere", id)
		case u.start == nil && u.rec.Instance != "" && u.rec.Life == Alive && !id.IsContainer() && zone != u.rec.Zone:
			return errors.Errorf("machine %s runs in %s and is counted in %q", id, u.rec.Zone, zone)
		case u.start == nil && u.rec.Instance == "" && zone != "":
			return errors.Errorf("machine %s runs nowhere and is counted in %s", id, zone)
		}
	}
	total := 0
	for _, c := range e.ledger.counts() {
		total += c.Machines
	}
	if total != counted {
		return errors.Errorf("%d machines are counted in zones, and %d are in one", total, counted)
	}
	return nil
}
