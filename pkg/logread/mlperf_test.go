package logread

import (
	"fmt"
	"strings"
	"testing"
)

// mllog returns a line of MLPerf's logging with a time in seconds. rest contains
// the members after the time.
func mllog(seconds int, rest string) string {
	return fmt.Sprintf(":::MLLOG {\"namespace\": \"\", \"time_ms\": %d, %s}\n", 1_714_835_500_000+1000*seconds, rest)
}

// event returns the members of an MLLOG line with a key, a value and metadata.
func event(key, value, metadata string) string {
	return fmt.Sprintf("\"event_type\": \"POINT_IN_TIME\", \"key\": %q, \"value\": %s, \"metadata\": {%s}", key, value, metadata)
}

// TestMLLogBesideKeras checks a log in which MLLOG counts epochs from 0 and
// Keras counts the same epochs from 1.
func TestMLLogBesideKeras(t *testing.T) {
	var b strings.Builder
	b.WriteString(mllog(0, event("run_start", "null", "")))
	for i, loss := range []string{"2.0", "1.5", "1.0"} {
		b.WriteString(mllog(100*i, event("epoch_start", "null", fmt.Sprintf(`"epoch_num": %d`, i))))
		fmt.Fprintf(&b, "Epoch %d/3\n9/9 - 60s - loss: %s - accuracy: 0.5\n", i+1, loss)
		b.WriteString(mllog(100*i+61+i, event("epoch_stop", "null", fmt.Sprintf(`"epoch_num": %d`, i))))
		b.WriteString(mllog(100*i+90, event("eval_accuracy", fmt.Sprintf("0.%d", 5+i), fmt.Sprintf(`"epoch_num": %d`, i))))
	}
	b.WriteString(mllog(300, event("run_stop", "null", `"status": "success"`)))
	found, report := readReport(t, "resnet_4gpu.log", b.String())
	if len(found) != 1 || found[0].Info.Workers != 4 {
		t.Fatalf("%d runs, %s", len(found), report)
	}
	got := ""
	for _, e := range found[0].Epochs {
		got += fmt.Sprintf("%d %gs %g %g; ", e.Epoch, e.Seconds, e.TrainLoss, e.ValAccuracy)
	}
	if want := "1 61s 2 0.5; 2 62s 1.5 0.6; 3 63s 1 0.7; "; got != want {
		t.Errorf("got %s, want %s\n%s", got, want, report)
	}
	if text := report.String(); !strings.Contains(text, "counts epochs from 0") || strings.Contains(text, "ranks") {
		t.Errorf("got %s", text)
	}
	// From the same number on, there is nothing to assume.
	_, report = readReport(t, "resnet_4gpu.log", strings.NewReplacer(`"epoch_num": 2`, `"epoch_num": 3`, `"epoch_num": 1`, `"epoch_num": 2`, `"epoch_num": 0`, `"epoch_num": 1`).Replace(b.String()))
	if strings.Contains(report.String(), "counts epochs from 0") {
		t.Errorf("got %s", report)
	}
}

