package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
)

// settings are what a seed decides once.
type settings struct {
	rate     int // troubled calls in a thousand
	enabled  [troubles]bool
	slowness int // how many of latencies there are

	zoned, derives, maintains, groups, auth, limiter bool
	dedupes, labels, finder, consistent, intents     bool // the ways to find out what was made
	lease, exits, exclusive, slowUp, ages            bool
	spares                                           bool // what is left running is remembered
	vetoes                                           bool // stops are asked for
	echo, asksGroup                                  bool
	visibility                                       time.Duration
	zonesUnrecorded                                  bool

	retry   provisioner.RetryPolicy
	skew    int
	tie     provisioner.TieBreak
	grace   time.Duration
	launch  time.Duration
	refresh time.Duration
	resync  time.Duration // Off only if every change is told
	focus   trouble       // every second one
	keeps   bool          // every second machine's instance is to be kept
	even    bool          // every machine may go anywhere, and nothing goes wrong
	deaf    int           // of ten changes, how many are not told
}

var zoneNames = []provisioner.ZoneName{"a", "b", "c", "d"}

// decide draws all that a seed decides beforehand.
func (s *sim) decide() {
	d := diceOf(s.seed, 99)
	one := func(n int) bool { return d.n(n) == 0 }
	set := &s.set
	set.rate = []int{0, 20, 60, 150, 400}[d.n(5)]
	for t := range set.enabled {
		set.enabled[t] = !one(3)
	}
	set.slowness = 1 + d.n(len(latencies))
	set.zoned, set.derives, set.maintains, set.groups, set.auth, set.limiter = !one(6), one(3), one(2), one(2), one(3), one(4)
	set.dedupes, set.labels, set.finder, set.consistent, set.intents = one(2), one(2), one(2), one(2), one(2)
	set.lease, set.exits, set.slowUp, set.ages, set.echo, set.asksGroup = one(3), one(2), one(3), one(2), one(2), one(4)
	set.spares, set.vetoes = one(2), one(3)
	set.exclusive = set.searchable() && one(5)
	set.visibility = []time.Duration{0, 10 * time.Second}[d.n(2)]
	set.zonesUnrecorded = one(8)
	switch d.n(4) {
	case 0:
		set.retry = provisioner.FixedRetry(time.Duration(d.n(3))*time.Second, d.n(4))
	default:
		set.retry = provisioner.RetryPolicy{Retries: 1 + d.n(3), ZoneDelay: time.Duration(d.n(2)) * 5 * time.Second}
	}
	if one(6) {
		set.retry.Deadline = time.Minute
	}
	set.skew, set.tie = max(0, d.n(8)-6), provisioner.TieBreak(d.n(2))
	set.grace = []time.Duration{0, 0, provisioner.Off}[d.n(3)]
	set.launch = []time.Duration{0, 0, 20 * time.Second, provisioner.Off}[d.n(4)]
	set.refresh = []time.Duration{0, 0, provisioner.Off}[d.n(3)]
	set.deaf = d.n(4)
	set.keeps = one(3)
	if one(2) {
		set.deaf, set.resync = 0, provisioner.Off
	}
	if one(2) {
		set.focus = troubleMissing + trouble(d.n(int(troubles-troubleMissing)))
	}
	favourite := deedKind(d.n(int(deedKinds)))
	var shunned [deedKinds]bool
	for k := range shunned {
		shunned[k] = one(3)
	}
	s.limits = provisioner.Limits{Starts: 1 + d.n(5), ContainerStarts: 1 + d.n(2), Stops: 1 + d.n(3)}
	s.mode = provisioner.HarvestMode(d.n(4))
	if one(2) {
		s.mode = provisioner.HarvestDestroyed
	}
	for _, name := range zoneNames[:1+d.n(len(zoneNames))] {
		s.world.zones = append(s.world.zones, zone{provisioner.Zone{Name: name, Available: true}, true})
	}
	machines := 1 + d.n(6)
	for i := range machines {
		s.deeds = append(s.deeds, deed{kind: deedAdd, n: i})
	}
	for i := range d.n(3) {
		s.deeds = append(s.deeds, deed{kind: deedContainer, n: i, pick: d.next()})
	}
	span := 1 + d.n(900)
	for i := range d.n(24) {
		kind := deedKind(d.n(int(deedKinds)))
		if one(4) || shunned[kind] {
			kind = favourite
		}
		s.deeds = append(s.deeds, deed{kind: kind, n: 100 + i, pick: d.next(), at: time.Duration(d.n(span*1000)) * time.Millisecond})
	}
	if one(4) { // much that no machine has
		if one(2) {
			set.labels, set.finder = false, true
		}
		s.mode = []provisioner.HarvestMode{provisioner.HarvestUnknown, provisioner.HarvestAll}[d.n(2)]
		for i := range 1 + d.n(4) {
			kind := []deedKind{deedMode, deedDeadAll, deedCrash, deedLose}[d.n(4)]
			s.deeds = append(s.deeds, deed{kind: kind, n: 200 + i, pick: d.next(), at: time.Duration(d.n(span*1000)) * time.Millisecond})
		}
	}
	if !set.consistent { // VisibilityGrace is waited for on the clock
		s.deeds = slices.DeleteFunc(s.deeds, func(x deed) bool { return x.kind == deedJump })
	}
	if set.exclusive { // or what was left on purpose would be in the way of a machine that comes back
		s.deeds = slices.DeleteFunc(s.deeds, func(x deed) bool { return x.kind == deedBackup })
	}
	if one(10) {
		set.even = true
		set.zoned, set.derives, set.zonesUnrecorded, set.keeps, set.exits, set.skew, set.rate, set.deaf = true, false, false, false, false, 0, 0, 0
		s.deeds = slices.DeleteFunc(s.deeds, func(x deed) bool { return !slices.Contains(evenDeeds, x.kind) })
	}
	for i := range s.deeds {
		s.deeds[i].key = fmt.Sprintf("%s:%d", s.deeds[i].kind, i)
	}
}

