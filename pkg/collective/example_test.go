package collective_test

import (
	"context"
	"fmt"
	"sync"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// Three ranks, here goroutines of one process, add up their gradients.
func ExampleInProcess() {
	groups := collective.InProcess(3)
	sums := make([][]float32, len(groups))
	var wg sync.WaitGroup
	for rank, g := range groups {
		sums[rank] = []float32{float32(rank), 1}
		wg.Go(func() {
			if err := g.AllReduce(context.Background(), device.Buffer{F32: sums[rank]}); err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()
	fmt.Println(sums)
	// Output: [[3 3] [3 3] [3 3]]
}
