package groups

import (
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// A Caller says who asks. The zero value may see nothing.
type Caller struct {
	// Controller may ask about any top-level machine.
	Controller bool

	// Machine is the machine whose agent asks: about itself and the
	// containers directly inside it. Empty: no machine's agent.
	Machine provisioner.MachineID
}

// may says whether the caller may ask about a machine.
func (c Caller) may(id provisioner.MachineID) bool {
	if c.Controller && !id.IsContainer() {
		return true
	}
	return c.Machine != "" && (id == c.Machine || id.Host() == c.Machine)
}

// An Answer is what a caller learns about one entity.
type Answer struct {
	Entity    string                   // as asked
	Machines  []provisioner.MachineID  // as DistributionGroup
	Instances []provisioner.InstanceID // as DistributionInstances
	Err       error                    // Unauthorized or NotFound; then there is no more
}

// Query answers each entity on its own, in the order given, one asked for
// twice twice (DG4). In order:
//
//   - an entity that is not a machine's id is Unauthorized: a unit's name, a
//     malformed id. Form alone decides: "mysql" is a machine's id by form
//   - a machine that the caller may not ask about is Unauthorized, whether it
//     exists or not
//   - a machine that does not exist is NotFound
func (t *Topology) Query(caller Caller, entities ...string) []Answer {
	answers := make([]Answer, len(entities))
	for i, entity := range entities {
		answers[i] = t.answer(caller, entity)
	}
	return answers
}

func (t *Topology) answer(caller Caller, entity string) Answer {
	id, err := provisioner.ParseMachineID(entity)
	if err != nil || !caller.may(id) {
		return Answer{Entity: entity, Err: errors.Unauthorizedf("distribution group of %q: unauthorized", entity)}
	}
	m, err := t.find(id)
	if err != nil {
		return Answer{Entity: entity, Err: err}
	}
	return Answer{Entity: entity, Machines: t.others(m), Instances: t.instances(m)}
}
