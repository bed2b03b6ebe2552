// Package cell analyzes and rewrites the source of a notebook's cell before it runs:
// which packages it imports, in which order its parts must run, and where calls of the
// kernel's functions must be inserted.
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

// A Cell is the parsed source of a notebook cell.
type Cell struct {
	Imports []Import
	last    ast.Node // the last statement or declaration, or nil
}

// An Import is an import declaration of a cell.
type Import struct {
	Path string
	Line int // line in the cell, counted from 1
}

// macroChar is the character that begins the interpreter's macros. Parse and the
// interpreter must use the same character, so that they accept the same source.
const macroChar = '~'

// Parse parses a cell with the interpreter's parser. The error is a *SyntaxError if its place is
// known.
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
	code = BlankOutCommands(code)
	p.Init(files, "cell", 0, []byte(code))
	nodes, err := p.Parse()
	if err != nil {
		err = explainSyntax(code, err)
	}
	if found := findForeign(scan(code)); found != nil {
		err = found
	}
	if err != nil {
		return Cell{}, err
	}
	for _, n := range nodes {
		c.addNode(files, n)
	}
	return c, nil
}

// addNode stores a top-level node of the cell.
func (c *Cell) addNode(files *etoken.FileSet, n ast.Node) {
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

// A Command is a line at the start of a cell for the kernel (%cd, %help) or for the shell ($ls).
type Command struct {
	Text string // without surrounding blanks; it begins with % or $
	Line int    // counted from 1
}

// Commands returns the commands of a cell. They precede all other lines that are not blank.
func Commands(code string) (list []Command) {
	for i, line := range strings.Split(code, "\n") {
		text := strings.TrimSpace(line)
		if text == "" {
			continue
		}
		if text[0] != '%' && text[0] != '$' {
			break
		}
		list = append(list, Command{text, i + 1})
	}
	return list
}

// BlankOutCommands replaces the commands of a cell by blanks. All other characters keep their
// positions.
func BlankOutCommands(code string) string {
	lines := strings.SplitAfter(code, "\n")
	for _, c := range Commands(code) {
		lines[c.Line-1] = strings.Map(func(r rune) rune {
			if r == '\n' {
				return r
			}
			return ' '
		}, lines[c.Line-1])
	}
	return strings.Join(lines, "")
}

// EndsWithPrint reports whether the cell's last line calls a print function of package
// fmt. The results of such a call, a count and an error, are not shown.
func (c Cell) EndsWithPrint() bool {
	call, ok := c.lastCall()
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

// lastCall returns the call that the cell's last line consists of. ok is false if that
// line is not a call.
func (c Cell) lastCall() (call *ast.CallExpr, ok bool) {
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
