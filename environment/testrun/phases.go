package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const (
	module = "lockstep"
	cache  = "environment/.cache"
	linter = "github.com/golangci/golangci-lint/v2"
)

// concurrent returns the packages in which goroutines or processes share data, for the
// race detector. The numerics of pkg/engine/cpu/internal start no goroutines, so they are
// left out; the engine that divides their work among goroutines is included.
func concurrent() []string {
	return []string{
		"./pkg/collective/...", "./pkg/strategy/...", "./pkg/data/...", "./pkg/launch/...", "./pkg/runs/...",
		"./pkg/notebook/...", "./pkg/train/...", "./pkg/tune/...", "./pkg/verify/...", "./pkg/engine/cpu",
	}
}

// allPhases returns all phases, the quick ones first.
func allPhases() []phase {
	return []phase{
		{"gofmt", "all Go files are formatted", gofmt},
		{"scripts", "shell and Python scripts parse", scripts},
		{"build", "everything builds without cgo", func(ctx context.Context, r *runner) error {
			return r.command(ctx, nil, "go", "build", "./...")
		}},
		{"vet", "go vet of the packages with assembly; of all others in lint", func(ctx context.Context, r *runner) error {
			return r.vetAssembly(ctx, nil)
		}},
		{"arm64", "everything builds on a processor without assembly of ours", arm64},
		{"lint", "golangci-lint with .golangci.yml", lint},
		{"binaries", "the command and the kernel", binaries},
		{"kernellint", "go vet and golangci-lint of the kernel", kernelLint},
		{"unit", "unit, property, golden and example tests, with coverage", unit},
		{"race", "race detector, where goroutines meet", race},
		{"kernel", "the kernel, under a real Jupyter", kernel},
		{"notebook", "every notebook of notebooks/, run from top to bottom", notebooks},
	}
}

func gofmt(ctx context.Context, r *runner) error {
	files, err := sources(".go")
	if err != nil {
		return err
	}
	root, err := output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	out, err := output(ctx, filepath.Join(root, "bin", "gofmt"), append([]string{"-l"}, files...)...)
	if err != nil {
		return err
	}
	if out != "" {
		return fmt.Errorf("not formatted (gofmt -w): %s", strings.Join(strings.Fields(out), ", "))
	}
	r.line(fmt.Sprintf("%d files", len(files)))
	return nil
}

// sources returns the files of the checkout whose names have one of the endings, without
// generated files and test data.
func sources(endings ...string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(name, ".") && name != ".ci" || name == "testdata" || path == "logs"):
			return filepath.SkipDir
		case d.Type().IsRegular() && slices.Contains(endings, filepath.Ext(name)):
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

func scripts(ctx context.Context, r *runner) error {
	shell, err := sources(".sh")
	if err != nil {
		return err
	}
	shell = append(shell, ".ci/run", "environment/demo", "environment/faults", "environment/gpu-check", "environment/test")
	for _, s := range shell {
		if err := r.command(ctx, nil, "bash", "-n", s); err != nil {
			return err
		}
	}
	check := "import ast,sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]"
	return r.command(ctx, nil, python(), "-c", check, "environment/execute-notebook")
}

func arm64(ctx context.Context, r *runner) error {
	env := []string{"GOARCH=arm64"}
	if runtime.GOARCH == "arm64" {
		env = []string{"GOARCH=amd64"}
	}
	if err := r.command(ctx, env, "go", "build", "./..."); err != nil {
		return err
	}
	return r.vetAssembly(ctx, env)
}

// vetAssembly runs go vet on the packages that have assembly for any processor. The
// linter runs the same analyzers on all packages, but does not compare assembly with its
// declarations in Go.
func (r *runner) vetAssembly(ctx context.Context, env []string) error {
	var packages []string
	list := func(line string) { packages = append(packages, strings.Fields(line)...) }
	if err := r.stream(ctx, env, list, "go", "list", "-f", "{{if or .SFiles .IgnoredOtherFiles}}{{.ImportPath}}{{end}}", "./..."); err != nil {
		return err
	}
	r.line(strings.Join(packages, ", "))
	return r.command(ctx, env, "go", append([]string{"vet"}, packages...)...)
}

func lint(ctx context.Context, r *runner) error {
	file, env, err := r.linter(ctx)
	if err != nil {
		return err
	}
	return r.command(ctx, env, file, "run", "--timeout=10m", "./...")
}

// linter returns the path of the linter and the environment variables to run it with. If
// the linter has not been built yet, it is built in the version that environment/tools
// selects.
func (r *runner) linter(ctx context.Context) (file string, env []string, err error) {
	version, err := output(ctx, "go", "list", "-C", "environment/tools", "-m", "-f", "{{.Version}}", linter)
	if err != nil {
		return "", nil, err
	}
	goVersion, err := output(ctx, "go", "env", "GOVERSION")
	if err != nil {
		return "", nil, err
	}
	// A linter built with an older Go cannot read code for the current one, so the file's
	// name contains both versions.
	file, err = filepath.Abs(filepath.Join(cache, "golangci-lint-"+version+"-"+goVersion))
	if err != nil {
		return "", nil, err
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		r.line("building golangci-lint " + version)
		if err := r.command(ctx, nil, "go", "build", "-C", "environment/tools", "-trimpath", "-ldflags=-s -w", "-o", file+".next", linter+"/cmd/golangci-lint"); err != nil {
			return "", nil, err
		}
		if err := os.Rename(file+".next", file); err != nil {
			return "", nil, err
		}
	}
	lintCache, err := filepath.Abs(filepath.Join(cache, "lint"))
	if err != nil {
		return "", nil, err
	}
	return file, []string{"GOLANGCI_LINT_CACHE=" + lintCache}, nil
}

// binaries builds the command and the kernel. It installs the kernel in a separate
// folder, so that the user's kernelspecs are not changed.
func binaries(ctx context.Context, r *runner) error {
	if err := r.command(ctx, nil, "go", "run", "./kernels/build"); err != nil {
		return err
	}
	if err := os.RemoveAll(prefix()); err != nil {
		return err
	}
	return r.command(ctx, nil, "kernels/.build/bin/lockstep", "kernel", "install", "--prefix", prefix())
}

func prefix() string { return absolute(filepath.Join(cache, "prefix")) }

// jupyterEnv returns the environment variable with which Jupyter finds the kernel of the
// phase binaries before any other kernel of the same name.
func jupyterEnv() []string {
	return []string{"JUPYTER_PATH=" + filepath.Join(prefix(), "share", "jupyter")}
}

func unit(ctx context.Context, r *runner) error {
	out, err := output(ctx, "go", "list", "./...")
	if err != nil {
		return err
	}
	packages := slices.DeleteFunc(strings.Fields(out), func(p string) bool { return strings.HasPrefix(p+"/", module+"/kernels/") })
	return r.goTest(ctx, nil, append([]string{"-cover"}, packages...)...)
}

func race(ctx context.Context, r *runner) error {
	return r.goTest(ctx, []string{"CGO_ENABLED=1"}, append([]string{"-race"}, concurrent()...)...)
}

// kernel runs the kernel's tests. Their results are never cached: the tests run binaries
// that go test does not track.
func kernel(ctx context.Context, r *runner) error {
	return r.goTest(ctx, jupyterEnv(), "-count=1", "./kernels/...")
}

// python returns the Python interpreter for which environment/test has found Jupyter.
func python() string {
	if p := os.Getenv("LOCKSTEP_PYTHON"); p != "" {
		return p
	}
	return "python3"
}

func absolute(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path // a relative path works as well
	}
	return filepath.Join(wd, path)
}
