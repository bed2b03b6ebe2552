package data_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/pkg/data"
)

// countedContext is canceled after its first allowed checks.
type countedContext struct {
	context.Context
	allowed int64
	checks  atomic.Int64
}

func (c *countedContext) Err() error {
	if c.checks.Add(1) > c.allowed {
		return context.Canceled
	}
	return nil
}

// TestCanceled: each function that generates or reads a whole data set returns
// its context's error before the first sample, and between samples. A function
// that went on after the cancellation would check the context once for each of
// the remaining samples.
func TestCanceled(t *testing.T) {
	const samples = 1000
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	small := data.CellsOptions{Count: samples, Height: 8, Width: 8, Seed: 1}
	shapes := data.ShapesOptions{Count: 50, Seed: 1}
	classes, err := data.Shapes(t.Context(), shapes)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		data.WriteCells(t.Context(), in("pairs"), data.CellsOptions{Count: 4, Height: 8, Width: 8, Seed: 1}),
		data.WriteCIFAR10(t.Context(), in("cifar10"), classes, classes),
		data.WriteFolders(t.Context(), in("folders"), classes, "png"),
		data.WriteVolumes(t.Context(), in("volumes"), fields(t, 4, 8), data.VolumeFormat{}),
		data.WriteVolumes(t.Context(), in("npy"), fields(t, 4, 8), data.VolumeFormat{NPY: true}),
		os.Mkdir(in("imagenet"), 0o777),
		os.CopyFS(filepath.Join(in("imagenet"), "cat"), os.DirFS(filepath.Join(in("folders"), classes.ClassNames()[0]))),
	); err != nil {
		t.Fatal(err)
	}
	// pickle.dumps({'cat/000000.png': 0}, protocol=0)
	write(t, filepath.Join(in("imagenet"), "train_data.pkl"), []byte("(dp0\nVcat/000000.png\np1\nI0\ns."))
	for _, folder := range []string{"image", "label"} {
		for _, name := range []string{"a.tif", "b.tif", "c.tif"} {
			write(t, filepath.Join(in("stacks"), folder, name), readFile(t, "internal/tiff/testdata/f32.tif"))
		}
	}
	kept := loader(t, cells(t, small), data.SamplerOptions{World: 1, BatchPerWorker: 1}, data.LoaderOptions{})
	defer kept.Close()
	for _, c := range []struct {
		name, message string
		call          func(ctx context.Context) (any, error)
	}{
		{"Cells", "generate cells: ", func(ctx context.Context) (any, error) { return data.Cells(ctx, small) }},
		{"Shapes", "generate shapes: ", func(ctx context.Context) (any, error) {
			return data.Shapes(ctx, data.ShapesOptions{Count: samples, Edge: 8, Seed: 1})
		}},
		{"Fields", "generate fields: ", func(ctx context.Context) (any, error) {
			return data.Fields(ctx, data.FieldsOptions{Count: samples, Edge: 8, Seed: 1})
		}},
		{"WriteCells", "write pair ", func(ctx context.Context) (any, error) {
			return nil, data.WriteCells(ctx, in("written"), small)
		}},
		{"OpenPairs", "open pairs: ", func(ctx context.Context) (any, error) {
			return data.OpenPairs(ctx, in("pairs"), data.Config{})
		}},
		{"OpenStacks", "open stacks: ", func(ctx context.Context) (any, error) {
			return data.OpenStacks(ctx, in("stacks"), data.Config{})
		}},
		{"OpenCIFAR10", "open CIFAR-10: ", func(ctx context.Context) (any, error) {
			return data.OpenCIFAR10(ctx, in("cifar10"), data.CIFAROptions{})
		}},
		{"OpenFolders", "open class folders: ", func(ctx context.Context) (any, error) {
			return data.OpenFolders(ctx, in("folders"), data.ClassOptions{})
		}},
		{"OpenImageNet", "open ImageNet folder: ", func(ctx context.Context) (any, error) {
			return data.OpenImageNet(ctx, in("imagenet"), data.ClassOptions{})
		}},
		{"OpenVolumes of HDF5 files", "open volumes: ", func(ctx context.Context) (any, error) {
			return data.OpenVolumes(ctx, in("volumes"), data.VolumeOptions{})
		}},
		{"OpenVolumes of npy files", "open volumes: ", func(ctx context.Context) (any, error) {
			return data.OpenVolumes(ctx, in("npy"), data.VolumeOptions{})
		}},
		{"Loader.Bytes", "read samples as bytes: ", func(ctx context.Context) (any, error) {
			b, err := kept.Bytes(ctx, 1<<30)
			return b.Image, err
		}},
		{"Open of cells", "generate cells: ", func(ctx context.Context) (any, error) {
			o, err := data.Open(ctx, data.Config{Kind: data.KindCells, Count: samples, Height: 8, Width: 8, TestImages: 1})
			return o.Train, err
		}},
		{"Open of held-out CIFAR-10", "open CIFAR-10: ", func(ctx context.Context) (any, error) {
			o, err := data.Open(ctx, data.Config{Kind: data.KindCIFAR10, Path: in("cifar10")})
			return o.Train, err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, allowed := range []int64{0, 1} {
				ctx := &countedContext{Context: context.Background(), allowed: allowed}
				got, err := c.call(ctx)
				if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.message) {
					t.Errorf("canceled after %d checks: error is %v, want %s%v", allowed, err, c.message, context.Canceled)
				}
				if v := reflect.ValueOf(got); got != nil && !v.IsNil() {
					t.Errorf("canceled after %d checks: got %T with the error", allowed, got)
				}
				if checks := ctx.checks.Load(); checks > samples/2 {
					t.Errorf("canceled after %d checks, and checked %d times", allowed, checks)
				}
			}
		})
	}
}

