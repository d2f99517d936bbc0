package main

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf16"

	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/fleet"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/jsontree"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/jujustatus"
)

//go:embed healthy.json
var healthy []byte

// maxInput is how much of a file is looked at; a fleet of 100,000 machines is
// well below.
const maxInput = 512 << 20

// readFleet reads a fleet file; without a name it is the small healthy fleet,
// and "-" is the standard input. Errors name the file and, where they are
// about its content, the line.
func readFleet(name string, stdin io.Reader) (fleet.Fleet, error) {
	switch name {
	case "":
		return parse("healthy.json", healthy)
	case "-":
		data, err := io.ReadAll(io.LimitReader(stdin, maxInput))
		if err != nil {
			return fleet.Fleet{}, fmt.Errorf("standard input: %w", err)
		}
		return parse("standard input", data)
	}
	data, err := readFile(name)
	if err != nil {
		return fleet.Fleet{}, err
	}
	return parse(name, data)
}

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: want a fleet file", name, cause(err))
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s: is a directory: want a fleet file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxInput))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, cause(err))
	}
	return data, nil
}

// cause is a file error without the path, which the message has already.
func cause(err error) error {
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// instead is what to run to get a file that can be read.
const instead = "run: juju status --format=json > fleet.json"

// parse tells the two formats apart by their content.
func parse(name string, data []byte) (fleet.Fleet, error) {
	data = utf8Text(data)
	skipped, start := jsonStart(data)
	if start < 0 {
		line, what := whatInstead(data)
		return fleet.Fleet{}, fmt.Errorf("%s:%d: %s", name, line, what)
	}
	above := bytes.Count(data[:start], []byte("\n"))
	root, rest, err := jsontree.Parse(data[start:])
	if err != nil {
		return fleet.Fleet{}, syntaxError(name, above, err)
	}
	after := strings.TrimSpace(string(rest))
	if strings.HasPrefix(after, "{") {
		line := 1 + bytes.Count(data[:len(data)-len(rest)], []byte("\n"))
		return fleet.Fleet{}, fmt.Errorf("%s:%d: a second JSON value begins: want one fleet in a file", name, line)
	}
	f, err := decode(root)
	if fe := (*fleet.FileError)(nil); errors.As(err, &fe) {
		at := *fe
		at.Line += above
		return fleet.Fleet{}, fmt.Errorf("%s:%s", name, strings.TrimPrefix(at.Error(), "line "))
	} else if err != nil {
		return fleet.Fleet{}, fmt.Errorf("%s:%d: %w", name, above+root.Line, err)
	}
	if skipped != "" {
		f.Warnings = append([]string{"passed over in front of the JSON: " + skipped}, f.Warnings...)
	}
	if after != "" {
		f.Warnings = append(f.Warnings, "passed over behind the JSON: "+firstLine(after))
	}
	return f, nil
}

func decode(root jsontree.Node) (fleet.Fleet, error) {
	if jujustatus.Is(root) {
		return jujustatus.Decode(root), nil
	}
	if _, ok := root.Get("machines"); !ok {
		return fleet.Fleet{}, errors.New(`no fleet in this JSON: want an object with a list "machines", or what juju status --format=json prints`)
	}
	return fleet.Decode(root)
}

func syntaxError(name string, above int, err error) error {
	var se *jsontree.Error
	if !errors.As(err, &se) {
		return fmt.Errorf("%s: %w", name, err)
	}
	what := fmt.Sprintf("column %d: not JSON: %s", se.Column, se.Problem)
	if se.Cut {
		what = "the file ends in the middle of its JSON: want all of it; if it is juju's, " + instead
	}
	return fmt.Errorf("%s:%d: %s", name, above+se.Line, what)
}

// jsonStart finds the first line that begins with a brace. What stands above
// it is passed over: juju prints notices there. A text that is a list is no
// fleet, but JSON. start is -1 if there is neither.
func jsonStart(data []byte) (skipped string, start int) {
	if list, rest, err := jsontree.Parse(data); err == nil && list.Kind == jsontree.List && len(bytes.TrimSpace(rest)) == 0 {
		return "", bytes.IndexByte(data, '[')
	}
	at := 0
	for line := range bytes.Lines(data) {
		text := bytes.TrimSpace(line)
		switch {
		case len(text) > 0 && text[0] == '{':
			return skipped, at + bytes.IndexByte(line, '{')
		case len(text) > 0 && skipped == "":
			skipped = firstLine(string(text))
		}
		at += len(line)
	}
	return "", -1
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1 // no control characters on the terminal
		}
		return r
	}, s)
	const most = 100
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}

var (
	yamlLine  = regexp.MustCompile(`^\s*["']?[\w./-]+["']?:( \{\})?\s*$`)
	tableLine = regexp.MustCompile(`^(Model|Machine|App|Unit|SAAS)\s{2,}\w+`)
)

// whatInstead says on which line, and why, a text without JSON is none.
func whatInstead(data []byte) (line int, what string) {
	first, firstAt, n := "", 0, 0
	for l := range bytes.Lines(data) {
		n++
		text := strings.TrimRight(string(l), "\r\n")
		switch {
		case tableLine.MatchString(text):
			return n, "this is the table that juju status prints for people: want JSON; " + instead
		case text == "---", yamlLine.MatchString(text):
			return n, "this is YAML: want JSON; " + instead
		case first == "" && strings.TrimSpace(text) != "":
			first, firstAt = text, n
		}
	}
	if first == "" {
		return 1, "the file is empty: want JSON; " + instead
	}
	return firstAt, fmt.Sprintf("no JSON in this file, it begins with %q: want JSON; %s", firstLine(strings.TrimSpace(first)), instead)
}

// utf8Text undoes what some shells do to redirected output: UTF-16, or a byte
// order mark.
func utf8Text(data []byte) []byte {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		order = binary.BigEndian
	default:
		return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	}
	var units []uint16
	for i := 2; i+1 < len(data); i += 2 {
		units = append(units, order.Uint16(data[i:]))
	}
	return []byte(string(utf16.Decode(units)))
}
