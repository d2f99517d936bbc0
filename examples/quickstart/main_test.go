package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// inputs are all that is shipped, and what juju prints.
var inputs = []string{
	"healthy.json", "trouble.json", "large.json",
	"testdata/02-maas-lxd.json", "testdata/03-pending-failed.json", "testdata/08-juju36.json",
}

// command runs the command in virtual time, and holds it to its 10 seconds.
func command(t *testing.T, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		status = run(args, strings.NewReader(stdin), screen{Writer: &out, width: 100}, &errs)
		if took := time.Since(began); took > 9*time.Second {
			t.Errorf("%q took %s: want less than 10s", args, took)
		}
	})
	return out.String(), errs.String(), status
}

func TestGolden(t *testing.T) {
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".json")
		for _, mode := range []struct {
			name string
			args []string
		}{
			{"account", nil}, {"plan", []string{"-plan"}},
			{"json", []string{"-json"}}, {"plan-json", []string{"-plan", "-json"}},
		} {
			t.Run(name+"/"+mode.name, func(t *testing.T) {
				out, errs, status := command(t, "", append(mode.args, input)...)
				if status != 0 || errs != "" {
					t.Fatalf("status %d, errors %q: want 0 and none", status, errs)
				}
				if mode.name == "account" {
					out = closing(t, out)
				}
				if strings.HasSuffix(mode.name, "json") {
					checkJSON(t, out)
					if name == "large" {
						out = digest(t, out)
					}
				}
				golden(t, filepath.Join("testdata", "golden", name+"."+mode.name+".txt"), out)
			})
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; rewrite with -update):\n%s", name, diff)
	}
}

// closing is what follows the live part, without the time that it took.
func closing(t *testing.T, account string) string {
	t.Helper()
	at := strings.Index(account, "\nMACHINE ")
	if at < 0 {
		t.Fatalf("no table in the account:\n%s", account)
	}
	return regexp.MustCompile(`(?m)^Done in [0-9.ms]+:`).ReplaceAllString(account[at+1:], "Done in TIME:")
}

// checkJSON: every key is there, and no list is null.
func checkJSON(t *testing.T, out string) {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out), &object); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"machines", "zones", "stopped", "kept", "warnings"} {
		if !strings.HasPrefix(string(object[key]), "[") {
			t.Errorf("%s is %q: want a list", key, object[key])
		}
	}
	var machines []map[string]string
	if err := json.Unmarshal(object["machines"], &machines); err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		for _, key := range []string{"id", "parent", "class", "reason", "instance", "zone", "group", "outcome"} {
			if _, ok := m[key]; !ok {
				t.Errorf("machine %s has no %s", m["id"], key)
			}
		}
		if m["reason"] == "" || m["outcome"] == "" {
			t.Errorf("machine %s: reason %q, outcome %q: want both", m["id"], m["reason"], m["outcome"])
		}
	}
}

// digest is short enough to be read: machines that are alike are counted.
func digest(t *testing.T, out string) string {
	t.Helper()
	var r report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, x := range r.Machines {
		counts[fmt.Sprintf("%s %s zone=%s group=%s", x.Class, x.Outcome, x.Zone, x.Group)]++
	}
	var b strings.Builder
	for what, n := range counts {
		fmt.Fprintf(&b, "%5d %s\n", n, what)
	}
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines)
	return fmt.Sprintf("%szones %v\nstopped %v\nkept %v\nwarnings %v\n", strings.Join(lines, ""), r.Zones, r.Stopped, r.Kept, r.Warnings)
}

// The live part: who is started where, why there, and how it goes on, in the
// order in which it happens.
func TestLiveAccount(t *testing.T) {
	out, _, _ := command(t, "", "trouble.json")
	live, _, _ := strings.Cut(out, "\nMACHINE ")
	for _, want := range []string{
		"a fleet with zone trouble\n21 machines, 4 zones: east (down), north, south, west; harvest mode destroyed\n",
		"Plan: 1 to stop, 2 to remove, 9 to start, 9 to leave alone.\n",
		" 9   starting in west: the only zone that its constraint leaves\n",
		" 9   failed in west: the compute API hiccups; trying again in 400ms\n",
		" 9   starting in west, attempt 2: the only zone that its constraint leaves\n",
		" 9   runs in west as i-9\n",
		" 9/lxd/0  starting on host 9\n",
		" 9/lxd/0  runs on host 9 as i-9/lxd/0\n",
	} {
		_, after, found := strings.Cut(live, want)
		if !found {
			t.Fatalf("want %q, after what came before it, in:\n%s", want, out)
		}
		live = after
	}
	last := -1.0
	for _, at := range regexp.MustCompile(`(?m)^ *([0-9.]+)s  `).FindAllStringSubmatch(out, -1) {
		var seconds float64
		if fmt.Sscan(at[1], &seconds); seconds < last {
			t.Errorf("%.2fs is told after %.2fs", seconds, last)
		}
		last = seconds
	}
}

