package provisioner

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/juju/errors"
	"golang.org/x/sync/errgroup"

	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// This file is the only one that calls the host. Each operation of the engine
// is carried out here by one goroutine; whatever the host does in it (fail,
// panic, end the goroutine, ignore its context) becomes an outcome.

// host is all that operations need of a Config.
type host struct {
	Optional
	broker       Broker
	state        State
	startLimiter Limiter
	stopLimiter  Limiter
	veto         Veto
	drainer      Drainer
	lease        Lease
	naming       ProfileNaming
	controller   string
	tag          string
	random       func() uint64
}

func secureRandom() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// ErrLeaseLost ends a Task whose lease is lost (LC6).
const ErrLeaseLost = errors.ConstError("the lease is lost")

// ErrPanic is what the error of a host call matches that panicked or ended its
// goroutine. Its text holds the stack.
const ErrPanic = errors.ConstError("host call did not return")

// call is the shell's side of an operation: the context of the host call that
// it is making.
type call struct {
	mu     sync.Mutex
	phase  opPhase
	ctx    context.Context
	cancel context.CancelCauseFunc

	disown bool // the machine no longer wants what is being made for it
}

// cut cancels the host call, if it still is the one that is meant.
func (c *call) cut(x cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disown = c.disown || x.cause == errUnwanted
	switch {
	case c.phase != x.phase:
	case x.phase == phaseLaunch && x.cause == errUnwanted && !x.hard:
		// A start that is cut off may have made an instance that nobody would
		// ever find again, so it is let end, and what it makes is stopped.
	default:
		c.cancel(x.cause)
	}
}

func (c *call) disowned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.disown
}

// why is the error of the call that was made last, with the reason why that
// was cancelled: its context alone says no more than that it was.
func (c *call) why(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cause := context.Cause(c.ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return withCause(err, cause)
	}
	return err
}

// running is one operation under way.
type running struct {
	*host
	call
	op   *op
	base context.Context
	post func(message)

	result  any
	err     error
	note    error
	attempt *attempted // of an opStart, as far as it has come
}

// prepareToRun makes an operation ready to be carried out, and to be cancelled.
func (h *host) prepareToRun(base context.Context, o *op, post func(message)) *running {
	r := &running{host: h, op: o, base: base, post: post}
	if o.kind == opStart {
		r.attempt = &attempted{}
	}
	r.phase = o.phase
	r.ctx, r.cancel = context.WithCancelCause(base)
	o.call = &r.call
	return r
}

// run carries an operation out and posts its outcome, whatever happens.
func (r *running) run() {
	o := r.op
	returned := false
	defer func() {
		if !returned {
			r.spoil(faultOf(recover()))
		}
		if r.err = r.why(tame(r.err)); o.kind == opStart {
			r.attempt.write = r.why(tame(r.attempt.write))
			r.result = r.attempt
		}
		r.cancel(nil)
		r.post(message{kind: msgOutcome, op: o, result: r.result, err: r.err, note: r.note})
	}()
	r.do()
	returned = true
}

// faultOf makes an error of what ended a host call.
func faultOf(recovered any) error {
	if recovered == nil {
		return errors.WithType(errors.New("a host call ended its goroutine"), ErrPanic)
	}
	return errors.WithType(fmt.Errorf("a host call panicked: %v\n%s", recovered, debug.Stack()), ErrPanic)
}

// tame is an error of the host that can be looked at. One that cannot is
// replaced; most often it is a typed nil, and was meant to be none.
func tame(err error) (looked error) {
	if err == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			looked = Ambiguous(errors.Errorf("the host gave an error that cannot be looked at, of type %T (a typed nil is not nil): %v", err, p))
		}
	}()
	OutcomeOf(err)
	_ = err.Error()
	return err
}

// spoil turns a fault into the outcome that is true of where it happened.
func (r *running) spoil(fault error) {
	a := r.attempt
	switch {
	case r.op.kind != opStart:
		r.err = fault
	case r.call.phase == phaseLimit:
		a.start = ZoneIndependent(fault)
	case r.call.phase == phaseIntent:
		a.intent = fault
	case a.record.Instance == "":
		a.start = Ambiguous(fault)
	case a.unwanted == nil:
		a.write = fault
	}
}

// at goes on to a further host call, with a context of its own.
func (r *running) at(phase opPhase) context.Context {
	ctx, further := r.call.enter(r.base, phase)
	if further {
		r.post(message{kind: msgPhase, op: r.op, phase: phase}) // with nothing locked: it may turn the engine
	}
	return ctx
}

