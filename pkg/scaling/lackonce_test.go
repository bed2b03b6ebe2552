package scaling

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnknownWorkersAreOneProblem checks that a file with runs of known and of unknown numbers of
// workers, such as a notebook, has one problem about the unknown number.
func TestUnknownWorkersAreOneProblem(t *testing.T) {
	const text = `{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[
{"cell_type":"code","execution_count":1,"metadata":{},"source":[],"outputs":[{"output_type":"stream","name":"stdout","text":["Epoch 1/1\n","10/10 - 4s - loss: 1.0000 - accuracy: 0.5000 - 4s/epoch - 40ms/step\n"]}]},
{"cell_type":"code","execution_count":2,"metadata":{},"source":[],"outputs":[{"output_type":"stream","name":"stdout","text":["   gpus  epoch_time\n","0     1       100.0\n","1     2        52.0\n"]}]}]}`
	path := filepath.Join(t.TempDir(), "train.ipynb")
	check(t, os.WriteFile(path, []byte(text), 0o644))
	s, err := Read(path)
	check(t, err)
	var about []string
	for _, p := range s.Problems {
		if strings.Contains(p.Reason, unknownWorkersPrefix) {
			about = append(about, p.String())
		}
	}
	if len(s.Points) != 2 || len(about) != 1 || !strings.Contains(about[0], "so the run is in no table") {
		t.Errorf("got %d points and the problems %q, want 2 points and one problem", len(s.Points), about)
	}
}
