package provisioner_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// reliable is a World whose calls take their time and are not lost.
var reliable = provisionertest.Settings{LostReplies: provisionertest.NeverLost}

// wantLookDone demands that all is done that one look at busyWorld begins; the
// failed machine waits for a retry signal.
func wantLookDone(t testing.TB, w *provisionertest.World) {
	t.Helper()
	want := []provisioner.MachineID{"0", "1", "2", "13", "13/lxd/0"}
	if diff := cmp.Diff(want, provisioned(w)); diff != "" {
		t.Errorf("provisioned (-want +got):\n%s", diff)
	}
	if n := len(w.Machines()); n != len(want)+1 {
		t.Errorf("there are %d records, want %d: the dead ones are to be removed\n%s", n, len(want)+1, w.Transcript())
	}
}

// wantQuiet demands that a Task that nobody drives does nothing any more.
func wantQuiet(t testing.TB, w *provisionertest.World) {
	t.Helper()
	synctest.Wait()
	if left := leftBehind(); left != nil {
		t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
	}
	before := len(w.Records())
	pass(time.Hour)
	if after := w.Records()[before:]; len(after) > 0 {
		t.Errorf("an hour later: %v", after)
	}
	if err := w.Check(); err != nil {
		t.Errorf("%v\n%s", err, w.Transcript())
	}
}

// resultsOf are the results without what is different each time.
func resultsOf(r provisioner.Report) (lines []string) {
	for _, x := range r.Results {
		line := string(x.Machine) + " " + string(x.Kind) + ": " + x.Reason
		if x.Err != nil {
			line += " (error)"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// LC8: one look, without Run.
func TestReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busyWorld(t, reliable)
		task := newTask(t, configOf(w, nil))
		report, err := task.Reconcile(t.Context())
		if err != nil {
			t.Error(err)
		}
		wantLookDone(t, w)
		want := []string{
			"0 start: started", "1 start: started", "2 start: started",
			"10 remove: its record is removed", "11 remove: its record is removed", "12 remove: its record is removed",
			"13/lxd/0 maintain: upkeep",
			"13 profile: replace juju-m-a-1 by juju-m-a-2", "13/lxd/0 profile: add juju-m-a-2",
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, resultsOf(report)); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
		wantQuiet(t, w)
		if n := w.OpenWatchers(); n != 3 {
			t.Errorf("%d watchers are open; they are Run's to stop", n)
		}

		// And again: nothing is left to be done.
		report, err = task.Reconcile(t.Context())
		if diff := cmp.Diff([]string{"13/lxd/0 maintain: upkeep"}, resultsOf(report)); diff != "" || err != nil {
			t.Errorf("a second look (-want +got):\n%s%v", diff, err)
		}
	})
}

// LC8: it sees what has come since the last one, and what Run would see.
func TestReconcileAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, reliable, 2, 2)
		task := newTask(t, configOf(w, nil))
		for i := range 5 {
			if _, err := task.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if want, got := i+2, len(provisioned(w)); got != want {
				t.Errorf("after look %d %d machines are provisioned, want %d", i+1, got, want)
			}
			must(t, w.AddPending(provisioner.MachineID("100"+string(rune('0'+i)))))
			time.Sleep(time.Duration(i) * time.Minute)
		}
		stop := start(t, task)
		pass(time.Minute)
		if got := len(provisioned(w)); got != 7 {
			t.Errorf("Run after that: %d machines are provisioned, want 7", got)
		}
		stopCleanly(t, w, stop)
	})
}

