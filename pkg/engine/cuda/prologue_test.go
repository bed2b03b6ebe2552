package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/autotune"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels/hostsim"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// smallResNet returns a network with blocks of all kinds, and with batch norms before and after
// its convolutions.
func smallResNet(t testing.TB, v2 bool) (*nn.Graph, *plan.Program) {
	t.Helper()
	build := model.ResNetV1
	if v2 {
		build = model.ResNetV2
	}
	net, err := build(model.ResNetConfig{Blocks: []int{2, 2}, Base: 5, Classes: 7, InChannels: 3, Height: 10, Width: 14, Stem: model.StemCIFAR})
	if err != nil {
		t.Fatal(err)
	}
	return loweredNetwork(t, net, 3, nn.Train, plan.Options{Fuse: true, BucketBytes: 4096})
}

// firstStep loads p and runs one step, with a loss scale at which nothing overflows.
func firstStep(t *testing.T, e *Engine, g *nn.Graph, p *plan.Program) *executable {
	t.Helper()
	loadedOne := loaded(t, e, p, g)
	setControl(t, loadedOne, func(x *executable) { x.last.control.LossScale = 256 })
	initialise(t, loadedOne, g)
	if _, err := loadedOne.Step(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	x, ok := loadedOne.(*executable)
	if !ok {
		t.Fatalf("loaded a %T", loadedOne)
	}
	return x
}

// loadedOn is p on e.
func loadedOn(t *testing.T, e *Engine, p *plan.Program) *executable {
	t.Helper()
	loadedOne, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	x, ok := loadedOne.(*executable)
	if !ok {
		t.Fatalf("loaded a %T", loadedOne)
	}
	return x
}

func gradientsOf(t testing.TB, x engine.Executable) (all []float64) {
	t.Helper()
	for _, q := range x.Program().Params {
		v, err := x.Gradient(q.Name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v...)
	}
	return all
}

// statesOf are the running statistics.
func statesOf(t testing.TB, x engine.Executable) (all []float64) {
	t.Helper()
	for _, id := range x.Program().States {
		v, err := x.Get(x.Program().Tensors[id].Name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v...)
	}
	return all
}

// executed are the graphs of cuDNN's that ran since the last Reset, by a machine's log.
func executed(calls, since []string) (graphs []string) {
	plans := map[string]string{}
	made := regexp.MustCompile(`^cudnn plan: engine \d+ of (.*) = (plan#\d+)$`)
	for _, c := range calls {
		if m := made.FindStringSubmatch(c); m != nil {
			plans[m[2]] = m[1]
		}
	}
	for _, c := range since {
		if f := strings.Fields(c); len(f) > 1 && f[0] == "cudnnBackendExecute" {
			graphs = append(graphs, plans[f[1]])
		}
	}
	return graphs
}

// TestNormsInConvolutions: with the graphs that convolutions and batch norms have in
// common chosen wherever they are offered, losses, gradients and running statistics are
// the reference's within what fp16 allows, and those without such graphs.
func TestNormsInConvolutions(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v2-%v", v2), func(t *testing.T) {
			g, p := smallResNet(t, v2)
			want := loaded(t, truth(t), p, g)
			m := cudatest.NewMachine(t, clibtest.Options{})
			o := tunedOptions("fp16")
			o.Graph = false // so that each step's calls are seen
			x := firstStep(t, openOn(t, m, o), g, p)
			if on := x.countAppliedNorms(); on == 0 || on < len(x.prologues)/2 {
				t.Fatalf("%d of %d batch norms are part of their convolutions", on, len(x.prologues))
			}
			before := m.Calls()
			m.ResetCalls()
			if _, err := x.Step(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
			counted := map[string]int{}
			for _, graph := range executed(before, m.Calls()) {
				for name, part := range map[string]string{
					"forward": "multiply .*ReLU .*conv forward .*statistics", "weights": "multiply .*conv filter", "data": "conv data .*batch norm sums",
					"residual": "conv forward .*add .*",
				} {
					if regexp.MustCompile(part).MatchString(graph) {
						counted[name]++
					}
				}
			}
			for _, name := range []string{"forward", "weights", "data"} {
				if counted[name] < 3 {
					t.Errorf("%d graphs %s ran: %v", counted[name], name, counted)
				}
			}
			o.FuseNorm = false
			apart := firstStep(t, open(t, o), g, p)
			if len(apart.prologues) != 0 {
				t.Error("fuse_norm=false still folds batch norms")
			}
			truths, ours, plain := gradientsOf(t, want), gradientsOf(t, x), gradientsOf(t, apart)
			if c := number.CosineSimilarity(ours, truths); !(c > 0.995) {
				t.Errorf("the gradients' cosine with the reference's is %v (%v apart)", c, number.CosineSimilarity(plain, truths))
			}
			if c := number.CosineSimilarity(ours, plain); !(c > 0.995) {
				t.Errorf("the gradients' cosine with those of batch norms apart is %v", c)
			}
			if d := math.Abs(x.Loss() - want.Loss()); !(d < 1e-2*want.Loss()) {
				t.Errorf("loss is %v, the reference has %v", x.Loss(), want.Loss())
			}
			near(t, "running statistics", statesOf(t, firstStep(t, openOn(t, cudatest.NewMachine(t, clibtest.Options{}), gpuOptions("fp16")), g, p)), statesOf(t, apart), 2e-3)
		})
	}
}

