// Package layer turns the operations of a program into tasks for the engine's threads. It
// checks the shapes of an operation's operands, divides the work into items and computes
// them with the functions of package kernel. Convolutions are in package conv. The entry
// point is [Builder.Tasks].
package layer

import "lockstep/pkg/engine/cpu/internal/kernel"

const lanes = kernel.Lanes
