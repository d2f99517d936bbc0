package provisioner

import "testing"

// What is there already is handled in one turn and read in one call; a turn per
// change costs more than all that is decided about it. The floors of bench/ say
// how much.
func TestChangesThatAreThereAreTakenTogether(t *testing.T) {
	for _, c := range []struct {
		why                string
		given, taken, left int
		closed             bool
	}{
		{why: "nothing is there"},
		{why: "all that is there, in its order", given: 3, taken: 3},
		{why: "a flood does not drown everything else", given: maxIDs + 2, taken: maxIDs, left: 2},
		{why: "a closed channel is heard where that ends Run", given: 2, taken: 2, closed: true},
	} {
		changes := make(chan []MachineID, c.given)
		for range c.given {
			changes <- []MachineID{"1"}
		}
		if c.closed {
			close(changes)
		}
		d := driver{changes: changes}
		in := d.changed([]message{{kind: msgRetry}})
		if in[0].kind != msgRetry || len(in)-1 != c.taken || len(changes) != c.left {
			t.Errorf("%s: %d messages after the first, %d left, want %d and %d", c.why, len(in)-1, len(changes), c.taken, c.left)
		}
		for _, m := range in[1:] {
			if m.kind != msgChanged || len(m.ids) != 1 {
				t.Errorf("%s: message %+v", c.why, m)
			}
		}
	}
	d := driver{}
	if in := d.changed(nil); in != nil { // no channel any more
		t.Errorf("%d messages without a channel", len(in))
	}
}
