module github.com/seed81ba69f2/provisioner/examples/lxd

go 1.26.0

require (
	github.com/coder/websocket v1.8.15
	github.com/google/go-cmp v0.7.0
	github.com/juju/errors v1.0.0
	github.com/seed81ba69f2/provisioner v0.0.0
	golang.org/x/sync v0.25.0
)

require github.com/benbjohnson/clock v1.3.5 // indirect

replace github.com/seed81ba69f2/provisioner => ../..
