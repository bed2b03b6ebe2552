package selftest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/internal/probe"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/metric"
	"lockstep/pkg/optim"
)

// launchCheck is a check that launches kernels directly. The field run launches them and
// returns the mismatch between their results and the expected ones.
type launchCheck struct {
	name, shape string
	bound       float64
	run         func(p *sandbox) float64
}

// checkDirectLaunches checks kernels that are not an operation of a plan, such as those of the
// optimizers.
func (t *tester) checkDirectLaunches() error {
	for _, c := range append([]launchCheck{
		{"fill_u32", "4097 words", 0, measureFillMismatch},
		{"casts", "4099 numbers", 0, measureCastMismatch},
		{"planar to rows and back", "2×3×35", 0, measureSmallTransposeMismatch},
		{"planar to rows and back", "3×40×33", 0, measureWideTransposeMismatch},
		{"normalize_u8", "3×11×77", t.errorBoundWithoutTensorCores(1), measureNormalizationMismatch},
		{"head", "200 rows of 24 channels", t.errorBoundWithoutTensorCores(1), measureHeadConvolutionMismatch},
		{"bce with counts", "20001 logits", t.errorBoundWithoutTensorCores(1), measureBCEMismatch},
		{"adam, one step left out", "4099 weights, 6 steps", 1e-5, measureAdamMismatch},
		{"sgd with momentum", "4099 weights, 4 steps", 1e-5, measureSGDMismatch},
		{"ceilings of arithmetic", "2 blocks, 11 turns", 0, measureThroughputTestMismatch},
		{"augment_2d", "12×3×12×10 to 7×7, 2 epochs", 0, measureAugment2DMismatch},
		{"take_rows", "40 rows of 3, 700 times", 0, measureGatherRowsMismatch},
		{"augment_3d", "30×2×6×7×8 to 4×4×4, 2 epochs", t.errorBoundWithoutTensorCores(1) + 1e-6, measureAugment3DMismatch},
	}, append(optimizerRuleChecks(), syncNormChecks(t)...)...) {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		if !t.isSelected(c.name) {
			continue
		}
		check := Check{Name: c.name, Shape: c.shape, Bound: c.bound}
		p := &sandbox{tester: t, gpu: t.engine.Probe(), typ: number.KernelType(t.low), ran: map[string]bool{}}
		err := t.engine.Do(func() error {
			check.Error = c.run(p)
			return p.checkMarginsAndFree()
		})
		if err != nil {
			if err := t.addFailure(check, err); err != nil {
				return err
			}
			continue
		}
		check.Kernels = t.recordKernels(slices.Sorted(maps.Keys(p.ran)))
		t.addCheck(check)
	}
	return nil
}

// sandbox contains the GPU memory of one launchCheck. Each block has margins that no kernel may
// change. After the first error its methods do nothing.
type sandbox struct {
	*tester
	gpu    probe.GPU
	typ    kernels.ElementType
	blocks []guardedBlock
	ran    map[string]bool // names of the kernels that were launched
	err    error
}

// guardedBlock is a block of GPU memory between two margins.
type guardedBlock struct {
	ptr   driver.Ptr // address of the first margin
	bytes int        // size without margins
	input []byte     // contents, if no kernel may change them; otherwise nil
}

// size returns the size of m including its margins, in bytes.
func (m guardedBlock) size() int64 {
	return int64((m.bytes+guardMarginBytes-1)/guardMarginBytes*guardMarginBytes + 2*guardMarginBytes)
}

// guardMarginBytes is the size of a margin. It is a multiple of cuMemAlloc's alignment, so that
// the memory after a margin is aligned too.
const guardMarginBytes = 256

// uploadInput copies data to the GPU, for operands that no kernel may change.
func (p *sandbox) uploadInput(data []byte) kernels.Pointer {
	ptr := p.newNaNOutput(len(data))
	if p.err == nil {
		p.err = p.gpu.Write(driver.Ptr(ptr), data)
		p.blocks[len(p.blocks)-1].input = bytes.Clone(data)
	}
	return ptr
}

// uploadRounded is like uploadInput, but first rounds v to the precision of the test.
func (p *sandbox) uploadRounded(v []float32) kernels.Pointer {
	return p.uploadInput(number.Encode(p.low, v))
}

// uploadFloat32 is like uploadInput, for float32 values.
func (p *sandbox) uploadFloat32(v []float32) kernels.Pointer {
	return p.uploadInput(number.Encode(device.F32, v))
}

