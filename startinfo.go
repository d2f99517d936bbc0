package provisioner

import (
	"fmt"
	"maps"
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
//   - Constraints and Instance, as their own packages check them
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
	_, err := i.config(machine, "host:nonce")
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
	f.text("Placement", i.Placement)
	if i.RootDisk != nil {
		f.text("RootDisk.Source", i.RootDisk.Source)
	}
	f.volumes(i.Volumes, i.Attachments)
	f.attachments(machine, i.Volumes, i.Attachments)
	f.subnets(i.Subnets)
	for _, endpoint := range slices.Sorted(maps.Keys(i.EndpointBind)) {
		f.name(fmt.Sprintf("EndpointBind[%q]", endpoint), i.EndpointBind[endpoint], "a space's name")
	}
	for n, image := range i.Images {
		f.name(fmt.Sprintf("Images[%d].ID", n), image.ID, "an image's id")
	}
	f.profiles("Profiles", i.Profiles)
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
		i.Subnets = slices.SortedFunc(slices.Values(i.Subnets), bySpace)
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

// text: it is printable, or empty.
func (f *faults) text(field, value string) {
	if !printable(value) {
		f.add("%s %q: want printable text", field, value)
	}
}

// name: it is printable, and not empty.
func (f *faults) name(field, value, want string) {
	if value == "" || !printable(value) {
		f.add("%s %q: want %s, in printable text", field, value, want)
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
		at := fmt.Sprintf("Volumes[%d] %q: ", n, v.ID)
		f.name(at+"ID", v.ID, "the host's id of a volume")
		if slices.ContainsFunc(volumes[:n], func(other Volume) bool { return other.ID == v.ID }) {
			f.add("%sID %q: want each volume once", at, v.ID)
		}
		if v.SizeM == 0 {
			f.add("%sSizeM 0: want 1 MiB or more", at)
		}
		f.text(at+"Provider", v.Provider)
		if has(v.Attributes, "") {
			f.add("%sAttributes[\"\"]: want a key", at)
		}
		if has(v.Tags, "") {
			f.add("%sTags[\"\"]: want a key", at)
		}
		if !slices.ContainsFunc(attachments, func(a VolumeAttachment) bool { return a.Volume == v.ID }) {
			f.add("%sAttachments: want one of this volume", at)
		}
	}
}

func (f *faults) attachments(machine MachineID, volumes []Volume, attachments []VolumeAttachment) {
	for n, a := range attachments {
		at := fmt.Sprintf("Attachments[%d] %q: ", n, a.Volume)
		f.name(at+"Volume", a.Volume, "the host's id of a volume")
		if slices.ContainsFunc(attachments[:n], func(other VolumeAttachment) bool { return other.Volume == a.Volume }) {
			f.add("%sVolume %q: want each volume attached once", at, a.Volume)
		}
		if a.Machine != machine {
			f.add("%sMachine %q: want %q, which it is for", at, string(a.Machine), string(machine))
		}
		if a.Instance != "" {
			f.add("%sInstance %q: want none: there is none yet", at, string(a.Instance))
		}
		f.text(at+"VolumeID", a.VolumeID)
		f.text(at+"Provider", a.Provider)
		isNew := slices.ContainsFunc(volumes, func(v Volume) bool { return v.ID == a.Volume })
		switch {
		case isNew && a.VolumeID != "":
			f.add("%sVolumeID %q: want none: the volume is in Volumes, to be made", at, a.VolumeID)
		case !isNew && a.VolumeID == "":
			f.add("%sVolumeID \"\": want the broker's id of a volume that exists, or the volume in Volumes", at)
		case !isNew && slices.ContainsFunc(attachments[:n], func(other VolumeAttachment) bool { return other.VolumeID == a.VolumeID }):
			f.add("%sVolumeID %q: want each volume of the broker once", at, a.VolumeID)
		}
	}
}

func (f *faults) subnets(spaces []SpaceSubnets) {
	for n, s := range spaces {
		at := fmt.Sprintf("Subnets[%d] %q: ", n, s.Space)
		f.name(at+"Space", s.Space, "a space's name")
		if slices.ContainsFunc(spaces[:n], func(other SpaceSubnets) bool { return other.Space == s.Space }) {
			f.add("%sSpace %q: want each space once", at, s.Space)
		}
		for k, subnet := range s.Subnets {
			at := fmt.Sprintf("%sSubnets[%d] %q: ", at, k, subnet.Subnet)
			f.name(at+"Subnet", subnet.Subnet, "a subnet")
			if slices.ContainsFunc(s.Subnets[:k], func(other SubnetZones) bool { return other.Subnet == subnet.Subnet }) {
				f.add("%sSubnet %q: want each subnet of a space once", at, subnet.Subnet)
			}
			for z, zone := range subnet.Zones {
				f.name(fmt.Sprintf("%sZones[%d]", at, z), string(zone), "a zone's name")
				if slices.Contains(subnet.Zones[:z], zone) {
					f.add("%sZones[%d] %q: want each zone once", at, z, string(zone))
				}
			}
		}
	}
}

func (f *faults) profiles(field string, names []string) {
	for n, name := range names {
		if name == "" || !printable(name) || strings.ContainsAny(name, " /") {
			f.add("%s[%d] %q: want a profile's name, in printable text without blanks and slashes", field, n, name)
		}
		if slices.Contains(names[:n], name) {
			f.add("%s[%d] %q: want each profile once", field, n, name)
		}
	}
}
