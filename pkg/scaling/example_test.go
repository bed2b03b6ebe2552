package scaling_test

import (
	"fmt"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// measured returns a run with a single counted epoch.
func measured(series string, workers int, seed int64, seconds float64) runs.Run {
	return runs.Run{
		Dir:    fmt.Sprintf("%s-n%d-s%d", series, workers, seed),
		Info:   runs.Info{Series: series, Workers: workers, Seed: seed, Status: runs.StatusDone, BatchPerWorker: 8},
		Epochs: []runs.Epoch{{Epoch: 1, Seconds: 2 * seconds, Samples: 1000}, {Epoch: 2, Seconds: seconds, Samples: 1000}},
	}
}

func ExampleStudy_Compare() {
	var all []runs.Run
	for seed, seconds := range []float64{10, 10.1, 9.9} {
		all = append(all, measured("horovod", 8, int64(seed), seconds), measured("native", 8, int64(seed), 1.2*seconds))
	}
	study, err := scaling.FromRuns(all)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := study.Compare("horovod", "native", 8)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("horovod is %s: %.2f times as fast, p < 0.001: %t\n", c.Verdict, c.Ratio.Value, c.P < 0.001)
	// Output:
	// horovod is faster: 1.20 times as fast, p < 0.001: true
}

func ExampleStudy_Fit() {
	var all []runs.Run
	for _, n := range []int{1, 2, 4, 8, 16} {
		// Amdahl's law with 5 % serial.
		all = append(all, measured("ddp", n, 1, 100*(0.05+0.95/float64(n))))
	}
	study, err := scaling.FromRuns(all)
	if err != nil {
		fmt.Println(err)
		return
	}
	fits, err := study.Fit("ddp")
	if err != nil {
		fmt.Println(err)
		return
	}
	best := fits.Best()
	half, _ := best.HalfGainSize()
	fmt.Printf("%s: speed-up %.1f at 32; beyond %d workers, another adds less than half of a single one\n", best.Law, best.Speedup(32), half)
	// Output:
	// amdahl: speed-up 12.5 at 32; beyond 9 workers, another adds less than half of a single one
}

func ExampleStudy_Explain() {
	study, err := scaling.FromRuns([]runs.Run{measured("ddp", 1, 1, 100), measured("ddp", 4, 1, 30)})
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := study.Explain("speedup", 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Items[0].Formula)
	fmt.Println(e.Items[0].Substituted)
	// Output:
	// S(4) = r(4) / r(1), where r is the throughput
	// 33.33333333 samples/s / 10 samples/s = 3.333
}
