package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/bench"
	"lockstep/pkg/bench/internal/benchtest"
	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda"
	names "lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/model"
)

// onSimulatedGPU starts an engine on a simulated GPU whose kernels of ours do
// nothing: times mean nothing there, the calls are the real ones.
func onSimulatedGPU(o engine.Options) (engine.Engine, error) {
	libraries, err := clibtest.New(clibtest.Options{Memory: 64 << 20}).OpenStack()
	if err != nil {
		return nil, err
	}
	return cuda.NewWithLibraries(libraries, os.Getenv, o, 0)
}

// TestGPURuns: what a report holds, and that the time of every kernel is in it.
func TestGPURuns(t *testing.T) {
	t.Setenv("LOCKSTEP_TUNING_CACHE", "off")
	trace := filepath.Join(t.TempDir(), "trace.json")
	var lines strings.Builder
	r, err := MeasureLayers(t.Context(), Options{Model: "unet-128", Repeats: 2, Steps: 3, Trace: trace, Kernels: true, Output: &lines, shape: &tiny, open: onSimulatedGPU})
	if err != nil {
		t.Fatal(err)
	}
	if !(r.ImagesPerSecond > 0 && r.Spread[0] <= r.ImagesPerSecond && r.ImagesPerSecond <= r.Spread[1]) || r.Repeats != 2 || r.Machine == "" ||
		!(r.StepMilliseconds > 0) || r.MemoryBytes < tinyParameters*4 {
		t.Errorf("the report is %+v", r)
	}
	traced := 0.0
	for _, l := range r.Layers {
		sum := 0.0
		for _, k := range l.Kernels {
			sum += k.Milliseconds
		}
		if traced += l.Milliseconds; len(l.Kernels) == 0 || math.Abs(sum-l.Milliseconds) > 1e-9 {
			t.Errorf("layer %+v", l)
		}
	}
	if math.Abs(traced-r.TracedMilliseconds) > 1e-9 {
		t.Errorf("the layers take %g ms, the sum is %g", traced, r.TracedMilliseconds)
	}
	// The gradients of the weights and of the data of a convolution are plans of cuDNN.
	at := slices.IndexFunc(r.Layers, func(l Layer) bool { return l.Part == "backward" && l.Layer == "down.0.b.conv" })
	if at < 0 || !slices.ContainsFunc(r.Layers[at].Kernels, func(k Kernel) bool { return k.Name == "cudnn conv_backward_weights" && k.Calls == 1 }) {
		t.Errorf("layers %+v", r.Layers)
	}
	if _, err := os.Stat(trace); err != nil {
		t.Error(err)
	}
	var text strings.Builder
	// Kernels of a recorded step: batch norm's statistics, of which the tiny network has
	// one each, and cuDNN's.
	sum := 0.0
	for _, k := range r.Kernels {
		if sum += k.Milliseconds; !(k.Calls >= 1) || !(k.Milliseconds > 0) {
			t.Errorf("kernel %+v", k)
		}
	}
	if at := slices.IndexFunc(r.Kernels, func(k Kernel) bool { return k.Name == "bn_stats_bf16" }); at < 0 || r.Kernels[at].Calls != 6 || math.Abs(sum-r.KernelMilliseconds) > 1e-9 || r.NoKernels != "" {
		t.Errorf("kernels by CUPTI: %+v, %g ms, %s", r.Kernels, r.KernelMilliseconds, r.NoKernels)
	}
	if err := r.Write(&text, false); err != nil || !strings.Contains(text.String(), "down.0.b.conv") || !strings.Contains(text.String(), "kernels of a captured step, by CUPTI: ") {
		t.Errorf("%v:\n%s", err, text.String())
	}
	text.Reset()
	var again Report
	if err := errors.Join(r.Write(&text, true), json.Unmarshal([]byte(text.String()), &again)); err != nil || len(again.Layers) != len(r.Layers) {
		t.Errorf("%v:\n%s", err, text.String())
	}
}

