package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writers contains the functions of this package, each adapted to write a text.
var writers = map[string]func(path, text string) error{
	"Write": func(path, text string) error {
		return Write(path, 0o644, func(f *os.File) error { _, err := f.WriteString(text); return err })
	},
	"WriteBytes": func(path, text string) error { return WriteBytes(path, []byte(text), 0o644) },
	"WriteUnsynced": func(path, text string) error {
		return WriteUnsynced(path, 0o644, func(f *os.File) error { _, err := f.WriteString(text); return err })
	},
}

// wantFile checks the content of a file, and that its folder has no other entries
// than names.
func wantFile(t *testing.T, path, want string, names ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	if string(text) != want {
		t.Errorf("%s holds %q, want %q", path, text, want)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	check(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("the folder holds %v, want %v", got, names)
	}
}

func TestRegularFile(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.csv")
			check(t, write(path, "old"))
			wantFile(t, path, "old", "a.csv")
			check(t, os.Chmod(path, 0o640))
			before, err := os.Open(path)
			check(t, err)
			defer func() { check(t, before.Close()) }()
			check(t, write(path, "new"))
			wantFile(t, path, "new", "a.csv")
			info, err := os.Stat(path)
			check(t, err)
			if got := info.Mode().Perm(); got != 0o640 {
				t.Errorf("the file has permissions %v, want those of the old one, 0640", got)
			}
			old := make([]byte, 4)
			if n, _ := before.Read(old); string(old[:n]) != "old" {
				t.Errorf("who had the old file open reads %q", old[:n])
			}
		})
	}
}

// TestFailedWrite: the old file stays, and no temporary file remains.
func TestFailedWrite(t *testing.T) {
	for name, write := range map[string]func(string, fs.FileMode, func(*os.File) error) error{"Write": Write, "WriteUnsynced": WriteUnsynced} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.csv")
			check(t, os.WriteFile(path, []byte("old"), 0o644))
			err := write(path, 0o644, func(f *os.File) error {
				_, err := f.WriteString("half")
				return errors.Join(err, syscall.ENOSPC)
			})
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
				t.Errorf("error is %v", err)
			}
			wantFile(t, path, "old", "a.csv")
			err = write(path, 0o644, func(f *os.File) error {
				check(t, f.Close())
				_, err := f.WriteString("half")
				return err
			})
			if want := "write " + path + ": file already closed"; err == nil || err.Error() != want {
				t.Errorf("error is %v, want %q", err, want)
			}
		})
	}
}

// TestLinks: the link stays, and the file that it leads to is written.
func TestLinks(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, folder := range []string{"here", "there"} {
				check(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
			}
			link, second, file := filepath.Join(dir, "here/link"), filepath.Join(dir, "here/second"), filepath.Join(dir, "there/file")
			check(t, os.Symlink("second", link))
			check(t, os.Symlink("../there/file", second))
			for _, text := range []string{"first", "again"} { // the first write makes the file
				check(t, write(link, text))
				wantFile(t, file, text, "file")
				wantFile(t, link, text, "link", "second")
				for _, l := range []string{link, second} {
					if _, err := os.Readlink(l); err != nil {
						t.Errorf("the link was replaced: %v", err)
					}
				}
			}
			check(t, os.Remove(second))
			check(t, os.Symlink("link", second))
			if err := write(link, "round"); !errors.Is(err, syscall.ELOOP) {
				t.Errorf("a loop of links gives %v", err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := write(dir, "text")
			if !errors.Is(err, syscall.EISDIR) || !strings.Contains(err.Error(), "give the path of a file in this folder") {
				t.Errorf("a folder gives %v", err)
			}
			if err := write(filepath.Join(dir, "none", "a.csv"), "text"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a folder that is not there gives %v", err)
			}
			if os.Geteuid() == 0 {
				return // root may write every file
			}
			path := filepath.Join(dir, "protected")
			check(t, os.WriteFile(path, []byte("old"), 0o444))
			if err := write(path, "new"); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("a file without permission to write gives %v", err)
			}
			wantFile(t, path, "old", "protected")
		})
	}
}

// TestFIFO: a FIFO receives the bytes and stays a FIFO.
func TestFIFO(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
			check(t, syscall.Mkfifo(path, 0o600))
			check(t, os.Symlink("fifo", link))
			for _, out := range []string{path, link} {
				read := make(chan string)
				go func() {
					text, err := os.ReadFile(path)
					read <- fmt.Sprint(string(text), err)
				}()
				check(t, write(out, "text"))
				if got := <-read; got != "text<nil>" {
					t.Errorf("the reader got %q", got)
				}
			}
			info, err := os.Lstat(path)
			check(t, err)
			if info.Mode()&fs.ModeNamedPipe == 0 {
				t.Errorf("the FIFO was replaced: %v", info.Mode())
			}
		})
	}
}

// TestDevice: a character device stays a device. The link keeps a broken
// Write from replacing the machine's own null device.
func TestDevice(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			link := filepath.Join(t.TempDir(), "null")
			check(t, os.Symlink(os.DevNull, link))
			check(t, write(link, "text"))
			wantFile(t, link, "", "null")
			if target, err := os.Readlink(link); err != nil || target != os.DevNull {
				t.Errorf("the link leads to %q, %v", target, err)
			}
			info, err := os.Stat(link)
			check(t, err)
			if info.Mode()&fs.ModeCharDevice == 0 {
				t.Errorf("the device was replaced: %v", info.Mode())
			}
		})
	}
}

// TestOpenFile: /proc/self/fd/N, which /dev/stdout is a link to, is written to,
// and the file that it leads to is not replaced.
func TestOpenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout")
	f, err := os.Create(path)
	check(t, err)
	defer func() { check(t, f.Close()) }()
	before, err := f.Stat()
	check(t, err)
	link := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if _, err := os.Stat(link); err != nil {
		t.Skip("no /proc here")
	}
	check(t, WriteBytes(link, []byte("text"), 0o644))
	after, err := os.Stat(path)
	check(t, err)
	if !os.SameFile(before, after) {
		t.Error("the open file was replaced")
	}
	wantFile(t, path, "text", "stdout")
}

// TestSeparate: a file with several names is copied, and other files stay as they are.
func TestSeparate(t *testing.T) {
	dir := t.TempDir()
	path, snapshot, link := filepath.Join(dir, "file"), filepath.Join(dir, "snapshot"), filepath.Join(dir, "link")
	check(t, os.WriteFile(path, []byte("text"), 0o640))
	check(t, os.Link(path, snapshot))
	check(t, os.Symlink("file", link))
	check(t, BreakHardLinks(link)) // follows the link
	wantFile(t, path, "text", "file", "link", "snapshot")
	separate, err := os.Stat(path)
	check(t, err)
	kept, err := os.Stat(snapshot)
	check(t, err)
	if os.SameFile(separate, kept) || separate.Mode() != kept.Mode() {
		t.Errorf("got %v and %v, want two files of the same mode", separate, kept)
	}
	if _, err := os.Readlink(link); err != nil {
		t.Error(err)
	}
	check(t, BreakHardLinks(path))
	again, err := os.Stat(path)
	check(t, err)
	if !os.SameFile(again, separate) {
		t.Error("a file with one name was replaced")
	}
	check(t, BreakHardLinks(filepath.Join(dir, "none")))
	check(t, BreakHardLinks(dir))
}
