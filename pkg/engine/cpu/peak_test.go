package cpu

import "testing"

// TestPeakFLOPS: some number, however small, for each set of kernels; and the
// matrix that it multiplies is one that the kernel may read and write (the race
// detector and the padding of alignedFloats do not see assembly: the Go kernel
// has the bounds).
func TestPeakFLOPS(t *testing.T) {
	for _, set := range sets {
		for _, threads := range []int{1, 2} {
			e, ok := open(t, set, threads).(*Engine)
			if !ok {
				t.Fatal("no engine of this package")
			}
			peak := e.PeakFLOPS()
			t.Logf("%s, %d threads: %.2f GFLOP/s", set, threads, peak/1e9)
			if !(peak > 0) || peak > 1e15 {
				t.Errorf("%s, %d threads: %g FLOP/s", set, threads, peak)
			}
		}
	}
}
