package kernel

import "math"

// DeviationFloats is the number of floats that Set.Deviations updates for a channel block:
// eight reference values, eight sums and eight sums of squares.
const DeviationFloats = 3 * Lanes

// NormFloats is the number of constants with which Set.Normalize normalizes a channel
// block: eight factors, eight summands and eight lower bounds.
const NormFloats = 3 * Lanes

// NormGradFloats is the number of constants q that Set.NormGrad reads for a channel block,
// in addition to the NormFloats constants p.
const NormGradFloats = 4 * Lanes

// SetNormConstants sets the constants in norm with which Set.Normalize computes max(factor·x +
// summand, least) for channel j.
func SetNormConstants(norm []float32, j int, factor, summand, least float32) {
	n := norm[j/Lanes*NormFloats:]
	n[j%Lanes], n[Lanes+j%Lanes], n[2*Lanes+j%Lanes] = factor, summand, least
}

// SetBatchNormConstants sets the constants in norm with which Set.Normalize computes gamma·(x −
// mean)·inv + beta for channel j, followed by a ReLU if relu is set. The forward and the
// backward pass call it with the same arguments, so that they agree on the values that the
// ReLU sets to zero.
func SetBatchNormConstants(norm []float32, j int, gamma, beta, mean, inv float32, relu bool) {
	factor, least := gamma*inv, float32(math.Inf(-1))
	if relu {
		least = 0
	}
	SetNormConstants(norm, j, factor, float32(float64(beta)-float64(mean)*float64(factor)), least)
}

// PixelBox describes pixels of several channel blocks: in each plane the same number of rows. The
// distances are in bytes, in the memory that is read (from) and in the copy (to). Assembly reads
// the fields by their order.
type PixelBox struct {
	Pixels, Rows, Planes int // Pixels are those of a row, at least 1
	FromRow, FromPlane   int // distances of rows and of planes
	ToRow, ToPlane       int
}

func (b PixelBox) forEachRow(f func(plane, from, to int)) {
	for plane := range b.Planes {
		for row := range b.Rows {
			f(plane, plane*b.FromPlane+row*b.FromRow, plane*b.ToPlane+row*b.ToRow)
		}
	}
}
