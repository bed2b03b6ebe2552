package cell

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CheckImports returns a *MissingPackageError for the first import of a package that is not compiled into the
// kernel, or nil. has reports whether a package is compiled in; known lists the packages that the error may
// suggest. Otherwise the interpreter would try to fetch and compile it, which needs compiler and network.
func (c Cell) CheckImports(has func(path string) bool, known []string) error {
	for _, imp := range c.Imports {
		if !has(imp.Path) {
			return &MissingPackageError{Import: imp, Known: known}
		}
	}
	return nil
}

// A MissingPackageError reports the import of a package that is not compiled into the kernel.
type MissingPackageError struct {
	Import Import
	Known  []string // import paths of the packages that are compiled in
}

func (e *MissingPackageError) Error() string {
	path := e.Import.Path
	var b strings.Builder
	fmt.Fprintf(&b, "line %d: import %q: this package is not compiled into the kernel", e.Import.Line, path)
	if near := NearestNames(path, e.Known); len(near) > 0 {
		for i := range near {
			near[i] = strconv.Quote(near[i])
		}
		fmt.Fprintf(&b, "\ndid you mean %s?", strings.Join(near, " or "))
	}
	fmt.Fprintf(&b, "\nthe kernel contains: %s", strings.Join(summarizePaths(e.Known), ", "))
	switch {
	case path == GPUPackage || strings.HasPrefix(path, GPUPackage+"/"):
		b.WriteString("\nto use it: " + GPUBuild)
	case !strings.Contains("/"+path+"/", "/internal/") && strings.Contains(path, "."):
		fmt.Fprintf(&b, "\nto use it: add its module to the project's go.mod, run \"go run ./kernels/build -add %s\" "+
			"and \"kernels/.build/bin/lockstep kernel install\", and restart the kernel", path)
	}
	return b.String()
}

const (
	// GPUPackage needs cgo, so a kernel has it only if it was built with a tag.
	GPUPackage = "gorgonia.org/cu"

	// GPUBuild is advice on how to build a kernel with GPUPackage.
	GPUBuild = "run \"go run ./kernels/build -tags nvgpu\" and \"kernels/.build/bin/lockstep kernel install\", " +
		"and restart the kernel; it needs gcc, but neither CUDA nor a GPU"
)

// summarizePaths shortens import paths for an error: one entry for the standard library, one for this project,
// and one per common folder of other modules.
func summarizePaths(paths []string) []string {
	var own, others []string
	std := false
	for _, p := range paths {
		if name, ok := strings.CutPrefix(p, ownPackagePrefix); ok {
			own = append(own, name)
		} else if !strings.Contains(strings.Split(p, "/")[0], ".") {
			std = true
		} else {
			others = append(others, modulePrefix(p))
		}
	}
	var list []string
	if std {
		list = append(list, "the Go standard library")
	}
	if len(own) > 0 {
		list = append(list, ownPackagePrefix+"{"+strings.Join(own, ",")+"}")
	}
	slices.Sort(others)
	return append(list, slices.Compact(others)...)
}

const ownPackagePrefix = "lockstep/pkg/"

// modulePrefix returns the first elements of another module's import path, such as gonum.org/v1/gonum.
func modulePrefix(path string) string {
	elems := strings.Split(path, "/")
	n := 2
	if len(elems) > 2 && (elems[1] == "v1" || elems[0] == "github.com") {
		n = 3
	}
	return strings.Join(elems[:min(n, len(elems))], "/")
}

// NearestNames returns at most 3 of the known import paths or names that are similar to path: first those with the
// same last element, then those with few typing errors in the whole path or in the last element.
func NearestNames(path string, known []string) []string {
	const maxEdits = 2
	type candidate struct {
		path string
		at   int
	}
	var list []candidate
	name := lastElement(path)
	for _, k := range known {
		whole, end := editDistance(path, k), editDistance(name, lastElement(k))
		switch {
		case end == 0, strings.EqualFold(name, k):
			list = append(list, candidate{k, 0})
		case whole <= maxEdits && whole < len(path)/2:
			list = append(list, candidate{k, whole})
		case end <= maxEdits && end < len(name)/2:
			list = append(list, candidate{k, maxEdits + end})
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return a.at - b.at })
	var near []string
	for _, c := range list[:min(3, len(list))] {
		near = append(near, c.path)
	}
	return near
}

func lastElement(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// editDistance returns the smallest number of edits from a to b. An edit inserts, deletes or changes a byte, or
// exchanges two adjacent bytes (the optimal string alignment distance).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
