package logread

import (
	"fmt"
	"strings"
	"testing"
)

// describeTextRuns reads a log and returns its runs as text: workers, and seconds by epoch.
func describeTextRuns(t *testing.T, text string) (got, says string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{"fit.log": text})
	logs, err := Options{}.Read(t.Context(), dir)
	check(t, err)
	var all []string
	for _, r := range logs.Runs {
		text := fmt.Sprint(r.Info.Workers)
		for _, e := range r.Epochs {
			text += fmt.Sprintf(" %d:%g", e.Epoch, e.Seconds)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; "), logs.Reports.String()
}

// timmOf returns timm's lines of the last epoch numbers, from 0, each of 10 steps of the given time.
func timmOf(stepSeconds float64, epochs ...int) (text string) {
	for _, n := range epochs {
		for _, step := range []int{0, 5, 9} {
			text += fmt.Sprintf("Train: %d [   %d/10 (  0%%)]  Loss: 6.0 (6.0)  Time: %.1fs, 10.0/s  (%.1fs, 10.0/s)  LR: 1.0e-01  Data: 0.01 (0.01)\n", n, step, stepSeconds, stepSeconds)
		}
	}
	return text
}

// TestEpochsOfUnlabeledProcesses: the lines of several processes without labels have equal epochs; a run
// that was killed within an epoch, and resumed at that epoch in the same file, is one process.
func TestEpochsOfUnlabeledProcesses(t *testing.T) {
	half := strings.Join(strings.SplitAfter(timmOf(2, 3), "\n")[:2], "")
	both := func(epochs ...int) (text string) {
		for _, n := range epochs {
			text += timmOf(2, n) + timmOf(2, n)
		}
		return text
	}
	const resumed = "the run was resumed at epoch 4, and the later values count"
	for name, c := range map[string]struct{ text, want, says string }{
		"two processes":                  {both(0, 1, 2), "2 1:20 2:20 3:20", "the lines of 2 ranks are one run"},
		"two processes, killed":          {both(0, 1) + timmOf(2, 2), "2 1:20 2:20 3:20", ""},
		"resumed in the last epoch":      {timmOf(2, 0, 1, 2, 3) + timmOf(3, 3, 4), "0 1:20 2:20 3:20 4:30 5:30", resumed},
		"killed within the epoch":        {timmOf(2, 0, 1, 2) + half + timmOf(3, 3, 4), "0 1:20 2:20 3:20 4:30 5:30", resumed},
		"two processes, resumed":         {both(0, 1, 2, 3) + both(3, 4), "2 1:20 2:20 3:20 4:20 5:20", resumed},
		"killed within the first epoch":  {half + timmOf(2, 3, 4, 5), "0 4:20 5:20 6:20", ""},
		"another run, by its first step": {timmOf(2, 0, 1, 2) + timmOf(3, 0, 1), "0 1:20 2:20 3:20; 0 1:30 2:30", ""},
	} {
		if got, says := describeTextRuns(t, c.text); got != c.want || !strings.Contains(says, c.says) {
			t.Errorf("%s: got %s, want %s and %q\n%s", name, got, c.want, c.says, says)
		}
	}
}
