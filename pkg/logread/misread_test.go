package logread

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	misreadSeed   = flag.Uint64("misread.seed", 1, "seed of TestNothingIsMisread; 0: the time")
	misreadRounds = flag.Int("misread.rounds", 300, "number of folders that TestNothingIsMisread reads")
)

// sampleFolders returns the folders with samples of the kinds of logs. To test another kind,
// add a file to testdata/samples; the table of derivations lists the values that are not in
// the file as they are shown. Binary files, traces, and formats that are recognized by the
// names of their files (W&B, MLflow) are not among them.
func sampleFolders() []string {
	return []string{"testdata/tree", "testdata/samples", "internal/textlog/testdata/programs"}
}

// sample is a file of a known kind. Its decimals are unique among all samples, so that each
// shows from which line of which sample a value was read.
type sample struct {
	path   string // relative to its folder
	text   []byte
	unique numbers
	rows   []Row  // that are read from the file alone
	kinds  string // of the runs in the file
}

// shortDecimal matches a number that gets further digits to make it unique.
var shortDecimal = regexp.MustCompile(`[0-9]+\.[0-9]{2,7}\b`)

// readSamples returns the samples.
func readSamples(t *testing.T) []sample {
	t.Helper()
	var all []sample
	serial := 100_000
	for _, folder := range sampleFolders() {
		check(t, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			check(t, err)
			name, err := filepath.Rel(folder, path)
			check(t, err)
			s := sample{path: name}
			s.text = shortDecimal.ReplaceAllFunc(text, func(m []byte) []byte {
				serial++
				m = strconv.AppendInt(bytes.Clone(m), int64(serial), 10)
				v, err := strconv.ParseFloat(string(m), 64)
				check(t, err)
				s.unique = append(s.unique, v)
				return m
			})
			slices.Sort(s.unique)
			all = append(all, s)
			return nil
		}))
	}
	for i := range all {
		dir := t.TempDir()
		write(t, dir, map[string]string{all[i].path: string(all[i].text)})
		var logs *Logs
		all[i].rows, logs = readRows(t, dir)
		if strings.HasPrefix(all[i].path, "lines/") && len(all[i].rows) == 0 {
			t.Fatalf("the templates match no line of the sample %s", all[i].path)
		}
		for _, r := range logs.Runs {
			all[i].kinds += r.Kind + "\n"
		}
	}
	return all
}

// readRows returns the rows of all kinds, and the logs, of a folder.
func readRows(t *testing.T, dir string) ([]Row, *Logs) {
	t.Helper()
	var rows []Row
	o := Options{Lines: ownLines()}
	logs, err := o.Read(t.Context(), dir)
	if err != nil { // the folder has no line of the templates
		o = Options{}
		logs, err = o.Read(t.Context(), dir)
	}
	check(t, err)
	_, err = o.Rows(t.Context(), All, []string{dir}, func(r Row) error { rows = append(rows, r); return nil })
	check(t, err)
	return rows, logs
}

// ownLines returns the templates of the sample whose lines are of no known program.
func ownLines() []string {
	return []string{
		"pass {epoch} of {epochs}: objective {train_loss}, took {seconds}s at {samples_per_second} img/s",
		"checked pass {epoch}: objective {val_loss}",
	}
}

// mutatedFile is one or several samples that were mutated into one file.
type mutatedFile struct {
	path, how string
	text      []byte
	lost      bool // lines were removed or mixed, so that a reader that counts lines counts others
}

// mutate returns one to three mutated files, each in a folder of its own.
func mutate(rng *rand.Rand, all []sample) []mutatedFile {
	var files []mutatedFile
	for i := range 1 + rng.IntN(3) {
		a := all[rng.IntN(len(all))]
		f := mutatedFile{path: a.path, how: a.path, text: bytes.Clone(a.text)}
		for range 1 + rng.IntN(2) {
			f.mutate(rng, all)
		}
		f.path = filepath.Join(string(rune('a'+i)), f.path)
		files = append(files, f)
	}
	return files
}

// mutate applies one mutation.
func (f *mutatedFile) mutate(rng *rand.Rand, all []sample) {
	lines := bytes.SplitAfter(f.text, []byte("\n"))
	n := rng.IntN(len(lines))
	other := all[rng.IntN(len(all))]
	switch rng.IntN(6) {
	case 0:
		n := rng.IntN(len(f.text) + 1)
		f.text, f.lost = f.text[:n], true
		f.how += fmt.Sprintf(", cut at byte %d", n)
	case 1:
		f.text, f.lost = bytes.Join(lines[n:], nil), true
		f.how += fmt.Sprintf(", without its first %d lines", n)
	case 2:
		f.text, f.lost = bytes.Join(slices.Delete(lines, n, n+1), nil), true
		f.how += fmt.Sprintf(", without line %d", n+1)
	case 3:
		f.text, f.lost = interleave(rng, f.text, other.text), true
		f.how += ", interleaved with " + other.path
	case 4:
		f.text = append(f.text, other.text...)
		f.how += ", followed by " + other.path
	default:
		names := []string{"n8", "gpu3", "4gpus", "rank1", "log_6", "x_log_12", "job-4711", "g5.12xlarge", "r50", "s1024", "world_size_16", "seed7", "N2_G4", "2026-11-23", "out"}
		name := names[rng.IntN(len(names))]
		if rng.IntN(2) == 0 {
			f.path = filepath.Join(name, f.path)
		} else {
			f.path = filepath.Join(filepath.Dir(f.path), name+filepath.Ext(f.path))
		}
		f.how += ", named " + f.path
	}
}

