package instancecfg

import (
	"log/slog"
	"reflect"
)

// redacted stands for a secret wherever it is printed.
const redacted = "REDACTED"

// A Secret holds what must not be seen by accident. Printed, logged, or
// marshalled as JSON or text it is REDACTED, or empty if it holds nothing (with
// verbs that are not for text, an address); only Reveal gives what it holds. It
// cannot be read from JSON, so that what was redacted on the way out is not
// taken for a password on the way in. The zero value holds the zero value of T.
type Secret[T any] struct {
	// What a function gives, no printer can see. Others call no methods of what
	// is in an unexported field (fmt), or none if two texts are the same
	// (go-cmp), and follow pointers. A pointer to it, for == and map keys.
	held *func() T
}

// Hide returns a Secret that holds v.
func Hide[T any](v T) Secret[T] {
	if reflect.ValueOf(&v).Elem().IsZero() {
		return Secret[T]{}
	}
	held := func() T { return v }
	return Secret[T]{&held}
}

// Reveal returns what s holds. A map or slice is not copied.
func (s Secret[T]) Reveal() T {
	if s.held == nil {
		return *new(T)
	}
	return (*s.held)()
}

// IsZero says whether s holds the zero value of T.
func (s Secret[T]) IsZero() bool { return s.held == nil }

// Equal says whether both hold the same, by reflect.DeepEqual; go-cmp calls it.
// The operator ==, and reflect.DeepEqual of the secrets themselves, say only
// whether one is a copy of the other.
func (s Secret[T]) Equal(other Secret[T]) bool {
	return reflect.DeepEqual(s.Reveal(), other.Reveal())
}

// String returns REDACTED, or "" if s holds nothing.
func (s Secret[T]) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// GoString is String.
func (s Secret[T]) GoString() string { return s.String() }

// LogValue is String for slog.
func (s Secret[T]) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String, also for JSON.
func (s Secret[T]) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
