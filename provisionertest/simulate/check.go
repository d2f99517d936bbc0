package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed81ba69f2/provisioner"
)

// A violation is a rule that was broken.
type violation struct {
	rule, text string
	at         string
}

func (v *violation) String() string { return fmt.Sprintf("%s: %s: %s", v.at, v.rule, v.text) }

// fail notes the first violation; the run ends with it.
func (s *sim) fail(rule, format string, args ...any) {
	if s.bad == nil {
		s.bad = &violation{rule, fmt.Sprintf(format, args...), s.now.String()}
		s.logf("VIOLATION %s: %s", rule, s.bad.text)
	}
}

// A usage is how many places are taken, and how many may be.
type usage struct {
	starts, stops, removals int
	host                    map[provisioner.MachineID]int
}

// checkBegin looks at an operation that the engine gives out.
func (s *sim) checkBegin(j *job) {
	t := j.task
	s.logf("begin %s %s %s%s", j.Kind, j.id, j.Zone, j.Instance)
	if j.id != "" && j.Kind != "writing a status" {
		for _, other := range t.jobs {
			if other.id == j.id && other.Kind != "writing a status" {
				s.fail("LD6", "%s machine %s begins while %s is under way", j.Kind, j.id, other.Kind)
			}
		}
	}
	if _, known := t.Unit(j.id); !known && j.id != "" && j.Kind != "writing a status" {
		s.fail("LD3", "%s machine %s begins, which is forgotten", j.Kind, j.id)
	}
	switch j.Kind {
	case "starting":
		if u, _ := t.Unit(j.id); u.Zone != j.Zone {
			s.fail("AZ7", "machine %s starts in %q and is counted in %q", j.id, j.Zone, u.Zone)
		}
		if t.going[j.id] { // since before this turn
			s.fail("ST13", "machine %s starts and does not want an instance", j.id)
		}
	case "stopping":
		s.checkStop(t, j)
	case "writing a status":
		if t.quiet && j.Error && !t.failed[j.id] {
			s.fail("ST14", "shutdown shows a failure of machine %s", j.id)
		}
	}
	if t.quiet && (j.Kind == "starting" || j.Kind == "removing" || j.Kind == "upkeep" || j.Kind == "stopping" && !j.Undo) {
		s.fail("ST14", "%s machine %s begins during shutdown", j.Kind, j.id)
	}
}

// checkStop looks at a stop that the engine gives out.
func (s *sim) checkStop(t *task, j *job) {
	i := s.world.byID[provisioner.InstanceID(j.Instance)]
	if s.set.vetoes && !j.Undo && !t.may[i.id] {
		s.fail("HV2", "instance %s is stopped, and the host has not allowed it", i.id)
	}
	delete(t.may, i.id)
	switch {
	case j.Undo:
	case t.epoch != s.world.epoch: // it is not done without the lease
	case !j.Reap:
		if !t.mode.Destroyed() && !t.before.Destroyed() { // it may change later in the same turn
			s.fail("HV2", "instance %s of machine %s is stopped in mode %s", j.Instance, j.id, t.mode)
		}
	default:
		s.checkReap(t, i)
	}
}

// checkReap looks at an instance that is to be stopped because no machine has it.
func (s *sim) checkReap(t *task, i *instance) {
	if i.stranger && s.set.labels {
		s.fail("HV10", "instance %s is stopped, which carries the labels %+v", i.id, i.labels)
	}
	_, remembered := s.world.spared[i.id]
	u, known := t.Unit(i.machine)
	spare := s.set.labels && known && u.Instance != "" && u.Instance != string(i.id)
	switch {
	case !spare && !t.mode.Unknown() && !t.before.Unknown():
		s.fail("HV2", "instance %s of machine %s is stopped in mode %s", i.id, i.machine, t.mode)
	case i.spared == t && !s.world.restored || i.spared != nil && remembered:
		s.fail("HV4", "instance %s of machine %s is stopped, which was left when the record was removed", i.id, i.machine)
	case s.set.labels && known && u.Alive && u.Instance == "":
		s.fail("ST19", "instance %s of machine %s is stopped, and could be adopted", i.id, i.machine)
	case !spare && s.set.labels && s.tooMany():
		s.fail("HV11", "instance %s is stopped as unknown, which are too many: %v", i.id, s.world.unknown())
	case !spare && t.iced:
		s.fail("HV11", "instance %s is stopped as unknown, and that is frozen", i.id)
	case !i.lost && !spare && !i.stranger && known && u.Instance == "" && i.spared == nil && i.live && (s.set.labels || known && strings.Contains("searching announcing preparing deriving starting confirming", u.Life)):
		s.fail("HV9", "instance %s of machine %s is stopped, as if nobody knew of it", i.id, i.machine)
	case s.now-i.at < time.Minute && s.jump == 0:
		s.fail("HV9", "instance %s of machine %s is stopped as unknown when it is %v old", i.id, i.machine, s.now-i.at)
	}
}

