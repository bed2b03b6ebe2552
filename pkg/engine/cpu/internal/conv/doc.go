// Package conv computes convolutions, transposed convolutions and their gradients
// over two or three spatial dimensions, and fully connected layers, which are
// convolutions of maps of one pixel.
//
// There are two methods. [Direct] and [DirectGradient] sum outer products of gathered
// rows and weights with the matrix kernel. [Winograd] and [WinogradGradient] transform
// tiles of outputs, for windows of 3×3 and 3×3×3 with stride 1; [UseWinograd] chooses.
// Constructors build all tables at load; the tasks that they return compute.
package conv

import "lockstep/pkg/engine/cpu/internal/kernel"

// lanes is the number of channels in a block.
const lanes = kernel.Lanes
