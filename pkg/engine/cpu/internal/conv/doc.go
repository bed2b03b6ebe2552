// Package conv computes convolutions, transposed convolutions and their gradients over two
// or three spatial dimensions, and fully connected layers, which are convolutions of maps
// of one pixel.
//
// There are two algorithms. [Direct] and [DirectGradient] evaluate the definition: the
// matrix kernel ([kernel.GEMMFunc]) multiplies rows that it gathers from the input by a
// matrix of weights. [Winograd] and [WinogradGradient] transform tiles of outputs, for
// windows of 3×3 and 3×3×3 with stride 1. [ShouldUseWinograd] chooses between them. With
// precision bf16, [DirectBF16] and [DirectBF16Gradient] evaluate the definition from operands
// that are rounded to bfloat16; [ShouldUseBF16] chooses them. The constructors build
// all tables when a program is loaded; the tasks that they return compute.
//
// # Terms
//
//   - A channel block is [kernel.Lanes] channels, which are adjacent in memory. Input blocks
//     and output blocks are the channel blocks of a layer's inputs and outputs.
//   - A tap is one weight of the window, with its shift relative to the output's position.
//   - A phase is the outputs along an axis that have the same taps, see axis.
//   - The halo is the zeros around the input that taps at its edges read.
//   - A point is one of the 36 elements of a transformed tile.
package conv

import "lockstep/pkg/engine/cpu/internal/kernel"

const lanes = kernel.Lanes
