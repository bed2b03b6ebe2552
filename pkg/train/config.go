package train

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/model"
	"lockstep/pkg/optim"
)

// Config is all that a run is made of. Its fields are composed of the
// packages' own configs; run.json keeps the whole of it.
type Config struct {
	Name       string         `yaml:"name" json:"name"`
	Model      ModelConfig    `yaml:"model" json:"model"`
	Data       DataConfig     `yaml:"data" json:"data"`
	Batch      int            `yaml:"batch" json:"batch"`           // samples per worker and pass
	Accumulate int            `yaml:"accumulate" json:"accumulate"` // passes whose gradients one optimiser step takes; 0: 1
	Epochs     int            `yaml:"epochs" json:"epochs"`
	Seed       int64          `yaml:"seed" json:"seed"` // of initial weights, order and augmentation
	Optimizer  optim.Config   `yaml:"optimizer" json:"optimizer"`
	Schedule   optim.Schedule `yaml:"schedule" json:"schedule"`
	EMA        Average        `yaml:"ema" json:"ema"`
	Engine     engine.Options `yaml:"engine" json:"engine"`
	Loader     LoaderConfig   `yaml:"loader" json:"loader"`
	BucketMiB  float64        `yaml:"bucket_mib" json:"bucket_mib"` // gradients reduced at once, at most
	Checkpoint Checkpoints    `yaml:"checkpoint" json:"checkpoint"`
}

// ModelConfig is the network, without the size of its input, which the data decide.
type ModelConfig = model.Config

// DataConfig is where samples come from and how they are cut.
type DataConfig struct {
	Kind       string       `yaml:"kind" json:"kind"`             // "cells" (generated) or "pairs" (a folder with image/ and label/)
	Path       string       `yaml:"path" json:"path"`             // of pairs
	Foreground string       `yaml:"foreground" json:"foreground"` // of pairs: "white" or "black" pixels of the mask
	Count      int          `yaml:"count" json:"count"`           // of cells: images generated
	Height     int          `yaml:"height" json:"height"`         // of cells
	Width      int          `yaml:"width" json:"width"`           // of cells
	DataSeed   int64        `yaml:"data_seed" json:"data_seed"`   // of generator and split: the same for every seed of a study
	TestImages int          `yaml:"test_images" json:"test_images"`
	Tile       int          `yaml:"tile" json:"tile"` // edge of the square tiles that images are cut into; 0: whole images
	Augment    data.Augment `yaml:"augment" json:"augment"`
	DropLast   bool         `yaml:"drop_last" json:"drop_last"`
}

// LoaderConfig is how batches are prepared ahead.
type LoaderConfig struct {
	Workers  int `yaml:"workers" json:"workers"`   // goroutines per training worker; 0: in step
	Prefetch int `yaml:"prefetch" json:"prefetch"` // batches ready ahead
}

// Checkpoints says when rank 0 saves.
type Checkpoints struct {
	Every      int `yaml:"every" json:"every"`             // epochs between two checkpoints; the last epoch is always saved
	EverySteps int `yaml:"every_steps" json:"every_steps"` // optimiser steps between two within an epoch; 0: none
	Keep       int `yaml:"keep" json:"keep"`               // newest kept, of those after an epoch; 0: all
}

// DefaultConfig is a small U-Net on generated cells.
func DefaultConfig() Config {
	return Config{
		Name:       "unet2d-cells",
		Model:      model.Config{Kind: model.KindUNet2D, Base: 8, Depth: 3, Norm: "batch"},
		Data:       DataConfig{Kind: "cells", Foreground: "white", Count: 40, Height: 128, Width: 128, DataSeed: 1, TestImages: 8},
		Batch:      4,
		Accumulate: 1,
		Epochs:     5,
		Seed:       1,
		Optimizer:  optim.DefaultConfig(),
		Engine:     engine.DefaultOptions(),
		Loader:     LoaderConfig{Workers: 1, Prefetch: 2},
		BucketMiB:  25,
		Checkpoint: Checkpoints{Every: 1, Keep: 2},
	}
}

