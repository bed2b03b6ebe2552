// Package introspect answers questions about a position in a cell that has not run yet:
// how to complete the word there (Complete), and what it is (Inspect).
//
// It compiles the code before the position, but never runs it. The scope for this is
// inside the interpreter's scope, so that the cell's imports, types, variables and
// functions are known with their types and the session does not change.
package introspect

import (
	"go/token"
	"strings"
	"unicode/utf8"

	interp "github.com/cosmos72/gomacro/fast"
	xr "github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/docs"
)

// An Inspector answers questions with the state of one interpreter. It must not be used
// while a cell runs in that interpreter.
type Inspector struct {
	Interp *interp.Interp
	Docs   *docs.Table
	Known  []string // import paths of the packages that a cell can import

	// Values contains functions that list the valid values of string fields. Its keys
	// have the form "import/path.Type.Field".
	Values map[string]func() []string
}

// A place is a position in a cell with the tokens of the cell.
type place struct {
	code   string
	cursor int // byte offset
	tokens []tok
}

// at returns the place at a position that is counted in characters.
func (x *Inspector) at(code string, cursor int) *place {
	code = withoutCommands(code)
	return &place{code: code, cursor: byteOffset(code, cursor), tokens: scan(code)}
}

// byteOffset converts a position in characters to one in bytes.
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

// charOffset converts a position in bytes to one in characters.
func charOffset(code string, at int) int { return utf8.RuneCountInString(code[:at]) }

// withoutCommands replaces the lines at the start of a cell that are commands of the
// kernel or the shell by blanks. Every other character keeps its position.
func withoutCommands(code string) string {
	lines := strings.SplitAfter(code, "\n")
	for i, line := range lines {
		text := strings.TrimSpace(line)
		if text == "" {
			continue
		}
		if text[0] != '%' && text[0] != '$' {
			break
		}
		lines[i] = strings.Map(func(r rune) rune {
			if r == '\n' {
				return r
			}
			return ' '
		}, line)
	}
	return strings.Join(lines, "")
}

// imported returns the package that an expression names. If the name is not declared, it
// may be the name of a package that a cell can import, if there is only one of that name.
func (x *Inspector) imported(c *interp.Comp, name string) *interp.Import {
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
	return x.importPath(path)
}

// importPath returns a package without declaring it in the session, or nil if the package
// cannot be imported.
func (x *Inspector) importPath(path string) *interp.Import {
	found, err := interp.NewComp(x.Interp.Comp, nil).ImportPackagesOrError(map[string]interp.PackageName{path: ""})
	if err != nil {
		return nil
	}
	return found[path]
}

// typeOf returns the type of an expression's value, or the type that the expression
// names; in the latter case isType is true.
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

// identifier reports whether text is a single identifier.
func identifier(text string) bool { return token.IsIdentifier(text) }
