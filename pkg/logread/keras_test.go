package logread

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// kerasEpochs returns the epochs of a run as text: number, line, seconds, loss,
// accuracy, and the validation's loss and accuracy if known.
func kerasEpochs(r runs.Run) string {
	var b strings.Builder
	for _, e := range r.Epochs {
		fmt.Fprintf(&b, "%d@%d %gs %g %g", e.Epoch, e.Line, e.Seconds, e.TrainLoss, e.Accuracy)
		if !math.IsNaN(e.ValLoss) {
			fmt.Fprintf(&b, " %g %g", e.ValLoss, e.ValAccuracy)
		}
		b.WriteString("; ")
	}
	if x := r.Info.Test; x != nil {
		fmt.Fprintf(&b, "test %gs %g %g", x.Seconds, x.Loss, x.Accuracy)
	}
	return b.String()
}

// readReport reads a single file and returns its runs and its report.
func readReport(t *testing.T, name, text string) ([]runs.Run, Report) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{name: text})
	logs, reports := explained(t, dir)
	return logs.Runs, reports[name]
}

const twoEpochs = "Epoch 1/2\n196/196 - 49s - loss: 2.0 - accuracy: 0.25\nEpoch 2/2\n196/196 - 45s - loss: 1.8 - accuracy: 0.35\n"

