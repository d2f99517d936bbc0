package constraints

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/juju/errors"
)

// A kind says how the value of a key is written.
type kind uint8

const (
	word kind = iota
	count
	size
	list
	signedList // an item may begin with ^
	flag
)

// What is wanted of a value, for its errors.
const (
	wantCount = "want a whole number"
	wantSize  = "want a size such as 512, 512M, 8G, 1.5T or 1P"
	wantFlag  = "want true or false"
	wantItems = "want names with a comma between them"
	wantText  = "want printable UTF-8 text"
)

// A field is one key and where it is held: at returns a *string, a **uint64,
// a *[]string or a **bool.
type field[T any] struct {
	name string
	kind kind
	at   func(*T) any
}

// A table is all that is known about the text form of T. Sets of its fields
// are bits, in the order of fields.
type table[T any] struct {
	what   string
	size   func(mib uint64) string
	fields []field[T]
}

func (t table[T]) parse(s string) (v T, empty uint, unknown, faults []string) {
	if !utf8.ValidString(s) {
		return v, 0, nil, []string{wantText}
	}
	var seen uint
	for s = trim(s); s != ""; s = trim(s) {
		var raw string
		var closed bool
		raw, s, closed = cutTerm(s)
		key, value, ok := strings.Cut(raw, "=")
		i := slices.IndexFunc(t.fields, func(f field[T]) bool { return f.name == key })
		switch {
		case !closed:
			faults = append(faults, fmt.Sprintf("%q: want a closing double quote, and a character after each backslash", raw))
		case !ok:
			faults = append(faults, fmt.Sprintf("%q: want key=value", raw))
		case i < 0:
			unknown = append(unknown, key)
		case seen&(1<<i) != 0:
			faults = append(faults, fmt.Sprintf("%s: given twice: want it once", key))
		default:
			seen |= 1 << i
			items := splitItems(value)
			if len(items) == 1 && items[0] == "" {
				empty |= 1 << i
				break
			}
			if fault := storeField(t.fields[i].at(&v), t.fields[i].kind, items); fault != "" {
				faults = append(faults, fmt.Sprintf("%s %q: %s", key, strings.Join(items, ","), fault))
			}
		}
	}
	if faults != nil {
		return *new(T), 0, unknown, faults
	}
	return v, empty, unknown, faults
}

func trim(s string) string { return strings.TrimLeftFunc(s, unicode.IsSpace) }

// cutTerm cuts s at the first blank outside quotes.
func cutTerm(s string) (term, rest string, closed bool) {
	quoted, escaped := false, false
	for i, r := range s {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case r == '"':
			quoted = !quoted
		case !quoted && unicode.IsSpace(r):
			return s[:i], s[i:], true
		}
	}
	return s, "", !quoted && !escaped
}

