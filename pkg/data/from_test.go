package data

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEpochFrom: what is left of an epoch is the same as in the whole of it,
// however many goroutines prepare it.
func TestEpochFrom(t *testing.T) {
	ds, err := Cells(t.Context(), CellsOptions{Count: 11, Height: 16, Width: 16, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	sampler, err := NewSampler(SamplerOptions{Samples: ds.Len(), World: 2, Rank: 1, BatchPerWorker: 2, Seed: 1, Shuffle: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, workers := range []int{0, 1, 3} {
		loader, err := NewLoader(ds, sampler, LoaderOptions{Workers: workers, Prefetch: 2, Augment: Augment{Flip: true, Rotate: true}, Seed: 1})
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

// TestPosition: epoch and step are the loader's whole position: a new loader, as
// after a restart, goes on from there as the first one would have, whatever its
// kind, the order of its stages, and its goroutines.
func TestPosition(t *testing.T) {
	ds, err := Fields(t.Context(), FieldsOptions{Count: 2, Edge: 8, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if ds, err = Repeat(ds, 10); err != nil {
		t.Fatal(err)
	}
	read := func(c LoaderOptions, first, step int) (last []string) {
		s, err := NewSampler(SamplerOptions{Samples: 10, World: 2, Rank: 1, BatchPerWorker: 2, Seed: 1, Shuffle: true})
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewLoader(ds, s, c)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for epoch := first; epoch < 4; epoch++ {
			last = nil
			it := l.EpochFrom(context.Background(), epoch, step)
			for it.Next() {
				last = append(last, fmt.Sprint(it.Batch()))
			}
			if err := it.Err(); err != nil {
				t.Fatal(err)
			}
			it.Close()
		}
		return last
	}
	for _, order := range []string{
		"", "shard shuffle map batch prefetch", "cache shuffle shard batch map", "shuffle shard map cache batch prefetch",
		"shard map batch cache shuffle prefetch", "shard batch",
	} {
		for _, kind := range []string{LoaderLowMem, LoaderInMem, LoaderSynthetic} {
			c := LoaderOptions{Kind: kind, Order: strings.Fields(order), Augment: Augment{Rotate: true, Flip: true, Crop: 5}, Seed: 7}
			whole := read(c, 0, 0)
			for _, c.Workers = range []int{0, 1, 16} {
				for step := range len(whole) + 1 {
					if got := read(c, 3, step); !slices.Equal(got, whole[step:]) {
						t.Errorf("%s, %q, %d workers: the batches of epoch 3 from %d on differ", kind, order, c.Workers, step)
					}
				}
			}
		}
	}
}
