// Package cell knows what stands in a notebook's cell before it runs: which
// packages it imports, and what kind of expression it ends with.
package cell

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"

	"github.com/cosmos72/gomacro/go/etoken"
	"github.com/cosmos72/gomacro/go/parser"
)

// A Cell is the source of a cell, parsed.
type Cell struct {
	Imports []Import
	last    ast.Node // the last statement or declaration, or nil
}

// An Import is a package that a cell imports.
type Import struct {
	Path string
	Line int // in the cell, from 1
}

// macroChar is the interpreter's own, so that what it accepts parses here too.
const macroChar = '~'

// Parse reads a cell as the interpreter will. An error is the interpreter's
// own; it says the same when the cell runs.
func Parse(code string) (c Cell, err error) {
	defer func() {
		// The parser reports some errors by a panic.
		if r := recover(); r != nil {
			err = fmt.Errorf("parse cell: %v", r)
		}
	}()
	var p parser.Parser
	files := etoken.NewFileSet()
	p.Configure(0, macroChar)
	p.Init(files, "cell", 0, []byte(withoutCommands(code)))
	nodes, err := p.Parse()
	if err != nil {
		return Cell{}, fmt.Errorf("parse cell: %w", err)
	}
	for _, n := range nodes {
		c.add(files, n)
	}
	return c, nil
}

// add records a top-level node of the cell.
func (c *Cell) add(files *etoken.FileSet, n ast.Node) {
	c.last = n
	decl, ok := n.(*ast.GenDecl)
	if !ok || decl.Tok != token.IMPORT {
		return
	}
	for _, spec := range decl.Specs {
		if spec, ok := spec.(*ast.ImportSpec); ok {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil {
				c.Imports = append(c.Imports, Import{Path: path, Line: files.Position(spec.Pos()).Line})
			}
		}
	}
}

// withoutCommands blanks the lines at the head of a cell that are commands of
// the kernel (%cd, %help) or of the shell ($ls), as the kernel does.
func withoutCommands(code string) string {
	lines := strings.Split(code, "\n")
	for i, line := range lines {
		switch line = strings.TrimSpace(line); {
		case line == "":
		case line[0] == '%' || line[0] == '$':
			lines[i] = ""
		default:
			return strings.Join(lines, "\n")
		}
	}
	return strings.Join(lines, "\n")
}

// EndsWithPrint reports whether the cell's last line prints with package fmt.
// What such a call returns, a count and an error, is of no interest.
func (c Cell) EndsWithPrint() bool {
	call, ok := c.call()
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "fmt" && (strings.HasPrefix(sel.Sel.Name, "Print") || strings.HasPrefix(sel.Sel.Name, "Fprint"))
}

// EndsWithReceive reports whether the cell's last line receives from a channel.
// The interpreter then gives a second value, which says whether it was open.
func (c Cell) EndsWithReceive() bool {
	n := c.last
	if s, ok := n.(*ast.ExprStmt); ok {
		n = s.X
	}
	u, ok := n.(*ast.UnaryExpr)
	return ok && u.Op == token.ARROW
}

func (c Cell) call() (*ast.CallExpr, bool) {
	n := c.last
	for {
		switch x := n.(type) {
		case *ast.ExprStmt:
			n = x.X
		case *ast.ParenExpr:
			n = x.X
		case *ast.CallExpr:
			return x, true
		default:
			return nil, false
		}
	}
}
