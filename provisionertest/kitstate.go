package provisionertest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// What a state has to keep. Each rule makes the machines that it needs.
var stateRules = []rule{
	{Rule{"capabilities", "Everything that HostOptions.Must names is found, for a decorator that hides an ability is noticed nowhere else.", nil},
		normal, checkCapabilities},

	{Rule{"fleet-holds-all", "Fleet gives a result for every machine, each once: one that is absent does not exist.", nil},
		basic, checkFleet},
	{Rule{"machines-by-id", "Machines gives exactly one result for each id that it is asked for, with the record as it is.", nil},
		basic, checkMachines},
	{Rule{"machine-not-found", "A machine that does not exist is NotFound in its own result, and no error of the call: others are read all the same.", nil},
		normal, checkMachineNotFound},
	{Rule{"start-info-by-id", "StartInfo gives exactly one result for each id, and NotFound for a machine that does not exist.", nil},
		normal, checkStartInfo},
	{Rule{"nonce-kept", "StartInfo tells no nonce of a machine, or the same each time and another one for each machine: by it the broker knows an attempt again.", nil},
		normal, checkNonce},

	{Rule{"set-instance-records", "SetInstance writes instance and zone down; the next reading shows them.", nil},
		basic, checkSetInstance},
	{Rule{"set-instance-once", "SetInstance is an error, and changes nothing, if the record holds another instance: nothing else keeps a machine from having two.", nil},
		normal, checkSetInstanceOnce},
	{Rule{"set-instance-repeats", "SetInstance is a success if the record holds the instance already: after a lost reply a Task can't but ask again.", nil},
		normal, checkSetInstanceRepeats},
	{Rule{"set-instance-race", "Of two SetInstance at once for one machine one wins, and the record holds what won.", nil},
		normal, checkSetInstanceRace},
	{Rule{"set-instance-dead", "SetInstance is an error for a machine that is dead, and changes nothing: nobody would look for its instance.", nil},
		normal, checkSetInstanceDead},
	{Rule{"set-instance-gone", "SetInstance is an error for a machine that does not exist, and makes none.", nil},
		normal, checkSetInstanceGone},

	{Rule{"remove-dead", "Remove takes the record of a dead machine away.", nil},
		basic, checkRemove},
	{Rule{"remove-repeats", "Removing what is not there is a success: after a lost reply a Task can't but ask again.", nil},
		normal, checkRemoveRepeats},
	{Rule{"remove-living-refused", "The record of a machine that isn't dead is not removed, and that is an error: its instance would be nobody's.", nil},
		normal, checkRemoveLiving},

	{Rule{"results-are-callers", "What is read belongs to the caller: changing it changes no record.", nil},
		normal, checkSnapshots},
	{Rule{"ended-context", "Every call returns soon when its context has ended before.", nil},
		normal, checkStateEndedContext},
	{Rule{"concurrent-calls", "Every method may be called from several goroutines at once; a Task does so.", nil},
		normal, checkStateConcurrentCalls},

	{Rule{"watch-begins", "A new watcher delivers once at the beginning, whether anything changes or not: before that a Task does nothing.", []string{"HostOptions.Watch"}},
		normal, checkWatchBegins},
	{Rule{"watch-keeps-last", "A watcher that nobody receives from names every machine that has changed meanwhile once it is received from, the last one too.", []string{"HostOptions.Watch"}},
		normal, checkWatchKeepsLast},
	{Rule{"watch-coalesces", "Changes that nobody has received are merged, and hold up nobody who makes them.", []string{"HostOptions.Watch"}},
		normal, checkWatchCoalesces},
	{Rule{"watch-stops", "Stop of a watcher does not wait, and afterwards changes are made as ever.", []string{"HostOptions.Watch"}},
		normal, checkWatchStops},

	{Rule{"status-written", "WriteStatus sets the statuses that it is given; the next reading shows them, so that a failed machine stays failed over a restart.", []string{"StatusWriter"}},
		normal, checkStatus},
	{Rule{"status-kept", "WriteStatus without a machine status leaves that as it is.", []string{"StatusWriter"}},
		normal, checkStatusKept},
	{Rule{"ensure-dead", "EnsureDead makes a dying machine dead; doing it again is a success.", []string{"LifeSetter"}},
		normal, checkEnsureDead},
	{Rule{"ensure-dead-living", "EnsureDead is an error for a machine that is alive, and leaves it so.", []string{"LifeSetter"}},
		normal, checkEnsureDeadLiving},
	{Rule{"retry-machines", "RetryMachines gives the machines whose errors may pass, each once, and no others.", []string{"RetryLister", "HostOptions.SetRetryable"}},
		normal, checkRetryMachines},
	{Rule{"groups-by-id", "Groups gives exactly one result for each id, a zero group for a machine that is in none.", []string{"GroupFinder"}},
		normal, checkGroups},
	{Rule{"group-members", "Groups gives the members of the machine's group.", []string{"GroupFinder", "HostOptions.SetGroup"}},
		normal, checkGroupMembers},
	{Rule{"authenticate-each", "Authenticate gives exactly one result for each request, with credentials of its own.", []string{"Authenticator"}},
		normal, checkAuthenticate},
	{Rule{"agents-match", "FindAgents gives what matches the query; to find nothing is no error.", []string{"AgentFinder"}},
		normal, checkAgents},

	{Rule{"intents-by-id", "Intents gives exactly one result for each id: zero where none is stored, NotFound for a machine that does not exist.", []string{"IntentStore"}},
		normal, checkIntents},
	{Rule{"intent-swapped", "SwapIntent puts the next intent in the place of the old one, to the last field, and the zero one in the place of that.", []string{"IntentStore"}},
		normal, checkSwapIntent},
	{Rule{"intent-stale", "SwapIntent is an error, and changes nothing, if another intent is stored than the old one: that is how two controllers notice each other.", []string{"IntentStore"}},
		normal, checkStaleIntent},
	{Rule{"intent-race", "Of two SwapIntent at once from the same intent one wins, and what won is stored.", []string{"IntentStore"}},
		normal, checkIntentRace},
	{Rule{"spared-kept", "AddSpared remembers an instance, and what is said of it last.", []string{"SparedStore"}},
		normal, checkSpared},
	{Rule{"spared-removed", "RemoveSpared forgets what it is given, and nothing else; what is not remembered is a success.", []string{"SparedStore"}},
		normal, checkSparedRemoved},
	{Rule{"profile-changes-by-id", "ProfileChanges gives exactly one result for each id, with the change of that machine.", []string{"ProfileState", "HostOptions.SetProfileChange"}},
		normal, checkProfileChanges},
	{Rule{"profile-status", "SetProfileStatus writes the status word of the change.", []string{"ProfileState", "HostOptions.SetProfileChange"}},
		normal, checkProfileStatus},
	{Rule{"profile-change-removed", "RemoveProfileChange takes the change away, and not the machine; doing it again is a success.", []string{"ProfileState", "HostOptions.SetProfileChange"}},
		normal, checkProfileChangeRemoved},
	{Rule{"profiles-recorded", "SetProfiles records the profiles of a machine; doing it again is a success.", []string{"ProfileState"}},
		normal, checkSetProfiles},

	{Rule{"nothing-left", "Every record that the rules have made is removed at the end. What is left is named; it is a fault by itself unless another rule is broken.", nil},
		last, checkNoRecordLeft},
}

