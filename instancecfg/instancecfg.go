// Package instancecfg holds what a machine's agent boots with.
package instancecfg

// A Job is something that a machine's agent does.
type Job string

// The jobs. A machine without any hosts units.
const (
	JobHostUnits   Job = "host-units"
	JobManageModel Job = "manage-model"
)

// Info is what the host tells about how a machine's agent is to be set up.
type Info struct {
	ControllerID     string
	Stream           string
	Base             string // series or base, as the host calls it
	AgentVersion     string
	APIAddresses     []string
	CACert           string
	Tags             map[string]string
	Jobs             []Job          // empty: JobHostUnits
	UserData         map[string]any // cloud-init
	ControllerConfig map[string]any // for machines whose jobs need state
	ImageSigningKey  string         // for machines whose jobs need state
}

// Auth is what a machine's agent logs in with. It is secret.
type Auth struct {
	Tag      string
	Password string
}

// A Config is all that one machine's agent boots with. It holds secrets.
type Config struct {
	Info
	Machine string
	Nonce   string
	Auth    Auth
}
