package scaling

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestUnequalEpochs checks that runs with different numbers of epochs are not compared by the times of their jobs.
func TestUnequalEpochs(t *testing.T) {
	one, two, first := weak(1, 1, 20), weak(2, 1, 21, 22), weak(2, 1, 21)
	one.WallSeconds, two.WallSeconds, first.WallSeconds = 25, 50, 27
	job := func(workers, epochs int, wall float64) runs.Run {
		r := weak(workers, 1)
		for i := range epochs {
			r.Epochs = append(r.Epochs, runs.Epoch{Epoch: i + 1, Seconds: math.NaN(), SamplesPerSecond: math.NaN(), TrainLoss: 1, ValLoss: math.NaN(), IoU: math.NaN(), Dice: math.NaN()})
		}
		r.WallSeconds = wall
		return r
	}
	for name, c := range map[string]struct {
		runs []runs.Run
		said string // in the notes and problems
	}{
		"epochs with times":    {[]runs.Run{one, two}, "no run counts at 1 worker"},
		"only first epochs":    {[]runs.Run{one, first}, "0 of 1 epochs count by the rule"},
		"epochs without times": {[]runs.Run{job(1, 1, 25), job(2, 2, 50)}, "these trained 1 and 2 epochs, so their times are not compared"},
	} {
		s := study(t, c.runs)
		for _, p := range s.Points {
			if p.Speedup.Value > 0 && p.Speedup.Value != 1 {
				t.Errorf("%s: speed-up %v at %d workers", name, p.Speedup, p.Workers)
			}
		}
		said := strings.Join(s.Notes, "\n")
		for _, p := range s.Problems {
			said += "\n" + p.Reason
		}
		if !strings.Contains(said, c.said) || strings.Contains(said, "only the time of the whole job, so the speed-up") || strings.Contains(said, "assumes that every job") || name != "epochs without times" && strings.Contains(said, "without times") {
			t.Errorf("%s: %s", name, said)
		}
	}
	// The cost of such jobs is computed per epoch; if their epochs are unknown, it is an error.
	longer := study(t, []runs.Run{job(1, 1, 25), job(2, 2, 40)})
	c, err := longer.Cost(0)
	check(t, err)
	near(t, "hours of an epoch of 2 workers", c.Rows[1].Hours.Value, 20.0/3600)
	if !strings.Contains(c.Sentence, "basis: whole job, per epoch") || strings.Contains(strings.Join(longer.Notes, "\n"), "without times") {
		t.Errorf("%s %q", c.Sentence, longer.Notes)
	}
	if _, err := study(t, []runs.Run{job(1, 0, 25), job(2, 2, 40)}).Cost(0); err == nil || !strings.Contains(err.Error(), "different numbers of epochs") {
		t.Errorf("the cost of a job with unknown epochs: %v", err)
	}
	// Series and studies whose jobs trained different numbers of epochs are not compared either.
	short, long := study(t, []runs.Run{job(1, 1, 25)}), study(t, []runs.Run{job(1, 2, 40)})
	_, compared := CompareStudies(short, long)
	_, gated := Gate(short, long, 0.05)
	for _, err := range []error{compared, gated} {
		if err == nil || !strings.Contains(err.Error(), "and the jobs trained 1 and 2 epochs") {
			t.Errorf("compared: %v", err)
		}
	}
	equal := study(t, []runs.Run{job(1, 2, 50), job(2, 2, 25)})
	near(t, "speed-up of jobs with equally many epochs", equal.Points[1].Speedup.Value, 2)
	if strings.Contains(strings.Join(equal.Notes, "\n"), "assumes that every job") {
		t.Errorf("the epochs are known: %q", equal.Notes)
	}
	unknown := study(t, []runs.Run{job(1, 0, 50), job(2, 0, 25)})
	wantLine(t, unknown.Notes, "this assumes that every job trains the same number of epochs")
}

// TestPaddingIsNoWork checks that samples that fill a batch or a shard do not count in the throughput: 9 images in
// batches of 4.
func TestPaddingIsNoWork(t *testing.T) {
	padded := func(workers, samples int, seconds float64) runs.Run {
		r := weak(workers, 1, 1, seconds)
		for i := range r.Epochs {
			r.Epochs[i].Samples, r.Epochs[i].PaddingSamples = samples, samples-9
			r.Epochs[i].SamplesPerSecond = float64(samples) / r.Epochs[i].Seconds
		}
		return r
	}
	s := study(t, []runs.Run{padded(1, 12, 0.63), padded(2, 16, 0.59)})
	near(t, "throughput of 1", s.Points[0].Throughput.Value, 9/0.63)
	near(t, "throughput of 2", s.Points[1].Throughput.Value, 9/0.59)
	near(t, "speed-up", s.Points[1].Speedup.Value, 0.63/0.59)
	wantLine(t, s.Notes, "series ddp", "do not count in the throughput: 25 % at 1 worker and 43.8 % at 2 workers")
	rates := s.Epochs().Col("samples_per_second").Float()
	near(t, "throughput of an epoch", rates[len(rates)-1], 9/0.59)
}

// A study says that runs were resumed, that parts of files repeat others, and that epochs are missing.
func TestResumptionsAreNoted(t *testing.T) {
	dir := t.TempDir()
	line := func(epoch int) string {
		return fmt.Sprintf("{\"epoch\": %d, \"train_loss\": %g, \"epoch_time\": %d}\n", epoch, 1/float64(epoch), 10+epoch)
	}
	first, later := line(1)+line(2)+line(3), line(2)+"{\"epoch\": 3, \"train_loss\": 0.5, \"epoch_time\": 20}\n"+line(4)
	for name, text := range map[string]string{
		"a_1gpu.jsonl": first + later,
		"a_2gpu.jsonl": first + first,
		"a_4gpu.jsonl": first + line(7) + line(8),
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	s, err := Read(dir)
	check(t, err)
	wantLine(t, s.Notes, "resumptions of runs: 1; where their numbers repeat, the later values count")
	wantLine(t, s.Notes, "parts of files that repeat earlier values: 1; they count once")
	wantLine(t, s.Notes, "runs that lack epochs: 1, such as ", "a_4gpu.jsonl between 3 and 7")
}
