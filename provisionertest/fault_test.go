package provisionertest_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// inject scripts faults by their text.
func inject(t testing.TB, w *provisionertest.World, lines ...string) {
	t.Helper()
	for _, line := range lines {
		f, err := provisionertest.ParseFault(line)
		must(t, err)
		must(t, w.Inject(f))
	}
}

func TestParseFault(t *testing.T) {
	type F = provisionertest.Fault
	for _, test := range []struct {
		line, why string
		want      F
	}{
		{"start: error", "the shortest", F{Call: provisionertest.CallStart, What: provisionertest.TroubleError}},
		{"*: delay 5s", "any call", F{What: provisionertest.TroubleDelay, For: 5 * time.Second}},
		{`start machine=0/lxd/1 zone=a instance=i-0~2 nth=2 count=3 after: error retry-after 30s "no: \"room\""`, "every word",
			F{Call: provisionertest.CallStart, Machine: "0/lxd/1", Zone: "a", Instance: "i-0~2", Nth: 2, Count: 3, After: true,
				What: provisionertest.TroubleError, Mark: provisionertest.MarkRetryAfter, For: 30 * time.Second, Text: `no: "room"`}},
		{"list zone=eu:b count=always: partial", "a colon in a name, and no limit",
			F{Call: provisionertest.CallList, Zone: "eu:b", Count: provisionertest.Always, What: provisionertest.TroublePartial}},
		{"status after: stuck 1m0s", "a stuck call with an end", F{Call: provisionertest.CallStatus, After: true, What: provisionertest.TroubleStuck, For: time.Minute}},
	} {
		t.Run(test.why, func(t *testing.T) {
			got, err := provisionertest.ParseFault(test.line)
			must(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if got.String() != test.line {
				t.Errorf("String: got %s, want %s", got, test.line)
			}
			var again F
			text, err := got.MarshalText()
			must(t, err)
			must(t, again.UnmarshalText(text))
			if diff := cmp.Diff(test.want, again); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseFaultSaysWhatIsWrong(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"", "no colon"},
		{"start", "no colon"},
		{": error", "no kind of call"},
		{"boot: error", `call "boot"`},
		{"start: trouble", `trouble "trouble"`},
		{"start machine=: error", `"machine=": no value`},
		{"start before: error", `"before": want machine=`},
		{"start colour=red: error", `"colour=red": want machine=`},
		{"start nth=0: error", `"nth=0": want a number from 1`},
		{"start count=few: error", `"count=few": want a number from 1`},
		{"start: error badly", `"badly": want a mark`},
		{`start: error "open`, "does not end"},
		{"start: delay", "delay without a duration"},
		{"start: delay -1s", "duration -1s"},
		{"start: panic capacity", `mark "capacity"`},
	} {
		t.Run(test.line, func(t *testing.T) {
			_, err := provisionertest.ParseFault(test.line)
			if !errors.Is(err, errors.NotValid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a NotValid error with %s", err, test.want)
			}
		})
	}
}

func TestInjectRefusesWhatIsNotValid(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 1, 1)
	good := provisionertest.Fault{What: provisionertest.TroublePanic}
	for _, bad := range []provisionertest.Fault{
		{},
		{Call: "boot", What: provisionertest.TroubleError},
		{What: provisionertest.TroubleError, Mark: "odd"},
		{What: provisionertest.TroubleError, Nth: -1},
		{What: provisionertest.TroubleError, Count: -2},
	} {
		if err := w.Inject(good, bad); !errors.Is(err, errors.NotValid) {
			t.Errorf("%v: got %v, want NotValid", bad, err)
		}
	}
	if unused := w.Unused(); len(unused) != 0 {
		t.Errorf("scripted all the same: %v", unused)
	}
}

func FuzzParseFault(f *testing.F) {
	for _, line := range []string{
		"start machine=0 zone=a nth=2 count=3 after: error capacity 5s \"x\"",
		"list zone=a:: partial", "*: delay 5s", ": :", "start: error \"\\x00\"", "stop instance=i count=always: stuck",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		fault, err := provisionertest.ParseFault(line)
		if err != nil {
			return
		}
		again, err := provisionertest.ParseFault(fault.String())
		if err != nil {
			t.Fatalf("%q reads as %q, which does not: %v", line, fault, err)
		}
		if diff := cmp.Diff(fault, again); diff != "" {
			t.Error(diff)
		}
	})
}

// What each trouble does to a start, before and after its effect.
func TestTroubleOfAStart(t *testing.T) {
	for _, test := range []struct {
		fault, why string
		result     string // what the call comes back with: an error, "panic: x", "goexit", or the instance
		after      time.Duration
		live       int
	}{
		{"start: error \"boom\"", "it fails", "boom", 0, 0},
		{"start after: error ambiguous \"boom\"", "its reply is lost", "boom", 0, 1},
		{"start: delay 5s", "it is late", "i-0@a", 5 * time.Second, 1},
		{"start: delay 2m", "it is late, and its context ends before it begins", "context deadline exceeded", time.Minute, 0},
		{"start after: delay 2m", "it is late, and its context ends when it is done", "context deadline exceeded", time.Minute, 1},
		{"start: panic \"boom\"", "it panics", "panic: boom", 0, 0},
		{"start after: panic \"boom\"", "it panics when it is done", "panic: boom", 0, 1},
		{"start: goexit", "it ends its goroutine", "goexit", 0, 0},
		{"start after: goexit", "it ends its goroutine when it is done", "goexit", 0, 1},
		{"start: hang", "it waits for its context", "context deadline exceeded", time.Minute, 0},
		{"start after: hang", "it waits for its context when it is done", "context deadline exceeded", time.Minute, 1},
		{"start: stuck 90s", "it ignores its context", "i-0@a", 90 * time.Second, 1},
		{"start: stuck", "it ignores its context until it is released", "i-0@a", 2 * time.Minute, 1},
		{"start: empty", "its result has no instance, and there is none", "no instance", 0, 0},
		{"start after: empty", "its result has no instance, but there is one", "no instance", 0, 1},
		{"start: astray", "it starts in another zone", "i-0@b", 0, 1},
		{"start machine=1: error", "another machine's start fails", "i-0@a", 0, 1},
		{"start zone=b: error", "another zone's start fails", "i-0@a", 0, 1},
		{"start nth=2: error", "the next start fails", "i-0@a", 0, 1},
		{"stop: error", "stops fail", "i-0@a", 0, 1},
	} {
		t.Run(test.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := kind(t, provisionertest.Settings{}, 1, 2)
				inject(t, w, test.fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				time.AfterFunc(2*time.Minute, w.Release)
				begun := time.Now()
				got := outcome(ctx, w, provisioner.StartRequest{Machine: "0", Zone: "a"})
				if diff := cmp.Diff([]any{test.result, test.after, test.live}, []any{got, time.Since(begun), len(w.Live())}); diff != "" {
					t.Errorf("%s: result, time taken, instances made:\n%s", test.fault, diff)
				}
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// outcome tells what comes of a start, on a goroutine of its own.
func outcome(ctx context.Context, w *provisionertest.World, req provisioner.StartRequest) string {
	result := make(chan string, 1)
	go func() {
		text := "goexit"
		defer func() {
			if p := recover(); p != nil {
				text = "panic: " + p.(string)
			}
			result <- text
		}()
		res, err := w.Broker().Start(ctx, req)
		switch {
		case err != nil:
			text = err.Error()
		case res.Instance == "":
			text = "no instance"
		default:
			text = string(res.Instance) + "@" + string(res.Zone)
		}
	}()
	return <-result
}

func TestStuckCallsAreCountedAndReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := kind(t, provisionertest.Settings{}, 2, 1)
		inject(t, w, "start count=always: stuck")
		for _, id := range []provisioner.MachineID{"0", "1"} {
			go outcome(t.Context(), w, provisioner.StartRequest{Machine: id})
		}
		synctest.Wait()
		if w.Stuck() != 2 || len(w.Live()) != 0 {
			t.Errorf("got %d stuck and %d instances, want 2 and 0", w.Stuck(), len(w.Live()))
		}
		w.Release()
		synctest.Wait()
		if w.Stuck() != 0 || len(w.Live()) != 2 {
			t.Errorf("got %d stuck and %d instances, want 0 and 2", w.Stuck(), len(w.Live()))
		}
	})
}

func TestFaultsAreCounted(t *testing.T) {
	for _, test := range []struct {
		fault, why string
		want       string // of five starts, . for one that works
	}{
		{"start: error", "once by default", "x...."},
		{"start nth=2: error", "from the second on, once", ".x..."},
		{"start nth=2 count=3: error", "from the second on, three times", ".xxx."},
		{"start nth=3 count=always: error", "from the third on", "..xxx"},
		{"start zone=b count=always: error", "where it matches", ".x.x."},
		{"start zone=b nth=2: error", "the second that matches", "...x."},
		{"* nth=2: error", "any call", ".x..."},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := kind(t, provisionertest.Settings{}, 1, 2)
			inject(t, w, test.fault)
			got := ""
			for i := range 5 {
				zone := []provisioner.ZoneName{"a", "b"}[i%2]
				if _, err := w.Broker().Start(t.Context(), provisioner.StartRequest{Machine: "0", Zone: zone}); err != nil {
					got += "x"
				} else {
					got += "."
				}
			}
			if got != test.want {
				t.Errorf("%s: got %s, want %s", test.fault, got, test.want)
			}
		})
	}
}

