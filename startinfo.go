package provisioner

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// What the host tells about a start is checked once, as a whole, before the
// first attempt: what is wrong with it no attempt can mend (ST15).

// Validate returns nil, or a NotValid error that names every fault of what the
// start of the machine would carry: the field, its value, and what was
// expected (IC2, IC4). It changes nothing. A host may call it where such
// information comes in; a Task does so before each start. In order:
//
//   - Constraints and Instance, as their own packages check them; Nonce, if
//     there is one, has a host tag and more
//   - Placement and RootDisk.Source are printable text
//   - a volume has an id of its own, a size and an attachment
//   - an attachment names its volume, once, and this machine, and no instance;
//     that of a volume that exists names the broker's id for it, once, and
//     that of one in Volumes names none
//   - a space is given once, and so are its subnets and their zones
//   - an endpoint is bound to a space, an image has an id, and a profile a
//     name without blanks or slashes, each once
//
// Group and Agents are not looked at: members that do not exist count for
// nothing, and which agents will do is for [ChooseAgents] to say.
func (i *StartInfo) Validate(machine MachineID) error {
	nonce := "host:nonce"
	if i.Nonce != "" {
		nonce = i.Nonce
	}
	_, err := i.config(machine, nonce)
	return err
}

// config checks the information and makes the instance config of it.
func (i *StartInfo) config(machine MachineID, nonce string) (instancecfg.Config, error) {
	var f faults
	if err := i.Constraints.Validate(); err != nil {
		f.add("Constraints: %s", textOfNotValid(err))
	}
	config, err := instancecfg.New(string(machine), nonce, i.Instance, instancecfg.Auth{})
	if err != nil {
		f.add("Instance: %s", textOfNotValid(err))
	}
	f.text(nil, "Placement", i.Placement)
	if i.RootDisk != nil {
		f.text(nil, "RootDisk.Source", i.RootDisk.Source)
	}
	f.volumes(i.Volumes, i.Attachments)
	f.attachments(machine, i.Volumes, i.Attachments)
	f.subnets(i.Subnets)
	f.endpoints(i.EndpointBind)
	for n, image := range i.Images {
		f.name(&spot{list: "Images", n: n, name: image.ID}, "ID", image.ID, "an image's id")
	}
	f.profiles(i.Profiles)
	if f != nil {
		return instancecfg.Config{}, errors.NotValidf("start information of machine %s: %s:", machine, strings.Join(f, "; "))
	}
	return config, nil
}

// settle makes of the information what the attempts are given: all of it is
// valid, subnets are ordered by space, and of images and agents those are left
// that will do. lookup says that agents are still to be looked up.
func (i *StartInfo) settle(machine MachineID, nonce string, lookup bool) (instancecfg.Config, error) {
	config, err := i.config(machine, nonce)
	if err != nil {
		return config, err
	}
	bySpace := func(a, b SpaceSubnets) int { return strings.Compare(a.Space, b.Space) }
	if !slices.IsSortedFunc(i.Subnets, bySpace) {
		i.Subnets = slices.Clone(i.Subnets)
		slices.SortFunc(i.Subnets, bySpace)
	}
	if len(i.Images) > 0 {
		if i.Images, err = ChooseImages(i.Images, i.imageQuery()); err != nil {
			return config, err
		}
	}
	if i.needsAgent() && !lookup {
		i.Agents, err = ChooseAgents(i.Agents, i.agentQuery())
	}
	return config, err
}

// faults are what is wrong with one machine's information, or with a result.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// at adds a fault of one field of an entry of a list.
func (f *faults) at(s *spot, format string, args ...any) {
	*f = append(*f, s.text()+fmt.Sprintf(format, args...))
}

// A spot is an entry of a list, by its place and name. Its text is made only
// for a fault.
type spot struct {
	in   *spot
	list string
	n    int
	name string
}

func (s *spot) text() string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s%s[%d] %q: ", s.in.text(), s.list, s.n, s.name)
}

// text: it is printable, or empty.
func (f *faults) text(s *spot, field, value string) {
	if !printable(value) {
		f.at(s, "%s %q: want printable text", field, value)
	}
}

