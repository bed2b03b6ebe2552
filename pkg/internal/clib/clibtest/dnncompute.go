package clibtest

import (
	"encoding/binary"
	"math"

	"lockstep/pkg/internal/clib/cudnn"
)

// denseTensor contains a tensor's values in fp32, stored contiguously with the channels last:
// N,(D,)H,W,C.
type denseTensor struct {
	dims []int64 // N,C,(D,)H,W
	v    []float32
}

// forEachElement calls f for each element of t. i is the element's index in a denseTensor, and
// offset is its offset in t, in elements.
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

func elementCount(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

func readDenseTensor(t *tensor, mem []byte) *denseTensor {
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

func writeDenseTensor(t *tensor, mem []byte, d *denseTensor) {
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

func roundElements(t cudnn.DataType, d *denseTensor) *denseTensor {
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

// runOperations executes the operations of a plan. addresses contains the addresses of the stored
// tensors by tensor ID.
func (m *Machine) runOperations(ops []*operation, addresses map[int64]uint64) error {
	virtual := map[int64]*denseTensor{}
	load := func(t *tensor) (*denseTensor, error) {
		if t.Virtual {
			return virtual[t.ID], nil
		}
		mem, err := m.memory.bytesAt(addresses[t.ID], t.extentBytes(), false)
		if err != nil {
			return nil, err
		}
		return readDenseTensor(t, mem), nil
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
				virtual[t.ID] = roundElements(t.Type, result)
				continue
			}
			mem, err := m.memory.bytesAt(addresses[t.ID], t.extentBytes(), false)
			if err != nil {
				return err
			}
			if o.Beta != 0 {
				for i, old := range readDenseTensor(t, mem).v {
					result.v[i] += o.Beta * old
				}
			}
			writeDenseTensor(t, mem, result)
		}
	}
	return nil
}

func (o *operation) evaluate(in []*denseTensor) []*denseTensor {
	switch o.Kind {
	case cudnn.DescPointwiseOp:
		return []*denseTensor{o.computePointwise(in)}
	case cudnn.DescGenstats:
		return computeChannelSums(in[0])
	case cudnn.DescBNBackwardWeights:
		return computeBatchNormGradients(in)
	}
	out := &denseTensor{dims: o.Out[0].Dims, v: make([]float32, elementCount(o.Out[0].Dims))}
	switch o.Kind {
	case cudnn.DescConvForward:
		o.forEachTap(in[0], in[1], out, addForwardTap)
	case cudnn.DescConvData:
		o.forEachTap(out, in[0], in[1], addDataGradientTap)
	default:
		o.forEachTap(in[0], out, in[1], addFilterGradientTap)
	}
	for i := range out.v {
		out.v[i] *= o.Alpha
	}
	return []*denseTensor{out}
}

// addForwardTap computes y += w·x for one tap, that is, one position in a convolution's filter. x
// has C values, y has K values, and w has K rows of C values. step is the distance between the
// starts of two rows of w.
func addForwardTap(x, w, y []float32, step int) {
	for k := range y {
		row := w[k*step:][:len(x)]
		// One sum would wait for each addition to end.
		var sums [4]float32
		c := 0
		for ; c+4 <= len(row) && c+4 <= len(x); c += 4 {
			r, v := row[c:c+4:c+4], x[c:c+4:c+4]
			sums[0] += r[0] * v[0]
			sums[1] += r[1] * v[1]
			sums[2] += r[2] * v[2]
			sums[3] += r[3] * v[3]
		}
		for ; c < len(row); c++ {
			sums[0] += row[c] * x[c]
		}
		y[k] += (sums[0] + sums[1]) + (sums[2] + sums[3])
	}
}

// addDataGradientTap computes x += wᵀ·y for one tap; x and y are gradients. See addForwardTap.
func addDataGradientTap(x, w, y []float32, step int) {
	for k, g := range y {
		addScaled(x, w[k*step:][:len(x)], g)
	}
}

// addFilterGradientTap computes w += y·xᵀ for one tap; w and y are gradients. See addForwardTap.
func addFilterGradientTap(x, w, y []float32, step int) {
	for k, g := range y {
		addScaled(w[k*step:][:len(x)], x, g)
	}
}

func addScaled(y, x []float32, g float32) {
	for len(x) >= 4 && len(y) >= 4 {
		y[0] += x[0] * g
		y[1] += x[1] * g
		y[2] += x[2] * g
		y[3] += x[3] * g
		x, y = x[4:], y[4:]
	}
	for i, v := range x {
		y[i] += v * g
	}
}

// extendTo3D returns v with fill inserted before it, so that there are three numbers.
func extendTo3D(v []int64, fill int64) [3]int64 {
	out := [3]int64{fill, fill, fill}
	copy(out[3-len(v):], v)
	return out
}

// forEachTap calls tap for each output position and each filter position that reads an element of
// x, not padding. For the arguments of tap, see addForwardTap.
func (o *operation) forEachTap(x, w, y *denseTensor, tap func(x, w, y []float32, step int)) {
	xs, ws, ys := extendTo3D(x.dims[2:], 1), extendTo3D(w.dims[2:], 1), extendTo3D(y.dims[2:], 1)
	pad, stride, dilation := extendTo3D(o.Pad, 0), extendTo3D(o.Stride, 1), extendTo3D(o.Dilation, 1)
	c, k := x.dims[1], y.dims[1]
	taps := ws[0] * ws[1] * ws[2]
	// inside returns the first tap along axis a whose input point is inside x, and the end of
	// these taps. origin is the input point of tap 0.
	inside := func(a int, origin int64) (first, end int64) {
		for first < ws[a] && origin+first*dilation[a] < 0 {
			first++
		}
		for end = first; end < ws[a] && origin+end*dilation[a] < xs[a]; {
			end++
		}
		return first, end
	}
	yo := int64(0)
	for n := range x.dims[0] {
		for od := range ys[0] {
			d := od*stride[0] - pad[0]
			d0, d1 := inside(0, d)
			for oh := range ys[1] {
				h := oh*stride[1] - pad[1]
				h0, h1 := inside(1, h)
				for ow := range ys[2] {
					v := ow*stride[2] - pad[2]
					v0, v1 := inside(2, v)
					point := y.v[yo : yo+k]
					yo += k
					for fd := d0; fd < d1; fd++ {
						for fh := h0; fh < h1; fh++ {
							row := ((n*xs[0]+d+fd*dilation[0])*xs[1] + h + fh*dilation[1]) * xs[2]
							t := (fd*ws[1] + fh) * ws[2]
							for fw := v0; fw < v1; fw++ {
								xo := (row + v + fw*dilation[2]) * c
								tap(x.v[xo:xo+c], w.v[(t+fw)*c:], point, int(taps*c))
							}
						}
					}
				}
			}
		}
	}
}

// computePointwise computes a pointwise operation. Dimensions of size 1 are broadcast.
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

// newBroadcastIndex returns a function from indexes in d broadcast to dims to indexes in d,
// both in the order of denseTensor.
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

// computeChannelSums returns two tensors, which contain Σ x and Σ x² for each channel.
func computeChannelSums(x *denseTensor) []*denseTensor {
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
