package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// passBytes is the greatest size of the transformed weights in memory. The transformed
// weights of all channels of a layer are four times as large as the weights.
const passBytes = 19 << 20

// passes divides the output blocks of a layer into passes, so that the transformed
// weights of a pass take at most passBytes. Each pass transforms the inputs again.
type passes struct {
	count int // of passes
	units int // of output blocks; a pass has whole units
	unit  int // output blocks per unit
	out   int // output blocks
}

func newPasses(inC, outC, unit int) passes {
	units := tensor.CeilDiv(outC, unit)
	count := tensor.CeilDiv(units, max(1, passBytes/(kernel.Points*inC*unit*lanes*lanes*4)))
	return passes{count, units, unit, outC}
}

// blocks returns the output blocks [first, end) of pass i.
func (p passes) blocks(i int) (first, end int) {
	return i * p.units / p.count * p.unit, min(p.out, (i+1)*p.units/p.count*p.unit)
}

// most returns the number of output blocks of the largest pass.
func (p passes) most() int { return min(p.out, p.unit*tensor.CeilDiv(p.units, p.count)) }

// group returns the output blocks [k0, k1) of group g, if the pass over output blocks
// [first, end) is divided into the given number of groups of whole units.
func (p passes) group(first, end, g, groups int) (k0, k1 int) {
	units := tensor.CeilDiv(end-first, p.unit)
	return first + g*units/groups*p.unit, min(end, first+(g+1)*units/groups*p.unit)
}

// Winograd computes a convolution of stride 1 with a window of 3×3 and a pad of 1 in
// each slice, or its transpose, tile by tile. The 36 points of inputs and of weights
// are multiplied as 36 matrices, [tiles, in] by [in, out]. If the window has three taps
// along the depth, the products of three successive slices are summed before they are
// transformed back: the matrices are [tiles, 3·in] by [3·in, out], and each slice is
// transformed once.
type Winograd struct {
	ws               *workspace.Workspace
	in, weights, out tensor.Operand
	bias             []float32 // nil if there is none
	transposed       bool      // the weights are [in,out,…], and rotated by 180°
	tiling           tiling
	inC, outC        int    // numbers of channel blocks
	passes           passes // over the output channels
	groups           int    // number of groups of output channels per pass
	u, v, m          transformed
	pass             int                   // steps per call of the matrix kernel; a step is a channel block of a tap along the depth
	statistics       *workspace.Statistics // of the output, nil if nobody needs them
	table            []int32               // rows, see kernel.TileTable
	steps            [2][]int32            // steps of the matrix kernel, for full blocks of tiles and for the last one
	// Indexes in a worker's scratch memory; v is at 0.
	mAt, patch, tmp int
}

// NewWinograd prepares the convolution of in with weights into out, or its
// transpose. bias may be nil.
func NewWinograd(ws *workspace.Workspace, in, weights, out tensor.Operand, bias []float32, transposed bool) *Winograd {
	c := &Winograd{
		ws: ws, in: in, weights: weights, out: out, bias: bias, transposed: transposed,
		tiling: newTiling(in.Shape[0], in.Space, weights.Space[0]), inC: tensor.Blocks(in.Shape[1]), outC: tensor.Blocks(out.Shape[1]),
	}
	t, inC, outC, k := &c.tiling, c.inC*lanes, c.outC*lanes, ws.Set
	t.cut(t.count, inC+outC, k.GEMM.Rows)
	c.passes = newPasses(c.inC*t.taps, c.outC, k.GEMM.Blocks)
	c.u = transformed{point: t.taps*inC*c.passes.most()*lanes + pointGap, block: t.taps * inC * lanes}
	c.v = transformed{tile: tileFloats(inC, k.Vector), block: lanes}
	c.m = transformed{tile: tileFloats(outC, k.Vector), block: lanes}
	c.v.point = (t.slices+2*t.halo())*t.block*c.v.tile + pointGap
	c.m.point = t.slices*t.block*c.m.tile + pointGap
	c.mAt = kernel.Points * c.v.point
	c.patch = c.mAt + kernel.Points*c.m.point
	c.tmp = c.patch + kernel.Points*lanes*max(c.inC, c.outC)
	ws.NeedScratch(c.tmp + kernel.Points*k.Vector + 2*kernel.Taps*lanes*lanes) // rotated tiles of weights are after tmp
	ws.NeedShared(kernel.Points * c.u.point)
	most := weightBudget / (k.GEMM.Blocks * lanes * lanes * 4)
	c.pass = tensor.CeilDiv(t.taps*c.inC, tensor.CeilDiv(t.taps*c.inC, most))
	c.table = kernel.TileTable(t.slices*t.block, k.GEMM.Rows, func(i int) (in, out int) { return i * c.v.tile * 4, i * c.m.tile * 4 })
	for i, n := range []int{t.block, t.chunk(t.chunks() - 1).n} {
		for d := range t.taps {
			for b := range c.inC {
				c.steps[i] = append(c.steps[i], int32((d*n*c.v.tile+b*lanes)*4), int32((d*c.inC+b)*lanes*lanes*4))
			}
		}
	}
	c.groups = 1
	if parts, threads := t.chunks(), ws.Threads; parts < 4*threads && parts%threads != 0 {
		c.groups = min(threads, tensor.CeilDiv(c.passes.most(), k.GEMM.Blocks))
	}
	return c
}

