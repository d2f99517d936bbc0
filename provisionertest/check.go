package provisionertest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// A Leak is a live instance that no record claims, and that is neither kept
// nor spared nor excused.
type Leak struct {
	Instance provisioner.InstanceID
	Machine  provisioner.MachineID // whose it was made for
	Zone     provisioner.ZoneName
}

// String gives the leak in one line.
func (l Leak) String() string {
	return fmt.Sprintf("instance %s in zone %q, made for machine %s, is claimed by no record", l.Instance, string(l.Zone), l.Machine)
}

// Leaks lists the leaks there are now, by instance.
func (w *World) Leaks() []Leak {
	w.mu.Lock()
	defer w.mu.Unlock()
	var leaks []Leak
	for _, i := range w.listing {
		_, spared := w.spared[i.id]
		if i.live() && !i.protected && !i.excused && !spared && len(w.claimants(i.id)) == 0 {
			leaks = append(leaks, Leak{i.id, i.machine, i.zone})
		}
	}
	slices.SortFunc(leaks, func(a, b Leak) int { return cmp.Compare(a.Instance, b.Instance) })
	return leaks
}

// A Double is a machine that had more than one live instance at once.
type Double struct {
	Machine   provisioner.MachineID
	Instances []provisioner.InstanceID // sorted
	At        time.Duration            // since the World was made
}

// String gives the double in one line.
func (d Double) String() string {
	return fmt.Sprintf("machine %s had the instances %s at once, at %s", d.Machine, some(d.Instances), d.At)
}

// Doubles lists, in the order of time, each start that gave a machine one live
// instance more than the one that it may have.
func (w *World) Doubles() []Double {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.doubles)
}

func (w *World) foundDouble(m *machine) {
	d := Double{Machine: m.ID, At: w.now().Sub(w.born)}
	for _, i := range m.instances {
		if i.live() {
			d.Instances = append(d.Instances, i.id)
		}
	}
	slices.Sort(d.Instances)
	w.doubles = append(w.doubles, d)
}

// A WrongStop is a live instance that was stopped and should not have been.
type WrongStop struct {
	Instance provisioner.InstanceID
	Machine  provisioner.MachineID // that claimed it, or whose it was
	Why      string
	At       time.Duration // since the World was made
}

// String gives the wrong stop in one line.
func (s WrongStop) String() string {
	return fmt.Sprintf("instance %s of machine %s was stopped at %s: %s", s.Instance, s.Machine, s.At, s.Why)
}

// WrongStops lists, in the order of time, the stops of live instances that a
// record claimed whose machine wasn't dead, and of those that are kept or
// protected. The stop of an instance that no record claims is a rollback.
func (w *World) WrongStops() []WrongStop {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.wrongStops)
}

func (w *World) checkStop(i *instance) {
	wrong := func(id provisioner.MachineID, why string) {
		w.wrongStops = append(w.wrongStops, WrongStop{i.id, id, why, w.now().Sub(w.born)})
	}
	for _, m := range w.claimants(i.id) {
		switch {
		case m.Life != provisioner.Dead:
			wrong(m.ID, "the machine is "+string(m.Life))
			return
		case m.Keep:
			wrong(m.ID, "it was to be kept")
			return
		}
	}
	if i.protected {
		wrong(i.machine, "it was protected")
	}
}

// A StaleWrite is a call that changed something with the epoch of a lease that
// was over, or with none while there was a lease.
type StaleWrite struct {
	Call  string
	Epoch uint64
	At    time.Duration // since the World was made
}

// String gives the write in one line.
func (s StaleWrite) String() string {
	return fmt.Sprintf("%s at %s with epoch %d, which does not hold the lease", s.Call, s.At, s.Epoch)
}

// StaleWrites lists them in the order of time.
func (w *World) StaleWrites() []StaleWrite {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.stale)
}

// Check joins all of the above into one error, a line each; nil if there is
// nothing wrong. Call it when the Task is idle: an instance that is just being
// recorded is claimed by nobody yet.
func (w *World) Check() error {
	var lines []string
	for _, l := range w.Leaks() {
		lines = append(lines, l.String())
	}
	for _, d := range w.Doubles() {
		lines = append(lines, d.String())
	}
	for _, s := range w.WrongStops() {
		lines = append(lines, s.String())
	}
	for _, s := range w.StaleWrites() {
		lines = append(lines, s.String())
	}
	for _, m := range w.Misuses() {
		lines = append(lines, m.String())
	}
	if lines == nil {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}
