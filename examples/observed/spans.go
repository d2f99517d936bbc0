package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed81ba69f2/provisioner"
)

// spans makes an OpenTelemetry span of each call of the host. A broker that
// begins spans of its own, of its requests to the cloud, finds this one in its
// context.
func spans(tracer trace.Tracer) provisioner.TraceFunc {
	return func(ctx context.Context, c provisioner.Call) (context.Context, func(error)) {
		ctx, span := tracer.Start(ctx, c.Name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes(c)...))
		return ctx, func(err error) {
			if err != nil {
				span.SetStatus(codes.Error, err.Error())
			}
			span.End()
		}
	}
}

func attributes(c provisioner.Call) (all []attribute.KeyValue) {
	text := func(key, value string) {
		if value != "" {
			all = append(all, attribute.String("provisioner."+key, value))
		}
	}
	number := func(key string, n int) {
		if n != 0 {
			all = append(all, attribute.Int("provisioner."+key, n))
		}
	}
	text("machine", string(c.Machine))
	text("instance", string(c.Instance))
	text("zone", string(c.Zone))
	number("attempt", c.Attempt)
	number("machines", c.Machines)
	return all
}

// durations measures each call of the host.
func durations(r prometheus.Registerer) provisioner.TraceFunc {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "provisioner_call_seconds", Help: "How long calls of the host take.",
		Buckets: []float64{0.01, 0.1, 1, 10, 60, 300},
	}, []string{"call"})
	r.MustRegister(seconds)
	return func(ctx context.Context, c provisioner.Call) (context.Context, func(error)) {
		began := time.Now()
		return ctx, func(error) { seconds.WithLabelValues(c.Name).Observe(time.Since(began).Seconds()) }
	}
}

// both is around a call with a, and within that with b.
func both(a, b provisioner.TraceFunc) provisioner.TraceFunc {
	return func(ctx context.Context, c provisioner.Call) (context.Context, func(error)) {
		ctx, endA := a(ctx, c)
		ctx, endB := b(ctx, c)
		return ctx, func(err error) {
			endB(err)
			endA(err)
		}
	}
}
