package cuda

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/autotune"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// executions loads the U-Net on a new machine with a cache folder, and returns how many times
// algorithms were run for timing.
func executions(t *testing.T, dir string, on clibtest.Options, o engine.Options, change ...func(*cudnn.Library)) int {
	t.Helper()
	m := clibtest.New(on)
	s, err := m.OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(s.CUDNN)
	}
	e, err := NewWithLibraries(s, func(name string) string {
		if name == autotune.CacheVariable {
			return dir
		}
		return ""
	}, o, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	m.ResetCalls()
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	return strings.Count(strings.Join(m.Calls(), "\n"), "cudnnBackendExecute")
}

// TestTuning: every shape is tuned once, on this version of cuDNN and this device
// alone; a damaged cache is written anew; "heuristic" times nothing.
func TestTuning(t *testing.T) {
	dir := t.TempDir()
	bf16 := tunedOptions("bf16")
	first := executions(t, dir, clibtest.Options{}, bf16)
	// At least two candidates for each of 30 convolutions, four runs each; equal
	// shapes are tuned once.
	if first < 100 {
		t.Errorf("%d runs to tune a U-Net", first)
	}
	if n := executions(t, dir, clibtest.Options{}, bf16); n != 0 {
		t.Errorf("%d runs although the cache knows all", n)
	}
	if n := executions(t, dir, clibtest.Options{}, tunedOptions("fp16")); n < 100 {
		t.Errorf("%d runs in another precision", n)
	}
	if n := executions(t, dir, clibtest.Options{CUDNNVersion: 91800}, bf16); n != first {
		t.Errorf("%d runs with another version of cuDNN, %d at first", n, first)
	}
	if n := executions(t, dir, clibtest.Options{Name: "Simulated A100", Capability: [2]int{8, 0}}, bf16); n != first {
		t.Errorf("%d runs on another device, %d at first", n, first)
	}
	heuristic := bf16
	heuristic.Convolution = "heuristic"
	if n := executions(t, t.TempDir(), clibtest.Options{}, heuristic); n != 0 {
		t.Errorf("%d runs with convolution heuristic", n)
	}

	files, err := filepath.Glob(filepath.Join(dir, "*91900*.json"))
	if err == nil && len(files) == 0 {
		files, err = filepath.Glob(filepath.Join(dir, "*9.19.0*H200*.json"))
	}
	if err != nil || len(files) != 1 {
		t.Fatalf("the cache's file is %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var known autotune.TuningFile
	if err := json.Unmarshal(text, &known); err != nil {
		t.Fatal(err)
	}
	for key, c := range known.Choices {
		if !(c.Milliseconds > 0) || c.Candidates < 1 || c.Plan == "" {
			t.Errorf("%s: %+v", key, c)
		}
		c.Plan = "{}" // what cuDNN refuses
		known.Choices[key] = c
	}
	for _, damage := range []func() ([]byte, error){
		func() ([]byte, error) { return text[:len(text)/2], nil },
		func() ([]byte, error) { return json.Marshal(known) },
	} {
		data, err := damage()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[0], data, 0o600); err != nil {
			t.Fatal(err)
		}
		if n := executions(t, dir, clibtest.Options{}, bf16); n < 100 {
			t.Errorf("%d runs with a damaged cache", n)
		}
		if n := executions(t, dir, clibtest.Options{}, bf16); n != 0 {
			t.Errorf("%d runs after the damaged cache was to be written anew", n)
		}
	}
}

// TestTuningAfterLoading: the first execution of a plan, which loads its kernels, does not
// count: the fastest algorithm that the simulated cuDNN has is chosen, which is not the
// first. A tuning whose time is over keeps the best so far.
func TestTuningAfterLoading(t *testing.T) {
	const fastest = 1
	for _, c := range []struct {
		budget time.Duration
		want   bool // the fastest
	}{{autotune.MaxTuningTime, true}, {1, false}} {
		e := openOn(t, clibtest.New(clibtest.Options{Shallow: true}), tunedOptions("bf16"))
		e.tuneBudget = c.budget
		_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
		x := loadedOn(t, e, p)
		for key, known := range e.cache.Choices() {
			if (known.Engine == fastest) != c.want {
				t.Errorf("budget %v: engine %d was chosen for %s", c.budget, known.Engine, key)
			}
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTuningAsksForFewPlans: each heuristic is asked for at most ten plans of a convolution,
// and four of a graph with more operations, however many cuDNN has.
func TestTuningAsksForFewPlans(t *testing.T) {
	s, err := clibtest.New(clibtest.Options{Shallow: true}).OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	asked := map[int64]int{}
	get := s.CUDNN.GetAttribute
	s.CUDNN.GetAttribute = func(d cudnn.Descriptor, name cudnn.Attribute, typ cudnn.AttributeType, want int64, got *int64, values unsafe.Pointer) cudnn.Status {
		if name == cudnn.AttrHeurResults {
			asked[want]++
		}
		return get(d, name, typ, want, got, values)
	}
	e, err := NewWithLibraries(s, noEnvironment, tunedOptions("bf16"), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x := loadedOn(t, e, p)
	if asked[10] == 0 || asked[4] == 0 || len(asked) != 2 {
		t.Errorf("the heuristics were asked for so many plans, so often: %v", asked)
	}
	if err := errors.Join(x.Close(), e.Close()); err != nil {
		t.Error(err)
	}
}

// TestVolumesAreConfirmed: where the fastest algorithm of a 3-D convolution gives a result
// that another does not confirm, the next is chosen; where it is right, it stays. Where no
// two algorithms give the same result, a notice says so.
func TestVolumesAreConfirmed(t *testing.T) {
	const fastest = 1
	for _, engines := range []clibtest.Wrong3DConvEngines{clibtest.WrongNone, clibtest.WrongFastest, clibtest.WrongAll} {
		wrong, all := engines == clibtest.WrongFastest, engines == clibtest.WrongAll
		for _, precision := range []string{"fp32", "bf16"} {
			e := openOn(t, cudatest.NewMachine(t, clibtest.Options{WrongVolumeEngines: engines}), tunedOptions(precision))
			u, err := model.UNet3D(model.UNet3DConfig{Base: 8, Depth: 1, InChannels: 1, OutChannels: 1, Size: []int{8, 8, 8}})
			if err != nil {
				t.Fatal(err)
			}
			g, err := u.Graph(1, nn.Train)
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Lower(g, plan.Options{Fuse: true})
			if err != nil {
				t.Fatal(err)
			}
			x := loadedOn(t, e, p)
			for key, known := range e.cache.Choices() {
				if (known.Engine == fastest) == wrong {
					t.Errorf("%s, wrong %v: engine %d was chosen for %s", precision, wrong, known.Engine, key)
				}
			}
			if n := x.Capabilities().Notices; (len(n) > 0) != all || all && (len(n) != len(e.cache.Choices()) || !strings.Contains(n[0], "no two of cuDNN's algorithms give the same result of the 3-D convolution")) {
				t.Errorf("%s: notices %q of %d convolutions", precision, n, len(e.cache.Choices()))
			}
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNoRepeatableAlgorithm: where each algorithm of cuDNN's may give other bits from run
// to run, one of these is used, and a notice says so.
func TestNoRepeatableAlgorithm(t *testing.T) {
	for _, convolution := range []string{"auto", "heuristic"} {
		s, err := clibtest.New(clibtest.Options{Shallow: true}).OpenStack()
		if err != nil {
			t.Fatal(err)
		}
		get := s.CUDNN.GetAttribute
		s.CUDNN.GetAttribute = func(d cudnn.Descriptor, name cudnn.Attribute, typ cudnn.AttributeType, want int64, got *int64, values unsafe.Pointer) cudnn.Status {
			if name == cudnn.AttrEngineNumerical {
				*(*int32)(values), *got = cudnn.NoteNondeterministic, 1
				return cudnn.Success
			}
			return get(d, name, typ, want, got, values)
		}
		o := tunedOptions("fp32")
		o.Convolution = convolution
		e, err := NewWithLibraries(s, func(string) string { return "off" }, o, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
		x := loadedOn(t, e, p)
		if n := x.Capabilities().Notices; len(n) != len(x.schedule.picks) || !strings.Contains(n[0], "has no algorithm for the convolution") {
			t.Errorf("%s: %d notices for %d convolutions: %q", convolution, len(n), len(x.schedule.picks), n)
		}
		if err := errors.Join(x.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestTF32: without it, or where the environment forbids it, no algorithm that
// rounds fp32's inputs is chosen.
func TestTF32(t *testing.T) {
	for _, c := range []struct {
		option   bool
		override string
		want     bool
	}{{true, "", true}, {false, "", false}, {true, "0", false}, {false, "1", true}} {
		s, err := clibtest.New(clibtest.Options{}).OpenStack()
		if err != nil {
			t.Fatal(err)
		}
		o := tunedOptions("fp32")
		o.TF32 = c.option
		e, err := NewWithLibraries(s, func(name string) string {
			switch name {
			case "NVIDIA_TF32_OVERRIDE":
				return c.override
			case autotune.CacheVariable:
				return "off"
			}
			return ""
		}, o, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
		loaded, err := e.Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		x, ok := loaded.(*executable)
		if !ok {
			t.Fatalf("loaded a %T", loaded)
		}
		rounding := 0
		for _, pick := range x.schedule.picks {
			plan := pick.plan
			for _, note := range plan.Numerical {
				if note == 0 || note == cudnn.NoteDownConvert { // CUDNN_NUMERICAL_NOTE_TENSOR_CORE
					rounding++
					break
				}
			}
			if !plan.IsDeterministic() {
				t.Errorf("%s gives other bits from run to run", plan)
			}
		}
		if (rounding > 0) != c.want {
			t.Errorf("tf32 %v with NVIDIA_TF32_OVERRIDE=%q: %d of %d algorithms round", c.option, c.override, rounding, len(x.schedule.picks))
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHeuristicMakesFewPlans: what is not timed is not made: one plan for each convolution.
func TestHeuristicMakesFewPlans(t *testing.T) {
	m := clibtest.New(clibtest.Options{Shallow: true})
	e := openOn(t, m, gpuOptions("fp16"))
	_, p := smallResNet(t, true)
	m.ResetCalls()
	x := loadedOn(t, e, p)
	if n := strings.Count(strings.Join(m.Calls(), "\n"), "cudnn plan: "); n != len(x.schedule.picks) {
		t.Errorf("%d plans for %d convolutions", n, len(x.schedule.picks))
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// TestTuningMemory: what is tuned with is noise, and nothing of it is left.
func TestTuningMemory(t *testing.T) {
	m := clibtest.New(clibtest.Options{})
	noise := 0
	e := openOn(t, m, tunedOptions("bf16"))
	_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x := loadedOn(t, e, p)
	for _, name := range x.Names() {
		v, err := x.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range v {
			if f != 0 {
				noise++
			}
		}
	}
	if noise > 0 {
		t.Errorf("%d numbers of tuning's noise are left in weights and states", noise)
	}
	if x.memory.cacheFlush.ptr != 0 {
		t.Error("tuning's own memory is kept")
	}
	for id, q := range p.Tensors {
		if q.Role != plan.Constant {
			continue
		}
		var memory []byte
		err := x.do(func() (err error) {
			memory, err = x.gpu.readMemory(x.tensorAddress(id), int64(x.memory.locations[id].bytes()))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if v := number.Decode(x.memory.locations[id].typ, memory); float64(v[0]) != q.Value {
			t.Errorf("constant %v is %v", q.Value, v[0])
		}
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// TestTuningOfPlansWithoutText: if cuDNN cannot serialize a plan, the tuning cache
// identifies the plan by its engine and knobs.
func TestTuningOfPlansWithoutText(t *testing.T) {
	silent := func(lib *cudnn.Library) {
		get := lib.GetAttribute
		lib.GetAttribute = func(d cudnn.Descriptor, name cudnn.Attribute, typ cudnn.AttributeType, want int64, got *int64, values unsafe.Pointer) cudnn.Status {
			if name == cudnn.AttrPlanJSON {
				return cudnn.NotSupported
			}
			return get(d, name, typ, want, got, values)
		}
	}
	dir, bf16 := t.TempDir(), tunedOptions("bf16")
	if n := executions(t, dir, clibtest.Options{}, bf16, silent); n < 100 {
		t.Errorf("%d runs to tune a U-Net", n)
	}
	if n := executions(t, dir, clibtest.Options{}, bf16, silent); n != 0 {
		t.Errorf("%d runs although the cache knows all", n)
	}
}