func checkFleet(p *probe) {
	want := map[provisioner.MachineID]int{p.machine(): 0, p.machine(): 0, p.machine(): 0}
	for _, r := range p.fleet() {
		if _, ours := want[r.ID]; !ours {
			continue
		}
		want[r.ID]++
		p.must(r.Err, "Fleet: machine %s", r.ID)
		if r.Machine.ID != r.ID || r.Machine.Life != provisioner.Alive {
			p.fail("Fleet gives machine %s as %+v: want it alive, with that id", r.ID, r.Machine)
		}
	}
	for id, n := range want {
		if n != 1 {
			p.fail("Fleet gives machine %s %d times", id, n)
		}
	}
}

func checkMachines(p *probe) {
	a, b := p.machine(), p.machine()
	p.life(b, provisioner.Dying)
	fleet := p.fleet()
	for _, ids := range [][]provisioner.MachineID{{a}, {b, a}} {
		for id, r := range p.machines(ids...) {
			p.must(r.Err, "Machines: machine %s", id)
			at := slices.IndexFunc(fleet, func(x provisioner.MachineResult) bool { return x.ID == id })
			if at < 0 || r.Machine != fleet[at].Machine {
				p.fail("Machines gives machine %s as %+v, and Fleet otherwise", id, r.Machine)
			}
		}
	}
	if m := p.read(b); m.Life != provisioner.Dying {
		p.fail("machine %s was made dying, and is read as %q", b, m.Life)
	}
}

func checkMachineNotFound(p *probe) {
	a, unknown := p.machine(), p.unknown()
	results := p.machines(a, unknown)
	if err := results[unknown].Err; !errors.Is(err, errors.NotFound) {
		p.fail("machine %s does not exist, and its result is %v: want NotFound", unknown, err)
	}
	p.must(results[a].Err, "machine %s, beside one that does not exist", a)
}

func checkStartInfo(p *probe) {
	a, unknown, b := p.machine(), p.unknown(), p.machine()
	results := byID(p, "StartInfo", []provisioner.MachineID{b, unknown, a}, p.state.StartInfo, func(r provisioner.StartInfoResult) provisioner.MachineID { return r.ID })
	for _, id := range []provisioner.MachineID{a, b} {
		p.must(results[id].Err, "StartInfo: machine %s", id)
	}
	if err := results[unknown].Err; !errors.Is(err, errors.NotFound) {
		p.fail("StartInfo of machine %s, which does not exist: %v: want NotFound", unknown, err)
	}
}

func checkNonce(p *probe) {
	a, b := p.machine(), p.machine()
	nonces := func() [2]string {
		r := byID(p, "StartInfo", []provisioner.MachineID{a, b}, p.state.StartInfo, func(r provisioner.StartInfoResult) provisioner.MachineID { return r.ID })
		return [2]string{r[a].Info.Nonce, r[b].Info.Nonce}
	}
	first := nonces()
	if again := nonces(); again != first {
		p.fail("the nonces of machines %s and %s are %q, and then %q", a, b, first, again)
	}
	if first[0] != "" && first[0] == first[1] {
		p.fail("machines %s and %s have the same nonce, %q", a, b, first[0])
	}
}