// LC8: what fails is given up, and said; the error of Reconcile itself means
// that the fleet could not be read.
func TestReconcileFails(t *testing.T) {
	for _, c := range []struct {
		why   string
		fault []string
		err   string
		want  []string // of the machines 0, 1 and the dead 9
	}{
		{"the fleet can't be read", []string{"fleet count=always: error"}, "scripted trouble", nil},
		{"the listing and the zones can wait", []string{"list count=always: error"}, "",
			[]string{"0 start: started", "1 start: started", "9 remove: its record is removed"}},
		{"a start fails for good", []string{"start machine=0 count=always: error permanent"}, "",
			[]string{"0 start: its start has failed (error)", "1 start: started", "9 remove: its record is removed"}},
		{"a stop is tried again for ever", []string{"stop instance=i-9 count=always: error"}, "",
			[]string{"0 start: started", "1 start: started", "9 stop: its instance could not be stopped (error)"}},
		{"so is a removal", []string{"rm machine=9 count=always: error"}, "",
			[]string{"0 start: started", "1 start: started", "9 remove: its record could not be removed (error)"}},
		{"what a start needs is tried again for ever", []string{"info machine=0 count=always: error"}, "",
			[]string{"0 start: what its start needs could not be reached (error)", "1 start: started", "9 remove: its record is removed"}},
		{"what isn't valid is final", []string{"info machine=0 count=always: error not-valid"}, "",
			[]string{"0 start: its start has failed (error)", "1 start: started", "9 remove: its record is removed"}},
		{"a call that crashes", []string{"start machine=0 count=always: panic", "stop instance=i-9 count=always: goexit"}, "",
			[]string{"0 start: its start has failed (error)", "1 start: started", "9 stop: its instance could not be stopped (error)"}},
		{"an instance that can't be recorded, nor stopped", []string{"record machine=0 count=always: error", "stop instance=i-0 count=always: error"}, "neither recorded nor stopped",
			[]string{"0 start: its instance could not be recorded and could not be stopped (error)", "1 start: started", "9 remove: its record is removed"}},
		{"a record that can't be read again", []string{"record machine=0 count=always: error", "machines machine=0 count=always: error"}, "neither recorded nor stopped",
			[]string{"0 start: it is not known whether its instance was recorded (error)", "1 start: started", "9 remove: its record is removed"}},
		{"a status that can't be written stops nothing", []string{"status count=always: error"}, "",
			[]string{"0 start: started", "1 start: started", "9 remove: its record is removed"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fleetOf(t, reliable, 2, 2)
				must(t, w.Add(provisioner.Machine{ID: "9", Life: provisioner.Dead, Instance: "i-9", Zone: "a"}))
				inject(t, w, c.fault...)
				task := newTask(t, configOf(w, nil))
				began := time.Now()
				report, err := task.Reconcile(t.Context())
				if took := time.Since(began); took > time.Hour {
					t.Errorf("it took %v", took)
				}
				if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
					t.Errorf("got the error %v, want %q", err, c.err)
				}
				if diff := cmp.Diff(c.want, resultsOf(report)); diff != "" {
					t.Errorf("report (-want +got):\n%s", diff)
				}
				if left := leftBehind(); left != nil {
					t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
				}
				w.ClearFaults()
				for range 3 { // an orphan's back-off may outlast a look
					if _, err = task.Reconcile(t.Context()); err == nil {
						break
					}
				}
				if err != nil {
					t.Errorf("once the trouble was over: %v", err)
				}
				wantQuiet(t, w)
			})
		})
	}
}

// LC8: several at once, without Run and with it, are each answered.
func TestReconcileSeveralAtOnce(t *testing.T) {
	for _, withRun := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := busyWorld(t, reliable)
			task := newTask(t, configOf(w, nil))
			stop := func() error { return context.Canceled }
			if withRun {
				stop = start(t, task)
			}
			const callers = 12
			errs := make(chan error, callers)
			for i := range callers {
				go func() {
					time.Sleep(time.Duration(i) * 170 * time.Millisecond)
					_, err := task.Reconcile(t.Context())
					errs <- err
				}()
			}
			for range callers {
				if err := <-errs; err != nil {
					t.Errorf("with Run %t: %v", withRun, err)
				}
			}
			if withRun {
				pass(time.Minute) // what Run has begun is not waited for
			}
			wantLookDone(t, w)
			stopCleanly(t, w, stop)
			wantQuiet(t, w)
		})
	}
}

// LC8: Run may begin at any moment of a Reconcile, whether its watcher has
// something to tell or not, and takes over.
func TestRunBeginsWhileReconciling(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for at := 10 * time.Millisecond; at < 5*time.Second; at += 90 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				w := busyWorld(t, reliable)
				cfg := configOf(w, nil)
				if silent {
					must(t, cfg.Changes.Stop())
					cfg.Changes = provisioner.Stream[[]provisioner.MachineID]{C: make(chan []provisioner.MachineID)}
				}
				task := newTask(t, cfg)
				time.AfterFunc(at, func() { task.Run(t.Context()) })
				if _, err := task.Reconcile(t.Context()); err != nil {
					t.Errorf("Run after %v: %v", at, err)
				}
				wantLookDone(t, w)
				pass(at + time.Minute)
				task.Kill()
				if err := task.Wait(); err != nil {
					t.Errorf("Run after %v ended with %v", at, err)
				}
				wantQuiet(t, w)
				if t.Failed() {
					t.Logf("with Run after %v, silent %t", at, silent)
				}
			})
			if t.Failed() {
				break
			}
		}
	}
}

