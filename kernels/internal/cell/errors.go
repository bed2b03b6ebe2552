package cell

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/ast/astutil"
)

// CheckFuncNames contains the names of the functions in which WrapCalls wraps calls. They end the cell if a call
// returns an error that the cell does not handle. They examine result types, which only the compiler knows.
type CheckFuncNames struct {
	Values   string // values(f(), n): the cell uses n results of f(); n is 0 if the call is a statement
	Last     string // last(f()): the call is the last line of the cell, whose results are shown
	Argument string // argument(f()): the call is the only argument of another call, which may accept several results
	Ignored  string // ignored(f(), n): the results are assigned to n blank identifiers
	Deferred string // deferred(f) replaces the function f of a defer statement
	Body     string // body("name", func() { statements }) replaces the body of a function

	// IsType reports whether an identifier or a selector names a type, so that the expression around it is a
	// conversion and not a call.
	IsType func(ast.Expr) bool
}

// WrapCalls wraps the calls in nodes in calls of the functions of c, so that an error that the cell does not
// handle ends it. It changes the nodes in place, or replaces them in the slice. showsLast reports whether the last
// node is the cell's last line, whose value the notebook shows.
func (c CheckFuncNames) WrapCalls(nodes []ast.Node, showsLast bool) {
	w := callWrapper{CheckFuncNames: c, used: map[ast.Expr]resultUse{}}
	for i, n := range nodes {
		if e, ok := n.(ast.Expr); ok {
			w.used[e] = resultUse{function: c.Values}
			if showsLast && i == len(nodes)-1 {
				w.used[e] = resultUse{function: c.Last, any: true}
			}
		}
		nodes[i] = astutil.Apply(n, w.recordUses, w.wrapNode)
	}
}

type resultUse struct {
	function string // name of the function of CheckFuncNames to wrap the call in; empty if the call is not changed
	results  int    // number of results that the cell uses
	any      bool   // the number of used results is unknown
}

// A callWrapper wraps the calls in one node of a cell at a time; see WrapCalls.
type callWrapper struct {
	CheckFuncNames
	used      map[ast.Expr]resultUse
	functions []*ast.FuncType // types of the functions around the node
}

// recordUses is called for each node before its children, and returns false to skip them. It records how the node
// uses the results of calls among its children, unless it uses one value.
func (w *callWrapper) recordUses(c *astutil.Cursor) bool {
	switch n := c.Node().(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.ArrayType:
		return false // the length of an array type is a constant
	case *ast.FuncDecl:
		if n.Body == nil || n.Recv != nil && ReceiverTypeName(n) == "" {
			return false // a macro or a generic function
		}
		w.functions = append(w.functions, n.Type)
	case *ast.FuncLit:
		w.functions = append(w.functions, n.Type)
	case *ast.ExprStmt:
		w.used[n.X] = resultUse{function: w.Values}
	case *ast.AssignStmt:
		if len(n.Rhs) == 1 && (n.Tok == token.ASSIGN || n.Tok == token.DEFINE) {
			w.used[n.Rhs[0]] = w.classifyAssignment(n.Lhs)
		}
	case *ast.ValueSpec:
		if len(n.Values) == 1 {
			var names []ast.Expr
			for _, id := range n.Names {
				names = append(names, id)
			}
			w.used[n.Values[0]] = w.classifyAssignment(names)
		}
	case *ast.ReturnStmt:
		if len(n.Results) == 1 && len(w.functions) > 0 {
			w.used[n.Results[0]] = resultUse{function: w.Values, results: max(1, w.functions[len(w.functions)-1].Results.NumFields())}
		}
	case *ast.DeferStmt:
		w.used[n.Call] = resultUse{}
	case *ast.GoStmt:
		w.used[n.Call] = resultUse{}
	case *ast.ParenExpr:
		if u, ok := w.used[n]; ok {
			w.used[n.X] = u
		}
	case *ast.CallExpr:
		if _, ok := w.used[n]; !ok {
			w.used[n] = resultUse{function: w.Values, results: 1}
		}
		if !w.mayReturnError(n) {
			w.used[n] = resultUse{}
		} else if len(n.Args) == 1 && !n.Ellipsis.IsValid() && w.used[n].function != "" {
			w.used[n.Args[0]] = resultUse{function: w.Argument, any: true}
		}
	}
	return true
}

// classifyAssignment returns the use of a call whose results are assigned to left: w.Ignored if all are blank
// identifiers, and otherwise w.Values.
func (w *callWrapper) classifyAssignment(left []ast.Expr) resultUse {
	blank := func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return ok && id.Name == "_"
	}
	if !slices.ContainsFunc(left, func(e ast.Expr) bool { return !blank(e) }) {
		return resultUse{function: w.Ignored, results: len(left)}
	}
	return resultUse{function: w.Values, results: len(left)}
}

