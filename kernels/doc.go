// Package kernels holds the tests that drive the built kernel with a real
// Jupyter. The kernel's parts lie in the folders below: build makes it,
// lockstep-kernel is our half of its source, kernelspec installs it.
package kernels
