package provisionertest

import (
	"slices"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// Changes opens a watcher of machines. It delivers once at the beginning,
// without ids, and then the ids of the machines that changed. What nobody has
// received yet is merged, each id once; the last change is never lost.
func (w *World) Changes() provisioner.Stream[[]provisioner.MachineID] {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.changes.open()
	c.ch <- nil
	return provisioner.Stream[[]provisioner.MachineID]{C: c.ch, Stop: func() error { return stopWatcher(w, &w.changes, c) }}
}

// Retries opens a watcher of retry signals; several that nobody has received
// yet are one.
func (w *World) Retries() provisioner.Stream[struct{}] {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.retries.open()
	return provisioner.Stream[struct{}]{C: c.ch, Stop: func() error { return stopWatcher(w, &w.retries, c) }}
}

// ProfileChanges opens a watcher of profile changes. It delivers the ids of the
// machines that SetProfileChange gives one from then on, merged as those of
// Changes.
func (w *World) ProfileChanges() provisioner.Stream[[]provisioner.MachineID] {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.profiling.open()
	return provisioner.Stream[[]provisioner.MachineID]{C: c.ch, Stop: func() error { return stopWatcher(w, &w.profiling, c) }}
}

// Changed tells the watchers that machines changed, whether they did or not.
func (w *World) Changed(ids ...provisioner.MachineID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deed("changed %s", some(ids))
	w.changed(ids...)
}

// Tick gives a retry signal.
func (w *World) Tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deed("tick")
	for _, c := range w.retries.all {
		select {
		case c.ch <- struct{}{}:
		default:
		}
	}
}

// CloseChanges closes the watchers of machines; their Stop then returns err.
func (w *World) CloseChanges(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deed("changes closed: %v", err)
	w.changes.close(err)
}

// CloseRetries closes the watchers of retry signals; their Stop then returns
// err.
func (w *World) CloseRetries(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deed("retries closed: %v", err)
	w.retries.close(err)
}

// CloseProfileChanges closes the watchers of profile changes; their Stop then
// returns err.
func (w *World) CloseProfileChanges(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deed("profile changes closed: %v", err)
	w.profiling.close(err)
}

// OpenWatchers counts the watchers that have not been stopped.
func (w *World) OpenWatchers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes.unstopped + w.retries.unstopped + w.profiling.unstopped
}

// watcher is one that the Task holds. Its channel has one place: what lies
// there is what has happened and was not received.
type watcher[T any] struct {
	ch      chan T
	waiting map[provisioner.MachineID]struct{} // the ids in ch
	stopped bool
	err     error
}

// watchers are those of one kind.
type watchers[T any] struct {
	all       []*watcher[T] // open ones
	unstopped int
}

func (ws *watchers[T]) open() *watcher[T] {
	c := &watcher[T]{ch: make(chan T, 1)}
	ws.all = append(ws.all, c)
	ws.unstopped++
	return c
}

func (ws *watchers[T]) close(err error) {
	for _, c := range ws.all {
		c.err = err
		close(c.ch)
	}
	ws.all = nil
}

func stopWatcher[T any](w *World, ws *watchers[T], c *watcher[T]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.stopped {
		return errors.New("watcher was stopped before")
	}
	c.stopped = true
	ws.unstopped--
	ws.all = slices.DeleteFunc(ws.all, func(o *watcher[T]) bool { return o == c })
	return c.err
}

// changed tells every watcher of machines, under the lock. Only senders hold
// it, so the place they have emptied stays empty until they fill it.
func (w *World) changed(ids ...provisioner.MachineID) { tell(&w.changes, ids) }

func tell(ws *watchers[[]provisioner.MachineID], ids []provisioner.MachineID) {
	for _, c := range ws.all {
		var merged []provisioner.MachineID
		select {
		case merged = <-c.ch:
		default:
			c.waiting = nil
		}
		if c.waiting == nil {
			c.waiting = make(map[provisioner.MachineID]struct{}, len(ids))
		}
		for _, id := range ids {
			if _, in := c.waiting[id]; !in {
				c.waiting[id] = struct{}{}
				merged = append(merged, id)
			}
		}
		c.ch <- merged
	}
}