// interleave mixes the lines of two texts and keeps the order of each.
func interleave(rng *rand.Rand, a, b []byte) []byte {
	x, y := bytes.SplitAfter(a, []byte("\n")), bytes.SplitAfter(b, []byte("\n"))
	var out []byte
	for len(x)+len(y) > 0 {
		if len(y) == 0 || len(x) > 0 && rng.IntN(2) == 0 {
			x, y = y, x
		}
		if len(out) > 0 && len(y[0]) > 0 && out[len(out)-1] != '\n' {
			out = append(out, '\n')
		}
		out, y = append(out, y[0]...), y[1:]
	}
	return out
}

// TestNothingIsMisread reads folders with samples that were cut, mixed, concatenated and
// renamed. Each value that is read must be in a file of its run, or be derived by a rule of
// the table of derivations; it must have the name, epoch, step and rank that it has in the
// sample, and each line must be counted as used, ignored or unused.
func TestNothingIsMisread(t *testing.T) {
	seed := *misreadSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-misread.seed=%d", seed)
	all := readSamples(t)
	for round := range *misreadRounds {
		files := mutate(rand.New(rand.NewPCG(seed, uint64(round))), all)
		dir := t.TempDir()
		for _, f := range files {
			write(t, dir, map[string]string{f.path: string(f.text)})
		}
		rows, logs := readRows(t, dir)
		c := misreadChecker{samples: all, files: files, dir: dir, rows: rows, reports: logs.Reports}
		if wrong := slices.Concat(c.checkLines(), c.checkRows()); len(wrong) > 0 {
			var how []string
			for _, f := range files {
				how = append(how, f.how)
			}
			t.Errorf("round %d of -misread.seed=%d:\n  %s\n%s", round, seed, strings.Join(how, "\n  "), strings.Join(wrong, "\n"))
		}
	}
}

// TestFoundByMutations has the misreadings that TestNothingIsMisread has found.
func TestFoundByMutations(t *testing.T) {
	const rates = "0: 2018-10-07 20:36:09,348 INFO Train samples 100 time 10.00s rate 10.0 samples/s\n1: 2018-10-07 20:36:09,348 INFO Train samples 100 time 10.00s rate 12.0 samples/s\n"
	for name, c := range map[string]struct {
		file, text string
		want, says string
	}{
		"the rate of one of two ranks": {
			"a_2gpu.log", rates + strings.SplitAfter(rates, "\n")[0], "1 22, 2 NaN", "1 of 2 ranks logged the throughput of epoch 2",
		},
		"a lost line of an epoch of SC21": {
			"a_2gpu.log", sc21Lines(10, 100, 0.5) + "2021-11-12 00:39:26,118 - root - INFO -   Avg train loss=0.25\n", "1 100 0.5, 2 100 0.5", "second value of epoch 2",
		},
		"a lost line of an epoch of the study": {
			"a_2gpu.log", "[INFO] EPOCH: 1/3\nTrain loss: 0.5, elapsed time: 9.5\nTrain loss: 0.25, elapsed time: 8.5\n", "1 NaN 0.5", "second training loss of epoch 1",
		},
		"another header with the index of pandas": {"log_2.csv", ",epoch,loss\n0,1,2\n1,2,4\n", "1 NaN 2, 2 NaN 4", "CSV table"},
		"an unusable header of the study":         {"log_2.csv", ",loss\n1,2\n3,4\n", "", "0 of 3 lines used"},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{c.file: c.text})
		logs, err := Options{}.Read(t.Context(), dir)
		check(t, err)
		var got []string
		for _, r := range logs.Runs {
			for _, e := range r.Epochs {
				got = append(got, strings.TrimSuffix(fmt.Sprintf("%d %g %g", e.Epoch, e.SamplesPerSecond, e.TrainLoss), " NaN"))
			}
		}
		if strings.Join(got, ", ") != c.want || !strings.Contains(logs.Reports.String(), c.says) {
			t.Errorf("%s: got %q, want %q\n%s, want %q", name, got, c.want, logs.Reports, c.says)
		}
	}
	run := readOne(t, "a_2gpu.log", "[rank0]: step:  1  loss: 8.5000  memory: 1.00GiB(1.00%)  tps: 100  mfu: 1.00%\n[rank1]: step:  1  loss: 7.5000  memory: 1.00GiB(1.00%)  tps: 110  mfu: 1.00%\n")
	var losses []string
	for _, c := range run.Curves {
		if c.Name == "loss" {
			losses = append(losses, fmt.Sprintf("rank %d: %v", c.Rank, c.Values))
		}
	}
	if got := strings.Join(losses, "; "); got != "rank 0: [8.5]; rank 1: [7.5]" {
		t.Errorf("the curves of two ranks are %s", got)
	}
}
