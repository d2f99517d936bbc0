// Package jujustatus reads what `juju status --format=json` prints, of any
// version and cloud, as far as provisioning is concerned.
//
// It is lenient where the strict format of package fleet isn't: keys it
// doesn't know are normal, and what is odd or missing spoils only itself, with
// a warning that says so. When in doubt a machine is left alone.
package jujustatus

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/fleet"
	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/jsontree"
)

// Is says whether a JSON value looks like what juju prints: an object with a
// model, or whose machines are an object.
func Is(root jsontree.Node) bool {
	if root.Kind != jsontree.Object {
		return false
	}
	machines, ok := root.Get("machines")
	if ok && machines.Kind == jsontree.List {
		return false
	}
	_, model := root.Get("model")
	_, applications := root.Get("applications")
	return ok && machines.Kind == jsontree.Object || model || applications
}

// Decode reads a fleet. It has no errors: what can't be read is in the
// warnings of the fleet. In order:
//
//   - a machine without an instance id, or with the word "pending" for one,
//     isn't provisioned
//   - a zone is the one in the hardware; zones in constraints are wishes
//   - the zones of the cloud are guessed from both
//   - machines provisioned by hand are kept: they aren't ours to start or stop
//   - groups are the machines of the principal units of each application, and
//     all controllers
func Decode(root jsontree.Node) fleet.Fleet {
	r := reader{places: map[provisioner.MachineID]int{}, zones: map[string]bool{}}
	r.status(root)
	r.fleet.Sort()
	return r.fleet
}

type reader struct {
	fleet       fleet.Fleet
	places      map[provisioner.MachineID]int // in fleet.Machines
	zones       map[string]bool               // seen anywhere
	controllers []provisioner.MachineID
}

func (r *reader) warn(format string, args ...any) {
	r.fleet.Warnings = append(r.fleet.Warnings, fmt.Sprintf(format, args...))
}

// object gives an object's members. Null and {"status-error": …} stand for
// what juju could not tell, anything else is not what was expected; both are
// said, and what is an object all the same is gone through.
func (r *reader) object(what string, n jsontree.Node) (members []jsontree.Member, ok bool) {
	why := problem(n)
	if why != "" {
		r.warn("%s: %s", what, why)
	}
	return slices.DeleteFunc(slices.Clone(n.Members), func(m jsontree.Member) bool { return m.Key == statusError }), why == ""
}

const statusError = "status-error"

// problem is why a node tells nothing, or nothing certain.
func problem(n jsontree.Node) string {
	switch cause, failed := n.Get(statusError); {
	case failed && cause.Kind == jsontree.Text:
		return "juju could not tell: " + cause.Text
	case failed:
		return "juju could not tell: " + cause.String()
	case n.Kind == jsontree.Null:
		return "juju gave nothing (null)"
	case n.Kind != jsontree.Object:
		return fmt.Sprintf("%s, on line %d: want an object", n, n.Line)
	}
	return ""
}

func (r *reader) status(root jsontree.Node) {
	model, kind := r.model(root)
	if kind == "caas" {
		r.fleet.Title = "kubernetes model " + model
		r.warn("the model is a kubernetes one (caas): it has no machines, so there is nothing to provision")
		return
	}
	r.fleet.Title = "model " + model
	machines, ok := root.Get("machines")
	if !ok {
		r.warn("machines: there are none in the file")
	} else {
		r.machines("machines", machines, "")
	}
	if applications, ok := root.Get("applications"); ok {
		r.applications(applications)
	}
	r.controllerGroup()
	r.guessZones()
}

func (r *reader) model(root jsontree.Node) (name, kind string) {
	name = "without a name"
	model, ok := root.Get("model")
	switch {
	case !ok:
		return name, ""
	case model.Kind == jsontree.Text: // as juju machines prints it
		return model.Text, ""
	}
	r.object("model", model)
	if n, ok := model.Get("name"); ok && n.Kind == jsontree.Text {
		name = n.Text
	}
	if t, ok := model.Get("type"); ok && t.Kind == jsontree.Text {
		kind = t.Text
	}
	return name, kind
}

