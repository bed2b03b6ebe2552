package cuda

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/engine/cuda/internal/number"
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
// those of the reference, and those without such graphs, within what fp16 allows.
func TestNormsInConvolutions(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v2-%v", v2), func(t *testing.T) {
			g, p := smallResNet(t, v2)
			want := loaded(t, truth(t), p, g)
			m := cudatest.NewMachine(t, clibtest.Options{})
			o := tunedOptions("fp16")
			o.Graph = false // so that each step's calls are seen
			x := firstStep(t, openOn(t, m, o), g, p)
			before := m.Calls()
			m.ResetCalls()
			if _, err := x.Step(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
			sums := 0
			for _, graph := range executed(before, m.Calls()) {
				if regexp.MustCompile("conv data .*batch norm sums").MatchString(graph) {
					sums++
				}
			}
			if sums < 3 {
				t.Errorf("%d graphs with sums of a batch norm's gradient ran", sums)
			}
			o.FuseNorm = false
			apart := firstStep(t, open(t, o), g, p)
			if slices.ContainsFunc(apart.tasks, func(one loweredTask) bool { return one.sums != nil }) {
				t.Error("fuse_norm=false still sums for batch norms")
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
	if number.CountDifferences(all[0], all[1]) != 0 {
		t.Errorf("losses are %v, recorded %v", all[0], all[1])
	}
	for name, v := range weights[0] {
		if n := number.CountDifferences(v, weights[1][name]); n != 0 {
			t.Errorf("%s: %d numbers differ when recorded", name, n)
		}
	}
}

// TestNormsThatAreRefused: on a device without such graphs the bits are those that
// fuse_norm=false gives, and the tuning file says why.
func TestNormsThatAreRefused(t *testing.T) {
	g, p := smallResNet(t, true)
	o := tunedOptions("fp16")
	e := openOn(t, cudatest.NewMachine(t, clibtest.Options{Capability: [2]int{8, 9}}), o)
	ada := firstStep(t, e, g, p)
	o.FuseNorm = false
	plain := firstStep(t, openOn(t, cudatest.NewMachine(t, clibtest.Options{Capability: [2]int{8, 9}}), o), g, p)
	if n := number.CountDifferences(gradientsOf(t, ada), gradientsOf(t, plain)) + number.CountDifferences(statesOf(t, ada), statesOf(t, plain)); n != 0 {
		t.Errorf("%d numbers differ from those without such graphs", n)
	}
	sites := 0
	for key, choice := range e.cache.Choices() {
		if !strings.Contains(key, "sums of a norm's gradient") {
			continue
		}
		sites++
		if choice.Variant != 0 || !strings.Contains(choice.Missing, "gradient sums of a batch norm") {
			t.Errorf("%s: %+v", key, choice)
		}
	}
	if sites < 3 {
		t.Errorf("%d choices of data gradients with sums", sites)
	}
}

// TestFindGradientSums: which data gradients may sum for the batch norm before them, by what
// reads its result.
func TestFindGradientSums(t *testing.T) {
	_, v2 := smallResNet(t, true)
	_, v1 := smallResNet(t, false)
	_, volumes := loweredNetwork(t, networks(t)[2], 2, nn.Train, plan.Options{Fuse: true})
	for _, c := range []struct {
		name  string
		p     *plan.Program
		low   device.ElementType
		norms bool
		want  int
	}{
		// Keras' blocks have three batch norms each.
		{"v2", v2, device.F16, true, 10},
		// torchvision's blocks: batch norms before the sums have no ReLU.
		{"v1", v1, device.F16, true, 8},
		{"bf16", v2, device.BF16, true, 0},
		{"fp32", v2, device.F32, true, 0},
		{"off", v2, device.F16, false, 0},
		{"volumes", volumes, device.F16, true, 0},
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
		if sums != c.want {
			t.Errorf("%s: %d gradients sum for a batch norm, want %d", c.name, sums, c.want)
		}
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
	if n := number.CountDifferences(statesOf(t, first), want); n != 0 {
		t.Errorf("loading a second program moved %d running statistics", n)
	}
	for name, v := range snapshot(t, first) {
		if n := number.CountDifferences(v, weights[name]); n != 0 {
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
