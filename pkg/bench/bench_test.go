package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/bench/internal/benchtest"
	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/engine"
)

// tiny is a U-Net whose numbers can be counted by hand. With base 2 and one
// level, parameters of convolutions and (batch norms):
//
//	1→2 18 (4), 2→2 36 (4); bridge 2→4 72 (8), 4→4 144 (8);
//	up 4→2 2×2 32+2; 4→2 72 (4), 2→2 36 (4); head 2+1: together 447.
//
// Multiplications of an image, 16 pixels and 4 in the bridge:
//
//	16·18 + 16·36 + 4·72 + 4·144 + 4·32 + 16·72 + 16·36 + 16·2 = 3616,
//
// FLOPs 2 of each, forward once and backward twice: 6·3616 = 21,696.
var tiny = Shape{Base: 2, Depth: 1, Size: 4, Batch: 1}

const (
	tinyParameters = 447
	tinyFLOPs      = 21696
)

// fakePeer speaks the protocol of environment/peers/torch_cpu.py in shell, so
// that it needs neither PyTorch nor Python. A step in channels_last "takes"
// 2 s, in contiguous 4 s, or FAKE_SECONDS; compiled FAKE_COMPILED. What a test breaks is in variables.
const fakePeer = `
threads=1 format=none task=train
while [ $# -gt 0 ]; do
  case $1 in
    --threads) threads=$2 ;;
    --format) format=$2 ;;
    --task) task=$2 ;;
    --compile) compile=", compiled" ;;
  esac
  shift
done
if [ -n "$FAKE_EXIT" ]; then echo "no module named torch" >&2; exit "$FAKE_EXIT"; fi
case $format in contiguous) seconds=${FAKE_SECONDS:-4} ;; *) seconds=2 ;; esac
if [ -n "$compile" ]; then
  if [ -z "$FAKE_COMPILED" ]; then echo "cannot compile" >&2; exit 3; fi
  seconds=$FAKE_COMPILED
fi
echo "{\"name\": \"fake$FAKE_VERSION, $format$compile, rank ${RANK:-none}\", \"threads\": ${FAKE_THREADS:-$threads}, \"parameters\": ${FAKE_PARAMETERS:-447}, \"flops_per_image\": ${FAKE_FLOPS:-21696}}"
steps=0
while read -r request rest; do
  if [ -n "$FAKE_LOG" ]; then echo "$format $request $rest" >>"$FAKE_LOG"; fi
  case $request in
    step)
      steps=$((steps + 1))
      if [ "$steps" = "$FAKE_DIES_AT" ]; then echo "out of luck" >&2; exit 7; fi
      echo "{\"seconds\": $seconds, \"loss\": 0.7}" ;;
    allreduce) echo "{\"seconds\": 0.5}" ;;
    check) echo "{${FAKE_WRONG-\"wrong\": 0}}" ;;
    memory) echo "{\"peak_bytes\": 1073741824}" ;;
  esac
done
`

// fake installs the fake peer, and the test binary as the lockstep command.
func fake(t *testing.T) PeerOptions {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, torchScript), []byte(fakePeer), 0o644); err != nil {
		t.Fatal(err)
	}
	benchtest.UseTestBinaryAsWorker(t)
	return PeerOptions{Scripts: dir, Python: "sh"}
}

