package clibtest_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// shape contains the sizes of a convolution.
type shape struct {
	x, w, y               []int64
	pad, stride, dilation []int64
}

func product(v []int64) int {
	n := int64(1)
	for _, d := range v {
		n *= d
	}
	return int(n)
}

// at returns the index in memory of an element of a channels-last tensor.
func at(dims []int64, index ...int64) int {
	n := int64(0)
	for i, s := range cudnn.ChannelsLastStrides(dims) {
		n += s * index[i]
	}
	return int(n)
}

// visit calls f for each product that a convolution sums (its definition: Dumoulin
// and Visin, "A guide to convolution arithmetic", 2016), 2-D or 3-D.
func (s shape) visit(f func(x, w, y int)) {
	var loop func(axis int, n, k, c int64, out, tap []int64)
	loop = func(axis int, n, k, c int64, out, tap []int64) {
		if axis == len(s.pad) {
			xi, wi, yi := []int64{n, c}, []int64{k, c}, []int64{n, k}
			for a := range s.pad {
				p := out[a]*s.stride[a] - s.pad[a] + tap[a]*s.dilation[a]
				if p < 0 || p >= s.x[a+2] {
					return
				}
				xi, wi, yi = append(xi, p), append(wi, tap[a]), append(yi, out[a])
			}
			f(at(s.x, xi...), at(s.w, wi...), at(s.y, yi...))
			return
		}
		for o := range s.y[axis+2] {
			for t := range s.w[axis+2] {
				loop(axis+1, n, k, c, append(out, o), append(tap, t))
			}
		}
	}
	for n := range s.x[0] {
		for k := range s.y[1] {
			for c := range s.x[1] {
				loop(0, n, k, c, nil, nil)
			}
		}
	}
}

func random(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		// Eighths are exact in every type, and so are their products in fp32.
		v[i] = float32(r.IntN(17)-8) / 8
	}
	return v
}

func (g *gpu) tensor(name string, v []float32) cuda.Ptr {
	g.t.Helper()
	p := g.alloc(name, int64(4*len(v)))
	g.put(p, v...)
	return p
}

func (g *gpu) handle() (cudnn.Handle, cuda.Stream) {
	g.t.Helper()
	h, err := g.CUDNN.Create()
	check(g.t, err)
	s := g.stream()
	check(g.t, g.CUDNN.SetStream(h, s))
	return h, s
}

// run creates a graph of ops and executes the first plan that needs no workspace.
func (g *gpu) run(h cudnn.Handle, s cuda.Stream, at map[int64]cuda.Ptr, ops ...cudnn.Op) {
	g.t.Helper()
	graph, err := g.CUDNN.NewGraph(h, ops...)
	check(g.t, err)
	plans, _, err := graph.CreatePlans(cudnn.HeurA)
	check(g.t, err)
	pack, err := g.CUDNN.NewVariantPack(at, 0)
	check(g.t, err)
	check(g.t, g.CUDNN.Run(h, plans[0], pack))
	check(g.t, g.Driver.StreamSynchronize(s))
	for _, p := range plans {
		check(g.t, p.Close())
	}
	check(g.t, pack.Close())
	check(g.t, graph.Close())
}

func wantNear(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	for i, w := range want {
		if math.Abs(float64(got[i])-w) > 1e-5*(1+math.Abs(w)) { // fp32 sums of some hundred eighths
			t.Fatalf("%s[%d] = %v, want %v", what, i, got[i], w)
		}
	}
}