// large inputs take their time under the race detector.
func large(input string) bool { return input == "large.json" }

// A zone is never chosen without a reason that holds by what was told before.
func TestEveryChoiceIsExplained(t *testing.T) {
	for _, input := range slices.DeleteFunc(slices.Clone(inputs), large) {
		for _, args := range [][]string{{"-json", input}, {"-plan", "-json", input}} {
			out, _, _ := command(t, "", args...)
			var r report
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			for _, x := range r.Machines {
				if (x.Outcome == "started" || x.Outcome == "start") && !strings.HasPrefix(x.Reason, "pending: ") {
					t.Errorf("%q: machine %s is in %s: reason %q: want why", args, x.ID, x.Zone, x.Reason)
				}
			}
		}
	}
}

// Nothing is wider than the screen, and without a terminal there is nothing
// but text.
func TestScreens(t *testing.T) {
	for _, input := range inputs {
		widths := []int{60, 80, 132}
		if large(input) {
			widths = []int{80}
		}
		for _, width := range widths {
			var out bytes.Buffer
			synctest.Test(t, func(*testing.T) {
				run([]string{input}, nil, screen{Writer: &out, width: width}, io.Discard)
			})
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(line) - 1; n > width {
					t.Errorf("%s at %d columns: %d: %s", input, width, n, line)
				}
				if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\n' }) {
					t.Errorf("%s: control characters: %q", input, line)
				}
			}
		}
	}
}

// Where the screen is narrow the zone stays: the reason tells the class, and
// nothing else the zone.
func TestNarrow(t *testing.T) {
	var out bytes.Buffer
	run([]string{"-plan", "trouble.json"}, nil, screen{Writer: &out, width: 50, colour: true}, io.Discard)
	for _, want := range []string{"\nMACHINE  TO DO   ZONE   REASON\n", "\n0        \x1b[2mleave \x1b[0m  north  provisioned\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestColours(t *testing.T) {
	var plain, coloured bytes.Buffer
	synctest.Test(t, func(*testing.T) { run([]string{"trouble.json"}, nil, screen{Writer: &plain}, io.Discard) })
	synctest.Test(t, func(*testing.T) {
		run([]string{"trouble.json"}, nil, screen{Writer: &coloured, colour: true}, io.Discard)
	})
	colours := regexp.MustCompile("\x1b\\[[0-9]+m")
	if !colours.MatchString(coloured.String()) {
		t.Error("no colours where they are wanted")
	}
	if diff := cmp.Diff(plain.String(), colours.ReplaceAllString(coloured.String(), "")); diff != "" {
		t.Errorf("colours change the text (-plain +coloured):\n%s", diff)
	}
}

func TestEnvironment(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if colourful(file) {
		t.Error("a file gets colours: want none")
	}
	for columns, want := range map[string]int{"": 0, "x": 0, "-4": 0, "101": 101} {
		t.Setenv("COLUMNS", columns)
		if got := widthOf(file); got != want {
			t.Errorf("COLUMNS=%q: width %d: want %d (0: the default)", columns, got, want)
		}
	}
}

// What a file says can't steer the terminal.
func TestControlCharacters(t *testing.T) {
	const in = `{"title": "a\u001b[2Jb", "zones": [{"name": "z\u0007\u009b"}], "machines": [{"id": "0", "group": "g\u001b"}, {"id": "1", "zones": ["\u001bx"]}]}`
	out, _, status := command(t, in, "-")
	if status != 0 || strings.ContainsFunc(out, func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 }) {
		t.Errorf("status %d, output %q: want no control characters", status, out)
	}
}

// A kubernetes model is no error: there just is nothing to do.
func TestKubernetes(t *testing.T) {
	const in = `{"model":{"name":"k","type":"caas"},"machines":{},"applications":{"a":{"units":{"a/0":{}}}}}`
	out, errs, status := command(t, in, "-")
	const want = `kubernetes model k
0 machines, no zones; harvest mode destroyed
note: the model is a kubernetes one (caas): it has no machines, so there is nothing to provision
Plan: nothing to do.

There was nothing to do.
`
	if diff := cmp.Diff(want, out); diff != "" || errs != "" || status != 0 {
		t.Errorf("status %d, errors %q, output (-want +got):\n%s", status, errs, diff)
	}
	out, _, _ = command(t, in, "-json", "-")
	const wantJSON = `{
  "machines": [],
  "zones": [],
  "stopped": [],
  "kept": [],
  "warnings": [
    "the model is a kubernetes one (caas): it has no machines, so there is nothing to provision"
  ]
}
`
	if diff := cmp.Diff(wantJSON, out); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}
