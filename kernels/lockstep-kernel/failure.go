//go:build notebook

package main

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"

	interp "github.com/cosmos72/gomacro/fast"
)

const (
	// cellFile is the name of the file that the interpreter takes a cell for.
	cellFile = "cell"

	// nowhere is the place of a declaration; see withChecks.
	nowhere = -1
)

// place matches what the interpreter puts before an error in a cell.
var place = regexp.MustCompile(`^` + cellFile + `:(\d+):(\d+): `)

// failure is the error of a cell that panicked with v, while the statement k.at
// of nodes ran or before any did. It begins with the place in the cell.
func (k *kernelState) failure(ir *interp.Interp, nodes []ast.Node, v any) error {
	err, ok := v.(error)
	if !ok {
		err = fmt.Errorf("%v", v)
	}
	text := err.Error()
	if m := place.FindStringSubmatch(text); m != nil {
		return &cellError{fmt.Sprintf("line %s, column %s: %s", m[1], m[2], strings.TrimPrefix(text, m[0])), err}
	}
	if k.at < 0 || k.at >= len(nodes) {
		return err
	}
	pos := ir.Comp.Fileset.Position(nodes[k.at].Pos())
	return &cellError{fmt.Sprintf("line %d, column %d: %s", pos.Line, pos.Column, text), err}
}

// A cellError is an error with its place in the cell.
type cellError struct {
	text string
	err  error
}

func (e *cellError) Error() string { return e.text }
func (e *cellError) Unwrap() error { return e.err }
