package data_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/data"
)

// drawSampler draws a sampler's config for rank 0.
func drawSampler(t *rapid.T) data.SamplerOptions {
	c := data.SamplerOptions{
		Samples:        rapid.IntRange(1, 50).Draw(t, "samples"),
		World:          rapid.IntRange(1, 6).Draw(t, "world"),
		BatchPerWorker: rapid.IntRange(1, 5).Draw(t, "batch"),
		Seed:           rapid.Int64().Draw(t, "seed"),
		Shuffle:        rapid.Bool().Draw(t, "shuffle"),
	}
	c.DropLast = c.Samples >= c.World*c.BatchPerWorker && rapid.Bool().Draw(t, "dropLast")
	return c
}

func sampler(t interface{ Fatal(...any) }, c data.SamplerOptions) *data.Sampler {
	s, err := data.NewSampler(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSamplerDealsEachSampleOnce: over all ranks an epoch has every sample
// once, but for the padding and what DropLast leaves out, both as counted.
func TestSamplerDealsEachSampleOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSampler(t)
		epoch := rapid.IntRange(0, 5).Draw(t, "epoch")
		times := make([]int, c.Samples)
		var first *data.Sampler
		for c.Rank = range c.World {
			s := sampler(t, c)
			if first == nil {
				first = s
			}
			if s.Steps() != first.Steps() || s.Padding() != first.Padding() {
				t.Fatalf("rank %d counts otherwise than rank 0", c.Rank)
			}
			batches := s.Epoch(epoch)
			if len(batches) != s.Steps() {
				t.Fatalf("rank %d has %d batches, Steps is %d", c.Rank, len(batches), s.Steps())
			}
			for _, b := range batches {
				if len(b) != c.BatchPerWorker {
					t.Fatalf("a batch has %d samples, want %d", len(b), c.BatchPerWorker)
				}
				for _, i := range b {
					times[i]++
				}
			}
		}
		missing, extra := 0, 0
		for _, n := range times {
			missing += max(0, 1-n)
			extra += max(0, n-1)
		}
		if dropped := max(0, c.Samples-first.Steps()*c.World*c.BatchPerWorker); missing != dropped || extra != first.Padding() {
			t.Fatalf("%d samples missing and %d repeated, counted %d and %d", missing, extra, dropped, first.Padding())
		}
		global := c.World * c.BatchPerWorker
		if c.DropLast && (extra != 0 || missing >= global) || !c.DropLast && (missing != 0 || extra >= global) {
			t.Fatalf("%d missing and %d repeated with drop_last %v and global batch %d", missing, extra, c.DropLast, global)
		}
	})
}

// TestSamplerGlobalBatch is the central invariant: the batches of N workers,
// put together in order of rank, are the batches of one worker with N times
// the batch.
func TestSamplerGlobalBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSampler(t)
		epoch := rapid.IntRange(0, 5).Draw(t, "epoch")
		one := c
		one.World, one.BatchPerWorker = 1, c.World*c.BatchPerWorker
		want := sampler(t, one)
		got := make([][]int, want.Steps())
		for c.Rank = range c.World {
			for step, b := range sampler(t, c).Epoch(epoch) {
				got[step] = append(got[step], b...)
			}
		}
		if w := want.Epoch(epoch); !reflect.DeepEqual(got, w) {
			t.Fatalf("%d workers see %v, one sees %v", c.World, got, w)
		}
	})
}

// TestSamplerShuffles: the order depends on seed and epoch and on nothing else.
func TestSamplerShuffles(t *testing.T) {
	c := data.SamplerOptions{Samples: 40, World: 1, BatchPerWorker: 40, Seed: 3, Shuffle: true}
	order := func(c data.SamplerOptions, epoch int) []int { return sampler(t, c).Epoch(epoch)[0] }
	first := order(c, 0)
	if !slices.Equal(first, order(c, 0)) {
		t.Error("the same epoch has two orders")
	}
	other := c
	other.Seed = 4
	for name, o := range map[string][]int{"another epoch": order(c, 1), "another seed": order(other, 0)} {
		if slices.Equal(first, o) {
			t.Errorf("%s has the same order", name)
		}
	}
	c.Shuffle = false
	if got := order(c, 1); !slices.IsSorted(got) {
		t.Errorf("without shuffling the order is %v", got)
	}
	// Taken from the program's own output: a change would make resumed and
	// repeated runs differ from earlier ones.
	c = data.SamplerOptions{Samples: 8, World: 1, BatchPerWorker: 8, Seed: 1, Shuffle: true}
	if got, want := fmt.Sprint(order(c, 0), order(c, 1)), goldenOrder; got != want {
		t.Errorf("order of seed 1 is %s, was %s", got, want)
	}
}

// TestShuffledBatches: a last batch with padding stays the last, whose padding is
// counted there; the others change their places.
func TestShuffledBatches(t *testing.T) {
	c := data.SamplerOptions{Samples: 21, World: 2, BatchPerWorker: 2, Seed: 3, Shuffle: true, ShuffleBatches: true}
	orders := map[string]bool{}
	for epoch := range 8 {
		got := sampler(t, c).Epoch(epoch)
		if last := got[len(got)-1]; len(got) != 6 || !slices.Equal(last, []int{20, 0}) {
			t.Fatalf("epoch %d: the last of %d batches is %v, want [20 0]", epoch, len(got), last)
		}
		orders[fmt.Sprint(got)] = true
	}
	if len(orders) < 6 { // of 120
		t.Errorf("8 epochs have %d orders", len(orders))
	}
}

// TestShardFirst: each rank keeps its share and shuffles it for itself.
func TestShardFirst(t *testing.T) {
	c := data.SamplerOptions{Samples: 40, World: 2, BatchPerWorker: 20, Seed: 3, Shuffle: true, ShardFirst: true}
	var places [2][]int
	for c.Rank = range c.World {
		for _, i := range sampler(t, c).Epoch(1)[0] {
			if i%2 != c.Rank {
				t.Fatalf("rank %d has sample %d", c.Rank, i)
			}
			places[c.Rank] = append(places[c.Rank], i/2)
		}
	}
	if slices.Equal(places[0], places[1]) {
		t.Errorf("both ranks are shuffled by one permutation, %v", places[0])
	}
}

const goldenOrder = "[3 2 6 1 5 7 4 0] [0 3 6 7 2 4 5 1]"

func TestSamplerErrors(t *testing.T) {
	good := data.SamplerOptions{Samples: 10, World: 2, BatchPerWorker: 2}
	for _, c := range []struct {
		change func(*data.SamplerOptions)
		want   string
	}{
		{func(c *data.SamplerOptions) { c.Samples = 0 }, "the data set has 0 samples"},
		{func(c *data.SamplerOptions) { c.World = 0 }, "world size is 0"},
		{func(c *data.SamplerOptions) { c.Rank = 2 }, "rank 2 is not in 0 to 1"},
		{func(c *data.SamplerOptions) { c.Rank = -1 }, "rank -1 is not in 0 to 1"},
		{func(c *data.SamplerOptions) { c.BatchPerWorker = 0 }, "batch per worker is 0"},
		{func(c *data.SamplerOptions) { c.BatchPerWorker, c.DropLast = 6, true }, "10 samples do not fill one global batch of 12 (2 workers × 6)"},
	} {
		config := good
		c.change(&config)
		if _, err := data.NewSampler(config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
