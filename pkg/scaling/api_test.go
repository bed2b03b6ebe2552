package scaling

import (
	"fmt"
	"strings"
	"testing"
)

// TestTypesOfTheAPI checks that %T prints type names that a notebook cell can write. A test
// in folder pkg checks all types that a notebook can reach.
func TestTypesOfTheAPI(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{{Estimate{}, "scaling.Estimate"}, {&LRScaling{}, "*scaling.LRScaling"}, {Mode{}, "scaling.Mode"}, {&TimeUse{}, "*scaling.TimeUse"}, {Fit{}, "scaling.Fit"}} {
		if got := fmt.Sprintf("%T", c.value); got != c.want {
			t.Errorf("%%T gives %s, want %s", got, c.want)
		}
	}
}

// TestResultsShowThemselves calls the methods that all results have in common.
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
