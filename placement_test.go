package provisioner_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner"
)

func TestFilterZones(t *testing.T) {
	a, b, c, down := provisioner.Zone{"a", true}, provisioner.Zone{"b", true}, provisioner.Zone{"c", true}, provisioner.Zone{"down", false}
	only := func(zones ...provisioner.ZoneName) provisioner.ZoneRule {
		return provisioner.OnlyZones(provisioner.ReasonConstraint, zones...)
	}
	tests := []struct {
		why    string
		zones  []provisioner.Zone
		rules  []provisioner.ZoneRule
		usable []provisioner.Zone
		out    []provisioner.Excluded
	}{
		{"AZ4: available ones, in the order given", []provisioner.Zone{c, a, down, b}, nil, []provisioner.Zone{c, a, b}, []provisioner.Excluded{{"down", provisioner.ReasonUnavailable}}},
		{"AZ4: a constraint", []provisioner.Zone{a, b, c}, []provisioner.ZoneRule{only("c", "a")}, []provisioner.Zone{a, c}, []provisioner.Excluded{{"b", provisioner.ReasonConstraint}}},
		{"AZ4: no constraint allows all", []provisioner.Zone{a, b}, []provisioner.ZoneRule{only()}, []provisioner.Zone{a, b}, nil},
		{"AZ4: a constraint on a zone that isn't there allows none", []provisioner.Zone{a, b}, []provisioner.ZoneRule{only("z")}, nil,
			[]provisioner.Excluded{{"a", provisioner.ReasonConstraint}, {"b", provisioner.ReasonConstraint}}},
		{"AZ4: names are exact, not a beginning", []provisioner.Zone{{"az1", true}, {"az10", true}}, []provisioner.ZoneRule{only("az10")}, []provisioner.Zone{{"az10", true}},
			[]provisioner.Excluded{{"az1", provisioner.ReasonConstraint}}},
		{"AZ4: what has failed", []provisioner.Zone{a, b}, []provisioner.ZoneRule{provisioner.NotZones(provisioner.ReasonFailed, "a")}, []provisioner.Zone{b}, []provisioner.Excluded{{"a", provisioner.ReasonFailed}}},
		{"AZ4: nothing has failed", []provisioner.Zone{a, b}, []provisioner.ZoneRule{provisioner.NotZones(provisioner.ReasonFailed)}, []provisioner.Zone{a, b}, nil},
		{"the first reason counts: unavailable before the rules, these in their order", []provisioner.Zone{a, down},
			[]provisioner.ZoneRule{only("b"), provisioner.NotZones(provisioner.ReasonFailed, "a", "down")}, nil, []provisioner.Excluded{{"a", provisioner.ReasonConstraint}, {"down", provisioner.ReasonUnavailable}}},
		{"a zone without a name", []provisioner.Zone{{"", true}, a}, nil, []provisioner.Zone{a}, []provisioner.Excluded{{"", provisioner.ReasonWithoutAName}}},
		{"the second of a name, also if only that is available", []provisioner.Zone{{"a", false}, a, b}, nil, []provisioner.Zone{b},
			[]provisioner.Excluded{{"a", provisioner.ReasonUnavailable}, {"a", "listed twice"}}},
		{"AZ9: all unavailable is not the same as none", []provisioner.Zone{down}, nil, nil, []provisioner.Excluded{{"down", provisioner.ReasonUnavailable}}},
		{"AZ1: none", nil, []provisioner.ZoneRule{only("a")}, nil, nil},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			before := slices.Clone(test.zones)
			usable, out := provisioner.FilterZones(test.zones, test.rules...)
			if diff := cmp.Diff(test.usable, usable); diff != "" {
				t.Errorf("usable (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.out, out); diff != "" {
				t.Errorf("out (-want +got):\n%s", diff)
			}
			if len(usable) > 0 {
				usable[0].Name = "changed"
			}
			if diff := cmp.Diff(before, test.zones); diff != "" {
				t.Errorf("AZ6: the shared list was changed:\n%s", diff)
			}
		})
	}
}

func TestSortZones(t *testing.T) {
	type counts = map[provisioner.ZoneName]int
	tests := []struct {
		why   string
		group counts
		total counts
		want  []provisioner.ZoneName
	}{
		{"AZ5: fewest of the group first", counts{"a": 2, "b": 1}, nil, []provisioner.ZoneName{"c", "b", "a"}},
		{"AZ5: then fewest in all", nil, counts{"a": 1, "b": 3, "c": 2}, []provisioner.ZoneName{"a", "c", "b"}},
		{"AZ5: the group decides before the total", counts{"a": 1}, counts{"b": 9, "c": 7}, []provisioner.ZoneName{"c", "b", "a"}},
		{"AZ5: then the name, if that is the tie-break", nil, nil, []provisioner.ZoneName{"a", "b", "c"}},
		{"AZ5: only zones that are there count", counts{"z": 3}, counts{"z": 1, "a": 1}, []provisioner.ZoneName{"b", "c", "a"}},
		{"section 4: totals 5,0,0 and a group member in A: B or C", counts{"a": 1}, counts{"a": 5}, []provisioner.ZoneName{"b", "c", "a"}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			zones := []provisioner.Zone{{"c", true}, {"a", true}, {"b", true}}
			before := slices.Clone(zones)
			got := names(provisioner.SortZones(zones, "0", provisioner.Population{Group: test.group, Total: test.total}, provisioner.TieName))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, zones); diff != "" {
				t.Errorf("AZ6: the shared list was changed:\n%s", diff)
			}
		})
	}
}