// checkMade looks at an instance that is about to be made: the machine has no
// other, and none that would be found.
func (s *sim) checkMade(made *instance, q provisioner.StartRequest) {
	if s.world.restored {
		return // what an old backup says of attempts is believed
	}
	for _, i := range s.world.instances {
		switch {
		case !i.live || i.foreign || i.spared != nil || i.machine != q.Machine:
		case !i.lost:
			s.fail("ST11", "machine %s gets instance %s and still has %s", q.Machine, made.id, i.id)
		case i.nonce == q.Nonce && !s.world.gave[q.Machine]:
			s.fail("ST11", "machine %s gets instance %s in an attempt of its own, and whether %s was made is not known", q.Machine, made.id, i.id)
		}
	}
}

// checkAsked looks at what the broker is asked for.
func (s *sim) checkAsked(t *task, q provisioner.StartRequest) {
	w, l := s.world, q.Labels
	if l.Controller == "" || l.Machine != q.Machine || l.Nonce != q.Nonce || l.Token != q.Token || q.Token == "" || l.Epoch != q.Epoch {
		s.fail("ST10", "machine %s is asked for with the labels %+v", q.Machine, l)
	}
	if zone, again := w.asked[q.Token]; again && zone != "" && zone != q.Zone && !w.restored {
		s.fail("ST11", "an attempt to start machine %s is repeated in zone %q, and was made in %q", q.Machine, q.Zone, zone)
	}
	w.asked[q.Token] = q.Zone
	if s.set.intents && !w.stored[q.Token] {
		s.fail("ST10", "machine %s is asked for before its attempt is stored", q.Machine)
	}
}

// checkSwap looks at an intent that takes the place of another: one that is open
// and may have made something is only given up with its start.
func (s *sim) checkSwap(old, next provisioner.Intent) {
	if i := s.world.tokens[old.Token]; old.Attempt > 0 && old.Token != next.Token && i != nil && i.live && !s.world.gave[next.Machine] && s.set.dedupes && !s.world.restored {
		s.fail("ST11", "attempt %d to start machine %s has made %s, and attempt %d takes its place", old.Attempt, next.Machine, i.id, next.Attempt)
	}
}

// checkHeld looks at a call that changes something, right when it is made.
func (s *sim) checkHeld(t *task, c callKind, epoch uint64) {
	switch {
	case !s.set.lease:
	case s.world.epoch != t.epoch:
		s.fail("LC6", "%s is called without the lease", c)
	case epoch != t.epoch:
		s.fail("LC6", "%s is called with epoch %d, and the lease has %d", c, epoch, t.epoch)
	}
}

// checkStopped looks at an instance that is about to be stopped.
func (s *sim) checkStopped(i *instance, undo bool) {
	m := s.world.owner(i.id)
	if s.world.restored && s.now-s.world.recently < 2*time.Minute {
		return // an old backup came back while this was under way
	}
	switch {
	case m == nil && !undo:
		// its record went meanwhile
	case m == nil:
	case m.Life != provisioner.Dead:
		s.fail("HV5", "instance %s of machine %s is stopped, which is %s", i.id, m.ID, m.Life)
	case m.Keep:
		s.fail("HV3", "instance %s of machine %s is stopped, which is to be kept", i.id, m.ID)
	}
}

func (s *sim) checkStatus(t *task, u provisioner.StatusUpdate) {
	if t.writing[u.Machine] {
		s.fail("ST20", "two statuses of machine %s are written at once", u.Machine)
	}
	final := u.InstanceStatus == provisioner.InstanceRunning && u.Text == "" || u.Status == provisioner.StatusError
	first := u.Text == "starting" || u.Status == provisioner.StatusPending
	if t.final[u.Machine] && !final && !first {
		s.fail("ST20", "%q is shown of machine %s after the final word of its start", u.Text, u.Machine)
	}
	t.final[u.Machine] = final
}

func (s *sim) checkIDs(c callKind, ids []provisioner.MachineID) {
	seen := map[provisioner.MachineID]bool{}
	for _, id := range ids {
		if seen[id] {
			s.fail("LD2", "%s is called with %s twice", c, id)
		}
		seen[id] = true
	}
	if len(ids) == 0 {
		s.fail("LD2", "%s is called for nothing", c)
	}
}

