package figure

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// synthetic makes runs of a smooth, invented training: t(N) = 2 + 0.15·(N−1)
// seconds for 48 samples per worker, a little slower with each seed.
func synthetic(t *testing.T, series []string, workers []int, seeds, epochs int) *scaling.Study {
	t.Helper()
	var all []runs.Run
	for i, name := range series {
		for _, n := range workers {
			for seed := 1; seed <= seeds; seed++ {
				r := runs.Run{Dir: fmt.Sprintf("%s-n%d-s%d", name, n, seed), Info: runs.Info{
					Study: "cells", Series: name, Workers: n, Seed: int64(seed), Status: runs.StatusDone,
					BatchPerWorker: 16, GlobalBatch: 16 * n,
				}}
				for e := 1; e <= epochs; e++ {
					seconds := (2 + 0.15*float64(n-1)*float64(i+1)) * (1 + 0.04*float64(seed-1))
					if e == 1 {
						seconds *= 2
					}
					loss := 0.7*math.Exp(-float64(e)*0.3) + 0.02*float64(seed) + 0.01*math.Log2(float64(n))
					r.Epochs = append(r.Epochs, runs.Epoch{
						Epoch: e, Seconds: seconds, Samples: 48 * n, SamplesPerSecond: 48 * float64(n) / seconds,
						TrainLoss: loss, ValLoss: loss*1.1 + 0.02, IoU: math.NaN(), Dice: math.NaN(),
						ValSeconds: math.NaN(), LearningRate: 1e-3, Accuracy: math.NaN(), ValAccuracy: math.NaN(),
					})
				}
				r.Info.Test = &runs.Test{
					IoU: 0.86 - 0.01*math.Log2(float64(n)) - 0.01*float64(seed) + 0.02*float64(i), Dice: 0.9,
					IoUConstant: 0.41, DiceConstant: 0.58, IoUUntrained: 0.2 + 0.01*float64(seed), DiceUntrained: 0.3,
					Loss: 0.2, Seconds: 1,
				}
				all = append(all, r)
			}
		}
	}
	study, err := scaling.FromRuns(all)
	if err != nil {
		t.Fatal(err)
	}
	return study
}

// classified makes runs of an invented segmentation into four classes, one of which is in no mask.
// config is the config of each run.
func classified(t *testing.T, workers []int, config map[string]any) *scaling.Study {
	t.Helper()
	all := synthetic(t, []string{"ddp"}, workers, 1, 12).Runs
	for i := range all {
		r := &all[i]
		r.Info.Config = config
		for k := range r.Epochs {
			e := &r.Epochs[k]
			x := 1 - e.TrainLoss
			classes := []runs.NamedScores{
				{Name: "background", IoU: 0.8 + 0.19*x, Dice: 0.9, Pixels: 7000},
				{Name: "cell", IoU: 0.9 * x, Dice: 0.8, Pixels: 2000},
				{Name: "dividing, round", IoU: 0.6 * x, Dice: 0.7, Pixels: 100},
				{Name: "nucleus", IoU: math.NaN(), Dice: math.NaN()},
			}
			for _, c := range classes {
				r.Classes = append(r.Classes, runs.ClassScores{Epoch: e.Epoch, NamedScores: c})
			}
			e.IoU = (classes[0].IoU + classes[1].IoU + classes[2].IoU) / 3
			r.Info.Test.IoU, r.Info.Test.IoUConstant, r.Info.Test.Classes = e.IoU, 0.26, classes
		}
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	return study
}

// published is a study of published numbers (logs/published), every epoch of
// which counts, because some tables have one alone.
func published(t *testing.T, file string) *scaling.Study {
	t.Helper()
	study, err := scaling.Read(filepath.Join("..", "..", "logs", "published", file))
	check(t, err)
	study, err = study.WithRule(scaling.Rule{})
	check(t, err)
	return study
}

// traced is a study of an invented trace: two ranks with two lanes, three
// steps, communication that is half hidden.
func traced(t *testing.T) *scaling.Study {
	t.Helper()
	study, err := scaling.FromRuns([]runs.Run{tracedRun("trace.json", "ddp", 0)})
	check(t, err)
	return study
}

// tracedSeries is a study of two traces like that of traced, of two series. The second begins at another time.
func tracedSeries(t *testing.T) *scaling.Study {
	t.Helper()
	study, err := scaling.FromRuns([]runs.Run{tracedRun("ddp.json", "ddp", 0), tracedRun("zero1.json", "zero1", 100)})
	check(t, err)
	return study
}

// tracedRun is the run of traced, as a file of a series. It begins at the given time in seconds.
func tracedRun(file, series string, begin float64) runs.Run {
	r := runs.Run{Dir: file, Kind: "trace", Info: runs.Info{Study: "cells", Series: series, Workers: 2, Status: runs.StatusDone}}
	for rank := range 2 {
		for step := range 3 {
			at := begin + 0.010*float64(step)
			late := 0.0005 * float64(rank)
			for _, s := range []runs.Span{
				{Lane: "steps", Kind: runs.SpanOther, Name: fmt.Sprintf("ProfilerStep#%d", step+1), Start: at, Seconds: 0.010},
				{Lane: "stream 7", Kind: runs.SpanData, Name: "copy", Start: at, Seconds: 0.001 + late},
				{Lane: "stream 7", Kind: runs.SpanCompute, Name: "conv", Start: at + 0.001 + late, Seconds: 0.006},
				{Lane: "stream 20", Kind: runs.SpanCommunication, Name: "all-reduce", Start: at + 0.005, Seconds: 0.004},
			} {
				s.Rank = rank
				r.Spans = append(r.Spans, s)
			}
		}
	}
	return r
}