func (c *call) enter(base context.Context, phase opPhase) (ctx context.Context, further bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if further = c.phase != phase; further {
		c.phase = phase
		if c.ctx.Err() != nil { // the call before was cancelled, not this one
			c.ctx, c.cancel = context.WithCancelCause(base)
		}
	}
	return c.ctx, further
}

// held gives the epoch of the lease, right before something is changed, or why
// nothing may be (LC6). Without a lease everything may, and the epoch is 0.
func (h *host) held() (epoch uint64, err error) {
	switch {
	case h.lease == nil:
		return 0, nil
	case !h.lease.Held():
		return 0, ErrLeaseLost
	}
	return h.lease.Epoch(), nil
}

func (r *running) do() {
	ctx := r.call.ctx
	switch r.op.kind {
	case opFleet:
		fleet, err := r.state.Fleet(ctx)
		r.result, r.err = sortedFleet(tameResults(slices.Clone(fleet))), err // sorted here, for it takes long
	case opMachines, opConfirm:
		ids := r.op.req.([]MachineID)
		results, err := r.state.Machines(ctx, slices.Clone(ids)...)
		if r.err = err; err == nil {
			r.result, r.note = eachMachine(ids, results)
		}
	case opListing:
		r.result, r.err = r.broker.Instances(ctx)
	case opZones:
		r.result, r.err = r.zones(ctx)
	case opRetries:
		results, err := r.Retries.RetryMachines(ctx)
		r.result, r.err = tameResults(slices.Clone(results)), err
	case opChanges:
		r.readChanges(ctx, r.op.req.([]MachineID))
	case opSpared:
		r.result, r.err = r.spared(ctx)
	case opUnspare:
		req := SparedRemoval{Instances: slices.Clone(r.op.req.([]InstanceID))}
		if req.Epoch, r.err = r.held(); r.err == nil {
			r.err = r.SparedStore.RemoveSpared(ctx, req)
		}
	case opPrepare:
		r.prepare(ctx, r.op.req.([]need))
	case opDerive:
		c := r.op.req.(startCall)
		r.complete(&c)
		r.result, r.err = r.Deriver.DeriveZones(ctx, c.request)
	case opStart:
		if c := r.op.req.(startCall); c.adopt != nil {
			r.adopt(ctx, *c.adopt)
		} else {
			r.start(c)
		}
	case opFind, opCensus:
		r.result, r.err = r.Finder.FindInstances(ctx, r.op.req.(Labels))
	case opAsk:
		r.ask(r.op.req.(StopNotice))
	case opStop:
		r.stop(r.op.req.(StopRequest))
	case opRemove:
		r.remove(ctx, r.op.req.(removalCall))
	case opMaintain:
		req := r.op.req.(MaintainRequest)
		if req.Epoch, r.err = r.held(); r.err == nil {
			r.err = r.Maintainer.Maintain(ctx, req)
		}
	case opProfile:
		r.changeProfile(ctx, r.op.req.(ProfileChangeRequest))
	case opDocument:
		r.writeDocument(ctx, r.op.req.(documentCall))
	case opStatus:
		req := r.op.req.(StatusUpdate)
		if req.Epoch, r.err = r.held(); r.err == nil {
			r.err = r.Status.WriteStatus(ctx, req)
		}
	}
}

// zones lists the broker's zones. Where none of them has a name the list is no
// list: that is not the same as there being none (AZ1, AZ3).
func (h *host) zones(ctx context.Context) ([]Zone, error) {
	zones, err := h.Zones.Zones(ctx)
	if err == nil && len(zones) > 0 && !slices.ContainsFunc(zones, func(z Zone) bool { return z.Name != "" }) {
		return nil, errors.NotValidf("%d zones, all without a name:", len(zones))
	}
	return zones, err
}

// prepare reads in bulk what starts need: information, then groups, then
// credentials, each in one call, and agent binaries where they are looked up.
func (r *running) prepare(ctx context.Context, needs []need) {
	all := make([]prepared, len(needs))
	for i, n := range needs {
		all[i] = prepared{nonce: n.Nonce, info: n.Info, authed: n.Auth}
		if n.Config != nil {
			all[i].config = *n.Config
		}
	}
	r.prepareInfo(ctx, needs, all)
	r.prepareAgents(needs, all)
	r.prepareGroups(needs, all)
	r.prepareAuth(needs, all)
	if r.err == nil {
		r.result = all
	}
}

// those are the places and ids of the machines that are wanted and that
// nothing has gone wrong for yet.
func those(needs []need, all []prepared, want func(need) bool) (places []int, ids []MachineID) {
	places, ids = make([]int, 0, len(needs)), make([]MachineID, 0, len(needs))
	for i, n := range needs {
		if all[i].err == nil && want(n) {
			places, ids = append(places, i), append(ids, n.Machine)
		}
	}
	return places, ids
}

