package kernels

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What Go refuses the interpreter refuses too: an untyped constant has no
// implicit conversion to a type of another class.
func TestConstantsAreConvertedAsInGo(t *testing.T) {
	t.Parallel()
	steps := cells("import \"fmt\"\nx, t, many := 3, \"abc\", []string{}\nfunc wants(s string) {}\ntype Text string")
	table := []struct{ code, want string }{
		{`fmt.Println("a" + 1)`, `line 1, column 13: invalid operation: "a" + 1 (mismatched types untyped string and untyped int)`},
		{`1 + "a"`, `mismatched types untyped int and untyped string`},
		{`"a" + 'b'`, `mismatched types untyped string and untyped rune`},
		{`"a" < 1`, `mismatched types untyped string and untyped int`},
		{`1 == "a"`, `mismatched types untyped int and untyped string`},
		{`1 == true`, `mismatched types untyped int and untyped bool`},
		{`true && 1`, `mismatched types untyped bool and untyped int`},
		{`true < false`, `operator < not defined on true (untyped bool constant)`},
		{`1 / 0`, `division by zero: 1 / 0`},
		{`x + "a"`, `mismatched types int and untyped string`},
		{`x == "a"`, `mismatched types int and untyped string`},
		{`t + 1`, `mismatched types string and untyped int`},
		{`t + 'b'`, `mismatched types string and untyped rune`},
		{`t == 1`, `mismatched types string and untyped int`},
		{`t = 1`, `cannot use 1 (untyped int constant) as string value`},
		{`t += 'a'`, `cannot use 97 (untyped rune constant) as string value`},
		{`var s string = 65`, `line 1, column 5: cannot use 65 (untyped int constant) as string value`},
		{`var b []byte = "abc"`, `cannot use "abc" (untyped string constant) as []uint8 value`},
		{`var b bool = 1`, `cannot use 1 (untyped int constant) as bool value`},
		{`var f float64 = "a"`, `cannot use "a" (untyped string constant) as float64 value`},
		{`var f float32 = 1e300`, `overflows float32`},
		{`var u uint = -1`, `cannot use -1 (untyped int constant) as uint value (overflows)`},
		{`wants(65)`, `cannot use 65 (untyped int constant) as string value`},
		{"func f() string {\n\treturn 65\n}", `line 2, column 9: cannot use 65 (untyped int constant) as string value`},
		{`[]string{65}`, `cannot use 65 (untyped int constant) as string value`},
		{`map[string]int{1: 2}`, `cannot use 1 (untyped int constant) as string value`},
		{`append(many, 65)`, `cannot use 65 (untyped int constant) as string value`},
		{`switch x { case "a": }`, `cannot use "a" (untyped string constant) as int value`},
		{`var y Text = 65`, `cannot use 65 (untyped int constant) as`},
	}
	for _, row := range table {
		steps = append(steps, step{Execute: row.code})
	}
	allowed := []struct{ code, want string }{
		{`"a" + "b"`, "ab"},
		{`string(65) + string('b')`, "Ab"},
		{`string([]byte("abc")[1:])`, "bc"},
		{`Text("x") + "b"`, "xb"},
		{`'a' + 1`, "98"},
		{`1.5 + 2`, "3.5"},
		{`x * 2.0`, "6"},
		{`var f float32 = 1`, ""},
		{`fmt.Sprint(1 << 3, 7 / 2, 7 / 2.0, 1 == 1.0)`, "8 3 3.5 true"},
		{`"\u00e4\x00\n" == string("\u00e4") + "\x00\n"`, "true"},
	}
	for _, row := range allowed {
		steps = append(steps, step{Execute: row.code})
	}
	a := drive(t, steps...)[1:]
	for i, row := range table {
		if got := a[i].Reply.Value; !strings.Contains(got, row.want) || !strings.HasPrefix(got, "line ") {
			t.Errorf("%s fails with %q, want %q in it", row.code, got, row.want)
		}
	}
	for i, row := range allowed {
		got, want := a[len(table)+i].show(), ""
		if row.want != "" {
			want = `execute_result "` + row.want + `"`
		}
		if got != want {
			t.Errorf("%s shows %s, want %s", row.code, got, want)
		}
	}
}

