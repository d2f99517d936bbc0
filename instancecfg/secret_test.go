package instancecfg_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// secrets are the texts that full hides. A number is one, too.
var secrets = []string{"hunter2", "37017", "k3y", "s1gn", "pa55"}

// leaks returns the secrets that can be read in s, as they are or in one of
// the ways in which fmt prints a text.
func leaks(s string) (found []string) {
	for _, secret := range secrets {
		for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("% x", secret), strings.Trim(fmt.Sprint([]byte(secret)), "[]")} {
			if strings.Contains(strings.ToLower(s), form) {
				found = append(found, secret+" as "+form)
			}
		}
	}
	return found
}

// holders are all ways to hold secrets that a host may print.
func holders(t *testing.T) map[string]any {
	t.Helper()
	info, auth := full(instancecfg.JobManageModel)
	c, err := instancecfg.New("0", nonce, info, auth)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.CloudInit()
	if err != nil {
		t.Fatal(err)
	}
	type hidden struct {
		c    instancecfg.Config
		p    *instancecfg.Config
		s    instancecfg.Secret[string]
		m    map[string]instancecfg.Secret[string]
		any  any
		list []instancecfg.Auth
	}
	return map[string]any{
		"config": c, "pointer": &c, "info": info, "auth": auth, "auth pointer": &auth, "cloud-init": text,
		"text": auth.Password, "text pointer": &auth.Password, "data": info.UserData, "data pointer": &info.ControllerConfig,
		"list": []instancecfg.Config{c}, "map": map[string]any{"c": c, "a": auth}, "key": map[instancecfg.Secret[string]]int{auth.Password: 1},
		"unexported":         hidden{c, &c, auth.Password, map[string]instancecfg.Secret[string]{"a": auth.Password}, c, []instancecfg.Auth{auth}},
		"unexported pointer": &hidden{c: c, p: &c, any: &c},
	}
}

func TestSecretsDoNotLeakFromFmt(t *testing.T) {
	for name, v := range holders(t) {
		for _, verb := range "vTtbcdoOqxXUeEfFgGspw!" {
			for _, flags := range []string{"", "+", "#", "-", " ", "0", "+#", "20", ".3"} {
				format := "%" + flags + string(verb)
				if found := leaks(fmt.Sprintf(format, v)); found != nil {
					t.Errorf("%s printed with %s: %q", name, format, found)
				}
			}
		}
	}
}

func TestSecretsDoNotLeakFromElsewhere(t *testing.T) {
	for name, v := range holders(t) {
		var out bytes.Buffer
		data, err := json.Marshal(v)
		fmt.Fprintln(&out, string(data), err)
		data, err = xml.Marshal(v)
		fmt.Fprintln(&out, string(data), err)
		fmt.Fprintln(&out, gob.NewEncoder(&out).Encode(v))
		log.New(&out, "", 0).Println(v)
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).With("a", v).WithGroup("g").Info("text", "b", v, slog.Any("c", []any{v}))
		}
		fmt.Fprintln(&out, template.Must(template.New("").Parse("{{.}}{{printf `%q` .}}")).Execute(&out, v))
		err = errors.Annotatef(fmt.Errorf("%v: %w", v, errors.NotValid), "%+v", v)
		fmt.Fprintln(&out, err, errors.ErrorStack(err), errors.Details(err))
		if found := leaks(out.String()); found != nil {
			t.Errorf("%s: %q in\n%s", name, found, out.String())
		}
	}
}

// A test of a host that fails shows what is not as wanted: cmp leaves Stringers
// alone where both give the same text.
func TestSecretsDoNotLeakFromDiffs(t *testing.T) {
	info, auth := full(instancecfg.JobManageModel)
	for _, diff := range []string{
		cmp.Diff(auth, instancecfg.Auth{Tag: auth.Tag, Password: instancecfg.Hide("other")}),
		cmp.Diff(info, instancecfg.Info{UserData: instancecfg.Hide(map[string]any{"a": 1})}),
		cmp.Diff([]instancecfg.Auth{auth}, nil),
	} {
		if diff == "" {
			t.Error("no difference")
		}
		if found := leaks(diff); found != nil {
			t.Errorf("%q in\n%s", found, diff)
		}
	}
}

