package fleet_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/fleet"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/jsontree"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

func decode(t *testing.T, text string) (fleet.Fleet, error) {
	t.Helper()
	root, _, err := jsontree.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return fleet.Decode(root)
}

func TestDecode(t *testing.T) {
	got, err := decode(t, `{
  "trouble": ["start zone=west count=2: error capacity \"no room\""],
  "title": "everything", "harvest": "all",
  "machines": [
    {"id": "10..11", "group": "web", "zones": ["west", "nowhere"]},
    {"id": "2", "instance": "i-*", "zone": "west", "life": "dead", "keep": true},
    {"id": "3", "status": "error", "instance-status": "provisioning error", "note": "no quota"},
    {"id": "2/lxd/0", "instance": "c"}
  ],
  "instances": [{"id": "stray", "zone": "north"}],
  "zones": [{"name": "west", "capacity": 3}, {"name": "north", "available": false}]
}`)
	if err != nil {
		t.Fatal(err)
	}
	waits := func(id provisioner.MachineID) fleet.Machine {
		return fleet.Machine{
			Record: provisioner.Machine{ID: id, Life: provisioner.Alive, Status: provisioner.StatusPending},
			Zones:  []provisioner.ZoneName{"west", "nowhere"}, Groups: []string{"web"},
		}
	}
	want := fleet.Fleet{
		Title: "everything", Harvest: provisioner.HarvestAll,
		Zones:    []provisioner.Zone{{Name: "north"}, {Name: "west", Available: true}},
		Capacity: map[provisioner.ZoneName]int{"west": 3},
		Machines: []fleet.Machine{
			{Record: provisioner.Machine{ID: "2", Life: provisioner.Dead, Instance: "i-2", Zone: "west", Keep: true, Status: provisioner.StatusStarted}},
			{Record: provisioner.Machine{ID: "2/lxd/0", Life: provisioner.Alive, Instance: "c", Status: provisioner.StatusStarted}},
			{Record: provisioner.Machine{ID: "3", Life: provisioner.Alive, Status: provisioner.StatusError, InstanceStatus: provisioner.InstanceProvisioningError}, Note: "no quota"},
			waits("10"), waits("11"),
		},
		Instances: []provisioner.Instance{{ID: "stray", Zone: "north"}},
		Trouble: []provisionertest.Fault{
			{Call: provisionertest.CallStart, Zone: "west", Count: 2, What: provisionertest.TroubleError, Mark: provisionertest.MarkCapacity, Text: "no room"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fleet (-want +got):\n%s", diff)
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct{ why, text, want string }{
		{"not an object", `[]`, `line 1: a list: want an object`},
		{"nothing in it", `{}`, `line 1: no machines: want a list "machines"`},
		{"an unknown key", "{\"machines\": [],\n\"machine\": 1}", `line 2: machine: unknown key: want title, harvest, zones, machines, instances or trouble`},
		{"a key twice", `{"machines": [], "machines": []}`, `line 1: machines: the key is there twice`},
		{"an empty title", `{"title": "", "machines": []}`, `line 1: title: "": want a text that isn't empty`},
		{"a harvest mode", `{"harvest": "some", "machines": []}`, `line 1: harvest: "some": want none, unknown, destroyed or all`},
		{"no list", `{"machines": {"0": {}}}`, `line 1: machines: an object: want a list`},
		{"no machine", `{"machines": [7]}`, `line 1: machines[0]: 7: want an object`},
		{"no id", `{"machines": [{}]}`, `line 1: machines[0]: id "": want a name of letters, digits, '.', '_' and '-', or host/type/number for a container`},
		{"a malformed id", `{"machines": [{"id": "0/lxd"}]}`, `line 1: machines[0]: id "0/lxd": want a name of letters, digits, '.', '_' and '-', or host/type/number for a container`},
		{"an id twice", "{\"machines\": [{\"id\": \"0\"},\n{\"id\": \"0\"}]}", `line 2: machines[1]: machine 0 is there twice, first on line 1`},
		{"an id twice, by a range", "{\"machines\": [{\"id\": \"7\"},\n{\"id\": \"5..9\"}]}", `line 2: machines[1]: machine 7 is there twice, first on line 1`},
		{"a range of nothing", `{"machines": [{"id": "9..5"}]}`, `line 1: machines[0]: id "9..5": want two numbers, the smaller one first: "10..19"`},
		{"a range of names", `{"machines": [{"id": "a..b"}]}`, `line 1: machines[0]: id "a..b": want two numbers, the smaller one first: "10..19"`},
		{"a range without an end", `{"machines": [{"id": "0..99999999999"}]}`, `line 1: machines[0]: id "0..99999999999": more than 100000 machines`},
		{"a range of one instance", `{"machines": [{"id": "0..1", "instance": "i"}]}`, `line 1: machines[0]: machine 1: instance i is machine 0's already`},
		{"a life", `{"machines": [{"id": "0", "life": "undead"}]}`, `line 1: machines[0].life: "undead": want alive, dying, dead`},
		{"keep", `{"machines": [{"id": "0", "keep": "yes"}]}`, `line 1: machines[0].keep: "yes": want true or false`},
		{"an unlisted zone", `{"zones": [{"name": "a"}, {"name": "b"}], "machines": [{"id": "0", "instance": "i", "zone": "c"}]}`, `line 1: machines[0].zone: zone "c": want one of the zones above: a, b`},
		{"a zone where there are none", `{"machines": [{"id": "0", "instance": "i", "zone": "c"}]}`, `line 1: machines[0].zone: zone "c": want one of the zones above: none`},
		{"a zone without an instance", `{"zones": [{"name": "a"}], "machines": [{"id": "0", "zone": "a"}]}`, `line 1: machines[0]: machine 0 has a zone and no instance: want both; where it may go is "zones"`},
		{"a container with a zone", `{"zones": [{"name": "a"}], "machines": [{"id": "0"}, {"id": "0/lxd/0", "instance": "i", "zone": "a"}]}`, `line 1: machines[1]: container 0/lxd/0 has a zone: it is in its host's`},
		{"a container without a host", `{"machines": [{"id": "0/lxd/0"}]}`, `line 1: machines: container 0/lxd/0: its host 0 is not in the file`},
		{"no zones to go to", `{"machines": [{"id": "0", "zones": "a"}]}`, `line 1: machines[0].zones: "a": want a list`},
		{"a zone without a name", `{"zones": [{}], "machines": []}`, `line 1: zones[0]: a zone without a name`},
		{"a zone twice", `{"zones": [{"name": "a"}, {"name": "a"}], "machines": []}`, `line 1: zones[1]: zone "a" is there twice`},
		{"a capacity", `{"zones": [{"name": "a", "capacity": -1}], "machines": []}`, `line 1: zones[0].capacity: -1: want a number from 0 on`},
		{"an instance without an id", `{"machines": [], "instances": [{}]}`, `line 1: instances[0]: an instance without an id`},
		{"an instance twice", `{"machines": [], "instances": [{"id": "i"}, {"id": "i"}]}`, `line 1: instances[1]: instance i is there twice`},
		{"a machine's instance", `{"machines": [{"id": "0", "instance": "i"}], "instances": [{"id": "i"}]}`, `line 1: instances[0]: instance i is machine 0's`},
		{"trouble that isn't text", `{"machines": [], "trouble": [{}]}`, `line 1: trouble[0]: an object: want a text that isn't empty`},
		{"trouble for nobody", `{"machines": [], "trouble": ["start machine=7: error"]}`, `line 1: trouble[0]: machine 7 is not in the file`},
		{"trouble nowhere", `{"machines": [], "trouble": ["start zone=a: error"]}`, `line 1: trouble[0]: zone "a": want one of the zones above: none`},
		{"trouble that has no meaning", `{"machines": [], "trouble": ["start: sulk"]}`,
			`line 1: trouble[0]: fault "start: sulk": fault trouble "sulk": want one of error, delay, panic, goexit, hang, stuck, missing, double, foreign, partial, empty, astray: not valid`},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, err := decode(t, test.text)
			if err == nil {
				t.Fatalf("no error: want %s", test.want)
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// A machine in several groups is kept apart from all who share one with it.
func TestGroupOf(t *testing.T) {
	f := fleet.Fleet{Machines: []fleet.Machine{
		{Record: provisioner.Machine{ID: "10"}, Groups: []string{"a"}},
		{Record: provisioner.Machine{ID: "2"}, Groups: []string{"b", "a", "b"}},
		{Record: provisioner.Machine{ID: "3"}},
		{Record: provisioner.Machine{ID: "4"}, Groups: []string{"b"}},
	}}
	f.Sort()
	want := map[provisioner.MachineID]provisioner.Group{
		"10": {Key: "a", Members: []provisioner.MachineID{"2", "10"}},
		"2":  {Key: "a,b", Members: []provisioner.MachineID{"2", "4", "10"}},
		"3":  {},
		"4":  {Key: "b", Members: []provisioner.MachineID{"2", "4"}},
	}
	for id, group := range want {
		if diff := cmp.Diff(group, f.Find(id).GroupOf(f.Members())); diff != "" {
			t.Errorf("machine %s (-want +got):\n%s", id, diff)
		}
	}
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("../../*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("seeds: %v, %v", files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"machines": [{"id": "0..3", "instance": "*"}, {"id": "0/lxd/0"}], "trouble": ["list: partial"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, _, err := jsontree.Parse(data)
		if err != nil {
			return
		}
		got, err := fleet.Decode(root)
		if err != nil {
			return
		}
		for i, m := range got.Machines {
			if err := m.Record.ID.Validate(); err != nil {
				t.Errorf("accepted a machine: %v", err)
			}
			if i > 0 && got.Machines[i-1].Record.ID.Compare(m.Record.ID) >= 0 {
				t.Errorf("machine %s does not come after %s", m.Record.ID, got.Machines[i-1].Record.ID)
			}
		}
		for _, fault := range got.Trouble {
			if err := fault.Validate(); err != nil {
				t.Errorf("accepted trouble: %v", err)
			}
		}
	})
}
