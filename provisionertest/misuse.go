package provisionertest

import (
	"fmt"
	"slices"
	"time"
)

// A Misuse is a call that breaks what the interfaces promise the host.
type Misuse struct {
	Call string
	Why  string
	At   time.Duration // since the World was made
}

// String gives the misuse in one line.
func (m Misuse) String() string { return fmt.Sprintf("%s at %s: %s", m.Call, m.At, m.Why) }

// Misuses lists, in the order of time, the calls without ids or with one
// twice, those for too many at once, and those that overlapped another that
// they must not overlap: a machine is started, recorded, made dead, stopped,
// removed or given other profiles by one call at a time, its status is written by
// one, and one profile is changed by one. A World that
// is kind, silent and without faults does not look.
func (w *World) Misuses() []Misuse {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.misuses)
}

// maxIDs is how many machines are asked for at once at most, about what starts
// need and about profile changes.
const maxIDs = 500

// checkUse looks at a call that has just reached the host.
func (w *World) checkUse(c *call) {
	wrong := func(why string) {
		w.misuses = append(w.misuses, Misuse{c.String(), why, w.now().Sub(w.born)})
	}
	switch c.kind {
	case CallMachines, CallInfo, CallGroups, CallAuth, CallIntents, CallProfiles:
		wrongIDs(wrong, c.machines)
	case CallStop, CallUnspare:
		wrongIDs(wrong, c.instances)
		if c.kind == CallStop && !slices.IsSorted(c.instances) {
			wrong("its ids are not sorted")
		}
	}
	if (c.kind == CallInfo || c.kind == CallProfiles) && len(c.machines) > maxIDs {
		wrong(fmt.Sprintf("more than %d machines", maxIDs))
	}
	for _, lock := range w.exclusive(c) {
		if w.inFlight[lock] {
			wrong("another is under way for " + lock)
			continue
		}
		w.inFlight[lock] = true
		c.locks = append(c.locks, lock)
	}
}

func wrongIDs[S ~string](wrong func(string), ids []S) {
	if len(ids) == 0 {
		wrong("it is for nothing")
	}
	seen := make(map[S]bool, len(ids))
	for _, id := range ids {
		if seen[id] {
			wrong("it names " + string(id) + " twice")
		}
		seen[id] = true
	}
}

// exclusive names what no other call may hold at the same time.
func (w *World) exclusive(c *call) []string {
	switch c.kind {
	case CallStatus:
		return []string{"the status of machine " + string(c.machine)}
	case CallProfileStatus, CallRemoveProfile:
		return []string{fmt.Sprintf("profile change %q of machine %s", c.profiles, c.machine)}
	case CallChangeProfile:
		locks := []string{"machine " + string(c.machine)}
		for _, name := range c.profiles {
			if lock := "profile " + name; name != "" && !slices.Contains(locks, lock) {
				locks = append(locks, lock)
			}
		}
		return locks
	case CallStart, CallRecord, CallDead, CallRemove, CallSetProfiles:
		return []string{"machine " + string(c.machine)}
	case CallStop:
		var locks []string
		for _, id := range c.instances {
			lock := "instance " + string(id)
			if i := w.instances[id]; i != nil && i.machine != "" {
				lock = "machine " + string(i.machine)
			}
			if !slices.Contains(locks, lock) {
				locks = append(locks, lock)
			}
		}
		return locks
	}
	return nil
}

// endUse lets others be about the same again.
func (w *World) endUse(c *call) {
	for _, lock := range c.locks {
		delete(w.inFlight, lock)
	}
}
