package identity

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// newRun returns a run of the series unet, read from file, after change.
func newRun(file string, workers int, change func(*runs.Run)) runs.Run {
	r := runs.Run{Dir: "/logs/" + file, File: "/logs/" + file, Kind: "Keras log"}
	r.Info = runs.Info{Study: "s", Series: "unet", Workers: workers, Status: runs.StatusDone}
	if change != nil {
		change(&r)
	}
	return r
}

func batch(n int) func(*runs.Run) { return func(r *runs.Run) { r.Info.BatchPerWorker = n } }

// scaling sets the kind of scaling and the batch in the command, and the batch per worker.
func scaling(kind string, n int) func(*runs.Run) {
	return func(r *runs.Run) {
		command(fmt.Sprintf("python train.py --scaling %s --batch %d", kind, n))(r)
		r.Info.BatchPerWorker = n
	}
}

func samples(n int) func(*runs.Run) {
	return func(r *runs.Run) { r.Epochs = []runs.Epoch{{Samples: n}} }
}

func config(key string, v any) func(*runs.Run) {
	return func(r *runs.Run) { r.Info.Config = map[string]any{key: v} }
}

func command(text string) func(*runs.Run) {
	return func(r *runs.Run) { r.Info.Command = strings.Fields(text) }
}

// knownSeed sets the seed, which is known, and the seconds of an epoch.
func knownSeed(n int64, seconds float64) func(*runs.Run) {
	return func(r *runs.Run) {
		r.Info.Seed, r.Epochs = n, []runs.Epoch{{Epoch: 1, Seconds: seconds}}
		r.Origins = map[runs.Property]runs.Origin{runs.PropertySeed: {Source: runs.SourceContent}}
	}
}

func seed(n int64) func(*runs.Run) { return func(r *runs.Run) { r.Info.Seed = n } }

