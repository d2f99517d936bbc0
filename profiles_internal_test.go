package provisioner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// LD2: a machine that was forgotten while it waited to be read, and has come back
// since, is asked for once.
func TestChangeOfAForgottenMachineIsNotRead(t *testing.T) {
	e := newEngine(engineConfig{profiles: true}, Policy{}, Limits{})
	e.quiet, e.running = false, true
	e.readChange(e.unitOf("0"))
	e.forget(e.units["0"])
	e.readChange(e.unitOf("0"))
	e.flushChanges()
	out, _, _ := e.take()
	if len(out) != 1 {
		t.Fatalf("%d operations, want 1", len(out))
	}
	if diff := cmp.Diff([]MachineID{"0"}, out[0].req); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}
