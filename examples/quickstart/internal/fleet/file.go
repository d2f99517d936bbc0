package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/jsontree"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// A FileError is what is wrong with a fleet file, and where.
type FileError struct {
	Line    int
	Path    string // of the value, such as machines[3].life
	Problem string
}

// Error gives line, path and problem.
func (e *FileError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Problem)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Path, e.Problem)
}

// Decode reads the quickstart's own format, and is strict: an unknown key, a
// value that has no meaning, or an id given twice is a *FileError. The format:
//
//	{
//	  "title": "what the account says above everything",
//	  "harvest": "destroyed",            or none, unknown, all: which instances may be stopped
//	  "zones": [
//	    {"name": "north"},
//	    {"name": "south", "available": false},
//	    {"name": "west", "capacity": 3}  instances, those that run included
//	  ],
//	  "machines": [                      required; each needs an id, the rest is optional
//	    {"id": "0", "instance": "i-0", "zone": "north", "group": "web"},
//	    {"id": "1..9", "group": "web"},  nine machines; "*" in instance stands for the id
//	    {"id": "10", "zones": ["north", "west"]},                  it may only go there
//	    {"id": "11", "life": "dead", "instance": "i-11", "keep": true},
//	    {"id": "12", "status": "error", "instance-status": "provisioning error", "note": "no quota"},
//	    {"id": "0/lxd/0"}                a container on machine 0
//	  ],
//	  "instances": [{"id": "i-stray", "zone": "north"}],           that no machine claims
//	  "trouble": ["start zone=west count=2: error \"the API hiccups\""]
//	}
//
// life is alive, dying or dead, alive if not given. status is the host's word
// for a machine, "pending" if it isn't given and the machine has no instance,
// else "started". Each text of trouble is a fault as provisionertest.ParseFault
// reads it.
func Decode(root jsontree.Node) (Fleet, error) {
	d := decoder{seen: map[provisioner.MachineID]int{}, claimed: map[provisioner.InstanceID]provisioner.MachineID{}}
	if err := d.file(root); err != nil {
		return Fleet{}, err
	}
	d.fleet.Sort()
	return d.fleet, nil
}

type decoder struct {
	fleet   Fleet
	seen    map[provisioner.MachineID]int // the line of each
	claimed map[provisioner.InstanceID]provisioner.MachineID
}

// A place is a value of the file, and its path.
type place struct {
	jsontree.Node
	path string
}

func (p place) wrong(format string, args ...any) error {
	return &FileError{p.Line, p.path, fmt.Sprintf(format, args...)}
}

func (d *decoder) file(root jsontree.Node) error {
	file := place{root, ""}
	if _, ok := root.Get("machines"); root.Kind == jsontree.Object && !ok {
		return file.wrong("no machines: want a list \"machines\"")
	}
	// Machines and trouble speak of zones, so they come in this order, whatever
	// that of the file.
	return object(file,
		field{"title", func(p place) error { return text(p, &d.fleet.Title) }},
		field{"harvest", d.harvest},
		field{"zones", func(p place) error { return each(p, d.zone) }},
		field{"machines", d.machines},
		field{"instances", func(p place) error { return each(p, d.instance) }},
		field{"trouble", func(p place) error { return each(p, d.trouble) }},
	)
}

func (d *decoder) harvest(p place) error {
	var name string
	if err := text(p, &name); err != nil {
		return err
	}
	mode, err := provisioner.ParseHarvestMode(name)
	if err != nil {
		return p.wrong("%q: want none, unknown, destroyed or all", name)
	}
	d.fleet.Harvest = mode
	return nil
}

func (d *decoder) zone(p place) error {
	zone := provisioner.Zone{Available: true}
	capacity := -1
	err := object(p,
		field{"name", func(p place) error { return text(p, &zone.Name) }},
		field{"available", func(p place) error { return boolean(p, &zone.Available) }},
		field{"capacity", func(p place) error { return count(p, &capacity) }},
	)
	switch {
	case err != nil:
		return err
	case zone.Name == "":
		return p.wrong("a zone without a name")
	case d.hasZone(zone.Name):
		return p.wrong("zone %q is there twice", zone.Name)
	}
	d.fleet.Zones = append(d.fleet.Zones, zone)
	if capacity >= 0 {
		if d.fleet.Capacity == nil {
			d.fleet.Capacity = map[provisioner.ZoneName]int{}
		}
		d.fleet.Capacity[zone.Name] = capacity
	}
	return nil
}

