package provisionertest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// What a broker has to keep. Each rule starts what it needs and is judged by
// what can be seen from outside.
var brokerRules = []rule{
	{Rule{"capabilities", "Everything that HostOptions.Must names is found, for a decorator that hides an ability is noticed nowhere else.", nil},
		normal, checkCapabilities},
	{Rule{"traits-constant", "Traits gives the same answer each time, for a Task asks once and builds on it.", []string{"TraitsReporter"}},
		normal, checkTraitsConstant},

	{Rule{"start-gives-instance", "Start returns the id of the instance that it has made, a new one for each machine; without an id nobody can stop it.", nil},
		basic, checkStartGivesInstance},
	{Rule{"listing-complete", "Instances gives a complete listing in the end, with an id for each instance and none twice; from an incomplete one nothing is concluded, so a Task would wait for ever.", nil},
		basic, checkListingComplete},
	{Rule{"started-is-listed", "What Start has returned is listed: within HostOptions.Settle, and at once by a broker that promises consistent reads. What is missing from complete listings is taken for gone.", nil},
		basic, checkStartedIsListed},
	{Rule{"stop-ends", "What Stop has ended is no longer listed, or only as terminated.", nil},
		basic, checkStopEnds},

	{Rule{"listing-stable", "Id, zone, time of creation and labels of an instance are the same in every listing.", nil},
		normal, checkListingStable},
	{Rule{"powered-off-listed", "An instance that is only powered off is still listed; or else its machine seems to have none.", []string{"HostOptions.PowerOff"}},
		normal, checkPoweredOffListed},
	{Rule{"labels-listed", "A broker that promises labels lists every instance with all the labels of its start, from the first listing on: by them a Task finds again what a crash has left.", []string{"Traits.Labels"}},
		normal, checkLabelsListed},
	{Rule{"token-dedupes", "A broker that promises to dedupe by token answers a token that it has seen with the first call's instance and makes none, as does each further call; another machine's token is another's.", []string{"Traits.DedupesByToken"}},
		normal, checkTokenDedupes},

	{Rule{"stop-unknown-succeeds", "Stopping an instance that the broker does not know is a success: it is what the caller wants.", nil},
		normal, checkStopUnknown},
	{Rule{"stop-repeated-succeeds", "Stopping an instance again is a success: after a lost reply a Task can't but ask again.", nil},
		normal, checkStopRepeated},
	{Rule{"stop-spares-others", "Stop ends what it is told, and nothing else.", nil},
		normal, checkStopSparesOthers},
	{Rule{"stop-goes-on", "Stop ends all of the instances that it can, whatever becomes of one.", nil},
		normal, checkStopGoesOn},
	{Rule{"partial-stop", "When only some could be stopped, the error is or wraps a *provisioner.StopError that names those that failed, and no others: only they are tried again.", []string{"HostOptions.Jam"}},
		normal, checkPartialStop},

	{Rule{"ended-context", "Every call returns soon when its context has ended before.", nil},
		normal, checkEndedContext},
	{Rule{"cancelled-context", "Every call returns soon when its context ends meanwhile; of a start that is cut off so comes nothing, or an instance with its labels, and nothing later from a broker that promises consistent reads.", []string{"Traits.Labels"}},
		normal, checkCancelledContext},
	{Rule{"concurrent-calls", "Every method may be called from several goroutines at once; a Task does so.", nil},
		normal, checkConcurrentCalls},
	{Rule{"results-are-callers", "What is returned belongs to the caller: changing it changes no later answer.", nil},
		normal, checkResultsAreCallers},
	{Rule{"requests-untouched", "A request is read and not changed: its lists and maps are those of all attempts.", nil},
		normal, checkRequestsUntouched},
	{Rule{"errors-carry-markers", "The errors that the host can provoke carry their markers, and a start that has failed for certain leaves nothing: by them a Task tells what to do next.", []string{"HostOptions.Provoke"}},
		normal, checkErrorMarkers},

	{Rule{"zones-named-once", "Zones names every zone, and each once.", []string{"ZoneLister"}},
		normal, checkZonesNamedOnce},
	{Rule{"zone-honoured", "Start makes the instance in the zone that it is asked for, says so, and lists it there, if it lists zones.", []string{"ZoneLister"}},
		normal, checkZoneHonoured},
	{Rule{"unknown-zone-refused", "A start in a zone that does not exist is an error and makes nothing: elsewhere is not where it was wanted.", []string{"ZoneLister"}},
		normal, checkUnknownZoneRefused},
	{Rule{"derived-zones-exist", "DeriveZones names zones that there are, and the same for the same request; or it says NotValid.", []string{"ZoneLister", "ZoneDeriver"}},
		normal, checkDerivedZones},
	{Rule{"derive-without-effect", "DeriveZones starts nothing: it is asked in a plan as well.", []string{"ZoneDeriver", "Traits.Labels"}},
		normal, checkDeriveWithoutEffect},
	{Rule{"find-by-label", "FindInstances gives the instances whose labels equal every field that is asked for, and no others.", []string{"InstanceFinder"}},
		normal, checkFindByLabel},
	{Rule{"find-not-behind", "FindInstances sees an instance as soon as Instances does.", []string{"InstanceFinder"}},
		normal, checkFindNotBehind},
	{Rule{"maintain-repeats", "Maintain may be called for a running instance again and again.", []string{"Maintainer"}},
		normal, checkMaintain},
	{Rule{"profile-added", "ChangeProfile without an old name appends the profile; doing it again changes nothing.", []string{"ProfileBroker"}},
		normal, checkProfileAdded},
	{Rule{"profile-replaced", "ChangeProfile with an old name puts the profile in its place; doing it again changes nothing.", []string{"ProfileBroker"}},
		normal, checkProfileReplaced},
	{Rule{"profile-removed", "ChangeProfile without a profile takes the old one away; doing it again changes nothing.", []string{"ProfileBroker"}},
		normal, checkProfileRemoved},
	{Rule{"profile-names", "ProfileNames gives a name for each profile of a running instance, none twice, and holds those that were asked for.", []string{"ProfileNamer"}},
		normal, checkProfileNames},

	{Rule{"nothing-left", "Everything that the rules have started is stopped at the end. What is left is named, and stopped now if it can be; it is a fault by itself unless another rule is broken.", nil},
		last, checkNothingLeft},
}

