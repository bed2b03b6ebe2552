package clib

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine returns a search in test folders. open is called with each path that exists, and with
// plain names.
func machine(t *testing.T, vars map[string]string, python []string, open func(string) (uintptr, error)) *Search {
	t.Helper()
	if !Supported {
		t.Skip("no C library can be opened on this system")
	}
	return NewSearch(Environment{
		Getenv: func(name string) string { return vars[name] },
		Python: func(context.Context) ([]string, error) { return python, nil },
		System: []string{}, Open: open,
		Lookup: func(uintptr, string) (uintptr, error) { return 0, nil },
	})
}

func touch(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOrderOfPlaces creates the library in all places. It then removes the library from the
// place where it is found, and checks that the next place is used.
func TestOrderOfPlaces(t *testing.T) {
	root := t.TempDir()
	site := filepath.Join(root, "site [x]") // a folder whose name looks like a pattern
	vars := map[string]string{
		LibraryPathVariable: filepath.Join(root, "none") + ":" + filepath.Join(root, "ours"),
		"CUDA_HOME":         filepath.Join(root, "home"), "CUDA_PATH": filepath.Join(root, "path"),
		"CONDA_PREFIX": filepath.Join(root, "conda"), "VIRTUAL_ENV": filepath.Join(root, "venv"),
	}
	paths := []string{
		touch(t, root, "ours", "libnccl.so.2"),
		touch(t, root, "ours", "lib", "libnccl.so.2"),
		touch(t, root, "home", "lib64", "libnccl.so.2"),
		touch(t, root, "path", "lib64", "libnccl.so.2"),
		touch(t, root, "conda", "lib", "libnccl.so.2"),
		touch(t, root, "venv", "lib", "python3.12", "site-packages", "nvidia", "nccl", "lib", "libnccl.so.2"),
		touch(t, site, "nvidia", "cu13", "lib", "libnccl.so.2"),
		touch(t, site, "nvidia", "abc", "lib", "libnccl.so.2"),
		touch(t, site, "torch", "lib", "libnccl.so.2"),
	}
	for len(paths) > 0 {
		var tried []string
		s := machine(t, vars, []string{site}, func(path string) (uintptr, error) {
			tried = append(tried, path)
			if filepath.IsAbs(path) {
				return 1, nil
			}
			return 0, fs.ErrNotExist
		})
		lib, err := s.Open(NCCL)
		if err != nil {
			t.Fatal(err)
		}
		if lib.Path != paths[0] {
			t.Fatalf("opened %s, want %s", lib.Path, paths[0])
		}
		if strings.HasPrefix(paths[0], vars["CUDA_HOME"]) && !slices.Equal(tried, []string{"libnccl.so.2", paths[0]}) {
			t.Errorf("the loader's path is not tried before CUDA_HOME: %v", tried)
		}
		if err := os.Remove(paths[0]); err != nil {
			t.Fatal(err)
		}
		paths = paths[1:]
	}
}

// TestPreferredVersion checks that for a driver of CUDA 12, NVRTC 12 is preferred to 13 wherever
// it is, and that 13 is opened if there is no other, so that the error can name it.
func TestPreferredVersion(t *testing.T) {
	root := t.TempDir()
	vars := map[string]string{LibraryPathVariable: filepath.Join(root, "first"), "CUDA_HOME": filepath.Join(root, "second")}
	newer := touch(t, root, "first", "libnvrtc.so.13")
	older := touch(t, root, "second", "lib64", "libnvrtc.so.12")
	open := func(path string) (uintptr, error) {
		if filepath.IsAbs(path) {
			return 1, nil
		}
		return 0, fs.ErrNotExist
	}
	for _, c := range []struct {
		driver int
		want   string
	}{{0, newer}, {13, newer}, {12, older}, {11, newer}} {
		s := machine(t, vars, nil, open)
		s.PreferCUDA(c.driver)
		lib, err := s.Open(NVRTC)
		if err != nil || lib.Path != c.want {
			t.Errorf("driver of CUDA %d: opened %v, want %s: %v", c.driver, lib, c.want, err)
		}
	}
}

// TestOrderOfLibraries checks that the libraries that cuDNN needs are opened before it, by
// absolute path, and in an order in which each one finds the libraries that it needs.
func TestOrderOfLibraries(t *testing.T) {
	dir := t.TempDir()
	// The builtins of whatever version lie beside NVRTC, which opens them by their plain
	// name when it compiles.
	want := []string{"libnvJitLink.so.13", "libnvrtc.so.13", "libnvrtc-builtins.so.13.7", "libcublasLt.so.13", "libcublas.so.13", "libcudnn.so.9"}
	for _, name := range want {
		touch(t, dir, name)
	}
	var got []string
	s := machine(t, map[string]string{LibraryPathVariable: dir}, nil, func(path string) (uintptr, error) {
		if !filepath.IsAbs(path) {
			t.Errorf("%s is opened by its plain name", path)
		}
		got = append(got, filepath.Base(path))
		return 1, nil
	})
	for range 2 { // the second time nothing is opened
		if _, err := s.Open(CUDNN); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("opened %v, want %v", got, want)
	}
}

// TestLibrariesOfCUDNNsVersion checks that the libraries that cuDNN needs are taken from its
// place, whatever the loader's path contains. Only the folders of LibraryPathVariable precede it.
func TestLibrariesOfCUDNNsVersion(t *testing.T) {
	root := t.TempDir()
	module, site := filepath.Join(root, "cuda12"), filepath.Join(root, "site")
	touch(t, module, "libnvrtc.so.12")
	touch(t, site, "nvidia", "cudnn", "lib", "libcudnn.so.9")
	wheel := touch(t, site, "nvidia", "cu13", "lib", "libnvrtc.so.13")
	vars := map[string]string{"LD_LIBRARY_PATH": module, "CUDA_HOME": root}
	open := func(path string) (uintptr, error) {
		if path == "libnvrtc.so.12" || filepath.IsAbs(path) {
			return 1, nil
		}
		return 0, fs.ErrNotExist
	}
	found := func() string {
		lib, err := machine(t, vars, []string{site}, open).Open(NVRTC)
		if err != nil {
			t.Fatal(err)
		}
		return lib.Path
	}
	if got := found(); got != wheel {
		t.Errorf("beside cuDNN lies %s, opened %s", wheel, got)
	}
	vars[LibraryPathVariable] = module
	if got := found(); got != filepath.Join(module, "libnvrtc.so.12") {
		t.Errorf("the folder that was named holds NVRTC 12, opened %s", got)
	}
	delete(vars, LibraryPathVariable)
	touch(t, module, "libcudnn.so.9")
	if got := found(); got != "libnvrtc.so.12" {
		t.Errorf("cuDNN is on the loader's path, opened %s", got)
	}
}

func TestNotFound(t *testing.T) {
	dir := t.TempDir()
	s := machine(t, map[string]string{LibraryPathVariable: dir, "CUDA_HOME": "/nowhere", "LD_LIBRARY_PATH": "/opt/a"}, nil,
		func(string) (uintptr, error) { return 0, fs.ErrNotExist })
	_, err := s.Open(CUDNN)
	var missing *NotFoundError
	if !errors.As(err, &missing) || missing.Library != CUDNN {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{
		"open cuDNN: not found (libcudnn.so.9 or libcudnn.so.8): it comes with", "pip install nvidia-cudnn-cu13", "name its folder in LOCKSTEP_CUDA_PATH",
		"LOCKSTEP_CUDA_PATH: " + dir, "LD_LIBRARY_PATH=/opt/a", "CUDA_HOME (/nowhere contains no such folder)", "CONDA_PREFIX (not set)",
		"Python's site-packages (python3 has none)", "system folders (none exists)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q\nlacks %q", err, want)
		}
	}
}

