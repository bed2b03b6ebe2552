package kernel

import "math"

// DeviationSumFloats is the number of floats that Set.Deviations updates for a channel block:
// eight reference values, eight sums and eight sums of squares.
const DeviationSumFloats = 3 * Lanes

// NormConstantFloats is the number of constants that Set.Normalize needs per channel block: eight
// factors, eight summands and eight lower bounds.
const NormConstantFloats = 3 * Lanes

// NormGradConstantFloats is the number of constants q that Set.NormGrad reads for a channel block,
// in addition to the NormConstantFloats constants p.
const NormGradConstantFloats = 4 * Lanes

// SetNormConstants sets the constants in norm for channel j so that Set.Normalize computes
// max(factor·x + summand, least).
func SetNormConstants(norm []float32, j int, factor, summand, least float32) {
	n := norm[j/Lanes*NormConstantFloats:]
	n[j%Lanes], n[Lanes+j%Lanes], n[2*Lanes+j%Lanes] = factor, summand, least
}

// SetBatchNormConstants sets the constants in norm for channel j so that Set.Normalize computes
// gamma·(x − mean)·inv + beta, followed by a ReLU if relu is set. The forward and the backward
// pass call it with the same arguments, so that they agree on which values the ReLU sets to
// zero.
func SetBatchNormConstants(norm []float32, j int, gamma, beta, mean, inv float32, relu bool) {
	factor, least := gamma*inv, float32(math.Inf(-1))
	if relu {
		least = 0
	}
	SetNormConstants(norm, j, factor, float32(float64(beta)-float64(mean)*float64(factor)), least)
}

// PixelBox describes pixels of several planes (channel blocks), with the same number of rows in
// each. From fields are distances in the source, To fields are distances in the copy, both in
// bytes. Assembly relies on the order of the fields.
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
