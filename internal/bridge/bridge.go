// Package bridge lets the simulator drive the engine of a Task, which is no
// public API. The root package fills it in.
package bridge

// NewEngine makes the engine of a Task from a provisioner.Config. What it
// returns has the methods that the simulator names in its interface Engine.
var NewEngine func(config any) (engine any, err error)

// An Op is one operation that the engine has given out.
type Op struct {
	Kind     string // in the engine's words, such as "starting"
	Machine  string // empty for one that is about many
	Zone     string // of a start
	Again    bool   // a start, and not a new choice: an attempt that was made before, or an instance that is adopted
	Instance string // of a stop
	Undo     bool   // a stop of what was made and could not be recorded
	Reap     bool   // a stop of an unknown instance (HV9)
	Error    bool   // a status that shows a failure

	// Run carries the operation out, in the calling goroutine, and hands its
	// outcome to the engine's next step.
	Run func()

	// Late says whether its time was over before it ended, so that it holds no
	// place any longer.
	Late func() bool
}

// A Unit is one machine as the engine knows it.
type Unit struct {
	Life     string
	Alive    bool   // its record says so
	Zone     string // where the ledger counts it; empty: nowhere
	Held     string // the zone of the start that is under way
	Instance string // of its record
	Made     string // made, and neither recorded nor stopped yet
	Settled  bool   // its instance was stopped
}
