package lxdbroker

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strconv"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// A newInstance is the request that makes an instance.
type newInstance struct {
	Name         string                       `json:"name"`
	Type         string                       `json:"type"`
	Architecture string                       `json:"architecture,omitempty"`
	InstanceType string                       `json:"instance_type,omitempty"`
	Source       imageSource                  `json:"source"`
	Config       map[string]string            `json:"config"`
	Devices      map[string]map[string]string `json:"devices,omitempty"`
	Profiles     []string                     `json:"profiles"`
}

type imageSource struct {
	Type        string `json:"type"`
	Alias       string `json:"alias,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Server      string `json:"server,omitempty"`
	Protocol    string `json:"protocol,omitempty"`
}

// Start makes and starts one instance. Its name is the machine's, so LXD
// refuses a second one. If the one that is there is the machine's it is started,
// should it not run, and returned if it came of the same token; else the error
// is AlreadyExists. What a start that certainly failed has made is taken away
// again; if that fails, the error is Ambiguous.
func (b *Broker) Start(ctx context.Context, req provisioner.StartRequest) (provisioner.StartResult, error) {
	result, err := b.start(ctx, req)
	if err != nil {
		return provisioner.StartResult{}, mark(errors.Annotatef(err, "machine %s", req.Machine))
	}
	return result, nil
}

func (b *Broker) start(ctx context.Context, req provisioner.StartRequest) (provisioner.StartResult, error) {
	var none provisioner.StartResult
	if req.Host != "" {
		return none, provisioner.Permanent(errors.NotSupportedf("container on machine %s, from the broker of LXD itself,", req.Host))
	}
	target, err := b.target(ctx, req)
	if err != nil {
		return none, err
	}
	spec, err := b.spec(ctx, req)
	if err != nil {
		return none, err
	}
	volumes, err := b.makeVolumes(ctx, req, target, &spec)
	if err != nil {
		return none, err
	}
	req.Report(provisioner.InstanceAllocating, fmt.Sprintf("creating %s %s", spec.Type, spec.Name))
	err = b.create(ctx, spec, target)
	switch {
	case isConflict(err):
		err = b.resume(ctx, req, spec.Name)
	case err == nil:
		req.Report(provisioner.InstanceAllocating, "starting "+spec.Name)
		if err = mark(b.setState(ctx, spec.Name, "start")); err != nil {
			err = b.undo(ctx, spec.Name, err)
		}
	}
	if err != nil {
		return none, b.undoVolumes(ctx, volumes, mark(err))
	}
	b.known.add(spec.Name, req.Machine)
	return b.report(ctx, req, spec, volumes), nil
}

func (b *Broker) create(ctx context.Context, spec newInstance, target string) error {
	query := url.Values{}
	if target != "" {
		query.Set("target", target)
	}
	return b.lxd.run(ctx, call{method: "POST", path: "/1.0/instances", query: query, body: spec})
}

// resume starts the instance that an earlier call left, if it came of the same
// token, and if not too: it may have been cut short before it was started, and
// whoever adopts it wants it running. What that call has left half made, so that
// it can't be started, is taken away.
func (b *Broker) resume(ctx context.Context, req provisioner.StartRequest, name string) error {
	there, _, err := b.instance(ctx, name)
	if err != nil {
		return provisioner.Ambiguous(err)
	}
	has := labelsOf(there.Config)
	if has.Controller != req.Labels.Controller || has.Machine != req.Machine {
		return provisioner.ZoneIndependent(errors.Errorf("name %s is taken by an instance without our labels", name))
	}
	if there.StatusCode != lxdRunning {
		switch err := b.setState(ctx, name, "start"); {
		case err == nil:
		case isBusy(err) || there.everRan() || has.Token != req.Token: // that call may be at work, or it isn't ours to take away
			return provisioner.Ambiguous(err)
		default:
			return b.undo(ctx, name, mark(err))
		}
	}
	if has.Token != req.Token {
		return provisioner.AlreadyExists(errors.Errorf("instance %s exists, of token %q", name, has.Token))
	}
	return nil
}

// undo takes away what a failed start has made, and returns why it failed.
func (b *Broker) undo(ctx context.Context, name string, cause error) error {
	if errors.Is(cause, provisioner.ErrAmbiguous) || ctx.Err() != nil {
		return provisioner.Ambiguous(cause)
	}
	if err := b.stopOne(ctx, name); err != nil {
		return provisioner.Ambiguous(fmt.Errorf("%w; and it could not be taken away: %v", cause, err))
	}
	return cause
}

// setState starts or stops an instance; one that is as asked is a success.
func (b *Broker) setState(ctx context.Context, name, action string) error {
	err := b.lxd.run(ctx, call{method: "PUT", path: instancePath(name) + "/state",
		body: map[string]any{"action": action, "force": action == "stop", "timeout": -1}})
	if e := (*APIError)(nil); errors.As(err, &e) && e.says("already running", "already stopped") {
		return nil
	}
	return err
}

// instance reads one instance and its version.
func (b *Broker) instance(ctx context.Context, name string) (instance, string, error) {
	var i instance
	etag, err := b.lxd.get(ctx, instancePath(name), nil, &i)
	return i, etag, err
}

func instancePath(name string) string { return "/1.0/instances/" + url.PathEscape(name) }

var fingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`)

