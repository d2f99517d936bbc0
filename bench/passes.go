package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// passes measures whole passes of a Task over the World of provisionertest at
// its kindest: one in which every machine is started, and one in which all of
// them run already. Beside each is what the World's own calls cost, made by a
// bare loop.
func passes(set settings) section {
	s := section{Title: "A whole pass, for each machine", Unit: "µs"}
	for _, n := range set.sizes {
		var w *provisionertest.World
		var task *provisioner.Task
		ns := compare(set.roundsOf(n),
			side{n: n, run: func() time.Duration {
				w, task = nil, nil
				w = kindWorld(n)
				return timed(func() { bareStarts(w) })()
			}},
			side{n: n, run: func() time.Duration {
				w, task = kindWorld(n), nil
				task = newTask(w)
				return timed(func() { pass(task, w, n) })()
			}},
			side{n: n, run: timed(func() { bareLook(w) })},
			side{n: n, run: timed(func() { pass(task, w, n) })},
		)
		s.add(startsAll, n, ns[1]/1000)
		s.add(startCalls, n, ns[0]/1000)
		s.add(nothingToDo, n, ns[3]/1000)
		s.add("the host's calls of that pass", n, ns[2]/1000)
	}
	return s
}

// kindWorld is a World of pending machines, without latency, faults or recorder.
func kindWorld(machines int) *provisionertest.World {
	w := provisionertest.New(provisionertest.Settings{Kind: true, Silent: true, LostReplies: provisionertest.NeverLost, Controller: "bench"})
	must(0, w.Load(provisionertest.NewFleet(machines, 3, 0)))
	return w
}

func newTask(w *provisionertest.World) *provisioner.Task {
	return must(provisioner.New(provisioner.Config{
		Controller: "bench", Broker: w.PlainBroker(), State: w.PlainState(),
		Optional: provisioner.Optional{Zones: w.Broker()},
	}))
}

func pass(task *provisioner.Task, w *provisionertest.World, machines int) {
	report := must(task.Reconcile(context.Background()))
	if len(report.Errs()) > 0 || len(w.Live()) != machines {
		panic(fmt.Sprintf("%d errors, %d of %d live", len(report.Errs()), len(w.Live()), machines))
	}
}

// bareStarts makes the calls that starting every machine takes.
func bareStarts(w *provisionertest.World) {
	ctx := context.Background()
	broker, state := w.Broker(), w.State()
	fleet := must(state.Fleet(ctx))
	must(broker.Zones(ctx))
	const bulk = 16 // as many as Limits.Starts has places
	var ids []provisioner.MachineID
	for i := range fleet {
		id := fleet[i].ID
		if i%bulk == 0 {
			ids = ids[:0]
			for j := i; j < min(i+bulk, len(fleet)); j++ {
				ids = append(ids, fleet[j].ID)
			}
			must(state.StartInfo(ctx, ids...))
		}
		r := must(broker.Start(ctx, provisioner.StartRequest{Machine: id, Zone: "a", Token: string(id),
			Labels: provisioner.Labels{Controller: "bench", Machine: id, Token: string(id)}}))
		must(0, state.SetInstance(ctx, provisioner.InstanceRecord{Machine: id, Instance: r.Instance, Zone: r.Zone}))
	}
}

// bareLook makes the calls of a pass that has nothing to do.
func bareLook(w *provisionertest.World) {
	ctx := context.Background()
	must(w.State().Fleet(ctx))
	must(w.Broker().Instances(ctx))
	must(w.Broker().Zones(ctx))
}
