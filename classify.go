package provisioner

import (
	"cmp"
	"strings"

	"github.com/juju/errors"
)

// A MachineID names a machine record of the host.
//
// A top-level machine has a name of letters, digits, '.', '_' and '-' that
// begins with a letter or a digit ("0", "web-1"). A container has the form
// parent/type/number ("0/lxd/1", "1/kvm/0/lxd/2"): the type is made of
// lower-case letters and digits and begins with a letter, the number has no
// leading zero. Everything else is malformed.
type MachineID string

// An InstanceID names an instance of the broker. The empty id matches nothing.
type InstanceID string

// A ZoneName names an availability zone. Empty means "no zone".
type ZoneName string

// ParseMachineID returns s as a MachineID, or an error that satisfies
// errors.Is(err, errors.NotValid) of github.com/juju/errors and says what is
// wrong with it.
func ParseMachineID(s string) (MachineID, error) {
	id := MachineID(s)
	if err := id.Validate(); err != nil {
		return "", err
	}
	return id, nil
}

// Validate says whether the id is well formed; the error satisfies NotValid.
func (id MachineID) Validate() error {
	s := string(id)
	if s == "" {
		return errors.NotValidf("machine id %q: empty: want a name, or parent/type/number for a container:", s)
	}
	top, rest, container := strings.Cut(s, "/")
	if !validTop(top) {
		return errors.NotValidf("machine id %q: %q: want letters, digits, '.', '_' or '-' that begin with a letter or digit:", s, top)
	}
	for container {
		var kind, number string
		kind, rest, container = strings.Cut(rest, "/")
		if !container || !validContainerType(kind) {
			return errors.NotValidf("machine id %q: want parent/type/number, the type in lower-case letters and digits:", s)
		}
		number, rest, container = strings.Cut(rest, "/")
		if !validNumber(number) {
			return errors.NotValidf("machine id %q: %q: want a number without leading zeros:", s, number)
		}
	}
	return nil
}

func validTop(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return s != ""
}

