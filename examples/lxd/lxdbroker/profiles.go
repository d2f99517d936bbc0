package lxdbroker

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// A profile is what LXD tells of a profile.
type profile struct {
	Name        string                       `json:"name,omitempty"`
	Description string                       `json:"description"`
	Config      map[string]string            `json:"config"`
	Devices     map[string]map[string]string `json:"devices"`
	UsedBy      []string                     `json:"used_by,omitempty"`
}

func profilePath(name string) string { return "/1.0/profiles/" + url.PathEscape(name) }

// withProfiles appends the names that are not there yet.
func withProfiles(base, more []string) []string {
	names := slices.Clone(base)
	for _, name := range more {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ProfileNames are the profiles of every instance, and then those asked for.
func (b *Broker) ProfileNames(_ context.Context, req provisioner.ProfileNamesRequest) ([]string, error) {
	return withProfiles(b.cfg.Profiles, req.Asked), nil
}

// changeTries bounds how often a change is made anew because somebody else
// changed the instance meanwhile.
const changeTries = 5

// ChangeProfile writes the profile that comes, puts it on the running
// instance, and deletes the one that goes if this broker wrote it and nothing
// uses it any more. The order of the others is kept. A profile that LXD has
// with other contents is rewritten, on every instance that uses it.
func (b *Broker) ChangeProfile(ctx context.Context, req provisioner.ProfileChangeRequest) ([]string, error) {
	fail := func(err error) ([]string, error) {
		err = errors.Annotatef(err, "profiles of instance %s", req.Instance)
		if isRefused(err) {
			return nil, errors.WithType(err, errors.NotValid) // LXD would refuse it again
		}
		return nil, mark(err)
	}
	if req.Profile != nil {
		if err := b.writeProfile(ctx, *req.Profile); err != nil {
			return fail(err)
		}
	}
	names, err := b.apply(ctx, req)
	for try := 1; isStale(err) && try < changeTries; try++ {
		names, err = b.apply(ctx, req)
	}
	if err != nil {
		return fail(err)
	}
	if req.Old != "" && !slices.Contains(names, req.Old) {
		b.dropProfile(ctx, req.Old)
	}
	return names, nil
}

// isRefused says whether LXD found fault with the request itself.
func isRefused(err error) bool {
	var e *APIError
	return errors.As(err, &e) && !e.Operation && e.Code == http.StatusBadRequest
}

// apply changes the instance's list of profiles, unless it is so already.
func (b *Broker) apply(ctx context.Context, req provisioner.ProfileChangeRequest) ([]string, error) {
	name := string(req.Instance)
	there, etag, err := b.instance(ctx, name)
	if err != nil {
		return nil, err
	}
	comes := ""
	if req.Profile != nil {
		comes = req.Profile.Name
	}
	names := changed(there.Profiles, req.Old, comes)
	if slices.Equal(names, there.Profiles) {
		return names, nil
	}
	return names, b.lxd.run(ctx, call{method: "PATCH", path: instancePath(name), etag: etag,
		body: map[string]any{"profiles": names}})
}

// changed is the list after the change: comes in the place of old, or at the
// end. Either may be empty; doing it twice is doing it once.
func changed(names []string, old, comes string) []string {
	after := make([]string, 0, len(names)+1)
	for _, name := range names {
		switch {
		case old != "" && name == old && comes != "" && !slices.Contains(names, comes):
			after = append(after, comes)
		case old != "" && name == old && name != comes:
		default:
			after = append(after, name)
		}
	}
	if comes != "" && !slices.Contains(after, comes) {
		after = append(after, comes)
	}
	return after
}

// labelProfile says that this broker wrote a profile, and may delete it.
const labelProfile = "user.provisioner.profile"

// writeProfile makes the profile, or makes the one that is there equal to it.
func (b *Broker) writeProfile(ctx context.Context, p provisioner.Profile) error {
	if p.Name == "" {
		return errors.NotValidf("profile without a name:")
	}
	want := profile{Name: p.Name, Description: p.Description, Config: maps.Clone(p.Config), Devices: p.Devices}
	if want.Config == nil {
		want.Config = map[string]string{}
	}
	if want.Devices == nil {
		want.Devices = map[string]map[string]string{}
	}
	want.Config[labelProfile] = "true"
	err := b.lxd.run(ctx, call{method: "POST", path: "/1.0/profiles", body: want})
	if !isConflict(err) {
		return err
	}
	var has profile
	etag, err := b.lxd.get(ctx, profilePath(p.Name), nil, &has)
	switch {
	case err != nil:
		return err
	case has.Config[labelProfile] == "":
		return provisioner.Permanent(fmt.Errorf("profile %s is there and was not written by this broker: %w", p.Name, errors.AlreadyExists))
	case has.Description == want.Description && maps.Equal(has.Config, want.Config) && maps.EqualFunc(has.Devices, want.Devices, maps.Equal[map[string]string, map[string]string]):
		return nil
	}
	want.Name = ""
	return b.lxd.run(ctx, call{method: "PUT", path: profilePath(p.Name), etag: etag, body: want})
}

// dropProfile is done as well as it goes: a profile that stays does no harm.
func (b *Broker) dropProfile(ctx context.Context, name string) {
	var p profile
	if _, err := b.lxd.get(ctx, profilePath(name), nil, &p); err == nil && p.Config[labelProfile] != "" && len(p.UsedBy) == 0 {
		// LXD itself refuses if somebody has begun to use it.
		_ = b.lxd.run(ctx, call{method: "DELETE", path: profilePath(name)})
	}
}