func (r *running) prepareInfo(ctx context.Context, needs []need, all []prepared) {
	places, ids := those(needs, all, func(n need) bool { return !n.Ready })
	if len(ids) == 0 {
		return
	}
	results, err := r.state.StartInfo(ctx, slices.Clone(ids)...)
	if r.err = err; err != nil {
		return
	}
	infos, note := each(ids, results, func(x *StartInfoResult) MachineID { return x.ID },
		func(id MachineID, err error) StartInfoResult { return StartInfoResult{ID: id, Err: err} })
	r.note = note
	for i, x := range infos {
		one := &all[places[i]]
		one.info, one.group = &x.Info, x.Info.Group
		one.fail("start information", x.Err, errors.Is(x.Err, errors.NotValid))
	}
	r.prepareIntents(needs, all)
	for i, x := range infos {
		one := &all[places[i]]
		if one.nonce == "" {
			one.nonce = x.Info.Nonce
		}
		if one.nonce == "" {
			one.nonce = r.newNonce()
		}
		if one.err == nil {
			one.config, one.err = x.Info.settle(x.ID, one.nonce, r.Agents != nil)
			one.final = one.err != nil
		}
	}
}

// prepareIntents reads the attempts that were stored: an open one goes on with
// the nonce that it has (ST10).
func (r *running) prepareIntents(needs []need, all []prepared) {
	if r.Intents == nil {
		return
	}
	places, ids := those(needs, all, func(n need) bool { return !n.Ready })
	if len(ids) == 0 {
		return
	}
	results, err := r.Intents.Intents(r.at(phaseIntents), slices.Clone(ids)...)
	if err != nil {
		r.err = errors.Annotate(err, "intents")
		return
	}
	intents, note := each(ids, results, func(x *IntentResult) MachineID { return x.ID },
		func(id MachineID, err error) IntentResult { return IntentResult{ID: id, Err: err} })
	r.alsoNote(note)
	for i, x := range intents {
		one := &all[places[i]]
		if one.fail("intent", x.Err, false); x.Err == nil {
			one.intent = x.Intent
			if x.Intent.Attempt > 0 && x.Intent.Nonce != "" {
				one.nonce = x.Intent.Nonce
			}
		}
	}
}

// maxLookups bounds how many agent binaries are looked up at once.
const maxLookups = 16

// prepareAgents looks agent binaries up, once for each query of the bulk and
// side by side (IC3). A look-up that fails is that of the machines it is for.
func (r *running) prepareAgents(needs []need, all []prepared) {
	if r.Agents == nil || r.err != nil {
		return
	}
	asking := map[AgentQuery][]*prepared{}
	for i := range all {
		if one := &all[i]; one.err == nil && !needs[i].Ready && one.info.needsAgent() {
			q := one.info.agentQuery()
			asking[q] = append(asking[q], one)
		}
	}
	if len(asking) == 0 {
		return
	}
	ctx := r.at(phaseAgents)
	var lookups errgroup.Group
	lookups.SetLimit(maxLookups)
	for q, machines := range asking {
		lookups.Go(func() error {
			found, err := guarded(func() ([]AgentBinary, error) { return r.Agents.FindAgents(ctx, q) })
			if err == nil || errors.Is(err, errors.NotFound) {
				found, err = ChooseAgents(found, q)
			}
			for _, one := range machines {
				if one.info.Agents = slices.Clone(found); errors.Is(err, ErrNoAgents) {
					one.err, one.final = err, true
				} else {
					one.fail("agent binaries", err, errors.Is(err, errors.NotValid))
				}
			}
			return nil
		})
	}
	_ = lookups.Wait() // an error is its machines'
}

// guarded makes a host call whose fault is no reason to give up the operation
// that it is a part of.
func guarded[T any](do func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	go func() {
		returned := false
		defer func() {
			if !returned {
				err = faultOf(recover())
			}
			close(done)
		}()
		value, err = do()
		err, returned = tame(err), true
	}()
	<-done
	return value, err
}

func (r *running) prepareGroups(needs []need, all []prepared) {
	if r.Groups == nil || r.err != nil {
		for i, n := range needs {
			if n.Ready {
				all[i].group = n.Info.Group
			}
		}
		return
	}
	places, ids := those(needs, all, func(need) bool { return true })
	if len(ids) == 0 {
		return
	}
	results, err := r.Groups.Groups(r.at(phaseNext), slices.Clone(ids)...)
	if err != nil {
		r.err = errors.Annotate(err, "groups")
		return
	}
	groups, note := each(ids, results, func(x *GroupResult) MachineID { return x.ID },
		func(id MachineID, err error) GroupResult { return GroupResult{ID: id, Err: err} })
	r.alsoNote(note)
	for i, x := range groups {
		all[places[i]].group = x.Group
		all[places[i]].fail("distribution group", x.Err, true)
	}
}

