module github.com/seed81ba69f2/provisioner/instancecfg/cloudinittest

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/seed81ba69f2/provisioner v0.0.0
	go.yaml.in/yaml/v3 v3.0.6
)

require github.com/juju/errors v1.0.0 // indirect

replace github.com/seed81ba69f2/provisioner => ../..
