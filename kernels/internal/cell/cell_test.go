package cell

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParseFindsImports(t *testing.T) {
	tests := []struct{ code, want string }{
		{"import \"fmt\"\nfmt.Println(1)", "[{fmt 1}]"},
		{"import (\n\t\"fmt\"\n\tp \"gonum.org/v1/plot\"\n)", "[{fmt 2} {gonum.org/v1/plot 3}]"},
		{"x := 1\nimport `math`\nx", "[{math 2}]"},
		{"import (\"a\"; \"b\")", "[{a 1} {b 1}]"},
		{"%cd /tmp\n$ls\nimport \"os\"", "[{os 3}]"},
		// What only looks like an import is none.
		{"s := \"import \\\"x\\\"\"\n// import \"y\"\ns", "[]"},
		{"", "[]"},
	}
	for _, tt := range tests {
		c, err := Parse(tt.code)
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.code, err)
			continue
		}
		if got := fmt.Sprint(c.Imports); got != tt.want {
			t.Errorf("imports of %q are %s, want %s", tt.code, got, tt.want)
		}
	}
	for _, code := range []string{"if {", "x := (", "func f( {"} {
		if _, err := Parse(code); err == nil {
			t.Errorf("Parse(%q) gives no error", code)
		}
	}
}

func TestEndsWithPrint(t *testing.T) {
	for code, want := range map[string]bool{
		"f(1)":                        false,
		"fmt.Println(1)":              true,
		"(fmt.Println(1))":            true,
		"fmt.Printf(\"%d\\n\",\n\t1)": true,
		"fmt.Fprintln(w, 1) // done":  true,
		"fmt.Sprint(1)":               false,
		"log.Println(1)":              false,
		"fmt.Println(1)\nx":           false,
		"fmt.Println(1)\nx := 1":      false,
		"func f() { fmt.Println(1) }": false,
		"":                            false,
	} {
		c, err := Parse(code)
		if err != nil {
			t.Errorf("Parse(%q): %v", code, err)
			continue
		}
		if got := c.EndsWithPrint(); got != want {
			t.Errorf("EndsWithPrint of %q is %v, want %v", code, got, want)
		}
	}
}

func TestMissingImport(t *testing.T) {
	known := []string{
		"fmt", "github.com/go-gota/gota/dataframe", "gonum.org/v1/plot", "gonum.org/v1/plot/vg",
		"gorgonia.org/tensor", "lockstep/pkg/runs", "lockstep/pkg/scaling", "math/rand/v2",
	}
	has := func(path string) bool { return slices.Contains(known, path) }
	check := func(code string, want ...string) string {
		t.Helper()
		c, err := Parse(code)
		if err != nil {
			t.Fatal(err)
		}
		err = c.CheckImports(has, known)
		var missing *MissingPackageError
		if !errors.As(err, &missing) {
			t.Fatalf("%q gives %v", code, err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q gives %q, want %q in it", code, err, w)
			}
		}
		return err.Error()
	}
	check("import \"fmt\"\nimport \"github.com/kniren/gota/dataframe\"",
		`line 2: import "github.com/kniren/gota/dataframe": this package is not compiled into the kernel`,
		`did you mean "github.com/go-gota/gota/dataframe"?`,
		"the kernel contains: the Go standard library, lockstep/pkg/{runs,scaling}, github.com/go-gota/gota, gonum.org/v1/plot, gorgonia.org/tensor\n",
		"go run ./kernels/build -add github.com/kniren/gota/dataframe")
	if text := check(`import "gorgonia.org/cu"`, "go run ./kernels/build -tags nvgpu", "neither CUDA nor a GPU"); strings.Contains(text, "-add") {
		t.Errorf("a package that needs a tag is offered by -add: %q", text)
	}
	check(`import "lockstep/pkg/scalling"`, `did you mean "lockstep/pkg/scaling"?`)
	check(`import "dataframes"`, `did you mean "github.com/go-gota/gota/dataframe"?`)
	check(`import "runs/plot"`, `did you mean "gonum.org/v1/plot"?`)
	check(`import "x/plod"`, `did you mean "gonum.org/v1/plot"?`)
	if text := check(`import "lockstep/pkg/internal/plan"`); strings.Contains(text, "-add") || strings.Contains(text, "did you mean") {
		t.Errorf("an internal package is offered: %q", text)
	}
	c, err := Parse(`import ("fmt"; "math/rand/v2")`)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckImports(has, known); err != nil {
		t.Errorf("what is compiled in gives %v", err)
	}
}

func TestDistance(t *testing.T) {
	// kitten and sitting are the textbook pair: 3 edits.
	for _, tt := range []struct {
		a, b string
		want int
	}{{"kitten", "sitting", 3}, {"", "abc", 3}, {"abc", "", 3}, {"plot", "plot", 0}, {"plot", "polt", 1}} {
		if got := editDistance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
