// Package jsontree reads JSON into a tree that remembers on which line each
// value stands, in which order the keys of an object came, and which came
// twice: what a reader needs to say where a file is odd.
package jsontree

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A Kind is one kind of JSON value.
type Kind uint8

// The kinds. The zero value is null.
const (
	Null Kind = iota
	Bool
	Number
	Text
	List
	Object
)

var kindNames = [...]string{"null", "true or false", "a number", "text", "a list", "an object"}

// String names the kind with its article ("a list"), for messages.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "invalid"
}

// A Node is one value.
type Node struct {
	Kind    Kind
	Line    int      // on which it begins, from 1
	Text    string   // of a Text; the literal of a Number or Bool
	Items   []Node   // of a List
	Members []Member // of an Object, as they came
}

// A Member is one key of an object, with its value.
type Member struct {
	Key   string
	Line  int // of the key
	Value Node
}

// Get finds the first member with the key; it is not ok for a node that isn't
// an object, too.
func (n Node) Get(key string) (value Node, ok bool) {
	for _, m := range n.Members {
		if m.Key == key {
			return m.Value, true
		}
	}
	return Node{}, false
}

// String shows the beginning of the value, for messages.
func (n Node) String() string {
	switch n.Kind {
	case Text:
		return fmt.Sprintf("%q", short(n.Text))
	case Number, Bool:
		return short(n.Text)
	}
	return n.Kind.String()
}

func short(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// An Error says why a text is no JSON.
type Error struct {
	Line, Column int  // from 1
	Cut          bool // the text ends before the value does
	Problem      string
}

// Error gives line, column and problem.
func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// Parse reads the first value of a text and returns what follows it. The
// error, if there is one, is an *Error.
func Parse(data []byte) (value Node, rest []byte, err error) {
	var first json.RawMessage
	whole := json.NewDecoder(bytes.NewReader(data))
	if err := whole.Decode(&first); err != nil { // checks the syntax, and bounds the depth
		return Node{}, nil, explain(data, err)
	}
	end := int(whole.InputOffset())
	p := parser{data: data[:end], dec: json.NewDecoder(bytes.NewReader(data[:end])), line: 1}
	p.dec.UseNumber()
	value, err = p.value()
	if err != nil {
		return Node{}, nil, explain(data, err)
	}
	return value, data[end:], nil
}

func explain(data []byte, err error) error {
	at, cut, problem := len(data), false, err.Error()
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF):
		cut, problem = true, "there is no JSON"
	case errors.Is(err, io.ErrUnexpectedEOF):
		cut, problem = true, "the JSON is cut short"
	case errors.As(err, &syntax):
		at = min(max(int(syntax.Offset)-1, 0), len(data))
	}
	if cut {
		at = len(bytes.TrimRight(data, " \t\r\n"))
	}
	before := data[:at]
	return &Error{
		Line:    1 + bytes.Count(before, []byte("\n")),
		Column:  1 + at - (bytes.LastIndexByte(before, '\n') + 1),
		Cut:     cut,
		Problem: strings.TrimPrefix(problem, "json: "),
	}
}

type parser struct {
	data []byte
	dec  *json.Decoder
	at   int // where line is that of
	line int
}

// next returns a token and its line: no token spans lines.
func (p *parser) next() (json.Token, int, error) {
	t, err := p.dec.Token()
	if err != nil {
		return nil, 0, err
	}
	end := int(p.dec.InputOffset())
	p.line += bytes.Count(p.data[p.at:end], []byte("\n"))
	p.at = end
	return t, p.line, nil
}

func (p *parser) value() (Node, error) {
	t, line, err := p.next()
	if err != nil {
		return Node{}, err
	}
	n := Node{Line: line}
	switch t := t.(type) {
	case bool:
		n.Kind, n.Text = Bool, fmt.Sprint(t)
	case json.Number:
		n.Kind, n.Text = Number, t.String()
	case string:
		n.Kind, n.Text = Text, t
	case json.Delim:
		if t == '[' {
			n.Kind = List
			err = p.items(&n)
		} else {
			n.Kind = Object
			err = p.members(&n)
		}
	}
	return n, err
}

func (p *parser) items(n *Node) error {
	for p.dec.More() {
		item, err := p.value()
		if err != nil {
			return err
		}
		n.Items = append(n.Items, item)
	}
	_, _, err := p.next() // the bracket
	return err
}

func (p *parser) members(n *Node) error {
	for p.dec.More() {
		key, line, err := p.next()
		if err != nil {
			return err
		}
		value, err := p.value()
		if err != nil {
			return err
		}
		text, _ := key.(string)
		n.Members = append(n.Members, Member{text, line, value})
	}
	_, _, err := p.next() // the brace
	return err
}
