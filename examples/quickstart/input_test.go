package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

// What can't be used is an error on stderr that says file, line and what was
// expected; the status is 1 and nothing is printed, so nothing was started.
func TestInputErrors(t *testing.T) {
	const juju = "run: juju status --format=json > fleet.json"
	half := func(name string) string {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data[:len(data)/2])
	}
	for _, test := range []struct{ why, text, want string }{
		{"empty", "", "FILE:1: the file is empty: want JSON; " + juju},
		{"only white space", " \n\n", "FILE:1: the file is empty: want JSON; " + juju},
		{"YAML", "model:\n  name: loom\nmachines:\n  \"0\": {}\n", "FILE:1: this is YAML: want JSON; " + juju},
		{"YAML behind a notice", "a notice\n\nmodel:\n  name: loom\n", "FILE:3: this is YAML: want JSON; " + juju},
		{"YAML with a mark", "---\nname: x\n", "FILE:1: this is YAML: want JSON; " + juju},
		{"the plain table", "Model  Controller  Cloud/Region  Version\nloom   weft        stackyard     3.4.6\n", "FILE:1: this is the table that juju status prints for people: want JSON; " + juju},
		{"the table of a model without a header", "Machine  State    Address  Inst id\n0        started\n", "FILE:1: this is the table that juju status prints for people: want JSON; " + juju},
		{"an error of juju", "ERROR model not found\n", `FILE:1: no JSON in this file, it begins with "ERROR model not found": want JSON; ` + juju},
		{"control characters stay off the terminal", "\x1b[2Jboo\n", `FILE:1: no JSON in this file, it begins with "[2Jboo": want JSON; ` + juju},
		{"cut short, on one line", half("testdata/03-pending-failed.json"), "FILE:1: the file ends in the middle of its JSON: want all of it; if it is juju's, " + juju},
		{"cut short, on many lines", half("testdata/08-juju36.json"), "FILE:362: the file ends in the middle of its JSON: want all of it; if it is juju's, " + juju},
		{"cut short behind a notice", "notice\n{\"model\":\n", "FILE:2: the file ends in the middle of its JSON: want all of it; if it is juju's, " + juju},
		{"a slip", "{\n \"machines\": [,]\n}", "FILE:2: column 15: not JSON: invalid character ',' looking for beginning of value"},
		{"a list", "[\n{\"id\": \"0\"}]", `FILE:1: no fleet in this JSON: want an object with a list "machines", or what juju status --format=json prints`},
		{"another object", "\n\n{\"name\": \"x\"}", `FILE:3: no fleet in this JSON: want an object with a list "machines", or what juju status --format=json prints`},
		{"two of them", "{\"machines\": []}\n{\"machines\": []}", "FILE:1: a second JSON value begins: want one fleet in a file"},
		{"a wrong fleet file", "{\"machines\": [\n {\"id\": \"0\"},\n {\"id\": \"1\", \"lief\": \"dead\"}]}",
			"FILE:3: machines[1].lief: unknown key: want id, life, instance, zone, keep, status, instance-status, note, group or zones"},
		{"a key with control characters", `{"machines": [], "\u001b[2J": 1}`, "FILE:1:  [2J: unknown key: want title, harvest, zones, machines, instances or trouble"},
		{"a wrong fleet file behind a notice", "hello\n{\"machines\": [{\"id\": \"0\", \"life\": \"\"}]}", `FILE:2: machines[0].life: "": want alive, dying, dead`},
	} {
		t.Run(test.why, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "fleet.txt")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{file}, {"-plan", "-json", file}} {
				out, errs, status := command(t, "", args...)
				want := "quickstart: " + strings.ReplaceAll(test.want, "FILE", file) + "\n"
				if status != 1 || out != "" || errs != want {
					t.Errorf("status %d, output %q: want 1 and none; error (-want +got):\n%s", status, out, cmp.Diff(want, errs))
				}
			}
		})
	}
}

func TestCalls(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "none.json")
	for _, test := range []struct {
		why    string
		args   []string
		stdin  string
		status int
		errs   string
	}{
		{"no such file", []string{missing}, "", 1, "quickstart: " + missing + ": no such file or directory: want a fleet file\n"},
		{"a directory", []string{dir}, "", 1, "quickstart: " + dir + ": is a directory: want a fleet file\n"},
		{"an unknown flag", []string{"-x"}, "", 2, "quickstart: flag provided but not defined: -x\n" + usage},
		{"two files", []string{"a", "b"}, "", 2, "quickstart: [\"a\" \"b\"]: want one FILE, and flags before it\n" + usage},
		{"a flag too late", []string{"a", "-plan"}, "", 2, "quickstart: [\"a\" \"-plan\"]: want one FILE, and flags before it\n" + usage},
		{"an empty standard input", []string{"-"}, "", 1, "quickstart: standard input:1: the file is empty: want JSON; " + instead + "\n"},
		{"the standard input", []string{"-plan", "-"}, `{"machines": []}`, 0, ""},
		{"help", []string{"-h"}, "", 0, ""},
	} {
		t.Run(test.why, func(t *testing.T) {
			out, errs, status := command(t, test.stdin, test.args...)
			if status != test.status || errs != test.errs || (out == "") != (status != 0) {
				t.Errorf("status %d, output %q: want %d; errors (-want +got):\n%s", status, out, test.status, cmp.Diff(test.errs, errs))
			}
		})
	}
}

// Without a file it is the small healthy fleet, wherever the command is run.
func TestDefaultInput(t *testing.T) {
	t.Chdir(t.TempDir())
	out, errs, status := command(t, "", "-plan")
	if !strings.HasPrefix(out, "a small healthy fleet\n") || errs != "" || status != 0 {
		t.Errorf("status %d, errors %q, output:\n%s", status, errs, out)
	}
}

