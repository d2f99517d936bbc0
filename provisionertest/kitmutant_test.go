package provisionertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

type (
	bg        = context.Context
	startReq  = provisioner.StartRequest
	startRes  = provisioner.StartResult
	stopReq   = provisioner.StopRequest
	listing   = provisioner.Listing
	instID    = provisioner.InstanceID
	machineID = provisioner.MachineID
)

// A badBroker is a World's broker with one fault: what is set stands in for
// that call.
type badBroker struct {
	*provisionertest.Broker
	kitHost

	mu      sync.Mutex // for what a fault remembers
	n       int
	busy    bool
	cache   []provisioner.Instance
	seen    map[instID]bool
	stopped map[instID]bool

	list    func(*badBroker, bg) (listing, error)
	start   func(*badBroker, bg, startReq) (startRes, error)
	stop    func(*badBroker, bg, stopReq) error
	zones   func(*badBroker, bg) ([]provisioner.Zone, error)
	derive  func(*badBroker, bg, startReq) ([]provisioner.ZoneName, error)
	find    func(*badBroker, bg, provisioner.Labels) (listing, error)
	keep    func(*badBroker, provisioner.MaintainRequest) error
	change  func(*badBroker, bg, provisioner.ProfileChangeRequest) ([]string, error)
	names   func(*badBroker, bg, provisioner.ProfileNamesRequest) ([]string, error)
	traits  func(*badBroker) provisioner.Traits
	options func(*provisionertest.HostOptions)
}

// of gives it its World.
func (b *badBroker) of(h kitHost) *badBroker {
	b.kitHost, b.Broker = h, h.World.Broker()
	b.Controller = "kit"
	b.seen, b.stopped = map[instID]bool{}, map[instID]bool{}
	return b
}

func (b *badBroker) Instances(ctx bg) (listing, error) {
	if b.list != nil {
		return b.list(b, ctx)
	}
	return b.Broker.Instances(ctx)
}

func (b *badBroker) Start(ctx bg, req startReq) (startRes, error) {
	if b.start != nil {
		return b.start(b, ctx, req)
	}
	return b.Broker.Start(ctx, req)
}

func (b *badBroker) Stop(ctx bg, req stopReq) error {
	if b.stop != nil {
		return b.stop(b, ctx, req)
	}
	return b.Broker.Stop(ctx, req)
}

func (b *badBroker) Zones(ctx bg) ([]provisioner.Zone, error) {
	if b.zones != nil {
		return b.zones(b, ctx)
	}
	return b.Broker.Zones(ctx)
}

func (b *badBroker) DeriveZones(ctx bg, req startReq) ([]provisioner.ZoneName, error) {
	if b.derive != nil {
		return b.derive(b, ctx, req)
	}
	return b.Broker.DeriveZones(ctx, req)
}

func (b *badBroker) FindInstances(ctx bg, want provisioner.Labels) (listing, error) {
	if b.find != nil {
		return b.find(b, ctx, want)
	}
	return b.Broker.FindInstances(ctx, want)
}

func (b *badBroker) Maintain(ctx bg, req provisioner.MaintainRequest) error {
	if b.keep != nil {
		return b.keep(b, req)
	}
	return b.Broker.Maintain(ctx, req)
}

func (b *badBroker) ChangeProfile(ctx bg, req provisioner.ProfileChangeRequest) ([]string, error) {
	if b.change != nil {
		return b.change(b, ctx, req)
	}
	return b.Broker.ChangeProfile(ctx, req)
}

func (b *badBroker) ProfileNames(ctx bg, req provisioner.ProfileNamesRequest) ([]string, error) {
	if b.names != nil {
		return b.names(b, ctx, req)
	}
	return b.Broker.ProfileNames(ctx, req)
}

func (b *badBroker) Traits() provisioner.Traits {
	if b.traits != nil {
		return b.traits(b)
	}
	return b.Broker.Traits()
}

