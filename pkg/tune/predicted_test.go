package tune

import (
	"math"
	"testing"

	"lockstep/pkg/model"
	"lockstep/pkg/train"
)

// TestPredictedMemory checks that the memory of a batch that is predicted from two small
// batches is within 10 % of the memory of the engine that loaded the batch (which engine/cpu
// compares with the heap), for each kind of network, with and without recomputation.
func TestPredictedMemory(t *testing.T) {
	unet := train.DefaultConfig()
	resnet := train.DefaultConfig()
	resnet.Model = train.ModelConfig{Kind: model.KindResNetV2, Base: 8, Blocks: []int{2, 2, 2}, Classes: 10, Stem: model.StemCIFAR}
	resnet.Data = train.DataConfig{Kind: "shapes", Count: 64, Height: 32, Width: 32, Classes: 10, DataSeed: 1, TestImages: 8}
	volumes := train.DefaultConfig()
	volumes.Model = train.ModelConfig{Kind: model.KindUNet3D, Base: 4, Depth: 3}
	volumes.Data = train.DataConfig{Kind: "fields", Count: 2, Edge: 32, DataSeed: 1, TestImages: 1, Samples: 16, TestSamples: 4}
	volumes.Data.Augment.Crop = 16
	for name, cfg := range map[string]train.Config{"unet2d": unet, "resnet50v2": resnet, "unet3d": volumes} {
		for _, again := range []bool{false, true} {
			cfg.Recompute = again
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			samples, err := train.OpenSamples(t.Context(), cfg.Data)
			if err != nil {
				t.Fatal(err)
			}
			w := &memoryTester{cfg: cfg, samples: samples, memory: 1 << 40, least: 1}
			for _, batch := range []int{2, 12} {
				predicted, err1 := w.testByMemoryPlan(t.Context(), batch)
				measured, err2 := w.testByLoading(t.Context(), batch)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				ratio := float64(predicted.Bytes) / float64(measured.Bytes)
				t.Logf("%s, recompute %v, batch %d: predicted %.2f MiB, loaded %.2f (%.3f)", name, again, batch, float64(predicted.Bytes)/(1<<20), float64(measured.Bytes)/(1<<20), ratio)
				if math.Abs(ratio-1) > 0.1 {
					t.Errorf("%s, recompute %v, batch %d: %d bytes predicted, %d loaded", name, again, batch, predicted.Bytes, measured.Bytes)
				}
			}
		}
	}
}
