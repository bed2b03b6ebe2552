package data

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"lockstep/pkg/data/internal/memory"
)

// reads counts how often the samples of a set are read.
type reads struct {
	Dataset
	n atomic.Int64
}

func (r *reads) Get(i int, image, target []float32) error {
	r.n.Add(1)
	return r.Dataset.Get(i, image, target)
}

// epochs reads two epochs of every rank and gives what their batches hold.
func epochs(t *testing.T, ds Dataset, sc SamplerOptions, c LoaderOptions) (batches [2][][]string, indices [2][][][]int) {
	for rank := range sc.World {
		sc.Rank, sc.Samples = rank, ds.Len()
		s, err := NewSampler(sc)
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewLoader(ds, s, c)
		if err != nil {
			t.Fatal(err)
		}
		for e := range 2 {
			var own []string
			var is [][]int
			it := l.Epoch(context.Background(), e)
			for it.Next() {
				b := it.Batch()
				own = append(own, fmt.Sprint(b.Indices, b.Padding, b.Image, b.Target))
				is = append(is, slices.Clone(b.Indices))
			}
			if err := it.Err(); err != nil {
				t.Fatal(err)
			}
			batches[e], indices[e] = append(batches[e], own), append(indices[e], is)
		}
		l.Close()
	}
	return batches, indices
}

