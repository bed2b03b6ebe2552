//go:build !notebook

// Command lockstep-kernel without the build tag notebook only prints how to build the kernel.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "lockstep-kernel: build the kernel with \"go run ./kernels/build\", which shows the compiler the files of gophernotes and of the packages of cells")
	os.Exit(2)
}
