package data_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"lockstep/pkg/data"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbered is a data set of which every value is different: sample, row and
// column can be told from it. Sample bad, where it is not below 0, fails.
type numbered struct {
	n, channels, height, width int
	bad                        int
	wait                       time.Duration
}

func (s numbered) Len() int                { return s.n }
func (s numbered) ImageShape() []int       { return []int{s.channels, s.height, s.width} }
func (s numbered) TargetShape() []int      { return []int{1, s.height, s.width} }
func (s numbered) SampleName(i int) string { return fmt.Sprintf("number-%d", i) }
func (s numbered) Get(i int, image, target []float32) error {
	if i == s.bad {
		return errors.New("the disk is on fire")
	}
	if s.wait > 0 {
		time.Sleep(s.wait * time.Duration(i%3))
	}
	for k := range image {
		image[k] = float32(i*1000 + k)
	}
	for k := range target {
		target[k] = float32(i*1000 + k)
	}
	return nil
}

// seen is a copy of what a loader gave.
type seen struct {
	Image, Target []float32
	Indices       []int
	Padding       int
}

// read copies all batches of an epoch.
func read(t interface{ Fatal(...any) }, l *data.Loader, epoch int) []seen {
	it := l.Epoch(context.Background(), epoch)
	defer it.Close()
	var all []seen
	for it.Next() {
		b := it.Batch()
		all = append(all, seen{slices.Clone(b.Image), slices.Clone(b.Target), slices.Clone(b.Indices), b.Padding})
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func loader(t interface{ Fatal(...any) }, ds data.Dataset, s data.SamplerOptions, c data.LoaderOptions) *data.Loader {
	s.Samples = ds.Len()
	l, err := data.NewLoader(ds, sampler(t, s), c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLoaderWorkers: what a loader gives does not depend on how many
// goroutines prepare it, nor on reused buffers.
func TestLoaderWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ds := numbered{n: rapid.IntRange(1, 20).Draw(t, "n"), channels: rapid.IntRange(1, 2).Draw(t, "channels"), height: 4, width: 4, bad: -1, wait: time.Microsecond}
		s := data.SamplerOptions{World: 1, BatchPerWorker: rapid.IntRange(1, 4).Draw(t, "batch"), Seed: 5, Shuffle: true}
		c := data.LoaderOptions{Augment: data.Augment{Flip: true, Rotate: true, Crop: rapid.IntRange(0, 4).Draw(t, "crop")}, Seed: 5}
		step := loader(t, ds, s, c)
		defer step.Close()
		c.Workers, c.Prefetch = rapid.IntRange(1, 5).Draw(t, "workers"), rapid.IntRange(0, 4).Draw(t, "prefetch")
		ahead := loader(t, ds, s, c)
		defer ahead.Close()
		for epoch := range 3 {
			if want, got := read(t, step, epoch), read(t, ahead, epoch); !reflect.DeepEqual(want, got) {
				t.Fatalf("epoch %d: %d workers give other batches", epoch, c.Workers)
			}
		}
	})
}

// TestLoaderGlobalBatch: augmented batches of N workers put together are those
// of one worker with N times the batch.
func TestLoaderGlobalBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ds := numbered{n: rapid.IntRange(1, 20).Draw(t, "n"), channels: 1, height: 5, width: 5, bad: -1}
		world, batch := rapid.IntRange(1, 4).Draw(t, "world"), rapid.IntRange(1, 3).Draw(t, "batch")
		c := data.LoaderOptions{Workers: 2, Prefetch: 1, Augment: data.Augment{Flip: true, Rotate: true, Crop: 3}, Seed: 9}
		one := loader(t, ds, data.SamplerOptions{World: 1, BatchPerWorker: world * batch, Seed: 9, Shuffle: true}, c)
		defer one.Close()
		want := read(t, one, 1)
		got := make([]seen, len(want))
		for rank := range world {
			l := loader(t, ds, data.SamplerOptions{World: world, Rank: rank, BatchPerWorker: batch, Seed: 9, Shuffle: true}, c)
			defer l.Close()
			for i, b := range read(t, l, 1) {
				got[i].Image = append(got[i].Image, b.Image...)
				got[i].Target = append(got[i].Target, b.Target...)
				got[i].Indices = append(got[i].Indices, b.Indices...)
				got[i].Padding += b.Padding
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%d workers see other samples than one", world)
		}
	})
}

