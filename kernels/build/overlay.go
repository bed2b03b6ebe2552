package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	upstreamModule  = "github.com/gopherdata/gophernotes"
	upstreamVersion = "v0.7.5"
)

// gophernotesFiles returns the files of gophernotes in the kernel. compiler_version.go, which rejects Go
// before 1.11, is left out: its build constraint has a syntax that Go no longer supports.
func gophernotesFiles() []string {
	return []string{"complete.go", "display.go", "image.go", "kernel.go", "main.go", "messages.go", "x_package.go"}
}

// findGophernotes returns the folder of gophernotes in the module cache, or an error if its version or files
// are not the expected ones.
func findGophernotes(ctx context.Context, g goTool) (string, error) {
	version, dir, err := findModule(ctx, g, upstreamModule)
	if err != nil {
		return "", fmt.Errorf("find gophernotes: %w", err)
	}
	if version != upstreamVersion {
		return "", fmt.Errorf("find gophernotes: go.mod selects %s, but kernels/patches fits only %s", version, upstreamVersion)
	}
	return dir, checkGophernotesFiles(dir)
}

// findModule returns the version and the folder of a module that go.mod selects, after downloading it if needed.
func findModule(ctx context.Context, g goTool, path string) (version, dir string, err error) {
	out, err := g.run(ctx, "mod", "download", "-json", path)
	if err != nil {
		return "", "", err
	}
	var mod struct{ Version, Dir string }
	if err := json.Unmarshal([]byte(out), &mod); err != nil {
		return "", "", fmt.Errorf("read module description: %w", err)
	}
	return mod.Version, mod.Dir, nil
}

// checkGophernotesFiles returns an error if dir lacks a file of gophernotesFiles or has other Go files.
func checkGophernotesFiles(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return fmt.Errorf("list gophernotes: %w", err)
	}
	var got []string
	for _, n := range names {
		if n = filepath.Base(n); !strings.HasSuffix(n, "_test.go") && n != "compiler_version.go" {
			got = append(got, n)
		}
	}
	if want := gophernotesFiles(); !slices.Equal(got, want) {
		return fmt.Errorf("check gophernotes in %s: got files %v, want %v", dir, got, want)
	}
	return nil
}

// An overlay collects files for "go build -overlay", which maps the path that the compiler sees to the path
// of the content. So files of gophernotes and generated files never appear in the source tree.
type overlay struct {
	genDir  string            // folder of the generated files
	replace map[string]string // path that the compiler sees -> path of the content
	written map[string]bool   // paths of the files generated in this run
}

func newOverlay(genDir string) *overlay {
	return &overlay{genDir: genDir, replace: map[string]string{}, written: map[string]bool{}}
}

// addGenerated writes src to the generated file name, unless it is unchanged, and maps path to it.
func (o *overlay) addGenerated(path, name string, src []byte) error {
	real := filepath.Join(o.genDir, name)
	o.replace[path] = real
	o.written[real] = true
	return writeIfChanged(real, src)
}

// writeUnmapped writes a generated file that the compiler reads without a mapping.
func (o *overlay) writeUnmapped(path string, src []byte) error {
	o.written[path] = true
	return writeIfChanged(path, src)
}

func writeIfChanged(path string, src []byte) error {
	old, err := os.ReadFile(path)
	if err == nil && string(old) == string(src) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write generated file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write generated file: %w", err)
	}
	if err := os.WriteFile(path, src, 0o644); err != nil {
		return fmt.Errorf("write generated file: %w", err)
	}
	return nil
}

// addGophernotes maps the patched files of gophernotes from dir into kernelDir.
func (o *overlay) addGophernotes(dir, kernelDir string, changes patches) error {
	if err := changes.checkFiles(dir); err != nil {
		return err
	}
	for _, file := range gophernotesFiles() {
		src, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return fmt.Errorf("read gophernotes: %w", err)
		}
		text, err := changes.apply(file, src)
		if err != nil {
			return err
		}
		seen := filepath.Join(kernelDir, "gophernotes_"+file)
		if bytes.Equal(text, src) {
			o.replace[seen] = filepath.Join(dir, file)
			continue
		}
		if err := o.addGenerated(seen, "gophernotes_"+file, text); err != nil {
			return err
		}
	}
	return nil
}

// write writes the overlay's JSON file and returns its path. It removes generated files of earlier runs.
func (o *overlay) write() (string, error) {
	doc, err := json.MarshalIndent(map[string]any{"Replace": o.replace}, "", "\t")
	if err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	path := filepath.Join(o.genDir, "overlay.json")
	o.written[path] = true
	if err := writeIfChanged(path, doc); err != nil {
		return "", err
	}
	err = filepath.WalkDir(o.genDir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !o.written[p] {
			return os.Remove(p)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("clean generated files: %w", err)
	}
	return path, nil
}
