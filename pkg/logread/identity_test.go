package logread

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          string // the claims, the path without the rank if there is one, and the problems
	}{
		{"log_hvd_{workers}.csv=PyTorch Horovod", "a/log_hvd_12.csv", `workers 12, series "PyTorch Horovod"`},
		{"log_hvd_{workers}.csv=PyTorch Horovod", "a/log_hvd_12.csv.gz", `workers 12, series "PyTorch Horovod"`},
		{"log_{workers}.csv", "a/log_hvd_12.csv", "no match"},
		{"log_{workers}.csv", "a/other_log_12.csv", "no match"}, // whole names
		{"{series}/{workers}GPU/*/out.log=SC21 {series}", "x/base/4GPU/00/out.log", `workers 4, series "SC21 base"`},
		{"{series}/**/seed{seed}.log", "x/base/a/b/seed3.log", `series "x", seed 3`},
		{"job_{workers}_rank{rank}.txt", "job_2_rank1.txt", "workers 2, rank 1, job_2_rank*.txt"},
		{"log_{workers}.csv", "log_99999999999999999999.csv", "no match"},
		// Constants, factors, and all properties.
		{"*.out=workers:1", "a/b.out", "workers 1"},
		{"*.out=workers:1,series:native", "a/b.out", `workers 1, series "native"`},
		{"*.out=series:a, b,workers:2", "a/b.out", `series "a, b", workers 2`},
		{"run_{nodes}n.out=workers:{nodes}*8", "a/run_4n.out", "nodes 4, workers 32"},
		{"run_{nodes}n.out=workers:4*{nodes}*2,nodes:1", "a/run_4n.out", "workers 32, nodes 1"},
		{"{model}_b{batch}_{seed}.out=series:{model} of {batch}", "a/unet_b32_7.out", `model "unet", batch 32, seed 7, series "unet of 32"`},
		{"*.out=rank:0,model:r50,batch:64,seed:0,nodes:2", "b.out", `rank 0, model "r50", batch 64, seed 0, nodes 2`},
		{"n{workers}.out", "n15000000.out", `the pattern "n{workers}.out": workers 15000000 is not plausible: expected a number from 1 to 262144`},
		{"n{nodes}.out=workers:{nodes}*8", "n100000.out", `nodes 100000, the pattern "n{nodes}.out=workers:{nodes}*8": workers 800000 is not plausible: expected a number from 1 to 262144`},
		{"n{workers}.out", "n0.out", `the pattern "n{workers}.out": workers 0 is not plausible: expected a number from 1 to 262144`},
	} {
		p, err := ParsePattern(c.pattern)
		check(t, err)
		m, ok := p.match(c.path)
		var got []string
		for _, claim := range m.claims {
			got = append(got, describeValue(claim))
		}
		if m.rank > 0 {
			got = append(got, m.rest)
		}
		got = append(got, m.problems...)
		if !ok {
			got = []string{"no match"}
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s on %s: got %s, want %s", c.pattern, c.path, text, c.want)
		}
	}
	for text, want := range map[string]string{
		"": "expected the end of a path", "a=": "name of a series", "{n}.csv": `unknown field "{n}"; use {workers}`,
		"{workers}_{workers}.csv": "duplicate field {workers}", "a=x {series}": "needs {series} before the =", "a{": "unknown field",
		"*.out=workers:15000000": "workers 15000000 is not plausible: expected a number from 1 to 262144", "*.out=workers:0": "workers 0 is not plausible",
		"*.out=workers:{nodes}*8": `unknown field "{nodes}" in the value of workers`, "{nodes}.out=workers:{nodes}*400000": "is not plausible",
		"*.out=workers:many": `expected a number, a field such as {nodes}, or a product such as {nodes}*8, got "many"`, "*.out=workers:": "property workers has no value",
		"*.out=workers:1,x": `expected a property and its value, such as workers:4, got "x"`, "*.out=workers:1,workers:2": "duplicate property workers",
		"*.out=series:{model}": `unknown field "{model}" after the =`, "*.out=batch:3000000000": "batch 3000000000 is not plausible",
		"log_{workers}.csv=X {nonsense}": `unknown field "{nonsense}"`, "log_{workers}.csv=X {workers}": `unknown field "{workers}"`, "{series}/a.csv={series": `unknown field "{series"`,
	} {
		if _, err := ParsePattern(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %q", text, err, want)
		}
	}
}

