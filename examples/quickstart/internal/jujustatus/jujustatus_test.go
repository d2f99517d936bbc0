package jujustatus_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/fleet"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/jsontree"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/jujustatus"
)

const testdata = "../../testdata"

func TestWholeFiles(t *testing.T) {
	for name, want := range wantFleets {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(testdata, name))
			if err != nil {
				t.Fatal(err)
			}
			f := decode(t, string(data))
			if f.Title != want.title {
				t.Errorf("title %q: want %q", f.Title, want.title)
			}
			slices.SortFunc(want.machines, func(a, b wantMachine) int {
				return provisioner.MachineID(a.id).Compare(provisioner.MachineID(b.id))
			})
			if diff := cmp.Diff(want.machines, machinesOf(f), cmp.AllowUnexported(wantMachine{})); diff != "" {
				t.Errorf("machines (-want +got):\n%s", diff)
			}
			zones := map[string]int{}
			for _, m := range f.Machines {
				if !m.Record.ID.IsContainer() && m.Record.Zone != "" {
					zones[string(m.Record.Zone)]++
				}
			}
			if diff := cmp.Diff(want.zones, zones); diff != "" {
				t.Errorf("machines in each zone (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.groups, groupsOf(f)); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{guess}, f.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

const guess = "the list of zones is a guess: those named in the hardware and constraints of machines, all taken to be available"

func machinesOf(f fleet.Fleet) []wantMachine {
	var all []wantMachine
	for _, m := range f.Machines {
		rec := m.Record
		class := provisioner.Classify(rec).Class
		all = append(all, wantMachine{
			id: string(rec.ID), instance: string(rec.Instance), zone: string(f.ZoneOf(rec.ID)), class: class.String(),
			failed: class == provisioner.ClassNone && rec.Instance == "" && rec.InstanceStatus == provisioner.InstanceProvisioningError,
		})
	}
	return all
}

func groupsOf(f fleet.Fleet) map[string][]string {
	groups := map[string][]string{}
	for name, ids := range f.Members() {
		for _, id := range ids {
			groups[name] = append(groups[name], string(id))
		}
		slices.Sort(groups[name])
	}
	return groups
}

func decode(t *testing.T, text string) fleet.Fleet {
	t.Helper()
	root, _, err := jsontree.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if !jujustatus.Is(root) {
		t.Fatalf("not taken for what juju prints: %s", text)
	}
	return jujustatus.Decode(root)
}

// oneMachine puts a machine into an otherwise quiet file.
func oneMachine(machine string) string {
	return `{"model":{"name":"m"},"machines":{"0":` + machine + `},"applications":{}}`
}

const running = `"instance-id":"i-0","juju-status":{"current":"started"}`

func TestOddMachines(t *testing.T) {
	const pending = `"juju-status":{"current":"pending"},"machine-status":{"current":"pending"}`
	noZones := "no zone is named anywhere in the file: machines are started without one"
	alive := provisioner.Machine{ID: "0", Life: provisioner.Alive}
	rec := func(change func(*provisioner.Machine)) fleet.Machine {
		m := alive
		change(&m)
		return fleet.Machine{Record: m}
	}
	waits := rec(func(m *provisioner.Machine) {
		m.Status, m.InstanceStatus = provisioner.StatusPending, "pending"
	})
	runs := rec(func(m *provisioner.Machine) { m.Instance, m.Status = "i-0", provisioner.StatusStarted })
	for _, test := range []struct {
		why      string
		machine  string
		want     fleet.Machine
		unread   string // want.Err
		needs    string // want.Needs
		warnings []string
	}{
		{why: "no instance id", machine: `{` + pending + `}`, want: waits},
		{why: "a null one", machine: `{"instance-id":null,` + pending + `}`, want: waits},
		{why: "an empty one", machine: `{"instance-id":"",` + pending + `}`, want: waits},
		{why: "the word pending", machine: `{"instance-id":"pending",` + pending + `}`, want: waits},
		{why: "unknown keys are normal", machine: `{"brand-new":[{}],"series":"jammy",` + running + `}`, want: runs},
		{
			why: "an instance id of another type makes that field unread", machine: `{"instance-id":17,` + pending + `}`,
			want: rec(func(m *provisioner.Machine) {
				*m = waits.Record
				m.Unread = provisioner.FieldInstance
			}),
			warnings: []string{"machine 0: instance-id is 17: want text"},
		},
		{why: "null", machine: `null`, want: fleet.Machine{Record: provisioner.Machine{ID: "0"}}, unread: "juju gave nothing (null)",
			warnings: []string{"machine 0: juju gave nothing (null)"}},
		{why: "an error in its place", machine: `{"status-error":"lost it"}`, want: fleet.Machine{Record: provisioner.Machine{ID: "0"}},
			unread: "juju could not tell: lost it", warnings: []string{"machine 0: juju could not tell: lost it"}},
		{why: "an error that isn't text", machine: `{"status-error":{"a":1}}`, want: fleet.Machine{Record: provisioner.Machine{ID: "0"}},
			unread: "juju could not tell: an object", warnings: []string{"machine 0: juju could not tell: an object"}},
		{why: "another type", machine: `[1]`, want: fleet.Machine{Record: provisioner.Machine{ID: "0"}},
			unread: "a list, on line 1: want an object", warnings: []string{"machine 0: a list, on line 1: want an object"}},
		{
			why:     "without its life a machine that runs is still left alone",
			machine: `{"instance-id":"i-0","juju-status":null}`,
			want: rec(func(m *provisioner.Machine) {
				m.Instance, m.Unread = "i-0", provisioner.FieldStatus
			}),
			warnings: []string{"machine 0: juju-status: juju gave nothing (null)"},
		},
		{
			why:     "without its life a machine that doesn't run must not be taken for alive (CL10)",
			machine: `{"juju-status":{"status-error":"x"},"machine-status":{"current":"allocating"}}`,
			want:    fleet.Machine{Record: provisioner.Machine{ID: "0"}}, unread: "whether it is alive could not be read",
			warnings: []string{"machine 0: juju-status: juju could not tell: x"},
		},
		{
			why:     "a life of another type neither",
			machine: `{"juju-status":{"current":"pending","life":false}}`,
			want:    fleet.Machine{Record: provisioner.Machine{ID: "0"}}, unread: "whether it is alive could not be read",
			warnings: []string{"machine 0: life is false: want text"},
		},
		{
			why:     "an unknown life (CL10)",
			machine: `{` + `"instance-id":"i-0","juju-status":{"life":"undead"}}`,
			want:    fleet.Machine{Record: provisioner.Machine{ID: "0"}}, unread: `its life is "undead": want dying, dead, or none for alive`,
			warnings: []string{`machine 0: life is "undead": want dying, dead, or none for alive`},
		},
		{
			why: "dead", machine: `{"instance-id":"i-0","juju-status":{"current":"stopped","life":"dead"}}`,
			want: rec(func(m *provisioner.Machine) { m.Life, m.Instance, m.Status = provisioner.Dead, "i-0", "stopped" }),
		},
		{
			why: "a status that can't be read (CL8)", machine: `{"juju-status":{"current":[]},"machine-status":7}`,
			want:     rec(func(m *provisioner.Machine) { m.Unread = provisioner.FieldStatus | provisioner.FieldInstanceStatus }),
			warnings: []string{"machine 0: current is a list: want text", "machine 0: machine-status: 7, on line 1: want an object"},
		},
		{
			why: "hardware of another type", machine: `{"hardware":{},` + running + `}`, want: runs,
			warnings: []string{"machine 0: hardware is an object: want text"},
		},
		{
			why: "an empty zone", machine: `{"hardware":"arch=amd64 availability-zone= mem=1M",` + running + `}`, want: runs,
		},
		{
			why: "hardware of a machine without an instance places nothing", machine: `{"hardware":"availability-zone=old",` + pending + `}`, want: waits,
			warnings: []string{guess},
		},
		{
			why: "a quote that does not end", machine: `{"hardware":"availability-zone=\"east wing",` + running + `}`,
			want:     rec(func(m *provisioner.Machine) { *m = runs.Record; m.Zone = "east wing" }),
			warnings: []string{`machine 0: a quote in its hardware does not end: availability-zone="east wing`, guess},
		},
		{
			why:     "constraints that can't be read: who knows where it may go",
			machine: `{"constraints":["zones=a"],` + pending + `}`, want: waits, needs: "its constraints could not be read",
			warnings: []string{"machine 0: constraints is a list: want text"},
		},
		{
			why:     "added by hand: to be kept whatever happens",
			machine: `{"instance-id":"manual:10.0.0.7","juju-status":{"current":"pending"}}`,
			want:    rec(func(m *provisioner.Machine) { m.Instance, m.Keep, m.Status = "manual:10.0.0.7", true, "pending" }),
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			f := decode(t, oneMachine(test.machine))
			if len(f.Machines) != 1 {
				t.Fatalf("machines: %v", f.Machines)
			}
			got := f.Machines[0]
			if text(got.Err) != test.unread || text(got.Needs) != test.needs {
				t.Errorf("errors %q, %q: want %q, %q", text(got.Err), text(got.Needs), test.unread, test.needs)
			}
			got.Err, got.Needs = nil, nil
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("machine (-want +got):\n%s", diff)
			}
			want := test.warnings
			if !slices.Contains(want, guess) {
				want = append(want, noZones)
			}
			if diff := cmp.Diff(want, f.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestOddFleets(t *testing.T) {
	machine := func(id string) string { return `"` + id + `":{` + running + `}` }
	unit := func(name, rest string) string { return `"` + name + `":{` + rest + `}` }
	app := func(name, units string) string { return `"` + name + `":{"units":{` + units + `}}` }
	for _, test := range []struct {
		why      string
		text     string
		title    string
		ids      string              // of the machines
		groups   map[string][]string // by name
		warnings []string            // besides that no zone is named
	}{
		{why: "an empty model", text: `{"model":{"name":"m","type":"iaas"},"machines":{},"applications":{}}`, title: "model m"},
		{
			why: "kubernetes", text: `{"model":{"name":"k","type":"caas"},"machines":{},"applications":{"a":{"units":{"a/0":{"address":"10.1.1.1"}}}}}`,
			title: "kubernetes model k", warnings: []string{"the model is a kubernetes one (caas): it has no machines, so there is nothing to provision"},
		},
		{why: "kubernetes without the keys", text: `{"model":{"name":"k","type":"caas"},"machines":null}`, title: "kubernetes model k",
			warnings: []string{"the model is a kubernetes one (caas): it has no machines, so there is nothing to provision"}},
		{
			why: "parts that are null", text: `{"model":null,"machines":{` + machine("0") + `},"applications":null}`, title: "model without a name", ids: "0",
			warnings: []string{"model: juju gave nothing (null)", "applications: juju gave nothing (null)"},
		},
		{
			why: "parts that failed", text: `{"model":{"status-error":"a"},"machines":{"status-error":"b"},"applications":{"status-error":"c"}}`, title: "model without a name",
			warnings: []string{"model: juju could not tell: a", "machines: juju could not tell: b", "applications: juju could not tell: c"},
		},
		{
			why: "what failed in part is kept in part", text: `{"machines":{"status-error":"b",` + machine("1") + `}}`, title: "model without a name", ids: "1",
			warnings: []string{"machines: juju could not tell: b"},
		},
		{why: "a model given by its name, as juju machines does", text: `{"model":"m","machines":{` + machine("1") + `}}`, title: "model m", ids: "1"},
		{
			why: "machines of another type", text: `{"model":{"name":"m"},"machines":"none"}`, title: "model m",
			warnings: []string{`machines: "none", on line 1: want an object`},
		},
		{why: "no machines at all", text: `{"model":{"name":"m"}}`, title: "model m", warnings: []string{"machines: there are none in the file"}},
		{why: "ids as people count", text: `{"machines":{` + machine("10") + `,` + machine("2") + `}}`, title: "model without a name", ids: "2 10"},
		{
			why: "containers to any depth, in a host that can't be read too", title: "model without a name", ids: "0 0/lxd/1 0/lxd/1/kvm/0 0/lxd/1/kvm/0/lxd/2",
			text: `{"machines":{"0":{"status-error":"x","containers":{"0/lxd/1":{` + running + `,"containers":{"0/lxd/1/kvm/0":{` + running +
				`,"containers":{"0/lxd/1/kvm/0/lxd/2":{` + running + `}}}}}}}}}`,
			warnings: []string{"machine 0: juju could not tell: x"},
		},
		{
			why: "containers that are null", text: `{"machines":{"0":{` + running + `,"containers":null}}}`, title: "model without a name", ids: "0",
			warnings: []string{"containers of machine 0: juju gave nothing (null)"},
		},
		{
			why: "ids that are none, or in the wrong place, or there twice", title: "model without a name", ids: "0 1/lxd/0",
			text: `{"machines":{"0":{` + running + `,"containers":{"lxd/0":{},"1/lxd/0":{` + running + `}}},"a b":{},"0":{}}}`,
			warnings: []string{
				`containers of machine 0: "lxd/0" on line 1 is no machine id: passed over, with all in it`,
				"machine 1/lxd/0 is listed among the containers of 0, and is not one by its id",
				`machines: "a b" on line 1 is no machine id: passed over, with all in it`,
				"machine 0 is there twice: the one on line 1 is passed over, with all in it",
			},
		},
		{
			why: "units (DG1)", title: "model without a name", ids: "0 1", groups: map[string][]string{"a": {"0", "1"}, "b": {"0"}},
			text: `{"machines":{` + machine("0") + `,` + machine("1") + `},"applications":{` +
				app("a", unit("a/0", `"machine":"0","subordinates":{"s/0":{}}`)+`,`+unit("a/1", `"machine":"1"`)+`,`+unit("a/2", `"machine":""`)+`,`+unit("a/3", ``)) + `,` +
				app("b", unit("b/0", `"machine":"0"`)+`,`+unit("b/1", `"machine":"9"`)+`,`+unit("b/2", `"machine":3`)+`,"b/4":null`) + `,` +
				`"s":{"subordinate-to":["a"],"units":{"s/0":{"machine":"1"}}},"c":null,"d":{"status-error":"y"},"e":{"units":null},"f":{"units":7}}}`,
			warnings: []string{
				"unit b/1 is on machine 9, which is not in the file",
				"unit b/2: machine is 3: want text",
				"unit b/4: juju gave nothing (null)",
				"application c: juju gave nothing (null)",
				"application d: juju could not tell: y",
				"units of e: juju gave nothing (null)",
				"units of f: 7, on line 1: want an object",
				"units without a machine yet count in no group: a/2, a/3",
			},
		},
		{
			why: "controllers are kept apart from each other (DG1)", title: "model without a name", ids: "0 1 2",
			groups: map[string][]string{"controllers": {"0", "1"}, "a": {"2"}},
			text: `{"machines":{"0":{` + running + `,"controller-member-status":"has-vote"},"1":{` + running + `,"controller-member-status":"adding-vote"},` + machine("2") +
				`},"applications":{` + app("a", unit("a/0", `"machine":"0"`)+`,`+unit("a/1", `"machine":"2"`)) + `}}`,
		},
		{
			why: "storage has machines and containers of its own", title: "model without a name", ids: "0",
			text: `{"machines":{` + machine("0") + `},"storage":{"x":{"attachments":{"machines":{"7":{}},"containers":{"7/lxd/0":{}}}}}}`,
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			f := decode(t, test.text)
			var ids []string
			for _, m := range f.Machines {
				ids = append(ids, string(m.Record.ID))
			}
			if f.Title != test.title || strings.Join(ids, " ") != test.ids {
				t.Errorf("%q, machines %q: want %q, %q", f.Title, ids, test.title, test.ids)
			}
			if test.groups == nil {
				test.groups = map[string][]string{}
			}
			if diff := cmp.Diff(test.groups, groupsOf(f)); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			if len(ids) > 0 {
				test.warnings = append(test.warnings, "no zone is named anywhere in the file: machines are started without one")
			}
			if diff := cmp.Diff(test.warnings, f.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHardware(t *testing.T) {
	for _, test := range []struct{ why, hardware, zone string }{
		{"in the middle", "arch=amd64 availability-zone=tulip virt-type=vm", "tulip"},
		{"alone", "availability-zone=hall-1", "hall-1"},
		{"quoted, for it has a blank", `cores=4 availability-zone="east wing" mem=1M`, "east wing"},
		{"in single quotes", `availability-zone='east wing'`, "east wing"},
		{"the whole word in quotes", `arch=amd64 "availability-zone=east wing"`, "east wing"},
		{"quotes in quotes", `availability-zone="the \"old\" hall"`, `the "old" hall`},
		{"an apostrophe is no quote", `availability-zone=o'hara mem=1M`, "o'hara"},
		{"an equals sign in it", `availability-zone=a=b`, "a=b"},
		{"behind tags that look like one", `tags=availability-zone,x availability-zone=z`, "z"},
		{"in another case of white space", "arch=amd64\tavailability-zone=z\n", "z"},
		{"empty", "availability-zone= mem=1M", ""},
		{"words without a value", "nonsense availability-zone=z", "z"},
		{"nothing", "", ""},
	} {
		t.Run(test.why, func(t *testing.T) {
			quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\t", `\t`, "\n", `\n`).Replace(test.hardware)
			f := decode(t, oneMachine(`{`+running+`,"hardware":"`+quoted+`"}`))
			if got := string(f.Machines[0].Record.Zone); got != test.zone {
				t.Errorf("zone of %s: %q: want %q", test.hardware, got, test.zone)
			}
		})
	}
}

// Zones in constraints are wishes: they say where a machine may go, and that
// there are such zones, but not where it is.
func TestConstraints(t *testing.T) {
	f := decode(t, oneMachine(`{"juju-status":{"current":"pending"},"constraints":"arch=amd64 zones=\"b 2\",a, spaces="}`))
	m := f.Machines[0]
	if diff := cmp.Diff([]provisioner.ZoneName{"b 2", "a"}, m.Zones); diff != "" {
		t.Errorf("zones it may go to (-want +got):\n%s", diff)
	}
	if m.Record.Zone != "" {
		t.Errorf("zone %q: want none", m.Record.Zone)
	}
	if diff := cmp.Diff([]provisioner.Zone{{Name: "a", Available: true}, {Name: "b 2", Available: true}}, f.Zones); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
}

// Whatever single value of a machine is spoilt, the others are read as before,
// and a machine that has an instance is not started for it.
func TestOneSpoiltValue(t *testing.T) {
	const name = "03-pending-failed.json"
	data, err := os.ReadFile(filepath.Join(testdata, name))
	if err != nil {
		t.Fatal(err)
	}
	before := decode(t, string(data))
	var root map[string]any
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	for id, machine := range root["machines"].(map[string]any) {
		spoil(machine.(map[string]any), func(path string) {
			spoilt, err := json.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			after := decode(t, string(spoilt))
			if diff := cmp.Diff(others(before, id), others(after, id), cmp.Comparer(func(a, b error) bool { return text(a) == text(b) })); diff != "" {
				t.Errorf("%s: machine %s, %s: others changed (-before +after):\n%s", name, id, path, diff)
			}
			for _, m := range after.Machines {
				was := before.Find(m.Record.ID)
				starts := m.Err == nil && provisioner.Classify(m.Record).Class == provisioner.ClassPending
				if starts && m.Record.Instance == "" && was.Record.Instance != "" && !strings.Contains(path, "instance-id = null") && !strings.Contains(path, "instance-id = \"\"") {
					t.Errorf("%s: machine %s, %s: %s has an instance and would be started", name, id, path, m.Record.ID)
				}
			}
		})
	}
}

// spoil puts something else in the place of each value in turn.
func spoil(object map[string]any, look func(path string)) {
	for key, value := range object {
		if key == "network-interfaces" || key == "base" {
			continue // not looked at
		}
		for _, other := range []any{nil, 7.0, "", []any{"x"}, map[string]any{}, map[string]any{"status-error": "lost"}} {
			object[key] = other
			shown, _ := json.Marshal(other)
			look(key + " = " + string(shown))
		}
		object[key] = value
		if inner, ok := value.(map[string]any); ok {
			spoil(inner, func(path string) { look(key + "." + path) })
		}
	}
}

// others are the machines that are not, and not in, the one with the id.
func others(f fleet.Fleet, id string) []fleet.Machine {
	return slices.DeleteFunc(slices.Clone(f.Machines), func(m fleet.Machine) bool { return string(m.Record.ID.Top()) == id })
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob(testdata + "/*.json")
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
	f.Add([]byte(`{"model":null,"machines":{"0":{"containers":{"0/lxd/0":null}}},"applications":{"a":{"units":{"a/0":{"machine":"0"}}}}}`))
	f.Add([]byte(`{"machines":{"0":{"hardware":"availability-zone=\"","juju-status":{"life":7}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, _, err := jsontree.Parse(data)
		if err != nil {
			return
		}
		got := jujustatus.Decode(root)
		seen := map[provisioner.MachineID]bool{}
		for _, m := range got.Machines {
			if err := m.Record.ID.Validate(); err != nil || seen[m.Record.ID] {
				t.Errorf("machine %q: %v, there before: %v", m.Record.ID, err, seen[m.Record.ID])
			}
			seen[m.Record.ID] = true
			if c := provisioner.Classify(m.Record); m.Err == nil && c.Class == provisioner.ClassPending && m.Record.Instance != "" {
				t.Errorf("machine %s has an instance and would be started", m.Record.ID)
			}
		}
	})
}
