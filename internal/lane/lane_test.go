package lane_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner/internal/lane"
)

func all(string) bool { return true }

func fill(l *lane.Lane[string]) []string {
	var got []string
	for {
		v, ok := l.Pop(all)
		if !ok {
			return got
		}
		got = append(got, v)
	}
}

func push(l *lane.Lane[string], key string, values ...string) {
	for _, v := range values {
		l.Push(key, v)
	}
}

// ST17
func TestLane(t *testing.T) {
	tests := []struct {
		why  string
		do   func(l *lane.Lane[string]) []string
		want []string
	}{
		{"first come, first served, up to the limit", func(l *lane.Lane[string]) []string {
			push(l, "", "a", "b", "c", "d")
			return fill(l)
		}, []string{"a", "b", "c"}},
		{"a place given back is the next one's", func(l *lane.Lane[string]) []string {
			push(l, "", "a", "b", "c", "d", "e")
			fill(l)
			l.Done("")
			return fill(l)
		}, []string{"d"}},
		{"a full key holds up only its own", func(l *lane.Lane[string]) []string {
			push(l, "full", "f1", "f2", "f3")
			push(l, "other", "o1")
			return fill(l)
		}, []string{"f1", "o1", "f2"}},
		{"a full key does not hold up what has none", func(l *lane.Lane[string]) []string {
			l.Limit = 9
			push(l, "full", "f1", "f2", "f3", "f4")
			push(l, "", "a", "b")
			return fill(l)
		}, []string{"a", "f1", "b", "f2"}},
		{"neither kind starves the other", func(l *lane.Lane[string]) []string {
			l.Limit, l.KeyLimit = 6, 6
			push(l, "", "a", "b", "c", "d", "e", "f")
			push(l, "k", "k1", "k2", "k3", "k4", "k5", "k6")
			return fill(l)
		}, []string{"a", "k1", "b", "k2", "c", "k3"}},
		{"keys take turns", func(l *lane.Lane[string]) []string {
			l.Limit = 6
			push(l, "k", "k1", "k2", "k3")
			push(l, "l", "l1", "l2", "l3")
			push(l, "m", "m1")
			return fill(l)
		}, []string{"k1", "l1", "m1", "k2", "l2"}},
		{"a key's place given back is that key's", func(l *lane.Lane[string]) []string {
			l.Limit = 9
			push(l, "k", "k1", "k2", "k3", "k4")
			fill(l)
			l.Done("k")
			return fill(l)
		}, []string{"k3"}},
		{"what does not want its place any more takes none", func(l *lane.Lane[string]) []string {
			push(l, "k", "gone", "k1", "gone", "gone", "k2")
			push(l, "", "gone", "a")
			var got []string
			for {
				v, ok := l.Pop(func(v string) bool { return v != "gone" })
				if !ok {
					return append(got, fmt.Sprint(l.Used(), " used, ", l.Waiting(), " waiting"))
				}
				got = append(got, v)
			}
		}, []string{"a", "k1", "k2", "3 used, 0 waiting"}},
		{"a larger limit counts at once", func(l *lane.Lane[string]) []string {
			push(l, "", "a", "b", "c", "d", "e", "f")
			fill(l)
			l.Resize(5, 2)
			return fill(l)
		}, []string{"d", "e"}},
		{"a smaller limit pre-empts nothing, and holds later", func(l *lane.Lane[string]) []string {
			push(l, "", "a", "b", "c", "d", "e")
			fill(l)
			l.Resize(2, 2)
			got := []string{fmt.Sprint(l.Used())}
			l.Done("")
			got = append(got, fill(l)...)
			l.Done("")
			return append(got, fill(l)...)
		}, []string{"3", "d"}},
		{"a larger key limit counts at once, in the order of the keys", func(l *lane.Lane[string]) []string {
			l.Resize(99, 1)
			for _, k := range []string{"e", "c", "a", "d", "b"} {
				push(l, k, k+"1", k+"2")
			}
			fill(l)
			l.Resize(99, 2)
			return fill(l)
		}, []string{"a2", "b2", "c2", "d2", "e2"}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got := test.do(&lane.Lane[string]{Limit: 3, KeyLimit: 2})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	var zero lane.Lane[string]
	push(&zero, "", "a")
	if got := fill(&zero); got != nil {
		t.Errorf("the zero value has no places, and gave %v", got)
	}
}

// No limit is ever passed, no value is lost or given out twice, values of one
// key keep their order, and a place is given whenever there is one to give.
func FuzzLane(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 200, 201, 100, 101, 102})
	f.Add([]byte{0, 8, 16, 24, 32, 255, 128, 129, 130, 255, 64})
	f.Add(script())
	f.Fuzz(func(t *testing.T, script []byte) {
		const limit, keyLimit = 4, 2
		l := lane.Lane[int]{Limit: limit, KeyLimit: keyLimit}
		keys := []string{"", "a", "b", "c"}
		keyOf := map[int]string{}
		waiting := map[string][]int{}
		running := map[string]int{}
		used, next := 0, 0
		for _, b := range script {
			key := keys[b%4]
			switch {
			case b < 128:
				keyOf[next] = key
				waiting[key] = append(waiting[key], next)
				l.Push(key, next)
				next++
			case b < 200:
				if running[key] > 0 {
					running[key]--
					used--
					l.Done(key)
				}
			default:
				v, ok := l.Pop(func(int) bool { return true })
				could := used < limit && len(waiting[""]) > 0
				for _, k := range keys[1:] {
					could = could || used < limit && len(waiting[k]) > 0 && running[k] < keyLimit
				}
				if ok != could {
					t.Fatalf("popped %v, %v; %d used, running %v, waiting %v", v, ok, used, running, waiting)
				}
				if !ok {
					continue
				}
				k := keyOf[v]
				if waiting[k][0] != v {
					t.Fatalf("%d of key %q was before its turn: %v", v, k, waiting[k])
				}
				waiting[k] = waiting[k][1:]
				running[k]++
				used++
				if k != "" && running[k] > keyLimit {
					t.Fatalf("key %q: %d at once", k, running[k])
				}
			}
			n := 0
			for _, w := range waiting {
				n += len(w)
			}
			if l.Used() != used || l.Waiting() != n {
				t.Fatalf("%d used, %d waiting; want %d, %d", l.Used(), l.Waiting(), used, n)
			}
		}
	})
}

// A lane that is never empty does not grow.
func TestLaneReusesItsMemory(t *testing.T) {
	l := lane.Lane[int]{Limit: 1}
	for i := range 100 {
		l.Push("", i)
	}
	step := func() {
		l.Push("", 0)
		if _, ok := l.Pop(func(int) bool { return true }); !ok {
			t.Fatal("no place")
		}
		l.Done("")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100_000 {
		step()
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 100_000 {
		t.Errorf("%d bytes for 100,000 values that have gone through", n)
	}
}

// script is a long one, the same each time.
func script() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	s := make([]byte, 5000)
	for i := range s {
		s[i] = byte(r.Uint32())
	}
	return s
}
