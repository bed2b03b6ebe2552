package train

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/runs"
)

// TestOutLog checks the lines of out.log, their order and their digits, on which readers of the
// SC21 tutorial's logs rely.
func TestOutLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	cfg := tiny()
	cfg.Epochs = 1
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs = 2
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: true}); err != nil {
		t.Fatal(err)
	}
	run, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "out.log"))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	line := regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - root - INFO - (.*)$`)
	for l := range strings.Lines(string(text)) {
		m := line.FindStringSubmatch(strings.TrimSuffix(l, "\n"))
		if m == nil {
			t.Fatalf("the line %q is not in the form of Python's logging", l)
		}
		said = append(said, m[1])
	}
	number := `[0-9]+(\.[0-9]+)?(e-[0-9]+)?`
	epoch := func(n string) []string {
		return []string{
			`Time taken for epoch ` + n + ` is ` + number + ` sec, avg ` + number + ` samples/sec`,
			`  Avg train loss=[0-9]+\.[0-9]{6}`,
			`  Avg val loss=[0-9]+\.[0-9]{6}`,
			`  Total validation time: ` + number + ` sec`,
			`  IoU=[0-9.]+, Dice=[0-9.]+, learning rate=` + number,
			`  effective ` + number + ` GFLOP/s a worker, ` + number + ` % of the measured peak of ` + number + ` GFLOP/s`,
		}
	}
	begin := []string{`Configuration name: tiny`, `global_batch_size 4`} // 2 workers of 2
	want := append(append([]string{}, begin...), `tiny: \d+ parameters, 2 workers × batch 2, .*`)
	want = append(append(want, epoch("1")...), `DONE ---- rank 0`)
	want = append(append(append(want, begin...), epoch("2")...), `DONE ---- rank 0`)
	if len(said) != len(want) {
		t.Fatalf("%d lines, expected %d:\n%s", len(said), len(want), text)
	}
	for i := range want {
		if !regexp.MustCompile("^" + want[i] + "$").MatchString(said[i]) {
			t.Errorf("line %d is %q, expected %q", i+1, said[i], want[i])
		}
	}

	times := regexp.MustCompile(`epoch (\d+) is (\S+) sec, avg (\S+) samples/sec`).FindAllStringSubmatch(string(text), -1)
	for i, m := range times {
		seconds, rate := parse(t, m[2]), parse(t, m[3])
		// 17 samples for batches of 2 on 2 workers: 5 steps of 4.
		if seconds*rate != 20 {
			t.Errorf("epoch %s: %v s × %v samples/s = %v, expected 20", m[1], seconds, rate, seconds*rate)
		}
		if e := run.Epochs[i]; e.Seconds != seconds || e.SamplesPerSecond != rate {
			t.Errorf("epoch %s: epochs.csv says %v s and %v samples/s, out.log %v and %v", m[1], e.Seconds, e.SamplesPerSecond, seconds, rate)
		}
	}
}

func parse(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestEventFiles: each start of a run writes one event file with the tags of an epoch. Package
// runs tests the content of the records.
func TestEventFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	cfg := tiny()
	for cfg.Epochs = 1; cfg.Epochs <= 2; cfg.Epochs++ {
		if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: cfg.Epochs > 1}); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(files) != 2 { // rank 0 alone writes
		t.Fatalf("event files %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for tag, times := range map[string]int{
			"Loss/train": 1, "Loss/valid": 1, "Learning Rate": 1, "Avg iters per sec": 1, "IoU": 1, "Dice": 1,
			"Loss/step": 5, "Seconds/step": 5, "Samples per sec/step": 5, // 5 steps an epoch
			"Effective FLOP per sec/step": 5, "Part of peak FLOP per sec/step": 5,
		} {
			if got := bytes.Count(text, []byte(tag)); got != times {
				t.Errorf("%s: %d × %s, expected %d", filepath.Base(file), got, tag, times)
			}
		}
	}
}

// The product of the two numbers in the log is the number of samples, and the numbers equal
// the measured ones up to rounding.
func TestExactRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.IntRange(1, 1<<40).Draw(t, "samples")
		seconds := rapid.Float64Range(1e-9, 1e9).Draw(t, "seconds")
		s, rate := exactThroughput(samples, seconds)
		if s*rate != float64(samples) {
			t.Errorf("%v × %v = %v", s, rate, s*rate)
		}
		// In nearly all cases changing the last bit suffices; see below.
		if diff := (s - seconds) / seconds; diff > 4e-9 || diff < -4e-9 {
			t.Errorf("%v s became %v", seconds, s)
		}
	})
	rng, far := rand.New(rand.NewPCG(1, 2)), 0
	for range 100_000 {
		samples, seconds := 1+rng.IntN(1<<20), 1e5*rng.Float64()
		s, rate := exactThroughput(samples, seconds)
		if s*rate != float64(samples) {
			t.Errorf("%v × %v = %v", s, rate, s*rate)
		}
		if math.Abs(s-seconds) > 1e-14*seconds {
			far++
		}
	}
	if far > 50 {
		t.Errorf("of 100000 seconds %d became others by more than 1e-14 of them, expected a few", far)
	}
	if s, rate := exactThroughput(29, 176385.25); s*rate != 29 || math.Abs(s-176385.25) > 1e-6 {
		t.Errorf("29 samples in 176385.25 s: %v × %v = %v", s, rate, s*rate)
	}
	if s, rate := exactThroughput(4, 0); s != 0 || rate < 1e308 { // a clock without a tick
		t.Errorf("no time gives %v s, %v samples/s", s, rate)
	}
}