func (r *running) prepareAuth(needs []need, all []prepared) {
	if r.Authenticator == nil || r.err != nil {
		return
	}
	places, ids := those(needs, all, func(n need) bool { return n.Auth })
	if len(ids) == 0 {
		return
	}
	epoch, err := r.held()
	if r.err = err; err != nil {
		return
	}
	reqs := make([]AuthRequest, len(ids))
	for i, id := range ids {
		reqs[i] = AuthRequest{id, all[places[i]].nonce, epoch}
	}
	results, err := r.Authenticator.Authenticate(r.at(phaseNext2), reqs...)
	if err != nil {
		r.err = errors.Annotate(err, "authentication")
		return
	}
	auths, note := each(ids, results, func(x *AuthResult) MachineID { return x.ID },
		func(id MachineID, err error) AuthResult { return AuthResult{ID: id, Err: err} })
	r.alsoNote(note)
	for i, x := range auths {
		one := &all[places[i]]
		if one.fail("authentication", x.Err, errors.Is(x.Err, errors.NotValid)); x.Err == nil {
			one.config, one.err = one.config.WithAuth(x.Auth)
			one.final = one.err != nil
		}
	}
}

func (p *prepared) fail(what string, err error, final bool) {
	if err != nil {
		p.err, p.final = errors.Annotate(tame(err), what), final
	}
}

func (r *running) alsoNote(note error) {
	if note != nil {
		r.note = note
	}
}

// newNonce is "<host tag>:<uuid>", a random UUID of version 4.
func (h *host) newNonce() string {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], h.random())
	binary.BigEndian.PutUint64(u[8:], h.random())
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	x := hex.EncodeToString(u[:])
	return h.tag + ":" + x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

// complete fills in what only the shell can: token and functions.
func (h *host) complete(c *startCall) {
	q := &c.request
	if q.Token == "" {
		q.Token = attemptToken(q.Labels.Controller, q.Machine, q.Nonce, q.Attempt)
	}
	q.Labels.Token = q.Token
	id, members := q.Machine, c.group
	q.Group = func(ctx context.Context) ([]InstanceID, error) {
		// Guarded, or a panic of the state would be taken for the start's.
		instances, err := guarded(func() ([]InstanceID, error) { return h.groupInstances(ctx, id, members) })
		return instances, ZoneIndependent(err) // or the next zone might be a member's
	}
	q.Report = func(InstanceStatus, string) {}
}

// attemptToken is the idempotency key of an attempt: the same for the same
// controller, machine, nonce and number, and no other (ST10).
func attemptToken(controller string, machine MachineID, nonce string, attempt int) string {
	text := make([]byte, 0, 128)
	for _, part := range [...]string{controller, string(machine), nonce} {
		text = append(strconv.AppendQuote(text, part), ' ')
	}
	sum := sha256.Sum256(strconv.AppendInt(text, int64(attempt), 10))
	return hex.EncodeToString(sum[:16])
}

// groupInstances are the instances of the machines to be kept apart from, the
// machine's own included once it has one (DG2, DG3).
func (h *host) groupInstances(ctx context.Context, id MachineID, members []MachineID) ([]InstanceID, error) {
	if len(members) == 0 {
		return nil, nil
	}
	ids := slices.Clone(members)
	slices.SortFunc(ids, MachineID.Compare)
	ids = slices.Compact(ids)
	results, err := h.state.Machines(ctx, slices.Clone(ids)...)
	if err != nil {
		return nil, errors.Annotatef(err, "instances of the group of machine %s", id)
	}
	results, _ = eachMachine(ids, results)
	var instances []InstanceID
	for _, x := range results {
		switch {
		case errors.Is(x.Err, errors.NotFound):
		case x.Err != nil:
			return nil, errors.Annotatef(x.Err, "instances of the group of machine %s", id)
		case x.Machine.Instance != "":
			instances = append(instances, x.Machine.Instance)
		}
	}
	slices.Sort(instances)
	return instances, nil
}

