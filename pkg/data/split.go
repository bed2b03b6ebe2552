package data

import (
	"fmt"
	"sort"
)

// Split draws testCount of the samples 0 to n−1 by seed to be held out; the
// rest is for training. Both lists are in ascending order, disjoint, and
// together hold every sample once. A count below 0 or above n is taken as 0 or n.
func Split(n, testCount int, seed int64) (train, test []int) {
	n = max(n, 0)
	testCount = min(max(testCount, 0), n)
	perm := keyed(seed, purposeSplit, uint64(n)).Perm(n)
	test, train = perm[:testCount:testCount], perm[testCount:]
	sort.Ints(train)
	sort.Ints(test)
	return train, test
}

// Subset is the given samples of ds, in the given order. An index that ds does
// not have is an error when that sample is read.
func Subset(ds Dataset, indices []int) Dataset {
	return &subset{ds: ds, indices: append([]int(nil), indices...)}
}

type subset struct {
	ds      Dataset
	indices []int
}

func (s *subset) Len() int                { return len(s.indices) }
func (s *subset) ImageShape() []int       { return s.ds.ImageShape() }
func (s *subset) TargetShape() []int      { return s.ds.TargetShape() }
func (s *subset) SampleName(i int) string { return s.ds.SampleName(s.indices[i]) }

func (s *subset) Get(i int, image, target []float32) error {
	if i < 0 || i >= len(s.indices) {
		return fmt.Errorf("get sample %d: the subset has samples 0 to %d", i, len(s.indices)-1)
	}
	return s.ds.Get(s.indices[i], image, target)
}

func (s *subset) region(i int, w window, image, target []float32) error {
	if i < 0 || i >= len(s.indices) {
		return fmt.Errorf("get sample %d: the subset has samples 0 to %d", i, len(s.indices)-1)
	}
	return readWindow(s.ds, s.indices[i], w, image, target)
}
