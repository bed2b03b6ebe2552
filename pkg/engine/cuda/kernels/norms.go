package kernels

import "encoding/binary"

// LayerRange is the position of one parameter in the flat buffers of weights and gradients,
// in elements. Positions and sizes are multiples of 8.
type LayerRange struct {
	Weight, Gradient int // index of the first element
	Size             int
	Vector           bool // the parameter has one dimension: LARS and LAMB do not scale its learning rate and apply no weight decay
}

// elementsPerLayerChunk is how many elements one block sums or updates: 4 vectors per thread.
const elementsPerLayerChunk = 4 * blockThreads * vector

// Sizes of the entries of the tables in LayerSet.Memory, in bytes.
const (
	chunkBytes   = 24
	layerBytes   = 16
	squaresBytes = 16
	rateBytes    = 8
)

// LayerSet describes the layers in the flat buffers of weights and gradients to the kernels
// that need the norm of each layer: those of clipping, LARS and LAMB. The kernels use Bytes
// bytes of device memory for tables, sums and rates. The host copies Table to the beginning
// of this memory once.
type LayerSet struct {
	Table  []byte
	Bytes  int
	Memory Pointer // address of the memory, aligned to 16 bytes

	chunks int
	first  []int // index of the first chunk of each layer, and the number of chunks
}

