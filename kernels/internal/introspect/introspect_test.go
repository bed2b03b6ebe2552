package introspect

import (
	"go/build"
	"io"
	"slices"
	"strings"
	"testing"

	interp "github.com/cosmos72/gomacro/fast"

	"lockstep/kernels/internal/docs"
)

// inspector returns one of a session that has run a few lines.
func inspector(t *testing.T) *Inspector {
	t.Helper()
	build.Default.GOROOT = "" // see kernels/lockstep-kernel/kernel.go
	ir := interp.New()
	ir.Comp.Stdout, ir.Comp.Stderr = io.Discard, io.Discard
	ir.Eval(`import ("strings"; "bytes"; "time")`)
	ir.Eval("type Point struct { X, Y int; private string }")
	ir.Eval("type Settings struct { Mode string; Modes []string; Other string }")
	ir.Eval("func (p Point) Norm() float64 { return 0 }")
	ir.Eval("func makePoint(n int) Point { return Point{} }")
	ir.Eval("var point Point")
	ir.Eval("var points = []*Point{}")
	ir.Eval("var buffer bytes.Buffer")
	data, err := docs.Encode(map[string]docs.Package{
		"strings": {
			"":                    {Decl: "package strings", Doc: "Package strings cuts."},
			"Cut":                 {Decl: "func Cut(s, sep string) (before, after string, found bool)", Doc: "Cut slices s."},
			"Builder":             {Decl: "type Builder struct{}", Full: "type Builder struct { /* all */ }", Doc: "A Builder builds."},
			"Builder.WriteString": {Decl: "func (b *Builder) WriteString(s string) (int, error)", Doc: "WriteString writes."},
		},
		"bytes":     {"Buffer": {Decl: "type Buffer struct{}", Doc: "A Buffer is a buffer."}, "Buffer.Len": {Decl: "func (b *Buffer) Len() int", Doc: "Len is the length."}},
		"fmt":       {"": {Decl: "package fmt"}, "Println": {Decl: "func Println(a ...any) (n int, err error)"}},
		"math/rand": {"": {Decl: "package rand // import \"math/rand\""}, "Intn": {Decl: "func Intn(n int) int"}},
		"sort":      {"": {Decl: "package sort"}, "Max": {Decl: "func Max[T any](x []T) T"}, "Set": {Decl: "type Set[T any] struct{}"}},
		"builtin":   {"append": {Decl: "func append(slice []Type, elems ...Type) []Type", Doc: "append appends."}},
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := docs.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	return &Inspector{
		Interp: ir, Docs: table, Known: []string{"bytes", "fmt", "math", "math/rand", "os", "sort", "strings", "time"},
		Values: map[string]func() []string{"main.Settings.Mode": modes, "main.Settings.Modes": modes},
	}
}

func modes() []string { return []string{"fast", "slow"} }

// split takes the cursor, written as |, out of the code.
func split(t *testing.T, code string) (string, int) {
	t.Helper()
	before, after, ok := strings.Cut(code, "|")
	if !ok {
		t.Fatalf("no cursor in %q", code)
	}
	return before + after, len([]rune(before))
}

func TestComplete(t *testing.T) {
	x := inspector(t)
	for _, tt := range []struct{ code, want, not string }{
		// Import paths.
		{"import \"ma|", "math math/rand", "fmt"},
		{"import (\n\t\"fmt\"\n\tr \"rand|\"\n)", "math/rand", "math"},
		{"x := \"ma|", "", "math"},
		// Packages: of the session, of the cell, and not imported yet.
		{"strings.Cu|", "Cut", "Contains"},
		{"import \"sort\"\nsort.In|", "Ints IntSlice", ""},
		{"import r \"math/rand\"\nr.In|", "Int Intn", ""},
		{"math.Sq|", "Sqrt", ""},
		{"strin|", "strings string", ""},
		// Fields and methods of values, through calls and indices.
		{"point.|", "X Y Norm private", ""},
		{"buffer.Wri|", "Write WriteByte", "Len"},
		{"makePoint(3).N|", "Norm", "X"},
		{"points[0].|", "X Norm", ""},
		{"strings.NewReader(\"a\").Re|", "Read ReadByte", ""},
		{"time.Now().Add(time.Hour).For|", "Format", ""},
		{"time.Now().|", "Format", "wall"},
		{"x := 3 * len(strings.TrimSp|", "TrimSpace", ""},
		{"Point{X: 1}.No|", "Norm", ""},
		{"p := Point{\n\tX: 1, pri|", "private", ""},
		// The fields of a literal, those that it has already left out, and what a
		// field's string may be.
		{"Point{|", "X Y private", "Norm"},
		{"q := &Point{X: 1, |}", "Y", "X"},
		{"q := Point{X: f(Point{Y: 2}), |", "Y", "X"},
		{"Point{X: |", "", "Y"},
		{"s := Settings{Mode: \"f|", "fast", "slow"},
		{"s := Settings{Mode: \"|\"}", "fast slow", ""},
		{"s := &Settings{Modes: []string{\"slow\", \"fa|", "fast", "slow"},
		{"s := []string{\"|", "", "fast"},
		{"s := Settings{Other: \"|", "", "fast"},
		// Variables, functions and types of the session and the cell.
		{"poi|", "point points", "makePoint"},
		{"make|", "makePoint make", ""},
		{"velocity := 3\nvel|", "velocity", ""},
		{"b := strings.Builder{}\nb.Gr|", "Grow", ""},
		{"type Car struct { Wheels int }\nc := &Car{4}\nc.|", "Wheels", ""},
		{"type Car struct { Wheels int }\nfunc (c *Car) Drive() {}\nvar c Car\nc.Dr|", "Drive", ""},
		// Inside blocks, heads and function literals.
		{"for _, q := range points {\n\tq.|", "X Norm", ""},
		{"for _, q := range points { if q.X > 0 {\n\tr := q.N|\n}}", "Norm", ""},
		{"if q := makePoint(1); q.N|", "Norm", ""},
		{"for _, q := range point.|", "X", ""},
		{"func f(q Point, names []string) {\n\tq.|\n}", "X Norm", ""},
		{"func f(q strings.Bu|", "Builder", ""},
		{"func f(list []string) { f(lis|", "list", ""},
		{"go func(q *Point) { q.|", "X", ""},
		{"switch q := point; q.X {\ncase q.|", "X Y", ""},
		{"func area(q Point) int { return are|", "area", ""},
		// Nothing after a number, in a comment or in a string.
		{"3.|", "", "X"},
		{"// point.|", "", "X"},
		{"s := `point.|", "", "X"},
		{"unknown.|", "", "X"},
		// A broken line before does not matter.
		{"q := undefined()\npoint.|", "X", ""},
		{"import \"example.org/none\"\npoint.|", "X", ""},
		{"$ls\n%cd x\npoint.|", "X", ""},
	} {
		code, cursor := split(t, tt.code)
		got, start, end := x.Complete(code, cursor)
		for _, want := range strings.Fields(tt.want) {
			if !slices.Contains(got, want) {
				t.Errorf("%q gives %v, want %s", tt.code, got, want)
			}
		}
		if tt.not != "" && slices.Contains(got, tt.not) {
			t.Errorf("%q gives %s", tt.code, tt.not)
		}
		if tt.want == "" && len(got) > 0 {
			t.Errorf("%q gives %v, want nothing", tt.code, got)
		}
		if end != cursor || start > end {
			t.Errorf("%q replaces %d to %d, the cursor is at %d", tt.code, start, end, cursor)
		}
	}
	// What was looked at is not declared.
	for _, name := range []string{"velocity", "Car", "area", "sort", cursorIdentifier} {
		if x.Interp.Comp.TryResolve(name) != nil || x.Interp.Comp.TryResolveType(name) != nil {
			t.Errorf("the session knows %s now", name)
		}
	}
}

func TestCompleteCountsCharacters(t *testing.T) {
	x := inspector(t)
	code := "s := \"größe 𝛼\"; point.No"
	n := len([]rune(code))
	got, start, end := x.Complete(code, n)
	if !slices.Contains(got, "Norm") || start != n-2 || end != n {
		t.Errorf("gives %v from %d to %d, want Norm from %d to %d", got, start, end, n-2, n)
	}
	größe, cursor := split(t, "größe := makePoint(1)\ngrö|")
	got, start, end = x.Complete(größe, cursor)
	if !slices.Contains(got, "größe") || start != cursor-3 || end != cursor {
		t.Errorf("gives %v from %d to %d, want größe from %d to %d", got, start, end, cursor-3, cursor)
	}
	// A position past the end, or before the start, is none that breaks it.
	for _, at := range []int{-1, 1000} {
		x.Complete(code, at)
		x.Inspect(code, at, 0)
	}
}

func TestInspect(t *testing.T) {
	x := inspector(t)
	for _, tt := range []struct {
		code   string
		detail int
		want   string
	}{
		{"y := strings.Cu|t(a, b)", 0, "func Cut(s, sep string) (before, after string, found bool)\n\nCut slices s."},
		{"y := strings.Cut(a, |b)", 0, ""}, // an unknown name
		{"y := strings.Cut(|)", 0, "func Cut(s, sep string) (before, after string, found bool)\n\nCut slices s."},
		{"y := strings.Cut(\"a, |", 0, "func Cut(s, sep string) (before, after string, found bool)\n\nCut slices s."},
		{"str|ings.Cut", 0, "package strings\n\nPackage strings cuts."},
		{"var b strings.Build|er", 0, "A Builder builds.\n\ntype Builder struct { /* all */ }"},
		{"var b strings.Build|er", 1, "A Builder builds.\n\ntype Builder struct { /* all */ }\n\nfunc (b *Builder) WriteString(s string) (int, error)"},
		{"var b strings.Builder\nb.WriteString|(\"a\")", 0, "func (b *Builder) WriteString(s string) (int, error)\n\nWriteString writes."},
		{"buffer.Len|()", 0, "func (b *Buffer) Len() int\n\nLen is the length."},
		{"type Wide struct { *bytes.Buffer }\nvar w Wide\nw.Len|()", 0, "func (b *Buffer) Len() int\n\nLen is the length."},
		{"buff|er", 0, "var buffer bytes.Buffer\n\nA Buffer is a buffer."},
		{"makePo|int", 0, "func makePoint(int) main.Point"},
		{"point.X|", 0, "var X int"},
		{"appen|d(x)", 0, "func append(slice []Type, elems ...Type) []Type\n\nappend appends."},
		{"nothing|", 0, ""},
		{"größe := point.No|rm()", 0, "func Norm() float64"},
	} {
		code, cursor := split(t, tt.code)
		if got := x.Inspect(code, cursor, tt.detail); got != tt.want {
			t.Errorf("%q gives %q, want %q", tt.code, got, tt.want)
		}
	}
	if got := x.Inspect("strings", 3, 1); !strings.Contains(got, "func Cut(s, sep string)") {
		t.Errorf("a package in detail gives %q", got)
	}
	if got := x.Inspect("strings", 3, 0); strings.Contains(got, "func Cut") {
		t.Errorf("a package gives %q", got)
	}
}

func TestExplain(t *testing.T) {
	x := inspector(t)
	for _, tt := range []struct{ code, message, want string }{
		{"strings.Cutt|(a)", `package strings "strings" has no symbol Cutt`, "did you mean Cut?"},
		{"strings.Zebra|(a)", `package strings "strings" has no symbol Zebra`, `package strings "strings" has no symbol Zebra`},
		{"|fmt.Println(1)", "undefined identifier: fmt", `the package is not imported: write import "fmt" at the top of the cell`},
		{"x := |rand.Intn(1)", "undefined identifier: rand", `the package is not imported: write import "math/rand" at the top of the cell`},
		{"|fmtt.Println(1)", "undefined identifier: fmtt", "did you mean fmt?"},
		{"|makPoint(1)", "undefined identifier: makPoint", "did you mean makePoint?"},
		{"func f(velocity int) int { return |velocty }", "undefined identifier: velocty", "did you mean velocity?"},
		{"|max(1, 2)", "undefined identifier: max", "the builtin function max is not available in cells; compare with if, or use math.Max for float64"},
		{"|point.Normm()", `type main.Point has no field or method "Normm": point.Normm`, "did you mean Norm?"},
		{"func f(q *Point) { |q.Normm() }", `type main.Point has no field or method "Normm": q.Normm`, "did you mean Norm?"},
		{"|Point{private1: \"\"}", "unknown field 'private1' in struct literal of type main.Point", "did you mean private?"},
		{"import \"sort\"\n|sort.Max(x)", `package sort "sort" has no symbol Max`, "sort.Max: generic functions are not available in cells; "},
		{"import \"sort\"\nvar s |sort.Set", `not a type: sort.Set <*ast.SelectorExpr>`, "sort.Set: generic types are not available in cells; "},
		{"import \"sort\"\nvar s |sort.Sex", `not a type: sort.Sex <*ast.SelectorExpr>`, "undefined: sort.Sex"},
		{"import \"sort\"\nvar s sort.Set|[int]", "expected ';', found '['", "expected ';', found '['; sort.Set: generic types are not"},
		{"|point.Nrom()", `type main.Point has no field or method "Nrom": point.Nrom`, "did you mean Norm?"},
		{"|point.Norm()", "compileObjGetMethod for *main.Node.Sum: internal error, method type is nil! …", "methods of a type that refers to itself do not work in cells; "},
		{"|point", "runtime error", "runtime error"},
	} {
		code, cursor := split(t, tt.code)
		line, column := 1+strings.Count(code[:cursor], "\n"), cursor-strings.LastIndex(code[:cursor], "\n")
		got := x.Explain(code, line, column, tt.message)
		if !strings.HasPrefix(got, tt.want) && got != tt.message+"; "+tt.want {
			t.Errorf("%q: %s is explained by %q, want %q", tt.code, tt.message, got, tt.want)
		}
	}
}
