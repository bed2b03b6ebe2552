package ipynb

import (
	"bytes"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/textlog"
)

// FuzzReadNotebook checks that reading ends without a panic, and that each run and each
// problem names its cell.
func FuzzReadNotebook(f *testing.F) {
	f.Add([]byte(`{"cells": [{"cell_type": "code", "execution_count": 1, "outputs": [{"output_type": "stream", "text": ["Epoch 1/1\\n", "9/9 - 5s - loss: 1.0\\n"]}, {"data": {"text/plain": "x"}}]}, {"outputs": [{"text": 5}]}], "nbformat": 4}`))
	f.Add([]byte(`{"worksheets": [{"cells": [{"outputs": [{"text": "9/9 - 5s - loss: 1.0\\n9/9 - 5s - loss: x\\n"}]}]}], "nbformat": 3}`))
	f.Add([]byte(`{"cells": [{"outputs": [{"text": "9/9 - 5s - loss: 1.0"}]}, {"outputs"`))
	format := Format([]record.Format{textlog.Format()})
	f.Fuzz(func(t *testing.T, text []byte) {
		report := &record.Report{Path: "a.ipynb"}
		parts, err := format.Read(t.Context(), &record.Input{Path: "a.ipynb", Reader: bytes.NewReader(text), Size: int64(len(text)), Report: report})
		if err != nil && len(parts) > 0 {
			t.Errorf("got both runs and the error %v", err)
		}
		dirs := map[string]bool{}
		for _, p := range parts {
			if !strings.HasPrefix(p.Run.Dir, "a.ipynb#cell") || dirs[p.Run.Dir] || p.Line != 0 {
				t.Errorf("run %q at line %d", p.Run.Dir, p.Line)
			}
			dirs[p.Run.Dir] = true
		}
		for _, p := range report.Unused {
			if p.Line != 0 || !strings.Contains(p.Reason, "cell") {
				t.Errorf("got the problem %v", p)
			}
		}
		used := report.LinesUsed
		for _, i := range report.Ignored {
			used += i.Lines
		}
		if used > report.Lines {
			t.Errorf("%d lines used or ignored, of %d", used, report.Lines)
		}
	})
}