// uploadInOut is like uploadInput, for operands that kernels may change.
func (p *sandbox) uploadInOut(data []byte) kernels.Pointer {
	ptr := p.uploadInput(data)
	if p.err == nil {
		p.blocks[len(p.blocks)-1].input = nil
	}
	return ptr
}

// newNaNOutput allocates n bytes on the GPU and fills them with 0xff, which is NaN in every type.
func (p *sandbox) newNaNOutput(n int) kernels.Pointer {
	if p.err != nil {
		return 0
	}
	m := guardedBlock{bytes: n}
	if m.ptr, p.err = p.gpu.Allocate(m.size()); p.err != nil {
		return 0
	}
	p.blocks = append(p.blocks, m)
	return kernels.Pointer(m.ptr.Add(guardMarginBytes))
}

// launch enqueues the launches, or records err if it is not nil.
func (p *sandbox) launch(list []kernels.Launch, err error) {
	if p.err = errors.Join(p.err, err); p.err != nil {
		return
	}
	for _, l := range list {
		p.ran[l.Kernel] = true
	}
	p.err = p.gpu.Launch(list)
}

// readElements returns n elements of type typ from GPU memory.
func (p *sandbox) readElements(at kernels.Pointer, typ device.ElementType, n int) []float64 {
	return number.ToFloat64(number.Decode(typ, p.readBytes(at, n*typ.Size())))
}

// readBytes returns n bytes of GPU memory, or zeros after an error.
func (p *sandbox) readBytes(at kernels.Pointer, n int) []byte {
	if p.err != nil {
		return make([]byte, n)
	}
	var data []byte
	if data, p.err = p.gpu.Read(driver.Ptr(at), int64(n)); p.err != nil {
		return make([]byte, n)
	}
	return data
}

// checkMarginsAndFree frees the memory. It returns an error if an earlier call failed, or if a kernel
// changed a margin or an operand that uploadInput copied.
func (p *sandbox) checkMarginsAndFree() error {
	for _, m := range p.blocks {
		all := p.readBytes(kernels.Pointer(m.ptr), int(m.size()))
		if p.err == nil {
			inside := all[guardMarginBytes:][:m.bytes]
			for i, b := range all {
				if (i < guardMarginBytes || i >= guardMarginBytes+m.bytes) && b != 0xff {
					p.err = fmt.Errorf("a kernel wrote out of bounds: at offset %d of %d bytes", i-guardMarginBytes, m.bytes)
				}
			}
			if m.input != nil && !bytes.Equal(m.input, inside) {
				p.err = errors.New("a kernel changed its input")
			}
		}
	}
	for _, m := range p.blocks {
		p.err = errors.Join(p.err, p.gpu.Free(m.ptr, m.size()))
	}
	return p.err
}

// measureFillMismatch returns the mismatch of the result of fill_u32.
func measureFillMismatch(p *sandbox) float64 {
	const n = 4097
	to := p.newNaNOutput(4 * n)
	p.launch(kernels.FillWords(to, 0x3f800000, n))
	want := make([]float64, n)
	for i := range want {
		want[i] = 1
	}
	return maxRelativeError(p.readElements(to, device.F32, n), want)
}

// measureCastMismatch returns the greatest mismatch of the casts between float32 and the
// precision. All bits must be equal, since rounding to nearest, ties to even, has only one
// result.
func measureCastMismatch(p *sandbox) float64 {
	const n = 4099
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(p.random.NormFloat64() * 100)
	}
	v[7], v[8] = 0, float32(math.Copysign(0, -1))
	from, low, back := p.uploadFloat32(v), p.newNaNOutput(n*p.low.Size()), p.newNaNOutput(4*n)
	p.launch(kernels.CastFromF32(p.typ, from, low, n))
	p.launch(kernels.CastToF32(p.typ, low, back, n))
	if !bytes.Equal(p.readBytes(low, n*p.low.Size()), number.Encode(p.low, v)) {
		return math.Inf(1)
	}
	return maxRelativeError(p.readElements(back, device.F32, n), number.ToFloat64(p.roundToPrecision(v)))
}

// measureSmallTransposeMismatch returns the mismatch of transpositions of 3 channels.
func measureSmallTransposeMismatch(p *sandbox) float64 { return measureTransposeMismatch(p, 2, 3, 35) }

// measureWideTransposeMismatch returns the mismatch of transpositions of 40 channels.
func measureWideTransposeMismatch(p *sandbox) float64 { return measureTransposeMismatch(p, 3, 40, 33) }

