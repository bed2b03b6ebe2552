package logread

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExcerpts: an excerpt of a log that begins at epoch 2, after the epochs of a run, is a copy if its
// values are equal, and otherwise resumes the run, unless another number of epochs was planned.
func TestExcerpts(t *testing.T) {
	keras := func(total int, epochs ...int) string {
		text := ""
		for _, n := range epochs {
			text += fmt.Sprintf("Epoch %d/%d\n9/9 - %ds - loss: 2.0\n", n, total, n+total)
		}
		return text
	}
	sc21 := func(epochs ...int) string {
		text := ""
		for i, n := range epochs {
			text += fmt.Sprintf("2021-11-12 00:32:2%d,118 - root - INFO - Time taken for epoch %d is %d.0 sec, avg 2.0 samples/sec\n", i, n, n)
		}
		return text
	}
	study := func(epochs ...int) string {
		text := ""
		for _, n := range epochs {
			text += fmt.Sprintf("[INFO] EPOCH: %d/3\nTrain loss: 0.5, elapsed time: %d.00\n", n, n)
		}
		return text
	}
	labelled := func(text string) string {
		out := ""
		for line := range strings.Lines(text) {
			out += "[rank0]:" + line + "[rank1]:" + line
		}
		return out
	}
	for name, c := range map[string]struct {
		text string
		want []string // epochs of each run
	}{
		"Keras":                      {keras(3, 1, 2, 3) + keras(3, 2, 3), []string{"1 2 3"}},
		"Keras, the last epoch":      {keras(3, 1, 2) + keras(3, 2, 3), []string{"1 2 3"}},
		"Keras, other total":         {keras(3, 1) + keras(9, 2, 3), []string{"1", "2 3"}},
		"Keras, long":                {keras(9, 1, 2, 3, 4, 5, 6, 7, 8, 9) + keras(9, 2, 3, 4, 5, 6), []string{"1 2 3 4 5 6 7 8 9"}},
		"Keras, fit again":           {keras(2, 1, 2) + keras(4, 3, 4), []string{"1 2 3 4"}},
		"Keras, labels":              {labelled(keras(3, 1, 2, 3) + keras(3, 2, 3)), []string{"1 2 3"}},
		"Keras, ranks without label": {"Epoch 1/2\nEpoch 1/2\n9/9 - 5s - loss: 2.0\nEpoch 2/2\n9/9 - 5s - loss: 2.0\n9/9 - 5s - loss: 1.0\nEpoch 2/2\n9/9 - 5s - loss: 1.0\n", []string{"1 2"}},
		"SC21":                       {sc21(1, 2, 3, 2, 3), []string{"1 2 3"}},
		"study":                      {study(1, 2, 3, 2, 3), []string{"1 2 3"}},
		"only an excerpt":            {keras(3, 2, 3), []string{"2 3"}},
	} {
		found, report := readReport(t, "unet_4gpu.log", c.text)
		var got []string
		for _, r := range found {
			text := ""
			for _, e := range r.Epochs {
				text += fmt.Sprintf(" %d", e.Epoch)
			}
			got = append(got, strings.TrimSpace(text))
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got)\n%s%s", name, d, report)
		}
	}
}
