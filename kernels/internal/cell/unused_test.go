package cell

import (
	"slices"
	"strings"
	"testing"
)

// TestUnusedResults checks for which variables of a cell the compiler looks at the type.
func TestUnusedResults(t *testing.T) {
	for _, c := range []struct{ code, want string }{
		{"x, err := f()", "err"},
		{"x, err = f()\nx", "err"},
		{"err := f()", "err"},
		{"var x, err = f()", "err"},
		{"x, readErr := f()", "readErr"},
		{"x, errRead := f()", "errRead"},
		{"x, err := (f())", "err"},
		{"x, err := f()\nif err != nil { panic(err) }\ny, err := g()", "err"}, // the second
		{"func h() { x, err := f(); use(x) }", "err"},
		{"x, err := f()\np.err", "err"},
		{"x, err := f()\nif err != nil { panic(err) }", ""},
		{"x, err := f()\nerr", ""},
		{"if x, err := f(); err == nil { use(x) }", ""},
		{"x, err := f(err)\nuse(x, err)", ""},
		{"for { if err != nil { break }; x, err = f() }", ""},
		{"func h() (err error) { x, err = f(); return }", ""},
		{"func h() (n int, err error) { n, err = f(); return n, err }", ""},
		{"defer func() { fmt.Println(err) }()\nerr = f()", ""},
		{"x, error2 := f()\nx, terror := f()\nerrand := f()", "errand error2 terror"},
		{"a, err := 1, nil", ""},
		{"x, _ := f()", ""},
		{"s.err = f()", ""},
	} {
		nodes := parse(t, c.code)
		var names []string
		for _, id := range FindUnusedResults(nodes) {
			names = append(names, id.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%q: %q, want %q", c.code, got, c.want)
		}
	}
}

func TestFindUncalledMain(t *testing.T) {
	for code, want := range map[string]bool{
		"package main\nfunc main() {}":        true,
		"func main() { f() }\nfunc f() {}":    true,
		"func main() {}\nmain()":              false,
		"func main() {}\nf := main\nf()":      false,
		"type t struct{}\nfunc (t) main() {}": false,
		"package main\nx := 1":                false,
	} {
		if got := FindUncalledMain(parse(t, code)) != nil; got != want {
			t.Errorf("%q: %v, want %v", code, got, want)
		}
	}
}
