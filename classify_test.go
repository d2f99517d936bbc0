package provisioner_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

func TestClassify(t *testing.T) {
	const (
		none     = provisioner.ClassNone
		pending  = provisioner.ClassPending
		dead     = provisioner.ClassDead
		maintain = provisioner.ClassMaintain
	)
	tests := []struct {
		why  string
		in   provisioner.Machine
		want provisioner.Class
	}{
		{"CL1: dead and provisioned", provisioner.Machine{ID: "0", Life: provisioner.Dead, Instance: "i-0"}, dead},
		{"CL1: dead, whatever the statuses say", provisioner.Machine{ID: "0", Life: provisioner.Dead, Status: provisioner.StatusPending, InstanceStatus: provisioner.InstanceAllocating}, dead},
		{"CL1: a dead container is no matter for upkeep", provisioner.Machine{ID: "0/lxd/0", Life: provisioner.Dead, Instance: "c-0"}, dead},
		{"CL1: dead decides before anything that could not be read",
			provisioner.Machine{ID: "0", Life: provisioner.Dead, Unread: provisioner.FieldInstance | provisioner.FieldStatus | provisioner.FieldInstanceStatus | provisioner.FieldKeep}, dead},
		{"CL2: dying with an instance: its agent finishes first", provisioner.Machine{ID: "0", Life: provisioner.Dying, Instance: "i-0"}, none},
		{"CL2: the same for a container: no upkeep for what goes", provisioner.Machine{ID: "0/lxd/0", Life: provisioner.Dying, Instance: "c-0"}, none},
		{"CL2: a pending status does not make it start", provisioner.Machine{ID: "0", Life: provisioner.Dying, Instance: "i-0", Status: provisioner.StatusPending}, none},
		{"CL3: dying and never provisioned", provisioner.Machine{ID: "0", Life: provisioner.Dying}, dead},
		{"CL3: a pending status does not make it start", provisioner.Machine{ID: "0", Life: provisioner.Dying, Status: provisioner.StatusPending, InstanceStatus: provisioner.InstanceAllocating}, dead},
		{"CL3: statuses are not needed, so unread ones do not matter", provisioner.Machine{ID: "0", Life: provisioner.Dying, Unread: provisioner.FieldStatus | provisioner.FieldInstanceStatus}, dead},
		{"CL4: a new machine", provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusPending}, pending},
		{"CL4: the instance status does not matter once the status is pending",
			provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusPending, InstanceStatus: provisioner.InstanceProvisioningError}, pending},
		{"CL4: a new container", provisioner.Machine{ID: "0/lxd/0", Life: provisioner.Alive, Status: provisioner.StatusPending}, pending},
		{"CL5: a crash cut its start short", provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusError, InstanceStatus: provisioner.InstanceAllocating}, pending},
		{"CL5: whatever the host's word for the machine", provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: "brewing", InstanceStatus: provisioner.InstanceAllocating}, pending},
		{"CL5: also where the host knows no status at all", provisioner.Machine{ID: "0", Life: provisioner.Alive, InstanceStatus: provisioner.InstanceAllocating}, pending},
		{"CL6: failed for good, across a restart too", provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusError, InstanceStatus: provisioner.InstanceProvisioningError}, none},
		{"CL6: down without an instance", provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusDown}, none},
		{"CL6: statuses that the host invented are fine", provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: "brewing", InstanceStatus: "stewing"}, none},
		{"CL6: no status is not pending", provisioner.Machine{ID: "0", Life: provisioner.Alive}, none},
		{"CL7: a running machine", provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i-0", Status: provisioner.StatusStarted, InstanceStatus: provisioner.InstanceRunning}, none},
		{"CL7: a provisioned machine whose agent is not up yet is not started again", provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i-0", Status: provisioner.StatusPending}, none},
		{"CL7: a lost agent is not a lost instance", provisioner.Machine{ID: "0", Life: provisioner.Alive, Instance: "i-0", Status: provisioner.StatusDown}, none},
		{"CL7: a running container", provisioner.Machine{ID: "0/lxd/0", Life: provisioner.Alive, Instance: "c-0"}, maintain},
		{"CL7: a container in a container, statuses unread", provisioner.Machine{ID: "1/kvm/0/lxd/2", Life: provisioner.Alive, Instance: "c-0", Unread: provisioner.FieldStatus | provisioner.FieldInstanceStatus}, maintain},
		{"CL4 before CL8: pending needs no instance status", provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusPending, Unread: provisioner.FieldInstanceStatus}, pending},
		{"CL5 before CL8: allocating is enough by itself", provisioner.Machine{ID: "0", Life: provisioner.Alive, InstanceStatus: provisioner.InstanceAllocating, Unread: provisioner.FieldStatus}, pending},
		{"keep is of no account to the living", provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusPending, Unread: provisioner.FieldKeep}, pending},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got := provisioner.Classify(test.in)
			if got.Class != test.want {
				t.Errorf("class %v, want %v: %+v", got.Class, test.want, got)
			}
			if got.Reason == "" {
				t.Error("no reason")
			}
			if got.Err != nil || got.LookAgain {
				t.Errorf("err %v, look again %v: want neither", got.Err, got.LookAgain)
			}
			if want := test.in.Life == provisioner.Dying && test.want == dead; got.EnsureDead != want {
				t.Errorf("EnsureDead %v, want %v (CL3)", got.EnsureDead, want)
			}
		})
	}
}