// TestKerasEvaluation checks logs with lines "Epoch N/M": a line of values
// without an open epoch is an evaluation. It is the test if it is the only one
// after the epochs; otherwise it is ignored with a reason.
func TestKerasEvaluation(t *testing.T) {
	const epochs = "1@2 49s 2 0.25; 2@4 45s 1.8 0.35; "
	const evaluated = "313/313 - 2s - loss: 1.7777 - accuracy: 0.4111\n"
	for name, c := range map[string]struct {
		text string
		want []string // of each run
		says string
	}{
		"behind":  {twoEpochs + evaluated, []string{epochs + "test 2s 1.7777 0.4111"}, "the test is the evaluation in line 5"},
		"Keras 3": {twoEpochs + "313/313 - 1s - 4ms/step - accuracy: 0.39 - loss: 1.81\n", []string{epochs + "test 1s 1.81 0.39"}, "line 5"},
		"bar":     {twoEpochs + "313/313 [=====] - 1s 4ms/step - loss: 1.81 - accuracy: 0.39\n", []string{epochs + "test 1s 1.81 0.39"}, "line 5"},
		"as many steps": {
			twoEpochs + "196/196 - 2s - loss: 1.7777 - accuracy: 0.4111\n", []string{epochs + "test 2s 1.7777 0.4111"}, "line 5",
		},
		"in front": {
			evaluated + evaluated + twoEpochs, []string{"1@4 49s 2 0.25; 2@6 45s 1.8 0.35; "}, "2 lines, the first is line 1: Keras line before the first \"Epoch N/M\"",
		},
		"of 0 s in front": {
			"9/9 - 0s - loss: 1.5 - accuracy: 0.5\n" + twoEpochs, []string{"1@3 49s 2 0.25; 2@5 45s 1.8 0.35; "}, "1 run, 2 records, 4 of 5 lines used\n    taken: workers 4: from the name of the file \"e_4gpu\" (assumed)\n    taken: series",
		},
		"between": {
			"Epoch 1/2\n196/196 - 49s - loss: 2.0 - accuracy: 0.25\n" + evaluated + "Epoch 2/2\n196/196 - 45s - loss: 1.8 - accuracy: 0.35\n",
			[]string{"1@2 49s 2 0.25; 2@5 45s 1.8 0.35; "},
			"1 line, the first is line 3: Keras line between epochs",
		},
		"two": {
			twoEpochs + evaluated + evaluated, []string{epochs}, "2 lines, the first is line 5: one of several Keras evaluations after the epochs",
		},
		"of each rank": { // the mean, the slowest
			"[0]<stdout>:Epoch 1/1\n[1]<stdout>:Epoch 1/1\n[0]<stdout>:9/9 - 5s - loss: 2.0 - accuracy: 0.25\n[1]<stdout>:9/9 - 6s - loss: 2.0 - accuracy: 0.25\n" +
				"[0]<stdout>:9/9 - 1s - loss: 1.0 - accuracy: 0.5\n[1]<stdout>:9/9 - 2s - loss: 2.0 - accuracy: 0.25\n",
			[]string{"1@3 6s 2 0.25; test 2s 1.5 0.375"},
			"line 5",
		},
		"of each rank without labels": {
			"Epoch 1/1\nEpoch 1/1\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\n9/9 - 6s - loss: 2.0 - accuracy: 0.25\n9/9 - 1s - loss: 1.0 - accuracy: 0.5\n9/9 - 2s - loss: 2.0 - accuracy: 0.25\n",
			[]string{"1@3 6s 2 0.25; test 2s 1.5 0.375"},
			"line 5",
		},
		"of one rank of two": {
			"Epoch 1/1\nEpoch 1/1\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\n9/9 - 6s - loss: 2.0 - accuracy: 0.25\n" + evaluated, []string{"1@3 6s 2 0.25; test 2s 1.7777 0.4111"}, "line 5",
		},
		"fitted again": { // a run each, not ranks
			strings.Repeat("Epoch 1/1\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\n"+evaluated, 2), []string{"1@2 5s 2 0.25; test 2s 1.7777 0.4111", "1@5 5s 2 0.25; test 2s 1.7777 0.4111"}, "",
		},
		"alone below a command": {
			twoEpochs + "+ python evaluate.py\n" + evaluated, []string{epochs}, "1 line, the first is line 6: Keras evaluation without epochs before it",
		},
		"in the middle of an epoch": { // of a callback: the line with the validation's values is the epoch's
			"Epoch 1/1\n" + evaluated + "196/196 - 49s - loss: 2.0 - accuracy: 0.25 - val_loss: 1.5 - val_accuracy: 0.5\n",
			[]string{"1@3 49s 2 0.25 1.5 0.5; "},
			"1 line, the first is line 2: Keras values of an epoch that a later line repeats",
		},
		"without lines of epochs": { // they count on
			"196/196 - 49s - loss: 2.0 - accuracy: 0.25\n196/196 - 45s - loss: 1.8 - accuracy: 0.35\n", []string{"1@1 49s 2 0.25; 2@2 45s 1.8 0.35; "}, "",
		},
		"torn line of an epoch": {
			"Epoch 1/2\n9/9 - 5s - loss: 2.0 - accuracy: 0.25 - val_loss: 1.5 - val_accuracy: 0.5\npoch 2/2\n9/9 - 4s - loss: 1.0 - accuracy: 0.5 - val_loss: 0.5 - val_accuracy: 0.75\n",
			[]string{"1@2 5s 2 0.25 1.5 0.5; 2@4 4s 1 0.5 0.5 0.75; "},
			"line 4: values of an epoch without its line \"Epoch N/M\": assigned to epoch 2",
		},
		"not a number": {twoEpochs + "313/313 - 2s - loss: nan - accuracy: x\n", []string{epochs + "test 2s NaN 0"}, "accuracy: expected a number"},
	} {
		found, report := readReport(t, "e_4gpu.log", c.text)
		var got []string
		for _, r := range found {
			got = append(got, kerasEpochs(r))
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) || !strings.Contains(report.String(), c.says) || strings.Contains(report.String(), "epochs of 0 s") {
			t.Errorf("%s: %q, expected %q\n%s, expected %q", name, got, c.want, report, c.says)
		}
		if n := report.LinesUsed + report.LinesIgnored() + int64(len(report.Unused)); n < report.Lines || report.LinesUsed+report.LinesIgnored() > report.Lines {
			t.Errorf("%s: %d lines used, %d ignored, %d problems, of %d", name, report.LinesUsed, report.LinesIgnored(), len(report.Unused), report.Lines)
		}
	}
}

