package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed81ba69f2/provisioner"
)

// writeText prints the closing part: the machines, the zones, the groups.
func (r *report) writeText(out screen) {
	r.writeMachines(out)
	r.writeZones(out)
	r.writeGroups(out)
	r.writeWarnings(out)
	r.writeSum(out)
}

// mostRows is how many machines a table shows; of a larger fleet only those
// that did not go well.
const mostRows = 40

func (r *report) writeMachines(out screen) {
	rows := r.Machines
	if len(rows) == 0 {
		return
	}
	if len(rows) > mostRows {
		rows = slices.DeleteFunc(slices.Clone(rows), func(x row) bool { return !x.odd })
		rows = rows[:min(mostRows, len(rows))]
	}
	last := "OUTCOME"
	if r.planOnly {
		last = "TO DO"
	}
	t := table{head: []string{"MACHINE", "CLASS", last, "ZONE", "GROUP", "INSTANCE", "REASON"}, painted: last}
	shown := map[provisioner.MachineID]bool{}
	for _, x := range rows {
		shown[x.ID] = true
		t.add(colourOf[x.Outcome], string(x.ID), x.Class, x.Outcome, string(x.Zone), x.Group, string(x.Instance), x.Reason)
	}
	if len(rows) > 0 {
		t.write(out)
	}
	r.writeRest(out, shown)
	fmt.Fprintln(out)
}

var colourOf = map[string]string{
	outcomeStarted: green, outcomeRemoved: green, outcomeMaintained: green,
	outcomeFailed: red, outcomeWaiting: yellow, outcomeLeft: faint, string(provisioner.ActionLeave): faint,
}

