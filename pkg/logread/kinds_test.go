package logread

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// tree reads the fixtures, which contain every kind of log. They were written
// by hand in the form of the programs' logs.
func tree(t *testing.T) map[string]runs.Run {
	t.Helper()
	logs, err := Options{}.Read(t.Context(), "testdata/tree")
	check(t, err)
	byName := map[string]runs.Run{}
	for _, r := range logs.Runs {
		byName[strings.TrimPrefix(filepath.ToSlash(r.Dir), "testdata/tree/")] = r
	}
	return byName
}

// TestTreeOfAllKinds checks the kind of each fixture and the identity of its
// run.
func TestTreeOfAllKinds(t *testing.T) {
	found := tree(t)
	want := map[string]string{ // kind, series, workers, seed, study, status
		"dllogger/log_8gpu.json":          "DLLogger, tree, 8, 3, tree, done",
		"hf/trainer_state.json":           "Hugging Face trainer state, hf, 0, 0, hf, done",
		"horovod/synthetic.log":           "Horovod synthetic, horovod, 8, 0, horovod, done",
		"keras/1/horovod_gpus-2.log":      "Keras log, horovod, 2, 0, keras, done",
		"keras/resnet-501.out":            "Keras log, ResNet50, 1, 0, keras, done",
		"keras/resnet-501.out#2":          "Keras log, ResNet50, 2, 0, keras, done",
		"lightning/version_0/metrics.csv": "Lightning metrics, lightning, 8, 11, lightning, done",
		"mlperf/result_0.txt":             "MLPerf log, unet3d, 72, 7, mlperf, done",
		"loss/4gpu/main.log":              "plain loss lines, main, 4, 0, loss, done",
		"sc21/base/4GPU/00/out.log":       "SC21 log, base, 4, 0, sc21, done",
		"sc21/trials/baseline_1gpu.out":   "benchy, baseline, 1, 0, trials, done",
		"sc21/trials/benchy.json":         "benchy JSON, trials, 8, 0, trials, done",
		"slurm/accounting.txt#2002":       "sacct, unet-large, 8, 0, tree, failed",
		"slurm/resnet50-2001.out":         "bash time, imagenet_resnet50, 4, 0, tree, done",
		"slurm/resnet50_n16.out":          "bash time, resnet50, 0, 0, tree, done",
		"srun/hep.log":                    "rates by rank, hep, 2, 0, srun, done",
		"titan/llama_8gpu.log":            "torchtitan, llama, 8, 0, titan, done",
		"torchrun/ddp_4gpus.log":          "SC21 log, short, 4, 0, torchrun, failed",
		"unet/logs/log_1.csv":             "study CSV, native, 1, 0, unet, done",
		"unet/logs/log_hvd_2.csv":         "study CSV, horovod, 2, 0, unet, done",
		"unet/logs/timer/log_g4_r2.csv":   "study CSV, native, 4, 2, timer, done",
		"unet/stdout_n1.txt":              "U-Net study stdout, unet, 0, 0, unet, done",
	}
	got := map[string]string{}
	for name, r := range found {
		got[name] = fmt.Sprintf("%s, %s, %d, %d, %s, %s", r.Kind, r.Info.Series, r.Info.Workers, r.Info.Seed, r.Info.Study, r.Info.Status)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// near returns options that compare floating-point numbers approximately and
// treat NaNs as equal.
func near() cmp.Option { return cmp.Options{cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-12, 0)} }

// TestEpochsOfKinds checks the epochs of each fixture.
func TestEpochsOfKinds(t *testing.T) {
	found := tree(t)
	epoch := func(n, line int, set func(*runs.Epoch)) runs.Epoch {
		e := record.NewUnmeasuredEpoch(n, line)
		set(&e)
		return e
	}
	for name, want := range map[string][]runs.Epoch{
		"sc21/base/4GPU/00/out.log": {
			// seconds × samples/sec is exactly 65,536 in each epoch.
			epoch(1, 9, func(e *runs.Epoch) {
				e.Seconds, e.SamplesPerSecond, e.Samples, e.TrainLoss, e.ValLoss, e.ValSeconds = 752.9529612064362, 87.03863770585806, 65536, 0.014280, 0.007129, 73.16440415382385
			}),
			epoch(2, 13, func(e *runs.Epoch) {
				e.Seconds, e.SamplesPerSecond, e.Samples, e.TrainLoss, e.ValLoss, e.ValSeconds = 753.2101, 65536/753.2101, 65536, 0.0069, 0.006131, 72.9
			}),
			epoch(3, 17, func(e *runs.Epoch) {
				e.Seconds, e.SamplesPerSecond, e.Samples, e.TrainLoss, e.ValLoss, e.ValSeconds = 738.05, 65536/738.05, 65536, 0.0061, 0.005793, 73.4
			}),
		},
		"keras/1/horovod_gpus-2.log": { // two ranks between each other: the slowest time, the means
			epoch(1, 3, func(e *runs.Epoch) {
				e.Seconds, e.TrainLoss, e.Accuracy, e.ValLoss, e.ValAccuracy = 91, (1.9173+1.9175)/2, 0.299, 1.6663, 0.4036
			}),
			epoch(2, 7, func(e *runs.Epoch) {
				e.Seconds, e.TrainLoss, e.Accuracy, e.ValLoss, e.ValAccuracy = 81, 1.51, 0.41, 1.41, 0.48
			}),
		},
		"keras/resnet-501.out#2": {
			epoch(1, 16, func(e *runs.Epoch) { e.Seconds, e.TrainLoss, e.Accuracy = 26, 2.0245, 0.2561 }),
			epoch(2, 18, func(e *runs.Epoch) { e.Seconds, e.TrainLoss, e.Accuracy = 24, 1.8, 0.35 }),
		},
		"srun/hep.log": { // the sum of the ranks' rates, the slowest rank's time
			epoch(1, 2, func(e *runs.Epoch) { e.Seconds, e.SamplesPerSecond, e.Samples = 1442.17, 22.7213+22.7556, 65536 }),
			epoch(2, 5, func(e *runs.Epoch) { e.Seconds, e.SamplesPerSecond, e.Samples = 1410.5, 23.4057+23.2315, 65536 }),
		},
		"mlperf/result_0.txt": {epoch(1, 10, func(e *runs.Epoch) { e.Seconds, e.ValAccuracy = 60, 0.9081 })},
		"dllogger/log_8gpu.json": { // epochs from 0; the second took 180.5 − 100 s by elapsedtime
			epoch(1, 4, func(e *runs.Epoch) { e.TrainLoss, e.ValLoss, e.SamplesPerSecond = 3.5, 3, 812.5 }),
			epoch(2, 7, func(e *runs.Epoch) { e.TrainLoss, e.ValLoss, e.Seconds = 2.4, 2, 80.5 }),
		},
		"lightning/version_0/metrics.csv": {
			epoch(1, 2, func(e *runs.Epoch) { e.TrainLoss, e.ValLoss, e.ValAccuracy = 1, 1.1, 0.4 }),
			epoch(2, 5, func(e *runs.Epoch) { e.TrainLoss, e.ValAccuracy = 0.8741154670715332, 0.52 }),
		},
		"hf/trainer_state.json": {
			epoch(1, 0, func(e *runs.Epoch) {
				e.TrainLoss, e.LearningRate, e.ValLoss, e.ValAccuracy, e.ValSeconds = 0.6, 1e-5, 0.55, 0.8, 3.25
			}),
			epoch(2, 0, func(e *runs.Epoch) {
				e.TrainLoss, e.LearningRate, e.ValLoss, e.ValAccuracy, e.ValSeconds = 0.4, 0, 0.5, 0.85, 3.5
			}),
		},
		"unet/stdout_n1.txt": {
			epoch(1, 6, func(e *runs.Epoch) { e.Seconds, e.TrainLoss = 205.38, 0.561627 }),
			epoch(2, 8, func(e *runs.Epoch) { e.Seconds, e.TrainLoss = 189.55, 0.365322 }),
		},
		"unet/logs/log_hvd_2.csv": { // the torn header, a NaN
			epoch(1, 3, func(e *runs.Epoch) { e.Seconds, e.TrainLoss, e.LearningRate = 181.25, 0.571, 0.001 }),
			epoch(2, 4, func(e *runs.Epoch) { e.Seconds, e.LearningRate = 174.883, 0.001 }),
		},
	} {
		if d := cmp.Diff(want, found[name].Epochs, near()); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}
}

// TestRestOfKinds checks trials, curves, times and statuses of the fixtures.
func TestRestOfKinds(t *testing.T) {
	found := tree(t)
	for name, want := range map[string][]runs.Trial{
		"sc21/trials/baseline_1gpu.out": { // the published table
			{Name: "IO", Rate: 89.177, Spread: 1.011, Rates: []float64{88.166, 90.188}, Line: 4},
			{Name: "SYNTHETIC", Rate: 376.537, Spread: 0.604, Line: 5},
			{Name: "FULL", Rate: 89.971, Spread: 0.621, Rates: []float64{89.35, 90.592}, Line: 8},
		},
		// Mean and population standard deviation of 301.836 and 304.772.
		"sc21/trials/benchy.json": {{Name: "IO", Rate: 303.304, Spread: 1.468, Rates: []float64{301.836, 304.772}}, {Name: "FULL", Rate: 252.044, Rates: []float64{252.044}}},
		// ± is 1.96 σ; the rates of the iterations are for one of 8 GPUs.
		"horovod/synthetic.log": {{Name: "SYNTHETIC", Rate: 14281.2, Spread: 25 / 1.96, Rates: []float64{14286.4, 14276.8}, Line: 9}},
		"hf/trainer_state.json": {{Name: "FULL", Rate: 259.1, Spread: math.NaN()}},
	} {
		if d := cmp.Diff(want, found[name].Trials, near()); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}
	nine := time.Date(2024, 8, 14, 9, 12, 0, 0, time.UTC).Unix()
	for name, want := range map[string]runs.Curve{
		"loss/4gpu/main.log":              {Name: "loss", Rank: -1, Steps: []int64{1, 2, 3, 4}, Values: []float64{8.049097061157227, 7.5, math.NaN(), 6.25}},
		"lightning/version_0/metrics.csv": {Name: "val_loss", Rank: -1, Steps: []int64{49, 99}, Values: []float64{1.1, math.NaN()}},
		"titan/llama_8gpu.log":            {Name: "tps", Rank: 0, Steps: []int64{1, 10}, Values: []float64{7123, 91004}, Times: []float64{float64(nine) + 41.5, float64(nine) + 44.5}},
		"mlperf/result_0.txt":             {Name: "throughput", Rank: -1, Steps: []int64{1}, Values: []float64{341.957}, Times: []float64{1714835514.498}},
		// Iterations are counted across epochs.
		"dllogger/log_8gpu.json": {Name: "average_loss", Rank: -1, Steps: []int64{0, 1, 2, 3}, Values: []float64{3.62, 3.5, 2.5, 2.4}, Times: []float64{1587451057.91385, 1587451058.248618, 1587451116.248618, 1587451117.248618}},
		"hf/trainer_state.json":  {Name: "grad_norm", Rank: -1, Steps: []int64{50, 100, 200}, Values: []float64{1.5, 1.25, math.NaN()}},
	} {
		got := runs.Curve{}
		for _, c := range found[name].Curves {
			if c.Name == want.Name {
				got = c
			}
		}
		if d := cmp.Diff(want, got, near()); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}
	for name, want := range map[string]float64{ // minutes × 60 + seconds; Elapsed 1-00:02:03
		"slurm/resnet50-2001.out": 89*60 + 15.923, "slurm/resnet50_n16.out": 24*60 + 48.169,
		"keras/resnet-501.out": 242.5, "keras/resnet-501.out#2": 72.864, "slurm/accounting.txt#2002": 86400 + 123,
	} {
		if got := found[name].WallSeconds; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %g s, expected %g", name, got, want)
		}
	}
	if i := found["slurm/resnet50-2001.out"].Info; i.EnergyJoules != 5.4e6 || i.Nodes != 1 || i.JobIDs[record.SlurmJobKey] != "2001" {
		t.Errorf("what sacct tells of job 2001: %+v", i)
	}
	if i := found["mlperf/result_0.txt"].Info; i.Config[TrainingSecondsKey] != 70.5 || i.GlobalBatch != 56 || i.Nodes != 9 {
		t.Errorf("MLPerf: %+v", i)
	}
	if i := found["sc21/base/4GPU/00/out.log"].Info; i.GlobalBatch != 64 || i.BatchPerWorker != 16 || !i.Started.Equal(time.Date(2021, 11, 12, 0, 32, 26, 118e6, time.UTC)) {
		t.Errorf("SC21: %+v", i)
	}
	if i := found["unet/stdout_n1.txt"].Info; i.Test == nil || i.Test.IoU != 0.899849 || i.Test.Loss != 0.21 || i.Test.Seconds != 29.63 || i.Config[TrainingSecondsKey] != 38765.41 || i.Config["arch"] != "unet2d" {
		t.Errorf("study: %+v", i)
	}
	if i := found["lightning/version_0/metrics.csv"].Info; i.Config["optimizer/name"] != "adam" || i.Config["lr"] != 0.001 {
		t.Errorf("hparams: %v", i.Config)
	}
	for name, want := range map[string]string{
		"torchrun/ddp_4gpus.log": "torchrun: rank 3 failed on node01 with exit code -9: Signal 9 (SIGKILL)", "slurm/accounting.txt#2002": "Slurm: OUT_OF_MEMORY, exit code 0:125",
	} {
		if got := found[name].Info.Error; !strings.Contains(got, want) {
			t.Errorf("%s: %q, expected %q", name, got, want)
		}
	}
}