func TestClassifyUnreadAndFaulty(t *testing.T) {
	tests := []struct {
		why       string
		in        provisioner.Machine
		lookAgain bool
		err       string // whole; empty: none
	}{
		{"CL8: the status could be pending", provisioner.Machine{ID: "0", Life: provisioner.Alive, Unread: provisioner.FieldStatus}, true, ""},
		{"CL8: what an unread status holds is not looked at", provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusPending, Unread: provisioner.FieldStatus}, true, ""},
		{"CL8: the instance status could be allocating", provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusError, Unread: provisioner.FieldInstanceStatus}, true, ""},
		{"CL8: what an unread instance status holds is not looked at",
			provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusError, InstanceStatus: provisioner.InstanceAllocating, Unread: provisioner.FieldInstanceStatus}, true, ""},
		{"CL8: neither could be read", provisioner.Machine{ID: "0", Life: provisioner.Alive, Unread: provisioner.FieldStatus | provisioner.FieldInstanceStatus}, true, ""},
		{"CL9: an alive machine is not started while its instance id is unread",
			provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusPending, Unread: provisioner.FieldInstance}, true, "machine 0: instance id could not be read"},
		{"CL9: a dying one is not removed", provisioner.Machine{ID: "7", Life: provisioner.Dying, Unread: provisioner.FieldInstance}, true, "machine 7: instance id could not be read"},
		{"CL10: life is not set", provisioner.Machine{ID: "0", Status: provisioner.StatusPending}, false, `machine 0: life "": want alive, dying or dead: not valid`},
		{"CL10: an invented life", provisioner.Machine{ID: "0", Life: "undead", Instance: "i-0"}, false, `machine 0: life "undead": want alive, dying or dead: not valid`},
		{"CL10: words are taken as they are written", provisioner.Machine{ID: "0", Life: "Dead"}, false, `machine 0: life "Dead": want alive, dying or dead: not valid`},
		{"CL10 before CL9: looking again does not mend a life", provisioner.Machine{ID: "0", Life: "?", Unread: provisioner.FieldInstance}, false, `machine 0: life "?": want alive, dying or dead: not valid`},
		{"a malformed id, even of a dead machine", provisioner.Machine{ID: "0/lxd", Life: provisioner.Dead, Instance: "i-0"}, false,
			`machine id "0/lxd": want parent/type/number, the type in lower-case letters and digits: not valid`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got := provisioner.Classify(test.in)
			if got.Class != provisioner.ClassNone || got.Reason == "" || got.EnsureDead {
				t.Errorf("want class none with a reason, got %+v", got)
			}
			if got.LookAgain != test.lookAgain {
				t.Errorf("LookAgain %v, want %v", got.LookAgain, test.lookAgain)
			}
			text := ""
			if got.Err != nil {
				text = got.Err.Error()
			}
			if diff := cmp.Diff(test.err, text); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if strings.HasSuffix(test.err, "not valid") && !errors.Is(got.Err, errors.NotValid) {
				t.Errorf("%v is not NotValid", got.Err)
			}
		})
	}
}