// TestGPUKernelsLeftOut: where CUPTI is not there the rest is measured all the same.
func TestGPUKernelsLeftOut(t *testing.T) {
	t.Setenv("LOCKSTEP_TUNING_CACHE", "off")
	open := func(o engine.Options) (engine.Engine, error) {
		libraries, err := clibtest.New(clibtest.Options{Memory: 64 << 20, Absent: []names.LibraryName{names.CUPTI}}).OpenStack()
		if err != nil {
			return nil, err
		}
		return cuda.NewWithLibraries(libraries, os.Getenv, o, 0)
	}
	var lines strings.Builder
	r, err := MeasureLayers(t.Context(), Options{Model: "unet-128", Repeats: 1, Steps: 2, Kernels: true, Output: &lines, shape: &tiny, open: open})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Layers) == 0 || len(r.Kernels) != 0 || !strings.Contains(r.NoKernels, "CUPTI") || !strings.Contains(lines.String(), "skipped the kernels") {
		t.Errorf("the report says %q, %d kernels; lines are %s", r.NoKernels, len(r.Kernels), lines.String())
	}
}

// TestGPUNetworks: a classifier is measured as U-Nets are, on one image.
func TestGPUNetworks(t *testing.T) {
	t.Setenv("LOCKSTEP_TUNING_CACHE", "off")
	open := func(o engine.Options) (engine.Engine, error) {
		o.Convolution = "heuristic"
		libraries, err := clibtest.New(clibtest.Options{Memory: 4 << 30, Shallow: true}).OpenStack()
		if err != nil {
			return nil, err
		}
		return cuda.NewWithLibraries(libraries, os.Getenv, o, 0)
	}
	for _, name := range []string{"resnet50v2"} {
		r, err := MeasureLayers(t.Context(), Options{Model: name, Repeats: 1, Steps: 1, shape: &bench.Shape{Network: name, Batch: 1}, open: open})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(r.Layers, func(l Layer) bool {
			return l.Layer == "conv2_block1_1_conv" && l.Part == "backward" && l.Milliseconds > 0
		}) {
			t.Errorf("%s: layers %+v", name, r.Layers)
		}
	}
}

// gpuPeer speaks the protocol of environment/peers/torch_gpu.py: a step takes 2 s
// as it is, 1 s through torch.compile.
const gpuPeer = `
mode=eager
while [ $# -gt 0 ]; do
  case $1 in --mode) mode=$2 ;; esac
  shift
done
if [ "$mode" = "$FAKE_BROKEN" ]; then echo "no compiler" >&2; exit 1; fi
case $mode in eager) seconds=2 ;; *) seconds=1 ;; esac
echo "{\"name\": \"fake, $mode\", \"threads\": 9, \"parameters\": 447, \"flops_per_image\": ${FAKE_FLOPS:-21696}}"
while read -r request rest; do
  case $request in
    steps) echo "{\"seconds\": $((seconds * rest)), \"loss\": 0.7}" ;;
    memory) echo "{\"peak_bytes\": 1048576}" ;;
  esac
done
`

func TestGPUMeasurePeers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, torchScript), []byte(gpuPeer), 0o644); err != nil {
		t.Fatal(err)
	}
	benchtest.UseTestBinaryAsWorker(t)
	t.Setenv("LOCKSTEP_TUNING_CACHE", "off")
	o := Options{Model: "unet-128", Repeats: 3, Steps: 4, Peer: comparison.PeerOptions{Scripts: dir, Python: "sh"}, shape: &tiny, open: onSimulatedGPU}
	records, err := MeasurePeers(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	// An image a step: half an image a second as it is, one compiled; a MiB.
	for i, want := range []struct {
		peer  string
		value float64
	}{{"fake, eager", 0.5}, {"fake, eager", 1}, {"fake, default", 1}, {"fake, default", 1}, {"fake, max-autotune", 1}, {"fake, max-autotune", 1}} {
		if i >= len(records) {
			t.Fatalf("%d records: %+v", len(records), records)
		}
		if r := records[i]; r.Peer != want.peer || r.PeerValue != want.value || !(r.Value > 0) {
			t.Errorf("record %d is %+v, want %+v", i, r, want)
		}
	}
	if records[0].Repeats != 3 || records[0].Unit != "images/s" || records[1].Unit != "MiB" {
		t.Errorf("records are %+v", records[:2])
	}

	t.Setenv("FAKE_BROKEN", "default")
	records, err = MeasurePeers(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "no compiler") || len(records) != 4 {
		t.Errorf("a mode that does not start: %d records, %v", len(records), err)
	}
	t.Setenv("FAKE_FLOPS", "1")
	if _, err := MeasurePeers(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the networks differ") {
		t.Errorf("another network: %v", err)
	}
}