// writeRest sums up the machines that have no row.
func (r *report) writeRest(out screen, shown map[provisioner.MachineID]bool) {
	counts := map[string]int{}
	for _, x := range r.Machines {
		if !shown[x.ID] {
			counts[x.Outcome+": "+x.base]++
		}
	}
	if len(counts) == 0 {
		return
	}
	var parts []string
	for what := range counts {
		parts = append(parts, what)
	}
	slices.SortFunc(parts, func(a, b string) int {
		if c := counts[b] - counts[a]; c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	const few = 8
	rest := plural(len(r.Machines)-len(shown), "machine")
	if len(shown) > 0 {
		rest = "and " + rest + " more"
	}
	fmt.Fprintln(out, rest+":")
	for i, what := range parts {
		if i == few {
			fmt.Fprintf(out, "  … and %d other outcomes\n", len(parts)-few)
			break
		}
		out.paragraph(fmt.Sprintf("%7d  ", counts[what]), clean(what))
	}
}

const mostZones = 40

// writeZones draws a bar for each zone: "#" was there, "+" has come or would
// come, "-" has gone or would go.
func (r *report) writeZones(out screen) {
	if len(r.Zones) == 0 {
		return
	}
	wide, most := len("ZONES"), 1
	for _, z := range r.Zones {
		wide = max(wide, width(string(z.Name)))
		most = max(most, z.Machines, r.before[z.Name])
	}
	wide = min(wide, 24)
	// Name, state and number take their room; a mark stands for several
	// machines where the rest is too narrow.
	each := 1
	room := max(out.columns()-wide-2-6-8, 8)
	if most > room {
		each = (most + room - 1) / room
	}
	legend := "# was there, + new, - gone"
	if slices.ContainsFunc(r.Machines, func(x row) bool { return x.ID.IsContainer() }) {
		legend += "; without containers"
	}
	if each > 1 {
		legend += fmt.Sprintf("; each mark is about %d machines", each)
	}
	out.paragraph(pad("ZONES", wide)+"  ", legend)
	for i, z := range r.Zones {
		if i == mostZones {
			fmt.Fprintf(out, "and %s more\n", plural(len(r.Zones)-i, "zone"))
			break
		}
		state := "     "
		if !z.Available {
			state = out.paint(red, "down ")
		}
		came, went := r.moves(z.Name)
		stay := r.before[z.Name] - went
		bar := marks("#", stay, each) + out.paint(green, marks("+", came, each)) + out.paint(faint, marks("-", went, each))
		fmt.Fprintf(out, "%s  %s %4d  %s\n", pad(clean(string(z.Name)), wide), state, z.Machines, bar)
	}
	fmt.Fprintln(out)
}

func marks(mark string, n, each int) string { return strings.Repeat(mark, max(n+each-1, 0)/each) }

// moves counts the machines that came to a zone and those that left it.
func (r *report) moves(zone provisioner.ZoneName) (came, went int) {
	for _, x := range r.Machines {
		m := r.fleet.Find(x.ID)
		if m == nil || x.ID.IsContainer() {
			continue
		}
		switch {
		case m.Record.Zone == zone && (x.Outcome == outcomeRemoved || x.Outcome == string(provisioner.ActionStop) || x.Outcome == string(provisioner.ActionRemove)):
			went++
		case m.Record.Zone != zone && x.Zone == zone:
			came++
		}
	}
	return came, went
}

// writeGroups shows how each group is spread over the zones.
func (r *report) writeGroups(out screen) {
	counts := map[string]map[provisioner.ZoneName]int{}
	var groups []string
	for _, x := range r.Machines {
		m := r.fleet.Find(x.ID)
		for _, g := range m.Groups {
			if counts[g] == nil {
				counts[g] = map[provisioner.ZoneName]int{}
				groups = append(groups, g)
			}
			if x.Zone != "" && x.Outcome != outcomeRemoved {
				counts[g][x.Zone]++
			}
		}
	}
	const fewGroups, fewZones = 12, 8
	if len(groups) == 0 || len(r.Zones) == 0 || len(r.Zones) > fewZones {
		return
	}
	slices.Sort(groups)
	t := table{head: []string{"GROUP"}}
	for _, z := range r.Zones {
		t.head = append(t.head, clean(string(z.Name)))
	}
	for _, g := range groups[:min(fewGroups, len(groups))] {
		cells := []string{g}
		for _, z := range r.Zones {
			cells = append(cells, fmt.Sprint(counts[g][z.Name]))
		}
		t.add("", cells...)
	}
	t.write(out)
	if len(groups) > fewGroups {
		fmt.Fprintf(out, "and %d more groups\n", len(groups)-fewGroups)
	}
	fmt.Fprintln(out)
}

// writeWarnings prints what the account has not shown at its beginning.
func (r *report) writeWarnings(out screen) {
	for _, w := range r.Warnings[len(r.fleet.Warnings):] {
		out.paragraph(out.paint(yellow, "note: "), clean(w))
	}
}

func (r *report) writeSum(out screen) {
	counts := map[string]int{}
	for _, x := range r.Machines {
		counts[x.Outcome]++
	}
	if r.planOnly {
		fmt.Fprintln(out, "This is only a plan: nothing was done.")
		return
	}
	var parts []string
	for _, outcome := range []string{outcomeStarted, outcomeMaintained, outcomeRemoved, outcomeFailed, outcomeWaiting, outcomeLeft} {
		if n := counts[outcome]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	if parts == nil {
		fmt.Fprintln(out, "There was nothing to do.")
		return
	}
	out.paragraph("", fmt.Sprintf("Done in %s: %s.", r.took.Round(10*time.Millisecond), strings.Join(parts, ", ")))
}

// A table has columns as wide as needed; the last takes the rest of the screen
// and wraps.
type table struct {
	head    []string
	rows    [][]string
	colours []string
	painted string // the column that has the colours
}

func (t *table) add(colour string, cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
	}
	t.rows = append(t.rows, cells)
	t.colours = append(t.colours, colour)
}

// widest is the most that a column but the last gets.
const widest = 28

func (t *table) write(out screen) {
	t.shrink(out.columns())
	wide := make([]int, len(t.head))
	for _, cells := range append([][]string{t.head}, t.rows...) {
		for i, c := range cells {
			wide[i] = max(wide[i], min(width(c), widest))
		}
	}
	line := func(colour string, cells []string) {
		prefix := ""
		last := len(cells) - 1
		for i, c := range cells[:last] {
			cell := pad(short(c, widest), wide[i])
			if t.head[i] == t.painted && colour != "" {
				cell = out.paint(colour, cell)
			}
			prefix += cell + "  "
		}
		out.paragraph(prefix, cells[last])
	}
	line("", t.head)
	for i, cells := range t.rows {
		line(t.colours[i], cells)
	}
}

// shrink drops columns that are empty, and then, while the last would get too
// little room, those that can be missed most easily, down to four: from the one
// before the last on, but the class, which the reason tells, before the zone.
func (t *table) shrink(columns int) {
	for i := len(t.head) - 2; i > 0; i-- {
		if !slices.ContainsFunc(t.rows, func(cells []string) bool { return cells[i] != "" }) {
			t.drop(i)
		}
	}
	if t.head[len(t.head)-1] != "REASON" {
		return
	}
	const enough = 32
	for len(t.head) > 4 && t.before() > columns-enough {
		if class := slices.Index(t.head, "CLASS"); class > 0 && t.head[len(t.head)-2] == "ZONE" {
			t.drop(class)
		} else {
			t.drop(len(t.head) - 2)
		}
	}
}

// before is the room that all columns but the last take.
func (t *table) before() int {
	sum := 0
	for i := range t.head[:len(t.head)-1] {
		wide := width(t.head[i])
		for _, cells := range t.rows {
			wide = max(wide, min(width(cells[i]), widest))
		}
		sum += wide + 2
	}
	return sum
}

func (t *table) drop(i int) {
	t.head = slices.Delete(t.head, i, i+1)
	for r := range t.rows {
		t.rows[r] = slices.Delete(t.rows[r], i, i+1)
	}
}

// paragraph prints text behind a prefix, wrapped to the screen and aligned.
func (s screen) paragraph(prefix, text string) {
	indent := width(prefix)
	room := max(s.columns()-indent, 20)
	for i, line := range wrap(text, room) {
		if i > 0 {
			prefix = strings.Repeat(" ", indent)
		}
		fmt.Fprintln(s, strings.TrimRight(prefix+line, " "))
	}
}

// wrap breaks text at blanks into lines of at most room columns; words that
// are longer stay whole.
func wrap(text string, room int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) > room:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// width counts the columns of a text: its runes, escape sequences left out.
func width(s string) int {
	n := 0
	for {
		before, rest, ok := strings.Cut(s, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !ok {
			return n
		}
		_, s, _ = strings.Cut(rest, "m")
	}
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(n-width(s), 0)) }

func short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