// measureTransposeMismatch converts random values to rows and back, and returns the
// greatest mismatch of the two results.
func measureTransposeMismatch(p *sandbox, batch, channels, spatial int) float64 {
	n, padded := batch*channels*spatial, kernels.PaddedChannels(channels)
	v := p.randomNumbers(n)
	rows, back := p.newNaNOutput(batch*spatial*padded*p.low.Size()), p.newNaNOutput(4*n)
	a := kernels.Transposition{Batch: batch, Channels: channels, Spatial: spatial, Padded: padded, Planar: p.uploadFloat32(v), Rows: rows, Pitch: padded}
	p.launch(a.ToRows(p.typ))
	a.Planar = back
	p.launch(a.ToPlanar(p.typ))
	want := make([]float64, batch*spatial*padded)
	for i, f := range v {
		want[(i/(channels*spatial)*spatial+i%spatial)*padded+i/spatial%channels] = float64(f)
	}
	return max(maxRelativeError(p.readElements(rows, p.low, len(want)), want), maxRelativeError(p.readElements(back, device.F32, n), number.ToFloat64(v)))
}

func (p *sandbox) randomBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(p.random.IntN(256))
	}
	return b
}

func measureNormalizationMismatch(p *sandbox) float64 {
	const batch, channels, spatial, padded = 3, 11, 77, 16
	pixels := p.randomBytes(batch * channels * spatial)
	mean, invstd := make([]float32, channels), make([]float32, channels)
	for i := range mean {
		mean[i], invstd[i] = 0.5+float32(p.random.Float64())/10, 4+float32(p.random.Float64())
	}
	to := p.newNaNOutput(batch * spatial * padded * p.low.Size())
	p.launch(kernels.Normalization{
		PixelConversion: kernels.PixelConversion{Channels: channels, Padded: padded, Divisor: 255, Mean: p.uploadFloat32(mean), InvStd: p.uploadFloat32(invstd), Dst: to, Pitch: padded},
		Batch:           batch, Spatial: spatial, Src: p.uploadInput(pixels),
	}.Launches(p.typ))
	want := make([]float64, batch*spatial*padded)
	for i, b := range pixels {
		c := i / spatial % channels
		want[(i/(channels*spatial)*spatial+i%spatial)*padded+c] = (float64(b)/255 - float64(mean[c])) * float64(invstd[c])
	}
	return maxRelativeError(p.readElements(to, p.low, len(want)), want)
}

func measureHeadConvolutionMismatch(p *sandbox) float64 {
	const rows, channels = 200, 24
	x, w, dz := p.randomNumbers(rows*channels), make([]float32, channels), make([]float32, rows)
	for i := range w {
		w[i] = float32(p.random.NormFloat64())
	}
	for i := range dz {
		dz[i] = float32(p.random.NormFloat64())
	}
	const bias = 0.25
	a := kernels.HeadConvolution{
		Rows: rows, Channels: channels, X: kernels.FeatureMap{Data: p.uploadRounded(x), Pitch: channels}, W: p.uploadFloat32(w), Bias: p.uploadFloat32([]float32{bias}),
		Z: p.newNaNOutput(4 * rows), DZ: p.uploadFloat32(dz), DX: kernels.FeatureMap{Data: p.newNaNOutput(rows * channels * p.low.Size()), Pitch: channels},
		DW: p.newNaNOutput(4 * channels), DBias: p.newNaNOutput(4), Partial: p.newNaNOutput(4 * kernels.PartialSumFloats(rows, channels)),
	}
	p.launch(a.Forward(p.typ))
	p.launch(a.BackwardData(p.typ))
	p.launch(a.BackwardWeights(p.typ))
	z, dx, dw, db := make([]float64, rows), make([]float64, rows*channels), make([]float64, channels), make([]float64, 1)
	for i := range rows {
		z[i] = bias
		db[0] += float64(dz[i])
		for c := range channels {
			z[i] += float64(x[i*channels+c]) * float64(w[c])
			dx[i*channels+c] = float64(dz[i]) * float64(w[c])
			dw[c] += float64(dz[i]) * float64(x[i*channels+c])
		}
	}
	return max(
		maxRelativeError(p.readElements(a.Z, device.F32, rows), z), maxRelativeError(p.readElements(a.DX.Data, p.low, len(dx)), dx),
		maxRelativeError(p.readElements(a.DW, device.F32, channels), dw), maxRelativeError(p.readElements(a.DBias, device.F32, 1), db),
	)
}