// TestGPUTargets are those that the models are held to.
func TestGPUTargets(t *testing.T) {
	for _, m := range benchmarkNetworks() {
		eager, half, batch := 1.1, 1.0, 16
		switch m.name {
		case "unet-128":
			eager = 1.3
		case "resnet50v2", "resnet152v2":
			eager, half, batch = 1.4, 1.2, 256
		case "unet3d-sc21":
			batch = 64
		}
		if m.shape.Batch != batch {
			t.Errorf("%+v", m)
		}
		for _, c := range []struct {
			mode, precision string
			want            float64
		}{
			{"eager", "bf16", eager},
			{"eager", "fp16", eager},
			{"default", "bf16", 0},
			{"default", "fp16", 0},
			{"max-autotune", "bf16", 1},
			{"max-autotune", "fp32", 1},
			{"max-autotune", "fp16", half},
		} {
			if got := m.targetRatio(c.mode, c.precision); got != c.want {
				t.Errorf("%s, %s, %s: must reach %v, want %v", m.name, c.mode, c.precision, got, c.want)
			}
		}
		if net, err := m.shape.Build(); err != nil || net.Parameters() == 0 {
			t.Errorf("%s: %v", m.name, err)
		}
		if err := (Options{Model: m.name}).Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, o := range []Options{{Model: "vgg"}, {Model: "unet-128", Device: "cpu"}, {Model: "unet-128", Precision: "int8"}, {Model: "unet-128", Modes: []string{"jit"}}, {Model: "unet-128", Steps: -1}} {
		if err := o.Validate(); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestTorchGPU runs PyTorch's side without a GPU: the script itself, and that it
// trains the same network.
func TestTorchGPU(t *testing.T) {
	peer := comparison.PeerOptions{}
	if _, err := peer.ScriptCommand(t.Context(), torchScript, "PyTorch", "torch"); errors.Is(err, comparison.ErrPeerMissing) {
		t.Skip("python3-torch: PyTorch is not installed: run environment/peers/install")
	}
	benchtest.UseTestBinaryAsWorker(t)
	t.Setenv("LOCKSTEP_TUNING_CACHE", "off")
	s := tiny
	s.Biases = true
	records, err := MeasurePeers(t.Context(), Options{
		Model: "unet-128", Precision: "fp32", Repeats: 1, Steps: 1, Modes: []string{"eager"}, shape: &s, open: onSimulatedGPU, peerDevice: "cpu",
	})
	// On a processor it has no memory of a device to name.
	if err == nil || !strings.Contains(err.Error(), "got 0 bytes, want a positive number") || len(records) != 1 || !strings.HasPrefix(records[0].Peer, "PyTorch") || !(records[0].PeerValue > 0) {
		t.Errorf("%+v, %v", records, err)
	}
}

// TestTorchNetworks: the networks that PyTorch trains on a GPU have the parameters and
// the FLOPs of ours.
func TestTorchNetworks(t *testing.T) {
	argv, err := comparison.PeerOptions{}.ScriptCommand(t.Context(), torchScript, "PyTorch", "torch")
	if errors.Is(err, comparison.ErrPeerMissing) {
		t.Skip("python3-torch: PyTorch is not installed: run environment/peers/install")
	}
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for _, name := range []string{"resnet50v2", "unet3d-sc21"} { // resnet152v2 has the blocks of resnet50v2
		net, err := model.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		one, err := model.Summarize(net, 1)
		if err != nil {
			t.Fatal(err)
		}
		want += fmt.Sprintln(net.Parameters(), 3*one.FLOPs)
	}
	c := exec.CommandContext(t.Context(), argv[0], "-c", `
from torch_networks import build
for name in ("resnet50v2", "unet3d-sc21"):
    n = build(name, None)
    print(sum(p.numel() for p in n.model.parameters()), n.flops_per_image())
`)
	c.Env = append(os.Environ(), "PYTHONPATH="+filepath.Dir(argv[len(argv)-1]))
	if text, err := c.Output(); err != nil || string(text) != want {
		t.Errorf("PyTorch has %q (parameters, FLOPs an image), want %q; %v", text, want, err)
	}
}
