package provisioner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestOurs holds which instances can be a machine's own, and which of several
// is (ST19).
func TestOurs(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	one := func(id InstanceID, created time.Time, token string) Instance {
		return Instance{ID: id, Created: created, Labels: Labels{Controller: "c", Machine: "0", Token: token}}
	}
	in := func(i Instance, state InstanceState) Instance {
		i.State = state
		return i
	}
	of := func(i Instance, controller string, id MachineID) Instance {
		i.Labels.Controller, i.Labels.Machine = controller, id
		return i
	}
	old, young, ageless := one("old", at(1), "t1"), one("young", at(2), "t2"), one("ageless", time.Time{}, "t3")
	tests := []struct {
		why   string
		there []Instance
		token string
		want  []InstanceID
	}{
		{"nothing is there", nil, "", nil},
		{"the oldest first", []Instance{young, old}, "", []InstanceID{"old", "young"}},
		{"the open attempt's, though it is younger", []Instance{old, young}, "t2", []InstanceID{"young", "old"}},
		{"the open attempt's, though its age is not told", []Instance{old, ageless}, "t3", []InstanceID{"ageless", "old"}},
		{"an open attempt that none of them is of", []Instance{young, old}, "t9", []InstanceID{"old", "young"}},
		{"no open attempt, and none has a token", []Instance{one("b", at(1), ""), one("a", at(2), "")}, "", []InstanceID{"b", "a"}},
		{"an age that is not told is no great age", []Instance{ageless, young}, "", []InstanceID{"young", "ageless"}},
		{"of one age, by id", []Instance{one("b", at(1), ""), one("a", at(1), "")}, "", []InstanceID{"a", "b"}},
		{"listed twice, and not alike", []Instance{old, young, one("old", at(3), "t2")}, "t2", []InstanceID{"young", "old"}},
		{"powered off and half made ones are there", []Instance{in(old, InstanceStopped), in(young, InstanceStarting), in(ageless, "odd")}, "", []InstanceID{"old", "young", "ageless"}},
		{"terminated ones are history", []Instance{in(old, InstanceTerminated), young}, "t1", []InstanceID{"young"}},
		{"without an id it is none", []Instance{one("", at(1), "t1")}, "t1", nil},
		{"another controller's", []Instance{of(old, "d", "0"), of(young, "", "0")}, "t1", nil},
		{"another machine's, a container's, nobody's", []Instance{of(old, "c", "1"), of(young, "c", "0/lxd/0"), of(ageless, "c", "")}, "", nil},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			var got []InstanceID
			for _, i := range ours(test.there, "c", "0", test.token) {
				got = append(got, i.ID)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
