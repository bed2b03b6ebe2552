package logread

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// written creates a run folder and its copy in the form of the U-Net study's
// logs.
func written(t *testing.T, root, series string, workers int, seed int64, seconds float64) (dir, copied string) {
	t.Helper()
	nan := math.NaN()
	dir = filepath.Join(root, series+"-n"+string(rune('0'+workers))+"-s"+string(rune('0'+seed)))
	w, err := runs.Create(dir, runs.Info{Study: "cells", Series: series, Workers: workers, Seed: seed})
	check(t, err)
	for e := 1; e <= 3; e++ {
		check(t, w.AppendEpoch(runs.Epoch{
			Epoch: e, Seconds: seconds + 1.0/float64(3*e), Samples: 10, SamplesPerSecond: 1, TrainLoss: 0.7 / float64(e), LearningRate: 0.001 / 3,
			ValLoss: nan, IoU: nan, Dice: nan, ValSeconds: nan, Accuracy: nan, ValAccuracy: nan,
		}))
	}
	check(t, w.UpdateInfo(func(i *runs.Info) { i.Test = &runs.Test{IoU: 2.0 / 3, Seconds: 0.1234567} }))
	check(t, w.Finish(runs.StatusDone, nil))
	run, err := runs.Read(dir)
	check(t, err)
	copied, err = runs.WriteStudyLog(filepath.Join(root, "study-logs"), run)
	check(t, err)
	return dir, copied
}

// TestStudyLogReadsBack checks that the copy contains the values of the run
// with six decimals.
func TestStudyLogReadsBack(t *testing.T) {
	dir, copied := written(t, t.TempDir(), "horovod", 4, 1, 2)
	if filepath.Base(copied) != "log_hvd_4.csv" {
		t.Errorf("the file is called %s", copied)
	}
	own, err := runs.Read(dir)
	check(t, err)
	all, problems, err := Read(copied)
	check(t, err)
	if len(all) != 1 || len(problems) != 0 {
		t.Fatalf("%d runs, problems %v", len(all), problems)
	}
	got, near := all[0], func(what string, a, b float64) {
		t.Helper()
		if !(math.Abs(a-b) <= 0.5000001e-6) {
			t.Errorf("%s is %.9f, the run has %.9f", what, a, b)
		}
	}
	if got.Info.Workers != 4 || got.Info.Series != "horovod" || len(got.Epochs) != 3 {
		t.Fatalf("read %d workers, series %s, %d epochs", got.Info.Workers, got.Info.Series, len(got.Epochs))
	}
	total := 0.0
	for i, e := range own.Epochs {
		if got.Epochs[i].Epoch != e.Epoch {
			t.Errorf("epoch %d became %d", e.Epoch, got.Epochs[i].Epoch)
		}
		near("seconds", got.Epochs[i].Seconds, e.Seconds)
		near("loss", got.Epochs[i].TrainLoss, e.TrainLoss)
		near("learning rate", got.Epochs[i].LearningRate, e.LearningRate)
		total += e.Seconds
	}
	training, _ := got.Info.Config[TrainingSecondsKey].(float64)
	near("training time", training, total)
	near("test time", got.Info.Test.Seconds, own.Info.Test.Seconds)
	near("IoU", got.Info.Test.IoU, own.Info.Test.IoU)
}

// TestCopiesDoNotCount checks that a copy of a run folder is skipped with a
// reason if the folder is read too, and is read otherwise.
func TestCopiesDoNotCount(t *testing.T) {
	root := t.TempDir()
	dir, copied := written(t, root, "ddp", 2, 1, 1)
	foreign := filepath.Join(filepath.Dir(copied), "log_8.csv") // no copy
	text, err := os.ReadFile(copied)
	check(t, err)
	check(t, os.WriteFile(foreign, text, 0o644))
	for _, paths := range [][]string{{root}, {copied, dir, foreign}, {dir, filepath.Dir(copied)}} {
		logs, err := Options{}.Read(context.Background(), paths...)
		check(t, err)
		var workers []int
		for _, r := range logs.Runs {
			workers = append(workers, r.Info.Workers)
		}
		if len(workers) != 2 || workers[0]+workers[1] != 2+8 {
			t.Errorf("%v: runs of %v workers, want the run folder and log_8.csv", paths, workers)
		}
		said := false
		for _, r := range logs.Reports {
			said = said || r.CopyOf != "" && strings.Contains(r.Skipped, "copy of the run folder")
		}
		if !said {
			t.Errorf("%v: no report says that a file is a copy", paths)
		}
	}
	all, _, err := Read(filepath.Dir(copied))
	check(t, err)
	if len(all) != 2 {
		t.Errorf("%d runs where the run folder is not read, want the copy and the other file", len(all))
	}
}
