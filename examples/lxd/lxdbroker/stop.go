package lxdbroker

import (
	"context"
	"sync"
	"time"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
	"golang.org/x/sync/errgroup"
)

// stopsAtOnce is how many instances of one request are stopped at once.
const stopsAtOnce = 8

// Stop force-stops and deletes instances. One that is not there is a success;
// the others are tried whatever becomes of one, and a *provisioner.StopError
// tells which failed.
func (b *Broker) Stop(ctx context.Context, req provisioner.StopRequest) error {
	var mu sync.Mutex
	failed := map[provisioner.InstanceID]error{}
	var group errgroup.Group
	group.SetLimit(stopsAtOnce)
	for _, id := range req.Instances {
		group.Go(func() error {
			if err := b.stopOne(ctx, string(id)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[id] = mark(err)
			}
			return nil
		})
	}
	_ = group.Wait()
	if len(failed) > 0 {
		return &provisioner.StopError{Failed: failed}
	}
	return nil
}

// Waits for an instance that LXD is busy with: a stop that was cut short is
// still under way on its side.
const (
	busyWait  = 250 * time.Millisecond
	busyTries = 40
)

// stopOne succeeds once the instance isn't there.
func (b *Broker) stopOne(ctx context.Context, name string) error {
	err := b.end(ctx, name)
	for try := 1; isBusy(err) && try < busyTries && ctx.Err() == nil; try++ {
		select {
		case <-ctx.Done():
		case <-time.After(busyWait):
			err = b.end(ctx, name)
		}
	}
	return err
}

func isBusy(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.says("is busy running")
}

func (b *Broker) end(ctx context.Context, name string) error {
	if name == "" {
		return errors.NotValidf("instance id %q:", name)
	}
	err := b.setState(ctx, name, "stop")
	if err == nil {
		err = b.lxd.run(ctx, call{method: "DELETE", path: instancePath(name)})
	}
	if err != nil && b.isGone(ctx, name, err) {
		err = nil
	}
	return err
}

// isGone says whether a failed step failed because there is nothing left: an
// ephemeral instance ends with its stop, and two may stop the same at once.
func (b *Broker) isGone(ctx context.Context, name string, err error) bool {
	if isNotFound(err) {
		return true
	}
	if e := (*APIError)(nil); !errors.As(err, &e) || !e.Operation {
		return false
	}
	_, _, err = b.instance(ctx, name)
	return isNotFound(err)
}
