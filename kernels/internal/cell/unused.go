package cell

import (
	"go/ast"
	"go/token"
)

// FindUnusedResults returns the calls whose last result is assigned to a variable that the cell does not read
// afterwards, with the variable. Only the compiler knows which results are errors. nodes must not have been
// rewritten yet.
func FindUnusedResults(nodes []ast.Node) map[*ast.CallExpr]*ast.Ident {
	u := nameUsage{read: map[string][]token.Pos{}, anywhere: map[string]bool{}, written: map[*ast.Ident]bool{}}
	for _, n := range nodes {
		if n != nil {
			ast.Walk(nameVisitor{&u, nil, token.NoPos, false}, n)
		}
	}
	unused := map[*ast.CallExpr]*ast.Ident{}
	for _, a := range u.assigned {
		if !u.isRead(a) {
			unused[a.call] = a.id
		}
	}
	return unused
}

type nameUsage struct {
	assigned []assignment
	written  map[*ast.Ident]bool
	read     map[string][]token.Pos
	anywhere map[string]bool // names that a function literal reads, which may run at any time
}

// An assignment gives the last result of a call to a name.
type assignment struct {
	id   *ast.Ident
	call *ast.CallExpr
	from token.Pos // reads after this position may see the value; it is the start of the outermost loop around the assignment, if there is one
}

func (u *nameUsage) isRead(a assignment) bool {
	if u.anywhere[a.id.Name] {
		return true
	}
	for _, p := range u.read[a.id.Name] {
		if p > a.from {
			return true
		}
	}
	return false
}

// recordAssignment records an assignment inside the outermost loop that starts at loop, or token.NoPos.
func (u *nameUsage) recordAssignment(left []ast.Expr, right []ast.Expr, loop token.Pos) {
	for _, e := range left {
		if id, ok := e.(*ast.Ident); ok {
			u.written[id] = true
		}
	}
	if len(left) == 0 || len(right) != 1 {
		return
	}
	id, ok := left[len(left)-1].(*ast.Ident)
	call, isCall := ast.Unparen(right[0]).(*ast.CallExpr)
	if !ok || !isCall || id.Name == "_" {
		return
	}
	from := right[0].End()
	if loop.IsValid() {
		from = loop
	}
	u.assigned = append(u.assigned, assignment{id, call, from})
}

type nameVisitor struct {
	*nameUsage
	results *ast.FieldList // results of the function around the node
	loop    token.Pos      // start of the outermost loop around the node, if there is one
	literal bool           // the node is in a function literal
}

// Visit implements ast.Visitor.
func (v nameVisitor) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.FuncDecl:
		v.results, v.loop = n.Type.Results, token.NoPos
	case *ast.FuncLit:
		v.results, v.loop, v.literal = n.Type.Results, token.NoPos, true
	case *ast.ForStmt, *ast.RangeStmt:
		if !v.loop.IsValid() {
			v.loop = n.Pos()
		}
	case *ast.AssignStmt:
		if n.Tok == token.ASSIGN || n.Tok == token.DEFINE {
			v.recordAssignment(n.Lhs, n.Rhs, v.loop)
		}
	case *ast.ValueSpec:
		var left []ast.Expr
		for _, id := range n.Names {
			left = append(left, id)
		}
		v.recordAssignment(left, n.Values, v.loop)
	case *ast.ReturnStmt:
		if len(n.Results) == 0 && v.results != nil { // a return without values reads all named results
			for _, f := range v.results.List {
				for _, id := range f.Names {
					v.recordRead(id.Name, n.End())
				}
			}
		}
	case *ast.Field: // a parameter, or a field of a struct
		for _, id := range n.Names {
			v.written[id] = true
		}
	case *ast.SelectorExpr:
		v.written[n.Sel] = true // not a variable, but the name of a field or of a package's object
	case *ast.Ident:
		if !v.written[n] {
			v.recordRead(n.Name, n.Pos())
		}
	}
	return v
}

func (v nameVisitor) recordRead(name string, pos token.Pos) {
	v.read[name] = append(v.read[name], pos)
	if v.literal {
		v.anywhere[name] = true
	}
}

// FindUncalledMain returns the declaration of main in a cell that does not mention main elsewhere, or nil. Whoever
// pastes a program into a cell expects that it runs.
func FindUncalledMain(nodes []ast.Node) (main *ast.FuncDecl) {
	mentioned := false
	for _, n := range nodes {
		if f, ok := n.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "main" {
			main = f
			continue
		}
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.PACKAGE {
			continue
		}
		ast.Inspect(n, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.Name == "main" {
				mentioned = true
			}
			return true
		})
	}
	if mentioned {
		return nil
	}
	return main
}
