package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// computeBuildID returns a hash of the binaries' sources: go.mod, go.sum and every source file of the
// folders below (Go, assembly and embedded files; not tests, Markdown and notebooks).
func computeBuildID(root string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := hashFile(h, root, name); err != nil {
			return "", err
		}
	}
	for _, dir := range []string{"pkg", "kernels", "environment/sites", "logs/published", "logs/recorded", "notebooks/course"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // a file that an editor has just renamed
			case err != nil:
				return err
			case d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
				return filepath.SkipDir
			case !d.Type().IsRegular() || !isSource(d.Name()):
				return nil
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			return hashFile(h, root, rel)
		})
		if err != nil {
			return "", fmt.Errorf("hash sources of %s: %w", dir, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// isSource reports whether a file of this name can affect the binaries.
func isSource(name string) bool {
	return !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, "_test.go") &&
		!strings.HasSuffix(name, ".md") && !strings.HasSuffix(name, ".ipynb") && !strings.HasSuffix(name, "~")
}

func hashFile(h hash.Hash, root, name string) error {
	f, err := os.Open(filepath.Join(root, name))
	if err != nil {
		return fmt.Errorf("hash sources: %w", err)
	}
	defer f.Close() // only read from
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("hash sources: %w", err)
	}
	fmt.Fprintf(h, "%s %d\n", filepath.ToSlash(name), info.Size())
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("hash sources: read %s: %w", name, err)
	}
	return nil
}

// A stamp describes the inputs of a build, and is stored with the binaries. A build with an equal stamp has
// nothing to do.
type stamp struct {
	path string
	text string
}

// newStamp returns the stamp of a build with the given id into the folder dir.
func newStamp(dir, id string, inputs ...string) stamp {
	return stamp{path: filepath.Join(dir, ".stamp"), text: "build id " + id + "\n" + strings.Join(inputs, "\n") + "\n"}
}

// isCurrent reports whether the last build had this stamp and its outputs are unchanged.
func (s stamp) isCurrent(outputs []string) bool {
	old, err := os.ReadFile(s.path)
	if err != nil {
		return false
	}
	files, ok := describeFiles(outputs)
	return ok && string(old) == s.text+files
}

// write stores the stamp after a successful build.
func (s stamp) write(outputs []string) error {
	files, ok := describeFiles(outputs)
	if !ok {
		return fmt.Errorf("write stamp: a binary is missing: %s", strings.Join(outputs, ", "))
	}
	if err := os.WriteFile(s.path, []byte(s.text+files), 0o644); err != nil {
		return fmt.Errorf("write stamp: %w", err)
	}
	return nil
}

// describeFiles returns names, sizes and modification times. ok is false if a file is missing.
func describeFiles(paths []string) (text string, ok bool) {
	var b strings.Builder
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return "", false
		}
		fmt.Fprintf(&b, "%s %d %s\n", filepath.Base(p), info.Size(), info.ModTime().UTC().Format("20060102T150405.000000000"))
	}
	return b.String(), true
}