// machines reads a level of machines: those of the model, or the containers
// inside one.
func (r *reader) machines(what string, n jsontree.Node, host provisioner.MachineID) {
	members, _ := r.object(what, n)
	for _, m := range members {
		id, err := provisioner.ParseMachineID(m.Key)
		switch {
		case err != nil:
			r.warn("%s: %q on line %d is no machine id: passed over, with all in it", what, m.Key, m.Line)
			continue
		case r.has(id):
			r.warn("machine %s is there twice: the one on line %d is passed over, with all in it", id, m.Line)
			continue
		case host != "" && id.Host() != host:
			r.warn("machine %s is listed among the containers of %s, and is not one by its id", id, host)
		}
		r.machine(id, m.Value)
		if containers, ok := m.Value.Get("containers"); ok {
			r.machines(fmt.Sprintf("containers of machine %s", id), containers, id)
		}
	}
}

func (r *reader) has(id provisioner.MachineID) bool {
	_, ok := r.places[id]
	return ok
}

// A facts reads the keys of one machine; what is odd about one spoils that one.
type facts struct {
	*reader
	id   provisioner.MachineID
	node jsontree.Node
}

func (r *reader) machine(id provisioner.MachineID, n jsontree.Node) {
	f := facts{r, id, n}
	m := fleet.Machine{Record: provisioner.Machine{ID: id}}
	if why := problem(n); why != "" {
		r.warn("machine %s: %s", id, why)
		m.Err = errors.New(why)
	} else {
		f.read(&m)
	}
	if m.Err != nil {
		m = fleet.Machine{Record: provisioner.Machine{ID: id}, Err: m.Err}
	}
	if _, ok := n.Get("controller-member-status"); ok {
		r.controllers = append(r.controllers, id)
	}
	r.places[id] = len(r.fleet.Machines)
	r.fleet.Machines = append(r.fleet.Machines, m)
}

func (f facts) read(m *fleet.Machine) {
	rec := &m.Record
	rec.Life = provisioner.Alive
	if !f.instance(rec) {
		rec.Unread |= provisioner.FieldInstance
	}
	f.jujuStatus(m)
	f.machineStatus(m)
	f.hardware(rec)
	f.constraints(m)
}

// instance is false if the instance id could not be read.
func (f facts) instance(rec *provisioner.Machine) bool {
	id, ok := f.text("instance-id")
	if id != "pending" {
		rec.Instance = provisioner.InstanceID(id)
	}
	if ByHand(rec.Instance) {
		rec.Keep = true
	}
	return ok
}

// ByHand says whether an instance is a machine that somebody added by hand.
func ByHand(id provisioner.InstanceID) bool { return strings.HasPrefix(string(id), "manual:") }

// text reads a key that holds text; absent and null are empty. It is not ok if
// it holds anything else.
func (f facts) text(key string) (string, bool) {
	n, there := f.node.Get(key)
	switch {
	case !there, n.Kind == jsontree.Null:
		return "", true
	case n.Kind == jsontree.Text:
		return n.Text, true
	}
	f.warn("machine %s: %s is %s: want text", f.id, key, n)
	return "", false
}

// inner reads a key that holds an object. absent is fine; what can't be read
// is said, and is not ok.
func (f facts) inner(key string) (inner facts, ok bool) {
	n, there := f.node.Get(key)
	if !there {
		return facts{}, true
	}
	if why := problem(n); why != "" {
		f.warn("machine %s: %s: %s", f.id, key, why)
		return facts{}, false
	}
	return facts{f.reader, f.id, n}, true
}

// jujuStatus reads the status of the machine, and its life. A life that can't
// be read makes the record of a machine unreadable, unless it runs: then
// whatever its life is, leaving it alone is no harm.
func (f facts) jujuStatus(m *fleet.Machine) {
	status, ok := f.inner("juju-status")
	life, readable := "", ok
	if ok {
		life, readable = status.text("life")
	}
	if life != "" {
		m.Record.Life = provisioner.Life(life)
	}
	running := m.Record.Instance != ""
	switch m.Record.Life {
	case provisioner.Alive, provisioner.Dying, provisioner.Dead:
	default:
		f.warn("machine %s: life is %q: want dying, dead, or none for alive", f.id, life)
		m.Err = fmt.Errorf("its life is %q: want dying, dead, or none for alive", life)
	}
	if !readable && !running {
		m.Err = errors.New("whether it is alive could not be read")
	}
	current, known := "", ok
	if ok {
		current, known = status.text("current")
	}
	if !known {
		m.Record.Unread |= provisioner.FieldStatus
	}
	m.Record.Status = provisioner.Status(current)
	if note, ok := status.quietText("message"); ok {
		m.Note = note
	}
}

