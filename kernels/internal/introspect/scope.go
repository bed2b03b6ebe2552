package introspect

import (
	"go/ast"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"strings"

	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/go/etoken"
	"github.com/cosmos72/gomacro/go/parser"
	xr "github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/cell"
)

// cursorName is an identifier that is inserted at the cursor before the code is parsed.
const cursorName = "lockstepCursor"

// scopeAt returns the scope at the byte offset at: a scope inside the session's, with the
// names that the cell declares before the offset.
func (x *Inspector) scopeAt(p *place, at int) *interp.Comp {
	c := interp.NewComp(x.Interp.Comp, nil)
	files := etoken.NewFileSet()
	var nodes []ast.Node
	for _, src := range p.closed(at) {
		if nodes = parse(files, src); nodes != nil {
			break
		}
	}
	s := scoper{Inspector: x, c: c, own: map[string]bool{}}
	for i, n := range nodes {
		if hasCursor(n) {
			// A cell's functions may be used before they are declared.
			for _, later := range nodes[i+1:] {
				if _, ok := later.(*ast.FuncDecl); ok {
					s.declare(later)
				}
			}
			s.descend(n)
			break
		}
		s.declare(n)
	}
	return s.c
}

// closed returns the code before the offset at, completed in several ways so that one of
// them may parse: with the open brackets closed, with a block after the head of an if or
// a for, and with a colon after a case.
func (p *place) closed(at int) []string {
	list := p.before(at)
	stack := open(list)
	head := p.code[:at] + " " + cursorName + " "
	var inner, outer strings.Builder
	block := false
	for _, t := range slices.Backward(stack) {
		b := &outer
		if t.tok != token.LBRACE && !block {
			b = &inner
		}
		switch t.tok {
		case token.LPAREN:
			b.WriteString(")")
		case token.LBRACK:
			b.WriteString("]")
		default:
			block = true
			b.WriteString("\n}")
			if started(list, t) {
				b.WriteString("()")
			}
		}
	}
	in, out := inner.String(), outer.String()
	return []string{head + in + out, head + in + " {}" + out, head + in + ":" + out, head + in + " = 0" + out}
}

// started reports whether a brace opens the function literal of a go or defer
// statement, which must be called.
func started(list []tok, brace tok) bool {
	i := slices.IndexFunc(list, func(t tok) bool { return t.from == brace.from })
	for i--; i > 0; i-- {
		switch list[i].tok {
		case token.FUNC:
			return list[i-1].tok == token.GO || list[i-1].tok == token.DEFER
		case token.LBRACE, token.RBRACE:
			return false
		}
	}
	return false
}

// parse returns the nodes of a cell, or nil if the cell has a syntax error.
func parse(files *etoken.FileSet, src string) (nodes []ast.Node) {
	defer func() {
		// The parser reports some errors by a panic.
		if recover() != nil {
			nodes = nil
		}
	}()
	var p parser.Parser
	p.Configure(0, '~')
	p.Init(files, "cell", 0, []byte(src))
	nodes, err := p.Parse()
	if err != nil {
		return nil
	}
	return nodes
}

func parseExpr(text string) ast.Expr {
	nodes := parse(etoken.NewFileSet(), text)
	if len(nodes) != 1 {
		return nil
	}
	switch n := nodes[0].(type) {
	case ast.Expr:
		return n
	case *ast.ExprStmt:
		return n.X
	}
	return nil
}

// hasCursor reports whether the cursor is inside a node.
func hasCursor(n ast.Node) bool {
	found := false
	if reflect.ValueOf(n).IsNil() {
		return false
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == cursorName {
			found = true
		}
		return !found
	})
	return found
}

// A scoper visits the nodes on the path to the cursor and declares their names.
type scoper struct {
	*Inspector
	c   *interp.Comp
	own map[string]bool // names of the types that the cell declares
}

// push starts an inner scope.
func (s *scoper) push() { s.c = interp.NewComp(s.c, nil) }

// try calls f, which compiles code, and recovers from the interpreter's panic if the code
// does not compile. The name in question then stays unknown.
func (s *scoper) try(f func()) {
	defer func() { _ = recover() }()
	f()
}

// declare compiles a statement or declaration if it declares a name.
func (s *scoper) declare(n ast.Node) {
	switch n := n.(type) {
	case *ast.GenDecl:
		s.genDecl(n)
	case *ast.DeclStmt:
		s.declare(n.Decl)
	case *ast.LabeledStmt:
		s.declare(n.Stmt)
	case *ast.FuncDecl:
		// A method of a type from an earlier cell would change the session.
		if n.Body != nil && (n.Recv == nil || s.own[cell.Receiver(n)]) {
			s.try(func() { s.c.Decl(cell.Stub(n)) })
		}
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			s.try(func() { s.c.Stmt(n) })
		}
	}
}

