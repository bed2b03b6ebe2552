package train

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestMirror trains with a global batch on named devices. The parameters have the same bits as
// in a data-parallel run with as many workers, and equal those of one worker with the global
// batch up to rounding.
func TestMirror(t *testing.T) {
	cfg := exactConfig()
	cfg.Epochs = 2
	for _, c := range []struct {
		name    string
		m       MirrorOptions
		devices []string
	}{
		{"list", MirrorOptions{Devices: []string{"reference:0", "reference:3"}, GlobalBatch: 8}, []string{"reference:0", "reference:3"}},
		{"count", MirrorOptions{Count: 4, GlobalBatch: 8}, []string{"reference:0", "reference:1", "reference:2", "reference:3"}},
	} {
		got, err := Mirror(t.Context(), cfg, plain, c.m)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Devices, c.devices) || got.GlobalBatch != 8 {
			t.Errorf("%s: devices %v, global batch %d", c.name, got.Devices, got.GlobalBatch)
		}
		each := cfg
		each.Batch = 8 / len(c.devices)
		workers, err := Replicas(t.Context(), each, plain, len(c.devices))
		if err != nil {
			t.Fatal(err)
		}
		whole := cfg
		whole.Batch = 8
		one, err := Replicas(t.Context(), whole, plain, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range got.Weights() {
			if !slices.Equal(w.Float64s(), workers.Weights()[i].Float64s()) {
				t.Errorf("%s: %s has other bits than %d workers", c.name, w.Name, len(c.devices))
			}
			if d := distance(one.Weights()[i].Float64s(), w.Float64s()); !(d <= toleranceFloat64) {
				t.Errorf("%s: %s differs by %g from one worker with the whole batch", c.name, w.Name, d)
			}
		}
		if got.Epochs[0].Samples != one.Epochs[0].Samples {
			t.Errorf("%s: %d samples per epoch, want %d", c.name, got.Epochs[0].Samples, one.Epochs[0].Samples)
		}
		want := fmt.Sprintf("mirrored on %s: global batch 8, %d per replica\n", strings.Join(c.devices, ", "), 8/len(c.devices))
		if text := got.String(); !strings.HasPrefix(text, want) {
			t.Errorf("%s: it shows itself as %q, want %q first", c.name, text, want)
		}
	}
}

// TestMirrorZeroValue takes all cores, each with the config's batch.
func TestMirrorZeroValue(t *testing.T) {
	cfg := withoutNorms()
	cfg.Epochs, cfg.Batch, cfg.Engine.Threads = 1, 1, max(1, runtime.NumCPU()/2)
	got, err := Mirror(t.Context(), cfg, plain, MirrorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := runtime.NumCPU() / cfg.Engine.Threads; len(got.Devices) != want || got.GlobalBatch != want || got.Devices[0] != "cpu:0" {
		t.Errorf("devices %v, global batch %d, want %d of each", got.Devices, got.GlobalBatch, want)
	}
}

func TestMirrorErrors(t *testing.T) {
	for _, c := range []struct {
		device string // of the config
		m      MirrorOptions
		want   string
	}{
		{"cpu", MirrorOptions{Count: 4, GlobalBatch: 10}, "4 replicas cannot share a global batch of 10 evenly: use 8 or 12"},
		{"cpu", MirrorOptions{Count: 4, GlobalBatch: 3}, "evenly: use 4"},
		{"cpu", MirrorOptions{GlobalBatch: -1}, "global batch is -1"},
		{"cpu", MirrorOptions{Count: -2}, "device count is -2"},
		{"cpu", MirrorOptions{Devices: []string{"cpu:0"}, Count: 2}, "got both Devices and Count"},
		{"cpu", MirrorOptions{Devices: []string{}}, "the list of devices is empty"},
		{"cpu", MirrorOptions{Devices: []string{"/gpu:0"}}, `unknown device "/gpu:0": use a kind and a number, such as cpu:0 or cuda:1`},
		{"cpu", MirrorOptions{Devices: []string{"cpu"}}, `unknown device "cpu"`},
		{"cpu", MirrorOptions{Devices: []string{"cpu:01"}}, `unknown device "cpu:01"`},
		{"cpu", MirrorOptions{Devices: []string{"cpu:0", "cpu:1", "cpu:0"}}, "duplicate device cpu:0"},
		{"cpu", MirrorOptions{Devices: []string{"cpu:0", "cuda:0"}}, "devices cpu:0 and cuda:0 are of different kinds"},
		{"cuda:1", MirrorOptions{Count: 2}, "engine.device is the single device cuda:1"},
	} {
		cfg := withoutNorms()
		cfg.Engine.Device = c.device
		if _, err := Mirror(t.Context(), cfg, plain, c.m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.m, err, c.want)
		}
	}
}
