package cell

import (
	"go/ast"
	"go/token"

	"golang.org/x/tools/go/ast/astutil"
)

// WaitFuncNames contains the names of the functions that RewriteWaits inserts into a cell.
type WaitFuncNames struct {
	From  string // from(ch) receives from ch and returns a channel of the same type with the received value
	Send  string // send(ch, v) sends v to ch
	Done  string // done() returns a channel that is closed at an interrupt, or nil in a goroutine
	Check string // check(-1) panics if the cell was interrupted
	Range string // range(x, func() { loop }) runs the loop, rewritten by RewriteRange if x is a channel
	Wait  string // wait(x, x.Wait) calls x.Wait; an interrupt ends the wait
}

// RewriteWaits changes operations that may wait for a goroutine, so that an interrupt ends the wait: <-ch becomes
// <-from(ch), ch <- v becomes send(ch, v), a select without default gets one more case, and x.Wait() becomes
// wait(x, x.Wait). A loop "for … range x" becomes the argument of a function, because only the compiler knows
// whether x is a channel. The nodes are changed in place, or replaced in the slice.
func (w WaitFuncNames) RewriteWaits(nodes []ast.Node) {
	// These are parts of a statement that is rewritten as a whole, or cannot be rewritten.
	keep := map[ast.Node]bool{}
	before := func(c *astutil.Cursor) bool {
		switch n := c.Node().(type) {
		case *ast.CommClause:
			keep[n.Comm] = true
			if r := findReceive(n.Comm); r != nil {
				keep[r] = true
			}
		case *ast.LabeledStmt:
			keep[n.Stmt] = true
		case *ast.GoStmt:
			keep[n.Call] = true
		case *ast.DeferStmt:
			keep[n.Call] = true
		}
		return true
	}
	after := func(c *astutil.Cursor) bool {
		n := c.Node()
		switch n := n.(type) {
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && !keep[n] {
				n.X = newCall(w.From, n.X.Pos(), n.X)
			}
		case *ast.SendStmt:
			if !keep[n] {
				c.Replace(&ast.ExprStmt{X: newCall(w.Send, n.Pos(), n.Chan, n.Value)})
			}
		case *ast.SelectStmt:
			w.addInterruptCase(n)
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if ok && sel.Sel.Name == "Wait" && len(n.Args) == 0 && !keep[n] {
				c.Replace(newCall(w.Wait, n.Pos(), sel.X, sel))
			}
		case *ast.RangeStmt:
			if !keep[n] {
				c.Replace(w.wrapLoop(n, n))
			}
		case *ast.LabeledStmt:
			if r, ok := n.Stmt.(*ast.RangeStmt); ok {
				c.Replace(w.wrapLoop(r, n))
			}
		}
		return true
	}
	for i, n := range nodes {
		nodes[i] = astutil.Apply(n, before, after)
	}
}

func newCall(name string, pos token.Pos, args ...ast.Expr) *ast.CallExpr {
	end := pos
	for _, a := range args {
		end = max(end, a.End()-1)
	}
	return &ast.CallExpr{Fun: &ast.Ident{NamePos: pos, Name: name}, Lparen: pos, Args: args, Rparen: end}
}

// findReceive returns the receive operation of a select case, or nil.
func findReceive(comm ast.Stmt) ast.Node {
	var e ast.Expr
	switch s := comm.(type) {
	case *ast.ExprStmt:
		e = s.X
	case *ast.AssignStmt:
		if len(s.Rhs) == 1 {
			e = s.Rhs[0]
		}
	}
	if u, ok := ast.Unparen(e).(*ast.UnaryExpr); ok {
		return u
	}
	return nil
}

// addInterruptCase adds a case that an interrupt selects, unless s has a default.
func (w WaitFuncNames) addInterruptCase(s *ast.SelectStmt) {
	for _, clause := range s.Body.List {
		if c, ok := clause.(*ast.CommClause); ok && c.Comm == nil {
			return
		}
	}
	at := s.Pos()
	minusOne := &ast.UnaryExpr{OpPos: at, Op: token.SUB, X: &ast.BasicLit{ValuePos: at, Kind: token.INT, Value: "1"}}
	s.Body.List = append(s.Body.List, &ast.CommClause{
		Case: at, Colon: at,
		Comm: &ast.ExprStmt{X: &ast.UnaryExpr{OpPos: at, Op: token.ARROW, X: newCall(w.Done, at)}},
		Body: []ast.Stmt{&ast.ExprStmt{X: newCall(w.Check, at, minusOne)}},
	})
}

