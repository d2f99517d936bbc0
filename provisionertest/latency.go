package provisionertest

import (
	"context"
	"slices"
	"time"

	"github.com/seed81ba69f2/provisioner"
)

// journey is what a call meets on its way, decided when it sets out.
type journey struct {
	there, back time.Duration
	giveUp      time.Duration // from the end of its context to its return
	lost        bool          // the reply is
}

// depart decides a call's journey by a hash of the call, its arguments, how
// often it was made, and the seed: not by chance, and not by what else goes on.
func (w *World) depart(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	typical := w.latency(c.kind)
	if typical == 0 && w.set.LostReplies <= 0 {
		return
	}
	h := c.hash()
	n := w.calls[h]
	w.calls[h]++
	h = mix(h ^ mix(w.set.Seed^uint64(n)<<32))
	if typical > 0 {
		spread := uint64(typical/2) + 1
		c.there = typical/4 + time.Duration(mix(h+1)%spread)
		c.back = typical/4 + time.Duration(mix(h+2)%spread)
		c.giveUp = time.Duration(1 + mix(h+3)%uint64(time.Millisecond))
	}
	if lost := w.set.LostReplies; lost > 0 && c.kind.Writes() {
		c.lost = mix(h+4)%uint64(lost) == 0
	}
}

// latency is about how long a call of this kind takes.
func (w *World) latency(k Call) time.Duration {
	d, ok := w.set.Latency[k]
	if !ok {
		d, ok = w.set.Latency[AnyCall]
	}
	switch {
	case ok && d != 0:
		return max(d, 0)
	case w.set.Kind:
		return 0
	case k == CallStart:
		return 2 * time.Second
	case k == CallStop:
		return time.Second
	case slices.Contains(brokerCalls, k):
		return 200 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// travel waits until the call is there or its context has ended. Calls whose
// contexts end together come back one by one.
func (w *World) travel(ctx context.Context, c *call, d time.Duration) error {
	if ctx.Err() == nil && d > 0 {
		w.wait(ctx, d)
	}
	err := ctx.Err()
	if err != nil {
		w.wait(context.WithoutCancel(ctx), c.giveUp)
	}
	return err
}

func (w *World) travelBack(ctx context.Context, c *call) error {
	if c.back == 0 {
		return nil // it is back already, and has not looked at its context since
	}
	return w.travel(ctx, c, c.back)
}

// wait returns when d is over or ctx has ended.
func (w *World) wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := w.clock.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// hash names the call and its arguments.
func (c *call) hash() uint64 {
	h := hashString(14695981039346656037, string(c.kind))
	h = hashString(h, string(c.machine))
	h = hashString(h, string(c.zone))
	h = hashString(h, string(c.instance))
	h = hashAll(h, c.machines)
	return hashAll(h, c.instances)
}

func hashAll[S provisioner.MachineID | provisioner.InstanceID](h uint64, ids []S) uint64 {
	for _, id := range ids {
		h = hashString(h, string(id))
	}
	return h
}

// hashString is FNV-1a with a mark at the end of each string.
func hashString(h uint64, s string) uint64 {
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return (h ^ 0xff) * 1099511628211
}

// mix spreads every bit over the word (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