func TestSortZonesTieHash(t *testing.T) {
	zones := available("a", "b", "c", "d")
	first := map[provisioner.ZoneName]int{}
	orders := map[string]bool{}
	const machines = 4000
	for i := range machines {
		id := provisioner.MachineID(fmt.Sprint(i))
		got := names(provisioner.SortZones(zones, id, provisioner.Population{}, provisioner.TieHash))
		backwards := slices.Clone(zones)
		slices.Reverse(backwards)
		if diff := cmp.Diff(got, names(provisioner.SortZones(backwards, id, provisioner.Population{}, provisioner.TieHash))); diff != "" {
			t.Fatalf("AZ5: the order of machine %s depends on that of the list:\n%s", id, diff)
		}
		first[got[0]]++
		orders[fmt.Sprint(got)] = true
	}
	for _, z := range zones {
		if n := first[z.Name]; n < machines/4*9/10 || n > machines/4*11/10 {
			t.Errorf("AZ5: zone %s comes first for %d of %d machines: ties pile up", z.Name, n, machines)
		}
	}
	if len(orders) != 24 {
		t.Errorf("AZ5: %d of 24 orders are used", len(orders))
	}
	got := names(provisioner.SortZones(zones, "7", provisioner.Population{Total: map[provisioner.ZoneName]int{"b": 1}}, provisioner.TieHash))
	if got[3] != "b" {
		t.Errorf("AZ5: the tie-break decides only ties: %v", got)
	}
	// A restart, and a new release, must place as before: change these names
	// only together with a line in the change log.
	stable := names(provisioner.SortZones(available("az1", "az2", "az3", "az4"), "42", provisioner.Population{}, provisioner.TieHash))
	if diff := cmp.Diff([]provisioner.ZoneName{"az2", "az3", "az1", "az4"}, stable); diff != "" {
		t.Errorf("AZ5: the hash is not the same as ever (-want +got):\n%s", diff)
	}
}

func TestRankZones(t *testing.T) {
	got := provisioner.RankZones(provisioner.Ranking{
		Machine: "0",
		Zones:   []provisioner.Zone{{"f", true}, {"d", true}, {"c", true}, {"u", false}, {"a", true}, {"b", true}},
		Population: provisioner.Population{
			Group: map[provisioner.ZoneName]int{"a": 1, "f": 2},
			Total: map[provisioner.ZoneName]int{"a": 2, "b": 5, "u": 7, "gone": 1},
		},
		Constraint: []provisioner.ZoneName{"a", "b", "d", "f", "u"},
		Derived:    []provisioner.ZoneName{"a", "b", "c", "f"},
		Failed:     []provisioner.ZoneName{"f"},
		Tie:        provisioner.TieName,
	})
	want := []provisioner.RankedZone{
		{Zone: "b", Rank: 1, Total: 5},
		{Zone: "a", Rank: 2, Group: 1, Total: 2},
		{Zone: "f", Group: 2, Reason: provisioner.ReasonFailed},
		{Zone: "d", Reason: provisioner.ReasonDerived},
		{Zone: "c", Reason: provisioner.ReasonConstraint},
		{Zone: "u", Total: 7, Reason: provisioner.ReasonUnavailable},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("AZ4, AZ5: (-want +got):\n%s", diff)
	}
	if got := provisioner.RankZones(provisioner.Ranking{Machine: "0"}); len(got) != 0 {
		t.Errorf("AZ1: %v", got)
	}
}

// AZ8: what one machine is bound to, or has failed in, says nothing about the
// next one.
func TestRankZonesForgets(t *testing.T) {
	r := provisioner.Ranking{Machine: "0", Zones: available("a", "b"), Tie: provisioner.TieName}
	bound := r
	bound.Constraint, bound.Derived, bound.Failed = []provisioner.ZoneName{"a"}, []provisioner.ZoneName{"a"}, []provisioner.ZoneName{"a"}
	if got := provisioner.RankZones(bound); got[0].Rank != 0 {
		t.Errorf("a zone is left: %v", got)
	}
	want := []provisioner.RankedZone{{Zone: "a", Rank: 1}, {Zone: "b", Rank: 2}}
	if diff := cmp.Diff(want, provisioner.RankZones(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// available lists zones that can be used.
func available(names ...provisioner.ZoneName) []provisioner.Zone {
	var zones []provisioner.Zone
	for _, name := range names {
		zones = append(zones, provisioner.Zone{Name: name, Available: true})
	}
	return zones
}

func names(zones []provisioner.Zone) []provisioner.ZoneName {
	var all []provisioner.ZoneName
	for _, z := range zones {
		all = append(all, z.Name)
	}
	return all
}

// Whatever a caller puts in, the stages do not panic, and the largest limit is
// no limit.
func TestRankingOddNumbers(t *testing.T) {
	group := map[provisioner.ZoneName]int{"a": 2, "b": 1}
	for _, z := range provisioner.RankZones(provisioner.Ranking{Machine: "1", MaxSkew: math.MaxInt,
		Zones: []provisioner.Zone{{"a", true}, {"b", true}}, Population: provisioner.Population{Group: group, Total: group}}) {
		if z.Rank == 0 {
			t.Errorf("a limit that large forbids zone %s: %s", z.Zone, z.Reason)
		}
	}
	got := provisioner.Describe([]provisioner.RankedZone{{Zone: "a", Rank: 1, Group: -2, Total: -1}, {Zone: "b", Rank: 2, Group: -1, Total: 2}})
	want := "a      -1: choice 1\nb  ##  2: choice 2\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
