package cpu

import "testing"

// TestPeakFLOPS: some number, however small, for each set of kernels; and the
// matrix that it multiplies is one that the kernel may read and write (the race
// detector and the padding of alignedFloats do not see assembly: the Go kernel
// has the bounds).
func TestPeakFLOPS(t *testing.T) {
	everyway(t, func(t *testing.T, set string, threads int) {
		e, ok := open(t, set, threads).(*Engine)
		if !ok {
			t.Fatal("no engine of this package")
		}
		peak := e.PeakFLOPS()
		t.Logf("%.2f GFLOP/s", peak/1e9)
		if !(peak > 0) || peak > 1e15 {
			t.Errorf("%g FLOP/s", peak)
		}
	})
}
