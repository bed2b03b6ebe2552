package train

import (
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/runs"
)

// classPairs writes images in RGB of two sizes, with masks of four classes, to a new folder.
func classPairs(t *testing.T, count int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	err := data.WriteCellClasses(t.Context(), dir, data.CellClassesOptions{Count: count, Classes: 4, RGB: true, Sizes: [][2]int{{32, 32}, {40, 56}}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// withClasses returns a config for classPairs.
func withClasses(dir string) Config {
	c := tiny()
	c.Data = DataConfig{Kind: data.KindPairs, Path: dir, TestImages: 3, Tile: 16, MaskValues: map[int]string{0: "background", 1: "cell", 2: "nucleus", 3: "bacterium"}}
	return c
}

// TestClassesAndFinalTest trains on images in RGB of two sizes with four classes in three parts, with 1
// and 2 workers. run.json has what a reader of the run needs.
func TestClassesAndFinalTest(t *testing.T) {
	dir := classPairs(t, 14)
	var finals []runs.Test
	for _, workers := range []int{1, 2} {
		c := withClasses(dir)
		c.Data.ValidationImages = 3
		c.Epochs = 2
		folder := filepath.Join(t.TempDir(), "run")
		_, err := trainAll(t, c, workers, WorkerOptions{Dir: folder})
		if err != nil {
			t.Fatal(err)
		}
		run, err := runs.Read(folder)
		if err != nil {
			t.Fatal(err)
		}
		recorded, err := ConfigOf(run.Info)
		if err != nil {
			t.Fatal(err)
		}
		if d := recorded.Data; d.Reading != data.ReadingValues || d.InputChannels != 3 || recorded.Model.Classes != 4 || d.Foreground != "" {
			t.Errorf("run.json has reading %d, %d channels, %d classes and foreground %q", d.Reading, d.InputChannels, recorded.Model.Classes, d.Foreground)
		}
		final := run.Info.Final
		if final == nil || final.Samples != 3 || len(final.Classes) != 4 || !(final.IoU > 0) || !math.IsNaN(final.IoUUntrained) {
			t.Fatalf("final test %+v", final)
		}
		finals = append(finals, *final)
		if run.Info.Test.Samples <= 3 || run.Info.Test.IoU == final.IoU {
			t.Errorf("the validation part has %d samples and the IoU %g, the test part %g", run.Info.Test.Samples, run.Info.Test.IoU, final.IoU)
		}
		total := int64(0)
		for _, class := range final.Classes {
			total += class.Pixels
		}
		if n := total - 3*32*32; n%(40*56-32*32) != 0 || n < 0 || n > 3*(40*56-32*32) {
			t.Errorf("the test images have %d pixels", total)
		}
		log, err := os.ReadFile(filepath.Join(folder, "out.log"))
		if err != nil || !strings.Contains(string(log), "test on 3 complete images: ") {
			t.Errorf("the log does not have the test: %v\n%s", err, log)
		}
		if net, err := c.Network(t.Context()); err != nil || net.Parameters() != run.Info.Parameters {
			t.Errorf("the config's network: %v, want %d parameters", err, run.Info.Parameters)
		}
		// The run's network needs no data.
		if err := os.Rename(dir, dir+"-away"); err != nil {
			t.Fatal(err)
		}
		trained, err := ReadTrained(t.Context(), folder)
		if err == nil {
			var shape []int
			if net, err2 := trained.Network(t.Context()); err2 == nil {
				shape = net.InputShape()
			} else {
				err = err2
			}
			if len(shape) != 3 || shape[0] != 3 {
				t.Errorf("without data, the network has input %v", shape)
			}
		}
		if err != nil {
			t.Error(err)
		}
		if err := os.Rename(dir+"-away", dir); err != nil {
			t.Fatal(err)
		}
	}
	if finals[0].Samples != finals[1].Samples || finals[0].Classes[0].Pixels != finals[1].Classes[0].Pixels {
		t.Errorf("1 and 2 workers test on other pixels: %+v and %+v", finals[0], finals[1])
	}
}

// TestClassesRefused: errors before the first step.
func TestClassesRefused(t *testing.T) {
	dir := classPairs(t, 6)
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"another number of classes", func(c *Config) { c.Model.Classes = 3 }, []string{"model.classes is 3, but data.mask_values names 4 classes (background, cell, nucleus, bacterium): leave model.classes out"}},
		{"classes for two", func(c *Config) {
			c.Model.Classes = 3
			c.Data.MaskValues = nil
		}, []string{"model.classes is 3, but the masks have two classes"}},
		{"a tile that the depth does not divide", func(c *Config) { c.Data.Tile = 18 }, []string{"data.tile is 18, but the network needs a multiple of 4: set data.tile to 20"}},
		{"an unknown value", func(c *Config) { delete(c.Data.MaskValues, 3) }, []string{"which data.mask_values", "does not name"}},
		{"gray network", func(c *Config) { c.Data.InputChannels = 1 }, []string{"data.input_channels is 1, but image ", " has colors"}},
		{"weights of classes", func(c *Config) { c.Model.ClassWeights = []float64{1, 2} }, []string{"class_weights"}},
		{"foreground", func(c *Config) { c.Data.Foreground = "white" }, []string{"data.foreground is white, but data.mask_values is set"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := withClasses(dir)
			tt.change(&c)
			_, err := trainAll(t, c, 1, WorkerOptions{})
			wantError(t, err, tt.want...)
		})
	}
	// GPUs are refused before the start, also on machines without one.
	c := withClasses(dir)
	c.Engine.Device = "cuda"
	err := Worker{Own: &c}.Check(t.Context(), 1, io.Discard)
	wantError(t, err, "cuda", "cpu")
}

// TestOptionalKeysDiffer: a setting that was not set before, or is no longer set, is a difference.
func TestOptionalKeysDiffer(t *testing.T) {
	c := withClasses("d")
	document := func(change func(*Config)) map[string]any {
		c := c
		c.Data.MaskValues = maps.Clone(c.Data.MaskValues)
		change(&c)
		doc, err := c.jsonDocument()
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	before := document(func(*Config) {})
	for _, tt := range []struct {
		change func(*Config)
		want   []Difference
	}{
		{func(*Config) {}, nil},
		{func(c *Config) { c.Data.Augment.Gamma = 0.5 }, []Difference{{"data.augment.gamma", "not set", 0.5}}},
		{func(c *Config) { c.Data.MaskValues = nil }, []Difference{{"data.foreground", "", "white"}, {"data.mask_values", before["data"].(map[string]any)["mask_values"], "not set"}}},
		{func(c *Config) { c.Data.MaskValues[9] = "ignore" }, []Difference{{"data.mask_values", before["data"].(map[string]any)["mask_values"], map[string]any{"0": "background", "1": "cell", "2": "nucleus", "3": "bacterium", "9": "ignore"}}}},
		{func(c *Config) { c.Loader.Kind = "inmem" }, []Difference{{"loader.kind", "not set", "inmem"}}},
		// Those that a run sets, and those that may change.
		{func(c *Config) { c.Data.InputChannels, c.TimeoutJoin, c.Data.Stage = 3, "5s", "/dev/shm" }, nil},
	} {
		if got := Differences(before, document(tt.change)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("got %+v, want %+v", got, tt.want)
		}
	}
	// An earlier version did not have keys that are always recorded.
	now := document(func(*Config) {})
	delete(before, "recompute")
	delete(before["data"].(map[string]any), "reading")
	if got := Differences(before, now); got != nil {
		t.Errorf("got %+v, want none", got)
	}
}

// TestSetMaskValues: values that are set replace those of the config, and only in the copy.
func TestSetMaskValues(t *testing.T) {
	c := withClasses("d")
	changed, err := c.With("data.mask_values={0: background, 9: cell}")
	if err != nil {
		t.Fatal(err)
	}
	if got := changed.Data.MaskClasses(); !slices.Equal(got, []string{"background", "cell"}) || len(c.Data.MaskValues) != 4 {
		t.Errorf("the copy has the classes %q, the config %v", got, c.Data.MaskValues)
	}
	if none, err := changed.With("data.mask_values={}"); err != nil || len(none.Data.MaskValues) != 0 {
		t.Errorf("%v, %v: want no values", none.Data.MaskValues, err)
	}
}

// TestEarlierReading: a run whose run.json has no data.reading is resumed by the earlier rules, and a new
// run of the same data in 16 bits is refused.
func TestEarlierReading(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"1.png", "2.png", "3.png"} {
		img, mask := image.NewGray16(image.Rect(0, 0, 16, 16)), image.NewGray(image.Rect(0, 0, 16, 16))
		for k := range 256 {
			img.SetGray16(k%16, k/16, color.Gray16{Y: uint16(k*200 + 37*i)})
			mask.SetGray(k%16, k/16, color.Gray{Y: uint8(255 * (k / 128))})
		}
		for folder, m := range map[string]image.Image{"image": img, "label": mask} {
			if err := os.MkdirAll(filepath.Join(dir, folder), 0o777); err != nil {
				t.Fatal(err)
			}
			f, err := os.Create(filepath.Join(dir, folder, name))
			if err == nil {
				err = png.Encode(f, m)
			}
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	c := tiny()
	c.Epochs = 1
	c.Batch = 1
	c.Data = DataConfig{Kind: data.KindPairs, Path: dir, TestImages: 1}
	_, err := trainAll(t, c, 1, WorkerOptions{})
	wantError(t, err, "have 16 bits per value, from 0 to 51074: set data.range")

	old := c
	old.Data.Reading = data.ReadingGray
	folder := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, old, 1, WorkerOptions{Dir: folder}); err != nil {
		t.Fatal(err)
	}
	// As an earlier version has recorded it.
	path := filepath.Join(folder, "run.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	delete(doc["config"].(map[string]any)["data"].(map[string]any), "reading")
	if text, err = json.Marshal(doc); err == nil {
		err = os.WriteFile(path, text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Epochs = 2
	if _, err := trainAll(t, c, 1, WorkerOptions{Dir: folder, Resume: true}); err != nil {
		t.Fatal(err)
	}
	run, err := runs.Read(folder)
	if err != nil || len(run.Epochs) != 2 {
		t.Fatalf("%d epochs, %v", len(run.Epochs), err)
	}
	p, err := OpenPredictor(t.Context(), folder, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if s, err := p.Score(t.Context()); err != nil || s.IoU() != run.Info.Test.IoU {
		t.Errorf("the run has the IoU %g, its network %g (%v)", run.Info.Test.IoU, s.IoU(), err)
	}
}