func checkTraitsConstant(p *probe) {
	for range 3 {
		if again, _ := ask(p, "Traits", func(context.Context) (provisioner.Traits, error) { return p.Traits.Traits(), nil }); again != p.traits {
			p.fail("Traits gives %+v, and gave %+v", again, p.traits)
		}
	}
}

func checkStartGivesInstance(p *probe) {
	_, a := p.start()
	_, b := p.start()
	if a.Instance == b.Instance {
		p.fail("two starts gave %s", a.Instance)
	}
}

func checkListingComplete(p *probe) {
	l := provisioner.Listing{}
	p.must(p.eventually(p.Settle, func() error {
		if l = p.list(); !l.Complete {
			return errors.New("Listing.Complete is not set")
		}
		return nil
	}), "after %v", p.Settle)
	seen := map[provisioner.InstanceID]bool{}
	for _, i := range l.Instances {
		switch {
		case i.ID == "":
			p.fail("an instance without an id is listed: %+v", i)
		case seen[i.ID]:
			p.fail("%s is listed twice", i.ID)
		}
		seen[i.ID] = true
	}
}

func checkStartedIsListed(p *probe) {
	_, r := p.start()
	p.waitListed(r.Instance)
}

func checkStopEnds(p *probe) {
	_, r := p.start()
	p.waitListed(r.Instance)
	p.must(p.stop(r.Instance), "Stop %s", r.Instance)
	p.waitGone(r.Instance)
}

func checkListingStable(p *probe) {
	_, r := p.start()
	first := p.waitListed(r.Instance)
	for range 3 {
		again, listed := p.listed(r.Instance)
		if !listed {
			continue // that is another rule's
		}
		if again.State = first.State; !again.Created.Equal(first.Created) || again.Zone != first.Zone || again.Labels != first.Labels {
			p.fail("listed as %+v, and then as %+v", first, again)
		}
	}
}

func checkPoweredOffListed(p *probe) {
	_, r := p.start()
	p.waitListed(r.Instance)
	p.must(p.call("HostOptions.PowerOff", func(ctx context.Context) error { return p.PowerOff(ctx, r.Instance) }), "HostOptions.PowerOff")
	p.must(p.eventually(p.Settle, func() error {
		switch i, listed := p.listed(r.Instance); {
		case !listed:
			p.fail("%s is powered off, and not listed", r.Instance)
		case i.State == provisioner.InstanceUp:
			return errors.Errorf("%s is powered off, and listed as running after %v", r.Instance, p.Settle)
		}
		return nil
	}), "powered off")
}