// wrapLoop passes the range loop r to w.Range. whole is r with its label, if it has one.
func (w WaitFuncNames) wrapLoop(r *ast.RangeStmt, whole ast.Stmt) ast.Stmt {
	at := r.Pos()
	body := &ast.FuncLit{
		Type: &ast.FuncType{Func: at, Params: &ast.FieldList{Opening: at, Closing: at}},
		Body: &ast.BlockStmt{Lbrace: at, List: []ast.Stmt{whole}, Rbrace: r.End()},
	}
	return &ast.BlockStmt{Lbrace: at, List: []ast.Stmt{&ast.ExprStmt{X: newCall(w.Range, at, r.X, body)}}, Rbrace: r.End()}
}

// ParseRangeCall returns the loop in c, a call of WaitFuncNames.Range.
func ParseRangeCall(c *ast.CallExpr) ast.Stmt {
	return c.Args[1].(*ast.FuncLit).Body.List[0]
}

// Variables of the loops that RewriteRange creates. Go does not allow their first character in identifiers.
const (
	channelName = "\u00b7channel"
	valueName   = "\u00b7value"
	openName    = "\u00b7open"
)

// RewriteRange makes a range loop over a channel, which may have a label, receive with w.From.
func (w WaitFuncNames) RewriteRange(loop ast.Stmt) ast.Stmt {
	if l, ok := loop.(*ast.LabeledStmt); ok {
		r := l.Stmt.(*ast.RangeStmt)
		labelled := *l
		labelled.Stmt = w.newReceiveLoop(r)
		return declareChannel(r, &labelled)
	}
	r := loop.(*ast.RangeStmt)
	return declareChannel(r, w.newReceiveLoop(r))
}

// declareChannel returns a block that evaluates r's channel once and then runs loop.
func declareChannel(r *ast.RangeStmt, loop ast.Stmt) ast.Stmt {
	at := r.Pos()
	return &ast.BlockStmt{Lbrace: at, Rbrace: r.End(), List: []ast.Stmt{
		&ast.AssignStmt{Lhs: []ast.Expr{newIdent(channelName, at)}, TokPos: at, Tok: token.DEFINE, Rhs: []ast.Expr{r.X}},
		loop,
	}}
}

// newReceiveLoop returns for { v, open := <-from(channel); if !open { break }; body }.
func (w WaitFuncNames) newReceiveLoop(r *ast.RangeStmt) ast.Stmt {
	at := r.Pos()
	v := newIdent("_", at)
	var assign []ast.Stmt
	switch {
	case r.Key == nil:
	case r.Tok == token.DEFINE:
		v = r.Key.(*ast.Ident)
	default:
		v = newIdent(valueName, at)
		assign = []ast.Stmt{&ast.AssignStmt{Lhs: []ast.Expr{r.Key}, TokPos: at, Tok: token.ASSIGN, Rhs: []ast.Expr{newIdent(valueName, at)}}}
	}
	list := []ast.Stmt{
		&ast.AssignStmt{
			Lhs: []ast.Expr{v, newIdent(openName, at)}, TokPos: at, Tok: token.DEFINE,
			Rhs: []ast.Expr{&ast.UnaryExpr{OpPos: at, Op: token.ARROW, X: newCall(w.From, at, newIdent(channelName, at))}},
		},
		&ast.IfStmt{
			If: at, Cond: &ast.UnaryExpr{OpPos: at, Op: token.NOT, X: newIdent(openName, at)},
			Body: &ast.BlockStmt{Lbrace: at, List: []ast.Stmt{&ast.BranchStmt{TokPos: at, Tok: token.BREAK}}, Rbrace: at},
		},
	}
	list = append(append(list, assign...), r.Body)
	return &ast.ForStmt{For: at, Body: &ast.BlockStmt{Lbrace: r.Body.Lbrace, List: list, Rbrace: r.Body.Rbrace}}
}

func newIdent(name string, pos token.Pos) *ast.Ident { return &ast.Ident{NamePos: pos, Name: name} }