// mayReturnError reports whether n may return an error, unlike a conversion or a builtin function.
func (w *callWrapper) mayReturnError(n *ast.CallExpr) bool {
	switch f := ast.Unparen(n.Fun).(type) {
	case *ast.ArrayType, *ast.MapType, *ast.ChanType, *ast.FuncType, *ast.InterfaceType, *ast.StructType:
		return false
	case *ast.Ident:
		return !slices.Contains(builtinFunctions(), f.Name) && !w.IsType(f)
	case *ast.StarExpr:
		return !w.IsType(f.X)
	default:
		return !w.IsType(f)
	}
}

// wrapNode is called for each node after its children. It wraps calls, function bodies and the functions of defer
// statements, and returns true to continue with the next node.
func (w *callWrapper) wrapNode(c *astutil.Cursor) bool {
	switch n := c.Node().(type) {
	case *ast.FuncDecl:
		w.functions = w.functions[:len(w.functions)-1]
		if n.Recv == nil {
			n.Body = w.wrapBody(n.Name.Name, n.Body)
		} else {
			n.Body = w.wrapBody("", n.Body)
		}
	case *ast.FuncLit:
		w.functions = w.functions[:len(w.functions)-1]
		n.Body = w.wrapBody("", n.Body)
	case *ast.DeferStmt:
		if id, ok := n.Call.Fun.(*ast.Ident); !ok || !slices.Contains(builtinFunctions(), id.Name) {
			n.Call.Fun = newCall(w.Deferred, n.Call.Pos(), n.Call.Fun)
		}
	case *ast.CallExpr:
		u := w.used[n]
		switch {
		case u.function == "":
		case u.any:
			c.Replace(newCall(u.function, n.Pos(), n))
		default:
			count := &ast.BasicLit{ValuePos: n.Pos(), Kind: token.INT, Value: strconv.Itoa(u.results)}
			c.Replace(newCall(u.function, n.Pos(), n, count))
		}
	}
	return true
}

// wrapBody returns a block that passes a function's name and statements to w.Body, or b if b is empty.
func (w *callWrapper) wrapBody(name string, b *ast.BlockStmt) *ast.BlockStmt {
	if len(b.List) == 0 {
		return b
	}
	at := b.List[0].Pos()
	statements := &ast.FuncLit{Type: &ast.FuncType{Func: at, Params: &ast.FieldList{Opening: at, Closing: at}}, Body: b}
	literal := &ast.BasicLit{ValuePos: at, Kind: token.STRING, Value: strconv.Quote(name)}
	return &ast.BlockStmt{
		Lbrace: b.Lbrace, Rbrace: b.Rbrace,
		List: []ast.Stmt{&ast.ExprStmt{X: newCall(w.Body, at, literal, statements)}},
	}
}

// ParseBodyCall returns the arguments of c, a call of CheckFuncNames.Body: a function's name and statements.
func ParseBodyCall(c *ast.CallExpr) (name string, body *ast.BlockStmt) {
	name, _ = strconv.Unquote(c.Args[0].(*ast.BasicLit).Value)
	return name, c.Args[1].(*ast.FuncLit).Body
}

// ParseCheckCall parses a call of one of CheckFuncNames, such as values(f(), n), that WrapCalls has created. It
// returns the wrapped call f() and the number n of used results, or 0 if c has no second argument.
func ParseCheckCall(c *ast.CallExpr) (inner *ast.CallExpr, results int) {
	inner = c.Args[0].(*ast.CallExpr)
	if len(c.Args) > 1 {
		results, _ = strconv.Atoi(c.Args[1].(*ast.BasicLit).Value)
	}
	return inner, results
}

// RestoreSource restores the cell's source in a message of the compiler: it replaces each call that the kernel
// has inserted by its first argument.
func RestoreSource(message string) string {
	for {
		at := strings.LastIndex(message, hiddenPrefix)
		if at < 0 {
			return message
		}
		open := strings.IndexByte(message[at:], '(')
		if open < 0 {
			return message
		}
		first, end := splitFirstArgument(message[at+open+1:])
		message = message[:at] + first + message[at+open+1+end:]
	}
}

// hiddenPrefix begins the names of the kernel's functions in a cell. Go does not allow it in identifiers.
const hiddenPrefix = "\u00b7"

// splitFirstArgument parses arguments, after the opening parenthesis. It returns the first one, and the offset
// after the closing parenthesis.
func splitFirstArgument(text string) (first string, end int) {
	depth, comma := 0, -1
	for i := range len(text) {
		switch text[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ',':
			if depth == 0 && comma < 0 {
				comma = i
			}
		}
		if depth < 0 {
			if comma < 0 {
				comma = i
			}
			return text[:comma], i + 1
		}
	}
	return text, len(text)
}
