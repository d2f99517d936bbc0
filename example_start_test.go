package provisioner_test

import (
	"context"
	"fmt"

	"github.com/juju/errors"

	"github.com/seed81ba69f2/provisioner"
	"github.com/seed81ba69f2/provisioner/constraints"
	"github.com/seed81ba69f2/provisioner/provisionertest"
)

// A startFunc is the part of a broker that these examples are about.
type startFunc func(ctx context.Context, q provisioner.StartRequest) (provisioner.StartResult, error)

type exampleBroker struct {
	provisioner.Broker
	start startFunc
}

func (b exampleBroker) Start(ctx context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
	return b.start(ctx, q)
}

// startMachine has machine 0 started by a broker's start, once, and returns the
// host in memory that it is a machine of.
func startMachine(info provisioner.StartInfo, start startFunc, status ...provisioner.StatusWriter) *provisionertest.World {
	w := provisionertest.New(provisionertest.Settings{Kind: true})
	if err := w.Add(
		provisioner.Machine{ID: "0", Life: provisioner.Alive, Status: provisioner.StatusPending},
		provisioner.Machine{ID: "1", Life: provisioner.Alive, Instance: "i-1"},
		provisioner.Machine{ID: "2", Life: provisioner.Alive, Instance: "i-2"},
	); err != nil {
		fmt.Println(err)
	}
	if err := w.SetStartInfo("0", info); err != nil {
		fmt.Println(err)
	}
	cfg := provisioner.Config{
		Controller: "prod-1",
		Broker:     exampleBroker{w.PlainBroker(), start},
		State:      w.PlainState(),
		Policy:     provisioner.Policy{Retry: provisioner.RetryPolicy{Retries: provisioner.NoRetries}},
	}
	for _, s := range status {
		cfg.Optional.Status = s
	}
	task, err := provisioner.New(cfg)
	if err != nil {
		fmt.Println(err)
		return w
	}
	report, err := task.Reconcile(context.Background())
	if err != nil {
		fmt.Println(err)
	}
	for _, r := range report.Results {
		if r.Err != nil {
			fmt.Println("failed:", r.Err)
		}
	}
	return w
}

// What a machine asks for reaches the broker as constraints.
func ExampleStartRequest_constraints() {
	asked, _ := constraints.Parse("cores=2 mem=8G spaces=db,^public")
	startMachine(provisioner.StartInfo{Constraints: asked}, func(_ context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
		cloud := constraints.Support{Unsupported: constraints.KeySpaces}
		if err := cloud.Check(q.Constraints); err != nil {
			return provisioner.StartResult{}, provisioner.Permanent(err)
		}
		return provisioner.StartResult{Instance: "i-0"}, nil
	})
	// Output:
	// failed: constraints: spaces: not supported by the broker
}

// Volumes are made with the instance or exist already; what became of them goes
// into the machine's record.
func ExampleStartRequest_volumes() {
	info := provisioner.StartInfo{
		Volumes: []provisioner.Volume{{ID: "7", SizeM: 1024}},
		Attachments: []provisioner.VolumeAttachment{
			{Volume: "7", Machine: "0"},
			{Volume: "9", Machine: "0", VolumeID: "vol-b", ReadOnly: true},
		},
	}
	w := startMachine(info, func(_ context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
		r := provisioner.StartResult{Instance: "i-0"}
		for _, v := range q.Volumes {
			r.Volumes = append(r.Volumes, provisioner.VolumeResult{Volume: v.ID, VolumeID: "vol-a", SizeM: v.SizeM, Persistent: true})
		}
		for i, a := range q.Attachments {
			r.Attachments = append(r.Attachments, provisioner.VolumeAttachmentResult{Volume: a.Volume, DeviceName: fmt.Sprintf("sd%c", 'b'+i), ReadOnly: a.ReadOnly})
		}
		return r, nil
	})
	for _, v := range w.Recorded("0").Volumes {
		fmt.Printf("volume %s is %s, %d MiB, persistent %t\n", v.Volume, v.VolumeID, v.SizeM, v.Persistent)
	}
	for _, a := range w.Recorded("0").Attachments {
		fmt.Printf("volume %s is %s, read-only %t\n", a.Volume, a.DeviceName, a.ReadOnly)
	}
	// Output:
	// volume 7 is vol-a, 1024 MiB, persistent true
	// volume 7 is sdb, read-only false
	// volume 9 is sdc, read-only true
}