// genDecl compiles the specs of a declaration separately, so that an invalid one does not
// affect the others.
func (s *scoper) genDecl(n *ast.GenDecl) {
	if n.Tok == token.CONST { // iota depends on the complete declaration
		s.try(func() { s.c.Decl(n) })
		return
	}
	for _, spec := range n.Specs {
		switch spec := spec.(type) {
		case *ast.ImportSpec:
			// The interpreter would try to fetch a package that is not compiled in.
			if path, err := strconv.Unquote(spec.Path.Value); err != nil || !slices.Contains(s.Known, path) {
				continue
			}
		case *ast.TypeSpec:
			s.own[spec.Name.Name] = true
		}
		s.try(func() { s.c.Decl(&ast.GenDecl{Tok: n.Tok, TokPos: n.TokPos, Specs: []ast.Spec{spec}}) })
	}
}

// variable declares a variable without a value.
func (s *scoper) variable(name string, t xr.Type) {
	if name != "_" && t != nil {
		s.try(func() { s.c.NewBind(name, interp.VarBind, t) })
	}
}

// list declares the names in a list of parameters or results.
func (s *scoper) list(l *ast.FieldList) {
	if l == nil {
		return
	}
	for _, f := range l.List {
		typ := f.Type
		if e, ok := typ.(*ast.Ellipsis); ok {
			typ = &ast.ArrayType{Elt: e.Elt}
		}
		s.try(func() {
			t := s.c.Type(typ)
			for _, n := range f.Names {
				s.variable(n.Name, t)
			}
		})
	}
}

// block declares the names of the statements before the one with the cursor, and then
// visits that statement.
func (s *scoper) block(list []ast.Stmt) {
	for _, n := range list {
		if hasCursor(n) {
			s.descend(n)
			return
		}
		s.declare(n)
	}
}

// descend visits the node that contains the cursor.
func (s *scoper) descend(n ast.Node) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if hasCursor(n.Type) {
			return
		}
		s.declare(n) // a function may call itself
		s.push()
		if n.Recv != nil {
			s.list(n.Recv)
		}
		s.function(n.Type, n.Body)
	case *ast.FuncLit:
		s.push()
		s.function(n.Type, n.Body)
	case *ast.BlockStmt:
		s.push()
		s.block(n.List)
	case *ast.IfStmt:
		s.push()
		s.head(n.Init, n.Cond, n.Body, n.Else)
	case *ast.ForStmt:
		s.push()
		s.head(n.Init, n.Cond, n.Post, n.Body)
	case *ast.SwitchStmt:
		s.push()
		s.head(n.Init, n.Tag, n.Body)
	case *ast.TypeSwitchStmt:
		s.push()
		s.head(n.Init, n.Assign, n.Body)
	case *ast.RangeStmt:
		s.push()
		if hasCursor(n.Body) {
			s.rangeVars(n)
			s.descend(n.Body)
		} else {
			s.descend(n.X)
		}
	case *ast.CaseClause:
		s.push()
		s.block(n.Body)
	case *ast.CommClause:
		s.push()
		s.declare(n.Comm)
		s.block(n.Body)
	default:
		s.children(n)
	}
}

func (s *scoper) function(t *ast.FuncType, body *ast.BlockStmt) {
	s.list(t.Params)
	s.list(t.Results)
	if body != nil {
		s.block(body.List)
	}
}

// head declares the names in the parts of a statement's head before the part with the
// cursor.
func (s *scoper) head(parts ...ast.Node) {
	for _, p := range parts {
		if p == nil || reflect.ValueOf(p).IsNil() {
			continue
		}
		if hasCursor(p) {
			s.descend(p)
			return
		}
		s.declare(p)
	}
}

// children visits the child with the cursor of a node that declares no names.
func (s *scoper) children(n ast.Node) {
	done := false
	ast.Inspect(n, func(child ast.Node) bool {
		if child == nil || child == n || done {
			return child == n
		}
		if hasCursor(child) {
			done = true
			s.descend(child)
		}
		return false
	})
}

// rangeVars declares the variables of a range clause.
func (s *scoper) rangeVars(n *ast.RangeStmt) {
	if n.Tok != token.DEFINE {
		return
	}
	s.try(func() {
		t := s.c.Expr1(n.X, nil).Type
		intType := s.c.TypeOf(0)
		var key, value xr.Type
		switch t.Kind() {
		case reflect.Pointer:
			key, value = intType, t.Elem().Elem()
		case reflect.Slice, reflect.Array:
			key, value = intType, t.Elem()
		case reflect.String:
			key, value = intType, s.c.TypeOf('a')
		case reflect.Map:
			key, value = t.Key(), t.Elem()
		case reflect.Chan:
			key = t.Elem()
		}
		for _, v := range []struct {
			name ast.Expr
			t    xr.Type
		}{{n.Key, key}, {n.Value, value}} {
			if id, ok := v.name.(*ast.Ident); ok {
				s.variable(id.Name, v.t)
			}
		}
	})
}
