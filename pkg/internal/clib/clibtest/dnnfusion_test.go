package clibtest_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// halfBits returns f, which must be a small multiple of 1/8, in fp16, where it is exact: sign,
// exponent and mantissa as in IEEE 754-2008, section 3.4.
func halfBits(f float32) uint16 {
	if f == 0 {
		return 0
	}
	b := math.Float32bits(f)
	return uint16(b>>16&0x8000) | uint16((b>>13&0x3ffff)-(112<<10))
}

func (g *gpu) writeHalves(name string, v []float32) cuda.Ptr {
	g.t.Helper()
	p := g.alloc(name, int64(2*len(v)))
	raw := make([]byte, 2*len(v))
	for i, f := range v {
		binary.LittleEndian.PutUint16(raw[2*i:], halfBits(f))
	}
	check(g.t, g.Driver.MemcpyHtoD(p, unsafe.Pointer(&raw[0]), int64(len(raw))))
	check(g.t, g.Driver.StreamSynchronize(0))
	return p
}

func (g *gpu) readHalves(p cuda.Ptr, n int) []float32 {
	g.t.Helper()
	raw := make([]byte, 2*n)
	check(g.t, g.Driver.MemcpyDtoH(unsafe.Pointer(&raw[0]), p, int64(len(raw))))
	out := make([]float32, n)
	for i := range out {
		h := uint32(binary.LittleEndian.Uint16(raw[2*i:]))
		if h&0x7fff != 0 {
			out[i] = math.Float32frombits(h&0x8000<<16 | (h&0x7fff+112<<10)<<13)
		}
	}
	return out
}

// The operands of the graph with the sums of a batch norm's gradient.
var (
	normX = []int64{2, 8, 5, 4}
	normW = []int64{16, 8, 3, 3}
	normY = []int64{2, 16, 5, 4}
)

func halfTensor(id int64, dims []int64) cudnn.Tensor {
	return cudnn.Tensor{ID: id, Type: cudnn.Float16, Dims: dims}
}

func virtual(id int64, typ cudnn.DataType, dims []int64) cudnn.Tensor {
	return cudnn.Tensor{ID: id, Type: typ, Dims: dims, Virtual: true}
}

func channels(id int64, typ cudnn.DataType, c int64) cudnn.Tensor {
	return cudnn.Tensor{ID: id, Type: typ, Dims: []int64{1, c, 1, 1}}
}

func dataGraph() []cudnn.Op {
	x, dx := halfTensor(1, normX), halfTensor(8, normX)
	v := func(id int64) cudnn.Tensor { return virtual(id, cudnn.Float32, normX) }
	one := func(id int64) cudnn.Tensor { return channels(id, cudnn.Float32, 8) }
	return []cudnn.Op{
		cudnn.ConvBackwardData{Conv: cudnn.Conv{Pad: []int64{1, 1}}, DX: v(11), W: halfTensor(2, normW), DY: halfTensor(3, normY)},
		cudnn.Pointwise{Mode: cudnn.PointwiseSub, X: x, B: one(4), Y: v(12)},
		cudnn.Pointwise{Mode: cudnn.PointwiseMul, X: v(12), B: one(5), Y: v(13)},
		cudnn.Pointwise{Mode: cudnn.PointwiseMul, X: v(13), B: one(6), Y: v(14)},
		cudnn.Pointwise{Mode: cudnn.PointwiseAdd, X: v(14), B: one(7), Y: v(15)},
		cudnn.Pointwise{Mode: cudnn.PointwiseReLUBack, X: v(15), DY: v(11), DX: dx},
		cudnn.BNBackwardWeights{
			X: x, Mean: one(4), InvStd: one(5), Scale: one(6), DY: dx,
			DScale: one(20), DBias: one(21), EqDY: one(22), EqX: one(23), EqBias: one(24),
		},
	}
}

func normShape() shape {
	return shape{x: normX, w: normW, y: normY, pad: []int64{1, 1}, stride: []int64{1, 1}, dilation: []int64{1, 1}}
}

