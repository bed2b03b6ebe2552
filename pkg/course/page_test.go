package course

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/course/internal/ipynb"
)

// TestPage: the page has each task with the answer, the lines that a number comes from, and the lines
// of the runs' logs and error files. Output that a student has made up stays text.
func TestPage(t *testing.T) {
	t.Parallel()
	c := newClassroom(t)
	nb := c.notebook()
	cellsByGradeID(nb, "test-3")[0].Source = "Because **both** run <at most> twice.\n\n<script>alert(1)</script>"
	setOutput(t, cellsByGradeID(nb, "test-4-answer")[0], map[string]any{"output_type": "display_data", "metadata": map[string]any{}, "data": map[string]any{"image/png": "aGk=\n\" onerror=\"x", "text/html": "<b>made up</b>"}})
	setOutput(t, cellsByGradeID(nb, "test-1-answer")[0], map[string]any{"output_type": "execute_result", "metadata": map[string]any{}, "data": map[string]any{"text/plain": "a table"}})
	run := filepath.Join(c.logs, small, "ddp-n2-s1")
	for name, text := range map[string]string{
		"out.log":   "a line of no interest\n2026-11-29 - root - INFO - Time taken for epoch 2 is 6 sec\n",
		"slurm.err": "slurmstepd: error: Detected 1 oom_kill event\n",
	} {
		if err := os.WriteFile(filepath.Join(run, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(c.dir, "student", "09-test.ipynb")
	if err := nb.Write(path); err != nil {
		t.Fatal(err)
	}
	p, err := NewPage(t.Context(), path, "Ada <Lovelace>", c.tasks)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "page.html")
	if err := p.Save(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, want := range []string{
		"Ada &lt;Lovelace&gt;, 3 of 5 tasks answered", "Task test/1 (3 points)", "Because <strong>both</strong> run &lt;at most&gt; twice.", "&lt;script&gt;alert(1)&lt;/script&gt;", "// YOUR CODE HERE", "<pre>a table\n</pre>",
		small + "/ddp-n1-s1/epochs.csv:3", "   2  2026-11-29 - root - INFO - Time taken for epoch 2 is 6 sec", "slurm.err", "oom_kill",
		`src="data:image/png;base64,aGk=onerror=x"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, unwanted := range []string{"<script", "made up", "no interest", "epochs.csv:2<"} {
		if strings.Contains(page, unwanted) {
			t.Errorf("the page has %q", unwanted)
		}
	}
	if n := strings.Count(page, "<h3>"+small+"/ddp-n2-s1/out.log"); n != 1 {
		t.Errorf("a log is shown %d times", n)
	}
	if p, err := NewPage(t.Context(), filepath.Join(c.release, "09-test.ipynb"), "", c.tasks); err != nil || p.Subtitle != "0 of 5 tasks answered" {
		t.Errorf("got %v, %v for a notebook without answers", p, err)
	}
}

// TestNotebookFile: a notebook that was read is written with every field.
func TestNotebookFile(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../notebooks/course/03-server.ipynb")
	if err != nil {
		t.Fatal(err)
	}
	nb, err := ipynb.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy.ipynb")
	if err := nb.Write(path); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(source, &want), json.Unmarshal(written, &got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the copy differs (-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		`{"nbformat":3}`:                        `got nbformat "3", want 4`,
		`[]`:                                    "damaged JSON",
		`{"nbformat":4}`:                        "no list of cells",
		`{"nbformat":4,"cells":[1]}`:            "cell 1: got json.Number",
		`{"nbformat":4,"cells":[{}`:             "restore a copy from .ipynb_checkpoints",
		`{"nbformat":4,"cells":[{"source":5}]}`: "want text or a list of lines",
	} {
		if _, err := ipynb.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", text, err, want)
		}
	}
}
