package logread

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

func TestEventEpochs(t *testing.T) {
	nan := math.NaN()
	epoch := func(n int, train, val, acc, valAcc, lr float64) runs.Epoch {
		return runs.Epoch{
			Epoch: n, Seconds: nan, SamplesPerSecond: nan, TrainLoss: train, ValLoss: val, IoU: nan, Dice: nan,
			ValSeconds: nan, LearningRate: lr, Accuracy: acc, ValAccuracy: valAcc,
		}
	}
	for _, c := range []struct {
		name   string
		files  map[string][]byte
		epochs []runs.Epoch
		curves []string
	}{
		{
			"Keras",
			map[string][]byte{
				"run/train/e": recordtest.EncodeEventFile(
					recordtest.EncodeEvent(1, 0, recordtest.EncodeScalar("epoch_loss", 2), recordtest.EncodeScalar("epoch_sparse_categorical_accuracy", 0.25), recordtest.EncodeTensor("epoch_lr", 1, recordtest.EncodeFixed32Field(5, 0.5))),
					recordtest.EncodeEvent(2, 1, recordtest.EncodeScalar("epoch_loss", 1))),
				"run/validation/e": recordtest.EncodeEventFile(
					recordtest.EncodeEvent(1, 0, recordtest.EncodeScalar("epoch_loss", 4), recordtest.EncodeScalar("epoch_sparse_categorical_accuracy", 0.5)),
					recordtest.EncodeEvent(1, 128, recordtest.EncodeScalar("evaluation_loss_vs_iterations", 4))),
			},
			[]runs.Epoch{epoch(1, 2, 4, 0.25, 0.5, 0.5), epoch(2, 1, nan, nan, nan, nan)},
			[]string{
				"train/epoch_loss", "train/epoch_sparse_categorical_accuracy", "train/epoch_lr", "validation/epoch_loss",
				"validation/epoch_sparse_categorical_accuracy", "validation/evaluation_loss_vs_iterations",
			},
		},
		{
			"Lightning",
			map[string][]byte{"run/e": recordtest.EncodeEventFile(
				recordtest.EncodeEvent(1, 49, recordtest.EncodeScalar("train_loss", 3), recordtest.EncodeScalar("epoch", 0)),
				recordtest.EncodeEvent(2, 99, recordtest.EncodeScalar("val_loss", 2), recordtest.EncodeScalar("val_acc", 0.5), recordtest.EncodeScalar("train_loss_epoch", 2.5), recordtest.EncodeScalar("epoch", 0)),
				recordtest.EncodeEvent(3, 199, recordtest.EncodeScalar("val_loss", 1), recordtest.EncodeScalar("epoch", 1)))},
			[]runs.Epoch{epoch(1, 2.5, 2, nan, 0.5, nan), epoch(2, nan, 1, nan, nan, nan)},
			[]string{"train_loss", "epoch", "val_loss", "val_acc", "train_loss_epoch"},
		},
		{
			"SC21",
			map[string][]byte{"run/logs/e": recordtest.EncodeEventFile(recordtest.EncodeEvent(1, 800, recordtest.EncodeScalar("Loss/train", 3), recordtest.EncodeScalar("Learning Rate", 1), recordtest.EncodeScalar("Avg iters per sec", 5)), recordtest.EncodeEvent(1, 800, recordtest.EncodeScalar("Loss/valid", 2)))},
			nil,
			[]string{"Loss/train", "Learning Rate", "Avg iters per sec", "Loss/valid"},
		},
	} {
		dir := t.TempDir()
		files := map[string]string{}
		for name, b := range c.files {
			files[name] = string(b)
		}
		write(t, dir, files)
		found, _, err := Read(dir)
		check(t, err)
		if len(found) != 1 {
			t.Fatalf("%s: %d runs, expected 1", c.name, len(found))
		}
		run := found[0]
		if d := cmp.Diff(c.epochs, run.Epochs, cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, d)
		}
		var names []string
		for _, curve := range run.Curves {
			names = append(names, curve.Name)
		}
		if d := cmp.Diff(c.curves, names); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, d)
		}
	}
}

// TestEventOwnWriter reads back an event file that package runs wrote.
func TestEventOwnWriter(t *testing.T) {
	dir := t.TempDir()
	w, err := runs.OpenEvents(dir, 0)
	check(t, err)
	at := time.UnixMicro(1_700_000_000_250_000)
	check(t, w.AppendScalars(1, at, runs.Scalar{Tag: "Loss/step", Value: 0.5}, runs.Scalar{Tag: "Seconds/step", Value: math.NaN()}))
	check(t, w.AppendScalars(2, at, runs.Scalar{Tag: "Loss/step", Value: 0.25}))
	check(t, w.Close())
	w, err = runs.OpenEvents(dir, 1) // resumed after step 1
	check(t, err)
	check(t, w.AppendScalars(2, at, runs.Scalar{Tag: "Loss/step", Value: 0.125}))
	check(t, w.Close())
	found, problems, err := Read(dir)
	check(t, err)
	if len(found) != 1 {
		t.Fatalf("%d runs", len(found))
	}
	want := []runs.Curve{{Name: "Loss/step", Rank: -1, Steps: []int64{1, 2}, Values: []float64{0.5, 0.125}, Times: []float64{1_700_000_000.25, 1_700_000_000.25}}}
	if d := cmp.Diff(want, found[0].Curves); d != "" || len(problems) != 1 || found[0].Kind != "TensorBoard events" { // nothing says how many workers
		t.Errorf("%s, %v (-want +got)\n%s", found[0].Kind, problems, d)
	}
}
