package provisioner_test

import (
	"bufio"
	"go/ast"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// These tests keep the shape of the module: what a reader may rely on without
// reading everything. Each says in its failure why the fence is there.

const modulePath = "github.com/seed81ba69f2/provisioner"

// notCore are the files of the root package that are not core, and why. Every
// other one is, so a new file is inside the fence until somebody takes it out.
var notCore = map[string]string{
	"doc.go":         "text only",
	"broker.go":      "the host's interfaces take contexts",
	"state.go":       "the host's interfaces take contexts",
	"config.go":      "holds the clock",
	"events.go":      "feeds observers from goroutines of their own",
	"ops.go":         "calls the host",
	"provisioner.go": "what hosts call",
	"drive.go":       "the loop: goroutines, channels and the timer",
	"explain.go":     "takes a Task's turn at the loop",

	"observe_calls.go":      "stands between ops.go and the host",
	"observe_counters.go":   "takes a Task's turn at the loop",
	"observe_log.go":        "writes to a log",
	"observe_transcript.go": "locks what observers and readers share",
}

// corePackages are the internal packages that the engine is made of.
var corePackages = []string{"internal/agenda", "internal/lane"}

// forbidden are imports that no core file may have, and why. Everything below
// the path is meant, too.
var forbidden = map[string]string{
	"context":                       "a decision does not wait, so there is nothing to cancel",
	"log":                           "a decision is a value; whoever gets it may print it",
	"os":                            "a decision depends on its arguments only",
	"net":                           "a decision reaches nothing",
	"math/rand":                     "random numbers are given to the core, so that a run can be repeated",
	"crypto/rand":                   "random numbers are given to the core, so that a run can be repeated",
	"sync":                          "the core has one owner and no lock",
	"golang.org/x/sync":             "the core starts no goroutine",
	"github.com/benbjohnson/clock":  "the core is told the time, so that a run can be repeated",
	"github.com/google/go-cmp":      "only tests compare this way",
	"testing":                       "the core is not a test",
	modulePath + "/provisionertest": "the kit stands on the package, not under it",
}

// pure are packages below a forbidden one that only compute.
var pure = []string{"net/netip"}

// tellsTime are the functions of package time that read or wait for a clock.
var tellsTime = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func TestCoreIsPure(t *testing.T) {
	for _, name := range coreFiles(t) {
		fset, file := parse(t, name)
		at := func(n ast.Node) string { return fset.Position(n.Pos()).String() }
		for _, spec := range file.Imports {
			imported := importPath(spec)
			for banned, why := range forbidden {
				if (imported == banned || strings.HasPrefix(imported, banned+"/")) && !slices.Contains(pure, imported) {
					t.Errorf("%s: a core file imports %s: %s", at(spec), imported, why)
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a core file starts a goroutine: only the loop and the lanes do", at(n))
			case *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
				t.Errorf("%s: a core file has a channel: the core never waits", at(n))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(tellsTime, n.Sel.Name) {
					t.Errorf("%s: a core file uses time.%s: the core is told the time, so that a run can be repeated", at(n), n.Sel.Name)
				}
			}
			return true
		})
	}
}

// coreFiles are the files of the root package outside of notCore, and those of
// corePackages.
func coreFiles(t *testing.T) []string {
	t.Helper()
	var core []string
	for _, dir := range append([]string{"."}, corePackages...) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no Go files in %s (%v): take the package out of the fence, or mend its path", dir, err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") && notCore[f] == "" {
				core = append(core, f)
			}
		}
	}
	return core
}

func TestOnlyOpsCallsTheHost(t *testing.T) {
	files, info := typeCheck(t)
	for name, file := range files {
		if name == "ops.go" || name == "observe_calls.go" { // the second is what ops.go calls the host through
			continue
		}
		ast.Inspect(file.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || info.Selections[sel] == nil {
				return true
			}
			if owner := hostInterface(info.Selections[sel].Obj(), file.fset); owner != "" {
				t.Errorf("%s: %s.%s is used outside of ops.go: guards, deadlines and checks of what a host returns are there and nowhere else",
					file.fset.Position(sel.Pos()), owner, sel.Sel.Name)
			}
			return true
		})
	}
}

// answersFromMemory are interfaces of the host that need no guard: they do no
// I/O by contract.
var answersFromMemory = []string{"TraitsReporter", "Lease"}

// hostInterface is the name of the host's interface that the method belongs
// to, or "": those declared in broker.go and state.go.
func hostInterface(method types.Object, fset *token.FileSet) string {
	fn, ok := method.(*types.Func)
	if !ok {
		return ""
	}
	declaredIn := filepath.Base(fset.Position(fn.Pos()).Filename)
	recv := fn.Signature().Recv()
	if declaredIn != "broker.go" && declaredIn != "state.go" || recv == nil || !types.IsInterface(recv.Type()) {
		return ""
	}
	named, ok := recv.Type().(*types.Named)
	if !ok || slices.Contains(answersFromMemory, named.Obj().Name()) {
		return ""
	}
	return named.Obj().Name()
}

