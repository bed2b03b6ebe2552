// Package kernels holds the GPU kernels of engine/cuda: their source in
// header-free CUDA C++ for NVRTC, a registry of names and parameters, and for
// every kernel a function that checks its arguments and returns the Launch:
// grid, block, shared memory and packed arguments.
//
// The source needs no header and compiles with NVRTC 11.8 to 13 for compute
// capability 8.0 and later. The same text compiles with g++ (package hostsim),
// which is how the tests run every kernel without a GPU.
//
// # Data
//
// An activation is channels-last: rows (pixels n·d·h·w) of channels, a Map with
// a pointer to channel 0 of row 0 and a pitch, the elements from one row to the
// next. Pointers are aligned to 16 bytes, pitches and channels are multiples of
// 8 (Padded); a channel that is only padding holds zero, and the kernels keep
// it so where their per-channel parameters hold zero there too. A pitch above
// the number of channels places a tensor inside a wider one, so that a
// concatenation needs no copy. Elements are float32, float16 or bfloat16 (Type);
// all arithmetic is in float32.
//
// Parameters of a channel (scale, shift, bias, statistics) are float32 arrays of
// padded length. Weights, gradients and optimiser slots are flat float32
// buffers; optimisers write the low-precision copy of the weights beside them,
// element for element, so weights lie in the order in which the convolution
// wants them: KRSC with C padded.
//
// Numbers that change from step to step (learning rate, step, loss scale, the
// keys of the augmentation) are in a Control block in device memory, so that
// a captured graph never changes.
//
// # Speed, on paper
//
// None of this was measured on a GPU yet. All kernels but the ceilings are bound by
// memory. What each moves stands at its function and in the source; a pass over a
// map of 16·512²·64 bfloat16 values, the largest of a U-Net at 512² with batch 16, is
// 537 MB or 125 µs at 4.3 TB/s. In such passes, beside the least that any kernel with
// the same inputs and outputs could do:
//
//	batch norm, training     3      x twice, y; 2 only inside the convolution that makes x
//	  + sum (residual)       4      least
//	batch norm, inference    2      least
//	batch norm, backward     5      x and dy twice, dx; the mask costs nothing as it is computed again
//	  mask from y            7      only where something was added before the ReLU
//	bias + ReLU              2      least
//	bias, backward           1      least
//	max-pool 2×2             1.375  least: x, y, a byte of index an output
//	max-pool 2×2, backward   1.375  least
//	head forward             1      least
//	head backward            2      1 for dx, 1 for dw
//	concatenation            0      by pitch; 2 by copies
//	Adam, AdamW              30 bytes a weight, least
//	LARS with momentum       30 bytes a weight: weights and gradients twice, for their norms
//	LAMB                     42 bytes a weight: weights and moments twice
//	clipping                 4 bytes a weight more
//
// To keep 4.8 TB/s busy at 0.7 µs of latency a multiprocessor needs 25 kB of loads in
// flight. The kernels hold 16 to 64 bytes a thread at 18 to 106 registers, which is
// 24 to 64 kB. Sums of a map add 8 bytes a chunk and channel, with at most 528 chunks
// below 1 % of the map.
//
// # Determinism
//
// Sums are taken in an order that depends on the shapes alone: partial sums of
// chunks of rows, then one pass over the chunks. There is no floating-point
// atomic, so a step repeats bit for bit.
package kernels
