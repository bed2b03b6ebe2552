package train

import (
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/train/internal/checkpoint"
	"lockstep/pkg/weights"
)

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// TestResumeRefused: a resumed run must have the same config and workers, but may have more
// epochs.
func TestResumeRefused(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 2
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		workers int
		change  func(*Config)
		want    string
	}{
		{"workers", 1, func(*Config) {}, "the run was started with 2 workers, not with 1: use the same number, or another run folder"},
		{"network", 2, func(c *Config) { c.Model.Base = 6 }, "the run was started with model.base 4, not 6: use the config of the run (only name, epochs, checkpoint, data.path, data.test_path, data.stage, timeout_join, timeout_collective may change)"},
		{"batch", 2, func(c *Config) { c.Batch = 3 }, "the run was started with batch 2, not 3"},
		{"seed", 2, func(c *Config) { c.Seed = 2 }, "the run was started with seed 1, not 2"},
		{"data", 2, func(c *Config) { c.Data.Augment.Flip = false }, "the run was started with data.augment.flip true, not false"},
		{"optimiser", 2, func(c *Config) { c.Optimizer.Name = "sgd" }, "the run was started with optimizer.name adam, not sgd"},
		{"threads", 2, func(c *Config) { c.Engine.Threads = 2 }, "the run was started with engine.threads 1, not 2"},
		{"fewer epochs", 2, func(c *Config) { c.Epochs = 1 }, "the run has 2 epochs already, but epochs is 1: set epochs to at least 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := cfg
			c.Epochs = 3
			tt.change(&c)
			_, err := trainAll(t, c, tt.workers, WorkerOptions{Dir: dir, Resume: true})
			wantError(t, err, "resume "+dir, tt.want)
		})
	}
	after, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err != nil || string(after) != string(before) {
		t.Errorf("a refused resumption changed run.json (%v):\n%s", err, after)
	}
	cfg.Epochs, cfg.Checkpoint.Every, cfg.Name = 3, 2, "longer"
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: true}); err != nil {
		t.Fatal(err)
	}
	run, err := runs.Read(dir)
	if err != nil || len(run.Epochs) != 3 || run.Info.Config["epochs"] != 3.0 {
		t.Errorf("%v: %d epochs, config %v", err, len(run.Epochs), run.Info.Config)
	}
}

// TestForeignCheckpoint resumes from a checkpoint of another network, and from one whose
// metadata wrongly name this network.
func TestForeignCheckpoint(t *testing.T) {
	train := func(base int) (Config, string) {
		cfg := tiny()
		cfg.Epochs, cfg.Model.Base = 1, base
		dir := filepath.Join(t.TempDir(), "run")
		if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		cfg.Epochs = 2
		return cfg, dir
	}
	cfg, dir := train(4)
	_, other := train(6)
	path := filepath.Join(dir, checkpoint.FolderName, "epoch-0001.safetensors")
	own, err := weights.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := weights.Read(filepath.Join(other, checkpoint.FolderName, "epoch-0001.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	resume := func(f *weights.File, metadata map[string]string, want ...string) {
		t.Helper()
		if err := weights.Write(path, f.Tensors, metadata); err != nil {
			t.Fatal(err)
		}
		_, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Resume: true})
		wantError(t, err, append(want, "checkpoint "+path)...)
	}
	resume(foreign, foreign.Metadata, `got network "unet2d-6x2", want "unet2d-4x2": use the config that the checkpoint was trained with`)
	resume(foreign, own.Metadata, "values")
	short := *own
	short.Tensors = own.Tensors[1:]
	resume(&short, own.Metadata, "lacks "+own.Tensors[0].Name)
	resume(own, map[string]string{"model": "unet2d-4x2", "epoch": "one"}, `invalid epoch: strconv.Atoi: parsing "one"`)

	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	_, err = trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Resume: true})
	wantError(t, err, "resume "+dir, path)
}

func TestTooFewSamples(t *testing.T) {
	cfg := tiny()
	cfg.Data.Count, cfg.Data.TestImages = 4, 2
	_, err := trainAll(t, cfg, 3, WorkerOptions{})
	wantError(t, err, "load batches: got only 2 training samples for 3 workers", "use at most 2 workers")
	cfg.Data.DropLast = true
	_, err = trainAll(t, cfg, 2, WorkerOptions{}) // 2 samples, a global batch of 4: no step at all
	wantError(t, err, "2 samples do not fill one global batch of 4 (2 workers × 2), and drop_last omits incomplete batches", "drop_last: false")
}

// writeGrey writes an image with one gray level on the left and another on the right.
func writeGrey(t *testing.T, path string, size int, left, right uint8) {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, size, size))
	for y := range size {
		for x := range size {
			m.SetGray(x, y, color.Gray{Y: left})
			if x >= size*3/4 {
				m.SetGray(x, y, color.Gray{Y: right})
			}
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(f, m); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDoubtfulData: masks whose polarity seems wrong lead to a note. Masks without foreground
// and images smaller than a tile are errors.
func TestDoubtfulData(t *testing.T) {
	pairs := func(left, right uint8) Config {
		cfg := tiny()
		cfg.Epochs = 1
		cfg.Data.Kind, cfg.Data.Path, cfg.Data.TestImages = "pairs", t.TempDir(), 1
		for _, name := range []string{"1.png", "2.png", "3.png"} {
			writeGrey(t, filepath.Join(cfg.Data.Path, "image", name), 32, 50, 200)
			writeGrey(t, filepath.Join(cfg.Data.Path, "label", name), 32, left, right)
		}
		return cfg
	}
	var lines []string
	options := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run"), Log: func(line string) { lines = append(lines, line) }}
	if _, err := trainAll(t, pairs(255, 0), 1, options); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(options.Dir, "out.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{strings.Join(lines, "\n"), string(log)} {
		if want := "note: 75.0 % of the mask pixels of "; !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	_, err = trainAll(t, pairs(0, 1), 1, WorkerOptions{})
	wantError(t, err, "have no foreground pixel", "data.foreground")
	small := pairs(0, 255)
	small.Data.Tile = 64
	_, err = trainAll(t, small, 1, WorkerOptions{})
	wantError(t, err, "data.tile is 64, but image 1 has a side of 32 pixels: set data.tile to at most 32")
}