// heard looks at an event.
func (s *sim) heard(t *task, e provisioner.Event) {
	who := ""
	if t != s.task {
		who = " of the former task"
	}
	s.logf("event%s: %s", who, oneLine(e.String()))
	switch e.Kind {
	case provisioner.EventShutdown:
		t.hushed = true
	case provisioner.EventStartFailed:
		if t.hushed {
			s.fail("ST14", "the start of machine %s fails during shutdown: %v", e.Machine, e.Err)
		}
		t.failed[e.Machine], s.world.gave[e.Machine] = true, true
		if s.world.machines[e.Machine] == nil { // whoever takes a record away leaves its instance behind
			s.world.leave(e.Machine)
		}
	case provisioner.EventAttemptFailed: // a slow start runs into its time-out without any trouble
		s.uneven = true
	case provisioner.EventZonesOut:
		t.failed[e.Machine] = true
	case provisioner.EventRetryReset: // a person asks for a further try
		s.world.gave[e.Machine] = s.world.gave[e.Machine] || !s.set.dedupes
	case provisioner.EventKept:
		t.kept[e.Instance] = true
	case provisioner.EventFrozen:
		t.iced = true
	case provisioner.EventThawed:
		t.iced = false
	case provisioner.EventStarting:
		delete(t.failed, e.Machine)
		delete(t.final, e.Machine)
	case provisioner.EventForgotten:
		if s.world.machines[e.Machine] != nil && !s.world.away[e.Machine] {
			s.fail("LD3", "machine %s is forgotten, and was there all the time", e.Machine)
		}
		t.forgot[e.Machine] = s.world.machines[e.Machine] == nil
	case provisioner.EventQueued:
		if t.forgot[e.Machine] {
			s.fail("LD3", "machine %s is queued, and was forgotten because its record is gone", e.Machine)
		}
	case provisioner.EventUnknown:
		i := s.world.byID[e.Instance]
		known := i.spared == nil || i.spared == t // what an earlier Task has spared is not stored yet
		told := s.set.labels                      // else listings do not tell whose it is
		m := s.world.machines[i.machine]
		spare := m != nil && m.Instance != "" && m.Instance != i.id
		if i.live && !i.lost && known && told && !spare && !i.stranger && m != nil {
			s.fail("HV9", "instance %s of machine %s is reported as unknown", e.Instance, i.machine)
		}
	}
}

// checkTurn looks at the engine after a turn.
func (s *sim) checkTurn(t *task) {
	if err := t.Audit(); err != nil {
		s.fail("AZ7", "%v", err)
	}
	if t.tooLate {
		s.fail("LC8", "a look has ended twice")
	}
	was := t.used
	t.used = usage{host: map[provisioner.MachineID]int{}}
	hold := func(id provisioner.MachineID) {
		t.used.starts++
		if h := id.Host(); h != "" {
			t.used.host[h]++
		}
	}
	for _, id := range s.known {
		u, ok := t.Unit(id)
		if !ok {
			delete(t.going, id)
			delete(t.zones, id)
			continue
		}
		t.going[id], t.zones[id] = !u.Alive, provisioner.ZoneName(u.Zone)
		if s.log != nil && t.shown[id] != u {
			t.shown[id] = u
			s.logf("machine %s is %+v", id, u)
		}
		if u.Life == "announcing" || u.Life == "preparing" {
			hold(id)
		}
		if u.Zone != "" && id.IsContainer() {
			s.fail("AZ2", "container %s is counted in zone %s", id, u.Zone)
		}
		if u.Zone != "" && u.Held == "" && (u.Instance == "" || u.Settled) {
			s.fail("AZ7", "machine %s is counted in zone %s, and is not there", id, u.Zone)
		}
	}
	for _, j := range t.jobs {
		switch {
		case j.Late():
		case j.Kind == "starting" || j.Kind == "deriving zones":
			hold(j.id)
		case j.Kind == "stopping", j.Kind == "asking before a stop": // that has a place already
			t.used.stops++
		case j.Kind == "removing":
			t.used.removals++
		}
	}
	s.checkLimit("starts", t.used.starts, was.starts, t.limits.Starts)
	s.checkLimit("stops", t.used.stops, was.stops, t.limits.Stops)
	s.checkLimit("removals", t.used.removals, was.removals, t.limits.Stops)
	for h, n := range t.used.host {
		s.checkLimit("starts on one host", n, was.host[h], t.limits.ContainerStarts)
	}
}

// checkLimit: no more than allowed, save those that went on before the limit
// was lowered.
func (s *sim) checkLimit(what string, now, was, limit int) {
	if now > max(limit, was) {
		s.fail("ST17", "%d %s at once, and %d are allowed", now, what, limit)
	}
}

