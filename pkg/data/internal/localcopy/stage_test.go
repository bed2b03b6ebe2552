package localcopy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain makes this binary a process that holds or makes a copy, for the tests that
// kill one: STAGE_HELPER is "hold" or "copy", STAGE_FOLDER and STAGE_SOURCE say where.
func TestMain(m *testing.M) {
	switch how := os.Getenv("STAGE_HELPER"); how {
	case "":
		os.Exit(m.Run())
	default:
		s := localCopier{stallTimeout: time.Minute, free: freeBytes}
		if how == "copy" {
			s.began = func() { // in the middle of a copy
				fmt.Println("ready")
				time.Sleep(time.Hour)
			}
		}
		if _, err := s.open(context.Background(), os.Getenv("STAGE_FOLDER"), []string{os.Getenv("STAGE_SOURCE")}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		time.Sleep(time.Hour)
	}
}

// startHelper starts a helper and returns when it holds its copy, or is in the middle of it.
func startHelper(t *testing.T, how, folder, source string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "STAGE_HELPER="+how, "STAGE_FOLDER="+folder, "STAGE_SOURCE="+source)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	line := make([]byte, 256)
	n, _ := out.Read(line)
	if !bytes.HasPrefix(line[:n], []byte("ready")) {
		t.Fatalf("helper says %q", line[:n])
	}
	return c
}

func kill(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
}

// source writes a small data set with a subfolder, an empty folder and a link.
func source(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "set")
	for name, text := range map[string]string{"image/a.png": "aaaa", "image/b.png": "bb", "label/a.png": "1"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "image", "b.png"), filepath.Join(dir, "label", "b.png")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copies returns the names in the folder of copies.
func copies(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(folder, "lockstep-stage-"+strconv.Itoa(os.Getuid())))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func empty(t *testing.T, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left in %s", e.Name(), folder)
	}
}

