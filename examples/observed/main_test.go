package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"level=WARN msg=attempt-failed machine=1",
		"msg=started machine=1 instance=i-1",
		"\nBroker.Start [",
		`provisioner_calls_total{call="Broker.Start",outcome="ok"} 3`,
		`provisioner_calls_total{call="Broker.Start",outcome="failed"} 1`,
		`provisioner_events_total{kind="started"} 3`,
		`provisioner_machines{phase="resting"} 3`,
		`provisioner_call_seconds_count{call="Broker.Start"} 4`,
		`provisioner_lane_limit{lane="starts"} 16`,
		"started machine=1 instance=i-1",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestMetricsAreWellFormed(t *testing.T) {
	w, err := world()
	if err != nil {
		t.Fatal(err)
	}
	task, err := provisioner.New(provisioner.Config{Controller: "c", Broker: w.Broker(), State: w.State(), Policy: provisioner.Policy{Retry: provisioner.FixedRetry(0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := task.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector{task}); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	want := `
# HELP provisioner_machines Machines known, by what is being done about them.
# TYPE provisioner_machines gauge
provisioner_machines{phase="resting"} 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "provisioner_machines"); err != nil {
		t.Error(err)
	}
}

// spanBroker begins a span of its own in each start.
type spanBroker struct {
	*provisionertest.Broker
	tracer trace.Tracer
}

func (b spanBroker) Start(ctx context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
	_, span := b.tracer.Start(ctx, "POST /instances")
	defer span.End()
	return b.Broker.Start(ctx, q)
}

// From the host's span over the Task's to the broker's, all are one trace.
func TestSpansAreNested(t *testing.T) {
	exported := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported))
	w, err := world()
	if err != nil {
		t.Fatal(err)
	}
	task, err := provisioner.New(provisioner.Config{
		Controller: "c", Broker: spanBroker{w.Broker(), provider.Tracer("broker")}, State: w.State(),
		Trace: spans(provider.Tracer("provisioner")), Policy: provisioner.Policy{Retry: provisioner.FixedRetry(0, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, look := provider.Tracer("host").Start(t.Context(), "look")
	if _, err := task.Reconcile(ctx); err != nil {
		t.Fatal(err)
	}
	look.End()
	names := map[trace.SpanID]string{}
	for _, s := range exported.GetSpans() {
		names[s.SpanContext.SpanID()] = s.Name
	}
	parents, failed := map[string]map[string]int{}, 0
	for _, s := range exported.GetSpans() {
		if parents[s.Name] == nil {
			parents[s.Name] = map[string]int{}
		}
		parents[s.Name][names[s.Parent.SpanID()]]++
		if s.Name == "Broker.Start" && s.Status.Code == codes.Error {
			failed++
		}
	}
	got := []map[string]int{parents["POST /instances"], parents["Broker.Start"], parents["State.SetInstance"], parents["look"]}
	want := []map[string]int{{"Broker.Start": 4}, {"look": 4}, {"look": 3}, {"": 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parents of the broker's, the Task's and the host's spans (-want +got):\n%s", diff)
	}
	if failed != 1 {
		t.Errorf("%d spans of starts say that they failed, want 1", failed)
	}
}

func TestBothEndInTheOppositeOrder(t *testing.T) {
	var told []string
	one := func(name string) provisioner.TraceFunc {
		return func(ctx context.Context, _ provisioner.Call) (context.Context, func(error)) {
			told = append(told, "begin "+name)
			return ctx, func(err error) { told = append(told, "end "+name+" "+err.Error()) }
		}
	}
	_, end := both(one("a"), one("b"))(t.Context(), provisioner.Call{})
	end(errors.New("boom"))
	if diff := cmp.Diff([]string{"begin a", "begin b", "end b boom", "end a boom"}, told); diff != "" {
		t.Error(diff)
	}
}
