package logread

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

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

// TestNodesOfBenchyFiles checks that the number of nodes in the name of benchy's file is an assumption, and
// not used if the ranks are no multiple of it.
func TestNodesOfBenchyFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sc21")
	const text = `{"nranks":8,"FULL":{"rates":[[5.0]],"avg_iter_throughput":[5.0],"trial_throughput":[5.0],"trial_time":[1.0]}}`
	write(t, dir, map[string]string{"weak_scale_2.json": text, "weak_scale_3.json": strings.Replace(text, "8", "4", 1), "weak_scale_noddp_2.json": text})
	logs, reports := explained(t, dir)
	var got []string
	for _, r := range logs.Runs {
		got = append(got, fmt.Sprintf("%s: %s, %d workers, %d nodes %s", filepath.Base(r.File), r.Info.Series, r.Info.Workers, r.Info.Nodes, r.Origins[runs.PropertyNodes]))
	}
	want := []string{
		`weak_scale_2.json: weak-scale, 8 workers, 2 nodes the name of the file "weak_scale_2"`,
		`weak_scale_3.json: weak-scale, 4 workers, 0 nodes `,
		`weak_scale_noddp_2.json: weak-scale-noddp, 8 workers, 2 nodes the name of the file "weak_scale_noddp_2"`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if text := reports["weak_scale_2.json"].String(); !strings.Contains(text, `taken: nodes 2: from the name of the file "weak_scale_2" (assumed)`) {
		t.Error(text)
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

// TestPatternOfNoFile: a pattern that matches no file is a problem; one that matches only the files of
// an earlier pattern is not.
func TestPatternOfNoFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a/x.out": "Epoch 1/1\n2/2 - 9s - loss: 1.5\n"})
	var o Options
	for _, text := range []string{"*.out=workers:2", "x.out=workers:4", "x.log=workers:4"} {
		p, err := ParsePattern(text)
		check(t, err)
		o.As = append(o.As, p)
	}
	logs, err := o.Read(t.Context(), dir)
	check(t, err)
	if len(logs.Problems) != 1 || logs.Problems[0].File != `pattern "x.log=workers:4"` || !strings.Contains(logs.Problems[0].Reason, `it matches no file; before the = it must match the end of a path from a name on, such as "x.out"`) {
		t.Errorf("problems %v", logs.Problems)
	}
}