// TestMLLogOfSeveralRanks checks logs in which one rank starts the run and
// another one evaluates or stops it.
func TestMLLogOfSeveralRanks(t *testing.T) {
	from := func(rank, seconds int, key, value, metadata string) string {
		return fmt.Sprintf("%d: %s", rank, mllog(seconds, event(key, value, metadata)))
	}
	for name, c := range map[string]struct {
		text string
		want []string // status, time to train, epochs of each run
		says string
	}{
		"started by 0, stopped by 56": {
			from(0, 0, "run_start", "null", "") +
				from(0, 0, "epoch_start", "null", `"epoch_num": 1`) + from(0, 60, "epoch_stop", "null", `"epoch_num": 1`) +
				from(56, 70, "eval_accuracy", "0.75", `"epoch_num": 1`) + from(56, 80, "run_stop", "null", `"status": "success"`),
			[]string{"done 80 [1 60s 0.75]"},
			"run_stop of rank 56",
		},
		"begun by a setting of 7": {
			from(7, 0, "global_batch_size", "32", "") + from(0, 1, "run_start", "null", "") +
				from(0, 1, "epoch_start", "null", `"epoch_num": 1`) + from(0, 61, "epoch_stop", "null", `"epoch_num": 1`) +
				from(0, 81, "run_stop", "null", `"status": "success"`),
			[]string{"done 80 [1 60s NaN]"},
			"",
		},
		"all": { // the times of the rank that was first
			from(0, 0, "run_start", "null", "") + from(1, 1, "run_start", "null", "") +
				from(0, 0, "epoch_start", "null", `"epoch_num": 1`) + from(1, 1, "epoch_start", "null", `"epoch_num": 1`) +
				from(1, 59, "epoch_stop", "null", `"epoch_num": 1`) + from(0, 60, "epoch_stop", "null", `"epoch_num": 1`) +
				from(1, 70, "eval_accuracy", "0.5", `"epoch_num": 1`) + from(0, 71, "eval_accuracy", "0.75", `"epoch_num": 1`) +
				from(1, 79, "run_stop", "null", `"status": "aborted"`) + from(0, 80, "run_stop", "null", `"status": "success"`),
			[]string{"done 80 [1 60s 0.75]"},
			"",
		},
		"twice": {
			strings.Repeat(from(0, 0, "run_start", "null", "")+from(56, 80, "run_stop", "null", `"status": "success"`), 2),
			[]string{"done 80 []", "done 80 []"},
			"run_stop of rank 56",
		},
		"stopped by nobody": {
			from(0, 0, "run_start", "null", "") + from(56, 70, "eval_accuracy", "0.75", `"epoch_num": 1`),
			[]string{"failed <nil> []"},
			"run_start or run_stop is missing",
		},
	} {
		found, report := readReport(t, "results/result_0.txt", c.text)
		var got []string
		for _, r := range found {
			if strings.Contains(c.text, "56: ") && r.Info.Workers != 0 {
				t.Errorf("%s: got %d workers, want 0 (unknown): not all ranks print lines", name, r.Info.Workers)
			}
			var epochs []string
			for _, e := range r.Epochs {
				epochs = append(epochs, fmt.Sprintf("%d %gs %g", e.Epoch, e.Seconds, e.ValAccuracy))
			}
			got = append(got, fmt.Sprintf("%s %v %v", r.Info.Status, r.Info.Config[TrainingSecondsKey], epochs))
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) || !strings.Contains(report.String(), c.says) || c.says == "" && strings.Contains(report.String(), "of rank") {
			t.Errorf("%s: got %q, want %q\n%s, want %q", name, got, c.want, report, c.says)
		}
	}
}

// TestMLLogBlocks checks blocks of several epochs, as benchmarks that evaluate every fourth
// epoch log them: the time of an epoch is the mean over its block.
func TestMLLogBlocks(t *testing.T) {
	text := mllog(0, event("run_start", "null", ""))
	for i, count := range []string{"4", "1"} {
		first := 1 + 4*i
		text += mllog(100*i, event("block_start", "null", fmt.Sprintf(`"first_epoch_num": %d, "epoch_count": %s`, first, count))) +
			mllog(100*i+80, event("block_stop", "null", fmt.Sprintf(`"first_epoch_num": %d`, first)))
	}
	text += mllog(90, event("eval_accuracy", "0.5", `"epoch_num": 4`)) + mllog(200, event("run_stop", "null", `"status": "success"`))
	found, report := readReport(t, "result_0.txt", text)
	got := ""
	for _, e := range found[0].Epochs {
		got += fmt.Sprintf("%d %gs %g; ", e.Epoch, e.Seconds, e.ValAccuracy)
	}
	if want := "1 20s NaN; 2 20s NaN; 3 20s NaN; 4 20s 0.5; 5 80s NaN; "; got != want || !strings.Contains(report.String(), "the mean over its block") {
		t.Errorf("got %s, want %s\n%s", got, want, report)
	}
	found, report = readReport(t, "result_0.txt", strings.Replace(text, `"epoch_count": 4`, `"epoch_count": 0.5`, 1))
	if len(found[0].Epochs) != 1 || !strings.Contains(report.String(), "line 2: a block of 0.5 epochs has no time per epoch") {
		t.Errorf("got %v\n%s", found[0].Epochs, report)
	}
}
