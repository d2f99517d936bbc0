package provisioner

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// able has every capability, and can do nothing.
type able struct {
	Broker
	ZoneLister
	ZoneDeriver
	InstanceFinder
	Maintainer
	ProfileBroker
	ProfileNamer
	TraitsReporter
	State
	StatusWriter
	LifeSetter
	RetryLister
	GroupFinder
	Authenticator
	AgentFinder
	IntentStore
	SparedStore
	ProfileState
	Limiter
}

// A capability that is added to Optional has its calls counted and traced as
// well, under the name of its interface and method.
func TestEveryCapabilityIsObserved(t *testing.T) {
	o, _ := Optional{}.Find(able{}, able{})
	h := host{Optional: o, broker: able{}, state: able{}, startLimiter: able{}, stopLimiter: able{}}
	h.observed(&calls{})
	for _, v := range []any{h.broker, h.state, h.startLimiter, h.stopLimiter} {
		if name := reflect.TypeOf(v).Name(); !strings.HasPrefix(name, "observed") {
			t.Errorf("calls of %s are not observed", name)
		}
	}
	want := []string{"StartLimiter.Wait", "StopLimiter.Wait", "Veto.MayStop", "Drainer.Drain"}
	named := func(iface reflect.Type) {
		for i := range iface.NumMethod() {
			want = append(want, iface.Name()+"."+iface.Method(i).Name)
		}
	}
	named(reflect.TypeFor[Broker]())
	named(reflect.TypeFor[State]())
	optional := reflect.ValueOf(h.Optional)
	for i := range optional.NumField() {
		field := optional.Type().Field(i)
		if field.Name == "Traits" { // answers from memory, and once
			continue
		}
		named(field.Type)
		if name := optional.Field(i).Elem().Type().Name(); !strings.HasPrefix(name, "observed") {
			t.Errorf("Optional.%s is %s: put an observed one in its place in observe_calls.go, so that its calls are counted and traced", field.Name, name)
		}
	}
	for _, name := range want {
		if !slices.Contains(callNames[:], name) {
			t.Errorf("%s has no place among callNames", name)
		}
	}
	if len(want) != len(callNames) {
		t.Errorf("there are %d calls and %d names", len(want), len(callNames))
	}
}

// What is not there stays so.
func TestNothingIsObservedOfNothing(t *testing.T) {
	h := host{broker: able{}, state: able{}}
	h.observed(&calls{})
	if h.Optional != (Optional{}) || h.startLimiter != nil || h.stopLimiter != nil {
		t.Errorf("capabilities came from nowhere: %+v", h)
	}
}
