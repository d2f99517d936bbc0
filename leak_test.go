package provisioner_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	stdlog "log"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/instancecfg"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// secret is in every secret of the host of TestNoSecretIsSeen.
const secret = "s3cr3t"

// seen is all that was printed in a run, by what it was.
type seen struct {
	mu    sync.Mutex
	texts map[string][]string
}

func (s *seen) add(what, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[what] = append(s.texts[what], text)
}

// value prints a value in every way that one is likely to be printed.
func (s *seen) value(what string, v any) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		s.add(what+" as "+verb, fmt.Sprintf(verb, v))
		s.add(what+" in a list as "+verb, fmt.Sprintf(verb, []any{v}))
	}
	if text, err := json.Marshal(v); err == nil {
		s.add(what+" as JSON", string(text))
	}
	var buf bytes.Buffer
	slog.New(slog.NewTextHandler(&buf, nil)).Info("x", "v", v)
	slog.New(slog.NewJSONHandler(&buf, nil)).Info("x", "v", v)
	stdlog.New(&buf, "", 0).Println(v)
	s.add(what+" logged", buf.String())
}

func (s *seen) err(what string, err error) {
	if err == nil {
		return
	}
	s.value(what, err)
	s.add(what+" in detail", errors.ErrorStack(err))
	s.add(what+" in details", errors.Details(err))
	var failed *provisioner.StartError
	if errors.As(err, &failed) {
		s.add(what+" as a table", failed.Table())
	}
}

func (s *seen) Observe(e provisioner.Event) {
	s.add("event", e.String())
	s.value("event", e)
	s.err("event's error", e.Err)
}

// leakyBroker shows what it is given wherever it can.
type leakyBroker struct {
	namer
	show func(what string, v any) // a function, or a Task would be printed with all that was printed before
}

func (b leakyBroker) Start(ctx context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
	b.show("start request", q)
	b.show("start request's address", &q)
	b.show("config", q.Config)
	b.show("config's address", &q.Config)
	b.show("auth", q.Config.Auth)
	b.show("info", q.Config.Info)
	if text, err := q.Config.CloudInit(); err != nil {
		b.show("cloud-init's error", err)
	} else {
		b.show("cloud-init", text)
	}
	q.Report(provisioner.InstanceAllocating, fmt.Sprintf("making %+v", q))
	switch q.Machine {
	case "1":
		return provisioner.StartResult{}, provisioner.Permanent(errors.Errorf("cannot make %+v", q))
	case "2":
		if q.Attempt == 1 {
			return provisioner.StartResult{}, errors.Annotatef(errors.Errorf("%#v", q.Config), "cannot make %v", &q)
		}
	case "3":
		panic(q)
	case "4":
		panic(&q.Config)
	}
	r, err := b.Broker.Start(ctx, q)
	if q.Machine == "5" {
		r.DisplayName = fmt.Sprintf("%+v\n", q.Config)
	}
	return r, err
}

func (b leakyBroker) DeriveZones(_ context.Context, q provisioner.StartRequest) ([]provisioner.ZoneName, error) {
	b.show("start request for zones", q)
	if q.Machine == "8" {
		return nil, errors.NotValidf("%+v", q)
	}
	return nil, nil
}

// leakyState is a state whose credentials are secret.
type leakyState struct {
	*provisionertest.State
	show func(what string, v any)
}

func (s leakyState) Authenticate(_ context.Context, reqs ...provisioner.AuthRequest) ([]provisioner.AuthResult, error) {
	results := make([]provisioner.AuthResult, len(reqs))
	for i, q := range reqs {
		results[i] = provisioner.AuthResult{ID: q.Machine, Auth: instancecfg.Auth{Tag: "machine-" + string(q.Machine), Password: instancecfg.Hide(secret + " password")}}
		if q.Machine == "7" {
			results[i].Auth.Tag = ""
		}
	}
	s.show("auth results", results)
	return results, nil
}

func (s leakyState) SetInstance(ctx context.Context, rec provisioner.InstanceRecord) error {
	s.show("instance record", rec)
	if rec.Machine == "9" && !strings.Contains(string(rec.Instance), "~") {
		return errors.Errorf("cannot record %+v", rec)
	}
	return s.State.SetInstance(ctx, rec)
}

func (s leakyState) WriteStatus(ctx context.Context, u provisioner.StatusUpdate) error {
	s.show("status", u)
	return s.State.WriteStatus(ctx, u)
}

