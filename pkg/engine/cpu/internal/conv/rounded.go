package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// tileChannels is the number of channels in a step and of outputs in a tile of kernel.BF16.
const tileChannels = kernel.BF16Tile

// stepWeightWords is the number of 16-bit words in the weights of one step of
// kernel.BF16.Multiply: 32 inputs by 32 outputs.
const stepWeightWords = tileChannels * tileChannels

// DirectBF16 computes a convolution, or its transpose, from inputs and weights that are rounded
// to bfloat16 when they are copied for the matrix products of kernel.BF16. Sums and outputs are
// float32. The convolution must have stride 1 or disjoint windows (see disjointWindows).
//
// A first task copies the weights to shared memory. Then the inputs of a block are copied to a
// worker's scratch memory as rows: one row for each position (see bf16Blocks) and each group of
// 32 channels. All taps multiply the same rows, shifted. If the inputs are disjoint windows,
// each tap has its own rows; if the outputs are, each tap has its own sums.
type DirectBF16 struct {
	outputs    Direct // the output with its statistics, and the groups of output channels
	blocks     bf16Blocks
	windows    disjointWindows
	weights    tensor.Operand
	transposed bool      // the weights are [in,out,…], not [out,in,…]
	inG, outG  int       // numbers of groups of 32 channels
	steps      []int32   // of the products; nil if tapSteps is set
	tapSteps   [][]int32 // by tap if the outputs are windows, else nil
	pixelSteps [][]int32 // by output pixel if images are adjacent, else nil
	rowsAt     int       // index in scratch memory of the rounded inputs; planes of floats are before them
	sumsAt     int       // index in scratch memory of the sums of a block
}

// NewDirectBF16 prepares a convolution like NewDirect. SupportsBF16 must be true for s.
func NewDirectBF16(ws *workspace.Workspace, in, weights, out tensor.Operand, bias []float32, s geometry, transposed bool) *DirectBF16 {
	c := &DirectBF16{weights: weights, transposed: transposed, inG: tensor.CeilDiv(in.Shape[1], tileChannels), outG: tensor.CeilDiv(out.Shape[1], tileChannels)}
	rows := c.inG
	switch {
	case !s.hasDisjointWindows():
		c.blocks = newBF16Blocks(ws.Set, in, s, c.inG)
	case transposed:
		c.windows = newDisjointWindows(out, s)
		c.blocks = newBF16Blocks(ws.Set, in, c.windows.tapGeometry(), c.inG)
		c.blocks.taps = c.windows.taps()
		c.tapSteps = make([][]int32, len(c.blocks.taps))
	default:
		c.windows = newDisjointWindows(in, s)
		rows *= s.tapCount()
		c.blocks = newBF16Blocks(ws.Set, in, c.windows.tapGeometry(), rows)
		c.blocks.taps = c.windows.taps()
	}
	c.outputs = Direct{ws: ws, out: out, bias: bias, blocks: c.blocks.inputBlocks, phases: make([]outputPhase, 1), groups: 1}
	b := &c.blocks
	for g := range c.inG {
		for t, tp := range b.taps {
			weights := int32((g*len(b.taps) + t) * 2 * stepWeightWords)
			switch {
			case c.tapSteps != nil:
				c.tapSteps[t] = append(c.tapSteps[t], int32(g*b.positionCount()*2*tileChannels), weights)
			case c.windows.exist():
				c.steps = append(c.steps, int32((g*len(b.taps)+t)*b.positionCount()*2*tileChannels), weights)
			default:
				c.steps = append(c.steps, int32((g*b.positionCount()+b.tapShift(tp))*2*tileChannels), weights)
			}
		}
	}
	if b.imagesLast {
		b.forEachOutputPixel(func(_ int, taps, pixels []int) {
			var steps []int32
			for g := range c.inG {
				for i, t := range taps {
					steps = append(steps, int32((g*b.positionCount()+pixels[i]*tileChannels)*2*tileChannels), int32((g*len(b.taps)+t)*2*stepWeightWords))
				}
			}
			c.pixelSteps = append(c.pixelSteps, steps)
		})
	}
	c.rowsAt = 4 * b.planeFloats()
	c.sumsAt = c.rowsAt + tensor.RoundUp(rows*b.positionCount()*tileChannels/2, tensor.AlignmentFloats)
	ws.ReserveScratch(max(c.sumsAt+b.outputPositionCount()*tileChannels, lanes*lanes))
	ws.ReserveSharedScratch(c.outG * c.inG * len(b.taps) * stepWeightWords / 2)
	if parts, n := b.count(), ws.Threads; parts < 4*n && parts%n != 0 {
		c.outputs.groups = min(n, c.outG)
	}
	return c
}

