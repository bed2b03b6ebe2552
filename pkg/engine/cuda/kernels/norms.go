package kernels

import "encoding/binary"

// Layer is the position of a parameter in the flat buffers, in elements. All positions and
// sizes are multiples of 8.
type Layer struct {
	Weight, Gradient int // index of the first element
	Size             int
	Vector           bool // the parameter has one dimension: LARS and LAMB use the plain learning rate and no weight decay
}

// chunkElements is the number of a layer's elements that a block sums and updates: 4
// vectors per thread.
const chunkElements = 4 * blockThreads * vector

// Sizes in the memory of Layers, in bytes.
const (
	chunkBytes   = 24
	layerBytes   = 16
	squaresBytes = 16
	rateBytes    = 8
)

// Layers describes the layers of flat buffers to rules that need the norm of each layer,
// and to clipping. Their tables, sums and rates are in device memory of size Bytes. The
// host copies Table to its beginning once.
type Layers struct {
	Table  []byte
	Bytes  int
	Memory Pointer // address of the memory, aligned to 16 bytes

	chunks int
	first  []int // index of the first chunk of each layer, and the number of chunks
}

// NewLayers creates the tables for a list of layers.
func NewLayers(list []Layer) (Layers, error) {
	var l Layers
	c := check{op: "layers"}
	le := binary.LittleEndian
	var layers []byte
	for i, p := range list {
		c.positive("size", p.Size)
		c.require(p.Size%vector == 0 && p.Weight%vector == 0 && p.Gradient%vector == 0,
			"layer %d of %d elements at %d and %d: all must be multiples of %d", i, p.Size, p.Weight, p.Gradient, vector)
		l.first = append(l.first, l.chunks)
		for at := 0; at < p.Size; at += chunkElements {
			l.Table = le.AppendUint64(l.Table, uint64(p.Weight+at))
			l.Table = le.AppendUint64(l.Table, uint64(p.Gradient+at))
			l.Table = le.AppendUint32(l.Table, uint32(min(chunkElements, p.Size-at)))
			l.Table = le.AppendUint32(l.Table, uint32(i))
			l.chunks++
		}
		isVector := uint32(0)
		if p.Vector {
			isVector = 1
		}
		for _, v := range []uint32{uint32(l.first[i]), uint32(l.chunks - l.first[i]), isVector, 0} {
			layers = le.AppendUint32(layers, v)
		}
	}
	c.positive("layers", len(list))
	if c.err != nil {
		return Layers{}, c.err
	}
	l.first = append(l.first, l.chunks)
	l.Table = append(l.Table, make([]byte, l.layersAt()-len(l.Table))...)
	l.Table = append(l.Table, layers...)
	l.Bytes = l.ratesAt() + rateBytes*len(list)
	return l, nil
}

// Offsets of the parts of Memory: chunks, layers, sums, rates.
func (l Layers) layersAt() int  { return (chunkBytes*l.chunks + 15) &^ 15 }
func (l Layers) squaresAt() int { return l.layersAt() + layerBytes*(len(l.first)-1) }
func (l Layers) ratesAt() int   { return l.squaresAt() + squaresBytes*l.chunks }

func (l Layers) at(offset int) Pointer { return l.Memory + Pointer(offset) }

// normShared is the shared memory of a block: two doubles per thread.
const normShared = blockThreads * 2 * 8

// column is the size of a block that sums.
var column = [3]uint32{1, blockThreads, 1}

// each returns a grid of n blocks.
func each(n int) [3]uint32 { return [3]uint32{uint32(n), 1, 1} }

// Squares returns the launch of layer_squares: for each chunk the sum of the squares of the
// gradients at g and, if w is not 0, of the weights. It reads 4 bytes per element, or 8
// with weights.
func (l Layers) Squares(w, g Pointer) ([]Launch, error) {
	c := check{op: "layer squares"}
	c.array("memory", l.Memory, pointAlignment)
	c.array("g", g, pointAlignment)
	c.require(w%pointAlignment == 0, "w is not aligned to %d bytes", pointAlignment)
	if c.err != nil {
		return nil, c.err
	}
	var a list
	a.untyped("layer_squares", each(l.chunks), column, normShared, w, g, l.Memory, 0, l.at(l.squaresAt()))
	return a.done()
}

// Clip returns the launch of clip_norm, which runs after Squares. It sets Control.Clip so
// that the norm of all gradients, divided by the loss scale, is at most most.
func (l Layers) Clip(most float64, control Pointer) ([]Launch, error) {
	c := check{op: "clip"}
	c.array("memory", l.Memory, pointAlignment)
	c.array("control", control, pointAlignment)
	c.require(most > 0, "the norm is %g: must be above 0", most)
	if c.err != nil {
		return nil, c.err
	}
	var a list
	a.untyped("clip_norm", one, column, normShared, l.at(l.squaresAt()), l.chunks, most, control)
	return a.done()
}

