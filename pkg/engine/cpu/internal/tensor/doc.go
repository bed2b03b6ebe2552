// Package tensor describes where the elements of a tensor are in memory: the layout in
// blocks of eight channels, and the pieces of memory that an activation consists of.
package tensor

import "lockstep/pkg/engine/cpu/internal/kernel"

const lanes = kernel.Lanes