func TestUnknownNamesAreExplained(t *testing.T) {
	t.Parallel()
	table := []struct{ code, want string }{
		{`fmt.Println(1)`, `line 1, column 1: undefined identifier: fmt; the package is not imported: write import "fmt" at the top of the cell`},
		{`x := strconv.Itoa(1)`, `write import "strconv" at the top of the cell`},
		{`launch.Sweep{}`, `write import "lockstep/pkg/launch" at the top of the cell`},
		{"func f() string { return strings.ToUpper(\"a\") }", `write import "strings" at the top of the cell`},
		{"import (\"slices\"; \"maps\"; \"lockstep/pkg/figure\"; \"lockstep/pkg/scaling\")\nvar study *scaling.Study", ""},
		{"figure.Speedupp(study)", `has no symbol Speedupp; did you mean Speedup?`},
		{"figure.Options{WidthInchs: 3}", `did you mean WidthInches?`},
		{"figure.Option{}", `undefined: figure.Option; did you mean Options?`},
		{"study.Tabel()", `did you mean Table?`},
		{"func f(s *scaling.Study) { s.Tabel() }", `did you mean Table?`},
		{"temperature := 3\ntemprature + 1", `line 2, column 1: undefined identifier: temprature; did you mean temperature?`},
		{"slices.Max([]int{1})", `line 1, column 1: slices.Max: generic functions are not available in cells; write a loop, or for []float64 use floats.Max`},
		{"for k := range maps.Keys(map[int]int{}) { k = 1 }", `maps.Keys: generic functions are not available in cells; write a loop`},
		{"import \"sync/atomic\"\nvar p atomic.Pointer[int]", `atomic.Pointer: generic types are not available in cells; use atomic.Value`},
		{"max(1, 2)", `the builtin function max is not available in cells`},
		// A method of a literal: its error is its own.
		{"figure.Options{WidthInches: 3}.Speedup(study)", "no study; read one with scaling.Read"},
	}
	var steps []step
	for _, row := range table {
		steps = append(steps, step{Execute: row.code})
	}
	for i, a := range drive(t, steps...) {
		if got := a.Reply.Value; !strings.Contains(got, table[i].want) || got != "" && table[i].want == "" {
			t.Errorf("%s fails with %q, want %q in it", table[i].code, got, table[i].want)
		}
	}
}

// The method of a composite literal is called as that of a variable is.
func TestMethodOfALiteral(t *testing.T) {
	t.Parallel()
	code := []string{
		"import (\"bytes\"; \"time\"; \"lockstep/pkg/figure\")\ntype P struct{ X int }\nfunc (p P) Twice() int { return 2 * p.X }\nfunc (p P) Times(n int) int { return n * p.X }",
		"P{X: 3}.Twice()", "P{3}.Times(4)", "(P{3}).Times(5)", "(&P{3}).Times(6)",
		"time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).Format(\"2006\")",
		"figure.Options{WidthInches: -1}.Validate() != nil",
	}
	want := []string{"", "6", "12", "15", "18", "2026", "true"}
	for i, a := range drive(t, cells(code...)...) {
		w := ""
		if want[i] != "" {
			w = `execute_result "` + want[i] + `"`
		}
		if got := a.show(); got != w {
			t.Errorf("%s shows %s, want %s", code[i], got, w)
		}
	}
}

