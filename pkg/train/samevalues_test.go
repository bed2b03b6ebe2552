package train

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
)

// newAll creates one trainer per config, closes it, and returns the errors by rank.
func newAll(ctx context.Context, configs []Config, change func(rank int, p *WorkerOptions)) []error {
	errs := make([]error, len(configs))
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(len(configs)) {
		wg.Go(func() {
			var p WorkerOptions
			if change != nil {
				change(rank, &p)
			}
			var tr *Trainer
			if tr, errs[rank] = New(ctx, configs[rank], g, p); errs[rank] == nil {
				errs[rank] = tr.Close()
			}
		})
	}
	wg.Wait()
	return errs
}

// TestRanksNeedOneConfig: if a rank has another config than rank 0, the errors of all ranks
// contain the keys that differ.
func TestRanksNeedOneConfig(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(cs []Config)
		want   []string // in the error of each rank; none: no error
	}{
		{"seed", func(cs []Config) { cs[2].Seed = 7 }, []string{"rank 2 has another config than rank 0: seed is 7 there and 1 on rank 0; give all workers the same config"}},
		{"device", func(cs []Config) { cs[1].Engine.Device = "reference" }, []string{"rank 1 has another config than rank 0: engine.device is reference there and cpu on rank 0"}},
		{"data", func(cs []Config) { cs[1].Data.DataSeed = 5 }, []string{"rank 1 has another config than rank 0: data.data_seed is 5 there and 1 on rank 0"}},
		{"augmentation", func(cs []Config) { cs[1].Data.Augment.Flip = false }, []string{"data.augment.flip is ", " there and true on rank 0"}},
		{"several keys of several ranks", func(cs []Config) {
			cs[1].Batch, cs[1].Epochs = 1, 9
			cs[2].Loader.Kind = data.LoaderInMem
		}, []string{"rank 1 (the first of 2 such ranks) has another config than rank 0: batch is 1 there and 2 on rank 0; epochs is 9 there and 3 on rank 0;"}},
		{"a key that rank 0 does not set", func(cs []Config) { cs[1].Loader.Kind = data.LoaderInMem }, []string{"loader.kind is inmem there and not set on rank 0"}},
		{"staging on one rank alone", func(cs []Config) {
			for i := range cs {
				cs[i].Data.Kind, cs[i].Data.Path = data.KindPairs, "pairs"
			}
			cs[1].Data.Stage = "/dev/shm"
		}, []string{"data.stage is true there and not set on rank 0"}},
		{"what a rank may have of its own", func(cs []Config) { cs[1].Data.Path, cs[2].Engine.Device = "elsewhere", "reference" }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			configs := []Config{tiny(), tiny(), tiny()}
			tt.change(configs)
			if tt.want == nil {
				docs := make([]string, len(configs))
				for i, c := range configs {
					doc, err := c.jsonDocument()
					if err != nil {
						t.Fatal(err)
					}
					if docs[i], err = ConfigHash(doc); err != nil || docs[i] != docs[0] {
						t.Errorf("rank %d: hash %s, %v, want %s", i, docs[i], err, docs[0])
					}
				}
				return
			}
			for rank, err := range newAll(t.Context(), configs, nil) {
				for _, want := range tt.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("rank %d: %v, want %q", rank, err, want)
					}
				}
			}
		})
	}
}

// TestRanksNeedTheSameData: the paths of the data may differ between ranks, but not the data.
func TestRanksNeedTheSameData(t *testing.T) {
	base := t.TempDir()
	configs := make([]Config, 2)
	for i := range configs {
		configs[i] = tiny()
		c := &configs[i].Data
		c.Kind, c.Path = data.KindPairs, filepath.Join(base, []string{"a", "b"}[i])
		if err := data.WriteCells(t.Context(), c.Path, data.CellsOptions{Count: 22, Height: 32, Width: 32, Seed: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for rank, err := range newAll(t.Context(), configs, nil) {
		if err != nil {
			t.Errorf("the same data at two paths: rank %d: %v", rank, err)
		}
	}
	// Give rank 1 another first image.
	images, err := filepath.Glob(filepath.Join(base, "b", "image", "*"))
	if err != nil || len(images) < 2 {
		t.Fatalf("%v, %v", images, err)
	}
	slices.Sort(images)
	other, err := os.ReadFile(images[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(images[0], other, 0o644); err != nil {
		t.Fatal(err)
	}
	for rank, err := range newAll(t.Context(), configs, nil) {
		if err == nil || !strings.Contains(err.Error(), "rank 1 has other data than rank 0: ") || !strings.Contains(err.Error(), "fingerprint is v1:") {
			t.Errorf("another image: rank %d: %v", rank, err)
		}
	}
}
