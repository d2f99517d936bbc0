// Package constraints holds what a machine asks of its instance, and the
// hardware that it got.
//
// Both are written as keys and values, in any order:
//
//	arch=amd64 cores=2 mem=8G zones=a,"east wing" spaces=db,^public
//
// A value with blanks stands in double quotes, a list has commas between its
// items, and a backslash takes the meaning from the comma, quote or backslash
// that follows it. Everything is printable UTF-8. JSON and other text formats
// hold the same string.
//
// All functions may be called from several goroutines at once.
package constraints

import "strings"

// A Value says what an instance must be like. Its zero value asks for nothing;
// a nil pointer or an empty field is not asked for.
type Value struct {
	Arch             string
	Container        string
	Cores            *uint64
	Mem              *uint64 // MiB
	RootDisk         *uint64 // MiB
	RootDiskSource   string
	Tags             []string // "^t" is one to avoid
	Spaces           []string // "^s" is one to avoid
	Zones            []string
	InstanceType     string
	VirtType         string
	ImageID          string
	AllocatePublicIP *bool

	// Cleared holds the keys that were given an empty value ("mem="): nothing
	// is asked for, and a fallback does not fill it in. Brokers need not look
	// at it.
	Cleared Keys
}

// The order is that of the bits of Keys.
var values = table[Value]{what: "constraints", size: FormatSize, fields: []field[Value]{
	{"arch", word, func(v *Value) any { return &v.Arch }},
	{"cores", count, func(v *Value) any { return &v.Cores }},
	{"mem", size, func(v *Value) any { return &v.Mem }},
	{"root-disk", size, func(v *Value) any { return &v.RootDisk }},
	{"root-disk-source", word, func(v *Value) any { return &v.RootDiskSource }},
	{"zones", list, func(v *Value) any { return &v.Zones }},
	{"tags", signedList, func(v *Value) any { return &v.Tags }},
	{"spaces", signedList, func(v *Value) any { return &v.Spaces }},
	{"instance-type", word, func(v *Value) any { return &v.InstanceType }},
	{"virt-type", word, func(v *Value) any { return &v.VirtType }},
	{"container", word, func(v *Value) any { return &v.Container }},
	{"image-id", word, func(v *Value) any { return &v.ImageID }},
	{"allocate-public-ip", flag, func(v *Value) any { return &v.AllocatePublicIP }},
}}

// Parse reads constraints. A key without a value ("mem=") is put into Cleared.
// An error satisfies NotValid of github.com/juju/errors and names every fault:
// malformed values, unknown keys, keys given twice.
func Parse(s string) (Value, error) {
	v, unknown, faults := parseValue(s)
	return v, values.notValid(append(faults, values.unknownKeys(unknown)...))
}

// ParseKnown is Parse for what others have written: keys that this package
// does not know are returned, in order, and are no fault.
func ParseKnown(s string) (v Value, unknown []string, err error) {
	v, unknown, faults := parseValue(s)
	return v, unknown, values.notValid(faults)
}

func parseValue(s string) (v Value, unknown, faults []string) {
	v, empty, unknown, faults := values.parse(s)
	v.Cleared = Keys(empty)
	return v, unknown, faults
}

// Validate says what Parse could not have made: lists with empty or
// contradicting items, text that cannot be printed, keys that are both set and
// cleared. The error satisfies NotValid and names every fault.
func (v Value) Validate() error {
	if v.Cleared == 0 && v.Arch+v.Container+v.RootDiskSource+v.InstanceType+v.VirtType+v.ImageID == "" &&
		v.Tags == nil && v.Spaces == nil && v.Zones == nil {
		return nil // the usual case, without the allocations of the others
	}
	return v.validate()
}

func (v Value) validate() error {
	faults := values.check(&v)
	if both := v.Cleared & v.Asked(); both != 0 {
		faults = append(faults, both.String()+": both set and cleared")
	}
	return values.notValid(faults)
}

// String gives the constraints as Parse reads them, in a fixed order, sizes in
// the largest unit that is exact. Parse(v.String()) is v again if v is valid.
func (v Value) String() string { return values.print(&v, uint(v.Cleared)) }

// MarshalText gives the constraints as String does, or Validate's error.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), v.Validate() }

// UnmarshalText reads the constraints as Parse does. On error v is unchanged.
func (v *Value) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*v = parsed
	}
	return err
}

// Asked returns the keys that v asks something of.
func (v Value) Asked() Keys { return Keys(values.set(&v)) }

// Without returns v without the given keys: they are neither asked for nor
// cleared. It shares no memory with v.
func (v Value) Without(keys Keys) Value {
	out := Value{Cleared: v.Cleared &^ keys}
	values.copy(&out, &v, ^uint(keys))
	return out
}

// Merge returns v with what it does not ask for taken from fallback, key by
// key: a list is taken whole or not at all, and what v has cleared stays so.
// It shares no memory with either.
func (v Value) Merge(fallback Value) Value {
	out := v.Without(0)
	mine := v.Asked() | v.Cleared
	out.Cleared |= fallback.Cleared &^ mine
	values.copy(&out, &fallback, ^uint(mine))
	return out
}

// Keys is a set of keys of constraints.
type Keys uint16

// The keys.
const (
	KeyArch Keys = 1 << iota
	KeyCores
	KeyMem
	KeyRootDisk
	KeyRootDiskSource
	KeyZones
	KeyTags
	KeySpaces
	KeyInstanceType
	KeyVirtType
	KeyContainer
	KeyImageID
	KeyAllocatePublicIP
)

// Has says whether all of keys is in the set.
func (k Keys) Has(keys Keys) bool { return k&keys == keys }

// String gives the names of the keys with commas between them.
func (k Keys) String() string {
	var names []string
	for i, f := range values.fields {
		if k&(1<<i) != 0 {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, ", ")
}
