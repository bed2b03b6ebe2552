package logread

import (
	"fmt"
	"strings"
	"testing"
)

// TestTimesOfEpochs checks the times and rates of epochs that follow from times since the start and from the
// rates of steps, in lines with a template, tables and JSON lines.
func TestTimesOfEpochs(t *testing.T) {
	const pass = "pass {epoch} after {elapsed_seconds}s: cost {train_loss}"
	lines := func(form string, values ...any) string {
		var b strings.Builder
		for i := 0; i < len(values); i += 2 {
			fmt.Fprintf(&b, form+"\n", values[i], values[i+1])
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		file, text, line string
		want             string // number, seconds and rate of each epoch
		note             string
	}{
		"each epoch":       {"a_2gpu.log", lines("pass %v after %vs: cost 0.5", 1, 10.5, 2, 20, 3, 31), pass, "1 10.5 NaN; 2 9.5 NaN; 3 11 NaN", "differences"},
		"some epochs":      {"a_2gpu.log", lines("pass %v after %vs: cost 0.5", 5, 500, 10, 1000, 20, 2100), pass, "5 100 NaN; 10 100 NaN; 20 110 NaN", "not each epoch"},
		"a log of the end": {"a_2gpu.log", lines("pass %v after %vs: cost 0.5", 7, 70, 8, 80, 9, 91), pass, "7 NaN NaN; 8 10 NaN; 9 11 NaN", "when the clock started"},
		"from 0":           {"a_2gpu.log", lines("pass %v after %vs: cost 0.5", 0, 10, 1, 21), pass, "1 10 NaN; 2 11 NaN", ""},
		"steps": {
			"a_2gpu.log", "pass 1\nstep 5 after 0:05, cost 0.5\nstep 10 after 0:10, cost 0.5\npass 2\nstep 15 after 0:16, cost 0.5\nstep 20 after 1:22, cost 0.5\n",
			"pass {epoch}\nstep {step} after {elapsed_seconds}, cost {train_loss}", "1 10 NaN; 2 72 NaN", "differences",
		},
		"rates of steps": { // of equally many steps: 2/(1/100 + 1/300)
			"a_2gpu.log", "pass 1\nstep 5: cost 0.5, 100 img/s\nstep 10: cost 0.5, 300 img/s\n",
			"pass {epoch}\nstep {step}: cost {train_loss}, {samples_per_second} img/s", "1 NaN 150", "steps over the time",
		},
		"a rate of 0": {
			"a_2gpu.log", "pass 1\nstep 5: cost 0.5, 0 img/s\nstep 10: cost 0.5, 300 img/s\n",
			"pass {epoch}\nstep {step}: cost {train_loss}, {samples_per_second} img/s", "1 NaN 150", "the mean",
		},
		"a table of epochs":        {"a_2gpu.csv", "epoch,elapsed_seconds,loss\n5,500,0.5\n10,1000,0.4\n20,2100,0.3\n", "", "5 100 NaN; 10 100 NaN; 20 110 NaN", ""},
		"a table of steps":         {"a_2gpu.csv", "epoch,step,elapsed,loss,images/s\n1,5,0:05,0.5,100\n1,10,0:10,0.4,300\n2,15,0:16,0.3,100\n2,20,1:22,0.2,100\n", "", "1 10 150; 2 72 100", "steps over the time"},
		"a table with fractions":   {"a_2gpu.csv", "epoch,step,elapsed,loss\n0.5,5,5,0.5\n1.0,10,10,0.4\n1.5,15,16,0.3\n2.0,20,22,0.2\n", "", "1 10 NaN; 2 12 NaN", "fractions of epochs"},
		"JSON lines and clocks":    {"a_2gpu.jsonl", lines(`{"current_steps": 10, "total_steps": 40, "loss": 0.5, "epoch": %v, "elapsed_time": "%v", "remaining_time": "0:01:30"}`, 0.5, "0:00:10", 1, "0:00:20", 1.5, "0:00:31", 2, "0:01:42"), "", "1 20 NaN; 2 82 NaN", "differences"},
		"JSON lines with fraction": {"a_2gpu.jsonl", lines(`{"step": 10, "loss": 0.5, "epoch": %v, "elapsed": %v}`, 0.4, 4, 0.8, 8, 1.2, 12, 1.6, 16), "", "1 10 NaN; 2 10 NaN", ""},
		"JSON lines with rates":    {"a_2gpu.jsonl", lines(`{"step": %v, "loss": 0.5, "epoch": 1, "samples_per_second": %v}`, 10, 100, 20, 300), "", "1 NaN 150", "steps over the time"},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{c.file: c.text})
		o := Options{}
		if c.line != "" {
			o.Lines = strings.Split(c.line, "\n")
		}
		logs, err := o.Read(t.Context(), dir)
		check(t, err)
		var got []string
		for _, r := range logs.Runs {
			for _, e := range r.Epochs {
				got = append(got, fmt.Sprintf("%d %.6g %.6g", e.Epoch, e.Seconds, e.SamplesPerSecond))
			}
		}
		if text := strings.Join(got, "; "); text != c.want || !strings.Contains(logs.Reports.String(), c.note) {
			t.Errorf("%s: got %s, want %s and the note %q\n%s", name, text, c.want, c.note, logs.Reports)
		}
	}
}

// TestTimesOfSteps: times of steps and clocks give the times of the steps in tables and JSON lines.
func TestTimesOfSteps(t *testing.T) {
	lines := func(form string) (text string) {
		for _, row := range [][]string{{"10", "500", "1500000000"}, {"20", "500", "1500000005"}, {"40", "600", "1500000025"}} {
			text += strings.NewReplacer("STEP", row[0], "TIME", row[1], "CLOCK", row[2]).Replace(form) + "\n"
		}
		return text
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"JSON lines":               {"a.jsonl", lines(`{"step": STEP, "loss": 0.5, "step_time": TIME}`), "10 500, 20 500, 40 600"},
		"milliseconds":             {"a.jsonl", lines(`{"step": STEP, "loss": 0.5, "iter_time_ms": TIME}`), "10 0.5, 20 0.5, 40 0.6"},
		"an unknown unit":          {"a.jsonl", lines(`{"step": STEP, "loss": 0.5, "iter_time_best": TIME}`), ""},
		"a clock in JSON lines":    {"a.jsonl", lines(`{"step": STEP, "loss": 0.5, "timestamp": CLOCK}`), "20 0.5, 40 1"},
		"a clock in a table":       {"a.csv", "step,loss,timestamp\n" + lines("STEP,0.5,CLOCK"), "20 0.5, 40 1"},
		"the clock of TensorBoard": {"a.csv", "Wall time,Step,Value\n" + lines("CLOCK,STEP,0.5"), "20 0.5, 40 1"},
		"a clock with a pause":     {"a.csv", "step,loss,timestamp\n" + lines("STEP,0.5,CLOCK") + "60,0.5,1500000045\n61,0.5,1500036045\n71,0.5,1500036055\n", "20 0.5, 40 1, 60 1, 71 1"},
		"a clock without steps":    {"a.csv", "timestamp,loss\n" + lines("CLOCK,0.5"), ""},
	} {
		var got []string
		for _, c := range readOne(t, c.file, c.text).Curves {
			for i, step := range c.Steps {
				if c.Name == "step_seconds" {
					got = append(got, fmt.Sprintf("%d %g", step, c.Values[i]))
				}
			}
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: got %s, want %s\n%s", name, text, c.want, c.text)
		}
	}
}
