//go:build !linux

package provisioner

import "time"

var started = time.Now()

// threadTime is the time of day where that of a thread is not told.
func threadTime() time.Duration { return time.Since(started) }
