package main

import (
	"context"
	"maps"
	"slices"

	"github.com/seed81ba69f2/provisioner"
)

// Instances that the harvest mode has left running are remembered, so that no
// later run takes them for nobody's.

// Spared reads those that are remembered.
func (r *records) Spared(context.Context) ([]provisioner.Spared, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.kept.Spared)), nil
}

// AddSpared remembers one.
func (r *records) AddSpared(_ context.Context, s provisioner.Spared) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return keep(r, r.kept.Spared, s.Instance, &s)
}

// RemoveSpared forgets some.
func (r *records) RemoveSpared(_ context.Context, req provisioner.SparedRemoval) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range req.Instances {
		if err := keep(r, r.kept.Spared, id, nil); err != nil {
			return err
		}
	}
	return nil
}
