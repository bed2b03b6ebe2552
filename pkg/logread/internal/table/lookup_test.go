package table

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestTablesAreRecognizedByHeader compares isTable, which does not survey the rows of texts whose
// header names nothing, with the complete survey, on headers of known and unknown names.
func TestTablesAreRecognizedByHeader(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	mappings, err := ParseMappings([]string{"train_loss=cost,workers=3"})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{
		"", "a", "cost", "note", "2021-11-12 00:32:26", "118 - root - INFO", "Name", "State", "key", "value", "run_id", "power.draw [W]", "timestamp",
		"epoch", "Epoch No.", "epoch_time_ms", "loss (val)", "train_loss_epoch", "No. of GPUs", "_step", "_runtime", "Seq", "JobRuntime", "Command", "Step", "x - loss",
		"metrics.loss", "Run ID", "Start Time", "elapsed (s)", "model",
	}
	cells := []string{"1", "2", "0.5", "", "text", "2023/11/14 22:13:20.000", "1:02:03", "100.00 W"}
	pick := func(from []string, n int) string {
		var row []string
		for range n {
			row = append(row, from[rng.IntN(len(from))])
		}
		return strings.Join(row, ",")
	}
	tables := 0
	for range 5_000 {
		width := 2 + rng.IntN(4)
		known := names
		if rng.IntN(2) == 0 {
			known = names[:13] // few fields
		}
		text := []byte(pick(known, width) + "\n" + pick(cells, width) + "\n" + pick(cells, width) + "\n")
		for _, m := range [][]ColumnMapping{nil, mappings} {
			p, ok := parsePreamble(text, nil)
			want := ok && newSchema(p, completeLines(skipLines(text, p.lines)), m).layout != unknownLayout
			if got := isTable(m)("a.csv", text); got != want {
				t.Fatalf("mappings %v: got %v, want %v:\n%s", m, got, want, text)
			}
			if want {
				tables++
			}
		}
	}
	if tables < 500 || tables > 9_500 {
		t.Errorf("%d of 10,000 texts are tables: the test compares too little", tables)
	}
}
