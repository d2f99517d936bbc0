package instancecfg_test

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// render returns the user data and, read as JSON, what is in it.
func render(t *testing.T, c instancecfg.Config) (text string, data map[string]any) {
	t.Helper()
	secret, err := c.CloudInit()
	if err != nil {
		t.Fatal(err)
	}
	text = secret.Reveal()
	body, ok := strings.CutPrefix(text, "#cloud-config\n")
	if !ok {
		t.Fatalf("cloud-init knows user data by its first line, but: %q", text)
	}
	if err := json.Unmarshal([]byte(body), &data); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return text, data
}

// agentFile takes the last file, which must be the agent's, out of data.
func agentFile(t *testing.T, data map[string]any) map[string]any {
	t.Helper()
	files := data["write_files"].([]any)
	file := files[len(files)-1].(map[string]any)
	var agent map[string]any
	if err := json.Unmarshal([]byte(file["content"].(string)), &agent); err != nil {
		t.Fatal(err)
	}
	delete(file, "content")
	want := map[string]any{"path": instancecfg.AgentFile, "owner": "root:root", "permissions": "0600"}
	if diff := cmp.Diff(want, file); diff != "" {
		t.Error(diff)
	}
	data["write_files"] = files[:len(files)-1]
	return agent
}

// IC1
func TestCloudInit(t *testing.T) {
	info, auth := full(instancecfg.JobManageModel, instancecfg.JobHostUnits)
	c, err := instancecfg.New("0", nonce, info, auth)
	if err != nil {
		t.Fatal(err)
	}
	text, data := render(t, c)
	want := map[string]any{
		"machine": "0", "nonce": nonce, "controller-id": "ctrl-1", "stream": "released", "base": "ubuntu@24.04",
		"agent-version": "3.6.1", "api-addresses": []any{"10.0.0.1:17070", "[fd00::1]:17070", "api.example.com:443"},
		"ca-cert": cert + cert, "tags": map[string]any{"owner": "team a", "env": ""},
		"jobs": []any{"manage-model", "host-units"}, "auth": map[string]any{"tag": "machine-1", "password": "pa55"},
		"controller-config": map[string]any{"state-port": 37017.0, "ca-key": "k3y"}, "image-signing-key": "s1gn",
	}
	if diff := cmp.Diff(want, agentFile(t, data)); diff != "" {
		t.Error(diff)
	}
	want = map[string]any{
		"packages": []any{"curl"}, "chpasswd": map[string]any{"list": "root:hunter2"}, "write_files": []any{},
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Error(diff)
	}
	for range 20 {
		again, _ := render(t, c)
		if diff := cmp.Diff(text, again); diff != "" {
			t.Fatal("not the same each time:", diff)
		}
	}
}

func TestCloudInitLeavesOutWhatIsEmpty(t *testing.T) {
	c, err := instancecfg.New("0", nonce, instancecfg.Info{}, instancecfg.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	_, data := render(t, c)
	want := map[string]any{"machine": "0", "nonce": nonce, "jobs": []any{"host-units"}}
	if diff := cmp.Diff(want, agentFile(t, data)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"write_files": []any{}}, data); diff != "" {
		t.Error(diff)
	}
}

// The host's files stay, and none of them replaces the agent's.
func TestCloudInitFiles(t *testing.T) {
	host := map[string]any{"path": "/etc/motd", "content": "hi"}
	same := map[string]any{"path": instancecfg.AgentFile, "content": "{}"}
	tests := []struct {
		why   string
		files any
		want  []any
	}{
		{"none", nil, []any{}},
		{"a list", []any{host, same}, []any{host, same}},
		{"a list of maps", []map[string]any{host}, []any{host}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			userData := map[string]any{"write_files": test.files}
			before := maps.Clone(userData)
			c, err := instancecfg.New("0", nonce, instancecfg.Info{UserData: instancecfg.Hide(userData)}, instancecfg.Auth{})
			if err != nil {
				t.Fatal(err)
			}
			_, data := render(t, c)
			agentFile(t, data)
			if diff := cmp.Diff(map[string]any{"write_files": test.want}, data); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, userData); diff != "" {
				t.Error("the host's data was changed:", diff)
			}
		})
	}
}

