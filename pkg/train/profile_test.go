package train

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/collective"
)

func TestParseProfile(t *testing.T) {
	for _, c := range []struct {
		text string
		want Profile
		ok   bool
	}{
		{"", Profile{}, true},
		{"10:5", Profile{First: 10, Steps: 5}, true},
		{"10", Profile{}, false},
		{"0:5", Profile{}, false},
		{"3:0", Profile{}, false},
		{"a:b", Profile{}, false},
		{"1:2:3", Profile{}, false},
		{"epoch=1,steps=0-59", Profile{Epoch: 1, First: 1, Steps: 60}, true},
		{"epoch=2,steps=3-3", Profile{Epoch: 2, First: 4, Steps: 1}, true},
		{"epoch=0,steps=0-59", Profile{}, false},
		{"epoch=1,steps=5-4", Profile{}, false},
		{"epoch=1,steps=5-7x", Profile{}, false},
		{"epoch=1", Profile{}, false},
	} {
		got, err := ParseProfile(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q is %+v, %v", c.text, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "such as ") {
			t.Errorf("%q: error %q does not say what would do", c.text, err)
		}
	}
}

// TestProfile: the CPU engine traces the requested steps of an epoch. The error for an engine
// without a profiler contains the engine's name.
func TestProfile(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 2
	dir := filepath.Join(t.TempDir(), "run")
	p, err := ParseProfile("epoch=2,steps=0-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Profile: p}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "trace-0.json"))
	if err != nil {
		t.Fatal(err)
	}
	var trace any
	if err := json.Unmarshal(text, &trace); err != nil || !strings.Contains(string(text), "conv") {
		t.Errorf("the trace is no JSON with kernels: %v, %.200s", err, text)
	}
	if _, err := New(t.Context(), cfg, collective.Single(), WorkerOptions{Profile: p}); err == nil || !strings.Contains(err.Error(), "write trace of profile: the worker has no run folder") {
		t.Errorf("without a folder: %v", err)
	}
	cfg.Engine.Device = "reference"
	if _, err := New(t.Context(), cfg, collective.Single(), WorkerOptions{Dir: t.TempDir(), Profile: p}); err == nil || !strings.Contains(err.Error(), "the engine reference has no profiler: use --device cpu or cuda") {
		t.Errorf("New says %v", err)
	}
}

// TestProfileBeyond: steps that the run does not have are an error.
func TestProfileBeyond(t *testing.T) {
	for _, c := range []struct {
		p    Profile
		want string
	}{
		{Profile{Epoch: 2, First: 1, Steps: 10}, ""},
		{Profile{First: 20, Steps: 1}, ""},
		{Profile{Epoch: 3, First: 1, Steps: 1}, "profile epoch 3: the run has the epochs 1 to 2"},
		{Profile{Epoch: 1, First: 1, Steps: 11}, "profile steps 0 to 10 of epoch 1: an epoch has 10 batches: use steps within 0-9"},
		{Profile{First: 20, Steps: 2}, "profile steps 20 to 21: the run has only 20 steps (2 epochs of 10 batches)"},
	} {
		first, last, err := c.p.stepRange(10, 2)
		if c.want == "" {
			if err != nil || last-first+1 != c.p.Steps || last > 20 {
				t.Errorf("%+v is steps %d to %d, %v", c.p, first, last, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, not %q", c.p, err, c.want)
		}
	}
}

// TestProfileOfSeveral: each rank writes a trace with the loader and the all-reduce of every
// bucket. Each accumulated batch is a step of the engine.
func TestProfileOfSeveral(t *testing.T) {
	cfg := tiny()
	cfg.Epochs, cfg.Accumulate, cfg.BucketMiB = 1, 2, 0.001
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Profile: Profile{Epoch: 1, First: 1, Steps: 2}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"trace-0.json", "trace-1.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"load batch"`, `"ProfilerStep#2"`, `"all-reduce of bucket 0"`, `"all-reduce of bucket 1"`, `"wait for gradients"`, `"world_size":2`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %s", name, want)
			}
		}
	}
}

// TestProfileResumed: a resumed run cannot profile steps before its checkpoint.
func TestProfileResumed(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 1
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs = 2
	options := WorkerOptions{Dir: dir, Resume: true, Profile: Profile{Epoch: 1, First: 1, Steps: 1}}
	if _, err := trainAll(t, cfg, 1, options); err == nil || !strings.Contains(err.Error(), "the resumed run has done") {
		t.Errorf("a step that is done: %v", err)
	}
	options.Profile.Epoch = 2
	if _, err := trainAll(t, cfg, 1, options); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "trace-0.json")); err != nil {
		t.Error(err)
	}
}
