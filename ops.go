package provisioner

import (
	"crypto/rand"
	"encoding/binary"
)

func secureRandom() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
