// Quickstart reads a fleet file and runs a real provisioner.Task on it, against
// a cloud that exists in memory only: nothing outside this process is touched.
//
//	quickstart [-plan] [-json] [FILE]
//
// FILE is in the small format of internal/fleet, of which healthy.json,
// trouble.json and large.json are examples, or what juju status --format=json
// prints; "-" is the standard input. Without it, it is healthy.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/fleet"
)

func main() {
	s := screen{Writer: os.Stdout, width: widthOf(os.Stdout), colour: colourful(os.Stdout)}
	os.Exit(run(os.Args[1:], os.Stdin, s, os.Stderr))
}

const usage = `usage: quickstart [-plan] [-json] [FILE]

Reads a fleet file and runs a real provisioner on it, against a cloud in memory.
FILE is a fleet file, or what juju status --format=json prints; "-" is the
standard input. Without it, a small healthy fleet.

  -plan   decide and print, and do nothing
  -json   print one JSON object instead of an account
`

// run is the whole command; it returns the exit status: 1 for an input that
// can't be used, 2 for a wrong call.
func run(args []string, stdin io.Reader, out screen, stderr io.Writer) int {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	plan := flags.Bool("plan", false, "")
	asJSON := flags.Bool("json", false, "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "quickstart: %v\n%s", err, usage)
		return 2
	case flags.NArg() > 1:
		fmt.Fprintf(stderr, "quickstart: %q: want one FILE, and flags before it\n%s", flags.Args(), usage)
		return 2
	}
	f, err := readFleet(flags.Arg(0), stdin)
	if err != nil {
		fmt.Fprintf(stderr, "quickstart: %s\n", clean(err.Error()))
		return 1
	}
	if err := show(context.Background(), f, *plan, *asJSON, out); err != nil {
		fmt.Fprintf(stderr, "quickstart: %s\n", clean(err.Error()))
		return 1
	}
	return 0
}

// show decides about the fleet, does what was decided unless it is only a
// plan, and tells of it.
func show(ctx context.Context, f fleet.Fleet, planOnly, asJSON bool, out screen) error {
	live, p := screen{Writer: io.Discard}, repeatable()
	if !asJSON {
		live, p = out, watchable(f)
	}
	report, err := reconcile(ctx, f, planOnly, p, live)
	if err != nil {
		return err
	}
	if asJSON {
		return report.writeJSON(out)
	}
	report.writeText(out)
	return nil
}

// A screen is where the account goes.
type screen struct {
	io.Writer
	width  int  // columns; 0: 80
	colour bool // colours may be used
}

func (s screen) columns() int {
	if s.width <= 0 {
		return 80
	}
	return s.width
}

// colours of a terminal.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
	faint  = "2"
	bold   = "1"
)

func (s screen) paint(colour, text string) string {
	if !s.colour || colour == "" || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func colourful(f *os.File) bool {
	return isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// widthOf takes COLUMNS, else asks the terminal by stty, which is there
// wherever there is a terminal to ask.
func widthOf(f *os.File) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if !isTerminal(f) {
		return 0
	}
	stty := exec.Command("stty", "size")
	stty.Stdin = f
	size, err := stty.Output()
	if err != nil {
		return 0
	}
	_, columns, _ := strings.Cut(strings.TrimSpace(string(size)), " ")
	n, _ := strconv.Atoi(columns)
	return n
}