// NewLayerSet creates the tables for a list of layers. The caller must allocate the memory,
// copy Table to it and set Memory.
func NewLayerSet(list []LayerRange) (LayerSet, error) {
	var l LayerSet
	c := argChecker{op: "layers"}
	le := binary.LittleEndian
	var layers []byte
	for i, p := range list {
		c.requirePositive("size", p.Size)
		c.require(p.Size%vector == 0 && p.Weight%vector == 0 && p.Gradient%vector == 0,
			"layer %d has size %d and positions %d and %d, want multiples of %d", i, p.Size, p.Weight, p.Gradient, vector)
		l.first = append(l.first, l.chunks)
		for at := 0; at < p.Size; at += elementsPerLayerChunk {
			l.Table = le.AppendUint64(l.Table, uint64(p.Weight+at))
			l.Table = le.AppendUint64(l.Table, uint64(p.Gradient+at))
			l.Table = le.AppendUint32(l.Table, uint32(min(elementsPerLayerChunk, p.Size-at)))
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
	c.requirePositive("layers", len(list))
	if c.err != nil {
		return LayerSet{}, c.err
	}
	l.first = append(l.first, l.chunks)
	l.Table = append(l.Table, make([]byte, l.layersOffset()-len(l.Table))...)
	l.Table = append(l.Table, layers...)
	l.Bytes = l.ratesOffset() + rateBytes*len(list)
	return l, nil
}

// layersOffset is the offset in bytes of the table of layers, after the table of chunks.
func (l LayerSet) layersOffset() int { return (chunkBytes*l.chunks + 15) &^ 15 }

func (l LayerSet) squareSumsOffset() int { return l.layersOffset() + layerBytes*(len(l.first)-1) }

func (l LayerSet) ratesOffset() int { return l.squareSumsOffset() + squaresBytes*l.chunks }

func (l LayerSet) address(offset int) Pointer { return l.Memory + Pointer(offset) }

// squareSumSharedBytes is the size of the shared memory of a block that sums squares: two
// float64 per thread.
const squareSumSharedBytes = blockThreads * 2 * 8

var squareSumBlockShape = [3]uint32{1, blockThreads, 1}

func gridOfBlocks(n int) [3]uint32 { return [3]uint32{uint32(n), 1, 1} }

// SumSquares returns the launch of layer_squares, which computes for each chunk the sum of
// the squares of the gradients at g and, if w is not 0, of the weights at w. Memory
// traffic: 4 bytes per element, 8 with weights.
func (l LayerSet) SumSquares(w, g Pointer) ([]Launch, error) {
	c := argChecker{op: "layer squares"}
	c.requireArray("memory", l.Memory, pointAlignment)
	c.requireArray("g", g, pointAlignment)
	c.require(w%pointAlignment == 0, "w is not aligned to %d bytes", pointAlignment)
	if c.err != nil {
		return nil, c.err
	}
	var a launchList
	a.addUntypedLaunch("layer_squares", gridOfBlocks(l.chunks), squareSumBlockShape, squareSumSharedBytes, w, g, l.Memory, 0, l.address(l.squareSumsOffset()))
	return a.result()
}

// Clip returns the launch of clip_norm, which sets ControlBlock.Clip so that the norm of
// all gradients, divided by the loss scale, is at most maxNorm. It must run after
// SumSquares.
func (l LayerSet) Clip(maxNorm float64, control Pointer) ([]Launch, error) {
	c := argChecker{op: "clip"}
	c.requireArray("memory", l.Memory, pointAlignment)
	c.requireArray("control", control, pointAlignment)
	c.require(maxNorm > 0, "maximum norm is %g, want more than 0", maxNorm)
	if c.err != nil {
		return nil, c.err
	}
	var a launchList
	a.addUntypedLaunch("clip_norm", unitDim, squareSumBlockShape, squareSumSharedBytes, l.address(l.squareSumsOffset()), l.chunks, maxNorm, control)
	return a.result()
}

// LARS returns the launches of lars_rates and lars for layers first to last−1 (You et al.
// 2017, arXiv:1708.03888): v ← momentum·v + lr·local·(g + decay·w), w ← w − v, with local =
// trust·‖w‖/(‖g‖ + decay·‖w‖). They must run after SumSquares with weights. The pointers W,
// G, Buffer and Low of u are the flat buffers, and N is ignored. Memory traffic: 12 bytes
// per weight, 20 with momentum, and 2 more with a 16-bit copy.
func (l LayerSet) LARS(t ElementType, u Update, trust float64, first, last int) ([]Launch, error) {
	c := argChecker{op: "lars"}
	l.checkUpdateArgs(&c, u, first, last)
	c.require(u.Buffer%pointAlignment == 0, "momentum is not aligned to %d bytes", pointAlignment)
	c.require(u.Buffer != 0 || u.Momentum == 0, "momentum is %g, but its buffer is absent", u.Momentum)
	if c.err != nil {
		return nil, c.err
	}
	from, n := l.first[first], l.first[last]-l.first[first]
	var a launchList
	a.addUntypedLaunch("lars_rates", gridOfBlocks(last-first), squareSumBlockShape, squareSumSharedBytes,
		l.address(l.squareSumsOffset()), l.address(l.layersOffset()), first, l.address(l.ratesOffset()), u.Control, trust, u.WeightDecay)
	a.addTypedLaunch(t, "lars", gridOfBlocks(n), squareSumBlockShape, 0, u.W, u.G, u.Buffer, u.Low, l.Memory, from, l.address(l.ratesOffset()), u.Control, u.Momentum)
	return a.result()
}

// LAMB returns the launches of lamb_moments, lamb_rates and lamb for layers first to last−1
// (You et al. 2020, arXiv:1904.00962): m and v as in Adam, r = m̂/(√v̂ + ε) + decay·w, w ←
// w − lr·‖w‖/‖r‖·r. The pointers W, G, M, V and Low of u are the flat buffers, and N is
// ignored. Memory traffic: 40 bytes per weight, and 2 more with a 16-bit copy.
func (l LayerSet) LAMB(t ElementType, u Update, first, last int) ([]Launch, error) {
	c := argChecker{op: "lamb"}
	l.checkUpdateArgs(&c, u, first, last)
	c.requireArray("m", u.M, pointAlignment)
	c.requireArray("v", u.V, pointAlignment)
	if c.err != nil {
		return nil, c.err
	}
	from, n := l.first[first], l.first[last]-l.first[first]
	var a launchList
	a.addUntypedLaunch("lamb_moments", gridOfBlocks(n), squareSumBlockShape, squareSumSharedBytes,
		u.W, u.G, u.M, u.V, l.Memory, from, l.address(l.layersOffset()), l.address(l.squareSumsOffset()), u.Control, u.Beta1, u.Beta2, u.Epsilon, u.WeightDecay)
	a.addUntypedLaunch("lamb_rates", gridOfBlocks(last-first), squareSumBlockShape, squareSumSharedBytes,
		l.address(l.squareSumsOffset()), l.address(l.layersOffset()), first, l.address(l.ratesOffset()), u.Control, u.WeightDecay)
	a.addTypedLaunch(t, "lamb", gridOfBlocks(n), squareSumBlockShape, 0, u.W, u.M, u.V, u.Low, l.Memory, from, l.address(l.ratesOffset()), u.Control, u.Epsilon)
	return a.result()
}

func (l LayerSet) checkUpdateArgs(c *argChecker, u Update, first, last int) {
	c.requireArray("memory", l.Memory, pointAlignment)
	c.requireArray("w", u.W, pointAlignment)
	c.requireArray("g", u.G, pointAlignment)
	c.require(u.Low%pointAlignment == 0, "low-precision copy is not aligned to %d bytes", pointAlignment)
	c.requireArray("control", u.Control, pointAlignment)
	c.require(!u.Unscaled, "gradients must not be divided by the loss scale before: these kernels divide them")
	c.require(0 <= first && first < last && last < len(l.first), "invalid range of layers: %d to %d of %d", first, last, len(l.first)-1)
}

// AddGradients returns the launch of grad_add, which computes sum += g for n elements. n
// must be a multiple of 4.
func AddGradients(sum, g Pointer, n int) ([]Launch, error) {
	c := argChecker{op: "gradient sum"}
	checkGradientSumArgs(&c, sum, g, n)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(n, 4)
	var l launchList
	l.addUntypedLaunch("grad_add", grid, block, 0, sum, g, int64Arg(n))
	return l.result()
}

// AverageGradients returns the launch of grad_mean, which computes g = (sum + g)/parts for
// n elements. n must be a multiple of 4.
func AverageGradients(g, sum Pointer, n, parts int) ([]Launch, error) {
	c := argChecker{op: "gradient mean"}
	checkGradientSumArgs(&c, sum, g, n)
	c.requirePositive("parts", parts)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(n, 4)
	var l launchList
	l.addUntypedLaunch("grad_mean", grid, block, 0, g, sum, int64Arg(n), parts)
	return l.result()
}

func checkGradientSumArgs(c *argChecker, sum, g Pointer, n int) {
	c.requirePositive("n", n)
	c.require(n%4 == 0, "got %d elements, want a multiple of 4", n)
	c.requireArray("sum", sum, pointAlignment)
	c.requireArray("g", g, pointAlignment)
}