func TestHelpInsideALiteral(t *testing.T) {
	t.Parallel()
	imports := "import (\"lockstep/pkg/launch\"; \"lockstep/pkg/report\")\n"
	table := []struct{ code, want, not string }{
		{"s := launch.Sweep{|", "Config", "Validate"},
		{"s := launch.Sweep{Config: \"base\", |", "Workers", "Config"},
		{"s := launch.Sweep{Config: \"unet2d-c|", "unet2d-cells", "speedup"},
		{"o := report.Options{Only: []string{\"|", "speedup", "unet2d-cells"},
	}
	var steps []step
	for _, row := range table {
		steps = append(steps, complete(imports+row.code))
	}
	code := imports + "s := launch.Swe"
	steps = append(steps, step{Inspect: code + "ep{}", Pos: len(code)})
	a := drive(t, steps...)
	for i, row := range table {
		got := a[i].Reply.Matches
		if !slices.Contains(got, row.want) || slices.Contains(got, row.not) {
			t.Errorf("%s gives %v, want %s and not %s", row.code, got, row.want, row.not)
		}
	}
	text, _ := a[len(table)].Reply.Data["text/plain"].(string)
	doc, decl := strings.Index(text, "Sweep describes the runs to start"), strings.Index(text, "type Sweep struct {")
	if doc != 0 || decl < 0 || !strings.Contains(text[max(decl, 0):], "// worker counts, one run for each") {
		t.Errorf("Shift-Tab on Sweep shows %q; want its doc comment, then its fields with their comments", text)
	}
}

// The values of a last line are shown so that one can read them, and large ones
// in part. What a value's type says by its methods goes first.
func TestValuesAreReadable(t *testing.T) {
	t.Parallel()
	table := []struct{ code, want string }{
		{"import (\"errors\"; \"lockstep/pkg/train\"; \"lockstep/pkg/launch\"; \"gonum.org/v1/gonum/mat\")\ntype P struct { A int; name string; Next *P2 }\n" +
			"type P2 struct { B []float64 }", ""},
		{"P{A: 3, name: \"x\", Next: &P2{[]float64{1.5}}}", `execute_result "P{A: 3, name: \"x\", Next: &{B: [1.5]}}"`},
		{"launch.Sweep{Config: \"base\", Workers: []int{1, 2}}", `[1 2]\n  Seeds: `},
		{"train.Named(\"unet2d-cells\")", `execute_result "name: unet2d-cells\nmodel:\n`},
		{"mat.NewDense(2, 2, []float64{1, 2, 3, 4})", `execute_result "⎡1  2⎤\n⎣3  4⎦"`},
		{"make([]int, 10000000)", `(9999900 more of 10000000)]"`},
		{"x, y := 1, \"b\"\nfunc two() (int, string) { return x, y }\ntwo()", `execute_result "1 b"`},
		{"errors.New(\"no\") ", "no"},
		{"type Shown struct{}\nfunc (Shown) HTML() string { return \"<b>bold</b>\" }\nShown{}", "execute_result"},
	}
	var steps []step
	for _, row := range table {
		steps = append(steps, step{Execute: row.code})
	}
	a := drive(t, steps...)
	for i, row := range table {
		if got := a[i].show(); !strings.Contains(got, row.want) || row.want == "" && got != "" {
			t.Errorf("%s shows\n%s\nwant %s", row.code, got, row.want)
		}
	}
	last := a[len(a)-1].Messages
	if len(last) != 1 || last[0].Content.Data["text/html"] != "<b>bold</b>" {
		t.Errorf("a value with an HTML method shows %+v", last)
	}
}