// TestEvaluationCountsOnce: over all ranks every sample is valid exactly once, in order.
func TestEvaluationCountsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ds := numbered{n: rapid.IntRange(0, 20).Draw(t, "n"), channels: 1, height: 1, width: 2, bad: -1}
		c := data.EvaluationOptions{World: rapid.IntRange(1, 6).Draw(t, "world"), Batch: rapid.IntRange(1, 5).Draw(t, "batch"), Workers: rapid.IntRange(0, 2).Draw(t, "workers")}
		var order []int
		for c.Rank = range c.World {
			l, err := data.NewEvaluationLoader(ds, c)
			if err != nil {
				t.Fatal(err)
			}
			it := l.Epoch(context.Background(), 0)
			for it.Next() {
				b := it.Batch()
				if len(b.Indices) != c.Batch || len(b.Image) != 2*c.Batch || b.ValidCount() < 1 {
					t.Fatalf("batch of %d samples and %d pixels, %d valid", len(b.Indices), len(b.Image), b.ValidCount())
				}
				for k, i := range b.Indices[:b.ValidCount()] {
					if b.Image[2*k] != float32(i*1000) {
						t.Fatalf("sample %d holds %g", i, b.Image[2*k])
					}
					order = append(order, i)
				}
			}
			if err := it.Err(); err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
		want := make([]int, ds.n)
		for i := range want {
			want[i] = i
		}
		if !slices.Equal(order, want) {
			t.Fatalf("counted %v, want 0 to %d once each", order, ds.n-1)
		}
	})
}

func TestLoaderErrorNamesSample(t *testing.T) {
	ds := numbered{n: 9, channels: 1, height: 2, width: 2, bad: 5}
	for _, workers := range []int{0, 1, 3} {
		l := loader(t, ds, data.SamplerOptions{World: 1, BatchPerWorker: 2}, data.LoaderOptions{Workers: workers, Prefetch: 3})
		it := l.Epoch(context.Background(), 0)
		n := 0
		for it.Next() {
			n++
		}
		// Samples 4 and 5 are the third batch.
		want := "load batch 3 of epoch 1: load sample number-5: the disk is on fire"
		if n != 2 || it.Err() == nil || it.Err().Error() != want {
			t.Errorf("%d workers: %d batches, then %v, want 2, then %q", workers, n, it.Err(), want)
		}
		if it.Next() {
			t.Error("Next after an error gives another batch")
		}
		l.Close()
	}
}

// TestLoaderCancel: goleak (TestMain) fails if a goroutine stays.
func TestLoaderCancel(t *testing.T) {
	ds := numbered{n: 100, channels: 1, height: 2, width: 2, bad: -1, wait: time.Millisecond}
	for _, workers := range []int{0, 2} {
		l := loader(t, ds, data.SamplerOptions{World: 1, BatchPerWorker: 2}, data.LoaderOptions{Workers: workers, Prefetch: 2})
		ctx, cancel := context.WithCancel(context.Background())
		it := l.Epoch(ctx, 0)
		if !it.Next() {
			t.Fatal(it.Err())
		}
		cancel()
		for it.Next() {
		}
		if !errors.Is(it.Err(), context.Canceled) {
			t.Errorf("%d workers: err is %v, want context.Canceled", workers, it.Err())
		}
		l.Close() // its goroutines wait for the next epoch
	}
}

// TestLoaderClose ends iterations that nobody closed, while they are read.
func TestLoaderClose(t *testing.T) {
	ds := numbered{n: 1000, channels: 1, height: 2, width: 2, bad: -1, wait: 10 * time.Microsecond}
	l := loader(t, ds, data.SamplerOptions{World: 1, BatchPerWorker: 2}, data.LoaderOptions{Workers: 2, Prefetch: 2})
	l.Epoch(context.Background(), 0) // forgotten
	it := l.Epoch(context.Background(), 1)
	done := make(chan int)
	go func() {
		n := 0
		for it.Next() {
			n += len(it.Batch().Indices)
		}
		done <- n
	}()
	time.Sleep(time.Millisecond)
	l.Close()
	if n := <-done; n < 1000 && it.Err() == nil {
		t.Errorf("%d samples and no error after Close", n)
	}
	l.Close()
	it = l.Epoch(context.Background(), 2)
	if it.Next() || it.Err() == nil || !strings.Contains(it.Err().Error(), "closed") {
		t.Errorf("a closed loader loads: %v", it.Err())
	}
	it.Close()
}

