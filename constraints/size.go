package constraints

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/juju/errors"
)

// units are the suffixes of a size, each 1024 times the one before.
const units = "MGTP"

// maxSizeText bounds the work of reading a size; nothing sensible is longer.
const maxSizeText = 40

// ParseSize reads a size and returns it in MiB, rounded up. It is a decimal
// number, with or without a fraction, and a unit: M for MiB (or none), G, T or
// P. An error satisfies NotValid of github.com/juju/errors.
func ParseSize(s string) (uint64, error) {
	mib, fault := parseSize(s)
	if fault != "" {
		return 0, errors.NotValidf("size %q: %s:", s, fault)
	}
	return mib, nil
}

func parseSize(s string) (mib uint64, fault string) {
	number, shift := s, uint(0)
	if s != "" {
		if i := strings.IndexByte(units, s[len(s)-1]); i >= 0 {
			number, shift = s[:len(s)-1], uint(10*i)
		}
	}
	whole, fraction, pointed := strings.Cut(number, ".")
	if len(s) > maxSizeText || !digits(whole) || pointed && !digits(fraction) {
		return 0, wantSize
	}
	n, _ := new(big.Int).SetString(whole+fraction, 10)
	n.Lsh(n, shift)
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(fraction))), nil)
	n, rest := n.QuoRem(n, unit, new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsUint64() {
		return 0, "want less than 2^64 MiB"
	}
	return n.Uint64(), ""
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// FormatSize gives a size of so many MiB in the largest unit that is exact:
// 8192 is "8G", 1536 is "1536M". ParseSize reads it back.
func FormatSize(mib uint64) string {
	unit := 0
	for mib != 0 && mib%1024 == 0 && unit < len(units)-1 {
		mib /= 1024
		unit++
	}
	return strconv.FormatUint(mib, 10) + units[unit:unit+1]
}
