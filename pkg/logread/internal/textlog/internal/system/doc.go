// Package system reads the lines that do not come from a training program, but from
// what runs it: commands and their number of workers, the times that shells and GNU
// time print, Slurm and seff, torchrun, and messages that memory ran out. Each format
// has a function that returns it, in a file that begins with examples of its lines.
package system
