package logread

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

// sampleSource is a row of the table of samples: a file, or a folder whose files belong
// together, and where the form of its lines comes from. The values are made up.
type sampleSource struct{ path, from string }

// sampleSources returns the samples of each kind of log. To test another kind, add a file and
// a row.
func sampleSources() []sampleSource {
	const tree, samples = "testdata/tree/", "testdata/samples/"
	return []sampleSource{
		{tree + "dllogger/log_8gpu.json", "DLLogger's StdOutBackend and JSONStreamBackend (github.com/NVIDIA/dllogger)"},
		{tree + "hf", "trainer_state.json, which the Trainer of Hugging Face's transformers saves"},
		{tree + "horovod/synthetic.log", "pytorch_synthetic_benchmark.py in Horovod's examples"},
		{tree + "keras/1/horovod_gpus-2.log", "Keras' progress bar with verbose=2, of two ranks"},
		{tree + "keras/resnet-501.out", "the same, with the commands of a shell script and bash's time"},
		{tree + "lightning/version_0", "Lightning's CSVLogger: metrics.csv and hparams.yaml"},
		{tree + "loss/4gpu/main.log", "numpy.savetxt of steps and losses"},
		{tree + "mlperf/result_0.txt", "mllog (github.com/mlcommons/logging)"},
		{tree + "sc21", "train.py of the SC21 tutorial Deep Learning at Scale, and benchy"},
		{tree + "slurm", "sacct --parsable2, and the output of its jobs with bash's time"},
		{tree + "srun/hep.log", "the rates that each rank of the CosmoFlow and HEP benchmarks of 2018 logged, under srun --label"},
		{tree + "titan/llama_8gpu.log", "torchtitan's metrics.py"},
		{tree + "torchrun/ddp_4gpus.log", "torchrun's message about a failed rank (torch/distributed/elastic)"},
		{tree + "unet/stdout_n1.txt", "the standard output of the U-Net study"},
		{tree + "unet/logs", "the CSV files of the U-Net study"},

		{samples + "collectives/nccl_4ranks.txt", "all_reduce_perf of nccl-tests"},
		{samples + "collectives/osu_4ranks.txt", "osu_allreduce of the OSU micro-benchmarks"},
		{samples + "jobs/killed/train-4711.out", "a command of srun, and slurmstepd's message about a canceled job"},
		{samples + "jobs/killed/failed_4gpus.err", "torchrun's message without an epoch before it"},
		{samples + "jobs/killed/memory_2gpus.err", "PyTorch's message that memory ran out"},
		{samples + "jobs/script", "a job script of Slurm beside a log of the SC21 tutorial"},
		{samples + "jsonlines/20240101_120000_4gpu.log.json", "MMCV's TextLoggerHook"},
		{samples + "jsonlines/metrics.json", "Detectron2's JSONWriter"},
		{samples + "jsonlines/log.jsonl", "JSON lines of a script"},
		{samples + "vis_data/scalars.json", "MMEngine's LoggerHook"},
		{samples + "lines/own_2gpu.log", "a script of no known program; ownLines has its templates"},
		{samples + "lines/late_4gpu.log", "the same, which checks a pass while the next one runs, so that its line is late"},
		{samples + "mlruns", "MLflow's file store (store/tracking/file_store.py)"},
		{samples + "notebooks/train_2gpu.ipynb", "nbformat 4, with the output of Keras and a table of pandas"},
		{samples + "others/mine-n2-s4", "a program that lockstep launch started"},
		{samples + "runs/unet-n2-s3", "runs.Writer and runs.StepWriter"},
		{samples + "tables/gpu_2gpus.csv", "nvidia-smi --query-gpu … --format=csv"},
		{samples + "tables/history_2gpus.csv", "Keras' CSVLogger"},
		{samples + "tables/joblog", "GNU parallel --joblog"},
		{samples + "tables/mlflow_2gpus.csv", "the CSV export of a metric of MLflow"},
		{samples + "tables/ranks.csv", "a table of a script, with the rows of two ranks"},
		{samples + "tables/results.tsv", "a table of a script, with one row per run"},
		{samples + "tables/wandb_export_8gpus.csv", "the CSV export of a panel of W&B"},
		{samples + "times/gnu_1gpu.log", "Keras, and /usr/bin/time"},
		{samples + "times/gnuonly_2gpus.txt", "/usr/bin/time -v"},
		{samples + "times/seff-7700.txt", "Slurm's seff"},
		{samples + "times/zsh_2gpus.log", "Keras, and zsh's time"},
		{samples + "times/zshonly_4gpus.log", "zsh's time"},
		{samples + "traces/kineto_step", "PyTorch's profiler (libkineto), of rank 3 of 8"},
		{samples + "traces/timeline", "Horovod's timeline, which is not closed"},
		{samples + "traces/engine", "lockstep's own profile of two ranks"},
		{samples + "wandb", "the folder of a run of W&B (wandb/sdk)"},

		{programLogs + "/", "the source of each program, which package textlog names"},

		{samples + "results/page.md", "a page in Markdown with two tables of a script"},
		{samples + "results/weak_2gpu.json", "a JSON object with the result of a script"},
	}
}

