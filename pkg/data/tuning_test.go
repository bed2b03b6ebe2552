package data

import (
	"strings"
	"testing"
)

// TestSameBatches: what is prepared ahead or kept as it was read changes no
// batch; what is kept augmented, sharded first or not shuffled does.
func TestSameBatches(t *testing.T) {
	for order, same := range map[string]bool{
		"shuffle shard map batch prefetch":       true,
		"shuffle shard batch map":                true,
		"cache shuffle shard batch map prefetch": true,
		"shuffle shard map cache batch prefetch": false,
		"shard shuffle batch map prefetch":       false,
		"shard batch map prefetch":               false,
		"shuffle shard batch prefetch":           false,
		"shard map batch cache shuffle prefetch": false,
		"shuffle cache shard batch map prefetch": true,
		"shard batch map shuffle prefetch":       false,
		"shuffle shard batch map cache prefetch": false,
		"cache shard map batch shuffle prefetch": false,
		"cache shuffle shard map batch prefetch": true,
		"shuffle shard cache batch map prefetch": true,
		strings.Join(DefaultOrder(), " "):        true,
	} {
		got, err := HaveSameBatches(strings.Fields(order), nil)
		if err != nil || got != same {
			t.Errorf("%s: %v, %v", order, got, err)
		}
	}
	if _, err := HaveSameBatches([]string{"batch"}, nil); err == nil || !strings.Contains(err.Error(), "stage shard is missing") {
		t.Error(err)
	}
}

// TestLoaderMemory: a loader holds its buffers, of which the batch in use is one,
// and with inmem a byte a value of what it has read.
func TestLoaderMemory(t *testing.T) {
	shapes, err := Shapes(t.Context(), ShapesOptions{Count: 10, Classes: 2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := WriteFolders(t.Context(), dir, shapes, "png"); err != nil {
		t.Fatal(err)
	}
	ds, err := OpenFolders(t.Context(), dir, ClassOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSampler(SamplerOptions{Samples: 10, World: 1, BatchPerWorker: 5})
	if err != nil {
		t.Fatal(err)
	}
	const sample = 3*32*32 + 1 // values of a picture and its class
	for _, c := range []struct {
		config LoaderOptions
		want   int64
	}{
		{LoaderOptions{}, 4 * sample * (5 + 1)},                                                                     // a batch and the sample before it is turned
		{LoaderOptions{Workers: 1, Prefetch: 3}, 4 * 4 * sample * (5 + 1)},                                          // three ahead
		{LoaderOptions{Kind: LoaderInMem}, 4*sample*(5+1) + 10*(3*32*32+4)},                                         // a byte a value, four for the class
		{LoaderOptions{Order: strings.Fields("shuffle shard map batch cache prefetch")}, 4 * sample * (5 + 1 + 10)}, // two batches as they are
	} {
		l, err := NewLoader(ds, s, c.config)
		if err != nil {
			t.Fatal(err)
		}
		it := l.Epoch(t.Context(), 0)
		for it.Next() {
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
		if got := l.MemoryBytes(); got != c.want {
			t.Errorf("%+v holds %d bytes, want %d", c.config, got, c.want)
		}
		l.Close()
	}
	kept := InMemory(ds)
	if n, complete := CachedBytes(kept); n != 0 || complete {
		t.Errorf("before it is read: %d, %v", n, complete)
	}
	if n, complete := CachedBytes(ds); n != 0 || !complete {
		t.Errorf("another set: %d, %v", n, complete)
	}
}