func open(t *testing.T, folder string, sources ...string) *Copy {
	t.Helper()
	s, err := Open(t.Context(), folder, sources)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStage copies once for several users, follows links, and removes the copy with the
// last of them.
func TestStage(t *testing.T) {
	folder, from := t.TempDir(), source(t)
	file := filepath.Join(t.TempDir(), "test.h5")
	if err := os.WriteFile(file, []byte("held out"), 0o644); err != nil {
		t.Fatal(err)
	}
	const users = 8
	var all [users]*Copy
	var wg sync.WaitGroup
	for i := range users {
		wg.Go(func() {
			var err error
			if all[i], err = Open(t.Context(), folder, []string{from, file}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	copied := 0
	for _, s := range all {
		if s.Copied {
			copied++
		}
		if s.Bytes != 4+2+1+2+8 || s.SourcePath(0) != all[0].SourcePath(0) {
			t.Errorf("%d bytes in %s", s.Bytes, s.SourcePath(0))
		}
	}
	if copied != 1 || len(copies(t, folder)) != 1 {
		t.Errorf("copied %d times: %v", copied, copies(t, folder))
	}
	for name, want := range map[string]string{"image/a.png": "aaaa", "image/b.png": "bb", "label/a.png": "1", "label/b.png": "bb"} {
		if got, err := os.ReadFile(filepath.Join(all[0].SourcePath(0), name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(all[0].SourcePath(0), "empty")); err != nil || !info.IsDir() {
		t.Errorf("empty folder: %v", err)
	}
	if got, err := os.ReadFile(all[0].SourcePath(1)); err != nil || string(got) != "held out" {
		t.Errorf("second source is %q, %v", got, err)
	}
	for i, s := range all {
		if _, err := os.Stat(s.SourcePath(0)); err != nil {
			t.Errorf("the copy is gone before its last user ends: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close %d: %v", i, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close %d again: %v", i, err)
		}
	}
	empty(t, folder)
	if got, err := os.ReadFile(filepath.Join(from, "image", "a.png")); err != nil || string(got) != "aaaa" {
		t.Errorf("source is %q, %v", got, err)
	}
}

// TestChangedSource makes a new copy where the source has changed since.
func TestChangedSource(t *testing.T) {
	folder, from := t.TempDir(), source(t)
	first := open(t, folder, from)
	if err := os.WriteFile(filepath.Join(from, "image", "a.png"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	second := open(t, folder, from)
	if got, err := os.ReadFile(filepath.Join(second.SourcePath(0), "image", "a.png")); err != nil || string(got) != "changed" || !second.Copied {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(first.SourcePath(0), "image", "a.png")); err != nil || string(got) != "aaaa" {
		t.Errorf("the first user reads %q, %v", got, err)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	empty(t, folder)
}

// TestKilledUser kills a process that uses a copy: one that still uses it removes it.
func TestKilledUser(t *testing.T) {
	folder, from := t.TempDir(), source(t)
	user := startHelper(t, "hold", folder, from)
	s := open(t, folder, from)
	if s.Copied {
		t.Error("the copy of a living process was not taken")
	}
	kill(t, user)
	if _, err := os.Stat(s.SourcePath(0)); err != nil || len(copies(t, folder)) != 1 {
		t.Errorf("after the kill there is %v, want one copy: %v", copies(t, folder), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	empty(t, folder)
}

// TestStale kills the only user: a later run with other data removes its copy, and
// nothing that it does not know.
func TestStale(t *testing.T) {
	folder, old, from := t.TempDir(), source(t), source(t)
	kill(t, startHelper(t, "hold", folder, old))
	if len(copies(t, folder)) != 1 {
		t.Fatalf("the killed process left %v", copies(t, folder))
	}
	root := filepath.Join(folder, "lockstep-stage-"+strconv.Itoa(os.Getuid()))
	foreign := []string{"mine", strings.Repeat("0", 31), strings.Repeat("ab", 16) + ".old"}
	for _, name := range foreign {
		if err := os.MkdirAll(filepath.Join(root, name, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{strings.Repeat("cd", 16), strings.Repeat("ef", 16) + ".gone"} { // killed early, and late
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, folder, from)
	if left := copies(t, folder); len(left) != len(foreign)+1 {
		t.Errorf("left: %v", left)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range foreign {
		if _, err := os.Stat(filepath.Join(root, name, "data")); err != nil {
			t.Errorf("a folder that is not ours is gone: %v", err)
		}
	}
}

// TestKilledCopier kills a process in the middle of its copy, for which another waits:
// that one makes the copy.
func TestKilledCopier(t *testing.T) {
	folder, from := t.TempDir(), source(t)
	copier := startHelper(t, "copy", folder, from)
	type result struct {
		s   *Copy
		err error
	}
	done := make(chan result)
	go func() {
		s, err := Open(t.Context(), folder, []string{from})
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		t.Fatalf("it did not wait: %+v, %v", r.s, r.err)
	case <-time.After(10 * pollEvery):
	}
	kill(t, copier)
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	if got, err := os.ReadFile(filepath.Join(r.s.SourcePath(0), "image", "a.png")); err != nil || string(got) != "aaaa" || !r.s.Copied {
		t.Errorf("%q, %v", got, err)
	}
	if err := r.s.Close(); err != nil {
		t.Error(err)
	}
	empty(t, folder)
}

// TestWaitEnds ends the wait for a copy that stands still, and at a canceled context.
func TestWaitEnds(t *testing.T) {
	folder, from := t.TempDir(), source(t)
	startHelper(t, "copy", folder, from)
	_, err := localCopier{stallTimeout: 3 * pollEvery, free: freeBytes}.open(t.Context(), folder, []string{from})
	if err == nil || !strings.Contains(err.Error(), "another process on this machine is copying to "+folder) || !strings.Contains(err.Error(), "no progress for 150ms") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*pollEvery)
	defer cancel()
	if _, err := Open(ctx, folder, []string{from}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	from, folder := source(t), t.TempDir()
	full := localCopier{stallTimeout: time.Minute, free: func(string) (int64, error) { return 5 << 10, nil }}
	if _, err := full.open(t.Context(), folder, []string{from}); err == nil || !strings.Contains(err.Error(), "the data set needs 16 KiB, but only 5 KiB are free: free some space") {
		t.Errorf("no room: %v", err)
	}
	empty(t, folder)
	if _, err := Open(t.Context(), filepath.Join(folder, "none"), []string{from}); err == nil || !strings.Contains(err.Error(), "the folder does not exist on this machine") {
		t.Errorf("no folder: %v", err)
	}
	if _, err := Open(t.Context(), folder, []string{filepath.Join(from, "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no source: %v", err)
	}
	if err := os.Symlink(from, filepath.Join(from, "image", "loop")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), folder, []string{from}); err == nil || !strings.Contains(err.Error(), "is a link to a folder that contains it") {
		t.Errorf("a loop: %v", err)
	}
	if err := os.Remove(filepath.Join(from, "image", "loop")); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{t.TempDir(), "/dev/zero"} {
		link := filepath.Join(from, "image", "out")
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), folder, []string{from}); err == nil || !strings.Contains(err.Error(), "it is a link out of the folder "+from) {
			t.Errorf("a link to %s: %v", target, err)
		} else {
			empty(t, folder)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
	// A folder that others may write to is not used, nor changed.
	root := filepath.Join(folder, "lockstep-stage-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o777); err != nil {
		t.Fatal(err)
	}
	openBeside(t, folder, root)
	if err := os.Remove(root); err != nil { // it is empty
		t.Error(err)
	}
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, root); err != nil {
		t.Fatal(err)
	}
	openBeside(t, folder, root)
	empty(t, elsewhere)
}

// openBeside stages data in folder, in which another user has taken the path root, and checks that the
// copy is not below root.
func openBeside(t *testing.T, folder, root string) {
	t.Helper()
	s, err := Open(t.Context(), folder, []string{source(t)})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.dir, root+"-2/") {
		t.Errorf("got a copy in %s, want one below %s-2", s.dir, root)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
