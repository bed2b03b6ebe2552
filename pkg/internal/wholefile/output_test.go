package wholefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckOutput: an output must not replace an input, whatever path or link leads to it, or a
// file of a run folder. New files and earlier outputs may be written.
func TestCheckOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"logs/run/run.json": "{}", "logs/run/epochs.csv": "epoch,seconds\n", "logs/run/checkpoints/1.safetensors": "x", "logs/run/figure.png": "\x89PNG\r\n\x1a\n",
		"logs/a/train.log": "epoch 1\n", "logs/old.csv": "series,workers\n", "logs/rows.csv": ValuesCSVHeader, "logs/rows.json": "[\n{\"run\":\"a\"",
		"logs/page.html": "<!doctype html>\n<html>", "logs/steps.html": "<!DOCTYPE html>\n", "logs/figure.svg": "<?xml version=\"1.0\"?>\n<svg>", "far/away.log": "epoch 1\n", "other.csv": "a,b\n", "empty.log": "",
	} {
		if err := os.MkdirAll(filepath.Dir(in(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"link.log": "logs/a/train.log", "logs/linked": "../far", "logs2": "logs", "logs/loop": "..", "epochs": "logs/run/epochs.csv"} {
		if err := os.Symlink(target, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(in("logs/a/train.log"), in("hard.log")); err != nil {
		t.Fatal(err)
	}
	const read, run = "this command also reads", "file of the run folder"
	for _, c := range []struct{ output, input, want string }{
		{"logs/a/train.log", "logs", read},
		{"logs/a/train.log", "logs2", read},
		{"logs2/a/train.log", "logs", read},
		{"logs/a/train.log", "logs/a/train.log", read},
		{"logs/a/../a/train.log", "logs/a", read},
		{"link.log", "logs", read},
		{"hard.log", "logs", read},
		{"far/away.log", "logs", read},
		{"other.csv", "logs", read}, // through logs/loop
		{"logs/old.csv", "logs", read},
		{"logs/rows.csv", "logs/rows.csv", read},
		{"logs/rows.csv", "logs", ""},
		{"logs/rows.json", "logs", ""},
		{"logs/page.html", "logs", ""},
		{"logs/steps.html", "logs", ""},
		{"logs/figure.svg", "logs", ""},
		{"logs/new.csv", "logs", ""},
		{"new/new.csv", "logs", ""},
		{"other.csv", "logs/a", ""},
		{"logs", "logs", ""}, // Write reports it
		{"logs/run/epochs.csv", "", run},
		{"logs/run/epochs.csv", "far", run},
		{"logs2/run/epochs.csv", "", run},
		{"epochs", "", run},
		{"logs/run/checkpoints/1.safetensors", "", run},
		{"logs/run/figure.png", "logs", ""},
		{"logs/run/new.csv", "logs", ""},
	} {
		var inputs []string
		if c.input != "" {
			inputs = []string{in("missing"), in(c.input)}
		}
		err := CheckOverwrite(in(c.output), inputs...)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("output %s, input %s: got %v, want %q", c.output, c.input, err, c.want)
		}
	}
}
