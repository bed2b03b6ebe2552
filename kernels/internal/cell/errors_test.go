package cell

import (
	"go/ast"
	"testing"
)

func TestChecks(t *testing.T) {
	c := CheckFuncNames{
		Values: "values", Last: "last", Argument: "argument", Ignored: "ignored", Deferred: "deferred", Body: "body",
		IsType: func(e ast.Expr) bool {
			switch e := e.(type) {
			case *ast.Ident:
				return e.Name == "T"
			case *ast.SelectorExpr:
				return e.Sel.Name == "T"
			}
			return false
		},
	}
	for code, want := range map[string]string{
		// Assignments and declarations.
		"x := f()":           "x := values(f(), 1)",
		"x, y := f()":        "x, y := values(f(), 2)",
		"x, y = f(), g()":    "x, y = values(f(), 1), values(g(), 1)",
		"x += f()":           "x += values(f(), 1)",
		"var x = f()":        "var x = values(f(), 1)",
		"var x, y int = f()": "var x, y int = values(f(), 2)",
		"_ = f()":            "_ = ignored(f(), 1)",
		"_, _ = (f())":       "_, _ = (ignored(f(), 2))",
		"x, _ := f()":        "x, _ := values(f(), 2)",
		"const x = f()":      "const x = f()",
		"f().x = g()":        "values(f(), 1).x = values(g(), 1)",
		"m[f()] = 1":         "m[values(f(), 1)] = 1",
		// Statements and the last line.
		"f()":       "last(f())",
		"(f())":     "(last(f()))",
		"f(); g":    "values(f(), 0)",
		"{ f() }":   "{ values(f(), 0) }",
		"f().g()":   "last(values(f(), 1).g())",
		"f()()":     "last(values(f(), 1)())",
		"f() + g()": "values(f(), 1) + values(g(), 1)",
		// Arguments.
		"f(g())":       "last(f(argument(g())))",
		"f((g()))":     "last(f((argument(g()))))",
		"f(a, g())":    "last(f(a, values(g(), 1)))",
		"f(g()...)":    "last(f(values(g(), 1)...))",
		"p.f(g(h()))":  "last(p.f(argument(g(argument(h())))))",
		"x := f(-g())": "x := values(f(-values(g(), 1)), 1)",
		// Conversions and built-in functions.
		"T(f())":              "T(values(f(), 1))",
		"p.T(f())":            "p.T(values(f(), 1))",
		"(*T)(f())":           "(*T)(values(f(), 1))",
		"[]T(f())":            "[]T(values(f(), 1))",
		"len(f())":            "len(values(f(), 1))",
		"append(x, f()...)":   "append(x, values(f(), 1)...)",
		"x := make([]T, f())": "x := make([]T, values(f(), 1))",
		// Other places.
		"[]T{f(), 1: g()}":                "[]T{values(f(), 1), 1: values(g(), 1)}",
		"x := p.S{A: f()}":                "x := p.S{A: values(f(), 1)}",
		"c <- f()":                        "c <- values(f(), 1)",
		"<-f()":                           "<-values(f(), 1)",
		"f()[g()]":                        "values(f(), 1)[values(g(), 1)]",
		"f().(T)":                         "values(f(), 1).(T)",
		"if x := f(); x > g() { h() }":    "if x := values(f(), 1); x > values(g(), 1) { values(h(), 0) }",
		"for f() { }":                     "for values(f(), 1) { }",
		"for range f() { }":               "for range values(f(), 1) { }",
		"switch f() { case g(): h() }":    "switch values(f(), 1) { case values(g(), 1): values(h(), 0) }",
		"switch x := f().(type) { }":      "switch x := values(f(), 1).(type) { }",
		"select { case x := <-f(): x() }": "select { case x := <-values(f(), 1): values(x(), 0) }",
		// Functions.
		"func a() (T, error) { return f() }":                 `func a() (T, error) { body("a", func() { return values(f(), 2) }) }`,
		"func (t T) a() (x, y T) { return f() }":             `func (t T) a() (x, y T) { body("", func() { return values(f(), 2) }) }`,
		"func a() T { return f() }":                          `func a() T { body("a", func() { return values(f(), 1) }) }`,
		"func a() (T, T) { return f(), g() }":                `func a() (T, T) { body("a", func() { return values(f(), 1), values(g(), 1) }) }`,
		"func a() { }":                                       "func a() { }",
		"x := func() T { return f() }":                       `x := func() T { body("", func() { return values(f(), 1) }) }`,
		"func a() (T, T) { return func() T { return f() } }": `func a() (T, T) { body("a", func() { return func() T { body("", func() { return values(f(), 1) }) } }) }`,
		// Deferred calls and goroutines.
		"defer f(g())":           "defer deferred(f)(values(g(), 1))",
		"defer close(f())":       "defer close(values(f(), 1))",
		"go f(g(), h())":         "go f(values(g(), 1), values(h(), 1))",
		"go func() { f() }()":    `go func() { body("", func() { values(f(), 0) }) }()`,
		"defer func() { f() }()": `defer deferred(func() { body("", func() { values(f(), 0) }) })()`,
	} {
		nodes := parse(t, code)
		c.WrapCalls(nodes, true)
		if got := source(t, nodes[0]); got != want {
			t.Errorf("%q becomes\n%q, want\n%q", code, got, want)
		}
	}
	nodes := parse(t, "f()")
	c.WrapCalls(nodes, false)
	if got, want := source(t, nodes[0]), "values(f(), 0)"; got != want {
		t.Errorf("a call that is not the last line becomes %q, want %q", got, want)
	}
}

func TestSource(t *testing.T) {
	for message, want := range map[string]string{
		"undefined: x":                             "undefined: x",
		"bad ·values(f(a, b), 2)":                  "bad f(a, b)",
		"bad ·last(f(·values(g(), 1), h[1, 2])).x": "bad f(g(), h[1, 2]).x",
		"bad ·values(f(":                           "bad f(",
	} {
		if got := RestoreSource(message); got != want {
			t.Errorf("Source(%q) = %q, want %q", message, got, want)
		}
	}
}

// The call that a function of Checks gets, and the number, come back.
func TestChecked(t *testing.T) {
	nodes := parse(t, "values(f(a), 3)")
	inner, n := ParseCheckCall(nodes[0].(*ast.CallExpr))
	if got := source(t, inner); got != "f(a)" || n != 3 {
		t.Errorf("Checked gives %q and %d, want f(a) and 3", got, n)
	}
	nodes = parse(t, `body("name", func() { x() })`)
	name, body := ParseBodyCall(nodes[0].(*ast.CallExpr))
	if got := source(t, body); name != "name" || got != "{ x() }" {
		t.Errorf("Function gives %q and %q", name, got)
	}
}
