package provisioner

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// A LogObserver writes each event as one line: its kind is the message, its
// fields are the attributes machine, instance, zone, attempt, n, next, text, err
// (a text) and seq, those that are zero left out, and its time is the line's.
type LogObserver struct {
	// Logger is where lines go. Defaults to slog.Default().
	Logger *slog.Logger

	// Level says how much each kind matters. Defaults to EventKind.Level.
	Level func(EventKind) slog.Level
}

// Observe writes a line, if the logger wants its level.
func (o LogObserver) Observe(e Event) {
	logger, level := o.Logger, EventKind.Level
	if logger == nil {
		logger = slog.Default()
	}
	if o.Level != nil {
		level = o.Level
	}
	ctx, l := context.Background(), level(e.Kind)
	if !logger.Enabled(ctx, l) {
		return
	}
	line := slog.NewRecord(e.At, l, string(e.Kind), 0)
	line.AddAttrs(e.attrs()...)
	_ = logger.Handler().Handle(ctx, line) // there is nobody left to tell
}

// Level is how much a kind of event matters to an operator: slog.LevelError asks
// for a person, LevelWarn is trouble that the Task goes on about, LevelInfo is
// what was done, and LevelDebug how it came to that.
func (k EventKind) Level() slog.Level {
	switch k {
	case EventStartFailed, EventOrphan, EventFrozen, EventCallStuck, EventObserverFailed:
		return slog.LevelError
	case EventZonesOut, EventProfilesUnread, EventUnknown, EventMissing, EventZoneVanished, EventZoneUnavailable, EventZoneCooling, EventsDropped:
		return slog.LevelWarn
	case EventLooked, EventLeft, EventForgotten, EventQueued, EventAttempt, EventMaintained, EventZones:
		return slog.LevelDebug
	}
	if strings.HasSuffix(string(k), "-failed") {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// attrs collects those that are not zero.
type attrs []slog.Attr

func (a *attrs) text(key, v string) {
	if v != "" {
		*a = append(*a, slog.String(key, v))
	}
}

func (a *attrs) number(key string, n int) {
	if n != 0 {
		*a = append(*a, slog.Int(key, n))
	}
}

func (a *attrs) yes(key string, v bool) {
	if v {
		*a = append(*a, slog.Bool(key, true))
	}
}

func (a *attrs) time(key string, t time.Time) {
	if !t.IsZero() {
		*a = append(*a, slog.Time(key, t))
	}
}

func (a *attrs) err(err error) { a.text("err", errorText(err)) }

func (a attrs) group() slog.Value { return slog.GroupValue(a...) }

func (e Event) attrs() (a attrs) {
	a.text("machine", string(e.Machine))
	a.text("instance", string(e.Instance))
	a.text("zone", string(e.Zone))
	a.number("attempt", e.Attempt)
	a.number("n", e.N)
	a.time("next", e.Next)
	a.text("text", e.Text)
	a.err(e.Err)
	a.number("seq", int(e.Seq))
	return a
}

// LogValue is the event as a group, for log/slog: kind, and what LogObserver
// writes.
func (e Event) LogValue() slog.Value {
	return append(attrs{slog.String("kind", string(e.Kind))}, e.attrs()...).group()
}

// LogValue is the record as a group, for log/slog.
func (m Machine) LogValue() slog.Value {
	var a attrs
	a.text("machine", string(m.ID))
	a.text("life", string(m.Life))
	a.text("instance", string(m.Instance))
	a.text("zone", string(m.Zone))
	a.yes("keep", m.Keep)
	a.text("status", string(m.Status))
	a.text("instanceStatus", string(m.InstanceStatus))
	a.text("unread", m.Unread.String())
	return a.group()
}

// LogValue is the action as a group, for log/slog.
func (a Action) LogValue() slog.Value {
	var l attrs
	l.text("kind", string(a.Kind))
	l.text("machine", string(a.Was.ID))
	l.text("instance", string(a.Was.Instance))
	l.text("zone", string(a.Zone))
	l.text("reason", a.Reason)
	l.yes("ensureDead", a.EnsureDead)
	l.yes("lookAgain", a.LookAgain)
	l.err(a.Err)
	return l.group()
}

// LogValue is the result as a group, for log/slog.
func (r Result) LogValue() slog.Value {
	var a attrs
	a.text("kind", string(r.Kind))
	a.text("machine", string(r.Machine))
	a.text("instance", string(r.Instance))
	a.text("zone", string(r.Zone))
	a.text("reason", r.Reason)
	a.err(r.Err)
	return a.group()
}

// LogValue is the explanation as a group, for log/slog.
func (x Explanation) LogValue() slog.Value {
	var a attrs
	a.text("machine", string(x.Machine))
	a.text("phase", string(x.Phase))
	a.text("reason", x.Reason)
	a.number("attempt", x.Attempt)
	a.text("zone", string(x.Zone))
	a.text("instance", string(x.Instance))
	a.err(x.LastError)
	a.time("next", x.Next)
	return a.group()
}

// LogValue is the call as a group, for log/slog.
func (c Call) LogValue() slog.Value {
	var a attrs
	a.text("call", c.Name)
	a.text("machine", string(c.Machine))
	a.number("machines", c.Machines)
	a.text("instance", string(c.Instance))
	a.text("zone", string(c.Zone))
	a.number("attempt", c.Attempt)
	return a.group()
}

// LogValue says which start it is, for log/slog: machine, attempt, zone, token,
// host and constraints. What the instance boots with is left out.
func (q StartRequest) LogValue() slog.Value {
	var a attrs
	a.text("machine", string(q.Machine))
	a.number("attempt", q.Attempt)
	a.text("zone", string(q.Zone))
	a.text("token", q.Token)
	a.text("host", string(q.Host))
	a.text("constraints", q.Constraints.String())
	return a.group()
}

// LogValue says which instance it is, for log/slog, and leaves out what is in it.
func (r StartResult) LogValue() slog.Value {
	var a attrs
	a.text("instance", string(r.Instance))
	a.text("zone", string(r.Zone))
	a.text("hardware", r.Hardware.String())
	return a.group()
}

// LogValue says what is recorded, for log/slog, without networks, volumes and
// the nonce.
func (r InstanceRecord) LogValue() slog.Value {
	var a attrs
	a.text("machine", string(r.Machine))
	a.text("instance", string(r.Instance))
	a.text("zone", string(r.Zone))
	a.text("hardware", r.Hardware.String())
	return a.group()
}

// LogValue is the status as a group, for log/slog.
func (u StatusUpdate) LogValue() slog.Value {
	var a attrs
	a.text("machine", string(u.Machine))
	a.text("status", string(u.Status))
	a.text("instanceStatus", string(u.InstanceStatus))
	a.text("text", u.Text)
	return a.group()
}

// LogValue is the error as a group, for log/slog: machine, err, how many attempts
// were made in each zone, and the zones that were out.
func (e *StartError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	var a attrs
	a.text("machine", string(e.Machine))
	a.err(e)
	var tried, out attrs
	for _, z := range slices.Sorted(maps.Keys(e.Tried)) {
		tried.number(string(cmp.Or(z, "none")), e.Tried[z])
	}
	for _, x := range e.Out {
		out.text(string(cmp.Or(x.Zone, "none")), x.Reason)
	}
	return append(a, slog.Attr{Key: "tried", Value: tried.group()}, slog.Attr{Key: "out", Value: out.group()}).group()
}

// LogValue is the error as a group, for log/slog: each instance and why it could
// not be stopped.
func (e *StopError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	var a attrs
	for _, id := range slices.Sorted(maps.Keys(e.Failed)) {
		a.text(string(id), errorText(e.Failed[id]))
	}
	return a.group()
}
