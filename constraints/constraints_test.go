package constraints_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/constraints"
)

func ptr[T any](v T) *T { return &v }

const allKeys = "arch, cores, mem, root-disk, root-disk-source, zones, tags, spaces, " +
	"instance-type, virt-type, container, image-id, allocate-public-ip"

var full = constraints.Value{
	Arch: "amd64", Cores: ptr[uint64](2), Mem: ptr[uint64](8192), RootDisk: ptr[uint64](10240), RootDiskSource: "fast",
	Zones: []string{"a", "b"}, Tags: []string{"x"}, Spaces: []string{"s", "^t"},
	InstanceType: "m1.small", VirtType: "kvm", Container: "lxd", ImageID: "img-1", AllocatePublicIP: ptr(true),
}

const fullText = "arch=amd64 cores=2 mem=8G root-disk=10G root-disk-source=fast zones=a,b tags=x spaces=s,^t " +
	"instance-type=m1.small virt-type=kvm container=lxd image-id=img-1 allocate-public-ip=true"

// IC6
func TestParseAndString(t *testing.T) {
	tests := []struct {
		why, in string
		want    constraints.Value
		out     string // empty: the same as in
	}{
		{why: "nothing is asked for", in: ""},
		{why: "every key", in: fullText, want: full},
		{why: "any order and any blanks", in: " zones=a\t\ncores=1 ", out: "cores=1 zones=a",
			want: constraints.Value{Cores: ptr[uint64](1), Zones: []string{"a"}}},
		{why: "a size without a unit is in MiB", in: "mem=512 root-disk=2048", out: "mem=512M root-disk=2G",
			want: constraints.Value{Mem: ptr[uint64](512), RootDisk: ptr[uint64](2048)}},
		{why: "zero is a value", in: "cores=0 mem=0M",
			want: constraints.Value{Cores: ptr[uint64](0), Mem: ptr[uint64](0)}},
		{why: "a value with blanks is quoted", in: `zones="east wing,b" image-id="my image"`,
			want: constraints.Value{Zones: []string{"east wing", "b"}, ImageID: "my image"}},
		{why: "one item may be quoted", in: `zones=b,"east wing"`, out: `zones="b,east wing"`,
			want: constraints.Value{Zones: []string{"b", "east wing"}}},
		{why: "quotes that are not needed go", in: `arch="arm64"`, out: "arch=arm64",
			want: constraints.Value{Arch: "arm64"}},
		{why: "commas, quotes and backslashes in an item", in: `tags="a\,b,c\"d,e\\f"`,
			want: constraints.Value{Tags: []string{"a,b", `c"d`, `e\f`}}},
		{why: "an equals sign in a value", in: "instance-type=a=b",
			want: constraints.Value{InstanceType: "a=b"}},
		{why: "a comma in a value that is no list", in: "instance-type=a,b",
			want: constraints.Value{InstanceType: "a,b"}},
		{why: "negative spaces and tags", in: "tags=^gpu,ssd spaces=^public",
			want: constraints.Value{Tags: []string{"^gpu", "ssd"}, Spaces: []string{"^public"}}},
		{why: "false is a value", in: "allocate-public-ip=false",
			want: constraints.Value{AllocatePublicIP: ptr(false)}},
		{why: "an empty value asks for nothing", in: "mem= zones= allocate-public-ip=",
			want: constraints.Value{Cleared: constraints.KeyMem | constraints.KeyZones | constraints.KeyAllocatePublicIP}},
		{why: "quotes around nothing", in: `tags=""`, out: "tags=",
			want: constraints.Value{Cleared: constraints.KeyTags}},
		{why: "other alphabets", in: "zones=gebäude-ö,東",
			want: constraints.Value{Zones: []string{"gebäude-ö", "東"}}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, err := constraints.Parse(test.in)
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

// IC6: errors name the key and what was expected.
func TestParseFaults(t *testing.T) {
	const sizes = "want a size such as 512, 512M, 8G, 1.5T or 1P"
	tests := []struct{ why, in, want string }{
		{"no value", "arch", `constraints: "arch": want key=value: not valid`},
		{"unknown key", "cpu-power=100", `constraints: "cpu-power": unknown key: want one of ` + allKeys + `: not valid`},
		{"no key", "=x", `constraints: "": unknown key: want one of ` + allKeys + `: not valid`},
		{"keys have no upper case", "Mem=8G", `constraints: "Mem": unknown key: want one of ` + allKeys + `: not valid`},
		{"a key twice", "mem=1G mem=1G", `constraints: mem: given twice: want it once: not valid`},
		{"a key twice, once empty", "mem= mem=1G", `constraints: mem: given twice: want it once: not valid`},
		{"not a number", "cores=two", `constraints: cores "two": want a whole number: not valid`},
		{"negative", "cores=-1", `constraints: cores "-1": want a whole number: not valid`},
		{"too large a number", "cores=18446744073709551616", `constraints: cores "18446744073709551616": want a whole number: not valid`},
		{"cores have no unit", "cores=2G", `constraints: cores "2G": want a whole number: not valid`},
		{"wrong unit", "mem=8Q", `constraints: mem "8Q": ` + sizes + `: not valid`},
		{"lower case unit", "root-disk=8g", `constraints: root-disk "8g": ` + sizes + `: not valid`},
		{"too large a size", "mem=17179869184P", `constraints: mem "17179869184P": want less than 2^64 MiB: not valid`},
		{"not a boolean", "allocate-public-ip=yes", `constraints: allocate-public-ip "yes": want true or false: not valid`},
		{"an empty item", "zones=a,,b", `constraints: zones "a,,b": item "": want names with a comma between them: not valid`},
		{"nothing to avoid", "tags=^", `constraints: tags "^": item "^": want names with a comma between them: not valid`},
		{"avoided twice over", "tags=^^a", `constraints: tags "^^a": item "^^a": want a name that does not begin with ^: not valid`},
		{"zones cannot be avoided", "zones=^a", `constraints: zones "^a": item "^a": want a name that does not begin with ^: not valid`},
		{"asked for and avoided", "spaces=s,^s", `constraints: spaces "s,^s": "s": both asked for and to be avoided: not valid`},
		{"avoided and asked for", "tags=^s,s", `constraints: tags "^s,s": "s": both asked for and to be avoided: not valid`},
		{"an open quote", `arch=amd64 zones="east wing`, `constraints: "zones=\"east wing": want a closing double quote, and a character after each backslash: not valid`},
		{"a backslash at the end", `arch=\`, `constraints: "arch=\\": want a closing double quote, and a character after each backslash: not valid`},
		{"a control character", "arch=\x01", `constraints: arch "\x01": want printable UTF-8 text: not valid`},
		{"a line break in an item", "zones=\"a\nb\"", `constraints: zones "a\nb": want printable UTF-8 text: not valid`},
		{"not UTF-8", "arch=\xff", `constraints: want printable UTF-8 text: not valid`},
		{"all faults at once", "mem=x cpu=1 cores=y", `constraints: mem "x": ` + sizes + `; cores "y": want a whole number; "cpu": unknown key: want one of ` + allKeys + `: not valid`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, err := constraints.Parse(test.in)
			if err == nil {
				t.Fatalf("no error, but %q", got)
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Error(diff)
			}
			if !errors.Is(err, errors.NotValid) {
				t.Error("the error is not a NotValid one")
			}
		})
	}
}

func TestParseKnown(t *testing.T) {
	got, unknown, err := constraints.ParseKnown("cpu-power=1 zones=a cpu-power=2")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(constraints.Value{Zones: []string{"a"}}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"cpu-power", "cpu-power"}, unknown); diff != "" {
		t.Error(diff)
	}
	_, unknown, err = constraints.ParseKnown("cpu-power=1 cores=x")
	if err == nil || err.Error() != `constraints: cores "x": want a whole number: not valid` {
		t.Error("known keys are read as strictly as by Parse, but:", err)
	}
	if diff := cmp.Diff([]string{"cpu-power"}, unknown); diff != "" {
		t.Error(diff)
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		why  string
		v    constraints.Value
		want string // empty: valid
	}{
		{"zero", constraints.Value{}, ""},
		{"every field", full, ""},
		{"empty lists are not asked for", constraints.Value{Tags: []string{}}, ""},
		{"all faults at once", constraints.Value{Arch: "a\n", Zones: []string{"a", ""}, ImageID: "\xff"},
			`constraints: arch: want printable UTF-8 text; zones: item "": want names with a comma between them; image-id: want printable UTF-8 text: not valid`},
		{"set and cleared", constraints.Value{Arch: "a", Mem: ptr[uint64](1), Cleared: constraints.KeyArch | constraints.KeyMem | constraints.KeyTags},
			`constraints: arch, mem: both set and cleared: not valid`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			err := test.v.Validate()
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if err != nil && !errors.Is(err, errors.NotValid) {
				t.Error("the error is not a NotValid one")
			}
			if _, marshalErr := test.v.MarshalText(); (marshalErr == nil) != (err == nil) {
				t.Errorf("MarshalText: %v", marshalErr)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	exclusive := constraints.Support{Conflicts: []constraints.Conflict{{
		A: constraints.KeyInstanceType, B: constraints.KeyArch | constraints.KeyCores | constraints.KeyMem,
	}}}
	tests := []struct {
		why               string
		s                 constraints.Support
		v, fallback, want string
	}{
		{why: "both empty"},
		{why: "the fallback fills in", v: "mem=1G", fallback: "mem=2G cores=4 tags=x allocate-public-ip=false", want: "cores=4 mem=1G tags=x allocate-public-ip=false"},
		{why: "lists are not joined", v: "tags=a", fallback: "tags=b,c", want: "tags=a"},
		{why: "zero is asked for", v: "cores=0", fallback: "cores=4", want: "cores=0"},
		{why: "what is cleared stays so", v: "mem= zones=", fallback: "mem=2G zones=a arch=arm64", want: "arch=arm64 mem= zones="},
		{why: "the fallback may clear, for the next one", v: "arch=arm64", fallback: "mem= arch=", want: "arch=arm64 mem="},
		{why: "without conflicts all is taken", v: "instance-type=m1", fallback: "mem=2G", want: "mem=2G instance-type=m1"},
		{why: "a conflicting fallback is left out", s: exclusive, v: "instance-type=m1", fallback: "arch=arm64 mem=2G cores= zones=a", want: "zones=a instance-type=m1"},
		{why: "a conflict holds both ways", s: exclusive, v: "mem=2G", fallback: "instance-type=m1 arch=arm64", want: "arch=arm64 mem=2G"},
		{why: "what is cleared conflicts with nothing", s: exclusive, v: "instance-type=", fallback: "mem=2G instance-type=m1", want: "mem=2G instance-type="},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			v, fallback := parse(t, test.v), parse(t, test.fallback)
			got := test.s.Merge(v, fallback)
			if diff := cmp.Diff(parse(t, test.want), got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]constraints.Value{parse(t, test.v), parse(t, test.fallback)}, []constraints.Value{v, fallback}); diff != "" {
				t.Error("inputs changed:", diff)
			}
		})
	}
}

func TestMergeSharesNothing(t *testing.T) {
	v := constraints.Value{Mem: ptr[uint64](1), Tags: []string{"a"}}
	fallback := constraints.Value{Cores: ptr[uint64](1), Zones: []string{"a"}, AllocatePublicIP: ptr(true)}
	got := v.Merge(fallback)
	*got.Mem, *got.Cores, got.Tags[0], got.Zones[0], *got.AllocatePublicIP = 9, 9, "z", "z", false
	if diff := cmp.Diff("mem=1M tags=a; cores=1 zones=a allocate-public-ip=true", v.String()+"; "+fallback.String()); diff != "" {
		t.Error(diff)
	}
}

func TestWithout(t *testing.T) {
	got := parse(t, "arch=arm64 mem= cores=2 tags=").Without(constraints.KeyArch | constraints.KeyMem | constraints.KeySpaces)
	if diff := cmp.Diff(parse(t, "cores=2 tags="), got); diff != "" {
		t.Error(diff)
	}
}

func TestSupport(t *testing.T) {
	support := constraints.Support{
		Unsupported: constraints.KeyTags | constraints.KeyVirtType,
		Conflicts: []constraints.Conflict{
			{A: constraints.KeyInstanceType, B: constraints.KeyArch | constraints.KeyCores | constraints.KeyMem},
			{A: constraints.KeyImageID, B: constraints.KeyContainer},
		},
	}
	tests := []struct {
		why, v string
		s      constraints.Support
		want   string // empty: no error
	}{
		{why: "the zero value supports everything", v: fullText},
		{why: "nothing asked for", s: support},
		{why: "all is well", v: "arch=amd64 mem=1G zones=a", s: support},
		{why: "unsupported keys by name", v: "tags=a virt-type=kvm mem=1G", s: support,
			want: "constraints: tags, virt-type: not supported by the broker"},
		{why: "cleared keys ask for nothing", v: "tags= instance-type= mem=1G", s: support},
		{why: "only the conflicting keys that are asked for", v: "instance-type=m1 mem=1G cores=1", s: support,
			want: "constraints: instance-type: cannot be asked for together with cores, mem"},
		{why: "all at once", v: "tags=a instance-type=m1 arch=amd64 image-id=i container=lxd", s: support,
			want: "constraints: tags: not supported by the broker; instance-type: cannot be asked for together with arch; image-id: cannot be asked for together with container"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			err := test.s.Check(parse(t, test.v))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if err != nil && !errors.Is(err, errors.NotValid) {
				t.Error("the error is not a NotValid one")
			}
		})
	}
}

func TestSupportErrorIsPlainData(t *testing.T) {
	s := constraints.Support{
		Unsupported: constraints.KeyTags,
		Conflicts:   []constraints.Conflict{{A: constraints.KeyInstanceType, B: constraints.KeyCores | constraints.KeyMem}},
	}
	err := errors.Annotate(s.Check(parse(t, "tags=a instance-type=m1 mem=1G")), "machine 0")
	var got *constraints.SupportError
	if !errors.As(err, &got) {
		t.Fatalf("not a SupportError: %v", err)
	}
	want := &constraints.SupportError{
		Unsupported: constraints.KeyTags,
		Conflicts:   []constraints.Conflict{{A: constraints.KeyInstanceType, B: constraints.KeyMem}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The constants of Keys must be in the order of the keys.
func TestKeys(t *testing.T) {
	all := map[string]constraints.Keys{
		"arch": constraints.KeyArch, "cores": constraints.KeyCores, "mem": constraints.KeyMem,
		"root-disk": constraints.KeyRootDisk, "root-disk-source": constraints.KeyRootDiskSource,
		"zones": constraints.KeyZones, "tags": constraints.KeyTags, "spaces": constraints.KeySpaces,
		"instance-type": constraints.KeyInstanceType, "virt-type": constraints.KeyVirtType,
		"container": constraints.KeyContainer, "image-id": constraints.KeyImageID,
		"allocate-public-ip": constraints.KeyAllocatePublicIP,
	}
	var union constraints.Keys
	for name, key := range all {
		if diff := cmp.Diff(name, key.String()); diff != "" {
			t.Error(diff)
		}
		union |= key
	}
	if diff := cmp.Diff(allKeys, union.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(union, full.Asked()); diff != "" {
		t.Error(diff)
	}
	mem := constraints.KeyMem
	if !union.Has(mem|constraints.KeyArch) || mem.Has(mem|constraints.KeyArch) || !mem.Has(0) {
		t.Error("Has does not say whether all are in the set")
	}
}

func TestJSON(t *testing.T) {
	type machine struct {
		Constraints constraints.Value
		Hardware    *constraints.Hardware `json:",omitempty"`
	}
	want := machine{full, &constraints.Hardware{Arch: "arm64", Tags: []string{"a b"}}}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	text := `{"Constraints":"` + fullText + `","Hardware":"arch=arm64 tags=\"a b\""}`
	if diff := cmp.Diff(text, string(data)); diff != "" {
		t.Error(diff)
	}
	var got machine
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`{"Constraints":"mem=x"}`, `{"Hardware":"mem=x"}`, `{"Constraints":{}}`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s: no error", bad)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: changed all the same: %s", bad, diff)
		}
	}
	if _, err := json.Marshal(constraints.Value{Arch: "\n"}); !errors.Is(err, errors.NotValid) {
		t.Errorf("what is not valid must not be written, but: %v", err)
	}
}

func parse(t *testing.T, s string) constraints.Value {
	t.Helper()
	v, err := constraints.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// IC6: what was parsed prints so that it parses to the same; merging with
// itself changes nothing.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", fullText, "mem= zones=", `zones="east wing",b`, `tags="a\,b,c\"d,e\\f"`, "spaces=^a,b mem=1.5T",
		`instance-type=,`, `image-id="a\"`, "cores=0 arch=\x00", "mem=99999999999P", "zones=^a", "a=b=c",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := constraints.Parse(s)
		if err != nil {
			if !errors.Is(err, errors.NotValid) {
				t.Fatalf("not a NotValid error: %v", err)
			}
			return
		}
		if err := v.Validate(); err != nil {
			t.Fatalf("%q was parsed, but: %v", s, err)
		}
		again, err := constraints.Parse(v.String())
		if err != nil {
			t.Fatalf("%q prints as %q: %v", s, v, err)
		}
		if diff := cmp.Diff(v, again); diff != "" {
			t.Fatalf("%q prints as %q: %s", s, v, diff)
		}
		if diff := cmp.Diff(v, v.Merge(v)); diff != "" {
			t.Fatal(diff)
		}
		if v.Asked()&v.Cleared != 0 {
			t.Fatalf("%q: asked for and cleared", s)
		}
	})
}

// A Value that is valid comes back from its text, whoever made it.
func FuzzString(f *testing.F) {
	f.Add("amd64", "east wing", `a,"\`, uint64(1), true, uint16(0))
	f.Add(",", "^a", " ", uint64(0), false, uint16(1<<2))
	f.Add("=", "\"", "b\n", uint64(1<<63), false, uint16(1<<12))
	f.Fuzz(func(t *testing.T, text, item, other string, n uint64, b bool, cleared uint16) {
		v := constraints.Value{
			Arch: text, Zones: []string{item, other}, Tags: []string{"^" + item}, Mem: &n, Cores: &n, AllocatePublicIP: &b,
			Cleared: constraints.Keys(cleared) & (constraints.KeySpaces | constraints.KeyImageID | constraints.KeyArch),
		}
		if v.Validate() != nil {
			return
		}
		got, err := constraints.Parse(v.String())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v, got); diff != "" {
			t.Fatalf("%q: %s", v, diff)
		}
	})
}