// TestPatternsCountMost checks that patterns take precedence over the content
// and the path, and that they join ranks.
func TestPatternsCountMost(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"log_hvd_4.csv":   twoRows,
		"job_a_rank0.out": "Epoch 1/1\n2/2 - 9s - loss: 1.5\n", "job_a_rank1.out": "Epoch 1/1\n2/2 - 8s - loss: 2.5\n",
	})
	var o Options
	for _, text := range []string{"log_hvd_{seed}.csv=PyTorch Horovod", "job_{series}_rank{rank}.out"} {
		p, err := ParsePattern(text)
		check(t, err)
		o.As = append(o.As, p)
	}
	logs, err := o.Read(t.Context(), dir)
	check(t, err)
	if len(logs.Runs) != 2 {
		t.Fatalf("%d runs, expected 2", len(logs.Runs))
	}
	job, study := logs.Runs[0], logs.Runs[1]
	if job.Info.Series != "a" || job.Info.Workers != 2 || job.Epochs[0].Seconds != 9 || job.Epochs[0].TrainLoss != 2 {
		t.Errorf("two ranks' files: %+v", job)
	}
	if study.Info.Series != "PyTorch Horovod" || study.Info.Seed != 4 || study.Info.Workers != 4 {
		t.Errorf("the study's file: %+v", study.Info)
	}
}

// TestIdentityFromPaths checks the worker counts and repeat numbers in usual
// names of folders and files.
func TestIdentityFromPaths(t *testing.T) {
	type pathFields struct{ workers, seed int }
	for path, want := range map[string]pathFields{
		"/exp/base/4GPU/00/out.log":       {workers: 4, seed: 0},
		"/exp/unet-n2-s7/train.log":       {workers: 2, seed: 7},
		"/exp/horovod_8gpus_seed3.out":    {workers: 8, seed: 3},
		"/exp/np16/rep2.log":              {workers: 16, seed: 2},
		"/exp/world_size_32/log.txt":      {workers: 32, seed: -1},
		"/exp/num_workers_8/out.log":      {workers: -1, seed: -1}, // of the loader
		"/exp/resnet50.out":               {workers: -1, seed: -1},
		"/exp/gpus=2/out.log":             {workers: 2, seed: -1},
		"/exp/log_99999999999999gpus.out": {workers: -1, seed: -1},
	} {
		got := pathFields{-1, -1}
		p := &record.Part{}
		claimNames(p, path, false)
		if c, ok := choose(p.Claims, runs.PropertyWorkers); ok {
			got.workers = int(c.Number)
		}
		if c, ok := choose(p.Claims, runs.PropertySeed); ok {
			got.seed = int(c.Number)
		}
		if got != want {
			t.Errorf("%s: %+v, expected %+v", path, got, want)
		}
	}
}

// TestStudyOfSeries checks that the files of one series in one folder belong to
// one study, whether the series comes from the content or from the path.
func TestStudyOfSeries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sc21", "base", "4GPU", "00")
	stamp := "2021-11-12 00:32:26,118 - root - INFO - "
	write(t, dir, map[string]string{
		"out.log":     stamp + "Configuration name: base\n" + stamp + "Time taken for epoch 1 is 5.0 sec, avg 2.0 samples/sec\n",
		"benchy.json": `{"nranks":4,"IO":{"rates":[[5.0]],"avg_iter_throughput":[5.0],"trial_throughput":[5.0],"trial_time":[1.0]}}`,
	})
	logs, _ := explained(t, dir)
	for _, r := range logs.Runs {
		if r.Info.Series != "base" || r.Info.Study != "sc21" {
			t.Errorf("%s: series %s of study %s, expected base of sc21", r.Dir, r.Info.Series, r.Info.Study)
		}
	}
	if len(logs.Runs) != 2 {
		t.Errorf("%d runs, expected 2", len(logs.Runs))
	}
}

