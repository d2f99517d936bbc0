package provisioner_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// IC3
func TestChooseAgents(t *testing.T) {
	type (
		agent = provisioner.AgentBinary
		query = provisioner.AgentQuery
	)
	all := []agent{
		{Version: "3.6.1", Base: "ubuntu@24.04", Arch: "amd64", URL: "u/1"},
		{Version: "3.6.1", Base: "ubuntu@24.04", Arch: "arm64", URL: "u/2"},
		{Version: "3.6.0", Base: "ubuntu@22.04", Arch: "amd64", URL: "u/3"},
		{Version: "3.6.1", Arch: "amd64", URL: "u/4"},
		{Version: "3.6.2", Base: "ubuntu@22.04", Arch: "arm64"},
		{URL: "u/6"},
	}
	tests := []struct {
		why   string
		all   []agent
		query query
		want  []string // the URLs of those that fit
		table string   // or why none does
	}{
		{"amd64 by default; what a binary does not tell is not compared", all, query{Version: "3.6.1", Base: "ubuntu@24.04"}, []string{"u/1", "u/4", "u/6"}, ""},
		{"another architecture", all, query{Version: "3.6.1", Base: "ubuntu@24.04", Arch: "arm64"}, []string{"u/2", "u/6"}, ""},
		{"any base", all, query{Version: "3.6.0"}, []string{"u/3", "u/6"}, ""},
		{"any version", all[:3], query{Base: "ubuntu@22.04"}, []string{"u/3"}, ""},
		{"each has its reason", all[:5], query{Version: "3.6.2", Base: "ubuntu@24.04"}, nil, `no matching agent binaries available: wanted version 3.6.2, base ubuntu@24.04, arch amd64
  u/1: version 3.6.1, want 3.6.2
  u/2: version 3.6.1, want 3.6.2; arch arm64, want amd64
  u/3: version 3.6.0, want 3.6.2; base ubuntu@22.04, want ubuntu@24.04
  u/4: version 3.6.1, want 3.6.2
  3.6.2 ubuntu@22.04 arm64: base ubuntu@22.04, want ubuntu@24.04; arch arm64, want amd64
`},
		{"a version is not its beginning", []agent{{Version: "3.6.10", Arch: "amd64", URL: "u"}}, query{Version: "3.6.1"}, nil, `no matching agent binaries available: wanted version 3.6.1, arch amd64
  u: version 3.6.10, want 3.6.1
`},
		{"nothing to choose from", nil, query{Version: "3.6.1"}, nil, `no matching agent binaries available: wanted version 3.6.1, arch amd64
  there are none
`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			fit, err := provisioner.ChooseAgents(test.all, test.query)
			var got []string
			for _, a := range fit {
				got = append(got, a.URL)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			checkNoMatch(t, err, provisioner.ErrNoAgents, "no matching agent binaries available", test.table)
		})
	}
}

// checkNoMatch: table is empty if something fits.
func checkNoMatch(t *testing.T, err, is error, text, table string) {
	t.Helper()
	if table == "" {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	var none *provisioner.NoMatchError
	if !errors.Is(err, is) || !errors.As(err, &none) || err.Error() != text {
		t.Fatalf("got %v, want a *NoMatchError that matches %v", err, is)
	}
	if diff := cmp.Diff(table, none.Table()); diff != "" {
		t.Error(diff)
	}
}

func TestChooseImages(t *testing.T) {
	type (
		image = provisioner.ImageMetadata
		query = provisioner.ImageQuery
	)
	full := image{ID: "full", Arch: "amd64", Base: "ubuntu@24.04", Stream: "released", Region: "r1", VirtType: "kvm", RootStorage: "ssd"}
	all := []image{full, {ID: "bare"}, {ID: "other", Arch: "arm64", Base: "ubuntu@22.04", Stream: "daily", Region: "r2", VirtType: "lxd", RootStorage: "disk"}}
	tests := []struct {
		why   string
		all   []image
		query query
		want  []string
		table string
	}{
		{"nothing is asked for, not even an architecture", all, query{}, []string{"full", "bare", "other"}, ""},
		{"architecture", all, query{Arch: "arm64"}, []string{"bare", "other"}, ""},
		{"base", all, query{Base: "ubuntu@24.04"}, []string{"full", "bare"}, ""},
		{"stream", all, query{Stream: "daily"}, []string{"bare", "other"}, ""},
		{"region", all, query{Region: "r1"}, []string{"full", "bare"}, ""},
		{"virt type", all, query{VirtType: "lxd"}, []string{"bare", "other"}, ""},
		{"root storage", all, query{RootStorage: "ssd"}, []string{"full", "bare"}, ""},
		{"id", all, query{ID: "other"}, []string{"other"}, ""},
		{"each aspect has its reason", []image{full}, query{ID: "x", Arch: "arm64", Base: "b", Stream: "s", Region: "r", VirtType: "v", RootStorage: "d"}, nil,
			`no matching images available: wanted id x, arch arm64, base b, stream s, region r, virt type v, root storage d
  full: id full, want x; arch amd64, want arm64; base ubuntu@24.04, want b; stream released, want s; region r1, want r; virt type kvm, want v; root storage ssd, want d
`},
		{"nothing there", nil, query{}, nil, "no matching images available: wanted any\n  there are none\n"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			fit, err := provisioner.ChooseImages(test.all, test.query)
			var got []string
			for _, i := range fit {
				got = append(got, i.ID)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			checkNoMatch(t, err, provisioner.ErrNoImages, "no matching images available", test.table)
		})
	}
}

// What an error remembers is bounded.
func TestNoMatchErrorIsBounded(t *testing.T) {
	images := make([]provisioner.ImageMetadata, 100)
	for i := range images {
		images[i] = provisioner.ImageMetadata{ID: fmt.Sprint(i), Arch: "arm64"}
	}
	_, err := provisioner.ChooseImages(images, provisioner.ImageQuery{Arch: "amd64"})
	var none *provisioner.NoMatchError
	if !errors.As(err, &none) || len(none.Out) != 64 || none.Others != 36 || none.Out[63].Candidate != "63" {
		t.Fatalf("got %+v, want the first 64 and 36 others", err)
	}
}
