package provisioner_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// fullInfo is information of machine 1 in which everything is set, and valid.
func fullInfo() provisioner.StartInfo {
	c, err := constraints.Parse("arch=arm64 cores=2 mem=8G root-disk=20G zones=a,b tags=ssd,^old spaces=db,^public virt-type=kvm")
	if err != nil {
		panic(err)
	}
	return provisioner.StartInfo{
		Constraints: c,
		Instance: instancecfg.Info{
			ControllerID: "ctl-1", Stream: "released", Base: "ubuntu@24.04", AgentVersion: "3.6.1",
			APIAddresses: []string{"10.0.0.1:17070", "[fd00::1]:17070"},
			Tags:         map[string]string{"owner": "team a"},
			UserData:     instancecfg.Hide(map[string]any{"packages": []any{"curl"}}),
		},
		Placement: "zone=a",
		Group:     provisioner.Group{Key: "db", Members: []provisioner.MachineID{"1", "2"}},
		RootDisk:  &provisioner.RootDisk{Source: "fast", SizeM: 20480},
		Volumes: []provisioner.Volume{
			{ID: "7", SizeM: 1024, Provider: "ebs", Attributes: map[string]string{"type": "ssd"}, Tags: map[string]string{"owner": "db"}},
			{ID: "8", SizeM: 1024},
		},
		Attachments: []provisioner.VolumeAttachment{
			{Volume: "8", Machine: "1"},
			{Volume: "7", Machine: "1", Provider: "ebs", ReadOnly: true},
			{Volume: "9", VolumeID: "vol-9", Machine: "1"},
		},
		Subnets: []provisioner.SpaceSubnets{
			{Space: "public", Subnets: []provisioner.SubnetZones{{Subnet: "192.0.2.0/24"}}},
			{Space: "db", Subnets: []provisioner.SubnetZones{
				{Subnet: "10.1.0.0/16", Zones: []provisioner.ZoneName{"b", "a"}}, {Subnet: "10.0.0.0/16", Zones: []provisioner.ZoneName{"a"}}}},
		},
		EndpointBind: map[string]string{"": "db", "website": "public"},
		Images: []provisioner.ImageMetadata{
			{ID: "img-arm", Arch: "arm64", Base: "ubuntu@24.04", Stream: "released", Region: "r1", VirtType: "kvm", RootStorage: "ssd", RootSizeM: 8192},
			{ID: "img-amd", Arch: "amd64"},
		},
		Agents: []provisioner.AgentBinary{
			{Version: "3.6.1", Arch: "amd64", URL: "https://agents.invalid/amd64"},
			{Version: "3.6.1", Base: "ubuntu@24.04", Arch: "arm64", URL: "https://agents.invalid/arm64", SHA256: "00", Size: 1},
		},
		Profiles: []string{"default", "juju-m-app-1"},
	}
}

// IC2, IC4: what is valid has no fault, and the zero value is.
func TestStartInfoValidate(t *testing.T) {
	info := fullInfo()
	for why, i := range map[string]*provisioner.StartInfo{"everything": &info, "nothing": {}} {
		if err := i.Validate("1"); err != nil {
			t.Errorf("%s: %v", why, err)
		}
	}
	if diff := cmp.Diff(fullInfo(), info); diff != "" {
		t.Errorf("Validate has changed what it was given (-want +got):\n%s", diff)
	}
}

