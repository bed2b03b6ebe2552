package course

import (
	"strings"
	"testing"
)

// TestSeries has a table with several series, of which only one has the right value.
func TestSeries(t *testing.T) {
	all, err := parseTasks("09-test", []byte(`
tasks:
  - id: test/1
    text: Efficiency with a batch of 128
    kind: numbers
    points: 1
    runs: [{config: published/sc21-weak-scaling.csv, workers: [128]}]
    numbers:
      efficiency: {metric: efficiency, series: "real data, batch 128", workers: 128}
    hints: [divide]
`))
	if err != nil {
		t.Fatal(err)
	}
	e, err := all[0].collect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// 62949 samples/s on 32 nodes, 2202 on one; with a batch of 64 they are 51620 and 2061.
	if err := e.judge(t.Context(), map[string]any{"efficiency": 62949. / 2202 / 32}); err != nil {
		t.Error(err)
	}
	err = e.judge(t.Context(), map[string]any{"efficiency": 51620. / 2061 / 32})
	if want := `of series "real data, batch 128" of published/sc21-weak-scaling.csv`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the value of another series: got error %v, want one with %q", err, want)
	}
}