// LC8: also when what was under way ends just as Run begins, before it has read
// anything.
func TestRunBeginsAsAStopEnds(t *testing.T) {
	for at := 500 * time.Millisecond; at < 1500*time.Millisecond; at += 10 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			set := reliable // the records are what is read last
			set.Latency = map[provisionertest.Call]time.Duration{provisionertest.CallList: 1, provisionertest.CallZones: 1}
			w := provisionertest.New(set)
			must(t, w.Add(provisioner.Machine{ID: "10", Life: provisioner.Dead, Instance: "i-10", Zone: "a"}))
			cfg := configOf(w, nil)
			must(t, cfg.Changes.Stop())
			cfg.Changes = provisioner.Stream[[]provisioner.MachineID]{C: make(chan []provisioner.MachineID)}
			task := newTask(t, cfg)
			time.AfterFunc(at, func() { task.Run(t.Context()) })
			report, err := task.Reconcile(t.Context())
			if diff := cmp.Diff([]string{"10 remove: its record is removed"}, resultsOf(report)); diff != "" || err != nil {
				t.Errorf("Run after %v: %v, report (-want +got):\n%s", at, err, diff)
			}
			pass(2 * time.Second)
			task.Kill()
			must(t, task.Wait())
		})
	}
}

// LC8: a context that ends in the middle lets go of what has left no mark,
// sees the rest to its end, and leaves nothing behind; the next look goes on.
func TestReconcileCancelled(t *testing.T) {
	for at := time.Duration(0); at < 5*time.Second; at += 70 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			w := busyWorld(t, reliable)
			task := newTask(t, configOf(w, nil))
			reason := errors.New("the operator has changed his mind")
			ctx, cancel := context.WithTimeoutCause(t.Context(), at, reason)
			defer cancel()
			_, err := task.Reconcile(ctx)
			if err != nil && !errors.Is(err, reason) {
				t.Errorf("cancelled after %v: got %v, want %v", at, err, reason)
			}
			if err == nil && at < 2*time.Second {
				t.Errorf("cancelled after %v: got no error", at)
			}
			wantQuiet(t, w)
			if _, err := task.Reconcile(t.Context()); err != nil {
				t.Errorf("after one that was cancelled after %v: %v", at, err)
			}
			wantLookDone(t, w)
			wantQuiet(t, w)
			if t.Failed() {
				t.Logf("cancelled after %v", at)
			}
		})
		if t.Failed() {
			break
		}
	}
}

// LC8: one of several that is cancelled fails none of the others; what it had
// begun, the next look begins anew.
func TestReconcileOneOfTwoIsCancelled(t *testing.T) {
	for at := 50 * time.Millisecond; at < 4*time.Second; at += 250 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			w := busyWorld(t, reliable)
			task := newTask(t, configOf(w, nil))
			ctx, cancel := context.WithTimeout(t.Context(), at)
			defer cancel()
			first := make(chan error, 1)
			go func() { _, err := task.Reconcile(ctx); first <- err }()
			time.Sleep(time.Millisecond) // so the one that is cancelled drives
			if _, err := task.Reconcile(t.Context()); err != nil {
				t.Errorf("the other was cancelled after %v: %v", at, err)
			}
			if err := <-first; err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the one that was cancelled after %v: %v", at, err)
			}
			wantQuiet(t, w)
			if _, err := task.Reconcile(t.Context()); err != nil {
				t.Errorf("a third, after %v: %v", at, err)
			}
			wantLookDone(t, w)
		})
		if t.Failed() {
			t.Logf("cancelled after %v", at)
			break
		}
	}
}

// A look that is waited for ends with Run.
func TestReconcileWhenRunEnds(t *testing.T) {
	for at := 10 * time.Millisecond; at < 200*time.Millisecond; at += 20 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			w := busyWorld(t, reliable)
			task := newTask(t, configOf(w, nil))
			stop := start(t, task)
			synctest.Wait()
			ended := make(chan error, 1)
			go func() { _, err := task.Reconcile(t.Context()); ended <- err }()
			time.Sleep(at)
			stopCleanly(t, w, stop)
			if err := <-ended; !errors.Is(err, provisioner.ErrStopped) {
				t.Errorf("Run ended after %v: got %v, want %v", at, err, provisioner.ErrStopped)
			}
			wantQuiet(t, w)
		})
		if t.Failed() {
			break
		}
	}
}

