//go:build notebook

package main

import (
	"errors"
	"fmt"

	"github.com/cosmos72/gomacro/base/output"
	interp "github.com/cosmos72/gomacro/fast"

	"lockstep/pkg/figure"
	"lockstep/pkg/launch"
	"lockstep/pkg/train"
)

// validFieldValues returns the value of introspect.Inspector.Values.
func validFieldValues() map[string]func() []string {
	return map[string]func() []string{
		"lockstep/pkg/launch.Sweep.Config": train.Names,
		"lockstep/pkg/launch.Sweep.Bind":   func() []string { return []string{launch.BindCores, launch.BindNUMA, launch.BindNone} },
		"lockstep/pkg/report.Options.Only": figure.Names,
	}
}

// addPosition adds the position of the last compiled node to r, the panic value of a compilation, if r is an
// error of the interpreter without a position.
func addPosition(ir *interp.Interp, r any) any {
	var e output.RuntimeError
	err, ok := r.(error)
	if !ok || !errors.As(err, &e) || positionPattern.MatchString(err.Error()) {
		return r
	}
	pos := ir.Comp.Fileset.Position(ir.Comp.Pos)
	if positionInCell(ir.Comp.Fileset, ir.Comp.Pos).line == 0 {
		return r
	}
	return fmt.Errorf("%s:%d:%d: %w", pos.Filename, pos.Line, pos.Column, err)
}

// addAdvice adds advice to the error of a cell that could not be compiled, and returns other errors unchanged.
func (k *kernelState) addAdvice(code string, err error) error {
	var c *cellError
	if !errors.As(err, &c) {
		return err
	}
	text := c.err.Error()
	m := positionPattern.FindStringSubmatch(text)
	if m == nil {
		return err // an error at run time
	}
	p := parsePosition(m)
	text = simplifyMessage(text[len(m[0]):])
	text = callOrZero(func() string { return k.inspector.Explain(code, p.line, p.column, text) })
	if text == "" {
		return err
	}
	return &cellError{name: c.name, text: fmt.Sprintf("%v: %s", p, text), err: err, places: c.places}
}
