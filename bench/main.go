// Command bench measures what a Task costs as fleets grow, writes the tables and
// the drawing of docs/performance.md, and fails if a floor does not hold:
//
//	go run -C bench .          all sizes, in some minutes; writes ../docs
//	go run -C bench . -quick   smaller fleets, for CI; writes nothing
//
// Times are those of the processor, each the best of some rounds in which the
// sides that are compared take turns. It needs a Unix.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	quick := flag.Bool("quick", false, "measure smaller fleets, and write nothing")
	out := flag.String("out", "../docs", "`directory` of performance.md and performance.svg")
	flag.Parse()
	if err := run(*quick, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(quick bool, out string) error {
	began := time.Now()
	set := settings{sizes: []int{1_000, 10_000, 100_000, 1_000_000}, longest: 1_000_000, rounds: 3, changes: 100_000}
	if quick {
		set.sizes, set.changes = set.sizes[:3], 50_000
	}
	r := measure(set)
	list := floors(r)
	text := report(r, list)
	fmt.Print(text)
	fmt.Fprintf(os.Stderr, "in %v\n", time.Since(began).Round(time.Second))
	if !quick {
		if err := write(out, text, drawing(r.sections())); err != nil {
			return err
		}
	}
	for _, f := range list {
		if !f.holds() {
			return fmt.Errorf("a floor does not hold: %s: %s %s, at most %s", f.What, short(f.Got), f.Unit, short(f.Most))
		}
	}
	return nil
}

// report is all tables.
func report(r *results, list []floor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s/%s, %d processors.\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	for _, s := range r.sections() {
		b.WriteString(s.table() + "\n")
	}
	return b.String() + floorTable(list)
}

// What is between these lines of performance.md is written by this command.
const (
	begin = "<!-- begin: go run -C bench . -->\n"
	end   = "<!-- end -->\n"
)

func write(dir, tables string, svg []byte) error {
	name := filepath.Join(dir, "performance.md")
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(page, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s lacks the lines %q and %q", name, begin, end)
	}
	page = fmt.Appendf(nil, "%s%s\n%s\n%s%s", before, begin, tables, end, after)
	if err := os.WriteFile(name, page, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "performance.svg"), svg, 0o644)
}