// TestOrder: what each order of the stages does to the samples that two ranks
// see in two epochs, and how often the data set is read.
func TestOrder(t *testing.T) {
	cells, err := Cells(t.Context(), CellsOptions{Count: 8, Height: 8, Width: 8, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	sc := SamplerOptions{World: 2, BatchPerWorker: 2, Seed: 5, Shuffle: true}
	augment := Augment{Flip: true, Rotate: true, Brightness: 0.3}
	def, _ := epochs(t, cells, sc, LoaderOptions{Augment: augment})
	for _, c := range []struct {
		order                            string
		same, frozen, shares, sorted     bool // as by default; epoch 1 as epoch 0; ranks keep their samples; ascending
		reads                            int64
		sameBatchesInOtherOrder, noTurns bool
	}{
		{order: "shuffle shard batch map prefetch", same: true, reads: 16},
		{order: "shuffle shard map batch prefetch", same: true, reads: 16},
		{order: "cache shuffle shard batch map", same: true, reads: 15},
		{order: "shuffle shard cache map batch prefetch", same: true, reads: 15},
		{order: "shard shuffle map batch prefetch", shares: true, reads: 16},
		{order: "shard batch map", frozen: false, sorted: true, reads: 16},
		{order: "shard batch", frozen: true, sorted: true, noTurns: true, reads: 16},
		{order: "shard map cache batch", frozen: true, sorted: true, reads: 8},
		{order: "shuffle shard map batch cache prefetch", frozen: true, reads: 8},
		{order: "shard map batch cache shuffle prefetch", sameBatchesInOtherOrder: true, reads: 8},
	} {
		t.Run(c.order, func(t *testing.T) {
			for _, workers := range []int{0, 3} {
				ds := &reads{Dataset: cells}
				lc := LoaderOptions{Workers: workers, Prefetch: 2, Order: strings.Fields(c.order), Augment: augment}
				batches, indices := epochs(t, ds, sc, lc)
				// Ranks are processes of their own and share no memory: with a cache of
				// all samples each reads what it sees, once.
				if n := ds.n.Load(); n > c.reads || n < c.reads && c.reads == 16 {
					t.Errorf("%d workers: %d samples are read, want %d", workers, n, c.reads)
				}
				if got := fmt.Sprint(batches) == fmt.Sprint(def); got != c.same {
					t.Errorf("%d workers: batches are those of the default order: %t, want %t", workers, got, c.same)
				}
				if got := fmt.Sprint(batches[0]) == fmt.Sprint(batches[1]); got != c.frozen {
					t.Errorf("%d workers: epochs are equal: %t, want %t", workers, got, c.frozen)
				}
				if got := fmt.Sprint(sorted(indices[0][0])) == fmt.Sprint(sorted(indices[1][0])); got != (c.shares || c.sorted || c.frozen) && !c.sameBatchesInOtherOrder {
					t.Errorf("%d workers: rank 0 keeps its samples: %t", workers, got)
				}
				if c.sorted && fmt.Sprint(indices[0]) != "[[[0 1] [4 5]] [[2 3] [6 7]]]" {
					t.Errorf("%d workers: samples are %v", workers, indices[0])
				}
				if c.shares && fmt.Sprint(sorted(indices[0][1])) != "[1 3 5 7]" {
					t.Errorf("%d workers: rank 1 has %v", workers, indices[0][1])
				}
				if c.sameBatchesInOtherOrder {
					for rank := range 2 {
						a, b := slices.Sorted(slices.Values(batches[0][rank])), slices.Sorted(slices.Values(batches[1][rank]))
						if !slices.Equal(a, b) {
							t.Errorf("%d workers: rank %d has other batches", workers, rank)
						}
					}
				}
			}
		})
	}
}

func sorted(batches [][]int) []int {
	all := slices.Concat(batches...)
	slices.Sort(all)
	return all
}

// TestShardFirst: every sample once an epoch over all ranks, with padding where
// shares differ, and other orders each epoch.
func TestShardFirst(t *testing.T) {
	for n := 3; n < 20; n++ {
		seen := map[int]int{}
		padding := 0
		for rank := range 3 {
			s, err := NewSampler(SamplerOptions{Samples: n, World: 3, Rank: rank, BatchPerWorker: 2, Shuffle: true, ShardFirst: true})
			if err != nil {
				t.Fatal(err)
			}
			for step, batch := range s.Epoch(1) {
				valid := len(batch) - s.stepPadding(step)
				padding += s.stepPadding(step)
				for _, i := range batch[:valid] {
					seen[i]++
				}
			}
			if rank == 2 && padding != s.Padding() {
				t.Errorf("%d samples: %d of padding, want %d", n, padding, s.Padding())
			}
		}
		if len(seen) != n {
			t.Errorf("%d of %d samples come", len(seen), n)
		}
		for i, k := range seen {
			if k != 1 {
				t.Errorf("sample %d comes %d times", i, k)
			}
		}
	}
}

func TestOrderErrors(t *testing.T) {
	for order, want := range map[string]string{
		"shard":                "stage batch is missing in shard",
		"batch":                "stage shard is missing in batch: add it",
		"batch shard":          "shard comes after batch",
		"shard batch batch":    "duplicate stage batch",
		"shard prefetch batch": "prefetch is not the last",
		"shard batch repeat":   `unknown stage "repeat": use shuffle, shard, cache, batch, map and prefetch`,
	} {
		err := LoaderOptions{Order: strings.Fields(order)}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "validate loader: order: ") {
			t.Errorf("%s: %v, want %q", order, err, want)
		}
	}
	for want, c := range map[string]LoaderOptions{
		`unknown kind "disk": use lowmem, inmem or synthetic`: {Kind: "disk"}, "workers is 300": {Workers: 300},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestLoaderKinds: inmem gives the batches of lowmem and reads each sample once;
// synthetic gives the first batch of epoch 0 always and reads it once.
func TestLoaderKinds(t *testing.T) {
	cells, err := Cells(t.Context(), CellsOptions{Count: 9, Height: 8, Width: 8, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	sc := SamplerOptions{World: 1, BatchPerWorker: 2, Seed: 5, Shuffle: true}
	for _, workers := range []int{0, 2} {
		lc := LoaderOptions{Workers: workers, Prefetch: 2, Augment: Augment{Flip: true, Crop: 6}}
		low, _ := epochs(t, cells, sc, lc)
		lc.Kind = LoaderInMem
		ds := &reads{Dataset: cells}
		if in, _ := epochs(t, ds, sc, lc); fmt.Sprint(in) != fmt.Sprint(low) || ds.n.Load() != 9 {
			t.Errorf("%d workers: inmem differs or reads %d samples, want 9", workers, ds.n.Load())
		}
		lc.Kind = LoaderSynthetic
		ds = &reads{Dataset: cells}
		same, _ := epochs(t, ds, sc, lc)
		for e := range 2 {
			for step, b := range same[e][0] {
				if b != low[0][0][0] {
					t.Errorf("%d workers: batch %d of epoch %d is not the first one", workers, step, e)
				}
			}
		}
		if n := ds.n.Load(); n != 2 {
			t.Errorf("%d workers: synthetic reads %d samples, want 2", workers, n)
		}
	}
}

// TestCrewStays: four goroutines prepare ten epochs, and the memory of batches
// is that of the first.
func TestCrewStays(t *testing.T) {
	cells, err := Cells(t.Context(), CellsOptions{Count: 32, Height: 8, Width: 8, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSampler(SamplerOptions{Samples: 32, World: 1, BatchPerWorker: 2})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLoader(cells, s, LoaderOptions{Workers: 4, Prefetch: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	memory := map[*float32]bool{}
	for e := range 10 {
		it := l.Epoch(context.Background(), e)
		for it.Next() {
			memory[&it.Batch().Image[0]] = true
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if l.workerPool.Started > 8 { // the last one may not rest yet when the next epoch asks
		t.Errorf("%d goroutines were started for 10 epochs of 4", l.workerPool.Started)
	}
	if len(memory) > 5 {
		t.Errorf("%d batches are held, want 5", len(memory))
	}
}

// TestInMemory: what is cut from samples shares what is kept of them.
func TestInMemory(t *testing.T) {
	cells, err := Cells(t.Context(), CellsOptions{Count: 4, Height: 8, Width: 8, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	ds := &reads{Dataset: cells}
	tiles, err := Tiles(Subset(ds, []int{2, 0, 2}), 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	kept := InMemory(tiles)
	image, target, wantImage, wantTarget := make([]float32, 16), make([]float32, 16), make([]float32, 16), make([]float32, 16)
	for i := range kept.Len() {
		if err := kept.Get(i, image, target); err != nil {
			t.Fatal(err)
		}
		before := ds.n.Load()
		if err := tiles.Get(i, wantImage, wantTarget); err != nil {
			t.Fatal(err)
		}
		ds.n.Store(before)
		if !slices.Equal(image, wantImage) || !slices.Equal(target, wantTarget) {
			t.Fatalf("tile %d differs", i)
		}
	}
	if n := ds.n.Load(); n != 2 {
		t.Errorf("%d samples are read, want 2: 12 tiles are of samples 2 and 0", n)
	}
	if InMemory(cells) != cells {
		t.Error("what is in memory is kept again")
	}
}

// wideSet is a set whose values are not integers divided by 255, so that they take four bytes each.
type wideSet struct{ samples, edge int }

func (s wideSet) Len() int              { return s.samples }
func (s wideSet) ImageShape() []int     { return []int{1, s.edge, s.edge} }
func (s wideSet) TargetShape() []int    { return []int{1} }
func (s wideSet) SampleName(int) string { return "sample" }
func (s wideSet) Get(_ int, image, _ []float32) error {
	image[0] = 0.3
	return nil
}

// TestInMemoryWideSamples: samples that fit into memory at a byte per value, but not
// at the four bytes that they turn out to take, are refused with the first one.
func TestInMemoryWideSamples(t *testing.T) {
	const edge = 256
	available := memory.AvailableBytes()
	if math.IsInf(available, 1) {
		t.Skip("no /proc here")
	}
	n := int(available / 2 / (edge * edge))
	s, err := NewSampler(SamplerOptions{Samples: n, World: 1, BatchPerWorker: 1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLoader(wideSet{n, edge}, s, LoaderOptions{Kind: LoaderInMem})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	it := l.Epoch(t.Context(), 0)
	defer it.Close()
	if it.Next() || it.Err() == nil || !strings.Contains(it.Err().Error(), fmt.Sprintf("loader.kind inmem keeps %d samples", n)) {
		t.Errorf("first batch: error %v, want one that names the memory", it.Err())
	}
}