func checkSetInstance(p *probe) {
	id := p.machine()
	p.must(p.set(id, "i-kit"), "SetInstance of machine %s", id)
	p.holds(id, "i-kit")
	if zone := p.read(id).Zone; zone != "" && zone != "kit-zone" {
		p.fail("machine %s was recorded in zone kit-zone, and is read in %q", id, string(zone))
	}
}

func checkSetInstanceOnce(p *probe) {
	id := p.machine()
	p.must(p.set(id, "i-kit"), "SetInstance of machine %s", id)
	if p.set(id, "i-kit-other") == nil {
		p.fail("SetInstance of machine %s with another instance is a success", id)
	}
	p.holds(id, "i-kit")
}

func checkSetInstanceRepeats(p *probe) {
	id := p.machine()
	for range 2 {
		p.must(p.set(id, "i-kit"), "SetInstance of machine %s with the same instance", id)
	}
}

func checkSetInstanceRace(p *probe) {
	for range 5 {
		id := p.machine()
		errs := make([]error, 4)
		var things []func()
		for i := range errs {
			things = append(things, func() { errs[i] = p.set(id, raced(i)) })
		}
		p.together(things...)
		won := p.winner("SetInstance", id, errs)
		p.holds(id, raced(won))
	}
}

func raced(i int) provisioner.InstanceID {
	return provisioner.InstanceID(fmt.Sprintf("i-kit-%d", i))
}

// winner is the one of several calls that succeeded.
func (p *probe) winner(what string, id provisioner.MachineID, errs []error) int {
	won := -1
	for i, err := range errs {
		if err == nil && won >= 0 {
			p.fail("two %s at once for machine %s are both a success", what, id)
		} else if err == nil {
			won = i
		}
	}
	if won < 0 {
		p.fail("of several %s at once for machine %s none is a success: %v", what, id, errs[0])
	}
	return won
}

func checkSetInstanceDead(p *probe) {
	id := p.machine()
	p.life(id, provisioner.Dead)
	if p.set(id, "i-kit") == nil {
		p.fail("SetInstance of machine %s, which is dead, is a success", id)
	}
	p.holds(id, "")
}

func checkSetInstanceGone(p *probe) {
	id := p.unknown()
	if p.set(id, "i-kit") == nil {
		p.fail("SetInstance of machine %s, which does not exist, is a success", id)
	}
	if err := p.machines(id)[id].Err; !errors.Is(err, errors.NotFound) {
		p.fail("machine %s did not exist before SetInstance, and then: %v", id, err)
	}
}

func checkRemove(p *probe) {
	id := p.machine()
	p.life(id, provisioner.Dead)
	p.must(p.remove(id), "Remove machine %s, which is dead", id)
	if err := p.machines(id)[id].Err; !errors.Is(err, errors.NotFound) {
		p.fail("machine %s was removed, and its result is %v: want NotFound", id, err)
	}
	if slices.ContainsFunc(p.fleet(), func(r provisioner.MachineResult) bool { return r.ID == id }) {
		p.fail("machine %s was removed, and is in the fleet", id)
	}
}

func checkRemoveRepeats(p *probe) {
	id := p.machine()
	p.life(id, provisioner.Dead)
	for range 2 {
		p.must(p.remove(id), "Remove machine %s, once or again", id)
	}
	unknown := p.unknown()
	p.must(p.remove(unknown), "Remove machine %s, which never was", unknown)
}

func checkRemoveLiving(p *probe) {
	id := p.machine()
	for _, life := range []provisioner.Life{provisioner.Alive, provisioner.Dying} {
		if life != provisioner.Alive {
			p.life(id, life)
		}
		if p.remove(id) == nil {
			p.fail("Remove of machine %s, which is %s, is a success", id, life)
		}
		if got := p.read(id).Life; got != life {
			p.fail("machine %s is %q after a Remove that was refused: want %s", id, got, life)
		}
	}
}

func checkSnapshots(p *probe) {
	id := p.machine()
	if p.SetGroup != nil {
		p.must(p.call("HostOptions.SetGroup", func(ctx context.Context) error { return p.SetGroup(ctx, "kit-group", id) }), "HostOptions.SetGroup")
	}
	want := p.read(id)
	fleet := p.fleet()
	spoil(&fleet)
	results, err := ask(p, "Machines", func(ctx context.Context) ([]provisioner.MachineResult, error) { return p.state.Machines(ctx, id) })
	p.must(err, "Machines")
	spoil(&results)
	if got := p.read(id); got != want {
		p.fail("machine %s is read as %+v, was changed by the reader only, and then is %+v", id, want, got)
	}
	if !slices.ContainsFunc(p.fleet(), func(r provisioner.MachineResult) bool { return r.ID == id && r.Machine == want }) {
		p.fail("the fleet was changed by its reader, and then lacks machine %s as it was", id)
	}
	info := func() []provisioner.StartInfoResult {
		infos, err := ask(p, "StartInfo", func(ctx context.Context) ([]provisioner.StartInfoResult, error) { return p.state.StartInfo(ctx, id) })
		p.must(err, "StartInfo")
		return infos
	}
	first := info()
	if len(first) != 1 {
		return // that is another rule's
	}
	was := copyInfo(first[0].Info)
	spoil(&first)
	if again := info(); len(again) != 1 || !reflect.DeepEqual(was, again[0].Info) {
		p.fail("the start information of machine %s was changed by its reader, and is so when it is read again", id)
	}
	if p.Groups != nil && p.SetGroup != nil {
		group := p.groups(id)[id].Group
		clear(group.Members)
		if again := p.groups(id)[id].Group; !slices.Contains(again.Members, id) {
			p.fail("the group of machine %s was changed by its reader, and is so when it is read again", id)
		}
	}
}

