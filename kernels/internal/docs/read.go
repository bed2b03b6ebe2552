package docs

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"strings"
)

// Read collects the declarations and doc comments of exported names from a package's source files.
func Read(path string, files []string) (Package, error) {
	return readPackage(path, files, 0)
}

// ReadBuiltin is Read for package builtin, whose names are not exported.
func ReadBuiltin(files []string) (Package, error) {
	return readPackage("builtin", files, doc.AllDecls)
}

func readPackage(path string, files []string, mode doc.Mode) (Package, error) {
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
	r.addValues(p.Consts)
	r.addValues(p.Vars)
	r.addFuncs("", p.Funcs)
	for _, t := range p.Types {
		r.addType(t)
	}
	return r.out, nil
}

type reader struct {
	fset *token.FileSet
	out  Package
}

// putEntry stores the documentation of one name, without a full declaration that equals the short one.
func (r reader) putEntry(key string, e Entry) {
	if e.Doc = strings.TrimSpace(e.Doc); e.Full == e.Decl {
		e.Full = ""
	}
	r.out[key] = e
}

func (r reader) formatNode(n ast.Node) string {
	var b bytes.Buffer
	if err := format.Node(&b, r.fset, n); err != nil {
		return "" // cannot fail in practice, since the node was parsed from source
	}
	return b.String()
}

// addFuncs adds functions. prefix is "", or the methods' type and a period.
func (r reader) addFuncs(prefix string, list []*doc.Func) {
	for _, f := range list {
		d := *f.Decl
		d.Doc, d.Body = nil, nil
		r.putEntry(prefix+f.Name, Entry{Decl: r.formatNode(&d), Doc: f.Doc})
	}
}

// addValues adds constants and variables. A name without a comment gets its group's.
func (r reader) addValues(list []*doc.Value) {
	for _, v := range list {
		for _, s := range v.Decl.Specs {
			spec, ok := s.(*ast.ValueSpec)
			if !ok {
				continue
			}
			one := &ast.GenDecl{Tok: v.Decl.Tok, Specs: []ast.Spec{copyWithoutComments(spec)}}
			text := cmp.Or(lineComment(spec.Doc, spec.Comment), v.Doc)
			for _, n := range spec.Names {
				r.putEntry(n.Name, Entry{Decl: r.formatNode(one), Doc: text})
			}
		}
	}
}

func copyWithoutComments(spec *ast.ValueSpec) *ast.ValueSpec {
	s := *spec
	s.Doc, s.Comment = nil, nil
	return &s
}

// lineComment returns the comment above a line or else at its end.
func lineComment(above, atEnd *ast.CommentGroup) string {
	if text := above.Text(); text != "" {
		return text
	}
	return atEnd.Text()
}

// addType adds a type with its fields, methods, constructors and values.
func (r reader) addType(t *doc.Type) {
	r.addValues(t.Consts)
	r.addValues(t.Vars)
	r.addFuncs("", t.Funcs)
	r.addFuncs(t.Name+".", t.Methods)
	for _, s := range t.Decl.Specs {
		spec, ok := s.(*ast.TypeSpec)
		if !ok || spec.Name.Name != t.Name {
			continue
		}
		one := *spec
		one.Doc, one.Comment = nil, nil
		full := r.formatNode(&ast.GenDecl{Tok: token.TYPE, Specs: []ast.Spec{&one}})
		switch x := spec.Type.(type) {
		case *ast.StructType:
			one.Type = &ast.StructType{Fields: r.addFields(t.Name, x.Fields, "")}
		case *ast.InterfaceType:
			one.Type = &ast.InterfaceType{Methods: r.addFields(t.Name, x.Methods, "func ")}
		}
		r.putEntry(t.Name, Entry{Decl: r.formatNode(&ast.GenDecl{Tok: token.TYPE, Specs: []ast.Spec{&one}}), Full: full, Doc: t.Doc})
	}
}

// addFields adds the fields of a struct or, with kind "func ", the methods of an interface. It returns the
// list without comments.
func (r reader) addFields(owner string, list *ast.FieldList, kind string) *ast.FieldList {
	bare := &ast.FieldList{}
	for _, f := range list.List {
		b := *f
		b.Doc, b.Comment, b.Tag = nil, nil, nil
		bare.List = append(bare.List, &b)
		for _, n := range f.Names {
			decl := n.Name + " " + r.formatNode(f.Type)
			if sig, ok := f.Type.(*ast.FuncType); ok && kind != "" {
				decl = "func (" + owner + ") " + n.Name + strings.TrimPrefix(r.formatNode(sig), "func")
			}
			r.putEntry(owner+"."+n.Name, Entry{Decl: decl, Doc: lineComment(f.Doc, f.Comment)})
		}
	}
	return bare
}
