package report_test

import (
	"fmt"
	"path/filepath"

	"lockstep/pkg/report"
	"lockstep/pkg/scaling"
)

// The verdict on a published table; Save writes the page, as HTML or PDF.
func Example() {
	study, err := scaling.Read(filepath.Join("..", "..", "logs", "published", "resnet50-booster.csv"))
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := report.New(study, report.Options{Title: "ResNet-50"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(r)
	// Output:
	// ResNet-50
	//   ResNet-50 is 71.21 times as fast at 128 workers as at 1: 55.6 % of the ideal.
	//   ResNet-50 follows Amdahl's law, σ = 0.00558 [0.00365, 0.00752]; beyond 75 workers, each additional worker adds less than half the throughput of a single one; 6 runs are too few for a reliable choice of a law: compare the other laws, or add runs.
}
