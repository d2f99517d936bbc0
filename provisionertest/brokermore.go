package provisionertest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// Zones implements provisioner.ZoneLister.
func (b *Broker) Zones(ctx context.Context) ([]provisioner.Zone, error) {
	c := call{kind: CallZones}
	return do(ctx, b.w, &c, showZones, func() ([]provisioner.Zone, error) {
		return zoneKind.twist(&c, slices.Clone(b.w.zones)), nil
	})
}

func showZones(zones []provisioner.Zone) string {
	texts := make([]string, len(zones))
	for i, z := range zones {
		texts[i] = string(z.Name)
		if !z.Available {
			texts[i] += "(down)"
		}
	}
	return "[" + some(texts) + "]"
}

// DeriveZones implements provisioner.ZoneDeriver with what SetDerived says.
func (b *Broker) DeriveZones(ctx context.Context, req provisioner.StartRequest) ([]provisioner.ZoneName, error) {
	c := call{kind: CallDerive, machine: req.Machine}
	return do(ctx, b.w, &c, bracketed[provisioner.ZoneName], func() ([]provisioner.ZoneName, error) {
		if m := b.w.machine(req.Machine); m != nil {
			return slices.Clone(m.derived), nil
		}
		return nil, nil
	})
}

func bracketed[S ~string](all []S) string { return "[" + some(all) + "]" }

// FindInstances implements provisioner.InstanceFinder. It sees what Instances
// sees.
func (b *Broker) FindInstances(ctx context.Context, want provisioner.Labels) (provisioner.Listing, error) {
	c := call{kind: CallFind, machine: want.Machine}
	return do(ctx, b.w, &c, showListing, func() (provisioner.Listing, error) { return b.w.find(&c, want), nil })
}

// Maintain implements provisioner.Maintainer: it does nothing.
func (b *Broker) Maintain(ctx context.Context, req provisioner.MaintainRequest) error {
	c := call{kind: CallMaintain, machine: req.Machine, instance: req.Instance, epoch: req.Epoch}
	_, err := do(ctx, b.w, &c, showNone, func() (none, error) { return none{}, nil })
	return err
}

// ChangeProfile implements provisioner.ProfileBroker.
func (b *Broker) ChangeProfile(ctx context.Context, req provisioner.ProfileChangeRequest) ([]string, error) {
	name := ""
	if req.Profile != nil {
		name = req.Profile.Name
	}
	c := call{kind: CallChangeProfile, machine: req.Machine, instance: req.Instance, epoch: req.Epoch, profiles: []string{req.Old, name},
		detail: func() string { return fmt.Sprintf("%q to %q", req.Old, name) }}
	return do(ctx, b.w, &c, bracketed[string], func() ([]string, error) {
		i := b.w.instances[req.Instance]
		if i == nil || !i.live() {
			return nil, errors.NotFoundf("instance %q", string(req.Instance))
		}
		i.profiles = changeProfile(i.profiles, req.Old, name)
		return slices.Clone(i.profiles), nil
	})
}

// changeProfile puts name in the place of old, each empty for none.
func changeProfile(profiles []string, old, name string) []string {
	at := slices.Index(profiles, old)
	switch {
	case at < 0 && (name == "" || slices.Contains(profiles, name)):
	case at < 0:
		profiles = append(profiles, name)
	case name == "":
		profiles = slices.Delete(profiles, at, at+1)
	default:
		profiles[at] = name
	}
	return profiles
}

// ProfileNames implements provisioner.ProfileNamer: a container gets what was
// asked for.
func (b *Broker) ProfileNames(ctx context.Context, req provisioner.ProfileNamesRequest) ([]string, error) {
	c := call{kind: CallProfileNames, machine: req.Machine, detail: func() string { return strings.Join(req.Asked, ",") }}
	return do(ctx, b.w, &c, bracketed[string], func() ([]string, error) { return slices.Clone(req.Asked), nil })
}

// Traits implements provisioner.TraitsReporter with Settings.Traits.
func (b *Broker) Traits() provisioner.Traits { return b.w.set.Traits }