func validContainerType(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func validNumber(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s == "0" || s != "" && s[0] != '0'
}

// IsContainer says whether the id is that of a container. It looks at the
// form only; what Validate rejects gives an answer without meaning.
func (id MachineID) IsContainer() bool { return strings.IndexByte(string(id), '/') >= 0 }

// Host returns the machine that a container runs on ("1/kvm/0" for
// "1/kvm/0/lxd/2"), and "" for a top-level machine.
func (id MachineID) Host() MachineID {
	i := strings.LastIndexByte(string(id), '/')
	if i < 0 {
		return ""
	}
	i = strings.LastIndexByte(string(id[:i]), '/')
	if i < 0 {
		return ""
	}
	return id[:i]
}

// Top returns the top-level machine that the id lies in: itself, unless it is
// a container's.
func (id MachineID) Top() MachineID {
	top, _, _ := strings.Cut(string(id), "/")
	return MachineID(top)
}

// depth is 0 for a top-level machine, 1 for a container on one, and so on.
func (id MachineID) depth() int { return strings.Count(string(id), "/") / 2 }

// Compare orders ids for people: numbers by value ("2" before "10"), a host
// before its containers, the rest by text. The order is total.
func (id MachineID) Compare(other MachineID) int {
	a, b := string(id), string(other)
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			ta, tb := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if c := cmp.Or(cmp.Compare(len(ta), len(tb)), strings.Compare(ta, tb)); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(string(id), string(other)))
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// Life is where a machine stands between its making and its end. The zero
// value, like every unknown one, is a fault of the record (CL10).
type Life string

// The values of Life.
const (
	Alive Life = "alive"
	Dying Life = "dying" // asked to go; its agent has not finished yet
	Dead  Life = "dead"  // nothing needs it any more
)

// Status is the host's word for the machine itself (its agent). Hosts invent
// their own; the provisioner knows these.
type Status string

// Statuses that the provisioner reads or writes.
const (
	StatusPending Status = "pending" // waits for an instance
	StatusStarted Status = "started" // its agent runs
	StatusError   Status = "error"   // needs a person, or a retry signal
	StatusDown    Status = "down"    // its agent is lost
)

// InstanceStatus is the host's word for a machine's instance. Hosts invent
// their own; the provisioner knows these.
type InstanceStatus string

// Instance statuses that the provisioner reads or writes.
const (
	InstanceAllocating        InstanceStatus = "allocating"
	InstanceRunning           InstanceStatus = "running"
	InstanceProvisioningError InstanceStatus = "provisioning error"
	InstanceError             InstanceStatus = "error"
)

// Fields is a set of fields of a Machine, for those that could not be read.
type Fields uint8

// The fields that can be unread on their own.
const (
	FieldInstance Fields = 1 << iota
	FieldStatus
	FieldInstanceStatus
	FieldKeep
)

// Has says whether all of f is in the set.
func (s Fields) Has(f Fields) bool { return s&f == f }

var fieldNames = [...]string{"instance", "status", "instance status", "keep"}

// String names the fields, separated by ", ".
func (s Fields) String() string {
	var names []string
	for i, name := range fieldNames {
		if s.Has(1 << i) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// MarshalText gives the fields as String does.
func (s Fields) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Machine is the host's record of one machine, as far as decisions need it:
// a small value, for a whole fleet of them is held in memory.
type Machine struct {
	ID   MachineID `json:"id"`
	Life Life      `json:"life,omitempty"`

	// Instance is what the machine is provisioned with; empty means that it
	// is not provisioned.
	Instance InstanceID `json:"instance,omitempty"`

	// Zone is where the instance runs. Empty is allowed; the broker's listing
	// then tells.
	Zone ZoneName `json:"zone,omitempty"`

	// Keep says that the instance outlives the record: it is never stopped.
	Keep bool `json:"keep,omitempty"`

	Status         Status         `json:"status,omitempty"`
	InstanceStatus InstanceStatus `json:"instanceStatus,omitempty"`

	// Unread names the fields above that could not be read. Their values are
	// not looked at.
	Unread Fields `json:"unread,omitempty"`
}

// A Class is what a machine needs.
type Class uint8

// The classes. The zero value asks for nothing.
const (
	ClassNone     Class = iota // nothing to do
	ClassPending               // needs an instance
	ClassDead                  // its instance and record are to go
	ClassMaintain              // a running container, for the broker's upkeep
)

// String returns the class in lower case: "none", "pending", "dead", "maintain".
func (c Class) String() string {
	switch c {
	case ClassNone:
		return "none"
	case ClassPending:
		return "pending"
	case ClassDead:
		return "dead"
	case ClassMaintain:
		return "maintain"
	}
	return "invalid"
}

// MarshalText gives the class as String does.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Classified is a class with its reason.
type Classified struct {
	Class  Class
	Reason string

	// EnsureDead: the host has to be asked to make the record dead before it
	// is removed (CL3).
	EnsureDead bool

	// LookAgain: what was needed could not be read, so look once more without
	// waiting for a change (CL8, CL9).
	LookAgain bool

	// Err is a fault of the record, or nil. It satisfies NotValid where the
	// record holds a value that has no meaning.
	Err error
}

// Classify sorts one machine by what it needs. In order:
//
//   - a malformed id or an unknown life is an error, whatever the rest says
//   - dead is Dead (CL1)
//   - an instance id that could not be read is an error (CL9)
//   - dying with an instance is None: its agent finishes first (CL2)
//   - dying without one is Dead, after the host has made it so (CL3)
//   - provisioned is Maintain for a container, else None (CL7)
//   - status pending is Pending (CL4)
//   - instance status allocating is Pending: a start that was cut short (CL5)
//   - a status that was needed and could not be read is None for now (CL8)
//   - anything else is None: it waits for a retry signal (CL6)
func Classify(m Machine) Classified {
	if err := m.ID.Validate(); err != nil {
		return Classified{Reason: "its id is malformed", Err: err}
	}
	switch m.Life {
	case Dead:
		return Classified{Class: ClassDead, Reason: "dead"}
	case Alive, Dying:
	default:
		return Classified{
			Reason: "its life is unknown",
			Err:    errors.NotValidf("machine %s: life %q: want alive, dying or dead:", m.ID, string(m.Life)),
		}
	}
	if m.Unread.Has(FieldInstance) {
		return Classified{
			Reason:    "its instance id could not be read",
			LookAgain: true,
			Err:       errors.Errorf("machine %s: instance id could not be read", m.ID),
		}
	}
	provisioned := m.Instance != ""
	if m.Life == Dying {
		if provisioned {
			return Classified{Reason: "dying: its agent finishes first"}
		}
		return Classified{Class: ClassDead, Reason: "dying and never provisioned", EnsureDead: true}
	}
	if provisioned {
		if m.ID.IsContainer() {
			return Classified{Class: ClassMaintain, Reason: "a provisioned container"}
		}
		return Classified{Reason: "provisioned"}
	}
	return classifyUnprovisioned(m)
}

func classifyUnprovisioned(m Machine) Classified {
	statusUnread := m.Unread.Has(FieldStatus)
	if !statusUnread && m.Status == StatusPending {
		return Classified{Class: ClassPending, Reason: "pending"}
	}
	if !m.Unread.Has(FieldInstanceStatus) && m.InstanceStatus == InstanceAllocating {
		return Classified{Class: ClassPending, Reason: "an earlier start was cut short"}
	}
	if statusUnread {
		return Classified{Reason: "its status could not be read", LookAgain: true}
	}
	if m.Unread.Has(FieldInstanceStatus) {
		return Classified{Reason: "its instance status could not be read", LookAgain: true}
	}
	return Classified{Reason: "not provisioned and not pending: waits for a retry signal"}
}
