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

// cursorIdentifier is inserted at the cursor before the code is parsed.
const cursorIdentifier = "lockstepCursor"

// scopeAt returns a scope inside the session's, with the names that the cell declares before the byte offset.
func (x *Inspector) scopeAt(p *cursorContext, offset int) *interp.Comp {
	c := interp.NewComp(x.Interp.Comp, nil)
	files := etoken.NewFileSet()
	var nodes []ast.Node
	for _, src := range p.completeSyntax(offset) {
		if nodes = parseCell(files, src); nodes != nil {
			break
		}
	}
	s := scopeBuilder{Inspector: x, c: c, own: map[string]bool{}}
	for i, n := range nodes {
		if containsCursor(n) {
			// A cell's functions may be used before they are declared.
			for _, later := range nodes[i+1:] {
				if _, ok := later.(*ast.FuncDecl); ok {
					s.declare(later)
				}
			}
			s.visit(n)
			break
		}
		s.declare(n)
	}
	return s.c
}

// completeSyntax returns variants of the code before the byte offset, one of which may parse: open brackets
// are closed, a block is added after the head of an if or a for statement, and a colon after a case.
func (p *cursorContext) completeSyntax(offset int) []string {
	list := p.tokensBefore(offset)
	stack := openBrackets(list)
	head := p.code[:offset] + " " + cursorIdentifier + " "
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
			if opensGoOrDefer(list, t) {
				b.WriteString("()")
			}
		}
	}
	in, out := inner.String(), outer.String()
	return []string{head + in + out, head + in + " {}" + out, head + in + ":" + out, head + in + " = 0" + out}
}

