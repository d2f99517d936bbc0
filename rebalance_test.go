package provisioner_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

func running(id provisioner.MachineID, zone provisioner.ZoneName) provisioner.MachineResult {
	return provisioner.MachineResult{ID: id, Machine: provisioner.Machine{ID: id, Life: provisioner.Alive, Status: provisioner.StatusStarted,
		Instance: provisioner.InstanceID("i-" + id), Zone: zone}}
}

func TestRebalance(t *testing.T) {
	type needs = map[provisioner.MachineID]provisioner.Needs
	group := func(members ...provisioner.MachineID) needs {
		n := needs{}
		for _, id := range members {
			n[id] = provisioner.Needs{Group: provisioner.Group{Key: "g", Members: members}}
		}
		return n
	}
	bound := group("0", "1")
	bound["1"] = provisioner.Needs{Group: bound["1"].Group, Zones: []provisioner.ZoneName{"a"}}
	dead := running("2", "a")
	dead.Machine.Life = provisioner.Dead
	unread := running("2", "a")
	unread.Err = errors.New("unreadable")
	tests := []struct {
		why    string
		zones  []provisioner.Zone
		fleet  []provisioner.MachineResult
		needs  needs
		policy provisioner.Policy
		most   int
		want   []string
	}{
		{"what is even stays", available("a", "b"), []provisioner.MachineResult{running("0", "a"), running("1", "b"), running("2", "a")}, nil, provisioner.Policy{}, 9, nil},
		{"totals: the newest goes", available("a", "b"), []provisioner.MachineResult{running("0", "a"), running("1", "a"), running("10", "a")}, nil, provisioner.Policy{}, 9, []string{"10 a>b"}},
		{"a new zone takes its share", available("a", "b", "c"), []provisioner.MachineResult{running("0", "a"), running("1", "b"), running("2", "a"), running("3", "b"), running("4", "a"), running("5", "b")}, nil,
			provisioner.Policy{}, 9, []string{"5 b>c", "4 a>c"}},
		{"bounded", available("a", "b", "c"), []provisioner.MachineResult{running("0", "a"), running("1", "b"), running("2", "a"), running("3", "b"), running("4", "a"), running("5", "b")}, nil,
			provisioner.Policy{}, 1, []string{"5 b>c"}},
		{"none wanted", available("a", "b"), []provisioner.MachineResult{running("0", "a"), running("1", "a")}, nil, provisioner.Policy{}, 0, nil},
		{"groups first, although the totals lose by it", available("a", "b"), []provisioner.MachineResult{running("0", "a"), running("1", "a"), running("7", "b"), running("8", "b"), running("9", "b")}, group("0", "1"),
			provisioner.Policy{}, 1, []string{"1 a>b"}},
		{"and then the totals, leaving the group alone", available("a", "b"), []provisioner.MachineResult{running("0", "a"), running("1", "a"), running("7", "b"), running("8", "b"), running("9", "b")}, group("0", "1"),
			provisioner.Policy{}, 9, []string{"1 a>b", "9 b>a"}},
		{"a constraint holds: the other goes", available("a", "b"), []provisioner.MachineResult{running("0", "a"), running("1", "a")}, bound, provisioner.Policy{}, 9, []string{"0 a>b"}},
		{"weights are the aim", available("a", "b"), []provisioner.MachineResult{running("0", "a"), running("1", "a"), running("2", "b"), running("3", "b")}, nil,
			provisioner.Policy{Weights: map[provisioner.ZoneName]int{"a": 3}}, 9, []string{"3 b>a"}},
		{"not into a zone that is down", []provisioner.Zone{{"a", true}, {"b", false}}, []provisioner.MachineResult{running("0", "a"), running("1", "a")}, nil, provisioner.Policy{}, 9, nil},
		{"nor out of one: it may come back", []provisioner.Zone{{"a", false}, {"b", true}}, []provisioner.MachineResult{running("0", "a"), running("1", "a")}, nil, provisioner.Policy{}, 9, nil},
		{"containers stay where their host is", available("a", "b"), []provisioner.MachineResult{running("0", "a"), running("0/lxd/0", "a"), running("0/lxd/1", "a")}, nil, provisioner.Policy{}, 9, nil},
		{"the dead go by themselves, and still count", available("a", "b"), []provisioner.MachineResult{running("0", "a"), running("1", "a"), dead}, nil, provisioner.Policy{}, 9, []string{"1 a>b"}},
		{"the unreadable stay", available("a", "b"), []provisioner.MachineResult{running("0", "b"), unread}, nil, provisioner.Policy{}, 9, nil},
		{"no zones", nil, []provisioner.MachineResult{running("0", "a"), running("1", "a")}, nil, provisioner.Policy{}, 9, nil},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			var got []string
			for _, m := range provisioner.Rebalance(provisioner.Snapshot{Fleet: test.fleet, Zones: test.zones, Needs: test.needs}, test.policy, test.most) {
				got = append(got, fmt.Sprintf("%s %s>%s", m.Machine, m.From, m.To))
				if m.Instance != provisioner.InstanceID("i-"+m.Machine) || m.Reason == "" {
					t.Errorf("%+v", m)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// After the moves nothing is left to be moved, no group has become less even,
// and nothing that was given has changed.
func TestRebalanceSettles(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := provisioner.Snapshot{Zones: available("a", "b", "c", "d")[:2+r.IntN(3)], Needs: map[provisioner.MachineID]provisioner.Needs{}}
		groups := make([][]provisioner.MachineID, 1+r.IntN(4))
		for i := range 1 + r.IntN(40) {
			id := provisioner.MachineID(fmt.Sprint(i))
			s.Fleet = append(s.Fleet, running(id, s.Zones[r.IntN(len(s.Zones))].Name))
			g := r.IntN(len(groups))
			groups[g] = append(groups[g], id)
		}
		in := map[provisioner.MachineID]int{}
		for g, members := range groups {
			for _, id := range members {
				in[id] = g
				s.Needs[id] = provisioner.Needs{Group: provisioner.Group{Key: fmt.Sprint(g), Members: members}}
			}
		}
		count := func(s provisioner.Snapshot, g int) map[provisioner.ZoneName]int {
			counts := map[provisioner.ZoneName]int{}
			for _, m := range s.Fleet {
				if in[m.ID] == g {
					counts[m.Machine.Zone]++
				}
			}
			return counts
		}
		before := append([]provisioner.MachineResult(nil), s.Fleet...)
		moves := provisioner.Rebalance(s, provisioner.Policy{}, 1000)
		if !reflect.DeepEqual(before, s.Fleet) {
			t.Fatal("the fleet was changed")
		}
		after := s
		after.Fleet = before
		for _, m := range moves {
			for i := range after.Fleet {
				if after.Fleet[i].ID == m.Machine {
					after.Fleet[i].Machine.Zone = m.To
				}
			}
		}
		for g := range groups {
			if n := skew(count(after, g), len(s.Zones)); n > 1 {
				t.Errorf("seed %d: group %d is left with a skew of %d: %v", seed, g, n, count(after, g))
			}
		}
		if again := provisioner.Rebalance(after, provisioner.Policy{}, 1000); len(again) > 0 {
			t.Errorf("seed %d: there is more to move: %v", seed, again)
		}
	}
}