// TestStudyOfRunFolders checks that folders named as runs of one series are repeats in the study
// of their parent folder, not studies themselves.
func TestStudyOfRunFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "exp")
	log := "Epoch 1/1\n2/2 - 9s - loss: 1.5\n"
	write(t, dir, map[string]string{"net-n2-s1/out.log": log, "net-n2-s2/out.log": log})
	logs, _ := explained(t, dir)
	for i, r := range logs.Runs {
		if r.Info.Series != "net" || r.Info.Study != "exp" || r.Info.Workers != 2 || r.Info.Seed != int64(i+1) {
			t.Errorf("%s: series %s of study %s, %d workers, seed %d; expected net of exp, 2 workers, seed %d", r.Dir, r.Info.Series, r.Info.Study, r.Info.Workers, r.Info.Seed, i+1)
		}
	}
	if len(logs.Runs) != 2 {
		t.Errorf("%d runs, expected 2", len(logs.Runs))
	}
}

func TestNodesFromPaths(t *testing.T) {
	for path, want := range map[string]int{"/x/4nodes/out.log": 4, "/x/nodes_16.out": 16, "/x/run/node01.log": 0, "/x/node2/out.log": 0, "/x/2-node/out.log": 2, "/x/out.log": 0} {
		p := &record.Part{}
		claimNames(p, path, false)
		if got, _ := choose(p.Claims, runs.PropertyNodes); got.Number != int64(want) {
			t.Errorf("%s: %d nodes, expected %d", path, got.Number, want)
		}
	}
}

// TestCompanions checks that event files and configurations belong to the only
// run in their folder, to none of several runs, and to a separate run if the
// name of their folder has a worker count.
func TestCompanions(t *testing.T) {
	dir := t.TempDir()
	log := "Epoch 1/1\n2/2 - 9s - loss: 1.5\n"
	events := string(recordtest.EncodeEventFile(recordtest.EncodeEvent(1, 1, recordtest.EncodeScalar("a", 1))))
	write(t, dir, map[string]string{
		"one_2gpu/out.log": log, "one_2gpu/logs/events.out.tfevents.1": events, "one_2gpu/conf.yaml": "lr: 0.5\n",
		"two_2gpu/a.log": log, "two_2gpu/b.log": log, "two_2gpu/events.out.tfevents.2": events,
		"three_2gpu/out.log": log, "three_2gpu/n4/events.out.tfevents.3": events,
	})
	logs, reports := explained(t, dir)
	var got []string
	for _, r := range logs.Runs {
		got = append(got, fmt.Sprintf("%s %d epochs, %d curves, lr %v", strings.TrimPrefix(r.Dir, dir+"/"), len(r.Epochs), len(r.Curves), r.Info.Config["lr"]))
	}
	want := []string{
		"one_2gpu/out.log 1 epochs, 1 curves, lr 0.5", "three_2gpu/n4 0 epochs, 1 curves, lr <nil>", "three_2gpu/out.log 1 epochs, 0 curves, lr <nil>",
		"two_2gpu/a.log 1 epochs, 0 curves, lr <nil>", "two_2gpu/b.log 1 epochs, 0 curves, lr <nil>", "two_2gpu 0 epochs, 1 curves, lr <nil>",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for name, want := range map[string]string{
		"one_2gpu/logs/events.out.tfevents.1": "belongs to the run in", "two_2gpu/events.out.tfevents.2": "has 2 runs, and it is unknown to which of them this file belongs",
	} {
		if text := reports[name].String(); !strings.Contains(text, want) {
			t.Errorf("%s, expected %q", text, want)
		}
	}
}

func TestConfigurationBesideNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"hparams.yaml": "lr: 0.1\n"})
	logs, reports := explained(t, dir)
	if len(logs.Runs) != 0 || len(logs.Problems) != 0 || !strings.Contains(reports["hparams.yaml"].String(), "a configuration for 0 runs") {
		t.Errorf("runs %v, problems %v, %s", logs.Runs, logs.Problems, reports["hparams.yaml"])
	}
}
