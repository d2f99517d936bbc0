package provisioner

import (
	"cmp"
	"slices"
	"time"
)

// An Orphan is an instance that is there, that no record has, and that has to
// go: one that could not be recorded, or a second one of a machine. It is being
// stopped, as often as it takes.
type Orphan struct {
	Instance InstanceID
	Machine  MachineID // for which it was made
	Reason   string    // why it has to go
	Err      error     // why it could not be stopped the last time; nil: not tried yet
	Next     time.Time // when that is tried again; zero: it is being tried
}

func (e *engine) orphans() []Orphan {
	var all []Orphan
	for u := range e.astir {
		if u.start == nil || u.start.made == nil {
			continue
		}
		made := u.start.made
		all = append(all, Orphan{made.record.Instance, u.rec.ID, statusText(made.err), made.stop, u.item.At()})
	}
	for _, d := range e.dooms() {
		all = append(all, Orphan{d.instance, d.machine, d.why, d.err, d.next})
	}
	slices.SortFunc(all, func(a, b Orphan) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), a.Machine.Compare(b.Machine))
	})
	return all
}
