package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	kernelDir      = "kernels/lockstep-kernel"
	upstreamPrefix = "gophernotes_" // prefix of the names of gophernotes' files in kernelDir
)

// lintKernel runs go vet and the linter on the kernel, without staticcheck, which would also analyze all modules
// of gophernotes and the interpreter. Half of the kernel's files and folders exist only in the overlay of
// kernels/build, but go vet starts its tool in each package's folder. Therefore lintKernel copies the module,
// with the overlay's files as real files.
func lintKernel(ctx context.Context, r *runner) error {
	if err := r.runCommand(ctx, nil, "go", "run", "./kernels/build"); err != nil { // quick if the phase binaries has run
		return err
	}
	tree := absolutePath("kernels/.build/vet")
	if err := writeKernelTree(absolutePath("."), tree); err != nil {
		return fmt.Errorf("copy kernel's files: %w", err)
	}
	own, upstream := 0, 0 // numbers of findings; findings in gophernotes' files are not reported as errors
	sort := func(line string) {
		if strings.Contains(line, kernelDir+"/"+upstreamPrefix) { // a cached finding has the path in another checkout
			upstream++
			return
		}
		own++
		r.printLine(line)
	}
	err := r.streamOutput(ctx, nil, sort, "go", "vet", "-C", tree, "-trimpath", "-tags=notebook", "./"+kernelDir)
	if err != nil && (own > 0 || upstream == 0) {
		return fmt.Errorf("vet kernel: %w", err)
	}
	linter, env, err := r.findLinter(ctx)
	if err != nil {
		return err
	}
	return r.runCommand(ctx, env, "sh", "-c", `cd "$1" && exec "$2" run "$4" --disable=govet,staticcheck --build-tags=notebook "./$3"`, "sh", tree, linter, kernelDir, allowOthers)
}

// writeKernelTree writes a copy of the module to the folder tree: the kernel's files with the overlay applied,
// and symbolic links to all other folders.
func writeKernelTree(root, tree string) error {
	generated := filepath.Join(root, "kernels", ".build", "gen")
	text, err := os.ReadFile(filepath.Join(generated, "overlay.json"))
	if err != nil {
		return err
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil {
		return fmt.Errorf("read overlay.json: %w", err)
	}
	if err := os.RemoveAll(tree); err != nil {
		return err
	}
	files := map[string]string{ // path in the tree -> file to copy
		"go.mod":        filepath.Join(generated, "go.mod"),
		"go.sum":        filepath.Join(generated, "go.sum"),
		".golangci.yml": filepath.Join(root, ".golangci.yml"),
	}
	for seen, real := range overlay.Replace {
		name, err := filepath.Rel(root, seen)
		if err != nil || !filepath.IsLocal(name) {
			return errors.Join(fmt.Errorf("overlay.json maps %s, which is outside %s", seen, root), err)
		}
		files[name] = real
	}
	own, err := os.ReadDir(filepath.Join(root, kernelDir))
	if err != nil {
		return err
	}
	for _, f := range own {
		if name := filepath.Join(kernelDir, f.Name()); f.Type().IsRegular() {
			files[name] = filepath.Join(root, name)
		}
	}
	for name, from := range files {
		if err := copyFile(filepath.Join(tree, name), from); err != nil {
			return err
		}
	}
	links := []string{"pkg", "environment/sites", "logs/published", "logs/recorded", "notebooks/course"}
	folders, err := os.ReadDir(filepath.Join(root, "kernels"))
	if err != nil {
		return err
	}
	for _, d := range folders {
		if d.IsDir() && d.Name() != ".build" && d.Name() != filepath.Base(kernelDir) {
			links = append(links, filepath.Join("kernels", d.Name()))
		}
	}
	for _, name := range links {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(tree, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(dst, src string) error {
	text, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	return os.WriteFile(dst, text, 0o644)
}
