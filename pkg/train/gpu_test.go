package train

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/clibtest"
)

// gpuEngine is an engine on a simulated GPU, which draws 300 W.
func gpuEngine(t *testing.T, m *clibtest.Machine, localRank int) *cuda.Engine {
	t.Helper()
	libraries, err := m.Stack()
	if err != nil {
		t.Fatal(err)
	}
	o := engine.DefaultOptions()
	o.Device = "cuda"
	e, err := cuda.NewWithLibraries(libraries, os.Getenv, o, localRank)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestGPUEnergy: the energy of a GPU counts once, also if ranks share it. The sum is unknown if
// the device of any rank does not measure its energy.
func TestGPUEnergy(t *testing.T) {
	two := clibtest.New(clibtest.Options{Devices: 2})
	for _, c := range []struct {
		name    string
		engines []*cuda.Engine
		devices float64 // whose joules are in the sum; 0: none is known
	}{
		{"one rank", []*cuda.Engine{gpuEngine(t, two, 0)}, 1},
		{"a GPU each", []*cuda.Engine{gpuEngine(t, two, 0), gpuEngine(t, two, 1)}, 2},
		{"three ranks on two", []*cuda.Engine{gpuEngine(t, two, 0), gpuEngine(t, two, 1), gpuEngine(t, two, 2)}, 2},
		{"one has no library", []*cuda.Engine{gpuEngine(t, two, 0), gpuEngine(t, clibtest.New(clibtest.Options{Absent: []clib.Name{clib.NVML}}), 0)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			n := len(c.engines)
			watches := make([]gpuSampler, n)
			for i, e := range c.engines {
				var note string
				var err error
				if watches[i], note, err = startGPUSampler(e.Accelerator(), dir, i); err != nil || (note != "") != (c.devices == 0 && i == 1) {
					t.Fatalf("rank %d: %q, %v", i, note, err)
				}
				if note != "" && !strings.Contains(note, "not recorded") {
					t.Errorf("note %q", note)
				}
			}
			// The machine's clock runs while its streams do; here by a second.
			two.AdvanceClock(1e6)
			sums := make([]float64, n)
			var all sync.WaitGroup
			for i, group := range collective.InProcess(n) {
				all.Go(func() {
					s, joules, err := watches[i].stopAll(t.Context(), group)
					if err != nil || c.devices > 0 && s.Samples != 2 {
						t.Errorf("rank %d: %+v, %v", i, s, err)
					}
					sums[i] = joules
				})
			}
			all.Wait()
			for i, got := range sums {
				if math.Abs(got-300*c.devices) > 1e-6 {
					t.Errorf("rank %d has %v J, want %v", i, got, 300*c.devices)
				}
			}
			text, err := os.ReadFile(filepath.Join(dir, "gpu-0.csv"))
			if err != nil || strings.Count(string(text), "\n") != 3 {
				t.Errorf("%v:\n%s", err, text)
			}
		})
	}
}

// TestGPUFileOfAResumedRun: a resumed run keeps the file of its earlier process.
func TestGPUFileOfAResumedRun(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []string{"gpu-1.csv", "gpu-1.2.csv", "gpu-1.3.csv"} {
		w, note, err := startGPUSampler(gpuEngine(t, clibtest.New(clibtest.Options{}), 0).Accelerator(), dir, 1)
		if err != nil || note != "" || filepath.Base(w.file.Name()) != want {
			t.Fatalf("%v, %q, %v, want %s", w.file, note, err, want)
		}
		if _, err := w.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// scaled returns the Capabilities of an executable with the given loss scale.
func scaled(s *engine.LossScale) engine.Capabilities {
	return engine.Capabilities{
		LossScale:    func() engine.LossScale { return *s },
		SetLossScale: func(scale engine.LossScale) error { *s = scale; return nil },
	}
}

func TestLossScaleInCheckpoint(t *testing.T) {
	before, after := engine.LossScale{Scale: 4096, GoodSteps: 17, Skipped: 3}, engine.LossScale{}
	text, err := marshalLossScale(scaled(&before))
	if err != nil || text == "" {
		t.Fatal(text, err)
	}
	if err := restoreLossScale(scaled(&after), text); err != nil || after != before {
		t.Errorf("%+v, %v", after, err)
	}
	if err := restoreLossScale(engine.Capabilities{}, text); err != nil {
		t.Errorf("a precision without one: %v", err)
	}
	if text, err := marshalLossScale(engine.Capabilities{}); text != "" || err != nil {
		t.Errorf("a precision without one: %q, %v", text, err)
	}
	if err := restoreLossScale(scaled(&after), "{"); err == nil || !strings.Contains(err.Error(), `loss scale "{"`) {
		t.Errorf("damaged: %v", err)
	}
}

// TestOpenAnywhere: without the GPU of the training, the CPU evaluates, and a note says so.
func TestOpenAnywhere(t *testing.T) {
	o := engine.DefaultOptions()
	o.Device, o.Precision, o.Convolution = "cuda:99", "bf16", "heuristic" // no machine has so many
	e, note, err := openEngineOrCPU(o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if !strings.HasPrefix(e.Name(), "cpu") || strings.Contains(note, "\n") || !strings.HasPrefix(note, "trained on cuda:99 (bf16), which cannot be used here: computed on the CPU in fp32 instead (") {
		t.Errorf("%s: %q", e.Name(), note)
	}
	o = engine.DefaultOptions()
	if e, note, err := openEngineOrCPU(o); err != nil || note != "" {
		t.Errorf("%v, %q, %v", e, note, err)
	}
}
