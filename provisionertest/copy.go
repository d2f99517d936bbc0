package provisionertest

import (
	"maps"
	"slices"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// What goes in and out is copied, so that neither side sees the other's
// changes.

func copyInfo(s provisioner.StartInfo) provisioner.StartInfo {
	s.Constraints = copyConstraints(s.Constraints)
	s.Instance = copyInstanceInfo(s.Instance)
	s.Group = copyGroup(&s.Group)
	s.RootDisk = copyOf(s.RootDisk)
	s.Volumes = copyVolumes(s.Volumes)
	s.Attachments = slices.Clone(s.Attachments)
	s.Subnets = copySubnets(s.Subnets)
	s.EndpointBind = maps.Clone(s.EndpointBind)
	s.Images, s.Agents, s.Profiles = slices.Clone(s.Images), slices.Clone(s.Agents), slices.Clone(s.Profiles)
	return s
}

// copyRequest leaves out the functions, which are good during the call only.
func copyRequest(r *provisioner.StartRequest) *provisioner.StartRequest {
	c := *r
	c.Group, c.Report = nil, nil
	c.Constraints = copyConstraints(c.Constraints)
	c.Config.Info = copyInstanceInfo(c.Config.Info)
	c.RootDisk = copyOf(c.RootDisk)
	c.Volumes = copyVolumes(c.Volumes)
	c.Attachments = slices.Clone(c.Attachments)
	c.Subnets = copySubnets(c.Subnets)
	c.EndpointBind = maps.Clone(c.EndpointBind)
	c.Images, c.Agents, c.Profiles = slices.Clone(c.Images), slices.Clone(c.Agents), slices.Clone(c.Profiles)
	return &c
}

func copyRecord(r *provisioner.InstanceRecord) *provisioner.InstanceRecord {
	c := *r
	h := &c.Hardware
	h.Cores, h.Mem, h.RootDisk, h.Tags = copyOf(h.Cores), copyOf(h.Mem), copyOf(h.RootDisk), slices.Clone(h.Tags)
	c.Network = slices.Clone(c.Network)
	for i, n := range c.Network {
		c.Network[i].Addresses, c.Network[i].DNSServers = slices.Clone(n.Addresses), slices.Clone(n.DNSServers)
	}
	c.Volumes = slices.Clone(c.Volumes)
	c.Attachments = slices.Clone(c.Attachments)
	for i, a := range c.Attachments {
		c.Attachments[i].PlanAttributes = maps.Clone(a.PlanAttributes)
	}
	c.Profiles = slices.Clone(c.Profiles)
	return &c
}

func copyConstraints(c constraints.Value) constraints.Value {
	c.Cores, c.Mem, c.RootDisk, c.AllocatePublicIP = copyOf(c.Cores), copyOf(c.Mem), copyOf(c.RootDisk), copyOf(c.AllocatePublicIP)
	c.Tags, c.Spaces, c.Zones = slices.Clone(c.Tags), slices.Clone(c.Spaces), slices.Clone(c.Zones)
	return c
}

func copyInstanceInfo(i instancecfg.Info) instancecfg.Info {
	i.APIAddresses, i.Jobs, i.Tags = slices.Clone(i.APIAddresses), slices.Clone(i.Jobs), maps.Clone(i.Tags)
	i.UserData, i.ControllerConfig = copySecret(i.UserData), copySecret(i.ControllerConfig)
	return i
}

func copySecret(s instancecfg.Secret[map[string]any]) instancecfg.Secret[map[string]any] {
	return instancecfg.Hide(maps.Clone(s.Reveal()))
}

func copyVolumes(volumes []provisioner.Volume) []provisioner.Volume {
	volumes = slices.Clone(volumes)
	for i, v := range volumes {
		volumes[i].Attributes, volumes[i].Tags = maps.Clone(v.Attributes), maps.Clone(v.Tags)
	}
	return volumes
}

func copySubnets(spaces []provisioner.SpaceSubnets) []provisioner.SpaceSubnets {
	spaces = slices.Clone(spaces)
	for i, space := range spaces {
		spaces[i].Subnets = slices.Clone(space.Subnets)
		for j, subnet := range spaces[i].Subnets {
			spaces[i].Subnets[j].Zones = slices.Clone(subnet.Zones)
		}
	}
	return spaces
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
