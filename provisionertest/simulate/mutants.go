package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/juju/errors"
)

// A mutant is a deliberate fault: texts of source files and what stands in
// their place. The production code knows nothing of it: the go command is given
// the changed files in the place of the real ones (go build -overlay).
type mutant struct {
	name  string
	edits []edit
}

type edit struct{ file, old, new string }

//go:embed mutants.txt
var mutantsText string

// mutantSeeds is within how many seeds each has to be noticed.
const mutantSeeds = 5000

// readMutants reads mutants.txt: a line "== name", then edits with a line "++"
// between them: the file, the old text, a line "->" and the new text.
func readMutants(text string) ([]mutant, error) {
	var all []mutant
	for _, block := range strings.Split(text, "\n== ")[1:] {
		name, rest, _ := strings.Cut(block, "\n")
		m := mutant{name: name}
		for part := range strings.SplitSeq(rest, "\n++\n") {
			file, texts, _ := strings.Cut(part, "\n")
			old, replacement, ok := strings.Cut(texts, "\n->\n")
			if !ok {
				return nil, errors.NotValidf("mutant %q: want its file, the old text, a line -> and the new text:", name)
			}
			m.edits = append(m.edits, edit{file, old, strings.TrimRight(replacement, "\n")})
		}
		all = append(all, m)
	}
	return all, nil
}

// apply gives the changed sources by file.
func (m mutant) apply(root string) (map[string]string, error) {
	sources := map[string]string{}
	for _, x := range m.edits {
		if _, read := sources[x.file]; !read {
			source, err := os.ReadFile(filepath.Join(root, x.file))
			if err != nil {
				return nil, err
			}
			sources[x.file] = string(source)
		}
		if n := strings.Count(sources[x.file], x.old); n != 1 {
			return nil, errors.NotValidf("mutant %q: its text is in %s %d times, want once:", m.name, x.file, n)
		}
		sources[x.file] = strings.Replace(sources[x.file], x.old, x.new, 1)
	}
	return sources, nil
}

// mutants tries each mutant and prints which are noticed, by which rule.
func mutants(out io.Writer) bool {
	all, err := readMutants(mutantsText)
	if err != nil {
		fmt.Fprintln(out, err)
		return false
	}
	root, err := moduleRoot()
	if err != nil {
		fmt.Fprintln(out, err)
		return false
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		fmt.Fprintln(out, err)
		return false
	}
	defer os.RemoveAll(dir)
	survivors := 0
	for _, m := range all {
		verdict, noticed := m.try(root, dir)
		if !noticed {
			survivors++
		}
		fmt.Fprintf(out, "%-45s %s\n", m.name, verdict)
	}
	fmt.Fprintf(out, "%d mutants, %d not noticed\n", len(all), survivors)
	return survivors == 0
}

// try builds the simulator with the mutant in it, and lets it walk.
func (m mutant) try(root, dir string) (verdict string, noticed bool) {
	sources, err := m.apply(root)
	if err != nil {
		return err.Error(), false
	}
	overlay, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant")
	replace := map[string]string{}
	for file, source := range sources {
		changed := filepath.Join(dir, filepath.Base(file))
		replace[filepath.Join(root, file)] = changed
		if err := os.WriteFile(changed, []byte(source), 0o666); err != nil {
			return err.Error(), false
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err.Error(), false
	}
	if err := os.WriteFile(overlay, list, 0o666); err != nil {
		return err.Error(), false
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "./provisionertest/simulate")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		return "does not compile: " + string(text), false
	}
	text, err := exec.Command(binary, "-seeds", fmt.Sprint(mutantSeeds)).CombinedOutput()
	if err == nil {
		return fmt.Sprintf("NOT NOTICED in %d seeds", mutantSeeds), false
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "seed ") {
			return strings.TrimSpace(line), true
		}
	}
	return "it crashed: " + string(text), false
}

func moduleRoot() (string, error) {
	text, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/seed81ba69f2/provisioner").Output()
	return strings.TrimSpace(string(text)), errors.Annotate(err, "finding the module's source with the go command")
}
