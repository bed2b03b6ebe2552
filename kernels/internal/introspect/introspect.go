// Package introspect answers questions about a position in a cell that has not run yet:
// how to complete the word there (Complete), and what it is (Inspect).
//
// It compiles the code before the position, but never runs it. It does so in a scope inside the
// interpreter's, so that the session's names are known with their types, and do not change.
package introspect

import (
	"strings"
	"unicode/utf8"

	interp "github.com/cosmos72/gomacro/fast"
	xr "github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/cell"
	"lockstep/kernels/internal/docs"
)

// An Inspector completes and describes names with the state of one interpreter, in which no cell may run
// meanwhile.
type Inspector struct {
	Interp *interp.Interp
	Docs   *docs.Table
	Known  []string // import paths of the packages that a cell can import

	// Values lists the valid values of string fields. Its keys have the form "import/path.Type.Field".
	Values map[string]func() []string
}

// A cursorContext is the code of a cell with the position of the cursor.
type cursorContext struct {
	code   string
	cursor int // byte offset
	tokens []lexeme
}

// contextAt returns the context of a cursor position, which counts characters.
func (x *Inspector) contextAt(code string, cursor int) *cursorContext {
	code = cell.BlankOutCommands(code)
	return &cursorContext{code: code, cursor: byteOffset(code, cursor), tokens: scanTokens(code)}
}

func byteOffset(code string, chars int) int {
	at := 0
	for range chars {
		if at >= len(code) {
			break
		}
		_, n := utf8.DecodeRuneInString(code[at:])
		at += n
	}
	return at
}

func charOffset(code string, offset int) int { return utf8.RuneCountInString(code[:offset]) }

// resolvePackage returns the package that name refers to, or nil. If name is not declared, it returns the
// importable package whose path is name or, if there is only one, ends in "/"+name.
func (x *Inspector) resolvePackage(c *interp.Comp, name string) *interp.Import {
	if sym := c.TryResolve(name); sym != nil {
		imp, _ := sym.Value.(*interp.Import)
		return imp
	}
	if c.TryResolveType(name) != nil {
		return nil
	}
	path, n := "", 0
	for _, known := range x.Known {
		if known == name || strings.HasSuffix(known, "/"+name) {
			path, n = known, n+1
		}
		if known == name { // fmt, and not some example.org/fmt
			n = 1
			break
		}
	}
	if n != 1 {
		return nil
	}
	return x.importPackage(path)
}

// importPackage returns a package without declaring it in the session, or nil if it cannot be imported.
func (x *Inspector) importPackage(path string) *interp.Import {
	found, err := interp.NewComp(x.Interp.Comp, nil).ImportPackagesOrError(map[string]interp.PackageName{path: ""})
	if err != nil {
		return nil
	}
	return found[path]
}

// typeOf returns the type of an expression's value or, with isType true, the type that it names. t is nil if the
// expression does not compile.
func typeOf(c *interp.Comp, text string) (t xr.Type, isType bool) {
	defer func() {
		// The interpreter panics if it cannot compile the expression.
		if recover() != nil {
			t, isType = nil, false
		}
	}()
	n := parseExpr(text)
	if n == nil {
		return nil, false
	}
	e, t := c.Expr1OrType(n)
	if e != nil {
		if e.Untyped() {
			return e.DefaultType(), false
		}
		return e.Type, false
	}
	return t, t != nil
}
