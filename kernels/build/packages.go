package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// thirdPartyPackages returns the packages of other modules that a cell can import. The flag -add adds more.
func thirdPartyPackages() []string {
	return []string{
		"github.com/go-gota/gota/dataframe",
		"github.com/go-gota/gota/series",

		"gonum.org/v1/gonum/blas",
		"gonum.org/v1/gonum/blas/blas32",
		"gonum.org/v1/gonum/blas/blas64",
		"gonum.org/v1/gonum/diff/fd",
		"gonum.org/v1/gonum/dsp/fourier",
		"gonum.org/v1/gonum/dsp/window",
		"gonum.org/v1/gonum/floats",
		"gonum.org/v1/gonum/floats/scalar",
		"gonum.org/v1/gonum/integrate",
		"gonum.org/v1/gonum/integrate/quad",
		"gonum.org/v1/gonum/interp",
		"gonum.org/v1/gonum/mat",
		"gonum.org/v1/gonum/mathext",
		"gonum.org/v1/gonum/optimize",
		"gonum.org/v1/gonum/optimize/convex/lp",
		"gonum.org/v1/gonum/spatial/r2",
		"gonum.org/v1/gonum/spatial/r3",
		"gonum.org/v1/gonum/stat",
		"gonum.org/v1/gonum/stat/combin",
		"gonum.org/v1/gonum/stat/distmv",
		"gonum.org/v1/gonum/stat/distuv",
		"gonum.org/v1/gonum/stat/sampleuv",

		"gonum.org/v1/plot",
		"gonum.org/v1/plot/font",
		"gonum.org/v1/plot/palette",
		"gonum.org/v1/plot/palette/brewer",
		"gonum.org/v1/plot/palette/moreland",
		"gonum.org/v1/plot/plotter",
		"gonum.org/v1/plot/plotutil",
		"gonum.org/v1/plot/text",
		"gonum.org/v1/plot/vg",
		"gonum.org/v1/plot/vg/draw",
		"gonum.org/v1/plot/vg/vgimg",
		"gonum.org/v1/plot/vg/vgpdf",
		"gonum.org/v1/plot/vg/vgsvg",

		"gorgonia.org/gorgonia",
		"gorgonia.org/gorgonia/encoding/dot",
		"gorgonia.org/tensor",
	}
}

// listPackages returns the import paths that match a pattern, without packages that a cell cannot import and
// folders that contain only tests.
func listPackages(ctx context.Context, g goTool, pattern string) ([]string, error) {
	out, err := g.run(ctx, "list", "-f", "{{if or .GoFiles .CgoFiles}}{{.Name}} {{.ImportPath}}{{end}}", pattern)
	if err != nil {
		return nil, fmt.Errorf("list packages %s: %w", pattern, err)
	}
	var paths []string
	for line := range strings.Lines(out) {
		name, path, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && isImportable(name, path) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// isImportable reports whether a cell may import a package. unsafe has no object file to read types from;
// the interpreter supports it without registration.
func isImportable(name, path string) bool {
	if name == "main" || path == "unsafe" || path == "builtin" {
		return false
	}
	for elem := range strings.SplitSeq(path, "/") {
		if elem == "internal" || elem == "vendor" || elem == "testdata" {
			return false
		}
	}
	return true
}

// goTool runs the go command in the folder dir with a fixed environment.
type goTool struct {
	dir string
	env []string
}

// run returns the standard output. An error contains the standard error.
func (g goTool) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = g.dir, g.env
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return string(out), nil
}
