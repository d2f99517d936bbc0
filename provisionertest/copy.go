package provisionertest

import (
	"maps"
	"slices"

	"github.com/seed81ba69f2/provisioner"
)

// copyInfo copies what a StartInfo refers to, so that neither side sees the
// other's changes.
func copyInfo(s provisioner.StartInfo) provisioner.StartInfo {
	c := &s.Constraints
	c.Cores, c.Mem, c.RootDisk, c.AllocatePublicIP = copyOf(c.Cores), copyOf(c.Mem), copyOf(c.RootDisk), copyOf(c.AllocatePublicIP)
	c.Tags, c.Spaces, c.Zones = slices.Clone(c.Tags), slices.Clone(c.Spaces), slices.Clone(c.Zones)
	i := &s.Instance
	i.APIAddresses, i.Jobs, i.Tags = slices.Clone(i.APIAddresses), slices.Clone(i.Jobs), maps.Clone(i.Tags)
	i.UserData, i.ControllerConfig = maps.Clone(i.UserData), maps.Clone(i.ControllerConfig)
	s.Group = copyGroup(&s.Group)
	s.RootDisk = copyOf(s.RootDisk)
	s.Volumes = slices.Clone(s.Volumes)
	for i, v := range s.Volumes {
		s.Volumes[i].Attributes, s.Volumes[i].Tags = maps.Clone(v.Attributes), maps.Clone(v.Tags)
	}
	s.Attachments = slices.Clone(s.Attachments)
	s.Subnets = slices.Clone(s.Subnets)
	for i, space := range s.Subnets {
		subnets := slices.Clone(space.Subnets)
		for j := range subnets {
			subnets[j].Zones = slices.Clone(subnets[j].Zones)
		}
		s.Subnets[i].Subnets = subnets
	}
	s.EndpointBind = maps.Clone(s.EndpointBind)
	s.Images, s.Agents, s.Profiles = slices.Clone(s.Images), slices.Clone(s.Agents), slices.Clone(s.Profiles)
	return s
}

func copyGroup(g *provisioner.Group) provisioner.Group {
	return provisioner.Group{Key: g.Key, Members: slices.Clone(g.Members)}
}

func copyProfile(p *provisioner.Profile) *provisioner.Profile {
	p = copyOf(p)
	if p == nil {
		return nil
	}
	p.Config, p.Devices = maps.Clone(p.Config), maps.Clone(p.Devices)
	for name, device := range p.Devices {
		p.Devices[name] = maps.Clone(device)
	}
	return p
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
