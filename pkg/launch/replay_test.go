package launch

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/figure"
	"lockstep/pkg/launch/internal/live"
	"lockstep/pkg/launch/internal/replay"
	"lockstep/pkg/report"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// clock is the clock of a replay in a test: each epoch ends when the test says so.
type clock struct {
	ends   chan struct{} // one value per epoch
	waited chan time.Duration
}

func newClock() *clock {
	return &clock{ends: make(chan struct{}), waited: make(chan time.Duration, 100)}
}

func (c *clock) wait(ctx context.Context, d time.Duration) error {
	c.waited <- d
	select {
	case <-c.ends:
		return nil
	case <-ctx.Done():
		return context.Canceled
	}
}

// startReplay starts a replay whose temporary folder is removed after the test.
func startReplay(ctx context.Context, t *testing.T, name string, speed float64, wait func(context.Context, time.Duration) error) *Job {
	t.Helper()
	j, err := replayWithClock(ctx, name, speed, wait)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = j.Cancel()
		_ = waitFor(t, j) // a canceled replay ends with an error
		if err := os.RemoveAll(filepath.Dir(j.Dir())); err != nil {
			t.Error(err)
		}
	})
	return j
}

// atOnce is a clock on which no time passes.
func atOnce(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// TestReplayGrows: the table of Watch and the run folder grow epoch by epoch. The table of resnet-cifar10-power has 49,
// 45, 45, 45 and 45 s for 1 worker, then 26 s for the first epoch of 2.
func TestReplayGrows(t *testing.T) {
	t.Parallel()
	c := newClock()
	j := startReplay(t.Context(), t, "resnet-cifar10-power", 30, c.wait)
	w := &jobWatcher{job: j, view: live.NewView(&bytes.Buffer{})}
	table := func() string { return w.buildTable(j.backend.status()).String() }
	for epoch, seconds := range []float64{49, 45, 45, 45, 45} {
		if d := <-c.waited; math.Abs(d.Seconds()-seconds/30) > 1e-6 {
			t.Errorf("epoch %d takes %v, want %g s / 30", epoch+1, d, seconds)
		}
		var s RunStatus
		soon(t, "the epoch", func() bool { s = j.Status()[0]; return s.Epoch == epoch })
		if s.State != StateRunning || s.Epochs != 5 || s.Ends.IsZero() || s.Seconds > 229 {
			t.Errorf("after %d epochs the status is %+v", epoch, s)
		}
		if epoch > 0 && (s.Last.Seconds != []float64{49, 45, 45, 45}[epoch-1] || !strings.HasPrefix(s.Line, "Time taken for epoch ")) {
			t.Errorf("the last of %d epochs is %+v, with the line %q", epoch, s.Last, s.Line)
		}
		if run := read(t, s.Dir); run.Info.Status != StateRunning || len(run.Epochs) != epoch {
			t.Errorf("run.json has the status %s and %d epochs, want %d", run.Info.Status, len(run.Epochs), epoch)
		}
		lines := strings.Split(table(), "\n")
		if !strings.HasPrefix(lines[0], "replay of resnet-cifar10-power, 30 times as fast: published by the ") {
			t.Errorf("the heading is %q", lines[0])
		}
		if got := strings.Join(strings.Fields(lines[2])[:6], " "); got != "ResNet50V2-n1-s0 1 running "+string(rune('0'+epoch))+" of 5" {
			t.Errorf("the row after %d epochs is %q", epoch, got)
		}
		c.ends <- struct{}{}
	}
	if d := <-c.waited; math.Abs(d.Seconds()-26.0/30) > 1e-6 {
		t.Errorf("the first epoch with 2 workers takes %v, want 26 s / 30", d)
	}
	s := j.Status()
	if s[0].State != StateDone || s[1].State != StateRunning || s[2].State != StateWaiting || s[0].Err != nil || j.Ended() || j.Attached() {
		t.Errorf("status after the first run: %+v", s)
	}
	tail, err := j.Tail(s[0].Name, 2)
	if err != nil || !strings.Contains(tail, "Time taken for epoch 5 is 45 sec, avg 1111.111111111111 samples/sec\n      accuracy=0.507000") {
		t.Errorf("the output of rank 0 ends with %q, error %v", tail, err)
	}
}

// TestReplayedValues: a study of the replayed folders has the points of its source.
func TestReplayedValues(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"resnet-cifar10-power": "published/resnet-cifar10-power.csv", "published/sc21-one-gpu.csv": "published/sc21-one-gpu.csv",
		"unet2d-cells": "recorded/unet2d-cells", "logs/recorded/resnet50v2-cifar10-laptop": "recorded/resnet50v2-cifar10-laptop",
	} {
		j := startReplay(t.Context(), t, name, 1e300, atOnce)
		if err := waitFor(t, j); err != nil {
			t.Fatal(err)
		}
		for _, s := range j.Status() {
			seconds := 0.0
			for _, e := range read(t, s.Dir).Epochs {
				seconds += replay.EpochSeconds(e)
			}
			if s.State != StateDone || s.Seconds != seconds {
				t.Errorf("%s: run %s is %s after %g s, want %g s", name, s.Name, s.State, s.Seconds, seconds)
			}
		}
		points := func(path string) (*scaling.Study, string) {
			study, err := scaling.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := study.Write(&b, scaling.FormatCSV); err != nil {
				t.Fatal(err)
			}
			return study, b.String()
		}
		got, gotPoints := points(j.Dir())
		want, wantPoints := points(filepath.Join("..", "..", "logs", source))
		if gotPoints != wantPoints || len(got.Problems) > 0 {
			t.Errorf("%s: got\n%s\nwant\n%s\nproblems %v", name, gotPoints, wantPoints, got.Problems)
		}
		places := []string{"run"}
		gotEpochs, wantEpochs := got.Epochs().Drop(places).Records(), want.Epochs().Drop(places).Records()
		if !reflect.DeepEqual(gotEpochs, wantEpochs) || !slices.Equal(got.Sources(), want.Sources()) {
			t.Errorf("%s: got the epochs\n%q\nwant\n%q\nsources %q, want %q", name, gotEpochs, wantEpochs, got.Sources(), want.Sources())
		}
	}
}