func checkLabelsListed(p *probe) {
	req, r := p.start()
	if i := p.waitListed(r.Instance); i.Labels != req.Labels {
		p.fail("%s was started with the labels %+v, and is listed with %+v", r.Instance, req.Labels, i.Labels)
	}
}

func checkTokenDedupes(p *probe) {
	req, first := p.start()
	for range 2 {
		again, err := p.tryStart(req)
		p.must(err, "Start with a token that was seen")
		if again.Instance != first.Instance {
			p.fail("the token of %s gave %s when it came again", first.Instance, again.Instance)
		}
	}
	if _, other := p.start(); other.Instance == first.Instance {
		p.fail("the token of another machine gave %s, too", first.Instance)
	}
}

func checkStopUnknown(p *probe) {
	const unknown = "provisionertest-unknown"
	p.must(p.stop(unknown), "Stop %s, which is unknown", unknown)
}

func checkStopRepeated(p *probe) {
	_, r := p.start()
	for _, when := range []string{"once", "again", "again"} {
		p.must(p.stop(r.Instance), "Stop %s %s", r.Instance, when)
	}
}

func checkStopSparesOthers(p *probe) {
	_, a := p.start()
	_, b := p.start()
	p.waitListed(b.Instance)
	p.must(p.stop(a.Instance), "Stop %s", a.Instance)
	p.waitGone(a.Instance)
	if _, listed := p.listed(b.Instance); !listed {
		p.fail("Stop of %s has ended %s", a.Instance, b.Instance)
	}
}

func checkStopGoesOn(p *probe) {
	_, r := p.start()
	p.waitListed(r.Instance)
	ids := []provisioner.InstanceID{r.Instance, r.Instance + "-unknown", "provisionertest-unknown"}
	slices.Sort(ids)
	_ = p.stop(ids...) // what it says of unknown ones is another rule's
	p.waitGone(r.Instance)
}

func checkPartialStop(p *probe) {
	_, jammed := p.start()
	_, free := p.start()
	p.waitListed(free.Instance)
	ids := []provisioner.InstanceID{jammed.Instance, free.Instance}
	slices.Sort(ids)
	release := p.Jam(jammed.Instance)
	err := p.stop(ids...)
	release()
	var partial *provisioner.StopError
	if !errors.As(err, &partial) {
		p.fail("Stop of %s, which cannot be stopped, and %s: %v: want a *provisioner.StopError", jammed.Instance, free.Instance, err)
	}
	if len(partial.Failed) != 1 || partial.Failed[jammed.Instance] == nil {
		p.fail("Stop of %s, which cannot be stopped, and %s: %v: want the first named, and no other", jammed.Instance, free.Instance, err)
	}
	p.waitGone(free.Instance)
}

// calls makes each kind of call that has no effect, or one that is none. Start
// is apart.
func (p *probe) calls() map[string]func(context.Context) error {
	_, r := p.start()
	req := p.request()
	calls := map[string]func(context.Context) error{
		"Instances": func(ctx context.Context) error { _, err := p.broker.Instances(ctx); return err },
		"Stop": func(ctx context.Context) error {
			return p.broker.Stop(ctx, provisioner.StopRequest{Instances: []provisioner.InstanceID{"provisionertest-unknown"}})
		},
	}
	add := func(what string, has bool, do func(context.Context) error) {
		if has {
			calls[what] = do
		}
	}
	add("Zones", p.Zones != nil, func(ctx context.Context) error { _, err := p.Zones.Zones(ctx); return err })
	add("DeriveZones", p.Deriver != nil, func(ctx context.Context) error { _, err := p.Deriver.DeriveZones(ctx, req); return err })
	add("FindInstances", p.Finder != nil, func(ctx context.Context) error {
		_, err := p.Finder.FindInstances(ctx, provisioner.Labels{Machine: req.Machine})
		return err
	})
	add("Maintain", p.Maintainer != nil, func(ctx context.Context) error {
		return p.Maintainer.Maintain(ctx, provisioner.MaintainRequest{Machine: req.Machine, Instance: r.Instance})
	})
	add("ProfileNames", p.Namer != nil, func(ctx context.Context) error {
		_, err := p.Namer.ProfileNames(ctx, provisioner.ProfileNamesRequest{Machine: req.Machine, Instance: r.Instance})
		return err
	})
	return calls
}

