// Command observed brings up a small fleet in memory, with some trouble, and
// shows what a host can see of it: lines of log/slog, metrics for Prometheus,
// spans of OpenTelemetry, and a transcript for a bug report.
//
//	go run -C examples/observed .
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "observed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	world, err := world()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	exported := tracetest.NewInMemoryExporter() // a program has one for its collector, such as otlptracehttp
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported))
	defer provider.Shutdown(ctx)
	transcript := &provisioner.Transcript{}

	task, err := provisioner.New(provisioner.Config{
		Controller: "observed",
		Broker:     world.Broker(),
		State:      world.State(),
		Observers: []provisioner.Observer{
			provisioner.LogObserver{Logger: slog.New(slog.NewTextHandler(out, nil))},
			transcript,
		},
		Trace:  both(spans(provider.Tracer("provisioner")), durations(registry)),
		Policy: provisioner.Policy{Retry: provisioner.FixedRetry(0, 2)},
	})
	if err != nil {
		return err
	}
	registry.MustRegister(collector{task})

	// A span around the whole look is the parent of all calls that it makes.
	ctx, look := provider.Tracer("host").Start(ctx, "look")
	if _, err := task.Reconcile(ctx); err != nil {
		return err
	}
	look.End()
	if _, err := task.Idle(ctx); err != nil { // the observers have been told everything
		return err
	}

	fmt.Fprintln(out, "\n--- spans")
	for _, s := range exported.GetSpans() {
		fmt.Fprintln(out, s.Name, s.Attributes, s.Status.Description)
	}
	fmt.Fprintln(out, "\n--- metrics") // a program serves them with promhttp
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "\n--- transcript")
	_, err = transcript.WriteTo(out)
	return err
}

// world has three machines, two zones, and a start that fails.
func world() (*provisionertest.World, error) {
	w := provisionertest.New(provisionertest.Settings{Kind: true})
	if err := w.Load(provisionertest.NewFleet(3, 2, 0)); err != nil {
		return nil, err
	}
	fault, err := provisionertest.ParseFault("start machine=1 nth=1: error")
	if err != nil {
		return nil, err
	}
	return w, w.Inject(fault)
}
