package cell

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CheckImports returns an error for the first import that is not compiled into
// the kernel: has says which packages are, and known lists those to name and to
// suggest. Without it the interpreter would try to fetch and compile the
// package, which a kernel with neither compiler nor network cannot.
func (c Cell) CheckImports(has func(path string) bool, known []string) error {
	for _, imp := range c.Imports {
		if !has(imp.Path) {
			return &MissingError{Import: imp, Known: known}
		}
	}
	return nil
}

// A MissingError says that a cell imports a package that is not compiled in.
type MissingError struct {
	Import Import
	Known  []string // what is compiled in
}

func (e *MissingError) Error() string {
	path := e.Import.Path
	var b strings.Builder
	fmt.Fprintf(&b, "line %d: import %q: this package is not compiled into the kernel", e.Import.Line, path)
	if near := Nearest(path, e.Known); len(near) > 0 {
		for i := range near {
			near[i] = strconv.Quote(near[i])
		}
		fmt.Fprintf(&b, "\ndid you mean %s?", strings.Join(near, " or "))
	}
	fmt.Fprintf(&b, "\ncompiled in are: %s", strings.Join(Summary(e.Known), ", "))
	switch {
	case path == GPUPackage || strings.HasPrefix(path, GPUPackage+"/"):
		b.WriteString("\nto have it: " + GPUBuild)
	case !strings.Contains("/"+path+"/", "/internal/") && strings.Contains(path, "."):
		fmt.Fprintf(&b, "\nto have it: add its module to the project's go.mod, run \"go run ./kernels/build -add %s\" "+
			"and \"kernels/.build/bin/lockstep kernel install\", and restart the kernel", path)
	}
	return b.String()
}

const (
	// GPUPackage needs cgo, so a kernel has it only if it was built with a tag.
	GPUPackage = "gorgonia.org/cu"

	// GPUBuild says how to make such a kernel.
	GPUBuild = "run \"go run ./kernels/build -tags nvgpu\" and \"kernels/.build/bin/lockstep kernel install\", " +
		"and restart the kernel; it needs gcc, but neither CUDA nor a GPU"
)

// Summary shortens a list of packages to what a reader wants to know: the
// standard library as one, this project's by name, the rest by the folder that
// they share.
func Summary(paths []string) []string {
	var own, others []string
	std := false
	for _, p := range paths {
		if name, ok := strings.CutPrefix(p, ownPrefix); ok {
			own = append(own, name)
		} else if !strings.Contains(strings.Split(p, "/")[0], ".") {
			std = true
		} else {
			others = append(others, head(p))
		}
	}
	var list []string
	if std {
		list = append(list, "the Go standard library")
	}
	if len(own) > 0 {
		list = append(list, ownPrefix+"{"+strings.Join(own, ",")+"}")
	}
	slices.Sort(others)
	return append(list, slices.Compact(others)...)
}

// ownPrefix begins the import path of each of this project's packages.
const ownPrefix = "lockstep/pkg/"

// head is the part of another module's path that Summary shows.
func head(path string) string {
	elems := strings.Split(path, "/")
	n := 2
	if len(elems) > 2 && (elems[1] == "v1" || elems[0] == "github.com") {
		n = 3
	}
	return strings.Join(elems[:min(n, len(elems))], "/")
}

// Nearest returns the known import paths or names that the writer of path may
// have meant, at most 3, the likeliest first: those that end in the same name,
// then those that differ by a slip of the keyboard, in all or in the last name.
func Nearest(path string, known []string) []string {
	const slip = 2 // letters
	type candidate struct {
		path string
		at   int
	}
	var list []candidate
	name := last(path)
	for _, k := range known {
		whole, end := distance(path, k), distance(name, last(k))
		switch {
		case end == 0:
			list = append(list, candidate{k, 0})
		case whole <= slip && whole < len(path)/2:
			list = append(list, candidate{k, whole})
		case end <= slip && end < len(name)/2:
			list = append(list, candidate{k, slip + end})
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return a.at - b.at })
	var near []string
	for _, c := range list[:min(3, len(list))] {
		near = append(near, c.path)
	}
	return near
}

// last is the last name of an import path.
func last(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// distance is the least number of slips of the keyboard that turn a into b: a
// byte inserted, deleted or changed, or two neighbors exchanged (the optimal
// string alignment distance).
func distance(a, b string) int {
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