// What nbconvert needs to color the cells as Go, not as Python, and what front-ends show about a kernel.
func TestKernelInfo(t *testing.T) {
	t.Parallel()
	info := drive(t, step{KernelInfo: true})[0].Reply
	if l := info.LanguageInfo; l.Name != "go" || l.PygmentsLexer != "go" || l.MIMEType != "text/x-go" {
		t.Errorf("the kernel's language is %+v, want go for Pygments", l)
	}
	version, err := exec.Command(filepath.Join(kernelDir(t), "lockstep"), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Fields(strings.ReplaceAll(string(version), ",", ""))[1]; info.Implementation != "lockstep" || info.ImplementationVersion != want ||
		!strings.HasPrefix(info.Banner, "Lockstep "+want+" ") {
		t.Errorf("the kernel is %q %q with the banner %q, want lockstep %s", info.Implementation, info.ImplementationVersion, info.Banner, want)
	}
}

// Those who know Python or another language are told the line, and what to write instead. Package
// cell tests what does not parse.
func TestHabitsOfOtherLanguagesAreExplained(t *testing.T) {
	t.Parallel()
	table := [][2]string{
		{"import (\"fmt\"; \"lockstep/pkg/launch\")\nxs, m, x, s := []int{1}, map[string]int{}, 3, \"abc\"", ""},
		{"launch.Sweep{Workers: 2}", "line 1, column 23: cannot use 2 (untyped int constant) as []int value; write []int{2}"},
		{"launch.Sweep{Workers: x}", "write []int{x}"},
		{"launch.Sweep{Set: \"a=b\"}", `write []string{"a=b"}`},
		{"launch.Sweep{Confg: \"base\"}", "did you mean Config?"},
		{"var sweep launch.Sweep\nsweep.workers = xs", `has no field "workers": sweep.workers; did you mean Workers?`},
		{"for i := range 10 { fmt.Println(i) }", "line 1, column 16: cannot range over 10 <int>; write for i := 0; i < 10; i++ { … }"},
		{"for i := range len(xs) { }", "i < len(xs)"},
		{"ok := True", "did you mean true?"},
		{"x == None", "write nil"},
		{"Println(x)", "write fmt.Println"},
		{"fmt.println(x)", "did you mean Println"},
		{"str(x)", "write fmt.Sprint(x)"},
		{"xs.append(4)", "write xs = append(xs, x)"},
		{"s.upper()", "write strings.ToUpper(s, …)"},
		{"m.items()", "for key, value := range m"},
		{"var half float64 = x", "such as float64(x)"},
		{"\"ab\".upper()", "write strings.ToUpper"},
		{"fmt.Println(\"a\" + 'b')", "text is in double quotes"},
		{"s + x", "write fmt.Sprint(…)"},
		{"\"ab\" * 3", "write strings.Repeat"},
		{"x ** 2", "math.Pow(x, y)"},
		{"x + float64(x)", "such as float64(x)"},
		{"if x { }", "a condition is a comparison"},
		{"!ls", "begins with $, in the first lines of a cell: $ls"},
		{"x = \"text\"", "line 1, column 1: cannot use \"text\" (untyped string constant) as int value"},
	}
	var code []string
	for _, row := range table {
		code = append(code, row[0])
	}
	for i, a := range drive(t, cells(code...)...) {
		if got := a.Reply.Value; !strings.Contains(got, table[i][1]) || got != "" && table[i][1] == "" {
			t.Errorf("%s fails with %q, want %q in it", code[i], got, table[i][1])
		}
	}
}

// After the line that kernel install prints, a shell finds the command.
func TestInstallPrintsWhereTheCommandIs(t *testing.T) {
	dir, prefix := kernelDir(t), t.TempDir()
	out, err := exec.Command(filepath.Join(dir, "lockstep"), "kernel", "install", "--prefix", prefix).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, line, ok := strings.Cut(string(out), "export PATH=")
	if !ok {
		t.Fatalf("kernel install prints no export PATH line:\n%s", out)
	}
	line, _, _ = strings.Cut(line, "\n")
	found, err := exec.Command("sh", "-c", "export PATH="+line+"\ncommand -v lockstep").CombinedOutput()
	if want := filepath.Join(prefix, "share", "jupyter", "kernels", "lockstep", "lockstep"); err != nil || strings.TrimSpace(string(found)) != want {
		t.Errorf("after it the command is %s (%v), want %s", found, err, want)
	}
}