func checkStateEndedContext(p *probe) {
	id := p.machine()
	calls := map[string]func(context.Context) error{
		"Fleet":       func(ctx context.Context) error { _, err := p.state.Fleet(ctx); return err },
		"Machines":    func(ctx context.Context) error { _, err := p.state.Machines(ctx, id); return err },
		"StartInfo":   func(ctx context.Context) error { _, err := p.state.StartInfo(ctx, id); return err },
		"SetInstance": func(ctx context.Context) error { return p.state.SetInstance(ctx, record(id, "i-kit")) },
		"Remove": func(ctx context.Context) error {
			return p.state.Remove(ctx, provisioner.Removal{Machine: p.unknown(), Epoch: 7})
		},
	}
	add := func(what string, has bool, do func(context.Context) error) {
		if has {
			calls[what] = do
		}
	}
	add("WriteStatus", p.Status != nil, func(ctx context.Context) error {
		return p.Status.WriteStatus(ctx, provisioner.StatusUpdate{Machine: id, InstanceStatus: provisioner.InstanceAllocating, Text: "kit", Epoch: 7})
	})
	add("EnsureDead", p.Life != nil, func(ctx context.Context) error {
		return p.Life.EnsureDead(ctx, provisioner.LifeRequest{Machine: id, Epoch: 7})
	})
	add("RetryMachines", p.Retries != nil, func(ctx context.Context) error { _, err := p.Retries.RetryMachines(ctx); return err })
	add("Groups", p.Groups != nil, func(ctx context.Context) error { _, err := p.Groups.Groups(ctx, id); return err })
	add("Authenticate", p.Authenticator != nil, func(ctx context.Context) error {
		_, err := p.Authenticator.Authenticate(ctx, provisioner.AuthRequest{Machine: id, Nonce: "kit:nonce", Epoch: 7})
		return err
	})
	add("FindAgents", p.Agents != nil, func(ctx context.Context) error {
		_, err := p.Agents.FindAgents(ctx, noAgent)
		return err
	})
	add("Intents", p.Intents != nil, func(ctx context.Context) error { _, err := p.Intents.Intents(ctx, id); return err })
	add("Spared", p.SparedStore != nil, func(ctx context.Context) error { _, err := p.SparedStore.Spared(ctx); return err })
	add("ProfileChanges", p.ProfileState != nil, func(ctx context.Context) error { _, err := p.ProfileState.ProfileChanges(ctx, id); return err })
	for what, do := range calls {
		_, _ = askEnded(p, what, 0, func(ctx context.Context) (none, error) { return none{}, do(ctx) })
	}
}

func checkStateConcurrentCalls(p *probe) {
	var things []func()
	for i := range 4 {
		things = append(things,
			func() {
				id := p.machine()
				p.must(p.set(id, raced(i)), "SetInstance of machine %s, beside other calls", id)
				p.holds(id, raced(i))
			},
			func() { p.fleet() },
			func() {
				id := p.machine()
				p.life(id, provisioner.Dead)
				p.must(p.remove(id), "Remove machine %s, beside other calls", id)
			})
	}
	p.together(things...)
}

// watch opens a watcher and takes its first delivery.
func (p *probe) watch() (s provisioner.Stream[[]provisioner.MachineID], begun bool) {
	s, err := ask(p, "HostOptions.Watch", func(context.Context) (provisioner.Stream[[]provisioner.MachineID], error) { return p.Watch() })
	p.must(err, "HostOptions.Watch")
	if s.C == nil {
		p.fail("HostOptions.Watch gave a Stream without a channel")
	}
	_, begun = p.receive(s)
	return s, begun
}

// receive takes one delivery; there is none if that takes longer than Settle.
func (p *probe) receive(s provisioner.Stream[[]provisioner.MachineID]) (ids []provisioner.MachineID, ok bool) {
	late := p.Clock.Timer(p.Settle)
	defer late.Stop()
	select {
	case ids, open := <-s.C:
		if !open {
			p.fail("the watcher has closed")
		}
		return ids, true
	case <-late.C:
	case <-p.ctx.Done():
		p.fail("%v", context.Cause(p.ctx))
	}
	return nil, false
}

func (p *probe) unwatch(s provisioner.Stream[[]provisioner.MachineID]) {
	if s.Stop != nil {
		p.must(p.call("Stream.Stop", func(context.Context) error { return s.Stop() }), "Stream.Stop")
	}
}

func checkWatchBegins(p *probe) {
	s, begun := p.watch()
	defer p.unwatch(s)
	if !begun {
		p.fail("a new watcher has delivered nothing within %v", p.Settle)
	}
}

func checkWatchKeepsLast(p *probe) {
	s, _ := p.watch()
	defer p.unwatch(s)
	var changed []provisioner.MachineID
	for range 10 { // more than a short queue holds
		changed = append(changed, p.machine())
	}
	a, missing := changed[0], slices.Clone(changed)
	if p.drain(s, &missing); len(missing) > 0 {
		p.fail("machines %s have changed, and %s are not delivered within %v", some(changed), some(missing), p.Settle)
	}
	// What changes while a delivery is read must come with another one.
	p.life(a, provisioner.Dying)
	missing = []provisioner.MachineID{a}
	if p.drain(s, &missing); len(missing) > 0 {
		p.fail("machine %s has changed after a delivery, and does not come again within %v", a, p.Settle)
	}
}

