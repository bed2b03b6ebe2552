package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/metric"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/runs"
)

// TestIgnoredIsOneValue: metric is below data and cannot import it.
func TestIgnoredIsOneValue(t *testing.T) {
	if metric.Ignored != data.Ignored {
		t.Errorf("metric skips %d, data has %d", metric.Ignored, data.Ignored)
	}
}

// TestPixelLosses compares the losses of masks with values computed by hand. Ignored pixels count
// only in the denominator, which averageLoss replaces.
func TestPixelLosses(t *testing.T) {
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	near("equal logits", pixelCrossEntropy(make([]float32, 6), []float32{2, 0}), math.Log(3))
	near("a certain pixel", pixelCrossEntropy([]float32{0, 5, 3, 5}, []float32{1, 0}), (math.Log1p(math.Exp(-3))+math.Ln2)/2)
	near("an ignored pixel", pixelCrossEntropy([]float32{0, 5, 3, 5}, []float32{1, data.Ignored}), math.Log1p(math.Exp(-3))/2)
	near("an ignored logit", bceWithLogits([]float32{0, 9}, []float32{1, data.Ignored}), math.Ln2/2)
}

// TestScoresWithIgnoredPixels: a sample counts in the loss by its share of counted pixels, for any
// number of ranks, also if a rank has none, and the scores of its image are added up.
func TestScoresWithIgnoredPixels(t *testing.T) {
	const x = data.Ignored
	for name, c := range map[string]struct {
		logits  [][]float32
		targets [][]float32
		loss    float64 // of the last pixel alone
		iou     float64
	}{
		"one logit":  {[][]float32{{0, 0, 0, 0}, {0, 0, 0, 0}, {7, 7, 7, 2}}, [][]float32{{1, 0, 1, 0}, {x, x, x, x}, {x, x, x, 1}}, math.Log1p(math.Exp(-2)), 2. / 4},
		"two logits": {[][]float32{{0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}, {7, 7, 7, 0, 7, 7, 7, 2}}, [][]float32{{1, 0, 1, 0}, {x, x, x, x}, {x, x, x, 1}}, math.Log1p(math.Exp(-2)), (2./4 + 1./3) / 2},
	} {
		want := (4*math.Ln2 + c.loss) / 5
		for cut := range 4 {
			var sums []float64
			var last Scores
			for _, part := range [][2]int{{0, cut}, {cut, 3}} {
				s := newScores(model.Segmentation, len(c.logits[0]), 4)
				for i := part[0]; i < part[1]; i++ {
					if err := s.addSamples(model.Segmentation, c.logits[i], c.targets[i], 1, func(int) int { return i / 2 }); err != nil {
						t.Fatal(err)
					}
				}
				s.averageLoss()
				for i, v := range s.toSlice() {
					if sums == nil {
						sums = make([]float64, len(s.toSlice()))
					}
					sums[i] += v
				}
				last = s
			}
			s := last.withSums(sums)
			if math.Abs(s.Loss-want) > 1e-15 || math.Abs(s.IoU()-c.iou) > 1e-15 || s.Samples != 3 || s.Total() != 5 || s.checkPixelsCounted() != nil {
				t.Errorf("%s, cut at %d: loss %g, IoU %g of %d samples and %d pixels, want %g and %g", name, cut, s.Loss, s.IoU(), s.Samples, s.Total(), want, c.iou)
			}
			if cut == 0 && (len(s.images) != 2 || s.images[0].Total() != 4 || s.images[1].Total() != 1) {
				t.Errorf("%s: the images are %+v", name, s.images)
			}
		}
		ignored := newScores(model.Segmentation, len(c.logits[0]), 4)
		if err := ignored.addSamples(model.Segmentation, c.logits[1], c.targets[1], 1, func(int) int { return 0 }); err != nil {
			t.Fatal(err)
		}
		ignored.averageLoss()
		if err := ignored.checkPixelsCounted(); ignored.Loss != 0 || err == nil || !strings.Contains(err.Error(), "every pixel of the masks") {
			t.Errorf("%s: only ignored pixels have the loss %g, error %v", name, ignored.Loss, err)
		}
	}
}

// threeLogits is a network with three logits per pixel. It learns the second one; the image is the
// first and the third, which never exceeds the first.
func threeLogits(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
	x := g.ReLU(g.Conv("conv", image, nn.Convolution{Out: 4, Kernel: []int{3}, Pad: []int{1}, Bias: true}))
	z := g.Conv("head", x, nn.Convolution{Out: 1, Kernel: []int{1}, Bias: true})
	g.SetLoss(g.BCEWithLogits(z, g.Inputs()[1].Node))
	return g.Concat(g.Concat(image, z), image)
}

