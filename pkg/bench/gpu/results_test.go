package gpu

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGPUResultsOfNothing(t *testing.T) {
	for _, root := range []string{filepath.Join(t.TempDir(), "gone"), t.TempDir()} {
		r, err := ReadResults(root)
		if err != nil || r.Folder != "" {
			t.Fatalf("%+v, %v", r, err)
		}
		for stage, text := range map[string]string{"versions": r.Versions(), "bench": r.Speed(), "peers": r.Comparison(), "train": r.Verdict()} {
			if !strings.Contains(text, "Nothing has been run on a GPU yet") || !strings.Contains(text, "environment/gpu-check "+stage) || !strings.Contains(text, root) {
				t.Errorf("%s: %q", stage, text)
			}
		}
		if study, err := r.Runs(t.TempDir()); study != "" || err != nil {
			t.Errorf("%q, %v", study, err)
		}
	}
}

// TestGPUResultsOfFailures: stages that failed are no results, and not nothing either.
func TestGPUResultsOfFailures(t *testing.T) {
	root := t.TempDir()
	for _, day := range []string{"2026-03-01", "2026-03-02"} {
		if err := os.Mkdir(filepath.Join(root, day), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, day, "versions.failed.json"), []byte(`{"no_gpu": "no driver"}`), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := ReadResults(root)
	if err != nil || r.Folder != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	if text := r.Versions(); !strings.Contains(text, "No stage has been done on a GPU yet") || !strings.Contains(text, "2026-03-02 holds those that failed") || !strings.Contains(text, "environment/gpu-check versions") {
		t.Errorf("it says %q", text)
	}
}

// TestGPUResults: the newest folder counts, failed stages do not, and the run folders
// come out of their archive.
func TestGPUResults(t *testing.T) {
	root := t.TempDir()
	write := func(day, name, text string) {
		t.Helper()
		path := filepath.Join(root, day, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("2026-01-01", "train.json", `{"pairs": [{"series": "old"}]}`)
	write("2026-03-01", "versions.log", "begun, and nothing came of it")
	write("2026-03-02", "versions.failed.json", `{"no_gpu": "no driver"}`)
	write("2026-02-01", "versions.json", `{"devices": [{"name": "NVIDIA H200", "kind": "cuda"}]}`)
	write("2026-02-01", "bench-unet-128.json", `{"model": "unet-128", "precision": "bf16", "step_milliseconds": 3, "images_per_second": 5333, "memory_bytes": 33554432}`)
	write("2026-02-01", "bench-unet-512.failed.json", `{`)
	write("2026-02-01", "peers-unet-128.json", `[{"name": "training unet-128, bf16", "value": 5333, "peer": "PyTorch, eager", "peer_value": 4000, "ratio": 1.33, "target": 1.3}, {"name": "other", "ratio": 0.9, "target": 1}]`)
	write("2026-02-01", "train.json", `{"pairs": [{"series": "cuda-bf16", "ok": true}]}`)
	archive, err := os.Create(filepath.Join(root, "2026-02-01", "train-runs.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(archive)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{"./gpu/cuda-n1-s1/run.json": "{}"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{w, z, archive} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}

	r, err := ReadResults(root)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		r.Versions():   {"NVIDIA H200"},
		r.Speed():      {"unet-128", "5333.0", "3.00", "32"},
		r.Comparison(): {"PyTorch, eager", "1.33", "reached", "missed"},
		r.Verdict():    {"cuda-bf16", "ok"},
	} {
		for _, s := range want {
			if !strings.Contains(text, s) {
				t.Errorf("%q is not in\n%s", s, text)
			}
		}
	}
	dir := t.TempDir()
	study, err := r.Runs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(study, "cuda-n1-s1", "run.json")); err != nil {
		t.Error(err)
	}

	write("2026-02-01", "train.json", "{")
	if _, err := ReadResults(root); err == nil || !strings.Contains(err.Error(), "train.json") || !strings.Contains(err.Error(), "--fresh") {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestUnpackStaysInside: a name that leaves the folder is refused.
func TestUnpackStaysInside(t *testing.T) {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "../outside", Mode: 0o644, Size: 2, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("no")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "in")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unpackTarGz(strings.NewReader(b.String()), dir); err == nil {
		t.Error("it is taken")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "outside")); err == nil {
		t.Error("it lies outside")
	}
}
