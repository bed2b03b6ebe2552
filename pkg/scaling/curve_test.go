package scaling

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/curve"
)

// sc21 returns a run with the published validation losses of the SC21 tutorial's base run.
// Each epoch takes 752.95 s of training and 73.16 s of validation, as in its log.
func sc21() runs.Run {
	nan := math.NaN()
	r := runs.Run{Dir: "base", Kind: "SC21 log", Info: runs.Info{
		Series: "base", Workers: 1, Status: runs.StatusDone, GlobalBatch: 64, Started: time.Unix(1000, 0),
	}}
	for i, loss := range []float64{.007129, .006131, .005793, .005409, .005207, .005085, .004972, .004856, .004855, .004844} {
		r.Epochs = append(r.Epochs, runs.Epoch{
			Epoch: i + 1, Seconds: 752.95, ValSeconds: 73.16, Samples: 65536, SamplesPerSecond: nan, TrainLoss: 0.01,
			ValLoss: loss, IoU: nan, Dice: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan,
		})
	}
	r.Curves = []runs.Curve{{Name: "Loss/train", Rank: -1, Steps: []int64{0, 10, 20}, Values: []float64{0.5, math.NaN(), 0.25}, Times: []float64{1000, 1010, 1025}}}
	return r
}

func TestTimeTo(t *testing.T) {
	s := study(t, []runs.Run{sc21()})
	r, err := s.TimeTo("val_loss", 0.0055)
	check(t, err)
	x := r.Rows[0]
	if !r.Below || !x.Reached || x.Epoch != 4 || x.Step != 4*1024 || x.Best != .004844 {
		t.Errorf("%+v", x)
	}
	near(t, "training time", x.Seconds, 4*752.95)
	near(t, "wall time", x.WallSeconds, 4*(752.95+73.16))
	wantLine(t, []string{r.Sentence}, "val_loss ≤ 0.0055: reached by 1 of 1 run, soonest by base at 1 worker: 3012 s, n = 1")
	r, err = s.TimeTo("val_loss", 0.001)
	check(t, err)
	if r.Rows[0].Reached || !math.IsNaN(r.Rows[0].Seconds) {
		t.Errorf("%+v", r.Rows[0])
	}
	r, err = s.TimeTo("Loss/train", 0.3)
	check(t, err)
	if x := r.Rows[0]; x.Step != 20 || x.WallSeconds != 25 || x.Best != 0.25 {
		t.Errorf("%+v", x)
	}
	if r.Table().Err != nil || !strings.Contains(r.HTML(), "wall_seconds") {
		t.Error(r)
	}
	for want, metric := range map[string]string{"available metrics: train_loss, val_loss, seconds, val_seconds, samples_per_second, Loss/train": "loss", "no run has this metric": "iou"} {
		if _, err := s.TimeTo(metric, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %s", err, want)
		}
	}
	if _, err := s.TimeTo("val_loss", math.NaN()); err == nil {
		t.Error("no target")
	}
	for metric, want := range map[string]bool{
		"iou": false, "Accuracy/val": false, "metrics/mAP50(B)": false, "mAP": false, "val_jaccard": false, "eval_top1": false, "tps": false,
		"Loss/valid": true, "epoch_loss": true, "eval_mape": true, "accumulated_loss": true, "wer": true, "maps_loss": true,
	} {
		if curve.LowerIsBetter(metric) != want {
			t.Errorf("less of %s is better: %t, expected %t", metric, !want, want)
		}
	}
}

