package provisioner_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

type spanKey struct{}

// spans traces calls, and keeps them as text: what they were for, and how they
// ended.
type spans struct {
	mu    sync.Mutex
	began int
	texts []string
}

func (s *spans) trace(ctx context.Context, c provisioner.Call) (context.Context, func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began++
	text := c.Name
	if c.Machine != "" {
		text += " machine=" + string(c.Machine)
	}
	if c.Attempt > 0 {
		text += fmt.Sprint(" attempt=", c.Attempt)
	}
	return context.WithValue(ctx, spanKey{}, c), func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			text += ": " + err.Error()
		}
		s.texts = append(s.texts, text)
	}
}

func (s *spans) of(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var texts []string
	for _, text := range s.texts {
		if strings.HasPrefix(text, name) {
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return texts
}

// Each call of the host is traced once, with what it is for and how it ended,
// and the host sees the values of the trace's context.
func TestTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 3, 2)
		inject(t, w, "start machine=1 nth=1: error")
		seen := map[string]int{}
		var mu sync.Mutex
		cfg := configOf(w, func(ctx context.Context, _ provisionertest.Call, _ ...string) error {
			mu.Lock()
			defer mu.Unlock()
			c, _ := ctx.Value(spanKey{}).(provisioner.Call)
			seen[c.Name]++
			return nil
		})
		s := &spans{}
		cfg.Trace = s.trace
		task := newTask(t, cfg)
		_, err := task.Reconcile(t.Context())
		must(t, err)
		want := []string{"Broker.Start machine=0 attempt=1", "Broker.Start machine=1 attempt=1: ", "Broker.Start machine=1 attempt=2", "Broker.Start machine=2 attempt=1"}
		for i, got := range s.of("Broker.Start") {
			if i >= len(want) || got != want[i] && !(strings.HasSuffix(want[i], ": ") && strings.HasPrefix(got, want[i])) {
				t.Errorf("traced was %q, want %q", s.of("Broker.Start"), want)
				break
			}
		}
		counts := map[string]int{}
		for name, n := range task.Counters().Calls {
			counts[name] = int(n.Began)
		}
		traced := 0
		for name, n := range counts {
			traced += n
			if got := len(s.of(name)); got != n {
				t.Errorf("%s was called %d times and traced %d times", name, n, got)
			}
		}
		if s.began != len(s.texts) || s.began != traced {
			t.Errorf("%d spans began, %d ended, %d calls were made", s.began, len(s.texts), traced)
		}
		for _, unhooked := range []string{"InstanceFinder.FindInstances", "IntentStore.Intents", "IntentStore.SwapIntent", "SparedStore.Spared"} {
			delete(counts, unhooked)
		}
		if diff := cmp.Diff(counts, seen); diff != "" {
			t.Errorf("calls as counted, and as the host has seen them by its context:\n%s", diff)
		}
		if len(counts) < 6 {
			t.Errorf("only these were called: %v", slices.Sorted(maps.Keys(counts)))
		}
	})
}

// LC4: a trace that fails or gives odd things changes nothing of what is done.
func TestTraceThatFails(t *testing.T) {
	foreign, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		why   string
		trace func(context.Context, provisioner.Call) (context.Context, func(error))
		told  int // EventObserverFailed
	}{
		{"nothing", func(ctx context.Context, _ provisioner.Call) (context.Context, func(error)) { return nil, nil }, 0},
		{"a context that has ended", func(context.Context, provisioner.Call) (context.Context, func(error)) { return foreign, nil }, 0},
		{"a panic before the call", func(context.Context, provisioner.Call) (context.Context, func(error)) { panic("no paper") }, 1},
		{"a panic with nil", func(context.Context, provisioner.Call) (context.Context, func(error)) { panic(nil) }, 1},
		{"a panic after the call", func(ctx context.Context, _ provisioner.Call) (context.Context, func(error)) {
			return ctx, func(error) { panic("no paper") }
		}, 1},
	} {
		t.Run(c.why, func(t *testing.T) {
			var transcripts [2]string
			for i := range transcripts {
				synctest.Test(t, func(t *testing.T) {
					w := fleetOf(t, provisionertest.Settings{LostReplies: provisionertest.NeverLost}, 5, 2) // calls that take their time come in one order
					inject(t, w, "start machine=1 nth=1: error")
					cfg := configOf(w, nil)
					seen := &log{}
					cfg.Observers = []provisioner.Observer{seen}
					if i == 1 {
						cfg.Trace = c.trace
					}
					stop := start(t, newTask(t, cfg))
					pass(time.Minute)
					stopCleanly(t, w, stop)
					transcripts[i] = w.Transcript()
					failed := seen.of(provisioner.EventObserverFailed)
					if want := c.told * i; len(failed) != want {
						t.Errorf("told was %v, want %d", failed, want)
					}
					for _, e := range failed {
						if e.N != -1 || !strings.Contains(e.Err.Error(), "trace panicked") {
							t.Errorf("told was %s", e)
						}
					}
				})
			}
			if diff := cmp.Diff(transcripts[0], transcripts[1]); diff != "" {
				t.Errorf("what is done without, and with the trace:\n%s", diff)
			}
		})
	}
}

// ST11, ST18: a trace that ends the goroutine of a start leaves it unknown,
// as a broker that does: no second instance comes of it.
func TestTraceThatEndsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 2, 2)
		cfg := configOf(w, nil)
		once := sync.Once{}
		cfg.Trace = func(ctx context.Context, c provisioner.Call) (context.Context, func(error)) {
			return ctx, func(error) {
				if c.Name == "Broker.Start" {
					once.Do(runtime.Goexit)
				}
			}
		}
		stop := start(t, newTask(t, cfg))
		pass(10 * time.Minute)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
		if n := len(w.Live()); n != 2 {
			t.Errorf("%d instances of 2 machines:\n%s", n, w.Transcript())
		}
	})
}

// ST18: what a trace returns can't keep the end of a call from it.
func TestTraceDoesNotHideTheEndOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 1, 1)
		cfg := configOf(w, func(ctx context.Context, c provisionertest.Call, _ ...string) error {
			if c == provisionertest.CallZones {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		cfg.Trace = func(context.Context, provisioner.Call) (context.Context, func(error)) {
			return context.Background(), nil
		}
		task := newTask(t, cfg)
		stop := start(t, task)
		pass(90 * time.Second)
		if got := task.Counters().Calls["ZoneLister.Zones"]; got.TimedOut != 1 || got.Out != 1 {
			t.Errorf("calls of Zones are %+v, want one that timed out and one that is out", got)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// BenchmarkTrace is EndToEnd without a trace, and with one that does nothing:
//
//	go test -run '^$' -bench Trace -count 6 .
func BenchmarkTrace(b *testing.B) {
	for name, trace := range map[string]provisioner.TraceFunc{
		"none": nil,
		"empty": func(ctx context.Context, _ provisioner.Call) (context.Context, func(error)) {
			return ctx, func(error) {}
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			const machines = 10_000
			for range b.N {
				b.StopTimer()
				w := kindWorld(b, machines, 3, 0)
				task, err := provisioner.New(provisioner.Config{
					Controller: "c", Broker: w.PlainBroker(), State: w.PlainState(),
					Optional: provisioner.Optional{Zones: w.Broker()}, Trace: trace,
				})
				must(b, err)
				b.StartTimer()
				_, err = task.Reconcile(b.Context())
				must(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*machines), "ns/machine")
		})
	}
}
