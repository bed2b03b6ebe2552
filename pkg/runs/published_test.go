package runs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/logs/published"
)

// TestPublishedTablesWithoutACheckout finds the published tables by their names where no folder
// has them.
func TestPublishedTablesWithoutACheckout(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache) // macOS
	t.Setenv(logsFolderVariable, "")
	t.Chdir(t.TempDir())
	const table = "unet2d-v100.csv"
	want, err := published.Files.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"published/" + table, "logs/published/" + table} {
		path, err := LocateLogs(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s is %s, with %d bytes and the error %v; want %d bytes", name, path, len(got), err, len(want))
		}
	}

	dir, err := LocateLogs("published")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 8 {
		t.Errorf("%s has %d files and the error %v, want the 8 tables", dir, len(entries), err)
	}

	// A table that somebody changed in the cache is written again.
	if err := os.WriteFile(filepath.Join(dir, table), []byte("workers\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := LocateLogs("published/" + table)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
		t.Errorf("the changed table has %q and the error %v", got, err)
	}

	// A file of this name in the working directory is the one that the user means.
	if err := os.Mkdir("published", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("published", table), []byte("workers\n1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if path, err = LocateLogs("published/" + table); err != nil || path == filepath.Join(dir, table) {
		t.Errorf("the table of the working directory is %s, %v", path, err)
	}
}

// TestRecordedSweepsWithoutACheckout: the embedded run folders are those of the checkout, and LocateLogs finds
// them where no folder has them.
func TestRecordedSweepsWithoutACheckout(t *testing.T) {
	checkout, err := filepath.Abs(filepath.Join("..", "..", "logs", "recorded"))
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache) // macOS
	t.Setenv(logsFolderVariable, "")
	t.Chdir(t.TempDir())
	for _, study := range []string{"unet2d-cells", "resnet50v2-cifar10-laptop"} {
		dir, err := LocateLogs("logs/recorded/" + study)
		if err != nil {
			t.Fatal(err)
		}
		found, err := Find(dir)
		if err != nil || len(found) != 6 {
			t.Fatalf("%s: got the runs %v and the error %v, want 2 worker counts with 3 seeds each", study, found, err)
		}
		for _, run := range found {
			for _, name := range []string{infoFile, epochsFile} {
				got, err := os.ReadFile(filepath.Join(run, name))
				if err != nil {
					t.Fatal(err)
				}
				want, err := os.ReadFile(filepath.Join(checkout, study, filepath.Base(run), name))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s of %s is\n%s\nin the program, and in the checkout\n%s\n%v", name, run, got, want, err)
				}
			}
			read, err := Read(run)
			if info := read.Info; err != nil || len(read.Problems) > 0 || !strings.HasPrefix(info.Source, "recorded on ") || info.Load == nil || info.Load.Disturbed {
				t.Errorf("%s: error %v, problems %v, source %q, load %v; want an undisturbed run", run, err, read.Problems, info.Source, info.Load)
			}
		}
	}
}

// TestUnknownPublishedTable checks the errors for tables that do not exist.
func TestUnknownPublishedTable(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv(logsFolderVariable, "")
	t.Chdir(t.TempDir())
	for _, c := range []struct{ name, want string }{
		{"published/unet2d.csv", "has no such logs (did you mean published/unet2d-v100.csv?); it has published/resnet-cifar10-power.csv, "},
		{"published/../secret", "has no such logs"},
		{"recorded/unet3d", "it has recorded/resnet50v2-cifar10-laptop, recorded/unet2d-cells"},
		{"./published/unet2d-v100.csv", "does not exist"},
		{"publishedtables", "does not exist"},
	} {
		if _, err := LocateLogs(c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got the error %v, want %q", c.name, err, c.want)
		}
	}
	if err := os.WriteFile(filepath.Join(cache, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(cache, "file"))
	t.Setenv("HOME", filepath.Join(cache, "file"))
	if _, err := LocateLogs("published"); err == nil || !strings.Contains(err.Error(), "set XDG_CACHE_HOME") {
		t.Errorf("without a cache folder: got the error %v", err)
	}
}