// TestSeparate checks which runs are separated, and the names of the new series. A result is
// one series per run, or nil if the series stays one.
func TestSeparate(t *testing.T) {
	for name, c := range map[string]struct {
		all  []runs.Run
		want []string
	}{
		"repeats": {[]runs.Run{newRun("1.log", 2, batch(4)), newRun("2.log", 2, batch(4))}, nil},
		"batch":   {[]runs.Run{newRun("1.log", 2, batch(4)), newRun("2.log", 2, batch(8))}, []string{"unet batch 4", "unet batch 8"}},
		"batch at several worker counts": {
			[]runs.Run{newRun("1.log", 1, batch(4)), newRun("2.log", 2, batch(4)), newRun("3.log", 2, batch(8)), newRun("4.log", 4, batch(8))},
			[]string{"unet batch 4", "unet batch 4", "unet batch 8", "unet batch 8"},
		},
		"a global batch that grows with the workers": {[]runs.Run{newRun("1.log", 1, batch(4)), newRun("2.log", 2, batch(4)), newRun("3.log", 2, batch(4))}, nil},
		"a batch per worker that shrinks":            {[]runs.Run{newRun("1.log", 1, batch(8)), newRun("2.log", 2, batch(4)), newRun("3.log", 4, batch(2))}, nil},
		"two strong series": { // global batches of 8 and 16
			[]runs.Run{newRun("1.log", 1, batch(8)), newRun("2.log", 1, batch(16)), newRun("3.log", 2, batch(4)), newRun("4.log", 2, batch(8)), newRun("5.log", 4, batch(2)), newRun("6.log", 4, batch(4))},
			[]string{"unet global batch 8", "unet global batch 16", "unet global batch 8", "unet global batch 16", "unet global batch 8", "unet global batch 16"},
		},
		"nodes": {
			[]runs.Run{newRun("1.log", 8, func(r *runs.Run) { r.Info.Nodes = 1 }), newRun("2.log", 8, func(r *runs.Run) { r.Info.Nodes = 2 }), newRun("3.log", 16, func(r *runs.Run) { r.Info.Nodes = 2 })},
			[]string{"unet 1 node", "unet 2 nodes", "unet 2 nodes"},
		},
		"an unknown batch": {[]runs.Run{newRun("1.log", 2, batch(4)), newRun("2.log", 2, nil)}, nil},
		"unknown beside two batches": {
			[]runs.Run{newRun("1.log", 2, batch(4)), newRun("2.log", 2, batch(8)), newRun("3.log", 2, nil)},
			[]string{"unet batch 4", "unet batch 8", "unet"},
		},
		"samples":         {[]runs.Run{newRun("1.log", 2, samples(1000)), newRun("2.log", 2, samples(2000))}, []string{"unet 1000 samples", "unet 2000 samples"}},
		"rounded samples": {[]runs.Run{newRun("1.log", 2, samples(65536)), newRun("2.log", 2, samples(65535))}, nil},
		"samples that grow with the workers": {
			[]runs.Run{newRun("1.log", 1, samples(100)), newRun("2.log", 2, samples(200)), newRun("3.log", 4, samples(400)), newRun("4.log", 4, samples(800)), newRun("5.log", 2, samples(400))},
			[]string{"unet 100 samples per worker", "unet 100 samples per worker", "unet 100 samples per worker", "unet 200 samples per worker", "unet 200 samples per worker"},
		},
		"an incomplete last epoch": {
			[]runs.Run{newRun("1.log", 2, func(r *runs.Run) { r.Epochs = []runs.Epoch{{Samples: 90}, {Samples: 90}, {Samples: 40}} }), newRun("2.log", 2, samples(90))}, nil,
		},
		"model":          {[]runs.Run{newRun("1.log", 2, config("model", "resnet50")), newRun("2.log", 2, config("model", "resnet152"))}, []string{"unet resnet50", "unet resnet152"}},
		"model settings": {[]runs.Run{newRun("1.log", 2, config("model", map[string]any{"kind": "unet2d", "base_channels": 8, "depth": 3})), newRun("2.log", 2, config("model", map[string]any{"kind": "unet2d", "base_channels": 16, "depth": 4}))}, []string{"unet model 1", "unet model 2"}},
		"planned epochs": {[]runs.Run{newRun("1.log", 2, config("epochs", 10.0)), newRun("2.log", 2, config("epochs", 200.0))}, []string{"unet 10 epochs", "unet 200 epochs"}},
		"learning rate":  {[]runs.Run{newRun("1.log", 2, config("lr", 0.1)), newRun("2.log", 2, config("lr", 0.2))}, []string{"unet lr 0.1", "unet lr 0.2"}},
		"a learning rate that grows with the workers": {[]runs.Run{newRun("1.log", 1, config("learning_rate", 0.1)), newRun("2.log", 2, config("learning_rate", 0.2)), newRun("3.log", 2, config("learning_rate", 0.2))}, nil},
		"two learning rates that grow with the workers": {
			[]runs.Run{newRun("1.log", 1, config("lr", 0.1)), newRun("2.log", 2, config("lr", 0.2)), newRun("3.log", 1, config("lr", 0.2)), newRun("4.log", 2, config("lr", 0.4)), newRun("5.log", 4, config("lr", 0.4)), newRun("6.log", 4, config("lr", 0.8))},
			[]string{"unet lr 0.1 per worker", "unet lr 0.1 per worker", "unet lr 0.2 per worker", "unet lr 0.2 per worker", "unet lr 0.1 per worker", "unet lr 0.2 per worker"},
		},
		"epochs reached": {
			[]runs.Run{newRun("1.log", 2, func(r *runs.Run) { r.Epochs = make([]runs.Epoch, 5) }), newRun("2.log", 2, func(r *runs.Run) { r.Epochs = make([]runs.Epoch, 2) })}, nil,
		},
		"a failed run": {[]runs.Run{newRun("1.log", 2, batch(4)), newRun("2.log", 2, func(r *runs.Run) { r.Info.BatchPerWorker, r.Info.Status = 8, runs.StatusFailed })}, nil},
		"the user's series": {
			[]runs.Run{newRun("1.log", 2, batch(4)), newRun("2.log", 2, func(r *runs.Run) {
				r.Info.BatchPerWorker = 8
				r.Origins = map[runs.Property]runs.Origin{runs.PropertySeries: {Source: runs.SourceUser}}
			})}, nil,
		},
		"numbers in file names":   {[]runs.Run{newRun("unet_s1024.log", 2, nil), newRun("unet_s2048.log", 2, nil)}, []string{"unet s1024", "unet s2048"}},
		"numbers in folder names": {[]runs.Run{newRun("r50/2gpu/out.log", 2, nil), newRun("r152/2gpu/out.log", 2, nil)}, []string{"unet r50", "unet r152"}},
		"a number after a word":   {[]runs.Run{newRun("bs_32.log", 2, nil), newRun("bs_64.log", 2, nil)}, []string{"unet 32", "unet 64"}},
		"decimals":                {[]runs.Run{newRun("unet_lr0.1/out.log", 2, nil), newRun("unet_lr0.01/out.log", 2, nil)}, []string{"unet lr0.1", "unet lr0.01"}},
		"seeds":                   {[]runs.Run{newRun("unet_s7.log", 2, seed(7)), newRun("unet_s42.log", 2, seed(42))}, nil},
		"repeats by name":         {[]runs.Run{newRun("unet_rep3.log", 2, nil), newRun("unet_rep7.log", 2, nil)}, nil},
		"counted runs":            {[]runs.Run{newRun("2GPU/00/out.log", 2, nil), newRun("2GPU/01/out.log", 2, nil), newRun("2GPU/05/out.log", 2, nil)}, nil},
		"counted from 1":          {[]runs.Run{newRun("unet_1.log", 2, nil), newRun("unet_2.log", 2, nil), newRun("unet_3.log", 2, nil)}, nil},
		"settings counted from 1": {[]runs.Run{newRun("unet_bs_1.log", 2, nil), newRun("unet_bs_2.log", 2, nil)}, []string{"unet 1", "unet 2"}},
		"jobs":                    {[]runs.Run{newRun("slurm-1234567.out", 2, nil), newRun("slurm-1234999.out", 2, nil)}, nil},
		"jobs after a name":       {[]runs.Run{newRun("unet-991234.out", 2, nil), newRun("unet-991299.out", 2, nil)}, nil},
		"dates":                   {[]runs.Run{newRun("unet_2021-11-12_10-20-30.log", 2, nil), newRun("unet_2021-11-13_09-01-02.log", 2, nil)}, nil},
		"TensorBoard's folders":   {[]runs.Run{newRun("Nov12_10-20-30_node01/x.log", 2, nil), newRun("Nov13_11-20-31_node07/x.log", 2, nil)}, nil},
		"names of W&B":            {[]runs.Run{newRun("run-20211112_123456-1a2b3c4d/output.log", 2, nil), newRun("run-20211113_010203-9z8y7x6w/output.log", 2, nil)}, nil},
		"hashes":                  {[]runs.Run{newRun("unet-1a2b3c4d.log", 2, nil), newRun("unet-5a6b7c8d.log", 2, nil)}, nil},
		"ranks":                   {[]runs.Run{newRun("rank0/x.log", 2, nil), newRun("rank1/x.log", 2, nil)}, nil},
		"versions":                {[]runs.Run{newRun("version_3/metrics.csv", 2, nil), newRun("version_9/metrics.csv", 2, nil)}, nil},
		"another name at each worker count": {
			[]runs.Run{newRun("unet_b16_1gpu.log", 1, nil), newRun("unet_b32_2gpu.log", 2, nil), newRun("unet_b64_4gpu.log", 4, nil)}, nil,
		},
		"the batch explains the names": {
			[]runs.Run{newRun("bs32.log", 2, batch(16)), newRun("bs64.log", 2, batch(32)), newRun("bs64_4gpu.log", 4, batch(16))},
			[]string{"unet batch 16", "unet batch 32", "unet batch 16"},
		},
		"run folders": {
			[]runs.Run{newRun("unet-n2-s1/epochs.csv", 2, func(r *runs.Run) { r.Info.Schema = 1 }), newRun("unet-n2-s9/epochs.csv", 2, func(r *runs.Run) { r.Info.Schema = 1 })}, nil,
		},
		"a sweep's series": {
			[]runs.Run{newRun("a-batch=2-n2-s1/epochs.csv", 2, func(r *runs.Run) { r.Info.Series, r.Info.BatchPerWorker = "ddp batch=2", 2 }), newRun("b-n2-s1/epochs.csv", 2, func(r *runs.Run) { r.Info.Series, r.Info.BatchPerWorker = "ddp batch=4", 4 })},
			[]string{"ddp batch=2", "ddp batch=4"},
		},
		"words in folder names": {
			[]runs.Run{newRun("cards.logs/2gpu/1.log", 2, nil), newRun("cards_NVLink_XLA.logs/2gpu/1.log", 2, nil)},
			[]string{"unet cards", "unet cards_NVLink_XLA"},
		},
		"a word that one name lacks": {[]runs.Run{newRun("unet_2gpu.log", 2, nil), newRun("unet_2gpu_amp.log", 2, nil)}, []string{"unet", "unet amp"}},
		"words without meaning":      {[]runs.Run{newRun("logs/2gpu/out.log", 2, nil), newRun("results/2gpu/train.log", 2, nil)}, nil},
		"mode":                       {[]runs.Run{newRun("1.log", 2, config("mode", "training")), newRun("2.log", 2, config("mode", "forward-only"))}, []string{"unet training", "unet forward-only"}},
		"options of the command": {
			[]runs.Run{newRun("1.log", 2, command("python train.py --amp --lr 0.1")), newRun("2.log", 2, command("python train.py --lr 0.1"))},
			[]string{"unet amp", "unet"},
		},
		"two batches of two kinds of scaling": {
			[]runs.Run{newRun("1.log", 1, scaling("strong", 8)), newRun("2.log", 1, scaling("weak", 8)), newRun("3.log", 2, scaling("strong", 4)), newRun("4.log", 2, scaling("weak", 8))},
			[]string{"unet strong", "unet weak", "unet strong", "unet weak"},
		},
		"a value of an option": {
			[]runs.Run{newRun("1.log", 2, command("python train.py --precision bf16")), newRun("2.log", 2, command("python train.py --precision=fp32"))},
			[]string{"unet bf16", "unet fp32"},
		},
		"options that say where":       {[]runs.Run{newRun("1.log", 2, command("python train.py --seed 1 --output a --run-id x1")), newRun("2.log", 2, command("python train.py --seed 2 --output b --run-id x2"))}, nil},
		"settings":                     {[]runs.Run{newRun("1.log", 2, config("optimizer", "adam")), newRun("2.log", 2, config("optimizer", "sgd"))}, []string{"unet adam", "unet sgd"}},
		"measurements beside settings": {[]runs.Run{newRun("1.log", 2, config("peak_memory_gb", 10.0)), newRun("2.log", 2, config("peak_memory_gb", 12.0))}, nil},
		"names of runs in a table":     {[]runs.Run{newRun("x.csv", 2, config("run", "amp-2gpu")), newRun("x.csv", 2, config("run", "fp32-2gpu"))}, []string{"unet amp", "unet fp32"}},
		"the same seed": {
			[]runs.Run{newRun("unet-471101.log", 2, knownSeed(1, 5)), newRun("unet-471102.log", 2, knownSeed(1, 5)), newRun("unet-471103.log", 2, knownSeed(2, 5))},
			[]string{"unet", "unet (2)", "unet"},
		},
		"the same seed and a repeat number": {[]runs.Run{newRun("unet_rep1.log", 2, knownSeed(1, 5)), newRun("unet_rep2.log", 2, knownSeed(1, 50))}, nil},
		"the first repeat beside the folders of others": {
			[]runs.Run{newRun("logs/log_2.csv", 2, knownSeed(1, 5)), newRun("logs/seed2/log_2.csv", 2, knownSeed(2, 50)), newRun("logs/rep_3/log_2.csv", 2, knownSeed(1, 1))}, nil,
		},
		"rates that differ by more than 3 times": {
			[]runs.Run{newRun("unet-471101.log", 2, knownSeed(1, 5)), newRun("unet-471102.log", 2, knownSeed(2, 16)), newRun("unet-471103.log", 2, knownSeed(3, 6))},
			[]string{"unet", "unet (2)", "unet"},
		},
		"rates within 3 times": {[]runs.Run{newRun("unet-471101.log", 2, knownSeed(1, 5)), newRun("unet-471102.log", 2, knownSeed(2, 14))}, nil},
		"two studies": {
			[]runs.Run{newRun("1.log", 2, func(r *runs.Run) { r.Info.Study, r.Info.BatchPerWorker = "x", 4 }), newRun("2.log", 2, batch(8))}, nil,
		},
	} {
		before := make([]string, len(c.all))
		for i, r := range c.all {
			before[i] = r.Info.Series
		}
		if c.want == nil || name == "a sweep's series" {
			if out := SeparateSeries(c.all); len(out) > 0 {
				t.Errorf("%s: separated: %s", name, out[0])
			}
			c.want = before
		} else if out := SeparateSeries(c.all); len(out) != 1 {
			t.Errorf("%s: %d separations, want 1", name, len(out))
		}
		var got []string
		for _, r := range c.all {
			got = append(got, r.Info.Series)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: series %q, want %q", name, got, c.want)
		}
		if again := SeparateSeries(c.all); len(again) > 0 {
			t.Errorf("%s: separated a second time: %s", name, again[0])
		}
	}
}