// Validate reports the first value that cannot be, with what would do.
func (c Config) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("validate config %s: "+format, append([]any{c.Name}, a...)...)
	}
	d := c.Data
	if err := c.Model.Validate(); err != nil {
		return bad("%w", err)
	}
	switch {
	case c.Batch < 1:
		return bad("batch is %d: use at least 1 image per worker", c.Batch)
	case c.Accumulate < 0:
		return bad("accumulate is %d: use 1 for an optimiser step a batch", c.Accumulate)
	case c.Epochs < 1:
		return bad("epochs is %d: use at least 1", c.Epochs)
	case d.Kind != "cells" && d.Kind != "pairs":
		return bad("data.kind %q is not known: use cells or pairs", d.Kind)
	case d.Kind == "pairs" && d.Path == "":
		return bad("data.path is empty: name a folder with image/ and label/ (--data DIR)")
	case d.Foreground != "white" && d.Foreground != "black":
		return bad("data.foreground %q is not known: use white or black", d.Foreground)
	case d.Kind == "cells" && (d.Count < 1 || d.Height < 1 || d.Width < 1):
		return bad("data.count, height and width are %d, %d, %d: each must be at least 1", d.Count, d.Height, d.Width)
	case d.TestImages < 1:
		return bad("data.test_images is %d: hold at least 1 image back", d.TestImages)
	case d.Tile < 0:
		return bad("data.tile is %d: use 0 for whole images", d.Tile)
	case c.Loader.Workers < 0 || c.Loader.Prefetch < 0:
		return bad("loader.workers and loader.prefetch are %d and %d: neither can be negative", c.Loader.Workers, c.Loader.Prefetch)
	case !(c.BucketMiB > 0):
		return bad("bucket_mib is %g: use more than 0", c.BucketMiB)
	case c.Checkpoint.Every < 1 || c.Checkpoint.EverySteps < 0 || c.Checkpoint.Keep < 0:
		return bad("checkpoint.every is %d, every_steps %d and keep %d: use at least 1, 0 and 0", c.Checkpoint.Every, c.Checkpoint.EverySteps, c.Checkpoint.Keep)
	}
	for _, v := range []interface{ Validate() error }{c.Optimizer, c.Schedule, c.EMA, c.Engine} {
		if err := v.Validate(); err != nil {
			return bad("%w", err)
		}
	}
	return nil
}

// parts is how many batches an optimiser step takes.
func (c Config) parts() int { return max(1, c.Accumulate) }

//go:embed configs/*.yaml
var shipped embed.FS

// Names lists the shipped configs.
func Names() []string {
	files, err := fs.Glob(shipped, "configs/*.yaml")
	if err != nil {
		return nil
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	sort.Strings(files)
	return files
}

// Named is the shipped config of that name, or the one in that YAML file (a
// name that ends in .yaml or .yml), with overrides "key=value" ("batch=8",
// "optimizer.learning_rate=0.01").
func Named(name string, overrides ...string) (Config, error) {
	var text []byte
	var err error
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" {
		text, err = os.ReadFile(name)
	} else {
		text, err = shipped.ReadFile("configs/" + name + ".yaml")
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("no shipped config has this name%s: use one of %s, or a .yaml file", nearest(name, Names()), strings.Join(Names(), ", "))
		}
	}
	if err != nil {
		return Config{}, fmt.Errorf("read config %s: %w", name, err)
	}
	c, err := Parse(name, text, overrides...)
	if err != nil {
		return Config{}, err
	}
	if c.Model, err = c.Model.Resolve(filepath.Dir(name)); err != nil {
		return Config{}, fmt.Errorf("read config %s: %w", name, err)
	}
	return c, nil
}

// Parse reads a config in YAML over DefaultConfig; file is for messages.
func Parse(file string, text []byte, overrides ...string) (Config, error) {
	c := DefaultConfig()
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return Config{}, fmt.Errorf("parse config %s: %w", file, err)
	}
	if err := decodeKnown(&doc, &c); err != nil {
		return Config{}, fmt.Errorf("parse config %s: %w", file, err)
	}
	for _, o := range overrides {
		if err := override(&c, o); err != nil {
			return Config{}, fmt.Errorf("set %q: %w", o, err)
		}
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}