// TestTestAccuracy checks that the table of all values contains the accuracy of
// the test.
func TestTestAccuracy(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"e_4gpu.log": twoEpochs + "313/313 - 2s - loss: 1.5 - accuracy: 0.5\n"})
	var b strings.Builder
	_, err := Write(&b, FormatCSV, All, dir)
	check(t, err)
	if !strings.Contains(b.String(), ",test_loss,1.5\n") || !strings.Contains(b.String(), ",test_accuracy,0.5\n") {
		t.Errorf("%s", b.String())
	}
}

// bar3 returns the progress bar of Keras 3 (keras/src/utils/progbar.py) in the
// form written to a terminal.
func bar3(step, steps int, took, tail string) string {
	done, left := 20*step/steps, ""
	if done > 0 {
		left = "\x1b[32m" + strings.Repeat("━", done) + "\x1b[0m"
	}
	return fmt.Sprintf("\x1b[1m%3d/%d\x1b[0m %s\x1b[37m%s\x1b[0m \x1b[1m%s\x1b[0m 245ms/step%s", step, steps, left, strings.Repeat("━", 20-done), took, tail)
}

// TestKeras3Bars checks the default output of Keras 3: bars that overwrite each
// other with \b and \r, and bars on one line per step, of which the last is
// written twice: as a step with 0 s left, and as the end of the epoch.
func TestKeras3Bars(t *testing.T) {
	const first, second = " - accuracy: 0.3100 - loss: 2.2000", " - accuracy: 0.3200 - loss: 2.1000"
	const validated = " - val_accuracy: 0.3000 - val_loss: 2.0000   "
	over := strings.Repeat("\b", 60) + "\r"
	plain := func(text string) string { return regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(text, "") }
	lines := "Epoch 1/2\n\n" + bar3(1, 196, "47s", first) + "\n" + bar3(98, 196, "1:10", first) + "\n" + bar3(196, 196, "0s", " - accuracy: 0.1 - loss: 9.1") + "\n" + bar3(196, 196, "45s", first) +
		"\nEpoch 2/2\n\n" + bar3(196, 196, "0s", " - accuracy: 0.1 - loss: 9.1") + "\n" + bar3(196, 196, "40s", second) + "\n"
	const want = "1@6 45s 2.2 0.31; 2@10 40s 2.1 0.32; "
	for name, c := range map[string]struct {
		text, want string
	}{
		"terminal": {
			"Epoch 1/2\n" + over + bar3(1, 196, "47s", first) + over + bar3(196, 196, "0s", first) + over + bar3(196, 196, "45s", first) +
				"\nEpoch 2/2\n" + over + bar3(98, 196, "20s", first) + over + bar3(196, 196, "40s", second) + "  \n",
			"1@2 45s 2.2 0.31; 2@4 40s 2.1 0.32; ",
		},
		"file":            {lines, want},
		"without colours": {plain(lines), want},
		"rank":            {strings.ReplaceAll(strings.ReplaceAll(lines, "\n\x1b[1m", "\n[rank0]: \x1b[1m"), "Epoch", "[rank0]: Epoch"), ""},
		"validation": {
			"Epoch 1/1\n\n" + bar3(196, 196, "0s", first) + "\n" + bar3(196, 196, "45s", second+validated) + "\n", "1@4 45s 2.1 0.32 2 0.3; ",
		},
		"evaluation": {
			lines + "\n" + bar3(100, 313, "1s", first) + "\n" + bar3(313, 313, "0s", first) + "\n" + bar3(313, 313, "2s", " - accuracy: 0.4111 - loss: 1.7777") + "\n", want + "test 2s 1.7777 0.4111",
		},
		"evaluation of as many steps": {
			lines + "\n" + bar3(196, 196, "0s", first) + "\n" + bar3(196, 196, "2s", " - accuracy: 0.4111 - loss: 1.7777") + "\n", want + "test 2s 1.7777 0.4111",
		},
		"evaluation at a terminal": {
			lines + over + bar3(313, 313, "0s", first) + over + bar3(313, 313, "2s", " - accuracy: 0.4111 - loss: 1.7777") + "\n", want + "test 2s 1.7777 0.4111",
		},
		"two ranks": {
			"Epoch 1/1\nEpoch 1/1\n" + bar3(9, 9, "0s", first) + "\n" + bar3(9, 9, "0s", second) + "\n" + bar3(9, 9, "5s", first) + "\n" + bar3(9, 9, "6s", second) + "\n", "1@5 6s 2.1500000000000004 0.315; ",
		},
		"killed": {"Epoch 1/2\n" + over + bar3(196, 196, "45s", first) + "\nEpoch 2/2\n" + over + bar3(98, 196, "20s", first), "1@2 45s 2.2 0.31; "},
	} {
		found, report := readReport(t, "job_2gpu.out", c.text)
		if c.want == "" {
			c.want = want
		}
		if len(found) != 1 || kerasEpochs(found[0]) != c.want || len(found[0].Problems) > 0 {
			t.Errorf("%s: %d runs, expected %q; %+v\n%s", name, len(found), c.want, found, report)
			continue
		}
		if n := report.LinesUsed + report.LinesIgnored(); n != report.Lines {
			t.Errorf("%s: %d lines used or ignored, of %d: %s", name, n, report.Lines, report)
		}
	}
}

