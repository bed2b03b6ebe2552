package cell

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/token"
	"strings"
	"testing"

	"github.com/cosmos72/gomacro/go/etoken"
	"github.com/cosmos72/gomacro/go/parser"
)

func parse(t *testing.T, code string) []ast.Node {
	t.Helper()
	var p parser.Parser
	p.Configure(0, macroChar)
	p.Init(etoken.NewFileSet(), "cell", 0, []byte(code))
	nodes, err := p.Parse()
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func TestOrder(t *testing.T) {
	for _, tt := range []struct{ code, methods, functions, rest string }{
		{"x := 1\nfunc f() int { return x }", "", "", "statement f"},
		{"x := 1\nfunc f() int { return 2 }", "", "f", "statement"},
		{"x := 1\nfunc f() int { return g() }\nfunc g() int { return x }", "", "", "statement f g"},
		{"func f() int { return g() }\nfunc g() int { return f() }", "", "f g", ""},
		{"type T struct{}\nfunc (t *T) M() {}\nvar v T\nfunc (t T) N() { _ = v }", "M", "", "decl N"},
		{"w := T{}\nn := 1\nfunc (w T) M(n int) int { return n + w.n }\ntype T struct { n int }", "M", "", "statement statement"},
		{"for i := 0; i < 3; i++ {}\nfunc f(i int) int { return i }", "", "f", "statement"},
	} {
		p := NewCompilePlan(parse(t, tt.code))
		names := func(list []*ast.FuncDecl) string {
			var s []string
			for _, d := range list {
				s = append(s, d.Name.Name)
			}
			return strings.Join(s, " ")
		}
		var rest []string
		for _, n := range p.Rest {
			switch n := n.(type) {
			case *ast.FuncDecl:
				rest = append(rest, n.Name.Name)
			case *ast.GenDecl:
				rest = append(rest, "decl")
			default:
				rest = append(rest, "statement")
			}
		}
		if m, f, r := names(p.Methods), names(p.Functions), strings.Join(rest, " "); m != tt.methods || f != tt.functions || r != tt.rest {
			t.Errorf("%q gives methods %q, functions %q, rest %q, want %q, %q, %q", tt.code, m, f, r, tt.methods, tt.functions, tt.rest)
		}
	}
	p := NewCompilePlan(parse(t, "var v T\ntype T struct{}\nconst c = 1\nimport \"fmt\""))
	if len(p.Types) != 3 || !p.Own["T"] || p.Own["c"] {
		t.Errorf("the plan is %+v", p)
	}
}

func TestGuard(t *testing.T) {
	for code, want := range map[string]string{
		"go f(a, 1)":              "go guard(f)(a, 1)",
		"go x.m()":                "go guard(x.m)()",
		"go f(a, list...)":        "go spread(f)(a, list)",
		"go f(g())":               "go guard(f, g())(g())",
		"go close(c)":             "go close(c)",
		"if a { go f() }":         "if a { go guard(f)() }",
		"go func() { go f() }()":  "go guard(func() { go guard(f)() })()",
		"func h() { go f() }":     "func h() { go guard(f)() }",
		"x := func() { go f(1) }": "x := func() { go guard(f)(1) }",
	} {
		nodes := parse(t, code)
		GuardGoroutines(nodes, "guard", "spread")
		var b bytes.Buffer
		if err := format.Node(&b, token.NewFileSet(), nodes[0]); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(b.String()), " "); got != want {
			t.Errorf("%q becomes %q, want %q", code, got, want)
		}
	}
}
