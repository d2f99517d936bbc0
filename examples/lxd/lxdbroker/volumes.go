package lxdbroker

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// A volume is a custom storage volume. Most pools are local to a member, so
// the member is part of the id; it is empty for a pool that all share.
type volume struct {
	member, pool, name string
	id                 string // the host's
	sizeM              uint64
	made               bool // by this call
}

// String is the broker's id of the volume: "member/pool/name" or "pool/name".
func (v volume) String() string {
	if v.member == "" {
		return v.pool + "/" + v.name
	}
	return v.member + "/" + v.pool + "/" + v.name
}

func parseVolumeID(id string) (volume, error) {
	switch parts := strings.Split(id, "/"); len(parts) {
	case 2:
		return volume{pool: parts[0], name: parts[1]}, nil
	case 3:
		return volume{member: parts[0], pool: parts[1], name: parts[2]}, nil
	}
	return volume{}, errors.NotValidf("VolumeID %q: want pool/name or member/pool/name:", id)
}

func (v volume) path() string {
	return "/1.0/storage-pools/" + url.PathEscape(v.pool) + "/volumes/custom"
}

func (v volume) query() url.Values {
	if v.member == "" {
		return nil
	}
	return url.Values{"target": {v.member}}
}

// makeVolumes makes the volumes of a start and adds the disks of its
// attachments to the instance. Volumes outlive the instance.
func (b *Broker) makeVolumes(ctx context.Context, req provisioner.StartRequest, target string, spec *newInstance) ([]volume, error) {
	var volumes []volume
	byID := map[string]volume{}
	for _, asked := range req.Volumes {
		v := volume{member: target, pool: asked.Attributes["pool"], id: asked.ID, sizeM: asked.SizeM,
			name: strings.Trim(notInNames.ReplaceAllString(spec.Name+"-"+asked.ID, "-"), "-")}
		err := b.makeVolume(ctx, req, asked, spec.Profiles, &v)
		if err != nil {
			return nil, b.undoVolumes(ctx, volumes, mark(errors.Annotatef(err, "volume %s", asked.ID)))
		}
		volumes, byID[asked.ID] = append(volumes, v), v
	}
	for _, a := range req.Attachments {
		v, ok := byID[a.Volume]
		if a.VolumeID != "" {
			var err error
			if v, err = parseVolumeID(a.VolumeID); err != nil {
				return nil, b.undoVolumes(ctx, volumes, provisioner.Permanent(err))
			}
		} else if !ok {
			return nil, b.undoVolumes(ctx, volumes, provisioner.Permanent(errors.NotFoundf("volume %q of an attachment", a.Volume)))
		}
		disk := map[string]string{"type": "disk", "pool": v.pool, "source": v.name, "path": volumePath(a, req.Volumes)}
		if a.ReadOnly {
			disk["readonly"] = "true"
		}
		spec.Devices[deviceName(a)] = disk
	}
	return volumes, nil
}

func (b *Broker) makeVolume(ctx context.Context, req provisioner.StartRequest, asked provisioner.Volume, profiles []string, v *volume) error {
	if v.pool == "" {
		var err error
		if v.pool, err = b.rootPool(ctx, profiles); err != nil {
			return err
		}
	}
	config := labelConfig(req.Labels)
	for key, value := range asked.Tags {
		config["user."+key] = value
	}
	config[labelVolume] = asked.ID
	if asked.SizeM > 0 {
		config["size"] = mib(asked.SizeM)
	}
	err := b.lxd.run(ctx, call{method: "POST", path: v.path(), query: v.query(),
		body: map[string]any{"name": v.name, "config": config}})
	if isConflict(err) && b.isOurs(ctx, *v, config) {
		return nil // an earlier attempt of this machine made it
	}
	v.made = err == nil
	return err
}

// isOurs says whether a volume is there for the same machine and purpose.
func (b *Broker) isOurs(ctx context.Context, v volume, want map[string]string) bool {
	var has struct {
		Config map[string]string `json:"config"`
	}
	if _, err := b.lxd.get(ctx, v.path()+"/"+url.PathEscape(v.name), v.query(), &has); err != nil {
		return false
	}
	for _, label := range []string{labelController, labelMachine, labelVolume} {
		if has.Config[label] != want[label] {
			return false
		}
	}
	return true
}

// undoVolumes takes away what a start that certainly failed has made, and
// returns why it failed. A volume that stays is found again by its name.
func (b *Broker) undoVolumes(ctx context.Context, volumes []volume, cause error) error {
	if errors.Is(cause, provisioner.ErrAmbiguous) || errors.Is(cause, provisioner.ErrAlreadyExists) || ctx.Err() != nil {
		return cause
	}
	for _, v := range volumes {
		if !v.made {
			continue
		}
		err := b.lxd.run(ctx, call{method: "DELETE", path: v.path() + "/" + url.PathEscape(v.name), query: v.query()})
		if err != nil && !isNotFound(err) {
			cause = fmt.Errorf("%w; and volume %s stays: %v", cause, v, err)
		}
	}
	return cause
}

func deviceName(a provisioner.VolumeAttachment) string {
	return "volume-" + strings.Trim(notInNames.ReplaceAllString(cmp.Or(a.Volume, a.VolumeID), "-"), "-")
}

// volumePath is where the instance sees a volume: its attribute "path", or a
// folder below /srv.
func volumePath(a provisioner.VolumeAttachment, volumes []provisioner.Volume) string {
	for _, v := range volumes {
		if v.ID == a.Volume && v.Attributes["path"] != "" {
			return v.Attributes["path"]
		}
	}
	return "/srv/" + deviceName(a)
}