// drain receives until nothing is missing any more, and counts deliveries.
func (p *probe) drain(s provisioner.Stream[[]provisioner.MachineID], missing *[]provisioner.MachineID) (n int) {
	for len(*missing) > 0 {
		ids, ok := p.receive(s)
		if !ok {
			return n
		}
		n++
		*missing = slices.DeleteFunc(*missing, func(id provisioner.MachineID) bool { return slices.Contains(ids, id) })
	}
	return n
}

func checkWatchCoalesces(p *probe) {
	const many = 20
	s, _ := p.watch()
	defer p.unwatch(s)
	var changed []provisioner.MachineID
	for range many {
		changed = append(changed, p.machine())
	}
	if n := p.drain(s, &changed); n >= many {
		p.fail("%d changes that nobody received came in %d deliveries", many, n)
	}
}

func checkWatchStops(p *probe) {
	s, _ := p.watch()
	if s.Stop == nil {
		p.pass("the Stream has no Stop")
	}
	p.machine() // something waits to be received
	_, err := askEnded(p, "Stream.Stop", 0, func(context.Context) (none, error) { return none{}, s.Stop() })
	p.must(err, "Stop of a watcher that has not closed by itself")
	for range 2 {
		p.life(p.machine(), provisioner.Dying)
	}
}

func checkStatus(p *probe) {
	id := p.machine()
	for _, want := range []struct {
		provisioner.Status
		provisioner.InstanceStatus
	}{
		{provisioner.StatusError, provisioner.InstanceProvisioningError},
		{provisioner.StatusPending, provisioner.InstanceAllocating},
	} {
		p.status(id, want.Status, want.InstanceStatus)
		m := p.read(id)
		if m.Status != want.Status && !m.Unread.Has(provisioner.FieldStatus) ||
			m.InstanceStatus != want.InstanceStatus && !m.Unread.Has(provisioner.FieldInstanceStatus) {
			p.fail("the statuses of machine %s were set to %q and %q, and are read as %q and %q", id, want.Status, want.InstanceStatus, m.Status, m.InstanceStatus)
		}
	}
}

func checkStatusKept(p *probe) {
	id := p.machine()
	was := p.read(id).Status
	p.status(id, "", provisioner.InstanceAllocating)
	if m := p.read(id); m.Status != was {
		p.fail("the status of machine %s was %q, none was written, and it is %q", id, was, m.Status)
	}
}

func (p *probe) status(id provisioner.MachineID, status provisioner.Status, instance provisioner.InstanceStatus) {
	p.must(p.call("WriteStatus", func(ctx context.Context) error {
		return p.Status.WriteStatus(ctx, provisioner.StatusUpdate{Machine: id, Status: status, InstanceStatus: instance, Text: "written by a test", Epoch: 7})
	}), "WriteStatus of machine %s", id)
}

func checkEnsureDead(p *probe) {
	id := p.machine()
	p.life(id, provisioner.Dying)
	for range 2 {
		p.must(p.ensureDead(id), "EnsureDead of machine %s, once or again", id)
	}
	if life := p.read(id).Life; life != provisioner.Dead {
		p.fail("machine %s was made dead, and is %q", id, life)
	}
}

func checkEnsureDeadLiving(p *probe) {
	id := p.machine()
	if p.ensureDead(id) == nil {
		p.fail("EnsureDead of machine %s, which is alive, is a success", id)
	}
	if life := p.read(id).Life; life != provisioner.Alive {
		p.fail("machine %s was alive, and is %q after an EnsureDead that was refused", id, life)
	}
}

func (p *probe) ensureDead(id provisioner.MachineID) error {
	return p.call("EnsureDead", func(ctx context.Context) error {
		return p.Life.EnsureDead(ctx, provisioner.LifeRequest{Machine: id, Epoch: 7})
	})
}

func checkRetryMachines(p *probe) {
	id, other := p.machine(), p.machine()
	p.must(p.call("HostOptions.SetRetryable", func(ctx context.Context) error { return p.SetRetryable(ctx, id) }), "HostOptions.SetRetryable")
	results, err := ask(p, "RetryMachines", p.Retries.RetryMachines)
	p.must(err, "RetryMachines")
	n := 0
	for _, r := range results {
		switch {
		case r.ID == other:
			p.fail("RetryMachines gives machine %s, which has no error", other)
		case r.ID == id:
			n++
			p.must(r.Err, "RetryMachines: machine %s", id)
		}
	}
	if n != 1 {
		p.fail("RetryMachines gives machine %s %d times", id, n)
	}
}

func (p *probe) groups(ids ...provisioner.MachineID) map[provisioner.MachineID]provisioner.GroupResult {
	return byID(p, "Groups", ids, p.Groups.Groups, func(r provisioner.GroupResult) provisioner.MachineID { return r.ID })
}

func checkGroups(p *probe) {
	a, b := p.machine(), p.machine()
	for id, r := range p.groups(b, a) {
		p.must(r.Err, "Groups: machine %s", id)
		if r.Group.Key != "" || len(r.Group.Members) > 0 {
			p.fail("machine %s is in no group, and its group is %+v", id, r.Group)
		}
	}
}