// A deed is something that happens to the world or the Task.
type deed struct {
	kind deedKind
	at   time.Duration
	n    int    // makes the names of what it makes
	pick uint64 // chooses among what there is
	key  string
}

type deedKind uint8

const (
	deedAdd deedKind = iota
	deedContainer
	deedDying
	deedDead
	deedDeadAll
	deedKeep
	deedForget
	deedReturn
	deedProvision // by somebody else
	deedZoneDown
	deedZoneUp
	deedZoneGone
	deedMode
	deedLimits
	deedRetry
	deedChanged
	deedLook
	deedJump
	deedCrash
	deedRestart
	deedStall
	deedForeign
	deedBackup
	deedUnread
	deedLose
	deedKinds
)

var deedNames = [deedKinds]string{"add", "container", "dying", "dead", "dead-all", "keep", "forget", "return", "provision", "zone-down", "zone-up", "zone-gone",
	"mode", "limits", "retry", "changed", "look", "jump", "crash", "restart", "stall", "foreign", "backup", "unread", "lose"}

func (k deedKind) String() string { return deedNames[k] }

// searchable says whether an instance can be found by what it was made for.
func (set *settings) searchable() bool { return set.labels || set.finder }

// evenDeeds are those after which a fleet is still evenly spread.
var evenDeeds = []deedKind{deedAdd, deedContainer, deedMode, deedLimits, deedRetry, deedChanged, deedLook}