// TestReplayOrder: the runs are in the order of a sweep, and an epoch takes the time of its validation too.
func TestReplayOrder(t *testing.T) {
	t.Parallel()
	c := newClock()
	j := startReplay(t.Context(), t, "unet2d-cells", 0.5, c.wait)
	first := read(t, filepath.Join("..", "..", "logs", "recorded", "unet2d-cells", "ddp-n1-s1")).Epochs[0]
	if d, want := <-c.waited, 2*(first.Seconds+first.ValSeconds); math.Abs(d.Seconds()-want) > 1e-6 {
		t.Errorf("the first epoch takes %v, want %g s", d, want)
	}
	var names []string
	for _, s := range j.Status() {
		names = append(names, s.Name)
	}
	if want := []string{"ddp-n1-s1", "ddp-n2-s1", "ddp-n1-s2", "ddp-n2-s2", "ddp-n1-s3", "ddp-n2-s3"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// TestReplayShowsItsSource: the table, the title and the caption of a figure, the report and Watch state that the numbers
// were recorded.
func TestReplayShowsItsSource(t *testing.T) {
	t.Parallel()
	const source = "ecorded on 2026-11-29, 2 cores of AMD EPYC"
	j := startReplay(t.Context(), t, "unet2d-cells", 1e300, atOnce)
	var shown bytes.Buffer
	if err := j.WatchOn(t.Context(), &shown); err != nil {
		t.Fatal(err)
	}
	study, err := scaling.Read(j.Dir())
	if err != nil {
		t.Fatal(err)
	}
	f, err := figure.Speedup(study)
	if err != nil {
		t.Fatal(err)
	}
	page, err := report.New(study, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, text, want string }{
		{"table", study.String(), "note: r" + source},
		{"caption", f.Caption(), "R" + source + "."},
		{"title", f.Plot().Title.Text, "Speed-up (unet2d-cells, recorded)"},
		{"report", page.Page(), `<p class="subtitle">6 runs at 1, 2 workers; r` + source},
		{"Watch", shown.String(), "replay of unet2d-cells, 1e+300 times as fast: r" + source},
		{"curve", shown.String(), "Speed-up (recorded)"},
	} {
		if n := strings.Count(c.text, c.want); n != 1 {
			t.Errorf("the %s has %q %d times:\n%.2000s", c.what, c.want, n, c.text)
		}
	}
}

// TestReplayEnds: Cancel and the end of the context end a replay.
func TestReplayEnds(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Cancel", "context"} {
		ctx, cancel := context.WithCancel(t.Context())
		j := startReplay(ctx, t, "unet2d-cells", 1e-300, sleep) // so slow that no epoch ends
		if how == "context" {
			cancel()
		} else if err := j.Cancel(); err != nil {
			t.Error(err)
		}
		if err := waitFor(t, j); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got the error %v", how, err)
		}
		cancel()
		s := j.Status()
		if s[0].State != StateCanceled || s[1].State != StateNotStarted || !j.Ended() {
			t.Errorf("%s: got the states %s and %s", how, s[0].State, s[1].State)
		}
		if run := read(t, s[0].Dir); run.Info.Status != runs.StatusCanceled || run.Info.WallSeconds != 0 || len(run.Epochs) > 0 {
			t.Errorf("%s: run.json has the status %s, %g s and %d epochs", how, run.Info.Status, run.Info.WallSeconds, len(run.Epochs))
		}
	}
}

// TestNoReplay: what cannot be replayed is an error that says why.
func TestNoReplay(t *testing.T) {
	t.Parallel()
	const consecutive = "; a replay needs at least two consecutive epochs"
	for _, c := range []struct {
		name  string
		speed float64
		want  string
	}{
		{"unet2d-v100", 1, "replay unet2d-v100: published/unet2d-v100.csv has the seconds of one epoch per run" + consecutive},
		{"published/sc21-base.csv", 1, "published/sc21-base.csv has no seconds of epochs" + consecutive},
		{"sc21-ddp", 1, "published/sc21-ddp.csv has no seconds of epochs" + consecutive},
		{"sc21-trials", 1, "published/sc21-trials.csv has no seconds of epochs" + consecutive},
		{"sc21-weak-scaling", 1, "published/sc21-weak-scaling.csv has no seconds of epochs" + consecutive},
		{"resnet50-booster", 1, "published/resnet50-booster.csv has no seconds of epochs" + consecutive},
		{
			"unet2d-cell", 1,
			`replay unet2d-cell: unknown name "unet2d-cell" (did you mean unet2d-cells?): use resnet-cifar10-power, sc21-one-gpu, resnet50v2-cifar10-laptop or unet2d-cells`,
		},
		{"", 1, "unknown name \"\": use resnet-cifar10-power"},
		{"../recorded/unet2d-cells", 1, "unknown name"},
		{"unet2d-cells", 0, "replay unet2d-cells: got the speed 0: use a finite number above 0"},
		{"unet2d-cells", -1, "got the speed -1"},
		{"unet2d-cells", math.NaN(), "got the speed NaN"},
		{"unet2d-cells", math.Inf(1), "got the speed +Inf"},
	} {
		_, err := Replay(t.Context(), c.name, c.speed)
		wantError(t, err, c.want)
	}
}