func checkGroupMembers(p *probe) {
	a, b, other := p.machine(), p.machine(), p.machine()
	p.must(p.call("HostOptions.SetGroup", func(ctx context.Context) error { return p.SetGroup(ctx, "kit-group-"+string(a), a, b) }), "HostOptions.SetGroup")
	for _, id := range []provisioner.MachineID{a, b} {
		g := p.groups(id)[id].Group
		for _, member := range []provisioner.MachineID{a, b} {
			if member != id && !slices.Contains(g.Members, member) { // itself is the host's choice
				p.fail("the group of machine %s is %v: want %s in it", id, g.Members, member)
			}
		}
		if slices.Contains(g.Members, other) {
			p.fail("the group of machine %s is %v: want %s not in it", id, g.Members, other)
		}
	}
}

func checkAuthenticate(p *probe) {
	a, b := p.machine(), p.machine()
	do := func(ctx context.Context, ids ...provisioner.MachineID) ([]provisioner.AuthResult, error) {
		var reqs []provisioner.AuthRequest
		for _, id := range ids {
			reqs = append(reqs, provisioner.AuthRequest{Machine: id, Nonce: "kit:" + string(id), Epoch: 7})
		}
		return p.Authenticator.Authenticate(ctx, reqs...)
	}
	results := byID(p, "Authenticate", []provisioner.MachineID{b, a}, do, func(r provisioner.AuthResult) provisioner.MachineID { return r.ID })
	for id, r := range results {
		p.must(r.Err, "Authenticate: machine %s", id)
	}
	if results[a].Auth.Tag == results[b].Auth.Tag {
		p.fail("machines %s and %s both log in as %q", a, b, results[a].Auth.Tag)
	}
}

// noAgent asks for what there is not, most likely.
var noAgent = provisioner.AgentQuery{Version: "0.0.1-provisionertest", Base: "provisionertest@0", Arch: "amd64"}

func checkAgents(p *probe) {
	found, err := ask(p, "FindAgents", func(ctx context.Context) ([]provisioner.AgentBinary, error) { return p.Agents.FindAgents(ctx, noAgent) })
	p.must(err, "FindAgents, of which there may be none")
	for _, a := range found {
		if a.Version != noAgent.Version || a.Arch != noAgent.Arch {
			p.fail("FindAgents for %+v gives %+v", noAgent, a)
		}
	}
}

func (p *probe) intents(ids ...provisioner.MachineID) map[provisioner.MachineID]provisioner.IntentResult {
	return byID(p, "Intents", ids, p.Intents.Intents, func(r provisioner.IntentResult) provisioner.MachineID { return r.ID })
}

// intent is one for the machine, to the nanosecond.
func (p *probe) intent(id provisioner.MachineID, attempt int) provisioner.Intent {
	return provisioner.Intent{
		Machine: id, Attempt: attempt, Token: fmt.Sprintf("token-%d", attempt), Nonce: "kit:nonce", Zone: "kit-zone",
		At: p.Clock.Now().UTC().Truncate(time.Millisecond).Add(123456), Epoch: 7,
	}
}

func (p *probe) swap(old, next provisioner.Intent) error {
	return p.call("SwapIntent", func(ctx context.Context) error { return p.Intents.SwapIntent(ctx, old, next) })
}

// stored reads the intent of a machine, which has to be as wanted.
func (p *probe) stored(id provisioner.MachineID, want provisioner.Intent) {
	r := p.intents(id)[id]
	p.must(r.Err, "Intents: machine %s", id)
	if got := r.Intent; !sameIntent(got, want) {
		p.fail("the stored intent of machine %s is %+v: want %+v", id, got, want)
	}
}

func checkIntents(p *probe) {
	a, b, unknown := p.machine(), p.machine(), p.unknown()
	results := p.intents(b, unknown, a)
	for _, id := range []provisioner.MachineID{a, b} {
		p.must(results[id].Err, "Intents: machine %s", id)
		if results[id].Intent.Attempt != 0 {
			p.fail("machine %s is new, and has the intent %+v", id, results[id].Intent)
		}
	}
	if err := results[unknown].Err; !errors.Is(err, errors.NotFound) {
		p.fail("Intents of machine %s, which does not exist: %v: want NotFound", unknown, err)
	}
}

func checkSwapIntent(p *probe) {
	id := p.machine()
	none := provisioner.Intent{Machine: id}
	idle := provisioner.Intent{Machine: id, Nonce: "kit:nonce", Epoch: 7} // no attempt is open, and the machine has its nonce
	one, two := p.intent(id, 1), p.intent(id, 2)
	for _, step := range []struct{ old, next provisioner.Intent }{{none, one}, {one, two}, {two, idle}, {idle, one}, {one, none}, {none, one}} {
		p.must(p.swap(step.old, step.next), "SwapIntent of machine %s from %s to %s", id, showIntent(step.old), showIntent(step.next))
		p.stored(id, step.next)
	}
	// What was read must do as well as what was written.
	p.must(p.swap(p.intents(id)[id].Intent, two), "SwapIntent of machine %s from what Intents gives", id)
}

