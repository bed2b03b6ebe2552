package reference

import "math"

// LossFault is a deliberate fault of the pixel cross-entropy. With it the loss of a batch is
// not the mean of the losses of its parts, so that training depends on how workers divide
// the batch. Package verify shows that its comparison detects this.
type LossFault int

// The faults.
const (
	NoLossFault   LossFault = iota
	MeanOfCounted           // the sum is divided by the weights of the pixels that count, as in PyTorch
	DiceOfBatch             // the sums of the Dice term are over the batch
)

// forEachLabeledPixel calls visit for each pixel whose target is not ignored. p contains the softmax
// of the pixel's logits and is valid until visit returns. logSum is the logarithm of the sum of
// the logits' exponentials. class is the target. first is the index of the pixel's logit for
// class 0; the logit of the next class is area elements after it.
func (c *kernelCall[T]) forEachLabeledPixel(visit func(p []float64, logSum float64, class, sample, first int)) {
	z, classes, area := c.in[0], c.inShape[0][1], spatialElementCount(c.inShape[0])
	p := make([]float64, classes)
	for i, t := range c.in[1] {
		if int(t) == c.attr.Ignore {
			continue
		}
		sample := i / area
		first := sample*classes*area + i%area
		top, sum := math.Inf(-1), 0.0
		for k := range p {
			top = math.Max(top, float64(z[first+k*area])) // NaN stays.
		}
		for k := range p {
			p[k] = math.Exp(float64(z[first+k*area]) - top)
			sum += p[k]
		}
		for k := range p {
			p[k] /= sum
		}
		visit(p, top+math.Log(sum), int(t), sample, first)
	}
}

func (c *kernelCall[T]) classWeight(class int) float64 {
	if c.attr.ClassWeights == nil {
		return 1
	}
	return c.attr.ClassWeights[class]
}

// pixelSums contains the sums of the pixel cross-entropy over a batch.
type pixelSums struct {
	entropy float64 // weighted sum over the pixels
	pixels  float64 // by which entropy is divided
	// numerator and denominator are those of the Dice coefficients (2Σpy+1)/(Σp+Σy+1), by
	// sample and class.
	numerator, denominator []float64
}

func (c *kernelCall[T]) diceIndex(sample, class int) int {
	if c.fault == DiceOfBatch {
		return class
	}
	return sample*c.inShape[0][1] + class
}

func (c *kernelCall[T]) sumPixelLosses() pixelSums {
	n, classes := c.inShape[0][0], c.inShape[0][1]
	count := c.diceIndex(n-1, classes-1) + 1
	s := pixelSums{pixels: float64(len(c.in[1])), numerator: make([]float64, count), denominator: make([]float64, count)}
	for i := range count {
		s.numerator[i], s.denominator[i] = 1, 1
	}
	weights := 0.0
	c.forEachLabeledPixel(func(p []float64, logSum float64, class, sample, first int) {
		s.entropy += c.classWeight(class) * (logSum - float64(c.in[0][first+class*spatialElementCount(c.inShape[0])]))
		weights += c.classWeight(class)
		for k, v := range p {
			s.denominator[c.diceIndex(sample, k)] += v
		}
		at := c.diceIndex(sample, class)
		s.denominator[at]++
		s.numerator[at] += 2 * p[class]
	})
	if c.fault == MeanOfCounted {
		s.pixels = weights
	}
	return s
}

func (c *kernelCall[T]) pixelCrossEntropy() {
	s, d := c.sumPixelLosses(), c.attr.DiceWeight
	dice := 0.0
	for i, v := range s.numerator {
		dice += 1 - v/s.denominator[i]
	}
	c.out[0][0] = T(d*dice/float64(len(s.numerator)) + (1-d)*s.entropy/s.pixels)
}

func (c *kernelCall[T]) pixelCrossEntropyBackward() {
	s, d, dloss := c.sumPixelLosses(), c.attr.DiceWeight, float64(c.in[2][0])
	area := spatialElementCount(c.inShape[0])
	clear(c.out[0])
	slope := make([]float64, c.inShape[0][1]) // of the Dice loss, by class
	c.forEachLabeledPixel(func(p []float64, _ float64, class, sample, first int) {
		mean := 0.0
		for k := range p {
			at := c.diceIndex(sample, k)
			slope[k] = s.numerator[at]
			if k == class {
				slope[k] -= 2 * s.denominator[at]
			}
			slope[k] /= s.denominator[at] * s.denominator[at] * float64(len(s.numerator))
			mean += slope[k] * p[k]
		}
		for k, v := range p {
			entropy := v
			if k == class {
				entropy--
			}
			c.out[0][first+k*area] = T(dloss * ((1-d)*c.classWeight(class)*entropy/s.pixels + d*v*(slope[k]-mean)))
		}
	})
}