func checkEndedContext(p *probe) {
	for what, do := range p.calls() {
		_, _ = askEnded(p, what, 0, func(ctx context.Context) (none, error) { return none{}, do(ctx) })
	}
	p.startCutOff(0)
}

func checkCancelledContext(p *probe) {
	const meanwhile = 10 * time.Millisecond
	for what, do := range p.calls() {
		_, _ = askEnded(p, what, meanwhile, func(ctx context.Context) (none, error) { return none{}, do(ctx) })
	}
	req, made := p.startCutOff(meanwhile)
	if made {
		return
	}
	// What has come of it is looked for at the end. Where reads are consistent
	// it is there by now, or never.
	came := p.cameOf(req)
	if !p.traits.ConsistentReads {
		return
	}
	p.sleep(p.Soon)
	if later := p.cameOf(req); len(later) > len(came) {
		p.fail("Start was cut off and had ended, and %s came of it later", later[0])
	}
}

// cameOf are the instances that have come of a request.
func (p *probe) cameOf(req provisioner.StartRequest) (ids []provisioner.InstanceID) {
	for _, i := range p.list().Instances {
		if i.Labels.Machine != req.Machine || i.Labels.Controller != p.Controller || i.State == provisioner.InstanceTerminated {
			continue
		}
		if ids = append(ids, i.ID); i.Labels != req.Labels {
			p.fail("%s came of a start that failed, and is listed with the labels %+v: want %+v", i.ID, i.Labels, req.Labels)
		}
	}
	return ids
}

// startCutOff starts a machine with a context that ends, and says whether it
// was made all the same.
func (p *probe) startCutOff(after time.Duration) (req provisioner.StartRequest, made bool) {
	req = p.request()
	p.doubt(req.Machine, true)
	r, err := askEnded(p, "Start", after, func(ctx context.Context) (provisioner.StartResult, error) { return p.broker.Start(ctx, req) })
	p.note(r.Instance)
	p.doubt(req.Machine, err != nil)
	if err == nil && r.Instance == "" {
		p.fail("Start was cut off, and gave neither an instance nor an error")
	}
	return req, err == nil
}

func checkConcurrentCalls(p *probe) {
	const many = 4
	started := make([]provisioner.InstanceID, many)
	var things []func()
	for i := range started {
		things = append(things,
			func() { _, r := p.start(); started[i] = r.Instance },
			func() { p.list() },
			func() { _ = p.stop("provisionertest-unknown") })
	}
	p.together(things...)
	slices.Sort(started)
	if len(slices.Compact(slices.Clone(started))) < many {
		p.fail("starts at once gave %v", started)
	}
	for _, id := range started {
		p.waitListed(id)
	}
	things = nil
	for _, id := range started {
		things = append(things, func() { p.must(p.stop(id), "Stop %s, beside others", id) }, func() { p.list() })
	}
	p.together(things...)
	for _, id := range started {
		p.waitGone(id)
	}
}

func checkResultsAreCallers(p *probe) {
	_, r := p.start()
	p.waitListed(r.Instance)
	l := p.list()
	spoil(&l)
	if _, listed := p.listed(r.Instance); !listed {
		p.fail("a listing was changed by its caller, and %s is missing from the next", r.Instance)
	}
	if p.Zones != nil {
		zones := p.zones()
		want := slices.Clone(zones)
		spoil(&zones)
		if again := p.zones(); !slices.Equal(again, want) {
			p.fail("zones were changed by their caller, and then are %v: want %v", again, want)
		}
	}
	if p.Finder != nil {
		find := func() provisioner.Listing { return p.find(provisioner.Labels{Controller: p.Controller}) }
		l := find()
		n := len(l.Instances)
		spoil(&l)
		for _, i := range find().Instances {
			if i.ID == "" {
				p.fail("what FindInstances gave, %d instances, was changed by its caller, and the next has %+v", n, i)
			}
		}
	}
}

func checkRequestsUntouched(p *probe) {
	req := p.request()
	before := copyRequest(&req)
	_, err := p.tryStart(req)
	p.must(err, "Start")
	p.same("Start", before, &req)
	if p.Deriver != nil {
		p.derive(req)
		p.same("DeriveZones", before, &req)
	}
	ids := []provisioner.InstanceID{"provisionertest-unknown-1", "provisionertest-unknown-2"}
	was := slices.Clone(ids)
	_ = p.call("Stop", func(ctx context.Context) error {
		return p.broker.Stop(ctx, provisioner.StopRequest{Instances: ids})
	})
	if !slices.Equal(ids, was) {
		p.fail("Stop has changed its request's ids from %q to %q", was, ids)
	}
}

