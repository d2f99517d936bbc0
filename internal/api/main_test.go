package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func described(t *testing.T, source string) string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", "package p\n"+source, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check("p", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(describe(pkg), "\n")
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct{ why, source, want string }{
		{"what is not exported is not API", `const a = 1; type b struct{ C int }; func d() {}; type E struct{ f int }; func (E) g() {}`, `type E struct`},
		{"constants have values, which are names of events and the like", `type K string; const A K = "a"; const B = 1 << 4`,
			"const A K = \"a\"\nconst B untyped int = 16\ntype K string"},
		{"names of parameters are nobody's business", `func F(a int, b ...string) (c error, d func(x int) bool) { return }`, `func F(int, ...string) (error, func(int) bool)`},
		{"whether a method needs a pointer is", `type T struct{}; func (T) A() {}; func (*T) B() {}`, "method (*T).B()\nmethod T.A()\ntype T struct"},
		{"fields, tags and what is embedded", "type E struct{}\nfunc (E) M() {}\ntype S struct { E; A map[string]func(x int) `json:\"a\"` }",
			"field S.A map[string]func(int) `json:\"a\"`\nfield S.E E embedded\nmethod E.M()\nmethod S.M()\ntype E struct\ntype S struct"},
		{"methods that come with what is embedded and not exported", `type e struct{}; func (e) M() {}; type S struct { e }`, "method S.M()\ntype S struct"},
		{"an interface with all of its methods", `type I interface { J; A(x int) error; b() }; type J interface { C() }`,
			"method I.(unexported)\nmethod I.A(int) error\nmethod I.C()\nmethod J.C()\ntype I interface\ntype J interface"},
		{"type parameters", `type S[T any] struct { C <-chan T }; func (S[T]) Get() T { panic(0) }; func F[A, B comparable](a A) B { panic(0) }; type N interface { ~int | ~string }`,
			"field S.C <-chan T\nfunc F[A comparable, B comparable](A) B\nmethod N.(constraint) interface{~int | ~string}\nmethod S.Get() T\ntype N interface\ntype S[T any] struct"},
		{"variables and aliases", `var V []int; type A = map[string]int`, "type A = map[string]int\nvar V []int"},
	} {
		t.Run(c.why, func(t *testing.T) {
			if diff := cmp.Diff(c.want, described(t, c.source)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDifferences(t *testing.T) {
	if diff := cmp.Diff([]string{"- b", "+ c"}, differences([]string{"a", "b"}, []string{"a", "c"})); diff != "" {
		t.Error(diff)
	}
}

// Of a module: what is exported is written, kept, and compared.
func TestRun(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	put("go.mod", "module example.test/m\n")
	put("m.go", "package m\nimport \"example.test/m/x/y\"\nfunc F(y.T) {}\n")
	put("x/y/y.go", "package y\ntype T int\n")
	put("internal/z/z.go", "package z\ntype T int\n")
	put("cmd/c/main.go", "package main\nfunc Exported() {}\nfunc main() {}\n")
	put("api/gone.txt", "func G()\n")
	try := func(update, want bool, text string) {
		t.Helper()
		var out strings.Builder
		same, err := run(root, update, &out)
		if err != nil || same != want {
			t.Fatalf("the same: %v, %v; want %v\n%s", same, err, want, &out)
		}
		if text != strings.TrimSuffix(out.String(), advice) {
			t.Errorf("told was:\n%s", &out)
		}
	}
	try(false, false, "api/gone.txt: - func G()\napi/m.txt: + func F(example.test/m/x/y.T)\napi/x-y.txt: + type T int\n")
	try(true, true, "")
	try(false, true, "")
	if _, err := os.Stat(filepath.Join(root, "api/gone.txt")); err == nil {
		t.Error("the file of a package that is gone is still there")
	}
	put("x/y/y.go", "package y\ntype T string\n")
	try(false, false, "api/x-y.txt: - type T int\napi/x-y.txt: + type T string\n")
	put("x/y/y.go", "package y\nnonsense\n")
	if _, err := run(root, false, &strings.Builder{}); err == nil {
		t.Error("nonsense was described")
	}
}
