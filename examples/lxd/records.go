package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// A fleet is the file that says which machines there should be.
type fleet struct {
	Controller string                  `json:"controller"`
	Harvest    provisioner.HarvestMode `json:"harvest"`
	Profiles   map[string]profile      `json:"profiles"` // by name
	Machines   []machines              `json:"machines"`
}

// machines are some machines that are alike.
type machines struct {
	IDs         string         `json:"ids"`         // "7", or "0-29"
	Constraints string         `json:"constraints"` // "cores=1 mem=64M zones=m1,m2"
	Group       string         `json:"group"`       // those of one group are spread
	Profiles    []string       `json:"profiles"`    // of LXD's own, and of those defined above
	UserData    map[string]any `json:"user-data"`   // cloud-init
}

// A made is what is kept about a machine that has an instance, or was asked for one.
type made struct {
	Instance provisioner.InstanceID `json:"instance,omitempty"`
	Zone     provisioner.ZoneName   `json:"zone,omitempty"`
	Nonce    string                 `json:"nonce"`
	Profiles []string               `json:"profiles,omitempty"`
	Intent   *provisioner.Intent    `json:"intent,omitempty"` // the attempt under way
}

// kept is the file beside the fleet's.
type kept struct {
	Machines map[provisioner.MachineID]made                `json:"machines"`
	Spared   map[provisioner.InstanceID]provisioner.Spared `json:"spared,omitempty"` // left running on purpose
}

// records are the State: what the fleet file wants, and what has been made,
// which a file beside it keeps. A machine that has an instance and is no
// longer wanted is dead.
type records struct {
	name  string // of the file that keeps what has been made
	lock  *os.File
	fleet fleet
	want  map[provisioner.MachineID]machineSpec

	unclear bool // an earlier run may have made instances of machines that are not wanted any more

	mu       sync.Mutex
	kept     kept
	statuses map[provisioner.MachineID]provisioner.StatusUpdate        // not kept: a new run tries again
	words    map[provisioner.MachineID]provisioner.ProfileStatusUpdate // nor is this
	stepped  chan []provisioner.MachineID
}

// What the library finds in these records.
var (
	_ provisioner.State        = (*records)(nil)
	_ provisioner.StatusWriter = (*records)(nil)
	_ provisioner.IntentStore  = (*records)(nil)
	_ provisioner.SparedStore  = (*records)(nil)
	_ provisioner.ProfileState = (*records)(nil)
)

type machineSpec struct {
	constraints constraints.Value
	machines
}

// open reads the fleet and what has been made of it, and holds a lock, so that
// two runs never work on one fleet.
func open(name string) (*records, error) {
	r := &records{name: strings.TrimSuffix(name, ".json") + ".made.json"}
	if err := readJSON(name, &r.fleet); err != nil {
		return nil, err
	}
	if r.fleet.Controller == "" {
		return nil, errors.NotValidf("%s: controller %q: want a name that no other fleet on this LXD has:", name, r.fleet.Controller)
	}
	var err error
	if r.want, err = expand(r.fleet.Machines); err != nil {
		return nil, errors.Annotate(err, name)
	}
	if err := r.fleet.checkProfiles(); err != nil {
		return nil, errors.Annotate(err, name)
	}
	if r.lock, err = os.OpenFile(r.name+".lock", os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(r.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		r.lock.Close()
		return nil, errors.Annotatef(err, "%s is at work already: %s", filepath.Base(os.Args[0]), name)
	}
	if err := readJSON(r.name, &r.kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.lock.Close()
		return nil, err
	}
	if r.kept.Machines == nil {
		r.kept.Machines = map[provisioner.MachineID]made{}
	}
	if r.kept.Spared == nil {
		r.kept.Spared = map[provisioner.InstanceID]provisioner.Spared{}
	}
	for id, there := range r.kept.Machines {
		_, wanted := r.want[id]
		r.unclear = r.unclear || !wanted && there.Instance == ""
	}
	r.statuses = map[provisioner.MachineID]provisioner.StatusUpdate{}
	r.words = map[provisioner.MachineID]provisioner.ProfileStatusUpdate{}
	r.stepped = make(chan []provisioner.MachineID, 2*len(r.want)) // a machine has one step at a time
	return r, nil
}

// close gives the lock back.
func (r *records) close() { r.lock.Close() }

func readJSON(name string, v any) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return errors.Annotate(d.Decode(v), name)
}

// maxMachines bounds a fleet file, so that a slip ("0-3000000") is found out.
const maxMachines = 10_000

func expand(all []machines) (map[provisioner.MachineID]machineSpec, error) {
	specs := map[provisioner.MachineID]machineSpec{}
	for i, m := range all {
		first, last, isRange := strings.Cut(m.IDs, "-")
		from, err := strconv.ParseUint(first, 10, 31)
		to := from
		if isRange && err == nil {
			to, err = strconv.ParseUint(last, 10, 31)
		}
		if err != nil || to < from || to-from >= maxMachines {
			return nil, errors.NotValidf(`machines[%d].ids %q: want a number, or a range of up to %d like "0-29":`, i, m.IDs, maxMachines)
		}
		v, err := constraints.Parse(m.Constraints)
		if err != nil {
			return nil, errors.Annotatef(err, "machines[%d].constraints", i)
		}
		for n := from; n <= to; n++ {
			id := provisioner.MachineID(strconv.FormatUint(n, 10))
			if _, ok := specs[id]; ok {
				return nil, errors.NotValidf("machines[%d].ids %q: machine %s given twice:", i, m.IDs, id)
			}
			specs[id] = machineSpec{v, m}
		}
	}
	return specs, nil
}