func (p *probe) same(what string, before, req *provisioner.StartRequest) {
	a, b := reflect.ValueOf(*before), reflect.ValueOf(*copyRequest(req))
	for i := range a.NumField() {
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			p.fail("%s has changed its request's %s", what, a.Type().Field(i).Name)
		}
	}
}

func checkErrorMarkers(p *probe) {
	for _, x := range p.Provoke {
		req := p.request()
		x.Request(&req)
		r, err := p.tryStart(req)
		switch {
		case err == nil:
			p.fail("%s: Start made %s: want an error that is %q", x.Name, r.Instance, x.Want)
		case !errors.Is(err, x.Want):
			p.fail("%s: %v: want an error that is %q", x.Name, err, x.Want)
		}
		p.leftNothing(x.Name, req, err)
	}
}

func checkZonesNamedOnce(p *probe) {
	seen := map[provisioner.ZoneName]bool{}
	for _, z := range p.zones() {
		switch {
		case z.Name == "":
			p.fail("a zone without a name")
		case seen[z.Name]:
			p.fail("zone %q comes twice", string(z.Name))
		}
		seen[z.Name] = true
	}
}

func checkZoneHonoured(p *probe) {
	zones := p.available()
	slices.Reverse(zones[1:]) // the ends of the list show a broker that takes the first, or any
	honoured := 0
	for _, zone := range zones {
		req := p.request()
		if req.Zone == "" {
			p.pass("HostOptions.Request starts without a zone")
		}
		if req.Zone = zone; honoured == 2 {
			break
		}
		r, err := p.tryStart(req)
		if errors.Is(err, provisioner.ErrOutOfCapacity) {
			continue // it is full, and says so
		}
		honoured++
		p.must(err, "Start in zone %q", string(zone))
		if r.Zone != zone {
			p.fail("a start in zone %q says that it was made in %q", string(zone), string(r.Zone))
		}
		if i := p.waitListed(r.Instance); i.Zone != "" && i.Zone != zone {
			p.fail("%s was started in zone %q, and is listed in %q", r.Instance, string(zone), string(i.Zone))
		}
	}
	if honoured == 0 {
		p.pass("no zone has room")
	}
}

func checkUnknownZoneRefused(p *probe) {
	p.available()
	req := p.request()
	req.Zone = "provisionertest-unknown"
	r, err := p.tryStart(req)
	if err == nil {
		p.fail("a start in zone %q, which does not exist, made %s in zone %q", string(req.Zone), r.Instance, string(r.Zone))
	}
	p.leftNothing("a start in an unknown zone", req, err)
}

func checkDerivedZones(p *probe) {
	zones, req := p.zones(), p.request()
	derived := p.derive(req)
	for _, name := range derived {
		if !slices.ContainsFunc(zones, func(z provisioner.Zone) bool { return z.Name == name }) {
			p.fail("zone %q is derived, and not among %v", string(name), zones)
		}
	}
	want := slices.Clone(derived)
	clear(derived)
	again := p.derive(req)
	slices.Sort(want)
	slices.Sort(again)
	if !slices.Equal(want, again) {
		p.fail("the zones %q are derived, and then %q", want, again)
	}
}

func checkDeriveWithoutEffect(p *probe) {
	req := p.request()
	p.derive(req)
	p.none("DeriveZones", req)
}

func checkFindByLabel(p *probe) {
	a, made := p.start()
	_, other := p.start()
	p.waitListed(made.Instance)
	p.waitListed(other.Instance)
	l := a.Labels
	for _, want := range []struct {
		provisioner.Labels
		both bool
	}{
		{provisioner.Labels{Controller: l.Controller}, true},
		{provisioner.Labels{Epoch: l.Epoch, Controller: l.Controller}, true},
		{provisioner.Labels{Machine: l.Machine, Controller: l.Controller}, false},
		{provisioner.Labels{Nonce: l.Nonce}, false},
		{provisioner.Labels{Token: l.Token}, false},
		{l, false},
	} {
		found := p.find(want.Labels)
		if !has(found, made.Instance) {
			p.fail("%s has the labels %+v, and is not found by %+v", made.Instance, l, want.Labels)
		}
		if has(found, other.Instance) != want.both {
			p.fail("by the labels %+v %s is found: %v, want %v", want.Labels, other.Instance, !want.both, want.both)
		}
	}
	for _, wrong := range []provisioner.Labels{
		{Controller: l.Controller + "-other", Machine: l.Machine},
		{Machine: l.Machine, Token: l.Token + "-other"},
		{Machine: l.Machine, Controller: l.Controller, Epoch: l.Epoch + 1},
	} {
		if has(p.find(wrong), made.Instance) {
			p.fail("%s has the labels %+v, and is found by %+v", made.Instance, l, wrong)
		}
	}
}

