// Package stream provides the random streams from which samples are generated,
// shuffled, cut and augmented. They depend only on a seed and keys.
package stream

import "math/rand/v2"

// Purposes of a stream. Streams of different purposes never share their numbers, so that switching one thing on changes nothing else.
const (
	Split uint64 = iota + 1
	Shuffle
	Augment
	Cells
	Crops
	Fields
	Classes
)

// New returns the random stream of a purpose and its keys. Equal keys give equal
// streams, in any process and on any thread, whatever the order in which streams
// are made.
func New(seed int64, purpose uint64, keys ...uint64) *rand.Rand {
	a := mix(uint64(seed)) ^ purpose
	for _, k := range keys {
		a = mix(a) ^ k
	}
	return rand.New(rand.NewPCG(mix(a), mix(a+1)))
}

// mix is the output function of SplitMix64 (Steele, Lea, Flood 2014,
// doi:10.1145/2714064.2660195): each bit of x flips about half of the result's.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
