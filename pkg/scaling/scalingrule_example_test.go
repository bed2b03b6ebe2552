package scaling_test

import (
	"fmt"
	"math"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// A sweep over batches and learning rates in which the best rate doubles when the batch grows
// fourfold.
func ExampleStudy_ScalingRule() {
	var all []runs.Run
	for _, batch := range []int{16, 64, 256} {
		for _, rate := range []float64{0.001, 0.002, 0.004, 0.008, 0.016, 0.032} {
			for seed := int64(1); seed <= 3; seed++ {
				off := math.Log2(rate / (0.002 * math.Sqrt(float64(batch)/16)))
				all = append(all, runs.Run{
					Info:   runs.Info{Series: "ddp", Workers: 1, Seed: seed, GlobalBatch: batch},
					Epochs: []runs.Epoch{{Epoch: 1, Seconds: 1, Samples: 512, LearningRate: rate, IoU: 0.8 - 0.02*off*off + 0.001*float64(seed)}},
				})
			}
		}
	}
	study, err := scaling.FromRuns(all)
	if err != nil {
		fmt.Println(err)
		return
	}
	rule, err := study.ScalingRule("iou")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: exponent %.2f, up to batch %d\n", rule.Rule, rule.Exponent.Value, rule.Good)
	for _, row := range rule.Rows {
		fmt.Printf("batch %d: %.4f\n", row.GlobalBatch, row.Best.Value)
	}
	// Output:
	// sqrt: exponent 0.50, up to batch 256
	// batch 16: 0.0020
	// batch 64: 0.0040
	// batch 256: 0.0080
}