// lists twists what is listed.
func lists(twist func(*badBroker, listing) listing) func(*badBroker, bg) (listing, error) {
	return func(b *badBroker, ctx bg) (listing, error) {
		l, err := b.Broker.Instances(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		return twist(b, l), err
	}
}

// badBrokers break one rule each, in a way that a broker might; the name is
// the rule's, with a number where there are several.
func badBrokers() map[string]*badBroker {
	return map[string]*badBroker{
		"capabilities": {options: func(o *provisionertest.HostOptions) { o.Must = append(o.Must, "Traits.DedupesByToken") },
			traits: func(*badBroker) provisioner.Traits {
				return provisioner.Traits{Labels: true, ConsistentReads: true}
			}},
		"traits-constant": {traits: func(b *badBroker) provisioner.Traits {
			b.n++
			t := b.Broker.Traits()
			t.DedupesByToken = b.n%2 == 1
			return t
		}},
		"start-gives-instance": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			_, err := b.Broker.Start(ctx, req)
			return startRes{Zone: req.Zone}, err
		}},
		"start-gives-instance 2": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			r, err := b.Broker.Start(ctx, req)
			if err == nil {
				r.Instance = "the-instance"
			}
			return r, err
		}},
		"listing-complete": {list: lists(func(_ *badBroker, l listing) listing { l.Complete = false; return l })},
		"listing-complete 2": {list: lists(func(b *badBroker, l listing) listing {
			stranger := provisioner.Instance{ID: "i-stranger"}
			l.Instances = append(l.Instances, stranger, stranger)
			return l
		})},
		"listing-complete 3": {list: lists(func(b *badBroker, l listing) listing {
			l.Instances = append(l.Instances, provisioner.Instance{})
			return l
		})},
		"started-is-listed": {list: lists(func(b *badBroker, l listing) listing { l.Instances = nil; return l })},
		"stop-ends":         {stop: func(*badBroker, bg, stopReq) error { return nil }},
		"listing-stable": {list: lists(func(b *badBroker, l listing) listing {
			for i := range l.Instances {
				l.Instances[i].Created = time.Now()
			}
			return l
		})},
		"powered-off-listed": {list: lists(func(b *badBroker, l listing) listing {
			l.Instances = slices.DeleteFunc(l.Instances, func(i provisioner.Instance) bool { return i.State == provisioner.InstanceStopped })
			return l
		})},
		"powered-off-listed 2": {list: lists(func(b *badBroker, l listing) listing {
			for i := range l.Instances {
				if l.Instances[i].State == provisioner.InstanceStopped {
					l.Instances[i].State = provisioner.InstanceUp
				}
			}
			return l
		})},
		"labels-listed": {list: lists(func(b *badBroker, l listing) listing {
			for i := range l.Instances {
				l.Instances[i].Labels.Nonce = ""
			}
			return l
		})},
		"token-dedupes": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			b.mu.Lock()
			b.n++
			req.Token = fmt.Sprint(b.n)
			b.mu.Unlock()
			return b.Broker.Start(ctx, req)
		}},
		"token-dedupes 2": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			before := b.made(req.Machine)
			r, err := b.Broker.Start(ctx, req)
			if err == nil && before > 0 {
				return startRes{}, errors.AlreadyExistsf("token")
			}
			return r, err
		}},
		"stop-unknown-succeeds": {stop: func(b *badBroker, ctx bg, req stopReq) error {
			if err := b.Broker.Stop(ctx, req); err != nil {
				return err
			}
			failed := map[instID]error{}
			for _, id := range req.Instances {
				if strings.HasSuffix(string(id), "unknown") {
					failed[id] = errors.NotFoundf("instance")
				}
			}
			if len(failed) > 0 {
				return &provisioner.StopError{Failed: failed}
			}
			return nil
		}},
		"stop-repeated-succeeds": {stop: func(b *badBroker, ctx bg, req stopReq) error {
			b.mu.Lock()
			again := false
			for _, id := range req.Instances {
				again = again || b.stopped[id]
				b.stopped[id] = b.seen[id]
			}
			b.mu.Unlock()
			if err := b.Broker.Stop(ctx, req); err != nil || !again {
				return err
			}
			return errors.NotFoundf("instance")
		}, start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			r, err := b.Broker.Start(ctx, req)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.seen[r.Instance] = true
			return r, err
		}},
		"stop-spares-others": {stop: func(b *badBroker, ctx bg, req stopReq) error {
			for _, i := range b.Live() {
				if slices.Contains(req.Instances, i.ID) {
					for _, other := range b.Live() {
						req.Instances = append(slices.Clone(req.Instances), other.ID)
					}
				}
			}
			return b.Broker.Stop(ctx, req)
		}},
		"stop-goes-on": {stop: func(b *badBroker, ctx bg, req stopReq) error {
			if len(req.Instances) == 3 {
				req.Instances = req.Instances[2:]
			}
			return b.Broker.Stop(ctx, req)
		}},
		"partial-stop": {stop: func(b *badBroker, ctx bg, req stopReq) error {
			if err := b.Broker.Stop(ctx, req); err != nil {
				return errors.New("some could not be stopped")
			}
			return nil
		}},
		"partial-stop 2": {stop: func(b *badBroker, ctx bg, req stopReq) error {
			err := b.Broker.Stop(ctx, req)
			var partial *provisioner.StopError
			if errors.As(err, &partial) {
				for _, id := range req.Instances {
					partial.Failed[id] = errors.New("failed")
				}
			}
			return err
		}},
		"ended-context": {find: func(b *badBroker, ctx bg, want provisioner.Labels) (listing, error) {
			if ctx.Err() != nil {
				time.Sleep(time.Minute) // in a bubble
			}
			return b.Broker.FindInstances(ctx, want)
		}},
		"cancelled-context": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			if ctx.Err() == nil {
				time.Sleep(time.Minute) // in a bubble
			}
			return b.Broker.Start(context.WithoutCancel(ctx), req)
		}},
		"cancelled-context 2": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			if ctx.Err() != nil {
				return startRes{}, ctx.Err()
			}
			type answer struct {
				startRes
				error
			}
			made := make(chan answer, 1)
			go func() {
				time.Sleep(time.Second)                                   // in a bubble
				r, err := b.Broker.Start(context.WithoutCancel(ctx), req) // goes on without its caller
				made <- answer{r, err}
			}()
			select {
			case a := <-made:
				return a.startRes, a.error
			case <-ctx.Done():
				return startRes{}, ctx.Err()
			}
		}},
		"concurrent-calls": {list: func(b *badBroker, ctx bg) (listing, error) {
			b.mu.Lock()
			was := b.busy
			b.busy = true
			b.mu.Unlock()
			if was {
				return listing{}, errors.New("one call at a time")
			}
			time.Sleep(time.Second) // in a bubble
			b.mu.Lock()
			b.busy = false
			b.mu.Unlock()
			return b.Broker.Instances(ctx)
		}},
		"results-are-callers": {list: lists(func(b *badBroker, l listing) listing {
			same := len(b.cache) == len(l.Instances)
			for i := range b.cache {
				same = same && (b.cache[i].ID == "" || b.cache[i] == l.Instances[i])
			}
			if !same {
				b.cache = l.Instances
			}
			return listing{Instances: b.cache, Complete: true}
		})},
		"results-are-callers 2": {zones: func() func(*badBroker, bg) ([]provisioner.Zone, error) {
			var all []provisioner.Zone
			return func(b *badBroker, ctx bg) ([]provisioner.Zone, error) {
				fresh, err := b.Broker.Zones(ctx)
				b.mu.Lock()
				defer b.mu.Unlock()
				if all == nil {
					all = fresh
				}
				if all[0].Name == "" { // what a caller has done stays for one call
					spoilt := all
					all = nil
					return spoilt, nil
				}
				return all, err
			}
		}()},
		"results-are-callers 3": {find: func() func(*badBroker, bg, provisioner.Labels) (listing, error) {
			last := map[string]listing{}
			return func(b *badBroker, ctx bg, want provisioner.Labels) (listing, error) {
				fresh, err := b.Broker.FindInstances(ctx, want)
				b.mu.Lock()
				defer b.mu.Unlock()
				key := fmt.Sprint(want, b.Live())
				if _, ok := last[key]; !ok {
					last[key] = fresh
				}
				return last[key], err
			}
		}()},
		"requests-untouched": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			req.Config.Tags["zone"] = string(req.Zone)
			return b.Broker.Start(ctx, req)
		}},
		"requests-untouched 2": {stop: func(b *badBroker, ctx bg, req stopReq) error {
			err := b.Broker.Stop(ctx, req)
			clear(req.Instances)
			return err
		}},
		"errors-carry-markers": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			r, err := b.Broker.Start(ctx, req)
			if errors.Is(err, provisioner.ErrOutOfCapacity) {
				err = errors.New(err.Error())
			}
			return r, err
		}},
		"errors-carry-markers 2": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			r, err := b.Broker.Start(ctx, req)
			if errors.Is(err, provisioner.ErrOutOfCapacity) {
				req.Zone = "a"
				_, _ = b.Broker.Start(ctx, req)
			}
			return r, err
		}},
		"zones-named-once": {zones: func(b *badBroker, ctx bg) ([]provisioner.Zone, error) {
			zones, err := b.Broker.Zones(ctx)
			return append(zones, zones...), err
		}},
		"zone-honoured": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			if req.Zone == "d" {
				req.Zone = "a"
			}
			return b.Broker.Start(ctx, req)
		}},
		"zone-honoured 2": {list: lists(func(b *badBroker, l listing) listing {
			for i := range l.Instances {
				l.Instances[i].Zone = "a"
			}
			return l
		})},
		"unknown-zone-refused": {start: func(b *badBroker, ctx bg, req startReq) (startRes, error) {
			if strings.HasSuffix(string(req.Zone), "unknown") {
				req.Zone = "a"
			}
			return b.Broker.Start(ctx, req)
		}},
		"derived-zones-exist": {derive: func(*badBroker, bg, startReq) ([]provisioner.ZoneName, error) {
			return []provisioner.ZoneName{"a", "nowhere"}, nil
		}},
		"derived-zones-exist 2": {derive: func(b *badBroker, _ bg, _ startReq) ([]provisioner.ZoneName, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.n++
			return []provisioner.ZoneName{[]provisioner.ZoneName{"a", "b"}[b.n%2]}, nil
		}},
		"derive-without-effect": {derive: func(b *badBroker, ctx bg, req startReq) ([]provisioner.ZoneName, error) {
			if b.made(req.Machine) == 0 && ctx.Err() == nil {
				_, _ = b.Broker.Start(ctx, req)
			}
			return nil, nil
		}},
		"find-by-label": {find: func(b *badBroker, ctx bg, want provisioner.Labels) (listing, error) {
			want.Nonce = ""
			return b.Broker.FindInstances(ctx, want)
		}},
		"find-by-label 2": {find: func(b *badBroker, ctx bg, want provisioner.Labels) (listing, error) {
			if want.Token != "" {
				want = provisioner.Labels{Token: "none"}
			}
			return b.Broker.FindInstances(ctx, want)
		}},
		"find-not-behind": {find: func(b *badBroker, ctx bg, want provisioner.Labels) (listing, error) {
			l, err := b.Broker.FindInstances(ctx, want)
			if want.Controller != "" && want.Machine != "" && want.Nonce == "" && want.Epoch == 0 && len(b.Live()) == 1 {
				l.Instances = nil // it takes its time to be indexed
			}
			return l, err
		}},
		"maintain-repeats": {keep: func(b *badBroker, req provisioner.MaintainRequest) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.seen[req.Instance] {
				return errors.New("is maintained already")
			}
			b.seen[req.Instance] = true
			return nil
		}},
		"profile-added": {change: func(b *badBroker, ctx bg, req provisioner.ProfileChangeRequest) ([]string, error) {
			names, err := b.Broker.ChangeProfile(ctx, req)
			if req.Old == "" && len(names) == 1 {
				names = append(names, "default") // the new one is not the last
			}
			return names, err
		}},
		"profile-replaced": {change: func(b *badBroker, ctx bg, req provisioner.ProfileChangeRequest) ([]string, error) {
			names, err := b.Broker.ChangeProfile(ctx, req)
			if req.Old != "" && req.Profile != nil {
				slices.Reverse(names) // as when the old one is taken away and the new one appended
			}
			return names, err
		}},
		"profile-removed": {change: func(b *badBroker, ctx bg, req provisioner.ProfileChangeRequest) ([]string, error) {
			if req.Profile == nil {
				req.Old = ""
			}
			return b.Broker.ChangeProfile(ctx, req)
		}},
		"profile-names": {names: func(*badBroker, bg, provisioner.ProfileNamesRequest) ([]string, error) {
			return []string{"default", "default"}, nil
		}},
		"nothing-left": {stop: func(b *badBroker, ctx bg, req stopReq) error { // a second stop brings it back
			err := b.Broker.Stop(ctx, req)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, id := range req.Instances {
				if b.stopped[id] && len(b.cache) == 0 {
					back := provisioner.Instance{ID: id + "-again", Labels: provisioner.Labels{Controller: b.Controller, Machine: "again"}}
					b.cache = append(b.cache, back)
					_ = b.AddInstance(back)
				}
				b.stopped[id] = true
			}
			return err
		}},
	}
}