// measureBCEMismatch returns the greatest mismatch of the binary cross-entropy's loss and
// gradient. It is infinite if the counts of true and false predictions are wrong.
func measureBCEMismatch(p *sandbox) float64 {
	const n, dloss, scale = 20001, 0.5, 8
	z, target := make([]float32, n), make([]float32, n)
	for i := range z {
		z[i] = float32(4 * p.random.NormFloat64())
		if i%101 == 7 {
			z[i] *= 20 // so large that exp(z) overflows
		}
		target[i] = float32(p.random.IntN(2))
	}
	control := kernels.ControlBlock{LossScale: scale}
	a := kernels.BCE{
		Rows: n, Channels: 1, Z: p.uploadFloat32(z), ZPitch: 1, T: p.uploadFloat32(target), Partial: p.newNaNOutput(4 * kernels.LossPartialSumFloats),
		Loss: p.newNaNOutput(4), Counts: p.newNaNOutput(32), DLoss: p.uploadFloat32([]float32{dloss}), Control: p.uploadInput(control.Bytes()), DZ: p.newNaNOutput(4 * n), DZPitch: 1,
	}
	// The logits of a one-channel head are fp32 in every precision.
	p.launch(a.Forward(kernels.F32))
	p.launch(a.Backward(kernels.F32))
	loss, dz := 0.0, make([]float64, n)
	for i := range z {
		v, t := float64(z[i]), float64(target[i])
		loss += (max(v, 0) - v*t + math.Log1p(math.Exp(-math.Abs(v)))) / n
		dz[i] = dloss * scale * (1/(1+math.Exp(-v)) - t) / n
	}
	var got [4]int64
	for i, b := 0, p.readBytes(a.Counts, 32); i < 4; i++ {
		got[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	if (metric.Counts{TP: got[0], FP: got[1], FN: got[2], TN: got[3]}) != metric.CountLogits(z, target) {
		return math.Inf(1)
	}
	return max(maxRelativeError(p.readElements(a.Loss, device.F32, 1), []float64{loss}), maxRelativeError(p.readElements(a.DZ, device.F32, n), dz))
}

// optimizerMemory contains the state of an optimizer twice: in GPU memory, and as the weights
// and slots that optim.Apply updates for comparison.
type optimizerMemory struct {
	n           int
	w, g        kernels.Pointer
	control     kernels.Pointer
	update      kernels.Update
	want, slot1 []float64
	slot2       []float64
	scale       float32
	rule        optim.Update
}

// newOptimizerMemory returns the memory for n random weights that rule updates.
func newOptimizerMemory(p *sandbox, n int, rule optim.Update) *optimizerMemory {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(p.random.NormFloat64())
	}
	zero := make([]byte, 4*n)
	s := &optimizerMemory{n: n, want: number.ToFloat64(v), slot1: make([]float64, n), slot2: make([]float64, n), rule: rule, scale: 1024}
	s.w, s.g = p.uploadInOut(number.Encode(device.F32, v)), p.uploadInOut(zero)
	s.control = p.uploadInOut((kernels.ControlBlock{LossScale: s.scale}).Bytes())
	s.update = kernels.Update{N: n, W: s.w, G: s.g, Low: p.newNaNOutput(n * p.low.Size()), Control: s.control, WeightDecay: rule.WeightDecay}
	if rule.Rule == optim.RuleAdam {
		s.update.M, s.update.V = p.uploadInOut(zero), p.uploadInOut(zero)
		s.update.Beta1, s.update.Beta2, s.update.Epsilon = rule.Beta1, rule.Beta2, rule.Epsilon
	} else {
		s.update.Buffer, s.update.Momentum = p.uploadInOut(zero), rule.Momentum
	}
	return s
}

// beginStep writes the host's part of the control block and new random gradients, which it
// returns unscaled. If overflow is set, one gradient on the GPU is infinite.
func (s *optimizerMemory) beginStep(p *sandbox, step int, overflow bool) []float64 {
	if p.err != nil {
		return make([]float64, s.n)
	}
	c := kernels.ControlBlock{LearningRate: float32(s.rule.LearningRate), Step: int32(step)}
	p.err = p.gpu.Write(driver.Ptr(s.control), c.Bytes()[:kernels.ControlHostBytes])
	scale := kernels.DecodeControl(p.readBytes(s.control, kernels.ControlBytes)).LossScale
	g, scaled := make([]float64, s.n), make([]float32, s.n)
	for i := range g {
		v := float32(p.random.NormFloat64())
		g[i], scaled[i] = float64(v), v*scale
	}
	if overflow {
		scaled[s.n-1] = float32(math.Inf(1))
	}
	if p.err == nil {
		p.err = p.gpu.Write(driver.Ptr(s.g), number.Encode(device.F32, scaled))
	}
	return g
}

// measureAdamMismatch returns the mismatch between the weights that the kernels and
// optim.Apply compute in several steps. The fourth step has an infinite gradient, so it
// must skip the update and halve the loss scale.
func measureAdamMismatch(p *sandbox) float64 {
	s := newOptimizerMemory(p, 4099, optim.Update{Rule: optim.RuleAdam, LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01})
	for step := 1; step <= 6; step++ {
		spoiled := step == 4
		g := s.beginStep(p, step, spoiled)
		p.launch(kernels.BeginStep(s.control, s.rule.Beta1, s.rule.Beta2))
		s.update.Unscaled = step%2 == 1
		if s.update.Unscaled {
			p.launch(kernels.UnscaleGradients(s.g, s.n, s.control))
		} else {
			p.launch(kernels.CheckGradients(s.g, s.n, s.control))
		}
		p.launch(s.update.Adam(p.typ))
		p.launch(kernels.UpdateLossScale(s.control, 2, 0.5, 2000))
		c := kernels.DecodeControl(p.readBytes(s.control, kernels.ControlBytes))
		if p.err == nil && (c.FoundInf != 0) != spoiled {
			p.err = fmt.Errorf("step %d: control block is %+v, want FoundInf %v", step, c, spoiled)
		}
		if spoiled {
			continue
		}
		s.rule.Step++
		p.err = errors.Join(p.err, optim.Apply(s.rule, s.want, g, s.slot1, s.slot2))
	}
	if c := kernels.DecodeControl(p.readBytes(s.control, kernels.ControlBytes)); p.err == nil && (c.LossScale != s.scale/2 || c.Skipped != 1) {
		p.err = fmt.Errorf("control block is %+v, want loss scale %g and one skipped update", c, s.scale/2)
	}
	return s.weightsMismatch(p)
}

func measureSGDMismatch(p *sandbox) float64 {
	s := newOptimizerMemory(p, 4099, optim.Update{Rule: optim.RuleSGD, LearningRate: 0.1, Momentum: 0.9, WeightDecay: 0.02})
	for step := 1; step <= 4; step++ {
		g := s.beginStep(p, step, false)
		p.launch(kernels.BeginStep(s.control, 0, 0))
		p.launch(s.update.SGD(p.typ))
		p.err = errors.Join(p.err, optim.Apply(s.rule, s.want, g, s.slot1))
	}
	return s.weightsMismatch(p)
}

// weightsMismatch compares the weights on the GPU with those of optim.Apply. It returns
// infinity if the low-precision copies differ from the rounded weights.
func (s *optimizerMemory) weightsMismatch(p *sandbox) float64 {
	w := p.readBytes(s.w, 4*s.n)
	if !bytes.Equal(p.readBytes(s.update.Low, s.n*p.low.Size()), number.Encode(p.low, number.Decode(device.F32, w))) {
		return math.Inf(1)
	}
	return maxRelativeError(number.ToFloat64(number.Decode(device.F32, w)), s.want)
}

func measureGatherRowsMismatch(p *sandbox) float64 {
	const rows, width, batch = 40, 3, 700
	v, list, want := make([]float32, rows*width), make([]int, batch), make([]float64, batch*width)
	for i := range v {
		v[i] = float32(p.random.NormFloat64())
	}
	for i := range list {
		list[i] = p.random.IntN(rows)
		for k := range width {
			want[i*width+k] = float64(v[list[i]*width+k])
		}
	}
	to := p.newNaNOutput(4 * batch * width)
	p.launch(kernels.GatherRows(p.uploadFloat32(v), p.uploadIndexes(list), to, batch, width))
	return maxRelativeError(p.readElements(to, device.F32, batch*width), want)
}

// measureThroughputTestMismatch returns the greatest mismatch of the results of the kernels
// that measure a GPU's peak arithmetic speed.
func measureThroughputTestMismatch(p *sandbox) float64 {
	const blocks, turns, n = 2, 11, 2 * 256
	worst := 0.0
	one := func(c kernels.ThroughputTest, out kernels.Pointer, value float64, err error) {
		p.launch([]kernels.Launch{c.Launch}, err)
		want := make([]float64, n)
		for i := range want {
			want[i] = value
		}
		worst = max(worst, maxRelativeError(p.readElements(out, device.F32, n), want))
	}
	out := p.newNaNOutput(4 * n)
	c, err := kernels.NewFMATest(out, blocks, turns)
	one(c, out, turns, err)
	if p.low != device.F32 {
		out = p.newNaNOutput(4 * n)
		c, err = kernels.NewMMATest(p.typ, out, blocks, turns)
		one(c, out, 16*turns, err)
	}
	return worst
}