type checkedFile struct {
	fset *token.FileSet
	ast  *ast.File
}

// typeCheck checks the root package against the compiled form of what it
// imports, which the go command that built this test has at hand.
func typeCheck(t *testing.T) (map[string]checkedFile, *types.Info) {
	t.Helper()
	var complaint strings.Builder
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
	list.Stderr = &complaint
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, complaint.String())
	}
	export := map[string]string{}
	for line := range strings.Lines(string(out)) {
		imported, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		export[imported] = file
	}
	fset := token.NewFileSet()
	files, parsed := map[string]checkedFile{}, []*ast.File{}
	names, _ := filepath.Glob("*.go")
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[name], parsed = checkedFile{fset, file}, append(parsed, file)
	}
	if _, ok := files["ops.go"]; !ok {
		t.Fatal("there is no ops.go: the fence around the host's calls stands in the wrong place")
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(imported string) (io.ReadCloser, error) {
		return os.Open(export[imported])
	})}
	if _, err := conf.Check(modulePath, fset, parsed, info); err != nil {
		t.Fatalf("type check: %v", err)
	}
	return files, info
}

func TestDependencies(t *testing.T) {
	got := readGoMod(t)
	want := goMod{
		Module: modulePath,
		Go:     "1.26.0", // the older of the two supported releases; go get must not move it by itself
		Require: []string{
			"github.com/benbjohnson/clock",
			"github.com/google/go-cmp",
			"github.com/juju/errors",
			"golang.org/x/sync",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("go.mod is not as agreed; what needs more is a module of its own below examples/ or bench/ (-want +got):\n%s", diff)
	}
	for _, dir := range packageDirs(t) {
		for _, name := range goFiles(t, dir) {
			fset, file := parse(t, name)
			for _, spec := range file.Imports {
				imported := importPath(spec)
				if imported == "github.com/google/go-cmp/cmp" && !strings.HasSuffix(name, "_test.go") {
					t.Errorf("%s: %s is imported outside of tests: a program must not carry it", fset.Position(spec.Pos()), imported)
				}
			}
		}
	}
}

// Every direct requirement, of nested modules too, is in NOTICE with its licence
// and the reason why it is there.
func TestNoticeNamesEveryDependency(t *testing.T) {
	text, err := os.ReadFile("NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`(?m)^(?:\t|require )(\S+) v\S+$`) // an indirect one has a comment
	walk(t, func(name string) {
		if filepath.Base(name) != "go.mod" {
			return
		}
		mod, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range direct.FindAllSubmatch(mod, -1) {
			named := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(string(m[1])) + ` +\S`)
			if !strings.HasPrefix(string(m[1]), modulePath) && !named.Match(text) {
				t.Errorf("%s requires %s: name it in NOTICE, with its licence and why it is there", name, m[1])
			}
		}
	})
}

type goMod struct {
	Module, Go string
	Require    []string // without versions, sorted
	Other      []string // directives that should not be there
}

// readGoMod reads the simple form that `go mod tidy` writes.
func readGoMod(t *testing.T) goMod {
	t.Helper()
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var m goMod
	block := ""
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "//") {
			continue
		}
		if words[0] == ")" {
			block = ""
			continue
		}
		if block != "" {
			words = append([]string{block}, words...)
		} else if words[len(words)-1] == "(" {
			block = words[0]
			continue
		}
		switch {
		case words[0] == "module":
			m.Module = words[1]
		case words[0] == "go":
			m.Go = words[1]
		case words[0] == "require" && len(words) == 3:
			m.Require = append(m.Require, words[1])
		default: // an indirect requirement, a replacement, a toolchain…
			m.Other = append(m.Other, strings.Join(words, " "))
		}
	}
	slices.Sort(m.Require)
	return m
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, dir := range packageDirs(t) {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range goFiles(t, dir) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		if len(files) == 0 {
			continue
		}
		p, err := doc.NewFromFiles(fset, files, path.Join(modulePath, dir))
		if err != nil {
			t.Fatal(err)
		}
		missing := func(n ast.Node, what string) {
			t.Errorf("%s: %s has no doc comment: hosts read the documentation, not the code", fset.Position(n.Pos()), what)
		}
		if strings.TrimSpace(p.Doc) == "" {
			missing(files[0], "package "+p.Name)
		}
		checkDocs(p, missing)
	}
}