// made counts the live instances of a machine.
func (b *badBroker) made(id machineID) (n int) {
	for _, i := range b.Live() {
		if i.Labels.Machine == id {
			n++
		}
	}
	return n
}

// brokenRules are the names of the rules that an error says are broken.
func brokenRules(t *testing.T, err error) (names []string) {
	t.Helper()
	var found *provisionertest.BrokenRulesError
	if err != nil && !errors.As(err, &found) {
		t.Fatalf("want a *BrokenRulesError: %v", err)
	}
	if found != nil {
		for _, b := range found.Broken {
			names = append(names, b.Rule.Name)
			if !strings.Contains(err.Error(), b.Rule.Explanation) || !strings.Contains(err.Error(), b.Err.Error()) {
				t.Errorf("rule and reason are not in the text: %v", err)
			}
		}
	}
	return names
}

// Each fault of a broker breaks its own rule, and no other.
func TestBadBrokers(t *testing.T) {
	covered := map[string]bool{}
	for name, bad := range badBrokers() {
		rule, _, _ := strings.Cut(name, " ")
		covered[rule] = true
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad.of(newKitHost(t, provisionertest.Settings{
					Kind: true, Latency: map[provisionertest.Call]time.Duration{provisionertest.AnyCall: 100 * time.Millisecond},
					Traits: provisioner.Traits{DedupesByToken: true, Labels: true, ConsistentReads: true}}))
				if bad.options != nil {
					bad.options(&bad.HostOptions)
				}
				err := provisionertest.CheckBroker(t.Context(), bad, bad.HostOptions)
				if diff := cmp.Diff([]string{rule}, brokenRules(t, err)); diff != "" {
					t.Errorf("broken rules (-want +got):\n%s\n%v", diff, err)
				}
				time.Sleep(time.Hour) // for calls that nobody waited for
			})
		})
	}
	for _, r := range provisionertest.BrokerRules() {
		if !covered[r.Name] {
			t.Errorf("no fault breaks the rule %s", r.Name)
		}
	}
}