// TestBrokenLibrary checks that the error lists a file that cannot be loaded, and that the
// search goes on after it.
func TestBrokenLibrary(t *testing.T) {
	root := t.TempDir()
	broken, good := touch(t, root, "a", "libcudnn.so.9"), touch(t, root, "b", "libcudnn.so.9")
	vars := map[string]string{LibraryPathVariable: filepath.Dir(broken)}
	open := func(path string) (uintptr, error) {
		switch {
		case path == good:
			return 1, nil
		case filepath.IsAbs(path):
			return 0, errors.New(path + ": file too short")
		}
		return 0, fs.ErrNotExist
	}
	_, err := machine(t, vars, nil, open).Open(CUDNN)
	if want := "open cuDNN: found but not loadable: " + broken + ": file too short: install a version that fits this machine; searched: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	vars[LibraryPathVariable] += ":" + filepath.Dir(good)
	if lib, err := machine(t, vars, nil, open).Open(CUDNN); err != nil || lib.Path != good {
		t.Errorf("%v, %v", lib, err)
	}
}

// TestMissingDependency checks the error for libraries that need a library that is missing. The loader
// names only that one, as the GNU C library does. It finds the libraries by their plain names: one in
// LD_LIBRARY_PATH, and one in a folder of its own configuration that the Search knows too.
func TestMissingDependency(t *testing.T) {
	const reason = "libfabric.so.1: cannot open shared object file: No such file or directory"
	root := t.TempDir()
	named := touch(t, root, "named", "libmpich.so.12")
	system := touch(t, root, "system", "libmpi.so.12")
	s := machine(t, map[string]string{"LD_LIBRARY_PATH": root + ":" + filepath.Dir(named)}, nil, func(string) (uintptr, error) { return 0, errors.New(reason) })
	s.env.System = []string{filepath.Dir(system)}
	_, err := s.Open(MPICH)
	want := "open MPICH: found but not loadable: " + named + ": " + reason + "; " + system + ": " + reason +
		": install the missing library, load the cluster's module for it, or add its folder to LD_LIBRARY_PATH (ldd " + named + " lists what it needs); searched: "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// TestRealMissingDependency loads the math library after a change: it needs libq.so.6 instead of
// libc.so.6. The loader itself finds it neither by its path nor, under a new name, by its plain name.
func TestRealMissingDependency(t *testing.T) {
	raw := bytes.ReplaceAll(mathLibrary(t), []byte("\x00libc.so.6\x00"), []byte("\x00libq.so.6\x00"))
	path := filepath.Join(t.TempDir(), "libmpich.so.12")
	if err := os.WriteFile(path, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := dlopen(path)
	if want := "libq.so.6: cannot open shared object file: No such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	for _, absent := range []string{"libq.so.6", path + ".1"} {
		if _, err := dlopen(absent); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want that there is no such file", absent, err)
		}
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := dlopen(path); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), path+": ") {
		t.Errorf("a part of a library: got %v", err)
	}
}

