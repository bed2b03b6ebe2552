package scaling

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// readTable reads a results table as a study.
func readTable(t *testing.T, text string) *Study {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.csv")
	check(t, os.WriteFile(path, []byte(text), 0o644))
	s, err := Read(path)
	check(t, err)
	return s
}

// TestThroughputOfWholeJobs: 1000 samples in each of 90 epochs are 90,000 samples, which take 600 s on
// 1 worker (150 samples/s) and 200 s on 4 (450 samples/s).
func TestThroughputOfWholeJobs(t *testing.T) {
	const whole = "the throughput is the samples of all epochs divided by the time of the whole job, which includes start-up and validation"
	s := readTable(t, "series,workers,wall_seconds,samples,epochs\nR,1,600,1000,90\nR,4,200,1000,90\n")
	near(t, "throughput at 1", s.Points[0].Throughput.Value, 150)
	near(t, "throughput at 4", s.Points[1].Throughput.Value, 450)
	near(t, "speed-up", s.Points[1].Speedup.Value, 3)
	if s.Points[1].SamplesPerEpoch != 1000 || s.Points[1].ThroughputUnit != "samples/s" || len(s.Problems) > 0 {
		t.Errorf("%+v, problems %v", s.Points[1], s.Problems)
	}
	wantLine(t, s.Notes, "series R", whole)
	if said := strings.Join(s.Notes, "\n"); strings.Contains(said, "assumes that every job") || strings.Contains(said, "no sample counts") {
		t.Error(said)
	}
	x, err := s.Explain("throughput", 4)
	check(t, err)
	for _, want := range []string{"wall_seconds = 200 s", "samples = 1000 samples", "epochs = 90"} {
		if !strings.Contains(x.String(), want) {
			t.Errorf("no %q in:\n%s", want, x)
		}
	}

	// Jobs of different numbers of epochs have comparable throughputs.
	s = readTable(t, "series,workers,wall_seconds,samples,epochs\nR,1,600,1000,90\nR,4,100,1000,45\n")
	near(t, "speed-up with other epochs", s.Points[1].Speedup.Value, 3)
	if said := strings.Join(s.Notes, "\n"); strings.Contains(said, "not compared") {
		t.Error(said)
	}

	// The time of the training contains no start-up, and gives the time of an epoch too.
	s = readTable(t, "series,workers,training_seconds,samples,epochs\nR,1,600,1000,90\nR,4,200,1000,90\n")
	near(t, "throughput of training", s.Points[1].Throughput.Value, 450)
	near(t, "seconds per epoch", s.Points[1].EpochSeconds.Value, 200.0/90)
	if said := strings.Join(s.Notes, "\n"); strings.Contains(said, "start-up") || len(s.Problems) > 0 {
		t.Errorf("%s, problems %v", said, s.Problems)
	}

	// A logged throughput counts first.
	logged := weak(2, 1)
	logged.WallSeconds, logged.Info.SamplesPerEpoch, logged.Info.Config = 100, 1000, map[string]any{"epochs": 3.0, "training_seconds": 90.0}
	logged.Curves = []runs.Curve{{Name: "samples_per_second", Steps: []int64{1, 2}, Values: []float64{70, 70}}}
	near(t, "logged throughput", study(t, []runs.Run{logged}).Points[0].Throughput.Value, 70)

	// If the samples or the epochs are unknown, nothing is known of the throughput.
	for _, text := range []string{
		"series,workers,wall_seconds,epochs\nR,1,600,90\nR,4,200,90\n",
		"series,workers,wall_seconds,samples\nR,1,600,1000\nR,4,200,1000\n",
		"series,workers,wall_seconds,samples,accuracy\nR,1,600,1000,0.7\nR,4,200,1000,0.7\n",
	} {
		s = readTable(t, text)
		if !math.IsNaN(s.Points[1].Throughput.Value) || s.Points[1].Speedup.Value != 3 {
			t.Errorf("%s: %+v", text, s.Points[1])
		}
		assumes := strings.Contains(strings.Join(s.Notes, "\n"), "assumes that every job trains the same number of epochs")
		if known := strings.Contains(text, "epochs"); assumes == known {
			t.Errorf("%s: %q", text, s.Notes)
		}
	}
	s, err = readTable(t, "series,workers,wall_seconds,epochs\nR,1,600,90\nR,4,200,90\n").WithRule(Rule{SamplesPerEpoch: 1000})
	check(t, err)
	near(t, "throughput with --samples-per-epoch", s.Points[1].Throughput.Value, 450)
	wantLine(t, s.Notes, whole)

	// If some jobs lack the samples, all are compared by their times.
	mixed := booster()[:3]
	for i := range mixed {
		mixed[i].Info.Config = map[string]any{"epochs": 90.0}
	}
	mixed[1].Info.SamplesPerEpoch = 1000
	s = study(t, mixed)
	near(t, "speed-up of the last", s.Points[2].Speedup.Value, mixed[0].WallSeconds/mixed[2].WallSeconds)
	mixed[1].Info.Status = runs.StatusKilled // so the planned epochs are not those that it trained
	if s = study(t, mixed); !math.IsNaN(s.Points[1].Throughput.Value) {
		t.Errorf("throughput of a killed job: %v", s.Points[1].Throughput)
	}
}

// TestTrainingTimeWithoutEpochs: a row with the time of its training is not an epoch, and rows that lack the same have one
// note.
func TestTrainingTimeWithoutEpochs(t *testing.T) {
	for _, text := range []string{"gpus,train_time\n1,400\n4,100\n", "gpus,train_time,loss\n1,400,0.5\n4,100,0.5\n"} {
		s := readTable(t, text)
		near(t, "speed-up", s.Points[1].Speedup.Value, 4)
		if p := s.Points[1]; !math.IsNaN(p.EpochSeconds.Value) || p.WallSeconds.Value != 100 || len(s.Problems) > 0 {
			t.Errorf("%s: %+v, problems %v", text, p, s.Problems)
		}
		if n := strings.Count(strings.Join(s.Notes, "\n"), "no number of epochs"); n != 1 {
			t.Errorf("got %d notes, want 1: %q", n, s.Notes)
		}
	}
	x, err := readTable(t, "gpus,images/s,train_time\n1,80,400\n4,300,100\n").Explain("throughput", 4)
	check(t, err)
	if strings.Contains(x.String(), "training_seconds") {
		t.Error(x)
	}
	s := readTable(t, "gpus,train_time,epochs\n1,400,4\n4,100,4\n")
	near(t, "seconds per epoch", s.Points[1].EpochSeconds.Value, 25)
	if n := strings.Count(strings.Join(s.Notes, "\n"), "only the total training time"); n != 1 {
		t.Errorf("got %d notes, want 1: %q", n, s.Notes)
	}
}
