package cuda

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// maskSet is a data set of bytes with masks.
type maskSet struct {
	workload.ByteImageSet
	masks []byte // 0 or 1
}

func (s maskSet) Get(i int, image, target []float32) error {
	for j, v := range s.masks[i*len(target):][:len(target)] {
		target[j] = float32(v)
	}
	return s.ByteImageSet.Get(i, image, nil)
}

// drawnSet is a set of noise.
func drawnSet(samples, channels, height, width int) maskSet {
	rng := rand.New(rand.NewPCG(3, 4))
	s := maskSet{workload.ByteImageSet{Image: []int{channels, height, width}, Pixels: make([]byte, samples*channels*height*width), N: samples}, make([]byte, samples*height*width)}
	for i := range s.Pixels {
		s.Pixels[i] = byte(rng.IntN(256))
	}
	for i := range s.masks {
		s.masks[i] = byte(rng.IntN(2))
	}
	return s
}

// resident is the set as an executable holds it.
func (s maskSet) resident(seed int64) engine.DeviceDataset {
	return engine.DeviceDataset{
		Image: s.Pixels, Target: s.masks, ImageShape: s.Image, TargetShape: s.TargetShape(),
		ImageDivisor: 255, TargetDivisor: 1, Flip: true, Rotate: true, Brightness: 0.2, Contrast: 0.3, Seed: seed,
	}
}

