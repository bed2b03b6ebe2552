package tune

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
	"lockstep/pkg/train/traintest"
)

// measuredAs returns the trial of a setting with given rates.
func measuredAs(kind string, workers int, memory int64, rates ...float64) LoaderTrial {
	return LoaderTrial{
		Setting: train.LoaderConfig{Kind: kind, Workers: workers, Prefetch: 2}, Rates: rates, rounds: rates, Rate: medianRate(rates),
		MemoryBytes: memory, Final: true,
	}
}

// TestRatio compares with values computed by hand: the mean of ln 2 and ln 8 is ln 4, their
// standard deviation is ln 4/√2, and Student's quantile for one degree of freedom is 12.7062
// (tables of the distribution), so the half-width is 12.7062·ln 4/2.
func TestRatio(t *testing.T) {
	nan := math.NaN()
	r := newRatio([]float64{2, nan, 8, 5}, []float64{1, 1, 1})
	half := 12.7062 * math.Log(4) / 2
	if math.Abs(r.Value-4) > 1e-12 || math.Abs(math.Log(r.High/4)-half) > 1e-3 || math.Abs(math.Log(4/r.Low)-half) > 1e-3 || r.Rounds != 2 {
		t.Errorf("%+v", r)
	}
	if one := newRatio([]float64{3}, []float64{2}); one.Value != 1.5 || !math.IsNaN(one.Low) || one.String() != "1.50" {
		t.Errorf("one round: %v", one)
	}
	text, err := json.Marshal(newRatio(nil, nil))
	if err != nil || string(text) != `{"value":null,"low":null,"high":null,"rounds":0}` {
		t.Errorf("%s, %v", text, err)
	}
}

// TestChooseSettings checks the choice for given rates.
func TestChooseSettings(t *testing.T) {
	other := measuredAs("lowmem", 0, 1, 900, 900, 900)
	other.OtherBatches = true
	for name, c := range map[string]struct {
		all               []LoaderTrial
		fastest, smallest int
		alone             bool
	}{
		"one is faster": {[]LoaderTrial{
			measuredAs("lowmem", 0, 10, 100, 101, 99), measuredAs("lowmem", 2, 30, 200, 203, 198), measuredAs("inmem", 1, 900, 150, 151, 149),
		}, 1, 1, true},
		"as fast within noise": {[]LoaderTrial{ // 8 workers have the highest median, 2 of them are told apart from it in no round
			measuredAs("lowmem", 8, 90, 200, 210, 190), measuredAs("lowmem", 2, 30, 204, 198, 195), measuredAs("lowmem", 1, 20, 120, 118, 121), measuredAs("lowmem", 4, 50, 199, 201, 197),
		}, 0, 1, false},
		"a hundredth less is as fast": {[]LoaderTrial{
			measuredAs("lowmem", 4, 50, 200, 200.1, 200.2), measuredAs("lowmem", 1, 20, 198, 198.1, 198.2),
		}, 0, 1, false},
		"noise is no proof": {[]LoaderTrial{ // of 0.6 times the rate in so few rounds no interval excludes 1
			measuredAs("lowmem", 4, 50, 200, 100, 200), measuredAs("lowmem", 0, 20, 60, 110, 100),
		}, 0, 0, false},
		"equal workers, less memory": {[]LoaderTrial{
			measuredAs("inmem", 1, 900, 200, 201, 199), measuredAs("lowmem", 1, 20, 199, 201, 200),
		}, 0, 1, false},
		"other batches and too few rounds do not count": {[]LoaderTrial{
			other, measuredAs("lowmem", 0, 1, 500), measuredAs("lowmem", 2, 30, 200, 203, 198),
		}, 2, 2, true},
	} {
		fastest, smallest, alone := chooseLoaderSettings(c.all)
		if fastest != c.fastest || smallest != c.smallest || alone != c.alone {
			t.Errorf("%s: fastest %d, smallest %d, alone %v; want %d, %d, %v", name, fastest, smallest, alone, c.fastest, c.smallest, c.alone)
		}
	}
}

