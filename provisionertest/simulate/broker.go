package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// broker is the cloud.
type broker struct{ *world }

func (w broker) Instances(ctx context.Context) (l provisioner.Listing, err error) {
	f, err := w.do(ctx, callListing, "", func() error {
		l = w.list(w.s.lag(callListing))
		for i := range l.Instances {
			if !w.s.set.labels {
				l.Instances[i].Labels = provisioner.Labels{}
			}
		}
		return nil
	})
	return w.cripple(l, f), err
}

// list is what is there and can be seen, which may be late.
func (w broker) list(lag time.Duration) (l provisioner.Listing) {
	l.Complete = true
	for _, i := range w.instances {
		if !i.live || w.s.now-i.at < lag {
			continue
		}
		shown := provisioner.Instance{ID: i.id, Zone: i.zone, Labels: i.labels}
		if w.s.now-i.at < i.slow {
			shown.State = provisioner.InstanceStarting
		}
		if w.s.set.ages {
			shown.Created = epoch.Add(i.at)
		}
		l.Instances = append(l.Instances, shown)
	}
	return l
}

// lag is how much the look of a moment ago is late.
func (s *sim) lag(c callKind) time.Duration {
	if s.set.consistent || s.calm {
		return 0
	}
	d := diceOf(s.seed, uint64(c), uint64(s.now), 17)
	return s.half() * time.Duration(d.n(60)) / 64
}

// cripple takes away from a listing what its fate has it lack.
func (w broker) cripple(l provisioner.Listing, f fate) provisioner.Listing {
	switch f.what {
	case troublePartial:
		l.Complete, l.Instances = false, l.Instances[:len(l.Instances)/2]
	case troubleZone:
		mute := w.zones[f.at%len(w.zones)].Name
		l.Failed = []provisioner.ZoneName{mute}
		l.Instances = slices.DeleteFunc(l.Instances, func(i provisioner.Instance) bool { return i.Zone == mute })
	}
	return l
}

func (w broker) FindInstances(ctx context.Context, want provisioner.Labels) (l provisioner.Listing, err error) {
	f, err := w.do(ctx, callFind, want.Machine, func() error {
		l = w.list(w.s.lag(callFind) / 2)
		l.Instances = slices.DeleteFunc(l.Instances, func(i provisioner.Instance) bool {
			has := i.Labels
			return want.Controller != "" && want.Controller != has.Controller || want.Machine != "" && want.Machine != has.Machine ||
				want.Nonce != "" && want.Nonce != has.Nonce || want.Token != "" && want.Token != has.Token
		})
		return nil
	})
	return w.cripple(l, f), err
}

func (w broker) Start(ctx context.Context, q provisioner.StartRequest) (r provisioner.StartResult, err error) {
	s, t := w.s, w.s.current.task
	s.checkHeld(t, callStart, q.Epoch)
	s.checkAsked(t, q)
	s.current.token = q.Token
	q.Report(provisioner.InstanceAllocating, "being made")
	var made *instance
	heard, over := false, false
	defer func() {
		over = true
		if made != nil && !heard {
			w.unheard(made, t)
		}
		before := w.tokens[q.Token]
		if there := w.pending[q.Token] || before != nil && before.live; err != nil && s.set.dedupes && !s.set.searchable() && there {
			err = provisioner.Ambiguous(err) // any other error would say that there is no instance
		}
	}()
	if s.set.asksGroup {
		if _, err := q.Group(ctx); err != nil {
			return r, err
		}
	}
	f, err := w.do(ctx, callStart, q.Machine, func() error {
		delete(w.pending, q.Token)
		if err := w.fenced(q.Epoch); err != nil {
			return err
		}
		if before := w.tokens[q.Token]; before != nil && s.set.dedupes {
			switch {
			case over:
			case !before.live:
				return errors.Errorf("instance %s of this token was stopped", before.id)
			default:
				made, before.lost = before, false
			}
			return nil
		}
		if s.set.exclusive && slices.ContainsFunc(w.instances, func(i *instance) bool { return i.live && !i.foreign && i.machine == q.Machine && i.spared == nil }) {
			return provisioner.AlreadyExists(errors.Errorf("machine %s has an instance", q.Machine))
		}
		if q.Zone != "" && !slices.ContainsFunc(w.zones, func(z zone) bool { return z.Name == q.Zone && z.Available && z.listed }) {
			return errors.Errorf("zone %s is down", q.Zone)
		}
		made = &instance{id: provisioner.InstanceID(fmt.Sprintf("i-%d", len(w.instances))), machine: q.Machine, zone: q.Zone,
			labels: q.Labels, nonce: q.Nonce, token: q.Token, at: s.now, live: true}
		if d := diceOf(s.seed, hash(q.Token), 19); s.set.slowUp && d.n(2) == 0 {
			made.slow = time.Duration(d.n(90)) * time.Second
		}
		if q.Zone == "" && len(w.zones) > 0 && !q.Machine.IsContainer() {
			made.zone = w.zones[0].Name
		}
		s.logf("made %s for %s in %q, attempt %d", made.id, q.Machine, made.zone, q.Attempt)
		if over {
			w.unheard(made, t)
		}
		if !made.lost {
			s.checkMade(made, q)
		}
		w.instances = append(w.instances, made)
		w.byID[made.id], w.tokens[q.Token] = made, made
		return nil
	})
	if err != nil {
		return r, err
	}
	heard = true
	q.Report(provisioner.InstanceAllocating, "made")
	r = provisioner.StartResult{Instance: made.id, Zone: q.Zone}
	if f.what == troubleOdd {
		switch {
		case f.class%2 == 0 && q.Zone != "":
			r.Zone = "elsewhere"
		default:
			r.Network = []provisioner.NetworkInterface{{MAC: "nonsense"}}
		}
	}
	return r, nil
}

