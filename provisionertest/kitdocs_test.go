package provisionertest_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner/provisionertest"
)

var update = flag.Bool("update", false, "rewrite what tests write into docs/")

// TestRulesInDocuments: docs/conformance.md lists the rules that there are. With
// -update it is written anew.
func TestRulesInDocuments(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# What a host has to keep

These are the rules of ` + "`provisionertest.TestBroker`" + ` and ` + "`TestState`" + `, each a
subtest of its own; ` + "`CheckBroker`" + ` and ` + "`CheckState`" + ` check the same outside of tests.
How to use them is in [Testing](testing.md) and in
[Write a broker in an afternoon](broker-guide.md). A rule with needs is passed over
where they are not met: a capability or promise that the host does not have, or an
option without which the rule can't be provoked. ` + "`HostOptions.Must`" + ` turns that into a
failure, ` + "`HostOptions.Skip`" + ` passes a rule over with a reason.

This file is written by a test (` + "`go test ./provisionertest -run RulesInDocuments -update`" + `).
`)
	for _, part := range []struct {
		title string
		rules []provisionertest.Rule
	}{{"A broker", provisionertest.BrokerRules()}, {"A state", provisionertest.StateRules()}} {
		fmt.Fprintf(&b, "\n## %s\n\n| rule | what it says | needs |\n| --- | --- | --- |\n", part.title)
		seen := map[string]bool{}
		for _, r := range part.rules {
			if seen[r.Name] || r.Explanation == "" {
				t.Errorf("rule %q: want a name of its own, and an explanation", r.Name)
			}
			seen[r.Name] = true
			needs := ""
			if len(r.Needs) > 0 {
				needs = "`" + strings.Join(r.Needs, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Name, r.Explanation, needs)
		}
	}
	wantFile(t, "../docs/conformance.md", b.String())
}

// wantFile compares a file with what it should be, or writes it with -update.
func wantFile(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(name, []byte(want), 0o644))
		return
	}
	got, err := os.ReadFile(name)
	must(t, err)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not up to date: run this test with -update (-want +got):\n%s", name, diff)
	}
}