// tiled returns a config with 5 held-out images of 4 tiles, and its samples.
func tiled(t *testing.T) (Config, *Samples) {
	t.Helper()
	cfg := tiny()
	cfg.Data.Tile, cfg.Epochs = 8, 2
	samples, err := openSamplesSilently(t.Context(), cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	samples.ClassNames = []string{"background", "cell", "nucleus"}
	return cfg, &samples
}

// readImages returns the rows of images.csv.
func readImages(t *testing.T, dir string) []runs.NamedScores {
	t.Helper()
	images, problems, err := runs.ReadImages(dir)
	if err != nil || problems != nil {
		t.Fatalf("read images: %v, %v", problems, err)
	}
	return images
}

// TestClassesAreRecorded: the records have the scores of each class and each image, for any number of
// workers and after a resumption, and say that a class is absent.
func TestClassesAreRecorded(t *testing.T) {
	t.Parallel()
	cfg, samples := tiled(t)
	cfg.Optimizer.LearningRate = 1e-12 // weights that stay
	var wantClasses []runs.ClassScores
	var wantImages []runs.NamedScores
	for _, workers := range []int{1, 2} {
		var log []string
		o := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run"), Build: threeLogits, Samples: samples, Log: func(line string) { log = append(log, line) }}
		short := cfg
		short.Epochs = 1
		if _, err := trainAll(t, short, workers, o); err != nil {
			t.Fatal(err)
		}
		o.Resume = true
		if _, err := trainAll(t, cfg, workers, o); err != nil {
			t.Fatal(err)
		}
		run, err := runs.Read(o.Dir)
		if err != nil || len(run.Problems) > 0 {
			t.Fatal(err, run.Problems)
		}
		images := readImages(t, o.Dir)
		if workers == 1 {
			wantClasses, wantImages = run.Classes, images
		}
		if len(run.Classes) != 6 || fmt.Sprint(run.Classes) != fmt.Sprint(wantClasses) || !reflect.DeepEqual(images, wantImages) {
			t.Errorf("%d workers have\n%v\n%v\none has\n%v\n%v", workers, run.Classes, images, wantClasses, wantImages)
		}
		background, cell, nucleus := run.Classes[3], run.Classes[4], run.Classes[5]
		e, test := run.Epochs[1], run.Info.Test
		if mean := (background.IoU + cell.IoU) / 2; background.Name != "background" || background.Epoch != 2 || !math.IsNaN(nucleus.IoU) || mean != e.IoU || mean != test.IoU || !(test.IoUConstant < 0.5) {
			t.Errorf("%d workers: the mean of %v is not %g and %g, constant %g", workers, run.Classes[3:], e.IoU, test.IoU, test.IoUConstant)
		}
		if pixels := background.Pixels + cell.Pixels; pixels != 5*16*16 || len(test.Classes) != 3 || test.Classes[1] != cell.NamedScores {
			t.Errorf("%d workers: %d pixels, run.json has %v", workers, pixels, test.Classes)
		}
		for i, image := range images {
			if image.Name != samples.TestImages[i] || image.Pixels != 16*16 || !(image.IoU > 0) || !(image.Dice > image.IoU) {
				t.Errorf("%d workers: image %d is %+v", workers, i, image)
			}
		}
		if !slices.Equal(run.Info.Notes, []string{"no pixel of the held-out masks belongs to nucleus: left out of the mean IoU and Dice"}) {
			t.Errorf("notes are %q", run.Info.Notes)
		}
		if want := fmt.Sprintf("mean IoU %.4f (background %.4f, cell %.4f, nucleus –), lr", e.IoU, background.IoU, cell.IoU); !strings.Contains(strings.Join(log, "\n"), want) {
			t.Errorf("the log lacks %q:\n%s", want, strings.Join(log, "\n"))
		}
		events, err := filepath.Glob(filepath.Join(o.Dir, "events.*"))
		if err != nil || len(events) != 2 {
			t.Fatal(events, err)
		}
		text, err := os.ReadFile(events[1])
		if err != nil || !strings.Contains(string(text), "IoU/cell") || strings.Contains(string(text), "IoU/nucleus") {
			t.Errorf("events, %v: %q", err, text)
		}
	}
}

// TestValidationPart: with three parts of the data, the log says that the epochs are scored on the
// validation part.
func TestValidationPart(t *testing.T) {
	cfg := tiny()
	cfg.Data.ValidationImages, cfg.Epochs = 3, 1
	var log []string
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Log: func(line string) { log = append(log, line) }}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log[0], "14 training samples, 3 for validation; untrained") {
		t.Errorf("the log begins with %q", log[0])
	}
}

// TestMissingClassesFile: a resumed run does not begin a second record without the rows of earlier
// epochs.
func TestMissingClassesFile(t *testing.T) {
	t.Parallel()
	cfg, samples := tiled(t)
	o := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run"), Build: threeLogits, Samples: samples}
	if _, err := trainAll(t, cfg, 1, o); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.Dir, "classes.csv")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs, o.Resume = 3, true
	_, err := trainAll(t, cfg, 1, o)
	wantError(t, err, path+" is missing")
}

