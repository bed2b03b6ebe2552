package introspect

import (
	"go/ast"
	"go/token"
	"maps"
	"reflect"
	"slices"
	"strings"

	interp "github.com/cosmos72/gomacro/fast"
	xr "github.com/cosmos72/gomacro/xreflect"
)

// Complete returns the completions of the word before the cursor, and the range of the code that one
// replaces. As in Jupyter, positions count characters, not bytes.
func (x *Inspector) Complete(code string, cursor int) (matches []string, start, end int) {
	p := x.contextAt(code, cursor)
	from := p.cursor
	if t, ok := p.enclosingText(); ok {
		if p.isImportPath(t) {
			from = t.from + 1
			matches = x.completePath(p.code[from:p.cursor])
		} else if t.tok == token.STRING {
			from = t.from + 1
			matches = x.completeValue(p, t, p.code[from:p.cursor])
		}
	} else {
		from, matches = x.completeWord(p)
	}
	return matches, charOffset(p.code, from), charOffset(p.code, p.cursor)
}

func (p *cursorContext) isImportPath(t lexeme) bool {
	if t.tok != token.STRING {
		return false
	}
	list := p.tokensBefore(t.from)
	if n := len(list); n > 0 && (list[n-1].tok == token.IDENT || list[n-1].tok == token.PERIOD) {
		list = list[:n-1] // the import has an explicit name
	}
	if n := len(list); n > 0 && list[n-1].tok == token.IMPORT {
		return true
	}
	brackets := openBrackets(list)
	if len(brackets) != 1 || brackets[0].tok != token.LPAREN {
		return false
	}
	i := slices.IndexFunc(list, func(t lexeme) bool { return t.from == brackets[0].from })
	return i > 0 && list[i-1].tok == token.IMPORT
}

// completePath returns the import paths that begin with prefix, and then those with a later element that does.
func (x *Inspector) completePath(prefix string) []string {
	var list, inner []string
	for _, path := range x.Known {
		if strings.HasPrefix(path, prefix) {
			list = append(list, path)
		} else if prefix != "" && strings.Contains(path, "/"+prefix) {
			inner = append(inner, path)
		}
	}
	return append(list, inner...)
}

// completeWord completes the name before the cursor, which begins at byte from.
func (x *Inspector) completeWord(p *cursorContext) (from int, matches []string) {
	list, from := p.tokensBefore(p.cursor), p.cursor
	// If the word continues after the cursor, that part is not replaced.
	for _, t := range p.tokens {
		if t.isWord() && t.from < p.cursor && p.cursor <= t.to {
			from = t.from
			list = p.tokensBefore(from)
		} else if t.tok.IsLiteral() && !t.isWord() && p.cursor == t.to && t.tok != token.STRING {
			return p.cursor, nil // a number is not completed
		}
	}
	prefix := p.code[from:p.cursor]
	if n := len(list); n > 0 && list[n-1].tok == token.PERIOD {
		begin, ok := operandStart(list[:n-1])
		if !ok {
			return from, nil
		}
		c := x.scopeAt(p, begin)
		return from, removeHidden(x.memberNames(c, p.code[begin:list[n-1].from], prefix))
	}
	matches = x.completeFields(p, list, prefix)
	if prefix != "" {
		matches = append(matches, x.scopeAt(p, from).CompleteWords([]string{prefix})...)
	}
	return from, removeHidden(matches)
}

// completeFields completes a field name in a struct literal, without the fields that are set before the
// cursor. list contains the tokens before the name.
func (x *Inspector) completeFields(p *cursorContext, list []lexeme, prefix string) []string {
	stack := openBrackets(list)
	n := len(list)
	if len(stack) == 0 || list[n-1].tok != token.LBRACE && list[n-1].tok != token.COMMA {
		return nil
	}
	brace := stack[len(stack)-1]
	t := x.literalType(p, brace)
	if t == nil {
		return nil
	}
	set := map[string]bool{}
	for i := 1; i < n; i++ {
		if list[i].tok == token.COLON && list[i-1].from > brace.from && len(openBrackets(list[:i])) == len(stack) {
			set[list[i-1].lit] = true
		}
	}
	return slices.DeleteFunc(x.usableFields(t), func(name string) bool { return set[name] || !strings.HasPrefix(name, prefix) })
}

// literalType returns the type of the struct literal that brace opens, or nil if it opens none.
func (x *Inspector) literalType(p *cursorContext, brace lexeme) xr.Type {
	if brace.tok != token.LBRACE {
		return nil
	}
	begin, ok := operandStart(p.tokensBefore(brace.from))
	if !ok {
		return nil
	}
	t, isType := typeOf(x.scopeAt(p, begin), p.code[begin:brace.from])
	if !isType || t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

func (x *Inspector) usableFields(t xr.Type) []string {
	var fields []string
	for i := range t.NumField() {
		if name := t.Field(i).Name; ast.IsExported(name) || !x.isCompiledType(t) {
			fields = append(fields, name)
		}
	}
	return fields
}

// completeValue returns the valid values of the string t that begin with prefix. t is the value of a field, as in
// Sweep{Config: "…"}, or an element of it, as in Options{Only: []string{"…"}}.
func (x *Inspector) completeValue(p *cursorContext, t lexeme, prefix string) []string {
	list := p.tokensBefore(t.from)
	stack := openBrackets(list)
	n := len(list)
	if len(stack) > 1 && (list[n-1].tok == token.LBRACE || list[n-1].tok == token.COMMA) {
		// The string is an element: continue before the literal's []string.
		list = p.tokensBefore(stack[len(stack)-1].from)
		stack = stack[:len(stack)-1]
		if n = len(list); n > 3 && list[n-1].lit == "string" && list[n-2].tok == token.RBRACK && list[n-3].tok == token.LBRACK {
			n -= 3
		}
	}
	if n < 2 || len(stack) == 0 || list[n-1].tok != token.COLON || list[n-2].tok != token.IDENT {
		return nil
	}
	brace := stack[len(stack)-1]
	s := x.literalType(p, brace)
	if s == nil {
		return nil
	}
	names := x.Values[s.PkgPath()+"."+s.Name()+"."+list[n-2].lit]
	if names == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(names()), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

func (x *Inspector) memberNames(c *interp.Comp, base, prefix string) []string {
	if base = strings.TrimSpace(base); token.IsIdentifier(base) {
		if imp := x.resolvePackage(c, base); imp != nil {
			return removeUnexported(packageMembers(imp, prefix))
		}
	}
	t, _ := typeOf(c, base)
	if t == nil {
		return nil
	}
	inner := interp.NewComp(c, nil)
	inner.NewBind(cursorIdentifier, interp.VarBind, t)
	names := inner.CompleteWords([]string{cursorIdentifier, prefix})
	if x.isCompiledType(t) {
		names = removeUnexported(names)
	}
	return names
}

func packageMembers(imp *interp.Import, prefix string) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(imp.Binds)), maps.Keys(imp.Types))
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) })
	slices.Sort(names)
	return slices.Compact(names)
}

// isCompiledType reports whether a type's package is compiled in: a cell cannot use its unexported names.
func (x *Inspector) isCompiledType(t xr.Type) bool {
	for t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	return slices.Contains(x.Known, t.PkgPath())
}

func removeUnexported(names []string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return !ast.IsExported(n) })
}

// removeHidden removes the names of the kernel's functions and the keywords of the interpreter's macros.
func removeHidden(names []string) []string {
	return slices.DeleteFunc(names, func(n string) bool {
		return !token.IsIdentifier(n) && !token.IsKeyword(n) || n == "macro" || n == "template" || n == cursorIdentifier
	})
}
