package gpu

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestGPUPlan: counted without a GPU, more fusion moves fewer bytes, the bound is that of
// the tasks one after another, and operations are those of the network.
func TestGPUPlan(t *testing.T) {
	for _, precision := range []string{"fp32", "bf16", "fp16"} {
		r, err := Plan(PlanOptions{Model: "resnet50v2", Precision: precision, Batch: 8})
		if err != nil {
			t.Fatal(err)
		}
		if ways := map[string]int{"fp32": 2, "bf16": 2, "fp16": 3}[precision]; len(r.Ways) != ways {
			t.Fatalf("%s: %d ways, want %d", precision, len(r.Ways), ways)
		}
		for i, w := range r.Ways {
			parts, ms := 0.0, 0.0
			for _, b := range w.PartBytes {
				parts += b
			}
			for _, l := range w.Layers {
				ms += l.AtLeastMS
			}
			if d := parts / w.Bytes; !(d > 0.999 && d < 1.001) {
				t.Errorf("%s, %s: the parts have %g of all bytes", precision, w.Name, d)
			}
			if d := ms / w.AtLeastMS; !(d > 0.999 && d < 1.001) {
				t.Errorf("%s, %s: the layers have %g of the time", precision, w.Name, d)
			}
			// 6.7 GFLOP an image at 128×128, forward and backward.
			if g := w.FLOPs / 8 / 1e9; !(g > 6 && g < 7.5) {
				t.Errorf("%s, %s: %g GFLOP an image", precision, w.Name, g)
			}
			if i > 0 && !(w.Bytes < r.Ways[i-1].Bytes && w.ImagesPerSecond > r.Ways[i-1].ImagesPerSecond) {
				t.Errorf("%s: %s moves %g bytes, %s %g", precision, w.Name, w.Bytes, r.Ways[i-1].Name, r.Ways[i-1].Bytes)
			}
		}
		var text, document bytes.Buffer
		if err := r.Write(&text, false, true); err != nil || !strings.Contains(text.String(), "counted, not measured") || !strings.Contains(text.String(), "conv2_block1_1_conv") {
			t.Errorf("%v\n%s", err, text.String())
		}
		var back PlanReport
		if err := r.Write(&document, true, false); err != nil || json.Unmarshal(document.Bytes(), &back) != nil || back.Ways[0].Bytes != r.Ways[0].Bytes {
			t.Errorf("%v\n%s", err, document.String())
		}
	}
	for want, o := range map[string]PlanOptions{
		`unknown model "vgg"`:            {Model: "vgg"},
		`precision "int8" is not`:        {Model: "unet-128", Precision: "int8"},
		"batch -1":                       {Model: "unet-128", Batch: -1},
		"-3 TB/s, want positive numbers": {Model: "unet-128", TBPS: -3},
	} {
		if _, err := Plan(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}
