package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A walk of the length that every run of the tests can afford; see the head of
// main.go for longer ones.
func TestWalk(t *testing.T) {
	seeds := uint64(4000)
	if testing.Short() {
		seeds = 400
	}
	var out strings.Builder
	if !walk(&out, 0, seeds) {
		t.Error(out.String())
	}
}

// A seed decides everything: the same seed is the same run, to the byte.
func TestSeedsCanBeRepeated(t *testing.T) {
	for seed := range uint64(60) {
		var first, again strings.Builder
		show(&first, seed, nil)
		show(&again, seed, nil)
		if diff := cmp.Diff(first.String(), again.String()); diff != "" {
			t.Fatalf("seed %d (-first +again):\n%s", seed, diff)
		}
	}
}

// Without deeds and faults nothing happens.
func TestOnlyWhatIsAskedFor(t *testing.T) {
	var all, one strings.Builder
	show(&all, 3, nil)
	show(&one, 3, map[string]bool{"add:0": true})
	if n := strings.Count(one.String(), " trouble "); n != 1 {
		t.Errorf("%d deeds and faults, want one:\n%s", n, &one)
	}
	if strings.Count(all.String(), " trouble ") < 2 {
		t.Errorf("seed 3 is no example:\n%s", &all)
	}
}

// Each mutant still fits the source that it changes, and changes it.
func TestMutantsFit(t *testing.T) {
	all, err := readMutants(mutantsText)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d mutants, %v", len(all), err)
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if _, err := m.apply(root); err != nil {
			t.Error(err)
		}
	}
}

func TestReadMutants(t *testing.T) {
	tests := []struct {
		why, text string
		want      []mutant
		bad       string
	}{
		{"several edits", "# c\n\n== one\na.go\nold\n->\nnew\n++\nb.go\nx\ny\n->\n\n== two\nc.go\n1\n->\n2\n", []mutant{
			{"one", []edit{{"a.go", "old", "new"}, {"b.go", "x\ny", ""}}},
			{"two", []edit{{"c.go", "1", "2"}}},
		}, ""},
		{"nothing in its place", "\n== one\na.go\nold\n", nil, `mutant "one"`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, err := readMutants(test.text)
			if test.bad != "" {
				if err == nil || !strings.Contains(err.Error(), test.bad) {
					t.Errorf("error %v, want one that says %s", err, test.bad)
				}
				return
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(mutant{}, edit{})); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
