package kernels_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
)

// TestRegistryIsTheSource: every kernel of the source is in the registry, and the
// compiler takes its parameters at the sizes and places that the registry packs.
func TestRegistryIsTheSource(t *testing.T) {
	found := regexp.MustCompile(`extern "C" __global__ void __launch_bounds__\(\d+, 2\) (\w+)\(`).FindAllStringSubmatch(kernels.Source(), -1)
	var inSource, inList []string
	for _, m := range found {
		inSource = append(inSource, m[1])
	}
	for _, k := range kernels.ListKernels() {
		inList = append(inList, k.Name)
	}
	slices.Sort(inSource)
	slices.Sort(inList)
	if !slices.Equal(inSource, inList) {
		t.Errorf("the source has %d kernels\n%v\nthe registry %d\n%v", len(inSource), inSource, len(inList), inList)
	}
	inList = nil
	for _, k := range kernels.ListKernels(kernels.F32, kernels.F16) {
		inList = append(inList, k.Name)
	}
	var inUnits []string
	names := map[string]bool{}
	for _, u := range kernels.Units(kernels.F32, kernels.F16) {
		for _, m := range regexp.MustCompile(`extern "C" __global__ void __launch_bounds__\(\d+, 2\) (\w+)\(`).FindAllStringSubmatch(u.Source, -1) {
			inUnits = append(inUnits, m[1])
		}
		if names[u.Name] {
			t.Errorf("two units are named %s", u.Name)
		}
		names[u.Name] = true
	}
	slices.Sort(inUnits)
	slices.Sort(inList)
	if !slices.Equal(inUnits, inList) {
		t.Errorf("the units have %d kernels\n%v\nthe registry %d\n%v", len(inUnits), inUnits, len(inList), inList)
	}
	if strings.Contains(kernels.Source(), "#include") {
		t.Error("the source includes a header, which the run-time compiler does not have")
	}

	sim := openSimulator(t)
	for _, k := range kernels.ListKernels() {
		sizes, err := sim.ParamSizes(k.Name)
		if err != nil {
			t.Fatal(err)
		}
		var want []int
		for _, p := range k.Params {
			want = append(want, p.Kind.Bytes())
		}
		if !slices.Equal(sizes, want) {
			t.Errorf("%s takes parameters of %v bytes, the registry has %v", k.Name, sizes, want)
		}
	}
}

// TestArgs: C's layout of {int; long long; float; char *; int}, by its rules:
// offsets 0, 8, 16, 24, 32, and no padding at the end.
func TestArgs(t *testing.T) {
	var a kernels.Args
	a.AppendInt32(-2)
	a.AppendInt64(3)
	a.AppendFloat32(1)
	a.AppendPointer(0x0102030405060708)
	a.AppendInt32(4)
	want := []byte{
		0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0x80, 0x3f, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 4, 0, 0, 0,
	}
	if !bytes.Equal(a.Bytes(), want) {
		t.Errorf("packed % x, want % x", a.Bytes(), want)
	}
	offsets, size := kernels.Kernel{Params: []kernels.Param{
		{Kind: kernels.KindInt32}, {Kind: kernels.KindInt64}, {Kind: kernels.KindFloat32}, {Kind: kernels.KindPointer}, {Kind: kernels.KindInt32},
	}}.Offsets()
	if !slices.Equal(offsets, []int{0, 8, 16, 24, 32}) || size != 36 {
		t.Errorf("offsets %v, %d bytes", offsets, size)
	}
}

// TestControlBlock: what Bytes writes, DecodeControl reads.
func TestControlBlock(t *testing.T) {
	c := kernels.ControlBlock{
		LearningRate: 0.25, Step: 7, Seed: -9, Epoch: 11, LossScale: 1024, FoundInf: 1, GoodSteps: 5, Skipped: 2, Correct1: 0.5, CorrectRt2: 0.75,
	}
	b := c.Bytes()
	if len(b) != kernels.ControlBytes || kernels.DecodeControl(b) != c {
		t.Errorf("%d bytes, read back as %+v", len(b), kernels.DecodeControl(b))
	}
}

