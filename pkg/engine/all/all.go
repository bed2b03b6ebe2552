// Package all registers all engines: cpu, cuda and reference. A program that trains, or
// opens an engine, imports it for this effect:
//
//	import _ "lockstep/pkg/engine/all"
//
// The command lockstep and the kernel of notebooks contain it.
package all

import (
	_ "lockstep/pkg/engine/cpu"       // device cpu
	_ "lockstep/pkg/engine/cuda"      // device cuda
	_ "lockstep/pkg/engine/reference" // device reference
)
