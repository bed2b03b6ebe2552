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

// fieldValues returns functions that list the valid values of string fields, by field;
// see introspect.Inspector.Values.
func fieldValues() map[string]func() []string {
	return map[string]func() []string{
		"lockstep/pkg/launch.Sweep.Config": train.Names,
		"lockstep/pkg/report.Options.Only": figure.Names,
	}
}

// placed adds a position to r, the value with which the compilation of a cell panicked,
// if r is an error of the interpreter without one. The position is that of the node that
// was compiled last.
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

// explained adds advice to the error of a cell that could not be compiled. It returns
// other errors unchanged.
func (k *kernelState) explained(code string, err error) error {
	var c *cellError
	if !errors.As(err, &c) {
		return err
	}
	text := c.err.Error()
	m := filePlace.FindStringSubmatch(text)
	if m == nil {
		return err // an error at run time
	}
	p := placeIn(m)
	text = cell.Source(text[len(m[0]):])
	text = guarded(func() string { return k.inspector.Explain(code, p.line, p.column, text) })
	if text == "" {
		return err
	}
	return &cellError{name: c.name, text: fmt.Sprintf("%v: %s", p, text), err: err, places: c.places}
}
