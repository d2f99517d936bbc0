package provisioner_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// TestOneFailureIsNobodyElses holds ST15: whatever goes wrong for one machine, in
// whatever call, everything that is done for the others is done at the same
// instant as if nothing had.
func TestOneFailureIsNobodyElses(t *testing.T) {
	var (
		starting = []string{"start", "record", "status", "info", "groups", "auth", "derive", "fleet", "machines"}
		dying    = []string{"stop", "rm", "machines"}
		troubles = []string{"error", "error not-valid", "error permanent", "error ambiguous", "error retry-after 3s", "hang", "stuck", "stuck 5m", "panic", "goexit", "delay 2m", "missing", "double"}
	)
	play := func(t *testing.T, machine, fault string) (others, bad string) {
		const scenario = `
zones a
config refresh=10h resync=off jitter=off call=20s launch=40s containers=2
%s
machine 1
machine 2
machine 3 instance=i-3 zone=a life=dead
machine 1/lxd/0
machine 1/lxd/1
machine 1/lxd/2
%s
run 30s
machine 5
machine 6 instance=i-6 zone=a
run 31s
life 2 dead
life 6 dead
run 1s
show machines
changed bad
run 20m`
		var out string
		synctest.Test(t, func(t *testing.T) { out = playScenario(t, fmt.Sprintf(scenario, machine, fault)) })
		_, out, _ = strings.Cut(out, "----\n")
		for line := range strings.Lines(out) {
			if strings.Contains(line, "bad") {
				bad += line
			} else {
				others += line
			}
		}
		return others, bad
	}
	for _, kind := range []struct {
		machine string
		calls   []string
	}{
		{"machine bad", starting},
		{"machine bad instance=i-bad zone=a life=dead", dying},
	} {
		want, good := play(t, kind.machine, "")
		if !strings.Contains(want, "stop i-2 -> ok") || good == "" {
			t.Fatalf("not much happens:\n%s%s", want, good)
		}
		for _, call := range kind.calls {
			for _, trouble := range troubles {
				if !oneMachines(call, trouble) {
					continue
				}
				fault := fmt.Sprintf("fault %s machine=bad count=always: %s", call, trouble)
				t.Run(strings.ReplaceAll(fault+" "+kind.machine[len("machine bad"):], " ", "_"), func(t *testing.T) {
					got, bad := play(t, kind.machine, fault)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("ST15: the others (-without +with the fault):\n%s", diff)
					}
					if bad == good {
						t.Error("the fault has hit nothing")
					}
				})
			}
		}
	}
}

// oneMachines says whether a trouble of a call is one machine's: in a bulk call
// only what is in its results is.
func oneMachines(call, trouble string) bool {
	twisted := trouble == "missing" || trouble == "double"
	switch call {
	case "fleet", "machines":
		return twisted || trouble == "error"
	case "info", "groups", "auth":
		return true
	}
	return !twisted
}
