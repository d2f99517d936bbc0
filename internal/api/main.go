// Command api keeps the exported API of the module in api/*.txt, a name a line,
// so that a change of it is seen in a diff.
//
//	go run ./internal/api            says what differs, and fails if anything does
//	go run ./internal/api -update    writes the files anew
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	update := flag.Bool("update", false, "write the files anew")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "api: want no arguments, got %q\n", flag.Args())
		os.Exit(2)
	}
	same, err := run(".", *update, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(2)
	case !same:
		os.Exit(1)
	}
}

const advice = `
The exported API is no longer that of api/*.txt. If that is meant, run

	go run ./internal/api -update

commit the files together with the change, and tell of it in CHANGELOG.md. A line
that goes (-) breaks hosts: mark what it was as deprecated instead, if you can.
`

// run compares, or writes, the files below root.
func run(root string, update bool, out io.Writer) (same bool, err error) {
	described, err := describeModule(root)
	if err != nil {
		return false, err
	}
	dir := filepath.Join(root, "api")
	kept, err := read(dir)
	if err != nil {
		return false, err
	}
	if update {
		return true, write(dir, kept, described)
	}
	same = true
	for _, name := range names(kept, described) {
		for _, line := range differences(kept[name], described[name]) {
			same = false
			fmt.Fprintf(out, "%s: %s\n", filepath.ToSlash(filepath.Join("api", name)), line)
		}
	}
	if !same {
		fmt.Fprint(out, advice)
	}
	return same, nil
}

// An api is the lines of each file, sorted.
type api map[string][]string

func names(a, b api) []string {
	var all []string
	for _, m := range []api{a, b} {
		for name := range m {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func read(dir string) (api, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	kept := api{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		kept[filepath.Base(file)] = strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	return kept, err
}

func write(dir string, kept, described api) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, name := range names(kept, described) {
		file := filepath.Join(dir, name)
		var err error
		if lines := described[name]; lines == nil {
			err = os.Remove(file)
		} else {
			err = os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o666)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// differences are the lines that have gone, and those that have come.
func differences(kept, now []string) []string {
	var diff []string
	for _, line := range kept {
		if !slices.Contains(now, line) {
			diff = append(diff, "- "+line)
		}
	}
	for _, line := range now {
		if !slices.Contains(kept, line) {
			diff = append(diff, "+ "+line)
		}
	}
	return diff
}

type listed struct {
	Dir, ImportPath, Name, Export string
	GoFiles                       []string
	Module                        *struct {
		Path string
		Main bool
	}
}

// describeModule describes each package that others can import.
func describeModule(root string) (api, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Name,Export,GoFiles,Module", "./...")
	list.Dir = root
	var complaint bytes.Buffer
	list.Stderr = &complaint
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &complaint)
	}
	exports, all := map[string]string{}, []listed{}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Main && p.Name != "main" && !slices.Contains(strings.Split(p.ImportPath, "/"), "internal") {
			all = append(all, p)
		}
	}
	described := api{}
	for _, p := range all {
		pkg, err := check(p, exports)
		if err != nil {
			return nil, err
		}
		name := strings.Trim(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
		if name == "" {
			name = p.Name
		}
		if lines := describe(pkg); len(lines) > 0 {
			described[strings.ReplaceAll(name, "/", "-")+".txt"] = lines
		}
	}
	return described, nil
}

func check(p listed, exports map[string]string) (*types.Package, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(imported string) (io.ReadCloser, error) {
		return os.Open(exports[imported])
	})}
	return conf.Check(p.ImportPath, fset, files, nil)
}
