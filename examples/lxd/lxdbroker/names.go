package lxdbroker

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// maxName is how long LXD lets an instance's name be.
const maxName = 63

var (
	validPrefix = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]{0,19}$`)
	notInNames  = regexp.MustCompile(`[^a-zA-Z0-9]+`)
)

func checkPrefix(prefix string) error {
	if !validPrefix.MatchString(prefix) {
		return errors.NotValidf("NamePrefix %q: want a letter, then up to 19 letters, digits or dashes:", prefix)
	}
	return nil
}

// instanceName is the same for all attempts of one machine, and no other's:
// LXD itself then keeps a machine from getting two instances. The hash makes
// it so; the machine's id is there for people.
func instanceName(prefix, controller string, machine provisioner.MachineID) string {
	name := prefix + "-" + nameHash(controller, machine)
	if id := strings.Trim(notInNames.ReplaceAllString(string(machine), "-"), "-"); id != "" {
		name += "-" + id
	}
	return strings.TrimRight(name[:min(len(name), maxName)], "-")
}

func nameHash(controller string, machine provisioner.MachineID) string {
	sum := sha256.Sum256([]byte(controller + "\x00" + string(machine)))
	return hex.EncodeToString(sum[:6])
}

// cannotBe says that an instance of that name has not the labels: one machine's
// instance has that machine's hash in its name, whatever the prefix.
func cannotBe(name string, want provisioner.Labels) bool {
	return want.Controller != "" && want.Machine != "" && !strings.Contains(name, "-"+nameHash(want.Controller, want.Machine))
}

// Labels are kept in the instance's own configuration, where LXD leaves
// everything that begins with "user." alone.
const (
	labelController = "user.provisioner.controller"
	labelMachine    = "user.provisioner.machine"
	labelNonce      = "user.provisioner.nonce"
	labelToken      = "user.provisioner.token"
	labelEpoch      = "user.provisioner.epoch"
	labelVolume     = "user.provisioner.volume"
)

func labelConfig(l provisioner.Labels) map[string]string {
	config := map[string]string{
		labelController: l.Controller,
		labelMachine:    string(l.Machine),
		labelNonce:      l.Nonce,
		labelToken:      l.Token,
	}
	if l.Epoch != 0 {
		config[labelEpoch] = strconv.FormatUint(l.Epoch, 10)
	}
	return config
}

func labelsOf(config map[string]string) provisioner.Labels {
	// An epoch that is no number is no epoch of ours.
	epoch, _ := strconv.ParseUint(config[labelEpoch], 10, 64)
	return provisioner.Labels{
		Controller: config[labelController],
		Machine:    provisioner.MachineID(config[labelMachine]),
		Nonce:      config[labelNonce],
		Token:      config[labelToken],
		Epoch:      epoch,
	}
}

// matches says whether has equals every field of want that isn't zero.
func matches(has, want provisioner.Labels) bool {
	return (want.Controller == "" || has.Controller == want.Controller) &&
		(want.Machine == "" || has.Machine == want.Machine) &&
		(want.Nonce == "" || has.Nonce == want.Nonce) &&
		(want.Token == "" || has.Token == want.Token) &&
		(want.Epoch == 0 || has.Epoch == want.Epoch)
}
