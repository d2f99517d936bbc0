package lxdbroker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/juju/errors"
)

// A client makes requests of one LXD, at whichever of its endpoints answers.
type client struct {
	http    *http.Client
	base    string // scheme and host of every URL
	project string
}

// errServerCert is LXD showing another certificate than it should.
const errServerCert = errors.ConstError("LXD shows another certificate than ServerCert")

// newClient checks what is needed to reach LXD; it does no I/O.
func newClient(cfg Config) (*client, error) {
	d := &dialer{}
	scheme := ""
	for i, endpoint := range cfg.Endpoints {
		u, err := url.Parse(endpoint)
		bad := func(want string) error { return errors.NotValidf("Endpoints[%d] %q: want %s:", i, endpoint, want) }
		switch {
		case err != nil:
			return nil, bad("a URL")
		case scheme != "" && u.Scheme != scheme:
			return nil, bad("the same scheme as the others")
		case u.Scheme == "unix" && u.Path != "":
			d.add("unix", u.Path)
		case u.Scheme == "https" && u.Port() != "" && u.Hostname() != "" && strings.Trim(u.Path, "/") == "":
			d.add("tcp", u.Host)
		default:
			return nil, bad("unix:///path or https://host:port")
		}
		scheme = u.Scheme
	}
	if scheme == "" {
		return nil, errors.NotValidf("Endpoints %v: want at least one:", cfg.Endpoints)
	}
	c := &client{project: cfg.Project, base: "http://lxd"}
	// LXD accepts nobody else at its socket while a connection says nothing, and
	// a transport that keeps connections may make one that it has no use for yet.
	once := scheme == "unix"
	transport := &http.Transport{
		DialContext: d.dial, MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: 10 * time.Second, DisableKeepAlives: once,
	}
	if scheme == "https" {
		config, err := tlsConfig(cfg)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = config
		u, _ := url.Parse(cfg.Endpoints[0])
		c.base = "https://" + u.Host
	}
	c.http = &http.Client{Transport: transport}
	return c, nil
}

// tlsConfig trusts the server by its very certificate, as LXD's own clients
// do: LXD signs its certificates itself, for no name in particular.
func tlsConfig(cfg Config) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(cfg.ClientCert, cfg.ClientKey)
	if err != nil {
		return nil, errors.NewNotValid(nil, fmt.Sprintf("ClientCert, ClientKey: want a PEM certificate and its key: %v", err))
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	if len(cfg.ServerCert) == 0 {
		return config, nil
	}
	block, _ := pem.Decode(cfg.ServerCert)
	if block == nil {
		return nil, errors.NotValidf("ServerCert: want a PEM certificate:")
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return nil, errors.NewNotValid(nil, fmt.Sprintf("ServerCert: %v", err))
	}
	config.InsecureSkipVerify = true // VerifyConnection does it
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 || !bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes) {
			return errServerCert
		}
		return nil
	}
	return config, nil
}

// A dialer connects to the first endpoint that can be reached, beginning with
// the last that could.
type dialer struct {
	networks, addresses []string
	last                atomic.Int32
}

func (d *dialer) add(network, address string) {
	d.networks, d.addresses = append(d.networks, network), append(d.addresses, address)
}

