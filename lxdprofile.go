package provisioner

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/juju/errors"
)

// ProfilePrefix begins the names of LXD profiles unless a host chooses another.
const ProfilePrefix = "juju"

// A ProfileName is the name of an LXD profile that an application brings, in
// its parts: <prefix>-<model>-<application>-<revision> (LX1).
type ProfileName struct {
	Prefix      string // ProfilePrefix by default
	Model       string
	Application string
	Revision    int // of the charm; never negative
}

// Validate checks the parts. Prefix, model and application are made of
// letters, digits, '.', '_' and '-' and begin with a letter or a digit; an
// application does not end with '-'. The error satisfies NotValid and names
// the part.
func (n ProfileName) Validate() error {
	const want = "want letters, digits, '.', '_' or '-' that begin with a letter or digit:"
	switch {
	case !validTop(n.prefix()):
		return errors.NotValidf("profile prefix %q: "+want, n.Prefix)
	case !validTop(n.Model):
		return errors.NotValidf("profile model %q: "+want, n.Model)
	case !validTop(n.Application):
		return errors.NotValidf("profile application %q: "+want, n.Application)
	case strings.HasSuffix(n.Application, "-"):
		return errors.NotValidf("profile application %q: want no '-' at the end:", n.Application)
	case n.Revision < 0:
		return errors.NotValidf("profile revision %d: want 0 or more:", n.Revision)
	}
	return nil
}

// String joins the parts, whether they are valid or not.
func (n ProfileName) String() string {
	return n.prefix() + "-" + n.Model + "-" + n.Application + "-" + strconv.Itoa(n.Revision)
}

func (n ProfileName) prefix() string { return cmp.Or(n.Prefix, ProfilePrefix) }

// A ProfileNaming is what a host knows about the names of its profiles. The
// zero value knows the default prefix and nothing else: names are then read by
// their form, which leaves open where a model's name ends and the
// application's begins (see [ProfileNaming.Parse]).
type ProfileNaming struct {
	Prefix       string   // ProfilePrefix by default
	Model        string   // empty: not known
	Applications []string // empty: not known
}

