// Package provisionertest helps to test what is built on package provisioner: a
// host of your own, and what your program does with one.
//
// [TestBroker] and [TestState] check that a host keeps its word, rule by rule;
// [CheckBroker] and [CheckState] do so outside of tests. [CrashAt] cuts any host
// off from its Task, [WithFaults] gives it trouble, [Intercept] a hook in each
// call.
//
// A [World] is a cloud and a state in memory: one truth, seen through
// provisioner.Broker, provisioner.State and every optional ability. It is
// unkind unless asked to be kind, for real hosts are: replies take their time,
// some are lost, listings lag behind.
//
//	w := provisionertest.New(provisionertest.Settings{Kind: true})
//	w.Load(provisionertest.NewFleet(3, 2, 0)) // machines 0 1 2, zones a b
//	w.Inject(fault)                           // see ParseFault
//	… run a Task with Broker: w.Broker(), State: w.State(), Changes: w.Changes() …
//	err := w.Check()                          // leaks, doubles, wrong stops, misuses
//	left := w.Unused()                        // faults that hit nothing
//	text := w.Transcript()                    // every call in a total order
//
// # Abilities
//
// [World.Broker] and [World.State] have every ability. [World.PlainBroker] and
// [World.PlainState] have none; what a host is to have besides, give the Task
// one by one.
//
// # Time
//
// A World waits on the clock of its Settings only. With testing/synctest make
// the World inside the bubble and leave the clock alone: time passes by itself
// when everything waits, and all waiting is over at once.
//
//	synctest.Test(t, func(t *testing.T) {
//		w := provisionertest.New(provisionertest.Settings{})
//		…
//		time.Sleep(time.Minute) // virtual
//		synctest.Wait()
//	})
//
// With the mock of github.com/benbjohnson/clock give the same one to the World
// and to the Task, and move it only when nothing goes on (Task.Idle), or a
// timer may be set after the time at which it was to fire. A call of a World
// that takes its time is something that goes on: with a mock clock use a kind
// World, or move the clock until the call is back.
//
//	mock := clock.NewMock()
//	w := provisionertest.New(provisionertest.Settings{Clock: mock, Kind: true})
//
// # Order
//
// With latencies on, each call reaches the World at an instant of its own that
// depends on nothing but the call, its arguments and the seed. So a run in a
// bubble is repeatable, transcript and all, although it has real goroutines;
// [World.Ties] counts the exceptions.
//
// # Concurrency
//
// Everything may be called from several goroutines. No call of a host is made
// with the World's lock held, and the World makes none itself, save Group and
// Report of a start request where Settings say so.
package provisionertest
