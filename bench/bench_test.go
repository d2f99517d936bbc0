package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tiny takes every measurement, on fleets that are too small to mean anything.
func tiny(t *testing.T) *results {
	t.Helper()
	return measure(settings{sizes: []int{200, 400}, longest: 20_000, rounds: 1, changes: 2000})
}

// What does not depend on the machine that this runs on must hold here as well;
// each other floor is at least a number.
func TestMeasurementsAndFloors(t *testing.T) {
	r := tiny(t)
	for _, f := range floors(r) {
		switch {
		case f.Unit == "×" && !(f.Got > 0):
			t.Errorf("%s: %v, want more than 0", f.What, f.Got)
		case f.Unit != "×" && f.Unit != "B" && !f.holds():
			t.Errorf("%s: %v %s, want at most %v", f.What, f.Got, f.Unit, f.Most)
		}
	}
	for i, s := range r.sections() {
		for _, x := range s.Series {
			if len(x.Points) < 2 {
				t.Errorf("section %d, %s: %d points, want one for each size", i, x.Name, len(x.Points))
			}
		}
	}

	text := report(r, floors(r))
	for _, want := range []string{"| One change (µs) | 200 | 400 |", "| Makespan above the ideal (%) | 200 | 400 | 20,000 |", "| Within one run | is | at most |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	svg := string(drawing(r.sections()))
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal("the drawing is no XML:", err)
		}
	}
	for _, want := range []string{">Makespan above the ideal<", ">20,000<", ">Task<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the drawing lacks %q", want)
		}
	}
}

// Each floor fails by itself when what it is about gets worse.
func TestFloorsFail(t *testing.T) {
	line := func(name string, values ...float64) series {
		s := series{Name: name}
		for i, v := range values {
			s.Points = append(s.Points, point{i, v})
		}
		return s
	}
	good := func() *results {
		return &results{
			Planning: section{Series: []series{line(planned, 1, 1, 1)}},
			Placing:  section{Series: []series{line(fewZones, 1, 1, 1)}},
			Passes:   section{Series: []series{line(startsAll, 1, 1, 1), line(startCalls, 1, 1, 1), line(nothingToDo, 1, 1, 1)}},
			Change:   section{Series: []series{line(theTask, 1, 1, 1), line(classicQueue, 1, 1, 1), line(classicQueue10, 1, 1, 1)}},
			Makespan: section{Series: []series{line(theTask, 9, 5, 1)}},
			Delay:    section{Series: []series{line(theTask, 0, 0, 0)}},
			Memory:   section{Series: []series{line(queued, 1, 1, 1)}},
		}
	}
	for _, c := range []struct {
		floor string
		spoil func(r *results)
	}{
		{"", func(*results) {}},
		{"one change, against an item of the classic queue and its worker", func(r *results) { r.Change.Series[1].Points[0].Value = 0.99 }},
		{"one change, against an item of the classic queue and 10", func(r *results) { r.Change.Series[2].Points[0].Value = 0.99 }},
		{"a started machine, against", func(r *results) { r.Passes.Series[1].Points[2].Value = 0.04 }},
		{"makespan", func(r *results) { r.Makespan.Series[0].Points[2].Value = 2.01 }},
		{"longest delay", func(r *results) { r.Delay.Series[0].Points[0].Value = 1e-9 }},
		{"memory", func(r *results) { r.Memory.Series[0].Points[2].Value = 1001 }},
		{"planning a machine:", func(r *results) { r.Planning.Series[0].Points[2].Value = 5.01 }},
		{"placing a machine", func(r *results) { r.Placing.Series[0].Points[2].Value = 5.01 }},
		{"a started machine:", func(r *results) { r.Passes.Series[0].Points[2].Value = 5.01 }},
		{"a machine of a pass", func(r *results) { r.Passes.Series[2].Points[2].Value = 5.01 }},
		{"one change:", func(r *results) { r.Change.Series[0].Points[1].Value = 0.1 }},
	} {
		r := good()
		c.spoil(r)
		var failed []string
		for _, f := range floors(r) {
			if !f.holds() {
				failed = append(failed, f.What)
			}
		}
		switch {
		case c.floor == "" && failed != nil, c.floor != "" && (len(failed) != 1 || !strings.HasPrefix(failed[0], c.floor)):
			t.Errorf("%q: failed are %q", c.floor, failed)
		}
	}
}

func TestWriteReplacesTheTablesAlone(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "performance.md")
	if err := write(dir, "new\n", []byte("<svg/>")); err == nil {
		t.Error("a page that is not there was written")
	}
	if err := os.WriteFile(page, []byte("head\n"+begin+"old\n"+end+"foot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, "new\n", []byte("<svg/>")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if want := "head\n" + begin + "\nnew\n\n" + end + "foot\n"; string(got) != want || err != nil {
		t.Errorf("the page is %q, %v, want %q", got, err, want)
	}
	if err := os.WriteFile(page, []byte("head\n"+begin), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, "new\n", nil); err == nil {
		t.Error("a page without an end of the tables was written")
	}
}