func (w broker) Stop(ctx context.Context, q provisioner.StopRequest) error {
	id := q.Instances[0]
	undo, blind := w.s.current.Undo, w.s.current.Reap && !w.s.set.searchable()
	w.s.checkHeld(w.s.current.task, callStop, q.Epoch)
	f, err := w.do(ctx, callStop, w.s.current.id, func() error {
		if err := w.fenced(q.Epoch); err != nil {
			return err
		}
		i := w.byID[id]
		if i == nil || !i.live {
			return nil
		}
		if !blind { // or it may have been asked for again meanwhile, and nobody could tell
			w.s.checkStopped(i, undo)
		}
		i.blind = blind
		i.live = false
		w.s.logf("stopped %s", id)
		return nil
	})
	if err != nil && f.class%2 == 0 && ctx.Err() == nil {
		return &provisioner.StopError{Failed: map[provisioner.InstanceID]error{id: err}}
	}
	return err
}

// What a broker may have besides.

func (w broker) Zones(ctx context.Context) (all []provisioner.Zone, err error) {
	f, err := w.do(ctx, callZones, "", func() error {
		for _, z := range w.zones {
			if z.listed {
				all = append(all, z.Zone)
			}
		}
		return nil
	})
	switch {
	case f.what == troubleMissing && len(all) > 0:
		all = all[1:]
	case f.what == troubleDouble && len(all) > 0:
		all = append(all, all[0])
	}
	return all, err
}

func (w broker) DeriveZones(ctx context.Context, q provisioner.StartRequest) (all []provisioner.ZoneName, err error) {
	_, err = w.do(ctx, callDerive, q.Machine, func() error {
		all = w.s.derivedOf(q.Machine)
		return nil
	})
	return all, err
}

func (w broker) Maintain(ctx context.Context, q provisioner.MaintainRequest) error {
	_, err := w.do(ctx, callMaintain, q.Machine, func() error { return nil })
	return err
}

func (w broker) Traits() provisioner.Traits {
	return provisioner.Traits{DedupesByToken: w.s.set.dedupes, Labels: w.s.set.labels, ConsistentReads: w.s.set.consistent}
}

func (w broker) Wait(ctx context.Context) error {
	_, err := w.do(ctx, callLimit, "", func() error { return nil })
	return err
}

// What a host may say to stops.

func (w broker) MayStop(ctx context.Context, n provisioner.StopNotice) error {
	t := w.s.current.task
	_, err := w.do(ctx, callVeto, n.Machine, func() error {
		d := diceOf(w.s.seed, hash(string(n.Instance)), 23)
		if !w.s.calm && d.n(3) == 0 {
			return errors.Errorf("instance %s is in use", n.Instance)
		}
		return nil
	})
	t.may[n.Instance] = err == nil
	return err
}

func (w broker) Drain(ctx context.Context, n provisioner.StopNotice) error {
	t := w.s.current.task
	_, err := w.do(ctx, callDrain, n.Machine, func() error { return nil })
	t.may[n.Instance] = t.may[n.Instance] && err == nil
	return err
}
