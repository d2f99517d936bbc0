package constraints_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/constraints"
)

func TestParseSize(t *testing.T) {
	const want = ": want a size such as 512, 512M, 8G, 1.5T or 1P: not valid"
	tests := []struct {
		why, in string
		want    uint64
		err     string
	}{
		{why: "no unit is MiB", in: "512", want: 512},
		{why: "MiB", in: "512M", want: 512},
		{why: "GiB", in: "8G", want: 8192},
		{why: "TiB", in: "2T", want: 2 << 20},
		{why: "PiB", in: "3P", want: 3 << 30},
		{why: "zero", in: "0", want: 0},
		{why: "leading zeros", in: "007M", want: 7},
		{why: "a fraction", in: "1.5G", want: 1536},
		{why: "never less than asked for", in: "0.1G", want: 103},
		{why: "an exact fraction is not rounded", in: "0.0009765625G", want: 1},
		{why: "the largest", in: "18446744073709551615M", want: math.MaxUint64},
		{why: "larger than that", in: "18446744073709551615.5M", err: `size "18446744073709551615.5M": want less than 2^64 MiB: not valid`},
		{why: "empty", in: "", err: `size ""` + want},
		{why: "a unit alone", in: "G", err: `size "G"` + want},
		{why: "no unit of another kind", in: "8GiB", err: `size "8GiB"` + want},
		{why: "negative", in: "-1G", err: `size "-1G"` + want},
		{why: "signed", in: "+1G", err: `size "+1G"` + want},
		{why: "nothing before the point", in: ".5G", err: `size ".5G"` + want},
		{why: "nothing after the point", in: "1.G", err: `size "1.G"` + want},
		{why: "two points", in: "1.1.1", err: `size "1.1.1"` + want},
		{why: "an exponent", in: "1e3", err: `size "1e3"` + want},
		{why: "other digits", in: "٣", err: `size "٣"` + want},
		{why: "endless", in: "0.00000000000000000000000000000000000000001G", err: `size "0.00000000000000000000000000000000000000001G"` + want},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, err := constraints.ParseSize(test.in)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(test.err, text); diff != "" {
				t.Error(diff)
			}
			if err != nil && !errors.Is(err, errors.NotValid) {
				t.Error("the error is not a NotValid one")
			}
			if got != test.want {
				t.Errorf("want %d, got %d", test.want, got)
			}
		})
	}
}

func TestFormatSize(t *testing.T) {
	for mib, want := range map[uint64]string{
		0: "0M", 1: "1M", 1023: "1023M", 1024: "1G", 1536: "1536M", 1 << 20: "1T", 1 << 30: "1P", 1 << 40: "1024P",
		math.MaxUint64: "18446744073709551615M",
	} {
		if diff := cmp.Diff(want, constraints.FormatSize(mib)); diff != "" {
			t.Error(diff)
		}
	}
}

func FuzzSize(f *testing.F) {
	f.Add("8G", uint64(0))
	f.Add("1.5T", uint64(math.MaxUint64))
	f.Add("0.1P", uint64(3<<30))
	f.Add("1e3", uint64(1536))
	f.Fuzz(func(t *testing.T, s string, mib uint64) {
		if parsed, err := constraints.ParseSize(s); err == nil {
			mib = parsed
		} else if !errors.Is(err, errors.NotValid) {
			t.Fatalf("not a NotValid error: %v", err)
		}
		again, err := constraints.ParseSize(constraints.FormatSize(mib))
		if err != nil || again != mib {
			t.Fatalf("%d prints as %q, which is %d: %v", mib, constraints.FormatSize(mib), again, err)
		}
	})
}
