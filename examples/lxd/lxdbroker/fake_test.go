package lxdbroker_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/lxd/lxdbroker"
)

// A fake is an LXD of one test: it answers "METHOD /path" with what the test
// says, with success where it says nothing, and remembers what it was asked.
type fake struct {
	answers map[string]http.HandlerFunc

	mu    sync.Mutex
	asked []string          // "METHOD /path"
	query map[string]string // by "METHOD /path", the last
	body  map[string]string // by "METHOD /path", the last
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Method + " " + r.URL.Path
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.asked, f.query[key], f.body[key] = append(f.asked, key), r.URL.RawQuery, string(body)
	f.mu.Unlock()
	switch answer := f.answers[key]; {
	case answer != nil:
		answer(w, r)
	case filepath.Base(r.URL.Path) == "wait":
		fmt.Fprint(w, `{"type":"sync","metadata":{"status_code":200}}`)
	case r.Method == "GET":
		fmt.Fprint(w, `{"type":"sync","metadata":{}}`)
	default:
		fmt.Fprint(w, async)
	}
}

func (f *fake) saw(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, asked := range f.asked {
		if asked == key {
			n++
		}
	}
	return n
}

const (
	seven = "/1.0/instances/m-3ee5f441850c-7" // machine 7's, of controller c
	state = "PUT " + seven + "/state"
	post  = "POST /1.0/instances"
	wait  = "GET /1.0/operations/op/wait"
	async = `{"type":"async","operation":"/1.0/operations/op?project=default","metadata":{"may_cancel":true}}`
)

// says answers with a status and a body.
func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// sync200 answers with metadata.
func sync200(metadata string) http.HandlerFunc {
	return says(http.StatusOK, `{"type":"sync","metadata":`+metadata+`}`)
}

// failed answers with an error.
func failed(status int, text string) http.HandlerFunc {
	return says(status, fmt.Sprintf(`{"type":"error","error_code":%d,"error":%q}`, status, text))
}

// ended is how an operation ended.
func ended(code int, text string) http.HandlerFunc {
	return sync200(fmt.Sprintf(`{"status_code":%d,"err":%q}`, code, text))
}

// first answers once with one, and then with the other.
func first(one, other http.HandlerFunc) http.HandlerFunc {
	var asked atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) {
		if asked.Swap(true) {
			other(w, r)
			return
		}
		one(w, r)
	}
}

// hangsUp ends the connection without an answer.
func hangsUp(w http.ResponseWriter, _ *http.Request) {
	panic(http.ErrAbortHandler)
}

// A peeker accepts as LXD does at its socket: nobody else while a connection says
// nothing.
type peeker struct{ net.Listener }

func (l peeker) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	_, _ = r.Peek(1) // what is wrong with it, its next reader finds
	return peeked{conn, r}, nil
}

type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (c peeked) Read(data []byte) (int, error) { return c.r.Read(data) }

// start begins a fake and gives its address.
func (f *fake) start(t *testing.T) string {
	t.Helper()
	f.query, f.body = map[string]string{}, map[string]string{}
	dir, err := os.MkdirTemp("", "lxd") // t.TempDir's is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(f)
	server.Listener.Close()
	server.Listener = peeker{listener}
	server.Start()
	t.Cleanup(server.Close)
	return "unix://" + socket
}

// fakeBroker is a broker of an LXD that answers as the test says.
func fakeBroker(t *testing.T, answers map[string]http.HandlerFunc, change ...func(*lxdbroker.Config)) (*lxdbroker.Broker, *fake) {
	t.Helper()
	f := &fake{answers: answers}
	cfg := lxdbroker.Config{Endpoints: []string{f.start(t)}, Image: "img", AddressWait: provisioner.Off}
	for _, c := range change {
		c(&cfg)
	}
	b, err := lxdbroker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b, f
}

func fakeRequest() provisioner.StartRequest {
	return provisioner.StartRequest{
		Machine: "7", Attempt: 1, Zone: "m1", Nonce: "n", Token: "t",
		Labels: provisioner.Labels{Controller: "c", Machine: "7", Nonce: "n", Token: "t", Epoch: 3},
		Report: func(provisioner.InstanceStatus, string) {},
	}
}
