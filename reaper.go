package provisioner

// A reaper remembers instances that must not be taken for unknown ones.
type reaper struct {
	spared  map[InstanceID]bool // left running when their record was removed
	undoing map[InstanceID]bool // made by us, not recorded, on their way out
	told    map[InstanceID]bool // reported as unknown
}

func newReaper() reaper {
	return reaper{spared: map[InstanceID]bool{}, undoing: map[InstanceID]bool{}, told: map[InstanceID]bool{}}
}

// spare remembers a kept or spared instance: it does not become unknown when
// its machine's record is gone (HV3, HV4).
func (r *reaper) spare(m Machine, _ Fate) {
	if m.Instance != "" {
		r.spared[m.Instance] = true
	}
}
