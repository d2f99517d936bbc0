package provisioner_test

import (
	"github.com/juju/errors"
	"testing"

	"github.com/seed81ba69f2/provisioner"
)

// callBack uses a Task the way a host or an observer may: from within a call.
func callBack(t *testing.T, task *provisioner.Task, about string) {
	t.Helper()
	if _, err := task.Explain(provisioner.MachineID(about)); err != nil && !errors.Is(err, errors.NotFound) {
		t.Errorf("Explain: %v", err)
	}
	if err := task.SetHarvestMode(provisioner.HarvestDestroyed); err != nil {
		t.Errorf("SetHarvestMode: %v", err)
	}
	if err := task.SetLimits(provisioner.Limits{}); err != nil {
		t.Errorf("SetLimits: %v", err)
	}
	if _, err := task.Plan(t.Context()); err != nil {
		t.Errorf("Plan: %v", err)
	}
	task.Capabilities()
}