func TestConvolutions(t *testing.T) {
	for name, s := range map[string]shape{
		"3x3":                {[]int64{2, 3, 5, 6}, []int64{4, 3, 3, 3}, []int64{2, 4, 5, 6}, []int64{1, 1}, []int64{1, 1}, []int64{1, 1}},
		"strided":            {[]int64{1, 2, 7, 8}, []int64{3, 2, 3, 2}, []int64{1, 3, 4, 4}, []int64{1, 0}, []int64{2, 2}, []int64{1, 1}},
		"dilated":            {[]int64{1, 2, 7, 7}, []int64{2, 2, 3, 3}, []int64{1, 2, 3, 3}, []int64{0, 0}, []int64{1, 1}, []int64{2, 2}},
		"3-D":                {[]int64{1, 2, 4, 3, 5}, []int64{3, 2, 3, 1, 3}, []int64{1, 3, 4, 3, 5}, []int64{1, 0, 1}, []int64{1, 1, 1}, []int64{1, 1, 1}},
		"transposed k2 s2":   {[]int64{1, 2, 6, 4}, []int64{3, 2, 2, 2}, []int64{1, 3, 3, 2}, []int64{0, 0}, []int64{2, 2}, []int64{1, 1}},
		"one by one, 1 in C": {[]int64{2, 1, 3, 3}, []int64{1, 1, 1, 1}, []int64{2, 1, 3, 3}, []int64{0, 0}, []int64{1, 1}, []int64{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			g := ready(t, clibtest.Options{})
			h, stream := g.handle()
			x, w, y := random(r, product(s.x)), random(r, product(s.w)), random(r, product(s.y))
			at := map[int64]cuda.Ptr{1: g.tensor("x", x), 2: g.tensor("w", w), 3: g.tensor("y", y)}
			conv := cudnn.Conv{Pad: s.pad, Stride: s.stride, Dilation: s.dilation}
			tx, tw, ty := cudnn.Tensor{ID: 1, Dims: s.x}, cudnn.Tensor{ID: 2, Dims: s.w}, cudnn.Tensor{ID: 3, Dims: s.y}
			wantY, wantX, wantW := make([]float64, len(y)), make([]float64, len(x)), make([]float64, len(w))
			for i, v := range y { // Y = 2·conv(X, W) + 0.5·Y
				wantY[i] = 0.5 * float64(v)
			}
			s.visit(func(i, j, k int) {
				wantY[k] += 2 * float64(x[i]) * float64(w[j])
				wantX[i] += float64(y[k]) * float64(w[j])
				wantW[j] += float64(y[k]) * float64(x[i])
			})
			// Gradients first: they read y as it was. Their results go beside the inputs.
			dx, dw := g.alloc("dx", int64(4*len(x))), g.alloc("dw", int64(4*len(w)))
			g.run(h, stream, map[int64]cuda.Ptr{1: dx, 2: at[2], 3: at[3]}, cudnn.ConvBackwardData{Conv: conv, DX: tx, W: tw, DY: ty})
			g.run(h, stream, map[int64]cuda.Ptr{1: at[1], 2: dw, 3: at[3]}, cudnn.ConvBackwardFilter{Conv: conv, X: tx, DW: tw, DY: ty})
			g.run(h, stream, at, cudnn.ConvForward{Conv: conv, X: tx, W: tw, Y: ty, Alpha: 2, Beta: 0.5})
			wantNear(t, "y", g.floats(at[3], len(y)), wantY)
			wantNear(t, "dx", g.floats(dx, len(x)), wantX)
			wantNear(t, "dw", g.floats(dw, len(w)), wantW)
		})
	}
}