// A broker chooses a subnet of each space and tells which addresses came of it.
func ExampleStartRequest_network() {
	info := provisioner.StartInfo{
		Subnets: []provisioner.SpaceSubnets{
			{Space: "web", Subnets: []provisioner.SubnetZones{{Subnet: "192.0.2.0/24", Zones: []provisioner.ZoneName{"a", "b"}}}},
			{Space: "db", Subnets: []provisioner.SubnetZones{{Subnet: "10.0.0.0/16", Zones: []provisioner.ZoneName{"a"}}}},
		},
		EndpointBind: map[string]string{"": "db", "website": "web"},
	}
	w := startMachine(info, func(_ context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
		fmt.Println("website is to be in", q.EndpointBind["website"])
		r := provisioner.StartResult{Instance: "i-0"}
		for i, space := range q.Subnets { // ordered by space
			r.Network = append(r.Network, provisioner.NetworkInterface{Name: fmt.Sprintf("eth%d", i), Space: space.Space, Subnet: space.Subnets[0].Subnet})
		}
		r.Network[0].Addresses = []string{"10.0.0.5/16"}
		r.Network[1].Addresses = []string{"192.0.2.256/24"} // no address
		return r, nil
	})
	fmt.Println(len(w.Recorded("0").Network), "recorded")
	// Output:
	// website is to be in web
	// failed: start of machine 0: the broker's result: Network[1] "eth1": Addresses[0] "192.0.2.256/24": want an IP address, with or without its prefix length: not valid
	// 0 recorded
}

// A statusChannel is a state that shows statuses to whoever receives them.
type statusChannel chan provisioner.StatusUpdate

func (c statusChannel) WriteStatus(_ context.Context, u provisioner.StatusUpdate) error {
	c <- u
	return nil
}

// A slow start shows how far it is. Where texts come faster than they can be
// written, the latest is.
func ExampleStartRequest_Report() {
	written := make(statusChannel, 10)
	show := func() {
		u := <-written
		fmt.Printf("machine %s: %s %q\n", u.Machine, u.InstanceStatus, u.Text)
	}
	startMachine(provisioner.StartInfo{}, func(_ context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
		show()
		for _, percent := range []int{10, 90} {
			q.Report(provisioner.InstanceAllocating, fmt.Sprintf("copying the image: %d %%", percent))
			show() // this broker waits for it, which it need not
		}
		return provisioner.StartResult{Instance: "i-0"}, nil
	}, written)
	show()
	// Output:
	// machine 0: allocating "starting"
	// machine 0: allocating "copying the image: 10 %"
	// machine 0: allocating "copying the image: 90 %"
	// machine 0: running ""
}

// The instances to be kept apart from are read if and when the broker asks.
func ExampleStartRequest_Group() {
	info := provisioner.StartInfo{Group: provisioner.Group{Members: []provisioner.MachineID{"0", "1", "2"}}}
	startMachine(info, func(ctx context.Context, q provisioner.StartRequest) (provisioner.StartResult, error) {
		apart, err := q.Group(ctx)
		if err != nil {
			return provisioner.StartResult{}, err
		}
		fmt.Println("apart from", apart)
		return provisioner.StartResult{Instance: "i-0"}, nil
	})
	// Output:
	// apart from [i-1 i-2]
}

// A broker narrows the images down by what it alone knows.
func ExampleChooseImages() {
	images := []provisioner.ImageMetadata{
		{ID: "ami-1", Region: "eu-1", RootStorage: "ssd"},
		{ID: "ami-2", Region: "us-1", RootStorage: "ssd"},
	}
	fit, err := provisioner.ChooseImages(images, provisioner.ImageQuery{Region: "us-1", RootStorage: "ssd"})
	fmt.Println(fit[0].ID, err)

	_, err = provisioner.ChooseImages(images, provisioner.ImageQuery{Region: "us-1", RootStorage: "disk"})
	var none *provisioner.NoMatchError
	if errors.As(err, &none) {
		fmt.Print(none.Table())
	}
	// Output:
	// ami-2 <nil>
	// no matching images available: wanted region us-1, root storage disk
	//   ami-1: region eu-1, want us-1; root storage ssd, want disk
	//   ami-2: root storage ssd, want disk
}

// A host can refuse what would not start where it comes in.
func ExampleStartInfo_Validate() {
	info := provisioner.StartInfo{
		Volumes:     []provisioner.Volume{{ID: "7"}},
		Attachments: []provisioner.VolumeAttachment{{Volume: "9", Machine: "0"}},
	}
	fmt.Println(info.Validate("0"))
	// Output:
	// start information of machine 0: Volumes[0] "7": SizeM 0: want 1 MiB or more; Volumes[0] "7": Attachments: want one of this volume; Attachments[0] "9": VolumeID "": want the broker's id of a volume that exists, or the volume in Volumes: not valid
}