// eventSamples returns the files of TensorBoard, which are written by their specification
// (TFRecord, event.proto and summary.proto). next returns values that no other sample has.
func eventSamples(next func() float32) []sample {
	scalars := func(start float64, tag string) []byte {
		var records [][]byte
		for step := range 4 {
			records = append(records, recordtest.EncodeEvent(start+float64(step), step, recordtest.EncodeScalar(tag, next())))
		}
		return recordtest.EncodeEventFile(records...)
	}
	const name = "/events.out.tfevents.1700000000."
	from := "SummaryWriter of PyTorch"
	return []sample{
		{path: "tb/one_4gpus", from: from, files: []sampleFile{{name + "node01.11.0", scalars(1.7e9, "loss")}}},
		{path: "tb/keras", from: "Keras' callback TensorBoard, with the folders train and validation", files: []sampleFile{
			{"/train" + name + "node01.12.0.v2", scalars(1.7e9, "epoch_loss")}, {"/validation" + name + "node01.12.1.v2", scalars(1.7e9, "epoch_loss")},
		}},
		{path: "tb/ranks", from: from + ", one file per rank in one folder", files: []sampleFile{
			{name + "node01.13.0", scalars(1.7e9, "loss")}, {name + "node01.14.0", scalars(1.7e9, "loss")},
		}},
		{path: "tb/siblings", from: from + ", one folder per rank", files: []sampleFile{
			{"/rank0" + name + "node01.15.0", scalars(1.7e9, "loss")}, {"/rank1" + name + "node01.16.0", scalars(1.7e9, "loss")},
		}},
	}
}

// sample is a file or a folder of a known kind. Its decimals are unique among all samples, so
// that each shows from which line of which sample a value was read.
type sample struct {
	path   string // relative to the folder that is read
	from   string
	files  []sampleFile
	unique numbers // its decimals
	rows   []Row   // that are read from the sample alone
	runs   []runs.Run
	kinds  []string // of the files and the runs
}

// sampleFile is a file of a sample.
type sampleFile struct {
	path string // after that of the sample; empty if the sample is this file
	text []byte
}

// shortDecimal matches a number that gets further digits to make it unique, unless it is part of
// a time stamp or of a clock: then the number follows a digit and a colon, which are matched too.
var shortDecimal = regexp.MustCompile(`(?:[0-9]:)?[0-9]+\.[0-9]{2,7}\b`)

// readSamples returns the samples, and what is read from each of them.
func readSamples(t *testing.T) []*sample {
	t.Helper()
	var all []*sample
	serial := 100_000
	for _, source := range sampleSources() {
		list := []*sample{loadSample(t, source)}
		if strings.HasSuffix(source.path, "/") { // each file is a sample
			each := list[0].files
			list = nil
			for _, f := range each {
				list = append(list, &sample{path: f.path[1:], from: source.from, files: []sampleFile{{text: f.text}}})
			}
		}
		for _, s := range list {
			for i := range s.files {
				s.files[i].text = shortDecimal.ReplaceAllFunc(s.files[i].text, func(m []byte) []byte {
					if bytes.IndexByte(m, ':') >= 0 {
						return m
					}
					serial++
					m = strconv.AppendInt(bytes.Clone(m), int64(serial), 10)
					v, err := strconv.ParseFloat(string(m), 64)
					check(t, err)
					s.unique = append(s.unique, v)
					return m
				})
			}
			all = append(all, s)
		}
	}
	for _, s := range eventSamples(func() float32 { serial++; return float32(serial) / (1 << 20) }) {
		for _, f := range s.files {
			s.unique = append(s.unique, numbersInEvents(f.text)...)
		}
		all = append(all, &s)
	}
	for _, s := range all {
		slices.Sort(s.unique)
		s.readAlone(t)
	}
	return all
}