// IC2, IC4: each fault, with its message in full.
func TestStartInfoFaults(t *testing.T) {
	type (
		info   = provisioner.StartInfo
		vol    = provisioner.Volume
		att    = provisioner.VolumeAttachment
		space  = provisioner.SpaceSubnets
		subnet = provisioner.SubnetZones
		zones  = []provisioner.ZoneName
	)
	attached := func(vs ...vol) info {
		i := info{Volumes: vs}
		seen := map[string]bool{}
		for _, v := range vs {
			if !seen[v.ID] {
				i.Attachments = append(i.Attachments, att{Volume: v.ID, Machine: "1"})
			}
			seen[v.ID] = true
		}
		return i
	}
	tests := []struct {
		why  string
		info info
		want string // between "start information of machine 1: " and ": not valid"
	}{
		{"IC6: constraints that could not have been parsed", info{Constraints: constraints.Value{Tags: []string{"a", "^a"}, Arch: "\n"}},
			`Constraints: constraints: arch: want printable UTF-8 text; tags: "a": both asked for and to be avoided`},
		{"ST10: a nonce of the host's", info{Nonce: "nonsense"}, `Instance: instance config of machine "1": Nonce "nonsense": want <host tag>:<uuid>`},
		{"IC1: the instance config", info{Instance: instancecfg.Info{Base: "\t", APIAddresses: []string{"here"}}},
			`Instance: instance config of machine "1": Base "\t": want printable text; APIAddresses[0] "here": want host:port`},
		{"IC2: placement", info{Placement: "zone=\x00"}, `Placement "zone=\x00": want printable text`},
		{"IC2: root disk", info{RootDisk: &provisioner.RootDisk{Source: "\xff"}}, `RootDisk.Source "\xff": want printable text`},

		{"IC4: a volume needs an attachment", info{Volumes: []vol{{ID: "7", SizeM: 1}}}, `Volumes[0] "7": Attachments: want one of this volume`},
		{"IC4: a volume needs an id", attached(vol{SizeM: 1}),
			`Volumes[0] "": ID "": want the host's id of a volume, in printable text; Attachments[0] "": Volume "": want the host's id of a volume, in printable text`},
		{"IC4: a volume twice", attached(vol{ID: "7", SizeM: 1}, vol{ID: "7", SizeM: 2}), `Volumes[1] "7": ID "7": want each volume once`},
		{"IC2: a volume without a size", attached(vol{ID: "7"}), `Volumes[0] "7": SizeM 0: want 1 MiB or more`},
		{"IC2: a volume's provider", attached(vol{ID: "7", SizeM: 1, Provider: "\n"}), `Volumes[0] "7": Provider "\n": want printable text`},
		{"IC2: a volume's attributes", attached(vol{ID: "7", SizeM: 1, Attributes: map[string]string{"": "x"}}), `Volumes[0] "7": Attributes[""]: want a key`},
		{"IC2: a volume's tags", attached(vol{ID: "7", SizeM: 1, Tags: map[string]string{"": "x"}}), `Volumes[0] "7": Tags[""]: want a key`},

		{"IC4: an attachment of another machine", info{Attachments: []att{{Volume: "9", VolumeID: "vol-9", Machine: "2"}}},
			`Attachments[0] "9": Machine "2": want "1", which it is for`},
		{"IC4: an attachment of no machine", info{Attachments: []att{{Volume: "9", VolumeID: "vol-9"}}}, `Attachments[0] "9": Machine "": want "1", which it is for`},
		{"IC4: an attachment to an instance", info{Attachments: []att{{Volume: "9", VolumeID: "vol-9", Machine: "1", Instance: "i-0"}}},
			`Attachments[0] "9": Instance "i-0": want none: there is none yet`},
		{"IC4: a volume that exists needs its id", info{Attachments: []att{{Volume: "9", Machine: "1"}}},
			`Attachments[0] "9": VolumeID "": want the broker's id of a volume that exists, or the volume in Volumes`},
		{"IC4: one that does not exist has none", info{Volumes: []vol{{ID: "7", SizeM: 1}}, Attachments: []att{{Volume: "7", VolumeID: "vol-7", Machine: "1"}}},
			`Attachments[0] "7": VolumeID "vol-7": want none: the volume is in Volumes, to be made`},
		{"IC4: a volume attached twice", info{Attachments: []att{{Volume: "9", VolumeID: "a", Machine: "1"}, {Volume: "9", VolumeID: "b", Machine: "1"}}},
			`Attachments[1] "9": Volume "9": want each volume attached once`},
		{"IC4: a volume of the broker attached twice", info{Attachments: []att{{Volume: "9", VolumeID: "a", Machine: "1"}, {Volume: "10", VolumeID: "a", Machine: "1"}}},
			`Attachments[1] "10": VolumeID "a": want each volume of the broker once`},
		{"IC2: an attachment's texts", info{Attachments: []att{{Volume: "9", VolumeID: "\n", Machine: "1", Provider: "\t"}}},
			`Attachments[0] "9": VolumeID "\n": want printable text; Attachments[0] "9": Provider "\t": want printable text`},

		{"IC2: a space without a name", info{Subnets: []space{{}}}, `Subnets[0] "": Space "": want a space's name, in printable text`},
		{"IC2: a space twice", info{Subnets: []space{{Space: "db"}, {Space: "db"}}}, `Subnets[1] "db": Space "db": want each space once`},
		{"IC2: a subnet without a name", info{Subnets: []space{{Space: "db", Subnets: []subnet{{}}}}},
			`Subnets[0] "db": Subnets[0] "": Subnet "": want a subnet, in printable text`},
		{"IC2: a subnet twice", info{Subnets: []space{{Space: "db", Subnets: []subnet{{Subnet: "n"}, {Subnet: "n"}}}}},
			`Subnets[0] "db": Subnets[1] "n": Subnet "n": want each subnet of a space once`},
		{"IC2: a zone without a name", info{Subnets: []space{{Space: "db", Subnets: []subnet{{Subnet: "n", Zones: zones{"a", ""}}}}}},
			`Subnets[0] "db": Subnets[0] "n": Zones[1] "": want a zone's name, in printable text`},
		{"IC2: a zone twice", info{Subnets: []space{{Space: "db", Subnets: []subnet{{Subnet: "n", Zones: zones{"a", "a"}}}}}},
			`Subnets[0] "db": Subnets[0] "n": Zones[1] "a": want each zone once`},

		{"IC2: endpoints bound to nothing, in order", info{EndpointBind: map[string]string{"web": "", "db": "\n", "ok": "s"}},
			`EndpointBind["db"] "\n": want a space's name, and both in printable text; EndpointBind["web"] "": want a space's name, and both in printable text`},
		{"IC2: an image without an id", info{Images: []provisioner.ImageMetadata{{ID: "a"}, {Arch: "amd64"}}}, `Images[1] "": ID "": want an image's id, in printable text`},
		{"IC2: profiles that have no name", info{Profiles: []string{"", "a b", "a/b", "a\n", "ok"}},
			`Profiles[0] "": want a profile's name, in printable text without blanks and slashes; Profiles[1] "a b": want a profile's name, in printable text without blanks and slashes; ` +
				`Profiles[2] "a/b": want a profile's name, in printable text without blanks and slashes; Profiles[3] "a\n": want a profile's name, in printable text without blanks and slashes`},
		{"IC2: a profile twice", info{Profiles: []string{"default", "default"}}, `Profiles[1] "default": want each profile once`},
		{"all faults at once", info{
			Constraints: constraints.Value{Zones: []string{""}}, Instance: instancecfg.Info{Jobs: []instancecfg.Job{"dig"}}, Placement: "\n",
			Volumes: []vol{{ID: "7"}}, Attachments: []att{{Volume: "9", Machine: "2"}}, Subnets: []space{{}}, Profiles: []string{""},
		}, `Constraints: constraints: zones: item "": want names with a comma between them; Instance: instance config of machine "1": Jobs[0] "dig": want host-units or manage-model; ` +
			`Placement "\n": want printable text; Volumes[0] "7": SizeM 0: want 1 MiB or more; Volumes[0] "7": Attachments: want one of this volume; ` +
			`Attachments[0] "9": Machine "2": want "1", which it is for; Attachments[0] "9": VolumeID "": want the broker's id of a volume that exists, or the volume in Volumes; ` +
			`Subnets[0] "": Space "": want a space's name, in printable text; Profiles[0] "": want a profile's name, in printable text without blanks and slashes`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			err := test.info.Validate("1")
			if !errors.Is(err, errors.NotValid) {
				t.Fatalf("got %v, want a NotValid error", err)
			}
			if diff := cmp.Diff("start information of machine 1: "+test.want+": not valid", err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
