package kernels

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// checkCells runs cells one after the other in one session. Each is followed by
// what it must show, in the form of answer.show.
func checkCells(t *testing.T, table [][2]string) {
	t.Helper()
	var code []string
	for _, row := range table {
		code = append(code, row[0])
	}
	for i, a := range drive(t, cells(code...)...) {
		if got := a.collected(); got != table[i][1] {
			t.Errorf("cell %q shows\n%s\nwant\n%s", code[i], got, table[i][1])
		}
	}
}

// collected is show, with one line for all of standard output, which comes first,
// and one for standard error: what is printed soon after one another comes in as
// many messages as time allows.
func (a answer) collected() string {
	var lines []string
	for _, name := range []string{"stdout", "stderr"} {
		text := ""
		for _, m := range a.Messages {
			if m.Content.Name == name {
				text += m.Content.Text
			}
		}
		if text != "" {
			lines = append(lines, fmt.Sprintf("%s %q", name, text))
		}
	}
	rest := a
	rest.Messages = slices.DeleteFunc(slices.Clone(a.Messages), func(m message) bool { return m.Type == "stream" })
	if text := rest.show(); text != "" {
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

// prepare is the first cell of the tests of this file.
const prepare = `import ("errors"; "fmt"; "os"; "sort"; "strconv"; "strings"; "sync"; "time")
func number(s string) (int, error) { return strconv.Atoi(s) }
func named(n int, s string) (int, string, error) { if n < 0 { return 0, "", errors.New("negative") }; return n, s, nil }
func check(n int) error { if n < 0 { return errors.New("negative") }; return nil }
func pair(n int, s string) string { return fmt.Sprint(n, s) }
type Point struct { X, Y int }
func point(x int) (*Point, error) { if x < 0 { return nil, errors.New("negative") }; return &Point{x, 2 * x}, nil }
func (p *Point) Sum() int { return p.X + p.Y }
func sum(list []string) int {
	total := 0
	for _, s := range list { total += number(s) }
	return total
}
n := 0
full := make(chan int, 9)`

// syntax is the error of number("x").
const syntax = `strconv.Atoi: parsing "x": invalid syntax`

// TestErrorEndsTheCell checks that an error which nobody takes ends the cell, in every position of a call.
func TestErrorEndsTheCell(t *testing.T) {
	t.Parallel()
	table := [][2]string{{prepare, ""}}
	for _, use := range []struct {
		code   string
		column int
		text   string
	}{
		{`n := number("x")`, 6, syntax},
		{`k, m := 1, number("x")`, 12, syntax},
		{`n = number("x")`, 5, syntax},
		{`n += number("x")`, 6, syntax},
		{`n, _ = number("x"), 1`, 8, syntax},
		{`var m = number("x")`, 9, syntax},
		{`var m float64 = strconv.ParseFloat("x", 64)`, 17, `strconv.ParseFloat: parsing "x": invalid syntax`},
		{`n, s := named(-1, "a")`, 9, "negative"},
		{`if true { var k, s = named(-1, "a"); n = k + len(s) }`, 22, "negative"},
		{`number("x")`, 1, syntax},
		{`{ number("x") }`, 3, syntax},
		{`check(-1)`, 1, "negative"},
		{`strings.Repeat("a", number("x"))`, 21, syntax},
		{`fmt.Println("a", number("x"))`, 18, syntax},
		{`strconv.Itoa(number("x"))`, 14, syntax},
		{`pair(named(-1, "a"))`, 6, "negative"},
		{`number("x") + 1`, 1, syntax},
		{`-number("x")`, 2, syntax},
		{`point(-1).Sum()`, 1, "negative"},
		{`point(-1).X`, 1, "negative"},
		{`point(-1).X = 1`, 1, "negative"},
		{`[]int{1, 2}[number("x")]`, 13, syntax},
		{`[]int{1, number("x")}`, 10, syntax},
		{`map[int]int{number("x"): 1}`, 13, syntax},
		{`Point{X: number("x")}`, 10, syntax},
		{`if number("x") > 1 { n = 1 }`, 4, syntax},
		{`if m := number("x"); m > 1 { n = m }`, 9, syntax},
		{`for number("x") > 1 { }`, 5, syntax},
		{`for range make([]int, number("x")) { }`, 23, syntax},
		{`for range strconv.Unquote("x") { }`, 11, "invalid syntax"},
		{`switch number("x") { case 1: n = 1 }`, 8, syntax},
		{`switch 1 { case number("x"): n = 1 }`, 17, syntax},
		{`full <- number("x")`, 9, syntax},
		{`select { case full <- number("x"): }`, 23, syntax},
		{`float64(number("x"))`, 9, syntax},
		{`n = func() int { return func() int { return number("x") }() }()`, 45, syntax},
	} {
		table = append(table, [2]string{
			"fmt.Print()\n" + use.code + "\nfmt.Println(\"not reached\")",
			fmt.Sprintf("error %q", fmt.Sprintf("line 2, column %d: %s", use.column, use.text)),
		})
	}
	table = append(table, [2]string{"fmt.Println(n, len(full))", `stdout "0 0\n"`}) // nothing was assigned or sent
	checkCells(t, table)
}

// Without an error the remaining results are used.
func TestErrorThatIsNil(t *testing.T) {
	t.Parallel()
	checkCells(t, [][2]string{
		{prepare, ""},
		{`a := number("1"); b, c := named(2, "c"); var d float64 = strconv.ParseFloat("1.5", 64)` + "\nfmt.Println(a, b, c, d)", `stdout "1 2 c 1.5\n"`},
		{`fmt.Println("a", number("1")+number("2"), point(3).Sum(), point(4).Y, pair(named(5, "e")))`, `stdout "a 3 9 8 5e\n"`},
		{`fmt.Println([]int{number("1")}, map[int]int{number("2"): number("3")}, Point{X: number("4")}, float64(number("5")))`, `stdout "[1] map[2:3] {4 0} 5\n"`},
		{`for i := number("0"); i < number("2"); i++ { if number("1") == i { full <- i } }` + "\n<-full", `execute_result "1"`},
		{`switch number("2") { case number("2"): n = number("7") }` + "\nn", `execute_result "7"`},
		{`s := ""; for _, r := range strconv.Unquote("'a'") { s += string(r) }` + "\ns", `execute_result "a"`},
		{`fmt.Println(strconv.ParseBool("true"), 1)`, `stdout "true 1\n"`},
		{`d := time.ParseDuration("2s"); k := strconv.ParseUint("4", 10, 64); f := strconv.ParseFloat("0.5", 32)` + "\nfmt.Println(d, k, f)", `stdout "2s 4 0.5\n"`},
		{`number("12")`, `execute_result "12"`},
		{`check(1)`, ""},
		{`(number("12"))`, `execute_result "12"`},
		{"type Celsius float64\nfunc local() int { type T int; return int(T(number(\"3\"))) }\nfmt.Println(Celsius(number(\"2\")), local())", `stdout "2 3\n"`},
	})
}

// Whoever takes the error has it.
func TestErrorThatIsTaken(t *testing.T) {
	t.Parallel()
	checkCells(t, [][2]string{
		{prepare, ""},
		{`fmt.Println(number("1")); fmt.Println(check(-1)); fmt.Println(number("x"))`, `stdout "1 <nil>\nnegative\n0 ` + strings.ReplaceAll(syntax, `"`, `\"`) + `\n"`},
		{`_ = check(-1); _, _ = number("x"); _ = number("x"); _, _ = named(-1, "a")` + "\nv, _ := number(\"x\")\nv", `execute_result "0"`},
		{`v, err := number("x"); e := check(-1)` + "\nfmt.Println(v, err != nil, e)", `stdout "0 true negative\n"`},
		{`if err := check(-1); err != nil { fmt.Println("handled") }`, `stdout "handled\n"`},
		{"func both(s string) (int, error) { return number(s) }\nfunc one(s string) int { return number(s) }\n" +
			"func given(n int, err error) string { return fmt.Sprint(n, err != nil) }\nfmt.Println(given(both(\"x\")), one(\"3\"))", `stdout "0 true 3\n"`},
		{`one("x")`, `error "line 1, column 1: strconv.Atoi: parsing \"x\": invalid syntax (line 2, column 33 of cell [6])"`},
		{"k := named(1, \"a\")", `error "line 1, column 6: named(1, \"a\") returns 2 values and an error, but the cell uses 1: assign the values to 2 variables"`},
		// No other type than error is one.
		{"type failed struct{}\nfunc (f failed) Error() string { return \"failed\" }\nfunc other() (int, failed) { return 4, failed{} }\nm, _ := other()\nm", `execute_result "4"`},
		{"func bools() (int, bool) { return 5, false }\nbools()", `execute_result "5 false"`},
	})
}

// An error in a function names its place, also in a function of another cell.
func TestPlaceOfAnError(t *testing.T) {
	t.Parallel()
	checkCells(t, [][2]string{
		{prepare, ""},
		{"k := 1\nsum([]string{\"1\", \"x\"})", `error "line 2, column 1: strconv.Atoi: parsing \"x\": invalid syntax (line 11, column 36 of cell [1])"`},
		{"func twice(s string) int {\n\treturn 2 * number(s)\n}\n\ntwice(\"x\")", `error "line 2, column 13: strconv.Atoi: parsing \"x\": invalid syntax (called from line 5)"`},
		{"os.Open(\"/\").\n\tReaddirnames(\n\t\tnumber(\"x\"))", `error "line 3, column 3: strconv.Atoi: parsing \"x\": invalid syntax"`},
		{"strings.NewReader(\"a\").\n\tSeek(-1, 0)", `error "line 2, column 2: strings.Reader.Seek: negative position"`},
		{"for i := 0; i < 3; i++ {\n\tnumber(\"x\")\n}", `error "line 2, column 2: strconv.Atoi: parsing \"x\": invalid syntax"`},
	})
}

// A recover does not take the place of handling an error, and still catches a
// panic.
func TestRecoverAndErrors(t *testing.T) {
	t.Parallel()
	checkCells(t, [][2]string{
		{prepare, ""},
		{"func careful(f func() int) (n int) {\n\tdefer func() { if r := recover(); r != nil { fmt.Println(\"caught\", r); n = -1 } }()\n\treturn f()\n}\n" +
			"careful(func() int { return number(\"x\") })", `error "line 5, column 29: strconv.Atoi: parsing \"x\": invalid syntax"`},
		{"careful(func() int { var m map[string]int; m[\"a\"] = number(\"1\"); return 1 })", "stdout \"caught assignment to entry in nil map\\n\"\nexecute_result \"-1\""},
		{"careful(func() int { return number(\"3\") })", `execute_result "3"`},
		{"careful(func() int { panic(\"no\") })", "stdout \"caught no\\n\"\nexecute_result \"-1\""},
		{
			"func cleaned() { defer fmt.Println(\"cleaned\"); sum([]string{\"x\"}) }\ncleaned()\nfmt.Println(\"not reached\")",
			"stdout \"cleaned\\n\"\nerror \"line 2, column 1: strconv.Atoi: parsing \\\"x\\\": invalid syntax (line 11, column 36 of cell [1])\"",
		},
	})
}

// Where an error cannot end the cell, it is reported with its line, and nothing
// panics through compiled code.
func TestErrorThatCannotEndTheCell(t *testing.T) {
	t.Parallel()
	const called = `(in a function that compiled code called, which got zero values)\n"`
	const bad = `strconv.Atoi: parsing \"x\": invalid syntax `
	checkCells(t, [][2]string{
		{prepare, ""},
		{
			"words := []string{\"3\", \"x\", \"1\"}\nsort.Slice(words, func(i, j int) bool {\n\tless := number(words[i]) < 2\n\treturn less\n})\nfmt.Println(\"reached\")",
			"stdout \"reached\\n\"\nstderr \"line 3, column 10: " + bad + called,
		},
		// All functions between the error and the compiled code end.
		{
			"strings.Map(func(r rune) rune { k := sum([]string{\"x\"}); fmt.Println(\"not reached\"); return rune(k) }, \"ab\")",
			"stderr \"line 11, column 36 of cell [1]: " + bad + called + "\nexecute_result \"\\x00\\x00\"",
		},
		// A callback in a callback.
		{
			"strings.Map(func(r rune) rune { strings.Map(func(q rune) rune { return rune(number(\"x\")) }, \"c\"); return r + 1 }, \"ab\")",
			"stderr \"line 1, column 77: " + bad + called + "\nexecute_result \"bc\"",
		},
		{"type Rows []string\nfunc (r Rows) Len() int { return len(r) }\nfunc (r Rows) Swap(i, j int) { r[i], r[j] = r[j], r[i] }\nfunc (r Rows) Less(i, j int) bool { return number(r[i]) < number(r[j]) }\n" +
			"rows := Rows{\"3\", \"1\", \"2\"}\nsort.Sort(rows)\nrows", `execute_result "[1 2 3]"`},
		{"sort.Sort(Rows{\"x\", \"1\"})", "stderr \"line 4, column 59 of cell [5]: " + bad + called},
		// Goroutines that compiled code started.
		{"var wg sync.WaitGroup\nwg.Go(func() { sum([]string{\"x\"}); fmt.Println(\"not reached\") })\nwg.Wait()\ntime.Sleep(100 * time.Millisecond)", "stderr \"line 11, column 36 of cell [1]: " + bad + "(in a goroutine)\\n\""},
		{"time.AfterFunc(0, func() { sum([]string{\"x\"}); fmt.Println(\"not reached\") })\ntime.Sleep(100 * time.Millisecond)", "stderr \"line 11, column 36 of cell [1]: " + bad + called},
		// Goroutines of the cell.
		{
			"wg.Add(1)\ngo func() { defer wg.Done(); sum([]string{\"x\"}); fmt.Println(\"not reached\") }()\nwg.Wait()\ntime.Sleep(100 * time.Millisecond)",
			"stderr \"line 11, column 36 of cell [1]: " + bad + "(in a goroutine)\\n\"",
		},
		{"go check(-1)\ntime.Sleep(100 * time.Millisecond)", `stderr "line 1, column 4: negative (in a goroutine)\n"`},
		{"go fmt.Println(number(\"1\"))\ntime.Sleep(100 * time.Millisecond)", `stdout "1\n"`},
		// Deferred calls.
		{
			"func f() {\n\tdefer check(-1)\n\tdefer func() { number(\"x\"); fmt.Println(\"not reached\") }()\n\tfmt.Println(\"body\")\n}\nf()\nfmt.Println(\"reached\")",
			"stdout \"body\\nreached\\n\"\nstderr \"line 3, column 17: " + bad + "(in a deferred call)\\nline 2, column 8: negative (in a deferred call)\\n\"",
		},
		{"defer check(-1)\nnumber(\"x\")", "stderr \"line 1, column 7: negative (in a deferred call)\\n\"\nerror \"line 2, column 1: " + strings.TrimSpace(bad) + `"`},
	})
}

// An error that is assigned and not used gives a note, whatever the variable's name is, and the cell
// goes on. Notes are no errors: tools that run notebooks take standard error for a failure.
func TestNotes(t *testing.T) {
	t.Parallel()
	note := func(line int, name string) string {
		return fmt.Sprintf("line %d: %s is assigned but not used in this cell; without the assignment, an error ends the cell\n", line, name)
	}
	checkCells(t, [][2]string{
		{prepare, ""},
		{"k, err := number(\"x\")\nfmt.Println(k)", fmt.Sprintf("stdout %q", note(1, "err")+"0\n")},
		{"m := 1\n\nm, err = number(\"2\")\nm", fmt.Sprintf("stdout %q\nexecute_result \"2\"", note(3, "err"))},
		{"m, err = number(\"x\")\nif err != nil { fmt.Println(\"handled\") }", `stdout "handled\n"`},
		{"k, problem := number(\"x\")\nwhy := check(1)", fmt.Sprintf("stdout %q", note(1, "problem")+note(2, "why"))},
		{"func inner() { _, oops := number(\"x\") }", fmt.Sprintf("stdout %q", note(1, "oops"))},
		{"p, q := 1, 2\nword, size := strings.CutPrefix(\"a\", \"b\")\nlength := len(word)", ""}, // no errors
		{"print(3)", "stdout \"line 1: print writes to standard error, which tools take for a failure; write fmt.Println\\n\"\nstderr \"3\""},
	})
}

// A variable whose declaration failed has no value: later cells do not know it, or
// know the value that it had before. What the cell declared before the failure
// stays.
func TestVariableOfAFailedStatement(t *testing.T) {
	t.Parallel()
	fails := func(code, column string) [2]string {
		return [2]string{code, fmt.Sprintf("error %q", "line 1, column "+column+": negative")}
	}
	unknown := func(name string) [2]string {
		return [2]string{name, fmt.Sprintf("error %q", "line 1, column 1: undefined identifier: "+name)}
	}
	checkCells(t, [][2]string{
		{prepare, ""},
		fails("before := 1; p := point(-1); after := 2", "19"),
		{"before", `execute_result "1"`},
		unknown("p"),
		unknown("after"),
		{"p := point(3)", ""},
		fails("p := point(-1)", "6"),
		{"p.X", `execute_result "3"`},
		fails("p, n := named(-1, \"s\")", "9"),
		{"p.X", `execute_result "3"`},
		fails("var q = point(-1)", "9"),
		unknown("q"),
	})
}

// prepareFailure is the first cell of TestLineOfAFailure.
const prepareFailure = `import ("fmt"; "errors"; "sort"; "sync"; "time"; "lockstep/pkg/notebook"; "lockstep/pkg/scaling")
zero, list := 0, []int{1, 2}
var counts map[string]int
var value interface{} = "text"
var study *scaling.Study
type Point struct { X int; Next *Point }
var point *Point
func quotient(a, b int) int { return a / b }`

// Every error at run time names its line in the cell: in the first statement and in a later one, after
// a declaration, in a block, a function, a closure, a deferred call and a goroutine.
func TestLineOfAFailure(t *testing.T) {
	t.Parallel()
	const divide, index, null = "runtime error: integer divide by zero", "runtime error: index out of range", "runtime error: invalid memory address or nil pointer dereference"
	table := [][2]string{{prepareFailure, ""}}
	for _, row := range [][2]string{
		{"1 / zero", "line 1, column 1: " + divide},
		{"a := 1\na = 3 % zero", "line 2, column 1: " + divide},
		{"var a = 1 / zero", "line 1, column 5: " + divide},
		{"var (\n\ta = 1\n\tb = a / zero\n)", "line 3, column 2: " + divide},
		{"var a int\na / zero", "line 2, column 1: " + divide},
		{"if zero == 0 {\n\tzero = 1 / zero\n}", "line 2, column 2: " + divide},
		{"for i := 0; i < 3; i++ {\n\tfmt.Sprint(i)\n\tlist[i]++\n}", "line 3, column 7: " + index},
		{"list[-1]", "line 1, column 1: " + index + "; the last element of x is x[len(x)-1]"},
		{"list[1:zero]", "line 1, column 1: " + index},
		{"make([]int, zero-1)", "line 1, column 1: runtime error: make: negative size"},
		{`counts["a"] = 1`, `line 1, column 1: assignment to entry in nil map; counts is nil: write counts = make(map[string]int)`},
		{"value.(int)", "line 1, column 1: interface conversion: <interface{}> is <string>, not <int>"},
		{"a := 1\n_ = value.(error)", "line 2, column 1: interface conversion: <interface{}> is <string>, not <error>"},
		{"study.Table()", "line 1, column 1: " + null + "; study is nil"},
		{"a := 1\nb := study.Runs", "line 2, column 1: " + null + "; study is nil"},
		{"point.X = 3", "line 1, column 1: " + null + "; point is nil"},
		{"(&Point{}).Next.X", "line 1, column 1: " + null},
		{"var f func()\nf()", "line 2, column 1: " + null + "; f is nil"},
		{"var e error\ne.Error()", "line 2, column 1: " + null + "; e is nil"},
		{"func half(a int) int {\n\treturn a / zero\n}\nhalf(1)", "line 2, column 9: " + divide + " (called from line 4)"},
		{"quotient(1, 0)", "line 1, column 1: " + divide + " (line 8, column 38 of cell [1])"},
		{"f := func(a int) int {\n\ta++\n\treturn a / zero\n}\nf(1)", "line 3, column 9: " + divide + " (called from line 5)"},
		{"sort.Slice(list, func(i, j int) bool {\n\treturn list[i+9] < list[j]\n})", "line 2, column 9: " + index},
		{"defer func() {\n\tzero = 1\n\tzero = list[7]\n}()", "line 3, column 2: " + index},
		{"zero = 0\nfunc cleans() {\n\tdefer fmt.Sprint()\n\tfails()\n}\nfunc fails() {\n\tlist[zero-1]++\n}\ncleans()", "line 7, column 12: " + index + " (called from line 9)"},
		{"func tries() {\n\tdefer func() { recover() }()\n\tlist[9]++\n}\ntries()\nlist[8]++", "line 6, column 1: " + index},
		{"go func() {\n\tzero = 0\n\tquotient(1, zero)\n}()\ntime.Sleep(time.Minute)", "line 8, column 38 of cell [1]: " + divide + " (in a goroutine)"},
		{"notebook.Go(func() {\n\tzero = 0\n\tzero = 1 / zero\n})\ntime.Sleep(time.Minute)", "line 3, column 2: " + divide + " (in a goroutine)"},
		{"var wg sync.WaitGroup\nwg.Add(1)\ngo func() {\n\tdefer wg.Done()\n\tcounts[\"a\"] = 1\n}()\nwg.Wait()\ntime.Sleep(time.Minute)", "line 5, column 2: assignment to entry in nil map (in a goroutine)"},
		{"var wg sync.WaitGroup\nwg.Go(func() {\n\tcounts[\"a\"] = 1\n})\nwg.Wait()\ntime.Sleep(time.Minute)", "line 3, column 2: assignment to entry in nil map (in a goroutine)"},
		{"panic(errors.New(\"own\"))", "line 1, column 1: own"},
	} {
		table = append(table, [2]string{row[0], fmt.Sprintf("error %q", row[1])})
	}
	checkCells(t, append(table, [][2]string{
		{"var _ int\nvar _ = 3\nvar _, b = 1, 2\nvar _ fmt.Stringer\nb", `execute_result "2"`},
		// A last line has one value.
		{`map[string]int{"a": 4}["a"]`, `execute_result "4"`},
		{"value.(string)", `execute_result "text"`},
	}...))
}
