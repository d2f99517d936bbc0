package provisioner

import (
	"cmp"
	"slices"
)

// An openAttempt is an attempt that may have made an instance: it has neither
// been recorded nor has it certainly failed (ST10).
type openAttempt struct {
	Intent
	own string // start.own
	op  uint64 // the last operation when it ended; 0: before this Task
}

// ours lists the instances that carry the labels of a machine of this
// controller and that are there, the one to be taken for the machine's own
// first: the one with the token of its open attempt, else the oldest (ST19).
// Those whose age is not told come last.
func ours(instances []Instance, controller string, id MachineID, token string) []Instance {
	var found []Instance
	for _, i := range instances {
		twice := func(other Instance) bool { return other.ID == i.ID }
		if i.ID != "" && i.State != InstanceTerminated && i.Labels.Controller == controller && i.Labels.Machine == id && !slices.ContainsFunc(found, twice) {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b Instance) int {
		return cmp.Or(
			first(token != "" && a.Labels.Token == token, token != "" && b.Labels.Token == token),
			first(!a.Created.IsZero(), !b.Created.IsZero()),
			a.Created.Compare(b.Created),
			cmp.Compare(a.ID, b.ID))
	})
	return found
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