func TestUnusedFaults(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 1, 1)
	inject(t, w, "start: delay 1ns", "start nth=2: error", "stop: error")
	start(t, w, provisioner.StartRequest{Machine: "0"})
	var got []string
	for _, f := range w.Unused() {
		got = append(got, f.String())
	}
	if diff := cmp.Diff([]string{"start nth=2: error", "stop: error"}, got); diff != "" {
		t.Error(diff)
	}
	w.ClearFaults()
	must(t, w.Broker().Stop(t.Context(), provisioner.StopRequest{Instances: []provisioner.InstanceID{"i-0"}}))
}

func TestMarks(t *testing.T) {
	for mark, want := range map[string]error{
		"zone-independent": provisioner.ErrZoneIndependent,
		"permanent":        provisioner.ErrPermanent,
		"capacity":         provisioner.ErrOutOfCapacity,
		"ambiguous":        provisioner.ErrAmbiguous,
		"exists":           provisioner.ErrAlreadyExists,
		"denied":           provisioner.ErrUnauthorized,
		"quota":            provisioner.ErrQuota,
		"retry-after 5s":   provisioner.ErrRateLimited,
		"not-found":        errors.NotFound,
		"unauthorized":     errors.Unauthorized,
		"not-valid":        errors.NotValid,
		"not-implemented":  errors.NotImplemented,
		"not-supported":    errors.NotSupported,
		"timeout":          errors.Timeout,
	} {
		w := kind(t, provisionertest.Settings{}, 1, 1)
		inject(t, w, "start: error "+mark+` "boom"`)
		_, err := w.Broker().Start(t.Context(), provisioner.StartRequest{Machine: "0"})
		if !errors.Is(err, want) || err.Error() != "boom" {
			t.Errorf("%s: got %v, want boom that is %v", mark, err, want)
		}
		var after *provisioner.RetryAfterError
		if errors.As(err, &after) && after.After != 5*time.Second {
			t.Errorf("%s: got %v, want 5s", mark, after.After)
		}
	}
	own := errors.New("own")
	w := kind(t, provisionertest.Settings{}, 1, 1)
	must(t, w.Inject(provisionertest.Fault{What: provisionertest.TroubleError, Err: own}))
	if _, err := w.Broker().Zones(t.Context()); err != own {
		t.Errorf("got %v, want the fault's own error", err)
	}
}