func TestClassAndFieldsText(t *testing.T) {
	var words []string
	for c := provisioner.ClassNone; c <= provisioner.ClassMaintain+1; c++ {
		text, err := c.MarshalText()
		if err != nil {
			t.Error(err)
		}
		words = append(words, string(text))
	}
	if diff := cmp.Diff([]string{"none", "pending", "dead", "maintain", "invalid"}, words); diff != "" {
		t.Error(diff)
	}
	for fields, want := range map[provisioner.Fields]string{
		0:                     "",
		provisioner.FieldKeep: "keep",
		provisioner.FieldStatus | provisioner.FieldKeep:   "status, keep",
		^provisioner.Fields(0):                            "instance, status, instance status, keep",
		provisioner.FieldInstance | provisioner.FieldKeep: "instance, keep",
	} {
		if text, err := fields.MarshalText(); string(text) != want || err != nil {
			t.Errorf("%08b: %q, %v; want %q", uint8(fields), text, err, want)
		}
	}
	if both := provisioner.FieldStatus | provisioner.FieldKeep; both.Has(provisioner.FieldStatus|provisioner.FieldInstance) || !both.Has(provisioner.FieldKeep) {
		t.Error("Has means all of them")
	}
}

func TestMachineID(t *testing.T) {
	valid := []struct {
		why       string
		id        provisioner.MachineID
		container bool
		host, top provisioner.MachineID
	}{
		{"a number", "0", false, "", "0"},
		{"a name", "web-1", false, "", "web-1"},
		{"every sign that a name may have", "aZ9._-", false, "", "aZ9._-"},
		{"a top-level number may have leading zeros: it is a name", "007", false, "", "007"},
		{"a container", "0/lxd/1", true, "0", "0"},
		{"a container in a container", "1/kvm/0/lxd/2", true, "1/kvm/0", "1"},
		{"three deep", "a/b1/0/c/10/d/2", true, "a/b1/0/c/10", "a"},
		{"a number that fits into no integer", "0/lxd/123456789012345678901234567890", true, "0", "0"},
	}
	for _, test := range valid {
		t.Run(test.why, func(t *testing.T) {
			id, err := provisioner.ParseMachineID(string(test.id))
			if id != test.id || err != nil {
				t.Errorf("ParseMachineID: %q, %v", id, err)
			}
			if got := id.IsContainer(); got != test.container {
				t.Errorf("IsContainer %v", got)
			}
			if id.Host() != test.host || id.Top() != test.top {
				t.Errorf("host %q, top %q; want %q, %q", id.Host(), id.Top(), test.host, test.top)
			}
		})
	}

	const form = ": want parent/type/number, the type in lower-case letters and digits: not valid"
	invalid := []struct{ why, id, want string }{
		{"empty", "", `machine id "": empty: want a name, or parent/type/number for a container: not valid`},
		{"only a slash", "/", `machine id "/": "": want letters, digits, '.', '_' or '-' that begin with a letter or digit: not valid`},
		{"begins with a sign", "-1", `machine id "-1": "-1": want letters, digits, '.', '_' or '-' that begin with a letter or digit: not valid`},
		{"a blank", "web 1", `machine id "web 1": "web 1": want letters, digits, '.', '_' or '-' that begin with a letter or digit: not valid`},
		{"letters beyond ASCII", "bär", `machine id "bär": "bär": want letters, digits, '.', '_' or '-' that begin with a letter or digit: not valid`},
		{"no number", "0/lxd", `machine id "0/lxd"` + form},
		{"an empty type", "0//1", `machine id "0//1"` + form},
		{"a type in capitals", "0/LXD/1", `machine id "0/LXD/1"` + form},
		{"a type that begins with a digit", "0/1lxd/1", `machine id "0/1lxd/1"` + form},
		{"an empty number", "0/lxd/", `machine id "0/lxd/": "": want a number without leading zeros: not valid`},
		{"a leading zero", "0/lxd/01", `machine id "0/lxd/01": "01": want a number without leading zeros: not valid`},
		{"a negative number", "0/lxd/-1", `machine id "0/lxd/-1": "-1": want a number without leading zeros: not valid`},
		{"a slash too many", "0/lxd/1/", `machine id "0/lxd/1/"` + form},
		{"half a nested container", "0/lxd/1/kvm", `machine id "0/lxd/1/kvm"` + form},
		{"a line break at the end", "0\n", `machine id "0\n": "0\n": want letters, digits, '.', '_' or '-' that begin with a letter or digit: not valid`},
	}
	for _, test := range invalid {
		t.Run(test.why, func(t *testing.T) {
			id, err := provisioner.ParseMachineID(test.id)
			if id != "" || !errors.Is(err, errors.NotValid) {
				t.Fatalf("%q, %v: want NotValid", id, err)
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMachineIDCompare(t *testing.T) {
	want := []provisioner.MachineID{
		"", "0", "0/kvm/0", "0/lxd/2", "0/lxd/2/lxd/0", "0/lxd/10", "1", "1-a", "1/lxd/0",
		"02", "2", "10", "99999999999999999999x", "a1", "a2", "a2b", "a10", "b",
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, provisioner.MachineID.Compare)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("numbers go by value, hosts before containers (-want +got):\n%s", diff)
	}
}

// The form of ids is told by an expression here, and by loops in the code.
func FuzzMachineID(f *testing.F) {
	for _, s := range []string{"", "0", "web-1", "0/lxd/1", "1/kvm/0/lxd/2", "0/lxd", "0/lxd/01", "a//1", "/", "-", "0/lxd/1/", "é", "0\n"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]*(/[a-z][a-z0-9]*/(0|[1-9][0-9]*))*$`)
	f.Fuzz(func(t *testing.T, s string) {
		id, err := provisioner.ParseMachineID(s)
		if valid := form.MatchString(s); valid != (err == nil) {
			t.Fatalf("%q: valid %v, but error %v", s, valid, err)
		}
		if err != nil {
			if id != "" || !errors.Is(err, errors.NotValid) {
				t.Fatalf("%q: %q, %v", s, id, err)
			}
			_, _ = provisioner.MachineID(s).Host(), provisioner.MachineID(s).Top() // no panic
			return
		}
		if string(id) != s || id.IsContainer() != strings.Contains(s, "/") {
			t.Fatalf("%q: %q, container %v", s, id, id.IsContainer())
		}
		host := id.Host()
		if id.IsContainer() {
			if host.Validate() != nil || !strings.HasPrefix(s, string(host)+"/") || strings.Count(s[len(host):], "/") != 2 {
				t.Fatalf("%q: host %q", s, host)
			}
			if host.Compare(id) >= 0 {
				t.Fatalf("%q does not come after its host %q", s, host)
			}
		} else if host != "" {
			t.Fatalf("%q: host %q", s, host)
		}
		if id.Top().Validate() != nil || id.Top().IsContainer() {
			t.Fatalf("%q: top %q", s, id.Top())
		}
	})
}

func FuzzMachineIDCompare(f *testing.F) {
	for _, s := range [][3]string{
		{"0", "00", "000"}, {"2", "10", "1"}, {"a1b", "a01b", "a1"}, {"0/lxd/1", "0", "0-"}, {"", "0", "a"},
		{"1a", "01", "1"}, {"99999999999999999999", "099999999999999999999", "100000000000000000000"}, {"\xff", "é", "e"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, x, y, z string) {
		a, b, c := provisioner.MachineID(x), provisioner.MachineID(y), provisioner.MachineID(z)
		if (a.Compare(b) == 0) != (a == b) {
			t.Fatalf("%q and %q compare as %d", a, b, a.Compare(b))
		}
		if a.Compare(b) != -b.Compare(a) {
			t.Fatalf("%q and %q: %d and %d", a, b, a.Compare(b), b.Compare(a))
		}
		if a.Compare(b) < 0 && b.Compare(c) < 0 && a.Compare(c) >= 0 {
			t.Fatalf("%q < %q < %q, but not the first < the last", a, b, c)
		}
	})
}
