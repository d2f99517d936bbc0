package provisionertest_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// busy lets many goroutines start and stop machines in an unkind world, ends
// the context of all of them together, and gives the transcript.
func busy(t *testing.T, s provisionertest.Settings) (transcript string, ties int) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(s)
		fleet := provisionertest.NewFleet(40, 3, 0)
		must(t, w.Load(fleet))
		inject(t, w, "start zone=b nth=3 count=4: error capacity", "stop after: delay 3s", "record machine=7: error")
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		var group sync.WaitGroup
		for i, m := range fleet.Machines {
			group.Go(func() {
				zone := fleet.Zones[i%3].Name
				for ctx.Err() == nil {
					_ = w.State().WriteStatus(ctx, provisioner.StatusUpdate{Machine: m.ID, InstanceStatus: provisioner.InstanceAllocating})
					res, err := w.Broker().Start(ctx, provisioner.StartRequest{Machine: m.ID, Zone: zone})
					if err != nil {
						continue
					}
					_ = w.State().SetInstance(ctx, provisioner.InstanceRecord{Machine: m.ID, Instance: res.Instance})
					_ = w.Broker().Stop(ctx, provisioner.StopRequest{Instances: []provisioner.InstanceID{res.Instance}})
				}
			})
		}
		group.Wait()
		transcript, ties = w.Transcript(), w.Ties()
	})
	return transcript, ties
}

func TestOrderIsNoAccident(t *testing.T) {
	first, ties := busy(t, provisionertest.Settings{})
	if ties != 0 {
		t.Errorf("got %d ties, want none", ties)
	}
	for range 5 {
		if again, _ := busy(t, provisionertest.Settings{}); again != first {
			t.Fatalf("two runs differ:\n%s", cmp.Diff(strings.Split(first, "\n"), strings.Split(again, "\n")))
		}
	}
	if other, _ := busy(t, provisionertest.Settings{Seed: 1}); other == first {
		t.Error("another seed makes no difference")
	}
	for _, want := range []string{"connection lost before the reply", "scripted trouble", "on the way there: context deadline exceeded", "-> i-"} {
		if !strings.Contains(first, want) {
			t.Errorf("never happened: %s", want)
		}
	}
}

func TestTies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := kind(t, provisionertest.Settings{}, 1, 1)
		for want, pause := range []time.Duration{0, 0, time.Second, 0} {
			time.Sleep(pause)
			_, err := w.State().Fleet(t.Context())
			must(t, err)
			want = []int{0, 1, 1, 2}[want]
			if w.Ties() != want {
				t.Errorf("got %d, want %d", w.Ties(), want)
			}
		}
	})
}

// A reply that is lost comes after the effect, and only from what changes
// something.
func TestLostReplies(t *testing.T) {
	w := kind(t, provisionertest.Settings{LostReplies: 4}, 100, 1)
	lost := 0
	for _, m := range w.Machines() {
		_, err := w.Broker().Start(t.Context(), provisioner.StartRequest{Machine: m.ID})
		if err != nil {
			if !errors.Is(err, provisioner.ErrAmbiguous) {
				t.Fatalf("got %v, want an ambiguous error", err)
			}
			lost++
		}
		if _, err := w.State().Machines(t.Context(), m.ID); err != nil {
			t.Fatalf("a read failed: %v", err)
		}
	}
	if len(w.Live()) != 100 {
		t.Errorf("got %d instances, want 100: each start had its effect", len(w.Live()))
	}
	if lost < 15 || lost > 35 {
		t.Errorf("lost %d of 100, want about 25", lost)
	}
}

func TestLatencyIsAboutWhatItIsSaidToBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisionertest.New(provisionertest.Settings{LostReplies: provisionertest.NeverLost,
			Latency: map[provisionertest.Call]time.Duration{provisionertest.CallStart: time.Minute, provisionertest.AnyCall: time.Second}})
		must(t, w.Load(provisionertest.NewFleet(20, 1, 0)))
		reads := map[time.Duration]bool{}
		for _, m := range w.Machines() {
			begun := time.Now()
			start(t, w, provisioner.StartRequest{Machine: m.ID})
			if took := time.Since(begun); took < 30*time.Second || took > 90*time.Second {
				t.Errorf("a start took %v, want about 1m", took)
			}
			begun = time.Now()
			_, err := w.State().Fleet(t.Context())
			must(t, err)
			took := time.Since(begun)
			if took < 500*time.Millisecond || took > 1500*time.Millisecond {
				t.Errorf("a read took %v, want about 1s", took)
			}
			reads[took] = true
		}
		if len(reads) != 20 {
			t.Errorf("20 equal reads took only %d different times", len(reads))
		}
	})
}