// busy counts the calls of Get that are going on.
type busy struct {
	numbered
	now *atomic.Int64
}

func (s busy) Get(i int, image, target []float32) error {
	s.now.Add(1)
	defer s.now.Add(-1)
	time.Sleep(time.Millisecond)
	return s.numbered.Get(i, image, target)
}

// TestIteratorCloseWaits: after Close nobody writes into the buffers, which
// the next epoch uses.
func TestIteratorCloseWaits(t *testing.T) {
	ds := busy{numbered{n: 50, channels: 1, height: 2, width: 2, bad: -1}, new(atomic.Int64)}
	l := loader(t, ds, data.SamplerOptions{World: 1, BatchPerWorker: 2}, data.LoaderOptions{Workers: 3, Prefetch: 3})
	defer l.Close()
	for epoch := range 5 {
		it := l.Epoch(context.Background(), epoch)
		if !it.Next() {
			t.Fatal(it.Err())
		}
		it.Close()
		if n := ds.now.Load(); n != 0 {
			t.Fatalf("%d samples are still being loaded after Close", n)
		}
		if it.Next() {
			t.Fatal("a closed iterator gives a batch")
		}
	}
}

// TestLoaderReusesBuffers: after the first epoch, no batch memory is allocated.
func TestLoaderReusesBuffers(t *testing.T) {
	ds := numbered{n: 8, channels: 1, height: 64, width: 64, bad: -1}
	l := loader(t, ds, data.SamplerOptions{World: 1, BatchPerWorker: 4}, data.LoaderOptions{})
	defer l.Close()
	address := func(epoch int) *float32 {
		it := l.Epoch(context.Background(), epoch)
		defer it.Close()
		if !it.Next() {
			t.Fatal(it.Err())
		}
		return &it.Batch().Image[0]
	}
	if address(0) != address(1) {
		t.Error("the second epoch has new buffers")
	}
}

func TestLoaderConfigErrors(t *testing.T) {
	ds := numbered{n: 4, channels: 1, height: 4, width: 6, bad: -1}
	s := sampler(t, data.SamplerOptions{Samples: 4, World: 1, BatchPerWorker: 1})
	for _, c := range []struct {
		config data.LoaderOptions
		want   string
	}{
		{data.LoaderOptions{Workers: -1}, "workers is -1"},
		{data.LoaderOptions{Prefetch: -1}, "prefetch is -1"},
		{data.LoaderOptions{Augment: data.Augment{Crop: -1}}, "crop is -1"},
		{data.LoaderOptions{Augment: data.Augment{Crop: 5}}, "crop size 5×5 is larger than the sample size 4×6"},
	} {
		if _, err := data.NewLoader(ds, s, c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if _, err := data.NewLoader(numbered{n: 3}, s, data.LoaderOptions{}); err == nil || !strings.Contains(err.Error(), "sampler is configured for 4 samples, but the data set has 3") {
		t.Errorf("got %v", err)
	}
	for _, c := range []data.EvaluationOptions{{}, {World: 1, Rank: 1, Batch: 1}, {World: 1}} {
		if _, err := data.NewEvaluationLoader(ds, c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// BenchmarkLoader prepares batches of 4 tiles of 128×128, flipped and rotated, in step.
func BenchmarkLoader(b *testing.B) {
	images := cells(b, data.CellsOptions{Count: 4, Height: 512, Width: 512, Seed: 1})
	tiles, err := data.Tiles(images, 128, 128)
	if err != nil {
		b.Fatal(err)
	}
	l := loader(b, tiles, data.SamplerOptions{World: 1, BatchPerWorker: 4, Shuffle: true}, data.LoaderOptions{Augment: data.Augment{Flip: true, Rotate: true}})
	defer l.Close()
	n := 0
	for b.Loop() {
		it := l.Epoch(context.Background(), 0)
		for it.Next() {
			n += it.Batch().ValidCount()
		}
		if it.Err() != nil {
			b.Fatal(it.Err())
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "samples/s")
}