// mathLibrary returns the content of the C library's libm.so.6.
func mathLibrary(t *testing.T) []byte {
	t.Helper()
	if !Supported {
		t.Skip("no C library can be opened on this system")
	}
	if _, err := dlopen("libm.so.6"); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(mappedLibraryPath("libm.so.6"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestSearchIsLazy checks that nothing is searched, and python3 is not run, before Open.
func TestSearchIsLazy(t *testing.T) {
	asked := 0
	s := NewSearch(Environment{Getenv: func(string) string { asked++; return "" }, Python: func(context.Context) ([]string, error) { asked++; return nil, nil }})
	if asked != 0 || s == nil {
		t.Errorf("asked %d times", asked)
	}
}

// TestMissingSymbolsOfARealLibrary opens the math library under NCCL's name. It lacks every
// function.
func TestMissingSymbolsOfARealLibrary(t *testing.T) {
	raw := mathLibrary(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "libnccl.so.2")
	if err := os.WriteFile(path, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	s := NewSearch(Environment{
		Getenv: func(name string) string { return map[string]string{LibraryPathVariable: dir}[name] },
		Python: func(context.Context) ([]string, error) { return nil, errors.New("no python") }, System: []string{},
	})
	lib, err := s.Open(NCCL)
	if err != nil {
		t.Fatal(err)
	}
	b := symbolResolver{lib: lib}
	if b.lookUp("cos") == 0 || b.lookUp("ncclAllReduce") != 0 || b.lookUp("ncclBroadcast") != 0 {
		t.Error("symbols are not found as they are")
	}
	want := "bind NCCL (" + path + "): it has no functions ncclAllReduce, ncclBroadcast: it is too old, or a different library with the same file name; " +
		"install a newer one or name its folder in LOCKSTEP_CUDA_PATH"
	if err := b.missingSymbolsError(); err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}
