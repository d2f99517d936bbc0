package provisioner

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/juju/errors"
)

// What the error matches when no candidate will do; it goes with a
// *NoMatchError.
const (
	ErrNoAgents = errors.ConstError("no matching agent binaries available")
	ErrNoImages = errors.ConstError("no matching images available")
)

// A NoMatchError is why none of the candidates will do.
type NoMatchError struct {
	Cause  error   // ErrNoAgents or ErrNoImages
	Want   string  // what was looked for: "version 3.6.1, base ubuntu@24.04, arch amd64"
	Out    []Unfit // the first 64 candidates, in the order in which they were given
	Others int     // how many more there were
}

// An Unfit is one candidate, and why it will not do.
type Unfit struct {
	Candidate string
	Reason    string // each thing that is not as wanted, and what was
}

// Error gives the cause in one line, as a status shows it (IC3).
func (e *NoMatchError) Error() string { return e.Cause.Error() }

// Unwrap gives the cause.
func (e *NoMatchError) Unwrap() error { return e.Cause }

// Table shows what was wanted and each candidate with what is not so, a line
// each, for a person.
func (e *NoMatchError) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: wanted %s\n", e.Cause, cmp.Or(e.Want, "any"))
	for _, x := range e.Out {
		fmt.Fprintf(&b, "  %s: %s\n", x.Candidate, x.Reason)
	}
	switch {
	case e.Others > 0:
		fmt.Fprintf(&b, "  %d others\n", e.Others)
	case len(e.Out) == 0:
		b.WriteString("  there are none\n")
	}
	return b.String()
}

// DefaultArch is the architecture of agents where none is asked for (IC3).
const DefaultArch = "amd64"

// ChooseAgents returns those of the agent binaries that the query asks for, in
// the order given. A binary must be of the version, base and architecture of
// the query; an empty field of either side is not compared, save that a query
// without an architecture is for amd64. If none will do, the error is a
// *NoMatchError that says of each why not, and matches ErrNoAgents. all is not
// changed.
func ChooseAgents(all []AgentBinary, q AgentQuery) ([]AgentBinary, error) {
	q.Arch = cmp.Or(q.Arch, DefaultArch)
	name := func(a AgentBinary) string {
		return cmp.Or(a.URL, strings.TrimSpace(a.Version+" "+a.Base+" "+a.Arch))
	}
	return choose(all, ErrNoAgents, name, func(a AgentBinary) aspects {
		return aspects{{"version", a.Version, q.Version}, {"base", a.Base, q.Base}, {"arch", a.Arch, q.Arch}}
	})
}

// An ImageQuery says which images would do. An empty field asks for nothing.
type ImageQuery struct {
	ID          string
	Arch        string
	Base        string
	Stream      string
	Region      string
	VirtType    string
	RootStorage string
}

// ChooseImages returns those of the images that the query asks for, in the
// order given. An empty field of either side is not compared. If none will do,
// the error is a *NoMatchError that says of each why not, and matches
// ErrNoImages. all is not changed.
//
// A Task has chosen by what the machine's information says: image id,
// architecture and virtualisation of its constraints, base and stream. Region
// and root storage are for the broker to choose by.
func ChooseImages(all []ImageMetadata, q ImageQuery) ([]ImageMetadata, error) {
	name := func(i ImageMetadata) string { return i.ID }
	return choose(all, ErrNoImages, name, func(i ImageMetadata) aspects {
		return aspects{{"id", i.ID, q.ID}, {"arch", i.Arch, q.Arch}, {"base", i.Base, q.Base}, {"stream", i.Stream, q.Stream},
			{"region", i.Region, q.Region}, {"virt type", i.VirtType, q.VirtType}, {"root storage", i.RootStorage, q.RootStorage}}
	})
}

// aspects are what a candidate is chosen by. Those that are not used are empty.
type aspects [7]aspect

type aspect struct{ name, have, want string }

func (a aspect) fits() bool { return a.have == "" || a.want == "" || a.have == a.want }

// unfit is each aspect that is not as wanted.
func (all aspects) unfit() (reasons []string) {
	for _, a := range all {
		if !a.fits() {
			reasons = append(reasons, fmt.Sprintf("%s %s, want %s", a.name, a.have, a.want))
		}
	}
	return reasons
}

func (all aspects) fit() bool {
	for _, a := range all {
		if !a.fits() {
			return false
		}
	}
	return true
}

// wanted is what is asked for.
func (all aspects) wanted() string {
	var wanted []string
	for _, a := range all {
		if a.want != "" {
			wanted = append(wanted, a.name+" "+a.want)
		}
	}
	return strings.Join(wanted, ", ")
}

func choose[C any](all []C, none error, name func(C) string, by func(C) aspects) ([]C, error) {
	fit := make([]C, 0, len(all))
	for _, candidate := range all {
		if by(candidate).fit() {
			fit = append(fit, candidate)
		}
	}
	if len(fit) > 0 {
		return fit, nil
	}
	e := &NoMatchError{Cause: none, Want: by(*new(C)).wanted(), Others: max(0, len(all)-maxHistory)}
	for _, candidate := range all[:len(all)-e.Others] {
		e.Out = append(e.Out, Unfit{name(candidate), strings.Join(by(candidate).unfit(), "; ")})
	}
	return nil, e
}

// needsAgent: a machine whose information names no agent version needs no
// agent binaries.
func (i *StartInfo) needsAgent() bool { return i.Instance.AgentVersion != "" }

func (i *StartInfo) agentQuery() AgentQuery {
	return AgentQuery{Version: i.Instance.AgentVersion, Base: i.Instance.Base, Arch: cmp.Or(i.Constraints.Arch, DefaultArch)}
}

// imageQuery: an image must be able to run the agent, if there is one.
func (i *StartInfo) imageQuery() ImageQuery {
	q := ImageQuery{ID: i.Constraints.ImageID, Arch: i.Constraints.Arch, Base: i.Instance.Base, Stream: i.Instance.Stream, VirtType: i.Constraints.VirtType}
	if q.Arch == "" && i.needsAgent() {
		q.Arch = DefaultArch
	}
	return q
}