// TestHeldOutPixelsCountOnce: tiles of images of several sizes overlap, but each pixel counts once, for
// any number of workers.
func TestHeldOutPixelsCountOnce(t *testing.T) {
	t.Parallel()
	cfg := tiny()
	cfg.Model.Norm = "none" // without statistics of batches, which depend on the number of workers
	cfg.Epochs, cfg.Optimizer.LearningRate = 1, 1e-12
	cfg.Data = DataConfig{
		Kind: data.KindPairs, Path: filepath.Join(t.TempDir(), "cells"), Tile: 16, TestImages: 4, DataSeed: 1,
		MaskValues: map[int]string{0: "background", 1: "cell", 2: data.ClassIgnore, 3: "bacterium"},
	}
	if err := data.WriteCellClasses(t.Context(), cfg.Data.Path, data.CellClassesOptions{Count: 12, Sizes: [][2]int{{20, 44}, {16, 16}, {32, 18}}, Classes: 4}); err != nil {
		t.Fatal(err)
	}
	var want runs.Epoch
	var wantImages []runs.NamedScores
	for _, workers := range []int{1, 3} {
		o := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run")}
		res, err := trainAll(t, cfg, workers, o)
		if err != nil {
			t.Fatal(err)
		}
		got, images := res[0].Epochs[0], readImages(t, o.Dir)
		if workers == 1 {
			want, wantImages = got, images
		}
		if got.IoU != want.IoU || math.Abs(got.ValLoss-want.ValLoss) > 1e-12 || !reflect.DeepEqual(images, wantImages) {
			t.Errorf("%d workers: IoU %g, loss %g, images %v; one: %g, %g, %v", workers, got.IoU, got.ValLoss, images, want.IoU, want.ValLoss, wantImages)
		}
		inImages, inClasses := int64(0), int64(0)
		for _, s := range images {
			inImages += s.Pixels
		}
		for _, s := range res[0].Test.Classes {
			inClasses += s.Pixels
		}
		if s := countMaskPixels(t, cfg.Data.Path, images, 2); inImages != s || inClasses != s {
			t.Errorf("%d workers: %d pixels in images and %d in classes, want the %d that are not ignored", workers, inImages, inClasses, s)
		}
	}
}

// countMaskPixels returns the number of pixels in the masks of the given images with values other than
// ignored.
func countMaskPixels(t *testing.T, dir string, images []runs.NamedScores, ignored uint8) (n int64) {
	t.Helper()
	for _, s := range images {
		f, err := os.Open(filepath.Join(dir, "label", s.Name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		mask, err := png.Decode(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		for _, v := range mask.(*image.Gray).Pix {
			if v != ignored {
				n++
			}
		}
	}
	return n
}

// TestImagesOfOneLogit: the counts of all tiles of an image give its scores. A run with one logit
// per pixel has no classes.csv.
func TestImagesOfOneLogit(t *testing.T) {
	t.Parallel()
	cfg, samples := tiled(t)
	samples.TestImages = nil // as samples of a notebook may
	o := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run"), Samples: samples}
	res, err := trainAll(t, cfg, 3, o)
	if err != nil {
		t.Fatal(err)
	}
	images := readImages(t, o.Dir)
	if len(images) != 5 || !strings.HasSuffix(images[1].Name, "tile row 0, column 0") {
		t.Errorf("images are %v", images)
	}
	p, err := OpenPredictor(t.Context(), o.Dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := p.Score(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range s.images {
		if one.IoU() != images[i].IoU || one.Dice() != images[i].Dice || one.Total() != images[i].Pixels {
			t.Errorf("image %d is %+v, but %g and %g from the checkpoint", i, images[i], one.IoU(), one.Dice())
		}
	}
	text, err := json.Marshal(res[0].Test)
	if _, serr := os.Stat(filepath.Join(o.Dir, "classes.csv")); err != nil || !os.IsNotExist(serr) || strings.Contains(string(text), "classes") {
		t.Errorf("the run has classes: %s, %v, %v", text, err, serr)
	}
}

// TestTwoClassesWithSoftmax: the log says why IoU is a mean although there are two classes.
func TestTwoClassesWithSoftmax(t *testing.T) {
	var log []string
	tr := &Trainer{options: WorkerOptions{Log: func(line string) { log = append(log, line) }}, group: collective.InProcess(1)[0]}
	r := &runFiles{t: tr}
	two := metric.NewConfusion(2)
	two.Counts = []int64{1, 0, 0, 1}
	if err := r.logClassScoreNote(Scores{Classes: two}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"note: two classes and ignored pixels are learned with one logit per class (softmax), so IoU and Dice are the means over 0 and 1"}; !slices.Equal(log, want) {
		t.Errorf("the log has %q, want %q", log, want)
	}
}
