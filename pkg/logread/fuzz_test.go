package logread

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"lockstep/pkg/runs"
)

// kindNamed is the kind of that name.
func kindNamed(t testing.TB, name string) kind {
	t.Helper()
	for _, k := range kinds() {
		if k.name == name {
			return k
		}
	}
	t.Fatalf("no kind %q", name)
	return kind{}
}

// fuzzKind reads text as the kind of that name and checks what holds of every
// reader: it ends, its problems name lines that are there, its epochs are in
// themselves good, and what it keeps is in proportion to what it read.
func fuzzKind(t *testing.T, name, path string, text []byte) []*part {
	t.Helper()
	k := kindNamed(t, name)
	report := &Report{Path: path, Kind: name}
	in := &input{path: path, r: bytes.NewReader(text), size: int64(len(text)), report: report}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	parts, err := k.read(context.Background(), in)
	runtime.ReadMemStats(&after)
	if err != nil && len(parts) > 0 {
		t.Errorf("runs and an error: %v", err)
	}
	// A reader may allocate its buffers and, over the whole reading, some
	// hundred bytes for each byte of a short line; never more by orders.
	if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20+1000*uint64(len(text)) {
		t.Errorf("%d bytes allocated to read %d", got, len(text))
	}
	lines := bytes.Count(text, []byte("\n")) + 1
	for _, p := range report.Unused {
		if p.Line < 0 || p.Line > lines || p.File != path || p.Reason == "" {
			t.Errorf("problem %v of a file of %d lines", p, lines)
		}
	}
	if len(report.Unused) > maxUnused || len(report.Ignored) > maxIgnored {
		t.Errorf("%d problems, %d reasons", len(report.Unused), len(report.Ignored))
	}
	if name == textKind && report.LinesUsed+report.LinesIgnored() > report.Lines {
		t.Errorf("%d lines used and %d ignored, of %d", report.LinesUsed, report.LinesIgnored(), report.Lines)
	}
	if report.LinesUsed < 0 || report.Lines > int64(lines) || report.LinesUsed > report.Lines {
		t.Errorf("%d of %d lines used, the file has %d", report.LinesUsed, report.Lines, lines)
	}
	kept := 0
	for _, p := range parts {
		p.report = report
		p.run.File, p.run.Dir = path, path
		checkRun(t, p.run, lines)
		kept += keptBytes(p.run)
	}
	if kept > 1<<16+100*len(text) {
		t.Errorf("%d bytes kept of %d", kept, len(text))
	}
	m := &merger{root: "."}
	m.merge(parts)
	return parts
}

// checkRun says what holds of every run that was read.
func checkRun(t *testing.T, run runs.Run, lines int) {
	t.Helper()
	seen := map[int]bool{}
	for _, e := range run.Epochs {
		if e.Epoch < 0 || seen[e.Epoch] || e.Line > lines || e.Samples < 0 {
			t.Errorf("epoch %+v of a file of %d lines, again %v", e, lines, seen[e.Epoch])
		}
		seen[e.Epoch] = true
	}
	for _, c := range run.Curves {
		if len(c.Steps) != len(c.Values) || c.Times != nil && len(c.Times) != len(c.Steps) {
			t.Errorf("curve %s: %d steps, %d values, %d times", c.Name, len(c.Steps), len(c.Values), len(c.Times))
		}
	}
	if run.Info.Workers < 0 || run.Info.Workers > maxWorkers {
		t.Errorf("%d workers", run.Info.Workers)
	}
}

// keptBytes is about how much memory a run holds.
func keptBytes(run runs.Run) int {
	const epoch, span, trial = 15 * 8, 10 * 8, 9 * 8 // bytes of each struct
	n := len(run.Epochs)*epoch + len(run.Spans)*span + len(run.Trials)*trial
	for _, c := range run.Curves {
		n += 64 + len(c.Name) + 8*(cap(c.Steps)+cap(c.Values)+cap(c.Times))
	}
	for k := range run.Info.Config {
		n += 48 + len(k)
	}
	return n + len(run.Info.Error)
}

