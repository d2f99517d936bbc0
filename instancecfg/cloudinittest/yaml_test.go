package cloudinittest_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/seed81ba69f2/provisioner/instancecfg"
)

const nonce = "machine-0:5f0b7ad4-6f5c-4c4b-8f5e-3c1d2b6a9e10"

// render returns cloud-init user data and what is in it by the YAML parser.
func render(t *testing.T, c instancecfg.Config) (text string, data map[string]any) {
	t.Helper()
	secret, err := c.CloudInit()
	if err != nil {
		t.Fatal(err)
	}
	text = secret.Reveal()
	if first, _, _ := strings.Cut(text, "\n"); first != "#cloud-config" {
		t.Fatalf("cloud-init knows user data by its first line, but: %q", first)
	}
	if err := yaml.Unmarshal([]byte(text), &data); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return text, data
}

// IC1
func TestCloudInitIsYAML(t *testing.T) {
	info := instancecfg.Info{
		ControllerID: "ctrl-1", APIAddresses: []string{"[fd00::1]:17070"},
		CACert: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		Jobs:   []instancecfg.Job{instancecfg.JobManageModel},
		UserData: instancecfg.Hide(map[string]any{
			"packages":    []string{"curl", "no", "1.0"},
			"runcmd":      []any{[]string{"echo", "a: b # c", "{}", "it's \"quoted\"\n"}},
			"write_files": []any{map[string]any{"path": "/etc/motd", "content": "öäü 東 😀\n\ttab\x7f\u0085\u2028\ufeff", "permissions": "0644"}},
			"numbers":     []any{1, -2.5, 1e30, 1e-9, math.MaxInt64, true, nil},
			"<<":          map[string]any{"merged": false},
			"":            strings.Repeat("long ", 1000),
		}),
		ControllerConfig: instancecfg.Hide(map[string]any{"state-port": 37017}),
	}
	c, err := instancecfg.New("0", nonce, info, instancecfg.Auth{Tag: "machine-0", Password: instancecfg.Hide("pa55: #")})
	if err != nil {
		t.Fatal(err)
	}
	_, data := render(t, c)

	files := data["write_files"].([]any)
	agent := files[len(files)-1].(map[string]any)
	var config map[string]any
	if err := json.Unmarshal([]byte(agent["content"].(string)), &config); err != nil {
		t.Fatal(err)
	}
	delete(agent, "content")
	want := map[string]any{
		"packages": []any{"curl", "no", "1.0"},
		"runcmd":   []any{[]any{"echo", "a: b # c", "{}", "it's \"quoted\"\n"}},
		"write_files": []any{
			map[string]any{"path": "/etc/motd", "content": "öäü 東 😀\n\ttab\x7f\u0085\u2028\ufeff", "permissions": "0644"},
			map[string]any{"path": instancecfg.AgentFile, "owner": "root:root", "permissions": "0600"},
		},
		"numbers": []any{1, -2.5, 1e30, 1e-9, math.MaxInt64, true, nil},
		"<<":      map[string]any{"merged": false},
		"":        strings.Repeat("long ", 1000),
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Error(diff)
	}
	wantConfig := map[string]any{
		"machine": "0", "nonce": nonce, "controller-id": "ctrl-1", "api-addresses": []any{"[fd00::1]:17070"},
		"ca-cert": info.CACert, "jobs": []any{"manage-model"}, "controller-config": map[string]any{"state-port": 37017.0},
		"auth": map[string]any{"tag": "machine-0", "password": "pa55: #"},
	}
	if diff := cmp.Diff(wantConfig, config); diff != "" {
		t.Error(diff)
	}
}

// YAML finds in the rendering just what JSON finds.
func FuzzCloudInitIsYAML(f *testing.F) {
	f.Add("key", "value", 1.5, `{"runcmd": [["a", null]]}`)
	f.Add("<<", "\x7f\u0085\u2028\ufeff😀\r\n\t ", -1e-9, `{"write_files": [{"path": "/x"}], "": {"a": {}}}`)
	f.Add("? ", "#cloud-config\n---\n...", 1e21, `{"a": "!!binary x", "b": "&a *a", "c": "%YAML"}`)
	f.Add(strings.Repeat("k", 997), strings.Repeat("v", 2000), 0.0, `{}`)
	f.Fuzz(func(t *testing.T, key, value string, number float64, userData string) {
		var host map[string]any
		if json.Unmarshal([]byte(userData), &host) != nil || host == nil {
			host = map[string]any{}
		}
		host["number"], host[key] = number, value
		c, err := instancecfg.New("0", nonce, instancecfg.Info{UserData: instancecfg.Hide(host)}, instancecfg.Auth{})
		if err != nil {
			return
		}
		text, byYAML := render(t, c)
		var byJSON map[string]any
		if err := json.Unmarshal([]byte(strings.TrimPrefix(text, "#cloud-config\n")), &byJSON); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(byJSON, floats(byYAML)); diff != "" {
			t.Fatalf("%s in %s", diff, text)
		}
	})
}

// floats makes of every number the type that JSON gives.
func floats(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = floats(value)
		}
	case []any:
		for i, value := range v {
			v[i] = floats(value)
		}
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	}
	return v
}
