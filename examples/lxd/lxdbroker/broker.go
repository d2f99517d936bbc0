// Package lxdbroker runs machines as LXD instances: on one server, a cluster
// or a MicroCloud. It is a whole [provisioner.Broker] over LXD's REST API,
// made to be used as it is and to be copied for another cloud.
//
// To follow it, read names.go (whose is what), client.go (requests and
// operations), errors.go (what LXD's errors mean for the next attempt),
// start.go, stop.go, listing.go, zones.go; then what is optional: profiles.go,
// volumes.go, report.go, events.go.
package lxdbroker

import (
	"strings"
	"time"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// A Config says which LXD to use and how. Endpoints is required; every other
// field has a default.
type Config struct {
	// Endpoints are the addresses of one LXD: "unix:///path/to/unix.socket",
	// or "https://host:port" for one or more members of one cluster. The
	// others take over when one cannot be reached. Required.
	Endpoints []string

	// ClientCert and ClientKey, PEM, are what LXD trusts us by. Required for
	// https.
	ClientCert, ClientKey []byte

	// ServerCert, PEM, is the one certificate that LXD may show. Defaults to
	// any certificate that the system's roots vouch for.
	ServerCert []byte

	// Project holds our instances. Defaults to "default".
	Project string

	// ZonesAre says what counts as an availability zone. Defaults to Members.
	ZonesAre ZoneKind

	// Image is started where a request names none: an alias or a whole
	// fingerprint.
	Image string

	// ImageServer, the URL of a simplestreams server, is where aliases are
	// looked up. Defaults to LXD's own images.
	ImageServer string

	// Profiles are applied to every instance, before those of the request.
	// Defaults to "default".
	Profiles []string

	// NamePrefix begins the name of every instance. Defaults to "m".
	NamePrefix string

	// AddressWait is how long a start waits for the first IPv4 or global
	// address before it reports none. Defaults to 5 s; provisioner.Off does
	// not wait.
	AddressWait time.Duration

	// UserData makes an instance's cloud-init user data; empty is none.
	// Defaults to the CloudInit of the request's Config.
	UserData func(provisioner.StartRequest) (string, error)
}

// A ZoneKind is what counts as an availability zone.
type ZoneKind string

// What can be a zone.
const (
	Members        ZoneKind = "members"         // each cluster member is one
	FailureDomains ZoneKind = "failure-domains" // members that share one are one
)

// A Broker runs machines as LXD instances. All its methods may be called from
// several goroutines at once.
type Broker struct {
	cfg   Config
	lxd   *client
	known machineIndex
}

// The abilities that the library finds in this broker.
var (
	_ provisioner.Broker         = (*Broker)(nil)
	_ provisioner.ZoneLister     = (*Broker)(nil)
	_ provisioner.ZoneDeriver    = (*Broker)(nil)
	_ provisioner.InstanceFinder = (*Broker)(nil)
	_ provisioner.ProfileBroker  = (*Broker)(nil)
	_ provisioner.ProfileNamer   = (*Broker)(nil)
	_ provisioner.TraitsReporter = (*Broker)(nil)
)

// New checks the configuration, reports every fault at once as NotValid by
// field name, and does no I/O.
func New(cfg Config) (*Broker, error) {
	var faults []string
	fault := func(err error) {
		if err != nil {
			faults = append(faults, err.Error())
		}
	}
	lxd, err := newClient(cfg)
	fault(err)
	switch cfg.ZonesAre {
	case "":
		cfg.ZonesAre = Members
	case Members, FailureDomains:
	default:
		fault(errors.NotValidf("ZonesAre %q: want %q or %q:", cfg.ZonesAre, Members, FailureDomains))
	}
	if cfg.NamePrefix == "" {
		cfg.NamePrefix = "m"
	}
	fault(checkPrefix(cfg.NamePrefix))
	if cfg.AddressWait < provisioner.Off {
		fault(errors.NotValidf("AddressWait %v: want provisioner.Off, 0 for the default, or more:", cfg.AddressWait))
	}
	if len(faults) > 0 {
		return nil, errors.NewNotValid(nil, "lxdbroker: "+strings.Join(faults, "; "))
	}
	if cfg.AddressWait == 0 {
		cfg.AddressWait = 5 * time.Second
	}
	if cfg.Profiles == nil {
		cfg.Profiles = []string{"default"}
	}
	if cfg.UserData == nil {
		cfg.UserData = cloudInit
	}
	return &Broker{cfg: cfg, lxd: lxd}, nil
}

// Traits promises what LXD gives: names are unique, so a token is never started
// twice, and labels go into the database together with the instance. Reads are
// not promised to be consistent: a request that was sent before its context
// ended, or before we died, may be taken up by LXD a little later.
func (b *Broker) Traits() provisioner.Traits {
	return provisioner.Traits{DedupesByToken: true, Labels: true}
}
