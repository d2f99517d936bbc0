package provisioner

import (
	"maps"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/constraints"
)

// cooldowns remember which zones lack room for which machines (AZ11): pure,
// the time is given in. Attempts are known by numbers that grow, so that an
// answer can be told from a later one at the same instant.
type cooldowns struct {
	first  time.Duration // 0: there are none
	shapes map[shape]*cooling
}

// longestCooldown is where the doubling ends.
const longestCooldown = 30 * time.Minute

// A shape is what room is needed for: what is out for one machine is out for
// all of its shape.
type shape struct {
	arch, instanceType, virtType string
	cores, mem                   uint64
}

func shapeOf(c constraints.Value) shape {
	s := shape{arch: c.Arch, instanceType: c.InstanceType, virtType: c.VirtType}
	if c.Cores != nil {
		s.cores = *c.Cores
	}
	if c.Mem != nil {
		s.mem = *c.Mem
	}
	return s
}

// String gives the shape as constraints.
func (s shape) String() string {
	v := constraints.Value{Arch: s.arch, InstanceType: s.instanceType, VirtType: s.virtType}
	if s.cores > 0 {
		v.Cores = &s.cores
	}
	if s.mem > 0 {
		v.Mem = &s.mem
	}
	return v.String()
}

func newCooldowns(p Policy) cooldowns {
	return cooldowns{orDefault(p.ZoneCooldown, 3*time.Minute), map[shape]*cooling{}}
}

// of finds the cooldowns of a shape; nil if it lacks room nowhere.
func (c *cooldowns) of(s shape) *cooling { return c.shapes[s] }

// failed: an attempt found no room. It counts if it says anything new: it was
// sent after the last that counted and after the last success, and the zone
// isn't cooling. last is the newest attempt that was sent.
func (c *cooldowns) failed(s shape, z int32, attempt, last uint64, now time.Time) (until time.Time, began bool) {
	if c.first <= 0 || z == noZone {
		return until, false
	}
	k := c.shapes[s]
	if k == nil {
		c.forget(now)
		k = &cooling{}
		c.shapes[s] = k
	}
	for int(z) >= len(k.zones) {
		k.zones = append(k.zones, zoneCooldown{})
	}
	x := &k.zones[z]
	if attempt <= x.mark || x.wait > 0 && now.Before(x.until) {
		return until, false
	}
	wait := min(max(2*x.wait, c.first), max(longestCooldown, c.first))
	*x = zoneCooldown{wait: wait, until: now.Add(wait), mark: last}
	return x.until, true
}

// forget drops the shapes that nothing was heard of for long.
func (c *cooldowns) forget(now time.Time) {
	maps.DeleteFunc(c.shapes, func(_ shape, k *cooling) bool {
		return !slices.ContainsFunc(k.zones, func(x zoneCooldown) bool {
			return x.probe != 0 || now.Sub(x.until) < 2*longestCooldown
		})
	})
}

// cooling is one shape's cooldowns. All methods work on nil.
type cooling struct {
	zones []zoneCooldown // by interned zone; shorter than the ledger's
}

// A zoneCooldown is warm (wait is 0), cooling (until then nobody tries) or due
// (one machine probes, the others wait for it).
type zoneCooldown struct {
	wait  time.Duration
	until time.Time // or since when it is warm
	mark  uint64    // attempts up to this one were sent before this state began
	probe int32     // the slot that probes, counted from 1; 0: none
}

// closed says whether the zone is passed over by the machine.
func (k *cooling) closed(z, slot int32, now time.Time) bool {
	if k == nil || int(z) >= len(k.zones) {
		return false
	}
	c := &k.zones[z]
	return c.wait > 0 && (now.Before(c.until) || c.probe != 0 && c.probe != slot+1)
}

// due is when the zone is to be probed; false if it isn't cooling, or a
// machine is at it.
func (k *cooling) due(z int32) (time.Time, bool) {
	if k == nil || int(z) >= len(k.zones) || k.zones[z].wait == 0 || k.zones[z].probe != 0 {
		return time.Time{}, false
	}
	return k.zones[z].until, true
}

// succeeded: there is room. It returns false if that is no news.
func (k *cooling) succeeded(z int32, last uint64, now time.Time) bool {
	if k == nil || z == noZone || int(z) >= len(k.zones) || k.zones[z].wait == 0 {
		return false
	}
	k.zones[z] = zoneCooldown{until: now, mark: last}
	return true
}

// claim makes the machine the one that probes the zone, if that is due, and
// no other zone; noZone for none. It says whether it gave a zone up.
func (k *cooling) claim(z, slot int32) (gaveUp bool) {
	if k == nil {
		return false
	}
	for i := range k.zones {
		switch c := &k.zones[i]; {
		case int32(i) == z && c.wait > 0:
			c.probe = slot + 1
		case c.probe == slot+1:
			c.probe = 0
			gaveUp = true
		}
	}
	return gaveUp
}

// lacksCapacity says whether an error is about room in the zone, and not about
// the request or how often it was made.
func lacksCapacity(err error) bool {
	return errors.Is(err, ErrOutOfCapacity) && OutcomeOf(err).Kind == OutcomeZoneFailed
}
