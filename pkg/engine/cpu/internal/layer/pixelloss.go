package layer

import (
	"math"
	"slices"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// pixelLoss computes the weighted sum of cross-entropy and soft Dice over pixels, or its
// gradient. It divides the pixels of each sample into runs, whose sums are added in their
// order, so that the result does not depend on the number of threads.
type pixelLoss struct {
	ws        *workspace.Workspace
	z, t      tensor.Operand
	attr      plan.KernelAttr
	classes   int
	area      int            // pixels of a sample
	runPixels int            // pixels of a run, except for the last run of a sample
	perSample int            // runs
	sums      [][]pixelSums  // by run and class
	slopes    [][][2]float64 // see setDiceDerivatives
}

// pixelSums contains sums over the pixels of a run for one class. p is the softmax probability
// of the class. y is 1 where the class is the target, else 0.
type pixelSums struct {
	entropy float64 // Σ −y·log p, without the logarithm of factor
	factor  float64 // Π 1/p_m over the pixels with y = 1, where m is the class with the greatest logit
	product float64 // Σ p·y
	sum     float64 // Σ (p+y)
}

// buildPixelLoss returns the tasks of the pixel cross-entropy or of its gradient.
func (x *Builder) buildPixelLoss(c Operation) ([]threads.Task, error) {
	z, t := c.Inputs[0], c.Inputs[1]
	target := slices.Clone(z.Logical)
	target[1] = 1
	if !slices.Equal(t.Logical, target) || z.Layout != tensor.ActivationLayout || t.Layout != tensor.ActivationLayout {
		return nil, c.errorf("want logits [n,k,…] and class indexes [n,1,…]")
	}
	l, isSummed := x.pixelLoss, true
	if l == nil || l.z.ID != z.ID {
		l, isSummed = newPixelLoss(x.Workspace, z, t, c.Attr), false
	}
	add := threads.Task{Items: len(l.sums), Run: l.sumPixelRuns}
	if c.Op == plan.OpPixelCrossEntropy {
		loss := c.Outputs[0]
		if !loss.IsVector(1) {
			return nil, c.errorf("want a result of shape [1]")
		}
		x.pixelLoss = l
		return []threads.Task{add, {Items: 1, Run: func(*threads.Worker, int, int) { loss.Data[0] = float32(l.totalLoss()) }}}, nil
	}
	dloss, dz := c.Inputs[2], c.Outputs[0]
	if !dloss.IsVector(1) || !slices.Equal(dz.Logical, z.Logical) || dz.Layout != tensor.ActivationLayout {
		return nil, c.errorf("want a gradient of the loss of shape [1] and a result with the shape of the logits")
	}
	write := threads.Task{Items: len(l.sums), Run: func(w *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			l.writeGradient(w, i, float64(dloss.Data[0]), dz.Data)
		}
	}}
	if l.attr.DiceWeight == 0 {
		return []threads.Task{write}, nil
	}
	l.slopes = make([][][2]float64, z.Shape[0])
	for i := range l.slopes {
		l.slopes[i] = make([][2]float64, l.classes)
	}
	slopes := threads.Task{Items: len(l.slopes), Run: func(_ *threads.Worker, lo, hi int) {
		for sample := lo; sample < hi; sample++ {
			l.setDiceDerivatives(sample, float64(dloss.Data[0]))
		}
	}}
	if isSummed { // by the forward pass
		return []threads.Task{slopes, write}, nil
	}
	return []threads.Task{add, slopes, write}, nil
}

// newPixelLoss returns a pixelLoss of logits z and targets t, and reserves its scratch memory
// in w.
func newPixelLoss(w *workspace.Workspace, z, t tensor.Operand, a plan.KernelAttr) *pixelLoss {
	l := &pixelLoss{ws: w, z: z, t: t, attr: a, classes: z.Logical[1], area: z.Shape[2] * z.Shape[3]}
	l.runPixels = max(1, maxElementsPerRun/l.classes)
	l.perSample = tensor.CeilDiv(l.area, l.runPixels)
	l.sums = make([][]pixelSums, z.Shape[0]*l.perSample)
	for i := range l.sums {
		l.sums[i] = make([]pixelSums, l.classes)
	}
	w.ReserveScratch(2 * l.scratchFloats())
	return l
}