func (d *decoder) hasZone(name provisioner.ZoneName) bool {
	return slices.ContainsFunc(d.fleet.Zones, func(z provisioner.Zone) bool { return z.Name == name })
}

// knownZone reads the name of one of the file's zones.
func (d *decoder) knownZone(p place, to *provisioner.ZoneName) error {
	if err := text(p, to); err != nil {
		return err
	}
	if !d.hasZone(*to) {
		return p.wrong("zone %q: want one of the zones above: %s", *to, d.zoneNames())
	}
	return nil
}

func (d *decoder) zoneNames() string {
	if len(d.fleet.Zones) == 0 {
		return "none"
	}
	var names []string
	for _, z := range d.fleet.Zones {
		names = append(names, string(z.Name))
	}
	return strings.Join(names, ", ")
}

func (d *decoder) machines(p place) error {
	if err := each(p, d.machine); err != nil {
		return err
	}
	for i := range d.fleet.Machines {
		id := d.fleet.Machines[i].Record.ID
		if _, ok := d.seen[id.Host()]; !ok && id.IsContainer() {
			return &FileError{d.seen[id], p.path, fmt.Sprintf("container %s: its host %s is not in the file", id, id.Host())}
		}
	}
	return nil
}

func (d *decoder) machine(p place) error {
	var ids, group string
	m := Machine{Record: provisioner.Machine{Life: provisioner.Alive}}
	r := &m.Record
	err := object(p,
		field{"id", func(p place) error { return text(p, &ids) }},
		field{"life", func(p place) error {
			return oneOf(p, &r.Life, provisioner.Alive, provisioner.Dying, provisioner.Dead)
		}},
		field{"instance", func(p place) error { return text(p, &r.Instance) }},
		field{"zone", func(p place) error { return d.knownZone(p, &r.Zone) }},
		field{"keep", func(p place) error { return boolean(p, &r.Keep) }},
		field{"status", func(p place) error { return text(p, &r.Status) }},
		field{"instance-status", func(p place) error { return text(p, &r.InstanceStatus) }},
		field{"note", func(p place) error { return text(p, &m.Note) }},
		field{"group", func(p place) error { return text(p, &group) }},
		field{"zones", func(p place) error {
			return each(p, func(p place) error {
				// A zone that isn't there is allowed: to see what comes of it.
				var zone provisioner.ZoneName
				err := text(p, &zone)
				m.Zones = append(m.Zones, zone)
				return err
			})
		}},
	)
	if err != nil {
		return err
	}
	if group != "" {
		m.Groups = []string{group}
	}
	switch {
	case r.Status != "":
	case r.Instance == "":
		r.Status = provisioner.StatusPending
	default:
		r.Status = provisioner.StatusStarted
	}
	return d.expand(p, ids, m)
}

// maxMachines bounds what a short file can stand for.
const maxMachines = 100_000