// seed adds the fixtures to the corpus.
func seed(f *testing.F, fixtures ...string) {
	f.Helper()
	for _, name := range fixtures {
		text, err := os.ReadFile(filepath.Join("testdata", "tree", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)/2])
		f.Add(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")))
	}
}

func FuzzReadStudy(f *testing.F) {
	f.Add([]byte(twoRows))
	f.Add([]byte("\"\"\n"))
	f.Add([]byte("\"\"\nme_per_epoch,loss,lr,training_time,test_time,iou\n0,1.0,,,,,\n"))
	f.Add([]byte(",loss,accuracy,val_loss,val_accuracy,lr,training_time,ranks\n0,0.5,0.8,0.6,0.7,0.001,100.0,1e300\n"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, studyKind, "log_2.csv", text) })
}

func FuzzReadStudyOutput(f *testing.F) {
	seed(f, "unet/stdout_n1.txt")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, textKind, "stdout_n1.txt", text) })
}

func FuzzReadSC21(f *testing.F) {
	seed(f, "sc21/base/4GPU/00/out.log", "sc21/pm-crop64-1234567.out")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, textKind, "out.log", text) })
}

func FuzzReadBenchy(f *testing.F) {
	seed(f, "sc21/trials/baseline_1gpu.out")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, textKind, "out.log", text) })
}

func FuzzReadBenchyJSON(f *testing.F) {
	seed(f, "sc21/trials/benchy.json")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, benchyKind, "benchy.json", text) })
}

func FuzzReadKeras(f *testing.F) {
	seed(f, "keras/resnet-501.out", "keras/1/horovod_gpus-2.log")
	const bar = "\x1b[1m9/9\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 245ms/step - accuracy: 0.25 - loss: 2.0000\n"
	f.Add([]byte("Epoch 1/2\n" + bar + bar + "Epoch 2/2\n9/9 - 0s - loss: 1.0\n9/9 - 1s - loss: 1.0 - val_loss: 2.0\n" + bar + bar))
	f.Add([]byte("5/5 - 1s - loss: 1.0\nEpoch 1/1\nEpoch 1/1\n9/9 - 1s - loss: 1.0\n9/9 - 1s - loss: 1.0\n5/5 - 1s - loss: 1.0\n5/5 - 1s - loss: 1.0\nEpoch 1/1\n9/9 - 1s - loss: 1.0\n5/5 - 1s - loss: 1.0\n"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, textKind, "job-501.out", text) })
}

func FuzzReadBashTime(f *testing.F) {
	seed(f, "slurm/resnet50-2001.out", "slurm/resnet50_n16.out")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, textKind, "job-2001.out", text) })
}

func FuzzReadRates(f *testing.F) {
	seed(f, "srun/hep.log")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, textKind, "hep.log", text) })
}

func FuzzReadHorovod(f *testing.F) {
	seed(f, "horovod/synthetic.log")
	f.Add([]byte("Model: a\nBatch size: 5\nTotal img/sec on 2 GPU(s): 11.0 +-0.5\nModel: b\nBatch size: 5\nreal 0m5s\nBatch size: 5\n"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, textKind, "synthetic.log", text) })
}

func FuzzReadMLPerf(f *testing.F) {
	seed(f, "mlperf/result_0.txt")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, textKind, "result_0.txt", text) })
}

func FuzzReadDLLogger(f *testing.F) {
	seed(f, "dllogger/log_8gpu.json")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, textKind, "log.json", text) })
}

func FuzzReadLightning(f *testing.F) {
	seed(f, "lightning/version_0/metrics.csv")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, lightningKind, "metrics.csv", text) })
}

func FuzzReadConfiguration(f *testing.F) {
	seed(f, "lightning/version_0/hparams.yaml")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, hparamsKind, "hparams.yaml", text) })
}

