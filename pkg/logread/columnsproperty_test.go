package logread

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// randomTable is a table of metrics by epoch in a random form.
type randomTable struct {
	delimiter, decimal, group, quote string
	lineEnd                          string
	lastLineEnd                      bool
	values                           [][]float64 // by row and column; +Inf: the cell is empty
	digits                           []int       // decimals of each column
}

// newRandomTable returns a random table.
func newRandomTable(rng *rand.Rand) randomTable {
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	r := randomTable{delimiter: pick(",", ";", "\t", "|"), decimal: pick(".", ","), quote: pick("", "all", "some"), lineEnd: pick("\n", "\r\n"), lastLineEnd: rng.IntN(2) == 0}
	if rng.IntN(3) == 0 {
		r.group = map[string]string{".": ",", ",": "."}[r.decimal]
	}
	r.digits = make([]int, 1+rng.IntN(5))
	for i := range r.digits {
		r.digits[i] = []int{0, 1, 2, 4, 6}[rng.IntN(5)] // three decimals after a comma may be thousands
	}
	r.values = make([][]float64, 2+rng.IntN(30))
	for i := range r.values {
		r.values[i] = make([]float64, len(r.digits))
		for k, digits := range r.digits {
			v := (rng.Float64() - 0.2) * math.Pow(10, float64(rng.IntN(7)))
			r.values[i][k], _ = strconv.ParseFloat(strconv.FormatFloat(v, 'f', digits, 64), 64)
			switch {
			case rng.IntN(12) == 0 && k+1 < len(r.digits):
				r.values[i][k] = math.Inf(1)
			case rng.IntN(12) == 0:
				r.values[i][k] = math.NaN()
			}
		}
	}
	return r
}

// cell formats a value as a cell.
func (r randomTable) cell(rng *rand.Rand, v float64, digits int) string {
	text := strconv.FormatFloat(v, 'f', digits, 64)
	switch {
	case math.IsInf(v, 1):
		text = []string{"", "-", "N/A"}[rng.IntN(3)]
	case !math.IsNaN(v):
		whole, fraction, _ := strings.Cut(text, ".")
		if r.group != "" && digits > 0 {
			sign := strings.TrimRight(whole, "0123456789")
			whole = strings.TrimPrefix(whole, sign)
			for i := len(whole) - 3; i > 0; i -= 3 {
				whole = whole[:i] + r.group + whole[i:]
			}
			whole = sign + whole
		}
		if text = whole; digits > 0 {
			text += r.decimal + fraction
		}
	}
	return r.quoted(rng, text)
}

// quoted puts a cell in quotes if it needs them, or if the table has them.
func (r randomTable) quoted(rng *rand.Rand, text string) string {
	if r.quote == "all" || r.quote == "some" && rng.IntN(2) == 0 || strings.Contains(text, r.delimiter) || strings.Contains(text, `"`) {
		return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
	}
	return text
}

// names returns the names of the columns of values.
func (r randomTable) names() []string {
	all := []string{"top5", `a "quoted", long|name;`, "mAP@0.5 (B)", "Größe", "x y"}
	return all[:len(r.digits)]
}

// text formats the table.
func (r randomTable) text(rng *rand.Rand) string {
	cells := []string{r.quoted(rng, "epoch")}
	for _, name := range r.names() {
		cells = append(cells, r.quoted(rng, name))
	}
	lines := []string{strings.Join(cells, r.delimiter)}
	for i, row := range r.values {
		cells = []string{r.quoted(rng, strconv.Itoa(i+1))}
		for k, v := range row {
			cells = append(cells, r.cell(rng, v, r.digits[k]))
		}
		lines = append(lines, strings.Join(cells, r.delimiter))
	}
	text := strings.Join(lines, r.lineEnd)
	if r.lastLineEnd {
		text += r.lineEnd
	}
	return text
}

// TestRandomTables writes random tables with a random delimiter, decimal mark, separator of
// thousands, quoting, line end, encoding and compression, and checks that reading gives back
// each value.
func TestRandomTables(t *testing.T) {
	packers := compressors()
	packers[""] = func(_ testing.TB, text []byte) []byte { return text }
	dir := t.TempDir()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		table := newRandomTable(rng)
		text := table.text(rng)
		for encoding, encoded := range encodings(t, text) {
			for ending, pack := range packers {
				if rng.IntN(4) != 0 {
					continue
				}
				path := filepath.Join(dir, fmt.Sprintf("run_2gpus_%d.csv%s", seed, ending))
				check(t, os.WriteFile(path, pack(t, encoded), 0o644))
				found, problems, err := Read(path)
				if err != nil || len(found) != 1 || len(problems) > 0 {
					t.Fatalf("seed %d, %s%s: %d runs, problems %v, error %v\n%s", seed, encoding, ending, len(found), problems, err, text)
				}
				table.check(t, fmt.Sprintf("seed %d, %s%s", seed, encoding, ending), describe(found), text)
			}
		}
	}
}

// check checks the description of a run that was read from the table.
func (r randomTable) check(t *testing.T, what, got, text string) {
	t.Helper()
	var want strings.Builder
	want.WriteString("CSV table n2")
	for k, name := range r.names() {
		for i, row := range r.values {
			if !math.IsInf(row[k], 1) {
				fmt.Fprintf(&want, " %s@%d=%.8g", name, i+1, row[k])
			}
		}
	}
	want.WriteByte('\n')
	if got != want.String() {
		t.Fatalf("%s:\ngot  %s\nwant %s\n%s", what, got, want.String(), text)
	}
}