// With the mock clock a call that takes its time returns when the clock has
// been moved there.
func TestMockClock(t *testing.T) {
	mock := clock.NewMock()
	w := kind(t, provisionertest.Settings{Clock: mock, Visibility: time.Minute}, 1, 1)
	inject(t, w, "start: delay 10s")
	result := make(chan string)
	go func() { result <- outcome(t.Context(), w, provisioner.StartRequest{Machine: "0"}) }()
	got := ""
	for seconds := 0; got == "" && seconds < 1000; seconds++ {
		select {
		case got = <-result:
		default:
			mock.Add(time.Second) // lets others run, too
		}
	}
	if got != "i-0@a" {
		t.Fatalf("got %q, want i-0@a", got)
	}
	wantListed(t, w)
	mock.Add(time.Minute)
	wantListed(t, w, "i-0 running")
}

func TestObserveWritesEventsIntoTheTranscript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := kind(t, provisionertest.Settings{}, 1, 1)
		w.ResetRecords()
		var _ provisioner.Observer = w
		w.Observe(provisioner.Event{Kind: provisioner.EventQueued, Machine: "0"})
		time.Sleep(time.Second)
		w.Tick()
		if diff := cmp.Diff("1 0s * queued machine=0\n2 1s = tick\n", w.Transcript()); diff != "" {
			t.Error(diff)
		}
		records := w.Records()
		if records[0].Phase != provisionertest.Seen || records[1].Phase != provisionertest.Deed || records[1].At != time.Second {
			t.Errorf("got %+v", records)
		}
	})
}

