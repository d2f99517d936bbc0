package instancecfg_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/instancecfg"
)

const (
	nonce = "machine-0:5f0b7ad4-6f5c-4c4b-8f5e-3c1d2b6a9e10"
	cert  = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
)

// full returns an Info and an Auth in which everything is set.
func full(jobs ...instancecfg.Job) (instancecfg.Info, instancecfg.Auth) {
	info := instancecfg.Info{
		ControllerID: "ctrl-1", Stream: "released", Base: "ubuntu@24.04", AgentVersion: "3.6.1",
		APIAddresses: []string{"10.0.0.1:17070", "[fd00::1]:17070", "api.example.com:443"},
		CACert:       cert + cert,
		Tags:         map[string]string{"owner": "team a", "env": ""},
		Jobs:         jobs,
		UserData: instancecfg.Hide(map[string]any{
			"packages": []string{"curl"}, "chpasswd": map[string]any{"list": "root:hunter2"},
		}),
		ControllerConfig: instancecfg.Hide(map[string]any{"state-port": 37017, "ca-key": "k3y"}),
		ImageSigningKey:  instancecfg.Hide("s1gn"),
	}
	return info, instancecfg.Auth{Tag: "machine-1", Password: instancecfg.Hide("pa55")}
}

// IC1
func TestNew(t *testing.T) {
	info, auth := full(instancecfg.JobManageModel, instancecfg.JobHostUnits)
	got, err := instancecfg.New("1/lxd/0", nonce, info, auth)
	if err != nil {
		t.Fatal(err)
	}
	want := instancecfg.Config{Info: info, Machine: "1/lxd/0", Nonce: nonce, Auth: auth}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// IC1: an empty list keeps the default job; a host need not tell anything.
func TestNewOfZeroValues(t *testing.T) {
	got, err := instancecfg.New("0", nonce, instancecfg.Info{}, instancecfg.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	want := instancecfg.Config{Machine: "0", Nonce: nonce, Info: instancecfg.Info{Jobs: []instancecfg.Job{instancecfg.JobHostUnits}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// IC1: controller config and image signing key only where jobs need state.
func TestStateIsForJobsThatNeedIt(t *testing.T) {
	tests := []struct {
		why  string
		jobs []instancecfg.Job
		want bool
	}{
		{"the default job needs none", nil, false},
		{"hosting units needs none", []instancecfg.Job{instancecfg.JobHostUnits}, false},
		{"managing the model needs it", []instancecfg.Job{instancecfg.JobManageModel}, true},
		{"one job that needs it is enough", []instancecfg.Job{instancecfg.JobHostUnits, instancecfg.JobManageModel}, true},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			info, auth := full(test.jobs...)
			got, err := instancecfg.New("0", nonce, info, auth)
			if err != nil {
				t.Fatal(err)
			}
			if kept := !got.ControllerConfig.IsZero(); kept != test.want {
				t.Errorf("controller config kept: %t", kept)
			}
			if kept := !got.ImageSigningKey.IsZero(); kept != test.want {
				t.Errorf("image signing key kept: %t", kept)
			}
			if info.ControllerConfig.IsZero() || info.ImageSigningKey.IsZero() || len(info.Jobs) != len(test.jobs) {
				t.Error("the host's information was changed")
			}
		})
	}
}

func TestNewFaults(t *testing.T) {
	type (
		info = instancecfg.Info
		auth = instancecfg.Auth
	)
	data := func(key string, value any) info {
		return info{UserData: instancecfg.Hide(map[string]any{key: value})}
	}
	cycle := map[string]any{}
	cycle["a"], cycle["b"] = cycle, []any{cycle}
	const kinds = "want text, numbers, booleans, lists, and maps with text keys"
	const pems = "bytes that are something else: want PEM CERTIFICATE blocks and nothing between them"
	tests := []struct {
		why            string
		machine, nonce string // empty: a good one
		info           info
		auth           auth
		want           string // after "instance config of machine …: "
	}{
		{why: "machine", machine: "a\n", want: `Machine "a\n": want printable text`},
		{why: "nonce without a host", nonce: ":u", want: `Nonce ":u": want <host tag>:<uuid>`},
		{why: "nonce without an id", nonce: "machine-0", want: `Nonce "machine-0": want <host tag>:<uuid>`},
		{why: "nonce in one line", nonce: "a:b\n", want: `Nonce "a:b\n": want printable text`},
		{why: "controller id", info: info{ControllerID: "\x00"}, want: `ControllerID "\x00": want printable text`},
		{why: "stream", info: info{Stream: "\xff"}, want: `Stream "\xff": want printable text`},
		{why: "base", info: info{Base: "\t"}, want: `Base "\t": want printable text`},
		{why: "agent version", info: info{AgentVersion: "1\r"}, want: `AgentVersion "1\r": want printable text`},
		{why: "address without a port", info: info{APIAddresses: []string{"a:1", "b"}}, want: `APIAddresses[1] "b": want host:port`},
		{why: "address without a host", info: info{APIAddresses: []string{":1"}}, want: `APIAddresses[0] ":1": want host:port`},
		{why: "address with port 0", info: info{APIAddresses: []string{"a:0"}}, want: `APIAddresses[0] "a:0": want host:port`},
		{why: "address with too high a port", info: info{APIAddresses: []string{"a:65536"}}, want: `APIAddresses[0] "a:65536": want host:port`},
		{why: "address in one line", info: info{APIAddresses: []string{"a\n:1"}}, want: `APIAddresses[0] "a\n:1": want host:port`},
		{why: "address without brackets", info: info{APIAddresses: []string{"fd00::1:1"}}, want: `APIAddresses[0] "fd00::1:1": want host:port`},
		{why: "address that is a URL", info: info{APIAddresses: []string{"https://a:1"}}, want: `APIAddresses[0] "https://a:1": want host:port`},
		{why: "certificate that is no PEM", info: info{CACert: "Zm9v"}, want: `CACert: 4 ` + pems},
		{why: "certificate cut short", info: info{CACert: cert[:40]}, want: `CACert: 40 ` + pems},
		{why: "certificate and more", info: info{CACert: cert + "xx"}, want: `CACert: 2 ` + pems},
		{why: "certificate that is a key", info: info{CACert: strings.ReplaceAll(cert, "CERTIFICATE", "PRIVATE KEY")}, want: `CACert: 58 ` + pems},
		{why: "tags", info: info{Tags: map[string]string{"": "v", "k": "\n", "l\n": "", "ok": ""}},
			want: `Tags[""] "v": want a key, and both in printable text; Tags["k"] "\n": want a key, and both in printable text; Tags["l\n"] "": want a key, and both in printable text`},
		{why: "unknown job", info: info{Jobs: []instancecfg.Job{"host-units", "manage"}}, want: `Jobs[1] "manage": want host-units or manage-model`},
		{why: "a job twice", info: info{Jobs: []instancecfg.Job{"host-units", "host-units"}}, want: `Jobs[1] "host-units": want each job once`},
		{why: "tag without a password", auth: auth{Tag: "m"}, want: `Auth.Tag "m", Auth.Password "": want both or neither`},
		{why: "password without a tag", auth: auth{Password: instancecfg.Hide("pa55")}, want: `Auth.Tag "", Auth.Password "REDACTED": want both or neither`},
		{why: "tag in one line", auth: auth{Tag: "m\n", Password: instancecfg.Hide("pa55")}, want: `Auth.Tag "m\n": want printable text`},
		{why: "files that are no list", info: data("write_files", map[string]any{}), want: `UserData["write_files"]: map[string]interface {}: want a list`},
		{why: "data of another kind", info: data("a", []any{1, time.Time{}}), want: `UserData["a"][1]: time.Time: ` + kinds},
		{why: "a secret in what is a secret already", info: data("a", instancecfg.Hide("x")), want: `UserData["a"]: instancecfg.Secret[string]: ` + kinds},
		{why: "keys of another kind", info: data("a", map[any]any{1: 2}), want: `UserData["a"]: a key that is int: want text`},
		{why: "one key in two types", info: data("a", map[any]any{"k": 1, instancecfg.Job("k"): 2}), want: `UserData["a"]: two keys "k", of different types: want each key once`},
		{why: "a nil key", info: data("a", map[any]any{nil: 2}), want: `UserData["a"]: a key that is nil: want text`},
		{why: "a long key", info: data("a", map[string]int{strings.Repeat("k", 999): 1}), want: `UserData["a"]: a key of 999 bytes: want at most 1000`},
		{why: "binary text", info: data("a", "\xff"), want: `UserData["a"]: want UTF-8 text; binary data goes into cloud-init as base64`},
		{why: "binary data", info: data("a", []byte("x")), want: `UserData["a"]: []uint8: want text; binary data goes into cloud-init as base64`},
		{why: "not a number", info: data("a", math.NaN()), want: `UserData["a"]: want a finite number`},
		{why: "data that holds itself", info: data("a", cycle), want: `UserData["a"]: want at most 64 levels`},
		{why: "controller config", info: info{
			Jobs:             []instancecfg.Job{instancecfg.JobManageModel},
			ControllerConfig: instancecfg.Hide(map[string]any{"a": func() {}, "b": 1}),
		}, want: `ControllerConfig["a"]: func(): ` + kinds},
		{why: "all faults at once", nonce: "x", info: info{Stream: "\n", Jobs: []instancecfg.Job{""}}, auth: auth{Tag: "m"},
			want: `Nonce "x": want <host tag>:<uuid>; Stream "\n": want printable text; Jobs[0] "": want host-units or manage-model; Auth.Tag "m", Auth.Password "": want both or neither`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			machine, id := "0", nonce
			if test.machine != "" {
				machine = test.machine
			}
			if test.nonce != "" {
				id = test.nonce
			}
			_, err := instancecfg.New(machine, id, test.info, test.auth)
			if err == nil {
				t.Fatal("no error")
			}
			_, got, _ := strings.Cut(err.Error(), ": ")
			if diff := cmp.Diff(test.want+": not valid", got); diff != "" {
				t.Error(diff)
			}
			if !errors.Is(err, errors.NotValid) {
				t.Error("the error is not a NotValid one")
			}
		})
	}
}

// IC1: credentials that come later are checked as New does.
func TestWithAuth(t *testing.T) {
	info, auth := full()
	c, err := instancecfg.New("0", nonce, info, instancecfg.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.WithAuth(auth)
	if err != nil {
		t.Fatal(err)
	}
	want, err := instancecfg.New("0", nonce, info, auth)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	_, err = c.WithAuth(instancecfg.Auth{Tag: "m\n"})
	const fault = `instance config of machine "0": Auth.Tag "m\n": want printable text; Auth.Tag "m\n", Auth.Password "": want both or neither: not valid`
	if err == nil || err.Error() != fault || !errors.Is(err, errors.NotValid) {
		t.Errorf("got %v, want %s", err, fault)
	}
}

func TestNewWithoutAMachine(t *testing.T) {
	_, err := instancecfg.New("", "", instancecfg.Info{}, instancecfg.Auth{})
	const want = `instance config of machine "": Machine "": want a machine's id; Nonce "": want <host tag>:<uuid>: not valid`
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

// What is dropped is not looked at.
func TestDroppedFaults(t *testing.T) {
	info := instancecfg.Info{ControllerConfig: instancecfg.Hide(map[string]any{"a": func() {}})}
	if _, err := instancecfg.New("0", nonce, info, instancecfg.Auth{}); err != nil {
		t.Error(err)
	}
}

func BenchmarkNew(b *testing.B) {
	info, auth := full(instancecfg.JobManageModel)
	info.CACert = "-----BEGIN CERTIFICATE-----\n" + strings.Repeat(strings.Repeat("A", 64)+"\n", 20) + "-----END CERTIFICATE-----\n"
	for _, size := range []string{"full", "usual"} {
		if size == "usual" {
			info.UserData, info.ControllerConfig, info.Jobs = instancecfg.Secret[map[string]any]{}, instancecfg.Secret[map[string]any]{}, nil
		}
		b.Run(size, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := instancecfg.New("0", nonce, info, auth); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
