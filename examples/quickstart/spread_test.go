package main

import (
	"errors"
	"testing"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/fleet"
)

// What is said about a choice holds by AZ5, or nothing is said.
func TestWhy(t *testing.T) {
	boom := errors.New("boom")
	at := func(id, zone string, groups ...string) fleet.Machine {
		rec := provisioner.Machine{ID: provisioner.MachineID(id), Life: provisioner.Alive, Zone: provisioner.ZoneName(zone)}
		return fleet.Machine{Record: rec, Groups: groups}
	}
	only := func(id string, zones ...provisioner.ZoneName) fleet.Machine {
		m := at(id, "")
		m.Zones = zones
		return m
	}
	fleetOf := func() fleet.Fleet {
		return fleet.Fleet{
			Zones: []provisioner.Zone{{Name: "a", Available: true}, {Name: "b", Available: true}, {Name: "c", Available: true}, {Name: "d"}},
			Machines: []fleet.Machine{
				at("0", "a", "g"), at("0/lxd/0", "", "h"), at("1", "a"), at("2", "b", "h"),
				at("3", "", "g"), at("4", "", "g", "h"), at("5", "", "h"), at("6", ""), only("7", "b", "d"), only("8", "d"), only("9", "b", "c"),
			},
		}
	}
	for _, test := range []struct {
		why    string
		before func(s *spread)
		id     provisioner.MachineID
		zone   provisioner.ZoneName
		want   string
		story  string // if it is another
	}{
		{why: "fewest machines", id: "6", zone: "c", want: "fewest machines (0; a 2, b 1)"},
		{why: "the group comes first", id: "3", zone: "c", want: "fewest of g (0; a 1, b 0), then fewest machines (0; b 1)"},
		{why: "a container counts where its host is", id: "5", zone: "c", want: "fewest of h (0; a 1, b 1)"},
		{why: "several groups are one, each machine counted once", id: "4", zone: "c", want: "fewest of g and h (0; a 2, b 1)"},
		{why: "a tie", before: func(s *spread) { s.choose("6", "c") }, id: "3", zone: "c", want: "fewest of g (0; a 1, b 0), then a tie with b"},
		{why: "a constraint, and a zone that is down", id: "7", zone: "b", want: "the only zone that its constraint leaves"},
		{why: "not the best: nothing is said", id: "6", zone: "a", want: ""},
		{why: "not usable: nothing is said", id: "8", zone: "d", want: ""},
		{why: "a container", id: "0/lxd/0", want: "on its host 0"},
		{why: "no zone", id: "6", want: ""},
		{
			why:    "zones that failed are out for the round",
			before: func(s *spread) { s.choose("6", "c"); s.fail("6", "c", boom) },
			id:     "6", zone: "b", want: "fewest machines (1; a 2)", story: "fewest machines (1; a 2), after 1 failed attempt",
		},
		{
			why: "the last one",
			before: func(s *spread) {
				for _, zone := range []provisioner.ZoneName{"c", "b"} {
					s.choose("6", zone)
					s.fail("6", zone, boom)
				}
			},
			id: "6", zone: "a", want: "the only zone left", story: "the only zone left, after 2 failed attempts",
		},
		{
			why:    "the last one of a constraint: not the constraint alone leaves it",
			before: func(s *spread) { s.choose("9", "b"); s.fail("9", "b", boom) },
			id:     "9", zone: "c", want: "the only zone left", story: "the only zone left, after 1 failed attempt",
		},
		{
			why: "after the last a new round begins",
			before: func(s *spread) {
				for _, zone := range []provisioner.ZoneName{"c", "b", "a"} {
					s.choose("6", zone)
					s.fail("6", zone, boom)
				}
			},
			id: "6", zone: "c", want: "fewest machines (0; a 2, b 1)", story: "fewest machines (0; a 2, b 1), after 3 failed attempts",
		},
		{
			why:    "an error that no other zone would have spared keeps the zone (ST3)",
			before: func(s *spread) { s.choose("6", "c"); s.fail("6", "c", provisioner.ZoneIndependent(boom)) },
			id:     "6", zone: "c", want: "the same zone again", story: "fewest machines (0; a 2, b 1), after 1 failed attempt",
		},
		{
			why: "and ends the round",
			before: func(s *spread) {
				s.choose("6", "c")
				s.fail("6", "c", boom)
				s.choose("6", "b")
				s.fail("6", "b", provisioner.ZoneIndependent(boom))
				s.place("6", "")
			},
			id: "6", zone: "c", want: "fewest machines (0; a 2, b 1)", story: "fewest machines (0; a 2, b 1), after 2 failed attempts",
		},
		{
			why:    "a machine that has gone counts no more",
			before: func(s *spread) { s.place("2", "") },
			id:     "5", zone: "b", want: "fewest of h (0; a 1, c 0), then a tie with c",
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			s := newSpread(fleetOf())
			if test.before != nil {
				test.before(s)
			}
			if got := s.choose(test.id, test.zone); got != test.want {
				t.Errorf("why %s is in %s: %q: want %q", test.id, test.zone, got, test.want)
			}
			story := test.story
			if story == "" {
				story = test.want
			}
			if got := s.story(test.id); got != story {
				t.Errorf("story of %s: %q: want %q", test.id, got, story)
			}
		})
	}
}
