package lxdbroker

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// An APIError is an error that LXD answered with, or how one of its operations
// failed.
type APIError struct {
	Request   string // method and path
	Code      int    // HTTP's, or the operation's status code
	Message   string // LXD's words
	Operation bool   // an operation failed; the request itself was taken

	odd bool // the answer made no sense
}

// Error gives LXD's words, and what they answer.
func (e *APIError) Error() string {
	return fmt.Sprintf("LXD, %s: %s (%d)", e.Request, e.Message, e.Code)
}

// An unansweredError is why a request got no answer.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// A lostError says that an operation was begun, and that how it ended cannot
// be told.
type lostError struct {
	request string
	err     error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("LXD, %s: lost sight of the operation: %v", e.request, e.err)
}
func (e *lostError) Unwrap() error { return e.err }

// says is true if LXD's words hold one of the texts, in any case.
func (e *APIError) says(texts ...string) bool {
	message := strings.ToLower(e.Message)
	for _, text := range texts {
		if strings.Contains(message, text) {
			return true
		}
	}
	return false
}

func isNotFound(err error) bool {
	var e *APIError
	return errors.As(err, &e) && !e.Operation && e.Code == http.StatusNotFound && !e.odd
}

// isConflict says that what was to be made is there, or is being made.
func isConflict(err error) bool {
	var e *APIError
	return errors.As(err, &e) && (!e.Operation && e.Code == http.StatusConflict || e.says("already exists", "busy running a"))
}

func isStale(err error) bool {
	var e *APIError
	return errors.As(err, &e) && !e.Operation && e.Code == http.StatusPreconditionFailed
}

// mark says what an error means for the next attempt. An error that comes
// back unmarked is the zone's.
//
// LXD has few codes of its own (a quota and a missing profile are both 500),
// so its words have to be read too. Words that are not known here fall on the
// safe side: a 5xx may have done something.
func mark(err error) error {
	if err == nil || provisionerMarked(err) {
		return err
	}
	var e *APIError
	if errors.As(err, new(*lostError)) {
		return provisioner.Ambiguous(err)
	}
	if errors.As(err, new(*unansweredError)) {
		return markUnanswered(err)
	}
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.odd:
		return provisioner.Ambiguous(err)
	case !e.Operation && (e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden):
		return provisioner.Unauthorized(err)
	case !e.Operation && e.Code == http.StatusTooManyRequests:
		return provisioner.RetryAfter(err, 5*time.Second)
	case e.Operation && e.Code == opCancelled:
		return provisioner.Ambiguous(err)
	}
	if marked, ok := markWords(e, err); ok {
		return marked
	}
	switch {
	case e.Operation:
		return err // LXD has undone it
	case e.Code == http.StatusNotFound:
		return provisioner.ZoneIndependent(errors.WithType(err, errors.NotFound))
	case e.Code >= 400 && e.Code < 500:
		return provisioner.ZoneIndependent(err)
	}
	return provisioner.Ambiguous(err)
}

func markWords(e *APIError, err error) (error, bool) {
	switch {
	case e.says("reached maximum"): // a project's limit
		return provisioner.Quota(err), true
	case e.says("out of disk space", "no space left", "disk quota exceeded", "cannot allocate memory", "out of memory", "not enough"):
		return provisioner.OutOfCapacity(err), true
	case e.says("already exists"):
		return provisioner.AlreadyExists(err), true
	case e.says("unable to connect to", "missing event connection", "cluster member not found", "is offline", "evacuated"):
		return err, true // the member's, and nothing was done
	case e.says("image", "profile", "project", "storage pool") && e.says("not found", "doesn't exist", "not provided", "doesn't match"):
		return provisioner.ZoneIndependent(errors.WithType(err, errors.NotFound)), true
	case e.says("unknown configuration key", "invalid", "failed checking if instance creation allowed", "no root device"):
		return provisioner.ZoneIndependent(err), true
	}
	return nil, false
}

func markUnanswered(err error) error {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errServerCert), errors.As(err, &cert):
		return provisioner.Unauthorized(err)
	case errors.As(err, &op) && op.Op == "remote error": // the server's TLS alert
		return provisioner.Unauthorized(err)
	case errors.As(err, &op) && op.Op == "dial" && op.Timeout():
		// Nothing was sent, so this must not be taken for an unknown outcome,
		// as a time-out would.
		return provisioner.ZoneIndependent(errors.New(err.Error()))
	case errors.As(err, &op) && op.Op == "dial":
		return provisioner.ZoneIndependent(err)
	}
	return provisioner.Ambiguous(err)
}

func provisionerMarked(err error) bool {
	for _, is := range []error{
		provisioner.ErrZoneIndependent, provisioner.ErrPermanent, provisioner.ErrRateLimited,
		provisioner.ErrOutOfCapacity, provisioner.ErrAmbiguous, provisioner.ErrAlreadyExists,
		provisioner.ErrUnauthorized, provisioner.ErrQuota,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}
