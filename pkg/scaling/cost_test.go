package scaling

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// TestCostPublished uses the published training times of the U-Net study. PyTorch native
// needs 38765.4 s on 1 GPU, which are 10.768 GPU-hours, and 3241.0 s on 14 GPUs, which are
// 0.900 h and 12.604 GPU-hours.
func TestCostPublished(t *testing.T) {
	dir := t.TempDir()
	writePublished(t, dir)
	s, err := Read(filepath.Join(dir, "pytorch"))
	check(t, err)
	c, err := s.Cost(2)
	check(t, err)
	for _, r := range c.Rows {
		switch {
		case r.Basis != basisTrain:
			t.Errorf("%+v", r)
		case r.Series == "native" && r.Workers == 1:
			near(t, "GPU-hours of 1", r.DeviceHours.Value, 38765.4/3600)
			near(t, "price of 1", r.Price.Value, 2*38765.4/3600)
		case r.Series == "native" && r.Workers == 14:
			near(t, "hours of 14", r.Hours.Value, 3241.0/3600)
			near(t, "GPU-hours of 14", r.DeviceHours.Value, 14*3241.0/3600)
		}
	}
	front := c.ParetoFront()
	if front[0].Workers != 14 || front[0].Series != "native" || front[len(front)-1].Workers != 1 || front[len(front)-1].Series != "native" {
		t.Errorf("front %+v", front)
	}
	for _, r := range front { // Horovod at 14 is slower and dearer than native at 14
		if r.Series == "horovod" {
			t.Errorf("on the front: %+v", r)
		}
	}
	wantLine(t, []string{c.Sentence}, "native at 14 workers is the fastest (0.900 h, 12.60 device-hours)", "native at 1 worker is the cheapest (10.77 h, 10.77 device-hours)")
	if table := c.Table(); table.Err != nil || table.Nrow() != 16 || !strings.Contains(c.String(), "pareto") {
		t.Error(c)
	}
	if _, err := s.Cost(-1); err == nil {
		t.Error("a negative rate")
	}

	// Series native takes 5535.3 s on 8 workers (12.30 device-hours) and 3594.8 s on 12 workers
	// (11.98 device-hours).
	for _, want := range []struct {
		budget  float64
		workers int
	}{{13, 14}, {12, 12}, {11, 1}, {10, 0}} {
		b, err := s.Budget(want.budget)
		check(t, err)
		for _, r := range b.Rows {
			if r.Series == "native" && !r.Predicted && r.Workers != want.workers {
				t.Errorf("%g device-hours: %+v, expected %d workers", want.budget, r, want.workers)
			}
			if r.Predicted && (r.DeviceHours > want.budget || r.Hours <= 0) {
				t.Errorf("%g device-hours: %+v", want.budget, r)
			}
		}
	}
	b, err := s.Budget(10)
	check(t, err)
	wantLine(t, []string{b.Sentence}, "native: 10.00 device-hours are not enough: the cheapest measured worker count, 1 worker, needs 10.77 for ")
	if _, err := s.Budget(0); err == nil {
		t.Error("no budget")
	}
}