// start is one attempt: the broker's start, and writing down what came of it.
func (r *running) start(c startCall) {
	a := r.attempt
	r.complete(&c)
	if r.call.phase == phaseLimit {
		if err := pass(r.call.ctx, r.startLimiter); err != nil {
			a.start = ZoneIndependent(errors.Annotate(tame(err), "waiting for the start limiter"))
			return
		}
	}
	if r.Intents != nil && !r.disowned() {
		if a.intent = r.intend(c); a.intent != nil {
			return
		}
	}
	ctx := r.at(phaseLaunch)
	if r.disowned() {
		a.start = errUnwanted
		return
	}
	epoch, err := r.held()
	if err != nil {
		a.start = ZoneIndependent(err)
		return
	}
	c.request.Epoch, c.request.Labels.Epoch = epoch, epoch
	var over atomic.Bool
	c.request.Report = func(status InstanceStatus, text string) {
		if !over.Load() {
			r.post(message{kind: msgReport, op: r.op, update: &StatusUpdate{InstanceStatus: status, Text: text}})
		}
	}
	defer over.Store(true)
	result, err := r.broker.Start(ctx, c.request)
	over.Store(true)
	if err != nil {
		a.start = startFailure(ctx, tame(err))
		return
	}
	if result.Instance == "" {
		a.start = oddResult(c.request, result)
		return
	}
	a.record = recordOf(c.request, result)
	if a.unwanted = r.unwanted(c.request, result); a.unwanted != nil {
		return
	}
	if result.Profiles == nil && r.Namer != nil && c.request.Machine.IsContainer() {
		ctx = r.at(phaseProfiles)
		a.profiles = r.profiles(ctx, c.request)
		if a.unwanted = r.unwanted(c.request, result); a.unwanted != nil {
			return
		}
	}
	ctx = r.at(phaseRecord)
	if a.record.Epoch, a.write = r.held(); a.write == nil {
		a.write = r.state.SetInstance(ctx, a.record)
	}
}

// intend stores the attempt before it is made, in the place of what is stored.
// One that is repeated is stored already, unless under another lease.
func (r *running) intend(c startCall) error {
	q := &c.request
	epoch, err := r.held()
	if err != nil {
		return err
	}
	next := Intent{Machine: q.Machine, Attempt: q.Attempt, Token: q.Token, Nonce: q.Nonce, Zone: q.Zone, At: c.at, Epoch: epoch}
	if c.stored.Token == next.Token {
		if next.At = c.stored.At; next.Epoch == c.stored.Epoch {
			return nil
		}
	}
	r.attempt.token = next.Token
	if err := r.Intents.SwapIntent(r.at(phaseIntent), c.stored, next); err != nil {
		return err
	}
	r.attempt.stored = &next
	return nil
}

// adopt records an instance that is there.
func (r *running) adopt(ctx context.Context, record InstanceRecord) {
	a := r.attempt
	a.record = record
	if a.record.Epoch, a.write = r.held(); a.write == nil {
		a.write = r.state.SetInstance(ctx, a.record)
	}
}

// profiles has the broker tell which profiles a container has. It returns why
// it could not; those asked for are recorded then (IC7).
func (r *running) profiles(ctx context.Context, q StartRequest) error {
	names, err := guarded(func() ([]string, error) {
		return r.Namer.ProfileNames(ctx, ProfileNamesRequest{q.Machine, r.attempt.record.Instance, slices.Clone(q.Profiles)})
	})
	var f faults
	if f.profiles(names); err == nil && f != nil {
		err = errors.NotValidf("profiles of machine %s: the broker's result: %s:", q.Machine, strings.Join(f, "; "))
	}
	if err == nil {
		r.attempt.record.Profiles = names
	}
	return r.why(err)
}

// startFailure is the error of a start. After its context has ended, whether
// an instance was made cannot be told, whatever the broker says (ST11).
func startFailure(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil && !cutOff(err):
		return err
	case cause == nil || errors.Is(err, cause):
		return Ambiguous(err)
	}
	return Ambiguous(withCause(err, cause))
}

// withCause says in an error why its call was cancelled.
func withCause(err, cause error) error {
	err = errors.Annotatef(err, "%v", cause)
	if errors.Is(cause, ErrTimedOut) {
		return errors.WithType(err, ErrTimedOut)
	}
	return err
}

