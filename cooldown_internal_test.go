package provisioner

import (
	"fmt"
	"testing"
	"time"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner/constraints"
)

// cooldownCase is one key, with attempts numbered as they are sent.
type cooldownCase struct {
	t    *testing.T
	c    cooldowns
	now  time.Time
	sent uint64
	s    shape
}

func newCooldownCase(t *testing.T) *cooldownCase {
	return &cooldownCase{t: t, c: newCooldowns(Policy{}), now: time.Unix(1000, 0)}
}

func (x *cooldownCase) send() uint64 { x.sent++; return x.sent }

func (x *cooldownCase) fail(attempt uint64) bool {
	_, began := x.c.failed(x.s, 0, attempt, x.sent, x.now)
	return began
}

// closed says whether the zone is passed over by two machines.
func (x *cooldownCase) closed(why string, one, two bool) {
	x.t.Helper()
	k := x.c.of(x.s)
	if a, b := k.closed(0, 1, x.now), k.closed(0, 2, x.now); a != one || b != two {
		x.t.Errorf("AZ11: %s: passed over by 1: %v, by 2: %v; want %v, %v", why, a, b, one, two)
	}
}

func TestCooldownOneProbes(t *testing.T) {
	x := newCooldownCase(t)
	x.closed("nothing is known", false, false)
	if !x.fail(x.send()) {
		t.Fatal("AZ11: the first failure does not count")
	}
	x.closed("it lacks room", true, true)
	x.now = x.now.Add(3*time.Minute - 1)
	x.closed("for ZoneCooldown", true, true)
	x.now = x.now.Add(1)
	x.closed("then it is to be probed", false, false)
	x.c.of(x.s).claim(0, 1)
	x.closed("by one machine", false, true)
	if !x.c.of(x.s).claim(noZone, 1) {
		t.Error("AZ11: giving up a probe is not told")
	}
	if x.c.of(x.s).claim(noZone, 1) {
		t.Error("AZ11: and told once more")
	}
	x.closed("if that gives up, by another", false, false)
	x.c.of(x.s).claim(0, 2)
	x.c.of(x.s).succeeded(0, x.send(), x.now)
	x.closed("there is room again", false, false)
}

func TestCooldownDoubles(t *testing.T) {
	x := newCooldownCase(t)
	var waits []time.Duration
	for range 7 {
		x.fail(x.send())
		until, ok := x.c.of(x.s).due(0)
		if !ok {
			t.Fatal("never due")
		}
		waits = append(waits, until.Sub(x.now))
		x.now = until
	}
	if got, want := fmt.Sprint(waits), "[3m0s 6m0s 12m0s 24m0s 30m0s 30m0s 30m0s]"; got != want {
		t.Errorf("AZ11: it cools down for %s, want %s", got, want)
	}
	x.c.of(x.s).succeeded(0, x.send(), x.now)
	x.fail(x.send())
	if until, _ := x.c.of(x.s).due(0); until.Sub(x.now) != 3*time.Minute {
		t.Errorf("AZ11: after a success it begins anew, not with %v", until.Sub(x.now))
	}
	long := newCooldowns(Policy{ZoneCooldown: time.Hour})
	if until, _ := long.failed(shape{}, 0, 1, 1, x.now); until.Sub(x.now) != time.Hour {
		t.Errorf("a cooldown longer than the bound of the doubling: %v", until.Sub(x.now))
	}
}

