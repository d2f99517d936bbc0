package provisioner

import (
	"syscall"
	"time"
)

// threadTime is how long the calling thread has computed; lock it to its
// goroutine. What else the machine does meanwhile does not count.
func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
