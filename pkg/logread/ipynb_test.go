package logread

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// notebook returns a notebook in nbformat 4 with one code cell per text, whose output is
// the text. A text that begins with "plain:" is a result, the others were printed.
func notebook(t *testing.T, texts ...string) string {
	t.Helper()
	cells := []any{map[string]any{"cell_type": "markdown", "source": []string{"# Epoch 1/5\n"}, "metadata": map[string]any{}}}
	for i, text := range texts {
		var outputs []any
		if plain, ok := strings.CutPrefix(text, "plain:"); ok {
			outputs = append(outputs, map[string]any{"output_type": "execute_result", "data": map[string]any{"text/plain": strings.SplitAfter(plain, "\n"), "image/png": "iVBORw0KGgo"}})
		} else {
			half := len(text) / 2
			outputs = append(outputs,
				map[string]any{"output_type": "stream", "name": "stdout", "text": strings.SplitAfter(text[:half], "\n")},
				map[string]any{"output_type": "stream", "name": "stderr", "text": text[half:]})
		}
		cells = append(cells, map[string]any{"cell_type": "code", "execution_count": i + 7, "source": []string{"9/9 - 5s - loss: 7.0"}, "outputs": outputs, "metadata": map[string]any{}})
	}
	b, err := json.MarshalIndent(map[string]any{"cells": cells, "metadata": map[string]any{"kernelspec": map[string]any{"name": "python3"}}, "nbformat": 4, "nbformat_minor": 5}, "", " ")
	check(t, err)
	return string(b)
}

// TestNotebook checks that the outputs of a notebook's cells are read by the formats of
// text files, each cell for itself.
func TestNotebook(t *testing.T) {
	const bar = "Epoch 1/2\n 1/9 [>....] - ETA: 5s - loss: 3.0\b\b\b\b\b\r9/9 [=====] - 5s 1ms/step - loss: 2.0 - accuracy: 0.25\n" +
		"Epoch 2/2\n9/9 [=====] - 4s 1ms/step - loss: 1.5 - accuracy: 0.5\n"
	const table = "workers,epoch,seconds,train_loss\n4,1,10.5,2.5\n4,2,9.5,2.25\n"
	full := notebook(t, "import\n", bar, "plain:<keras.History at 0x7f>", bar+bar, table)
	for name, c := range map[string]struct {
		text string
		want []string // name, kind, epochs of each run
		says []string
	}{
		"cells": {full, []string{
			"#cell3 Keras log 1@0 5s 2 0.25; 2@0 4s 1.5 0.5; ", "#cell5 Keras log 1@0 5s 2 0.25; 2@0 4s 1.5 0.5; ",
			"#cell5.2 Keras log 1@0 5s 2 0.25; 2@0 4s 1.5 0.5; ", "#cell6 CSV table 1@0 10.5s 2.5 NaN; 2@0 9.5s 2.25 NaN; ",
		}, []string{"4 runs, 8 records", "cell 3 (In [8]): Keras log, 4 of 4 lines used"}},
		"problem": {
			notebook(t, bar+"9/9 - 5s - loss: x\n"), []string{"#cell2 Keras log 1@0 5s 2 0.25; 2@0 4s 1.5 0.5; test 5s NaN 0"}, []string{"not used: cell 2 (In [7]), line 5: loss: expected a number"},
		},
		"format 3": {
			`{"metadata": {"name": ""}, "nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "prompt_number": 1, "outputs": [{"output_type": "stream", "stream": "stdout", "text": ["Epoch 1/1\n", "9/9 - 5s - loss: 2.0 - accuracy: 0.25\n"]}]}]}]}`,
			[]string{"#cell1 Keras log 1@0 5s 2 0.25; "},
			nil,
		},
		"torn":           {full[:strings.Index(full, "#cell")+len(full)-900], []string{"#cell3 Keras log 1@0 5s 2 0.25; 2@0 4s 1.5 0.5; "}, []string{"the notebook is damaged after 4 cells"}},
		"a wrong cell":   {`{"cells": [{"outputs": []}, {"outputs": [{"text": 5}]}]}`, nil, []string{`not used: cell 2: expected a text or a list of texts, got "5"`}},
		"no output":      {notebook(t, "hello\n", "plain:<Figure size 640x480 with 1 Axes>"), nil, []string{"no cell of the notebook has an output that a format recognizes"}},
		"more text":      {`{"cells": [], "nbformat": 4}` + "\nmore\n", nil, []string{"the text after the end of the notebook is not read"}},
		"empty":          {`{"cells": [], "nbformat": 4}`, nil, []string{"no cell"}},
		"not a notebook": {`{"epoch": 4}`, nil, []string{"not read: unknown file format"}},
	} {
		found, report := readReport(t, "train_n4.ipynb", c.text)
		var got []string
		for _, r := range found {
			got = append(got, r.Dir[strings.LastIndex(r.Dir, "#"):]+" "+strings.Replace(r.Kind, "results table", "CSV table", 1)+" "+kerasEpochs(r))
		}
		if c.want != nil && fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
			t.Errorf("%s: got %q, want %q\n%s", name, got, c.want, report)
		}
		for _, says := range c.says {
			if !strings.Contains(report.String(), says) {
				t.Errorf("%s: got %s, want %q", name, report, says)
			}
		}
	}
	// A line that the user describes by a template.
	dir := t.TempDir()
	write(t, dir, map[string]string{"a_4gpu.ipynb": notebook(t, "pass 1: 2.5 after 10 s\npass 2: 1.5 after 9 s\n")})
	logs, err := Options{Lines: []string{"pass {epoch}: {train_loss} after {seconds} s"}}.Read(t.Context(), dir)
	check(t, err)
	if len(logs.Runs) != 1 || kerasEpochs(logs.Runs[0]) != "1@0 10s 2.5 NaN; 2@0 9s 1.5 NaN; " || logs.Runs[0].Info.Workers != 4 {
		t.Errorf("got %+v", logs.Runs)
	}
}