func TestTroubleOfListings(t *testing.T) {
	for _, test := range []struct{ fault, why, want string }{
		{"list: delay 1ns", "whole", "i-0 i-1 i-2 i-3 complete"},
		{"list: partial", "half is missing, and it says so", "i-0 i-2"},
		{"list zone=b: partial", "a zone is missing, and it says so", "i-0 i-2 complete failed b"},
		{"list instance=i-2: missing", "one is missing, and it does not say so", "i-0 i-1 i-3 complete"},
		{"list machine=3: missing", "one machine's is missing", "i-0 i-1 i-2 complete"},
		{"list instance=i-1: double", "one is there twice", "i-0 i-1 i-1 i-2 i-3 complete"},
		{"list: foreign", "one is nobody's", "i-0 i-1 i-2 i-3 i-alien complete"},
	} {
		t.Run(test.why, func(t *testing.T) {
			w := kind(t, provisionertest.Settings{}, 4, 2)
			for i, id := range []provisioner.MachineID{"0", "1", "2", "3"} {
				start(t, w, provisioner.StartRequest{Machine: id, Zone: []provisioner.ZoneName{"a", "b"}[i%2]})
			}
			inject(t, w, test.fault)
			l, err := w.Broker().Instances(t.Context())
			must(t, err)
			var words []string
			for _, i := range l.Instances {
				words = append(words, string(i.ID))
			}
			if l.Complete {
				words = append(words, "complete")
			}
			for _, z := range l.Failed {
				words = append(words, "failed", string(z))
			}
			if got := strings.Join(words, " "); got != test.want {
				t.Errorf("%s: got %s, want %s", test.fault, got, test.want)
			}
		})
	}
}

func TestTroubleOfZones(t *testing.T) {
	for fault, want := range map[string]string{
		"zones zone=b: missing": "a",
		"zones: double":         "a a b",
		"zones: foreign":        "a b alien",
	} {
		w := kind(t, provisionertest.Settings{}, 0, 2)
		inject(t, w, fault)
		zones, err := w.Broker().Zones(t.Context())
		must(t, err)
		var names []string
		for _, z := range zones {
			names = append(names, string(z.Name))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %s, want %s", fault, got, want)
		}
	}
}