// scratchFloats returns the number of floats of the logits of a run.
func (l *pixelLoss) scratchFloats() int { return tensor.RoundUp(l.runPixels*l.classes, lanes) }

// runPixelRange returns the sample of run i, and the range [lo, hi) of its pixels.
func (l *pixelLoss) runPixelRange(i int) (sample, lo, hi int) {
	lo = i % l.perSample * l.runPixels
	return i / l.perSample, lo, min(l.area, lo+l.runPixels)
}

// logitIndex returns the index in z of a pixel's logit for class 0. The next pixel's logit is
// lanes elements after it. The logit for class 8 is floatsPerChannelBlock elements after it.
func (l *pixelLoss) logitIndex(sample, pixel int) int {
	return (sample*tensor.ChannelBlockCount(l.classes)*l.area + pixel) * lanes
}

// floatsPerChannelBlock returns the number of floats of a channel block of a sample.
func (l *pixelLoss) floatsPerChannelBlock() int { return l.area * lanes }

// targetClass returns the class of a pixel. ok is false if the pixel is ignored.
func (l *pixelLoss) targetClass(sample, pixel int) (class int, ok bool) {
	class = int(l.t.Data[(sample*l.area+pixel)*lanes])
	return class, class != l.attr.Ignore
}

// computeExponentials returns d = z − m and e = e^d for each pixel and class of run i, where m is the
// greatest logit of the pixel. They are in a worker's scratch memory.
func (l *pixelLoss) computeExponentials(w *threads.Worker, i int) (d, e []float32) {
	sample, lo, hi := l.runPixelRange(i)
	n := (hi - lo) * l.classes
	all := tensor.RoundUp(n, lanes)
	d, e = w.Scratch[:all], w.Scratch[l.scratchFloats():][:all]
	clear(d[n:])
	at := l.logitIndex(sample, lo)
	for done := 0; done < n; done += l.classes {
		row := d[done:][:l.classes]
		top := float32(math.Inf(-1))
		for first, from := 0, at; first < l.classes; first, from = first+lanes, from+l.floatsPerChannelBlock() {
			part := row[first:min(first+lanes, l.classes)]
			for k, v := range l.z.Data[from:][:len(part)] {
				part[k] = v
				top = max(top, v)
			}
		}
		for k := range row {
			row[k] -= top
		}
		at += lanes
	}
	l.ws.Set.Exp(&d[0], &e[0], all) // d ≤ 0
	return d[:n], e[:n]
}

// sumPixelRuns computes the sums of runs [lo, hi).
func (l *pixelLoss) sumPixelRuns(w *threads.Worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		l.sumPixelRun(w, i)
	}
}

func (l *pixelLoss) sumPixelRun(w *threads.Worker, i int) {
	const large = 1e200
	sums := l.sums[i]
	for k := range sums {
		sums[k] = pixelSums{factor: 1}
	}
	d, e := l.computeExponentials(w, i)
	sample, lo, hi := l.runPixelRange(i)
	for pixel := lo; pixel < hi; pixel++ {
		class, ok := l.targetClass(sample, pixel)
		if !ok {
			continue
		}
		at := (pixel - lo) * l.classes
		row := e[at:][:l.classes]
		total := sumFloats(row)
		s := &sums[class]
		s.entropy -= float64(d[at+class])
		// The sum of logarithms is the logarithm of a product, which takes less time.
		if s.factor *= float64(total); s.factor > large {
			s.entropy += math.Log(s.factor)
			s.factor = 1
		}
		if l.attr.DiceWeight != 0 {
			each := 1 / float64(total)
			for k, v := range row {
				sums[k].sum += float64(v) * each
			}
			s.sum++
			s.product += float64(row[class]) * each
		}
	}
}

func sumFloats(v []float32) (sum float32) {
	for _, f := range v {
		sum += f
	}
	return sum
}

// classWeight returns the weight of a class in the cross-entropy.
func (l *pixelLoss) classWeight(class int) float64 {
	if l.attr.ClassWeights == nil {
		return 1
	}
	return l.attr.ClassWeights[class]
}

