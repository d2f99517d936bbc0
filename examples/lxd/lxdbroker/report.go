package lxdbroker

import (
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
)

// report tells what came of a start. The instance runs, so nothing that
// cannot be read here is an error; it is left out.
func (b *Broker) report(ctx context.Context, req provisioner.StartRequest, spec newInstance, volumes []volume) provisioner.StartResult {
	result := provisioner.StartResult{
		Instance: provisioner.InstanceID(spec.Name), DisplayName: spec.Name,
		Zone: req.Zone, Profiles: spec.Profiles,
	}
	for _, v := range volumes {
		result.Volumes = append(result.Volumes, provisioner.VolumeResult{
			Volume: v.id, VolumeID: v.String(), SizeM: v.sizeM, Persistent: true,
		})
	}
	for _, a := range req.Attachments {
		result.Attachments = append(result.Attachments, provisioner.VolumeAttachmentResult{
			Volume: a.Volume, DeviceName: deviceName(a), DeviceLink: spec.Devices[deviceName(a)]["path"], ReadOnly: a.ReadOnly,
		})
	}
	there, _, err := b.instance(ctx, spec.Name)
	if err != nil {
		return result
	}
	if zoneOf, err := b.zoneNames(ctx); err == nil {
		result.Zone = zoneOf(there.Location)
	}
	result.Profiles = there.Profiles
	result.Hardware = hardware(there)
	result.Hardware.AvailabilityZone = string(result.Zone)
	if hasNIC(there.ExpandedDevices) {
		result.Network = b.addresses(ctx, spec.Name)
	}
	return result
}

func hardware(i instance) constraints.Hardware {
	h := constraints.Hardware{
		Arch: hostArch(i.Architecture), VirtType: i.Type,
		Cores: cores(i.ExpandedConfig["limits.cpu"]),
		Mem:   sizeM(i.ExpandedConfig["limits.memory"]),
	}
	for _, d := range i.ExpandedDevices {
		if d["type"] == "disk" && d["path"] == "/" {
			h.RootDiskSource, h.RootDisk = d["pool"], sizeM(d["size"])
		}
	}
	return h
}

// archs are LXD's words for architectures, by the library's.
var archs = map[string]string{
	"amd64": "x86_64", "arm64": "aarch64", "armhf": "armv7l",
	"i386": "i686", "ppc64el": "ppc64le", "s390x": "s390x", "riscv64": "riscv64",
}

func lxdArch(arch string) string { return cmp.Or(archs[arch], arch) }

func hostArch(arch string) string {
	for host, lxd := range archs {
		if lxd == arch {
			return host
		}
	}
	return arch
}

// cores counts what limits.cpu allows: "2", or pinned ones, "0-3,5". Nil is
// not known, which without a limit means all of the member's.
func cores(limit string) *uint64 {
	if n, err := strconv.ParseUint(limit, 10, 32); err == nil {
		return &n
	}
	var count uint64
	for part := range strings.SplitSeq(limit, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseUint(first, 10, 32)
		to := from
		if isRange && err == nil {
			to, err = strconv.ParseUint(last, 10, 32)
		}
		if err != nil || to < from {
			return nil
		}
		count += to - from + 1
	}
	return &count
}

var size = regexp.MustCompile(`^([0-9]+)([kKMGTPE]?)(i?)B?$`)

// sizeM reads a size as LXD writes them ("512MiB", "10GB", bytes) into MiB.
// Nil is not known; that includes parts of the member's memory ("50%").
func sizeM(s string) *uint64 {
	m := size.FindStringSubmatch(s)
	if m == nil {
		return nil
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return nil
	}
	unit := 1000.0
	if m[3] != "" {
		unit = 1024
	}
	if m[2] != "" {
		for range strings.Index("KMGTPE", strings.ToUpper(m[2])) + 1 {
			n *= unit
		}
	}
	mib := uint64(n / (1 << 20))
	return &mib
}

func hasNIC(devices map[string]map[string]string) bool {
	for _, d := range devices {
		if d["type"] == "nic" {
			return true
		}
	}
	return false
}

// instanceState is what LXD tells of a running instance.
type instanceState struct {
	Network map[string]struct {
		Addresses []struct {
			Family  string `json:"family"`
			Address string `json:"address"`
			Netmask string `json:"netmask"` // the prefix's length
			Scope   string `json:"scope"`
		} `json:"addresses"`
		MAC  string `json:"hwaddr"`
		Type string `json:"type"`
	} `json:"network"`
}

// addresses waits for the first address and returns every interface.
func (b *Broker) addresses(ctx context.Context, name string) []provisioner.NetworkInterface {
	deadline := time.Now().Add(max(b.cfg.AddressWait, 0))
	for {
		var state instanceState
		if _, err := b.lxd.get(ctx, instancePath(name)+"/state", nil, &state); err != nil {
			return nil
		}
		nics, ready := interfaces(state)
		if ready || !time.Now().Before(deadline) {
			return nics
		}
		select {
		case <-ctx.Done():
			return nics
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// interfaces gives the interfaces by name, and whether one has an address
// that isn't the IPv6 one that every interface gives itself.
func interfaces(state instanceState) (nics []provisioner.NetworkInterface, ready bool) {
	for _, name := range slices.Sorted(maps.Keys(state.Network)) {
		n := state.Network[name]
		if n.Type == "loopback" {
			continue
		}
		nic := provisioner.NetworkInterface{Name: name, MAC: n.MAC}
		for _, a := range n.Addresses {
			ready = ready || a.Family == "inet" || a.Scope == "global"
			nic.Addresses = append(nic.Addresses, a.Address+"/"+a.Netmask)
		}
		nics = append(nics, nic)
	}
	return nics, ready
}