// Notices stand around the JSON, and shells change encodings.
func TestAroundTheJSON(t *testing.T) {
	const fleet = `{"model":{"name":"m"},"machines":{}}`
	wide := func(order func(u uint16) []byte, text string) string {
		var b []byte
		for _, u := range utf16.Encode([]rune("\ufeff" + text)) {
			b = append(b, order(u)...)
		}
		return string(b)
	}
	little := func(u uint16) []byte { return []byte{byte(u), byte(u >> 8)} }
	big := func(u uint16) []byte { return []byte{byte(u >> 8), byte(u)} }
	for _, test := range []struct {
		why, text string
		warnings  []string
	}{
		{"nothing around it", fleet, []string{}},
		{"notices in front of it", "\n[WARN] an upgrade is on offer\nreally\n  " + fleet + "\n", []string{"passed over in front of the JSON: [WARN] an upgrade is on offer"}},
		{"a job number in front of it", "[1] 4711\n" + fleet, []string{"passed over in front of the JSON: [1] 4711"}},
		{"a notice behind it", fleet + "\nbye\nbye", []string{"passed over behind the JSON: bye"}},
		{"a byte order mark", "\ufeff" + fleet, []string{}},
		{"UTF-16, little-endian", wide(little, fleet), []string{}},
		{"UTF-16, big-endian", wide(big, "hé\n"+fleet), []string{"passed over in front of the JSON: hé"}},
	} {
		t.Run(test.why, func(t *testing.T) {
			f, err := parse("x", []byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			if f.Title != "model m" {
				t.Errorf("title %q: want that of the fleet", f.Title)
			}
			if diff := cmp.Diff(test.warnings, append([]string{}, f.Warnings...)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// What becomes of odd machines, by the real Task.
func TestOddFleets(t *testing.T) {
	type short struct{ ID, Class, Reason, Instance, Zone, Group, Outcome string }
	machine := func(rest string) string {
		return `{"juju-status":{"current":"pending"},"machine-status":{"current":"pending"}` + rest + `}`
	}
	const text = `{"model":{"name":"odd"},"machines":{
		"0":{"instance-id":"manual:10.0.0.5","juju-status":{"current":"pending"}},
		"1":{"instance-id":"manual:10.0.0.6","juju-status":{"life":"dead"}},
		"2":{"instance-id":"i-2","juju-status":{"life":"dead"},"hardware":"availability-zone=a"},
		"3":null,
		"4":{"status-error":"lost","containers":{"4/lxd/0":%P}},
		"5":{"instance-id":"shared","juju-status":{"life":"dead"}},
		"6":{"instance-id":"shared","juju-status":{"current":"started"}},
		"7":%C,
		"8":{"juju-status":{"current":"down"},"machine-status":{"current":"provisioning error","message":"no room"}},
		"9":{"instance-id":"i-9","juju-status":{"current":"down"}},
		"10":{"instance-id":[],"juju-status":{"current":"pending"}},
		"11":{"juju-status":{"current":"pending","life":"dead"}},
		"12":%P
	},"applications":{"x":{"units":{"x/0":{"machine":"12"},"x/1":{"machine":"2"}}}}}`
	in := strings.NewReplacer("%P", machine(""), "%C", machine(`,"constraints":7`)).Replace(text)
	out, errs, status := command(t, in, "-json", "-")
	if status != 0 || errs != "" {
		t.Fatalf("status %d, errors %q: want 0 and none", status, errs)
	}
	var got struct {
		Machines []short
		Stopped  []string
		Kept     []string
		Warnings []string
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := []short{
		{"0", "none", "added by hand: not ours to start or stop", "manual:10.0.0.5", "", "", "left"},
		{"1", "dead", "its instance is to be kept; manual:10.0.0.6 stays", "", "", "", "removed"},
		{"2", "dead", "dead; i-2 was stopped", "", "", "x", "removed"},
		{"3", "none", "its record could not be read: juju gave nothing (null)", "", "", "", "left"},
		{"4", "none", "its record could not be read: juju could not tell: lost", "", "", "", "left"},
		{"4/lxd/0", "pending", "waits until its host 4 is provisioned", "", "", "", "left"},
		{"5", "dead", "its instance shared is also claimed by machine 6", "shared", "", "", "left"},
		{"6", "none", "provisioned", "shared", "", "", "left"},
		{"7", "pending", "start information: its constraints could not be read", "", "", "", "failed"},
		{"8", "none", "failed earlier (no room): waits for a retry signal", "", "", "", "left"},
		{"9", "none", "provisioned; its agent is lost, which is not ours to mend", "i-9", "", "", "left"},
		{"10", "none", "its instance id could not be read", "", "", "", "left"},
		{"11", "dead", "dead, never had an instance", "", "", "", "removed"},
		{"12", "pending", "pending: the only zone left", "i-12", "a", "x", "started"},
	}
	if diff := cmp.Diff(want, got.Machines); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"i-2"}, got.Stopped); diff != "" {
		t.Errorf("stopped (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"manual:10.0.0.6"}, got.Kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range inputs {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, seed := range []string{"", "model:\n", "note\n{\"machines\":{}}\nbye", "\xff\xfe{\x00}\x00", "[1]", "{", "Model  x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fleet, err := parse("FILE", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "FILE:") {
				t.Errorf("error %q: want file and line in front", err)
			}
			return
		}
		if _, err := newCloud(fleet, nil); err != nil {
			t.Errorf("no cloud of an accepted fleet: %v", err)
		}
	})
}