// diceCoefficient returns the numerator and the denominator of the smoothed Dice coefficient
// (2·Σ p·y + 1)/(Σ (p+y) + 1) of a class in a sample.
func (l *pixelLoss) diceCoefficient(sample, class int) (numerator, denominator float64) {
	numerator, denominator = 1, 1
	for _, run := range l.sums[sample*l.perSample:][:l.perSample] {
		numerator += 2 * run[class].product
		denominator += run[class].sum
	}
	return numerator, denominator
}

// pixelCount returns the number of terms in the mean of the cross-entropy, and classMapCount in the
// mean of the Dice loss.
func (l *pixelLoss) pixelCount() float64    { return float64(l.z.Shape[0] * l.area) }
func (l *pixelLoss) classMapCount() float64 { return float64(l.z.Shape[0] * l.classes) }

// totalLoss returns the loss, computed from the sums of all runs.
func (l *pixelLoss) totalLoss() float64 {
	entropy, lost := 0.0, 0.0
	for _, run := range l.sums {
		for class, s := range run {
			entropy += l.classWeight(class) * (s.entropy + math.Log(s.factor))
		}
	}
	for sample := range l.z.Shape[0] {
		for class := range l.classes {
			numerator, denominator := l.diceCoefficient(sample, class)
			lost += 1 - numerator/denominator
		}
	}
	return l.attr.DiceWeight*lost/l.classMapCount() + (1-l.attr.DiceWeight)*entropy/l.pixelCount()
}

// setDiceDerivatives sets slopes[sample]: the derivatives of the Dice loss with respect to the
// probability of each class at a pixel. slopes[sample][class][1] is for pixels of that class,
// slopes[sample][class][0] for all other pixels.
func (l *pixelLoss) setDiceDerivatives(sample int, dloss float64) {
	for k := range l.classes {
		numerator, denominator := l.diceCoefficient(sample, k)
		each := dloss * l.attr.DiceWeight / (denominator * denominator * l.classMapCount())
		l.slopes[sample][k] = [2]float64{each * numerator, each * (numerator - 2*denominator)}
	}
}

// writeGradient writes the elements of the gradient dz for the pixels of run i. dloss is the
// gradient of the loss.
func (l *pixelLoss) writeGradient(w *threads.Worker, i int, dloss float64, dz []float32) {
	_, e := l.computeExponentials(w, i)
	sample, lo, hi := l.runPixelRange(i)
	perPixel := dloss * (1 - l.attr.DiceWeight) / l.pixelCount()
	at := l.logitIndex(sample, lo)
	for pixel := lo; pixel < hi; pixel++ {
		row := e[(pixel-lo)*l.classes:][:l.classes]
		factor := float32(1)
		if class, ok := l.targetClass(sample, pixel); !ok {
			clear(row)
		} else if l.slopes != nil {
			computeLogitGradients(row, class, perPixel*l.classWeight(class), l.slopes[sample])
		} else {
			total := sumFloats(row)
			factor = float32(perPixel*l.classWeight(class)) / total
			row[class] -= total
		}
		for first, to := 0, at; first < l.classes; first, to = first+lanes, to+l.floatsPerChannelBlock() {
			part, block := row[first:min(first+lanes, l.classes)], dz[to:][:lanes]
			for k, v := range part {
				block[k] = v * factor
			}
			for k := len(part); k < lanes; k++ {
				block[k] = 0 // padding
			}
		}
		at += lanes
	}
}

// computeLogitGradients replaces row, the exponentials of one pixel, by the gradient of the
// pixel's logits. scale is the derivative of the loss with respect to the pixel's
// cross-entropy. slopes contains the derivatives from setDiceDerivatives.
func computeLogitGradients(row []float32, class int, scale float64, slopes [][2]float64) {
	total, mean := 0.0, 0.0
	for k, v := range row {
		total += float64(v)
		mean += slopes[k][0] * float64(v)
	}
	own, each := slopes[class], 1/total
	p := float64(row[class]) * each
	mean = mean*each + (own[1]-own[0])*p
	for k, v := range row {
		row[k] = float32(float64(v) * each * (scale + slopes[k][0] - mean))
	}
	row[class] = float32(p*(scale+own[1]-mean) - scale)
}
