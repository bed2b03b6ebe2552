package introspect

import (
	"fmt"
	"go/token"
	"reflect"
	"slices"
	"strings"

	interp "github.com/cosmos72/gomacro/fast"
	xr "github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/docs"
)

// Inspect describes the name at the cursor, which is counted in characters: its
// declaration and doc comment, or its type. Inside the parentheses of a call it describes
// the called function if there is no name at the cursor. A type is described with the
// comments of its fields. With detail 1 a type's methods and a package's names are added.
// Inspect returns "" if nothing is known.
func (x *Inspector) Inspect(code string, cursor, detail int) string {
	p := x.at(code, cursor)
	word, ok := p.word()
	if !ok {
		return ""
	}
	before := p.before(word.from)
	if n := len(before); n > 0 && before[n-1].tok == token.PERIOD {
		begin, ok := operand(before[:n-1])
		if !ok {
			return ""
		}
		c := x.scopeAt(p, begin)
		return x.member(c, strings.TrimSpace(p.code[begin:before[n-1].from]), word.lit, detail)
	}
	c := x.scopeAt(p, word.from)
	return x.name(c, word.lit, detail)
}

// word returns the name at the cursor, or the function of the call around the cursor. ok
// is false if there is neither.
func (p *place) word() (tok, bool) {
	if _, ok := p.inside(); !ok {
		for _, t := range p.tokens {
			if t.tok == token.IDENT && t.from <= p.cursor && p.cursor <= t.to {
				return t, true
			}
		}
	}
	list := p.before(p.cursor)
	for _, b := range slices.Backward(open(list)) {
		if b.tok != token.LPAREN && b.tok != token.LBRACE {
			continue
		}
		// The last name before a block does not describe its content.
		before := p.before(b.from)
		if n := len(before); n > 0 && before[n-1].tok == token.IDENT && b.tok == token.LPAREN {
			return before[n-1], true
		}
		return tok{}, false
	}
	return tok{}, false
}

// name describes a name that is not selected from an expression.
func (x *Inspector) name(c *interp.Comp, name string, detail int) string {
	if imp := x.imported(c, name); imp != nil {
		return describePackage(x.docs(imp.Path), imp, detail)
	}
	sym := c.TryResolve(name)
	t := c.TryResolveType(name)
	switch {
	case sym == nil && t == nil:
		return ""
	case sym == nil:
		return x.describeType(t, detail)
	}
	if e, ok := x.docs("builtin")[name]; ok && sym.Const() {
		return join(e.Decl, e.Doc)
	}
	return x.describeValue(name, sym.Type, sym.Const())
}

// member describes the name that a period selects from an expression.
func (x *Inspector) member(c *interp.Comp, base, name string, detail int) string {
	if identifier(base) {
		if imp := x.imported(c, base); imp != nil {
			return x.inPackage(imp, name, detail)
		}
	}
	t, _ := typeOf(c, base)
	if t == nil {
		return ""
	}
	if e, ok := x.find(t, name, 0); ok {
		return join(e.Decl, e.Doc)
	}
	m, _ := typeOf(c, base+"."+name)
	if m == nil {
		return ""
	}
	return x.describeValue(name, m, false)
}

// inPackage describes an object of a package.
func (x *Inspector) inPackage(imp *interp.Import, name string, detail int) string {
	p := x.docs(imp.Path)
	if e, ok := p[name]; ok {
		if t := imp.Types[name]; t != nil {
			return describe(p, name, detail)
		}
		return join(e.Decl, e.Doc)
	}
	if t := imp.Types[name]; t != nil {
		return "type " + t.String()
	}
	if b := imp.Binds[name]; b != nil {
		return x.describeValue(name, b.Type, b.Const())
	}
	return ""
}

// find searches for a field or method in a type and in its embedded types.
func (x *Inspector) find(t xr.Type, name string, depth int) (docs.Entry, bool) {
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	if e, ok := x.docs(t.PkgPath())[t.Name()+"."+name]; ok && t.Name() != "" {
		return e, true
	}
	const deepest = 4 // limits cyclic embedding
	if t.Kind() != reflect.Struct || depth == deepest {
		return docs.Entry{}, false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous {
			if e, ok := x.find(f.Type, name, depth+1); ok {
				return e, true
			}
		}
	}
	return docs.Entry{}, false
}

// docs returns the documentation of a package; it is nil if the table cannot be read.
func (x *Inspector) docs(path string) docs.Package {
	p, err := x.Docs.Package(path)
	if err != nil {
		return nil
	}
	return p
}

// describeValue describes a variable, constant or function with its type, and adds the
// documentation of the type.
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
	if e, ok := x.docs(base.PkgPath())[base.Name()]; ok && base.Name() != "" {
		return join(text, e.Doc)
	}
	return text
}

func (x *Inspector) describeType(t xr.Type, detail int) string {
	if p := x.docs(t.PkgPath()); t.Name() != "" {
		if _, ok := p[t.Name()]; ok {
			return describe(p, t.Name(), detail)
		}
	}
	if t.Name() == "" || t.PkgPath() == "" {
		return "type " + t.String()
	}
	return fmt.Sprintf("type %s %s", t.Name(), t.ReflectType())
}

// describe returns a package's documentation of a type: the doc comment, then the
// declaration with the comments of its fields.
func describe(p docs.Package, name string, detail int) string {
	e := p[name]
	decl := e.Decl
	if e.Full != "" {
		decl = e.Full
	}
	if detail == 0 {
		return join(e.Doc, decl)
	}
	var methods []string
	for _, key := range p.Members(name) {
		if d := p[key].Decl; strings.HasPrefix(d, "func ") {
			methods = append(methods, d)
		}
	}
	return join(e.Doc, decl, strings.Join(methods, "\n"))
}

func describePackage(p docs.Package, imp *interp.Import, detail int) string {
	e, ok := p[""]
	if !ok {
		e.Decl = fmt.Sprintf("package %s // import %q", imp.Name, imp.Path)
	}
	if detail == 0 {
		return join(e.Decl, e.Doc)
	}
	var names []string
	for _, name := range exported(packageNames(imp, "")) {
		line, _, _ := strings.Cut(p[name].Decl, "\n")
		if line == "" {
			line = name
		}
		names = append(names, strings.TrimSuffix(line, " {"))
	}
	return join(e.Decl, e.Doc, strings.Join(names, "\n"))
}

// join joins paragraphs with an empty line between them.
func join(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, "\n\n")
}
