package scaling

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestTypesOfTheAPI follows fields and methods from a Study to all types of this
// package that a notebook can meet. None is declared in an internal package, so
// that %T and a look at the documentation give names that a cell can write.
func TestTypesOfTheAPI(t *testing.T) {
	const api = "lockstep/pkg/scaling"
	seen := map[reflect.Type]bool{}
	var follow func(typ reflect.Type, from string)
	follow = func(typ reflect.Type, from string) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		if strings.HasPrefix(typ.PkgPath(), api+"/internal/") {
			t.Errorf("%s is %s of %s", from, typ, typ.PkgPath())
			return
		}
		if typ.PkgPath() != api && typ.Name() != "" { // another package's, or a basic type
			return
		}
		for i := range typ.NumMethod() { // the exported ones
			m := typ.Method(i)
			for k := range m.Type.NumOut() {
				follow(m.Type.Out(k), fmt.Sprintf("a result of %s.%s", typ, m.Name))
			}
			for k := range m.Type.NumIn() {
				follow(m.Type.In(k), fmt.Sprintf("a parameter of %s.%s", typ, m.Name))
			}
		}
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			follow(typ.Elem(), from)
		case reflect.Struct:
			follow(reflect.PointerTo(typ), from)
			for i := range typ.NumField() {
				if f := typ.Field(i); f.IsExported() {
					follow(f.Type, fmt.Sprintf("%s.%s", typ, f.Name))
				}
			}
		}
	}
	follow(reflect.TypeFor[*Study](), "Study")
	follow(reflect.TypeFor[*GateResult](), "Gate")
	if len(seen) < 60 {
		t.Errorf("only %d types were met", len(seen))
	}
	for _, c := range []struct {
		value any
		want  string
	}{{Estimate{}, "scaling.Estimate"}, {&LRScaling{}, "*scaling.LRScaling"}, {Mode{}, "scaling.Mode"}, {&TimeUse{}, "*scaling.TimeUse"}, {Fit{}, "scaling.Fit"}} {
		if got := fmt.Sprintf("%T", c.value); got != c.want {
			t.Errorf("%%T gives %s, want %s", got, c.want)
		}
	}
}

// TestResultsShowThemselves calls the methods that every result shares.
func TestResultsShowThemselves(t *testing.T) {
	s := study(t, seeds("ddp", 1, 10, 11, 14), seeds("ddp", 2, 7, 6, 6.5), seeds("ddp", 4, 4, 3.5, 3.6))
	u := s.Modes()
	if table := u.Table(); table.Nrow() != 1 || !strings.Contains(u.String(), "ddp") || !strings.Contains(u.HTML(), "<td>ddp</td>") {
		t.Errorf("%s\n%v", u, table)
	}
	q := s.Quality()
	if all, one := q.HTML(), q.FirstHTML(1); strings.Count(all, "<tr>") != 4 || strings.Count(one, "<tr>") != 2 {
		t.Errorf("%s\nand the first row:\n%s", all, one)
	}
	var empty Quality // that a caller made
	if empty.Table().Nrow() != 0 || strings.Contains(empty.HTML(), "<td>") {
		t.Error(empty.String())
	}
}