// TestNormsInConvolutionsRecorded: recorded steps have the bits of those that are not.
func TestNormsInConvolutionsRecorded(t *testing.T) {
	g, p := smallResNet(t, true)
	var all [2][]float64
	var weights [2]map[string][]float64
	for i, graph := range []bool{false, true} {
		o := gpuOptions("fp16")
		o.Graph = graph
		all[i], weights[i] = trained(t, open(t, o), g, p, 3)
	}
	if number.CountDiffering(all[0], all[1]) != 0 {
		t.Errorf("losses are %v, recorded %v", all[0], all[1])
	}
	for name, v := range weights[0] {
		if n := number.CountDiffering(v, weights[1][name]); n != 0 {
			t.Errorf("%s: %d numbers differ when recorded", name, n)
		}
	}
}

// TestNormsThatAreRefused: on a device without such graphs every batch norm is apart, with
// the bits that fuse_norm=false gives, and the tuning file says why; the choice is made
// once.
func TestNormsThatAreRefused(t *testing.T) {
	g, p := smallResNet(t, true)
	o := gpuOptions("fp16")
	ada := firstStep(t, openOn(t, cudatest.NewMachine(t, clibtest.Options{Capability: [2]int{8, 9}}), o), g, p)
	if ada.countAppliedNorms() != 0 || len(ada.prologues) == 0 {
		t.Errorf("%d of %d batch norms are folded on a device that cannot", ada.countAppliedNorms(), len(ada.prologues))
	}
	o.FuseNorm = false
	plain := firstStep(t, openOn(t, cudatest.NewMachine(t, clibtest.Options{}), o), g, p)
	if n := number.CountDiffering(gradientsOf(t, ada), gradientsOf(t, plain)) + number.CountDiffering(statesOf(t, ada), statesOf(t, plain)); n != 0 {
		t.Errorf("%d numbers differ from those without such graphs", n)
	}

	dir := t.TempDir()
	load := func(on clibtest.Options) (e *Engine, runs int) {
		on.Shallow = true
		m := clibtest.New(on)
		s, err := m.Stack()
		if err != nil {
			t.Fatal(err)
		}
		e, err = NewWithLibraries(s, func(name string) string { return map[string]string{autotune.CacheVariable: dir}[name] }, tunedOptions("fp16"), 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		m.ResetCalls()
		x, err := e.Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		return e, strings.Count(strings.Join(m.Calls(), "\n"), "cudnnBackendExecute")
	}
	for _, c := range []struct {
		on      clibtest.Options
		missing string
	}{{clibtest.Options{}, ""}, {clibtest.Options{Capability: [2]int{8, 9}, Name: "Simulated L40"}, "has no convolution after a batch norm"}} {
		e, first := load(c.on)
		sites, folded := 0, 0
		for key, choice := range e.cache.Choices() {
			if !strings.Contains(key, "norm and relu of") {
				continue
			}
			sites++
			folded += choice.Variant
			if !strings.Contains(choice.Missing, c.missing) || c.missing == "" && !(choice.Milliseconds > 0 && choice.Milliseconds <= choice.Against) {
				t.Errorf("%s: %+v", key, choice)
			}
		}
		if sites < 3 || first < 100 || c.missing == "" && folded < 3 || c.missing != "" && folded > 0 {
			t.Errorf("%d choices of batch norms, %d part of their readers, %d runs", sites, folded, first)
		}
		if _, again := load(c.on); again != 0 {
			t.Errorf("%d runs although the file knows all", again)
		}
	}
}

// TestNormsThatAreSlower: a batch norm stays apart where its convolutions take longer
// with it, and the file says what both took.
func TestNormsThatAreSlower(t *testing.T) {
	_, p := smallResNet(t, true)
	e := openOn(t, clibtest.New(clibtest.Options{Shallow: true}), tunedOptions("fp16"))
	x := loadedOn(t, e, p)
	defer func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}()
	at := slices.IndexFunc(x.prologues, func(p *prologue) bool { return p.applied })
	if at < 0 {
		t.Fatal("every batch norm is apart")
	}
	site := x.prologues[at]
	// As tuning would have found it, were the readers twice as fast by themselves.
	err := x.do(func() error {
		for _, r := range site.readers {
			c, _ := x.asConvolution(x.tasks[r])
			alone, err := x.choosePlan(x.tasks[r], c)
			if err != nil {
				return err
			}
			if err := x.schedule.picks[r].plan.Close(); err != nil {
				return err
			}
			alone.ms /= 8
			x.schedule.picks[r] = alone
		}
		e.cache = autotune.OpenCache("", "") // it knows nothing of this choice
		site.applied = false
		return x.decidePrologue(site)
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := e.cache.Choices()[x.prologueKey(site)]; site.applied || c.Variant != 0 || !(c.Milliseconds < c.Against) {
		t.Errorf("the slower way is chosen: %+v", c)
	}
}

// TestFindPrologues: which batch norms may be part of their readers, by what reads them.
func TestFindPrologues(t *testing.T) {
	_, v2 := smallResNet(t, true)
	_, v1 := smallResNet(t, false)
	again, err := plan.Recompute(v2)
	if err != nil {
		t.Fatal(err)
	}
	synchronised := *v2
	synchronised.Kernels = slices.Clone(v2.Kernels)
	for i := range synchronised.Kernels {
		if k := &synchronised.Kernels[i]; k.Op == plan.OpBatchNorm || k.Op == plan.OpBatchNormBackward {
			k.Attr.Sync = true
		}
	}
	_, volumes := loweredNetwork(t, networks(t)[2], 2, nn.Train, plan.Options{Fuse: true})
	for _, c := range []struct {
		name       string
		p          *plan.Program
		low        device.Type
		norms      bool
		folds, sum int
	}{
		// Keras' blocks: three batch norms each, and one before the average.
		{"v2", v2, device.F16, true, 12, 10},
		// torchvision's blocks: batch norms before the sums have no ReLU.
		{"v1", v1, device.F16, true, 9, 8},
		{"bf16", v2, device.BF16, true, 0, 0},
		{"fp32", v2, device.F32, true, 0, 0},
		{"off", v2, device.F16, false, 0, 0},
		{"recomputed", again, device.F16, true, 0, 0},
		{"volumes", volumes, device.F16, true, 0, 0},
	} {
		l, err := lowerProgram(c.p, c.low, fusing(true, c.norms))
		if err != nil {
			t.Fatal(err)
		}
		sums := 0
		for _, task := range l.tasks {
			if task.sums != nil {
				sums++
			}
		}
		if len(l.prologues) != c.folds || c.name != "recomputed" && sums != c.sum {
			t.Errorf("%s: %d batch norms may be part of their readers, want %d; %d gradients sum for one, want %d", c.name, len(l.prologues), c.folds, sums, c.sum)
		}
	}
}

// TestNormMutations: a fault in what the fused graphs are given, or leave, is far beyond
// what TestNormsInConvolutions allows.
func TestNormMutations(t *testing.T) {
	g, p := smallResNet(t, true)
	want := gradientsOf(t, loaded(t, truth(t), p, g))
	cudatest.NewMachine(t, clibtest.Options{}) // skips the test if there is no C++ compiler
	run, err := hostsim.OpenShared()
	if err != nil {
		t.Fatal(err)
	}
	// The arguments of bn_scale_shift: four vectors, then scale, shift and their number.
	vector := func(args []byte, at int) []uint16 {
		n := binary.LittleEndian.Uint32(args[48:])
		p := uintptr(binary.LittleEndian.Uint64(args[at:]))
		return unsafe.Slice((*uint16)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
	}
	for name, fault := range map[string]func(kernel string, args []byte) (skip bool, after func()){
		"no statistics from sums": func(kernel string, _ []byte) (bool, func()) { return kernel == "bn_sums", nil },
		"no scale":                func(kernel string, _ []byte) (bool, func()) { return kernel == "bn_scale_shift_f16", nil },
		"shifts of the other sign": func(kernel string, args []byte) (bool, func()) {
			return false, func() {
				if kernel == "bn_scale_shift_f16" {
					for i, v := range vector(args, 40) {
						vector(args, 40)[i] = v ^ 0x8000
					}
				}
			}
		},
		"scales of the other sign": func(kernel string, args []byte) (bool, func()) {
			return false, func() {
				if kernel == "bn_scale_shift_f16" {
					for i, v := range vector(args, 32) {
						vector(args, 32)[i] = v ^ 0x8000
					}
				}
			}
		},
		"no ReLU": func(kernel string, args []byte) (bool, func()) {
			return false, func() { // 64 more in front of it, so that nothing is below 0
				if kernel == "bn_scale_shift_f16" {
					for i := range vector(args, 40) {
						vector(args, 40)[i] = 0x5400 // 64 in binary16
					}
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := clibtest.New(clibtest.Options{Execute: func(kernel string, grid, block [3]uint32, shared uint32, args []byte) error {
				skip, after := fault(kernel, args)
				if skip {
					return nil
				}
				err := run.Run(kernel, grid, block, shared, args)
				if after != nil {
					after()
				}
				return err
			}})
			e := openOn(t, m, gpuOptions("fp16"))
			loadedOne, err := e.Load(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			setControl(t, loadedOne, func(x *executable) { x.last.control.LossScale = 256 })
			initialise(t, loadedOne, g)
			feed(t, loadedOne, 1)
			if _, err := loadedOne.Step(t.Context(), nil, nil); err != nil {
				return // seen
			}
			if c := number.CosineSimilarity(gradientsOf(t, loadedOne), want); c > 0.95 {
				t.Errorf("the gradients' cosine with the reference's is %v", c)
			}
		})
	}
}

// TestTuningLeavesStatistics checks that kernels after a timed convolution do not change the
// running statistics that a loaded executable shares.
func TestTuningLeavesStatistics(t *testing.T) {
	g, p := smallResNet(t, true)
	e := open(t, tunedOptions("fp16"))
	first := firstStep(t, e, g, p)
	want, weights := statesOf(t, first), snapshot(t, first)
	_, other := loweredNetwork(t, mustNetwork(t), 2, nn.Train, plan.Options{Fuse: true})
	second, err := e.Load(other, first)
	if err != nil {
		t.Fatal(err)
	}
	if n := number.CountDiffering(statesOf(t, first), want); n != 0 {
		t.Errorf("loading a second program moved %d running statistics", n)
	}
	for name, v := range snapshot(t, first) {
		if n := number.CountDiffering(v, weights[name]); n != 0 {
			t.Errorf("loading a second program changed %d numbers of %s", n, name)
		}
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func mustNetwork(t testing.TB) model.Network {
	t.Helper()
	net, err := model.ResNetV2(model.ResNetConfig{Blocks: []int{2, 2}, Base: 5, Classes: 7, InChannels: 3, Height: 10, Width: 14, Stem: model.StemCIFAR})
	if err != nil {
		t.Fatal(err)
	}
	return net
}
