package provisioner

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/juju/errors"
)

// recordOf is what is written down about a new instance (IC5).
func recordOf(q StartRequest, result StartResult) InstanceRecord {
	rec := InstanceRecord{
		Machine:     q.Machine,
		Instance:    result.Instance,
		DisplayName: result.DisplayName,
		Nonce:       q.Nonce,
		Zone:        cmp.Or(result.Zone, q.Zone),
		Hardware:    result.Hardware,
		Network:     result.Network,
		Volumes:     result.Volumes,
		Attachments: result.Attachments,
		Profiles:    result.Profiles,
	}
	if rec.Profiles == nil {
		rec.Profiles = q.Profiles
	}
	return rec
}

// oddResult is what is wrong with a broker's result, all of it, or nil. Nothing
// of such a result is recorded: its instance is stopped, and the start tried
// again (ST9).
func oddResult(q StartRequest, result StartResult) error {
	var f faults
	if result.Instance == "" {
		f.add("instance %q: want an id", "")
	}
	f.text(nil, "instance", string(result.Instance))
	f.text(nil, "DisplayName", result.DisplayName)
	if q.Zone != "" && result.Zone != "" && result.Zone != q.Zone {
		f.add("zone %q: want %q, as asked", string(result.Zone), string(q.Zone))
	}
	f.text(nil, "zone", string(result.Zone))
	f.hardware(q, result)
	for n, i := range result.Network {
		f.network(&spot{list: "Network", n: n, name: i.Name}, i)
	}
	f.madeVolumes(q.Volumes, result.Volumes)
	f.madeAttachments(q.Attachments, result.Attachments)
	f.profiles(result.Profiles)
	if f == nil {
		return nil
	}
	err := errors.NotValidf("start of machine %s: the broker's result: %s:", q.Machine, strings.Join(f, "; "))
	if result.Instance == "" {
		err = errors.WithType(err, errNoInstance)
	}
	return err
}

// errNoInstance is what a result without an instance is: whether one was made,
// it does not tell.
const errNoInstance = errors.ConstError("no instance in the broker's result")

func (f *faults) hardware(q StartRequest, result StartResult) {
	h := result.Hardware
	if err := h.Validate(); err != nil {
		f.add("Hardware: %s", textOfNotValid(err))
	}
	if asked := q.Constraints.Arch; asked != "" && h.Arch != "" && h.Arch != asked {
		f.add("Hardware.Arch %q: want %q, as asked", h.Arch, asked)
	}
	for _, n := range []struct {
		field string
		value *uint64
	}{{"Cores", h.Cores}, {"Mem", h.Mem}, {"RootDisk", h.RootDisk}} {
		if n.value != nil && *n.value == 0 {
			f.add("Hardware.%s 0: want 1 or more, or nil if it is not known", n.field)
		}
	}
	if zone := string(cmp.Or(result.Zone, q.Zone)); zone != "" && h.AvailabilityZone != "" && h.AvailabilityZone != zone {
		f.add("Hardware.AvailabilityZone %q: want %q, the zone of the result", h.AvailabilityZone, zone)
	}
}

func (f *faults) network(s *spot, i NetworkInterface) {
	f.text(s, "Name", i.Name)
	if i.MAC != "" && !isMAC(i.MAC) {
		f.at(s, "MAC %q: want 6, 8 or 20 bytes in hexadecimal with colons between them", i.MAC)
	}
	for n, a := range i.Addresses {
		if !isAddress(a) {
			if _, err := netip.ParsePrefix(a); err != nil {
				f.at(s, "Addresses[%d] %q: want an IP address, with or without its prefix length", n, a)
			}
		}
	}
	if i.Gateway != "" && !isAddress(i.Gateway) {
		f.at(s, "Gateway %q: want an IP address", i.Gateway)
	}
	for n, a := range i.DNSServers {
		if !isAddress(a) {
			f.at(s, "DNSServers[%d] %q: want an IP address", n, a)
		}
	}
	f.text(s, "Space", i.Space)
	f.text(s, "Subnet", i.Subnet)
}

// isAddress: netip takes anything for the zone of an address.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil && printable(s)
}

func isMAC(s string) bool {
	parts := strings.Split(s, ":")
	for _, p := range parts {
		if len(p) != 2 || strings.Trim(p, "0123456789abcdefABCDEF") != "" {
			return false
		}
	}
	return len(parts) == 6 || len(parts) == 8 || len(parts) == 20
}

// madeVolumes: a volume that was asked for may be missing, for brokers make
// some only later.
func (f *faults) madeVolumes(asked []Volume, made []VolumeResult) {
	for n, v := range made {
		s := &spot{list: "Volumes", n: n, name: v.Volume}
		switch i := slices.IndexFunc(asked, func(a Volume) bool { return a.ID == v.Volume }); {
		case i < 0:
			f.at(s, "Volume %q: want one that was asked for", v.Volume)
		case v.SizeM != 0 && v.SizeM < asked[i].SizeM:
			f.at(s, "SizeM %d: want %d or more, as asked, or 0 if it is not known", v.SizeM, asked[i].SizeM)
		}
		if slices.ContainsFunc(made[:n], func(other VolumeResult) bool { return other.Volume == v.Volume }) {
			f.at(s, "Volume %q: want each volume once", v.Volume)
		}
		f.name(s, "VolumeID", v.VolumeID, "the broker's id of the volume")
		if slices.ContainsFunc(made[:n], func(other VolumeResult) bool { return other.VolumeID == v.VolumeID }) {
			f.at(s, "VolumeID %q: want each volume of the broker once", v.VolumeID)
		}
		f.text(s, "HardwareID", v.HardwareID)
		f.text(s, "WWN", v.WWN)
	}
}

func (f *faults) madeAttachments(asked []VolumeAttachment, made []VolumeAttachmentResult) {
	for n, a := range made {
		s := &spot{list: "Attachments", n: n, name: a.Volume}
		if !slices.ContainsFunc(asked, func(x VolumeAttachment) bool { return x.Volume == a.Volume }) {
			f.at(s, "Volume %q: want one that was asked for", a.Volume)
		}
		if slices.ContainsFunc(made[:n], func(other VolumeAttachmentResult) bool { return other.Volume == a.Volume }) {
			f.at(s, "Volume %q: want each volume attached once", a.Volume)
		}
		f.text(s, "DeviceName", a.DeviceName)
		f.text(s, "DeviceLink", a.DeviceLink)
		f.text(s, "BusAddress", a.BusAddress)
		f.text(s, "PlanType", a.PlanType)
	}
}
