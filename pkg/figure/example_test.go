package figure_test

import (
	"fmt"

	"lockstep/pkg/figure"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// In a notebook the last line of a cell would be figure.Speedup(study), which
// shows the figure.
func Example() {
	run := func(workers int, seconds float64) runs.Run {
		r := runs.Run{Dir: fmt.Sprintf("ddp-n%d-s1", workers), Info: runs.Info{Study: "cells", Series: "ddp", Workers: workers}}
		for e := 1; e <= 3; e++ {
			r.Epochs = append(r.Epochs, runs.Epoch{Epoch: e, Seconds: seconds, Samples: 100 * workers})
		}
		return r
	}
	study, err := scaling.FromRuns([]runs.Run{run(1, 10), run(2, 12.5)})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := figure.Speedup(study)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Name(), f.Table().Col("speedup").Float())
	// Output: speedup [1 1.6]
}
