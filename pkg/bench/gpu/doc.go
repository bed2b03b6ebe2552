// Package gpu measures training steps on a GPU: against PyTorch (MeasurePeers), against
// the roofline with the time of each layer (MeasureLayers), and without a GPU the work
// that a step's kernels must do (Plan). CompareCurves compares training on a GPU with
// training on the CPU, and ReadResults reads the results of environment/gpu-check.
package gpu
