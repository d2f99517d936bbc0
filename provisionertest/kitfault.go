package provisionertest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/juju/errors"
)

// WithFaults gives the same host with scripted faults, as World.Inject does for
// a World. Calls can fail, take longer, hang, panic or end their goroutine,
// before their effect or after; results are not twisted. A fault is about a call
// if the call is about its machine, zone and instance, where it names any; a
// bulk call or stop fails as a whole. TroubleStuck needs a time. The clock
// defaults to the real one.
func WithFaults(h Host, c clock.Clock, faults ...Fault) (Host, error) {
	if c == nil {
		c = clock.New()
	}
	f := &faulty{clock: c}
	for _, fault := range faults {
		err := fault.Validate()
		switch {
		case err != nil:
			return Host{}, err
		case slices.Index(troubles, fault.What) >= slices.Index(troubles, TroubleMissing):
			return Host{}, errors.NotValidf("fault trouble %q: want one that does not twist a result, outside of a World:", string(fault.What))
		case fault.What == TroubleStuck && fault.For == 0:
			return Host{}, errors.NotValidf("fault stuck without a duration: want stuck 5s or the like, outside of a World:")
		}
		f.faults = append(f.faults, &scripted{Fault: fault})
	}
	return Intercept(h, f.call), nil
}

// faulty is what is scripted for a host.
type faulty struct {
	clock clock.Clock

	mu     sync.Mutex
	faults []*scripted
}

func (f *faulty) call(ctx context.Context, c HostCall, do func(context.Context) error) error {
	hits := f.hit(c)
	if err := f.suffer(ctx, hits, false); err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return err
	}
	return f.suffer(ctx, hits, true)
}

// hit finds the faults that hit a call, and counts.
func (f *faulty) hit(c HostCall) []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hits []Fault
	for _, s := range f.faults {
		if s.isAbout(c) && s.strikes() {
			hits = append(hits, s.Fault)
		}
	}
	return hits
}

func (f *scripted) isAbout(c HostCall) bool {
	return (f.Call == AnyCall || f.Call == c.Call) &&
		(f.Machine == "" || slices.Contains(c.Machines, f.Machine)) &&
		(f.Zone == "" || f.Zone == c.Zone) &&
		(f.Instance == "" || slices.Contains(c.Instances, f.Instance))
}

func (f *faulty) suffer(ctx context.Context, hits []Fault, after bool) error {
	for _, x := range hits {
		if x.After != after {
			continue
		}
		switch x.What {
		case TroubleError:
			return x.error()
		case TroubleDelay:
			if err := f.wait(ctx, x.For); err != nil {
				return err
			}
		case TroubleStuck:
			_ = f.wait(context.WithoutCancel(ctx), x.For)
		case TroubleHang:
			<-ctx.Done()
			return ctx.Err()
		case TroublePanic:
			panic(x.message())
		case TroubleGoexit:
			runtime.Goexit()
		}
	}
	return nil
}

func (f *faulty) wait(ctx context.Context, d time.Duration) error {
	t := f.clock.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
