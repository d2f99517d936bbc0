package constraints

import "strconv"

// Hardware is what an instance is like. A nil pointer or an empty field is
// not known.
type Hardware struct {
	Arch             string
	Cores            *uint64
	Mem              *uint64 // MiB
	RootDisk         *uint64 // MiB
	RootDiskSource   string
	Tags             []string
	AvailabilityZone string
	VirtType         string
}

var hardware = table[Hardware]{what: "hardware", size: inMiB, fields: []field[Hardware]{
	{"arch", word, func(h *Hardware) any { return &h.Arch }},
	{"cores", count, func(h *Hardware) any { return &h.Cores }},
	{"mem", size, func(h *Hardware) any { return &h.Mem }},
	{"root-disk", size, func(h *Hardware) any { return &h.RootDisk }},
	{"root-disk-source", word, func(h *Hardware) any { return &h.RootDiskSource }},
	{"tags", list, func(h *Hardware) any { return &h.Tags }},
	{"availability-zone", word, func(h *Hardware) any { return &h.AvailabilityZone }},
	{"virt-type", word, func(h *Hardware) any { return &h.VirtType }},
}}

// inMiB is how hardware prints sizes: what was measured is easier to compare
// in one unit.
func inMiB(n uint64) string { return strconv.FormatUint(n, 10) + "M" }

// ParseHardware reads hardware. A key without a value is not known. An error
// satisfies NotValid of github.com/juju/errors and names every fault:
// malformed values, unknown keys, keys given twice.
func ParseHardware(s string) (Hardware, error) {
	h, _, unknown, faults := hardware.parse(s)
	return h, hardware.notValid(append(faults, hardware.unknownKeys(unknown)...))
}

// ParseKnownHardware is ParseHardware for what others have written: keys that
// this package does not know (cpu-power is one that Juju prints) are returned,
// in order, and are no fault.
func ParseKnownHardware(s string) (h Hardware, unknown []string, err error) {
	h, _, unknown, faults := hardware.parse(s)
	return h, unknown, hardware.notValid(faults)
}

// Validate says what ParseHardware could not have made: lists with empty
// items, text that cannot be printed. The error satisfies NotValid and names
// every fault.
func (h Hardware) Validate() error {
	if h.Arch+h.RootDiskSource+h.AvailabilityZone+h.VirtType == "" && h.Tags == nil {
		return nil // without the allocations of the others
	}
	return h.validate()
}

func (h Hardware) validate() error { return hardware.notValid(hardware.check(&h)) }

// String gives the hardware as ParseHardware reads it, in a fixed order, sizes
// in M. ParseHardware(h.String()) is h again if h is valid.
func (h Hardware) String() string { return hardware.print(&h, 0) }

// MarshalText gives the hardware as String does, or Validate's error.
func (h Hardware) MarshalText() ([]byte, error) { return []byte(h.String()), h.Validate() }

// UnmarshalText reads the hardware as ParseHardware does. On error h is
// unchanged.
func (h *Hardware) UnmarshalText(text []byte) error {
	parsed, err := ParseHardware(string(text))
	if err == nil {
		*h = parsed
	}
	return err
}
