package scaling

import (
	"strings"
	"testing"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// TestSettings checks that only settings that differ between series at equal worker counts are
// listed. A rate that grows with the workers equally in both series is not listed.
func TestSettings(t *testing.T) {
	with := func(name, optimizer string, rate float64, scaling string, batch int, workers ...int) []runs.Run {
		var all []runs.Run
		for _, n := range workers {
			r := weak(n, 1, 20, 10, 10)
			r.Dir, r.Info.Series, r.Info.BatchPerWorker = name+english.FormatCount(n, "w"), name, batch
			r.Info.Config = map[string]any{
				"optimizer": map[string]any{"name": optimizer, "learning_rate": rate}, "schedule": map[string]any{"scaling": scaling},
				"seed": 1.0, "name": name, "epochs": 3.0, "loader": map[string]any{"pinned": true},
			}
			all = append(all, r)
		}
		return all
	}
	s := study(t, with("adam", "adam", 0.0003*1.0000000000000002, "linear", 4, 1, 2), with("sgd", "sgd", 0.1, "linear", 4, 1, 2))
	x := s.Settings()
	var got []string
	for _, r := range x.Rows {
		got = append(got, r.Setting+": "+strings.Join(r.Values, " | "))
	}
	want := "learning rate: 0.0003, 0.0006 | 0.1, 0.2; optimizer.name: adam | sgd"
	if strings.Join(got, "; ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if text := x.String(); !strings.Contains(text, "adam") || !strings.Contains(text, "setting") {
		t.Error(text)
	}
	if x := study(t, with("adam", "adam", 0.1, "none", 4, 1, 2)).Settings(); len(x.Rows) != 0 {
		t.Errorf("one series: %v", x.Rows)
	}
	if x := study(t, with("a", "adam", 0.1, "linear", 4, 1), with("b", "adam", 0.1, "linear", 8, 2)).Settings(); len(x.Rows) == 0 || x.Rows[0].Setting != "learning rate" || x.Rows[1].Setting != "batch per worker" {
		t.Errorf("no count in common: %v", x.Rows)
	}
}