func TestMeasureEngine(t *testing.T) {
	peer := fake(t)
	var lines strings.Builder
	records, err := MeasureEngine(t.Context(), EngineOptions{
		Shape: tiny, Threads: []int{1}, Workers: 2, Repeats: 3, PlainRepeats: 1, Peer: peer, Output: &lines,
	})
	if err != nil {
		t.Fatal(err)
	}
	// The peer's images a second are known: it says 2 s a step in its faster
	// format, one image a process.
	for i, want := range []struct {
		name, peer string
		value      float64
		repeats    int
	}{
		{"training, 1 thread", "fake, channels_last, rank none", 0.5, 3},
		{"peak memory, 1 thread", "fake, channels_last, rank none", 1024, 1},
		{"training, 1 thread, plain Go", "fake, channels_last, rank none", 0.5, 1},
		{"training, 2 workers × 1 thread", "fake, channels_last, rank 0", 1, 3},
		{"peak memory, 2 workers × 1 thread", "fake, channels_last, rank 0", 2048, 1},
	} {
		if i >= len(records) {
			t.Fatalf("%d records: %+v", len(records), records)
		}
		r := records[i]
		if r.Name != want.name || r.Peer != want.peer || r.PeerValue != want.value || r.Repeats != want.repeats {
			t.Errorf("record %d: %+v, want %+v", i, r, want)
		}
		if !(r.Value > 0) || r.Machine == "" || r.Commit == "" {
			t.Errorf("record %d: nothing of ours was measured: %+v", i, r)
		}
		if r.Target != 0 {
			t.Errorf("record %d: target %g at a shape that has none", i, r.Target)
		}
	}
	for _, want := range []string{"fake, contiguous, rank none, 1 thread: 4.000 s per step", "lockstep cpu (go)"} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("the lines do not say %q:\n%s", want, lines.String())
		}
	}
}

