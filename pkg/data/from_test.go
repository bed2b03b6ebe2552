package data

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// TestEpochFrom: what is left of an epoch is the same as in the whole of it,
// however many goroutines prepare it.
func TestEpochFrom(t *testing.T) {
	ds, err := Cells(CellsConfig{Count: 11, Height: 16, Width: 16, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	sampler, err := NewSampler(SamplerConfig{Samples: ds.Len(), World: 2, Rank: 1, BatchPerWorker: 2, Seed: 1, Shuffle: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, workers := range []int{0, 1, 3} {
		loader, err := NewLoader(ds, sampler, LoaderConfig{Workers: workers, Prefetch: 2, Augment: Augment{Flip: true, Rotate: true}, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		read := func(step int) (batches []string) {
			it := loader.EpochFrom(context.Background(), 4, step)
			defer it.Close()
			for it.Next() {
				b := it.Batch()
				batches = append(batches, fmt.Sprint(b.Indices, b.Padding, b.Image, b.Target))
			}
			if err := it.Err(); err != nil {
				t.Error(err)
			}
			return batches
		}
		whole := read(0)
		if len(whole) != 3 {
			t.Fatalf("%d batches of 11 samples for 2 ranks with 2 each", len(whole))
		}
		for step := range len(whole) + 1 {
			if got := read(step); !slices.Equal(got, whole[step:]) {
				t.Errorf("%d workers: the batches from %d on differ", workers, step)
			}
		}
		loader.Close()
	}
}
