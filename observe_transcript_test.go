package provisioner_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// written is what a transcript writes, without the version in its first line.
func written(t *testing.T, tr *provisioner.Transcript) string {
	t.Helper()
	var b strings.Builder
	n, err := tr.WriteTo(&b)
	must(t, err)
	if n != int64(b.Len()) {
		t.Errorf("WriteTo said %d and wrote %d bytes", n, b.Len())
	}
	return regexp.MustCompile(`^provisioner \S+, go\S+ \S+: `).ReplaceAllString(b.String(), "")
}

func TestTranscript(t *testing.T) {
	at := time.Date(2026, 3, 7, 8, 12, 44, 0, time.UTC)
	tr := &provisioner.Transcript{Lines: 3, Redact: func(line string) string { return strings.ReplaceAll(line, "acme", "x") }}
	if diff := cmp.Diff("0 events\nin all: \n", written(t, tr)); diff != "" {
		t.Errorf("of nothing:\n%s", diff)
	}
	for i := range 5 {
		tr.Observe(provisioner.Event{At: at.Add(time.Duration(i) * 1500 * time.Millisecond), Kind: provisioner.EventStarted, Machine: provisioner.MachineID(fmt.Sprint(i)), Zone: "acme-1"})
		if i == 2 {
			want := "3 events from 2026-03-07T08:12:44Z to 2026-03-07T08:12:47Z\n" +
				"         +0s started machine=0 zone=x-1\n       +1.5s started machine=1 zone=x-1\n         +3s started machine=2 zone=x-1\nin all: started 3\n"
			if diff := cmp.Diff(want, written(t, tr)); diff != "" {
				t.Errorf("of all (-want +got):\n%s", diff)
			}
		}
	}
	tr.Observe(provisioner.Event{At: at.Add(time.Hour), Kind: provisioner.EventStartFailed, Machine: "9", Err: errors.New(strings.Repeat("é", 5000))})
	got := written(t, tr)
	want := "6 events from 2026-03-07T08:12:44Z to 2026-03-07T09:12:44Z, the newest 3 of them\n" +
		"       +4.5s started machine=3 zone=x-1\n         +6s started machine=4 zone=x-1\n     +1h0m0s start-failed machine=9 err=\"é…é…\nin all: start-failed 1, started 5\n"
	if diff := cmp.Diff(want, regexp.MustCompile(`é+`).ReplaceAllString(strings.Replace(got, "é…", "…", 1), "é…é")); len(got) > 2500 || diff != "" {
		t.Errorf("of the newest, %d bytes (-want +got):\n%s", len(got), diff)
	}
}

func TestTranscriptHidesSecrets(t *testing.T) {
	long := "Ab3" + strings.Repeat("xY9", 12)
	for _, c := range []struct{ why, in, want string }{
		{"a password by its name", `login failed: password=s3cr3t, user=joe`, `login failed: password=[redacted], user=joe`},
		{"in JSON", `{"admin_password": "s3 cr3t", "zone": "a"}`, `{"admin_password": [redacted], "zone": "a"}`},
		{"a token in a query", `GET https://c.example/v1?api_key=s3cr3t&zone=a: 403`, `GET https://c.example/v1?api_key=[redacted]&zone=a: 403`},
		{"credentials in a URL", `dial https://joe:s3cr3t@c.example/: refused`, `dial https://[redacted]@c.example/: refused`},
		{"a header", `Authorization: Basic s3cr3t`, `Authorization: [redacted]`},
		{"a bearer", `sent "Bearer s3cr3t.s3cr3t"`, `sent "Bearer [redacted]"`},
		{"a key", "bad key -----BEGIN RSA PRIVATE KEY-----\ns3cr3t\n-----END RSA PRIVATE KEY----- here", "bad key [redacted] here"},
		{"a key that is cut off", "bad key -----BEGIN PRIVATE KEY-----\ns3cr3t", "bad key [redacted]\x00"},
		{"an access key", `key AKIAIOSFODNN7EXAMPLE is disabled`, `key [redacted] is disabled`},
		{"a long random word", `session ` + long + ` expired`, `session [redacted] expired`},
		{"a sum", `sum ` + strings.Repeat("0a", 20), `sum [redacted]`},
		{"a UUID is an id", `server 3f0e4c8e-9f7b-4f6e-8a39-0f3f8f6f5b2a is gone`, `server 3f0e4c8e-9f7b-4f6e-8a39-0f3f8f6f5b2a is gone`},
		{"a long name", `suitable-availability-zone-for-machine-17-not-found`, `suitable-availability-zone-for-machine-17-not-found`},
	} {
		t.Run(c.why, func(t *testing.T) {
			tr := &provisioner.Transcript{}
			tr.Observe(provisioner.Event{Kind: provisioner.EventAttemptFailed, Err: errors.New(c.in)})
			got := written(t, tr)
			want := strings.TrimSuffix(fmt.Sprintf("attempt-failed err=%q", c.want), `\x00"`) // what is cut off has no end
			if !strings.Contains(strings.ReplaceAll(got, `\"`, `"`), strings.ReplaceAll(want, `\"`, `"`)) {
				t.Errorf("written was\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// It stands being written while a Task tells it more.
func TestTranscriptOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fleetOf(t, provisionertest.Settings{Kind: true}, 5, 2)
		cfg := configOf(w, nil)
		tr := &provisioner.Transcript{}
		cfg.Observers = []provisioner.Observer{tr, provisioner.ObserverFunc(func(provisioner.Event) { written(t, tr) })}
		stop := start(t, newTask(t, cfg))
		pass(time.Minute)
		stopCleanly(t, w, stop)
		if got := written(t, tr); !strings.Contains(got, "started 5") || !strings.Contains(got, "+0s started machine=4") {
			t.Errorf("written was\n%s", got)
		}
	})
}