// splitItems takes quotes and backslashes away and splits at the commas that
// no backslash stands before.
func splitItems(value string) []string {
	var items []string
	var item strings.Builder
	escaped := false
	for _, r := range value {
		switch {
		case escaped:
			item.WriteRune(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == '"':
		case r == ',':
			items = append(items, item.String())
			item.Reset()
		default:
			item.WriteRune(r)
		}
	}
	return append(items, item.String())
}

// storeField puts a value into a field. It returns what is wrong with it, or "".
func storeField(at any, k kind, items []string) (fault string) {
	text := strings.Join(items, ",")
	switch p := at.(type) {
	case *string:
		*p = text
	case *[]string:
		*p = items
	case **uint64:
		n, fault := parseNumber(text, k)
		if fault != "" {
			return fault
		}
		*p = &n
	case **bool:
		if text != "true" && text != "false" {
			return wantFlag
		}
		b := text == "true"
		*p = &b
	}
	return checkField(at, k)
}

func parseNumber(s string, k kind) (n uint64, fault string) {
	if k == size {
		return parseSize(s)
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, wantCount
	}
	return n, ""
}

// check returns what is wrong with v, each fault with its key.
func (t table[T]) check(v *T) (faults []string) {
	for _, f := range t.fields {
		if fault := checkField(f.at(v), f.kind); fault != "" {
			faults = append(faults, f.name+": "+fault)
		}
	}
	return faults
}

func checkField(at any, k kind) (fault string) {
	switch p := at.(type) {
	case *string:
		if !printable(*p) {
			return wantText
		}
	case *[]string:
		for i, item := range *p {
			if fault := checkItem((*p)[:i], item, k); fault != "" {
				return fault
			}
		}
	}
	return ""
}

func checkItem(before []string, item string, k kind) (fault string) {
	name := item
	if k == signedList {
		name = strings.TrimPrefix(item, "^")
	}
	opposite := "^" + name
	if name != item {
		opposite = name
	}
	switch {
	case !printable(item):
		return wantText
	case name == "":
		return fmt.Sprintf("item %q: %s", item, wantItems)
	case name[0] == '^':
		return fmt.Sprintf("item %q: want a name that does not begin with ^", item)
	case k == signedList && slices.Contains(before, opposite):
		return fmt.Sprintf("%q: both asked for and to be avoided", name)
	}
	return ""
}

func printable(s string) bool {
	notPrint := func(r rune) bool { return !unicode.IsPrint(r) }
	return utf8.ValidString(s) && strings.IndexFunc(s, notPrint) < 0
}

// print gives the fields that are set, and those of empty without a value.
func (t table[T]) print(v *T, empty uint) string {
	var b strings.Builder
	for i, f := range t.fields {
		value, ok := t.format(f.at(v), f.kind)
		if !ok && empty&(1<<i) == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(f.name)
		b.WriteByte('=')
		b.WriteString(value)
	}
	return b.String()
}

func (t table[T]) format(at any, k kind) (value string, ok bool) {
	if !isSet(at) {
		return "", false
	}
	switch p := at.(type) {
	case *string:
		return quote(strings.Split(*p, ",")), true
	case *[]string:
		return quote(*p), true
	case **bool:
		return strconv.FormatBool(**p), true
	case **uint64:
		if k == size {
			return t.size(**p), true
		}
		return strconv.FormatUint(**p, 10), true
	}
	panic(fmt.Sprintf("constraints: no format for %T", at))
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `,`, `\,`)

// quote joins items so that splitItems gives them back.
func quote(items []string) string {
	var b strings.Builder
	quoted := false
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		quoted = quoted || strings.ContainsAny(item, `\",`) || strings.ContainsFunc(item, unicode.IsSpace)
		b.WriteString(escape.Replace(item))
	}
	if quoted {
		return `"` + b.String() + `"`
	}
	return b.String()
}

func isSet(at any) bool {
	switch p := at.(type) {
	case *string:
		return *p != ""
	case *[]string:
		return len(*p) > 0
	case **uint64:
		return *p != nil
	case **bool:
		return *p != nil
	}
	return false
}

// set returns the fields of v that hold something.
func (t table[T]) set(v *T) (set uint) {
	for i, f := range t.fields {
		if isSet(f.at(v)) {
			set |= 1 << i
		}
	}
	return set
}

// copy copies, deeply, the fields of src that are in which and hold something.
func (t table[T]) copy(dst, src *T, which uint) {
	for i, f := range t.fields {
		if from := f.at(src); which&(1<<i) != 0 && isSet(from) {
			copyField(f.at(dst), from)
		}
	}
}

func copyField(dst, src any) {
	switch d := dst.(type) {
	case *string:
		*d = *src.(*string)
	case *[]string:
		*d = slices.Clone(*src.(*[]string))
	case **uint64:
		n := **src.(**uint64)
		*d = &n
	case **bool:
		b := **src.(**bool)
		*d = &b
	}
}

func (t table[T]) unknownKeys(unknown []string) (faults []string) {
	if len(unknown) == 0 {
		return nil
	}
	names := make([]string, len(t.fields))
	for i, f := range t.fields {
		names[i] = f.name
	}
	for _, key := range unknown {
		faults = append(faults, fmt.Sprintf("%q: unknown key: want one of %s", key, strings.Join(names, ", ")))
	}
	return faults
}

// notValid makes one error of all faults, or nil of none.
func (t table[T]) notValid(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return errors.NotValidf("%s: %s:", t.what, strings.Join(faults, "; "))
}