// count tells how many machines that are wanted have an instance.
func (r *records) count() (running, wanted int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.want {
		if r.kept.Machines[id].Instance != "" {
			running++
		}
	}
	return running, len(r.want)
}

// keep puts an entry in the place of what was there, nil for none, and saves. If
// that fails, nothing has changed. It is called with mu held.
func keep[K comparable, V any](r *records, entries map[K]V, key K, entry *V) error {
	set := func(v V, there bool) {
		if entries[key] = v; !there {
			delete(entries, key)
		}
	}
	was, had := entries[key]
	if !had && entry == nil {
		return nil
	}
	set(*cmp.Or(entry, new(V)), entry != nil)
	err := r.save()
	if err != nil {
		set(was, had)
	}
	return err
}

// save replaces the file in one step, so that a crash leaves the old or the
// new one. It is called with mu held: the file must not lag behind an answer.
func (r *records) save() error {
	data, err := json.MarshalIndent(r.kept, "", "\t")
	if err != nil {
		return errors.Trace(err)
	}
	f, err := os.CreateTemp(filepath.Dir(r.name), ".made-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	_, err = f.Write(append(data, '\n'))
	for _, step := range []func() error{f.Sync, f.Close} {
		if e := step(); err == nil {
			err = e
		}
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), r.name)
}

// machine is one record, with mu held.
func (r *records) machine(id provisioner.MachineID) provisioner.MachineResult {
	_, wanted := r.want[id]
	there, has := r.kept.Machines[id]
	if !wanted && !has {
		return provisioner.MachineResult{ID: id, Err: errors.NotFoundf("machine %s", id)}
	}
	m := provisioner.Machine{ID: id, Life: provisioner.Alive, Instance: there.Instance, Zone: there.Zone, Status: provisioner.StatusPending}
	if !wanted {
		m.Life = provisioner.Dead
	}
	if s, ok := r.statuses[id]; ok {
		m.InstanceStatus = s.InstanceStatus
		if s.Status != "" {
			m.Status = s.Status
		}
	}
	return provisioner.MachineResult{ID: id, Machine: m}
}

// Fleet reads every record.
func (r *records) Fleet(ctx context.Context) ([]provisioner.MachineResult, error) {
	all := map[provisioner.MachineID]bool{}
	r.mu.Lock()
	for id := range r.want {
		all[id] = true
	}
	for id := range r.kept.Machines {
		all[id] = true
	}
	r.mu.Unlock()
	return r.Machines(ctx, slices.Collect(maps.Keys(all))...)
}

// Machines reads some records.
func (r *records) Machines(_ context.Context, ids ...provisioner.MachineID) ([]provisioner.MachineResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var results []provisioner.MachineResult
	for _, id := range ids {
		results = append(results, r.machine(id))
	}
	return results, nil
}

// StartInfo reads what starts need.
func (r *records) StartInfo(_ context.Context, ids ...provisioner.MachineID) ([]provisioner.StartInfoResult, error) {
	var results []provisioner.StartInfoResult
	for _, id := range ids {
		spec, ok := r.want[id]
		if !ok {
			results = append(results, provisioner.StartInfoResult{ID: id, Err: errors.NotFoundf("machine %s", id)})
			continue
		}
		results = append(results, provisioner.StartInfoResult{ID: id, Info: provisioner.StartInfo{
			Constraints: spec.constraints,
			Instance:    instancecfg.Info{ControllerID: r.fleet.Controller, UserData: instancecfg.Hide(spec.UserData)},
			Group:       r.group(spec.Group),
			Profiles:    r.defined(spec.Profiles, false),
		}})
	}
	return results, nil
}

func (r *records) group(name string) provisioner.Group {
	if name == "" {
		return provisioner.Group{}
	}
	g := provisioner.Group{Key: name}
	for id, spec := range r.want {
		if spec.Group == name {
			g.Members = append(g.Members, id)
		}
	}
	return g
}

// SetInstance writes down what a machine was provisioned with, once.
func (r *records) SetInstance(_ context.Context, rec provisioner.InstanceRecord) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, wanted := r.want[rec.Machine]; !wanted {
		return errors.NotFoundf("machine %s", rec.Machine)
	}
	switch has := r.kept.Machines[rec.Machine].Instance; has {
	case "":
	case rec.Instance:
		return nil
	default:
		return errors.AlreadyExistsf("instance %s of machine %s", has, rec.Machine)
	}
	// Its attempt has done its work, and goes.
	is := made{Instance: rec.Instance, Zone: rec.Zone, Nonce: rec.Nonce, Profiles: naming.Filter(rec.Profiles)}
	if err := keep(r, r.kept.Machines, rec.Machine, &is); err != nil {
		return err
	}
	r.tellStep(rec.Machine)
	return nil
}

// Remove takes the record of a machine away that is no longer wanted.
func (r *records) Remove(_ context.Context, req provisioner.Removal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, wanted := r.want[req.Machine]; wanted {
		return fmt.Errorf("machine %s is wanted", req.Machine)
	}
	return keep(r, r.kept.Machines, req.Machine, nil)
}

// WriteStatus remembers how far a machine is, for as long as this run lasts.
func (r *records) WriteStatus(_ context.Context, u provisioner.StatusUpdate) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.Status == "" {
		u.Status = r.statuses[u.Machine].Status
	}
	r.statuses[u.Machine] = u
	return nil
}
