package train

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// linkAll creates a snapshot of the folder dir in to, whose files are hard links, as "cp -al" does.
func linkAll(t *testing.T, dir, to string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Mkdir(filepath.Join(to, name), 0o755)
		}
		return os.Link(path, filepath.Join(to, name))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readAll returns the content of all files in the folder dir, by path.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSnapshotWithHardLinks: resuming a run changes no file of a snapshot whose files are hard
// links, and the snapshot itself can be resumed.
func TestSnapshotWithHardLinks(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 2
	root := t.TempDir()
	options := WorkerOptions{Dir: filepath.Join(root, "run"), usage: true}
	if _, err := trainAll(t, cfg, 2, options); err != nil {
		t.Fatal(err)
	}
	snapshot := filepath.Join(root, "snapshot")
	linkAll(t, options.Dir, snapshot)
	before := readAll(t, snapshot)

	cfg.Epochs, options.Resume = 3, true
	if _, err := trainAll(t, cfg, 2, options); err != nil {
		t.Fatal(err)
	}
	if after := readAll(t, snapshot); !maps.Equal(before, after) {
		for name, text := range before {
			if after[name] != text {
				t.Errorf("%s of the snapshot has changed", name)
			}
		}
	}
	want := replayed(t, options.Dir)
	options.Dir = snapshot
	if _, err := trainAll(t, cfg, 2, options); err != nil {
		t.Fatal(err)
	}
	if got := replayed(t, snapshot); got != want {
		t.Errorf("the resumed snapshot has the outcome\n%s\nwant\n%s", got, want)
	}
	left, err := filepath.Glob(filepath.Join(root, "*", ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %q, %v", left, err)
	}
}