func checkFindNotBehind(p *probe) {
	req, r := p.start()
	p.waitListed(r.Instance)
	if !has(p.find(provisioner.Labels{Controller: p.Controller, Machine: req.Machine}), r.Instance) {
		p.fail("%s is listed, and not found by its labels", r.Instance)
	}
}

func checkMaintain(p *probe) {
	req, r := p.start()
	for range 2 {
		p.must(p.call("Maintain", func(ctx context.Context) error {
			return p.Maintainer.Maintain(ctx, provisioner.MaintainRequest{Machine: req.Machine, Instance: r.Instance, Epoch: req.Epoch})
		}), "Maintain %s", r.Instance)
	}
}

// profile is one that is there for a rule only.
func (p *probe) profile() *provisioner.Profile {
	_, n := p.newID()
	return &provisioner.Profile{Name: fmt.Sprintf("%s-kit-%d", p.Controller, n), Description: "made by a test, to be removed"}
}

func (p *probe) change(req provisioner.StartRequest, r provisioner.StartResult, old string, profile *provisioner.Profile) []string {
	var first []string
	for i := range 2 {
		names, err := ask(p, "ChangeProfile", func(ctx context.Context) ([]string, error) {
			return p.Profiles.ChangeProfile(ctx, provisioner.ProfileChangeRequest{
				Machine: req.Machine, Instance: r.Instance, Old: old, Profile: profile, Epoch: req.Epoch})
		})
		p.must(err, "ChangeProfile of %s", r.Instance)
		if i > 0 && !slices.Equal(names, first) {
			p.fail("the same change gave the profiles %q, and then %q", first, names)
		}
		first = slices.Clone(names)
		clear(names)
	}
	return first
}

func checkProfileAdded(p *probe) {
	req, r := p.start()
	a := p.profile()
	defer p.unprofile(req, r, a)
	if names := p.change(req, r, "", a); len(names) == 0 || names[len(names)-1] != a.Name {
		p.fail("%q was added, and the profiles are %q", a.Name, names)
	}
}

func checkProfileReplaced(p *probe) {
	req, r := p.start()
	a, b, c := p.profile(), p.profile(), p.profile()
	defer p.unprofile(req, r, b, c)
	p.change(req, r, "", a)
	want := p.change(req, r, "", b)
	want[len(want)-2] = c.Name
	if names := p.change(req, r, a.Name, c); !slices.Equal(names, want) {
		p.fail("%q was put in the place of %q, and the profiles are %q: want %q", c.Name, a.Name, names, want)
	}
}

func checkProfileRemoved(p *probe) {
	req, r := p.start()
	a, b := p.profile(), p.profile()
	defer p.unprofile(req, r, b)
	p.change(req, r, "", a)
	want := p.change(req, r, "", b)
	want = slices.Delete(want, len(want)-2, len(want)-1)
	if names := p.change(req, r, a.Name, nil); !slices.Equal(names, want) {
		p.fail("%q was taken away, and the profiles are %q: want %q", a.Name, names, want)
	}
}

// unprofile takes profiles away again, as well as it can.
func (p *probe) unprofile(req provisioner.StartRequest, r provisioner.StartResult, profiles ...*provisioner.Profile) {
	for _, profile := range profiles {
		_, _ = caught(func() { p.change(req, r, profile.Name, nil) })
	}
}

func checkProfileNames(p *probe) {
	req, r := p.start()
	asked := slices.Clone(req.Profiles)
	names, err := ask(p, "ProfileNames", func(ctx context.Context) ([]string, error) {
		return p.Namer.ProfileNames(ctx, provisioner.ProfileNamesRequest{Machine: req.Machine, Instance: r.Instance, Asked: asked})
	})
	p.must(err, "ProfileNames of %s", r.Instance)
	sorted := slices.Sorted(slices.Values(names))
	if len(slices.Compact(slices.Clone(sorted))) < len(names) || slices.Contains(names, "") {
		p.fail("the profiles of %s are %q: want each once, with its name", r.Instance, names)
	}
	for _, name := range req.Profiles {
		if !slices.Contains(names, name) {
			p.fail("the profiles of %s are %q, and %q was asked for", r.Instance, names, name)
		}
	}
}