func (d *dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var first error
	dialer := net.Dialer{Timeout: 5 * time.Second}
	for n := range d.addresses {
		i := (int(d.last.Load()) + n) % len(d.addresses)
		conn, err := dialer.DialContext(ctx, d.networks[i], d.addresses[i])
		if err == nil {
			d.last.Store(int32(i))
			return conn, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// An answer is what LXD wraps everything in.
type answer struct {
	Type      string          `json:"type"` // sync, async, error
	Metadata  json.RawMessage `json:"metadata"`
	Operation string          `json:"operation"`
	Error     string          `json:"error"`
	ErrorCode int             `json:"error_code"`

	etag string
}

// A call is one request. Query always gets the project.
type call struct {
	method, path string
	query        url.Values
	body         any
	etag         string // the change is made only to this version
}

// do makes one request. Its errors are an *APIError if LXD answered with one,
// and an *unansweredError if there was no answer.
func (c *client) do(ctx context.Context, r call) (answer, error) {
	query := url.Values{}
	for key, values := range r.query {
		query[key] = values
	}
	if c.project != "" && !query.Has("project") {
		query.Set("project", c.project)
	}
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return answer{}, errors.Trace(err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path+"?"+query.Encode(), body)
	if err != nil {
		return answer{}, errors.Trace(err)
	}
	if r.etag != "" {
		req.Header.Set("If-Match", r.etag)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, &unansweredError{err}
	}
	defer resp.Body.Close()
	return readAnswer(r, resp)
}

// maxAnswer bounds what is read of one answer: a listing of 50,000 instances.
const maxAnswer = 512 << 20

func readAnswer(r call, resp *http.Response) (answer, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer{}, &unansweredError{err}
	}
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return a, &APIError{Request: r.method + " " + r.path, Code: resp.StatusCode,
			Message: fmt.Sprintf("not an answer of LXD: %.100q", data), odd: true}
	}
	if a.Type == "error" || resp.StatusCode >= 400 {
		if a.ErrorCode == 0 {
			a.ErrorCode = resp.StatusCode
		}
		return a, &APIError{Request: r.method + " " + r.path, Code: a.ErrorCode, Message: a.Error}
	}
	a.etag = resp.Header.Get("ETag")
	return a, nil
}

// get reads one object into v and returns its version.
func (c *client) get(ctx context.Context, path string, query url.Values, v any) (etag string, err error) {
	a, err := c.do(ctx, call{method: "GET", path: path, query: query})
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(a.Metadata, v); err != nil {
		return "", &APIError{Request: "GET " + path, Code: http.StatusOK, Message: fmt.Sprintf("not what was asked for: %v", err), odd: true}
	}
	return a.etag, nil
}

// An operation is LXD at work.
type operation struct {
	Status     string `json:"status"`
	StatusCode int    `json:"status_code"`
	Err        string `json:"err"`
	MayCancel  bool   `json:"may_cancel"`
}

// What an operation's status code can be at its end.
const (
	opSuccess   = 200
	opFailure   = 400
	opCancelled = 401
)

// seesThrough is how long a change is still waited for after the end of its
// context. LXD does not notice that its client is gone: it would begin all the
// same, and a listing afterwards would lack what is still to come.
const seesThrough = 2 * time.Second

// outlive is ctx, which ends so much later.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return longer, func() { stop(); cancel() }
}

// run makes a request and waits until what it began has ended.
func (c *client) run(ctx context.Context, r call) error {
	if err := ctx.Err(); err != nil {
		return &unansweredError{err}
	}
	longer, stop := outlive(ctx, seesThrough)
	defer stop()
	a, err := c.do(longer, r)
	if err != nil || a.Type != "async" {
		return err
	}
	// The answer names the operation with a query of its own.
	u, err := url.Parse(a.Operation)
	if err != nil || !strings.HasPrefix(u.Path, "/1.0/operations/") {
		return &APIError{Request: r.method + " " + r.path, Code: http.StatusAccepted, Message: fmt.Sprintf("no operation of LXD: %q", a.Operation), odd: true}
	}
	var begun operation
	_ = json.Unmarshal(a.Metadata, &begun) // without it, it can't be cancelled
	err = c.wait(ctx, r, u)
	if ctx.Err() != nil {
		if begun.MayCancel {
			c.cancel(ctx, u)
		}
		_ = c.wait(longer, r, u) // so that what it makes can be listed; err says what the caller may know
	}
	return err
}

// wait returns how an operation ended. When a connection breaks it asks once
// more, for another endpoint may still know.
func (c *client) wait(ctx context.Context, r call, op *url.URL) error {
	var end operation
	_, err := c.get(ctx, op.Path+"/wait", op.Query(), &end)
	if err != nil && ctx.Err() == nil && !errors.As(err, new(*APIError)) {
		_, err = c.get(ctx, op.Path+"/wait", op.Query(), &end)
	}
	if err != nil {
		// Whatever it is, it says nothing about what the operation does.
		return &lostError{request: r.method + " " + r.path, err: err}
	}
	if end.StatusCode == opSuccess {
		return nil
	}
	return &APIError{Request: r.method + " " + r.path, Code: end.StatusCode, Message: end.Err, Operation: true}
}

// cancel is done even though ctx has ended, for that is why.
func (c *client) cancel(ctx context.Context, op *url.URL) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	_, _ = c.do(ctx, call{method: "DELETE", path: op.Path, query: op.Query()})
}