func checkStaleIntent(p *probe) {
	id := p.machine()
	none := provisioner.Intent{Machine: id}
	one, two := p.intent(id, 1), p.intent(id, 2)
	if p.swap(one, two) == nil {
		p.fail("SwapIntent of machine %s from an intent that was never stored is a success", id)
	}
	p.stored(id, none)
	p.must(p.swap(none, one), "SwapIntent of machine %s", id)
	other := one
	other.Token = "another"
	for _, old := range []provisioner.Intent{none, two, other} {
		if p.swap(old, two) == nil {
			p.fail("SwapIntent of machine %s from %+v is a success, and stored was %+v", id, old, one)
		}
		p.stored(id, one)
	}
}

func checkIntentRace(p *probe) {
	for range 5 {
		id := p.machine()
		errs := make([]error, 4)
		intents := make([]provisioner.Intent, len(errs))
		var things []func()
		for i := range errs {
			intents[i] = p.intent(id, i+1)
			things = append(things, func() { errs[i] = p.swap(provisioner.Intent{Machine: id}, intents[i]) })
		}
		p.together(things...)
		p.stored(id, intents[p.winner("SwapIntent", id, errs)])
	}
}

func (p *probe) spare(s provisioner.Spared) {
	p.must(p.call("AddSpared", func(ctx context.Context) error { return p.SparedStore.AddSpared(ctx, s) }), "AddSpared %s", s.Instance)
}

func (p *probe) unspare(ids ...provisioner.InstanceID) error {
	return p.call("RemoveSpared", func(ctx context.Context) error {
		return p.SparedStore.RemoveSpared(ctx, provisioner.SparedRemoval{Instances: ids, Epoch: 7})
	})
}

// spared reads what is remembered of an instance.
func (p *probe) spared(id provisioner.InstanceID) (found provisioner.Spared) {
	all, err := ask(p, "Spared", p.SparedStore.Spared)
	p.must(err, "Spared")
	n := 0
	for _, s := range all {
		if s.Instance == id {
			found = s
			n++
		}
	}
	if n > 1 {
		p.fail("Spared gives %s %d times", id, n)
	}
	return found
}

// sparable is an instance of this run's own.
func (p *probe) sparable() provisioner.Spared {
	_, n := p.newID()
	return provisioner.Spared{Instance: provisioner.InstanceID(fmt.Sprintf("i-%s-%d", p.Controller, n)), Machine: "kit-gone", Epoch: 7}
}

func checkSpared(p *probe) {
	s := p.sparable()
	for _, kept := range []bool{false, true, true} {
		s.Kept = kept
		p.spare(s)
		if got := p.spared(s.Instance); got.Instance != s.Instance || got.Machine != s.Machine || got.Kept != s.Kept {
			p.fail("%+v was remembered, and is given as %+v", s, got)
		}
	}
	_ = p.unspare(s.Instance)
}

func checkSparedRemoved(p *probe) {
	a, b := p.sparable(), p.sparable()
	p.spare(a)
	p.spare(b)
	for range 2 {
		p.must(p.unspare(a.Instance), "RemoveSpared %s, once or again", a.Instance)
	}
	if p.spared(a.Instance).Instance != "" {
		p.fail("%s was forgotten, and is given", a.Instance)
	}
	if p.spared(b.Instance).Instance == "" {
		p.fail("%s was forgotten, and %s is missing, too", a.Instance, b.Instance)
	}
	_ = p.unspare(b.Instance)
}

func (p *probe) changing() provisioner.ProfileChange {
	c := provisioner.ProfileChange{Machine: p.machine(), Old: "kit-m-app-1", Profile: &provisioner.Profile{
		Name: "kit-m-app-2", Config: map[string]string{"k": "v"}, Devices: map[string]map[string]string{"d": {"type": "none"}}}}
	p.must(p.call("HostOptions.SetProfileChange", func(ctx context.Context) error { return p.SetProfileChange(ctx, c) }), "HostOptions.SetProfileChange")
	return c
}

func (p *probe) changes(ids ...provisioner.MachineID) map[provisioner.MachineID]provisioner.ProfileChangeResult {
	return byID(p, "ProfileChanges", ids, p.ProfileState.ProfileChanges, func(r provisioner.ProfileChangeResult) provisioner.MachineID { return r.ID })
}

func checkProfileChanges(p *probe) {
	want, other := p.changing(), p.machine()
	for range 2 {
		got := p.changes(other, want.Machine)[want.Machine]
		p.must(got.Err, "ProfileChanges: machine %s", want.Machine)
		c := got.Change
		if c.Machine != want.Machine || c.Old != want.Old || c.Profile == nil || c.Profile.Name != want.Profile.Name ||
			c.Profile.Config["k"] != "v" || c.Profile.Devices["d"]["type"] != "none" {
			p.fail("the change of machine %s is %+v: want %+v", want.Machine, c, want)
		}
		spoil(&c) // the second reading must not see it
	}
}

func checkProfileStatus(p *probe) {
	c := p.changing()
	p.must(p.call("SetProfileStatus", func(ctx context.Context) error {
		return p.ProfileState.SetProfileStatus(ctx, provisioner.ProfileStatusUpdate{Machine: c.Machine, Status: "Success", Epoch: 7})
	}), "SetProfileStatus of machine %s", c.Machine)
	if got := p.changes(c.Machine)[c.Machine]; got.Err != nil || got.Change.Status != "Success" {
		p.fail("the status of the change of machine %s is %q (%v): want Success", c.Machine, got.Change.Status, got.Err)
	}
}