func FuzzReadHuggingFace(f *testing.F) {
	seed(f, "hf/trainer_state.json", "hf/checkpoint-100/trainer_state.json")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, huggingKind, "trainer_state.json", text) })
}

func FuzzReadSacct(f *testing.F) {
	seed(f, "slurm/accounting.txt")
	f.Add([]byte("JobID|State|Elapsed\n42_1|FAILED|00:02:00\n42_[2-9]|PENDING|00:00:00\n43|PENDING|00:00:00\n43|COMPLETED|00:01:00\n43|PENDING|00:00:00\n"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, sacctKind, "sacct.txt", text) })
}

func FuzzReadTorchrun(f *testing.F) {
	f.Add([]byte("0: [default1]:[titan] 2021-11-12 00:32:26,118 - root - INFO - step:  1  loss:  8.1\n5000: [default2000]:Epoch 1/1\n1: [rank7]: [titan] step: 2 loss: 1\n[prterun-a-1@1,3]<stdout>:Epoch 1/1\n"))
	seed(f, "torchrun/ddp_4gpus.log", "titan/llama_8gpu.log")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, textKind, "ddp.log", text) })
}

func FuzzReadPlain(f *testing.F) {
	seed(f, "plain/4gpu/main.log")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzKind(t, plainKind, "main.log", text) })
}

// FuzzLines: the lines are those that bytes.Split gives, whatever the chunks.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nc"), 3)
	f.Add(bytes.Repeat([]byte("0123456789"), 1000), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		if size < 1 || size > 1<<12 {
			return
		}
		l := newLines(&small{bytes.NewReader(text), size}, int64(size))
		l.buf = l.buf[:min(size, len(l.buf))]
		var got []string
		for {
			line, ok := l.next()
			if !ok {
				break
			}
			got = append(got, string(line))
		}
		var want []string
		for line := range bytes.Lines(text) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			want = append(want, string(bytes.TrimSuffix(line, []byte("\r"))))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, expected %q", got, want)
		}
	})
}

// small reads at most n bytes at once.
type small struct {
	r io.Reader
	n int
}

func (s *small) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }

// FuzzDecimal: what the short way reads is what strconv reads.
func FuzzDecimal(f *testing.F) {
	for _, text := range []string{"752.9529612064362", "-0.001", "+5.", ".5", "9007199254740993", "1e5", "1.5.2", "00.10", "1_0", "0x1"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, n := decimal(text)
		if n == 0 {
			return
		}
		want, err := strconv.ParseFloat(string(text[:n]), 64)
		if err != nil || math.Float64bits(want) != math.Float64bits(v) {
			t.Errorf("%q: %v, expected %v, %v", text[:n], v, want, err)
		}
	})
}

func FuzzParsePattern(f *testing.F) {
	f.Add("log_hvd_{workers}.csv=PyTorch Horovod", "a/log_hvd_12.csv")
	f.Add("{series}/{workers}GPU/**/r{rank}_s{seed}.log.gz=x {series}", "base/4GPU/00/r3_s1.log.gz")
	f.Fuzz(func(t *testing.T, text, path string) {
		p, err := ParsePattern(text)
		if err != nil {
			return
		}
		if p.String() != text {
			t.Errorf("%q prints as %q", text, p)
		}
		p.match(path)
	})
}

// FuzzContent: whatever a file holds, packed or not, it is read within bounds.
func FuzzContent(f *testing.F) {
	for _, pack := range []func(testing.TB, []byte) []byte{gzipped, zstded} {
		packed := pack(f, []byte(twoRows))
		f.Add(packed)
		f.Add(packed[:len(packed)/2])
	}
	f.Add([]byte("\x80\x04\x95\x00."))
	f.Add([]byte("PK\x03\x04archive/data.pkl"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "log_2.csv")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, _ = Read(path) // an error says that the file is of no known kind
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 512<<20 { // zstd may claim its window
			t.Errorf("%d bytes allocated to read %d", got, len(text))
		}
	})
}
