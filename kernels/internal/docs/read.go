package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"strings"
)

// Read collects the declarations and doc comments of a package's exported names
// from its source files.
func Read(path string, files []string) (Package, error) {
	return read(path, files, 0)
}

// ReadBuiltin does the same for package builtin, whose names are not exported.
func ReadBuiltin(files []string) (Package, error) {
	return read("builtin", files, doc.AllDecls)
}

func read(path string, files []string, mode doc.Mode) (Package, error) {
	r := reader{fset: token.NewFileSet(), out: Package{}}
	var parsed []*ast.File
	for _, name := range files {
		f, err := parser.ParseFile(r.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read docs of %s: %w", path, err)
		}
		parsed = append(parsed, f)
	}
	p, err := doc.NewFromFiles(r.fset, parsed, path, mode)
	if err != nil {
		return nil, fmt.Errorf("read docs of %s: %w", path, err)
	}
	r.out[""] = Entry{Decl: fmt.Sprintf("package %s // import %q", p.Name, path), Doc: strings.TrimSpace(p.Doc)}
	r.values(p.Consts)
	r.values(p.Vars)
	r.funcs("", p.Funcs)
	for _, t := range p.Types {
		r.typeDecl(t)
	}
	return r.out, nil
}

// A reader collects the documentation of one package.
type reader struct {
	fset *token.FileSet
	out  Package
}

func (r reader) put(key string, e Entry) {
	if e.Doc = strings.TrimSpace(e.Doc); e.Full == e.Decl {
		e.Full = ""
	}
	r.out[key] = e
}

// source formats a declaration as source code.
func (r reader) source(n ast.Node) string {
	var b bytes.Buffer
	if err := format.Node(&b, r.fset, n); err != nil {
		return "" // cannot fail in practice, since the node was parsed from source
	}
	return b.String()
}

func (r reader) funcs(prefix string, list []*doc.Func) {
	for _, f := range list {
		d := *f.Decl
		d.Doc, d.Body = nil, nil
		r.put(prefix+f.Name, Entry{Decl: r.source(&d), Doc: f.Doc})
	}
}

// values adds entries for constants and variables. A group has one comment, and often a
// separate one for each line.
func (r reader) values(list []*doc.Value) {
	for _, v := range list {
		for _, s := range v.Decl.Specs {
			spec, ok := s.(*ast.ValueSpec)
			if !ok {
				continue
			}
			one := &ast.GenDecl{Tok: v.Decl.Tok, Specs: []ast.Spec{bareValue(spec)}}
			text := comment(spec.Doc, spec.Comment)
			if text == "" {
				text = v.Doc
			}
			for _, n := range spec.Names {
				r.put(n.Name, Entry{Decl: r.source(one), Doc: text})
			}
		}
	}
}

func bareValue(spec *ast.ValueSpec) *ast.ValueSpec {
	s := *spec
	s.Doc, s.Comment = nil, nil
	return &s
}

// comment returns the text of the comment above a line, or else of the comment at its
// end.
func comment(above, behind *ast.CommentGroup) string {
	if text := above.Text(); text != "" {
		return text
	}
	return behind.Text()
}

// typeDecl adds entries for a type and its fields, methods, constructors and values.
func (r reader) typeDecl(t *doc.Type) {
	r.values(t.Consts)
	r.values(t.Vars)
	r.funcs("", t.Funcs)
	r.funcs(t.Name+".", t.Methods)
	for _, s := range t.Decl.Specs {
		spec, ok := s.(*ast.TypeSpec)
		if !ok || spec.Name.Name != t.Name {
			continue
		}
		one := *spec
		one.Doc, one.Comment = nil, nil
		full := r.source(&ast.GenDecl{Tok: token.TYPE, Specs: []ast.Spec{&one}})
		switch x := spec.Type.(type) {
		case *ast.StructType:
			one.Type = &ast.StructType{Fields: r.fields(t.Name, x.Fields, "")}
		case *ast.InterfaceType:
			one.Type = &ast.InterfaceType{Methods: r.fields(t.Name, x.Methods, "func ")}
		}
		r.put(t.Name, Entry{Decl: r.source(&ast.GenDecl{Tok: token.TYPE, Specs: []ast.Spec{&one}}), Full: full, Doc: t.Doc})
	}
}

// fields adds entries for the fields of a struct or the methods of an interface. It
// returns the list without comments.
func (r reader) fields(owner string, list *ast.FieldList, kind string) *ast.FieldList {
	bare := &ast.FieldList{}
	for _, f := range list.List {
		b := *f
		b.Doc, b.Comment, b.Tag = nil, nil, nil
		bare.List = append(bare.List, &b)
		for _, n := range f.Names {
			decl := n.Name + " " + r.source(f.Type)
			if sig, ok := f.Type.(*ast.FuncType); ok && kind != "" {
				decl = "func (" + owner + ") " + n.Name + strings.TrimPrefix(r.source(sig), "func")
			}
			r.put(owner+"."+n.Name, Entry{Decl: decl, Doc: comment(f.Doc, f.Comment)})
		}
	}
	return bare
}
