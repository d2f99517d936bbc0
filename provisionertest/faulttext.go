package provisionertest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// ParseFault reads a fault from one line: the calls that it is for, a colon,
// and what happens to them.
//
//	start machine=0 zone=a: error capacity "no room"
//	start nth=2 count=3 after: error ambiguous
//	start: error retry-after 30s "slow down"
//	stop instance=i-3 count=always: error
//	list zone=b: partial
//	machines machine=3: missing
//	*: delay 5s
//	status after: stuck
//
// Before the colon: a kind of call or * for any, then in any order machine=,
// zone=, instance=, nth=, count= (a number or "always") and after. Behind it:
// the trouble, then in any order a mark, a duration and a quoted text. The
// error satisfies NotValid and says which word is wrong.
func ParseFault(line string) (Fault, error) {
	f, err := parseFault(line)
	if err == nil {
		err = f.Validate()
	}
	if err != nil {
		return Fault{}, errors.Annotatef(err, "fault %q", line)
	}
	return f, nil
}

func parseFault(line string) (Fault, error) {
	which, what, ok := strings.Cut(line, ":")
	// Instance ids may hold colons: the one that counts is followed by a space.
	for ok && !strings.HasPrefix(what, " ") {
		var more string
		more, what, ok = strings.Cut(what, ":")
		which += ":" + more
	}
	if !ok {
		return Fault{}, errors.NotValidf("no colon and space: want CALL [machine=M] [zone=Z] ...: TROUBLE ...:")
	}
	var f Fault
	words := strings.Fields(which)
	if len(words) == 0 {
		return Fault{}, errors.NotValidf("no kind of call: want start, list, ... or *:")
	}
	if words[0] != "*" {
		f.Call = Call(words[0])
	}
	for _, word := range words[1:] {
		if err := f.parseWhich(word); err != nil {
			return Fault{}, err
		}
	}
	return f, f.parseWhat(what)
}

func (f *Fault) parseWhich(word string) error {
	key, value, ok := strings.Cut(word, "=")
	if ok && value == "" {
		return errors.NotValidf("%q: no value:", word)
	}
	var err error
	switch {
	case word == "after":
		f.After = true
	case !ok:
		return errors.NotValidf("%q: want machine=, zone=, instance=, nth=, count= or after:", word)
	case key == "machine":
		f.Machine = provisioner.MachineID(value)
	case key == "zone":
		f.Zone = provisioner.ZoneName(value)
	case key == "instance":
		f.Instance = provisioner.InstanceID(value)
	case key == "nth":
		f.Nth, err = parseCount(word, value)
	case key == "count" && value == "always":
		f.Count = Always
	case key == "count":
		f.Count, err = parseCount(word, value)
	default:
		return errors.NotValidf("%q: want machine=, zone=, instance=, nth=, count= or after:", word)
	}
	return err
}

func parseCount(word, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, errors.NotValidf("%q: want a number from 1 on:", word)
	}
	return n, nil
}

func (f *Fault) parseWhat(text string) error {
	text = strings.TrimSpace(text)
	word, rest, _ := strings.Cut(text, " ")
	f.What = Trouble(word)
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		if rest[0] == '"' {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return errors.NotValidf("%s: the quote does not end:", rest)
			}
			f.Text, _ = strconv.Unquote(quoted) // which reads whatever is a prefix
			rest = rest[len(quoted):]
			continue
		}
		word, rest, _ = strings.Cut(rest, " ")
		if slices.Contains(marks, Mark(word)) {
			f.Mark = Mark(word)
			continue
		}
		d, err := time.ParseDuration(word)
		if err != nil {
			return errors.NotValidf("%q: want a mark (%s), a duration or a quoted text:", word, words(marks))
		}
		f.For = d
	}
	return nil
}

// String gives the text that ParseFault reads. Fault.Err shows as its text.
func (f Fault) String() string {
	var b strings.Builder
	if f.Call == AnyCall {
		b.WriteString("*")
	} else {
		b.WriteString(string(f.Call))
	}
	word := func(given bool, key string, value any) {
		if given {
			fmt.Fprintf(&b, " %s%v", key, value)
		}
	}
	word(f.Machine != "", "machine=", f.Machine)
	word(f.Zone != "", "zone=", f.Zone)
	word(f.Instance != "", "instance=", f.Instance)
	word(f.Nth > 0, "nth=", f.Nth)
	word(f.Count > 0, "count=", f.Count)
	word(f.Count == Always, "count=", "always")
	word(f.After, "after", "")
	b.WriteString(": " + string(f.What))
	word(f.Mark != "", "", f.Mark)
	word(f.For != 0, "", f.For)
	word(f.Text != "", "", strconv.Quote(f.Text))
	word(f.Text == "" && f.Err != nil, "", strconv.Quote(fmt.Sprint(f.Err)))
	return b.String()
}

// MarshalText gives the text that ParseFault reads.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), f.Validate() }

// UnmarshalText reads what ParseFault reads.
func (f *Fault) UnmarshalText(text []byte) error {
	read, err := ParseFault(string(text))
	if err == nil {
		*f = read
	}
	return err
}

// words joins words for a message.
func words[S ~string](all []S) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}
