package main

import (
	"os"
	"path/filepath"
	"testing"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/runs"
)

// TestOutputIsNoInput: no command replaces a file that it reads, or a file of a run folder.
func TestOutputIsNoInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logs, in := filepath.Join(dir, "logs"), func(name string) string { return filepath.Join(dir, name) }
	for _, series := range []string{"a", "b"} {
		w, err := runs.Create(filepath.Join(logs, series), runs.Info{Study: "study", Series: series, Workers: 1})
		for epoch := 1; epoch <= 2 && err == nil; epoch++ {
			err = w.AppendEpoch(runs.Epoch{Epoch: epoch, Seconds: 2, Samples: 100, SamplesPerSecond: 50, TrainLoss: 0.5})
		}
		if err == nil {
			err = w.Finish(runs.StatusDone, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"logs/page.html", "logs/epoch_time.csv", "logs/epoch-spread.txt", "in.safetensors", "recording.json", "config.yaml"} {
		if err := os.WriteFile(in(name), []byte("name: own\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		file string // that must not be replaced
		args []string
	}{
		{"logs/a/epochs.csv", []string{"read", logs, "--out", in("logs/a/epochs.csv")}},
		{"logs/a/run.json", []string{"read", in("logs/b"), "--format", "json", "--out", in("logs/a/run.json")}},
		{"logs/page.html", []string{"read", logs, "--out", in("logs/page.html")}},
		{"logs/page.html", []string{"report", logs, "--out", in("logs/page.html")}},
		{"logs/epoch_time.csv", []string{"plot", logs, "--only", "epoch_time", "--out", in("logs/epoch_time.csv")}},
		{"logs/epoch_time.csv", []string{"plot", logs, "--only", "epoch_time", "--format", "png,csv", "--out", logs}},
		{"logs/a/epochs.csv", []string{"plot", logs, "--only", "epoch_time", "--out", in("logs/a/epochs.csv")}},
		{"logs/epoch-spread.txt", []string{"scaling", logs, "--show", "epoch-spread", "--out", logs}},
		{"recording.json", []string{"transfers", in("recording.json"), "--out", in("recording.json")}},
		{"logs/a/epochs.csv", []string{"transfers", "--workers", "2", "--out", in("logs/a/epochs.csv")}},
		{"config.yaml", []string{"trials", "--config", in("config.yaml"), "--out", in("config.yaml")}},
		{"in.safetensors", []string{"model", "convert", in("in.safetensors"), in("in.safetensors"), "--model", "resnet50"}},
		{"logs/a/run.json", []string{"model", "convert", in("in.safetensors"), in("logs/a/run.json"), "--model", "resnet50"}},
		{"logs/a/run.json", []string{"gpu", "bench", "--trace", in("logs/a/run.json")}},
	} {
		before, err := os.ReadFile(in(c.file))
		if err != nil {
			t.Fatal(err)
		}
		if code := run(t.Context(), c.args); code != cli.ExitUsage {
			t.Errorf("lockstep %q: exit code %d, want %d", c.args, code, cli.ExitUsage)
		}
		if after, err := os.ReadFile(in(c.file)); err != nil || string(after) != string(before) {
			t.Errorf("lockstep %q changed %s: %v", c.args, c.file, err)
		}
	}
	for range 2 { // the earlier output is no input
		if code := run(t.Context(), []string{"read", logs, "--out", in("logs/rows.csv")}); code != 0 {
			t.Errorf("read into the folder that is read: exit code %d", code)
		}
	}
}