// LARS returns the launches of lars_rates and lars for layers first … last−1, after Squares
// with weights (You et al. 2017, arXiv:1708.03888): v ← momentum·v + lr·local·(g +
// decay·w), w ← w − v, local = trust·‖w‖/(‖g‖ + decay·‖w‖). W, G, Buffer and Low of u are
// the addresses of the flat buffers; N is ignored. They move 12 bytes per weight, 20 with
// momentum, and 2 more with a 16-bit copy; Squares moves 8.
func (l Layers) LARS(t Type, u Update, trust float64, first, last int) ([]Launch, error) {
	c := check{op: "lars"}
	l.check(&c, u, first, last)
	c.require(u.Buffer%pointAlignment == 0, "momentum is not aligned to %d bytes", pointAlignment)
	c.require(u.Buffer != 0 || u.Momentum == 0, "momentum is %g, but has no buffer", u.Momentum)
	if c.err != nil {
		return nil, c.err
	}
	from, n := l.first[first], l.first[last]-l.first[first]
	var a list
	a.untyped("lars_rates", each(last-first), column, normShared,
		l.at(l.squaresAt()), l.at(l.layersAt()), first, l.at(l.ratesAt()), u.Control, trust, u.WeightDecay)
	a.typed(t, "lars", each(n), column, 0, u.W, u.G, u.Buffer, u.Low, l.Memory, from, l.at(l.ratesAt()), u.Control, u.Momentum)
	return a.done()
}

// LAMB returns the launches of lamb_moments, lamb_rates and lamb for layers first … last−1
// (You et al. 2020, arXiv:1904.00962): m and v as in Adam, r = m̂/(√v̂ + ε) + decay·w, w ←
// w − lr·‖w‖/‖r‖·r. W, G, M, V and Low of u are the addresses of the flat buffers; N is
// ignored. They move 40 bytes per weight, and 2 more with a 16-bit copy.
func (l Layers) LAMB(t Type, u Update, first, last int) ([]Launch, error) {
	c := check{op: "lamb"}
	l.check(&c, u, first, last)
	c.array("m", u.M, pointAlignment)
	c.array("v", u.V, pointAlignment)
	if c.err != nil {
		return nil, c.err
	}
	from, n := l.first[first], l.first[last]-l.first[first]
	var a list
	a.untyped("lamb_moments", each(n), column, normShared,
		u.W, u.G, u.M, u.V, l.Memory, from, l.at(l.layersAt()), l.at(l.squaresAt()), u.Control, u.Beta1, u.Beta2, u.Epsilon, u.WeightDecay)
	a.untyped("lamb_rates", each(last-first), column, normShared,
		l.at(l.squaresAt()), l.at(l.layersAt()), first, l.at(l.ratesAt()), u.Control, u.WeightDecay)
	a.typed(t, "lamb", each(n), column, 0, u.W, u.M, u.V, u.Low, l.Memory, from, l.at(l.ratesAt()), u.Control, u.Epsilon)
	return a.done()
}

func (l Layers) check(c *check, u Update, first, last int) {
	c.array("memory", l.Memory, pointAlignment)
	c.array("w", u.W, pointAlignment)
	c.array("g", u.G, pointAlignment)
	c.require(u.Low%pointAlignment == 0, "low-precision copy is not aligned to %d bytes", pointAlignment)
	c.array("control", u.Control, pointAlignment)
	c.require(!u.Unscaled, "the gradients are divided by the loss scale already: these kernels do it")
	c.require(0 <= first && first < last && last < len(l.first), "layers %d to %d of %d", first, last, len(l.first)-1)
}

// GradAdd returns the launch of grad_add: sum += g for n elements, where n is a multiple of
// 4.
func GradAdd(sum, g Pointer, n int) ([]Launch, error) {
	c := check{op: "gradient sum"}
	gathered(&c, sum, g, n)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(n, 4)
	var l list
	l.untyped("grad_add", grid, block, 0, sum, g, wide(n))
	return l.done()
}

// GradMean returns the launch of grad_mean: g = (sum + g)/parts for n elements, where n is
// a multiple of 4.
func GradMean(g, sum Pointer, n, parts int) ([]Launch, error) {
	c := check{op: "gradient mean"}
	gathered(&c, sum, g, n)
	c.positive("parts", parts)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(n, 4)
	var l list
	l.untyped("grad_mean", grid, block, 0, g, sum, wide(n), parts)
	return l.done()
}

func gathered(c *check, sum, g Pointer, n int) {
	c.positive("n", n)
	c.require(n%4 == 0, "%d elements: must be a multiple of 4", n)
	c.array("sum", sum, pointAlignment)
	c.array("g", g, pointAlignment)
}
