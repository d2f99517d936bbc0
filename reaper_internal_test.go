package provisioner

import (
	"fmt"
	"testing"
	"time"
)

// What was stopped is forgotten in time also if no listing succeeds, or none is
// made as Resync is off: a Task runs for months.
func TestStoppedAreForgottenWithoutListings(t *testing.T) {
	r, now, most := newReaper(), time.Unix(0, 0), 0
	for i := range 50_000 {
		now = now.Add(time.Second)
		r.stop(InstanceID(fmt.Sprint("i-", i)), now)
		if most = max(most, len(r.stopped)); !r.accounted(InstanceID(fmt.Sprint("i-", max(0, i-200)))) {
			t.Fatalf("an instance that was stopped less than %v ago is forgotten", lingers)
		}
	}
	if most > 2048 {
		t.Errorf("%d stopped instances are remembered", most)
	}
}

// A machine that is forgotten while single machines are being read leaves no
// trace: on a busy fleet some always are.
func TestForgottenLeaveNoTrace(t *testing.T) {
	e := newEngine(engineConfig{random: func() float64 { return 0 }}, Policy{}, Limits{})
	e.look.reads = 1
	for i := range 100 {
		e.forget(e.unitOf(MachineID(fmt.Sprint(i))))
	}
	if n := len(e.look.buried); n != 0 {
		t.Errorf("%d are remembered", n)
	}
}