// TestMeasureEngineRefuses: each way in which the two sides could do different
// work, or one of them none.
func TestMeasureEngineRefuses(t *testing.T) {
	for _, c := range []struct{ variable, value, want string }{
		{"FAKE_PARAMETERS", "446", "447 and 446 parameters"},
		{"FAKE_FLOPS", "21697", "21696 and 21697 FLOPs per image"},
		{"FAKE_THREADS", "2", "got 1 and 2 threads, want 1 for both"},
		{"FAKE_DIES_AT", "4", "out of luck"},
		{"FAKE_EXIT", "1", "no module named torch"},
	} {
		peer := fake(t)
		t.Run(c.variable, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			_, err := MeasureEngine(t.Context(), EngineOptions{Shape: tiny, Threads: []int{1}, Repeats: 2, Peer: peer})
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrPeerMissing) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
}

func TestMissingPeer(t *testing.T) {
	peer := fake(t)
	o := EngineOptions{Shape: tiny, Threads: []int{1}, Repeats: 1, Peer: peer}
	t.Run("library", func(t *testing.T) {
		t.Setenv("FAKE_EXIT", "3")
		_, err := MeasureEngine(t.Context(), o)
		if !errors.Is(err, ErrPeerMissing) || !strings.Contains(err.Error(), "install it with environment/peers/install") {
			t.Errorf("error %v does not say what to do", err)
		}
		_, err = MeasureAllReduce(t.Context(), AllReduceOptions{
			Workers: []int{2}, Sizes: []int{4}, Transports: []string{"shm"}, Beside: []string{peerGloo}, Repeats: 1, Peer: peer,
		})
		if !errors.Is(err, ErrPeerMissing) {
			t.Errorf("all-reduce: error %v", err)
		}
	})
	t.Run("script", func(t *testing.T) {
		o.Peer.Scripts = t.TempDir()
		_, err := MeasureEngine(t.Context(), o)
		if !errors.Is(err, ErrPeerMissing) || !strings.Contains(err.Error(), torchScript) {
			t.Errorf("error %v does not name the script", err)
		}
	})
	t.Run("checkout", func(t *testing.T) {
		t.Chdir(t.TempDir()) // as the test binary, it lies in no checkout
		_, err := PeerOptions{}.TorchCommands(t.Context(), torchScript)
		if !errors.Is(err, ErrPeerMissing) || !strings.Contains(err.Error(), "--peers") {
			t.Errorf("error %v does not say what to do", err)
		}
	})
}

// TestFastestTorch: of two versions, two formats and compiled code, the fastest is left running. A version
// that cannot compile is not an error.
func TestFastestTorch(t *testing.T) {
	peer := fake(t)
	peer.Python = ""
	// The layout of environment/peers and environment/.cache.
	root := t.TempDir()
	peers, version := filepath.Join(root, "peers"), filepath.Join(root, ".cache", "torch-9")
	if err := errors.Join(os.Rename(peer.Scripts, peers), os.MkdirAll(version, 0o755),
		os.WriteFile(filepath.Join(version, "python3"), []byte("#!/bin/sh\nFAKE_VERSION=\" 9\" FAKE_SECONDS=1 exec sh \"$@\"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	peer.Scripts = peers
	all, err := peer.TorchCommands(t.Context(), torchScript)
	if err != nil || len(all) == 0 || all[len(all)-1][0] != filepath.Join(version, "python3") {
		t.Fatalf("commands %q, %v: want the version of the folder last", all, err)
	}
	versions := [][]string{{"sh", filepath.Join(peers, torchScript)}, all[len(all)-1]}
	for _, c := range []struct {
		compiled string // seconds; empty: it cannot compile
		want     string
	}{
		{"", "fake 9, contiguous, rank none"},
		{"3", "fake 9, contiguous, rank none"},
		{"0.5", "fake 9, contiguous, compiled, rank none"},
	} {
		t.Setenv("FAKE_COMPILED", c.compiled)
		side, err := startFastestTorch(t.Context(), versions, tiny, workerSetting{1, 1}, "fp32", func(string, ...any) {})
		if err != nil {
			t.Fatal(err)
		}
		if side.About.Name != c.want {
			t.Errorf("compiled in %q s: %q is fastest, want %q", c.compiled, side.About.Name, c.want)
		}
		side.Close()
	}
	// A version that only root can run is left out, and named.
	forRoot := filepath.Join(root, "for-root")
	if err := os.WriteFile(forRoot, []byte("#!/bin/sh\necho only root >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_COMPILED", "")
	var lines strings.Builder
	logf := func(format string, a ...any) { fmt.Fprintf(&lines, format+"\n", a...) }
	side, err := startFastestTorch(t.Context(), [][]string{{forRoot}, versions[0]}, tiny, workerSetting{1, 1}, "fp32", logf)
	if err != nil {
		t.Fatal(err)
	}
	if side.Close(); side.About.Name != "fake, channels_last, rank none" || strings.Count(lines.String(), "only root") != 2 {
		t.Errorf("%q is fastest, log:\n%s", side.About.Name, lines.String())
	}
	if _, err := startFastestTorch(t.Context(), [][]string{{forRoot}}, tiny, workerSetting{1, 1}, "fp32", logf); !errors.Is(err, ErrPeerMissing) {
		t.Errorf("no version can run: error %v", err)
	}
	peer.Python = "sh"
	if all, err := peer.TorchCommands(t.Context(), torchScript); err != nil || len(all) != 1 {
		t.Errorf("with --python: commands %q, %v", all, err)
	}
}

// TestInTurns: one at a time, each as often first.
func TestInTurns(t *testing.T) {
	peer := fake(t)
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("FAKE_LOG", log)
	var sides [2]*comparison.Side
	for i, format := range []string{"a", "b"} {
		var err error
		sides[i], err = comparison.Start(t.Context(), comparison.Program{Workers: 1, Argv: []string{"sh", filepath.Join(peer.Scripts, torchScript), "--format", format}})
		if err != nil {
			t.Fatal(err)
		}
		defer sides[i].Close()
	}
	a, b, err := measureAlternately(sides[0], sides[1], comparison.RequestStep, 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(a) != 3 || len(b) != 3 {
		t.Errorf("%d and %d measurements, want 3 and 3", len(a), len(b))
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	const want = "a b b a a b"
	if got := strings.Join(strings.Fields(strings.ReplaceAll(string(text), comparison.RequestStep, "")), " "); got != want {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestMeasureAblation(t *testing.T) {
	benchtest.UseTestBinaryAsWorker(t)
	o := AblationOptions{Shape: tiny, Threads: 1, Workers: 2, Repeats: 2}
	records, err := MeasureAblation(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		got = append(got, r.Name+" against "+r.Peer)
		if !(r.Value > 0) || !(r.PeerValue > 0) || r.Repeats != 2 {
			t.Errorf("not measured: %+v", r)
		}
	}
	for _, want := range []string{
		"convolution auto, 1 thread against ours, convolution direct",
		"fuse, 1 thread against ours, fuse off",
		"overlap, 2 workers × 1 thread against ours, overlap off",
	} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("no record %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

func TestInvalidOptions(t *testing.T) {
	good := EngineOptions{Shape: tiny, Threads: []int{1}, Repeats: 1}
	for _, c := range []struct {
		change func(*EngineOptions)
		want   string
	}{
		{func(o *EngineOptions) { o.Threads = []int{0} }, "got 0 threads"},
		{func(o *EngineOptions) { o.Threads = nil }, "neither threads nor workers"},
		{func(o *EngineOptions) { o.Workers = 1 }, "got 1 workers"},
		{func(o *EngineOptions) { o.Repeats = 0 }, "got 0 repeats"},
		{func(o *EngineOptions) { o.Shape.Batch = 0 }, "a batch of 0 images"},
		{func(o *EngineOptions) { o.Shape.Size = 5 }, "multiple of 2"},
	} {
		o := good
		c.change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one that says %q", err, c.want)
		}
	}
	for _, err := range []error{
		AblationOptions{Shape: tiny, Repeats: 1}.Validate(),
		AblationOptions{Shape: tiny, Threads: 1, Workers: 1, Repeats: 1}.Validate(),
		AblationOptions{Shape: tiny, Threads: 1}.Validate(),
	} {
		if err == nil {
			t.Error("options that cannot be are taken")
		}
	}
}

func TestWorkerRefuses(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		task, request, want string
	}{
		{"sing", "", `unknown task "sing"`},
		{taskStream, "", "got 1 workers, want 2"},
		{taskAllReduce, "step\n", `unknown request "step"`},
		{taskAllReduce, "allreduce x 1\n", "invalid syntax"},
		{taskAllReduce, "allreduce 8 0\n", "got 8 bytes and 0 all-reduces"},
		{taskAllReduce, "check 6\n", "got 6 bytes"},
		{taskAllReduce, "check 8 1\n", "got 3 words, want 2"},
		{taskOpenMPI, "", "mpirun of Open MPI has not started this process"},
	} {
		err := RunWorker(context.Background(), WorkerOptions{Task: c.task}, strings.NewReader(c.request), &out)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %q: error %v, want one that says %q", c.task, c.request, err, c.want)
		}
	}
}

func TestPeakBytes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "status")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("Name:\tlockstep\nVmPeak:\t  9 kB\nVmHWM:\t    2048 kB\n") // as proc(5) shows it
	if n, err := readPeakBytes(file); err != nil || n != 2<<20 {
		t.Errorf("got %d, %v, want %d", n, err, 2<<20)
	}
	write("Name:\tlockstep\n")
	if _, err := readPeakBytes(file); err == nil {
		t.Error("a status without VmHWM is read")
	}
}

// TestTorch compares with the real peer, on a network so small that it takes
// no time.
func TestTorch(t *testing.T) {
	benchtest.UseTestBinaryAsWorker(t)
	peer := PeerOptions{Scripts: "../../environment/peers"}
	versions, err := peer.TorchCommands(t.Context(), torchScript)
	if errors.Is(err, ErrPeerMissing) {
		t.Skip("python3-torch: PyTorch is not installed: run environment/peers/install")
	}
	if err != nil {
		t.Fatal(err)
	}
	peer.Python = versions[0][0] // one version, because each takes seconds to start
	records, err := MeasureEngine(t.Context(), EngineOptions{Shape: tiny, Threads: []int{1}, Workers: 2, Repeats: 1, Peer: peer})
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 4 || !strings.HasPrefix(records[0].Peer, "PyTorch ") || !strings.HasSuffix(records[2].Peer, "DDP over gloo") {
		t.Errorf("records %+v", records)
	}
	for _, r := range records {
		if !(r.PeerValue > 0) || !(r.Value > 0) {
			t.Errorf("not measured: %+v", r)
		}
	}
}

// TestSameCounts: our side counts parameters and FLOPs as PyTorch and as one
// does by hand.
func TestSameCounts(t *testing.T) {
	for _, c := range []struct {
		shape      Shape
		parameters int
		flops      int64
	}{
		{DefaultShape(), 7762465, 18050187264}, // PyTorch 1.13.1 says the same, environment/peers/torch_cpu.py
		{tiny, tinyParameters, tinyFLOPs},      // by hand
		// And of these.
		{Shape{Model: modelResNet50V2, Base: 4, Size: 32, Batch: 2}, 97490, 2519040},
		{Shape{Model: modelUNet3D, Base: 2, Depth: 2, Size: 4, Batch: 1}, 2829, 92160},
		// By hand too, weights + batch norms and biases: 3→2 162+4, 2→4 216+8, 4→4 432+8, 4→8 864+16, up 512+8,
		// 12→4 1296+8, 4→4 432+8, head 12+3; multiplications 64·(162+216+1296+432+12) + 8·(432+864+512).
		{Shape{Model: modelUNet3DK3, Base: 2, Depth: 1, Size: 4, Batch: 1}, 3989, 6 * 150016},
	} {
		var out strings.Builder
		err := RunWorker(t.Context(), WorkerOptions{Task: TaskTrain, Shape: c.shape, Engine: engine.DefaultOptions()}, strings.NewReader("step\n"), &out)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), `"loss":`) {
			t.Errorf("%v: no step: %s", c.shape, out.String())
		}
		want := fmt.Sprintf(`"parameters":%d,"flops_per_image":%d}`, c.parameters, c.flops)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%v: greeting %s, want %s", c.shape, out.String(), want)
		}
	}
}

// TestPublishedUNet3D: the paper's network has 19,069,955 parameters (arXiv:1606.06650,
// section 2): ours has those, but for a batch norm's two in place of the bias of
// each of 2,336 channels, and biases of 896 channels of transposed convolutions.
func TestPublishedUNet3D(t *testing.T) {
	s, err := ShapeOf(modelUNet3DK3)
	if err != nil {
		t.Fatal(err)
	}
	net, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	if want := 19069955 + 2336 + 896; net.Parameters() != want {
		t.Errorf("%d parameters, want %d", net.Parameters(), want)
	}
}

// TestShapes: a model has a shape of its own with targets, and none at another.
func TestShapes(t *testing.T) {
	for _, name := range append(Models(), "") {
		s, err := ShapeOf(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.validate(); err != nil {
			t.Error(err)
		}
		narrow, _ := s.targetRatios(false)
		wide, _ := s.targetRatios(true)
		for _, at := range []workerSetting{{1, 1}, {1, 2}, {2, 1}} {
			if !(narrow[at] > 1) || !(wide[at] >= narrow[at]) {
				t.Errorf("%s, %s: the target is %g, and %g with AVX-512", s, at, narrow[at], wide[at])
			}
		}
		s.Batch++
		if targets, memory := s.targetRatios(true); len(targets) > 0 || memory != 0 {
			t.Errorf("%s has targets", s)
		}
	}
	if _, err := ShapeOf("vgg"); err == nil || !strings.Contains(err.Error(), "use unet2d, resnet50v2, unet3d, unet3d-k3") {
		t.Errorf("an unknown model: %v", err)
	}
	if err := (Shape{Model: "vgg", Batch: 1}).validate(); err == nil {
		t.Error("an unknown model is taken")
	}
	err := Shape{Model: modelUNet3DK3, Base: 2, Depth: 3, Size: 12, Batch: 1}.validate()
	if err == nil || !strings.Contains(err.Error(), "depth 3 and size 12, want a base of at least 1") {
		t.Errorf("a size that cannot be halved: %v", err)
	}
}
