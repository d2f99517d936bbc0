package instancecfg

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/juju/errors"
)

// AgentFile is where CloudInit puts the agent's configuration.
const AgentFile = "/var/lib/provisioner/agent.json"

// CloudInit returns cloud-init user data, beginning with "#cloud-config", that
// a broker can hand to an instance. Equal configurations give equal text.
//
// It holds the host's UserData, and one more entry at the end of its
// write_files: AgentFile, owned by root and readable by nobody else, with the
// rest of the configuration as a JSON object. Its keys are machine, nonce,
// controller-id, stream, base, agent-version, api-addresses, ca-cert, tags,
// jobs, auth (tag and password), controller-config and image-signing-key; what
// is empty is left out. To start the agent is a matter of UserData (runcmd).
//
// The result is YAML that is JSON as well. An error satisfies NotValid of
// github.com/juju/errors; New has found its cause before.
func (c Config) CloudInit() (Secret[string], error) {
	agent, faults := encode("agent file", c.agentFile())
	files, fault := userFiles(c.UserData.Reveal())
	if fault != "" {
		faults = append(faults, fault)
	}
	data := map[string]any{}
	maps.Copy(data, c.UserData.Reveal())
	data[writeFiles] = append(files, map[string]any{
		"path": AgentFile, "owner": "root:root", "permissions": "0600", "content": agent + "\n",
	})
	text, more := encode("UserData", data)
	if faults = append(faults, more...); len(faults) > 0 {
		return Secret[string]{}, errors.NotValidf("cloud-init of machine %q: %s:", c.Machine, strings.Join(faults, "; "))
	}
	return Hide("#cloud-config\n" + text + "\n"), nil
}

const writeFiles = "write_files"

// userFiles returns a copy of the host's own list of files.
func userFiles(userData map[string]any) (files []any, fault string) {
	host := reflect.ValueOf(userData[writeFiles])
	if !host.IsValid() {
		return nil, ""
	}
	if host.Kind() != reflect.Slice {
		return nil, fmt.Sprintf("UserData[%q]: %s: want a list", writeFiles, host.Type())
	}
	for i := range host.Len() {
		files = append(files, host.Index(i).Interface())
	}
	return files, ""
}

func (c Config) agentFile() map[string]any {
	auth := map[string]any{}
	set(auth, "tag", c.Auth.Tag)
	set(auth, "password", c.Auth.Password.Reveal())
	agent := map[string]any{}
	set(agent, "machine", c.Machine)
	set(agent, "nonce", c.Nonce)
	set(agent, "controller-id", c.ControllerID)
	set(agent, "stream", c.Stream)
	set(agent, "base", c.Base)
	set(agent, "agent-version", c.AgentVersion)
	set(agent, "api-addresses", c.APIAddresses)
	set(agent, "ca-cert", c.CACert)
	set(agent, "tags", c.Tags)
	set(agent, "jobs", c.Jobs)
	set(agent, "auth", auth)
	set(agent, "controller-config", c.ControllerConfig.Reveal())
	set(agent, "image-signing-key", c.ImageSigningKey.Reveal())
	return agent
}

// set leaves out what is empty.
func set(m map[string]any, key string, value any) {
	if reflect.ValueOf(value).Len() > 0 {
		m[key] = value
	}
}