func checkDocs(p *doc.Package, missing func(ast.Node, string)) {
	checkFuncs := func(owner string, funcs []*doc.Func) {
		for _, f := range funcs {
			if f.Doc == "" {
				missing(f.Decl, owner+f.Name)
			}
		}
	}
	values := slices.Concat(p.Consts, p.Vars)
	checkFuncs("func ", p.Funcs)
	for _, typ := range p.Types {
		if typ.Doc == "" {
			missing(typ.Decl, "type "+typ.Name)
		}
		checkFuncs("func ", typ.Funcs)
		checkFuncs("method "+typ.Name+".", typ.Methods)
		values = slices.Concat(values, typ.Consts, typ.Vars)
	}
	// A group may be explained as a whole or name by name.
	for _, v := range values {
		for _, spec := range v.Decl.Specs {
			s, ok := spec.(*ast.ValueSpec)
			if ok && v.Doc == "" && s.Doc == nil && s.Comment == nil && slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) {
				missing(s, s.Names[0].Name)
			}
		}
	}
}

func TestEveryExampleIsChecked(t *testing.T) {
	for _, dir := range packageDirs(t) {
		for _, name := range goFiles(t, dir) {
			if !strings.HasSuffix(name, "_test.go") {
				continue
			}
			_, file := parse(t, name)
			for _, e := range doc.Examples(file) {
				if e.Output == "" && !e.EmptyOutput {
					t.Errorf("%s: Example%s has no // Output: what isn't run goes stale", name, e.Name)
				}
			}
		}
	}
}

// mayWait is what a line that sleeps inside of a bubble says when the text does
// not show that there is one.
const mayWait = "// in a bubble"

func TestNoTestSleeps(t *testing.T) {
	for _, dir := range packageDirs(t) {
		for _, name := range goFiles(t, dir) {
			if !strings.HasSuffix(name, "_test.go") {
				continue
			}
			fset, file := parse(t, name)
			excused := map[int]bool{}
			for _, group := range file.Comments {
				for _, c := range group.List {
					if strings.HasPrefix(c.Text, mayWait) {
						excused[fset.Position(c.Pos()).Line] = true
					}
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				// A function that makes a bubble, or waits in one, knows what its sleeps are.
				if isFuncWith(n, "synctest", "Test") || isFuncWith(n, "synctest", "Wait") {
					return false
				}
				if isCall(n, "time", "Sleep") && !excused[fset.Position(n.Pos()).Line] {
					t.Errorf("%s: a test sleeps outside of a bubble: it is slow, and fails on a busy machine; use testing/synctest or Task.Idle and the mock clock (%q at the end of the line, if a bubble is around it)", fset.Position(n.Pos()), mayWait)
				}
				return true
			})
		}
	}
}

func isFuncWith(n ast.Node, pkg, name string) (found bool) {
	f, ok := n.(*ast.FuncDecl)
	if !ok {
		return false
	}
	ast.Inspect(f, func(n ast.Node) bool {
		found = found || isCall(n, pkg, name)
		return !found
	})
	return found
}

func isCall(n ast.Node, pkg, name string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg && sel.Sel.Name == name
}

// machinePaths are places that exist on one machine only. The brackets keep
// this line from finding itself.
var machinePaths = regexp.MustCompile(`/[w]ork/(main|shared|\.)|/[r]oot/(go|\.cache)|/[h]ome/[a-z]+/(go|src)|/[t]mp/(brief|bash_)|/[U]sers/`)

func TestNoMachinePaths(t *testing.T) {
	walk(t, func(name string) {
		if name == ".git" { // of a linked work tree
			return
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 64<<20)
		for n := 1; lines.Scan(); n++ {
			if strings.Contains(lines.Text(), "\x00") {
				return // not text
			}
			if found := machinePaths.FindString(lines.Text()); found != "" {
				t.Errorf("%s:%d: %q exists on one machine only", name, n, found)
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	})
}

// walk visits the files of the repository, those of nested modules too.
func walk(t *testing.T, visit func(name string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || name == "bin"):
			return fs.SkipDir
		case d.Type().IsRegular() && d.Name() != ".git": // a file in a linked worktree
			visit(name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// packageDirs are the directories of the root module that hold Go files.
func packageDirs(t *testing.T) []string {
	t.Helper()
	nested, dirs := []string{}, map[string]bool{}
	walk(t, func(name string) {
		switch dir := filepath.Dir(name); {
		case filepath.Base(name) == "go.mod" && dir != ".":
			nested = append(nested, dir)
		case filepath.Ext(name) == ".go" && !slices.Contains(strings.Split(name, "/"), "testdata"):
			dirs[dir] = true
		}
	})
	maps.DeleteFunc(dirs, func(dir string, _ bool) bool {
		return slices.ContainsFunc(nested, func(n string) bool { return dir == n || strings.HasPrefix(dir, n+"/") })
	})
	return slices.Sorted(maps.Keys(dirs))
}

func goFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func parse(t *testing.T, name string) (*token.FileSet, *ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return fset, file
}

func importPath(spec *ast.ImportSpec) string {
	imported, _ := strconv.Unquote(spec.Path.Value)
	return imported
}