// unrest is what has not come to rest yet, now that the trouble is over; "" if
// everything has.
func (s *sim) unrest() string {
	w, t := s.world, s.task
	if len(s.tasks) > 1 {
		return "a former task has not ended"
	}
	for _, j := range t.jobs {
		return j.Kind + " " + string(j.id) + " is under way"
	}
	for _, id := range w.order {
		m := w.machines[id]
		u, ok := t.Unit(id)
		switch {
		case !ok:
			return "machine " + string(id) + " is not known"
		case m.Life == provisioner.Dead:
			return "machine " + string(id) + " is dead and still there"
		case m.Life == provisioner.Dying && m.Instance == "":
			return "machine " + string(id) + " is dying without an instance"
		case w.waits(id):
			continue
		case m.Instance == "":
			return "machine " + string(id) + " has no instance: " + u.Life
		case u.Life != "resting":
			return "machine " + string(id) + " does not rest: " + u.Life
		case u.Instance != string(m.Instance):
			return fmt.Sprintf("machine %s has instance %s, and %q is known", id, m.Instance, u.Instance)
		}
		// Without further looks nobody tells the zone of a record that was read later.
		told := !w.restored && (m.Zone != "" || s.set.resync == 0)
		if i := w.byID[m.Instance]; s.set.zoned && told && !id.IsContainer() && string(i.zone) != u.Zone {
			return fmt.Sprintf("machine %s runs in %q and is counted in %q", id, i.zone, u.Zone)
		}
	}
	for _, id := range s.known {
		if _, ok := t.Unit(id); ok && w.machines[id] == nil {
			return "machine " + string(id) + " is gone and still known"
		}
	}
	if left := w.unknown(); len(left) > 0 && s.set.labels && s.mode.Unknown() && !t.iced {
		return fmt.Sprintf("instances that no machine has are there: %v", left)
	}
	if t.looks > 0 {
		return fmt.Sprintf("%d looks have not ended", t.looks)
	}
	return ""
}

// tooMany says whether more instances are unknown than is believed: only for
// certain, so when nothing has gone wrong for long.
func (s *sim) tooMany() bool {
	if !s.calm || s.now-s.calmAt < 5*time.Minute {
		return false
	}
	n, ours := 0, 0
	for _, i := range s.world.instances {
		m := s.world.machines[i.machine]
		switch {
		case !i.live || i.foreign:
		case s.world.owner(i.id) == nil && i.spared == nil && i.lost && m == nil && s.now-max(i.at, i.free) > 6*time.Minute:
			n++
			ours++
		default:
			ours++
		}
	}
	return n > 3 && n*5 > ours
}

// unknown are the living instances that no machine has or wants, and that are
// ours by their labels.
func (w *world) unknown() (ids []provisioner.InstanceID) {
	for _, i := range w.instances {
		m := w.machines[i.machine]
		_, remembered := w.spared[i.id]
		keep := remembered || w.s.task.kept[i.id] || m != nil && m.Keep // perhaps it is this one that is meant
		if i.live && i.lost && !keep && !i.foreign && i.spared == nil && w.owner(i.id) == nil && !w.waits(i.machine) {
			ids = append(ids, i.id)
		}
	}
	return ids
}

// waits says whether a machine is a container whose host can't take it.
func (w *world) waits(id provisioner.MachineID) bool {
	host := w.machines[id.Host()]
	return w.machines[id] != nil && id.IsContainer() && (host == nil || host.Life != provisioner.Alive || host.Instance == "")
}

// checkRest holds what must be so when everything rests.
func (s *sim) checkRest() {
	w := s.world
	for _, id := range w.adrift() {
		machine := w.byID[id].machine
		if m := w.machines[machine]; w.waits(machine) || m != nil && m.Keep {
			continue // it is adopted when its host is ready, or perhaps it is what is to be kept
		}
		s.fail("ST12", "instance %s of machine %s is left behind", id, w.byID[id].machine)
	}
	for _, id := range s.known {
		if u, ok := s.task.Unit(id); ok && u.Made != "" {
			s.fail("ST12", "instance %s of machine %s is an orphan", u.Made, id)
		}
	}
	for _, m := range w.machines {
		if i := w.byID[m.Instance]; i != nil && !i.live && !i.blind && !w.restored {
			s.fail("HV5", "instance %s of machine %s is gone", i.id, m.ID)
		}
	}
	s.checkSpread()
	snapshot := provisioner.Snapshot{CanEnsureDead: true, CanMaintain: s.set.maintains}
	for _, id := range w.order {
		snapshot.Fleet = append(snapshot.Fleet, w.read(id))
	}
	for _, z := range w.zones {
		snapshot.Zones = append(snapshot.Zones, z.Zone)
	}
	for _, a := range provisioner.MakePlan(snapshot, provisioner.Policy{Harvest: s.mode}).Actions {
		host := a.Was.ID.Host() // where no top-level machine is left, a plan takes it for one that it is not shown
		if a.Kind != provisioner.ActionMaintain && (host == "" || w.machines[host] != nil) {
			s.fail("LD8", "a plan has something to do: %v", a)
		}
	}
}
