//go:build notebook

package main

import (
	"errors"
	"fmt"

	"github.com/cosmos72/gomacro/base/output"
	interp "github.com/cosmos72/gomacro/fast"

	"lockstep/kernels/internal/cell"
	"lockstep/pkg/figure"
	"lockstep/pkg/train"
)

// fieldValues lists what the string in a struct's field may be; see
// introspect.Inspector.Values.
func fieldValues() map[string]func() []string {
	return map[string]func() []string{
		"lockstep/pkg/launch.Sweep.Config": train.Names,
		"lockstep/pkg/report.Options.Only": figure.Names,
	}
}

// placed returns what compiling a cell panicked with, as an error that begins
// with its place. Some of the interpreter's errors have none; they are about the
// node that was compiled last.
func placed(ir *interp.Interp, r any) any {
	var e output.RuntimeError
	err, ok := r.(error)
	if !ok || !errors.As(err, &e) || filePlace.MatchString(err.Error()) {
		return r
	}
	pos := ir.Comp.Fileset.Position(ir.Comp.Pos)
	if placeOf(ir.Comp.Fileset, ir.Comp.Pos).line == 0 {
		return r
	}
	return fmt.Errorf("%s:%d:%d: %w", pos.Filename, pos.Line, pos.Column, err)
}

// explained adds what to do to the error of a cell that could not be compiled.
func (k *kernelState) explained(code string, err error) error {
	var c *cellError
	if !errors.As(err, &c) {
		return err
	}
	text := c.err.Error()
	m := filePlace.FindStringSubmatch(text)
	if m == nil {
		return err // the cell was running
	}
	p := placeIn(m)
	text = cell.Source(text[len(m[0]):])
	text = guarded(func() string { return k.inspector.Explain(code, p.line, p.column, text) })
	if text == "" {
		return err
	}
	return &cellError{name: c.name, text: fmt.Sprintf("%v: %s", p, text), err: err, places: c.places}
}