// SupportsBF16 reports whether DirectBF16 and DirectBF16Gradient support geometry s.
func SupportsBF16(s geometry) bool {
	if s.hasDisjointWindows() {
		return true
	}
	for _, a := range s {
		if a.stepIn != 1 || a.stepOut != 1 || len(a.phases) != 1 || len(a.phases[0].taps) == 0 {
			return false
		}
	}
	return true
}

// EnableStatistics is like Direct.EnableStatistics. It returns nil if the outputs are disjoint
// windows.
func (c *DirectBF16) EnableStatistics() *workspace.ChannelStatistics {
	if c.tapSteps != nil {
		return nil
	}
	return c.outputs.EnableStatistics()
}

// Tasks returns two tasks. An item of the first packs the weights between 32 input and 32
// output channels. An item of the second computes a group of output channels of one block of
// pixels.
func (c *DirectBF16) Tasks() []threads.Task {
	return []threads.Task{{Items: c.inG * c.outG, Run: c.packWeights}, {Items: c.blocks.count() * c.outputs.groups, Run: c.computeOutputs}}
}

func (c *DirectBF16) packWeights(w *threads.Worker, lo, hi int) {
	const tile = lanes * lanes
	set, taps := c.outputs.ws.Set, c.blocks.taps
	inC, outC := tensor.ChannelBlockCount(c.blocks.in.Shape[1]), tensor.ChannelBlockCount(c.outputs.out.Shape[1])
	all := tensor.ElementCount(c.weights.Space[:])
	zeros := w.Scratch[:tile]
	clear(zeros)
	pack := func(dst *uint16, s0, s1, s2, s3 *float32) { set.BF16.PackPairs(dst, s0, s1, s2, s3, lanes) }
	if c.transposed {
		pack = set.BF16.PackTransposed
	}
	for item := lo; item < hi; item++ {
		g, h := item/c.inG, item%c.inG // groups of outputs and of inputs
		if c.transposed {
			g, h = item%c.outG, item/c.outG
		}
		for t, tp := range taps {
			to := c.packedWeights()[((g*c.inG+h)*len(taps)+t)*stepWeightWords:][:stepWeightWords]
			for i := range tileChannels / lanes {
				j := h*(tileChannels/lanes) + i
				dst := to[i*lanes*tileChannels:][:lanes*tileChannels]
				if j >= inC {
					clear(dst)
					continue
				}
				var from [tileChannels / lanes]*float32
				for b := range from {
					switch k := g*(tileChannels/lanes) + b; {
					case k >= outC:
						from[b] = &zeros[0]
					case c.transposed:
						from[b] = &c.weights.Data[((j*outC+k)*all+tp.index)*tile]
					default:
						from[b] = &c.weights.Data[((k*inC+j)*all+tp.index)*tile]
					}
				}
				pack(&dst[0], from[0], from[1], from[2], from[3])
			}
		}
	}
}

func (c *DirectBF16) packedWeights() []uint16 { return kernel.Uint16View(c.outputs.ws.Shared) }

