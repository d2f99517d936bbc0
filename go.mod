module github.com/seed81ba69f2/provisioner

go 1.26.0

require (
	github.com/benbjohnson/clock v1.3.5
	github.com/google/go-cmp v0.7.0
	github.com/juju/errors v1.0.0
	golang.org/x/sync v0.25.0
)
