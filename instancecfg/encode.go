package instancecfg

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of YAML parsers: a key must be found to be one within 1024
// characters, and some parsers recurse.
const (
	maxKey   = 1000
	maxDepth = 64
)

const wantData = "want text, numbers, booleans, lists, and maps with text keys"

// encode gives v as JSON that means the same when read as YAML 1.1 or 1.2.
// Faults name the place below root, never a value.
func encode(root string, v any) (text string, faults []string) {
	e := encoder{root: root}
	e.value(reflect.ValueOf(v))
	return e.b.String(), e.faults
}

// checkData returns the faults of encode.
func checkData(root string, data map[string]any) []string {
	if len(data) == 0 {
		return nil
	}
	_, faults := encode(root, data)
	return faults
}

type encoder struct {
	b      strings.Builder
	root   string
	at     []step // from root to where the encoder is
	faults []string

	// tooDeep ends it all: a map that holds itself twice would take for ever.
	tooDeep bool
}

// A step leads into a list, a map, or through a pointer.
type step struct {
	into  reflect.Kind
	index int
	key   string
}

func (e *encoder) fault(format string, args ...any) { e.faultAt(e.at, format, args...) }

func (e *encoder) faultAt(at []step, format string, args ...any) {
	place := e.root
	for _, s := range at {
		switch s.into {
		case reflect.Slice:
			place += fmt.Sprintf("[%d]", s.index)
		case reflect.Map:
			place += fmt.Sprintf("[%q]", s.key)
		}
	}
	e.faults = append(e.faults, place+": "+fmt.Sprintf(format, args...))
}

func (e *encoder) below(s step, v reflect.Value) {
	if e.tooDeep {
		return
	}
	if len(e.at) == maxDepth {
		e.faultAt(e.at[:1], "want at most %d levels", maxDepth)
		e.tooDeep = true
		return
	}
	e.at = append(e.at, s)
	e.value(v)
	e.at = e.at[:len(e.at)-1]
}

func (e *encoder) value(v reflect.Value) {
	if v.IsValid() && v.Type() == reflect.TypeFor[json.Number]() {
		e.number(json.Number(v.String()))
		return
	}
	switch v.Kind() {
	case reflect.Invalid:
		e.b.WriteString("null")
	case reflect.Interface:
		e.value(v.Elem())
	case reflect.Pointer:
		e.below(step{into: reflect.Pointer}, v.Elem())
	case reflect.Bool:
		e.b.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.b.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		e.b.WriteString(strconv.FormatUint(v.Uint(), 10))
	case reflect.Float32, reflect.Float64:
		e.float(v.Float(), v.Type().Bits())
	case reflect.String:
		e.text(v.String())
	case reflect.Slice, reflect.Array:
		e.list(v)
	case reflect.Map:
		e.mapping(v)
	default:
		e.fault("%s: %s", v.Type(), wantData)
	}
}

func (e *encoder) number(n json.Number) {
	if i, err := n.Int64(); err == nil {
		e.b.WriteString(strconv.FormatInt(i, 10))
		return
	}
	f, err := n.Float64()
	if err != nil {
		f = math.NaN()
	}
	e.float(f, 64)
}

// float writes a point into numbers with an exponent, for YAML 1.1 takes them
// for text without.
func (e *encoder) float(f float64, bits int) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		e.fault("want a finite number")
		return
	}
	if abs := math.Abs(f); abs == 0 || abs >= 1e-6 && abs < 1e21 {
		e.b.WriteString(strconv.FormatFloat(f, 'f', -1, bits))
		return
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, bits), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	e.b.WriteString(mantissa + "e" + exponent)
}

// text escapes what YAML does not allow in a file. JSON would have characters
// beyond \uffff escaped in two halves, which YAML does not know, so they stay.
func (e *encoder) text(s string) {
	if !utf8.ValidString(s) {
		e.fault("want UTF-8 text; binary data goes into cloud-init as base64")
		return
	}
	e.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			e.b.WriteByte('\\')
			e.b.WriteRune(r)
		case r == '\n':
			e.b.WriteString(`\n`)
		case unicode.IsPrint(r) || r > 0xffff:
			e.b.WriteRune(r)
		default:
			fmt.Fprintf(&e.b, `\u%04x`, r)
		}
	}
	e.b.WriteByte('"')
}

func (e *encoder) list(v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		e.fault("%s: want text; binary data goes into cloud-init as base64", v.Type())
		return
	}
	e.b.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			e.b.WriteString(", ")
		}
		e.below(step{into: reflect.Slice, index: i}, v.Index(i))
	}
	e.b.WriteByte(']')
}

func (e *encoder) mapping(v reflect.Value) {
	values := make(map[string]reflect.Value, v.Len())
	keys := make([]string, 0, v.Len())
	for iter := v.MapRange(); iter.Next(); {
		key := iter.Key()
		if key.Kind() == reflect.Interface {
			key = key.Elem()
		}
		if key.Kind() != reflect.String {
			e.fault("a key that is %s: want text", kindOf(key))
			continue
		}
		if _, twice := values[key.String()]; twice {
			e.fault("two keys %q, of different types: want each key once", key.String())
			continue
		}
		keys = append(keys, key.String())
		values[key.String()] = iter.Value()
	}
	slices.Sort(keys)
	e.b.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			e.b.WriteString(", ")
		}
		before := e.b.Len()
		e.text(key)
		if e.b.Len()-before > maxKey {
			e.fault("a key of %d bytes: want at most %d", len(key), maxKey)
			continue
		}
		e.b.WriteString(": ")
		e.below(step{into: reflect.Map, key: key}, values[key])
	}
	e.b.WriteByte('}')
}

func kindOf(v reflect.Value) string {
	if !v.IsValid() {
		return "nil"
	}
	return v.Type().String()
}
