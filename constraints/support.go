package constraints

import (
	"strings"

	"github.com/juju/errors"
)

// Support says what a broker can do with constraints. Its zero value supports
// every key together with every other.
type Support struct {
	Unsupported Keys
	Conflicts   []Conflict
}

// A Conflict says that no key of A can be asked for together with one of B.
type Conflict struct{ A, B Keys }

// A SupportError names the constraints that a broker cannot meet. It satisfies
// NotValid of github.com/juju/errors. A host that only warns of unsupported
// keys can take it with errors.As and go on with Value.Without.
type SupportError struct {
	Unsupported Keys
	Conflicts   []Conflict // just the keys that are asked for
}

// Error names each key and what is wrong with it.
func (e *SupportError) Error() string {
	var faults []string
	if e.Unsupported != 0 {
		faults = append(faults, e.Unsupported.String()+": not supported by the broker")
	}
	for _, c := range e.Conflicts {
		faults = append(faults, c.A.String()+": cannot be asked for together with "+c.B.String())
	}
	return "constraints: " + strings.Join(faults, "; ")
}

// Is makes the error a NotValid one.
func (e *SupportError) Is(target error) bool { return target == errors.NotValid }

// Check returns a *SupportError if v asks for what the broker does not
// support, and nil otherwise. Cleared keys ask for nothing.
func (s Support) Check(v Value) error {
	asked := v.Asked()
	e := &SupportError{Unsupported: asked & s.Unsupported}
	for _, c := range s.Conflicts {
		if a, b := asked&c.A, asked&c.B; a != 0 && b != 0 {
			e.Conflicts = append(e.Conflicts, Conflict{a, b})
		}
	}
	if e.Unsupported == 0 && e.Conflicts == nil {
		return nil
	}
	return e
}

// Merge is v.Merge(fallback), save that a key of fallback that conflicts with
// one v asks for is left out: who asks for an instance type does not want the
// memory that the fallback asks for.
func (s Support) Merge(v, fallback Value) Value {
	asked := v.Asked()
	var out Keys
	for _, c := range s.Conflicts {
		if asked&c.A != 0 {
			out |= c.B
		}
		if asked&c.B != 0 {
			out |= c.A
		}
	}
	return v.Merge(fallback.Without(out))
}
