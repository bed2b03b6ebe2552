package introspect

import (
	"cmp"
	"fmt"
	"go/token"
	"reflect"
	"slices"
	"strings"

	interp "github.com/cosmos72/gomacro/fast"
	xr "github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/docs"
)

// Inspect describes the name at the cursor, whose position counts characters, by its declaration and doc
// comment, or its type. If the cursor is inside the parentheses of a call, Inspect describes the function. A
// type is described with its fields' comments. With detail 1, the methods of a type and the names of a
// package are added. Inspect returns "" if nothing is known.
func (x *Inspector) Inspect(code string, cursor, detail int) string {
	p := x.contextAt(code, cursor)
	word, ok := p.nameAtCursor()
	if !ok {
		return ""
	}
	before := p.tokensBefore(word.from)
	if n := len(before); n > 0 && before[n-1].tok == token.PERIOD {
		begin, ok := operandStart(before[:n-1])
		if !ok {
			return ""
		}
		c := x.scopeAt(p, begin)
		return x.describeMember(c, strings.TrimSpace(p.code[begin:before[n-1].from]), word.lit, detail)
	}
	c := x.scopeAt(p, word.from)
	return x.describeName(c, word.lit, detail)
}

// nameAtCursor returns the name at the cursor, or else the function of the call around it.
func (p *cursorContext) nameAtCursor() (t lexeme, ok bool) {
	if _, ok := p.enclosingText(); !ok {
		for _, t := range p.tokens {
			if t.tok == token.IDENT && t.from <= p.cursor && p.cursor <= t.to {
				return t, true
			}
		}
	}
	list := p.tokensBefore(p.cursor)
	for _, b := range slices.Backward(openBrackets(list)) {
		if b.tok != token.LPAREN && b.tok != token.LBRACE {
			continue
		}
		// The last name before a block does not describe its content.
		before := p.tokensBefore(b.from)
		if n := len(before); n > 0 && before[n-1].tok == token.IDENT && b.tok == token.LPAREN {
			return before[n-1], true
		}
		return lexeme{}, false
	}
	return lexeme{}, false
}

// describeName describes a name without a period before it. It returns "" if the name is unknown.
func (x *Inspector) describeName(c *interp.Comp, name string, detail int) string {
	if imp := x.resolvePackage(c, name); imp != nil {
		return describePackage(x.packageDocs(imp.Path), imp, detail)
	}
	sym := c.TryResolve(name)
	t := c.TryResolveType(name)
	switch {
	case sym == nil && t == nil:
		return ""
	case sym == nil:
		return x.describeType(t, detail)
	}
	if e, ok := x.packageDocs("builtin")[name]; ok && sym.Const() {
		return joinParagraphs(e.Decl, e.Doc)
	}
	return x.describeValue(name, sym.Type, sym.Const())
}

// describeMember describes base.name. It returns "" if that is unknown.
func (x *Inspector) describeMember(c *interp.Comp, base, name string, detail int) string {
	if token.IsIdentifier(base) {
		if imp := x.resolvePackage(c, base); imp != nil {
			return x.describeObject(imp, name, detail)
		}
	}
	t, _ := typeOf(c, base)
	if t == nil {
		return ""
	}
	if e, ok := x.findMember(t, name, 0); ok {
		return joinParagraphs(e.Decl, e.Doc)
	}
	m, _ := typeOf(c, base+"."+name)
	if m == nil {
		return ""
	}
	return x.describeValue(name, m, false)
}

// describeObject describes an object of a package, or returns "" if the package lacks it.
func (x *Inspector) describeObject(imp *interp.Import, name string, detail int) string {
	p := x.packageDocs(imp.Path)
	if e, ok := p[name]; ok {
		if t := imp.Types[name]; t != nil {
			return describeTypeDocs(p, name, detail)
		}
		return joinParagraphs(e.Decl, e.Doc)
	}
	if t := imp.Types[name]; t != nil {
		return "type " + t.String()
	}
	if b := imp.Binds[name]; b != nil {
		return x.describeValue(name, b.Type, b.Const())
	}
	return ""
}

// findMember returns the documentation of a field or method of t or of an embedded type. depth counts the
// levels of embedding, from 0.
func (x *Inspector) findMember(t xr.Type, name string, depth int) (docs.Entry, bool) {
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	if e, ok := x.packageDocs(t.PkgPath())[t.Name()+"."+name]; ok && t.Name() != "" {
		return e, true
	}
	const deepest = 4 // limits cyclic embedding
	if t.Kind() != reflect.Struct || depth == deepest {
		return docs.Entry{}, false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous {
			if e, ok := x.findMember(f.Type, name, depth+1); ok {
				return e, true
			}
		}
	}
	return docs.Entry{}, false
}

// packageDocs returns a package's documentation, or nil if there is none or it cannot be read.
func (x *Inspector) packageDocs(path string) docs.Package {
	p, err := x.Docs.Package(path)
	if err != nil {
		return nil
	}
	return p
}

// describeValue describes a variable, constant or function by its type and the type's documentation.
func (x *Inspector) describeValue(name string, t xr.Type, constant bool) string {
	if t == nil {
		return ""
	}
	kind := "var "
	switch {
	case t.Kind() == reflect.Func && t.Name() == "":
		return "func " + name + strings.TrimPrefix(t.String(), "func")
	case constant:
		kind = "const "
	}
	text := kind + name
	if t.String() != "untyped.Lit" {
		text += " " + t.String()
	}
	base := t
	if base.Kind() == reflect.Pointer && base.Name() == "" {
		base = base.Elem()
	}
	if e, ok := x.packageDocs(base.PkgPath())[base.Name()]; ok && base.Name() != "" {
		return joinParagraphs(text, e.Doc)
	}
	return text
}

// describeType returns the documentation of a type or else its declaration.
func (x *Inspector) describeType(t xr.Type, detail int) string {
	if p := x.packageDocs(t.PkgPath()); t.Name() != "" {
		if _, ok := p[t.Name()]; ok {
			return describeTypeDocs(p, t.Name(), detail)
		}
	}
	if t.Name() == "" || t.PkgPath() == "" {
		return "type " + t.String()
	}
	return fmt.Sprintf("type %s %s", t.Name(), t.ReflectType())
}

// describeTypeDocs returns the doc comment, and the declaration with the comments of the fields.
func describeTypeDocs(p docs.Package, name string, detail int) string {
	e := p[name]
	decl := e.Decl
	if e.Full != "" {
		decl = e.Full
	}
	if detail == 0 {
		return joinParagraphs(e.Doc, decl)
	}
	var methods []string
	for _, key := range p.Members(name) {
		if d := p[key].Decl; strings.HasPrefix(d, "func ") {
			methods = append(methods, d)
		}
	}
	return joinParagraphs(e.Doc, decl, strings.Join(methods, "\n"))
}

// describePackage returns a package's documentation and, if detail is 1, the names that it exports.
func describePackage(p docs.Package, imp *interp.Import, detail int) string {
	e, ok := p[""]
	if !ok {
		e.Decl = fmt.Sprintf("package %s // import %q", imp.Name, imp.Path)
	}
	if detail == 0 {
		return joinParagraphs(e.Decl, e.Doc)
	}
	var names []string
	for _, name := range removeUnexported(packageMembers(imp, "")) {
		line, _, _ := strings.Cut(p[name].Decl, "\n")
		line = cmp.Or(line, name)
		names = append(names, strings.TrimSuffix(line, " {"))
	}
	return joinParagraphs(e.Decl, e.Doc, strings.Join(names, "\n"))
}

func joinParagraphs(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, "\n\n")
}