// TestNormSumsInConvolution compares the graph with its definition in float64. Multiples of 1/8
// and their products with 1 and 2 are exact in fp16, so only the sums are rounded.
func TestNormSumsInConvolution(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	g := ready(t, clibtest.Options{})
	h, s := g.handle()
	x, w, dy := random(r, product(normX)), random(r, product(normW)), random(r, product(normY))
	px, pw, pdy := g.writeHalves("x", x), g.writeHalves("w", w), g.writeHalves("dy", dy)
	mean, invstd, gamma, beta := random(r, 8), []float32{1, 2, 1, 1, 0.5, 1, 1, 2}, []float32{1, -1, 2, 1, 1, 1, -2, 1}, random(r, 8)
	at := map[int64]cuda.Ptr{1: px, 2: pw, 3: pdy, 4: g.tensor("mean", mean), 5: g.tensor("invstd", invstd), 6: g.tensor("gamma", gamma), 7: g.tensor("beta", beta), 8: g.alloc("dx", int64(2*len(x)))}
	for id := int64(20); id < 25; id++ {
		at[id] = g.alloc("sums", 32)
	}
	g.run(h, s, at, dataGraph()...)
	d := make([]float64, len(x))
	normShape().visit(func(i, j, k int) { d[i] += float64(w[j]) * float64(dy[k]) })
	var dscale, dbias [8]float64
	for i := range d {
		c := i % 8
		unit := (float64(x[i]) - float64(mean[c])) * float64(invstd[c])
		if unit*float64(gamma[c])+float64(beta[c]) <= 0 {
			d[i] = 0
		}
	}
	got := g.readHalves(at[8], len(x))
	for i, v := range d {
		c := i % 8
		if math.Abs(float64(got[i])-v) > 1e-3*(1+math.Abs(v)) {
			t.Fatalf("dx[%d] = %v, want %v", i, got[i], v)
		}
		dbias[c] += v
		dscale[c] += v * (float64(x[i]) - float64(mean[c])) * float64(invstd[c])
	}
	wantNear(t, "dscale", g.floats(at[20], 8), dscale[:])
	wantNear(t, "dbias", g.floats(at[21], 8), dbias[:])
	// eqDY·dy + eqX·x + eqBias is the gradient of the batch norm's input.
	a, b, c := g.floats(at[22], 8), g.floats(at[23], 8), g.floats(at[24], 8)
	n := float64(len(x) / 8)
	for i, v := range d {
		k := i % 8
		unit := (float64(x[i]) - float64(mean[k])) * float64(invstd[k])
		want := float64(gamma[k]) * float64(invstd[k]) * (v - dbias[k]/n - unit*dscale[k]/n)
		if got := float64(a[k])*v + float64(b[k])*float64(x[i]) + float64(c[k]); math.Abs(got-want) > 1e-4*(1+math.Abs(want)) {
			t.Fatalf("gradient %d is %v, want %v", i, got, want)
		}
	}
}

// TestNormGraphsThatAreRefused checks graphs that are not the pattern of cuDNN's developer
// guide.
func TestNormGraphsThatAreRefused(t *testing.T) {
	edited := func(at int, edit func(op cudnn.Op) cudnn.Op) []cudnn.Op {
		graph := dataGraph()
		graph[at] = edit(graph[at])
		return graph
	}
	pointwise := func(at int, edit func(p *cudnn.Pointwise)) []cudnn.Op {
		return edited(at, func(op cudnn.Op) cudnn.Op {
			p := op.(cudnn.Pointwise)
			edit(&p)
			return p
		})
	}
	sums := func(edit func(x *cudnn.Tensor)) []cudnn.Op {
		graph := pointwise(1, func(p *cudnn.Pointwise) { edit(&p.X) })
		b := graph[6].(cudnn.BNBackwardWeights)
		edit(&b.X)
		graph[6] = b
		return graph
	}
	for name, c := range map[string]struct {
		on    clibtest.Options
		graph []cudnn.Op
		words []string
	}{
		"Ada":               {clibtest.Options{Capability: [2]int{8, 9}}, dataGraph(), []string{"8 9"}},
		"Blackwell":         {clibtest.Options{Capability: [2]int{10, 0}}, dataGraph(), []string{"10 0"}},
		"an older version":  {clibtest.Options{CUDNNVersion: 90700}, dataGraph(), []string{"9.7.0"}},
		"bf16":              {clibtest.Options{}, sums(func(x *cudnn.Tensor) { x.Type = cudnn.BFloat16 }), []string{"not fp16"}},
		"no ReLU":           {clibtest.Options{}, append(dataGraph()[:5], dataGraph()[6]), []string{"want the pattern"}},
		"a pitch":           {clibtest.Options{}, sums(func(x *cudnn.Tensor) { x.Strides = []int64{320, 1, 64, 16} }), []string{"not packed"}},
		"alignment":         {clibtest.Options{}, sums(func(x *cudnn.Tensor) { x.Align = 8 }), []string{"aligned to 8"}},
		"a stored half way": {clibtest.Options{}, stored(), []string{"not virtual"}},
		"fp16 mean":         {clibtest.Options{}, halfMean(), []string{"not fp32"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := ready(t, c.on)
			h, _ := g.handle()
			_, err := g.CUDNN.NewGraph(h, c.graph...)
			wants(t, err, append(c.words, "NOT_SUPPORTED")...)
			if !strings.Contains(err.Error(), "operation graph") {
				t.Errorf("refused with %v", err)
			}
		})
	}
}

func stored() []cudnn.Op {
	graph := dataGraph()
	sub, mul := graph[1].(cudnn.Pointwise), graph[2].(cudnn.Pointwise)
	sub.Y.Virtual, mul.X.Virtual = false, false
	graph[1], graph[2] = sub, mul
	return graph
}

func halfMean() []cudnn.Op {
	graph := dataGraph()
	sub, sums := graph[1].(cudnn.Pointwise), graph[6].(cudnn.BNBackwardWeights)
	sub.B.Type, sums.Mean.Type = cudnn.Float16, cudnn.Float16
	graph[1], graph[6] = sub, sums
	return graph
}
