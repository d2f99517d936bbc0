package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	inline  = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every link in a document leads to a file, and to a heading of it, that is
// there. Those into the world are not followed: no test needs a network.
func TestLinks(t *testing.T) {
	documents := readDocuments(t)
	for name, text := range documents {
		for _, target := range links(text) {
			if err := follow(documents, name, target); err != nil {
				t.Errorf("%s: link to %q: %v", name, target, err)
			}
		}
	}
}

// Every document is found by somebody who begins with the README.
func TestDocumentsAreReached(t *testing.T) {
	documents := readDocuments(t)
	reached := map[string]bool{}
	var reach func(name string)
	reach = func(name string) {
		if reached[name] || documents[name] == "" {
			return
		}
		reached[name] = true
		for _, target := range links(documents[name]) {
			file, _, _ := strings.Cut(target, "#")
			reach(filepath.Join(filepath.Dir(name), file))
		}
	}
	reach("README.md")
	for name := range documents {
		if !reached[name] {
			t.Errorf("no link leads from README.md to %s", name)
		}
	}
}

func readDocuments(t *testing.T) map[string]string {
	t.Helper()
	documents := map[string]string{}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		inRoot, _ := filepath.Rel("..", name)
		documents[filepath.ToSlash(inRoot)] = string(text)
		return err
	})
	if err != nil || len(documents) < 8 {
		t.Fatalf("%d documents: %v", len(documents), err)
	}
	return documents
}

// links are the targets of a document's links, without what is code.
func links(text string) []string {
	text = inline.ReplaceAllString(fenced.ReplaceAllString(text, ""), "")
	var targets []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		targets = append(targets, m[1])
	}
	return targets
}

// follow says why a link from a document leads nowhere, or nil.
func follow(documents map[string]string, from, target string) error {
	if strings.HasPrefix(target, "https://") {
		return nil
	}
	file, anchor, hasAnchor := strings.Cut(target, "#")
	name := from
	if file != "" {
		name = filepath.Join(filepath.Dir(from), file)
	}
	if _, err := os.Stat(filepath.Join("..", name)); err != nil {
		return fmt.Errorf("there is no %s", name)
	}
	if hasAnchor && !slices.Contains(anchors(documents[name]), anchor) {
		return fmt.Errorf("%s has no heading with the anchor #%s; it has %v", name, anchor, anchors(documents[name]))
	}
	return nil
}

// anchors are those that a reader of Markdown makes of headings.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		slug := strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		all = append(all, slug)
	}
	return all
}

func TestBrokenLinksAreFound(t *testing.T) {
	documents := map[string]string{"README.md": "# A title: with `code`\n", "docs/testing.md": "## What\n```\n# not one\n```\n"}
	for _, c := range []struct {
		why, from, target string
		broken            bool
	}{
		{"a file beside it", "docs/testing.md", "design.md", false},
		{"a file above it", "docs/testing.md", "../README.md", false},
		{"a folder", "README.md", "docs", false},
		{"a file that is not there", "README.md", "docs/nothing.md", true},
		{"a file that is there from elsewhere", "README.md", "design.md", true},
		{"a heading", "docs/testing.md", "../README.md#a-title-with-code", false},
		{"a heading here", "docs/testing.md", "#what", false},
		{"a heading that is not there", "README.md", "#another-title", true},
		{"a comment in code is no heading", "docs/testing.md", "#not-one", true},
		{"the world", "README.md", "https://example.test/", false},
		{"the world in the clear", "README.md", "http://example.test/", true},
	} {
		if err := follow(documents, c.from, c.target); (err != nil) != c.broken {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	if got := links("[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n[g](h.md#i)"); !slices.Equal(got, []string{"b.md", "h.md#i"}) {
		t.Errorf("links are %q", got)
	}
}
