package predict

import (
	"context"
	"errors"
	"image"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// writeImages writes images to a new folder and returns it.
func writeImages(t *testing.T, images map[string]image.Image) string {
	t.Helper()
	dir := t.TempDir()
	for name, m := range images {
		if err := data.WritePicture(t.Context(), filepath.Join(dir, name), m); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestObjects(t *testing.T) {
	r := &Prediction{Height: 4, Width: 5, Logits: []float32{
		1, 0, 0, 0, 2,
		0, 3, 0, 0, 2,
		0, 0, 0, 0, 0,
		-1, 1, 1, 1, 0,
	}}
	want := []Object{{1, 2, 0.5, 0.5}, {1, 2, 4, 0.5}, {1, 3, 2, 3}}
	if got := r.Objects(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// Three classes: neighbors of another class are other objects.
	r = &Prediction{
		Height: 2, Width: 3, config: data.Config{MaskValues: map[int]string{0: "background", 7: "cell", 9: "nucleus"}},
		Logits: []float32{0, 0, 5, 0, 0, 0 /* cell */, 1, 1, 0, 2, 1, -1 /* nucleus */, 0, 2, 0, 1, 0, -1},
	}
	if got, want := r.Objects(), []Object{{1, 3, 1. / 3, 2. / 3}, {2, 1, 1, 0}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if want := []uint8{7, 9, 0, 7, 7, 0}; !slices.Equal(r.Mask().Pix, want) {
		t.Errorf("mask %v, want %v", r.Mask().Pix, want)
	}
	for i, p := range r.Probabilities()[:6] {
		if sum := p + r.Probabilities()[6+i] + r.Probabilities()[12+i]; sum < 0.99999 || sum > 1.00001 {
			t.Errorf("the probabilities of pixel %d add up to %g", i, sum)
		}
	}
}

// TestFiles: masks are labels of the run's data, so that they have an IoU of 1 with themselves, also
// if black is the foreground.
func TestFiles(t *testing.T) {
	for _, foreground := range []string{"white", "black"} {
		p := open(t, trainRun(t, func(c *train.Config) { c.Epochs = 8 }))
		p.config.Foreground = foreground
		in := writeImages(t, map[string]image.Image{"a.png": noise(21, 34), "b.tif": noise(16, 16)})
		out := filepath.Join(t.TempDir(), "new", "out")
		paths := []string{filepath.Join(in, "a.png"), filepath.Join(in, "b.tif")}
		if _, err := p.Files(t.Context(), paths, FileOptions{Out: out, Formats: Formats()}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"masks/a.npy", "masks/b.tif", "probabilities/a.tif", "probabilities/b.npy", "overlays/b.png"} {
			if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
		r, err := p.File(t.Context(), paths[0])
		if err != nil {
			t.Fatal(err)
		}
		if background := p.config.MaskLevels()[0]; slices.Min(r.Logits) >= 0 || slices.Max(r.Logits) <= 0 || r.Mask().Pix[slices.Index(r.Logits, slices.Min(r.Logits))] != background {
			t.Errorf("logits from %g to %g: want some of both signs, and masks of %s", slices.Min(r.Logits), slices.Max(r.Logits), foreground)
		}
		png, err := data.ReadPicture(t.Context(), filepath.Join(out, "probabilities", "a.png"))
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range r.Probabilities() {
			if got := png.At(i%34, i/34).(color.Gray16).Y; max(float64(got)/65535-float64(v), float64(v)-float64(got)/65535) > 1e-5 {
				t.Fatalf("pixel %d has probability %d of 65535, want %g", i, got, v)
			}
		}
		if m, err := r.Picture(); err != nil || m.Bounds().Dx() < 2*34 {
			t.Errorf("picture %v, %v", m, err)
		}
		labels := writeImages(t, map[string]image.Image{"a.png": r.Mask()})
		s, err := p.Files(t.Context(), paths[:1], FileOptions{Labels: labels})
		if err != nil || s.Samples != 1 || s.FP+s.FN != 0 || s.TP == 0 {
			t.Errorf("foreground %s: %+v, %v, want an IoU of 1", foreground, s, err)
		}
		table, err := os.ReadFile(filepath.Join(out, "objects.csv"))
		if err != nil || !strings.HasPrefix(string(table), "image,class,object,area_pixels,center_x,center_y\na.png,foreground,1,") {
			t.Errorf("objects.csv is %.100q, %v", table, err)
		}
	}
}

// TestBadInput: each error names the file and says what to do.
func TestBadInput(t *testing.T) {
	p := open(t, trainRun(t, nil))
	colored := image.NewRGBA(image.Rect(0, 0, 16, 16))
	for i := range 256 {
		colored.Set(i%16, i/16, color.RGBA{200, 0, 30, 255})
	}
	in := writeImages(t, map[string]image.Image{"a.png": noise(16, 16), "colored.png": colored, "small.png": noise(16, 3), "large.png": noise(64, 64)})
	text, err := os.ReadFile(filepath.Join(in, "large.png"))
	if err == nil {
		err = os.WriteFile(filepath.Join(in, "truncated.png"), text[:len(text)/2], 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	labels := writeImages(t, map[string]image.Image{"a.png": noise(16, 17)})
	out := t.TempDir()
	for _, c := range []struct {
		names []string
		o     FileOptions
		want  string
	}{
		{[]string{"colored.png"}, FileOptions{Out: out}, "colored.png: the image has colors, but the network was trained on gray images: save it as a gray image"},
		{[]string{"small.png"}, FileOptions{Out: out}, "small.png: the image has 16×3 pixels (height×width), but the network needs at least 4 in each dimension: use a larger image"},
		{[]string{"a.png", "truncated.png"}, FileOptions{Out: out}, "truncated.png: file is not a valid PNG: copy or save it again: "},
		{[]string{"a.png", "missing.png"}, FileOptions{Out: out}, "has the predictions of 1 image before it, without objects.csv"},
		{[]string{"a.png", "a.png"}, FileOptions{Out: out}, "have the same name"},
		{[]string{"a.png"}, FileOptions{Out: filepath.Join(in, "a.png")}, "a.png is a file: choose a folder"},
		{[]string{"a.png"}, FileOptions{Out: out, Formats: []string{"jpg"}}, `unknown format "jpg": use png, tif or npy`},
		{[]string{"a.png"}, FileOptions{Labels: labels}, "is 16×17, but the image is 16×16 (height×width): make them equal"},
		{[]string{"large.png"}, FileOptions{Labels: labels}, "large.png has no mask"},
	} {
		var paths []string
		for _, name := range c.names {
			paths = append(paths, filepath.Join(in, name))
		}
		if _, err := p.Files(t.Context(), paths, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got error %v, want %q", c.names, err, c.want)
		}
	}
}

// TestCanceled: no file is written after ctx was canceled, and the table of an earlier call is gone.
func TestCanceled(t *testing.T) {
	p := open(t, trainRun(t, nil))
	in := writeImages(t, map[string]image.Image{"a.png": noise(16, 16), "b.png": noise(16, 16)})
	out := t.TempDir()
	if err := os.WriteFile(filepath.Join(out, "objects.csv"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := p.Files(ctx, []string{filepath.Join(in, "a.png"), filepath.Join(in, "b.png")}, FileOptions{Out: out, Progress: func(image, window, _ int) {
		if image == 1 && window == 1 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	var got []string
	for _, what := range []string{"*.csv", "masks/*", "probabilities/*", "overlays/*"} {
		files, err := filepath.Glob(filepath.Join(out, what))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			got = append(got, filepath.Base(f))
		}
	}
	if want := []string{"a.png", "a.png", "a.png"}; !slices.Equal(got, want) {
		t.Errorf("got files %v, want %v", got, want)
	}
}

// TestNoCheckpoint: a run without a checkpoint is named.
func TestNoCheckpoint(t *testing.T) {
	dir := trainRun(t, nil)
	if err := os.RemoveAll(filepath.Join(dir, "checkpoints")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir); !errors.Is(err, train.ErrNoCheckpoint) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got error %v, want that %s has no checkpoint", err, dir)
	}
}

// TestHeldOut: as trained, the scores are those of run.json, which are of tiles.
func TestHeldOut(t *testing.T) {
	p := open(t, trainRun(t, func(c *train.Config) {
		c.Data.Count, c.Data.Height, c.Data.Width, c.Data.TestImages, c.Data.Tile, c.Epochs = 6, 32, 32, 2, 16, 8
	}))
	s, err := p.HeldOut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := p.trained.Test; s.AsTrained.IoU() != want.IoU || s.AsTrained.Dice() != want.Dice || s.AsTrained.Samples != 8 || s.Tile != 16 {
		t.Errorf("got %+v, want IoU %g and Dice %g of 8 tiles", s.AsTrained, want.IoU, want.Dice)
	}
	if s.Whole.Samples != 2 || s.Whole.Total() != 2*32*32 || s.Whole.IoU() == s.AsTrained.IoU() {
		t.Errorf("got %+v of whole images, want 2 images with another IoU than %g", s.Whole, s.AsTrained.IoU())
	}
}

// TestClassification: a run that learned classification gives probabilities of its classes.
func TestClassification(t *testing.T) {
	p := open(t, trainRun(t, func(c *train.Config) {
		c.Model = train.ModelConfig{Kind: "resnetv2", Base: 4, Blocks: []int{2}, Classes: 3, Stem: "cifar"}
		c.Data = data.Config{Kind: data.KindShapes, Count: 12, Classes: 3, Edge: 16, TestImages: 4}
	}))
	in := writeImages(t, map[string]image.Image{"a.png": noise(16, 16), "b.png": noise(16, 16)})
	out := t.TempDir()
	if _, err := p.Files(t.Context(), []string{filepath.Join(in, "a.png"), filepath.Join(in, "b.png")}, FileOptions{Out: out}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "probabilities.csv"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) != 3 || !strings.HasPrefix(lines[0], "image,class,disc,") || lines[1][1:] != lines[2][1:] {
		t.Fatalf("probabilities.csv is %q, %v", text, err)
	}
	r, err := p.Image(t.Context(), noise(16, 16))
	if err != nil {
		t.Fatal(err)
	}
	sum := float32(0)
	for _, v := range r.Probabilities() {
		sum += v
	}
	if len(r.Logits) != 3 || sum < 0.9999 || sum > 1.0001 || !strings.HasPrefix(lines[1], "a.png,"+p.classes[r.Class()]+",") {
		t.Errorf("probabilities %v of sum %g, class %d of %v", r.Probabilities(), sum, r.Class(), p.classes)
	}
	if _, err := p.HeldOut(t.Context()); err == nil || !strings.Contains(err.Error(), "classification") {
		t.Errorf("got error %v, want that the task is classification", err)
	}
}
