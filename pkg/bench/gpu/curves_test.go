package gpu

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/runs"
)

// curve writes a run folder with the given losses.
func curve(t *testing.T, root, series, device, precision string, workers int, iou float64, losses ...float64) {
	t.Helper()
	o := engine.DefaultOptions()
	o.Device, o.Precision, o.TF32 = device, precision, false
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	w, err := runs.Create(filepath.Join(root, series), runs.Info{
		Study: "gpu", Series: series, Workers: workers, Seed: 1, GlobalBatch: 4 * workers, Parameters: 10,
		Engine: device, Config: map[string]any{"engine": doc},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range losses {
		if err := w.AppendEpoch(runs.Epoch{Epoch: i + 1, Seconds: 1, Samples: 4, SamplesPerSecond: 4, TrainLoss: l, ValLoss: math.NaN(), IoU: iou}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.UpdateInfo(func(i *runs.Info) { i.Test = &runs.Test{IoU: iou} }); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(runs.StatusDone, nil); err != nil {
		t.Fatal(err)
	}
}

func TestGPUCurves(t *testing.T) {
	cpu := []float64{0.6, 0.3, 0.1}
	for _, c := range []struct {
		name, precision string
		iou             float64
		losses          []float64
		want            string // of the reason; empty: within the band
	}{
		{"equal", "fp32", 0.9, cpu, ""},
		{"within the band of fp32", "fp32", 0.885, []float64{0.61, 0.29, 0.1049}, ""},
		{"outside of it", "fp32", 0.9, []float64{0.6, 0.3, 0.1051}, "the loss of epoch 3 differs by 5.1 % from the CPU, want at most 5 %"},
		{"below it", "fp32", 0.9, []float64{0.56, 0.3, 0.1}, "the loss of epoch 1 differs by 6.7 %"},
		{"within that of bf16", "bf16", 0.9, []float64{0.6, 0.3, 0.114}, ""},
		{"outside of that", "bf16", 0.9, []float64{0.6, 0.3, 0.116}, "differs by 16.0 % from the CPU, want at most 15 %"},
		{"a worse IoU", "fp32", 0.87, cpu, "the IoU is 0.8700 on the GPU and 0.9000 on the CPU: the GPU may be at most 0.02 lower"},
		{"no loss", "fp32", 0.9, []float64{0.6, math.NaN(), 0.1}, "invalid loss in epoch 2: NaN on the GPU, 0.3 on the CPU"},
		{"cut short", "fp32", 0.9, cpu[:2], "the GPU run has 2 epochs, but the CPU run has 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			curve(t, root, "cpu", "cpu", "fp32", 1, 0.9, cpu...)
			curve(t, root, "cuda", "cuda", c.precision, 1, c.iou, c.losses...)
			got, err := CompareCurves(root)
			if err != nil {
				t.Fatal(err)
			}
			p := got.Pairs[0]
			if len(got.Pairs) != 1 || p.OK != (c.want == "") || (got.Failed == 0) != p.OK || !strings.Contains(p.Reason, c.want) {
				t.Errorf("got %+v, want %q", got, c.want)
			}
			var text strings.Builder
			if err := got.Write(&text, false); err != nil || !strings.Contains(text.String(), map[bool]string{true: "ok", false: "FAILED"}[p.OK]) {
				t.Errorf("%v: %s", err, text.String())
			}
		})
	}
}

func TestGPUCurvesPairs(t *testing.T) {
	root := t.TempDir()
	curve(t, root, "cuda", "cuda", "fp32", 2, 0.9, 1)
	curve(t, root, "cpu", "cpu", "fp32", 1, 0.9, 1)
	if _, err := CompareCurves(root); err == nil || !strings.Contains(err.Error(), "found no CPU run with 2 workers and seed 1") {
		t.Errorf("a run without its pair: %v", err)
	}
	if _, err := CompareCurves(filepath.Join(root, "cpu")); err == nil || !strings.Contains(err.Error(), "(1 run): use a folder") {
		t.Errorf("no run on a GPU: %v", err)
	}
}
