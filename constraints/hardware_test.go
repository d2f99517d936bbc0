package constraints_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/constraints"
)

const hardwareKeys = "arch, cores, mem, root-disk, root-disk-source, tags, availability-zone, virt-type"

func TestHardware(t *testing.T) {
	tests := []struct {
		why, in string
		want    constraints.Hardware
		out     string // empty: the same as in
	}{
		{why: "nothing known", in: ""},
		{why: "every key", in: "arch=amd64 cores=2 mem=4096M root-disk=10240M root-disk-source=remote tags=a,b availability-zone=az1 virt-type=kvm",
			want: constraints.Hardware{Arch: "amd64", Cores: ptr[uint64](2), Mem: ptr[uint64](4096), RootDisk: ptr[uint64](10240),
				RootDiskSource: "remote", Tags: []string{"a", "b"}, AvailabilityZone: "az1", VirtType: "kvm"}},
		{why: "any order; sizes print in M", in: "availability-zone=az1 mem=4G arch=arm64", out: "arch=arm64 mem=4096M availability-zone=az1",
			want: constraints.Hardware{Arch: "arm64", Mem: ptr[uint64](4096), AvailabilityZone: "az1"}},
		{why: "a zone with a blank", in: `availability-zone="east wing"`,
			want: constraints.Hardware{AvailabilityZone: "east wing"}},
		{why: "a container tells zeros", in: "arch=amd64 cores=0 mem=0M",
			want: constraints.Hardware{Arch: "amd64", Cores: ptr[uint64](0), Mem: ptr[uint64](0)}},
		{why: "an empty zone is not known", in: "arch=amd64 availability-zone=", out: "arch=amd64",
			want: constraints.Hardware{Arch: "amd64"}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, err := constraints.ParseHardware(test.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			out := test.out
			if out == "" {
				out = test.in
			}
			if diff := cmp.Diff(out, got.String()); diff != "" {
				t.Error(diff)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHardwareFaults(t *testing.T) {
	tests := []struct{ why, in, want string }{
		{"unknown key", "zones=a", `hardware: "zones": unknown key: want one of ` + hardwareKeys + `: not valid`},
		{"a key twice", "arch=a arch=a", `hardware: arch: given twice: want it once: not valid`},
		{"all faults at once", "mem=much cores=-1 tags=a,", `hardware: mem "much": want a size such as 512, 512M, 8G, 1.5T or 1P; ` +
			`cores "-1": want a whole number; tags "a,": item "": want names with a comma between them: not valid`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			_, err := constraints.ParseHardware(test.in)
			if err == nil || !errors.Is(err, errors.NotValid) {
				t.Fatalf("not a NotValid error: %v", err)
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseKnownHardware(t *testing.T) {
	got, unknown, err := constraints.ParseKnownHardware(`arch=amd64 cpu-power=100 gpu="two of them" mem=1G`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(constraints.Hardware{Arch: "amd64", Mem: ptr[uint64](1024)}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"cpu-power", "gpu"}, unknown); diff != "" {
		t.Error(diff)
	}
	if _, _, err := constraints.ParseKnownHardware("cpu-power=1 mem=x"); err == nil {
		t.Error("known keys are read as strictly as by ParseHardware, but there was no error")
	}
}

func TestHardwareValidate(t *testing.T) {
	err := constraints.Hardware{AvailabilityZone: "a\tb", Tags: []string{""}}.Validate()
	const want = `hardware: tags: item "": want names with a comma between them; availability-zone: want printable UTF-8 text: not valid`
	if err == nil || !errors.Is(err, errors.NotValid) {
		t.Fatalf("not a NotValid error: %v", err)
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseHardware(f *testing.F) {
	for _, seed := range []string{
		"", "arch=amd64 cores=2 mem=4096M availability-zone=az1", `availability-zone="east wing"`, "availability-zone=",
		"arch=amd64 cores=48 mem=257024M root-disk=1.5T tags=a,b cpu-power=3", `tags="a\,b"`, "mem=0M virt-type==",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := constraints.ParseHardware(s)
		known, unknown, knownErr := constraints.ParseKnownHardware(s)
		if err != nil {
			if knownErr == nil && len(unknown) == 0 {
				t.Fatalf("only ParseHardware fails, though no key is unknown: %v", err)
			}
			return
		}
		if diff := cmp.Diff(h, known); knownErr != nil || diff != "" || len(unknown) > 0 {
			t.Fatalf("ParseKnownHardware differs: %v %q %s", knownErr, unknown, diff)
		}
		again, err := constraints.ParseHardware(h.String())
		if err != nil {
			t.Fatalf("%q prints as %q: %v", s, h, err)
		}
		if diff := cmp.Diff(h, again); diff != "" {
			t.Fatalf("%q prints as %q: %s", s, h, diff)
		}
	})
}
