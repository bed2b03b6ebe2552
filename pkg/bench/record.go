// Package bench measures Lockstep and the programs it is compared with, in one run, and reports a table or
// JSON.
//
// MeasureEngine compares training steps with PyTorch's, MeasureAllReduce sums over workers with gloo's,
// MeasureAblation the engine with itself without one of its optimizations, MeasureScaling several workers with
// one. The two sides are separate processes that answer one request at a time. They are measured alternately,
// so that changes of the machine's speed affect both, and the median of the repeats' ratios counts:
//
//	records, err := bench.MeasureEngine(ctx, bench.EngineOptions{
//		Shape: bench.DefaultShape(), Threads: []int{1, 2}, Workers: 2, Repeats: 5,
//	})
//	if err != nil {
//		return err
//	}
//	return bench.Write(os.Stdout, records, false)
package bench

import (
	"io"

	"lockstep/pkg/bench/internal/comparison"
)

// Record is one measured comparison.
type Record = comparison.Record

// PeerOptions describes how to find the programs that Lockstep is compared with.
type PeerOptions = comparison.PeerOptions

// InstallCommand installs the programs that Lockstep is compared with.
const InstallCommand = comparison.InstallCommand

// ErrPeerMissing is wrapped by the error of a comparison with a program that is not installed.
var ErrPeerMissing = comparison.ErrPeerMissing

// Write writes records as a table, or as JSON.
func Write(w io.Writer, records []Record, asJSON bool) error {
	return comparison.WriteRecords(w, records, asJSON)
}
