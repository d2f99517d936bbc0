// Package provisioner keeps a fleet of machine records and the instances of a
// broker (a cloud, a cluster, a rack) in step: it starts an instance for each
// record that wants one, spread over availability zones, tries again what
// failed, and stops what is no longer wanted.
//
// It is a library for programs that own such records: it brings the decisions
// and the concurrency, the host brings the records and the cloud.
//
// # Quick start
//
// Implement [Broker] (three methods) and [State] (five), and run a [Task]:
//
//	task, err := provisioner.New(provisioner.Config{
//		Controller: "prod-1", // no other controller of this cloud has that name
//		Broker:     cloud,
//		State:      records,
//		// Nothing is done before the first delivery: send one at once, if only nil.
//		Changes: provisioner.Stream[[]provisioner.MachineID]{C: changed},
//	})
//	if err != nil {
//		return err // a *ConfigError that names every field at fault
//	}
//	return task.Run(ctx)
//
// A host without watchers leaves Changes out; it calls [Task.Run], which then
// looks at everything at once and each [Config].Resync, or [Task.Reconcile] when
// it likes. To see what would happen, and why, without anything happening, print
// what [Task.Plan] returns. The directory examples/custombroker holds a whole
// host in one file, to be copied; package provisionertest holds one in memory.
//
// Marks such as (HV4) in this documentation number the rules of behaviour; the
// tests of a rule carry its number, so searching for it finds what it means.
//
// # The host's duties
//
// What the package promises, it promises to a host that does this:
//
//  1. Give each controller of one cloud a name of its own, and let only one
//     Task at a time act on a fleet: pass a [Lease] where there are several. Two
//     Tasks that each have a part of the fleet, and are shown each other's
//     instances, need two names: what is in no record is unknown.
//  2. List truthfully. [Listing].Complete is set only if every instance is in
//     the listing, powered-off ones too, save for the zones in Failed.
//  3. Start in the zone asked for, put the labels on the instance by the call
//     that makes it, and use the token as the idempotency key where there is
//     one. An error of Start means that no instance was made; say [Ambiguous]
//     where that isn't certain.
//  4. Mark errors ([ZoneIndependent], [Permanent], [RetryAfter],
//     [OutOfCapacity] and the others). An unmarked error is taken for the
//     zone's, and the next zone is tried.
//  5. Stop for good and idempotently: an id that is not known is a success. If
//     only some could be stopped, return a [*StopError].
//  6. Make SetInstance a compare-and-set on "not provisioned", and Remove
//     idempotent and deaf to machines that aren't dead. This, and not the Task,
//     is what keeps two writers apart.
//  7. Answer by id. A machine that is missing is NotFound, one that may not be
//     seen Unauthorized, both in the result of that machine; the error of the
//     call means that state could not be reached.
//  8. Return soon after a context has ended, allow calls from several
//     goroutines, hand out copies, keep nothing of a request.
//  9. Decide which machines there are and when they die. A record that is gone
//     without having been dead leaves its instance behind.
//  10. Let a Task that stops unknown instances see every machine of its
//     controller that the broker may list: what it cannot see is unknown.
//  11. Look at [Task.Capabilities] once: a decorator that hides an ability of
//     the broker or the state is otherwise not noticed.
//
// # What a start carries
//
// [State].StartInfo gives each machine's [StartInfo]: constraints, placement,
// volumes and their attachments, subnets, images, agents, profiles, and in
// Instance the agent's configuration with the host's cloud-init user data
// ([instancecfg.Info]). [StartInfo.Validate] says what is wrong with one.
// Credentials come from an [Authenticator], and agents from an [AgentFinder],
// where the state is one. The broker gets it all as a [StartRequest], of whose
// Config [instancecfg.Config.CloudInit] makes user data for the instance.
//
// # Profiles that change
//
// A state that is a [ProfileState] and a broker that is a [ProfileBroker] have the
// LXD profiles of running instances changed: each [ProfileChange] is made,
// recorded and written off in its document, in order for each machine, never with
// one profile on two machines at once, and within [Limits]. Passing faults of the
// broker are tried again by [Policy].Profiles before a change counts as failed.
// Plans are not about profiles; [Task.Explain] is.
//
// # Stages
//
// Facts become decisions in stages that are plain functions, each of use
// alone, none with I/O, a lock, a clock or a random number of its own:
//
//	Classify      Machine → Classified         what it needs, and why
//	FindUnknown   Listing → []Instance         what no machine claims
//	Harvest       dead → HarvestSet            what may be stopped, what is left
//	RankZones     Ranking → []RankedZone       which zone next, why others are out
//	Walk.Next     Outcome → Decision           again? where? when?
//	MakePlan      Snapshot → Plan              all of it, for a whole fleet
//
// Inputs are never changed, orders are total, and whatever is left alone has a
// reason that a person can read.
//
// # Plan, then act
//
// One rule decides about one machine; MakePlan folds it over a fleet, and a
// running Task applies the same rule to what has changed, so both say the
// same. A [Plan] is plain data: print it, compare it, leave actions out, give
// it to [Task.Apply]. Apply does what the plan says and no more, and passes over
// an action whose machine is no longer as it was when that was decided.
//
// [Task.Explain] says where one machine stands: phase, attempt, last error, next
// try, and each zone with its rank or the reason why it is out.
//
// # Placement
//
// A machine goes to the zone with fewest members of its [Group], then with
// fewest machines; ties are broken by a stable hash. A choice counts at once, so
// starts side by side spread as starts in a row do, and a restart places as if it
// had never been. [Policy] bends that: Tie takes the first name instead, Weights
// gives zones unequal shares, MaxSkew and MinZones make a machine wait rather
// than pile up, and ZoneCooldown passes over a zone that has shown to be full,
// until one machine has probed it.
//
// [Action.Choice] and [Task.Explain] say why a zone is better than the others,
// [Describe] draws it. For what the Task does not do by itself there are
// functions: [Rebalance] says which machines would have to be started anew for
// the fleet to be even again, [Distribute] and [Allocations] choose among machines
// and instances that exist, and [SpreadContainers] picks hosts for containers.
//
// # Guarantees
//
// One instance a machine: nothing is started or stopped twice at once, an
// instance that could not be recorded is stopped or kept in view until it is
// gone ([Task.Orphans]), and the machine is not started again before. What is
// not known is never taken for nothing, over crashes too: see Identity.
//
// Nothing is stopped on a guess: an instance is stopped if its machine is dead and
// the mode allows it, if the Task itself made it and could not record it, or, in
// [HarvestUnknown] and [HarvestAll], if it is unknown: no machine has it, no start
// can have made it, its labels allow it, it is old enough, and two complete
// listings [Policy].UnknownGrace apart have shown it, each with all records read
// after it (HV9, HV10). Keep-instance wins over every mode. At most
// [Policy].MaxUnknown of them go in one pass, and if too many are unknown none
// does until [Task.Approve] (HV11): look at [Task.Frozen]. Why an instance is left
// alone, [Task.Plan] and [Task.ExplainInstance] say. What was kept or spared when
// its record went stays; over restarts only with a [SparedStore]. A [Veto] and a
// [Drainer] may delay a stop.
//
// One machine's trouble is its own: a start that is slow, hangs, fails or
// panics takes a place in a lane, and neither delays the next free place nor
// ends Run. Whole calls that fail are tried again with back-off. Run ends when
// its context does or Kill is called, when a watcher closes or the lease is lost,
// and for nothing else.
//
// Nothing is leaked: when Run has returned, its goroutines and watchers are
// gone. Only calls that outlast [Config].ShutdownGrace go on, named in Run's
// error (a [*CallsOutError]), and what they bring is still recorded or stopped.
//
// # Identity
//
// Each machine has a nonce and each attempt a token; both are in the labels that
// the broker puts on the instance by the call that makes it. An attempt ends in
// one of three ways: created, certainly not created, or unknown ([Ambiguous], a
// time-out, a connection that broke, a crash). An unknown one is neither moved to
// another zone nor given a new token. What becomes of it, the host's abilities
// say, the first of these that it has:
//
//   - the broker dedupes by token ([Traits]): the same attempt is asked for again
//   - it can search ([InstanceFinder]), or its listings show labels: the machine's
//     instance is looked for, and adopted; none is believed at once if reads are
//     consistent, else after two complete looks VisibilityGrace apart
//   - neither: the start is given up, and its error says that an instance may be
//     there. A further try is for a person to ask for
//
// The same search precedes a machine's first attempt in a Task's life, so that
// what a Task has begun before it crashed is found by the next one. A state that
// is an [IntentStore] has each attempt written down before the broker is asked: a
// restart then goes on with the very attempt that was open, and starts at once
// what was never attempted. Without it, and with a broker that has none of the
// above, a crash between the start and its record costs the instance that was
// made: nobody can find it again. docs/crashes.md has the whole grid.
//
// # Concurrency
//
// Every method of a Task may be called from several goroutines at once. Run may
// be called once; without it, Reconcile and Apply do the driving for as long as
// they last, and the other methods work all the same. No method
// of the host is called with a lock held, and any of them may be called by
// several goroutines at the same time. One machine is started, recorded, stopped
// or removed by one call at a time; meanwhile its record may be read and its
// status written. Observers are called by one goroutine each, in the order of
// events, and never hold up the Task.
//
// In plain words: whoever has something to decide takes the engine, the one
// value that knows everything, decides, puts it back, and lets workers do the
// slow things. There is nothing to lock, and nobody waits with it in hand.
//
// # Errors
//
// Errors wrap their cause; branch with errors.Is and errors.As. [ErrConfig],
// [ErrStart] and [ErrStop] each go with a type that carries the particulars:
// [*ConfigError], [*StartError] (every attempt: zone, time, error) and
// [*StopError]. [ErrNoZone] is the cause when no zone could be used, [ErrNoAgents]
// and [ErrNoImages], with a [*NoMatchError], when none of those to choose from would
// do. Classes
// that the host shares with the package are those of github.com/juju/errors:
// NotFound, Unauthorized, NotValid, NotSupported, NotImplemented. A machine's
// failure is an event, a status and a result, never Run's error.
//
// # Testing your host
//
// All waiting is on [Config].Clock, so tests never sleep. With testing/synctest,
// make the Task inside the bubble and leave Clock out. With a mock of
// github.com/benbjohnson/clock, call [Task.Idle] before each move of the clock:
// it returns, with the time of the next thing to do, once all is quiet. Both are
// shown in docs/testing.md. Package provisionertest has a host in memory whose
// faults are scripted.
//
// # What it is not
//
// It does not decide how many machines there should be, of which size, or what
// runs on them; it does not replace machines that are unwell, install anything
// on them, or speak to any cloud by itself; and it is no daemon.
package provisioner
