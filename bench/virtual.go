package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/internal/agenda"
	"github.com/seed81ba69f2/provisioner/internal/bridge"
)

// places is how many starts go on at once in virtual time.
const places = 100

// An engine is the engine of a Task with its operations, turned by hand: time is
// virtual, one thing happens after the other, and each run is the same.
type engine interface {
	Wake(run bool)
	Changed(ids ...provisioner.MachineID)
	Waiting() bool
	Step(now time.Time) (ops []bridge.Op, cuts int, events []provisioner.Event)
	Next() (time.Time, bool)
	Backlog() bool
}

// A virtual is a fleet whose machines are started in virtual time.
type virtual struct {
	*fleet
	takes   func(op bridge.Op) time.Duration // how long an operation takes
	failing func(machine int) bool           // its starts fail
	left    int                              // machines that are still to be recorded

	engine
	began, now time.Time
	due        agenda.Agenda[bridge.Op]
	recorded   []time.Duration // when each machine was
}

func newVirtual(f *fleet) *virtual {
	v := &virtual{fleet: f, recorded: make([]time.Duration, len(f.records)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	v.began, v.failing = v.now, func(int) bool { return false }
	v.engine = must(bridge.NewEngine(provisioner.Config{
		Controller: "bench", Broker: v, State: v, Limits: provisioner.Limits{Starts: places},
		Resync: provisioner.Off, Sweep: provisioner.Off, // 1,000,000 machines take a week
	})).(engine)
	return v
}

// Start implements provisioner.Broker.
func (v *virtual) Start(_ context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
	if v.failing(number(string(q.Machine))) {
		return provisioner.StartResult{}, provisioner.ZoneIndependent(errors.New("no such image"))
	}
	return provisioner.StartResult{Instance: provisioner.InstanceID("i-" + q.Machine), Zone: q.Zone}, nil
}

// SetInstance implements provisioner.State.
func (v *virtual) SetInstance(_ context.Context, r provisioner.InstanceRecord) error {
	i := number(string(r.Machine))
	v.recorded[i] = v.now.Sub(v.began)
	v.records[i].Machine.Instance, v.records[i].Machine.Zone = r.Instance, r.Zone
	v.left--
	return nil
}

// play gives one change in and goes on until every machine is recorded that is
// to be.
func (v *virtual) play() {
	v.Wake(true)
	v.Changed()
	for v.left > 0 {
		ops, _, _ := v.Step(v.now)
		for _, op := range ops {
			v.due.Set(&agenda.Item[bridge.Op]{Value: op}, v.now.Add(v.takes(op)))
		}
		if v.Waiting() || v.Backlog() {
			continue
		}
		next, ok := v.due.Next()
		if own, wants := v.Next(); wants && (!ok || own.Before(next)) {
			next, ok = own, true
		}
		if !ok {
			panic(fmt.Sprintf("nothing happens any more, and %d machines are not recorded", v.left))
		}
		if next.After(v.now) {
			v.now = next
		}
		for item, ok := v.due.Pop(v.now); ok; item, ok = v.due.Pop(v.now) {
			item.Value.Run()
		}
	}
}

// bootTime is how long the broker takes for a machine: half a minute to one and
// a half, different for each.
func bootTime(machine int) time.Duration {
	x := uint64(machine+1) * 0x9e3779b97f4a7c15
	return 30*time.Second + time.Duration((x^x>>32)*0xbf58476d1ce4e5b9%uint64(time.Minute))
}

// stateCall is how long any other call takes.
const stateCall = 20 * time.Millisecond

// makespan compares the time until the last machine of a fleet runs, all of
// which come pending in one change, with the ideal: the work divided by the
// places. Greedy is a schedule that loses no time at all; it is no better, as
// the last machines leave places empty.
func makespan(sizes []int) section {
	s := section{Title: "Makespan above the ideal", Unit: "%"}
	for _, n := range sizes {
		work := time.Duration(0)
		for i := range n {
			work += bootTime(i)
		}
		ideal := float64(work) / places
		v := newVirtual(newFleet(n, false))
		v.left = n
		v.takes = func(op bridge.Op) time.Duration {
			if op.Kind == "starting" {
				return bootTime(number(op.Machine)) + stateCall // it is recorded in the same operation
			}
			return stateCall
		}
		v.play()
		s.add(theTask, n, (float64(slices.Max(v.recorded))/ideal-1)*100)
		s.add("greedy, without any calls but starts", n, (float64(slices.Max(greedy(n, bootTime)))/ideal-1)*100)
	}
	return s
}

// delay compares two fleets: one in which the start of every hundredth machine
// fails at once, each time, and one without those machines. It is by how much
// the machine that is hit worst comes later; it is 0 if waiting for the next
// attempt holds no place. The other series is for workers that wait in their
// place.
func delay(sizes []int) section {
	s := section{Title: "Longest delay behind failing machines", Unit: "h"}
	bad := func(machine int) bool { return machine%100 == 50 }
	for _, n := range sizes {
		run := func(pending func(machine int) bool) []time.Duration {
			f := newFleet(n, true)
			v := newVirtual(f)
			v.failing = bad
			for i := range f.records {
				if m := &f.records[i].Machine; pending(i) {
					m.Status, m.Instance, m.Zone = provisioner.StatusPending, "", ""
				}
				if !bad(i) {
					v.left++
				}
			}
			v.takes = func(op bridge.Op) time.Duration {
				if op.Kind == "starting" && !bad(number(op.Machine)) {
					return bootTime(number(op.Machine))
				}
				return 0
			}
			v.play()
			return v.recorded
		}
		without := run(func(machine int) bool { return !bad(machine) })
		with := run(func(int) bool { return true })
		s.add(theTask, n, worst(with, without, bad))
		waits := retries()
		with = greedy(n, func(machine int) time.Duration {
			if bad(machine) {
				return waits
			}
			return bootTime(machine)
		})
		without = greedy(n, func(machine int) time.Duration {
			if bad(machine) {
				return 0
			}
			return bootTime(machine)
		})
		s.add("workers that wait in their place", n, worst(with, without, bad))
	}
	return s
}

// worst is the longest delay of a good machine, in hours.
func worst(with, without []time.Duration, bad func(int) bool) float64 {
	most := time.Duration(0)
	for i := range with {
		if !bad(i) {
			most = max(most, with[i]-without[i])
		}
	}
	return most.Hours()
}

// retries is how long the default policy waits in all between attempts that
// fail.
func retries() (total time.Duration) {
	var w provisioner.Walk
	for {
		var d provisioner.Decision
		w, d = w.Next(provisioner.RetryPolicy{}, provisioner.Outcome{Kind: provisioner.OutcomeZoneIndependent}, 1, 0.5)
		if d.Step == provisioner.StepFail {
			return total
		}
		total += d.Wait
	}
}

// greedy is when each machine is done if the next one always goes to the place
// that is free first.
func greedy(machines int, takes func(machine int) time.Duration) []time.Duration {
	var free agenda.Agenda[struct{}]
	origin := time.Time{}
	for range places {
		free.Set(&agenda.Item[struct{}]{}, origin)
	}
	done := make([]time.Duration, machines)
	for i := range done {
		at, _ := free.Next()
		place, _ := free.Pop(at)
		end := at.Add(takes(i))
		done[i] = end.Sub(origin)
		free.Set(place, end)
	}
	return done
}
