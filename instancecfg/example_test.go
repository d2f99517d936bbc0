package instancecfg_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed81ba69f2/provisioner/instancecfg"
)

func ExampleNew() {
	info := instancecfg.Info{
		APIAddresses:    []string{"10.0.0.1:17070"},
		ImageSigningKey: instancecfg.Hide("for machines that manage a model"),
	}
	auth := instancecfg.Auth{Tag: "machine-7", Password: instancecfg.Hide("pa55")}

	c, err := instancecfg.New("7", "machine-0:5f0b7ad4", info, auth)
	fmt.Println(c.Jobs, c.ImageSigningKey.IsZero(), err)

	info.APIAddresses = []string{"10.0.0.1"}
	info.Jobs = []instancecfg.Job{"manage"}
	_, err = instancecfg.New("7", "machine-0:5f0b7ad4", info, auth)
	fmt.Println(err)
	// Output:
	// [host-units] true <nil>
	// instance config of machine "7": APIAddresses[0] "10.0.0.1": want host:port; Jobs[0] "manage": want host-units or manage-model: not valid
}

func ExampleHide() {
	auth := instancecfg.Auth{Tag: "machine-7", Password: instancecfg.Hide("pa55")}
	text, _ := json.Marshal(auth)

	fmt.Printf("%+v\n", auth)
	fmt.Println(string(text))
	fmt.Println(auth.Password.Reveal())
	// Output:
	// {Tag:machine-7 Password:REDACTED}
	// {"Tag":"machine-7","Password":"REDACTED"}
	// pa55
}

func ExampleConfig_CloudInit() {
	info := instancecfg.Info{UserData: instancecfg.Hide(map[string]any{
		"packages": []string{"curl"},
		"runcmd":   []any{[]string{"my-agent", "--config", instancecfg.AgentFile}},
	})}
	c, err := instancecfg.New("7", "machine-0:5f0b7ad4", info, instancecfg.Auth{})
	if err != nil {
		fmt.Println(err)
		return
	}
	userData, err := c.CloudInit()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(userData) // as everything with secrets in it
	fmt.Println(strings.ReplaceAll(userData.Reveal(), `, "`, ",\n  \""))
	// Output:
	// REDACTED
	// #cloud-config
	// {"packages": ["curl"],
	//   "runcmd": [["my-agent",
	//   "--config",
	//   "/var/lib/provisioner/agent.json"]],
	//   "write_files": [{"content": "{\"jobs\": [\"host-units\"], \"machine\": \"7\", \"nonce\": \"machine-0:5f0b7ad4\"}\n",
	//   "owner": "root:root",
	//   "path": "/var/lib/provisioner/agent.json",
	//   "permissions": "0600"}]}
}
