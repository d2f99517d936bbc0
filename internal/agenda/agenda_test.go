package agenda_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner/internal/agenda"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func popAll(a *agenda.Agenda[string], now time.Time) []string {
	var values []string
	for {
		i, ok := a.Pop(now)
		if !ok {
			return values
		}
		if i.On() || !i.At().IsZero() {
			values = append(values, "still on it: "+i.Value)
		}
		values = append(values, i.Value)
	}
}

func TestAgenda(t *testing.T) {
	var a agenda.Agenda[string]
	if _, ok := a.Next(); ok || a.Len() != 0 {
		t.Error("the zero value is not empty")
	}
	item := func(v string) *agenda.Item[string] { return &agenda.Item[string]{Value: v} }
	one, two, three, also := item("one"), item("two"), item("three"), item("also two")
	a.Set(three, at(3))
	a.Set(two, at(2))
	a.Set(one, at(1))
	a.Set(also, at(2).In(time.FixedZone("elsewhere", 3600)))
	if next, ok := a.Next(); !ok || !next.Equal(at(1)) || a.Len() != 4 {
		t.Errorf("next is %v, %v; %d items", next, ok, a.Len())
	}
	if !two.On() || !two.At().Equal(at(2)) {
		t.Errorf("an item on the agenda: %v, %v", two.On(), two.At())
	}
	if got := popAll(&a, at(0)); got != nil {
		t.Errorf("due before its time: %v", got)
	}
	if diff := cmp.Diff([]string{"one", "two", "also two"}, popAll(&a, at(2))); diff != "" {
		t.Errorf("the earliest first, equal times as set, what is due now included (-want +got):\n%s", diff)
	}
	a.Set(two, at(4))
	a.Set(three, at(5))
	a.Set(two, at(5)) // moved, so behind three now
	if diff := cmp.Diff([]string{"three", "two"}, popAll(&a, at(9))); diff != "" {
		t.Errorf("moved (-want +got):\n%s", diff)
	}
	a.Set(one, at(1))
	a.Drop(one)
	a.Drop(one)
	a.Drop(item("never set"))
	if one.On() || a.Len() != 0 {
		t.Error("dropped, and still there")
	}
}

// Against a list that is sorted anew each time.
func FuzzAgenda(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 250, 251, 17, 99})
	f.Add([]byte{7, 7, 7, 135, 7, 255, 255})
	f.Add(script())
	f.Fuzz(func(t *testing.T, script []byte) {
		type entry struct {
			item *agenda.Item[int]
			at   time.Time
		}
		var a agenda.Agenda[int]
		var model []entry // in the order in which they were set
		items := make([]agenda.Item[int], 16)
		for i := range items {
			items[i].Value = i
		}
		remove := func(item *agenda.Item[int]) {
			model = slices.DeleteFunc(model, func(e entry) bool { return e.item == item })
		}
		first := func() *entry {
			var least *entry
			for i := range model {
				if least == nil || model[i].at.Before(least.at) {
					least = &model[i]
				}
			}
			return least
		}
		for i, b := range script {
			item := &items[b%16]
			switch when := at(int(b/16) * (i%3 + 1)); {
			case i%4 == 3:
				a.Drop(item)
				remove(item)
			case b >= 224:
				got, ok := a.Pop(when)
				if least := first(); least == nil || least.at.After(when) {
					if ok {
						t.Fatalf("popped %d, and nothing is due", got.Value)
					}
				} else if got != least.item {
					t.Fatalf("popped %v, want %d", got, least.item.Value)
				} else {
					remove(got)
				}
			default:
				a.Set(item, when)
				remove(item)
				model = append(model, entry{item, when})
			}
			if a.Len() != len(model) {
				t.Fatalf("%d items, want %d", a.Len(), len(model))
			}
			next, ok := a.Next()
			if least := first(); ok != (least != nil) || ok && !next.Equal(least.at) {
				t.Fatalf("next is %v, %v", next, ok)
			}
			for j := range items {
				on := slices.ContainsFunc(model, func(e entry) bool { return e.item == &items[j] })
				if items[j].On() != on {
					t.Fatalf("item %d: on %v, want %v", j, items[j].On(), on)
				}
			}
		}
	})
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
