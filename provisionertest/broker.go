package provisionertest

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// A Broker is the World as a broker with every ability there is.
type Broker struct{ w *World }

// The abilities of a Broker.
var _ interface {
	provisioner.Broker
	provisioner.ZoneLister
	provisioner.ZoneDeriver
	provisioner.InstanceFinder
	provisioner.Maintainer
	provisioner.ProfileBroker
	provisioner.ProfileNamer
	provisioner.TraitsReporter
} = (*Broker)(nil)

// Broker gives the World as a broker with every ability there is.
func (w *World) Broker() *Broker { return &Broker{w} }

// PlainBroker gives the World as a broker with no optional ability.
func (w *World) PlainBroker() provisioner.Broker {
	return struct{ provisioner.Broker }{w.Broker()}
}

// Instances implements provisioner.Broker.
func (b *Broker) Instances(ctx context.Context) (provisioner.Listing, error) {
	c := call{kind: CallList}
	return do(ctx, b.w, &c, showListing, func() (provisioner.Listing, error) {
		return b.w.list(&c), nil
	})
}

// Start implements provisioner.Broker.
func (b *Broker) Start(ctx context.Context, req provisioner.StartRequest) (provisioner.StartResult, error) {
	w := b.w
	var groupErr error
	if w.set.AsksGroup && req.Group != nil {
		_, groupErr = req.Group(ctx)
	}
	if w.set.Reports && req.Report != nil {
		req.Report(provisioner.InstanceAllocating, "booting")
	}
	c := call{kind: CallStart, machine: req.Machine, zone: req.Zone, epoch: req.Epoch}
	return do(ctx, w, &c, showStart, func() (provisioner.StartResult, error) {
		if groupErr != nil {
			return provisioner.StartResult{}, errors.Annotate(groupErr, "asking for the group")
		}
		return w.start(&c, &req)
	})
}

func (w *World) start(c *call, req *provisioner.StartRequest) (provisioner.StartResult, error) {
	m := w.known(req.Machine)
	if !w.set.Silent {
		m.request = copyRequest(req)
	}
	empty, isEmpty := c.twisted(TroubleEmpty)
	if isEmpty && !empty.After {
		return provisioner.StartResult{}, nil
	}
	i, err := w.makeInstance(c, m, req)
	if err != nil {
		return provisioner.StartResult{}, err
	}
	if isEmpty {
		return provisioner.StartResult{}, nil
	}
	return provisioner.StartResult{Instance: i.id, Zone: i.zone}, nil
}

// makeInstance makes the instance that a start asks for, or finds it again.
func (w *World) makeInstance(c *call, m *machine, req *provisioner.StartRequest) (*instance, error) {
	dedupe := w.set.Traits.DedupesByToken && req.Token != ""
	if dedupe {
		if i := w.tokens[req.Token]; i != nil {
			return i, nil
		}
	}
	zone, err := w.zoneFor(c, req)
	if err != nil {
		return nil, err
	}
	now := w.now()
	i := &instance{id: w.nextInstance(m), machine: req.Machine, zone: zone, state: provisioner.InstanceUp, created: now, profiles: slices.Clone(req.Profiles)}
	if w.set.Visibility > 0 {
		i.visible = now.Add(w.set.Visibility)
	}
	i.labels = req.Labels
	i.mute = !w.set.Traits.Labels
	w.addInstance(i, m)
	if dedupe {
		w.tokens[req.Token] = i
	}
	if m.live > 1 {
		w.foundDouble(m)
	}
	return i, nil
}

// nextInstance is a new id: i-0 for the first of machine 0, then i-0~2, i-0~3…
func (w *World) nextInstance(m *machine) provisioner.InstanceID {
	for {
		m.made++
		id := provisioner.InstanceID("i-" + string(m.ID))
		if m.made > 1 {
			id += provisioner.InstanceID("~" + strconv.Itoa(m.made))
		}
		if w.instances[id] == nil {
			return id
		}
	}
}

// addInstance puts a live instance into the World; m is whose it is, or nil.
func (w *World) addInstance(i *instance, m *machine) {
	w.instances[i.id] = i
	w.listing = append(w.listing, i)
	if !i.machine.IsContainer() { // which takes its host's room
		w.running[i.zone]++
	}
	if m != nil {
		m.live++
		m.instances = append(m.instances, i)
	}
}

// zoneFor is where an instance is made: a container's is its host's zone.
func (w *World) zoneFor(c *call, req *provisioner.StartRequest) (provisioner.ZoneName, error) {
	if h := w.machines[req.Host]; h != nil && h.Instance != "" && req.Zone == "" {
		return h.Zone, nil
	}
	return w.chooseZone(c, req.Zone)
}

// chooseZone is the zone that was asked for, if it has room, or the first that
// has.
func (w *World) chooseZone(c *call, asked provisioner.ZoneName) (provisioner.ZoneName, error) {
	if _, astray := c.twisted(TroubleAstray); astray {
		for _, z := range w.zones {
			if z.Name != asked {
				return z.Name, nil
			}
		}
		return alienZone, nil
	}
	if len(w.zones) == 0 && asked == "" {
		return "", nil
	}
	var err error
	for _, z := range w.zones {
		if asked != "" && z.Name != asked {
			continue
		}
		if err = w.roomIn(z); err == nil {
			return z.Name, nil
		}
	}
	if err == nil {
		err = errors.NotFoundf("zone %q", string(asked))
	}
	return "", err
}

