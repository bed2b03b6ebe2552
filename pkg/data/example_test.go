package data_test

import (
	"context"
	"fmt"
	"os"

	"lockstep/pkg/data"
)

// Two workers and one worker with twice the batch see the same samples.
func Example() {
	cells, err := data.Cells(context.Background(), data.CellsOptions{Count: 8, Height: 64, Width: 64, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	trainIndices, testIndices := data.Split(cells.Len(), 2, 1)
	train := data.Subset(cells, trainIndices)
	fmt.Println(train.Len(), "to train on,", len(testIndices), "held out")

	for _, c := range []data.SamplerOptions{
		{World: 1, Rank: 0, BatchPerWorker: 4},
		{World: 2, Rank: 0, BatchPerWorker: 2},
		{World: 2, Rank: 1, BatchPerWorker: 2},
	} {
		c.Samples, c.Seed, c.Shuffle = train.Len(), 1, true
		sampler, err := data.NewSampler(c)
		if err != nil {
			fmt.Println(err)
			return
		}
		loader, err := data.NewLoader(train, sampler, data.LoaderOptions{Workers: 2, Prefetch: 2, Augment: data.Augment{Flip: true}, Seed: 1})
		if err != nil {
			fmt.Println(err)
			return
		}
		batches := loader.Epoch(context.Background(), 0)
		for batches.Next() {
			b := batches.Batch()
			fmt.Printf("world %d, rank %d: samples %v, padding %d, %d pixels\n", c.World, c.Rank, b.Indices, b.Padding, len(b.Image))
		}
		if err := batches.Err(); err != nil {
			fmt.Println(err)
		}
		loader.Close()
	}
	// Output:
	// 6 to train on, 2 held out
	// world 1, rank 0: samples [2 1 4 0], padding 0, 16384 pixels
	// world 1, rank 0: samples [5 3 2 1], padding 2, 16384 pixels
	// world 2, rank 0: samples [2 1], padding 0, 8192 pixels
	// world 2, rank 0: samples [5 3], padding 0, 8192 pixels
	// world 2, rank 1: samples [4 0], padding 0, 8192 pixels
	// world 2, rank 1: samples [2 1], padding 2, 8192 pixels
}

// Generated images are written as PNG files, which are read as one's own
// images would be.
func ExampleOpenPairs() {
	dir, err := os.MkdirTemp("", "cells")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := data.WriteCells(context.Background(), dir, data.CellsOptions{Count: 12, Height: 32, Width: 48, Seed: 1}); err != nil {
		fmt.Println(err)
		return
	}
	pairs, err := data.OpenPairs(context.Background(), dir, data.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	tiles, err := data.Tiles(pairs, 16, 16)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pairs.Len(), "images of", pairs.ImageShape(), "are", tiles.Len(), "tiles of", tiles.ImageShape())
	fmt.Println("the last is", tiles.SampleName(tiles.Len()-1))
	// Output:
	// 12 images of [1 32 48] are 72 tiles of [1 16 16]
	// the last is 11, tile row 1, column 2
}

// A config names the data; what it opens is trained on and held out. Here an
// epoch has eight crops of two generated boxes, and four stay held out.
func ExampleOpen() {
	opened, err := data.Open(context.Background(), data.Config{
		Kind: data.KindFields, Count: 3, Edge: 16, TestImages: 1,
		Samples: 8, TestSamples: 4, Augment: data.Augment{Crop: 8, Rotate: true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	sampler, err := data.NewSampler(data.SamplerOptions{Samples: opened.Train.Len(), World: 1, BatchPerWorker: 2, Shuffle: true, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	loader, err := data.NewLoader(opened.Train, sampler, data.LoaderOptions{Workers: 2, Prefetch: 2, Augment: data.Augment{Crop: 8, Rotate: true}, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer loader.Close()
	fmt.Println("boxes", opened.Train.ImageShape(), "to", opened.Train.TargetShape(), "held out:", opened.Test.Len(), "of", opened.Test.ImageShape())
	fmt.Println(loader.Steps(), "batches of 2, each sample", loader.ImageShape(), "to", loader.TargetShape())
	// Output:
	// boxes [4 16 16 16] to [5 16 16 16] held out: 4 of [4 8 8 8]
	// 4 batches of 2, each sample [4 8 8 8] to [5 8 8 8]
}
