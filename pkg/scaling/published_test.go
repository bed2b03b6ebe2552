package scaling

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// publishedRun contains the numbers that the U-Net scaling study published for a run on V100
// GPUs: the seconds of the epoch that its notebook selects, the IoU on the test set, and the
// seconds of the complete training of 200 epochs.
type publishedRun struct {
	workers             int
	seconds, iou, total float64
}

// published is the table of results of the study.
func published() map[string][]publishedRun {
	return map[string][]publishedRun{
		"pytorch/log_": {
			{1, 194.188, .899849, 38765.4},
			{2, 103.436, .897733, 20774.7},
			{4, 53.960, .883988, 10741.2},
			{6, 34.855, .851727, 6994.0},
			{8, 27.395, .867978, 5535.3},
			{10, 22.060, .781376, 4460.7},
			{12, 17.868, .802190, 3594.8},
			{14, 16.223, .924409, 3241.0},
		},
		"pytorch/log_hvd_": {
			{1, 194.466, .898451, 38880.9},
			{2, 174.883, .884609, 35061.0},
			{4, 104.879, .894166, 21196.4},
			{6, 71.482, .884303, 14130.3},
			{8, 54.979, .867297, 11219.1},
			{10, 43.397, .783545, 8869.8},
			{12, 36.508, .792942, 7272.9},
			{14, 32.340, .901773, 6507.2},
		},
		"tensorflow/log_": {
			{1, 37.590, .964300, 7535.5},
			{2, 18.936, .950843, 3828.6},
			{4, 10.931, .950629, 2236.6},
			{6, 6.993, .934527, 1450.1},
			{8, 5.584, .924076, 1155.7},
			{10, 4.748, .910477, 1001.8},
			{12, 3.693, .550925, 785.9},
			{14, 3.345, .485779, 718.4},
		},
		"tensorflow/log_hvd_": {
			{1, 37.485, .965286, 7547.0},
			{2, 19.055, .967818, 3859.2},
			{4, 9.587, .919546, 1960.6},
			{6, 6.239, .956006, 1291.9},
			{8, 4.822, .886167, 1006.1},
			{10, 3.804, .944355, 803.5},
			{12, 3.126, .917041, 674.1},
			{14, 2.786, .888183, 599.2},
		},
	}
}

// writePublished writes files in the format of the study. The published seconds are in rows 1
// and 4 (its notebook selects row 4, and row 1 for TensorFlow native). The other rows are 10 %
// larger, so that the selection of a wrong row is noticed.
func writePublished(t *testing.T, dir string) {
	t.Helper()
	for name, all := range published() {
		for _, p := range all {
			text := ",time_per_epoch,loss,lr,training_time,test_time,iou\n"
			for row := range 6 {
				seconds := p.seconds
				if row != 1 && row != 4 {
					seconds *= 1.1
				}
				text += fmt.Sprintf("%d,%.6f,%.6f,0.001000,%.6f,1.000000,%.6f\n", row, seconds, 0.5/float64(row+1), p.total, p.iou)
			}
			path := filepath.Join(dir, fmt.Sprintf("%s%d.csv", name, p.workers))
			check(t, os.MkdirAll(filepath.Dir(path), 0o755))
			check(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
}

// TestPublishedSpeedups reproduces the study's speed-ups at 14 GPUs (11.970, 6.013, 11.237 and
// 13.453) and efficiencies (85.5, 43.0, 80.3 and 96.1 %).
func TestPublishedSpeedups(t *testing.T) {
	dir := t.TempDir()
	writePublished(t, dir)
	study, err := Read(dir)
	check(t, err)
	study, err = study.WithRule(Rule{Epochs: "5"}) // row 4 counts from 0
	check(t, err)
	want := map[string]struct{ speedup, efficiency, iou float64 }{
		"pytorch native":     {11.970, .855, .924409},
		"pytorch horovod":    {6.013, .430, .901773},
		"tensorflow native":  {11.237, .803, .485779},
		"tensorflow horovod": {13.453, .961, .888183},
	}
	found := 0
	for _, p := range study.Points {
		if p.Workers != 14 {
			continue
		}
		found++
		w := want[p.Series]
		if math.Abs(p.Speedup.Value-w.speedup) > 2e-3 { // the table's seconds are rounded to 1e-3 of 2.786
			t.Errorf("%s: speed-up %.4f, published %.3f", p.Series, p.Speedup.Value, w.speedup)
		}
		if math.Abs(p.Efficiency.Value-w.efficiency) > 6e-4 {
			t.Errorf("%s: efficiency %.4f, published %.3f", p.Series, p.Efficiency.Value, w.efficiency)
		}
		if p.IoU.Value != w.iou || !math.IsNaN(p.Throughput.Value) {
			t.Errorf("%s: IoU %g, published %g; throughput %g, expected none", p.Series, p.IoU.Value, w.iou, p.Throughput.Value)
		}
	}
	if found != len(want) || len(study.Points) != 4*8 || len(study.Problems) != 0 {
		t.Errorf("%d series at 14 GPUs, %d points, problems %v", found, len(study.Points), study.Problems)
	}
	if len(study.Notes) != 2 {
		t.Errorf("notes %q", study.Notes)
	}
	wantLine(t, study.Notes, "workers of 32 runs assumed from file names; series of 32 runs assumed from")
	wantLine(t, study.Notes, "pytorch horovod, pytorch native, tensorflow horovod, tensorflow native", "t(baseline)/t(N)")
}

// TestPublishedRuleMatters uses the mean over rows 1 to 5 instead. Three of these five rows are
// 10 % slower, at every worker count.
func TestPublishedRuleMatters(t *testing.T) {
	dir := t.TempDir()
	writePublished(t, dir)
	study, err := Read(filepath.Join(dir, "pytorch", "log_1.csv"), filepath.Join(dir, "pytorch", "log_14.csv"))
	check(t, err)
	p := study.Points[len(study.Points)-1]
	if want := 16.223 * (2 + 3*1.1) / 5; math.Abs(p.EpochSeconds.Value-want) > 1e-5 {
		t.Errorf("mean of the counted epochs is %g s, expected %g", p.EpochSeconds.Value, want)
	}
	if math.Abs(p.Speedup.Value-11.970) > 2e-3 {
		t.Errorf("speed-up %g", p.Speedup.Value)
	}
	// With Rule.SamplesPerEpoch there is also a throughput, and the speed-up is the same.
	study, err = study.WithRule(Rule{DropFirst: 1, SamplesPerEpoch: 1000})
	check(t, err)
	q := study.Points[len(study.Points)-1]
	if math.Abs(q.Throughput.Value-1000/p.EpochSeconds.Value) > 1e-9 || math.Abs(q.Speedup.Value-p.Speedup.Value) > 1e-9 {
		t.Errorf("throughput %g, speed-up %g", q.Throughput.Value, q.Speedup.Value)
	}
}