func TestCurves(t *testing.T) {
	s := study(t, []runs.Run{sc21()})
	for axis, want := range map[string][]float64{
		AxisEpoch: {1, 2}, AxisStep: {1024, 2048}, AxisRelative: {752.95, 1505.9}, AxisWall: {1826.11, 2652.22},
	} {
		c, err := s.Curve("val_loss", axis)
		check(t, err)
		for i, x := range want {
			near(t, axis, c.Lines[0].X[i], x)
		}
		if !slices.Equal(c.Lines[0].Y[:2], []float64{.007129, .006131}) || c.Table().Nrow() != 10 || c.Table().Names()[6] != axis {
			t.Errorf("%s: %+v", axis, c.Lines[0])
		}
	}
	c, err := s.Curve("Loss/train", AxisRelative)
	check(t, err)
	if !slices.Equal(c.Lines[0].X, []float64{0, 10, 25}) || !strings.Contains(c.String(), "Loss/train") || !strings.Contains(c.HTML(), "<td>0.250</td>") {
		t.Error(c)
	}
	for want, args := range map[string][2]string{
		"unknown axis \"hours\": use epoch": {"val_loss", "hours"},
		"logged by step, not by epoch":      {"Loss/train", AxisEpoch},
		"unknown metric \"x\"":              {"x", AxisStep},
	} {
		if _, err := s.Curve(args[0], args[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %s", err, want)
		}
	}
	bare := weak(1, 1, 10)
	bare.Info.BatchPerWorker = 0
	if _, err := study(t, []runs.Run{bare}).Curve("train_loss", AxisStep); err == nil || !strings.Contains(err.Error(), "the steps are unknown") {
		t.Errorf("error %v", err)
	}
	if _, err := study(t, []runs.Run{bare}).Curve("train_loss", AxisWall); err == nil || !strings.Contains(err.Error(), "no start time") {
		t.Errorf("error %v", err)
	}
}

// TestSmoothed compares with values computed by hand: smoothing 4, 2 and 0 with weight 0.5
// gives 4, (4·0.25+2·0.5)/0.75 and (4·0.125+2·0.25+0·0.5)/0.875.
func TestSmoothed(t *testing.T) {
	l := CurveLine{Y: []float64{4, 2, math.NaN(), 0}}.Smoothed(0.5)
	near(t, "first", l.Y[0], 4)
	near(t, "second", l.Y[1], 2/0.75)
	near(t, "last", l.Y[3], 1/0.875)
	if !math.IsNaN(l.Y[2]) || !slices.Equal(CurveLine{Y: []float64{1, 2}}.Smoothed(0).Y, []float64{1, 2}) {
		t.Errorf("%v", l.Y)
	}
}

// TestQualityPublished checks where the published IoU collapses: with TensorFlow native, from
// 0.910477 at 10 GPUs to 0.550925 at 12 and 0.485779 at 14.
func TestQualityPublished(t *testing.T) {
	dir := t.TempDir()
	writePublished(t, dir)
	s, err := Read(dir + "/tensorflow")
	check(t, err)
	q := s.Quality()
	if q.Measure != "iou" || len(q.Rows) != 16 || q.Table().Err != nil || q.Table().Nrow() != 16 {
		t.Fatal(q)
	}
	last := q.Rows[15]
	near(t, "change", last.Change.Value, .485779-.964300)
	wantLine(t, strings.Split(q.String(), "\n"), "native: iou goes from 0.964 at 1 worker to 0.486 at 14 workers (single runs: no interval", "the largest loss is from 10 to 12 workers (0.910 to 0.551)")
	if math.Abs(last.Change.Value) < 0.4 || !math.IsNaN(last.Change.Low) {
		t.Errorf("%+v", last)
	}
}

func TestQualityWithSeeds(t *testing.T) {
	var all []runs.Run
	for i, iou := range []float64{.90, .91, .905, .70, .71, .72} {
		r := weak(1+3*(i/3), int64(i), 10, 10)
		r.Dir = fmt.Sprint(i)
		r.Info.Test.IoU = iou
		all = append(all, r)
	}
	all[5].Epochs[1].TrainLoss = math.Inf(1)
	s := study(t, all)
	q := s.Quality()
	last := q.Rows[1]
	if last.GlobalBatch != 16 || last.Diverged != 1 || !(last.Change.High < -0.15) || !(last.Change.Low > -0.25) {
		t.Errorf("%+v", last)
	}
	if last.TrainLoss.N != 2 || s.Points[1].Runs != 3 {
		t.Errorf("a diverged run's loss counts: %+v", last.TrainLoss)
	}
	wantLine(t, []string{last.Sentence}, "at 4 workers (global batch 16), a change of -0.195 [-0.2")
	// Only the measure of the change has its interval in the table for people; all are in files.
	if head, _, _ := strings.Cut(q.String(), "\n"); strings.Count(head, "interval") != 2 || !slices.Contains(q.Table().Names(), "train_loss_low") {
		t.Errorf("%s, %v", head, q.Table().Names())
	}
	wantLine(t, s.tableRemarks(), "problem: 5: the training loss of epoch 2 is not a finite number: the run diverged; its time counts, its loss does not")
}

// TestQualityOfUnknownBatch checks that an unknown batch is not shown as 0.
func TestQualityOfUnknownBatch(t *testing.T) {
	one, two := weak(1, 1, 10, 10), weak(2, 1, 10, 10)
	two.Info.BatchPerWorker = 0
	q := study(t, []runs.Run{one, two}).Quality()
	if q.Rows[0].GlobalBatch != 4 || q.Rows[1].GlobalBatch != 0 {
		t.Fatalf("batches %d and %d", q.Rows[0].GlobalBatch, q.Rows[1].GlobalBatch)
	}
	lines := strings.Split(q.String(), "\n")
	if first, second := strings.Fields(lines[1]), strings.Fields(lines[2]); first[2] != "4" || second[2] != "-" {
		t.Errorf("global_batch is %q and %q, expected 4 and -:\n%s", first[2], second[2], q)
	}
	if sentence := q.Rows[1].Sentence; !strings.Contains(sentence, "at 1 worker (global batch 4) to") || strings.Contains(sentence, "batch 0") {
		t.Error(sentence)
	}
}

// TestTimeToInterval checks that the time of repeated runs has an interval, unless a run did
// not reach the target. Each epoch of the three runs takes 10, 11 or 14 s, and the first
// epoch twice as long. The loss of epoch e is 1/e, so 0.5 is reached after epoch 2.
func TestTimeToInterval(t *testing.T) {
	all := append(seeds("ddp", 1, 10, 11, 14), seeds("ddp", 2, 5, 5.5, 7)...)
	slow := seeds("ddp", 4, 3, 3.3, 3.1)
	slow[1].Epochs[1].TrainLoss, slow[1].Epochs[2].TrainLoss = 0.9, 0.9
	s := study(t, append(all, slow...))
	r, err := s.TimeTo("train_loss", 0.5)
	check(t, err)
	if len(r.Points) != 3 {
		t.Fatalf("%+v", r.Points)
	}
	one := r.Points[0].Seconds // 20 + 10, 22 + 11 and 28 + 14 s
	if one.Value != 33 || one.N != 3 || !(one.Low < 33 && one.High > 33 && one.Low > 15) {
		t.Errorf("%+v", one)
	}
	if p := r.Points[2]; p.Reached != 2 || !math.IsNaN(p.Seconds.Value) {
		t.Errorf("two of three runs: %+v", p)
	}
	wantLine(t, []string{r.Sentence}, "train_loss ≤ 0.500: reached by 8 of 9 runs, soonest by ddp at 2 workers: 16.50 s "+r.Points[1].Seconds.formatInterval()+", n = 3")
	wantLine(t, strings.Split(r.String(), "\n"), "ddp at 4 workers: reached by 2 of 3 runs")
	var b bytes.Buffer
	check(t, r.Write(&b, FormatCSV))
	if !strings.Contains(b.String(), ",best,point_seconds,point_seconds_low,point_seconds_high\n") || !strings.Contains(b.String(), ",33,") {
		t.Error(b.String())
	}
}
