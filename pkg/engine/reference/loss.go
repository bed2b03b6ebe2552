package reference

import (
	"math"

	"lockstep/pkg/nn"
)

// meanBCE returns the mean of max(z,0) − z·t + log(1+e^−|z|), a form of the binary
// cross-entropy that does not overflow.
func (c *kernelCall[T]) meanBCE() float64 {
	sum := 0.0
	for i, v := range c.in[0] {
		z, t := float64(v), float64(c.in[1][i])
		sum += math.Max(z, 0) - z*t + math.Log1p(math.Exp(-math.Abs(z)))
	}
	return sum / float64(len(c.in[0]))
}

func (c *kernelCall[T]) bceWithLogits() { c.out[0][0] = T(c.meanBCE()) }

func (c *kernelCall[T]) bceWithLogitsBackward() {
	scale := float64(c.in[2][0]) / float64(len(c.in[0]))
	for i, z := range c.in[0] {
		c.out[0][i] = T(scale * (logistic(float64(z)) - float64(c.in[1][i])))
	}
}

// forEachSample calls visit for each sample. sample contains its logits z, and logSum is log Σ
// e^z, so that log p = z − logSum. target returns the smoothed label of a class. first is the
// index of the sample's first logit. logSum is computed relative to the largest logit, so that
// no exponential overflows.
func (c *kernelCall[T]) forEachSample(visit func(sample []T, logSum float64, target func(class int) float64, first int)) {
	z, t := c.in[0], c.in[1]
	classes := c.inShape[0][1]
	even := c.attr.Smoothing / float64(classes)
	for i := range t {
		sample := z[i*classes : (i+1)*classes]
		top := math.Inf(-1)
		for _, v := range sample {
			top = math.Max(top, float64(v)) // NaN stays.
		}
		sum := 0.0
		for _, v := range sample {
			sum += math.Exp(float64(v) - top)
		}
		target := func(class int) float64 {
			if class == int(t[i]) {
				return even + 1 - c.attr.Smoothing
			}
			return even
		}
		visit(sample, top+math.Log(sum), target, i*classes)
	}
}

func (c *kernelCall[T]) softmaxCrossEntropy() {
	loss := 0.0
	c.forEachSample(func(sample []T, logSum float64, target func(int) float64, _ int) {
		for j, v := range sample {
			if q := target(j); q != 0 {
				loss += q * (logSum - float64(v))
			}
		}
	})
	c.out[0][0] = T(loss / float64(len(c.in[1])))
}

func (c *kernelCall[T]) softmaxCrossEntropyBackward() {
	scale := float64(c.in[2][0]) / float64(len(c.in[1]))
	c.forEachSample(func(sample []T, logSum float64, target func(int) float64, at int) {
		for j, v := range sample {
			c.out[0][at+j] = T(scale * (math.Exp(float64(v)-logSum) - target(j)))
		}
	})
}

// forEachDiceMap calls visit for each channel of each sample. [lo, hi) is the range of its
// elements. numerator and denominator are those of its Dice coefficient (2Σpt+1)/(Σp+Σt+1).
func (c *kernelCall[T]) forEachDiceMap(visit func(lo, hi int, numerator, denominator float64)) {
	z, t := c.in[0], c.in[1]
	area := spatialElementCount(c.inShape[0])
	for lo := 0; lo < len(z); lo += area {
		numerator, denominator := 1.0, 1.0
		for i := lo; i < lo+area; i++ {
			p := logistic(float64(z[i]))
			numerator += 2 * p * float64(t[i])
			denominator += p + float64(t[i])
		}
		visit(lo, lo+area, numerator, denominator)
	}
}

func (c *kernelCall[T]) diceBCE() {
	w, maps := c.attr.DiceWeight, float64(len(c.in[0])/spatialElementCount(c.inShape[0]))
	sum := 0.0
	c.forEachDiceMap(func(_, _ int, numerator, denominator float64) { sum += 1 - numerator/denominator })
	c.out[0][0] = T(w*sum/maps + (1-w)*c.meanBCE())
}

func (c *kernelCall[T]) diceBCEBackward() {
	z, t, dloss := c.in[0], c.in[1], float64(c.in[2][0])
	w, maps := c.attr.DiceWeight, float64(len(z)/spatialElementCount(c.inShape[0]))
	c.forEachDiceMap(func(lo, hi int, numerator, denominator float64) {
		for i := lo; i < hi; i++ {
			p := logistic(float64(z[i]))
			dice := -p * (1 - p) * (2*float64(t[i])*denominator - numerator) / (denominator * denominator * maps)
			c.out[0][i] = T(dloss * (w*dice + (1-w)*(p-float64(t[i]))/float64(len(z))))
		}
	})
}

func logistic(z float64) float64 { return 1 / (1 + math.Exp(-z)) }

// l1Loss computes the mean of |y−t|, plus, if Attr.ExpWeight is set, the weighted mean of
// |e^{14y}−e^{14t}| over channel 0.
func (c *kernelCall[T]) l1Loss() {
	y, t := c.in[0], c.in[1]
	sum, sumExp := 0.0, 0.0
	first, count := c.firstChannelElements()
	for i := range y {
		sum += math.Abs(float64(y[i]) - float64(t[i]))
		if first(i) {
			sumExp += math.Abs(math.Exp(nn.ExpScale*float64(y[i])) - math.Exp(nn.ExpScale*float64(t[i])))
		}
	}
	loss := sum / float64(len(y))
	if c.attr.ExpWeight > 0 {
		loss += c.attr.ExpWeight * sumExp / count
	}
	c.out[0][0] = T(loss)
}

func (c *kernelCall[T]) l1LossBackward() {
	y, t, dloss := c.in[0], c.in[1], float64(c.in[2][0])
	first, count := c.firstChannelElements()
	for i := range y {
		s := sign(float64(y[i]) - float64(t[i])) // also the sign for the exponentials, which are increasing
		d := s / float64(len(y))
		if first(i) {
			d += c.attr.ExpWeight * nn.ExpScale * math.Exp(nn.ExpScale*float64(y[i])) * s / count
		}
		c.out[0][i] = T(dloss * d)
	}
}

// firstChannelElements describes the elements of channel 0. contains reports whether element
// i is one of them, and count is their number. If Attr.ExpWeight is 0, contains always
// returns false and count is 0.
func (c *kernelCall[T]) firstChannelElements() (contains func(i int) bool, count float64) {
	if c.attr.ExpWeight == 0 {
		return func(int) bool { return false }, 0
	}
	shape := c.inShape[0]
	area, channels := spatialElementCount(shape), shape[1]
	return func(i int) bool { return i/area%channels == 0 }, float64(shape[0] * area)
}

// sign returns −1, 0 or 1, or NaN if v is NaN.
func sign(v float64) float64 {
	switch {
	case v > 0:
		return 1
	case v < 0:
		return -1
	}
	return v // 0, or NaN
}
