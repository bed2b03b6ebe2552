package runs_test

import (
	"fmt"
	"os"
	"path/filepath"

	"lockstep/pkg/runs"
)

// A run folder is written epoch by epoch and can be read at any moment.
func Example() {
	root, err := os.MkdirTemp("", "logs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(root) }()
	w, err := runs.Create(filepath.Join(root, "cells", "ddp-n2-s1"), runs.Info{Study: "cells", Series: "ddp", Workers: 2, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := w.AppendEpoch(runs.Epoch{Epoch: 1, Seconds: 0.5, Samples: 32, SamplesPerSecond: 64}); err != nil {
		fmt.Println(err)
	}
	if err := w.Finish(runs.StatusDone, nil); err != nil {
		fmt.Println(err)
	}
	run, err := runs.Read(w.Dir())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Info.Series, run.Info.Workers, run.Info.Status, run.Epochs[0].SamplesPerSecond)
	// Output: ddp 2 done 64
}