// TestKerasForms checks the forms of Keras' lines in various versions, and the
// remains of a progress bar in a file.
func TestKerasForms(t *testing.T) {
	for _, line := range []string{
		"196/196 - 49s - loss: 2.0408 - accuracy: 0.2506",
		"196/196 - 49s - loss: 2.0408 - accuracy: 0.2506 - 49s/epoch - 250ms/step",
		" - 49s - loss: 2.0408 - acc: 0.2506",
		"196/196 - 49s - 250ms/step - accuracy: 0.2506 - loss: 2.0408",
		"196/196 [==============================] - 49s 250ms/step - loss: 2.0408 - accuracy: 0.2506",
		"195/196 [============================>.] - ETA: 0s - loss: 2.1 - accuracy: 0.2\b\b\r196/196 [==============================] - 49s 250ms/step - loss: 2.0408 - accuracy: 0.2506",
		"[1,3]<stdout>:196/196 - 49s - loss: 2.0408 - accuracy: 0.2506",
	} {
		run := readOne(t, "job_2gpu.out", "Epoch 1/1\n"+line+"\n")
		if len(run.Epochs) != 1 || run.Epochs[0].Seconds != 49 || run.Epochs[0].TrainLoss != 2.0408 || run.Epochs[0].Accuracy != 0.2506 || len(run.Problems) > 0 {
			t.Errorf("%q: %+v, problems %v", line, run.Epochs, run.Problems)
		}
	}
}

