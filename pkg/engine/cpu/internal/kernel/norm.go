package kernel

import "math"

// DeviationFloats is the length of the statistics that Set.Deviations updates for
// one channel block: eight reference values, eight sums and eight sums of squares.
const DeviationFloats = 3 * Lanes

// NormFloats is the number of constants with which Set.Normalize normalizes a
// channel block: eight factors, eight summands and eight lower bounds.
const NormFloats = 3 * Lanes

// GradFloats is the number of constants q that Set.NormGrad needs for a channel
// block, in addition to the NormFloats constants p.
const GradFloats = 4 * Lanes

// SetNorm writes the constants with which Set.Normalize computes
// max(factor·x + summand, least) for channel j.
func SetNorm(norm []float32, j int, factor, summand, least float32) {
	n := norm[j/Lanes*NormFloats:]
	n[j%Lanes], n[Lanes+j%Lanes], n[2*Lanes+j%Lanes] = factor, summand, least
}

// SetBatchNorm writes channel j's constants for gamma·(x − mean)·inv + beta,
// followed by a ReLU if relu is set. The forward and the backward pass call it
// with the same floats, so that they agree on which values the ReLU cuts off.
func SetBatchNorm(norm []float32, j int, gamma, beta, mean, inv float32, relu bool) {
	factor, least := gamma*inv, float32(math.Inf(-1))
	if relu {
		least = 0
	}
	SetNorm(norm, j, factor, float32(float64(beta)-float64(mean)*float64(factor)), least)
}
