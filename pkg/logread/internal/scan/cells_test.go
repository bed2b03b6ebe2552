package scan

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
)

// TestAppendCells: cells are returned without quotes, with the number with which they begin, and without blanks at their
// ends if these are not part of them.
func TestAppendCells(t *testing.T) {
	for _, c := range []struct {
		row       string
		delimiter byte
		trim      bool
		want      string
	}{
		{"1,,0.25,", ',', true, "1=1[1] =0[0] 0.25=0.25[4] =0[0]"},
		{" 43 %,  -1.5e1 ,x 5", ',', true, "43 %=43[2] -1.5e1=-15[6] x 5=0[0]"},
		{" 5, x ", ',', false, " 5=0[0]  x =0[0]"},
		{`"a, ""b""", "7" ,c"d`, ',', true, `a, "b"=0[0] 7=7[1] c"d=0[0]`},
		{"1,5;2023/11/14 10:00:00", ';', true, "1,5=1[1] 2023/11/14 10:00:00=2023[4]"},
		{"\t5\u00a0", '\t', true, "=0[0] 5=5[1]"},
		{`"a`, ',', true, "error"},
		{`"a"b,c`, ',', true, "error"},
		{"", ',', true, "=0[0]"},
	} {
		cells, err := AppendCells(nil, []byte(c.row), c.delimiter, c.trim)
		var got []string
		for _, cell := range cells {
			if cell.Length == 0 {
				cell.Number = 0 // it has no meaning
			}
			got = append(got, fmt.Sprintf("%s=%g[%d]", cell.Text, cell.Number, cell.Length))
		}
		if err != nil {
			got = []string{"error"}
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%q: got %s, want %s", c.row, got, c.want)
		}
	}
}

// FuzzAppendCells: the cells are those that encoding/csv returns, and the number of each is that of its text.
func FuzzAppendCells(f *testing.F) {
	f.Add(`a,"b ""c"", d",, 5,1.5e3`)
	f.Add("0.1234567890123456,1e,-,+1.,12345678901234567890")
	f.Fuzz(func(t *testing.T, row string) {
		want, err := csv.NewReader(strings.NewReader(row)).Read()
		if err != nil || strings.ContainsAny(row, "\r\n") {
			return
		}
		cells, err := AppendCells(nil, []byte(row), ',', false)
		if err != nil || len(cells) != len(want) {
			t.Fatalf("%q: got %d cells, %v, want %q", row, len(cells), err, want)
		}
		for i, c := range cells {
			if v, n := ParseDecimal(c.Text); string(c.Text) != want[i] || n != c.Length || n > 0 && v != c.Number {
				t.Errorf("%q: cell %d: got %+v, want %q and %g[%d]", row, i, c, want[i], v, n)
			}
		}
	})
}
