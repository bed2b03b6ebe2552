package safeopen

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// folder creates a folder that contains a file, links, a named pipe and a folder, and a file
// next to the folder.
func folder(t *testing.T) (dir, beside string) {
	t.Helper()
	root := t.TempDir()
	dir, beside = filepath.Join(root, "run"), filepath.Join(root, "secret")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "sub"), 0o755),
		os.WriteFile(beside, []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o644),
		os.Symlink("file", filepath.Join(dir, "relative")),
		os.Symlink(filepath.Join(dir, "file"), filepath.Join(dir, "absolute")),
		os.Symlink("../secret", filepath.Join(dir, "out-relative")),
		os.Symlink(beside, filepath.Join(dir, "out-absolute")),
		os.Symlink(root, filepath.Join(dir, "out-folder")),
		os.Symlink("/dev/zero", filepath.Join(dir, "zero")),
		os.Symlink("nowhere", filepath.Join(dir, "dangling")),
		os.Symlink("loop", filepath.Join(dir, "loop")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644),
		os.Symlink(dir, filepath.Join(root, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, beside
}

func TestOpen(t *testing.T) {
	dir, _ := folder(t)
	link := filepath.Join(filepath.Dir(dir), "link")
	for _, c := range []struct{ dir, name, refused string }{
		{dir, "file", ""},
		{dir, "relative", ""},
		{dir, "absolute", ""},
		{link, "file", ""}, // the folder itself may be a link
		{link, "absolute", ""},
		{dir, "out-relative", "link out of the folder"},
		{dir, "out-absolute", "link out of the folder"},
		{dir, "out-folder/secret", "link out of the folder"},
		{dir, "../secret", "link out of the folder"},
		{dir, "zero", "link out of the folder"},
		{dir, "pipe", "a named pipe, not a file"},
		{dir, "sub", "a folder, not a file"},
	} {
		f, err := Open(c.dir, filepath.Join(c.dir, c.name))
		if c.refused != "" {
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.refused) {
				t.Errorf("%s: got error %v, want %q", c.name, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		text, err := io.ReadAll(f)
		if err = errors.Join(err, f.Close()); err != nil || string(text) != "text" {
			t.Errorf("%s: got %q, %v", c.name, text, err)
		}
	}
	for _, name := range []string{"none", "dangling", "none/file"} {
		if _, err := Open(dir, filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got error %v, want %v", name, err, fs.ErrNotExist)
		}
	}
	if _, err := Open(dir, filepath.Join(dir, "loop")); err == nil {
		t.Error("loop: no error")
	}
}

func TestFile(t *testing.T) {
	dir, _ := folder(t)
	for _, c := range []struct{ path, refused string }{
		{filepath.Join(dir, "out-absolute"), ""}, // the user has named the link
		{filepath.Join(dir, "pipe"), "a named pipe"},
		{"/dev/zero", "a device"},
		{dir, "a folder"},
	} {
		f, err := OpenUserFile(c.path)
		var refused *RefusedError
		switch {
		case c.refused == "" && err != nil, c.refused != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Reason, c.refused)):
			t.Errorf("%s: got error %v, want %q", c.path, err, c.refused)
		case err == nil:
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestReadFileLimit: a sparse file of a terabyte is refused before memory is allocated.
func TestReadFileLimit(t *testing.T) {
	dir, _ := folder(t)
	path := filepath.Join(dir, "sparse")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := ReadFile(dir, path, 1<<20); !errors.As(err, &refused) {
		t.Errorf("sparse file: got error %v", err)
	}
	if _, err := ReadUserFile(t.Context(), path, 1<<20); !errors.As(err, &refused) {
		t.Errorf("named sparse file: got error %v", err)
	}
	if text, err := ReadFile(dir, filepath.Join(dir, "file"), 4); err != nil || string(text) != "text" {
		t.Errorf("file at the limit: got %q, %v", text, err)
	}
	if _, err := ReadFile(dir, filepath.Join(dir, "file"), 3); !errors.As(err, &refused) {
		t.Errorf("file over the limit: got error %v", err)
	}
}
