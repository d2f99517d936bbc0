// Package constraints holds what a machine asks of its instance, and the
// hardware that it got.
package constraints

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
}

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