// TestKerasOfNoTime checks epochs whose time Keras rounds to 0 s.
func TestKerasOfNoTime(t *testing.T) {
	for _, line := range []string{"9/9 - 0s - loss: 2.0 - accuracy: 0.25", bar3(9, 9, "0s", " - accuracy: 0.25 - loss: 2.0")} {
		found, _ := readReport(t, "job_2gpu.out", strings.Repeat("Epoch 1/2\n"+line+"\nEpoch 2/2\n"+line+"\n", 1))
		if len(found) != 1 || kerasEpochs(found[0]) != "1@2 NaNs 2 0.25; 2@4 NaNs 2 0.25; " ||
			!strings.Contains(fmt.Sprint(found[0].Problems), "got 2 epochs of 0 s: Keras rounds to full seconds; their times are not used") {
			t.Errorf("%q: %+v", line, found)
		}
	}
}

// TestKerasLoop checks programs that call fit with one epoch in a loop: each
// line "Epoch 1/1" is a further epoch of one run, on each rank.
func TestKerasLoop(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
		says string
	}{
		"five": {
			strings.Repeat("Epoch 1/1\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\n", 5),
			[]string{"1@2 5s 2 0.25; 2@4 5s 2 0.25; 3@6 5s 2 0.25; 4@8 5s 2 0.25; 5@10 5s 2 0.25; "},
			`"Epoch 1/1" is repeated`,
		},
		"two ranks": {
			"Epoch 1/1\nEpoch 1/1\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\n9/9 - 6s - loss: 2.0 - accuracy: 0.25\n" +
				"Epoch 1/1\nEpoch 1/1\n9/9 - 4s - loss: 1.0 - accuracy: 0.5\n9/9 - 3s - loss: 1.0 - accuracy: 0.5\n",
			[]string{"1@3 6s 2 0.25; 2@7 4s 1 0.5; "},
			`"Epoch 1/1" is repeated`,
		},
		"two ranks with labels": {
			strings.Repeat("[0]<stdout>:Epoch 1/1\n[1]<stdout>:Epoch 1/1\n[1]<stdout>:9/9 - 5s - loss: 2.0 - accuracy: 0.25\n[0]<stdout>:9/9 - 6s - loss: 2.0 - accuracy: 0.25\n", 2),
			[]string{"1@3 6s 2 0.25; 2@7 6s 2 0.25; "},
			`"Epoch 1/1" is repeated`,
		},
		"a command between": {
			"Epoch 1/1\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\n+ python a.py\nEpoch 1/1\n9/9 - 4s - loss: 2.0 - accuracy: 0.25\n",
			[]string{"1@2 5s 2 0.25; ", "1@5 4s 2 0.25; "},
			"",
		},
		"several epochs": {
			twoEpochs + strings.ReplaceAll(twoEpochs, "49s", "48s"), []string{"1@2 49s 2 0.25; 2@4 45s 1.8 0.35; ", "1@6 48s 2 0.25; 2@8 45s 1.8 0.35; "}, "",
		},
	} {
		found, report := readReport(t, "e_2gpu.log", c.text)
		var got []string
		for _, r := range found {
			got = append(got, kerasEpochs(r))
			if r.Info.Workers != 2 {
				t.Errorf("%s: got %d workers", name, r.Info.Workers)
			}
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) || !strings.Contains(report.String(), c.says) || c.says == "" && strings.Contains(report.String(), "repeated") {
			t.Errorf("%s: got %q, want %q\n%s, want %q", name, got, c.want, report, c.says)
		}
	}
	// Without another source, five epochs do not make five workers.
	found, _ := readReport(t, "e.log", strings.Repeat("Epoch 1/1\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\n", 5))
	if len(found) != 1 || found[0].Info.Workers != 0 {
		t.Errorf("got %d workers, want 0 (unknown)", found[0].Info.Workers)
	}
}

