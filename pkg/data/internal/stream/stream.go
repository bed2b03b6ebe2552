// Package stream provides random numbers for generating, shuffling, cropping and augmenting
// samples. A stream depends only on a seed, a purpose and keys.
package stream

import "math/rand/v2"

// Purposes of streams. Their streams are independent, so that enabling one feature does not change
// the random numbers of another.
const (
	Split uint64 = iota + 1
	Shuffle
	Augment
	Cells
	Crops
	Fields
	Classes
)

// NewRand returns the random stream for a seed, a purpose and keys. It is the same in every process,
// whatever streams were used before.
func NewRand(seed int64, purpose uint64, keys ...uint64) *rand.Rand {
	a := mixBits(uint64(seed)) ^ purpose
	for _, k := range keys {
		a = mixBits(a) ^ k
	}
	return rand.New(rand.NewPCG(mixBits(a), mixBits(a+1)))
}

// mixBits hashes x with SplitMix64's output function (Steele, Lea, Flood 2014,
// doi:10.1145/2714064.2660195): a change of one bit of x flips about half of the result's.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
