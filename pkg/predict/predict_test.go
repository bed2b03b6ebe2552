package predict

import (
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/train"
)

// maxDifference returns the largest difference between two slices.
func maxDifference(a, b []float32) float64 {
	d := 0.0
	for i, v := range a {
		d = max(d, math.Abs(float64(v)-float64(b[i])))
	}
	return d
}

// smallWindows limits the memory of p to that of a 60×60 window, so that larger images are cut.
func smallWindows(t *testing.T, p *Predictor) {
	t.Helper()
	program, _, err := p.trained.Program(1, []int{1, 60, 60}, []int{1, 60, 60})
	if err != nil {
		t.Fatal(err)
	}
	m := program.Memory()
	p.MemoryBytes = int64(m.Activations + m.Inputs + m.Parameters + m.States)
}

// TestWindowsEqualWholeImage: windows with a halo give the logits of the whole image, for a size
// that is not a multiple of the network's step; a halo that is one step smaller does not.
func TestWindowsEqualWholeImage(t *testing.T) {
	// After 8 epochs the network reads pixels that far away.
	p := open(t, trainRun(t, func(c *train.Config) { c.Epochs = 8 }))
	img := noise(131, 150)
	whole, err := p.Image(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	if want := (plan.ReceptiveField{Step: 4, Reach: 22}); !p.network.Bounded || *p.network.Field != want {
		t.Fatalf("field %+v, want %+v", *p.network.Field, want)
	}
	smallWindows(t, p)
	windows := 0
	p.Progress = func(done, total int) {
		if windows++; done != windows || total < 9 {
			t.Errorf("progress is %d of %d after %d windows", done, total, windows)
		}
	}
	cut, err := p.Image(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	if d := maxDifference(whole.Logits, cut.Logits); d > 1e-5 || windows < 9 {
		t.Errorf("%d windows differ from the whole image by %g, want at least 9 that do not", windows, d)
	}
	p.network.Field.Reach -= p.network.Field.Step
	p.Progress = nil
	narrow, err := p.Image(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	if d := maxDifference(whole.Logits, narrow.Logits); d < 1e-3 {
		t.Errorf("with a halo of %d, the logits differ by %g, so that the halo is wider than necessary", p.network.Field.Halo(), d)
	}
}

// TestFlips: the mean over the mirror images is the same for a mirrored image.
func TestFlips(t *testing.T) {
	p := open(t, trainRun(t, nil))
	p.Flips = true
	img := noise(40, 64)
	a, err := p.Image(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	flipped := noise(40, 64)
	for y := range 40 {
		for x := range 64 {
			flipped.Pix[y*64+x] = img.Pix[(39-y)*64+63-x]
		}
	}
	b, err := p.Image(t.Context(), flipped)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(b.Logits)
	if d := maxDifference(a.Logits, b.Logits); d > 1e-5 {
		t.Errorf("logits differ by %g", d)
	}
	p.Flips = false
	if once, err := p.Image(t.Context(), img); err != nil || maxDifference(a.Logits, once.Logits) < 1e-4 {
		t.Errorf("the flips change nothing (error %v)", err)
	}
}

// TestWholeImageNeeded: a network whose field is not bounded, here because it pads by a layer of its
// own, is applied to whole images only, of any size.
func TestWholeImageNeeded(t *testing.T) {
	p := open(t, trainRun(t, func(c *train.Config) {
		shape := []int{1, 16, 16}
		c.Model = model.Config{Kind: model.KindSpec, Spec: &model.Spec{
			Name: "padded", Task: model.Segmentation, Image: shape, Target: shape, Layers: []model.SpecLayer{
				{Kind: "ZeroPad", Pad: model.Sizes{1}}, {Name: "a", Kind: "Conv", Out: 1, Kernel: model.Sizes{3}},
			},
		}}
	}))
	if r, err := p.Image(t.Context(), noise(131, 150)); err != nil || p.network.Bounded || len(r.Logits) != 131*150 {
		t.Fatalf("error %v, bounded field %t", err, p.network.Bounded)
	}
	smallWindows(t, p)
	if _, err := p.Image(t.Context(), noise(131, 150)); err == nil || !strings.Contains(err.Error(), "a window of 131×150 pixels, the smallest for this network, needs ") {
		t.Errorf("got error %v, want that the whole image needs more memory", err)
	}
}
