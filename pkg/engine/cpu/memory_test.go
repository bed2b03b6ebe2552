package cpu

import (
	"context"
	"math"
	"runtime"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// largeNetworks are some with activations of tens of MiB. Their channels fill
// blocks of eight but for those of inputs, as usual.
func largeNetworks(t *testing.T) []model.Network {
	t.Helper()
	unet, err1 := model.UNet2D(model.UNet2DConfig{Base: 16, Depth: 4, InChannels: 1, OutChannels: 1, Height: 96, Width: 96, Norm: "batch"})
	c := model.ResNetConfig{Blocks: []int{3, 4, 6, 3}, Base: 16, Classes: 10, InChannels: 3, Height: 32, Width: 32, Stem: model.StemCIFAR}
	v1, err2 := model.ResNetV1(c)
	v2, err3 := model.ResNetV2(c)
	volume, err4 := model.UNet3D(model.UNet3DConfig{Base: 16, Depth: 4, InChannels: 4, OutChannels: 8, Size: []int{32, 32, 32}})
	cubes, err5 := model.Own("cubes", model.Segmentation, []int{3, 24, 24, 24}, []int{2, 24, 24, 24}, cubes(8, 16, 16, 32, 16, 16))
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return []model.Network{unet, v1, v2, volume, cubes}
}

// TestMemoryIsWhatItSays: what the heap grows by, with a step's optimizer slots, is
// within a tenth of MemoryBytes (tables and slices are not counted in it), and
// the arena of an engine that fuses nothing within a tenth of the plan's
// activations; one that fuses needs no more.
func TestMemoryIsWhatItSays(t *testing.T) {
	within := func(a, b float64) bool { return math.Abs(a-b) <= 0.1*b }
	for _, net := range largeNetworks(t) {
		var arena [2]float64
		for i, fuse := range []bool{true, false} {
			_, p := loweredNetwork(t, net, 8, nn.Train, plan.Options{Fuse: fuse})
			o := engine.DefaultOptions()
			o.Fuse = fuse
			e, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			exe, err := e.Load(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := exe.Step(context.Background(), nil, &optim.Update{Rule: "adam", Step: 1, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}); err != nil {
				t.Fatal(err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			x, ok := exe.(*executable)
			if !ok {
				t.Fatal("no executable of this package")
			}
			grown, says := float64(after.HeapAlloc)-float64(before.HeapAlloc), float64(x.MemoryBytes())
			arena[i] = 4 * float64(len(x.arena))
			t.Logf("%s, fuse %v: the heap grew by %.1f MiB, MemoryBytes %.1f, arena %.1f, the plan's activations %.1f",
				net.Name(), fuse, grown/(1<<20), says/(1<<20), arena[i]/(1<<20), float64(p.Memory().Activations)/(1<<20))
			if !within(says, grown) {
				t.Errorf("%s, fuse %v: MemoryBytes is %.0f, the heap grew by %.0f", net.Name(), fuse, says, grown)
			}
			if planned := float64(p.Memory().Activations); !fuse && !within(planned, arena[i]) {
				t.Errorf("%s: %.0f bytes of activations planned, the arena has %.0f", net.Name(), planned, arena[i])
			}
			runtime.KeepAlive(p)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if arena[0] > arena[1] {
			t.Errorf("%s: an arena of %.0f bytes with fusion, %.0f without", net.Name(), arena[0], arena[1])
		}
	}
}
