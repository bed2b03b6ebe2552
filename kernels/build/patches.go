package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

type patches map[string]patch

type patch struct {
	name string // of the file in kernels/patches
	diff *gitdiff.File
}

// readPatches reads the files of kernels/patches whose names begin with module: unified diffs after a text
// that explains the change. Each changes other files.
func (b *build) readPatches(module string) (patches, error) {
	names, err := filepath.Glob(filepath.Join(b.dir, "kernels", "patches", module+"*.patch"))
	if err != nil {
		return nil, fmt.Errorf("list patches: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("list patches: there is no kernels/patches/%s*.patch", module)
	}
	all := patches{}
	for _, path := range names {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read patch: %w", err)
		}
		if err := all.add(filepath.Base(path), text); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p patches) add(name string, text []byte) error {
	diffs, _, err := gitdiff.Parse(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("read patch %s: %w", name, err)
	}
	if len(diffs) == 0 {
		return fmt.Errorf("read patch %s: it changes no file", name)
	}
	for _, diff := range diffs {
		if before, ok := p[diff.NewName]; ok {
			return fmt.Errorf("read patch %s: %s changes %s too", name, before.name, diff.NewName)
		}
		p[diff.NewName] = patch{name, diff}
	}
	return nil
}

// checkFiles returns an error unless dir has every file that is changed.
func (p patches) checkFiles(dir string) error {
	for file, change := range p {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return fmt.Errorf("apply patch %s: %w", change.name, err)
		}
	}
	return nil
}

// apply returns src with the changes to file, if there are any. It returns an error unless src has exactly
// the lines that the patch shows: otherwise the module has changed, and a kernel built from it could
// misbehave unnoticed.
func (p patches) apply(file string, src []byte) ([]byte, error) {
	change, ok := p[file]
	if !ok {
		return src, nil
	}
	var out bytes.Buffer
	if err := gitdiff.Apply(&out, bytes.NewReader(src), change.diff); err != nil {
		return nil, fmt.Errorf("apply patch %s to %s: %w; the module's source has changed", change.name, file, err)
	}
	return out.Bytes(), nil
}