// What is written must be read in the same way by JSON, YAML 1.1 and YAML 1.2.
func TestCloudInitValues(t *testing.T) {
	type word string
	text := "x"
	tests := []struct {
		why  string
		v    any
		want string
	}{
		{"nothing", nil, `null`},
		{"a pointer to nothing", (*int)(nil), `null`},
		{"a pointer", &text, `"x"`},
		{"a boolean", true, `true`},
		{"a negative number", int8(-3), `-3`},
		{"the largest number", uint64(math.MaxUint64), `18446744073709551615`},
		{"a whole float", 3.0, `3`},
		{"a float", float32(0.1), `0.1`},
		{"a large float has a point", 1e21, `1.0e+21`},
		{"a small float has a point", -2.5e-7, `-2.5e-07`},
		{"a number from JSON", json.Number("12"), `12`},
		{"a large number from JSON", json.Number("1e30"), `1.0e+30`},
		{"a type of the host", word("x"), `"x"`},
		{"text that looks like a number", "0600", `"0600"`},
		{"text that looks like a boolean", "no", `"no"`},
		{"quotes and backslashes", `a"b\c`, `"a\"b\\c"`},
		{"lines", "a\r\n\tb", `"a\u000d\n\u0009b"`},
		{"what YAML has no place for", "\x00\x7f\u0085\u00a0\u2028\ufeff\uffff\ue000", `"\u0000\u007f\u0085\u00a0\u2028\ufeff\uffff\ue000"`},
		{"other alphabets", "ö東😀", `"ö東😀"`},
		{"beyond what can be printed", "\U0010ffff", "\"\U0010ffff\""},
		{"an empty list", []string{}, `[]`},
		{"a list", [2]any{1, []int{2}}, `[1, [2]]`},
		{"maps are sorted", map[any]any{"b": 1, word("a"): map[word]int{"<<": 2}}, `{"a": {"<<": 2}, "b": 1}`},
		{"the longest key", map[string]int{strings.Repeat("k", 998): 1}, `{"` + strings.Repeat("k", 998) + `": 1}`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			c, err := instancecfg.New("0", nonce, instancecfg.Info{UserData: instancecfg.Hide(map[string]any{"v": test.v})}, instancecfg.Auth{})
			if err != nil {
				t.Fatal(err)
			}
			got, _ := render(t, c)
			_, got, _ = strings.Cut(got, `{"v": `)
			got, _, _ = strings.Cut(got, `, "write_files"`)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A Config that was not made by New is checked all the same.
func TestCloudInitFaults(t *testing.T) {
	c := instancecfg.Config{Machine: "0", Nonce: "\xff", Info: instancecfg.Info{
		UserData: instancecfg.Hide(map[string]any{"write_files": 1, "a": make(chan int), "b": json.Number("x")}),
	}}
	_, err := c.CloudInit()
	if err == nil || !errors.Is(err, errors.NotValid) {
		t.Fatalf("not a NotValid error: %v", err)
	}
	const want = `cloud-init of machine "0": agent file["nonce"]: want UTF-8 text; binary data goes into cloud-init as base64; ` +
		`UserData["write_files"]: int: want a list; UserData["a"]: chan int: want text, numbers, booleans, lists, and maps with text keys; ` +
		`UserData["b"]: want a finite number: not valid`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

// Whatever New accepts can be rendered, and what was rendered reads back.
func FuzzCloudInit(f *testing.F) {
	f.Add("0", "host:1", "key", "value", `{"runcmd": [["a", 1.5e-9, null]]}`)
	f.Add("1/lxd/0", "a:b", "<<", "\x7f\u2028😀", `{"write_files": [{"path": "/x"}], "": {"a": -0.0}}`)
	f.Add("0", "a:b", "\xff", "#cloud-config\n---\n...", `{"write_files": {}}`)
	f.Fuzz(func(t *testing.T, machine, nonce, key, value, userData string) {
		var host map[string]any
		if json.Unmarshal([]byte(userData), &host) != nil || host == nil {
			host = map[string]any{}
		}
		host[key] = value
		info := instancecfg.Info{
			Tags:     map[string]string{"t": value},
			Jobs:     []instancecfg.Job{instancecfg.JobManageModel},
			UserData: instancecfg.Hide(host), ControllerConfig: instancecfg.Hide(map[string]any{key: value}),
			ImageSigningKey: instancecfg.Hide(value),
		}
		c, err := instancecfg.New(machine, nonce, info, instancecfg.Auth{})
		if err != nil {
			if !errors.Is(err, errors.NotValid) {
				t.Fatalf("not a NotValid error: %v", err)
			}
			return
		}
		_, data := render(t, c)
		agent := agentFile(t, data)
		if diff := cmp.Diff(map[string]any{key: value}, agent["controller-config"]); diff != "" {
			t.Fatal(diff)
		}
		if files := data["write_files"].([]any); len(files) == 0 && host["write_files"] == nil {
			delete(data, "write_files")
			delete(host, "write_files")
		}
		if !reflect.DeepEqual(host, data) {
			t.Fatal(cmp.Diff(host, data))
		}
	})
}
