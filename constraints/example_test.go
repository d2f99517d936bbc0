package constraints_test

import (
	"encoding/json"
	"fmt"

	"github.com/seed81ba69f2/provisioner/constraints"
)

func ExampleParse() {
	v, err := constraints.Parse(`mem=8G cores=2 zones="east wing,west" spaces=db,^public`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(v)
	fmt.Println(*v.Mem, "MiB in", v.Zones)

	_, err = constraints.Parse("mem=8Q arch=amd64 arch=arm64")
	fmt.Println(err)
	// Output:
	// cores=2 mem=8G zones="east wing,west" spaces=db,^public
	// 8192 MiB in [east wing west]
	// constraints: mem "8Q": want a size such as 512, 512M, 8G, 1.5T or 1P; arch: given twice: want it once: not valid
}

func ExampleValue_Merge() {
	model, _ := constraints.Parse("mem=4G arch=arm64 zones=a,b")
	application, _ := constraints.Parse("mem=8G zones=") // any zone will do

	fmt.Println(application.Merge(model))
	// Output:
	// arch=arm64 mem=8G zones=
}

func ExampleSupport() {
	cloud := constraints.Support{
		Unsupported: constraints.KeyTags,
		Conflicts: []constraints.Conflict{
			{A: constraints.KeyInstanceType, B: constraints.KeyArch | constraints.KeyCores | constraints.KeyMem},
		},
	}
	v, _ := constraints.Parse("instance-type=m1.small mem=4G tags=ssd")
	fmt.Println(cloud.Check(v))

	machine, _ := constraints.Parse("instance-type=m1.small")
	model, _ := constraints.Parse("mem=4G zones=a")
	fmt.Println(cloud.Merge(machine, model))
	// Output:
	// constraints: tags: not supported by the broker; instance-type: cannot be asked for together with mem
	// zones=a instance-type=m1.small
}

func ExampleParseKnownHardware() {
	h, unknown, err := constraints.ParseKnownHardware(`arch=amd64 cores=4 cpu-power=100 mem=8G availability-zone="east wing"`)
	fmt.Println(h, unknown, err)
	// Output:
	// arch=amd64 cores=4 mem=8192M availability-zone="east wing" [cpu-power] <nil>
}

func ExampleValue_json() {
	v, _ := constraints.Parse("cores=2 mem=512")
	data, err := json.Marshal(map[string]any{"constraints": v})
	fmt.Println(string(data), err)
	// Output:
	// {"constraints":"cores=2 mem=512M"} <nil>
}
