package provisionertest

import (
	"context"
	"runtime"
	"slices"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// suffer lets what was scripted for this side of the effect happen.
func (w *World) suffer(ctx context.Context, c *call, after bool) error {
	for _, f := range c.hits {
		if f.After != after {
			continue
		}
		if err := w.sufferOne(ctx, c, f.Fault); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) sufferOne(ctx context.Context, c *call, f Fault) error {
	switch f.What {
	case TroubleError:
		if !c.singles(f) {
			return f.error()
		}
	case TroubleDelay:
		w.wait(ctx, f.For)
		return ctx.Err()
	case TroublePanic:
		w.end(c, "", &Crash{"panic: " + f.message()})
		panic(f.message())
	case TroubleGoexit:
		w.end(c, "", &Crash{"goexit"})
		runtime.Goexit()
	case TroubleHang:
		<-ctx.Done()
		return ctx.Err()
	case TroubleStuck:
		w.beStuck(f)
	}
	return nil
}

// beStuck ignores the context for a time, or until it is released.
func (w *World) beStuck(f Fault) {
	if f.For > 0 {
		w.wait(context.Background(), f.For)
		return
	}
	w.mu.Lock()
	release := w.release
	w.stuck++
	w.mu.Unlock()
	<-release
}

// Release lets the calls go on that are stuck now.
func (w *World) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deed("release")
	close(w.release)
	w.release = make(chan struct{})
	w.stuck = 0
}

// Stuck counts the calls that wait for Release.
func (w *World) Stuck() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stuck
}

// singles says whether an error hits only a part of what the call is about,
// and so belongs into its result.
func (c *call) singles(f Fault) bool {
	switch c.kind {
	case CallStop:
		return f.Machine != "" || f.Zone != "" || f.Instance != ""
	case CallFleet, CallMachines, CallInfo, CallRetries, CallGroups, CallAuth, CallIntents, CallProfiles:
		return f.Machine != ""
	}
	return false
}

// twisted says whether the call's result is to be twisted so.
func (c *call) twisted(what Trouble) (Fault, bool) {
	for _, f := range c.hits {
		if f.What == what {
			return f.Fault, true
		}
	}
	return Fault{}, false
}

// kindOf says how to twist results of one type.
type kindOf[R any] struct {
	about func(f Fault, r R) bool // the fault names this very result
	alien R
	fail  func(r R, err error) R // nil: it can't fail by itself
}

// twist does to a list of results what was scripted for it. It may change the
// list, which is nobody else's yet.
func (k kindOf[R]) twist(c *call, all []R) []R {
	for _, f := range c.hits {
		at := slices.IndexFunc(all, func(r R) bool { return k.about(f.Fault, r) })
		switch {
		case f.What == TroubleForeign:
			all = append(all, k.alien)
		case at < 0:
		case f.What == TroubleMissing:
			all = slices.Delete(all, at, at+1)
		case f.What == TroubleDouble:
			all = slices.Insert(all, at+1, all[at])
		case f.What == TroubleError && k.fail != nil && c.singles(f.Fault):
			all[at] = k.fail(all[at], f.error())
		}
	}
	return all
}

// aliens of each sort.
const (
	alienMachine  provisioner.MachineID  = "alien"
	alienInstance provisioner.InstanceID = "i-alien"
	alienZone     provisioner.ZoneName   = "alien"
)

func aboutMachine(f Fault, id provisioner.MachineID) bool { return f.Machine == "" || f.Machine == id }

var (
	zoneKind = kindOf[provisioner.Zone]{
		about: func(f Fault, z provisioner.Zone) bool { return f.Zone == "" || f.Zone == z.Name },
		alien: provisioner.Zone{Name: alienZone, Available: true},
	}
	machineKind = kindOf[provisioner.MachineResult]{
		about: func(f Fault, r provisioner.MachineResult) bool { return aboutMachine(f, r.ID) },
		alien: provisioner.MachineResult{ID: alienMachine, Machine: provisioner.Machine{ID: alienMachine, Life: provisioner.Alive, Status: provisioner.StatusPending}},
		fail: func(r provisioner.MachineResult, err error) provisioner.MachineResult {
			return provisioner.MachineResult{ID: r.ID, Err: err}
		},
	}
	infoKind = kindOf[provisioner.StartInfoResult]{
		about: func(f Fault, r provisioner.StartInfoResult) bool { return aboutMachine(f, r.ID) },
		alien: provisioner.StartInfoResult{ID: alienMachine},
		fail: func(r provisioner.StartInfoResult, err error) provisioner.StartInfoResult {
			return provisioner.StartInfoResult{ID: r.ID, Err: err}
		},
	}
	groupKind = kindOf[provisioner.GroupResult]{
		about: func(f Fault, r provisioner.GroupResult) bool { return aboutMachine(f, r.ID) },
		alien: provisioner.GroupResult{ID: alienMachine},
		fail: func(r provisioner.GroupResult, err error) provisioner.GroupResult {
			return provisioner.GroupResult{ID: r.ID, Err: err}
		},
	}
	authKind = kindOf[provisioner.AuthResult]{
		about: func(f Fault, r provisioner.AuthResult) bool { return aboutMachine(f, r.ID) },
		alien: provisioner.AuthResult{ID: alienMachine},
		fail: func(r provisioner.AuthResult, err error) provisioner.AuthResult {
			return provisioner.AuthResult{ID: r.ID, Err: err}
		},
	}
	intentKind = kindOf[provisioner.IntentResult]{
		about: func(f Fault, r provisioner.IntentResult) bool { return aboutMachine(f, r.ID) },
		alien: provisioner.IntentResult{ID: alienMachine},
		fail: func(r provisioner.IntentResult, err error) provisioner.IntentResult {
			return provisioner.IntentResult{ID: r.ID, Err: err}
		},
	}
	profileKind = kindOf[provisioner.ProfileChangeResult]{
		about: func(f Fault, r provisioner.ProfileChangeResult) bool { return aboutMachine(f, r.ID) },
		alien: provisioner.ProfileChangeResult{ID: alienMachine},
		fail: func(r provisioner.ProfileChangeResult, err error) provisioner.ProfileChangeResult {
			return provisioner.ProfileChangeResult{ID: r.ID, Err: err}
		},
	}
)

// twistListing does to a listing what was scripted for it.
func (w *World) twistListing(c *call, l provisioner.Listing) provisioner.Listing {
	if len(c.hits) == 0 {
		return l
	}
	l.Instances = kindOf[provisioner.Instance]{
		about: func(f Fault, i provisioner.Instance) bool { return w.concernsInstance(f, i.ID) },
		alien: provisioner.Instance{ID: alienInstance},
	}.twist(c, l.Instances)
	for _, f := range c.hits {
		switch {
		case f.What != TroublePartial:
		case f.Zone != "":
			l.Failed = append(l.Failed, f.Zone)
			l.Instances = slices.DeleteFunc(l.Instances, func(i provisioner.Instance) bool { return i.Zone == f.Zone })
		default:
			l.Complete = false
			n := 0
			l.Instances = slices.DeleteFunc(l.Instances, func(provisioner.Instance) bool { n++; return n%2 == 0 })
		}
	}
	return l
}

// stopFault gives the error that was scripted for stopping one instance.
func (w *World) stopFault(c *call, id provisioner.InstanceID, after bool) error {
	for _, f := range c.hits {
		if f.What == TroubleError && f.After == after && c.singles(f.Fault) && w.concernsInstance(f.Fault, id) {
			return errors.Annotatef(f.error(), "instance %s", id)
		}
	}
	return nil
}
