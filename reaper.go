package provisioner

import (
	"maps"
	"slices"
	"time"
)

// lingers is how long an instance that we have stopped may still be listed
// before it is reported.
const lingers = 5 * time.Minute

// A reaper remembers instances that must not be taken for unknown ones.
type reaper struct {
	spared  map[InstanceID]Fate      // left running when their record was removed: kept or spared
	stopped map[InstanceID]time.Time // by us, and perhaps still listed
	room    int                      // how many of those are put up with until the old ones are forgotten
	undoing map[InstanceID]bool      // made by us, not recorded, on their way out
	told    map[InstanceID]bool      // reported as unknown
	bare    map[MachineID]time.Time  // removed without an instance: until when one may still show
}

func newReaper() reaper {
	return reaper{spared: map[InstanceID]Fate{}, stopped: map[InstanceID]time.Time{}, undoing: map[InstanceID]bool{}, told: map[InstanceID]bool{}, bare: map[MachineID]time.Time{}}
}

// spare remembers a kept or spared instance: it does not become unknown when
// its machine's record is gone (HV3, HV4).
func (r *reaper) spare(m Machine, fate Fate) {
	if m.Instance != "" && r.spared[m.Instance] != FateKept {
		r.spared[m.Instance] = fate
	}
}

// kept lists the instances that keep-instance has left running.
func (r *reaper) kept() []InstanceID {
	var ids []InstanceID
	for id, fate := range r.spared {
		if fate == FateKept {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// known lists the instances that are accounted for, in any order.
func (r *reaper) known() []InstanceID {
	return slices.Concat(slices.Collect(maps.Keys(r.spared)), slices.Collect(maps.Keys(r.stopped)), slices.Collect(maps.Keys(r.undoing)))
}

// stop remembers an instance that we have stopped at now.
func (r *reaper) stop(id InstanceID, now time.Time) {
	if len(r.stopped) >= r.room { // listings settle them, but there may be none for long
		r.settle(now)
		r.room = max(1024, 2*len(r.stopped))
	}
	r.stopped[id] = now
	delete(r.undoing, id)
}

// accounted says whether it is known why an instance is there that no record has.
func (r *reaper) accounted(id InstanceID) bool {
	return has(r.stopped, id) || r.undoing[id] || has(r.spared, id)
}

// settle forgets the stopped instances that should be gone by now.
func (r *reaper) settle(now time.Time) {
	for id, at := range r.stopped {
		if now.Sub(at) >= lingers {
			delete(r.stopped, id)
		}
	}
}
