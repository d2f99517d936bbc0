package provisioner

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Transcript is an Observer that keeps the newest events as text, to be
// attached to a bug report by WriteTo. It takes at most Lines × 2 kB of memory.
// The zero value is ready; it must not be copied, and may be used by several
// goroutines.
type Transcript struct {
	// Lines is how many events are kept. Defaults to 2000. It is not to be
	// changed once the transcript is in use.
	Lines int

	// Redact may change each line further, after what looks like a secret has
	// been replaced: names of machines or zones, say. Defaults to not at all.
	Redact func(line string) string

	mu          sync.Mutex
	lines       []string // a ring once it is full
	next        int      // where the next line goes then
	first, last time.Time
	counts      map[EventKind]int
	events      int
}

const (
	transcriptLines = 2000
	transcriptWidth = 2000
)

// Observe keeps the event.
func (t *Transcript) Observe(e Event) {
	text := e.String()
	if len(text) > transcriptWidth {
		text = strings.ToValidUTF8(text[:transcriptWidth], "") + "…"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.events == 0 {
		t.first, t.counts = e.At, map[EventKind]int{}
	}
	t.last = e.At
	t.events++
	t.counts[e.Kind]++
	line := fmt.Sprintf("%12s %s", "+"+e.At.Sub(t.first).Round(time.Millisecond).String(), text)
	if len(t.lines) < positiveOr(t.Lines, transcriptLines) {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % len(t.lines)
}

// WriteTo writes what is kept, oldest first, below a line that says of what
// version and time it is, and above one that counts all events by kind. What
// looks like a secret (passwords and tokens by their name, credentials in URLs and
// headers, keys, long random words) is replaced by "[redacted]". Read it all the
// same before you show it to others: error texts are the host's.
func (t *Transcript) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	t.mu.Lock()
	fmt.Fprintf(&b, "provisioner %s, %s %s/%s: %d events", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, t.events)
	if t.events > 0 {
		fmt.Fprintf(&b, " from %s to %s", t.first.UTC().Format(time.RFC3339), t.last.UTC().Format(time.RFC3339))
	}
	if t.events > len(t.lines) {
		fmt.Fprintf(&b, ", the newest %d of them", len(t.lines))
	}
	b.WriteByte('\n')
	lines := slices.Concat(t.lines[t.next:], t.lines[:t.next])
	var counts []string
	for _, kind := range slices.Sorted(maps.Keys(t.counts)) {
		counts = append(counts, fmt.Sprintf("%s %d", kind, t.counts[kind]))
	}
	t.mu.Unlock()
	for _, line := range lines {
		line = redact(line)
		if t.Redact != nil {
			line = t.Redact(line)
		}
		fmt.Fprintln(&b, line)
	}
	fmt.Fprintf(&b, "in all: %s\n", strings.Join(counts, ", "))
	return b.WriteTo(w)
}

// buildVersion is that of this module in the program.
func buildVersion() string {
	const path = "github.com/seed81ba69f2/provisioner"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == path && m.Version != "" {
			return m.Version
		}
	}
	return "(devel)"
}

const redactedText = "[redacted]"

// secretForms are what secrets look like in error texts; groups stay.
var secretForms = sync.OnceValue(func() []*regexp.Regexp {
	const value = `(?:\\*"[^"]*"|\\*'[^']*'|[^\s"'\\,;&)}\]]+)`
	return []*regexp.Regexp{
		regexp.MustCompile(`()-----BEGIN [^-]*-----.*?(?:-----END [^-]*-----|$)`),
		regexp.MustCompile(`(\b[A-Za-z][A-Za-z0-9+.-]*://)[^/\s@"]+(@)`),
		regexp.MustCompile(`(?i)(\bauthorization\W{1,6})(?:[a-z]+ +)?` + value),
		regexp.MustCompile(`(?i)(\b(?:bearer|basic) +)[a-z0-9+/=._~-]{8,}`),
		regexp.MustCompile(`(?i)([a-z0-9_.-]*(?:passw|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|signature|nonce)[a-z0-9_.-]*\\*["']?\s*[:=]\s*)` + value),
		regexp.MustCompile(`()\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b`),
	}
})

var longWord = regexp.MustCompile(`[A-Za-z0-9+=_-]{32,}`)

func redact(line string) string {
	for _, form := range secretForms() {
		line = form.ReplaceAllString(line, "${1}"+redactedText+"${2}")
	}
	return longWord.ReplaceAllStringFunc(line, func(word string) string {
		if looksRandom(word) {
			return redactedText
		}
		return word
	})
}

// looksRandom tells a key from a long name: hexadecimal, or digits and letters
// of both cases.
func looksRandom(word string) bool {
	var digit, upper, lower, beyondHex bool
	for _, c := range word {
		digit = digit || '0' <= c && c <= '9'
		upper = upper || 'A' <= c && c <= 'Z'
		lower = lower || 'a' <= c && c <= 'z'
		beyondHex = beyondHex || !strings.ContainsRune("0123456789abcdefABCDEF", c)
	}
	return digit && (!beyondHex || upper && lower)
}
