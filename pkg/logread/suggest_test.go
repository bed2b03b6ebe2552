package logread

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/template"
)

// TestSuggestKnown checks that files that a known format reads get no proposal,
// and that the proposals for the others do not come from them.
func TestSuggestKnown(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"keras/4gpu.out": "Epoch 1/2\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\nEpoch 2/2\n9/9 - 4s - loss: 1.0 - accuracy: 0.5\n",
		"own/4gpu.txt":   customLines,
		"data.bin":       "\x00\x01",
	})
	s, err := Suggest(dir)
	check(t, err)
	if len(s.Known) != 1 || !strings.Contains(s.Known[0], "4gpu.out: Keras log") {
		t.Errorf("known: %q", s.Known)
	}
	if len(s.Lines) != 1 || s.Lines[0].Rule != customTemplate {
		t.Errorf("lines: %+v", s.Lines)
	}
	if len(s.Unknown) != 1 || !strings.Contains(s.Unknown[0], "data.bin") {
		t.Errorf("unknown: %q", s.Unknown)
	}
	if len(s.Preview) != 1 || len(s.Preview[0].Epochs) != 2 || s.Preview[0].Epochs[1].TrainLoss != 0.25 {
		t.Errorf("preview: %+v", s.Preview)
	}
}

// TestSuggestEnd checks that forms that only the end of a long log has are found.
func TestSuggestEnd(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&b, "iteration %d of 60000: loss %.4f, the learning rate does not change\n", i+1, 3-float64(i)/60_000)
	}
	b.WriteString("epoch 1: validation loss 0.5 after 60.5 s\nepoch 2: validation loss 0.4 after 60.2 s\n")
	write(t, dir, map[string]string{"2gpu.log": b.String()})
	s, err := Suggest(filepath.Join(dir, "2gpu.log"))
	check(t, err)
	var templates []string
	for _, l := range s.Lines {
		templates = append(templates, l.Rule)
	}
	want := "epoch {epoch}: validation loss {val_loss} after {?1} s"
	if got := strings.Join(templates, "\n"); !strings.Contains(got, want) || !strings.Contains(got, "iteration {step} of {steps}: loss {train_loss}, the learning rate does not change") {
		t.Errorf("got %s", got)
	}
}

// TestSuggestShows checks the forms in which a notebook and a terminal show a
// proposal, without the control characters and markup of a hostile log.
func TestSuggestShows(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"2gpu.log": "\x1b]0;x\x07<b>round=1 cost=0.5 dur=2.5s</b>\n\x1b]0;x\x07<b>round=2 cost=0.25 dur=2.0s</b>\n"})
	s, err := Suggest(dir)
	check(t, err)
	if len(s.Lines) != 1 || len(s.Preview) != 1 {
		t.Fatalf("got %s", s)
	}
	for _, text := range []string{s.String(), s.HTML()} {
		if strings.Contains(text, "\x1b") || strings.Contains(text, "\x07") {
			t.Errorf("control characters in %q", text)
		}
	}
	if h := s.HTML(); strings.Contains(h, "<b>") || !strings.Contains(h, "&lt;b&gt;") || !strings.Contains(h, "and it falls") || !strings.Contains(h, "0.25") {
		t.Errorf("got %s", h)
	}
}

// TestSuggestKeepsOptions checks that the rules and commands contain the rules of
// the options, and that lines that they read are not proposed again.
func TestSuggestKeepsOptions(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.log": "workers: 3\nround=1 cost=0.5 dur=2.5s\nround=2 cost=0.25 dur=2.0s\n"})
	p, err := ParsePattern("{series}.log")
	check(t, err)
	s, err := Options{As: []Pattern{p}, Lines: []string{"workers: {workers}"}}.Suggest(t.Context(), dir)
	check(t, err)
	want := []string{"workers: {workers}", customTemplate}
	if got := s.Rules().Lines; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if c := s.Commands()[0]; !strings.Contains(c, "--as '{series}.log' --line 'workers: {workers}' --line '") {
		t.Errorf("got %s", c)
	}
}

// TestSuggestSettingsAndCumulativeTime checks that limits are no epochs, and that the time since the start gives
// the times of the epochs, also if epochs are missing.
func TestSuggestSettingsAndCumulativeTime(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"2gpu.log": "Args(max_epoch=40, save_epoch=5)\nepoch 005 | loss 3.5 | total_time 50\nepoch 010 | loss 2.5 | total_time 100\nepoch 020 | loss 1.5 | total_time 205\n"})
	s, err := Suggest(dir)
	check(t, err)
	want := []string{"epoch {epoch} | loss {train_loss} | total_time {elapsed_seconds}"}
	if got := s.Rules().Lines; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	var got []string
	for _, e := range s.Preview[0].Epochs {
		got = append(got, fmt.Sprint(e.Epoch, e.Seconds))
	}
	if text := strings.Join(got, "; "); text != "5 10; 10 10; 20 10.5" {
		t.Errorf("got %s", text)
	}
}

