package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

type callKind uint8

const (
	callFleet callKind = iota
	callMachines
	callInfo
	callListing
	callZones
	callRetries
	callGroups
	callAuth
	callDerive
	callStart
	callRecord
	callStop
	callRemove
	callEnsure
	callStatus
	callMaintain
	callLimit
	callFind
	callIntents
	callIntent
	callSpared
	callSpare
	callUnspare
	callVeto
	callDrain
	callKinds
)

var callNames = [callKinds]string{"fleet", "machines", "info", "listing", "zones", "retries", "groups", "auth", "derive",
	"start", "record", "stop", "remove", "ensure-dead", "status", "maintain", "limiter", "find", "intents", "intent",
	"spared", "spare", "unspare", "veto", "drain"}

func (c callKind) String() string { return callNames[c] }

// trouble is what can go wrong in a call.
type trouble uint8

const (
	troubleNone trouble = iota
	troubleError
	troublePanic
	troubleHang  // until its context ends
	troubleStuck // it ignores its context, for long or until the trouble is over
	troubleSlow
	troubleMissing // one of its results
	troubleDouble
	troubleForeign
	troubleOne // one of its results is an error
	troubleUnread
	troublePartial // a listing
	troubleZone    // a listing, in which one zone is missing
	troubleLate    // what was accepted is done later
	troubleOdd     // an instance that nobody asked for in this form
	troubles
)

var troubleNames = [troubles]string{"none", "error", "panic", "hang", "stuck", "slow", "missing", "double", "foreign", "one-error", "unread", "partial", "zone", "late", "odd"}

// apply lists the troubles that a call can have besides those of all calls.
var apply = [callKinds][]trouble{
	callFleet:    {troubleMissing, troubleDouble, troubleForeign, troubleOne, troubleUnread},
	callMachines: {troubleMissing, troubleDouble, troubleForeign, troubleOne, troubleUnread, troubleUnread},
	callInfo:     {troubleMissing, troubleDouble, troubleForeign, troubleOne},
	callGroups:   {troubleMissing, troubleDouble, troubleForeign, troubleOne},
	callAuth:     {troubleMissing, troubleDouble, troubleForeign, troubleOne},
	callRetries:  {troubleMissing, troubleDouble, troubleForeign, troubleOne, troubleUnread},
	callIntents:  {troubleMissing, troubleDouble, troubleForeign, troubleOne},
	callListing:  {troublePartial, troubleZone},
	callFind:     {troublePartial, troubleZone},
	callZones:    {troubleMissing, troubleDouble},
	callStart:    {troubleOdd, troubleError, troubleError, troubleLate},
}

// off are the faults that no seed has yet, and why; -off prints them.
var off = []struct{ fault, why string }{
	{"what is lost counts (as a leak, or as a second instance), where the broker neither shows labels nor can be searched by them", "nobody can find it; where it dedupes, only what was asked for again counts"},
	{"what a crash, or a shutdown whose grace was over, leaves counts, of a machine that has no record any more, or another instance", "nobody looks for it but the harvest of unknown instances"},
	{"an instance that is being stopped as unknown is asked for again, where the broker neither shows labels nor can be searched", "nobody can tell that it is the same; the mode alone decides (HV10)"},
	{"what an old backup says of attempts is wrong", "intents are believed"},
	{"a clock jumps while instances are seen late", "VisibilityGrace is waited for on that clock"},
	{"a stop, a record or an intent comes to pass long after its controller has crashed, without a lease", "nothing tells the broker that it is not wanted any more"},
	{"LXD profile changes", "LX1 to LX8"},
}

// dice are random numbers that depend on nothing but what they were made from.
type dice uint64

func (d *dice) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (d *dice) n(n int) int { return int(d.next() % uint64(n)) }

func diceOf(seed uint64, parts ...uint64) *dice {
	d := dice(seed)
	for _, p := range parts {
		d = dice(d.next() ^ p)
	}
	return &d
}

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// A fate is what becomes of one call. It depends on the seed and on which call
// of its machine it is, and not on what else goes on.
type fate struct {
	before, then time.Duration // the waits before and after the effect
	what         trouble
	after        bool // an error or a panic comes after the effect
	class        int  // of an error, or a result
	at           int  // which of many results
	coin         bool
}

type counted struct {
	call callKind
	id   provisioner.MachineID
}

var latencies = []time.Duration{0, 0, 0, time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 9 * time.Second}