// opensGoOrDefer reports whether a brace opens a function literal in a go or defer statement, which needs the
// parentheses of a call after its closing brace.
func opensGoOrDefer(list []lexeme, brace lexeme) bool {
	i := slices.IndexFunc(list, func(t lexeme) bool { return t.from == brace.from })
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

// parseCell returns the nodes of a cell, or nil after a syntax error.
func parseCell(files *etoken.FileSet, src string) (nodes []ast.Node) {
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

// parseExpr parses text, or returns nil if it is not a single expression.
func parseExpr(text string) ast.Expr {
	nodes := parseCell(etoken.NewFileSet(), text)
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

func containsCursor(n ast.Node) bool {
	found := false
	if reflect.ValueOf(n).IsNil() {
		return false
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == cursorIdentifier {
			found = true
		}
		return !found
	})
	return found
}

// A scopeBuilder declares the names on the path from the top-level nodes to the cursor.
type scopeBuilder struct {
	*Inspector
	c   *interp.Comp
	own map[string]bool // names of the types that the cell declares itself
}

func (s *scopeBuilder) pushScope() { s.c = interp.NewComp(s.c, nil) }

// tryCompile calls f, which compiles code. If the interpreter panics, f's name stays unknown.
func (s *scopeBuilder) tryCompile(f func()) {
	defer func() { _ = recover() }()
	f()
}

// declare compiles n if it declares a name.
func (s *scopeBuilder) declare(n ast.Node) {
	switch n := n.(type) {
	case *ast.GenDecl:
		s.declareSpecs(n)
	case *ast.DeclStmt:
		s.declare(n.Decl)
	case *ast.LabeledStmt:
		s.declare(n.Stmt)
	case *ast.FuncDecl:
		// A method of a type from an earlier cell would change the session.
		if n.Body != nil && (n.Recv == nil || s.own[cell.ReceiverTypeName(n)]) {
			s.tryCompile(func() { s.c.Decl(cell.NewStub(n)) })
		}
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			s.tryCompile(func() { s.c.Stmt(n) })
		}
	}
}

// declareSpecs compiles the specs separately, so that an invalid one does not affect the others.
func (s *scopeBuilder) declareSpecs(n *ast.GenDecl) {
	if n.Tok == token.CONST { // iota depends on the complete declaration
		s.tryCompile(func() { s.c.Decl(n) })
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
		s.tryCompile(func() { s.c.Decl(&ast.GenDecl{Tok: n.Tok, TokPos: n.TokPos, Specs: []ast.Spec{spec}}) })
	}
}

func (s *scopeBuilder) declareVariable(name string, t xr.Type) {
	if name != "_" && t != nil {
		s.tryCompile(func() { s.c.NewBind(name, interp.VarBind, t) })
	}
}

func (s *scopeBuilder) declareFields(l *ast.FieldList) {
	if l == nil {
		return
	}
	for _, f := range l.List {
		typ := f.Type
		if e, ok := typ.(*ast.Ellipsis); ok {
			typ = &ast.ArrayType{Elt: e.Elt}
		}
		s.tryCompile(func() {
			t := s.c.Type(typ)
			for _, n := range f.Names {
				s.declareVariable(n.Name, t)
			}
		})
	}
}

// visitBlock declares the names of the statements before the cursor's statement, which it visits.
func (s *scopeBuilder) visitBlock(list []ast.Stmt) {
	for _, n := range list {
		if containsCursor(n) {
			s.visit(n)
			return
		}
		s.declare(n)
	}
}

// visit declares the names that are visible at the cursor inside n.
func (s *scopeBuilder) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if containsCursor(n.Type) {
			return
		}
		s.declare(n) // a function may call itself
		s.pushScope()
		if n.Recv != nil {
			s.declareFields(n.Recv)
		}
		s.visitFunction(n.Type, n.Body)
	case *ast.FuncLit:
		s.pushScope()
		s.visitFunction(n.Type, n.Body)
	case *ast.BlockStmt:
		s.pushScope()
		s.visitBlock(n.List)
	case *ast.IfStmt:
		s.pushScope()
		s.visitParts(n.Init, n.Cond, n.Body, n.Else)
	case *ast.ForStmt:
		s.pushScope()
		s.visitParts(n.Init, n.Cond, n.Post, n.Body)
	case *ast.SwitchStmt:
		s.pushScope()
		s.visitParts(n.Init, n.Tag, n.Body)
	case *ast.TypeSwitchStmt:
		s.pushScope()
		s.visitParts(n.Init, n.Assign, n.Body)
	case *ast.RangeStmt:
		s.pushScope()
		if containsCursor(n.Body) {
			s.declareRangeVars(n)
			s.visit(n.Body)
		} else {
			s.visit(n.X)
		}
	case *ast.CaseClause:
		s.pushScope()
		s.visitBlock(n.Body)
	case *ast.CommClause:
		s.pushScope()
		s.declare(n.Comm)
		s.visitBlock(n.Body)
	default:
		s.visitChildren(n)
	}
}

func (s *scopeBuilder) visitFunction(t *ast.FuncType, body *ast.BlockStmt) {
	s.declareFields(t.Params)
	s.declareFields(t.Results)
	if body != nil {
		s.visitBlock(body.List)
	}
}

// visitParts declares the names in the parts of a statement before the part with the cursor, which it visits.
func (s *scopeBuilder) visitParts(parts ...ast.Node) {
	for _, p := range parts {
		if p == nil || reflect.ValueOf(p).IsNil() {
			continue
		}
		if containsCursor(p) {
			s.visit(p)
			return
		}
		s.declare(p)
	}
}

// visitChildren visits the child with the cursor of a node that declares no names.
func (s *scopeBuilder) visitChildren(n ast.Node) {
	done := false
	ast.Inspect(n, func(child ast.Node) bool {
		if child == nil || child == n || done {
			return child == n
		}
		if containsCursor(child) {
			done = true
			s.visit(child)
		}
		return false
	})
}

func (s *scopeBuilder) declareRangeVars(n *ast.RangeStmt) {
	if n.Tok != token.DEFINE {
		return
	}
	s.tryCompile(func() {
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
				s.declareVariable(id.Name, v.t)
			}
		}
	})
}
