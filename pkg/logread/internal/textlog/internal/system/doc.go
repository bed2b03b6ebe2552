// Package system reads the lines of what runs a training program: commands and their number of
// workers, the times that shells and GNU time print, Slurm and seff, torchrun, and messages that
// memory ran out. Each format's file begins with examples of its lines.
package system