func checkNothingLeft(p *probe) {
	if len(p.uncertain) > 0 && !p.traits.ConsistentReads {
		p.sleep(p.Settle) // for what came of starts that were cut off
	}
	var left []provisioner.Instance
	err := p.eventually(p.Settle, func() error {
		l, err := ask(p, "Instances", p.broker.Instances)
		p.must(err, "Instances, to see what is left")
		left = slices.DeleteFunc(l.Instances, func(i provisioner.Instance) bool { return !p.isLeft(i) })
		p.stopUncertain(left)
		if len(left) > 0 || !l.Complete {
			return errors.New("there may be something left")
		}
		return nil
	})
	if err == nil {
		return
	}
	for _, x := range left {
		became := "stopped now"
		if err := p.stop(x.ID); err != nil {
			became = err.Error()
		}
		p.leave("%s of %s (%s)", x.ID, cmp.Or(p.starter(x.ID), "machine "+string(x.Labels.Machine)), became)
	}
	if left == nil {
		p.leave("what cannot be told, for the listing is not complete")
	}
}

func (p *probe) starter(id provisioner.InstanceID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.instances[id]
}

// isLeft says whether an instance is one of ours, and lives.
func (p *probe) isLeft(i provisioner.Instance) bool {
	return i.State != provisioner.InstanceTerminated && (i.Labels.Controller == p.Controller || p.starter(i.ID) != "")
}

// stopUncertain stops what came of starts that were cut off, which is no fault.
func (p *probe) stopUncertain(left []provisioner.Instance) {
	for _, i := range left {
		p.mu.Lock()
		_, uncertain := p.uncertain[i.Labels.Machine]
		p.mu.Unlock()
		if uncertain {
			_ = p.stop(i.ID)
		}
	}
}

// What the rules are made of.

// request is a start request for a machine of its own, as a Task would make it.
func (p *probe) request() provisioner.StartRequest {
	id, n := p.newID()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", p.Controller, n))
	token := hex.EncodeToString(sum[:16])
	nonce := fmt.Sprintf("%s:%s-%s-4%s-8%s-%s", p.Controller, token[:8], token[8:12], token[12:15], token[15:18], token[20:])
	req := provisioner.StartRequest{
		Machine: id, Attempt: 1, Nonce: nonce, Token: token, Epoch: 7,
		Labels: provisioner.Labels{Controller: p.Controller, Machine: id, Nonce: nonce, Token: token, Epoch: 7},
		Group:  func(context.Context) ([]provisioner.InstanceID, error) { return nil, nil },
		Report: func(provisioner.InstanceStatus, string) {},
	}
	req.Config.Tags = map[string]string{"provisionertest": p.Controller}
	if zones := p.zones(); len(zones) > 0 {
		req.Zone = p.available()[0]
	}
	if p.Request != nil {
		p.Request(&req)
	}
	return req
}

// start starts a machine of its own, which must work.
func (p *probe) start() (provisioner.StartRequest, provisioner.StartResult) {
	req := p.request()
	r, err := p.tryStart(req)
	p.must(err, "Start of machine %s", req.Machine)
	return req, r
}

func (p *probe) tryStart(req provisioner.StartRequest) (provisioner.StartResult, error) {
	r, err := ask(p, "Start", func(ctx context.Context) (provisioner.StartResult, error) { return p.broker.Start(ctx, req) })
	p.note(r.Instance)
	p.doubt(req.Machine, errors.Is(err, provisioner.ErrAmbiguous))
	if err == nil && r.Instance == "" {
		p.fail("Start of machine %s gave neither an instance nor an error", req.Machine)
	}
	return r, err
}

// note remembers an instance, so that it is stopped.
func (p *probe) note(id provisioner.InstanceID) {
	if id != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.instances[id] = p.rule
	}
}

// doubt remembers of a machine whether an instance may have come of a start
// that gave none.
func (p *probe) doubt(id provisioner.MachineID, whether bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if whether {
		p.uncertain[id] = struct{}{}
	} else {
		delete(p.uncertain, id)
	}
}

