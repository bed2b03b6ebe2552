package train

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/train/internal/checkpoint"
)

// TestNetworkWithoutData: the network of a config is known without its data if these are pictures.
func TestNetworkWithoutData(t *testing.T) {
	shape := []int{1, 12, 12}
	spec := &model.Spec{Name: "own", Task: model.Segmentation, Image: shape, Target: shape, Layers: []model.SpecLayer{{Name: "a", Kind: "Conv", Out: 1, Kernel: model.Sizes{1}}}}
	for _, c := range []struct {
		data  data.Config
		model ModelConfig
		want  []int // the shape of an image; nil: an error
	}{
		{data.Config{Kind: data.KindCells, Count: 5, Height: 24, Width: 40, TestImages: 1}, ModelConfig{Kind: "unet2d", Base: 2, Depth: 3, Norm: "none"}, []int{1, 24, 40}},
		{data.Config{Kind: data.KindPairs, Path: "missing", TestImages: 1}, ModelConfig{Kind: "unet2d", Base: 2, Depth: 3, Norm: "none"}, []int{1, 8, 8}},
		{data.Config{Kind: data.KindFolders, Path: "missing", TestImages: 1}, ModelConfig{Kind: "resnet50", Base: 2}, []int{3, 1, 1}},
		{data.Config{Kind: data.KindPairs, Path: "missing", TestImages: 1}, ModelConfig{Kind: "spec", Spec: spec}, shape},
		{data.Config{Kind: data.KindVolumes, Path: "missing", TestImages: 1}, ModelConfig{Kind: "unet3d", Base: 2, Depth: 2}, nil},
	} {
		cfg := tiny()
		cfg.Data, cfg.Model = c.data, c.model
		net, err := cfg.Network(t.Context())
		if c.want == nil {
			if err == nil || !strings.Contains(err.Error(), "missing") {
				t.Errorf("%s: got error %v, want that the data are missing", c.data.Kind, err)
			}
			continue
		}
		if err != nil || !slices.Equal(net.InputShape(), c.want) {
			t.Errorf("%s, %s: got %v, %v, want images of %v", c.data.Kind, c.model.Kind, net, err, c.want)
		}
	}
}

// TestReadTrained: the checkpoint is the one of the scores in run.json, and otherwise the newest.
func TestReadTrained(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	cfg := tiny()
	cfg.Checkpoint.Keep = 0
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "run.json")
	recorded, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newest := []byte(filepath.Join(checkpoint.FolderName, "epoch-0003.safetensors"))
	at := bytes.LastIndex(recorded, newest) // under test
	for _, c := range []struct {
		scored string
		epoch  int
	}{{"epoch-0003.safetensors", 3}, {"epoch-0002.safetensors", 2}, {"epoch-0009.safetensors", 3}} {
		changed := slices.Concat(recorded[:at], []byte(filepath.Join(checkpoint.FolderName, c.scored)), recorded[at+len(newest):])
		if err := os.WriteFile(path, changed, 0o666); err != nil {
			t.Fatal(err)
		}
		trained, err := ReadTrained(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if isScored := filepath.Base(trained.Checkpoint) == c.scored; trained.Epoch != c.epoch || (trained.Test != nil) != isScored {
			t.Errorf("scored %s: got %s of epoch %d with scores %v", c.scored, trained.Checkpoint, trained.Epoch, trained.Test)
		}
		opened, err := OpenTrained(t.Context(), dir, nil)
		if err != nil || opened.Epoch != 3 {
			t.Fatalf("got epoch %d, %v, want the newest", opened.Epoch, err)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}
	trained, err := ReadTrained(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	wide, err := model.Config{Kind: "unet2d", Base: 8, Depth: 2, Norm: "batch"}.Network([]int{1, 16, 16}, []int{1, 16, 16})
	if err != nil {
		t.Fatal(err)
	}
	g, err := wide.Graph(1, nn.Eval)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trained.Weights(g, false); err == nil || !strings.Contains(err.Error(), "tensor down.0.a.conv.weight has 36 values, but the network needs 72") {
		t.Errorf("got error %v for another network", err)
	}
}
