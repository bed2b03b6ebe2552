//go:build notebook

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"

	"github.com/cosmos72/gomacro/base"
	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/go/etoken"

	"lockstep/kernels/internal/cell"
)

// nowhere replaces the index of a statement for declarations; see withChecks.
const nowhere = -1

// fileOf returns the file name that the interpreter uses for a cell.
func fileOf(cell int) string { return fmt.Sprintf("cell[%d]", cell) }

// filePlace matches the position with which the interpreter begins an error in a cell.
var filePlace = regexp.MustCompile(`^cell\[(\d+)\]:(\d+):(\d+): `)

// A place is a position in a cell.
type place struct {
	cell         int // the cell's number, such as 3 for In [3] in a notebook
	line, column int // counted from 1
}

func (p place) String() string { return fmt.Sprintf("line %d, column %d", p.line, p.column) }

// cells stores the source of the cells that were run.
type cells struct {
	current int
	code    map[int]string // source by cell number
}

// add stores the source of a cell that is about to run.
func (c *cells) add(number int, code string) {
	if c.code == nil {
		c.code = map[int]string{}
	}
	c.current, c.code[number] = number, code
}

// placeOf returns the place of a source position, or the zero place if the position is
// not in a cell.
func placeOf(files *etoken.FileSet, at token.Pos) place {
	p := files.Position(at)
	m := filePlace.FindStringSubmatch(fmt.Sprintf("%s:%d:%d: ", p.Filename, p.Line, p.Column))
	if m == nil {
		return place{}
	}
	return placeIn(m)
}

// placeIn converts a match of filePlace to a place.
func placeIn(m []string) place {
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	return place{cell: number(m[1]), line: number(m[2]), column: number(m[3])}
}

// in returns a place as text for a message in the current cell: it names the cell only if
// the place is in another one.
func (c *cells) in(p place) string {
	if p.cell == c.current {
		return p.String()
	}
	return fmt.Sprintf("%v of cell [%d]", p, p.cell)
}

// A cellError is the error of a cell, with its position.
type cellError struct {
	name   string // kind of error: nameError, namePanic or nameCompile
	text   string // message, which begins with the place
	err    error
	places []place // the statement that ran in the cell, then the statement that failed in a called function
}

func (e *cellError) Error() string { return e.text }
func (e *cellError) Unwrap() error { return e.err }

// Kinds of errors.
const (
	nameError   = "error" // an error returned by a call that the cell does not handle
	namePanic   = "panic"
	nameCompile = "compile error"
)

// failure returns the error of a cell that panicked with v. k.at is the index in nodes of
// the statement that ran, if one did. The message begins with the position in the cell.
func (k *kernelState) failure(ir *interp.Interp, nodes []ast.Node, v any) error {
	err, ok := v.(error)
	if !ok {
		err = fmt.Errorf("%v", v)
	}
	if v == base.SigInterrupt {
		return errInterrupted
	}
	failed := &cellError{name: namePanic, err: err}
	at, called := k.inner, k.called
	if e, ok := v.(*ending); ok {
		failed.name, failed.err = nameError, e.err
		if e.at.IsValid() {
			at, called = e.at, true
		}
	}
	inner := placeOf(ir.Comp.Fileset, at)
	text := failed.err.Error()
	if m := filePlace.FindStringSubmatch(text); m != nil {
		p := placeIn(m)
		failed.name, failed.places = nameCompile, []place{p}
		failed.text = fmt.Sprintf("%s: %s", k.cells.in(p), cell.Source(strings.TrimPrefix(text, m[0])))
		return failed
	}
	if k.at < 0 || k.at >= len(nodes) {
		if failed.name == nameError {
			failed.text, failed.places = fmt.Sprintf("%s: %s", k.cells.in(inner), text), []place{inner}
			return failed
		}
		return err
	}
	node := nodes[k.at]
	outer := placeOf(ir.Comp.Fileset, node.Pos())
	within := node.Pos() <= at && at < node.End()
	switch {
	case inner.line == 0 || inner.cell == outer.cell && inner.line == outer.line:
		if failed.name == nameError && inner.line > 0 {
			outer = inner
		}
		failed.text, failed.places = fmt.Sprintf("%v: %s", outer, text), []place{outer}
	case inner.cell != outer.cell:
		failed.text, failed.places = fmt.Sprintf("%v: %s (%s)", outer, text, k.cells.in(inner)), []place{outer, inner}
	case within && failed.name == nameError:
		failed.text, failed.places = fmt.Sprintf("%v: %s", inner, text), []place{inner}
	case within || called:
		failed.text, failed.places = fmt.Sprintf("%v: %s (called from line %d)", inner, text, outer.line), []place{outer, inner}
	default:
		failed.text, failed.places = fmt.Sprintf("%v: %s", outer, text), []place{outer}
	}
	return failed
}

// publishError shows the error of a cell in the notebook. It replaces
// PublishExecutionError of gophernotes.
func publishError(receipt msgReceipt, reply map[string]interface{}, err error) error {
	name, trace := lockstep.cells.trace(err)
	reply["ename"], reply["evalue"], reply["traceback"] = name, err.Error(), trace
	return receipt.Publish("error", MIMEMap{"ename": name, "evalue": err.Error(), "traceback": trace})
}

// ANSI sequences for the colors that IPython uses.
const (
	red   = "\x1b[0;31m"
	green = "\x1b[0;32m"
	plain = "\x1b[0m"
)

// trace returns the kind of err and the lines that a notebook shows for it: around each
// place the lines of the cell, in the format of IPython, and then the error.
func (c *cells) trace(err error) (name string, lines []string) {
	name = nameError
	var places []place
	var failed *cellError
	if errors.As(err, &failed) {
		name, places = failed.name, failed.places
	}
	lines = []string{red + strings.Repeat("-", 75) + plain}
	for _, p := range places {
		lines = append(lines, c.around(p)...)
	}
	return name, append(lines, fmt.Sprintf("%s%s%s: %s", red, name, plain, err))
}

// around returns the lines of a cell around a place, with an arrow at the place's line.
func (c *cells) around(p place) []string {
	const before, after = 2, 2 // lines
	list := []string{fmt.Sprintf("Cell %sIn[%d], line %d%s", green, p.cell, p.line, plain)}
	code := strings.Split(c.code[p.cell], "\n")
	for i := max(1, p.line-before); i <= min(len(code), p.line+after); i++ {
		if i == p.line {
			list = append(list, fmt.Sprintf("%s----> %d%s %s", green, i, plain, code[i-1]))
		} else {
			list = append(list, fmt.Sprintf("%s%7d%s %s", green, i, plain, code[i-1]))
		}
	}
	return append(list, "")
}
