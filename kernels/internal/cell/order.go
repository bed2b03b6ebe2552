package cell

import (
	"go/ast"
	"go/token"
	"slices"
)

// A CompilePlan is the order in which a cell's nodes are declared and run: imports, types and constants; methods
// and functions that use no variable of the cell; the rest in source order. So a statement may use a function
// below it, an interface is complete before a value is converted to it, and a function that uses a variable of the
// cell stays after it.
type CompilePlan struct {
	Types     []ast.Node
	Methods   []*ast.FuncDecl
	Functions []*ast.FuncDecl
	Rest      []ast.Node
	Own       map[string]bool // names of the types that the cell declares
}

// NewCompilePlan orders the nodes of a cell.
func NewCompilePlan(nodes []ast.Node) CompilePlan {
	p := CompilePlan{Own: map[string]bool{}}
	early := findEarlyFunctions(nodes)
	for _, n := range nodes {
		switch d := n.(type) {
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				p.Rest = append(p.Rest, n)
				continue
			}
			p.Types = append(p.Types, n)
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					p.Own[t.Name.Name] = true
				}
			}
		case *ast.FuncDecl:
			switch {
			case !early[d]:
				p.Rest = append(p.Rest, n)
			case d.Recv != nil:
				p.Methods = append(p.Methods, d)
			default:
				p.Functions = append(p.Functions, d)
			}
		default:
			p.Rest = append(p.Rest, n)
		}
	}
	return p
}

// Declarations returns the methods and functions that are compiled first.
func (p CompilePlan) Declarations() []ast.Node {
	var nodes []ast.Node
	for _, d := range slices.Concat(p.Methods, p.Functions) {
		nodes = append(nodes, d)
	}
	return nodes
}

// NewStub returns a copy of d with an empty body. If it is compiled first, functions before d can call d.
func NewStub(d *ast.FuncDecl) *ast.FuncDecl {
	s := *d
	s.Body = &ast.BlockStmt{Lbrace: d.Body.Lbrace, Rbrace: d.Body.Rbrace}
	return &s
}

// ReceiverTypeName returns the name of a method's type, or "" for a function and for a receiver without a type
// name.
func ReceiverTypeName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// findEarlyFunctions reports for each function and method whether it can be declared first, because it uses no
// name that the rest of the cell declares.
func findEarlyFunctions(nodes []ast.Node) map[*ast.FuncDecl]bool {
	late, early := map[string]bool{}, map[*ast.FuncDecl]bool{}
	for _, n := range nodes {
		if d, ok := n.(*ast.FuncDecl); ok {
			// In the interpreter's syntax, macros and generic functions have a special receiver list.
			early[d] = d.Body != nil && (d.Recv == nil || ReceiverTypeName(d) != "")
			if !early[d] {
				late[d.Name.Name] = true
			}
			continue
		}
		for _, name := range declaredVariables(n) {
			late[name] = true
		}
	}
	for changed := true; changed; {
		changed = false
		for d := range early {
			if early[d] && usesAnyName(d, late) {
				early[d], changed = false, true
				if d.Recv == nil {
					late[d.Name.Name] = true
				}
			}
		}
	}
	return early
}

// declaredVariables returns the variables that n declares, including "_".
func declaredVariables(n ast.Node) (names []string) {
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok {
			names = append(names, id.Name)
		}
	}
	switch n := n.(type) {
	case *ast.DeclStmt:
		return declaredVariables(n.Decl)
	case *ast.LabeledStmt:
		return declaredVariables(n.Stmt)
	case *ast.GenDecl:
		for _, spec := range n.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && n.Tok == token.VAR {
				for _, id := range v.Names {
					add(id)
				}
			}
		}
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			for _, e := range n.Lhs {
				add(e)
			}
		}
	}
	return names
}

// usesAnyName reports whether d uses one of the names. Its receiver, parameters and results do not count.
func usesAnyName(d *ast.FuncDecl, names map[string]bool) (found bool) {
	own := map[string]bool{}
	for _, list := range []*ast.FieldList{d.Recv, d.Type.Params, d.Type.Results} {
		if list == nil {
			continue
		}
		for _, f := range list.List {
			for _, n := range f.Names {
				own[n.Name] = true
			}
		}
	}
	ast.Inspect(d, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id != d.Name && names[id.Name] && !own[id.Name]
		return !found
	})
	return found
}

// GuardGoroutines rewrites each go statement of a cell so that a panic in the goroutine
// does not end the kernel. guard and spread are names of functions that the kernel
// declares.
//
// go f(a, b) becomes go guard(f)(a, b), where guard(f) returns a function of f's type. go
// f(a, list...), which the interpreter compiles wrongly, becomes go spread(f)(a, list),
// where spread(f) returns a function whose last parameter is a slice. go f(g()) becomes go
// guard(f, g())(g()), so that guard can reject a function g with several results: the
// interpreter would compile f(g()) to a call that ends the kernel. A call of a builtin
// function is not changed.
func GuardGoroutines(nodes []ast.Node, guard, spread string) {
	for _, n := range nodes {
		ast.Inspect(n, func(n ast.Node) bool {
			g, ok := n.(*ast.GoStmt)
			if !ok {
				return true
			}
			name, args := guard, []ast.Expr{g.Call.Fun}
			if len(g.Call.Args) == 1 {
				if call, ok := g.Call.Args[0].(*ast.CallExpr); ok {
					args = append(args, call)
				}
			}
			if g.Call.Ellipsis.IsValid() {
				name, g.Call.Ellipsis = spread, token.NoPos
			}
			if id, ok := g.Call.Fun.(*ast.Ident); !ok || !slices.Contains(builtinFunctions(), id.Name) {
				g.Call.Fun = &ast.CallExpr{
					Fun:    &ast.Ident{NamePos: g.Call.Fun.Pos(), Name: name},
					Lparen: g.Call.Fun.Pos(), Args: args, Rparen: g.Call.Fun.End(),
				}
			}
			return true
		})
	}
}

// builtinFunctions returns the names of the builtin functions, which cannot be used as
// values.
func builtinFunctions() []string {
	return []string{"append", "cap", "clear", "close", "complex", "copy", "delete", "imag", "len", "make", "max", "min", "new", "panic", "print", "println", "real", "recover"}
}

// DeclaredVariables returns the variables that top-level nodes declare.
func DeclaredVariables(nodes []ast.Node) []string {
	var names []string
	for _, n := range nodes {
		names = append(names, declaredVariables(n)...)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "_" })
}