func (p *probe) stop(ids ...provisioner.InstanceID) error {
	return p.call("Stop", func(ctx context.Context) error {
		return p.broker.Stop(ctx, provisioner.StopRequest{Instances: ids, Epoch: 7})
	})
}

// stopAll stops what this rule has started, whatever has become of the rule.
func (p *probe) stopAll() {
	var ids []provisioner.InstanceID
	p.mu.Lock()
	for id, rule := range p.instances {
		if rule == p.rule {
			ids = append(ids, id)
		}
	}
	p.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	q := *p
	q.ctx = context.WithoutCancel(p.ctx)
	_, _ = caught(func() { _ = q.stop(ids...) })
}

func (p *probe) list() provisioner.Listing {
	l, err := ask(p, "Instances", p.broker.Instances)
	p.must(err, "Instances")
	return l
}

func has(l provisioner.Listing, id provisioner.InstanceID) bool {
	return slices.ContainsFunc(l.Instances, func(i provisioner.Instance) bool { return i.ID == id })
}

// listed finds a live instance in a new listing.
func (p *probe) listed(id provisioner.InstanceID) (provisioner.Instance, bool) {
	for _, i := range p.list().Instances {
		if i.ID == id && i.State != provisioner.InstanceTerminated {
			return i, true
		}
	}
	return provisioner.Instance{}, false
}

// waitListed waits until an instance that was started is listed.
func (p *probe) waitListed(id provisioner.InstanceID) (found provisioner.Instance) {
	settle := p.Settle
	if p.traits.ConsistentReads {
		settle = 0
	}
	p.must(p.eventually(settle, func() error {
		i, listed := p.listed(id)
		if found = i; !listed {
			return errors.Errorf("%s was started, and is not listed after %v", id, settle)
		}
		return nil
	}), "listing")
	return found
}

// waitGone waits until an instance that was stopped is not listed.
func (p *probe) waitGone(id provisioner.InstanceID) {
	p.must(p.eventually(p.Settle, func() error {
		if i, listed := p.listed(id); listed {
			return errors.Errorf("%s was stopped, and is listed as %q after %v", id, i.State, p.Settle)
		}
		return nil
	}), "listing")
}

// leftNothing says that a start that has failed for certain has made something.
func (p *probe) leftNothing(what string, req provisioner.StartRequest, err error) {
	if p.traits.Labels && !errors.Is(err, provisioner.ErrAmbiguous) {
		p.none(what, req)
	}
}

// none says that something lives that has the labels of a request. Where reads
// are late, it may be seen at the end only.
func (p *probe) none(what string, req provisioner.StartRequest) {
	if came := p.cameOf(req); came != nil {
		p.note(came[0])
		p.fail("%s has made %s", what, came[0])
	}
}

func (p *probe) find(want provisioner.Labels) provisioner.Listing {
	l, err := ask(p, "FindInstances", func(ctx context.Context) (provisioner.Listing, error) { return p.Finder.FindInstances(ctx, want) })
	p.must(err, "FindInstances")
	return l
}

// derive passes the rule over where there is nothing to be derived.
func (p *probe) derive(req provisioner.StartRequest) []provisioner.ZoneName {
	zones, err := ask(p, "DeriveZones", func(ctx context.Context) ([]provisioner.ZoneName, error) { return p.Deriver.DeriveZones(ctx, req) })
	if isMissing(err) {
		p.pass("the broker derives no zones: " + err.Error())
	}
	p.must(err, "DeriveZones")
	return zones
}

func isMissing(err error) bool {
	return errors.Is(err, errors.NotImplemented) || errors.Is(err, errors.NotSupported)
}

// zones lists the zones; a broker without any has none.
func (p *probe) zones() []provisioner.Zone {
	if p.Zones == nil {
		return nil
	}
	zones, err := ask(p, "Zones", p.Zones.Zones)
	if isMissing(err) {
		return nil
	}
	p.must(err, "Zones")
	return zones
}

// available are the zones in which something can be started.
func (p *probe) available() []provisioner.ZoneName {
	zones := p.zones()
	if len(zones) == 0 {
		p.pass("the broker has no zones")
	}
	var names []provisioner.ZoneName
	for _, z := range zones {
		if z.Available {
			names = append(names, z.Name)
		}
	}
	if names == nil {
		p.fail("no zone is available: %v", zones)
	}
	return names
}

func spoil[T any](v *T) { scribble(reflect.ValueOf(v).Elem()) }
