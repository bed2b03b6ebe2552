// Package kernels contains the GPU kernels of engine/cuda: their source in CUDA C++ for
// NVRTC, a registry of names and parameters, and for each kernel a function that checks its
// arguments and returns the Launch: grid, block, shared memory and packed arguments.
//
// The source includes no headers and compiles with NVRTC 11.8 to 13 for compute capability
// 8.0 and later. It also compiles with g++ (package hostsim): so the tests run every kernel
// without a GPU.
//
// # Data
//
// An activation is stored channels-last, as rows (pixels n·d·h·w) of channels. A FeatureMap
// contains a pointer to channel 0 of row 0 and the pitch, the number of elements from one
// row to the next. Pointers are aligned to 16 bytes, pitches and channels are multiples of
// 8 (PaddedChannels). Channels that are only padding contain zeros, and the kernels write
// zeros there if their per-channel parameters are zero there too. With a pitch above the
// number of channels, a tensor is a part of a wider one, so that a concatenation needs no
// copy. Elements are float32, float16 or bfloat16 (ElementType); all arithmetic is in
// float32.
//
// Parameters per channel (scale, shift, bias, statistics) are float32 arrays of padded
// length. Weights, gradients and optimizer slots are flat float32 buffers. Optimizers also
// write the low-precision copy of the weights, in the same order. So weights have the order
// that convolutions need: KRSC with C padded.
//
// Values that change from step to step (learning rate, step, loss scale, seed and epoch of
// the augmentation) are in a ControlBlock in device memory, so that a captured graph never
// changes.
//
// # Estimated speed
//
// These are estimates: nothing was measured on a GPU yet. All kernels are limited by memory
// bandwidth, except those that measure arithmetic (fma_ceiling, mma_ceiling). The comment of each
// function contains the memory traffic of its kernels, often as a number of passes: one
// pass reads or writes each element of a map once. One pass over a map of 16·512²·64
// bfloat16 values, the largest one of a U-Net for 512² pixels and batch 16, moves 537 MB,
// which takes 125 µs at 4.3 TB/s. The table contains the number of passes; "least" means
// that no kernel with the same inputs and outputs could need fewer:
//
//	batch norm, training     3      x twice, y; 2 only inside the convolution that makes x
//	  + sum (residual)       4      least
//	batch norm, inference    2      least
//	batch norm, backward     5      x and dy twice, dx; the mask costs nothing as it is computed again
//	  mask from y            7      only where something was added before the ReLU
//	bias + ReLU              2      least
//	bias, backward           1      least
//	max-pool 2×2             1.375  least: x, y, a byte of index per output
//	max-pool 2×2, backward   1.375  least
//	head forward             1      least
//	head backward            2      1 for dx, 1 for dw
//	concatenation            0      by pitch; 2 by copies
//	Adam, AdamW              30 bytes per weight, least
//	LARS with momentum       30 bytes per weight: weights and gradients twice, for their norms
//	LAMB                     42 bytes per weight: weights and moments twice
//	clipping                 4 more bytes per weight
//
// For 4.8 TB/s at a latency of 0.7 µs, a multiprocessor must have 25 kB of loads in flight.
// The kernels have 16 to 64 bytes in flight per thread with 18 to 106 registers, which is
// 24 to 64 kB. Sums over a map write another 8 bytes per chunk and channel. With at most
// 528 chunks this is less than 1 % of the map.
//
// # Determinism
//
// The order of additions depends only on the shapes: partial sums over chunks of rows, then
// one pass over the chunks. No kernel uses floating-point atomics, so a step can be
// repeated bit for bit.
package kernels
