package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestStrict: with --strict, every command that reads logs refuses a number of
// workers that only a name states, with exit code 1, unless --as states it.
func TestStrict(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	text := "study,series,workers,seed,epoch,seconds\na,native,1,1,1,2.5\na,native,2,1,1,1.5\n"
	for name, text := range map[string]string{
		"stated/table.csv":      text,
		"assumed/unet_4gpu.log": "Epoch 1/1\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stated, assumed := filepath.Join(dir, "stated"), filepath.Join(dir, "assumed")
	rows := filepath.Join(out, "rows.csv")
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"read", stated, "--strict", "--out", rows}, 0},
		{[]string{"read", assumed, "--out", rows}, 0},
		{[]string{"read", assumed, "--strict", "--out", rows}, 1},
		{[]string{"read", assumed, "--strict", "--explain", "--out", rows}, 1},
		{[]string{"read", assumed, "--strict", "--out", rows, "--as", "*.log=workers:4,series:unet"}, 0},
		{[]string{"read", assumed, "--strict", "--out", rows, "--as", "*.log=workers:15000000,series:unet"}, 2},
		{[]string{"scaling", assumed, "--strict", "--drop-first", "0"}, 1},
		{[]string{"plot", assumed, "--strict", "--out", out}, 1},
		{[]string{"report", assumed, "--strict", "--out", filepath.Join(out, "r.html")}, 1},
	} {
		if got := run(t.Context(), c.args); got != c.want {
			t.Errorf("%q: exit code %d, want %d", c.args, got, c.want)
		}
	}
}
