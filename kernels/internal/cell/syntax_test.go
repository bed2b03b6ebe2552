package cell

import (
	"strings"
	"testing"
)

// TestSyntaxErrors checks the place and the advice of the errors of cells that do not parse.
func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct{ code, want string }{
		// The place of the fault, not the one where the parser notices it.
		{"if x > 1\n{\n\tf(x)\n}", "line 2, column 1: the { after if must be at the end of line 1"},
		{"for i := 0; i < 3; i++\n{\n}", "line 2, column 1: the { after for must be at the end of line 1"},
		{"for i := range f([]int{1})\n\n{\n}", "line 3, column 1: the { after for must be at the end of line 1"},
		{"x := 1\nfunc f(n int) int\n{\n\treturn n\n}", "line 3, column 1: the { after func must be at the end of line 2"},
		{"switch x\n{\ncase 1:\n}", "line 2, column 1: the { after switch"},
		{"if x {\n}\nelse {\n}", "line 3, column 1: else must be on the line of the closing brace, line 2: } else {"},
		{"x := 1\nif x == 3\n\tf(x)", "line 2, column 9: the { after if is missing at the end of this line"},
		{"func g() int {\n\treturn 1", "line 1, column 14: this { is not closed: a } is missing (noticed in line 2)"},
		{"if x {\n\tfor {\n\t}\n", "line 1, column 6: this { is not closed"},
		{"f(x\ng(y)", "line 1, column 2: this ( is not closed: a ) is missing"},
		{"y := [", "line 1, column 6: this [ is not closed"},
		{"f(x))", "line 1, column 5: this ) closes nothing"},
		{"x := 1\nf(a[1)", "line 2, column 6: found ), expected ], which closes the [ of line 2, column 4"},
		{"f(\"open)\ng()", "line 1, column 3: string literal not terminated: the closing quote is missing"},
		{"s := `open\n", "line 1, column 6: raw string literal not terminated"},
		{"x := T{\n\tA: 1,\n\tB: 2\n}", "line 3, column 6: missing ',' before newline in composite literal; a list over several lines ends each line with a comma"},
		{"x :=", "found the end of the cell"},
		{"var 3x int", "line 1, column 5: expected a name, found 3"},
		// Habits of other languages.
		{"x = = 1", "line 1, column 5: expected operand, found '='; write == to compare and = to assign"},
		{"if x = 3 { }", "write == to compare"},
		{"x := [1, 2, 3]", "a slice is written []int{1, 2, 3}"},
		{"f(['a', 'b'])", `a slice is written []string{"a", "b"}`},
		{"x = [0.5, 1]", "a slice is written []float64{0.5, 1}"},
		{"[i for i in xs]", "there are no list comprehensions"},
		{"x := {\"a\": 1}", `line 1, column 6: a value cannot begin with a brace; a map is written map[string]int{"a": 1}`},
		{"f('text')", `line 1, column 3: illegal rune literal; text is in double quotes: "text"`},
		{"def f(x):\n    return x", "a function is written func f(x float64)"},
		{"class Net:\n    pass", "a type is written type Net struct"},
		{"for i in range(10):\n    f(i)", "write for i := 0; i < 10; i++ { … }"},
		{"for x in xs:\n    f(x)", "write for _, x := range xs { … }"},
		{"for i, x in enumerate(xs):", "write for i, x := range xs { … }"},
		{"while x < 3:\n    f(x)", "write for x < 3 { … }"},
		{"while True:", "an endless loop is written for { … }"},
		{"if x > 1:\n    f(x)", "a block is in braces"},
		{"elif x > 2 {\n}", "write } else if x > 2 {"},
		{"if a and b { }", "and, or and not are written &&, || and !"},
		{"if not a { }", "and, or and not are written &&, || and !"},
		{"y := x if a else z", "there is no conditional expression: write if a { … } else { … }"},
		{"y := a ? 1 : 2", "there is no conditional operator"},
		{"if x == 5: f(x)", "a block is in braces"},
		{"for i in range(len(xs)):", "write for i := 0; i < len(xs); i++ { … }"},
		{"import \"fmt\" as f", `write import f "fmt"`},
		{"if err := f() { }", "write the condition after a semicolon"},
		{"for i := 0; i < 3; ++i { }", "write i++"},
		{"f(x => x + 1)", "write func(x int) int { return x + 1 }"},
		{"s := \"\"\"a\nb\"\"\"", "a text over several lines is in backquotes"},
		{"x is None", "write == nil"},
		{"x in xs", "write a loop over a slice"},
		{"try:\n\tx = 1\nexcept:\n\tx = 2", "line 1, column 1: try does not exist in Go; errors are values"},
		{"raise ValueError(\"x\")", "errors are values"},
		{"with open(\"f\") as f:", "then defer f.Close()"},
		{"lambda x: x + 1", "write func(x int) int { return x + 1 }"},
		{"import numpy as np", "gonum.org/v1/gonum"},
		{"import torch", "lockstep/pkg/train"},
		{"import fmt", `the path is in quotes: import "fmt"`},
		{"from math import sqrt", `write import "math"`},
		{"# text", "a comment begins with //"},
		{"x := 1 # text", "a comment begins with //"},
		{"f(f\"{x}\")", `fmt.Sprintf("x = %v", x)`},
		{"f(\u201ctext\u201d)", "use straight quotes"},
		{"\"\"\"text\"\"\"", "a text over several lines is in backquotes"},
		{"len x", "arguments are in parentheses: len(…)"},
		{"print x", "write fmt.Println(x)"},
		{"y := len x", "write len(x)"},
		{"f(x=3)", "a call has no named arguments"},
		{"T{A = 3}", "write A: and the value"},
		{"int x = 3", "a variable is declared by x := …"},
		{"var x int := 3", "write var x int = 3 or x := 3"},
		{"++x", "write x++"},
		{"y = x++", "x++ is a statement of its own"},
		{"func f(a: int) -> int { return a }", "without an arrow"},
		{"func() { }()", "cannot begin with a function literal"},
		{"(1, 2)", "there are no tuples"},
		{"type T struct { a int, b int }", "the fields of a struct"},
		{"x := 1\n$ls", "line 2, column 1: illegal character U+0024 '$'; commands must be the first lines of a cell"},
		{"$ls\nx = = 3", "line 2, column 5"},
	} {
		_, err := Parse(c.code)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q gives %v, want %q in it", c.code, err, c.want)
		}
	}
}