func (c *DirectBF16) computeOutputs(w *threads.Worker, lo, hi int) {
	o, set := &c.outputs, c.outputs.ws.Set
	rows, sums := kernel.Uint16View(w.Scratch[c.rowsAt:c.sumsAt]), w.Scratch[c.sumsAt:]
	outC := tensor.ChannelBlockCount(o.out.Shape[1])
	panel := c.inG * len(c.blocks.taps) * stepWeightWords
	var p blockRange
	for item, loaded := lo, -1; item < hi; item++ {
		b, g := item/o.groups, item%o.groups
		if b != loaded {
			p = c.blocks.blockRange(b)
			if c.windows.exist() && c.tapSteps == nil {
				c.windows.packRows(&c.blocks, rows, w.Scratch, p)
			} else {
				c.blocks.packRows(rows, w.Scratch, p)
			}
			loaded = b
		}
		first, end := g*c.outG/o.groups, (g+1)*c.outG/o.groups
		for k := first; k < end; k++ {
			weights := &c.packedWeights()[k*panel]
			tiles := tensor.CeilDiv(c.blocks.outputSpan(p), tileChannels)
			if c.tapSteps != nil {
				for t, steps := range c.tapSteps {
					set.BF16.Multiply(&sums[0], &rows[0], weights, &steps[0], len(steps)/2, 2*tileChannels, tiles, false)
					c.windows.writeTapOutputs(&c.blocks, sums, c.biasOrZeros(k*(tileChannels/lanes)), p, c.blocks.taps[t], k*(tileChannels/lanes), min(outC, (k+1)*(tileChannels/lanes)))
				}
				continue
			}
			if c.pixelSteps == nil {
				set.BF16.Multiply(&sums[0], &rows[0], weights, &c.steps[0], len(c.steps)/2, 2*tileChannels, tiles, false)
			} else {
				for q, steps := range c.pixelSteps {
					if to := sums[q*tileChannels*tileChannels:][:tileChannels*tileChannels]; len(steps) == 0 {
						clear(to)
					} else {
						set.BF16.Multiply(&to[0], &rows[0], weights, &steps[0], len(steps)/2, 2*tileChannels, 1, false)
					}
				}
			}
			c.writeOutputs(sums, p, k*(tileChannels/lanes), min(outC, (k+1)*(tileChannels/lanes)))
		}
		if o.statistics != nil {
			o.computeOutputStatistics(b, p, first*(tileChannels/lanes), min(outC, end*(tileChannels/lanes)))
		}
	}
}

func (c *DirectBF16) biasOrZeros(k int) []float32 {
	if c.outputs.bias == nil {
		return c.outputs.ws.Zeros
	}
	return c.outputs.bias[k*lanes:]
}

func (c *DirectBF16) writeOutputs(sums []float32, p blockRange, k0, k1 int) {
	o, b, unpack := &c.outputs, &c.blocks, c.outputs.ws.Set.BF16.Unpack
	bias := c.biasOrZeros(k0)
	plane, rows, cols := o.out.PlaneFloats(), o.out.Space[1], o.out.Space[2]
	for n := range p.images {
		y := o.out.Data[((p.n0+n)*tensor.ChannelBlockCount(o.out.Shape[1])+k0)*plane:]
		if b.imagesLast {
			unpack(&y[0], &sums[n*tileChannels], &bias[0], plane/lanes, tileChannels*tileChannels*4, lanes*4, plane*4, k1-k0)
			continue
		}
		for z := range p.slices {
			y := y[((p.z0+z)*rows+p.q0)*cols*lanes:]
			from := sums[(n*b.size/lanes+z*b.height*b.width)*tileChannels:]
			if b.width == cols {
				unpack(&y[0], &from[0], &bias[0], p.rows*cols, tileChannels*4, lanes*4, plane*4, k1-k0)
				continue
			}
			for r := range p.rows {
				unpack(&y[r*cols*lanes], &from[r*b.width*tileChannels], &bias[0], cols, tileChannels*4, lanes*4, plane*4, k1-k0)
			}
		}
	}
}