// TestBudgetOfProject checks the hours of a project of several epochs and seeds. A run of 2 epochs takes
// 100 s at 1 worker and 60 s at 2 workers; 10 epochs with each of 3 seeds take 1500 s = 0.41667 h at 1
// worker and 900 s = 0.25 h at 2 workers, which are 0.5 device-hours.
func TestBudgetOfProject(t *testing.T) {
	job := func(workers int, seed int64, wall float64, seconds ...float64) runs.Run {
		r := weak(workers, seed, seconds...)
		r.WallSeconds = wall
		for i := range r.Epochs {
			r.Epochs[i].Samples = 100
		}
		return r
	}
	row := func(s *Study, budget float64, project ...Project) BudgetRow {
		t.Helper()
		b, err := s.Budget(budget, project...)
		check(t, err)
		if b.Table().Err != nil || len(b.Rows) > 2 || b.Rows[0].Predicted {
			t.Fatalf("%s", b)
		}
		return b.Rows[0]
	}
	s := study(t, []runs.Run{job(1, 1, 100, 40, 40), job(2, 1, 60, 22, 22)})
	r := row(s, 0.5, Project{Epochs: 10, Seeds: 3})
	if r.Workers != 2 || r.Epochs != 10 || r.Seeds != 3 {
		t.Errorf("%+v", r)
	}
	near(t, "hours", r.Hours, 0.25)
	near(t, "device-hours", r.DeviceHours, 0.5)
	wantLine(t, []string{r.Sentence}, "ddp: with 0.500 device-hours, use 2 workers (measured: 0.250 h, 0.500 device-hours) for 10 epochs with each of 3 seeds.")
	if r = row(s, 0.45, Project{Epochs: 10, Seeds: 3}); r.Workers != 1 {
		t.Errorf("%+v", r)
	}
	r = row(s, 0.4, Project{Epochs: 10, Seeds: 3})
	wantLine(t, []string{r.Sentence}, "0.400 device-hours are not enough: the cheapest measured worker count, 1 worker, needs 0.417 for 10 epochs with each of 3 seeds.")

	// What is not stated is as in the logs, and the sentence says so.
	r = row(s, 1)
	near(t, "hours of a run of the logs", r.Hours, 60.0/3600)
	wantLine(t, []string{r.Sentence}, "for 2 epochs with 1 seed, both assumed from the logs.")
	r = row(study(t, []runs.Run{job(1, 1, 100, 40, 40), job(1, 2, 100, 40, 40), job(2, 1, 60, 22, 22)}), 1, Project{Epochs: 4})
	near(t, "hours with two seeds", r.Hours, 2*2*60.0/3600)
	wantLine(t, []string{r.Sentence}, "for 4 epochs with each of 2 seeds (assumed from the logs).")
	wantLine(t, []string{row(s, 1, Project{Seeds: 5}).Sentence}, "for 2 epochs (assumed from the logs) with each of 5 seeds.")

	// Runs of different numbers of epochs are compared by the time of an epoch.
	r = row(study(t, []runs.Run{job(1, 1, 70, 40, 40), job(2, 1, 100, 22, 22, 22, 22)}), 10, Project{Epochs: 100, Seeds: 2})
	near(t, "hours by the time of an epoch", r.Hours, 2*100*22.0/3600)
	r = row(study(t, []runs.Run{job(1, 1, 70, 40, 40), job(2, 1, 100, 22, 22, 22, 22)}), 10)
	near(t, "hours of the most epochs", r.Hours, 4*22.0/3600)

	// The logs show only whole jobs.
	r = row(study(t, booster()), 20)
	wantLine(t, []string{r.Sentence}, "device-hours) for 1 run as in the logs.")
	near(t, "seeds alone", row(study(t, booster()), 100, Project{Seeds: 3}).DeviceHours, 3*128*288.313/3600)
	if _, err := study(t, booster()).Budget(100, Project{Epochs: 90}); err == nil || !strings.Contains(err.Error(), "not how many epochs it trained") {
		t.Errorf("error %v", err)
	}

	// A table has the time of one epoch and of the whole training, whose number of epochs is unknown.
	unet, err := Read("../../logs/published/unet2d-v100.csv")
	check(t, err)
	unet, err = unet.Only("PyTorch native")
	check(t, err)
	b, err := unet.Budget(20)
	check(t, err)
	near(t, "hours of the training", b.Rows[0].Hours, 3241.0/3600)
	b, err = unet.Budget(1000, Project{Epochs: 100, Seeds: 3})
	check(t, err)
	near(t, "hours by the epoch", b.Rows[0].Hours, 3*100*16.223/3600)
	if b.Basis != basisEpoch {
		t.Errorf("basis %q", b.Basis)
	}
	if _, err := s.Budget(1, Project{Epochs: -1}); err == nil {
		t.Error("-1 epochs")
	}
}

func TestCostBasis(t *testing.T) {
	// Runs with different numbers of epochs can only be compared per epoch.
	s := study(t, []runs.Run{weak(1, 1, 20, 10, 10), weak(2, 1, 20, 12)})
	c, err := s.Cost(0)
	check(t, err)
	if c.Rows[0].Basis != basisEpoch {
		t.Errorf("%+v", c.Rows[0])
	}
	near(t, "hours", c.Rows[1].Hours.Value, 12.0/3600)
	// The energy is converted from J to kWh.
	r := weak(1, 1, 20, 10)
	r.Info.EnergyJoules = 7.2e6
	c, err = study(t, []runs.Run{r}).Cost(0)
	check(t, err)
	near(t, "energy", c.Rows[0].EnergyKWh.Value, 2)
	// The basis is the time of the complete job if every run has it.
	c, err = study(t, booster()).Cost(0)
	check(t, err)
	if c.Rows[0].Basis != basisWall {
		t.Errorf("%+v", c.Rows[0])
	}
	near(t, "device-hours of 128", c.Rows[5].DeviceHours.Value, 128*288.313/3600) // published: 4m48.313s
}

// writeSteps writes a run folder of two epochs with two steps each. Only the second epoch
// counts. span returns the step of a rank.
func writeSteps(t *testing.T, place string, workers, seed int, info runs.Info, span func(rank, step int) runs.Step) {
	t.Helper()
	info.Study, info.Series, info.Workers, info.Seed = "cells", "ddp", workers, int64(seed)
	info.Status, info.Started = runs.StatusRunning, time.Unix(0, 0)
	w, err := runs.Create(place, info)
	check(t, err)
	for rank := range workers {
		sw, err := runs.OpenSteps(place, rank, runs.Worker{Rank: rank, WorldSize: workers, Host: "a"})
		check(t, err)
		for i := range 40 {
			x := span(rank, i)
			x.Step, x.Epoch, x.Samples = i+1, i/20+1, 4
			check(t, sw.AppendStep(x))
		}
		check(t, sw.Close())
	}
	nan := math.NaN()
	for i := range 2 {
		check(t, w.AppendEpoch(runs.Epoch{
			Epoch: i + 1, Seconds: 20, Samples: 80 * workers, SamplesPerSecond: nan, TrainLoss: 1, ValLoss: nan,
			IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan,
		}))
	}
	check(t, w.Finish(runs.StatusDone, nil))
}

