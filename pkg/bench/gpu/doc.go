// Package gpu measures training steps on a GPU: against PyTorch (MeasurePeers), and by layer
// (MeasureLayers). CompareCurves compares training on a GPU with training on the CPU, and ReadResults reads
// the results of environment/gpu-check. It was not run on a GPU as of 2026-11-30; see logs/gpu for later
// results.
package gpu