// TestSuggestPlaces checks that a place whose meaning is not known is shown with two examples and read like *,
// and that nothing is read if nothing is named.
func TestSuggestPlaces(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"2gpu.log": "epoch 1 loss 3.5 gain 7.5\nepoch 2 loss 2.5 gain 8.5\n"})
	s, err := Suggest(dir)
	check(t, err)
	if text := s.String(); !strings.Contains(text, "--line 'epoch {epoch} loss {train_loss} gain {?1}'") || !strings.Contains(text, "7.5, 8.5") || len(s.Preview) != 1 || len(s.Preview[0].Curves) != 0 {
		t.Errorf("got %s", text)
	}
	write(t, dir, map[string]string{"2gpu.log": "loss 3.5 gain 7.5\nloss 2.5 gain 8.5\n"})
	if s, err = Suggest(dir); err != nil || len(s.Lines) != 1 || s.Lines[0].Rule != "loss {?1} gain {?2}" || len(s.Rules().Lines)+len(s.Commands()) != 0 {
		t.Errorf("got %s, error %v", s, err)
	}
}

// TestStepsOfAnotherProgram checks that lines that begin like torchtitan's, but with a total, are no lines of it with
// problems.
func TestStepsOfAnotherProgram(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"2gpu.log": "step:10/2000 train_loss:6.5 loss: 1\nstep:20/2000 train_loss:6.25 loss: 1\n"})
	reports, err := Options{}.Explain(t.Context(), dir)
	check(t, err)
	if text := reports.String(); strings.Contains(text, "expected") {
		t.Errorf("got %s", text)
	}
}

// TestSuggestUnnumberedValues checks that values are not proposed if the template of the lines that number their epochs
// would match other lines too.
func TestSuggestUnnumberedValues(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	for i := range 20 {
		fmt.Fprintf(&b, "** EPOCH %d **\n", i)
		if i%10 == 9 {
			fmt.Fprintf(&b, "** TEST EPOCH %d **\nval loss: 0.%d\n", i, 60-i)
		}
	}
	write(t, dir, map[string]string{"2gpu.log": b.String()})
	s, err := Suggest(dir)
	check(t, err)
	if len(s.Rules().Lines) > 0 {
		t.Errorf("got %s", s)
	}
}

// TestSuggestColumns checks that waiting times, latencies and thread counts are neither times nor epochs, and
// that the time of a run is.
func TestSuggestColumns(t *testing.T) {
	for text, want := range map[string]string{
		"rank,t_comm,t_wait\n0,18.5,80\n1,18,80.5\n":                     "[]",
		"procs,wall_with_io,latency_us\n1,92,0.5\n2,47,0.7\n":            "[]",
		"k,t,workers,time_s\n1,1,1,40\n1,2,2,22.5\n2,1,2,26\n2,2,4,16\n": "[wall_seconds=time_s]",
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"times.csv": text})
		s, err := Suggest(dir)
		check(t, err)
		if got := fmt.Sprint(s.Rules().Columns); got != want || len(s.Lines) > 0 {
			t.Errorf("%q: got %s and %+v, want %s", text, got, s.Lines, want)
		}
	}
}

// FuzzSuggest checks that any text gives templates that can be parsed, and that
// the preview with them is no error.
func FuzzSuggest(f *testing.F) {
	f.Add("Epoch 1: loss 0.5 time 2 s\nEpoch 2: loss 0.4 time 3 s\n")
	f.Add("{\"epoch\": 1, \"loss\": 0.5}\n{\"epoch\": 2, \"loss\": 0.4}\n")
	f.Add("/epoch 1/ loss 1*2 {x} 3m12s\n/epoch 2/ loss 1*3 {x} 59s\n")
	f.Add("epoch  1\tloss 1e-3|| 12:30\nepoch 10\tloss -.5|| 1:12:30\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 10_000 {
			return
		}
		path := filepath.Join(t.TempDir(), "a.log")
		check(t, os.WriteFile(path, []byte(text), 0o644))
		s, err := Suggest(path)
		check(t, err)
		for _, line := range s.Rules().Lines {
			if _, err := template.Parse(line); err != nil {
				t.Error(err)
			}
		}
		if len(s.Rules().Lines) > 0 {
			if _, err := (Options{Lines: s.Rules().Lines}).Read(t.Context(), path); err != nil {
				t.Errorf("the proposal fails: %v", err)
			}
		}
		_, _ = s.String(), s.HTML()
	})
}

// A text whose lines have commas is no table, even if its first line would be the header.
func TestSuggestTextWithCommas(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"4gpu.txt": "Epoch 1 loss 1.5, 30.2 s\nEpoch 2 loss 1.1, 29.8 s\nEpoch 3 loss 0.9, 30.1 s\n"})
	s, err := Suggest(dir)
	check(t, err)
	if len(s.Lines) != 1 || s.Lines[0].Rule != "Epoch {epoch} loss {train_loss}, {seconds} s" {
		t.Errorf("lines: %+v, unknown: %q", s.Lines, s.Unknown)
	}
}
