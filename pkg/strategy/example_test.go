package strategy_test

import (
	"context"
	"fmt"
	"sync"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/strategy"
)

// Two workers exchange the gradients of one bucket, as the engine does during the backward pass:
// both get the mean.
func ExampleNewDDP() {
	gradients := [][]float32{{1, 10}, {3, 30}}
	var wg sync.WaitGroup
	for rank, group := range collective.InProcess(2) {
		wg.Go(func() {
			ddp := strategy.NewDDP(context.Background(), group)
			if err := ddp.ReduceBucket(0, device.Buffer{F32: gradients[rank]}, device.Stream{}); err != nil {
				fmt.Println(err)
			}
			// The backward pass continues here.
			if err := ddp.Wait(); err != nil {
				fmt.Println(err)
			}
			if err := ddp.Close(); err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()
	fmt.Println(gradients)
	// Output: [[2 20] [2 20]]
}
