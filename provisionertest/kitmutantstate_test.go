package provisionertest_test

import (
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

type (
	results = []provisioner.MachineResult
	infos   = []provisioner.StartInfoResult
	intent  = provisioner.Intent
)

// A badState is a World's state with one fault: what is set stands in for that
// call.
type badState struct {
	*provisionertest.State
	kitHost

	mu   sync.Mutex // for what a fault remembers
	busy bool
	seen map[machineID]bool

	fleet        func(*badState, bg) (results, error)
	machines     func(*badState, bg, []machineID) (results, error)
	info         func(*badState, bg, []machineID) (infos, error)
	set          func(*badState, bg, provisioner.InstanceRecord) error
	remove       func(*badState, bg, machineID) error
	status       func(*badState, bg, provisioner.StatusUpdate) error
	dead         func(*badState, bg, machineID) error
	retries      func(*badState, bg) (results, error)
	groups       func(*badState, bg, []machineID) ([]provisioner.GroupResult, error)
	auth         func(*badState, bg, []provisioner.AuthRequest) ([]provisioner.AuthResult, error)
	agents       func(*badState, bg, provisioner.AgentQuery) ([]provisioner.AgentBinary, error)
	intents      func(*badState, bg, []machineID) ([]provisioner.IntentResult, error)
	swap         func(*badState, bg, intent, intent) error
	spare        func(*badState, bg, provisioner.Spared) error
	unspare      func(*badState, bg, []instID) error
	changes      func(*badState, bg, []machineID) ([]provisioner.ProfileChangeResult, error)
	word         func(*badState, bg, provisioner.ProfileStatusUpdate) error
	removeChange func(*badState, bg, machineID) error
	profiles     func(*badState, bg, provisioner.ProfileRecord) error
	options      func(*provisionertest.HostOptions, kitHost)
}

func (s *badState) Fleet(ctx bg) (results, error) {
	if s.fleet != nil {
		return s.fleet(s, ctx)
	}
	return s.State.Fleet(ctx)
}

func (s *badState) Machines(ctx bg, ids ...machineID) (results, error) {
	if s.machines != nil {
		return s.machines(s, ctx, ids)
	}
	return s.State.Machines(ctx, ids...)
}

func (s *badState) StartInfo(ctx bg, ids ...machineID) (infos, error) {
	if s.info != nil {
		return s.info(s, ctx, ids)
	}
	return s.State.StartInfo(ctx, ids...)
}

func (s *badState) SetInstance(ctx bg, rec provisioner.InstanceRecord) error {
	if s.set != nil {
		return s.set(s, ctx, rec)
	}
	return s.State.SetInstance(ctx, rec)
}

func (s *badState) Remove(ctx bg, req provisioner.Removal) error {
	if s.remove != nil {
		return s.remove(s, ctx, req.Machine)
	}
	return s.State.Remove(ctx, req)
}

func (s *badState) WriteStatus(ctx bg, u provisioner.StatusUpdate) error {
	if s.status != nil {
		return s.status(s, ctx, u)
	}
	return s.State.WriteStatus(ctx, u)
}

func (s *badState) EnsureDead(ctx bg, req provisioner.LifeRequest) error {
	if s.dead != nil {
		return s.dead(s, ctx, req.Machine)
	}
	return s.State.EnsureDead(ctx, req)
}

func (s *badState) RetryMachines(ctx bg) (results, error) {
	if s.retries != nil {
		return s.retries(s, ctx)
	}
	return s.State.RetryMachines(ctx)
}

func (s *badState) Groups(ctx bg, ids ...machineID) ([]provisioner.GroupResult, error) {
	if s.groups != nil {
		return s.groups(s, ctx, ids)
	}
	return s.State.Groups(ctx, ids...)
}

func (s *badState) Authenticate(ctx bg, reqs ...provisioner.AuthRequest) ([]provisioner.AuthResult, error) {
	if s.auth != nil {
		return s.auth(s, ctx, reqs)
	}
	return s.State.Authenticate(ctx, reqs...)
}

func (s *badState) FindAgents(ctx bg, q provisioner.AgentQuery) ([]provisioner.AgentBinary, error) {
	if s.agents != nil {
		return s.agents(s, ctx, q)
	}
	return s.State.FindAgents(ctx, q)
}

func (s *badState) Intents(ctx bg, ids ...machineID) ([]provisioner.IntentResult, error) {
	if s.intents != nil {
		return s.intents(s, ctx, ids)
	}
	return s.State.Intents(ctx, ids...)
}

func (s *badState) SwapIntent(ctx bg, old, next intent) error {
	if s.swap != nil {
		return s.swap(s, ctx, old, next)
	}
	return s.State.SwapIntent(ctx, old, next)
}

func (s *badState) AddSpared(ctx bg, sp provisioner.Spared) error {
	if s.spare != nil {
		return s.spare(s, ctx, sp)
	}
	return s.State.AddSpared(ctx, sp)
}

func (s *badState) RemoveSpared(ctx bg, req provisioner.SparedRemoval) error {
	if s.unspare != nil {
		return s.unspare(s, ctx, req.Instances)
	}
	return s.State.RemoveSpared(ctx, req)
}

func (s *badState) ProfileChanges(ctx bg, ids ...machineID) ([]provisioner.ProfileChangeResult, error) {
	if s.changes != nil {
		return s.changes(s, ctx, ids)
	}
	return s.State.ProfileChanges(ctx, ids...)
}

func (s *badState) SetProfileStatus(ctx bg, u provisioner.ProfileStatusUpdate) error {
	if s.word != nil {
		return s.word(s, ctx, u)
	}
	return s.State.SetProfileStatus(ctx, u)
}

func (s *badState) RemoveProfileChange(ctx bg, req provisioner.Removal) error {
	if s.removeChange != nil {
		return s.removeChange(s, ctx, req.Machine)
	}
	return s.State.RemoveProfileChange(ctx, req)
}

func (s *badState) SetProfiles(ctx bg, rec provisioner.ProfileRecord) error {
	if s.profiles != nil {
		return s.profiles(s, ctx, rec)
	}
	return s.State.SetProfiles(ctx, rec)
}

// once fails the second time for a machine.
func (s *badState) once(id machineID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[id] {
		return errors.New("was done before")
	}
	s.seen[id] = true
	return nil
}

// overwrite records an instance whatever there is.
func (s *badState) overwrite(rec provisioner.InstanceRecord) error {
	return s.Edit(rec.Machine, func(m *provisioner.Machine) { m.Instance, m.Zone = rec.Instance, rec.Zone })
}

// badStates break one rule each, in a way that a state might.
func badStates() map[string]*badState {
	return map[string]*badState{
		"capabilities": {options: func(o *provisionertest.HostOptions, _ kitHost) { o.Must = append(o.Must, "ZoneLister") }},
		"fleet-holds-all": {fleet: func(s *badState, ctx bg) (results, error) {
			all, err := s.State.Fleet(ctx)
			return all[:max(len(all)-1, 0)], err
		}},
		"fleet-holds-all 2": {fleet: func(s *badState, ctx bg) (results, error) {
			all, err := s.State.Fleet(ctx)
			return append(all, all...), err
		}},
		"machines-by-id": {machines: func(s *badState, ctx bg, ids []machineID) (results, error) {
			all, err := s.State.Machines(ctx, ids...)
			return all[:1], err
		}},
		"machines-by-id 2": {machines: func(s *badState, ctx bg, ids []machineID) (results, error) {
			all, err := s.State.Machines(ctx, ids...)
			for i := range all {
				if all[i].Machine.Life == provisioner.Dying {
					all[i].Machine.Life = provisioner.Alive // read from a replica
				}
			}
			return all, err
		}},
		"machine-not-found": {machines: func(s *badState, ctx bg, ids []machineID) (results, error) {
			all, err := s.State.Machines(ctx, ids...)
			for _, r := range all {
				if r.Err != nil && len(ids) > 1 {
					return nil, r.Err
				}
			}
			return all, err
		}},
		"machine-not-found 2": {machines: func(s *badState, ctx bg, ids []machineID) (results, error) {
			all, err := s.State.Machines(ctx, ids...)
			for i := range all {
				if all[i].Err != nil && len(ids) > 1 {
					all[i].Err = errors.Unauthorizedf("machine")
				}
			}
			return all, err
		}},
		"start-info-by-id": {info: func(s *badState, ctx bg, ids []machineID) (infos, error) {
			all, err := s.State.StartInfo(ctx, ids...)
			return slices.DeleteFunc(all, func(r provisioner.StartInfoResult) bool { return r.Err != nil }), err
		}},
		"nonce-kept": {info: func(s *badState, ctx bg, ids []machineID) (infos, error) {
			all, err := s.State.StartInfo(ctx, ids...)
			for i := range all {
				all[i].Info.Nonce = "kit:the-nonce"
			}
			return all, err
		}},
		"nonce-kept 2": {info: func(s *badState, ctx bg, ids []machineID) (infos, error) {
			all, err := s.State.StartInfo(ctx, ids...)
			for i := range all {
				if len(ids) > 1 {
					all[i].Info.Nonce = "kit:" + rand.Text() // made when it is asked for
				}
			}
			return all, err
		}},
		"set-instance-records": {set: func(*badState, bg, provisioner.InstanceRecord) error { return nil }},
		"set-instance-once": {set: func(s *badState, ctx bg, rec provisioner.InstanceRecord) error {
			err := s.State.SetInstance(ctx, rec)
			if m, _ := s.Machine(rec.Machine); m.Instance == "i-kit" && errors.Is(err, errors.AlreadyExists) {
				return s.overwrite(rec)
			}
			return err
		}},
		"set-instance-repeats": {set: func(s *badState, ctx bg, rec provisioner.InstanceRecord) error {
			if m, _ := s.Machine(rec.Machine); m.Instance != "" {
				return errors.AlreadyExistsf("instance")
			}
			return s.State.SetInstance(ctx, rec)
		}},
		"set-instance-race": {set: func(s *badState, ctx bg, rec provisioner.InstanceRecord) error {
			m, _ := s.Machine(rec.Machine)
			time.Sleep(time.Second) // in a bubble
			if m.Instance == "" && m.Life == provisioner.Alive {
				return s.overwrite(rec)
			}
			return s.State.SetInstance(ctx, rec)
		}},
		"set-instance-dead": {set: func(s *badState, ctx bg, rec provisioner.InstanceRecord) error {
			if m, _ := s.Machine(rec.Machine); m.Life == provisioner.Dead {
				return s.overwrite(rec)
			}
			return s.State.SetInstance(ctx, rec)
		}},
		"set-instance-gone": {set: func(s *badState, ctx bg, rec provisioner.InstanceRecord) error {
			if err := s.State.SetInstance(ctx, rec); !errors.Is(err, errors.NotFound) {
				return err
			}
			return nil
		}},
		"set-instance-gone 2": {set: func(s *badState, ctx bg, rec provisioner.InstanceRecord) error {
			err := s.State.SetInstance(ctx, rec)
			if errors.Is(err, errors.NotFound) {
				m := provisionertest.Pending(rec.Machine)
				m.Instance = rec.Instance
				_ = s.Add(m)
			}
			return err
		}},
		"remove-dead": {remove: func(s *badState, ctx bg, id machineID) error { return nil }},
		"remove-repeats": {remove: func(s *badState, ctx bg, id machineID) error {
			if _, there := s.Machine(id); !there {
				return errors.NotFoundf("machine")
			}
			return s.State.Remove(ctx, provisioner.Removal{Machine: id})
		}},
		"remove-living-refused": {remove: func(s *badState, ctx bg, id machineID) error {
			if m, there := s.Machine(id); there && m.Life == provisioner.Dying {
				return s.Forget(id)
			}
			return s.State.Remove(ctx, provisioner.Removal{Machine: id})
		}},
		"results-are-callers": {fleet: func() func(s *badState, ctx bg) (results, error) {
			cache := map[string]results{}
			return func(s *badState, ctx bg) (results, error) {
				key := ""
				for _, m := range s.World.Machines() {
					key += string(m.ID) + string(m.Life) + string(m.Instance) + " "
				}
				fresh, err := s.State.Fleet(ctx)
				s.mu.Lock()
				defer s.mu.Unlock()
				if cache[key] == nil {
					cache[key] = fresh
				}
				return cache[key], err
			}
		}()},
		"results-are-callers 2": {info: func() func(s *badState, ctx bg, ids []machineID) (infos, error) {
			profiles := []string{"default"}
			return func(s *badState, ctx bg, ids []machineID) (infos, error) {
				all, err := s.State.StartInfo(ctx, ids...)
				for i := range all {
					all[i].Info.Profiles = profiles
				}
				return all, err
			}
		}()},
		"ended-context": {intents: func(s *badState, ctx bg, ids []machineID) ([]provisioner.IntentResult, error) {
			if ctx.Err() != nil {
				time.Sleep(time.Minute) // in a bubble
			}
			return s.State.Intents(ctx, ids...)
		}},
		"concurrent-calls": {fleet: func(s *badState, ctx bg) (results, error) {
			s.mu.Lock()
			was := s.busy
			s.busy = true
			s.mu.Unlock()
			if was {
				return nil, errors.New("one call at a time")
			}
			time.Sleep(time.Second) // in a bubble
			s.mu.Lock()
			s.busy = false
			s.mu.Unlock()
			return s.State.Fleet(ctx)
		}},
		"watch-begins": {options: watching(func(in <-chan []machineID, out chan<- []machineID) {
			<-in
			for ids := range in {
				out <- ids
			}
		})},
		"watch-keeps-last": {options: telling(4, func(out chan<- []machineID, _ <-chan struct{}, id machineID) {
			select { // what finds no room is lost
			case out <- []machineID{id}:
			default:
			}
		})},
		"watch-coalesces": {options: watching(func(in <-chan []machineID, out chan<- []machineID) {
			for ids := range in {
				for _, id := range ids {
					out <- []machineID{id}
				}
				if len(ids) == 0 {
					out <- nil
				}
			}
		})},
		"watch-coalesces 2": {options: telling(16, func(out chan<- []machineID, stopped <-chan struct{}, id machineID) {
			select { // the writer waits for the reader
			case out <- []machineID{id}:
			case <-stopped:
			}
		})},
		"watch-stops": {options: func(o *provisionertest.HostOptions, h kitHost) {
			open := o.Watch
			o.Watch = func() (provisioner.Stream[[]machineID], error) {
				s, err := open()
				stop := s.Stop
				s.Stop = func() error { time.Sleep(time.Minute); return stop() } // in a bubble
				return s, err
			}
		}},
		"status-written": {status: func(s *badState, ctx bg, u provisioner.StatusUpdate) error {
			u.InstanceStatus = ""
			return s.State.WriteStatus(ctx, u)
		}},
		"status-kept": {status: func(s *badState, ctx bg, u provisioner.StatusUpdate) error {
			if u.Status == "" {
				u.Status = "unknown"
			}
			return s.State.WriteStatus(ctx, u)
		}},
		"ensure-dead": {dead: func(s *badState, ctx bg, id machineID) error {
			if m, _ := s.Machine(id); m.Life == provisioner.Dead {
				return errors.New("is dead already")
			}
			return s.State.EnsureDead(ctx, provisioner.LifeRequest{Machine: id})
		}},
		"ensure-dead 2": {dead: func(s *badState, ctx bg, id machineID) error {
			if m, _ := s.Machine(id); m.Life == provisioner.Dying {
				return nil
			}
			return s.State.EnsureDead(ctx, provisioner.LifeRequest{Machine: id})
		}},
		"ensure-dead-living": {dead: func(s *badState, ctx bg, id machineID) error { return s.World.SetLife(id, provisioner.Dead) }},
		"retry-machines": {retries: func(s *badState, ctx bg) (results, error) {
			all, err := s.State.RetryMachines(ctx)
			return append(all, all...), err
		}},
		"retry-machines 2": {retries: func(s *badState, ctx bg) (results, error) { return s.State.Fleet(ctx) }},
		"groups-by-id": {groups: func(s *badState, ctx bg, ids []machineID) ([]provisioner.GroupResult, error) {
			all, err := s.State.Groups(ctx, ids...)
			return slices.DeleteFunc(all, func(r provisioner.GroupResult) bool { return r.Group.Key == "" }), err
		}},
		"group-members": {groups: func(s *badState, ctx bg, ids []machineID) ([]provisioner.GroupResult, error) {
			all, err := s.State.Groups(ctx, ids...)
			for i := range all {
				if len(all[i].Group.Members) > 1 {
					all[i].Group.Members = []machineID{all[i].ID}
				}
			}
			return all, err
		}},
		"authenticate-each": {auth: func(s *badState, ctx bg, reqs []provisioner.AuthRequest) ([]provisioner.AuthResult, error) {
			all, err := s.State.Authenticate(ctx, reqs...)
			for i := range all {
				all[i].Auth = all[0].Auth
			}
			return all, err
		}},
		"agents-match": {agents: func(*badState, bg, provisioner.AgentQuery) ([]provisioner.AgentBinary, error) {
			return nil, errors.NotFoundf("agent binaries")
		}},
		"agents-match 2": {agents: func(*badState, bg, provisioner.AgentQuery) ([]provisioner.AgentBinary, error) {
			return []provisioner.AgentBinary{{Version: "3.6.0", Arch: "amd64"}}, nil
		}},
		"intents-by-id": {intents: func(s *badState, ctx bg, ids []machineID) ([]provisioner.IntentResult, error) {
			all, err := s.State.Intents(ctx, ids...)
			for i := range all {
				all[i].Err = nil
			}
			return all, err
		}},
		"intent-swapped": {intents: func(s *badState, ctx bg, ids []machineID) ([]provisioner.IntentResult, error) {
			all, err := s.State.Intents(ctx, ids...)
			for i := range all { // the column is too short, but only for attempts after the first
				if all[i].Intent.Attempt > 1 && len(ids) == 1 && s.seen[ids[0]] {
					all[i].Intent.At = all[i].Intent.At.Truncate(time.Millisecond)
				}
			}
			return all, err
		}, swap: func(s *badState, ctx bg, old, next intent) error {
			err := s.State.SwapIntent(ctx, old, next)
			if err == nil && old.Attempt == 1 && next.Attempt == 2 {
				s.seen[next.Machine] = true
			}
			return err
		}},
		"intent-swapped 2": {swap: func(s *badState, ctx bg, old, next intent) error {
			for _, i := range []*intent{&old, &next} {
				if i.Attempt == 0 {
					*i = intent{Machine: i.Machine} // no attempt, no intent
				}
			}
			return s.State.SwapIntent(ctx, old, next)
		}},
		"intent-stale": {swap: func(s *badState, ctx bg, old, next intent) error {
			err := s.State.SwapIntent(ctx, old, next)
			if errors.Is(err, errors.AlreadyExists) && old.Token == "another" {
				return nil
			}
			return err
		}},
		"intent-race": {swap: func(s *badState, ctx bg, old, next intent) error {
			if err := s.State.SwapIntent(ctx, old, next); err == nil || old.Attempt != 0 || next.Attempt < 3 {
				return err
			}
			return nil
		}},
		"spared-kept": {spare: func(s *badState, ctx bg, sp provisioner.Spared) error {
			sp.Kept = false
			return s.State.AddSpared(ctx, sp)
		}},
		"spared-removed": {unspare: func(s *badState, ctx bg, ids []instID) error {
			all, _ := s.State.Spared(ctx)
			if !slices.ContainsFunc(all, func(sp provisioner.Spared) bool { return sp.Instance == ids[0] }) {
				return errors.NotFoundf("instance")
			}
			return s.State.RemoveSpared(ctx, provisioner.SparedRemoval{Instances: ids})
		}},
		"profile-changes-by-id": {changes: func(s *badState, ctx bg, ids []machineID) ([]provisioner.ProfileChangeResult, error) {
			all, err := s.State.ProfileChanges(ctx, ids...)
			if len(all) > 1 {
				all = all[1:]
			}
			return all, err
		}},
		"profile-status": {word: func(*badState, bg, provisioner.ProfileStatusUpdate) error { return nil }},
		"profile-change-removed": {removeChange: func(s *badState, ctx bg, id machineID) error {
			if err := s.once(id); err != nil {
				return err
			}
			return s.State.RemoveProfileChange(ctx, provisioner.Removal{Machine: id})
		}},
		"profile-change-removed 2": {removeChange: func(s *badState, ctx bg, id machineID) error { return nil }},
		"profiles-recorded":        {profiles: func(s *badState, ctx bg, rec provisioner.ProfileRecord) error { return s.once(rec.Machine) }},
		"nothing-left": {remove: func(s *badState, ctx bg, id machineID) error {
			err := s.State.Remove(ctx, provisioner.Removal{Machine: id})
			if _, there := s.Machine(id); !there && s.once("again") != nil && s.once("again and again") == nil {
				_ = s.AddPending(id) // it comes back
			}
			return err
		}},
	}
}

// telling is a watcher whose writers tell of each change by themselves, through
// a channel with so many places.
func telling(places int, tell func(out chan<- []machineID, stopped <-chan struct{}, id machineID)) func(*provisionertest.HostOptions, kitHost) {
	return func(o *provisionertest.HostOptions, h kitHost) {
		var mu sync.Mutex
		var out chan []machineID // of the watcher that is open
		var stopped chan struct{}
		o.Watch = func() (provisioner.Stream[[]machineID], error) {
			mu.Lock()
			defer mu.Unlock()
			ch, end := make(chan []machineID, places), make(chan struct{})
			ch <- nil
			out, stopped = ch, end
			return provisioner.Stream[[]machineID]{C: ch, Stop: func() error { close(end); return nil }}, nil
		}
		changed := func(id machineID) {
			mu.Lock()
			ch, end := out, stopped
			mu.Unlock()
			if ch != nil {
				tell(ch, end, id)
			}
		}
		o.NewMachine = func(_ bg, m provisioner.Machine) (machineID, error) { defer changed(m.ID); return m.ID, h.Add(m) }
		o.SetLife = func(_ bg, id machineID, life provisioner.Life) error {
			defer changed(id)
			return h.World.SetLife(id, life)
		}
	}
}

// watching puts something between the World's watcher and the suite. What it
// sends goes through a channel with one place.
func watching(between func(in <-chan []machineID, out chan<- []machineID)) func(*provisionertest.HostOptions, kitHost) {
	return func(o *provisionertest.HostOptions, h kitHost) {
		o.Watch = func() (provisioner.Stream[[]machineID], error) {
			s := h.Changes()
			in, out, done := make(chan []machineID), make(chan []machineID, 1), make(chan struct{})
			ended := make(chan []machineID)
			go func() { // every change, as it comes
				defer close(in)
				for {
					select {
					case ids := <-s.C:
						select {
						case in <- ids:
						case <-done:
							return
						}
					case <-done:
						return
					}
				}
			}()
			go func() { between(in, out); close(ended) }()
			return provisioner.Stream[[]machineID]{C: out, Stop: func() error {
				close(done)
				go func() { // let it end
					for {
						select {
						case <-out:
						case <-ended:
							return
						}
					}
				}()
				return s.Stop()
			}}, nil
		}
	}
}

// Each fault of a state breaks its own rule, and no other.
func TestBadStates(t *testing.T) {
	covered := map[string]bool{}
	all := badStates()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		bad := all[name]
		rule, _, _ := strings.Cut(name, " ")
		covered[rule] = true
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad.kitHost = newKitHost(t, provisionertest.Settings{
					Kind: true, Latency: map[provisionertest.Call]time.Duration{provisionertest.AnyCall: 100 * time.Millisecond}})
				bad.State = bad.World.State()
				bad.seen = map[machineID]bool{}
				bad.Controller = "kit"
				if bad.options != nil {
					bad.options(&bad.HostOptions, bad.kitHost)
				}
				err := provisionertest.CheckState(t.Context(), bad, bad.HostOptions)
				if diff := cmp.Diff([]string{rule}, brokenRules(t, err)); diff != "" {
					t.Errorf("broken rules (-want +got):\n%s\n%v", diff, err)
				}
				time.Sleep(time.Hour) // for calls that nobody waited for
			})
		})
	}
	for _, r := range provisionertest.StateRules() {
		if !covered[r.Name] {
			t.Errorf("no fault breaks the rule %s", r.Name)
		}
	}
}