func (f facts) machineStatus(m *fleet.Machine) {
	status, ok := f.inner("machine-status")
	current := ""
	if ok {
		current, ok = status.text("current")
	}
	if !ok {
		m.Record.Unread |= provisioner.FieldInstanceStatus
	}
	m.Record.InstanceStatus = provisioner.InstanceStatus(current)
	if note, ok := status.quietText("message"); ok {
		m.Note = note
	}
}

// quietText is a text that nothing depends on.
func (f facts) quietText(key string) (string, bool) {
	n, _ := f.node.Get(key)
	return n.Text, n.Kind == jsontree.Text && n.Text != ""
}

func (f facts) hardware(rec *provisioner.Machine) {
	text, _ := f.text("hardware")
	values, closed := pairs(text)
	if !closed {
		f.warn("machine %s: a quote in its hardware does not end: %s", f.id, text)
	}
	zone := values["availability-zone"]
	f.sawZone(zone)
	if rec.Instance != "" {
		rec.Zone = provisioner.ZoneName(zone)
	}
}

// constraints that can't be read make it impossible to say where the machine
// may go, so it isn't started.
func (f facts) constraints(m *fleet.Machine) {
	text, ok := f.text("constraints")
	if !ok {
		m.Needs = errors.New("its constraints could not be read")
	}
	values, closed := pairs(text)
	if !closed {
		f.warn("machine %s: a quote in its constraints does not end: %s", f.id, text)
		m.Needs = errors.New("its constraints could not be read")
	}
	for _, zone := range list(values["zones"]) {
		f.sawZone(zone)
		m.Zones = append(m.Zones, provisioner.ZoneName(zone))
	}
}

func (r *reader) sawZone(zone string) {
	if zone != "" {
		r.zones[zone] = true
	}
}

// applications reads the groups out of the principal units.
func (r *reader) applications(n jsontree.Node) {
	var homeless []string
	members, _ := r.object("applications", n)
	for _, app := range members {
		if _, ok := r.object("application "+app.Key, app.Value); !ok {
			continue
		}
		units, ok := app.Value.Get("units")
		if !ok || subordinate(app.Value) {
			continue
		}
		list, _ := r.object("units of "+app.Key, units)
		for _, unit := range list {
			homeless = append(homeless, r.unit(app.Key, unit)...)
		}
	}
	if len(homeless) > 0 {
		r.warn("units without a machine yet count in no group: %s", some(homeless))
	}
}

// subordinate units live with a principal one; they never make a group.
func subordinate(app jsontree.Node) bool {
	to, _ := app.Get("subordinate-to")
	return len(to.Items) > 0 || to.Kind == jsontree.Text && to.Text != ""
}

// unit puts a unit's machine into its application's group; the unit is
// returned if it has none.
func (r *reader) unit(app string, unit jsontree.Member) (homeless []string) {
	if _, ok := r.object("unit "+unit.Key, unit.Value); !ok {
		return nil
	}
	machine, _ := unit.Value.Get("machine")
	switch {
	case machine.Kind == jsontree.Null, machine.Kind == jsontree.Text && machine.Text == "":
		return []string{unit.Key}
	case machine.Kind != jsontree.Text:
		r.warn("unit %s: machine is %s: want text", unit.Key, machine)
		return nil
	}
	place, ok := r.places[provisioner.MachineID(machine.Text)]
	if !ok {
		r.warn("unit %s is on machine %s, which is not in the file", unit.Key, machine.Text)
		return nil
	}
	m := &r.fleet.Machines[place]
	m.Groups = append(m.Groups, app)
	return nil
}

// controllerGroup: controllers are kept apart from each other, and from
// nothing else.
func (r *reader) controllerGroup() {
	for _, id := range r.controllers {
		r.fleet.Machines[r.places[id]].Groups = []string{"controllers"}
	}
}

// guessZones: the file does not list the zones of the cloud.
func (r *reader) guessZones() {
	for zone := range r.zones {
		r.fleet.Zones = append(r.fleet.Zones, provisioner.Zone{Name: provisioner.ZoneName(zone), Available: true})
	}
	switch {
	case len(r.fleet.Machines) == 0:
	case len(r.zones) == 0:
		r.warn("no zone is named anywhere in the file: machines are started without one")
	default:
		r.warn("the list of zones is a guess: those named in the hardware and constraints of machines, all taken to be available")
	}
}

// some joins the first few.
func some(all []string) string {
	const few = 5
	text := strings.Join(all[:min(few, len(all))], ", ")
	if len(all) > few {
		text += fmt.Sprintf(" and %d more", len(all)-few)
	}
	return text
}