func (s *sim) act(x deed) {
	if s.calm || !s.strikes(x.key, x.kind.String()) {
		return
	}
	w, pick := s.world, int(x.pick>>33)
	var m *provisioner.Machine
	id := provisioner.MachineID("4711")
	if len(w.order) > 0 {
		id = w.order[pick%len(w.order)]
		m = w.machines[id]
	}
	z := &w.zones[pick%len(w.zones)]
	said := fmt.Sprintf("machine %s", id)
	switch x.kind {
	case deedAdd:
		id = provisioner.MachineID(fmt.Sprint(x.n))
		said = fmt.Sprintf("machine %s", id)
		w.add(id)
		w.machines[id].Keep = w.machines[id].Keep || s.set.keeps && x.n%2 == 0 && w.machines[id].Life == provisioner.Alive
		s.changed(id)
	case deedContainer:
		id = provisioner.MachineID(fmt.Sprintf("%s/lxd/%d", id.Top(), x.n))
		said = fmt.Sprintf("machine %s", id)
		w.add(id)
		s.changed(id)
	case deedDying:
		if m != nil && m.Life == provisioner.Alive {
			m.Life = provisioner.Dying
			s.changed(id)
			if pick%2 == 0 { // and its agent ends soon, perhaps while the change is being read
				s.later(time.Duration(pick/2%40)*50*time.Millisecond, func() {
					if !s.calm && w.machines[id] == m && m.Life == provisioner.Dying {
						m.Life = provisioner.Dead
						s.logf("machine %s is dead", id)
						s.changed(id)
					}
				})
			}
		}
	case deedDeadAll:
		said = "all"
		for _, id := range w.order {
			w.machines[id].Life = provisioner.Dead
			s.changed(id)
		}
		if pick%2 == 0 { // and the mode changes while stops wait for their turn
			s.later(time.Duration(pick/2%12)*300*time.Millisecond, func() {
				if !s.calm {
					s.setMode(provisioner.HarvestMode(pick / 32 % 4))
				}
			})
		}
	case deedDead:
		if m != nil {
			m.Life = provisioner.Dead
			s.changed(id)
		}
	case deedKeep:
		if m != nil && m.Life != provisioner.Dead { // or the Task may have decided already
			m.Keep = !m.Keep
			s.changed(id)
		}
	case deedForget:
		if m != nil && m.Instance == "" {
			w.abandon(id)
			w.remove(id)
			w.gone = append(w.gone, id)
			s.changed(id)
		}
	case deedReturn:
		if len(w.gone) > 0 {
			id = w.gone[pick%len(w.gone)]
			said = fmt.Sprintf("machine %s", id)
			w.add(id)
			s.changed(id)
		}
	case deedProvision:
		if m != nil && m.Instance == "" && m.Life == provisioner.Alive {
			i := &instance{id: provisioner.InstanceID(fmt.Sprintf("x-%d", x.n)), machine: id, zone: z.Name, live: true, foreign: true, at: s.now}
			w.abandon(id)
			w.instances = append(w.instances, i)
			w.byID[i.id] = i
			m.Instance, m.Zone = i.id, i.zone
			s.changed(id)
		}
	case deedZoneDown, deedZoneUp, deedZoneGone:
		said = fmt.Sprintf("zone %s", z.Name)
		z.Available, z.listed = x.kind == deedZoneUp, x.kind != deedZoneGone
	case deedMode:
		s.setMode(provisioner.HarvestMode(pick % 4))
		said = s.mode.String()
	case deedLimits:
		s.limits = provisioner.Limits{Starts: 1 + pick%4, ContainerStarts: 1 + pick/4%2, Stops: 1 + pick/8%3}
		s.task.limits = s.limits
		said = fmt.Sprintf("%+v", s.limits)
		s.task.SetLimits(s.limits)
	case deedRetry:
		s.retry()
	case deedChanged:
		s.task.Changed(id, "4711", id, "not/valid")
	case deedLook:
		s.look()
	case deedJump:
		by := time.Duration(pick%7200)*time.Second - 60*time.Second
		if pick%2 == 0 {
			by = time.Duration(pick%120-60) * time.Second
		}
		s.jump += by
		said = by.String()
	case deedCrash:
		s.logf("deed: crash")
		s.succeed(s.task)
		return
	case deedRestart:
		s.end()
	case deedForeign: // somebody else's, or made by hand
		i := &instance{id: provisioner.InstanceID(fmt.Sprintf("f-%d", x.n)), zone: z.Name, live: true, foreign: true, stranger: true, at: s.now}
		if pick%2 == 0 && s.set.labels {
			i.labels = provisioner.Labels{Controller: "d", Machine: id, Nonce: "d:1", Token: "t"}
		} else if s.set.labels && pick%3 == 0 {
			i.labels = provisioner.Labels{Controller: "c"}
		}
		w.instances = append(w.instances, i)
		w.byID[i.id] = i
		said = fmt.Sprintf("instance %s %+v", i.id, i.labels)
	case deedBackup:
		if pick%2 == 0 || w.backup == nil {
			w.save()
			said = "is made"
		} else {
			w.restore()
			said = "is restored"
		}
	case deedLose: // half of the records, or all
		for i, id := range slices.Clone(w.order) {
			if pick%2 == 0 || i%2 == 0 {
				w.abandon(id)
				if own := w.byID[w.machines[id].Instance]; own != nil && !own.foreign {
					own.lost, own.recorded, own.free = true, false, s.now
				} else if own != nil {
					own.stranger = true
				}
				w.remove(id)
				s.changed(id)
			}
		}
		w.gone = nil // none of them comes back under its old id
		said = "of records"
	case deedUnread: // for a while
		w.hidden[id] = hidden{s.now + time.Duration(pick%900)*time.Second, pick/900%2 == 0}
	case deedStall:
		if !s.set.lease || len(s.tasks) > 2 {
			return
		}
		s.logf("deed: stall")
		s.stall(time.Duration(pick%600) * time.Second)
		return
	}
	s.logf("deed: %s %s", x.kind, said)
}