// spec is the request for an instance of the machine.
func (b *Broker) spec(ctx context.Context, req provisioner.StartRequest) (newInstance, error) {
	spec := newInstance{
		Name:         instanceName(b.cfg.NamePrefix, req.Labels.Controller, req.Machine),
		Type:         cmp.Or(req.Constraints.VirtType, "container"),
		Architecture: lxdArch(req.Constraints.Arch),
		InstanceType: req.Constraints.InstanceType,
		Config:       labelConfig(req.Labels),
		Devices:      map[string]map[string]string{},
		Profiles:     withProfiles(b.cfg.Profiles, req.Profiles),
	}
	if spec.Type != "container" && spec.Type != "virtual-machine" {
		return spec, provisioner.Permanent(errors.NotValidf("constraint virt-type=%s: want container or virtual-machine:", spec.Type))
	}
	image := cmp.Or(req.Constraints.ImageID, firstImage(req.Images), b.cfg.Image)
	switch {
	case image == "":
		return spec, provisioner.Permanent(errors.NotValidf("no image: want one in the request, the image-id constraint or Config.Image:"))
	case fingerprint.MatchString(image):
		spec.Source = imageSource{Type: "image", Fingerprint: image}
	default:
		spec.Source = imageSource{Type: "image", Alias: image}
	}
	if b.cfg.ImageServer != "" {
		spec.Source.Server, spec.Source.Protocol = b.cfg.ImageServer, "simplestreams"
	}
	if n := req.Constraints.Cores; n != nil {
		spec.Config["limits.cpu"] = strconv.FormatUint(*n, 10)
	}
	if n := req.Constraints.Mem; n != nil {
		spec.Config["limits.memory"] = mib(*n)
	}
	data, err := b.cfg.UserData(req)
	if err != nil {
		return spec, provisioner.Permanent(errors.Annotate(err, "user data"))
	}
	if data != "" {
		key, err := b.userDataKey(ctx)
		if err != nil {
			return spec, err
		}
		spec.Config[key] = data
	}
	return spec, b.addRoot(ctx, req, spec)
}

func firstImage(images []provisioner.ImageMetadata) string {
	for _, i := range images {
		if i.ID != "" {
			return i.ID
		}
	}
	return ""
}

// addRoot overrides the profiles' root disk if another pool or size is asked
// for.
func (b *Broker) addRoot(ctx context.Context, req provisioner.StartRequest, spec newInstance) error {
	pool, size := req.Constraints.RootDiskSource, uint64(0)
	if req.Constraints.RootDisk != nil {
		size = *req.Constraints.RootDisk
	}
	if req.RootDisk != nil {
		pool, size = cmp.Or(req.RootDisk.Source, pool), cmp.Or(req.RootDisk.SizeM, size)
	}
	if pool == "" && size == 0 {
		return nil
	}
	if pool == "" {
		var err error
		if pool, err = b.rootPool(ctx, spec.Profiles); err != nil {
			return err
		}
	}
	root := map[string]string{"type": "disk", "path": "/", "pool": pool}
	if size > 0 {
		root["size"] = mib(size)
	}
	spec.Devices["root"] = root
	return nil
}

// rootPool is the pool of the root disk that the profiles give.
func (b *Broker) rootPool(ctx context.Context, profiles []string) (string, error) {
	pool := ""
	for _, name := range profiles {
		var p profile
		if _, err := b.lxd.get(ctx, profilePath(name), nil, &p); err != nil {
			return "", err
		}
		for _, d := range p.Devices {
			if d["type"] == "disk" && d["path"] == "/" {
				pool = cmp.Or(d["pool"], pool)
			}
		}
	}
	if pool == "" {
		return "", provisioner.ZoneIndependent(errors.NotFoundf("root disk in profiles %q", profiles))
	}
	return pool, nil
}

func mib(n uint64) string { return strconv.FormatUint(n, 10) + "MiB" }

// userDataKey is where this LXD wants cloud-init's user data.
func (b *Broker) userDataKey(ctx context.Context) (string, error) {
	var server struct {
		Extensions []string `json:"api_extensions"`
	}
	if _, err := b.lxd.get(ctx, "/1.0", nil, &server); err != nil {
		return "", err
	}
	for _, e := range server.Extensions {
		if e == "cloud_init" {
			return "cloud-init.user-data", nil
		}
	}
	return "user.user-data", nil
}

// cloudInit is the default of Config.UserData. What it reveals is secret, and
// can be read by everybody who can read the instance's configuration in LXD.
func cloudInit(req provisioner.StartRequest) (string, error) {
	if req.Config.Machine == "" {
		return "", nil // the host has told nothing to boot with
	}
	data, err := req.Config.CloudInit()
	return data.Reveal(), err
}
