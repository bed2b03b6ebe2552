package tune

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"gonum.org/v1/gonum/stat"

	"lockstep/pkg/collective"
	"lockstep/pkg/train/traintest"
)

// TestRunTrials checks on two ranks that the lines are formatted like benchy's, that rates and
// seconds agree, and that only the requested trials count.
func TestRunTrials(t *testing.T) {
	cfg := traintest.Config()
	var lines []string
	results := make([]*Trials, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(2) {
		wg.Go(func() {
			o := TrialOptions{Batches: 7, Trials: 2} // 5 batches are an epoch
			o.Line = func(l string) { lines = append(lines, l) }
			var err error
			if results[rank], err = RunTrials(ctx, cfg, g, o); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(lines, "\n")
	if len(lines) != 12 { // of each kind one warm-up, two trials and the summary
		t.Errorf("%d lines:\n%s", len(lines), text)
	}
	for _, want := range []string{"BENCHY::IO_WARMUP_0::Trial Throughput: ", "BENCHY::IO_1::Trial Throughput: ", "BENCHY::SYNTHETIC_0::", "BENCHY::SUMMARY::FULL average trial throughput: ", " +/- "} {
		if !strings.Contains(text, want) {
			t.Errorf("no line has %q:\n%s", want, text)
		}
	}
	r := results[0]
	for i, name := range []string{"IO", "SYNTHETIC", "FULL"} {
		tr, s := r.Results[i], r.Seconds[name]
		if tr.Name != name || len(s) != 2 || len(tr.Rates) != 2 {
			t.Fatalf("%s: %+v, %v", name, tr, s)
		}
		for k := range s {
			if want := 2 * 2 * 7 / s[k]; math.Abs(tr.Rates[k]-want) > 1e-9*want { // batch · ranks · batches
				t.Errorf("%s: rate %g in %g s, want %g", name, tr.Rates[k], s[k], want)
			}
		}
		// The batches take the time of the trial but for the synchronization at its end.
		for k, rates := range r.Rates[name] {
			sum := 0.0
			for _, rate := range rates {
				sum += 2 * 2 / rate // batch · ranks / rate
			}
			if len(rates) != 7 || !(sum > 0) || sum > s[k] {
				t.Errorf("%s: rates of the batches %v, which take %g of %g s", name, rates, sum, s[k])
			}
		}
		// The population standard deviation of two values is half their distance.
		if want := math.Abs(tr.Rates[0]-tr.Rates[1]) / 2; math.Abs(tr.Spread-want) > 1e-9*tr.Rate {
			t.Errorf("%s: spread %g, want %g", name, tr.Spread, want)
		}
	}
	b, err := json.Marshal(r.JSON())
	var doc struct {
		Ranks int `json:"nranks"`
		Full  struct {
			Rates      [][]float64 `json:"rates"`
			MeanRates  []float64   `json:"avg_iter_throughput"`
			Throughput []float64   `json:"trial_throughput"`
			Time       []float64   `json:"trial_time"`
		} `json:"FULL"`
	}
	if err = errors.Join(err, json.Unmarshal(b, &doc)); err != nil {
		t.Fatal(err)
	}
	if f := doc.Full; doc.Ranks != 2 || len(f.Rates) != 2 || len(f.Rates[1]) != 7 || math.Abs(f.MeanRates[1]-stat.Mean(f.Rates[1], nil)) > 1e-9*f.MeanRates[1] ||
		!slices.Equal(f.Throughput, r.Results[2].Rates) || !slices.Equal(f.Time, r.Seconds["FULL"]) {
		t.Errorf("JSON %s", b)
	}
	if _, err := RunTrials(t.Context(), cfg, collective.InProcess(1)[0], TrialOptions{Batches: -1}); err == nil || !strings.Contains(err.Error(), "want at least 1 of each") {
		t.Errorf("no batches: %v", err)
	}
}
