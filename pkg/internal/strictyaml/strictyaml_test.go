package strictyaml_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/internal/strictyaml"
)

type layer struct {
	Width int     `yaml:"width"`
	Rate  float64 `yaml:"rate"`
}

type network struct {
	Name   string  `yaml:"name"`
	Layers []layer `yaml:"layers"`
	Head   layer   `yaml:"head"`
}

// TestDecode: what is refused names its line and key, and what was expected.
func TestDecode(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"name: a\nhead: {width: 3}\n", ""},
		{"", ""},
		{"head: None\n", ""},
		{"&h head: &x {width: 1}\nlayers: [*x, {<<: *x, rate: 2}]\n", ""},
		{"name: a\nhed: {width: 3}\n", `line 2: unknown key "hed" (did you mean head?): use one of name, layers, head`},
		{"head:\n  widht: 3\n", `line 2: unknown key "head.widht" (did you mean width?): use one of width, rate`},
		{"layers:\n- {width: 3}\n- {rat: 1}\n", `line 3: unknown key "layers[1].rat"`},
		{"head: {width: 2.5}\n", `line 1: head.width is "2.5": expected a whole number`},
		{"head: {width: 010}\n", `line 1: head.width is "010": expected a whole number in decimal digits`},
		{"head: {width: 0x10}\n", `head.width is "0x10": expected a whole number`},
		{"head: {width: 0b1}\n", `head.width is "0b1": expected a whole number`},
		{"head: {width: 0o17}\n", `head.width is "0o17": expected a whole number`},
		{"head: {width: 1_000}\n", `head.width is "1_000": expected a whole number`},
		{"head: {width: 1e3}\n", `head.width is "1e3": expected a whole number`},
		{"head: {width: 1:30}\n", `head.width is "1:30": expected a whole number`},
		{"head: {rate: 010}\n", `head.rate is "010": expected a number`},
		{"head: {rate: 1_000.5}\n", `head.rate is "1_000.5": expected a number`},
		{"head: {rate: 0x1p3}\n", `head.rate is "0x1p3": expected a number`},
		{"head: {rate: -1.5e-3}\n", ""},
		{"head: {rate: .5}\n", ""},
		{"head: {rate: 10}\n", ""},
		{"name: 010\n", ""},
		{"head: 3\n", `line 1: head needs keys and values, not "3"`},
		{"- 1\n", "line 1: a config needs keys and values, not a list"},
		{"head: &h\n  <<: *h\n", "line 2: cycle: alias *h is used inside its own anchor &h (line 1)"},
	} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(c.text), &doc); err != nil {
			t.Fatal(err)
		}
		n := network{Head: layer{Width: 8}}
		err := strictyaml.Decode(&doc, &n)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
	}
}

// TestSet: an assignment changes one value, and null resets one.
func TestSet(t *testing.T) {
	unset := func() any { return network{Name: "none", Head: layer{Width: 8}} }
	n := network{Name: "a", Head: layer{Width: 1, Rate: 1}}
	for _, assignment := range []string{"name='b: c'", "head={rate: 2, width: None}", "layers=[{width: 3}]"} {
		if err := strictyaml.SetField(&n, assignment, unset); err != nil {
			t.Fatalf("%s: %v", assignment, err)
		}
	}
	if n.Name != "b: c" || n.Head != (layer{Width: 8, Rate: 2}) || len(n.Layers) != 1 {
		t.Errorf("got %+v", n)
	}
	for assignment, want := range map[string]string{"name": "use key=value", "head.width=many": `head.width is "many": expected a whole number`} {
		if err := strictyaml.SetField(&n, assignment, unset); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", assignment, err, want)
		}
	}
}
