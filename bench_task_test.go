package provisioner_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// Benchmarks of the whole Task. Only ratios within one run mean anything:
//
//	go test -run '^$' -bench 'OneChange|EndToEnd|HostFloor' -benchtime 1s -count 6 . >new.txt
//	go run golang.org/x/perf/cmd/benchstat@latest new.txt
//
// EndToEnd and HostFloor give ns/machine: what a started machine costs with
// the Task, and what the World's own calls for one start cost without it.

// kindWorld is a World without latency, faults or recorder.
func kindWorld(b *testing.B, machines, zones, group int) *provisionertest.World {
	w := provisionertest.New(provisionertest.Settings{Kind: true, Silent: true, LostReplies: provisionertest.NeverLost, Controller: "c"})
	if err := w.Load(provisionertest.NewFleet(machines, zones, group)); err != nil {
		b.Fatal(err)
	}
	return w
}

// BenchmarkHostFloor is the World's own calls for one start.
func BenchmarkHostFloor(b *testing.B) {
	const machines = 10_000
	ctx := context.Background()
	for range b.N {
		b.StopTimer()
		w := kindWorld(b, machines, 3, 0)
		broker, state := w.Broker(), w.State()
		fleet, _ := state.Fleet(ctx)
		b.StartTimer()
		for i := range fleet {
			id := fleet[i].ID
			if i%16 == 0 { // read in bulk for those that have a place
				ids := make([]provisioner.MachineID, 0, 16)
				for j := i; j < min(i+16, len(fleet)); j++ {
					ids = append(ids, fleet[j].ID)
				}
				if _, err := state.StartInfo(ctx, ids...); err != nil {
					b.Fatal(err)
				}
			}
			r, err := broker.Start(ctx, provisioner.StartRequest{Machine: id, Zone: "a", Token: string(id),
				Labels: provisioner.Labels{Controller: "c", Machine: id, Token: string(id)}})
			if err != nil {
				b.Fatal(err)
			}
			if err := state.SetInstance(ctx, provisioner.InstanceRecord{Machine: id, Instance: r.Instance, Zone: r.Zone}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*machines), "ns/machine")
}

// BenchmarkEndToEnd starts a whole fleet that comes pending in one change.
func BenchmarkEndToEnd(b *testing.B) {
	for _, machines := range []int{10_000, 50_000} {
		for _, group := range []int{0, 10} {
			b.Run(fmt.Sprintf("machines=%d/group=%d", machines, group), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					endToEnd(b, machines, group)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*machines), "ns/machine")
			})
		}
	}
}

func endToEnd(b *testing.B, machines, group int) {
	b.StopTimer()
	w := kindWorld(b, machines, 3, group)
	events := 0
	task, err := provisioner.New(provisioner.Config{
		Controller: "c", Broker: w.PlainBroker(), State: w.PlainState(),
		Optional:  provisioner.Optional{Zones: w.Broker()},
		Observers: []provisioner.Observer{provisioner.ObserverFunc(func(provisioner.Event) { events++ })},
	})
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	b.StartTimer()
	report, err := task.Reconcile(context.Background())
	b.StopTimer()
	if err != nil || len(report.Errs()) > 0 || len(w.Live()) != machines {
		b.Fatalf("reconcile: %v, %d errors, %d live", err, len(report.Errs()), len(w.Live()))
	}
	b.StartTimer()
}

// BenchmarkOneChange is one changed machine that needs nothing, with 100
// changes outstanding: read it, decide, done.
func BenchmarkOneChange(b *testing.B) {
	for _, machines := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			b.ReportAllocs()
			state := newReadState(machines)
			changes := make(chan []provisioner.MachineID, 100)
			task, err := provisioner.New(provisioner.Config{
				Controller: "c", Broker: provisionertest.New(provisionertest.Settings{Kind: true, Silent: true}).PlainBroker(), State: state,
				Changes: provisioner.Stream[[]provisioner.MachineID]{C: changes},
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- task.Run(ctx) }()
			changes <- nil
			<-state.asked // a Task that nobody drives yet is idle
			if _, err := task.Idle(ctx); err != nil {
				b.Fatal(err)
			}
			state.reads.Store(0)
			outstanding := make(chan struct{}, 100)
			state.read = func(n int) {
				for range n {
					<-outstanding
				}
			}
			b.ResetTimer()
			for i := range b.N {
				if i%1000 == 999 {
					// No machine may change again while it is being read: two
					// such changes are one reading (LD6), and a place is lost.
					if _, err := task.Idle(ctx); err != nil {
						b.Fatal(err)
					}
				}
				outstanding <- struct{}{}
				changes <- state.ids[i%machines : i%machines+1]
			}
			if _, err := task.Idle(ctx); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(state.reads.Load())/float64(b.N), "reads/op")
			cancel()
			<-done
		})
	}
}

// readState is a State of provisioned machines that counts readings.
type readState struct {
	provisioner.State
	ids   []provisioner.MachineID
	fleet []provisioner.MachineResult
	byID  map[provisioner.MachineID]int
	reads atomic.Int64
	read  func(n int)
	asked chan struct{} // closed once the fleet is read
	once  sync.Once
}

func newReadState(machines int) *readState {
	s := &readState{byID: map[provisioner.MachineID]int{}, read: func(int) {}, asked: make(chan struct{})}
	for i := range machines {
		id := provisioner.MachineID(fmt.Sprint(i))
		s.ids = append(s.ids, id)
		s.byID[id] = i
		s.fleet = append(s.fleet, provisioner.MachineResult{ID: id, Machine: provisioner.Machine{ID: id, Life: provisioner.Alive,
			Instance: provisioner.InstanceID("i-" + id), Zone: "a", Status: provisioner.StatusStarted}})
	}
	return s
}

func (s *readState) Fleet(context.Context) ([]provisioner.MachineResult, error) {
	s.once.Do(func() { close(s.asked) })
	return s.fleet, nil
}

func (s *readState) Machines(_ context.Context, ids ...provisioner.MachineID) ([]provisioner.MachineResult, error) {
	results := make([]provisioner.MachineResult, len(ids))
	for i, id := range ids {
		results[i] = s.fleet[s.byID[id]]
	}
	s.reads.Add(int64(len(ids)))
	s.read(len(ids))
	return results, nil
}
