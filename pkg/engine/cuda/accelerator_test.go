package cuda

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// TestWatch: the GPU that the engine computes on is watched, the second one here. The
// simulated one draws 300 W and is busy for 90 %.
func TestWatch(t *testing.T) {
	m := clibtest.New(clibtest.Options{Devices: 2})
	e := openRank(t, m, gpuOptions("bf16"), 1)
	var file bytes.Buffer
	s, err := e.Watch(time.Hour, &file)
	if err != nil {
		t.Fatal(err)
	}
	_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Step(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	got, err := s.Stop()
	if err != nil || got.Samples != 2 || got.Utilization != 90 || got.PowerWatts != 300 || !(got.EnergyJoules > 0) {
		t.Errorf("%+v, %v", got, err)
	}
	if lines := strings.Count(file.String(), "\n"); lines != 3 || !strings.HasPrefix(file.String(), "seconds,device,utilization_percent") {
		t.Errorf("the file is\n%s", file.String())
	}
	if name := e.Accelerator().Name; name == "" || e.Name() != "cuda ("+name+")" {
		t.Errorf("the GPU is %q", name)
	}

	without := openOn(t, clibtest.New(clibtest.Options{Absent: []clib.LibraryName{clib.NVML}}), gpuOptions("bf16"))
	if _, err := without.Watch(time.Second, nil); err == nil || !strings.Contains(err.Error(), "watch cuda (") {
		t.Errorf("without NVML: %v", err)
	}
}

// TestLossScaleGoesOn: a training in fp16 that was stopped between two steps, with the
// scale not where it began and updates left out, goes on bit for bit with its tensors
// and its loss scale; without the latter it would not.
func TestLossScaleGoesOn(t *testing.T) {
	g, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	begun := loaded(t, open(t, gpuOptions("fp16")), p, g)
	scaler := begun.Capabilities()
	if err := scaler.SetLossScale(engine.LossScale{Scale: 1 << 26, GoodSteps: 3}); err != nil {
		t.Fatal(err)
	}
	train := func(x engine.Executable, from, to int) {
		t.Helper()
		for step := from; step <= to; step++ {
			feed(t, x, uint64(step))
			if _, err := x.Step(t.Context(), nil, adam(step)); err != nil {
				t.Fatal(err)
			}
		}
	}
	train(begun, 1, 12)
	scale := scaler.LossScale()
	if scale.Scale >= 1<<26 || scale.Skipped == 0 || scale.Skipped == 12 || scale.GoodSteps == 0 {
		t.Fatalf("after 12 steps the scale is %+v: the test shows nothing", scale)
	}
	saved := snapshot(t, begun)
	resume := func(with bool) engine.Executable {
		x := loaded(t, open(t, gpuOptions("fp16")), p, g)
		for name, v := range saved {
			if err := x.Set(name, v); err != nil {
				t.Fatal(err)
			}
		}
		if with {
			if err := x.Capabilities().SetLossScale(scale); err != nil {
				t.Fatal(err)
			}
		}
		train(x, 13, 16)
		return x
	}
	train(begun, 13, 16)
	want := snapshot(t, begun)
	unchanged(t, resume(true), want)
	differ := false
	for name, v := range snapshot(t, resume(false)) {
		differ = differ || !slices.Equal(v, want[name])
	}
	if !differ {
		t.Error("the loss scale made no difference: the test shows nothing")
	}

	for _, bad := range []engine.LossScale{{}, {Scale: 3}, {Scale: 8, GoodSteps: -1}, {Scale: 1e300}} {
		if err := scaler.SetLossScale(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	if plain := loaded(t, open(t, gpuOptions("bf16")), p, g).Capabilities(); plain.LossScale != nil || plain.SetLossScale != nil {
		t.Error("bf16 has a loss scale")
	}
}

// TestDevicePropertiesOfOldCUDNN: an older cuDNN has no properties of the device.
func TestDevicePropertiesOfOldCUDNN(t *testing.T) {
	old := openOn(t, clibtest.New(clibtest.Options{CUDNNVersion: 90500}), gpuOptions("fp32"))
	if text, err := old.DeviceProperties(); text != "" || err == nil || !strings.Contains(err.Error(), "cudnnBackendCreateDescriptor of type 38") {
		t.Errorf("cuDNN 9.5: %q, %v", text, err)
	}
}
