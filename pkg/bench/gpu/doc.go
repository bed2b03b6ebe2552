// Package gpu measures training steps on a GPU: beside PyTorch's (PeerRuns), beside the
// roofline with the time of each layer (Runs), and without a GPU the work that a step's
// kernels must do (Plan). CompareCurves compares training on a GPU with training on the
// CPU, and ReadResults reads what environment/gpu-check left.
package gpu
