// Package docs_test keeps the code in the documents true: what they show is
// here, where it is compiled and run.
package docs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

func TestNextZoneAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := newWorld(t, provisionertest.Settings{}, "start machine=0 nth=1: error capacity")
		task, err := provisioner.New(provisioner.Config{ // inside the bubble: its clock is virtual
			Controller: "test",
			Broker:     world.Broker(),
			State:      world.State(),
			Changes:    world.Changes(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- task.Run(ctx) }()

		time.Sleep(time.Minute) // of virtual time; it takes none
		synctest.Wait()
		if m, _ := world.Machine("0"); m.Instance == "" {
			t.Errorf("machine 0 was not started:\n%s", world.Transcript())
		}

		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
		if err := world.Check(); err != nil { // leaks, double instances, wrong stops
			t.Error(err)
		}
	})
}

func TestWaitBetweenRounds(t *testing.T) {
	mock := clock.NewMock()
	world := newWorld(t, provisionertest.Settings{Clock: mock, Kind: true}, "start machine=0 count=2: error")
	changed := make(chan []provisioner.MachineID)
	task, err := provisioner.New(provisioner.Config{
		Controller: "test",
		Broker:     world.Broker(),
		State:      world.State(),
		Changes:    provisioner.Stream[[]provisioner.MachineID]{C: changed},
		Clock:      mock,
		Policy:     provisioner.Policy{Retry: provisioner.FixedRetry(time.Minute, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- task.Run(ctx) }()
	changed <- nil // it is taken, so Run has begun: before that, Idle has nothing to wait for

	began := mock.Now()
	for {
		next, err := task.Idle(ctx) // nothing goes on now; next is what it waits for
		if err != nil {
			t.Fatal(err)
		}
		if m, _ := world.Machine("0"); m.Instance != "" {
			break
		}
		mock.Add(next.Sub(mock.Now()))
	}
	if waited := mock.Now().Sub(began); waited != time.Minute {
		t.Errorf("started after %v, want the one wait between two rounds", waited)
	}

	cancel()
	<-ended
}

func TestMyState(t *testing.T) {
	records := provisionertest.New(provisionertest.Settings{Kind: true}) // yours
	provisionertest.TestState(t, records.State(), provisionertest.HostOptions{
		Must: []string{"IntentStore", "StatusWriter"}, // found, or else it fails
		Skip: map[string]string{"status-kept": "our machines have one status only"},
		NewMachine: func(_ context.Context, m provisioner.Machine) (provisioner.MachineID, error) {
			return m.ID, records.Add(m) // your program chooses its own ids: return them
		},
		SetLife: func(_ context.Context, id provisioner.MachineID, life provisioner.Life) error {
			return records.SetLife(id, life)
		},
	})
}

func TestCrashAfterStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := newWorld(t, provisionertest.Settings{Controller: "test", Traits: provisioner.Traits{Labels: true}})
		host := provisionertest.Host{Broker: world.Broker(), State: world.State()} // yours
		crash, err := provisionertest.CrashAt(host, provisionertest.CrashAfterStart, 1)
		if err != nil {
			t.Fatal(err)
		}
		run := func(h provisionertest.Host) context.CancelFunc {
			cfg := provisioner.Config{Controller: "test", Changes: world.Changes()}
			h.Configure(&cfg)
			task, err := provisioner.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go task.Run(ctx)
			return cancel
		}
		defer run(crash.Host)()
		<-crash.Crashed()

		defer run(host)()
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := world.Check(); err != nil { // one instance, recorded, and no other
			t.Error(err)
		}
	})
}

// newWorld has a machine 0 that wants an instance, zones a and b, and the
// given trouble.
func newWorld(t *testing.T, s provisionertest.Settings, faults ...string) *provisionertest.World {
	t.Helper()
	world := provisionertest.New(s)
	if err := world.Load(provisionertest.NewFleet(1, 2, 0)); err != nil {
		t.Fatal(err)
	}
	for _, line := range faults {
		fault, err := provisionertest.ParseFault(line)
		if err != nil {
			t.Fatal(err)
		}
		if err := world.Inject(fault); err != nil {
			t.Fatal(err)
		}
	}
	return world
}

func embedding(ctx context.Context, cloud provisioner.Broker, records provisioner.State, changed <-chan []provisioner.MachineID) error {
	task, err := provisioner.New(provisioner.Config{
		Controller: "prod-1", // no other controller of this cloud has that name
		Broker:     cloud,    // yours: Instances, Start, Stop
		State:      records,  // yours: Fleet, Machines, StartInfo, SetInstance, Remove
		Observers:  []provisioner.Observer{provisioner.ObserverFunc(func(e provisioner.Event) { log.Println(e) })},
		// Nothing is done before the first delivery: send one at once, if only nil.
		Changes: provisioner.Stream[[]provisioner.MachineID]{C: changed},
	})
	if err != nil {
		return err // names every field that is at fault
	}
	return task.Run(ctx)
}

// TestEmbedding: what the README shows says what is wrong with nothing.
func TestEmbedding(t *testing.T) {
	if err := embedding(t.Context(), nil, nil, nil); !errors.Is(err, provisioner.ErrConfig) {
		t.Errorf("got %v, want %v", err, provisioner.ErrConfig)
	}
}

func approving(task *provisioner.Task) error {
	if f := task.Frozen(); f != nil {
		fmt.Println(f.Reason, f.Instances)
		return task.Approve(f.Plan) // valid for exactly these
	}
	return nil
}

// TestApproving: what the README shows does nothing while nothing is frozen.
func TestApproving(t *testing.T) {
	if err := approving(new(provisioner.Task)); err != nil {
		t.Error(err)
	}
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestCodeInDocuments: every Go block of a document is in a test of this
// directory, so that it compiles and does what the text says.
func TestCodeInDocuments(t *testing.T) {
	code := ""
	for _, name := range []string{"testing_test.go", "brokerguide_test.go"} {
		here, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code += flat(string(here))
	}
	for _, name := range []string{"../README.md", "testing.md", "design.md", "broker-guide.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(code, flat(block[1])) {
				t.Errorf("%s shows code that is in no test of docs/, and so is never compiled:\n%s", name, block[1])
			}
		}
	}
}

// TestLinksInDocuments: a link to a file of the repository leads somewhere.
func TestLinksInDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	for _, dir := range []string{"..", "."} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".md") {
				continue
			}
			text, err := os.ReadFile(dir + "/" + e.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range link.FindAllStringSubmatch(string(text), -1) {
				if _, err := os.Stat(dir + "/" + m[1]); err != nil {
					t.Errorf("%s/%s links to %s: %v", dir, e.Name(), m[1], err)
				}
			}
		}
	}
}

// flat takes the indentation away: a document shows code with less of it.
func flat(code string) string {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}