// Every call, in words.
func TestTranscriptOfEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := kind(t, provisionertest.Settings{}, 2, 2)
		must(t, w.SetProfileChange(provisioner.ProfileChange{Machine: "0"}))
		w.SetZone("b", false)
		w.SetGroup("g", "0", "1")
		w.ResetRecords()
		b, s, ctx := w.Broker(), w.State(), t.Context()
		start(t, w, provisioner.StartRequest{Machine: "0", Zone: "a"})
		_, _ = b.Instances(ctx)
		_, _ = b.Zones(ctx)
		_, _ = b.DeriveZones(ctx, provisioner.StartRequest{Machine: "0"})
		_, _ = b.FindInstances(ctx, provisioner.Labels{Machine: "1"})
		_ = b.Maintain(ctx, provisioner.MaintainRequest{Machine: "0", Instance: "i-0"})
		_, _ = b.ChangeProfile(ctx, provisioner.ProfileChangeRequest{Machine: "0", Instance: "i-0", Profile: &provisioner.Profile{Name: "p"}})
		_, _ = b.ProfileNames(ctx, provisioner.ProfileNamesRequest{Machine: "0", Asked: []string{"p", "q"}})
		_ = s.SetInstance(ctx, provisioner.InstanceRecord{Machine: "0", Instance: "i-0", Zone: "a"})
		_, _ = s.Fleet(ctx)
		_, _ = s.Machines(ctx, "0", "9")
		_, _ = s.StartInfo(ctx, "1")
		_ = s.WriteStatus(ctx, provisioner.StatusUpdate{Machine: "1", Status: "error", InstanceStatus: "provisioning error", Text: "boom"})
		_ = s.EnsureDead(ctx, provisioner.LifeRequest{Machine: "1"})
		_, _ = s.RetryMachines(ctx)
		_, _ = s.Groups(ctx, "0")
		_, _ = s.Authenticate(ctx, provisioner.AuthRequest{Machine: "0"})
		_, _ = s.FindAgents(ctx, provisioner.AgentQuery{Version: "1", Base: "b", Arch: "amd64"})
		intent := provisioner.Intent{Machine: "0", Attempt: 1, Zone: "a"}
		_ = s.SwapIntent(ctx, provisioner.Intent{}, intent)
		_ = s.SwapIntent(ctx, provisioner.Intent{}, provisioner.Intent{Machine: "0", Attempt: 2})
		_, _ = s.Intents(ctx, "0", "1")
		_ = s.AddSpared(ctx, provisioner.Spared{Instance: "i-0", Machine: "0"})
		_, _ = s.Spared(ctx)
		_ = s.RemoveSpared(ctx, provisioner.SparedRemoval{Instances: []provisioner.InstanceID{"i-0"}})
		_, _ = s.ProfileChanges(ctx, "0")
		_ = s.SetProfiles(ctx, provisioner.ProfileRecord{Machine: "0", Profiles: []string{"p"}})
		_ = s.SetProfileStatus(ctx, provisioner.ProfileStatusUpdate{Machine: "0", Status: "Success"})
		_ = s.RemoveProfileChange(ctx, provisioner.Removal{Machine: "0"})
		_ = b.Stop(ctx, provisioner.StopRequest{Instances: []provisioner.InstanceID{"i-0", "i-1"}})
		_ = s.Remove(ctx, provisioner.Removal{Machine: "0"})
		var got []string
		for _, r := range w.Records() {
			if r.Phase == provisionertest.End {
				got = append(got, r.String())
			}
		}
		want := []string{
			"start 0@a -> i-0@a",
			"list -> [i-0]",
			"zones -> [a b(down)]",
			"derive 0 -> []",
			"find 1 -> []",
			"maintain 0 i-0 -> ok",
			`change-profile 0 i-0 "" to "p" -> [p]`,
			"profile-names 0 p,q -> [p q]",
			"record 0 i-0@a -> ok",
			"fleet -> [0(alive i-0) 1(alive)]",
			`machines 0 9 -> [0(alive i-0) 9(machine "9" not found)]`,
			"info 1 -> [1]",
			`status 1 error/provisioning error "boom" -> ok`,
			"dead 1 -> error: machine 1 is alive: making it dead",
			"retries -> []",
			"groups 0 -> [0(g)]",
			"auth 0 -> [machine-0]",
			"agents 1/b/amd64 -> 1 found",
			"intent 0@a none to #1@a -> ok",
			"intent 0 none to #2 -> error: machine 0: intent #1@a already exists",
			"intents 0 1 -> [#1@a none]",
			"spare 0 i-0 -> ok",
			"spared -> [i-0]",
			"unspare i-0 -> ok",
			"profiles 0 -> [0]",
			"set-profiles 0 [p] -> ok",
			`profile-status 0 "Success" -> ok`,
			"rm-profile 0 -> ok",
			"stop i-0 i-1 -> ok",
			"rm 0 -> error: machine 0 is alive: removing it",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		told := map[provisionertest.Call]bool{}
		for _, r := range w.Records() {
			told[r.Call] = true
		}
		for _, call := range provisionertest.Calls() {
			if !told[call] {
				t.Errorf("no %s in this test", call)
			}
		}
	})
}

func TestNewFleet(t *testing.T) {
	got := provisionertest.NewFleet(5, 2, 2)
	want := provisionertest.Fleet{
		Machines: []provisioner.Machine{provisionertest.Pending("0"), provisionertest.Pending("1"), provisionertest.Pending("2"), provisionertest.Pending("3"), provisionertest.Pending("4")},
		Zones:    []provisioner.Zone{{Name: "a", Available: true}, {Name: "b", Available: true}},
		Groups:   []provisioner.Group{{Key: "g0", Members: ids{"0", "1"}}, {Key: "g1", Members: ids{"2", "3"}}, {Key: "g2", Members: ids{"4"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	w := provisionertest.New(provisionertest.Settings{Kind: true})
	must(t, w.Load(got))
	groups, err := w.State().Groups(t.Context(), "3")
	must(t, err)
	if diff := cmp.Diff(want.Groups[1], groups[0].Group); diff != "" {
		t.Errorf("loaded:\n%s", diff)
	}
	if err := w.Load(got); !errors.Is(err, errors.AlreadyExists) {
		t.Errorf("loaded twice: got %v, want AlreadyExists", err)
	}
	seen := map[provisioner.ZoneName]bool{}
	for _, z := range provisionertest.NewFleet(0, 100, 0).Zones {
		if seen[z.Name] {
			t.Errorf("zone %s twice", z.Name)
		}
		seen[z.Name] = true
	}
}