// Cells that parse, and errors without advice: a word of another language may be a name in Go.
func TestSyntaxWithoutAdvice(t *testing.T) {
	for _, code := range []string{
		"if x {\n} else {\n}", "{\n\tf()\n}", "func f()", "x := []int{1}\n{\n\tf(x)\n}", "for {\n\tf(func() {\n\t})\n}", "type T struct\n{\n}",
		"var f func(int)\n{\n\tx := 1\n}", "in, not, is := 1, 2, 3\nf(in, not, is)", "x := map[string][]int{\"a\": {1}}", "f(\"# if x:\") // for x in xs:",
		"switch {\ncase x:\n}", "L: for {\n\tbreak L\n}", "if f := func() bool { return true }; f() {\n}", "x := '\\''", "x := y[1:2]", "var x = `a\n{\n`",
	} {
		if _, err := Parse(code); err != nil {
			t.Errorf("%q gives %v", code, err)
		}
	}
	for code, want := range map[string]string{
		"x := []int{1 2}":                 "line 1, column 14: missing ',' in composite literal",
		"T{A: \"not a\" B: []int{1}}":     "line 1, column 14: missing ',' in composite literal",
		"for i := 0; i < 3; i++ { f(i) ]": "line 1, column 31: found ], expected }, which closes the { of line 1, column 24",
		"x y":                             "line 1, column 3: expected ';', found y",
	} {
		if _, err := Parse(code); err == nil || err.Error() != want {
			t.Errorf("%q gives %v, want %q", code, err, want)
		}
	}
}