// TestFusedGraphInBF16 checks that a fused graph rounds to bf16: 1.00390625 = 1 + 2⁻⁸ is halfway
// between two numbers and is rounded to the even one, 1.
func TestFusedGraphInBF16(t *testing.T) {
	g := ready(t, clibtest.Options{})
	h, s := g.handle()
	bf16 := func(v ...float32) []byte {
		var b []byte
		for _, f := range v {
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(f)>>16)) // exact values only
		}
		return b
	}
	put := func(name string, b []byte) cuda.Ptr {
		p := g.alloc(name, int64(len(b)))
		check(t, g.Driver.MemcpyHtoD(p, unsafe.Pointer(&b[0]), int64(len(b))))
		check(t, g.Driver.StreamSynchronize(0))
		return p
	}
	x, w := put("x", bf16(1, 0.00390625, -3, 0, 2, 0.0078125)), put("w", bf16(1, 1))
	b, y := g.tensor("b", []float32{0.25}), g.alloc("y", 6)
	px := cudnn.Tensor{ID: 1, Type: cudnn.BFloat16, Dims: []int64{1, 2, 1, 3}}
	one := cudnn.Conv{Pad: []int64{0, 0}}
	sum := cudnn.Tensor{ID: 3, Dims: []int64{1, 1, 1, 3}, Virtual: true}
	biased := cudnn.Tensor{ID: 5, Dims: []int64{1, 1, 1, 3}, Virtual: true}
	g.run(h, s, map[int64]cuda.Ptr{1: x, 2: w, 4: b, 6: y},
		cudnn.ConvForward{Conv: one, X: px, W: cudnn.Tensor{ID: 2, Type: cudnn.BFloat16, Dims: []int64{1, 2, 1, 1}}, Y: sum},
		cudnn.Pointwise{Mode: cudnn.PointwiseAdd, X: sum, B: cudnn.Tensor{ID: 4, Dims: []int64{1, 1, 1, 1}}, Y: biased},
		cudnn.Pointwise{Mode: cudnn.PointwiseReLU, X: biased, Y: cudnn.Tensor{ID: 6, Type: cudnn.BFloat16, Dims: []int64{1, 1, 1, 3}}})
	got, err := g.machine.Bytes(y, 6)
	check(t, err)
	// 1+2⁻⁸+¼ = 1.25390625 lies between 1.25 and 1.2578125, exactly halfway: even
	// is 1.25. -3+0+¼ is cut to 0. 2+2⁻⁷+¼ = 2.2578125 lies halfway of 2.25 and
	// 2.265625, of which 2.25 (0x4010) is even.
	if want := bf16(1.25, 0, 2.25); string(got) != string(want) {
		t.Errorf("y = %x, want %x", got, want)
	}
}

func TestStatisticsAndPointwise(t *testing.T) {
	g := ready(t, clibtest.Options{})
	h, s := g.handle()
	x := g.tensor("x", []float32{1, -2, 3, 4, -5, 6}) // 3 points of 2 channels
	sum, square := g.alloc("sum", 8), g.alloc("square", 8)
	dims, stats := []int64{1, 2, 1, 3}, []int64{1, 2, 1, 1}
	tx := cudnn.Tensor{ID: 1, Dims: dims}
	g.run(h, s, map[int64]cuda.Ptr{1: x, 2: sum, 3: square},
		cudnn.Genstats{X: tx, Sum: cudnn.Tensor{ID: 2, Dims: stats}, SqSum: cudnn.Tensor{ID: 3, Dims: stats}})
	wantNear(t, "sum", g.floats(sum, 2), []float64{-1, 8})
	wantNear(t, "square", g.floats(square, 2), []float64{35, 56})
	scale, y := g.tensor("scale", []float32{10, 100}), g.alloc("y", 24)
	g.run(h, s, map[int64]cuda.Ptr{1: x, 2: scale, 3: y},
		cudnn.Pointwise{Mode: cudnn.PointwiseMul, X: tx, B: cudnn.Tensor{ID: 2, Dims: stats}, Y: cudnn.Tensor{ID: 3, Dims: dims}})
	wantNear(t, "x·scale", g.floats(y, 6), []float64{10, -200, 30, 400, -50, 600})
	g.run(h, s, map[int64]cuda.Ptr{1: x, 2: y, 3: y},
		cudnn.Pointwise{Mode: cudnn.PointwiseReLUBack, X: tx, DY: cudnn.Tensor{ID: 2, Dims: dims}, DX: cudnn.Tensor{ID: 3, Dims: dims}})
	wantNear(t, "gradient", g.floats(y, 6), []float64{10, 0, 30, 400, 0, 600})
}

