package main

import (
	"context"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/seed81ba69f2/provisioner"
)

// One change: a machine that needs nothing has changed, its record is read, and
// that is all. The same through the Task and through a controller of
// controller-runtime, whose queue and workers do nothing but that.

// outstanding is how many changes are given in ahead of their reading.
const outstanding = 100

// A reader takes changes in and has the record of each read.
type reader struct {
	name   string
	change func(machine int)
	idle   func() // returns when all that was given in is done
	end    func()
	ahead  chan struct{} // one for each change that is given in and not read
}

// run gives n changes in. No machine changes again while its record is being
// read, as two such changes are one reading.
func (r *reader) run(n, machines int) {
	for i := range n {
		if i%min(machines, 1000) == 0 {
			r.idle()
		}
		r.ahead <- struct{}{}
		r.change(i % machines)
	}
	r.idle()
}

func (r *reader) wasRead(machines int) {
	for range machines {
		<-r.ahead
	}
}

// taskReader is a Task that runs.
func taskReader(f *fleet) *reader {
	r := &reader{name: theTask, ahead: make(chan struct{}, outstanding)}
	changes := make(chan []provisioner.MachineID, outstanding)
	task := must(provisioner.New(provisioner.Config{
		Controller: "bench", Broker: f, State: f,
		Changes: provisioner.Stream[[]provisioner.MachineID]{C: changes},
		Resync:  provisioner.Off, Sweep: provisioner.Off,
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- task.Run(ctx) }()
	r.idle = func() { must(task.Idle(ctx)) }
	changes <- nil
	for len(changes) > 0 { // a Task that does not run yet is idle
		runtime.Gosched()
	}
	r.idle()
	f.read = r.wasRead
	r.change = func(m int) { changes <- []provisioner.MachineID{f.records[m].ID} }
	r.end = func() {
		cancel()
		<-ended
	}
	return r
}

// controllerReader is a controller that runs, with so many workers; its logger
// is none, which is the cheapest. classic: with client-go's queue, not with the
// one that sorts by priority.
func controllerReader(f *fleet, name string, workers int, classic bool) *reader {
	log.SetLogger(logr.Discard())
	r := &reader{name: name, ahead: make(chan struct{}, outstanding)}
	priority, skip := !classic, true
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	queued := make(chan struct{})
	c := must(controller.NewUnmanaged("bench", controller.Options{
		MaxConcurrentReconciles: workers,
		UsePriorityQueue:        &priority,
		SkipNameValidation:      &skip,
		Reconciler: reconcile.Func(func(_ context.Context, q reconcile.Request) (reconcile.Result, error) {
			read := f.records[number(q.Name)]
			r.wasRead(1)
			return reconcile.Result{}, read.Err
		}),
	}))
	must(0, c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue = q
		close(queued)
		return nil
	})))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	<-queued
	r.change = func(m int) {
		var q reconcile.Request
		q.Name = string(f.records[m].ID)
		queue.Add(q)
	}
	r.idle = func() { // all have been read when nothing is outstanding
		for range outstanding {
			r.ahead <- struct{}{}
		}
		for range outstanding {
			<-r.ahead
		}
	}
	r.end = func() {
		cancel()
		<-ended
	}
	return r
}

// oneChange measures changes of single machines, for each size of the fleet.
func oneChange(set settings) (took, bytes section) {
	took = section{Title: "One change", Unit: "µs"}
	bytes = section{Title: "One change, allocated", Unit: "B"}
	for _, n := range set.sizes {
		f := newFleet(n, true)
		readers := []*reader{
			taskReader(f),
			controllerReader(f, classicQueue, 1, true),
			controllerReader(f, classicQueue10, 10, true),
			controllerReader(f, "priority queue, 1 worker", 1, false),
		}
		var sides []side
		allocated := make([]float64, len(readers))
		for i, r := range readers {
			sides = append(sides, side{r.name, set.changes, func() (spent time.Duration) {
				spent, allocated[i] = uncollected(func() { r.run(set.changes, n) })
				return spent
			}})
		}
		for i, ns := range compare(set.rounds, sides...) {
			took.add(readers[i].name, n, ns/1000)
			bytes.add(readers[i].name, n, allocated[i]/float64(set.changes))
			readers[i].end()
		}
	}
	return took, bytes
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
