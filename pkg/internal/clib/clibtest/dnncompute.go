package clibtest

import (
	"encoding/binary"
	"math"

	"lockstep/pkg/internal/clib/cudnn"
)

// denseTensor contains a tensor's values in fp32, without gaps and in the order N,(D,)H,W,C.
type denseTensor struct {
	dims []int64 // N,C,(D,)H,W
	v    []float32
}

// forEachElement calls f for each element of t, with its index in the order of denseTensor and its
// offset in memory, counted in elements.
func forEachElement(t *tensor, f func(i int, offset int64)) {
	rank := len(t.Dims)
	order := []int{0}
	for a := 2; a < rank; a++ {
		order = append(order, a)
	}
	if rank > 1 {
		order = append(order, 1)
	}
	index := make([]int64, rank)
	total := int(elementCount(t.Dims))
	var offset int64
	for i := range total {
		f(i, offset)
		for a := len(order) - 1; a >= 0; a-- {
			axis := order[a]
			index[axis]++
			offset += t.Strides[axis]
			if index[axis] < t.Dims[axis] {
				break
			}
			offset -= index[axis] * t.Strides[axis]
			index[axis] = 0
		}
	}
}

// elementCount returns the number of elements of a tensor with dimensions dims.
func elementCount(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// readDense converts the tensor t in mem to denseTensor.
func readDense(t *tensor, mem []byte) *denseTensor {
	d := &denseTensor{dims: t.Dims, v: make([]float32, elementCount(t.Dims))}
	forEachElement(t, func(i int, at int64) {
		switch t.Type {
		case cudnn.Float32:
			d.v[i] = math.Float32frombits(binary.LittleEndian.Uint32(mem[4*at:]))
		case cudnn.BFloat16:
			d.v[i] = fromBF16(binary.LittleEndian.Uint16(mem[2*at:]))
		default:
			d.v[i] = fromF16(binary.LittleEndian.Uint16(mem[2*at:]))
		}
	})
	return d
}

// writeDense converts d to the type and layout of t and stores it in mem.
func writeDense(t *tensor, mem []byte, d *denseTensor) {
	forEachElement(t, func(i int, at int64) {
		switch t.Type {
		case cudnn.Float32:
			binary.LittleEndian.PutUint32(mem[4*at:], math.Float32bits(d.v[i]))
		case cudnn.BFloat16:
			binary.LittleEndian.PutUint16(mem[2*at:], toBF16(d.v[i]))
		default:
			binary.LittleEndian.PutUint16(mem[2*at:], toF16(d.v[i]))
		}
	})
}

// roundTo rounds the values of d to type t and returns d.
func roundTo(t cudnn.DataType, d *denseTensor) *denseTensor {
	for i, v := range d.v {
		switch t {
		case cudnn.BFloat16:
			d.v[i] = fromBF16(toBF16(v))
		case cudnn.Float16:
			d.v[i] = fromF16(toF16(v))
		}
	}
	return d
}

// runOperations computes the operations of a plan. addresses contains the address of each
// stored tensor by ID.
func (m *Machine) runOperations(ops []*operation, addresses map[int64]uint64) error {
	virtual := map[int64]*denseTensor{}
	load := func(t *tensor) (*denseTensor, error) {
		if t.Virtual {
			return virtual[t.ID], nil
		}
		mem, err := m.memory.span(addresses[t.ID], t.extentBytes(), false)
		if err != nil {
			return nil, err
		}
		return readDense(t, mem), nil
	}
	for _, o := range ops {
		var in []*denseTensor
		for _, t := range o.In {
			d, err := load(t)
			if err != nil {
				return err
			}
			in = append(in, d)
		}
		for i, result := range o.evaluate(in) {
			t := o.Out[i]
			if t.Virtual {
				virtual[t.ID] = roundTo(t.Type, result)
				continue
			}
			mem, err := m.memory.span(addresses[t.ID], t.extentBytes(), false)
			if err != nil {
				return err
			}
			if o.Beta != 0 {
				for i, old := range readDense(t, mem).v {
					result.v[i] += o.Beta * old
				}
			}
			writeDense(t, mem, result)
		}
	}
	return nil
}

// evaluate computes the outputs of an operation from its inputs.
func (o *operation) evaluate(in []*denseTensor) []*denseTensor {
	switch o.Kind {
	case cudnn.DescPointwiseOp:
		return []*denseTensor{o.computePointwise(in)}
	case cudnn.DescGenstats:
		return computeStatistics(in[0])
	case cudnn.DescBNBackwardWeights:
		return computeNormSums(in)
	}
	out := &denseTensor{dims: o.Out[0].Dims, v: make([]float32, elementCount(o.Out[0].Dims))}
	switch o.Kind {
	case cudnn.DescConvForward:
		o.forEachTap(in[0], in[1], out, addForward)
	case cudnn.DescConvData:
		o.forEachTap(out, in[0], in[1], addDataGradient)
	default:
		o.forEachTap(in[0], out, in[1], addFilterGradient)
	}
	for i := range out.v {
		out.v[i] *= o.Alpha
	}
	return []*denseTensor{out}
}

// addForward computes y += w·x for one tap of a convolution's filter. x has C values, y has K
// values, and w has K rows of C values. step is the distance between the starts of two rows.
func addForward(x, w, y []float32, step int) {
	for k := range y {
		var sum float32
		for c, v := range w[k*step : k*step+len(x)] {
			sum += v * x[c]
		}
		y[k] += sum
	}
}

// addDataGradient computes x += wᵀ·y for one tap; x and y are gradients. See addForward.
func addDataGradient(x, w, y []float32, step int) {
	for k, g := range y {
		for c, v := range w[k*step : k*step+len(x)] {
			x[c] += v * g
		}
	}
}

// addFilterGradient computes w += y·xᵀ for one tap; w and y are gradients. See addForward.
func addFilterGradient(x, w, y []float32, step int) {
	for k, g := range y {
		row := w[k*step : k*step+len(x)]
		for c, v := range x {
			row[c] += v * g
		}
	}
}

// extendTo3D extends v to three values by repeating fill before them.
func extendTo3D(v []int64, fill int64) [3]int64 {
	out := [3]int64{fill, fill, fill}
	copy(out[3-len(v):], v)
	return out
}

// forEachTap calls tap for each output point and each tap of the filter whose input point is
// inside x.
func (o *operation) forEachTap(x, w, y *denseTensor, tap func(x, w, y []float32, step int)) {
	xs, ws, ys := extendTo3D(x.dims[2:], 1), extendTo3D(w.dims[2:], 1), extendTo3D(y.dims[2:], 1)
	pad, stride, dilation := extendTo3D(o.Pad, 0), extendTo3D(o.Stride, 1), extendTo3D(o.Dilation, 1)
	c, k := x.dims[1], y.dims[1]
	taps := ws[0] * ws[1] * ws[2]
	for n := range x.dims[0] {
		for p := range ys[0] * ys[1] * ys[2] {
			out := [3]int64{p / (ys[1] * ys[2]), p / ys[2] % ys[1], p % ys[2]}
			yo := (n*ys[0]*ys[1]*ys[2] + p) * k
			for t := range taps {
				f := [3]int64{t / (ws[1] * ws[2]), t / ws[2] % ws[1], t % ws[2]}
				var in [3]int64
				inside := true
				for a := range in {
					in[a] = out[a]*stride[a] - pad[a] + f[a]*dilation[a]
					inside = inside && in[a] >= 0 && in[a] < xs[a]
				}
				if !inside {
					continue
				}
				xo := (((n*xs[0]+in[0])*xs[1]+in[1])*xs[2] + in[2]) * c
				tap(x.v[xo:xo+c], w.v[t*c:], y.v[yo:yo+k], int(taps*c))
			}
		}
	}
}

// computePointwise computes a pointwise operation. Dimensions of 1 are repeated.
func (o *operation) computePointwise(in []*denseTensor) *denseTensor {
	out := o.Out[0]
	result := &denseTensor{dims: out.Dims, v: make([]float32, elementCount(out.Dims))}
	second := 0
	if len(in) > 1 {
		second = 1
	}
	first, other := newBroadcastIndex(in[0], out.Dims), newBroadcastIndex(in[second], out.Dims)
	for i := range result.v {
		a, b := in[0].v[first(i)], in[second].v[other(i)]
		switch o.Mode {
		case cudnn.PointwiseAdd:
			result.v[i] = a + b
		case cudnn.PointwiseMul:
			result.v[i] = a * b
		case cudnn.PointwiseSub:
			result.v[i] = a - b
		case cudnn.PointwiseReLU:
			result.v[i] = max(a, 0)
		default: // the gradient b where a is positive
			if a > 0 {
				result.v[i] = b
			}
		}
	}
	return result
}

// newBroadcastIndex returns the index function of d broadcast to dimensions dims: it maps the
// index of an element of the result to the index of the element of d that is repeated there.
// Both indexes are in the order of denseTensor.
func newBroadcastIndex(d *denseTensor, dims []int64) func(i int) int {
	order := []int{0}
	for a := 2; a < len(dims); a++ {
		order = append(order, a)
	}
	order = append(order, 1)
	return func(i int) int {
		rest, at, step := int64(i), int64(0), int64(1)
		for j := len(order) - 1; j >= 0; j-- {
			axis := order[j]
			index := rest % dims[axis]
			rest /= dims[axis]
			if d.dims[axis] > 1 {
				at += index * step
			}
			step *= d.dims[axis]
		}
		return int(at)
	}
}

// computeStatistics returns Σ x and Σ x² per channel.
func computeStatistics(x *denseTensor) []*denseTensor {
	c := x.dims[1]
	dims := make([]int64, len(x.dims))
	for i := range dims {
		dims[i] = 1
	}
	dims[1] = c
	sum, square := &denseTensor{dims: dims, v: make([]float32, c)}, &denseTensor{dims: dims, v: make([]float32, c)}
	for i, v := range x.v {
		sum.v[int64(i)%c] += v
		square.v[int64(i)%c] += v * v
	}
	return []*denseTensor{sum, square}
}
