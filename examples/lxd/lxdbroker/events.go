package lxdbroker

import (
	"context"
	"encoding/json"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/juju/errors"
	"github.com/seed81ba69f2/provisioner"
)

// An Event is something that happened to an instance of ours.
type Event struct {
	Machine  provisioner.MachineID
	Instance provisioner.InstanceID
	Action   string // LXD's word: "instance-stopped", "instance-deleted", …
	At       time.Time
}

// Ended says that the instance has stopped or is gone.
func (e Event) Ended() bool {
	switch e.Action {
	case "instance-stopped", "instance-shutdown", "instance-deleted":
		return true
	}
	return false
}

// lifecycle is an event as LXD sends it.
type lifecycle struct {
	Type     string    `json:"type"`
	Time     time.Time `json:"timestamp"`
	Metadata struct {
		Action string `json:"action"`
		Source string `json:"source"`
	} `json:"metadata"`
}

// Waits between two connections to LXD's events.
const (
	firstRedial = time.Second
	lastRedial  = 30 * time.Second
)

// Watch calls happened for every event of an instance of ours until ctx ends,
// one at a time, and returns ctx's error. When the connection is lost it
// connects again; what happened meanwhile nobody knows, so missed is called
// each time it is connected, the first time included. An event is ours if the
// instance was started, listed or found by this broker, or if it can be read.
func (b *Broker) Watch(ctx context.Context, happened func(Event), missed func()) error {
	wait := firstRedial
	for ctx.Err() == nil {
		conn, err := b.dialEvents(ctx)
		if err == nil {
			wait = firstRedial
			missed()
			b.readEvents(ctx, conn, happened)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, lastRedial)
	}
	return ctx.Err()
}

func (b *Broker) dialEvents(ctx context.Context) (*websocket.Conn, error) {
	query := url.Values{"type": {"lifecycle"}}
	if b.cfg.Project != "" {
		query.Set("project", b.cfg.Project)
	}
	conn, _, err := websocket.Dial(ctx, b.lxd.base+"/1.0/events?"+query.Encode(), &websocket.DialOptions{HTTPClient: b.lxd.http})
	if err != nil {
		return nil, errors.Trace(err)
	}
	conn.SetReadLimit(1 << 20)
	return conn, nil
}

func (b *Broker) readEvents(ctx context.Context, conn *websocket.Conn, happened func(Event)) {
	defer conn.CloseNow()
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if e, ok := b.event(ctx, data); ok {
			happened(e)
			if e.Action == "instance-deleted" {
				b.known.forget(string(e.Instance))
			}
		}
	}
}

// event reads one message; what is no instance's or not ours is passed over.
func (b *Broker) event(ctx context.Context, data []byte) (Event, bool) {
	var l lifecycle
	if json.Unmarshal(data, &l) != nil || !strings.HasPrefix(l.Metadata.Action, "instance-") {
		return Event{}, false
	}
	source, err := url.Parse(l.Metadata.Source)
	if err != nil || path.Dir(source.Path) != "/1.0/instances" && path.Dir(source.Path) != "/1.0/containers" {
		return Event{}, false
	}
	name := path.Base(source.Path)
	machine := b.known.find(name)
	if machine == "" {
		if there, _, err := b.instance(ctx, name); err == nil {
			machine = labelsOf(there.Config).Machine
			b.known.add(name, machine)
		}
	}
	return Event{Machine: machine, Instance: provisioner.InstanceID(name), Action: l.Metadata.Action, At: l.Time}, machine != ""
}

// Changes is a watcher for provisioner.Config.Changes, for a host that has
// none of its own or merges both: it delivers the machine of each instance
// that has ended, and every machine this broker knows when events may have
// been missed. Its Stop ends it.
func (b *Broker) Changes(ctx context.Context) provisioner.Stream[[]provisioner.MachineID] {
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan []provisioner.MachineID)
	send := func(ids []provisioner.MachineID) {
		select {
		case changes <- ids:
		case <-ctx.Done():
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Watch(ctx, func(e Event) {
			if e.Ended() {
				send([]provisioner.MachineID{e.Machine})
			}
		}, func() { send(b.known.all()) })
	}()
	return provisioner.Stream[[]provisioner.MachineID]{C: changes, Stop: func() error { cancel(); <-done; return nil }}
}
