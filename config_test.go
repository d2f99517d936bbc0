package provisioner_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
)

// TestConfigErrorText holds the whole message: it is what a person reads who
// has written the configuration (LC1).
func TestConfigErrorText(t *testing.T) {
	_, err := provisioner.New(provisioner.Config{
		State: (*onlyState)(nil),
		Policy: provisioner.Policy{
			Harvest: 9,
			Tie:     7,
			Weights: map[provisioner.ZoneName]int{"b": -1, "a": 1001, "c": 0},
			MaxSkew: -1, MinZones: -1, ZoneCooldown: -2,
			Retry:   provisioner.RetryPolicy{Retries: -2, Factor: 0.5, Jitter: 1.5, ZoneDelay: -2, RoundDelay: -3, MaxDelay: -4, Deadline: -time.Second},
			Backoff: provisioner.RetryPolicy{Factor: math.NaN(), Jitter: math.NaN()},
		},
		Limits:          provisioner.Limits{Starts: -1, ContainerStarts: -2, Stops: -3},
		LaunchTimeout:   -2,
		CallTimeout:     -time.Second,
		RollbackTimeout: -2,
		ShutdownGrace:   -2,
		Resync:          -2,
		ZoneRefresh:     -2,
		VisibilityGrace: -2,
		EventBuffer:     -1,
		Observers:       []provisioner.Observer{provisioner.ObserverFunc(nil), nil},
	})
	const want = `configuration not valid:
	Controller "": want the name of your controller: not valid
	Broker nil: want your broker: not valid
	State nil: want your state: not valid
	Policy.Harvest: harvest mode 9: want HarvestDestroyed, HarvestNone, HarvestUnknown or HarvestAll: not valid
	Policy.Tie 7: want TieHash or TieName: not valid
	Policy.Weights[a] 1001: want 1 to 1000, or 0 for 1: not valid
	Policy.Weights[b] -1: want 1 to 1000, or 0 for 1: not valid
	Policy.MaxSkew -1: want 1 to 1000000, or 0 for no limit: not valid
	Policy.MinZones -1: want 1 or more, or 0 for none: not valid
	Policy.ZoneCooldown -2ns: want Off, 0 for the default, or more: not valid
	Policy.Retry.Retries -2: want NoRetries or more: not valid
	Policy.Retry.Factor 0.5: want 1 to 1000, or 0 for the default: not valid
	Policy.Retry.Jitter 1.5: want NoJitter, or 0 to 1: not valid
	Policy.Retry.ZoneDelay -2ns: want Off, 0 for the default, or more: not valid
	Policy.Retry.RoundDelay -3ns: want Off, 0 for the default, or more: not valid
	Policy.Retry.MaxDelay -4ns: want Off, 0 for the default, or more: not valid
	Policy.Retry.Deadline -1s: want Off, 0 for the default, or more: not valid
	Policy.Backoff.Factor NaN: want 1 to 1000, or 0 for the default: not valid
	Policy.Backoff.Jitter NaN: want NoJitter, or 0 to 1: not valid
	Limits.Starts -1: want 1 or more, or 0 for the default: not valid
	Limits.ContainerStarts -2: want 1 or more, or 0 for the default: not valid
	Limits.Stops -3: want 1 or more, or 0 for the default: not valid
	LaunchTimeout -2ns: want Off, 0 for the default, or more: not valid
	CallTimeout -1s: want Off, 0 for the default, or more: not valid
	RollbackTimeout -2ns: want Off, 0 for the default, or more: not valid
	ShutdownGrace -2ns: want Off, 0 for the default, or more: not valid
	Resync -2ns: want Off, 0 for the default, or more: not valid
	ZoneRefresh -2ns: want Off, 0 for the default, or more: not valid
	VisibilityGrace -2ns: want Off, 0 for the default, or more: not valid
	EventBuffer -1: want 1 or more, or 0 for the default: not valid
	Observers[0] nil: want an observer: not valid
	Observers[1] nil: want an observer: not valid`
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var faults *provisioner.ConfigError
	if !errors.Is(err, provisioner.ErrConfig) || !errors.Is(err, errors.NotValid) || !errors.As(err, &faults) {
		t.Errorf("not found by what it is: %#v", err)
	}
}

