package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed81ba69f2/provisioner"
)

// A collector shows the counters of a Task to Prometheus. They are read when
// Prometheus asks, and cost nothing in between.
type collector struct{ task *provisioner.Task }

var (
	eventsDesc   = prometheus.NewDesc("provisioner_events_total", "Events told, by kind.", []string{"kind"}, nil)
	callsDesc    = prometheus.NewDesc("provisioner_calls_total", "Calls of the host that have ended, by name and by how.", []string{"call", "outcome"}, nil)
	outDesc      = prometheus.NewDesc("provisioner_calls_out", "Calls of the host that are under way.", []string{"call"}, nil)
	usedDesc     = prometheus.NewDesc("provisioner_lane_used", "Places taken in a lane.", []string{"lane"}, nil)
	limitDesc    = prometheus.NewDesc("provisioner_lane_limit", "Places that a lane has.", []string{"lane"}, nil)
	waitingDesc  = prometheus.NewDesc("provisioner_lane_waiting", "Machines that wait for a place.", []string{"lane"}, nil)
	machinesDesc = prometheus.NewDesc("provisioner_machines", "Machines known, by what is being done about them.", []string{"phase"}, nil)
	droppedDesc  = prometheus.NewDesc("provisioner_events_dropped_total", "Events that observers have missed.", nil, nil)
)

// Describe names all metrics.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{eventsDesc, callsDesc, outDesc, usedDesc, limitDesc, waitingDesc, machinesDesc, droppedDesc} {
		to <- d
	}
}

// Collect reads the counters.
func (c collector) Collect(to chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	now := func(d *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	counters := c.task.Counters()
	for kind, n := range counters.Events {
		count(eventsDesc, n, string(kind))
	}
	for call, n := range counters.Calls {
		bad := n.Failed + n.TimedOut + n.Cancelled + n.Panicked
		count(callsDesc, n.Began-n.Out-bad, call, "ok")
		count(callsDesc, n.Failed, call, "failed")
		count(callsDesc, n.TimedOut, call, "timed out")
		count(callsDesc, n.Cancelled, call, "cancelled")
		count(callsDesc, n.Panicked, call, "panicked")
		now(outDesc, int(n.Out), call)
	}
	for lane, n := range counters.Lanes {
		now(usedDesc, n.Used, lane)
		now(limitDesc, n.Limit, lane)
		now(waitingDesc, n.Waiting, lane)
	}
	for phase, n := range counters.Machines {
		if phase == provisioner.PhaseResting {
			phase = "resting"
		}
		now(machinesDesc, n, string(phase))
	}
	var dropped uint64
	for _, o := range counters.Observers {
		dropped += o.Dropped
	}
	count(droppedDesc, dropped)
}