// Tasks returns two tasks for each pass: the transform of the weights, and the
// computation of the outputs by chunks and groups of output channels.
func (c *Winograd) Tasks() []threads.Task {
	var all []threads.Task
	for i := range c.passes.count {
		first, end := c.passes.blocks(i)
		all = append(all,
			threads.Task{Items: c.tiling.taps * c.inC * tensor.CeilDiv(end-first, weightUnit(c.ws)), Run: func(w *threads.Worker, lo, hi int) { c.transformWeights(w, first, end, lo, hi) }},
			threads.Task{Items: c.tiling.chunks() * c.groups, Run: func(w *threads.Worker, lo, hi int) { c.run(w, first, end, lo, hi) }})
	}
	return all
}

// weightUnit returns the number of output blocks whose weights are transformed
// together.
func weightUnit(ws *workspace.Workspace) int {
	if set := &ws.Set.GEMM; set.Joined {
		return set.Blocks
	}
	return 1
}

// transformWeights computes items [lo, hi) of the transform of the weights, in the
// pass over output blocks [first, end). An item is the tiles of 8×8 weights of a unit
// of output blocks, an input block and a tap along the depth.
func (c *Winograd) transformWeights(w *threads.Worker, first, end, lo, hi int) {
	unit, depth := weightUnit(c.ws), c.tiling.taps
	for i := lo; i < hi; i++ {
		d, in := i/c.inC%depth, i%c.inC
		for k, last := first+i/(depth*c.inC)*unit, min(end, first+(i/(depth*c.inC)+1)*unit); k < last; {
			wide := 1
			if unit > 1 {
				wide = c.ws.Set.GEMM.Wide(last - k)
			}
			c.transformBlocks(w, k-first, k, wide, d, in)
			k += wide
		}
	}
}

// transformBlocks transforms the tiles of tap d along the depth from input block in to
// output blocks [out, out+wide). at is the number of block out in the pass.
func (c *Winograd) transformBlocks(w *threads.Worker, at, out, wide, d, in int) {
	const tile = lanes * lanes
	k, depth := c.ws.Set, c.tiling.taps
	tmp := w.Scratch[c.tmp:]
	u := c.ws.Shared[at*c.u.block+(d*c.inC+in)*tile*wide:]
	if wide == 1 {
		k.Winograd.Weights(c.tile(tmp[kernel.Points*k.Vector:], d, in, out), &u[0], &tmp[0], c.u.point*4)
		return
	}
	for b := 0; b < wide; b += 2 {
		from, next := c.tile(tmp[kernel.Points*k.Vector:], d, in, out+b), c.inC*depth*kernel.Taps*tile
		if c.transposed {
			next = kernel.Taps * tile
			c.tile(tmp[kernel.Points*k.Vector+next:], d, in, out+b+1)
		}
		k.Winograd.WeightPair(from, &u[b*lanes], &tmp[0], next*4, c.u.point*4, wide*lanes*4)
	}
}