// TestLongKerasLine checks that the numbering of the epochs does not depend on
// the length of the lines on which a progress bar is drawn.
func TestLongKerasLine(t *testing.T) {
	const steps = 20000 // about 3 MiB
	bar := func(end string, between func(width int) string) string {
		var b strings.Builder
		for i := range steps {
			frame := fmt.Sprintf("%d/%d [%s] - ETA: %ds - loss: 1.0", i+1, steps, strings.Repeat("=", 30), steps-i)
			b.WriteString(between(len(frame)))
			b.WriteString(frame)
		}
		b.WriteString(between(60))
		return b.String() + fmt.Sprintf("%d/%d [%s] - %s\n", steps, steps, strings.Repeat("=", 30), end)
	}
	rest := "Epoch 2/3\n9/9 - 6s - loss: 1.5 - accuracy: 0.5\nEpoch 3/3\n9/9 - 7s - loss: 1.0 - accuracy: 0.75\n"
	const numbered = "2@4 6s 1.5 0.5; 3@6 7s 1 0.75; "
	for name, c := range map[string]struct{ first, want, says string }{
		"carriage returns":                {bar("5s 1ms/step - loss: 2.0 - accuracy: 0.25", func(int) string { return "\r" }), "1@2 5s 2 0.25; " + numbered, ""},
		"backspaces":                      {bar("5s 1ms/step - loss: 2.0 - accuracy: 0.25", func(n int) string { return strings.Repeat("\b", n) }), "1@2 5s 2 0.25; " + numbered, ""},
		"backspaces and carriage returns": {bar("5s 1ms/step - loss: 2.0 - accuracy: 0.25", func(n int) string { return strings.Repeat("\b", n) + "\r" }), "1@2 5s 2 0.25; " + numbered, ""},
		"short backspaces":                {"1/9 [>..] - ETA: 5s\b\b\b\b\b9/9 [===] - 5s 1ms/step - loss: 2.0 - accuracy: 0.25\n", "1@2 5s 2 0.25; " + numbered, ""},
		"neither":                         {bar("5s 1ms/step - loss: 2.0 - accuracy: 0.25", func(int) string { return " " }), numbered, "line 2: line is longer than"},
		"lost":                            {"a message\n", numbered, "line 3: epoch 1 has no values: epoch 2 begins before them"},
	} {
		found, report := readReport(t, "e_1gpu.log", "Epoch 1/3\n"+c.first+rest)
		if len(found) != 1 || kerasEpochs(found[0]) != c.want || !strings.Contains(report.String(), c.says) || c.says == "" && len(report.Unused) > 0 {
			t.Errorf("%s: got %d runs, %q, want %q\n%s, want %q", name, len(found), kerasEpochs(found[0]), c.want, report, c.says)
		}
	}
	// Of two ranks, one has lost the values of an epoch.
	found, report := readReport(t, "e_2gpu.log", "Epoch 1/3\nEpoch 1/3\n9/9 - 5s - loss: 2.0\nEpoch 2/3\nEpoch 2/3\n9/9 - 6s - loss: 1.5\n9/9 - 7s - loss: 1.5\n")
	if got := kerasEpochs(found[0]); got != "1@3 5s 2 NaN; 2@6 7s 1.5 NaN; " || !strings.Contains(report.String(), "line 5: epoch 1 has no values") {
		t.Errorf("got %s\n%s", got, report)
	}
}