// TestLoaderAdvice checks the advised setting and the sentence for given numbers.
func TestLoaderAdvice(t *testing.T) {
	now, fast := measuredAs("lowmem", 1, 10<<20, 50, 51, 49), measuredAs("inmem", 2, 30<<20, 5000, 5100, 4900)
	in := measuredAs("inmem", 0, 20<<20, 4000, 4100, 3900)
	trial := func(name string, rate float64) runs.Trial { return runs.Trial{Name: name, Rate: rate} }
	at := func(value float64) Ratio { return Ratio{value, 0.98 * value, 1.02 * value, 5} }
	for name, c := range map[string]struct {
		training         float64 // without loading
		full, gain       Ratio
		said, set, spare string
	}{
		"input bounds it": {
			30, at(0.6), at(1.6), "inmem, 0 workers, which is 133 times as fast as training without loading, makes training 1.60 [1.57, 1.63] times as fast: use it",
			"--set loader.kind=inmem --set loader.workers=0 --set loader.prefetch=2", "the loader alone is 1.67 times as fast as training without loading",
		},
		"no gain": {
			30, at(0.9),
			Ratio{1.01, 0.97, 1.05, 5},
			"times as fast, no gain beyond noise: keep the config's setting",
			"--set loader.kind=lowmem --set loader.workers=1 --set loader.prefetch=2", "0.90 [0.88, 0.92] of the 30 samples/s",
		},
		"no bottleneck": {
			30, at(0.99), at(1), "but the loader is not the bottleneck: with the config's setting, training runs at 29.7 samples/s (FULL), 0.99 [0.97, 1.01] of the 30 samples/s without loading (SYNTHETIC)",
			"--set loader.kind=lowmem --set loader.workers=1 --set loader.prefetch=2", "keep the config's setting",
		},
		"a hundred times as much": {
			0.4,
			Ratio{0.7, 0.3, 0.95, 3},
			at(1), "but the loader is not the bottleneck: ",
			"--set loader.kind=lowmem", "the loader alone is 125 times as fast as training without loading",
		},
	} {
		l := &LoaderTuning{Batch: 4, Trials: []LoaderTrial{fast, in, now}, Now: 2, Full: c.full, Gain: c.gain}
		l.Fastest, l.Smallest, l.Alone = chooseLoaderSettings(l.Trials)
		l.Enough = findSufficientSetting(l.Trials, c.training)
		l.Training = []runs.Trial{trial("IO", now.Rate), trial("SYNTHETIC", c.training), trial("FULL", c.full.Value*c.training)}
		for _, want := range []string{c.said, c.spare} {
			if !strings.Contains(l.Sentence(), want) {
				t.Errorf("%s: %q lacks %q", name, l.Sentence(), want)
			}
		}
		if !strings.HasPrefix(l.Flags(), c.set) {
			t.Errorf("%s: %s", name, l.Flags())
		}
	}
	l := &LoaderTuning{Trials: []LoaderTrial{fast, now}, Now: 1, Alone: true, Enough: -1}
	l.Trials[0].Setting.Order = []string{"shuffle", "shard", "map", "batch", "prefetch"}
	if want := "--set loader.kind=inmem --set loader.workers=2 --set loader.prefetch=2 --set 'loader.order=[shuffle,shard,map,batch,prefetch]'"; l.Flags() != want {
		t.Errorf("flags %s", l.Flags())
	}
	if _, err := traintest.Config().With(FormatOverrides(l.AdvisedSetting())...); err != nil {
		t.Errorf("the advised flags: %v", err)
	}
	if !strings.Contains(l.Sentence(), "no other setting is as fast within noise; whether training waits for the loader was not measured.") {
		t.Error(l.Sentence())
	}
	l.Trials[0].OtherBatches = true
	var table strings.Builder
	if err := l.Write(&table); err != nil || strings.Count(table.String(), "other batches: not advised") != 1 {
		t.Errorf("the table does not mark one setting as changing the batches: %v\n%s", err, table.String())
	}
}

