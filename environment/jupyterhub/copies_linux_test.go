package jupyterhub_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCopies runs the commands of the config that copy the examples, as a student's process does: each version is
// copied once, and nothing that the student has is changed.
func TestCopies(t *testing.T) {
	config, err := os.ReadFile("jupyterhub_config.py")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?s)COPY_COMMANDS = """\n(.*?)"""`).FindSubmatch(config)
	if commands == nil {
		t.Fatal("the config has no COPY_COMMANDS")
	}
	base := t.TempDir()
	examples, home := filepath.Join(base, "examples"), filepath.Join(base, "home")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	update := func(text string) {
		t.Helper()
		write(filepath.Join(examples, "sub", "a.ipynb"), text)
		if err := filepath.WalkDir(examples, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chtimes(path, time.Time{}, time.Date(2026, 11, 29, 12, 0, 0, 0, time.Local)))
		}); err != nil {
			t.Fatal(err)
		}
	}
	logIn := func(want ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.ReplaceAll(string(commands[1]), `\\`, `\`), "sh", examples, filepath.Join(home, "copy"))
		cmd.Env = []string{"PATH=" + filepath.Join(base, "bin") + ":/usr/bin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("got %v\n%s", err, out)
		}
		var got []string
		entries, err := os.ReadDir(home)
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got the copies %q, %v, want %q", got, err, want)
		}
	}
	check := func(name, want string) {
		t.Helper()
		path := filepath.Join(home, name, "sub", "a.ipynb")
		text, err := os.ReadFile(path)
		if err != nil || string(text) != want {
			t.Errorf("%s: got %q, %v, want %q", path, text, err, want)
		}
		if s, err := os.Stat(path); err != nil || s.Mode() != 0o600 {
			t.Errorf("%s: got %v, %v, want that only the student reads it", path, s, err)
		}
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	logIn() // there are no examples
	update("first")
	// This command writes the released notebooks of the course.
	write(filepath.Join(examples, "course", "01.ipynb"), "// BEGIN SOLUTION")
	write(filepath.Join(base, "bin", "lockstep"), "#!/bin/sh\n[ \"$1 $2\" = 'course release' ] && mkdir \"$4\" && echo released >\"$4/01.ipynb\"\n")
	if err := os.Chmod(filepath.Join(base, "bin", "lockstep"), 0o755); err != nil {
		t.Fatal(err)
	}
	logIn("copy")
	check("copy", "first")
	checkCourse := func(copied, want string) {
		t.Helper()
		if text, err := os.ReadFile(filepath.Join(home, copied, "course", "01.ipynb")); string(text) != want {
			t.Errorf("got the student's notebook %q, %v, want %q", text, err, want)
		}
	}
	checkCourse("copy", "released\n")
	logIn("copy")
	if err := os.WriteFile(filepath.Join(home, "copy/sub/a.ipynb"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	logIn("copy") // the student's change is no update
	write(filepath.Join(examples, "course", "01.ipynb"), "a release of the administrator")
	update("second")
	logIn("copy", "copy-2026-11-29")
	checkCourse("copy-2026-11-29", "a release of the administrator")
	logIn("copy", "copy-2026-11-29")
	update("third") // on the same day
	logIn("copy", "copy-2026-11-29", "copy-2026-11-29-2")
	logIn("copy", "copy-2026-11-29", "copy-2026-11-29-2")
	check("copy", "mine")
	check("copy-2026-11-29", "second")
	check("copy-2026-11-29-2", "third")

	// Links in place of the copy and of the mark, and a pipe in place of a mark, are left alone.
	elsewhere := filepath.Join(base, "elsewhere")
	write(filepath.Join(elsewhere, "kept"), "kept")
	for _, name := range []string{"copy", "copy-2026-11-29", "copy-2026-11-29-2"} {
		if err := os.RemoveAll(filepath.Join(home, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"copy", "copy-2026-11-29", "copy-2026-11-29-2.new"} {
		if err := os.Symlink(elsewhere, filepath.Join(home, name)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "mkfifo", filepath.Join(elsewhere, ".lockstep-examples")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	logIn("copy", "copy-2026-11-29", "copy-2026-11-29-2")
	check("copy-2026-11-29-2", "third")
	if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) != 2 {
		t.Errorf("behind the links: got %v, %v, want only what was there", entries, err)
	}
}
