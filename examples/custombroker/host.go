package main

// This is the file to copy for your own host: a Broker, a State, and nothing
// else. Its cloud is a shelf. main_test.go shows how to prove your own.

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// shelf is the Broker. All its methods may be called at once: hence the lock.
type shelf struct {
	mu    sync.Mutex
	room  int
	slots []provisioner.Instance // in use
	next  int
}

// Instances lists what runs. Complete is a promise: what is missing is taken
// as not there. If you could see only a part, leave it false, or name the
// zones that did not answer in Failed. Powered-off instances belong in here.
func (s *shelf) Instances(context.Context) (provisioner.Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return provisioner.Listing{Instances: slices.Clone(s.slots), Complete: true}, nil
}

// Start makes one instance, and puts req.Labels on it by the same call, so
// that no crash can leave one that nobody knows. req.Token is the same if the
// same attempt is asked for again: answer with the first call's instance. An
// error means that there is no instance; if you can't tell, mark it
// provisioner.Ambiguous. Other markers: Permanent for what no repetition can
// mend, ZoneIndependent for what no other zone would spare, RetryAfter for a
// call too fast, OutOfCapacity for a zone without room. If req.Host is set, a
// container is wanted, on req.HostInstance: refuse it if you have none.
func (s *shelf) Start(ctx context.Context, req provisioner.StartRequest) (provisioner.StartResult, error) {
	if err := ctx.Err(); err != nil { // it ends after Config.LaunchTimeout: pass it on to your cloud
		return provisioner.StartResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.slots {
		if i.Labels.Token == req.Token {
			return provisioner.StartResult{Instance: i.ID}, nil
		}
	}
	if len(s.slots) >= s.room {
		return provisioner.StartResult{}, provisioner.Permanent(errors.New("the shelf is full"))
	}
	s.next++
	id := provisioner.InstanceID(fmt.Sprintf("slot-%d", s.next))
	s.slots = append(s.slots, provisioner.Instance{ID: id, Labels: req.Labels})
	return provisioner.StartResult{Instance: id}, nil // with the zone, if you have zones
}

// Stop ends instances for good. An id it does not know is a success. If only
// some could be stopped, return a *provisioner.StopError that says which not.
func (s *shelf) Stop(_ context.Context, req provisioner.StopRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = slices.DeleteFunc(s.slots, func(i provisioner.Instance) bool { return slices.Contains(req.Instances, i.ID) })
	return nil
}

// Traits are promises: by them a Task finds again what a crash has left.
func (s *shelf) Traits() provisioner.Traits {
	return provisioner.Traits{DedupesByToken: true, Labels: true, ConsistentReads: true}
}

// book is the State: your machine records. Its methods may be called at once.
type book struct {
	mu       sync.Mutex
	machines map[provisioner.MachineID]provisioner.Machine
}

// Fleet reads every record, in any order. One that is absent does not exist.
func (b *book) Fleet(ctx context.Context) ([]provisioner.MachineResult, error) {
	b.mu.Lock()
	var ids []provisioner.MachineID
	for id := range b.machines {
		ids = append(ids, id)
	}
	b.mu.Unlock()
	return b.Machines(ctx, ids...)
}

// Machines reads some: one result for each id. What is wrong with one machine
// goes into its result; the error of the call means "I can't be reached".
func (b *book) Machines(_ context.Context, ids ...provisioner.MachineID) ([]provisioner.MachineResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var results []provisioner.MachineResult
	for _, id := range ids {
		r := provisioner.MachineResult{ID: id, Machine: b.machines[id]}
		if r.Machine.ID == "" {
			r.Err = errors.NotFoundf("machine %q", id) // that very kind of error: the Task forgets it
		}
		results = append(results, r)
	}
	return results, nil
}

// StartInfo tells what machines need that are about to start: constraints,
// volumes, images, a group. Empty is fine: anywhere, and nothing special.
func (b *book) StartInfo(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.StartInfoResult, error) {
	machines, err := b.Machines(ctx, ids...)
	var results []provisioner.StartInfoResult
	for _, m := range machines {
		results = append(results, provisioner.StartInfoResult{ID: m.ID, Err: m.Err})
	}
	return results, err
}

// SetInstance writes down what a machine got, if it has nothing yet. Called
// again with the same it is a success, with another an error. Make it one
// transaction: it is what keeps a machine from having two instances.
func (b *book) SetInstance(_ context.Context, rec provisioner.InstanceRecord) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch m := b.machines[rec.Machine]; {
	case m.ID == "":
		return errors.NotFoundf("machine %q", rec.Machine)
	case m.Life == provisioner.Dead:
		return errors.Forbiddenf("machine %q is dead: an instance for it", rec.Machine)
	case m.Instance != "" && m.Instance != rec.Instance:
		return errors.AlreadyExistsf("an instance of machine %q", rec.Machine)
	default:
		m.Instance, m.Zone = rec.Instance, rec.Zone
		b.machines[rec.Machine] = m
		return nil
	}
}

// Remove takes a dead machine's record away; without one it is a success.
func (b *book) Remove(_ context.Context, r provisioner.Removal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m, ok := b.machines[r.Machine]; ok && m.Life != provisioner.Dead {
		return errors.Forbiddenf("machine %q is %s: removing it", r.Machine, m.Life)
	}
	delete(b.machines, r.Machine)
	return nil
}