// TestOtherBatches checks that a setting is marked if its order of stages changes the batches.
func TestOtherBatches(t *testing.T) {
	cfg := traintest.Config()
	samples, err := train.OpenSamples(t.Context(), cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	tuner := &loaderTuner{cfg: cfg, samples: samples, group: collective.InProcess(1)[0]}
	for order, want := range map[[5]string]bool{
		{data.StageShuffle, data.StageShard, data.StageMap, data.StageBatch, data.StagePrefetch}: false,
		{data.StageShuffle, data.StageShard, data.StageMap, data.StageCache, data.StageBatch}:    true,
		{data.StageShard, data.StageShuffle, data.StageBatch, data.StageMap, data.StagePrefetch}: true,
	} {
		setting := cfg.Loader
		setting.Order = order[:]
		c, err := tuner.addCandidate(setting)
		if err != nil {
			t.Fatal(err)
		}
		if c.OtherBatches != want {
			t.Errorf("%v: other batches is %v, want %v", order, c.OtherBatches, want)
		}
	}
	if err := tuner.close(); err != nil {
		t.Error(err)
	}
}

// TestTuneLoader checks on generated data that every kind and number of workers is measured,
// and that the choice agrees with the measured rounds.
func TestTuneLoader(t *testing.T) {
	cfg := traintest.Config()
	dir := t.TempDir()
	shapes, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 24, Classes: 2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := data.WriteFolders(t.Context(), dir, shapes, "png"); err != nil {
		t.Fatal(err)
	}
	cfg.Data = train.DataConfig{Kind: data.KindFolders, Path: dir, TestImages: 4}
	cfg.Loader.Workers = 3
	res, err := MeasureLoader(t.Context(), cfg, LoaderOptions{Budget: time.Second, LoaderOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, l := range res.Trials {
		seen[formatLoaderSetting(l.Setting)] = true
		if l.Rate <= 0 || l.MemoryBytes <= 0 || len(l.Rates) > 0 && medianRate(l.Rates) != l.Rate {
			t.Errorf("%+v", l)
		}
	}
	for _, want := range []string{"lowmem, 0 workers", "lowmem, 3 workers, prefetch 2", "lowmem, 16 workers, prefetch 2", "inmem, 0 workers", "inmem, 4 workers, prefetch 2"} {
		// On a busy machine, the budget may be too short for a setting, or for all of a kind.
		kind, _, _ := strings.Cut(want, ",")
		notes := strings.Join(res.Notes, "\n")
		if !seen[want] && !strings.Contains(notes, want+": not measured") && !strings.Contains(notes, kind+": not measured") {
			t.Errorf("%s is missing among %v, notes %v", want, seen, res.Notes)
		}
	}
	// The cached samples: 20 images of 32×32×3 bytes, without buffers.
	for _, l := range res.Trials {
		if l.Setting.Kind == data.LoaderInMem && l.MemoryBytes < 20*32*32*3 {
			t.Errorf("%s holds %d bytes", formatLoaderSetting(l.Setting), l.MemoryBytes)
		}
	}
	if f := res.Trials[res.Fastest]; f.OtherBatches || len(f.Rates) < minRounds || formatLoaderSetting(res.Trials[res.Now].Setting) != "lowmem, 3 workers, prefetch 2" {
		t.Errorf("fastest %+v, now %+v", f, res.Trials[res.Now])
	}
	if _, err := json.Marshal(res); err != nil {
		t.Error(err)
	}
	cfg.Loader.Kind = data.LoaderSynthetic
	if _, err := MeasureLoader(t.Context(), cfg, LoaderOptions{}); err == nil || !strings.Contains(err.Error(), "unsupported loader.kind synthetic, which loads nothing during a step: set loader.kind=lowmem or loader.kind=inmem") {
		t.Errorf("synthetic: %v", err)
	}
}

// TestTuneLoaderTraining checks that the training is measured with and without the loader.
func TestTuneLoaderTraining(t *testing.T) {
	res, err := MeasureLoader(t.Context(), traintest.Config(), LoaderOptions{Budget: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Training) != 3 || !(res.Full.Value > 0) || len(res.Training[1].Rates) < minRounds || !strings.Contains(strings.Join(res.Notes, "\n"), "in memory already") {
		t.Errorf("training %+v, full %v, notes %v", res.Training, res.Full, res.Notes)
	}
}
