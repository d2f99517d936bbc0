package main

import (
	"context"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// Attempts are kept beside what was made, so that a run that was killed in the
// middle of one knows what it asked LXD for. It also lets the next run believe
// that there is nothing of a machine that was never asked for, though a member of
// the cluster is silent.

// Intents reads the attempts that are kept.
func (r *records) Intents(_ context.Context, ids ...provisioner.MachineID) ([]provisioner.IntentResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var results []provisioner.IntentResult
	for _, id := range ids {
		result := provisioner.IntentResult{ID: id, Err: r.machine(id).Err}
		if kept := r.kept.Machines[id].Intent; kept != nil {
			result.Intent = *kept
		}
		results = append(results, result)
	}
	return results, nil
}

// SwapIntent puts one in the place of another.
func (r *records) SwapIntent(_ context.Context, old, next provisioner.Intent) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := next.Machine
	if err := r.machine(id).Err; err != nil {
		return err
	}
	is := r.kept.Machines[id]
	var has provisioner.Intent
	if is.Intent != nil {
		has = *is.Intent
	}
	if !sameIntent(has, old) {
		return errors.AlreadyExistsf("attempt %d of machine %s, with token %q,", has.Attempt, id, has.Token)
	}
	is.Intent = &next
	return keep(r, r.kept.Machines, id, &is)
}

// sameIntent compares what a file keeps: of a time no more than when it was. An
// intent that was never stored need not say whose it is.
func sameIntent(a, b provisioner.Intent) bool {
	same := a.At.Equal(b.At)
	a.At, a.Machine = b.At, b.Machine
	return same && a == b
}