func TestConfigAcceptsNamedValues(t *testing.T) {
	_, err := provisioner.New(provisioner.Config{
		Controller: "ctl", Broker: onlyBroker{}, State: &onlyState{},
		Policy: provisioner.Policy{
			Harvest: provisioner.HarvestAll,
			Tie:     provisioner.TieName,
			Weights: map[provisioner.ZoneName]int{"a": 1000, "b": 0}, MaxSkew: 1_000_000, MinZones: 3, ZoneCooldown: provisioner.Off,
			Retry:   provisioner.RetryPolicy{Retries: provisioner.NoRetries, Factor: 1, Jitter: provisioner.NoJitter, ZoneDelay: provisioner.Off, RoundDelay: provisioner.Off, MaxDelay: provisioner.Off, Deadline: provisioner.Off},
			Backoff: provisioner.FixedRetry(0, 0),
		},
		LaunchTimeout: provisioner.Off, CallTimeout: provisioner.Off, RollbackTimeout: provisioner.Off, ShutdownGrace: provisioner.Off, Resync: provisioner.Off, ZoneRefresh: provisioner.Off, VisibilityGrace: provisioner.Off,
	})
	if err != nil {
		t.Error(err)
	}
}

// onlyBroker and onlyState are hosts without any further ability.
type onlyBroker struct{}

func (onlyBroker) Instances(context.Context) (provisioner.Listing, error) {
	return provisioner.Listing{}, nil
}
func (onlyBroker) Start(context.Context, provisioner.StartRequest) (provisioner.StartResult, error) {
	return provisioner.StartResult{}, nil
}
func (onlyBroker) Stop(context.Context, provisioner.StopRequest) error { return nil }

type onlyState struct{}

func (*onlyState) Fleet(context.Context) ([]provisioner.MachineResult, error) { return nil, nil }
func (*onlyState) Machines(context.Context, ...provisioner.MachineID) ([]provisioner.MachineResult, error) {
	return nil, nil
}
func (*onlyState) StartInfo(context.Context, ...provisioner.MachineID) ([]provisioner.StartInfoResult, error) {
	return nil, nil
}
func (*onlyState) SetInstance(context.Context, provisioner.InstanceRecord) error { return nil }
func (*onlyState) Remove(context.Context, provisioner.Removal) error             { return nil }

// decorated hides what its next broker is able to do, but for Unwrap.
type decorated struct {
	onlyBroker
	next provisioner.Broker
}

func (d *decorated) Unwrap() provisioner.Broker { return d.next }

// zonedBroker has one ability more.
type zonedBroker struct{ onlyBroker }

func (*zonedBroker) Zones(context.Context) ([]provisioner.Zone, error) { return nil, nil }

// decorate puts n decorators around a broker.
func decorate(b provisioner.Broker, n int) provisioner.Broker {
	for range n {
		b = &decorated{next: b}
	}
	return b
}

func TestCapabilityIsFoundOnce(t *testing.T) {
	tests := []struct {
		why      string
		broker   provisioner.Broker
		explicit provisioner.ZoneLister
		want     string
	}{
		{"the value itself", &zonedBroker{}, nil, "broker"},
		{"absent", onlyBroker{}, nil, ""},
		{"an explicit one before the value's own", &zonedBroker{}, &zonedBroker{}, "config"},
		{"one step away", decorate(&zonedBroker{}, 1), nil, "broker, unwrapped"},
		{"sixteen steps away", decorate(&zonedBroker{}, 16), nil, "broker, unwrapped"},
		{"seventeen steps are too many: a chain may be a ring", decorate(&zonedBroker{}, 17), nil, ""},
		{"a chain that ends in nothing", decorate(nil, 2), nil, ""},
		{"a chain that ends in a typed nil", decorate((*zonedBroker)(nil), 2), nil, ""},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			task, err := provisioner.New(provisioner.Config{Controller: "ctl", Broker: test.broker, State: &onlyState{}, Optional: provisioner.Optional{Zones: test.explicit}})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range task.Capabilities() {
				if c.Name == "ZoneLister" && c.Found != test.want {
					t.Errorf("found %q, want %q", c.Found, test.want)
				}
				if c.Name != "ZoneLister" && c.Found != "" {
					t.Errorf("%s came from nowhere: %q", c.Name, c.Found)
				}
			}
		})
	}
}

func TestMinZonesNeedsMaxSkew(t *testing.T) {
	_, err := provisioner.New(provisioner.Config{Controller: "c", Broker: onlyBroker{}, State: &onlyState{}, Policy: provisioner.Policy{MinZones: 3}})
	if err == nil || !strings.Contains(err.Error(), "Policy.MinZones 3 without MaxSkew: want both") {
		t.Errorf("%v", err)
	}
}
