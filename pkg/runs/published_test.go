package runs

import (
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
	t.Setenv(logsVariable, "")
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

// TestUnknownPublishedTable checks the errors for tables that do not exist.
func TestUnknownPublishedTable(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv(logsVariable, "")
	t.Chdir(t.TempDir())
	for _, c := range []struct{ name, want string }{
		{"published/unet2d.csv", "has no such table; it has resnet-cifar10-power.csv, "},
		{"published/../secret", "has no such table"},
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