// tile returns the 3×3 tiles of 8×8 weights of tap d along the depth from input block
// in to output block out. For a transposed convolution they are rotated in scratch.
func (c *Winograd) tile(scratch []float32, d, in, out int) *float32 {
	const tile = lanes * lanes
	depth := c.tiling.taps
	if !c.transposed {
		return &c.weights.Data[((out*c.inC+in)*depth+d)*kernel.Taps*tile]
	}
	from := c.weights.Data[((in*c.outC+out)*depth+depth-1-d)*kernel.Taps*tile:]
	for t := range kernel.Taps {
		c.ws.Set.Transpose(&scratch[(kernel.Taps-1-t)*tile], &from[t*tile], lanes*4)
	}
	return &scratch[0]
}

// run computes items [lo, hi) of the pass over output blocks [first, end). An item is
// a group of these blocks, of one chunk.
func (c *Winograd) run(w *threads.Worker, first, end, lo, hi int) {
	v, m := w.Scratch[:c.mAt], w.Scratch[c.mAt:c.patch]
	patch, tmp := w.Scratch[c.patch:c.tmp], w.Scratch[c.tmp:]
	for item, loaded := lo, -1; item < hi; item++ {
		i, g := item/c.groups, item%c.groups
		at := c.tiling.chunk(i)
		if i != loaded {
			c.tiling.load(c.ws.Set, c.in, 0, c.inC, at, item > lo && at.z > 0, v, c.v, patch, tmp)
			loaded = i
		}
		k0, k1 := c.passes.group(first, end, g, c.groups)
		c.multiply(v, m, at, first, k0, k1)
		c.write(m, patch, tmp, at, k0, k1)
		if c.statistics != nil {
			c.measure(i, at, k0, k1)
		}
	}
}

// multiply computes the sums of products of a chunk's points for output blocks
// [k0, k1) of the pass that begins with block first.
func (c *Winograd) multiply(v, m []float32, at chunk, first, k0, k1 int) {
	set := &c.ws.Set.GEMM
	steps := c.steps[0]
	if at.n != c.tiling.block {
		steps = c.steps[1]
	}
	for p := range kernel.Points {
		for k := k0; k < k1; {
			wide := set.Wide(k1 - k)
			weights := c.ws.Shared[p*c.u.point+(k-first)*c.u.block:]
			c.tiling.eachRun(at, func(z, slices, tap, end int) {
				row := (z - at.z) * at.n
				for s := tap * c.inC; s < end*c.inC; s += c.pass {
					kernel.MultiplyRows(&set.Deep[wide], set.Rows, v[p*c.v.point+row*c.v.tile:], weights,
						m[p*c.m.point+row*c.m.tile+k*lanes:], c.ws.Zeros, c.table, steps[2*s:],
						c.u.block*4, lanes*4, min(c.pass, end*c.inC-s), slices*at.n, s > tap*c.inC)
				}
			})
			k += wide
		}
	}
}

// write transforms the sums of output blocks [k0, k1) back to outputs. A tile that
// crosses the edge of the map is computed in patch and copied in part.
func (c *Winograd) write(m, patch, tmp []float32, at chunk, k0, k1 int) {
	t, output := &c.tiling, c.ws.Set.Winograd.Output
	bias, biasStep := c.ws.Zeros, 0
	if c.bias != nil {
		bias, biasStep = c.bias[k0*lanes:], lanes*4
	}
	row := t.w * lanes
	for i := range at.slices * at.n {
		image, top, left := t.at(at.first + i%at.n)
		y := c.out.Data[(image*c.outC+k0)*t.plane()+(at.z+i/at.n)*t.slice()+top*row+left*lanes:]
		from := &m[i*c.m.tile+k0*lanes]
		if top+kernel.TileSide <= t.h && left+kernel.TileSide <= t.w {
			output(from, &y[0], &bias[0], &tmp[0], c.m.point*4, row*4, t.plane()*4, biasStep, k1-k0)
			continue
		}
		const size = kernel.TileSide * kernel.TileSide * lanes
		output(from, &patch[0], &bias[0], &tmp[0], c.m.point*4, kernel.TileSide*lanes*4, size*4, biasStep, k1-k0)
		width := min(kernel.TileSide, t.w-left) * lanes
		for k := range k1 - k0 {
			for r := range min(kernel.TileSide, t.h-top) {
				copy(y[k*t.plane()+r*row:][:width], patch[k*size+r*kernel.TileSide*lanes:])
			}
		}
	}
}