func TestCooldownCountsFreshFailures(t *testing.T) {
	x := newCooldownCase(t)
	a, b := x.send(), x.send()
	x.fail(a)
	if x.fail(b) {
		t.Error("AZ11: two failures within one cooldown count once")
	}
	x.now = x.now.Add(time.Minute)
	if x.fail(x.send()) {
		t.Error("AZ11: one that was sent during the cooldown counts once too")
	}
	x.now = x.now.Add(2 * time.Minute)
	if x.fail(b) {
		t.Error("AZ11: one that was sent before the cooldown tells nothing new after it")
	}
	if !x.fail(x.send()) {
		t.Error("AZ11: that of the probe counts")
	}

	x = newCooldownCase(t)
	x.fail(x.send())
	old := x.send()
	x.c.of(x.s).succeeded(0, x.sent, x.now)
	if x.fail(old) {
		t.Error("AZ11: a failure sent before the success revives the cooldown")
	}
	if !x.fail(x.send()) {
		t.Error("AZ11: one sent after it counts, also at the same instant")
	}
}

func TestCooldownKeys(t *testing.T) {
	x := newCooldownCase(t)
	big := shapeOf(mustParse("arch=amd64 cores=8 mem=16G instance-type=x virt-type=kvm"))
	x.c.failed(big, 3, x.send(), x.sent, x.now)
	for _, other := range []string{"arch=arm64 cores=8 mem=16G instance-type=x virt-type=kvm", "arch=amd64 cores=4 mem=16G instance-type=x virt-type=kvm",
		"arch=amd64 cores=8 mem=8G instance-type=x virt-type=kvm", "arch=amd64 cores=8 mem=16G instance-type=y virt-type=kvm",
		"arch=amd64 cores=8 mem=16G instance-type=x virt-type=lxd", ""} {
		if x.c.of(shapeOf(mustParse(other))).closed(3, 1, x.now) {
			t.Errorf("AZ11: machines of another shape pass it over: %s", other)
		}
	}
	same := shapeOf(mustParse("arch=amd64 cores=8 mem=16G instance-type=x virt-type=kvm zones=a,b tags=t root-disk=9G"))
	if !x.c.of(same).closed(3, 1, x.now) {
		t.Error("AZ11: zones, tags and disks are no part of the shape")
	}
	if x.c.of(big).closed(2, 1, x.now) || x.c.of(big).closed(4, 1, x.now) {
		t.Error("AZ11: other zones are passed over")
	}
	x.c.failed(big, 4, x.send(), x.sent, x.now)
	x.c.of(big).succeeded(4, x.sent, x.now)
	if !x.c.of(big).closed(3, 1, x.now) || x.c.of(big).closed(4, 1, x.now) {
		t.Error("AZ11: a success clears its own key only")
	}
	off := newCooldowns(Policy{ZoneCooldown: Off})
	if off.failed(big, 3, 1, 1, x.now); off.of(big).closed(3, 1, x.now) {
		t.Error("Off is not off")
	}
}

func TestCooldownForgets(t *testing.T) {
	c, now := newCooldowns(Policy{}), time.Unix(0, 0)
	for i := range 1000 {
		now = now.Add(time.Minute)
		c.failed(shape{cores: uint64(i)}, 0, uint64(i+1), uint64(i+1), now)
	}
	if n := len(c.shapes); n > 64 {
		t.Errorf("%d shapes are remembered", n)
	}
}

func TestLacksCapacity(t *testing.T) {
	boom := errors.New("boom")
	for _, test := range []struct {
		why  string
		err  error
		want bool
	}{
		{"marked", errors.Annotate(OutOfCapacity(boom), "starting"), true},
		{"a zone's failure of another kind", boom, false},
		{"throttling", RetryAfter(OutOfCapacity(boom), time.Second), false},
		{"an invalid request", ZoneIndependent(OutOfCapacity(boom)), false},
		{"permanent", Permanent(OutOfCapacity(boom)), false},
		{"a quota holds for all zones", Quota(OutOfCapacity(boom)), false},
		{"whether it was made is unknown", Ambiguous(OutOfCapacity(boom)), false},
	} {
		if got := lacksCapacity(test.err); got != test.want {
			t.Errorf("AZ11: %s: %v, want %v", test.why, got, test.want)
		}
	}
}

func mustParse(text string) constraints.Value {
	v, err := constraints.Parse(text)
	if err != nil {
		panic(err)
	}
	return v
}