// TestSeparationString checks the note: the runs, the reasons with values, the new names, and
// how to join the runs.
func TestSeparationString(t *testing.T) {
	all := []runs.Run{newRun("2gpu/unet_s1024.log", 2, batch(4)), newRun("2gpu/unet_s2048.log", 2, batch(8)), newRun("2gpu/unet_s4096.log", 2, batch(8))}
	out := SeparateSeries(all)
	if len(out) != 1 {
		t.Fatalf("%d separations", len(out))
	}
	want := `series "unet": its 3 runs became 3 series ("unet batch 4 s1024", "unet batch 8 s2048", "unet batch 8 s4096"), because runs with equally many workers are repeats only if they agree, ` +
		`and these differ in batch per worker (4 and 8) and a number in their names (s2048 and s4096); to join them: --as 'unet_s*.log=series:unet'`
	if got := out[0].String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var many []runs.Run
	for i := range 20 {
		many = append(many, newRun(fmt.Sprintf("x%d/out.log", 100+i*i), 2, nil))
	}
	if got := SeparateSeries(many)[0].String(); !strings.Contains(got, "became 20 series") || !strings.Contains(got, "and 14 more") || !strings.Contains(got, "--as 'x*/out.log=series:unet'") || len(got) > 600 {
		t.Errorf("%d characters: %s", len(got), got)
	}
}
