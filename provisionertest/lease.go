package provisionertest

import "github.com/seed81ba69f2/provisioner"

// A Lease is one holder's view of who may act on the World.
type Lease struct {
	w     *World
	epoch uint64
	lost  chan struct{}
}

var _ provisioner.Lease = (*Lease)(nil)

// TakeLease hands the lease over: whoever held it has lost it.
func (w *World) TakeLease() *Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := &Lease{w: w, epoch: 1, lost: make(chan struct{})}
	if w.lease != nil {
		next.epoch = w.lease.epoch + 1
		w.lease.lose()
	}
	w.lease = next
	w.deed("lease %d taken", next.epoch)
	return next
}

// Drop loses the lease without anybody taking it.
func (l *Lease) Drop() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.deed("lease %d dropped", l.epoch)
	l.lose()
}

func (l *Lease) lose() {
	if l.held() {
		close(l.lost)
	}
}

func (l *Lease) held() bool {
	select {
	case <-l.lost:
		return false
	default:
		return true
	}
}

// Held implements provisioner.Lease.
func (l *Lease) Held() bool { return l.held() }

// Epoch implements provisioner.Lease.
func (l *Lease) Epoch() uint64 { return l.epoch }

// Lost implements provisioner.Lease.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// fence notes a call that changes something on a lease that is over. It is
// not refused, for a host may well have no fence.
func (w *World) fence(c *call) {
	if w.lease == nil || !c.kind.Writes() || c.epoch == w.lease.epoch && w.lease.held() {
		return
	}
	w.stale = append(w.stale, StaleWrite{Call: c.String(), Epoch: c.epoch, At: w.now().Sub(w.born)})
}