// TestRefusals: arguments that a kernel would crash on, or be wrong with, are errors
// that say what is wrong.
func TestRefusals(t *testing.T) {
	m := kernels.FeatureMap{Data: 0x1000, Pitch: 16}
	norm := kernels.BatchNorm{
		Rows: 4, Channels: 16, X: m, Y: m, Gamma: 16, Beta: 16, RunningMean: 16, RunningVar: 16, Mean: 16, InvStd: 16, Partial: 16,
	}
	pool := kernels.Pooling{
		Batch: 1, Channels: 8, In: [3]int{1, 4, 4}, Out: [3]int{1, 2, 2}, Kernel: [3]int{1, 2, 2}, Stride: [3]int{1, 2, 2}, X: m, Y: m,
	}
	change := func(f func(*kernels.BatchNorm)) kernels.BatchNorm {
		n := norm
		f(&n)
		return n
	}
	for want, launch := range map[string]func() ([]kernels.Launch, error){
		"": func() ([]kernels.Launch, error) { return norm.Training(kernels.BF16) },
		"rows is 0": func() ([]kernels.Launch, error) {
			return change(func(n *kernels.BatchNorm) { n.Rows = 0 }).Training(kernels.BF16)
		},
		"12 channels": func() ([]kernels.Launch, error) {
			return change(func(n *kernels.BatchNorm) { n.Channels = 12 }).Training(kernels.BF16)
		},
		"x at 0x1008 is not aligned": func() ([]kernels.Launch, error) {
			return change(func(n *kernels.BatchNorm) { n.X.Data = 0x1008 }).Training(kernels.BF16)
		},
		"y has pitch 12": func() ([]kernels.Launch, error) {
			return change(func(n *kernels.BatchNorm) { n.Y.Pitch = 12 }).Inference(kernels.BF16)
		},
		"gamma is absent": func() ([]kernels.Launch, error) {
			return change(func(n *kernels.BatchNorm) { n.Gamma = 0 }).Inference(kernels.BF16)
		},
		"element type 9": func() ([]kernels.Launch, error) { return norm.Training(9) },
		"does not fit in 32 bits": func() ([]kernels.Launch, error) {
			return kernels.ChannelCopy{Rows: 1, Channels: 1, Src: 4, Dst: 4, SrcPitch: 1 << 33, DstPitch: 1}.Launches(kernels.F32)
		},
		"y is absent, but MaskOutput": func() ([]kernels.Launch, error) {
			return kernels.BatchNormGrad{Rows: 1, Channels: 8, X: m, DY: m, DX: m, Mask: kernels.MaskOutput}.Launches(kernels.F32)
		},
		"exceed the padded input": func() ([]kernels.Launch, error) { p := pool; p.Out[2] = 3; return p.Forward(kernels.F32) },
		"want at most 256": func() ([]kernels.Launch, error) {
			p := pool
			p.In, p.Kernel, p.Out = [3]int{1, 20, 20}, [3]int{1, 17, 17}, [3]int{1, 1, 1}
			return p.Forward(kernels.F32)
		},
		"index is absent": func() ([]kernels.Launch, error) { p := pool; p.DX, p.DY = m, m; return p.Backward(kernels.F32) },
		"momentum is 0.9, but its buffer is absent": func() ([]kernels.Launch, error) {
			return kernels.Update{N: 1, W: 4, G: 4, Control: 16, Momentum: 0.9}.SGD(kernels.F32)
		},
		"crop of size [1 9 9] does not fit": func() ([]kernels.Launch, error) {
			return kernels.Augmentation{PixelConversion: kernels.PixelConversion{Channels: 1, Padded: 1, Pitch: 1, Divisor: 1, Dst: 4}, Batch: 1, Size: [3]int{1, 8, 8}, Out: [3]int{1, 9, 9}, Src: 1, Samples: 4, Control: 16}.Launches(kernels.F32)
		},
		"mean and invstd must both be": func() ([]kernels.Launch, error) {
			return kernels.Normalization{PixelConversion: kernels.PixelConversion{Channels: 1, Padded: 1, Pitch: 1, Divisor: 1, Dst: 4, Mean: 4}, Batch: 1, Spatial: 1, Src: 1}.Launches(kernels.F32)
		},
		"control at 0x8 is not aligned to 16": func() ([]kernels.Launch, error) { return kernels.BeginStep(8, 0.9, 0.999) },
		"pitch, got 1, 8 and 4": func() ([]kernels.Launch, error) {
			return kernels.Transposition{Batch: 1, Channels: 1, Spatial: 1, Padded: 8, Pitch: 4, Planar: 4, Rows: 4}.ToRows(kernels.F32)
		},
	} {
		l, err := launch()
		switch {
		case want == "" && (err != nil || len(l) != 3):
			t.Errorf("good arguments: %v, %v", l, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || len(l) != 0):
			t.Errorf("want an error with %q, got %v and %d launches", want, err, len(l))
		}
	}
}

// TestGeometry: chunks cover the rows exactly, none is empty, a grid stays below
// the device's limits, and PartialSumFloats is what the reductions write.
func TestGeometry(t *testing.T) {
	for _, channels := range []int{8, 24, 64, 264, 520, 2048} {
		for _, rows := range []int{1, 2, 31, 33, 1000, 65536 * 3, 16 * 768 * 1024} {
			l, err := kernels.BatchNorm{
				Rows: rows, Channels: channels, X: kernels.FeatureMap{Data: 16, Pitch: channels}, Y: kernels.FeatureMap{Data: 16, Pitch: channels},
				Gamma: 16, Beta: 16, RunningMean: 16, RunningVar: 16, Mean: 16, InvStd: 16, Partial: 16,
			}.Training(kernels.BF16)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range []int{0, 2} {
				g := l[i]
				threads := g.Block[0] * g.Block[1] * g.Block[2]
				if threads > 256 || g.Grid[1] > 65535 || int(g.Grid[0]*g.Block[0])*8 < channels {
					t.Errorf("%d×%d: %s has grid %v, block %v", rows, channels, g.Kernel, g.Grid, g.Block)
				}
				if chunks := int(g.Grid[1]); i == 0 && chunks*2*channels > kernels.PartialSumFloats(rows, channels) {
					t.Errorf("%d×%d: %d chunks do not fit in %d floats", rows, channels, chunks, kernels.PartialSumFloats(rows, channels))
				}
			}
		}
	}
}

func ExampleBias() {
	// 2 images of 16×16 pixels and 5 channels, which lie as 8, in bfloat16.
	launches, err := kernels.Bias{
		Rows: 2 * 16 * 16, Channels: kernels.PaddedChannels(5),
		X: kernels.FeatureMap{Data: 0x10000, Pitch: 8}, Y: kernels.FeatureMap{Data: 0x20000, Pitch: 8}, Bias: 0x30000, ReLU: true,
	}.Launches(kernels.BF16)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range launches {
		fmt.Println(l.Kernel, l.Grid, l.Block, len(l.Args), "bytes of arguments")
	}
	// Output:
	// bias_act_bf16 [1 2 1] [1 256 1] 80 bytes of arguments
}
