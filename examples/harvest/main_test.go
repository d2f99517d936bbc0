package main

import (
	"context"
	"fmt"
	"os"
)

func Example() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// mode none
	//   i-0      runs: it is in the record of machine 0
	//   i-1      runs: the harvest mode spared it when its machine's record was removed
	//   i-2      runs: it was kept when its machine's record was removed
	//   i-lost   runs: no machine claims it; harvest mode none leaves unknown instances alone
	//   i-other  runs: it is labelled for controller "another"
	//   i-bare   runs: it carries no label, and the broker labels what it makes
	// mode destroyed
	//   i-0      runs: it is in the record of machine 0
	//   i-1      stopped
	//   i-2      runs: it was kept when its machine's record was removed
	//   i-lost   runs: no machine claims it; harvest mode destroyed leaves unknown instances alone
	//   i-other  runs: it is labelled for controller "another"
	//   i-bare   runs: it carries no label, and the broker labels what it makes
	// mode unknown
	//   i-0      runs: it is in the record of machine 0
	//   i-1      runs: the harvest mode spared it when its machine's record was removed
	//   i-2      runs: it was kept when its machine's record was removed
	//   i-lost   stopped
	//   i-other  runs: it is labelled for controller "another"
	//   i-bare   runs: it carries no label, and the broker labels what it makes
	// mode all
	//   i-0      runs: it is in the record of machine 0
	//   i-1      stopped
	//   i-2      runs: it was kept when its machine's record was removed
	//   i-lost   stopped
	//   i-other  runs: it is labelled for controller "another"
	//   i-bare   runs: it carries no label, and the broker labels what it makes
	// an old backup was restored
	//   4 of 6 instances are unknown, which is more than is believed; approve plan cc5b80bd262bfcf4 to have them stopped all the same
	//   [i-2 i-3 i-4 i-5]
	//   pass 1 after the approval: 4 of 6 run
	//   pass 2 after the approval: 2 of 6 run
	//   pass 3 after the approval: 2 of 6 run
}