// loadSample returns a sample with its files.
func loadSample(t *testing.T, source sampleSource) *sample {
	t.Helper()
	s := &sample{from: source.from}
	for _, root := range sampleRoots() {
		if rest, ok := strings.CutPrefix(source.path, root+"/"); ok {
			s.path = rest
		}
	}
	check(t, filepath.WalkDir(source.path, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		check(t, err)
		rest := strings.TrimPrefix(path, filepath.Clean(source.path))
		s.files = append(s.files, sampleFile{rest, text})
		return nil
	}))
	return s
}

// sampleRoots returns the folders with samples.
func sampleRoots() []string { return []string{"testdata/tree", "testdata/samples", programLogs} }

// readAlone reads the sample alone.
func (s *sample) readAlone(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "samples") // a name from which a series may be taken
	for _, f := range s.files {
		write(t, dir, map[string]string{s.path + f.path: string(f.text)})
	}
	var logs *Logs
	s.rows, logs, _ = readRows(t, dir)
	s.runs = logs.Runs
	for _, r := range logs.Reports {
		s.kinds = append(s.kinds, r.Kind)
	}
	for _, r := range logs.Runs {
		s.kinds = append(s.kinds, r.Kind)
	}
	if strings.HasPrefix(s.path, "lines/") && len(s.rows) == 0 {
		t.Fatalf("the templates match no line of the sample %s", s.path)
	}
}

// isOfKind reports whether the sample is of one of the kinds.
func (s *sample) isOfKind(kinds []string) bool {
	return slices.ContainsFunc(s.kinds, func(k string) bool { return slices.Contains(kinds, k) })
}

// readRows returns the rows of all kinds, and the logs, of a folder, and the problems of both.
func readRows(t *testing.T, dir string) ([]Row, *Logs, []runs.Problem) {
	t.Helper()
	var rows []Row
	o := Options{Lines: ownLines()}
	logs, err := o.Read(t.Context(), dir)
	for i := len(o.Lines); err != nil && i > 0; i-- { // the folder has no line of a template
		o.Lines = slices.DeleteFunc(o.Lines, func(l string) bool { return strings.Contains(err.Error(), strconv.Quote(l)) })
		logs, err = o.Read(t.Context(), dir)
	}
	check(t, err)
	problems, err := o.Rows(t.Context(), All, []string{dir}, func(r Row) error { rows = append(rows, r); return nil })
	check(t, err)
	return rows, logs, slices.Concat(logs.Problems, problems)
}

// ownLines returns the templates of the sample whose lines are of no known program.
func ownLines() []string {
	return []string{
		"pass {epoch} of {epochs}: objective {train_loss}, took {seconds}s at {samples_per_second} img/s",
		"checked pass {epoch}: objective {val_loss}",
		"scored pass {epoch}: quality {quality}",
	}
}

// TestEachKindHasASample: the table of samples has each file of its folders once, and a sample
// of each kind that is read.
func TestEachKindHasASample(t *testing.T) {
	for _, root := range sampleRoots() {
		check(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			n := 0
			for _, s := range sampleSources() {
				if path == s.path || strings.HasPrefix(path, strings.TrimSuffix(s.path, "/")+"/") {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s is in %d rows of the table of samples, want 1", path, n)
			}
			return nil
		}))
	}
	kinds := map[string]bool{"rows of lockstep read": true} // not read in a folder; see TestReadRows
	memory := false
	for _, s := range readSamples(t) {
		if len(s.files) == 0 {
			t.Errorf("the sample %s has no file", s.path)
		}
		for _, k := range s.kinds {
			name, _, _ := strings.Cut(k, ": ") // Jupyter notebook: the kinds of its cells
			kinds[name] = true
		}
		memory = memory || slices.ContainsFunc(s.runs, func(r runs.Run) bool { return len(r.OutOfMemory) > 0 })
	}
	for _, kind := range append(FormatNames(), files.RunFolderKind, "lines") {
		if !kinds[kind] {
			t.Errorf("no sample is of the kind %q: add one to sampleSources", kind)
		}
	}
	if !memory {
		t.Error("no sample has a message that memory ran out")
	}
}
