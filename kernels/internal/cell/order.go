package cell

import (
	"go/ast"
	"go/token"
	"slices"
)

// A Plan is the order in which the nodes of a cell are declared and run. Imports, types
// and constants come first, then methods and functions that use no variable of the cell,
// and then the rest in source order. A statement may therefore use a function that is
// declared below it, and an interface is complete before a value is converted to it. A
// function that uses a variable of the cell stays after that variable.
type Plan struct {
	Types     []ast.Node
	Methods   []*ast.FuncDecl
	Functions []*ast.FuncDecl
	Rest      []ast.Node
	Own       map[string]bool // the types that the cell declares
}

// Order returns the plan of a cell.
func Order(nodes []ast.Node) Plan {
	p := Plan{Own: map[string]bool{}}
	early := earlyFunctions(nodes)
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

// Declarations returns the methods and functions that come first.
func (p Plan) Declarations() []ast.Node {
	var nodes []ast.Node
	for _, d := range slices.Concat(p.Methods, p.Functions) {
		nodes = append(nodes, d)
	}
	return nodes
}

// Stub returns a function or method without its body. Compiling the stub first declares
// the function to others that are compiled before it.
func Stub(d *ast.FuncDecl) *ast.FuncDecl {
	s := *d
	s.Body = &ast.BlockStmt{Lbrace: d.Body.Lbrace, Rbrace: d.Body.Rbrace}
	return &s
}

// Receiver returns the name of the type that a method belongs to.
func Receiver(d *ast.FuncDecl) string {
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

// earlyFunctions returns the functions and methods that use no name which the rest of the
// cell declares.
func earlyFunctions(nodes []ast.Node) map[*ast.FuncDecl]bool {
	late, early := map[string]bool{}, map[*ast.FuncDecl]bool{}
	for _, n := range nodes {
		if d, ok := n.(*ast.FuncDecl); ok {
			// Macros and generic functions have a special receiver list in the
			// interpreter's syntax.
			early[d] = d.Body != nil && (d.Recv == nil || Receiver(d) != "")
			if !early[d] {
				late[d.Name.Name] = true
			}
			continue
		}
		for _, name := range declared(n) {
			late[name] = true
		}
	}
	for changed := true; changed; {
		changed = false
		for d := range early {
			if early[d] && mentions(d, late) {
				early[d], changed = false, true
				if d.Recv == nil {
					late[d.Name.Name] = true
				}
			}
		}
	}
	return early
}

// declared returns the names of the variables that a node of a cell declares.
func declared(n ast.Node) (names []string) {
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok {
			names = append(names, id.Name)
		}
	}
	switch n := n.(type) {
	case *ast.DeclStmt:
		return declared(n.Decl)
	case *ast.LabeledStmt:
		return declared(n.Stmt)
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

// mentions reports whether a function uses one of the names, except as the name of its
// own receiver, parameter or result.
func mentions(d *ast.FuncDecl, names map[string]bool) (found bool) {
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

// Guard rewrites each go statement of a cell so that a panic in the goroutine does not
// end the kernel. go f(a, b) becomes go guard(f)(a, b); guard is the name of a function
// that returns a function of f's type. go f(a, list...), which the interpreter compiles
// wrongly, becomes go spread(f)(a, list); spread returns a function whose last parameter
// is a plain slice. If the only argument is a call, it is also passed to guard, which
// rejects a call with several results: the interpreter would compile it to a call that
// ends the kernel. A call of a builtin function is not changed.
func Guard(nodes []ast.Node, guard, spread string) {
	for _, n := range nodes {
		ast.Inspect(n, func(n ast.Node) bool {
			g, ok := n.(*ast.GoStmt)
			if !ok {
				return true
			}
			name, shown := guard, []ast.Expr{g.Call.Fun}
			if len(g.Call.Args) == 1 {
				if call, ok := g.Call.Args[0].(*ast.CallExpr); ok {
					shown = append(shown, call)
				}
			}
			if g.Call.Ellipsis.IsValid() {
				name, g.Call.Ellipsis = spread, token.NoPos
			}
			if id, ok := g.Call.Fun.(*ast.Ident); !ok || !slices.Contains(builtins(), id.Name) {
				g.Call.Fun = &ast.CallExpr{
					Fun:    &ast.Ident{NamePos: g.Call.Fun.Pos(), Name: name},
					Lparen: g.Call.Fun.Pos(), Args: shown, Rparen: g.Call.Fun.End(),
				}
			}
			return true
		})
	}
}

// builtins returns the names of the builtin functions, which cannot be used as values.
func builtins() []string {
	return []string{"append", "cap", "clear", "close", "complex", "copy", "delete", "imag", "len", "make", "max", "min", "new", "panic", "print", "println", "real", "recover"}
}

// Variables returns the names of the variables that top-level nodes of a cell
// declare.
func Variables(nodes []ast.Node) []string {
	var names []string
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && id.Name != "_" {
			names = append(names, id.Name)
		}
	}
	for _, n := range nodes {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					add(e)
				}
			}
		case *ast.GenDecl:
			for _, s := range n.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && n.Tok == token.VAR {
					for _, id := range v.Names {
						add(id)
					}
				}
			}
		}
	}
	return names
}