// TestReports checks that the reports of the fixtures contain everything that
// was ignored, unused or assumed.
func TestReports(t *testing.T) {
	reports, err := Explain("testdata/tree")
	check(t, err)
	text := reports.String()
	for _, want := range []string{
		"tree/sc21/base/4GPU/00/out.log: SC21 log, 1 run, 3 records, 17 of 21 lines used\n",
		"tree/sc21/pm-crop64-1234567.out: SC21 log", "the same start and the same epochs as in testdata/tree/sc21/base/4GPU/00/out.log: one run",
		"workers 4: from the content (rank 3 reported that it was done)", `workers 8: from the name of the file "log_8gpu" (assumed)`,
		"workers 8: from a configuration (hparams.yaml: devices × num_nodes)",
		"ignored: 4 lines, the first is line 1: of unknown form", "± is 1.96 standard deviations",
		"the lines of 2 ranks are one run", "an earlier state of the run; the state in testdata/tree/hf/trainer_state.json counts",
		"not used: line 2: the header is torn", "not used: line 1: the file contains no table: the run wrote nothing",
		"the number of workers is unknown", "the accounting of job 2001 is in testdata/tree/slurm/accounting.txt",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the reports do not say %q", want)
		}
	}
	for _, r := range reports {
		if r.LinesUsed+r.LinesIgnored()+int64(len(r.Unused)) < r.Lines && !strings.Contains(r.Kind, "configuration") {
			t.Errorf("%s: %d lines used, %d ignored, %d problems, of %d: some go unsaid", r.Path, r.LinesUsed, r.LinesIgnored(), len(r.Unused), r.Lines)
		}
	}
	if table := reports.Table(); table.Nrow() != len(reports) || table.Err != nil {
		t.Errorf("table of %d rows: %v", table.Nrow(), table.Err)
	}
	if html := reports.HTML(); strings.Count(html, "<tr>") != len(reports)+1 || strings.Contains(html, "<module>") || strings.Count(html, "text-align:left") != 3*len(reports) {
		t.Errorf("HTML of %d rows, with %d cells aligned to the left, want 3 in each", strings.Count(html, "<tr>"), strings.Count(html, "text-align:left"))
	}
}