// LC5: a plan has no effect, on the host and on the Task.
func TestPlanHasNoEffect(t *testing.T) {
	play := func(plans bool) (transcript []string) {
		synctest.Test(t, func(t *testing.T) {
			w := busyWorld(t, reliable)
			cfg := configOf(w, nil)
			seen := &log{}
			cfg.Observers = []provisioner.Observer{seen}
			task := newTask(t, cfg)
			if plans {
				first, err := task.Plan(t.Context())
				must(t, err)
				second, err := task.Plan(t.Context())
				must(t, err)
				if diff := cmp.Diff(first.String(), second.String()); diff != "" {
					t.Errorf("two plans for one fleet differ:\n%s", diff)
				}
				if n := len(first.Actions); n != 7 {
					t.Errorf("it has %d actions, want 7:\n%s", n, first)
				}
				for _, r := range w.Records() {
					if r.Call.Writes() {
						t.Errorf("a plan has made the call %s", r)
					}
				}
				if n := len(seen.all()); n != 0 {
					t.Errorf("a plan has told %d events: %v", n, seen.all())
				}
				if _, err := task.Explain("0"); !errors.Is(err, errors.NotFound) {
					t.Errorf("Explain after a plan: got %v, want that the Task knows of no machine yet", err)
				}
				wantQuiet(t, w)
			}
			if _, err := task.Reconcile(t.Context()); err != nil {
				t.Error(err)
			}
			for _, m := range w.Machines() {
				transcript = append(transcript, fmt.Sprint(m))
			}
		})
		return transcript
	}
	if diff := cmp.Diff(play(false), play(true)); diff != "" {
		t.Errorf("what is done after plans (-want +got):\n%s", diff)
	}
}