func (s *sim) fateOf(c callKind, id provisioner.MachineID) fate {
	n := s.count[counted{c, id}]
	s.count[counted{c, id}]++
	d := diceOf(s.seed, uint64(c)+1, hash(string(id)), uint64(n))
	f := fate{coin: d.n(2) == 0, class: d.n(100), at: d.n(64)}
	f.before, f.then = latencies[d.n(s.set.slowness)], latencies[d.n(s.set.slowness)]
	if s.calm {
		f.before, f.then = f.before/1000, f.then/1000
		return f
	}
	if d.n(1000) >= s.set.rate {
		return f
	}
	what := trouble(1 + d.n(int(troubleMissing)-1))
	if own := apply[c]; len(own) > 0 && d.n(2) == 0 {
		what = own[d.n(len(own))]
	}
	if slices.Contains(apply[c], s.set.focus) && d.n(2) == 0 {
		what = s.set.focus
	} else if !s.set.enabled[what] {
		return f
	}
	after := d.n(3) == 0
	long := time.Duration(5+d.n(900)) * time.Second
	endless := d.n(3) == 0
	if what == troubleLate && s.set.consistent {
		return f
	}
	key := fmt.Sprintf("%s:%s:%d", c, id, n)
	if !s.strikes(key, troubleNames[what]) {
		return f
	}
	f.what, f.after = what, after
	switch what {
	case troubleHang:
		f.before = forever
		if f.after {
			f.before, f.then = f.then, forever
		}
	case troubleStuck, troubleSlow:
		f.before = long
		if what == troubleStuck && endless {
			f.before = forever
		}
	}
	return f
}

func (f fate) obeys() bool { return f.what != troubleStuck }

// strike is the error, or the panic, of a call that was decided.
func (f fate) strike(c callKind) error {
	switch f.what {
	case troublePanic:
		panic(scripted{c.String()})
	case troubleError:
		return f.err(c)
	}
	return nil
}

func (f fate) err(c callKind) error {
	err := fmt.Errorf("scripted failure of %s", c)
	if c != callStart {
		switch f.class % 6 {
		case 0:
			return errors.NotValidf("scripted failure of %s:", c)
		case 1:
			return errors.NotSupportedf("scripted %s", c)
		case 2:
			return errors.WithType(err, errors.Unauthorized)
		}
		return err
	}
	if f.after || f.what == troubleLate { // only these may leave an instance behind
		if f.class%2 == 0 {
			return provisioner.Ambiguous(err)
		}
		return errors.WithType(err, errors.Timeout)
	}
	switch f.class % 12 {
	case 0, 1:
		return provisioner.ZoneIndependent(err)
	case 2:
		return provisioner.Permanent(err)
	case 3:
		return provisioner.RetryAfter(err, time.Duration(f.class)*time.Second)
	case 4, 5:
		return provisioner.OutOfCapacity(err)
	case 6:
		return provisioner.Quota(err)
	case 7:
		return provisioner.Unauthorized(err)
	case 8:
		return provisioner.Ambiguous(err)
	case 9:
		return provisioner.AlreadyExists(err)
	}
	return err
}

// twist does to a list of results what was decided for it.
func twist[R any](f fate, all []R, fail func(*R, error), alien R) []R {
	if len(all) == 0 {
		return all
	}
	at := f.at % len(all)
	switch f.what {
	case troubleMissing:
		return append(all[:at], all[at+1:]...)
	case troubleDouble:
		return append(all, all[at])
	case troubleForeign:
		return append(all, alien)
	case troubleOne:
		err := fmt.Errorf("scripted failure of one result")
		switch f.class % 4 {
		case 0:
			err = errors.NotValidf("scripted result:")
		case 1:
			err = errors.WithType(err, errors.Unauthorized)
		}
		fail(&all[at], err)
	}
	return all
}

func (f fate) twistMachines(all []provisioner.MachineResult) []provisioner.MachineResult {
	if f.what == troubleUnread && len(all) > 0 {
		at := f.at % len(all)
		for i := range all {
			if i == at || f.coin { // one of them, or all
				unread(&all[i].Machine, provisioner.Fields(1+f.class%15))
			}
		}
	}
	if f.what == troubleMissing {
		return all // absent would mean that it does not exist
	}
	return twist(f, all, func(r *provisioner.MachineResult, err error) { *r = provisioner.MachineResult{ID: r.ID, Err: err} },
		provisioner.MachineResult{ID: "alien", Machine: provisioner.Machine{ID: "not-alien", Life: provisioner.Alive}})
}

// unread is what a record looks like of which some fields could not be read.
func unread(m *provisioner.Machine, fields provisioner.Fields) {
	m.Unread |= fields
	if fields.Has(provisioner.FieldInstance) {
		m.Instance, m.Zone = "", ""
	}
	if fields.Has(provisioner.FieldStatus) {
		m.Status = ""
	}
	if fields.Has(provisioner.FieldInstanceStatus) {
		m.InstanceStatus = ""
	}
	if fields.Has(provisioner.FieldKeep) {
		m.Keep = false
	}
}