// TestStridesIntoAWiderTensor writes to half of the channels of a wider tensor, as a transposed
// convolution writes into a concatenation. The other half must not change.
func TestStridesIntoAWiderTensor(t *testing.T) {
	g := ready(t, clibtest.Options{})
	h, s := g.handle()
	x, wide := g.tensor("x", []float32{1, 2, 3, 4}), g.tensor("wide", make([]float32, 8))
	dims := []int64{1, 2, 1, 2}
	g.run(h, s, map[int64]cuda.Ptr{1: x, 2: wide.Add(8)},
		cudnn.Pointwise{Mode: cudnn.PointwiseReLU, X: cudnn.Tensor{ID: 1, Dims: dims}, Y: cudnn.Tensor{ID: 2, Dims: dims, Strides: []int64{8, 1, 8, 4}, Align: 8}})
	wantNear(t, "wide", g.floats(wide, 8), []float64{0, 0, 1, 2, 0, 0, 3, 4})
}

func TestPlans(t *testing.T) {
	g := ready(t, clibtest.Options{})
	h, s := g.handle()
	x, y := g.tensor("x", []float32{-1, 2, 3, -4}), g.alloc("y", 16)
	dims := []int64{1, 1, 2, 2}
	relu := cudnn.Pointwise{Mode: cudnn.PointwiseReLU, X: cudnn.Tensor{ID: 1, Dims: dims}, Y: cudnn.Tensor{ID: 2, Dims: dims}}
	graph, err := g.CUDNN.NewGraph(h, relu)
	check(t, err)
	plans, rejected, err := graph.CreatePlans(cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback)
	check(t, err)
	var engines []int64
	for _, p := range plans {
		engines = append(engines, p.Engine)
	}
	if want := []int64{0, 1, 1, 3, 40}; !equal(engines, want) {
		t.Errorf("engines %v, want %v", engines, want)
	}
	if plans[3].IsDeterministic() || !plans[0].IsDeterministic() {
		t.Error("the notes of determinism are not read")
	}
	if len(rejected) != 2 || rejected[0].Engine != 2 || !errors.Is(rejected[0].Err, cudnn.NotSupported) || !errors.Is(rejected[1].Err, cudnn.CompilationFailed) {
		t.Errorf("rejected: %+v", rejected)
	}
	wants(t, rejected[1].Err, "plan of engine 41", "CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED (4001)", "lockstep doctor")
	text, err := plans[1].JSON()
	check(t, err)
	again, err := g.CUDNN.PlanFromJSON(h, text)
	check(t, err)
	if again.Workspace != 4096 {
		t.Errorf("workspace %d", again.Workspace)
	}
	bare, err := g.CUDNN.NewVariantPack(map[int64]cuda.Ptr{1: x, 2: y}, 0)
	check(t, err)
	wants(t, g.CUDNN.Run(h, again, bare), "needs a workspace of 4096 bytes")
	pack, err := g.CUDNN.NewVariantPack(map[int64]cuda.Ptr{1: x, 2: y}, g.alloc("workspace", 4096))
	check(t, err)
	check(t, g.CUDNN.Run(h, again, pack))
	check(t, g.Driver.StreamSynchronize(s))
	wantNear(t, "y", g.floats(y, 4), []float64{0, 2, 3, 0})
	_, err = g.CUDNN.PlanFromJSON(h, `{"damaged`)
	wants(t, err, "Finalize of plan from text", "the text is not a plan")
	_, err = g.CUDNN.PlanFromJSON(h, strings.Replace(text, "91900", "90100", 1))
	wants(t, err, "SERIALIZATION_VERSION_MISMATCH (1003)")
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestDescriptorsAreChecked(t *testing.T) {
	g := ready(t, clibtest.Options{})
	h, _ := g.handle()
	l := g.CUDNN
	create := func(k cudnn.DescriptorType) cudnn.Descriptor {
		d, s := l.CreateDescriptor(k)
		if s != cudnn.Success {
			t.Fatal(s)
		}
		return d
	}
	v, f := int64(1), float32(1)
	tensor, conv := create(cudnn.DescTensor), create(cudnn.DescConvForward)
	for name, c := range map[string]struct{ got, want cudnn.Status }{
		"type":        {l.SetAttribute(tensor, cudnn.AttrTensorID, cudnn.TypeFloat, 1, unsafe.Pointer(&f)), cudnn.WrongAttributeType},
		"attribute":   {l.SetAttribute(tensor, cudnn.AttrConvMode, cudnn.TypeInt64, 1, unsafe.Pointer(&v)), cudnn.BadParam},
		"count":       {l.SetAttribute(tensor, cudnn.AttrTensorID, cudnn.TypeInt64, 2, unsafe.Pointer(&[2]int64{})), cudnn.OutOfBound},
		"null":        {l.SetAttribute(tensor, cudnn.AttrTensorID, cudnn.TypeInt64, 1, nil), cudnn.NullPointer},
		"missing":     {l.Finalize(tensor), cudnn.BadParam},
		"unfinalized": {l.SetAttribute(conv, cudnn.AttrForwardX, cudnn.TypeDescriptor, 1, unsafe.Pointer(&tensor)), cudnn.NotFinalized},
		"no kind":     {func() cudnn.Status { _, s := l.CreateDescriptor(99); return s }(), cudnn.NotSupported},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	x := cudnn.Tensor{ID: 1, Dims: []int64{1, 2, 4, 4}}
	_, err := l.NewGraph(h, cudnn.ConvForward{
		Conv: cudnn.Conv{Pad: []int64{0, 0}}, X: x,
		W: cudnn.Tensor{ID: 2, Dims: []int64{3, 2, 3, 3}}, Y: cudnn.Tensor{ID: 3, Dims: []int64{1, 3, 4, 4}},
	})
	wants(t, err, "cudnnBackendFinalize of forward convolution", "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH (2008)", "paddings [0 0]")
	_, err = l.NewGraph(h, cudnn.Pointwise{Mode: cudnn.PointwiseAdd, X: x, B: cudnn.Tensor{ID: 1, Dims: []int64{1, 2, 1, 1}}, Y: cudnn.Tensor{ID: 2, Dims: x.Dims}})
	wants(t, err, "describe tensor 1: two different descriptions")
	virtual := cudnn.Tensor{ID: 1, Dims: x.Dims, Virtual: true}
	_, err = l.NewGraph(h, cudnn.Pointwise{Mode: cudnn.PointwiseReLU, X: virtual, Y: cudnn.Tensor{ID: 2, Dims: x.Dims}})
	wants(t, err, "NOT_SUPPORTED_GRAPH_PATTERN (3001)", "tensor 1 is virtual and no operation writes it")
}

func TestExecutionIsChecked(t *testing.T) {
	g := ready(t, clibtest.Options{})
	h, _ := g.handle()
	dims := []int64{1, 1, 2, 2}
	graph, err := g.CUDNN.NewGraph(h, cudnn.Pointwise{Mode: cudnn.PointwiseReLU, X: cudnn.Tensor{ID: 1, Dims: dims}, Y: cudnn.Tensor{ID: 2, Dims: dims}})
	check(t, err)
	plans, _, err := graph.CreatePlans(cudnn.HeurA)
	check(t, err)
	p := g.alloc("buffer", 32)
	run := func(at map[int64]cuda.Ptr) error {
		pack, err := g.CUDNN.NewVariantPack(at, 0)
		check(t, err)
		return g.CUDNN.Run(h, plans[0], pack)
	}
	check(t, run(map[int64]cuda.Ptr{1: p, 2: p.Add(16)}))
	wants(t, run(map[int64]cuda.Ptr{1: p, 2: p.Add(4)}), "BAD_PARAM_MISALIGNED_POINTER (2003)", "tensor 2 at buffer+4 is not aligned to 16 bytes")
	wants(t, run(map[int64]cuda.Ptr{1: p}), "BAD_PARAM (2000)", "no address for tensor 2")
	wants(t, run(map[int64]cuda.Ptr{1: p, 2: 0}), "the address of tensor 2 is 0")
	wants(t, run(map[int64]cuda.Ptr{1: p, 2: p.Add(32)}), "tensor 2: buffer+32 (after its end at 32 bytes)")
}