// cutOff says whether a call ended before its answer was there.
func cutOff(err error) bool {
	for _, end := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// unwanted is why an instance must not stay, or nil (ST9, ST13).
func (r *running) unwanted(q StartRequest, result StartResult) error {
	if r.disowned() {
		return errUnwanted
	}
	return oddResult(q, result)
}

// pass waits for a limiter. One that ignores its context lets nothing through
// once that has ended.
func pass(ctx context.Context, l Limiter) error {
	if err := l.Wait(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (r *running) stop(req StopRequest) {
	if r.call.phase == phaseLimit {
		if r.err = pass(r.call.ctx, r.stopLimiter); r.err != nil {
			return
		}
	}
	ctx := r.at(phaseCall)
	req.Instances = slices.Clone(req.Instances)
	if req.Epoch, r.err = r.held(); r.err == nil {
		r.err = r.broker.Stop(ctx, req)
	}
}

// spared reads what the host remembers of instances that were left running.
func (h *host) spared(ctx context.Context) ([]Spared, error) {
	all, err := h.SparedStore.Spared(ctx)
	return slices.DeleteFunc(slices.Clone(all), func(s Spared) bool { return s.Instance == "" }), err
}

// ask asks the host before a stop: first whether it may be, then to get ready.
func (r *running) ask(n StopNotice) {
	ctx := r.call.ctx
	if r.veto != nil {
		if err := tame(r.veto.MayStop(ctx, n)); err != nil {
			r.err = errors.WithType(errors.Annotate(err, "vetoed"), ErrVetoed)
			return
		}
	}
	if r.drainer != nil {
		if _, r.err = r.held(); r.err != nil {
			return
		}
		if r.err = r.drainer.Drain(r.at(phaseDrain), n); r.err != nil {
			r.err = errors.Annotate(tame(r.err), "draining")
		}
	}
}

func (r *running) remove(ctx context.Context, c removalCall) {
	epoch, err := r.held()
	if r.err = err; err != nil {
		return
	}
	if c.ensureDead {
		err := r.Life.EnsureDead(ctx, LifeRequest{c.machine, epoch})
		if r.err = errors.Annotate(err, "making it dead"); err != nil {
			return
		}
		ctx = r.at(phaseNext)
		if epoch, r.err = r.held(); r.err != nil {
			return
		}
	}
	if c.spared != nil { // before nobody knows any more whose it was (HV3, HV4)
		s := *c.spared
		s.Epoch = epoch
		if r.err = errors.Annotate(r.SparedStore.AddSpared(ctx, s), "remembering its instance"); r.err != nil {
			return
		}
		ctx = r.at(phaseNext2)
		if epoch, r.err = r.held(); r.err != nil {
			return
		}
	}
	r.err = r.state.Remove(ctx, Removal{Machine: c.machine, Epoch: epoch})
}

// readChanges reads profile changes, and the records of the machines that have
// one to be made.
func (r *running) readChanges(ctx context.Context, ids []MachineID) {
	results, err := r.ProfileState.ProfileChanges(ctx, slices.Clone(ids)...)
	if r.err = err; err != nil {
		return
	}
	changes, note := each(ids, results, func(x *ProfileChangeResult) MachineID { return x.ID },
		func(id MachineID, err error) ProfileChangeResult { return ProfileChangeResult{ID: id, Err: err} })
	r.note = note
	all := make([]changeRead, len(ids))
	var open []MachineID
	for i, x := range changes {
		all[i].change = *x
		if all[i].change.Err = tame(x.Err); x.Err == nil && !ProfileTerminal(x.Change.Status) {
			open = append(open, ids[i])
		}
	}
	if len(open) > 0 {
		results, err := r.state.Machines(r.at(phaseNext), slices.Clone(open)...)
		if r.err = errors.Annotate(err, "records"); err != nil {
			return
		}
		records, note := eachMachine(open, results)
		r.alsoNote(note)
		for i := range all {
			if len(open) > 0 && open[0] == ids[i] {
				all[i].record, open, records = &records[0], open[1:], records[1:]
			}
		}
	}
	r.result = all
}

// changeProfile has the broker change an instance's profiles, and records those
// that it has then (LX2).
func (r *running) changeProfile(ctx context.Context, req ProfileChangeRequest) {
	if req.Epoch, r.err = r.held(); r.err != nil {
		return
	}
	names, err := r.Profiles.ChangeProfile(ctx, req)
	if r.err = err; err != nil {
		return
	}
	rec := ProfileRecord{Machine: req.Machine, Profiles: r.naming.Filter(names)}
	ctx = r.at(phaseRecord)
	if rec.Epoch, r.err = r.held(); r.err == nil {
		r.err = r.ProfileState.SetProfiles(ctx, rec)
	}
}

// writeDocument writes down what has become of a profile change.
func (r *running) writeDocument(ctx context.Context, c documentCall) {
	epoch, err := r.held()
	switch {
	case err != nil:
		r.err = err
	case c.remove:
		r.err = r.ProfileState.RemoveProfileChange(ctx, Removal{Machine: c.update.Machine, Change: c.update.Change, Epoch: epoch})
	default:
		c.update.Epoch = epoch
		r.err = r.ProfileState.SetProfileStatus(ctx, c.update)
	}
}

// each puts the results of a bulk call into the order of the ids that were
// asked for, which the host was given a copy of, for it may sort what it is
// given: exactly one for each. One that is missing, or given twice, is an
// error of that id; one that nobody asked for is noted (LD2).
func each[R any](ids []MachineID, results []R, idOf func(*R) MachineID, bad func(MachineID, error) R) (sorted []*R, note error) {
	sorted = make([]*R, len(ids))
	for i := range sorted {
		if len(results) != len(ids) || idOf(&results[i]) != ids[i] {
			return eachOutOfOrder(ids, results, idOf, bad)
		}
		sorted[i] = &results[i]
	}
	return sorted, nil
}

func eachOutOfOrder[R any](ids []MachineID, results []R, idOf func(*R) MachineID, bad func(MachineID, error) R) (sorted []*R, note error) {
	given := make(map[MachineID][]*R, len(ids))
	for _, id := range ids {
		given[id] = nil
	}
	for i := range results {
		id := idOf(&results[i])
		if !has(given, id) {
			note = errors.NotValidf("result for machine %q, which was not asked for:", string(id))
			continue
		}
		given[id] = append(given[id], &results[i])
	}
	sorted = make([]*R, len(ids))
	for i, id := range ids {
		switch one := given[id]; len(one) {
		case 0:
			r := bad(id, errors.Errorf("machine %s: no result", id))
			sorted[i] = &r
		case 1:
			sorted[i] = one[0]
		default:
			r := bad(id, errors.Errorf("machine %s: two results", id))
			sorted[i] = &r
		}
	}
	return sorted, note
}

func has[K comparable, V any](m map[K]V, k K) bool {
	_, ok := m[k]
	return ok
}

// eachMachine is each for records.
func eachMachine(ids []MachineID, results []MachineResult) ([]MachineResult, error) {
	sorted, note := each(ids, results, func(x *MachineResult) MachineID { return x.ID },
		func(id MachineID, err error) MachineResult { return MachineResult{ID: id, Err: err} })
	values := make([]MachineResult, len(ids))
	for i, x := range sorted {
		values[i] = *x
	}
	return tameResults(values), note
}

// tameResults makes each record's error tame.
func tameResults(results []MachineResult) []MachineResult {
	for i := range results {
		results[i].Err = tame(results[i].Err)
	}
	return results
}

// snapshot reads all that a plan is made from. It changes nothing. The three
// readings that depend on nothing run side by side.
func (h *host) snapshot(ctx context.Context, c clock.Clock, limit time.Duration) (s Snapshot, warnings []string, err error) {
	s.CanEnsureDead, s.CanMaintain = h.Life != nil, h.Maintainer != nil
	s.At, s.Controller = c.Now(), h.controller
	if h.Traits != nil {
		s.Labels = h.Traits.Traits().Labels
	}
	var listErr, zonesErr, sparedErr error
	var spared []Spared
	var g errgroup.Group
	g.Go(func() (err error) {
		s.Fleet, err = bounded(ctx, c, limit, h.state.Fleet)
		s.Fleet = tameResults(slices.Clone(s.Fleet))
		return errors.Annotate(err, "reading the fleet")
	})
	g.Go(func() error {
		s.Listing, listErr = bounded(ctx, c, limit, h.broker.Instances)
		return nil
	})
	if h.Zones != nil {
		g.Go(func() error {
			s.Zones, zonesErr = bounded(ctx, c, limit, h.zones)
			return nil
		})
	}
	if h.SparedStore != nil {
		g.Go(func() error {
			spared, sparedErr = bounded(ctx, c, limit, h.spared)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Snapshot{}, nil, err
	}
	own := map[Spared]bool{}
	for _, one := range spared {
		own[Spared{Instance: one.Instance, Machine: one.Machine}] = false
	}
	for i := range s.Fleet {
		m := &s.Fleet[i].Machine
		if of := (Spared{Instance: m.Instance, Machine: m.ID}); s.Fleet[i].Err == nil && has(own, of) {
			own[of] = true // its record is still there, and decides
		}
	}
	for _, one := range spared {
		if own[Spared{Instance: one.Instance, Machine: one.Machine}] {
			continue
		}
		if one.Kept {
			s.Kept = append(s.Kept, one.Instance)
		} else {
			s.Spared = append(s.Spared, one.Instance)
		}
	}
	if sparedErr != nil {
		s.SparedUnread = true
		warnings = append(warnings, "which instances were spared before could not be read: "+sparedErr.Error())
	}
	if listErr != nil {
		warnings = append(warnings, "the instances could not be listed: "+listErr.Error())
	}
	if zonesErr != nil && !errors.Is(zonesErr, errors.NotImplemented) && !errors.Is(zonesErr, errors.NotSupported) {
		s.ZonesUnread = true
		warnings = append(warnings, "the zones could not be read: "+zonesErr.Error())
	}
	s.Needs, err = h.needs(ctx, c, limit, s.Fleet)
	return s, warnings, err
}

// needs reads what the choice of a zone depends on, for machines that are
// pending.
func (h *host) needs(ctx context.Context, c clock.Clock, limit time.Duration, fleet []MachineResult) (map[MachineID]Needs, error) {
	var pending []MachineID
	seen := map[MachineID]bool{}
	for i := range fleet {
		if m := &fleet[i]; m.Err == nil && m.Machine.ID == m.ID && Classify(m.Machine).Class == ClassPending && !seen[m.ID] {
			seen[m.ID] = true
			pending = append(pending, m.ID)
		}
	}
	needs := make(map[MachineID]Needs, len(pending))
	for ids := range slices.Chunk(pending, maxIDs) {
		if err := h.needsOf(ctx, c, limit, ids, needs); err != nil {
			return nil, err
		}
	}
	return needs, nil
}

func (h *host) needsOf(ctx context.Context, c clock.Clock, limit time.Duration, ids []MachineID, needs map[MachineID]Needs) error {
	infos, err := bounded(ctx, c, limit, func(ctx context.Context) ([]StartInfoResult, error) {
		return h.state.StartInfo(ctx, slices.Clone(ids)...)
	})
	if err != nil {
		return errors.Annotate(err, "reading start information")
	}
	info, _ := each(ids, infos, func(x *StartInfoResult) MachineID { return x.ID },
		func(id MachineID, err error) StartInfoResult { return StartInfoResult{ID: id, Err: err} })
	var groups []*GroupResult
	if h.Groups != nil {
		found, err := bounded(ctx, c, limit, func(ctx context.Context) ([]GroupResult, error) { return h.Groups.Groups(ctx, slices.Clone(ids)...) })
		if err != nil {
			return errors.Annotate(err, "reading groups")
		}
		groups, _ = each(ids, found, func(x *GroupResult) MachineID { return x.ID },
			func(id MachineID, err error) GroupResult { return GroupResult{ID: id, Err: err} })
	}
	all := make([]Needs, len(ids))
	var derive errgroup.Group
	derive.SetLimit(maxDerives)
	for i, id := range ids {
		x, n := info[i], &all[i]
		*n = Needs{Zones: zoneNames(x.Info.Constraints.Zones), Group: x.Info.Group, Err: tame(x.Err)}
		var config instancecfg.Config
		if n.Err == nil {
			config, n.Err = x.Info.settle(id, h.tag+":plan", h.Agents != nil)
			config.Nonce = "" // a plan draws none
		}
		if groups != nil && n.Err == nil {
			n.Group, n.Err = groups[i].Group, tame(groups[i].Err)
		}
		if h.Deriver != nil && n.Err == nil && !id.IsContainer() {
			derive.Go(func() error {
				h.derive(ctx, c, limit, requestFor(h.controller, id, &x.Info, config), n)
				return nil
			})
		}
	}
	_ = derive.Wait() // an error is its machine's
	for i, id := range ids {
		needs[id] = all[i]
	}
	return nil
}

// maxDerives bounds how many calls of a plan derive zones at once.
const maxDerives = 16

func (h *host) derive(ctx context.Context, c clock.Clock, limit time.Duration, request StartRequest, n *Needs) {
	n.Derived, n.Err = bounded(ctx, c, limit, func(ctx context.Context) ([]ZoneName, error) {
		call := startCall{request: request, group: n.Group.Members}
		h.complete(&call)
		return h.Deriver.DeriveZones(ctx, call.request)
	})
	if errors.Is(n.Err, errors.NotImplemented) || errors.Is(n.Err, errors.NotSupported) {
		n.Err = nil
	}
}

// bounded makes one host call with a deadline of its own, and turns a panic
// into an error. A call that ignores its context is left behind.
func bounded[T any](ctx context.Context, c clock.Clock, limit time.Duration, do func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := make(chan answer, 1)
	go func() {
		var a answer
		returned := false
		defer func() {
			if !returned {
				a.err = faultOf(recover())
			}
			answers <- a
		}()
		a.value, a.err = do(ctx)
		a.err, returned = tame(a.err), true
	}()
	var late <-chan time.Time
	if limit > 0 {
		timer := c.Timer(limit)
		defer timer.Stop()
		late = timer.C
	}
	var none T
	select {
	case a := <-answers:
		return a.value, a.err
	case <-late:
		cancel(ErrTimedOut)
		return none, ErrTimedOut
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}
