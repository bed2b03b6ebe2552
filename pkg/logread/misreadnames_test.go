package logread

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"lockstep/pkg/runs"
)

// recognizedByName returns the kinds of files that are recognized, or told apart, by their names.
func recognizedByName() []string {
	return []string{"plain loss lines", "MMEngine scalars", "Detectron2 metrics", "job script"}
}

// TestNamesChangeNoContent: other names of folders and files change no value that the content
// states, and nothing that it states about the identity of a run.
func TestNamesChangeNoContent(t *testing.T) {
	for k, s := range readSamples(t) {
		for i, name := range meaningfulNames() {
			if (i+k)%3 > 0 { // each name is used for a third of the samples
				continue
			}
			if len(s.files) > 1 || s.isOfKind(recognizedByName()) {
				s.checkRenamed(t, filepath.Join(name, s.path))
				continue
			}
			s.checkRenamed(t, filepath.Join(filepath.Dir(s.path), name, filepath.Base(s.path)))
			s.checkRenamed(t, filepath.Join(filepath.Dir(s.path), name+filepath.Ext(s.path)))
		}
	}
}

// checkRenamed reads the sample at another path.
func (s *sample) checkRenamed(t *testing.T, path string) {
	t.Helper()
	dir := t.TempDir()
	for _, f := range s.files {
		write(t, dir, map[string]string{path + f.path: string(f.text)})
	}
	rows, logs, _ := readRows(t, dir)
	if len(logs.Runs) != len(s.runs) {
		t.Errorf("%s as %s: got %d runs, want %d", s.path, path, len(logs.Runs), len(s.runs))
		return
	}
	// Without a name that states the workers, the rates of a worker cannot be summed.
	sumsRates := s.isOfKind([]string{"benchy"})
	for i := 0; !sumsRates && (i < len(rows) || i < len(s.rows)); i++ {
		if i >= len(rows) || i >= len(s.rows) || contentOf(rows[i]) != contentOf(s.rows[i]) {
			t.Errorf("%s as %s: got the row %+v, want %+v", s.path, path, rows[i:min(i+1, len(rows))], s.rows[i:min(i+1, len(s.rows))])
			return
		}
	}
	for i, before := range s.runs {
		for _, property := range runs.Properties() {
			from := before.Origins[property].Source
			if slices.Contains([]runs.Source{runs.SourceContent, runs.SourceConfig, runs.SourceCommand}, from) && property != runs.PropertyBatch &&
				(valueOf(before, property) != valueOf(logs.Runs[i], property) || logs.Runs[i].Origins[property].Source != from) {
				t.Errorf("%s as %s: got %s %q from %s, want %q from %s", s.path, path, property, valueOf(logs.Runs[i], property), logs.Runs[i].Origins[property], valueOf(before, property), before.Origins[property])
			}
		}
	}
}

// contentOf returns what the content of a file states about a row.
func contentOf(r Row) string {
	return fmt.Sprint(r.Rank, r.Epoch, r.Step, r.Name, r.Value)
}
