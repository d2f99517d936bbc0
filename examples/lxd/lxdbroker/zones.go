package lxdbroker

import (
	"cmp"
	"context"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// A member is one server of a cluster.
type member struct {
	Name          string `json:"server_name"`
	Status        string `json:"status"` // Online, Offline, Evacuated, Blocked
	FailureDomain string `json:"failure_domain"`
}

// members reads the cluster's members, by name; NotSupported if there is no
// cluster.
func (b *Broker) members(ctx context.Context) ([]member, error) {
	var members []member
	_, err := b.lxd.get(ctx, "/1.0/cluster/members", url.Values{"recursion": {"1"}}, &members)
	if e := (*APIError)(nil); errors.As(err, &e) && e.says("not clustered") {
		return nil, errors.NewNotSupported(nil, "zones of an LXD that is not clustered")
	}
	if err != nil {
		return nil, mark(err)
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.Name, b.Name) })
	return members, nil
}

func (b *Broker) zoneOf(m member) provisioner.ZoneName {
	if b.cfg.ZonesAre == FailureDomains {
		return provisioner.ZoneName(cmp.Or(m.FailureDomain, "default"))
	}
	return provisioner.ZoneName(m.Name)
}

// Zones lists the cluster's members or their failure domains, by name. One is
// available if a member in it is online; offline, evacuated and blocked ones
// are not.
func (b *Broker) Zones(ctx context.Context) ([]provisioner.Zone, error) {
	members, err := b.members(ctx)
	if err != nil {
		return nil, err
	}
	available := map[provisioner.ZoneName]bool{}
	for _, m := range members {
		available[b.zoneOf(m)] = available[b.zoneOf(m)] || m.Status == "Online"
	}
	zones := make([]provisioner.Zone, 0, len(available))
	for name, ok := range available {
		zones = append(zones, provisioner.Zone{Name: name, Available: ok})
	}
	slices.SortFunc(zones, func(a, b provisioner.Zone) int { return cmp.Compare(a.Name, b.Name) })
	return zones, nil
}

// zoneNames maps members to their zones, without a request where they have
// the same names.
func (b *Broker) zoneNames(ctx context.Context) (func(location string) provisioner.ZoneName, error) {
	zones := map[string]provisioner.ZoneName{}
	if b.cfg.ZonesAre == FailureDomains {
		members, err := b.members(ctx)
		if err != nil && !errors.Is(err, errors.NotSupported) {
			return nil, err
		}
		for _, m := range members {
			zones[m.Name] = b.zoneOf(m)
		}
	}
	return func(location string) provisioner.ZoneName {
		if location == "none" { // not clustered
			return ""
		}
		return cmp.Or(zones[location], provisioner.ZoneName(location))
	}, nil
}

// target is the member to start on; empty leaves it to LXD. In a failure
// domain the attempts go round the members that are online.
func (b *Broker) target(ctx context.Context, req provisioner.StartRequest) (string, error) {
	if req.Zone == "" || b.cfg.ZonesAre == Members {
		return string(req.Zone), nil
	}
	members, err := b.members(ctx)
	if err != nil {
		return "", err
	}
	members = slices.DeleteFunc(members, func(m member) bool { return b.zoneOf(m) != req.Zone || m.Status != "Online" })
	if len(members) == 0 {
		return "", errors.Errorf("no member of failure domain %q is online", req.Zone)
	}
	hash := fnv.New32a()
	hash.Write([]byte(req.Machine))
	return members[(int(hash.Sum32()>>1)+max(req.Attempt, 0))%len(members)].Name, nil
}

// DeriveZones binds a start to the zone of its placement directive,
// "zone=NAME", and to that of the volumes that it is to be given.
func (b *Broker) DeriveZones(ctx context.Context, req provisioner.StartRequest) ([]provisioner.ZoneName, error) {
	zoneOf, err := b.zoneNames(ctx)
	if err != nil {
		return nil, err
	}
	var zones []provisioner.ZoneName
	if req.Placement != "" {
		zone, ok := strings.CutPrefix(req.Placement, "zone=")
		if !ok || zone == "" {
			return nil, errors.NotValidf("Placement %q: want zone=NAME:", req.Placement)
		}
		zones = append(zones, provisioner.ZoneName(zone))
	}
	for _, a := range req.Attachments {
		if a.VolumeID == "" {
			continue
		}
		v, err := parseVolumeID(a.VolumeID)
		if err != nil {
			return nil, err
		}
		if zone := zoneOf(v.member); v.member != "" && !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	if len(zones) > 1 {
		return nil, errors.NotValidf("placement %q and volumes in zones %q: want one zone:", req.Placement, zones)
	}
	return zones, nil
}
