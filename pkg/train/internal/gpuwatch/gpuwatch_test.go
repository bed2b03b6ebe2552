package gpuwatch

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
	libraries, err := m.OpenStack()
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
		{"one has no library", []*cuda.Engine{gpuEngine(t, two, 0), gpuEngine(t, clibtest.New(clibtest.Options{Absent: []clib.LibraryName{clib.NVML}}), 0)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			n := len(c.engines)
			watches := make([]Sampler, n)
			for i, e := range c.engines {
				var note string
				var err error
				if watches[i], note, err = StartSampling(e.Accelerator(), dir, i); err != nil || (note != "") != (c.devices == 0 && i == 1) {
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
					s, joules, err := watches[i].StopOnAllRanks(t.Context(), group)
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
		w, note, err := StartSampling(gpuEngine(t, clibtest.New(clibtest.Options{}), 0).Accelerator(), dir, 1)
		if err != nil || note != "" || filepath.Base(w.file.Name()) != want {
			t.Fatalf("%v, %q, %v, want %s", w.file, note, err, want)
		}
		if _, err := w.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}
