package provisioner

import (
	"testing"

	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/instancecfg"
)

// requestInfo is information of machine 1 with a little of everything.
func requestInfo(t testing.TB) StartInfo {
	c, err := constraints.Parse("arch=amd64 cores=2 mem=8G root-disk=20G zones=a,b tags=ssd spaces=db,^public")
	if err != nil {
		t.Fatal(err)
	}
	return StartInfo{
		Constraints: c,
		Instance: instancecfg.Info{
			ControllerID: "ctl-1", Stream: "released", Base: "ubuntu@24.04", AgentVersion: "3.6.1",
			APIAddresses: []string{"10.0.0.1:17070", "10.0.0.2:17070", "10.0.0.3:17070"},
			Tags:         map[string]string{"owner": "team a"},
			UserData:     instancecfg.Hide(map[string]any{"packages": []any{"curl"}}),
		},
		RootDisk:     &RootDisk{SizeM: 20480},
		Volumes:      []Volume{{ID: "7", SizeM: 1024, Provider: "ebs"}},
		Attachments:  []VolumeAttachment{{Volume: "7", Machine: "1"}, {Volume: "9", VolumeID: "vol-9", Machine: "1"}},
		Subnets:      []SpaceSubnets{{Space: "web", Subnets: []SubnetZones{{"10.1.0.0/16", []ZoneName{"a"}}}}, {Space: "db", Subnets: []SubnetZones{{"10.0.0.0/16", []ZoneName{"a", "b"}}}}},
		EndpointBind: map[string]string{"db": "db", "website": "web"},
		Images:       []ImageMetadata{{ID: "img-1", Arch: "amd64", Base: "ubuntu@24.04"}, {ID: "img-2", Arch: "arm64"}},
		Agents:       []AgentBinary{{Version: "3.6.1", Arch: "amd64", URL: "u/1"}, {Version: "3.6.1", Arch: "arm64", URL: "u/2"}},
		Profiles:     []string{"default", "juju-m-app-1"},
	}
}

// buildRequest is all that is computed between what the host tells of a start
// and the broker's call.
func buildRequest(h *host, info StartInfo, auth instancecfg.Auth) (StartRequest, error) {
	nonce := h.newNonce()
	config, err := info.settle("1", nonce, false)
	if err == nil {
		config, err = config.WithAuth(auth)
	}
	if err != nil {
		return StartRequest{}, err
	}
	c := startCall{request: requestFor("ctl", "1", &info, config)}
	c.request.Nonce, c.request.Attempt = nonce, 1
	h.complete(&c)
	return c.request, nil
}

func requestHost() (*host, instancecfg.Auth) {
	n := uint64(0)
	return &host{tag: "machine-0", random: func() uint64 { n += 0x9e3779b97f4a7c15; return n }},
		instancecfg.Auth{Tag: "machine-1", Password: instancecfg.Hide("p")}
}

// BenchmarkRequest builds the request of one machine. Its floor is 5 µs and
// maxRequestAllocs:
//
//	go test -run '^$' -bench Request -count 6 .
func BenchmarkRequest(b *testing.B) {
	info := requestInfo(b)
	h, auth := requestHost()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := buildRequest(h, info, auth); err != nil {
			b.Fatal(err)
		}
	}
}

const maxRequestAllocs = 40

func TestRequestAllocs(t *testing.T) {
	info := requestInfo(t)
	h, auth := requestHost()
	got := testing.AllocsPerRun(100, func() {
		if _, err := buildRequest(h, info, auth); err != nil {
			t.Fatal(err)
		}
	})
	if got > maxRequestAllocs {
		t.Errorf("building a request takes %v allocations, want at most %d", got, maxRequestAllocs)
	}
}