func TestSecretsDoNotLeakFromErrors(t *testing.T) {
	info, auth := full(instancecfg.JobManageModel)
	auth.Tag = ""
	info.UserData = instancecfg.Hide(map[string]any{"write_files": "hunter2", "a": []byte("hunter2"), "b": "hunter2\xff"})
	info.ControllerConfig = instancecfg.Hide(map[string]any{"a": struct{ S string }{"k3y"}, "b": map[any]any{37017: 1}})
	info.CACert = "-----BEGIN PRIVATE KEY-----\npa55\n-----END PRIVATE KEY-----\n"
	_, err := instancecfg.New("0", nonce, info, auth)
	_, renderErr := instancecfg.Config{Machine: "0", Info: info, Auth: auth}.CloudInit()
	if err == nil || renderErr == nil {
		t.Fatalf("no error: %v, %v", err, renderErr)
	}
	text := fmt.Sprintf("%v %+v %#v %v %+v %#v", err, err, err, renderErr, renderErr, renderErr)
	if found := leaks(text + errors.ErrorStack(err) + errors.ErrorStack(renderErr)); found != nil {
		t.Errorf("%q in %s", found, text)
	}
}

// The tests above see a leak when there is one.
func TestLeaksAreSeen(t *testing.T) {
	for _, s := range []string{"x pa55 y", fmt.Sprintf("%X", "pa55"), fmt.Sprintf("%v", []byte("pa55")), fmt.Sprintf("% x", "pa55")} {
		if leaks(s) == nil {
			t.Errorf("nothing is found in %q", s)
		}
	}
	if found := leaks("REDACTED 0xc000012345"); found != nil {
		t.Error(found)
	}
}

func TestSecret(t *testing.T) {
	var zero instancecfg.Secret[string]
	set := instancecfg.Hide("pa55")
	data := instancecfg.Hide(map[string]any{"a": 1})
	type row struct {
		Text, Verb, Quoted, Go, Log, JSON string
		Zero                              bool
	}
	show := func(s interface {
		fmt.Stringer
		slog.LogValuer
		IsZero() bool
	}) row {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return row{s.String(), fmt.Sprint(s), fmt.Sprintf("%q", s), fmt.Sprintf("%#v", s), s.LogValue().String(), string(text), s.IsZero()}
	}
	hidden := row{"REDACTED", "REDACTED", `"REDACTED"`, "REDACTED", "REDACTED", `"REDACTED"`, false}
	nothing := row{"", "", `""`, "", "", `""`, true}
	want := []row{nothing, nothing, hidden, hidden}
	if diff := cmp.Diff(want, []row{show(zero), show(instancecfg.Hide("")), show(set), show(data)}); diff != "" {
		t.Error(diff)
	}
	if zero.Reveal() != "" || set.Reveal() != "pa55" || data.Reveal()["a"] != 1 {
		t.Error("Reveal does not give back what was hidden")
	}
	if set.GoString() != "REDACTED" {
		t.Error("GoString reveals")
	}
	if !set.Equal(instancecfg.Hide("pa55")) || set.Equal(zero) || !zero.Equal(instancecfg.Hide("")) || !data.Equal(instancecfg.Hide(map[string]any{"a": 1})) {
		t.Error("Equal does not compare what is held")
	}
}

// A password that was redacted on the way out must not come back as one.
func TestSecretIsNotReadFromJSON(t *testing.T) {
	var auth instancecfg.Auth
	if err := json.Unmarshal([]byte(`{"Tag":"m","Password":"REDACTED"}`), &auth); err == nil {
		t.Errorf("no error, but password %q", auth.Password.Reveal())
	}
}