// Validate checks what is known, with the errors of [ProfileName.Validate].
func (k ProfileNaming) Validate() error {
	for _, application := range append([]string{"a"}, k.Applications...) {
		if err := (ProfileName{k.Prefix, cmp.Or(k.Model, "m"), application, 0}).Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Name builds the name of an application's profile. It needs the model, and
// fails with the errors of [ProfileName.Validate]; an application that is not
// among the known ones is NotValid too.
func (k ProfileNaming) Name(application string, revision int) (string, error) {
	n := ProfileName{k.Prefix, k.Model, application, revision}
	if err := n.Validate(); err != nil {
		return "", err
	}
	if len(k.Applications) > 0 && !slices.Contains(k.Applications, application) {
		return "", errors.NotValidf("profile application %q: want one of the model's:", application)
	}
	return n.String(), nil
}

// Parse splits a name into its parts, or says by a NotValid error why it is
// not the name of an application's profile. In order:
//
//   - the prefix and a '-' are at the beginning
//   - the revision is what follows the last '-': digits without a leading zero
//   - a known model is at the beginning of what is left, with a '-' after it
//   - without a known model, of the known applications the longest that ends
//     what is left is the application
//   - known applications hold the application
//   - without both, the form decides, and that is a guess: the model is as
//     short as it can be while each part of the application between '-' has a
//     letter, and the first begins with one. "juju-a-b-c-1" is b-c of model a,
//     though it may be c of model a-b; "juju-a-b-2", the profile of a model
//     called a-b-2, passes for revision 2 of b
func (k ProfileNaming) Parse(name string) (ProfileName, error) {
	n := ProfileName{Prefix: cmp.Or(k.Prefix, ProfilePrefix)}
	rest, ok := strings.CutPrefix(name, n.Prefix+"-")
	if !ok {
		return ProfileName{}, errors.NotValidf("profile name %q: want it to begin with %q:", name, n.Prefix+"-")
	}
	owner, revision, err := splitRevision(rest)
	if err != nil {
		return ProfileName{}, errors.Annotatef(err, "profile name %q", name)
	}
	n.Revision = revision
	if n.Model, n.Application, ok = k.splitOwner(owner); !ok {
		return ProfileName{}, errors.NotValidf("profile name %q: %q: want %s:", name, owner, k.wanted())
	}
	if err := n.Validate(); err != nil {
		return ProfileName{}, errors.Annotatef(err, "profile name %q", name)
	}
	return n, nil
}

// splitRevision cuts the last part off, which is the same whatever a model and
// an application are called.
func splitRevision(s string) (before string, revision int, err error) {
	i := strings.LastIndexByte(s, '-')
	if i >= 0 && validNumber(s[i+1:]) {
		if revision, err := strconv.Atoi(s[i+1:]); err == nil {
			return s[:i], revision, nil
		}
	}
	return "", 0, errors.NotValidf("revision %q: want a number without leading zeros after the last '-':", s[i+1:])
}

// splitOwner splits model and application by what is known.
func (k ProfileNaming) splitOwner(owner string) (model, application string, ok bool) {
	if k.Model != "" {
		application, ok = strings.CutPrefix(owner, k.Model+"-")
		return k.Model, application, ok && (len(k.Applications) == 0 || slices.Contains(k.Applications, application))
	}
	if len(k.Applications) == 0 {
		return guessOwner(owner)
	}
	for _, known := range k.Applications {
		before, ends := strings.CutSuffix(owner, "-"+known)
		if ends && (!ok || len(known) > len(application)) {
			model, application, ok = before, known, true
		}
	}
	return model, application, ok
}

// guessOwner goes from the right to the left as long as the parts could be an
// application's.
func guessOwner(owner string) (model, application string, ok bool) {
	for end := len(owner); ; {
		i := strings.LastIndexByte(owner[:end], '-')
		if i < 0 || !strings.ContainsFunc(owner[i+1:end], isLetter) {
			return model, application, ok
		}
		if isLetter(rune(owner[i+1])) {
			model, application, ok = owner[:i], owner[i+1:], true
		}
		end = i
	}
}

func isLetter(c rune) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func (k ProfileNaming) wanted() string {
	model := "a model"
	if k.Model != "" {
		model = strconv.Quote(k.Model)
	}
	if len(k.Applications) > 0 {
		return model + ", '-' and one of the model's applications"
	}
	return model + ", '-' and an application"
}

// WithRevision returns the name with another revision in the place of its own.
// The revision is split off by Parse, and its errors are returned; a negative
// revision is NotValid.
func (k ProfileNaming) WithRevision(name string, revision int) (string, error) {
	n, err := k.Parse(name)
	if err != nil {
		return "", err
	}
	n.Revision = revision
	if err := n.Validate(); err != nil {
		return "", err
	}
	return n.String(), nil
}

// Filter returns the names that Parse accepts, in order and each once: of a
// name given twice the last place counts, as it does for LXD, where later
// profiles override earlier ones. names is not changed.
func (k ProfileNaming) Filter(names []string) []string {
	var valid []string
	seen := map[string]bool{}
	for _, name := range slices.Backward(names) {
		if _, err := k.Parse(name); err == nil && !seen[name] {
			seen[name] = true
			valid = append(valid, name)
		}
	}
	slices.Reverse(valid)
	return valid
}

// Pick returns the application's profile among the names: the last that Parse
// gives to the application, and "" if there is none. Where no applications are
// known, the one asked for is taken as known: without a model, "compute" then
// picks "juju-m-nova-compute-1" too.
func (k ProfileNaming) Pick(names []string, application string) string {
	if len(k.Applications) == 0 {
		k.Applications = []string{application}
	}
	for _, name := range slices.Backward(names) {
		if n, err := k.Parse(name); err == nil && n.Application == application {
			return name
		}
	}
	return ""
}

// A ProfileDiff is one step from the profiles that an instance has to those
// that it should have.
type ProfileDiff struct {
	Old string // goes; empty: New is added after all others
	New string // takes the place of Old; empty: Old is removed
}

// DiffProfiles returns the steps from the profiles that an instance has to
// those that are wanted. In order:
//
//   - only names that Parse accepts count: a profile that is not an
//     application's ("default", the model's own) is neither added nor removed
//   - of a name given twice, and of an application wanted twice, the last
//     place counts
//   - a profile that is there and wanted stays
//   - another revision of a wanted profile is replaced; of several the last,
//     which is the one in force
//   - what else is there is removed
//   - what else is wanted is added
//
// Replacements and removals come first, in the order of have, then additions
// in that of want. To tell revisions of one application nothing need be known:
// all before the revision is the same. The arguments are not changed.
func DiffProfiles(known ProfileNaming, have, want []string) []ProfileDiff {
	have, want = known.Filter(have), known.Filter(want)
	inForce, goal := lastByOwner(have), lastByOwner(want)
	var diffs []ProfileDiff
	for _, old := range have {
		owner := profileOwner(old)
		wanted := goal[owner]
		switch {
		case old == wanted:
		case wanted == "" || old != inForce[owner] || slices.Contains(have, wanted):
			diffs = append(diffs, ProfileDiff{Old: old})
		default:
			diffs = append(diffs, ProfileDiff{Old: old, New: wanted})
		}
	}
	for _, name := range want {
		owner := profileOwner(name)
		if name == goal[owner] && inForce[owner] == "" {
			diffs = append(diffs, ProfileDiff{New: name})
		}
	}
	return diffs
}

// profileOwner is a valid name without its revision.
func profileOwner(name string) string { return name[:strings.LastIndexByte(name, '-')] }

func lastByOwner(names []string) map[string]string {
	last := map[string]string{}
	for _, name := range names {
		last[profileOwner(name)] = name
	}
	return last
}

// Status words of a profile change's document (LX8). An empty one says that
// nothing has been done yet.
const (
	ProfileSuccess      = "Success"
	ProfileNotRequired  = "Not Required"  // the machine is dead or has no instance
	ProfileNotKnown     = "Not known"     // it could not be told
	ProfileNotSupported = "Not Supported" // the broker has no profiles
)

const profileError = "Error: "

// ProfileError is the status word for a change that failed; "" for nil.
func ProfileError(cause error) string {
	if cause == nil {
		return ""
	}
	return profileError + cause.Error()
}

// ProfileFinished says whether a status word means that nothing is left to be
// done: Success, Not Required, Not Supported.
func ProfileFinished(status string) bool {
	return status == ProfileSuccess || status == ProfileNotRequired || status == ProfileNotSupported
}

// ProfileTerminal says whether a status word means that nothing more will be
// done by itself: finished, or an error.
func ProfileTerminal(status string) bool {
	return ProfileFinished(status) || strings.HasPrefix(status, profileError)
}