func checkProfileChangeRemoved(p *probe) {
	c := p.changing()
	for range 2 {
		p.must(p.call("RemoveProfileChange", func(ctx context.Context) error {
			return p.ProfileState.RemoveProfileChange(ctx, provisioner.Removal{Machine: c.Machine, Epoch: 7})
		}), "RemoveProfileChange of machine %s, once or again", c.Machine)
	}
	if got := p.changes(c.Machine)[c.Machine]; got.Err == nil && (got.Change.Old != "" || got.Change.Profile != nil) {
		p.fail("the change of machine %s was removed, and is given as %+v", c.Machine, got.Change)
	}
	p.read(c.Machine)
}

func checkSetProfiles(p *probe) {
	id := p.machine()
	for range 2 {
		p.must(p.call("SetProfiles", func(ctx context.Context) error {
			return p.ProfileState.SetProfiles(ctx, provisioner.ProfileRecord{Machine: id, Profiles: []string{"default", "kit-m-app-2"}, Epoch: 7})
		}), "SetProfiles of machine %s, once or again", id)
	}
}

func checkNoRecordLeft(p *probe) {
	for _, r := range p.fleet() {
		if rule := p.records[r.ID]; rule != "" {
			p.leave("machine %s of %s", r.ID, rule)
		}
	}
}

// What the rules are made of.

// machine makes a record that is alive and pending.
func (p *probe) machine() provisioner.MachineID {
	wish, _ := p.newID()
	id, err := ask(p, "HostOptions.NewMachine", func(ctx context.Context) (provisioner.MachineID, error) { return p.NewMachine(ctx, Pending(wish)) })
	p.must(err, "HostOptions.NewMachine")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records[id] = p.rule
	return id
}

// unknown is the id of a machine that does not exist.
func (p *probe) unknown() provisioner.MachineID {
	id, _ := p.newID()
	return id
}

func (p *probe) life(id provisioner.MachineID, life provisioner.Life) {
	p.must(p.call("HostOptions.SetLife", func(ctx context.Context) error { return p.SetLife(ctx, id, life) }), "HostOptions.SetLife: machine %s %s", id, life)
}

func record(id provisioner.MachineID, instance provisioner.InstanceID) provisioner.InstanceRecord {
	return provisioner.InstanceRecord{Machine: id, Instance: instance, Zone: "kit-zone", Nonce: "kit:nonce", DisplayName: "made by a test", Epoch: 7}
}

func (p *probe) set(id provisioner.MachineID, instance provisioner.InstanceID) error {
	return p.call("SetInstance", func(ctx context.Context) error { return p.state.SetInstance(ctx, record(id, instance)) })
}

func (p *probe) remove(id provisioner.MachineID) error {
	return p.call("Remove", func(ctx context.Context) error {
		return p.state.Remove(ctx, provisioner.Removal{Machine: id, Epoch: 7})
	})
}

// removeAll makes what this rule has made dead, and removes it.
func (p *probe) removeAll() {
	q := *p
	q.ctx = context.WithoutCancel(p.ctx)
	var ids []provisioner.MachineID
	p.mu.Lock()
	for id, rule := range p.records {
		if rule == p.rule {
			ids = append(ids, id)
		}
	}
	p.mu.Unlock()
	slices.Sort(ids)
	for _, id := range ids {
		_, _ = caught(func() {
			if r := q.machines(id)[id]; r.Err == nil && r.Machine.Life != provisioner.Dead {
				q.life(id, provisioner.Dead)
			}
			_ = q.remove(id)
		})
	}
}

func (p *probe) fleet() []provisioner.MachineResult {
	fleet, err := ask(p, "Fleet", p.state.Fleet)
	p.must(err, "Fleet")
	return fleet
}

func (p *probe) machines(ids ...provisioner.MachineID) map[provisioner.MachineID]provisioner.MachineResult {
	return byID(p, "Machines", ids, p.state.Machines, func(r provisioner.MachineResult) provisioner.MachineID { return r.ID })
}

// read reads one machine, which has to exist.
func (p *probe) read(id provisioner.MachineID) provisioner.Machine {
	r := p.machines(id)[id]
	p.must(r.Err, "Machines: machine %s", id)
	return r.Machine
}

func (p *probe) holds(id provisioner.MachineID, want provisioner.InstanceID) {
	if got := p.read(id).Instance; got != want {
		p.fail("the record of machine %s holds %q: want %q", id, got, want)
	}
}

// byID makes a bulk call, whose results have to be one for each id.
func byID[R any](p *probe, what string, ids []provisioner.MachineID,
	do func(context.Context, ...provisioner.MachineID) ([]R, error), idOf func(R) provisioner.MachineID) map[provisioner.MachineID]R {
	results, err := ask(p, what, func(ctx context.Context) ([]R, error) { return do(ctx, slices.Clone(ids)...) })
	p.must(err, "%s %s", what, some(ids))
	given := make(map[provisioner.MachineID]R, len(ids))
	for _, r := range results {
		id := idOf(r)
		if _, twice := given[id]; twice || !slices.Contains(ids, id) {
			p.fail("%s %s gives a result for machine %q that nobody asked for, or two", what, some(ids), string(id))
		}
		given[id] = r
	}
	if len(given) < len(ids) {
		p.fail("%s %s gives %d results: want one for each", what, some(ids), len(given))
	}
	return given
}