// TestCollective generates step spans by the model with α = 20 µs and 10 GB/s, in which one
// rank waits for the last one, and checks that the fit recovers both parameters.
func TestCollective(t *testing.T) {
	const alpha, beta, parameters = 20e-6, 1e-10, 2_000_000
	dir := t.TempDir()
	for _, n := range []int{1, 2, 4, 8} {
		for seed := range 2 {
			writeSteps(t, filepath.Join(dir, "ddp-n"+english.FormatCount(n, "w")+english.FormatCount(seed, "s")), n, seed, runs.Info{Parameters: parameters}, func(rank, step int) runs.Step {
				f := float64(n)
				x := 2*(f-1)*alpha + 2*(f-1)/f*4*parameters*beta
				if rank == 0 { // came first, and waits
					x += 0.01
				}
				return runs.Step{AllReduce: x}
			})
		}
	}
	s, err := Read(dir)
	check(t, err)
	c, err := s.Collective("")
	check(t, err)
	if math.Abs(c.Alpha.Value-alpha) > 1e-9 || math.Abs(c.Beta.Value-beta) > 1e-14 || len(c.Rows) != 6 {
		t.Errorf("α %v, β %v of %d runs", c.Alpha, c.Beta, len(c.Rows))
	}
	wantLine(t, []string{c.Sentence}, "has a latency of 20.00 µs", "transfers 10.00")
	if table := c.Table(); table.Err != nil || table.Nrow() != 6 || len(c.Problems) > 0 {
		t.Error(c)
	}
	// The model does not include what synchronized batch norms exchange.
	writeSteps(t, filepath.Join(dir, "ddp-synchronised"), 2, 2, runs.Info{Parameters: parameters, Config: map[string]any{"sync_batchnorm": true}}, func(int, int) runs.Step {
		return runs.Step{AllReduce: 1}
	})
	s, err = Read(dir)
	check(t, err)
	c, err = s.Collective("")
	check(t, err)
	if len(c.Rows) != 6 || len(c.Problems) != 1 || !strings.Contains(c.Problems[0].Reason, "its batch norms are synchronized") {
		t.Errorf("%d rows, problems %v", len(c.Rows), c.Problems)
	}
	s, err = s.WithRule(Rule{Epochs: "9"}) // no step counts
	check(t, err)
	if _, err := s.Collective("ddp"); err == nil || !strings.Contains(err.Error(), "want at least 5 runs at 3 worker counts") {
		t.Errorf("error %v", err)
	}
}

// TestBudgetIsPredictedToTwiceTheMost checks that with an unlimited budget the law predicts
// up to twice the largest measured worker count, and not beyond.
func TestBudgetIsPredictedToTwiceTheMost(t *testing.T) {
	var all []runs.Run
	for _, n := range []int{1, 2, 4, 6, 8} {
		f := float64(n)
		r := weak(n, 1, 9, 8*(1+0.01*(f-1))/f, 8*(1+0.01*(f-1))/f)
		for i := range r.Epochs {
			r.Epochs[i].Samples = 800
		}
		all = append(all, r)
	}
	b, err := study(t, all).Budget(1e6)
	check(t, err)
	if len(b.Rows) != 2 || b.Rows[0].Workers != 8 || b.Rows[0].Predicted || b.Rows[1].Workers != 16 || !b.Rows[1].Predicted {
		t.Errorf("%s", b)
	}
	// If the samples of an epoch grow with the workers, more workers do more work, and the law
	// cannot predict the cost of the same work at another worker count.
	s := lawStudy(t, func(n float64) float64 { return n / (1 + 0.01*(n-1)) }, 0, 1, 1, 2, 4, 6, 8)
	if b, err = s.Budget(1e6); err != nil || len(b.Rows) != 1 {
		t.Errorf("%v: %s", err, b)
	}
	c, err := s.Cost(0)
	check(t, err)
	wantLine(t, strings.Split(c.String(), "\n"), "series ddp: the samples per epoch grow with the workers, so its rows are not for the same work")
	if text := b.String(); !strings.Contains(text, "are not for the same work") {
		t.Error(text)
	}
}

// TestParetoOfEqualTimes checks that of two equally fast rows only the cheaper one is in the
// Pareto front.
func TestParetoOfEqualTimes(t *testing.T) {
	one, two := weak(1, 1, 10, 10), weak(2, 1, 10, 10)
	two.Epochs[0].Samples, two.Epochs[1].Samples = 100, 100
	c, err := study(t, []runs.Run{one, two}).Cost(0)
	check(t, err)
	if !c.Rows[0].Pareto || c.Rows[1].Pareto || len(c.ParetoFront()) != 1 {
		t.Errorf("%s", c)
	}
}
