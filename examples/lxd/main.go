// Command lxd keeps a fleet of LXD instances as a file says.
//
//	go run . -fleet fleet.json -lxd unix:///var/lib/lxd/unix.socket
//
// What it has made is kept beside the fleet file. Interrupted or killed, it
// goes on where it was when it is run again.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/examples/lxd/lxdbroker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	switch err := run(ctx, os.Args[1:], os.Stdout); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "lxd:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	fleet, lxd, cert, key, serverCert string
	plan, watch                       bool
	broker                            lxdbroker.Config
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("lxd", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.fleet, "fleet", "", "the fleet `file`")
	flags.StringVar(&o.lxd, "lxd", "unix:///var/lib/lxd/unix.socket", "where LXD is: a unix socket, or https `addresses` of members of one cluster, with commas between")
	flags.StringVar(&o.cert, "cert", "", "for https: the client's certificate `file`")
	flags.StringVar(&o.key, "key", "", "for https: the client's key `file`")
	flags.StringVar(&o.serverCert, "server-cert", "", "for https: the server's certificate `file`")
	flags.StringVar(&o.broker.Project, "project", "", "the LXD `project`")
	flags.StringVar(&o.broker.Image, "image", "", "the `image` to start: an alias or fingerprint")
	flags.StringVar(&o.broker.ImageServer, "image-server", "", "`URL` of the simplestreams server that has the image; none: LXD itself has it")
	flags.StringVar((*string)(&o.broker.ZonesAre), "zones", "", "what a zone is: members or failure-domains")
	flags.BoolVar(&o.plan, "plan", false, "say what would be done, and do nothing")
	flags.BoolVar(&o.watch, "watch", false, "go on: watch LXD's events until interrupted")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.fleet == "" || flags.NArg() > 0 {
		return o, fmt.Errorf("want -fleet FILE and no more arguments than flags; see -help")
	}
	o.broker.Endpoints = strings.Split(o.lxd, ",")
	for _, f := range []struct {
		name string
		data *[]byte
	}{{o.cert, &o.broker.ClientCert}, {o.key, &o.broker.ClientKey}, {o.serverCert, &o.broker.ServerCert}} {
		if f.name == "" {
			continue
		}
		data, err := os.ReadFile(f.name)
		if err != nil {
			return o, err
		}
		*f.data = data
	}
	return o, nil
}

// shutdownGrace is how long starts under way are waited for: a busy LXD may
// take its time, and what is waited for need not be looked for later.
const shutdownGrace = 2 * time.Minute

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	records, err := open(o.fleet)
	if err != nil {
		return err
	}
	defer records.close()
	broker, err := lxdbroker.New(o.broker)
	if err != nil {
		return err
	}
	if _, err := broker.Zones(ctx); errors.Is(err, provisioner.ErrUnauthorized) {
		return err // which no waiting would mend
	}
	printer := &printer{out: out, began: time.Now()}
	cfg := provisioner.Config{
		Controller:    records.fleet.Controller,
		Broker:        broker,
		State:         records,
		Policy:        provisioner.Policy{Harvest: records.fleet.Harvest},
		Observers:     []provisioner.Observer{provisioner.ObserverFunc(printer.observe)},
		ShutdownGrace: shutdownGrace,
	}
	if o.watch {
		cfg.Changes, cfg.ProfileChanges = broker.Changes(ctx), records.changes()
	}
	task, err := provisioner.New(cfg)
	if err != nil {
		return err
	}
	switch {
	case o.plan:
		plan, err := task.Plan(ctx)
		if err == nil {
			fmt.Fprint(out, plan)
		}
		return err
	case o.watch:
		return watch(ctx, task, broker, printer)
	}
	report, err := reconcile(ctx, task, records)
	return finish(ctx, report, err, records, out)
}

// lateStart is how long LXD may take to begin what it was asked for by a run that
// was killed.
const lateStart = 10 * time.Second

// reconcile looks as often as it takes.
func reconcile(ctx context.Context, task *provisioner.Task, records *records) (provisioner.Report, error) {
	report, err := task.Reconcile(ctx)
	if err == nil && records.unclear {
		select {
		case <-ctx.Done():
		case <-time.After(lateStart):
			report, err = task.Reconcile(ctx)
		}
	}
	for err == nil && len(report.Errs()) == 0 && records.changing() { // a look makes one step of each machine's
		report, err = task.Reconcile(ctx)
	}
	return report, err
}

// watch runs the task until ctx ends, and prints what becomes of instances.
func watch(ctx context.Context, task *provisioner.Task, broker *lxdbroker.Broker, p *printer) error {
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = broker.Watch(ctx, func(e lxdbroker.Event) {
			if e.Ended() {
				p.line("%s: instance %s of machine %s", e.Action, e.Instance, e.Machine)
			}
		}, func() { p.line("watching LXD's events") })
	})
	err := task.Run(ctx)
	watching.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// finish says in one line how it went.
func finish(ctx context.Context, report provisioner.Report, err error, records *records, out io.Writer) error {
	running, wanted := records.count()
	switch failed := len(report.Errs()); {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted with %d of %d machines running; run it again to go on", running, wanted)
	case err != nil:
		return err
	case failed > 0:
		return fmt.Errorf("%d of %d machines run, %d failed; run it again to try again", running, wanted, failed)
	}
	fmt.Fprintf(out, "%d of %d machines run\n", running, wanted)
	return nil
}

// A printer writes one line for each thing that happens.
type printer struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%7.2fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// words are what a person is told; other events are told in the library's.
var words = map[provisioner.EventKind]string{
	provisioner.EventAttempt: "starting", provisioner.EventStarted: "running", provisioner.EventAdopted: "adopted",
	provisioner.EventAttemptFailed: "failed", provisioner.EventStartFailed: "given up",
	provisioner.EventProfileChanged: "changed", provisioner.EventProfileFailed: "unchanged",
	provisioner.EventStopping: "stopping", provisioner.EventStopped: "stopped", provisioner.EventRemoved: "forgotten",
}

func (p *printer) observe(e provisioner.Event) {
	switch e.Kind {
	case provisioner.EventLeft, provisioner.EventQueued, provisioner.EventStarting, provisioner.EventForgotten, provisioner.EventSettings:
		return // nothing that anybody waits for
	}
	word, ok := words[e.Kind]
	if !ok {
		p.line("%s", e)
		return
	}
	where := cmp.Or(string(e.Instance), string(e.Zone))
	if e.Instance != "" && e.Zone != "" {
		where = fmt.Sprintf("%s on %s", e.Instance, e.Zone)
	}
	if e.Kind == provisioner.EventProfileChanged || e.Kind == provisioner.EventProfileFailed {
		where = e.Text
	}
	line := fmt.Sprintf("machine %-4s %-9s %s", e.Machine, word, where)
	if e.Err != nil {
		line += ": " + e.Err.Error()
	}
	p.line("%s", strings.TrimRight(line, " "))
}