// name: it is printable, and not empty.
func (f *faults) name(s *spot, field, value, want string) {
	if value == "" || !printable(value) {
		f.at(s, "%s %q: want %s, in printable text", field, value, want)
	}
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// textOfNotValid is the text of an error without the class at its end, for a
// list of faults that has one itself.
func textOfNotValid(err error) string {
	return strings.TrimSuffix(err.Error(), ": "+string(errors.NotValid))
}

func (f *faults) volumes(volumes []Volume, attachments []VolumeAttachment) {
	for n, v := range volumes {
		s := &spot{list: "Volumes", n: n, name: v.ID}
		f.name(s, "ID", v.ID, "the host's id of a volume")
		if slices.ContainsFunc(volumes[:n], func(other Volume) bool { return other.ID == v.ID }) {
			f.at(s, "ID %q: want each volume once", v.ID)
		}
		if v.SizeM == 0 {
			f.at(s, "SizeM 0: want 1 MiB or more")
		}
		f.text(s, "Provider", v.Provider)
		if has(v.Attributes, "") {
			f.at(s, `Attributes[""]: want a key`)
		}
		if has(v.Tags, "") {
			f.at(s, `Tags[""]: want a key`)
		}
		if !slices.ContainsFunc(attachments, func(a VolumeAttachment) bool { return a.Volume == v.ID }) {
			f.at(s, "Attachments: want one of this volume")
		}
	}
}

func (f *faults) attachments(machine MachineID, volumes []Volume, attachments []VolumeAttachment) {
	for n, a := range attachments {
		s := &spot{list: "Attachments", n: n, name: a.Volume}
		f.name(s, "Volume", a.Volume, "the host's id of a volume")
		if slices.ContainsFunc(attachments[:n], func(other VolumeAttachment) bool { return other.Volume == a.Volume }) {
			f.at(s, "Volume %q: want each volume attached once", a.Volume)
		}
		if a.Machine != machine {
			f.at(s, "Machine %q: want %q, which it is for", string(a.Machine), string(machine))
		}
		if a.Instance != "" {
			f.at(s, "Instance %q: want none: there is none yet", string(a.Instance))
		}
		f.text(s, "VolumeID", a.VolumeID)
		f.text(s, "Provider", a.Provider)
		isNew := slices.ContainsFunc(volumes, func(v Volume) bool { return v.ID == a.Volume })
		switch {
		case isNew && a.VolumeID != "":
			f.at(s, "VolumeID %q: want none: the volume is in Volumes, to be made", a.VolumeID)
		case !isNew && a.VolumeID == "":
			f.at(s, `VolumeID "": want the broker's id of a volume that exists, or the volume in Volumes`)
		case !isNew && slices.ContainsFunc(attachments[:n], func(other VolumeAttachment) bool { return other.VolumeID == a.VolumeID }):
			f.at(s, "VolumeID %q: want each volume of the broker once", a.VolumeID)
		}
	}
}

func (f *faults) subnets(spaces []SpaceSubnets) {
	for n, space := range spaces {
		s := &spot{list: "Subnets", n: n, name: space.Space}
		f.name(s, "Space", space.Space, "a space's name")
		if slices.ContainsFunc(spaces[:n], func(other SpaceSubnets) bool { return other.Space == space.Space }) {
			f.at(s, "Space %q: want each space once", space.Space)
		}
		for k, subnet := range space.Subnets {
			s := &spot{in: s, list: "Subnets", n: k, name: subnet.Subnet}
			f.name(s, "Subnet", subnet.Subnet, "a subnet")
			if slices.ContainsFunc(space.Subnets[:k], func(other SubnetZones) bool { return other.Subnet == subnet.Subnet }) {
				f.at(s, "Subnet %q: want each subnet of a space once", subnet.Subnet)
			}
			for z, zone := range subnet.Zones {
				if zone == "" || !printable(string(zone)) {
					f.at(s, "Zones[%d] %q: want a zone's name, in printable text", z, string(zone))
				}
				if slices.Contains(subnet.Zones[:z], zone) {
					f.at(s, "Zones[%d] %q: want each zone once", z, string(zone))
				}
			}
		}
	}
}

// endpoints: the empty endpoint is for those that are not named.
func (f *faults) endpoints(bound map[string]string) {
	var bad []string
	for endpoint, space := range bound {
		if space == "" || !printable(space) || !printable(endpoint) {
			bad = append(bad, endpoint)
		}
	}
	slices.Sort(bad)
	for _, endpoint := range bad {
		f.add("EndpointBind[%q] %q: want a space's name, and both in printable text", endpoint, bound[endpoint])
	}
}

func (f *faults) profiles(names []string) {
	for n, name := range names {
		if name == "" || !printable(name) || strings.ContainsAny(name, " /") {
			f.add("Profiles[%d] %q: want a profile's name, in printable text without blanks and slashes", n, name)
		}
		if slices.Contains(names[:n], name) {
			f.add("Profiles[%d] %q: want each profile once", n, name)
		}
	}
}