func (s *sim) setMode(mode provisioner.HarvestMode) {
	s.logf("mode %s", mode)
	s.mode, s.task.mode = mode, mode
	s.task.SetMode(mode)
}

func (s *sim) retry() {
	for _, id := range s.world.order {
		s.world.retryable[id] = true
	}
	s.task.Retry()
}

func (s *sim) look() {
	t, ended := s.task, false
	t.looks++
	t.Look(func() {
		t.looks--
		t.tooLate = t.tooLate || ended
		ended = true
	})
}

// end tells the Task to end; a new one comes when it has.
func (s *sim) end() {
	if !s.task.ending {
		s.task.ending = true
		s.task.Quiet(true)
	}
}

// changed tells the Task of a change, late, twice, or not at all.
func (s *sim) changed(id provisioner.MachineID) {
	d := diceOf(s.seed, hash(string(id)), uint64(s.now), 5)
	if !s.calm && d.n(10) < s.set.deaf {
		return
	}
	times := 1 + max(0, d.n(5)-3)
	for range times {
		s.later(latencies[d.n(s.set.slowness)], func() {
			for _, t := range s.tasks {
				if !t.ending {
					t.Changed(id)
				}
			}
		})
	}
}

// What the host tells about a machine depends on its id alone.

func (s *sim) infoOf(id provisioner.MachineID) (info provisioner.StartInfo) {
	d := diceOf(s.seed, hash(string(id)), 11)
	if s.set.zoned && !s.set.even && d.n(4) == 0 {
		info.Constraints.Zones = []string{string(s.world.zones[d.n(len(s.world.zones))].Name)}
	}
	if d.n(3) == 0 {
		cores := uint64(1 + d.n(2))
		info.Constraints = constraints.Value{Cores: &cores, Zones: info.Constraints.Zones}
	}
	if !s.set.groups {
		info.Group = s.groupOf(id)
	}
	return info
}

func (s *sim) groupOf(id provisioner.MachineID) (g provisioner.Group) {
	d := diceOf(s.seed, 13)
	if d.n(3) == 0 {
		return g
	}
	if d.n(2) == 0 {
		g.Key = "g"
		for i := range 4 {
			g.Members = append(g.Members, provisioner.MachineID(fmt.Sprint(i)))
		}
		if !slices.Contains(g.Members, id) {
			return provisioner.Group{}
		}
		return g
	}
	for i := range 1 + d.n(5) {
		g.Members = append(g.Members, provisioner.MachineID(fmt.Sprint(i)))
	}
	return g
}

// derivedOf holds what a constraint allows, so that some zone is left.
func (s *sim) derivedOf(id provisioner.MachineID) (zones []provisioner.ZoneName) {
	d := diceOf(s.seed, hash(string(id)), 12)
	if d.n(2) == 0 {
		return nil
	}
	for _, z := range s.infoOf(id).Constraints.Zones {
		zones = append(zones, provisioner.ZoneName(z))
	}
	return append(zones, s.world.zones[d.n(len(s.world.zones))].Name)
}
