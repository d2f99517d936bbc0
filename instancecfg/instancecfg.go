// Package instancecfg holds what a machine's agent boots with.
//
// What is secret in it is a [Secret], which has to be revealed on purpose and
// prints as REDACTED. A machine's nonce is no secret: the broker puts it on
// the instance, where whoever can list instances can read it.
package instancecfg

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/juju/errors"
)

// A Job is something that a machine's agent does.
type Job string

// The jobs. A machine without any hosts units.
const (
	JobHostUnits   Job = "host-units"
	JobManageModel Job = "manage-model" // needs state
)

// Info is what the host tells about how a machine's agent is to be set up. Its
// zero value is valid: an agent that finds out the rest by itself.
type Info struct {
	ControllerID     string
	Stream           string
	Base             string // series or base, as the host calls it
	AgentVersion     string
	APIAddresses     []string // host:port
	CACert           string   // PEM
	Tags             map[string]string
	Jobs             []Job                  // empty: JobHostUnits
	UserData         Secret[map[string]any] // cloud-init's top-level keys
	ControllerConfig Secret[map[string]any] // for machines whose jobs need state
	ImageSigningKey  Secret[string]         // for machines whose jobs need state
}

// Auth is what a machine's agent logs in with. The zero value is for hosts
// whose agents get their credentials in another way.
type Auth struct {
	Tag      string
	Password Secret[string]
}

// A Config is all that one machine's agent boots with.
type Config struct {
	Info
	Machine string
	Nonce   string
	Auth    Auth
}

// New puts the configuration of one machine together. Without jobs it hosts
// units; ControllerConfig and ImageSigningKey are kept only if a job needs
// state. It shares the lists and maps of info, which must not be changed
// afterwards.
//
// An error satisfies NotValid of github.com/juju/errors and names every fault,
// with the field, its value unless that is secret, and what was expected.
func New(machine, nonce string, info Info, auth Auth) (Config, error) {
	c := Config{Info: info, Machine: machine, Nonce: nonce, Auth: auth}
	if len(c.Jobs) == 0 {
		c.Jobs = []Job{JobHostUnits}
	}
	if !slices.Contains(c.Jobs, JobManageModel) {
		c.ControllerConfig = Secret[map[string]any]{}
		c.ImageSigningKey = Secret[string]{}
	}
	if faults := c.check(); len(faults) > 0 {
		return Config{}, c.notValid(faults)
	}
	return c, nil
}

// WithAuth returns c with other credentials, which it checks as New does: for
// hosts that make credentials only for machines whose information is valid.
func (c Config) WithAuth(auth Auth) (Config, error) {
	if faults := auth.check(); len(faults) > 0 {
		return Config{}, c.notValid(faults)
	}
	c.Auth = auth
	return c, nil
}

func (c Config) notValid(faults []string) error {
	return errors.NotValidf("instance config of machine %q: %s:", c.Machine, strings.Join(faults, "; "))
}

func (c Config) check() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if c.Machine == "" {
		fault("Machine %q: want a machine's id", c.Machine)
	}
	if host, id, _ := strings.Cut(c.Nonce, ":"); host == "" || id == "" {
		fault("Nonce %q: want <host tag>:<uuid>", c.Nonce)
	}
	for _, f := range []struct{ name, value string }{
		{"Machine", c.Machine}, {"Nonce", c.Nonce}, {"ControllerID", c.ControllerID}, {"Stream", c.Stream},
		{"Base", c.Base}, {"AgentVersion", c.AgentVersion},
	} {
		if !printable(f.value) {
			fault("%s %q: want printable text", f.name, f.value)
		}
	}
	for i, a := range c.APIAddresses {
		if !validAddress(a) {
			fault("APIAddresses[%d] %q: want host:port", i, a)
		}
	}
	if f := checkCert(c.CACert); f != "" {
		fault("CACert: %s", f)
	}
	var tags []string
	if len(c.Tags) > 0 { // most have none, and this is done for each start
		tags = slices.Sorted(maps.Keys(c.Tags))
	}
	for _, key := range tags {
		if value := c.Tags[key]; key == "" || !printable(key) || !printable(value) {
			fault("Tags[%q] %q: want a key, and both in printable text", key, value)
		}
	}
	for i, job := range c.Jobs {
		if job != JobHostUnits && job != JobManageModel {
			fault("Jobs[%d] %q: want %s or %s", i, job, JobHostUnits, JobManageModel)
		}
		if slices.Contains(c.Jobs[:i], job) {
			fault("Jobs[%d] %q: want each job once", i, job)
		}
	}
	faults = append(faults, c.Auth.check()...)
	faults = append(faults, checkData("UserData", c.UserData.Reveal())...)
	if _, f := userFiles(c.UserData.Reveal()); f != "" {
		faults = append(faults, f)
	}
	return append(faults, checkData("ControllerConfig", c.ControllerConfig.Reveal())...)
}

func (a Auth) check() (faults []string) {
	if !printable(a.Tag) {
		faults = append(faults, fmt.Sprintf("Auth.Tag %q: want printable text", a.Tag))
	}
	if password := a.Password.Reveal(); (a.Tag == "") != (password == "") {
		faults = append(faults, fmt.Sprintf("Auth.Tag %q, Auth.Password %q: want both or neither", a.Tag, a.Password))
	}
	return faults
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func validAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || !printable(host) || strings.ContainsAny(host, " /") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// checkCert shows nothing of what is no certificate: it may be a private key.
// It does not decode, which would take longer than all the rest of New.
func checkCert(s string) (fault string) {
	for rest := strings.TrimSpace(s); rest != ""; rest = strings.TrimSpace(rest) {
		block, ok := strings.CutPrefix(rest, "-----BEGIN CERTIFICATE-----")
		if ok {
			_, block, ok = strings.Cut(block, "-----END CERTIFICATE-----")
		}
		if !ok {
			return fmt.Sprintf("%d bytes that are something else: want PEM CERTIFICATE blocks and nothing between them", len(rest))
		}
		rest = block
	}
	return ""
}