// TestCanceledWithinASample: the generation of one large sample looks at its context many
// times, so that a cancellation need not wait for its end.
func TestCanceledWithinASample(t *testing.T) {
	dir := t.TempDir()
	for name, generate := range map[string]func(ctx context.Context) error{
		"cells": func(ctx context.Context) error {
			return data.WriteCells(ctx, dir, data.CellsOptions{Count: 1, Height: 256, Width: 256, Seed: 1})
		},
		"fields": func(ctx context.Context) error {
			_, err := data.Fields(ctx, data.FieldsOptions{Count: 1, Edge: 32, Seed: 1})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := &countedContext{Context: t.Context(), allowed: math.MaxInt64}
			if err := generate(ctx); err != nil {
				t.Fatal(err)
			}
			checks := ctx.checks.Load()
			if checks < 32 {
				t.Errorf("the context was looked at %d times during one sample, want at least 32", checks)
			}
			for _, allowed := range []int64{1, checks / 4, checks / 2, checks - 1} {
				ctx := &countedContext{Context: t.Context(), allowed: allowed}
				if err := generate(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("canceled after %d of %d checks: got error %v", allowed, checks, err)
				}
				if more := ctx.checks.Load() - allowed; more > 16 {
					t.Errorf("canceled after %d of %d checks, it went on for %d", allowed, checks, more)
				}
			}
		})
	}
}

// TestCanceledLoader: a loader looks at its context many times while one picture is decoded,
// also through the data sets around it.
func TestCanceledLoader(t *testing.T) {
	dir := t.TempDir()
	classes, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 4, Classes: 2, Edge: 256, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := data.WriteFolders(t.Context(), dir, classes, "png"); err != nil {
		t.Fatal(err)
	}
	all, err := data.OpenFolders(t.Context(), dir, data.ClassOptions{Resize: 16})
	if err != nil {
		t.Fatal(err)
	}
	load := func(ctx context.Context, kind string) error {
		l := loader(t, data.Subset(all, []int{1, 2}), data.SamplerOptions{World: 1, BatchPerWorker: 1}, data.LoaderOptions{Kind: kind})
		defer l.Close()
		_, err := l.Bytes(ctx, 1<<30)
		return err
	}
	for _, kind := range []string{data.LoaderLowMem, data.LoaderInMem} {
		ctx := &countedContext{Context: t.Context(), allowed: math.MaxInt64}
		if err := load(ctx, kind); err != nil {
			t.Fatal(err)
		}
		checks := ctx.checks.Load()
		if checks < 50 {
			t.Errorf("%s: the context was looked at %d times while a picture was read, want at least 50", kind, checks)
		}
		ctx = &countedContext{Context: t.Context(), allowed: checks / 2}
		if err := load(ctx, kind); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: canceled after %d of %d checks: got error %v", kind, checks/2, checks, err)
		}
	}
}

// TestCanceledWhileGenerating: a cancellation ends a generation of many samples in
// its middle.
func TestCanceledWhileGenerating(t *testing.T) {
	for name, generate := range map[string]func(ctx context.Context) error{
		"cells": func(ctx context.Context) error {
			_, err := data.Cells(ctx, data.CellsOptions{Count: 1000, Height: 256, Width: 256, Seed: 1})
			return err
		},
		"shapes": func(ctx context.Context) error {
			_, err := data.Shapes(ctx, data.ShapesOptions{Count: 1000, Edge: 256, Seed: 1})
			return err
		},
		"fields": func(ctx context.Context) error {
			_, err := data.Fields(ctx, data.FieldsOptions{Count: 200, Edge: 32, Seed: 1})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			ended := make(chan error, 1)
			go func() { ended <- generate(ctx) }()
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("error is %v, want %v", err, context.Canceled)
				}
			case <-time.After(time.Minute):
				t.Fatal("goes on a minute after the cancellation")
			}
		})
	}
}
