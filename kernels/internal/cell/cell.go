// Package cell analyzes and rewrites the source of a notebook's cell before it runs: its imports, the order of
// its parts, and the calls of the kernel's functions that it needs.
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

// macroChar begins the interpreter's macros. Parse and the interpreter must use the same character.
const macroChar = '~'

// Parse parses a cell with the interpreter's parser. If the place of an error is known, it is a *SyntaxError.
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

// Commands returns the commands of a cell, which precede all other lines that are not blank.
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

// BlankOutCommands replaces commands by blanks, so that all other characters keep their positions.
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

// EndsWithPrint reports whether the cell's last line calls a print function of package fmt, whose results, a
// count and an error, are not shown.
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

// lastCall returns the call that is the cell's last line. ok is false if that is no call.
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