// LC5: Apply does what the plan says and no more, and passes over, with a
// reason, whatever is no longer as it was.
func TestApplyPassesOver(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(t *testing.T, w *provisionertest.World, p *provisioner.Plan)
		want   []string
	}{
		{"nothing has changed", func(*testing.T, *provisionertest.World, *provisioner.Plan) {},
			[]string{"0 start: started", "1 start: started", "8 remove: its record is removed", "9 remove: its record is removed"}},
		{"a machine is dying", func(t *testing.T, w *provisionertest.World, _ *provisioner.Plan) {
			must(t, w.SetLife("0", provisioner.Dying))
		},
			[]string{"0 leave: its machine has changed since the plan was made", "1 start: started", "8 remove: its record is removed", "9 remove: its record is removed"}},
		{"a machine is gone", func(t *testing.T, w *provisionertest.World, _ *provisioner.Plan) { must(t, w.Forget("0", "9")) },
			[]string{"0 leave: its machine is gone", "1 start: started", "8 remove: its record is removed", "9 leave: its machine is gone"}},
		{"an instance is to be kept now", func(t *testing.T, w *provisionertest.World, _ *provisioner.Plan) { must(t, w.SetKeep("9", true)) },
			[]string{"0 start: started", "1 start: started", "8 remove: its record is removed", "9 leave: its machine has changed since the plan was made"}},
		{"a machine has another instance", func(t *testing.T, w *provisionertest.World, _ *provisioner.Plan) {
			must(t, w.Edit("9", func(m *provisioner.Machine) { m.Instance = "i-10" }))
		}, []string{"0 start: started", "1 start: started", "8 remove: its record is removed", "9 leave: its machine has changed since the plan was made"}},
		{"a machine was failed by somebody", func(t *testing.T, w *provisionertest.World, _ *provisioner.Plan) {
			must(t, w.SetStatus("0", provisioner.StatusError, provisioner.InstanceProvisioningError))
		}, []string{"0 leave: its machine has changed since the plan was made", "1 start: started", "8 remove: its record is removed", "9 remove: its record is removed"}},
		{"a machine can't be read", func(t *testing.T, w *provisionertest.World, _ *provisioner.Plan) {
			inject(t, w, `fleet machine=0 count=always: error unauthorized "not yours"`)
		}, []string{"0 leave: its machine could not be read: not yours", "1 start: started", "8 remove: its record is removed", "9 remove: its record is removed"}},
		{"another machine claims the instance", func(t *testing.T, w *provisionertest.World, _ *provisioner.Plan) {
			must(t, w.Add(provisioner.Machine{ID: "20", Life: provisioner.Alive, Instance: "i-9"}))
		}, []string{"0 start: started", "1 start: started", "8 remove: its record is removed",
			"9 leave: it would be decided otherwise now: its instance i-9 is also claimed by machine 20"}},
		{"an action was vetoed", func(_ *testing.T, _ *provisionertest.World, p *provisioner.Plan) {
			p.Actions = slices.DeleteFunc(p.Actions, func(a provisioner.Action) bool { return a.Was.ID == "9" || a.Was.ID == "1" })
		}, []string{"0 start: started", "8 remove: its record is removed"}},
		{"an action is there twice", func(_ *testing.T, _ *provisionertest.World, p *provisioner.Plan) {
			p.Actions = append(p.Actions, p.Actions[0])
		}, []string{"0 start: started", "1 start: started", "8 remove: its record is removed", "9 leave: the plan names it twice", "9 remove: its record is removed"}},
		{"a machine has come", func(t *testing.T, w *provisionertest.World, _ *provisioner.Plan) {
			must(t, w.AddPending("2"), w.Add(provisioner.Machine{ID: "19", Life: provisioner.Dead, Instance: "i-19"}))
		}, []string{"0 start: started", "1 start: started", "8 remove: its record is removed", "9 remove: its record is removed"}},
		{"its zone is down", func(_ *testing.T, w *provisionertest.World, _ *provisioner.Plan) { w.SetZone("a", false) },
			[]string{"0 leave: it would be decided otherwise now: suitable availability zone for machine 0 not found: a " + provisioner.ReasonUnavailable,
				"1 leave: it would be decided otherwise now: suitable availability zone for machine 1 not found: a " + provisioner.ReasonUnavailable,
				"8 remove: its record is removed", "9 remove: its record is removed"}},
		{"an empty plan", func(_ *testing.T, _ *provisionertest.World, p *provisioner.Plan) { *p = provisioner.Plan{} }, nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fleetOf(t, reliable, 2, 1)
				must(t, w.Add(
					provisioner.Machine{ID: "8", Life: provisioner.Dead},
					provisioner.Machine{ID: "9", Life: provisioner.Dead, Instance: "i-9", Zone: "a"},
				))
				task := newTask(t, configOf(w, nil))
				plan, err := task.Plan(t.Context())
				must(t, err)
				c.change(t, w, &plan)
				report, err := task.Apply(t.Context(), plan)
				if err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(c.want, resultsOf(report)); diff != "" {
					t.Errorf("report (-want +got):\n%s", diff)
				}
				allowed := map[string]bool{}
				for _, line := range c.want {
					id, what, _ := strings.Cut(line, " ")
					allowed[id] = allowed[id] || !strings.HasPrefix(what, "leave")
				}
				for _, r := range w.Records() {
					words := strings.Fields(r.Text)
					if id, _, _ := strings.Cut(words[min(1, len(words)-1)], "@"); r.Call == provisionertest.CallStart && !allowed[id] ||
						r.Call == provisionertest.CallRemove && !allowed[id] || r.Call == provisionertest.CallStop && !allowed[strings.TrimPrefix(id, "i-")] {
						t.Errorf("not in the plan: %s", r)
					}
				}
				if n := len(leftBehind()); n > 0 {
					t.Errorf("%d goroutines are left", n)
				}
			})
		})
	}
}

// LC5: also what changes between the look of Apply itself and its acts.
func TestApplyLooksTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 2, 1)
		must(t, w.Add(provisioner.Machine{ID: "9", Life: provisioner.Dead, Instance: "i-9", Zone: "a"}))
		reads := 0
		cfg := configOf(w, func(_ context.Context, call provisionertest.Call, _ ...string) error {
			if call == provisionertest.CallFleet {
				if reads++; reads == 3 { // of Plan, of Apply's check, and now before it acts
					must(t, w.Edit("9", func(m *provisioner.Machine) { m.Instance = "i-other" }))
					must(t, w.SetLife("0", provisioner.Dying))
				}
			}
			return nil
		})
		task := newTask(t, cfg)
		plan, err := task.Plan(t.Context())
		must(t, err)
		report, err := task.Apply(t.Context(), plan)
		must(t, err)
		for _, r := range w.Records() {
			if r.Call == provisionertest.CallStop || r.Call == provisionertest.CallRemove {
				t.Errorf("done, though the machine had changed: %s", r)
			}
		}
		want := []string{"0 leave: its machine has changed since the plan was made", "1 start: started", "9 leave: its machine has changed since the plan was made"}
		if diff := cmp.Diff(want, resultsOf(report)); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
	})
}