func (w *World) roomIn(z provisioner.Zone) error {
	if !z.Available {
		return errors.Errorf("zone %q is not available", string(z.Name))
	}
	if most, limited := w.capacity[z.Name]; limited && w.running[z.Name] >= most {
		return provisioner.OutOfCapacity(errors.Errorf("zone %q has no room for more than %d", string(z.Name), most))
	}
	return nil
}

// Stop implements provisioner.Broker.
func (b *Broker) Stop(ctx context.Context, req provisioner.StopRequest) error {
	c := call{kind: CallStop, instances: req.Instances, epoch: req.Epoch}
	_, err := do(ctx, b.w, &c, showNone, func() (none, error) { return none{}, b.w.stop(&c, req.Instances) })
	return err
}

func (w *World) stop(c *call, ids []provisioner.InstanceID) error {
	failed := map[provisioner.InstanceID]error(nil)
	fail := func(id provisioner.InstanceID, err error) {
		if failed == nil {
			failed = map[provisioner.InstanceID]error{}
		}
		failed[id] = err
	}
	for _, id := range ids {
		if err := w.stopFault(c, id, false); err != nil {
			fail(id, err)
			continue
		}
		if i := w.instances[id]; i != nil && i.live() {
			w.checkStop(i)
			w.stopInstance(i)
		}
		if err := w.stopFault(c, id, true); err != nil {
			fail(id, err)
		}
	}
	if failed != nil {
		return &provisioner.StopError{Failed: failed}
	}
	return nil
}

// stopInstance ends a live instance.
func (w *World) stopInstance(i *instance) {
	i.stopped = w.now()
	if !i.machine.IsContainer() {
		w.running[i.zone]--
	}
	if m := w.machines[i.machine]; m != nil && m.live > 0 {
		m.live--
	}
}

// list is what the broker would show now. What has gone for good is dropped on
// the way.
func (w *World) list(c *call) provisioner.Listing {
	now := w.now()
	l := provisioner.Listing{Complete: true}
	kept := w.listing[:0]
	for _, i := range w.listing {
		shown, ok := w.show(i, now)
		if ok {
			l.Instances = append(l.Instances, shown)
		}
		if !i.gone {
			kept = append(kept, i)
		}
	}
	clear(w.listing[len(kept):])
	w.listing = kept
	return w.twistListing(c, l)
}

// show is how the broker would list an instance now, if it would.
func (w *World) show(i *instance, now time.Time) (provisioner.Instance, bool) {
	state := i.state
	if !i.stopped.IsZero() {
		state = "shutting-down"
		switch since := now.Sub(i.stopped); {
		case since >= 2*w.set.Lingering:
			i.gone = true
		case since >= w.set.Lingering:
			state = provisioner.InstanceTerminated
		}
	}
	if i.gone || i.visible.After(now) {
		return provisioner.Instance{}, false
	}
	shown := provisioner.Instance{ID: i.id, Zone: i.zone, State: state, Created: i.created}
	if !i.mute {
		shown.Labels = i.labels
	}
	return shown, true
}

// find is list for the instances with some labels. Where a machine is wanted it
// doesn't look at all the others.
func (w *World) find(c *call, want provisioner.Labels) provisioner.Listing {
	among := w.listing
	if want.Machine != "" {
		among = nil
		if m := w.machine(want.Machine); m != nil {
			among = m.instances
		}
		among = slices.Concat(among, w.strangers)
	}
	now := w.now()
	l := provisioner.Listing{Complete: true}
	for _, i := range among {
		if !hasLabels(i.labels, want) {
			continue
		}
		if shown, ok := w.show(i, now); ok {
			shown.Labels = i.labels
			l.Instances = append(l.Instances, shown)
		}
	}
	return w.twistListing(c, l)
}

// hasLabels says whether labels equal every field of want that isn't zero.
func hasLabels(l, want provisioner.Labels) bool {
	return (want.Controller == "" || want.Controller == l.Controller) &&
		(want.Machine == "" || want.Machine == l.Machine) &&
		(want.Nonce == "" || want.Nonce == l.Nonce) &&
		(want.Token == "" || want.Token == l.Token) &&
		(want.Epoch == 0 || want.Epoch == l.Epoch)
}

func showListing(l provisioner.Listing) string {
	ids := make([]provisioner.InstanceID, len(l.Instances))
	for i, inst := range l.Instances {
		ids[i] = inst.ID
		if inst.State == provisioner.InstanceTerminated {
			ids[i] += "(terminated)"
		}
	}
	text := "[" + some(ids) + "]"
	if !l.Complete {
		text += " incomplete"
	}
	if len(l.Failed) > 0 {
		text += " without " + some(l.Failed)
	}
	return text
}

func showStart(r provisioner.StartResult) string {
	if r.Instance == "" {
		return "no instance"
	}
	if r.Zone == "" {
		return string(r.Instance)
	}
	return string(r.Instance) + "@" + string(r.Zone)
}
