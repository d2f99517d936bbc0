package provisioner

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const lifeDrawing = "docs/life.md"

// Every event of every life is either handled, or refused with a reason.
func TestLifeTableIsComplete(t *testing.T) {
	for l := range lives {
		for v := range lifeEvents {
			if cell := lifeTable[l][v]; (cell.do == nil) == (cell.why == "") {
				t.Errorf("%s, %s: want something to do, or why nothing is done, and not both: %q", l, v, cell.why)
			}
		}
	}
}

// The drawing is made from the table and from what its functions do; run with
// -update after a change, and read what has changed.
func TestLifeIsDrawn(t *testing.T) {
	drawn := drawLife(t)
	if update := flag.Lookup("update"); update != nil && update.Value.String() == "true" {
		if err := os.WriteFile(lifeDrawing, []byte(drawn), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(lifeDrawing)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(kept), drawn); diff != "" {
		t.Errorf("%s is not what the table says (-kept +drawn); run with -update:\n%s", lifeDrawing, diff)
	}
}

func drawLife(t *testing.T) string {
	var b strings.Builder
	b.WriteString(`# The life of a machine in the engine

Made from the table in life.go; ` + "`go test -run TestLifeIsDrawn -update .`" + ` draws it anew.

An arrow says what happens (an event) and where that can lead. What the
function of an event decides next, by firing another, is an arrow of its own.

` + "```mermaid\nstateDiagram-v2\n    [*] --> resting\n")
	steps := lifeSteps(t)
	for l := range lives {
		arrows := map[string][]string{}
		for v := range lifeEvents {
			for _, to := range steps[handlerOf(l, v)] {
				arrows[to] = append(arrows[to], v.String())
			}
		}
		for _, to := range slices.Sorted(maps.Keys(arrows)) {
			if to != l.String() {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", l, to, strings.Join(arrows[to], ", "))
			}
		}
	}
	b.WriteString("```\n")
	for l := range lives {
		fmt.Fprintf(&b, "\n## %s\n\n| event | what is done, or why nothing is |\n| --- | --- |\n", l)
		for v := range lifeEvents {
			if name := handlerOf(l, v); name != "" {
				fmt.Fprintf(&b, "| %s | `%s` |\n", v, name)
			} else {
				fmt.Fprintf(&b, "| %s | %s |\n", v, lifeTable[l][v].why)
			}
		}
	}
	return b.String()
}

// handlerOf is the name of the function that the table calls, "" for none.
func handlerOf(l life, v lifeEvent) string {
	do := lifeTable[l][v].do
	if do == nil {
		return ""
	}
	name := runtime.FuncForPC(reflect.ValueOf(do).Pointer()).Name()
	return name[strings.LastIndexByte(name, '.')+1:]
}

// elsewhere are functions that decide anew, about this machine or others:
// where that leads is said by the events that it fires.
var elsewhere = []string{"fire", "consider", "hostReady", "zonesChanged", "rivals", "wakeChildren", "settled", "read", "show", "begin"}

// lifeSteps are the lives that each function of the engine may enter, by
// itself or by what it calls; "[*]" if it may forget the machine.
func lifeSteps(t *testing.T) map[string][]string {
	t.Helper()
	enters, calls := map[string][]string{}, map[string][]string{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || f.Recv != nil && !isEngines(f.Recv.List[0].Type) {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch called := calledName(call); {
				case called == "enter":
					enters[f.Name.Name] = append(enters[f.Name.Name], lifeOf(t, call.Args[1])...)
				case called == "forget":
					enters[f.Name.Name] = append(enters[f.Name.Name], "[*]")
				case !slices.Contains(elsewhere, called):
					calls[f.Name.Name] = append(calls[f.Name.Name], called)
				}
				return true
			})
		}
	}
	steps := map[string][]string{}
	for name := range calls {
		to := map[string]bool{}
		reach(name, enters, calls, map[string]bool{}, to)
		steps[name] = slices.Sorted(maps.Keys(to))
	}
	for name := range enters {
		to := map[string]bool{}
		reach(name, enters, calls, map[string]bool{}, to)
		steps[name] = slices.Sorted(maps.Keys(to))
	}
	return steps
}

func reach(name string, enters, calls map[string][]string, seen, to map[string]bool) {
	if seen[name] {
		return
	}
	seen[name] = true
	for _, l := range enters[name] {
		to[l] = true
	}
	for _, called := range calls[name] {
		reach(called, enters, calls, seen, to)
	}
}

func isEngines(recv ast.Expr) bool {
	star, ok := recv.(*ast.StarExpr)
	if !ok {
		return false
	}
	name, ok := star.X.(*ast.Ident)
	return ok && name.Name == "engine"
}

// calledName is the name of a function, or of a method of the engine.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && x.Name == "e" {
			return f.Sel.Name
		}
	}
	return ""
}

// lifeOf is the name of the life that a constant stands for.
func lifeOf(t *testing.T, arg ast.Expr) []string {
	name, ok := arg.(*ast.Ident)
	if !ok || !strings.HasPrefix(name.Name, "life") {
		t.Fatalf("a life is entered that is no constant: the table would no longer tell where it leads")
	}
	l := strings.ToLower(strings.TrimPrefix(name.Name, "life"))
	if !slices.Contains(lifeNames[:], l) {
		t.Fatalf("no life is named %q", l)
	}
	return []string{l}
}