// TestResident checks that training on a data set on the GPU gives the same bits as training on
// the batches that the loader crops, flips and rotates on the host: over two epochs, in each
// precision, with and without graphs, and also if both kinds of steps alternate.
func TestResident(t *testing.T) {
	const samples, batch, crop, seed = 9, 3, 8, 11
	set := drawnSet(samples, 2, 12, 10)
	c := model.UNet2DConfig{Base: 5, Depth: 1, InChannels: 2, OutChannels: 1, Height: crop, Width: crop, Norm: "batch"}
	g, p := programOf(t, c, batch, nn.Train, plan.Options{Fuse: true})
	sampler, err := data.NewSampler(data.SamplerOptions{Samples: samples, World: 1, BatchPerWorker: batch, Shuffle: true, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	loader, err := data.NewLoader(set, sampler, data.LoaderOptions{Augment: data.Augment{Flip: true, Rotate: true, Brightness: 0.2, Contrast: 0.3, Crop: crop}, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	defer loader.Close()
	for _, precision := range []string{"fp32", "bf16"} {
		for _, graph := range []bool{true, false} {
			o := gpuOptions(precision)
			o.Graph = graph
			var x [3]engine.Executable // from the host, from the GPU, in turns
			for i := range x {
				if x[i], err = open(t, o).Load(p, nil); err != nil {
					t.Fatal(err)
				}
				poison(t, x[i])
				initialise(t, x[i], g)
				if i > 0 {
					if err := x[i].Capabilities().HoldDataset(model.ImageInput, model.TargetInput, set.resident(seed)); err != nil {
						t.Fatal(err)
					}
				}
			}
			step := 0
			for epoch := range 2 {
				for it := loader.Epoch(t.Context(), epoch); it.Next(); {
					step++
					for i := range x {
						if i == 1 || i == 2 && step%3 != 0 {
							_, err = x[i].NextBatch(&one{Samples: it.Batch().Indices, Epoch: epoch})
						} else if err = x[i].SetInput(model.ImageInput, it.Batch().Image); err == nil {
							err = x[i].SetInput(model.TargetInput, it.Batch().Target)
						}
						if err != nil {
							t.Fatal(err)
						}
						if _, err := x[i].Step(t.Context(), nil, adam(step)); err != nil {
							t.Fatal(err)
						}
						if x[i].Loss() != x[0].Loss() {
							t.Fatalf("%s, graph %v, step %d: the loss is %v, from the host %v", precision, graph, step, x[i].Loss(), x[0].Loss())
						}
					}
				}
			}
			want := snapshot(t, x[0])
			for _, e := range x[1:] {
				for name, v := range snapshot(t, e) {
					if !slices.Equal(v, want[name]) {
						t.Errorf("%s, graph %v: %s differs from training from the host", precision, graph, name)
					}
				}
			}
			if step != 6 {
				t.Fatalf("%d steps", step)
			}
		}
	}
}

// one is a Source of one batch.
type one engine.Batch

func (b *one) Next() (engine.Batch, bool) { return engine.Batch(*b), true }

// TestResidentErrors checks the errors for invalid data sets and samples.
func TestResidentErrors(t *testing.T) {
	set := drawnSet(4, 1, 8, 8)
	c := model.UNet2DConfig{Base: 5, Depth: 1, InChannels: 1, OutChannels: 1, Height: 8, Width: 8, Norm: "batch"}
	_, p := programOf(t, c, 2, nn.Train, plan.Options{Fuse: true})
	x, err := open(t, gpuOptions("fp32")).Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := x.Capabilities()
	choose := func(samples ...int) error {
		_, err := x.NextBatch(&one{Samples: samples})
		return err
	}
	if err := choose(0, 1); err == nil || !strings.Contains(err.Error(), "copy it there first") {
		t.Errorf("nothing is held: %v", err)
	}
	for want, change := range map[string]func(*engine.DeviceDataset){
		"smaller than the crop [8 8]":             func(s *engine.DeviceDataset) { s.ImageShape, s.TargetShape = []int{1, 4, 16}, []int{1, 4, 16} },
		"samples of \"image\" have shape [2 8 8]": func(s *engine.DeviceDataset) { s.ImageShape = []int{2, 8, 8} },
		"size of \"image\" is 256 bytes":          func(s *engine.DeviceDataset) { s.ImageShape, s.TargetShape = []int{1, 9, 9}, []int{1, 9, 9} },
		"4 images but 3 targets":                  func(s *engine.DeviceDataset) { s.Target = s.Target[64:] },
		"the same height, width": func(s *engine.DeviceDataset) {
			s.TargetShape = []int{1, 16, 8}
			s.Target = append(s.Target, s.Target...)
		},
		"stored index of sample 1: got 4, want 0 to 3":          func(s *engine.DeviceDataset) { s.Stored = []int{0, 4} },
		"have spatial dimensions, so they must be set as bytes": func(s *engine.DeviceDataset) { s.Values = make([]float32, 4*64) },
		"divisor of \"image\" is 0":                             func(s *engine.DeviceDataset) { s.ImageDivisor = 0 },
	} {
		s := set.resident(1)
		change(&s)
		if err := r.HoldDataset(model.ImageInput, model.TargetInput, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hold says %v, not %q", err, want)
		}
	}
	if err := r.HoldDataset("picture", model.TargetInput, set.resident(1)); err == nil || !strings.Contains(err.Error(), `no input "picture"`) {
		t.Errorf("another name: %v", err)
	}
	want := x.MemoryBytes() + int64(len(set.Pixels)+len(set.masks)+2*8)
	for range 2 { // the second takes the place of the first
		if err := r.HoldDataset(model.ImageInput, model.TargetInput, set.resident(1)); err != nil {
			t.Fatal(err)
		}
		if got := x.MemoryBytes(); got != want {
			t.Errorf("it takes %d bytes, not %d", got, want)
		}
		if err := choose(0, 3); err != nil {
			t.Fatal(err)
		}
		for step := 1; step <= 3; step++ {
			if _, err := x.Step(t.Context(), nil, adam(step)); err != nil {
				t.Fatal(err)
			}
		}
		want = x.MemoryBytes() // with Adam's slots
	}
	for want, indexes := range map[string][]int{"got 1 samples, want a batch of 2": {0}, "unknown sample 4: the training set has 4 samples": {0, 4}, "unknown sample -1": {-1, 0}} {
		if err := choose(indexes...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("samples says %v, not %q", err, want)
		}
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}