// Every bulk call can be twisted in the same ways (LD2).
func TestTroubleOfBulkCalls(t *testing.T) {
	type result = struct {
		id  provisioner.MachineID
		err error
	}
	ids := []provisioner.MachineID{"0", "1", "2"}
	calls := map[provisionertest.Call]func(ctx context.Context, s *provisionertest.State) ([]result, error){
		provisionertest.CallFleet: func(ctx context.Context, s *provisionertest.State) (got []result, err error) {
			rs, err := s.Fleet(ctx)
			for _, r := range rs {
				got = append(got, result{r.ID, r.Err})
			}
			return got, err
		},
		provisionertest.CallMachines: func(ctx context.Context, s *provisionertest.State) (got []result, err error) {
			rs, err := s.Machines(ctx, ids...)
			for _, r := range rs {
				got = append(got, result{r.ID, r.Err})
			}
			return got, err
		},
		provisionertest.CallInfo: func(ctx context.Context, s *provisionertest.State) (got []result, err error) {
			rs, err := s.StartInfo(ctx, ids...)
			for _, r := range rs {
				got = append(got, result{r.ID, r.Err})
			}
			return got, err
		},
		provisionertest.CallRetries: func(ctx context.Context, s *provisionertest.State) (got []result, err error) {
			rs, err := s.RetryMachines(ctx)
			for _, r := range rs {
				got = append(got, result{r.ID, r.Err})
			}
			return got, err
		},
		provisionertest.CallGroups: func(ctx context.Context, s *provisionertest.State) (got []result, err error) {
			rs, err := s.Groups(ctx, ids...)
			for _, r := range rs {
				got = append(got, result{r.ID, r.Err})
			}
			return got, err
		},
		provisionertest.CallAuth: func(ctx context.Context, s *provisionertest.State) (got []result, err error) {
			rs, err := s.Authenticate(ctx, provisioner.AuthRequest{Machine: "0"}, provisioner.AuthRequest{Machine: "1"}, provisioner.AuthRequest{Machine: "2"})
			for _, r := range rs {
				got = append(got, result{r.ID, r.Err})
			}
			return got, err
		},
		provisionertest.CallIntents: func(ctx context.Context, s *provisionertest.State) (got []result, err error) {
			rs, err := s.Intents(ctx, ids...)
			for _, r := range rs {
				got = append(got, result{r.ID, r.Err})
			}
			return got, err
		},
		provisionertest.CallProfiles: func(ctx context.Context, s *provisionertest.State) (got []result, err error) {
			rs, err := s.ProfileChanges(ctx, ids...)
			for _, r := range rs {
				got = append(got, result{r.ID, r.Err})
			}
			return got, err
		},
	}
	for kindOfCall, call := range calls {
		for _, test := range []struct{ what, want string }{
			{" machine=1: missing", "0 2"},
			{" machine=1: double", "0 1 1 2"},
			{": foreign", "0 1 2 alien"},
			{` machine=1: error not-found "boom"`, "0 1(boom) 2"},
			{` after: error "boom"`, "boom"},
			{` machine=7: missing`, "0 1 2"},
		} {
			t.Run(string(kindOfCall)+test.what, func(t *testing.T) {
				w := kind(t, provisionertest.Settings{}, 3, 0)
				for _, id := range ids {
					must(t, w.SetRetryable(id, true))
					must(t, w.SetProfileChange(provisioner.ProfileChange{Machine: id}))
				}
				inject(t, w, string(kindOfCall)+test.what)
				results, err := call(t.Context(), w.State())
				var words []string
				for _, r := range results {
					word := string(r.id)
					if r.err != nil {
						word += "(" + r.err.Error() + ")"
					}
					words = append(words, word)
				}
				got := strings.Join(words, " ")
				if err != nil {
					got += err.Error()
				}
				if got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		}
	}
}

func TestGoexitAndPanicLeaveNoLock(t *testing.T) {
	w := kind(t, provisionertest.Settings{}, 1, 1)
	inject(t, w, "start: goexit", "start nth=2: panic")
	done := make(chan struct{})
	for range 2 {
		go func() {
			defer func() { _ = recover(); done <- struct{}{} }()
			_, _ = w.Broker().Start(t.Context(), provisioner.StartRequest{Machine: "0"})
			runtime.Goexit()
		}()
		<-done
	}
	start(t, w, provisioner.StartRequest{Machine: "0"})
	if misuses := w.Misuses(); len(misuses) != 0 {
		t.Errorf("the calls before count as under way: %v", misuses)
	}
	records := w.Records()
	if diff := cmp.Diff("start 0 -> error: goexit", records[len(records)-5].String()); diff != "" {
		t.Errorf("a call that did not return is in the transcript:\n%s\n%s", diff, w.Transcript())
	}
}
