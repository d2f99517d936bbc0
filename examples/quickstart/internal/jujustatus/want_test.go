package jujustatus_test

// What a reader must get out of each file of testdata. class is that of the
// rules: a provisioned container is for upkeep (CL7).

type wantMachine struct {
	id, instance, zone string
	class              string
	failed             bool // reported as failed, and not started
}

type wantFleet struct {
	title    string
	machines []wantMachine
	zones    map[string]int      // provisioned top-level machines in each
	groups   map[string][]string // by application
}

var wantFleets = map[string]wantFleet{
	"02-maas-lxd.json": {
		title: "model cellar",
		machines: []wantMachine{
			{id: "0", instance: "dwmd7g", zone: "hall-1", class: "none"},
			{id: "1", instance: "g4twta", zone: "hall-2", class: "none"},
			{id: "2", instance: "cm3k3y", zone: "hall-3", class: "none"},
			{id: "3", instance: "73dysn", zone: "east wing", class: "none"},
			{id: "7", instance: "33pntr", zone: "hall-1", class: "none"},
			{id: "0/lxd/0", instance: "juju-81cc4e-0-lxd-0", zone: "hall-1", class: "maintain"},
			{id: "0/lxd/1", instance: "juju-81cc4e-0-lxd-1", zone: "hall-1", class: "maintain"},
			{id: "0/lxd/2", instance: "juju-81cc4e-0-lxd-2", zone: "hall-1", class: "maintain"},
			{id: "1/lxd/0", instance: "juju-81cc4e-1-lxd-0", zone: "hall-2", class: "maintain"},
			{id: "1/lxd/3", instance: "juju-81cc4e-1-lxd-3", zone: "hall-2", class: "maintain"},
			{id: "2/lxd/0", instance: "juju-81cc4e-2-lxd-0", zone: "hall-3", class: "maintain"},
			{id: "3/lxd/0", instance: "juju-81cc4e-3-lxd-0", zone: "east wing", class: "maintain"},
			{id: "7/lxd/0", instance: "", zone: "hall-1", class: "pending"},
		},
		zones: map[string]int{"east wing": 1, "hall-1": 2, "hall-2": 1, "hall-3": 1},
		groups: map[string][]string{
			"hyperv":   {"0", "1", "2", "3"},
			"identity": {"0/lxd/0", "1/lxd/0", "2/lxd/0"},
			"queue":    {"0/lxd/2", "7/lxd/0"},
			"relstore": {"0/lxd/1", "1/lxd/3", "3/lxd/0"},
		},
	},
	"03-pending-failed.json": {
		title: "model loom",
		machines: []wantMachine{
			{id: "0", instance: "82e97dca-d2e0-4ae2-ac8c-bcec7cb64c34", zone: "pool-a", class: "none"},
			{id: "1", instance: "", zone: "", class: "pending"},
			{id: "2", instance: "", zone: "", class: "pending"},
			{id: "3", instance: "", zone: "", class: "pending"},
			{id: "4", instance: "", zone: "", class: "none", failed: true},
			{id: "5", instance: "", zone: "", class: "none", failed: true},
			{id: "6", instance: "7a722c91-3deb-4c7a-a462-88cad5334057", zone: "pool-b", class: "none"},
			{id: "7", instance: "", zone: "", class: "dead"},
			{id: "8", instance: "27f7deed-ec6b-42fe-a4a6-001b97f2a0cf", zone: "pool-b", class: "none"},
			{id: "0/lxd/0", instance: "", zone: "pool-a", class: "pending"},
			{id: "0/lxd/1", instance: "", zone: "pool-a", class: "none", failed: true},
			{id: "1/lxd/0", instance: "", zone: "", class: "pending"},
		},
		zones: map[string]int{"pool-a": 1, "pool-b": 2},
		groups: map[string][]string{
			"spindle": {"0/lxd/0", "0/lxd/1", "2", "3"},
			"weaver":  {"0", "1", "4", "6"},
		},
	},
	"08-juju36.json": {
		title: "model garden",
		machines: []wantMachine{
			{id: "0", instance: "juju-4ce8d1-0", zone: "orchid", class: "none"},
			{id: "1", instance: "juju-4ce8d1-1", zone: "tulip", class: "none"},
			{id: "2", instance: "juju-4ce8d1-2", zone: "fern", class: "none"},
			{id: "3", instance: "juju-4ce8d1-3", zone: "orchid", class: "none"},
			{id: "4", instance: "juju-4ce8d1-4", zone: "tulip", class: "none"},
			{id: "5", instance: "", zone: "", class: "pending"},
			{id: "3/lxd/0", instance: "juju-4ce8d1-3-lxd-0", zone: "orchid", class: "maintain"},
		},
		zones: map[string]int{"fern": 1, "orchid": 2, "tulip": 2},
		groups: map[string][]string{
			"gnome": {"3/lxd/0"},
			"hedge": {"3", "4"},
			"pond":  {"0", "1", "2", "5"},
		},
	},
}
