package train

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/internal/gputest"
	"lockstep/pkg/model"
)

// simulatedGPU returns options with which all workers share a simulated GPU.
func simulatedGPU(t *testing.T, options WorkerOptions) WorkerOptions {
	t.Helper()
	options.Open = gputest.NewSharedOpener(t)
	return options
}

// onGPU returns a config for a simulated GPU, with the algorithms that cuDNN suggests first. A
// simulated GPU is slow, so that the network is smaller and half of the samples are left out.
func onGPU(c Config) Config {
	c.Engine.Device, c.Engine.Convolution = "cuda", "heuristic"
	c.Epochs = 2
	c.Model.Depth = 1
	c.Data.Count, c.Data.TestImages = 11, 2
	return c
}

// boxes is a data set of 8-bit volumes with masks.
type boxes struct {
	samples, edge int
	image, mask   []byte
}

func newBoxes(samples, edge int) *boxes {
	b := &boxes{samples: samples, edge: edge, image: make([]byte, samples*edge*edge*edge), mask: make([]byte, samples*edge*edge*edge)}
	r := rand.New(rand.NewPCG(5, 6))
	for i := range b.image {
		b.image[i], b.mask[i] = byte(r.IntN(256)), byte(r.IntN(2))
	}
	return b
}

func (b *boxes) Len() int                { return b.samples }
func (b *boxes) ImageShape() []int       { return []int{1, b.edge, b.edge, b.edge} }
func (b *boxes) TargetShape() []int      { return b.ImageShape() }
func (b *boxes) SampleName(i int) string { return fmt.Sprint("box ", i) }
func (b *boxes) Get(i int, image, target []float32) error {
	for k := range image {
		image[k], target[k] = float32(b.image[i*len(image)+k])/255, float32(b.mask[i*len(image)+k])
	}
	return nil
}

// TestTrainingSetOnTheGPU: training on a set in GPU memory gives the same bits as training on
// the loader's batches. The cases are masks, classes, and volumes of which an epoch uses
// several crops; every augmentation; accumulated gradients; two workers; and a run resumed
// within an epoch.
func TestTrainingSetOnTheGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	every := data.Augment{Flip: true, Rotate: true, Brightness: 0.2, Contrast: 0.3}
	pictures := onGPU(tiny())
	pictures.Data.Augment = every
	pictures.Data.Augment.Crop, pictures.Accumulate = 8, 2
	pictures.Engine.Precision = "bf16"

	labels := onGPU(classes())
	labels.Model = ModelConfig{Kind: model.KindResNet, Classes: 4, Base: 4, Blocks: []int{1, 1}, Stem: "cifar"}
	labels.Data.Augment, labels.Data.Augment.Crop = every, 8

	volumes := onGPU(tiny())
	volumes.Model = ModelConfig{Kind: "unet3d", Base: 4, Depth: 1}
	volumes.Data = DataConfig{Kind: data.KindFields, Count: 3, Edge: 8, TestImages: 1, Samples: 7, TestSamples: 2}
	volumes.Data.Augment = data.Augment{Flip: true, Rotate: true, Crop: 4}
	train, err := data.Repeat(newBoxes(3, 8), 7)
	if err != nil {
		t.Fatal(err)
	}
	test, err := data.Crops(newBoxes(1, 8), 4, 2, 1)
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name    string
		cfg     Config
		options WorkerOptions
		workers int
		mib     string
	}{
		{"pictures", pictures, WorkerOptions{}, 1, "9 samples"},
		{"pictures of two workers", pictures, WorkerOptions{}, 2, "9 samples"},
		{"classes", labels, WorkerOptions{}, 1, "9 samples"},
		{"volumes", volumes, WorkerOptions{Samples: &Samples{OpenedData: data.OpenedData{Train: train, Test: test}}}, 1, "7 samples, 0.0 MiB"},
	} {
		if underRace && c.workers == 1 { // two workers start all that one does
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			options := simulatedGPU(t, c.options)
			loaded, held := c.cfg, c.cfg
			loaded.Loader.DeviceMiB, held.Loader.Kind = 0, LoaderDevice
			var said []string
			want, got, parts := options, options, options
			want.Dir, got.Dir, parts.Dir = t.TempDir(), t.TempDir(), t.TempDir()
			got.Log = func(l string) { said = append(said, l) }
			if _, err := trainAll(t, loaded, c.workers, want); err != nil {
				t.Fatal(err)
			}
			if _, err := trainAll(t, held, c.workers, got); err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(said, "\n"); !strings.Contains(text, "the training set is in the memory of the GPU: "+c.mib) {
				t.Errorf("the log does not say what is held:\n%s", text)
			}
			if outcome(t, want.Dir) != outcome(t, got.Dir) {
				t.Error("training on the set that lies on the GPU led elsewhere")
			}
			if c.workers > 1 {
				return
			}
			if err := interruptedAt(t, held, c.workers, parts, 2, 1); err == nil {
				t.Fatal("it was not interrupted")
			}
			parts.Resume = true
			if _, err := trainAll(t, held, c.workers, parts); err != nil {
				t.Fatal(err)
			}
			if outcome(t, want.Dir) != outcome(t, parts.Dir) {
				t.Error("the run that was resumed led elsewhere")
			}
		})
	}
}

// TestTrainingSetTooLarge: a training set that is too large or not 8-bit is loaded batch by
// batch, and the log contains the reason. With loader.kind device it is an error.
func TestTrainingSetTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	fields := onGPU(tiny())
	fields.Model = ModelConfig{Kind: "unet3d", Base: 4, Depth: 1}
	fields.Data = DataConfig{Kind: data.KindFields, Count: 2, Edge: 8, TestImages: 1}
	fields.Batch = 1
	large := onGPU(tiny())
	large.Loader.DeviceMiB = 0.001
	kept := onGPU(tiny())
	kept.Loader.Order = []string{"shuffle", "shard", "batch", "map", "cache"}
	refusals := map[string]Config{"9 samples need 4608 bytes, but at most 1048 are allowed": large}
	if !underRace { // the others start the same goroutines
		refusals["not integers divided by 255"], refusals["caches samples as augmented in epoch 0"] = fields, kept
	}
	for want, cfg := range refusals {
		cfg.Epochs = 1
		var said []string
		if _, err := trainAll(t, cfg, 1, simulatedGPU(t, WorkerOptions{Dir: t.TempDir(), Log: func(l string) { said = append(said, l) }})); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(said, "\n"); !strings.Contains(text, want) || !strings.Contains(text, "is not in the memory of the GPU") {
			t.Errorf("the log does not say %q:\n%s", want, text)
		}
		cfg.Loader.Kind = LoaderDevice
		if _, err := trainAll(t, cfg, 1, simulatedGPU(t, WorkerOptions{})); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "loader.kind device") {
			t.Errorf("a loader of that kind: %v", err)
		}
	}
	cpu := tiny()
	cpu.Loader.Kind, cpu.Epochs = LoaderDevice, 1
	if _, err := trainAll(t, cpu, 1, WorkerOptions{}); err != nil {
		t.Errorf("without a GPU: %v", err)
	}
	for _, bad := range []string{"loader.device_mib=-1", "loader.device_mib=.inf"} {
		if _, err := tiny().With(bad); err == nil || !strings.Contains(err.Error(), "device_mib") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := tiny().With("loader.kind=device", "loader.device_mib=0"); err == nil || !strings.Contains(err.Error(), "device_mib is 0") {
		t.Errorf("no memory: %v", err)
	}
}