// TestManyBadLines checks that the first hundred problems are kept and the
// others are counted.
func TestManyBadLines(t *testing.T) {
	run := readOne(t, "log_2.csv", twoRows+strings.Repeat("x\n", 1000))
	if len(run.Problems) != record.MaxUnused+1 || run.Problems[record.MaxUnused].Reason != "and 900 more lines that could not be used" {
		t.Errorf("%d problems, the last %v", len(run.Problems), run.Problems[len(run.Problems)-1])
	}
}

// TestProgress checks that the progress increases up to the total.
func TestProgress(t *testing.T) {
	var last, total int64
	o := Options{Progress: func(read, all int64) {
		if read < last {
			t.Errorf("%d after %d", read, last)
		}
		last, total = read, all
	}}
	_, err := o.Read(t.Context(), "testdata/tree")
	check(t, err)
	if last != total || total == 0 {
		t.Errorf("%d of %d bytes", last, total)
	}
}

// ExampleExplain shows which lines of a file are used.
func ExampleExplain() {
	dir, err := os.MkdirTemp("", "study")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	text := "BENCHY::SUMMARY::IO average trial throughput: 89.177 +/- 1.011\nBENCHY::SUMMARY::FULL average trial throughput: 8\nhello\n"
	if err := os.WriteFile(filepath.Join(dir, "baseline_4gpu.out"), []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	reports, err := Explain(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(strings.ReplaceAll(reports.String(), dir+"/", ""))
	// Output:
	// baseline_4gpu.out: benchy, 1 run, 2 records, 2 of 3 lines used
	//     taken: workers 4: from the name of the file "baseline_4gpu" (assumed)
	//     taken: series "baseline": from the name of the file "baseline_4gpu" (assumed)
	//     ignored: 1 line, the first is line 3: of unknown form
}
