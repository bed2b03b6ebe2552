// Package kernels contains the tests that run the built kernel with a real Jupyter. The
// folder build contains the command that builds the kernel, lockstep-kernel the source
// that Lockstep adds to gophernotes, and kernelspec the installation into Jupyter.
package kernels
