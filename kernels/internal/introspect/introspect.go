// Package introspect says what stands at a place in a cell that was not run
// yet: how the word there may go on (Complete), and what it is (Inspect).
//
// It compiles, but never runs, what precedes the place in a scope of its own
// inside the interpreter's: the imports, types, variables and functions of the
// cell are known there with their types, and the session does not change.
package introspect

import (
	"go/token"
	"strings"
	"unicode/utf8"

	interp "github.com/cosmos72/gomacro/fast"
	xr "github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/docs"
)

// An Inspector looks into one interpreter. It must not be used while a cell
// runs there.
type Inspector struct {
	Interp *interp.Interp
	Docs   *docs.Table
	Known  []string // import paths of what a cell can import

	// Values lists what the string in a struct's field may be, by the field:
	// "import/path.Type.Field".
	Values map[string]func() []string
}

// A place is a position in a cell and what was found around it.
type place struct {
	code   string
	cursor int // byte offset
	tokens []tok
}

// at finds the tokens around a position counted in characters.
func (x *Inspector) at(code string, cursor int) *place {
	code = withoutCommands(code)
	return &place{code: code, cursor: byteOffset(code, cursor), tokens: scan(code)}
}

// byteOffset turns a position in characters into one in bytes.
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

// charOffset is the reverse of byteOffset.
func charOffset(code string, at int) int { return utf8.RuneCountInString(code[:at]) }

// withoutCommands blanks the lines at the head of a cell that are commands of
// the kernel or the shell. Every character keeps its place.
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

// imported returns the package that an expression is the name of. A name that
// stands for nothing is that of a package which could be imported, if there is
// one alone.
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

// importPath imports a package without the session's knowing it; nil if it
// cannot.
func (x *Inspector) importPath(path string) *interp.Import {
	found, err := interp.NewComp(x.Interp.Comp, nil).ImportPackagesOrError(map[string]interp.PackageName{path: ""})
	if err != nil {
		return nil
	}
	return found[path]
}

// typeOf returns the type of an expression's value, or the type that it names.
func typeOf(c *interp.Comp, text string) (t xr.Type, isType bool) {
	defer func() {
		// The interpreter reports what it cannot compile by a panic.
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

// identifier reports whether text is one name.
func identifier(text string) bool { return token.IsIdentifier(text) }
