package kernels

import "encoding/binary"

// Layer is a parameter in the flat buffers, in elements; all are multiples of 8.
type Layer struct {
	Weight, Gradient int // where it begins
	Size             int
	Vector           bool // of one dimension: LARS and LAMB give it the plain rate and no decay
}

// chunkElements is what a block sums up, and updates, of a layer: 4 vectors a thread.
const chunkElements = 4 * blockThreads * vector

// Sizes of what lies in the memory of Layers.
const (
	chunkBytes   = 24
	layerBytes   = 16
	squaresBytes = 16
	rateBytes    = 8
)

// Layers are the layers of flat buffers, for rules that take a norm of each, and for
// clipping. Their tables, sums and rates lie in Bytes of the device's memory, of which
// the Table comes from the host, once.
type Layers struct {
	Table  []byte
	Bytes  int
	Memory Pointer // where that is, aligned to 16 bytes

	chunks int
	first  []int // chunk of each layer, and one more
}

// NewLayers lays the tables out.
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

// Where what begins: chunks, layers, sums, rates.
func (l Layers) layersAt() int  { return (chunkBytes*l.chunks + 15) &^ 15 }
func (l Layers) squaresAt() int { return l.layersAt() + layerBytes*(len(l.first)-1) }
func (l Layers) ratesAt() int   { return l.squaresAt() + squaresBytes*l.chunks }

func (l Layers) at(offset int) Pointer { return l.Memory + Pointer(offset) }

// normShared holds two doubles a thread.
const normShared = blockThreads * 2 * 8

// column is a block that adds up.
var column = [3]uint32{1, blockThreads, 1}

// each is a grid of so many blocks.
func each(n int) [3]uint32 { return [3]uint32{uint32(n), 1, 1} }

// Squares is layer_squares: the sums of the squares of the gradients at g and, where w
// is not 0, of the weights, chunk by chunk. 4 bytes an element, 8 with weights.
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

// Clip is clip_norm, behind Squares: sets Control.Clip so that the norm of all
// gradients, divided by the loss scale, is at most most.
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

// LARS are lars_rates and lars of layers first … last−1, behind Squares with weights
// (You et al. 2017, arXiv:1708.03888): v ← momentum·v + lr·local·(g + decay·w), w ← w − v,
// local = trust·‖w‖/(‖g‖ + decay·‖w‖). W, G, Buffer and Low of u are where the flat
// buffers begin; N is not read. 12 bytes a weight, 20 with momentum, 2 more with a copy
// of 16 bits; the sums before are 8.
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

// LAMB are lamb_moments, lamb_rates and lamb of layers first … last−1 (You et al. 2020,
// arXiv:1904.00962): m and v as Adam's, r = m̂/(√v̂ + ε) + decay·w, w ← w − lr·‖w‖/‖r‖·r.
// W, G, M, V and Low of u are where the flat buffers begin; N is not read. 40 bytes a
// weight, 2 more with a copy of 16 bits.
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

// GradAdd is grad_add: sum += g over n elements, a multiple of 4.
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

// GradMean is grad_mean: g = (sum + g)/parts over n elements, a multiple of 4.
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