// expand adds the machines that one entry stands for.
func (d *decoder) expand(p place, ids string, m Machine) error {
	first, last, ranged := strings.Cut(ids, "..")
	if !ranged {
		return d.add(p, ids, m)
	}
	from, err1 := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil || from < 0 || to < from {
		return p.wrong("id %q: want two numbers, the smaller one first: \"10..19\"", ids)
	}
	if to-from >= maxMachines-len(d.fleet.Machines) {
		return p.wrong("id %q: more than %d machines", ids, maxMachines)
	}
	for n := from; n <= to; n++ {
		if err := d.add(p, strconv.Itoa(n), m); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) add(p place, name string, m Machine) error {
	id, err := provisioner.ParseMachineID(name)
	if err != nil {
		return p.wrong("id %q: want a name of letters, digits, '.', '_' and '-', or host/type/number for a container", name)
	}
	if line, ok := d.seen[id]; ok {
		return p.wrong("machine %s is there twice, first on line %d", id, line)
	}
	m.Record.ID = id
	m.Record.Instance = provisioner.InstanceID(strings.ReplaceAll(string(m.Record.Instance), "*", name))
	switch instance := m.Record.Instance; {
	case m.Record.Zone != "" && instance == "":
		return p.wrong("machine %s has a zone and no instance: want both; where it may go is \"zones\"", id)
	case m.Record.Zone != "" && id.IsContainer():
		return p.wrong("container %s has a zone: it is in its host's", id)
	case instance != "":
		if other, ok := d.claimed[instance]; ok {
			return p.wrong("machine %s: instance %s is machine %s's already", id, instance, other)
		}
		d.claimed[instance] = id
	}
	d.seen[id] = p.Line
	d.fleet.Machines = append(d.fleet.Machines, m)
	return nil
}

func (d *decoder) instance(p place) error {
	var i provisioner.Instance
	err := object(p,
		field{"id", func(p place) error { return text(p, &i.ID) }},
		field{"zone", func(p place) error { return d.knownZone(p, &i.Zone) }},
	)
	switch owner, claimed := d.claimed[i.ID]; {
	case err != nil:
		return err
	case i.ID == "":
		return p.wrong("an instance without an id")
	case claimed && owner == "":
		return p.wrong("instance %s is there twice", i.ID)
	case claimed:
		return p.wrong("instance %s is machine %s's", i.ID, owner)
	}
	d.claimed[i.ID] = ""
	d.fleet.Instances = append(d.fleet.Instances, i)
	return nil
}

func (d *decoder) trouble(p place) error {
	var line string
	if err := text(p, &line); err != nil {
		return err
	}
	fault, err := provisionertest.ParseFault(line)
	if err != nil {
		return p.wrong("%v", err)
	}
	if _, ok := d.seen[fault.Machine]; fault.Machine != "" && !ok {
		return p.wrong("machine %s is not in the file", fault.Machine)
	}
	if fault.Zone != "" && !d.hasZone(fault.Zone) {
		return p.wrong("zone %q: want one of the zones above: %s", fault.Zone, d.zoneNames())
	}
	d.fleet.Trouble = append(d.fleet.Trouble, fault)
	return nil
}

// A field is one key that an object may have.
type field struct {
	name string
	read func(place) error
}

// object reads an object that has only these keys, each at most once, in the
// order of the fields.
func object(p place, fields ...field) error {
	if p.Kind != jsontree.Object {
		return p.wrong("%s: want an object", p.Node)
	}
	seen := map[string]bool{}
	for _, m := range p.Members {
		at := p.member(m)
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == m.Key }) {
			return at.wrong("unknown key: want %s", names(fields))
		}
		if seen[m.Key] {
			return at.wrong("the key is there twice")
		}
		seen[m.Key] = true
	}
	for _, f := range fields {
		for _, m := range p.Members {
			if m.Key != f.name {
				continue
			}
			if err := f.read(p.member(m)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p place) member(m jsontree.Member) place {
	path := m.Key
	if p.path != "" {
		path = p.path + "." + m.Key
	}
	return place{m.Value, path}
}

func names(fields []field) string {
	var all []string
	for _, f := range fields {
		all = append(all, f.name)
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// each reads every item of a list.
func each(p place, read func(place) error) error {
	if p.Kind != jsontree.List {
		return p.wrong("%s: want a list", p.Node)
	}
	for i, item := range p.Items {
		if err := read(place{item, fmt.Sprintf("%s[%d]", p.path, i)}); err != nil {
			return err
		}
	}
	return nil
}

// text reads a text that isn't empty.
func text[S ~string](p place, to *S) error {
	if p.Kind != jsontree.Text || p.Text == "" {
		return p.wrong("%s: want a text that isn't empty", p.Node)
	}
	*to = S(p.Text)
	return nil
}

func oneOf[S ~string](p place, to *S, values ...S) error {
	if p.Kind != jsontree.Text || !slices.Contains(values, S(p.Text)) {
		var all []string
		for _, v := range values {
			all = append(all, string(v))
		}
		return p.wrong("%s: want %s", p.Node, strings.Join(all, ", "))
	}
	*to = S(p.Text)
	return nil
}

func boolean(p place, to *bool) error {
	if p.Kind != jsontree.Bool {
		return p.wrong("%s: want true or false", p.Node)
	}
	*to = p.Text == "true"
	return nil
}

func count(p place, to *int) error {
	n, err := strconv.Atoi(p.Text)
	if p.Kind != jsontree.Number || err != nil || n < 0 {
		return p.wrong("%s: want a number from 0 on", p.Node)
	}
	*to = n
	return nil
}
