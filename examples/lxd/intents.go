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
		result := provisioner.IntentResult{ID: id}
		if kept := r.made[id].Intent; kept != nil {
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
	if _, wanted := r.want[id]; !wanted && r.made[id].Intent == nil {
		return errors.NotFoundf("machine %s", id)
	}
	was, existed := r.made[id]
	var has provisioner.Intent
	if was.Intent != nil {
		has = *was.Intent
	}
	if !sameIntent(has, old) {
		return errors.AlreadyExistsf("another attempt of machine %s", id)
	}
	is := was
	is.Intent = &next
	r.made[id] = is
	if err := r.save(); err != nil {
		if r.made[id] = was; !existed {
			delete(r.made, id)
		}
		return err
	}
	return nil
}

func sameIntent(a, b provisioner.Intent) bool {
	same := a.At.Equal(b.At) // a file keeps no more than the instant
	a.At = b.At
	return same && a == b
}