func secretInfo(id int) provisioner.StartInfo {
	i := provisioner.StartInfo{Instance: instancecfg.Info{
		Jobs:             []instancecfg.Job{instancecfg.JobManageModel},
		UserData:         instancecfg.Hide(map[string]any{"chpasswd": map[string]any{"list": "root:" + secret + " root"}, "ssh_keys": []any{secret + " key"}}),
		ControllerConfig: instancecfg.Hide(map[string]any{"ca-private-key": secret + " ca"}),
		ImageSigningKey:  instancecfg.Hide(secret + " signing key"),
	}}
	switch id {
	case 6: // not valid in every secret, and elsewhere
		i.Instance.UserData = instancecfg.Hide(map[string]any{"a": []byte(secret), "b": secret + "\xff", "write_files": secret})
		i.Instance.ControllerConfig = instancecfg.Hide(map[string]any{"a": struct{ P string }{secret}})
		i.Instance.CACert = "-----BEGIN PRIVATE KEY-----\n" + secret
		i.Volumes = []provisioner.Volume{{}}
	case 10:
		i.Instance.AgentVersion = "none"
	}
	return i
}

// IC1: no secret is seen in any event, status, error, explanation, plan,
// report, transcript or printed value of a run in which whatever can fails.
func TestNoSecretIsSeen(t *testing.T) {
	s := &seen{texts: map[string][]string{}}
	synctest.Test(t, func(t *testing.T) {
		w := carryWorld(t, 11)
		must(t, w.AddPending("0/lxd/0"))
		w.SetAgents(provisioner.AgentBinary{Version: "3.6.1"})
		for i, m := range w.Machines() {
			info := secretInfo(i)
			must(t, w.SetStartInfo(m.ID, info))
			if i != 6 { // its certificate is a private key, which errors must not show
				s.value("start information", info)
			}
			s.err("start information's faults", info.Validate(m.ID))
		}
		cfg := configOf(w, nil)
		cfg.Broker = leakyBroker{namer{tampered{Broker: w.Broker()}, func(context.Context, []string) ([]string, error) { return nil, errors.New("no names") }}, s.value}
		cfg.State = leakyState{w.State(), s.value}
		cfg.Policy.Retry.Retries = 1
		report, lines := &provisioner.Transcript{}, &bytes.Buffer{}
		cfg.Observers = []provisioner.Observer{provisioner.ObserverFunc(s.Observe), report, provisioner.LogObserver{Logger: slog.New(slog.NewJSONHandler(lines, nil))}}
		task := newTask(t, cfg)
		show := func() {
			plan, err := task.Plan(t.Context())
			must(t, err)
			s.add("plan as text", plan.String())
			s.value("plan", plan)
			for _, m := range w.Machines() {
				x, err := task.Explain(m.ID)
				s.err("explain", err)
				s.add("explanation as text", x.String())
				s.value("explanation", x)
				s.err("explanation's error", x.LastError)
				s.add("status text", w.StatusText(m.ID))
			}
		}
		show()
		results, err := task.Reconcile(t.Context())
		s.err("reconcile", err)
		s.value("results", results)
		for _, r := range results.Results {
			s.err("result's error", r.Err)
		}
		stop := start(t, task)
		pass(time.Hour)
		show()
		s.err("run", stop())
		synctest.Wait() // a printer looks at everything, also at what an observer's goroutine leaves last
		s.add("log of events", lines.String())
		s.add("bug report", written(t, report))
		s.value("task", task)
		s.value("configuration", cfg)
		s.value("world", w)
		s.add("transcript", w.Transcript())
		for _, r := range w.Records() {
			s.value("record of a call", r)
		}
		for _, m := range w.Machines() {
			s.value("world's request", w.Request(m.ID))
		}
		if got := provisioned(w); len(got) < 4 {
			t.Errorf("only %v were started: the run has not got far", got)
		}
	})
	forms := map[string]string{"": secret, " in hexadecimal": hex.EncodeToString([]byte(secret)), " in bytes": strings.Trim(fmt.Sprint([]byte(secret)), "[]")}
	texts := 0
	for what, all := range s.texts {
		for _, text := range all {
			texts++
			for form, hidden := range forms {
				if at := strings.Index(strings.ToLower(text), hidden); at >= 0 {
					t.Errorf("%s shows a secret%s: …%.80s…", what, form, text[max(0, at-60):])
					break
				}
			}
		}
	}
	for _, what := range []string{"event", "start request as %+v", "cloud-init as %v", "explanation as text", "plan as text", "event's error as a table", "auth results as %#v"} {
		if len(s.texts[what]) == 0 {
			t.Errorf("nothing was seen of: %s", what)
		}
	}
	t.Logf("%d texts searched", texts)
}
