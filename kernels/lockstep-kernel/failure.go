//go:build notebook

package main

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"

	"github.com/cosmos72/gomacro/base"
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
	if v == base.SigInterrupt {
		return errInterrupted
	}
	text := err.Error()
	if m := place.FindStringSubmatch(text); m != nil {
		return &cellError{fmt.Sprintf("line %s, column %s: %s", m[1], m[2], strings.TrimPrefix(text, m[0])), err}
	}
	if k.at < 0 || k.at >= len(nodes) {
		return err
	}
	pos := ir.Comp.Fileset.Position(nodes[k.at].Pos())
	inner := ir.Comp.Fileset.Position(k.inner)
	here := ir.Comp.Fileset.File(k.inner) == ir.Comp.Fileset.File(nodes[k.at].Pos())
	switch {
	case !k.inner.IsValid() || inner.Line == 0 || here && inner.Line == pos.Line:
	case !here:
		text = fmt.Sprintf("%s (line %d, column %d of an earlier cell)", text, inner.Line, inner.Column)
	case k.called || nodes[k.at].Pos() <= k.inner && k.inner < nodes[k.at].End():
		return &cellError{fmt.Sprintf("line %d, column %d: %s (called from line %d)", inner.Line, inner.Column, text, pos.Line), err}
	}
	return &cellError{fmt.Sprintf("line %d, column %d: %s", pos.Line, pos.Column, text), err}
}

// A cellError is an error with its place in the cell.
type cellError struct {
	text string
	err  error
}

func (e *cellError) Error() string { return e.text }
func (e *cellError) Unwrap() error { return e.err }
