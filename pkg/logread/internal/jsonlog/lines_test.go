package jsonlog

import (
	"fmt"
	"testing"

	"lockstep/pkg/logread/internal/recordtest"
)

// TestLinesOfAnyForm: objects are read equally, however their members are ordered and separated, and an object that only
// begins like the one before is a problem.
func TestLinesOfAnyForm(t *testing.T) {
	text := `{"epoch": 1, "loss": 0.5, "lr": 2}
{"epoch": 2, "loss": 0.25, "lr": 2}
{"epoch":3,"loss":  0.125 ,"lr":"2"}
{"lr": 2, "epoch": 4, "loss": 1e-1}
{"epoch": 5, "loss": 0.75, "lr": 2{"epoch": 9, "loss": 9, "lr": 9}
{"epoch": 6, "loss": , "lr": 2}
{"mode": , "epoch": 7, "loss": 1}
{"epoch": 8, "loss": 0.5, "lr": 2}
`
	for _, format := range Formats() {
		if format.Name != linesKind {
			continue
		}
		parts, report := recordtest.ReadAndCheckFormat(t, format, "log.jsonl", []byte(text))
		if len(parts) != 1 {
			t.Fatalf("got %d runs, want 1", len(parts))
		}
		got := ""
		for _, e := range parts[0].Run.Epochs {
			got += fmt.Sprintf("%d:%g:%g ", e.Epoch, e.TrainLoss, e.LearningRate)
		}
		if want := "1:0.5:2 2:0.25:2 3:0.125:2 4:0.1:2 8:0.5:2 "; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if len(report.Unused) != 3 {
			t.Errorf("got problems %v, want one for each of lines 5, 6 and 7", report.Unused)
		}
	}
}
