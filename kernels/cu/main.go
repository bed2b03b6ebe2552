//go:build nvgpu

// Command cu prints the properties of this machine's GPUs that gorgonia.org/cu reports. It is the smallest
// program that is linked like a kernel with the tag nvgpu; the tests of kernels/build run it. The tag must
// not be called "cuda", which enables files of gorgonia itself that do not compile.
package main

import (
	"fmt"
	"os"

	"gorgonia.org/cu"
)

func main() {
	n, err := cu.NumDevices()
	if err != nil {
		fmt.Printf("no GPU can be used here: %v\n", err)
		os.Exit(3)
	}
	fmt.Printf("driver %d, %d devices\n", cu.Version(), n)
	for i := range n {
		d, err := cu.GetDevice(i)
		if err != nil {
			fmt.Printf("device %d: %v\n", i, err)
			os.Exit(1)
		}
		name, err := d.Name()
		if err != nil {
			fmt.Printf("device %d: %v\n", i, err)
			os.Exit(1)
		}
		total, err := d.TotalMem()
		if err != nil {
			fmt.Printf("device %d: %v\n", i, err)
			os.Exit(1)
		}
		fmt.Printf("%d: %s, %d bytes\n", i, name, total)
	}
}
