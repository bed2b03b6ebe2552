// Package layer turns the operations of a program into tasks for the engine's
// threads: it checks the shapes of an operation's operands, cuts the work into
// items and computes them with the functions of package kernel. [Builder.Tasks] is
// the only entry. Convolutions are in package conv.
package layer

import "lockstep/pkg/engine/cpu/internal/kernel"

// lanes is the number of channels in a block.
const lanes = kernel.Lanes
