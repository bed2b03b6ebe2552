package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	interpreterModule  = "github.com/cosmos72/gomacro"
	interpreterVersion = "v0.0.0-20240506194242-2ff796e3da10"
)

// addInterpreter maps the patched files of gomacro into a folder that is otherwise empty. The flag makes go
// build use it.
func (b *build) addInterpreter(ctx context.Context, ov *overlay) (flag string, err error) {
	version, dir, err := findModule(ctx, b.goTool, interpreterModule)
	if err != nil {
		return "", fmt.Errorf("find interpreter: %w", err)
	}
	if version != interpreterVersion {
		return "", fmt.Errorf("find interpreter: go.mod selects %s %s, but kernels/patches fits only %s",
			interpreterModule, version, interpreterVersion)
	}
	seen := filepath.Join(b.dir, "kernels", ".build", "gomacro")
	changes, err := b.readPatches("gomacro")
	if err != nil {
		return "", err
	}
	if err := ov.addModule(interpreterModule, dir, seen, changes); err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(b.dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("replace interpreter: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(b.dir, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("replace interpreter: %w", err)
	}
	mod = fmt.Appendf(mod, "\nreplace %s => ./kernels/.build/gomacro\n", interpreterModule)
	file := filepath.Join(ov.genDir, "go.mod")
	if err := ov.writeUnmapped(file, mod); err != nil {
		return "", err
	}
	return "-modfile=" + file, ov.writeUnmapped(filepath.Join(ov.genDir, "go.sum"), sum)
}

// addModule maps the patched files of a module from dir into target. It creates the folder of each package
// with assembly, because the go command starts the assembler there.
func (o *overlay) addModule(module, dir, target string, changes patches) error {
	if err := changes.checkFiles(dir); err != nil {
		return err
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if strings.HasSuffix(name, ".s") {
			if err := os.MkdirAll(filepath.Join(target, filepath.Dir(name)), 0o755); err != nil {
				return err
			}
		}
		if _, changed := changes[name]; !changed {
			o.replace[filepath.Join(target, name)] = path
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := changes.apply(name, src)
		if err != nil {
			return err
		}
		return o.addGenerated(filepath.Join(target, name), filepath.Join("gomacro", name), text)
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", module, err)
	}
	return nil
}
