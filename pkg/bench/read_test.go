package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/bench/internal/benchtest"
	"lockstep/pkg/logread"
)

// fakePandas speaks the protocol of environment/peers/pandas_logs.py in shell.
// A parse "takes" 1 s; a picture is a file with something in it.
const fakePandas = `
if [ -n "$FAKE_EXIT" ]; then echo "no module named pandas" >&2; exit "$FAKE_EXIT"; fi
echo '{"name": "fake pandas", "threads": 1}'
tab=$(printf '\t')
while IFS=$tab read -r request path picture; do
  if [ -n "$picture" ] && [ -z "$FAKE_BLIND" ]; then echo picture >"$picture"; fi
  echo '{"seconds": 1}'
done
`

func fakeReader(t *testing.T) PeerOptions {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, pandasScript), []byte(fakePandas), 0o644); err != nil {
		t.Fatal(err)
	}
	benchtest.UseTestBinaryAsWorker(t)
	return PeerOptions{Scripts: dir, Python: "sh"}
}

// TestMeasureReading: every measurement gives a record, and nothing is left behind.
func TestMeasureReading(t *testing.T) {
	temporary := t.TempDir()
	o := ReadOptions{Lines: 50, Runs: 20, Megabytes: 1, LongMegabytes: 1, Repeats: 2, Peer: fakeReader(t)}
	t.Setenv("TMPDIR", temporary)
	records, err := MeasureReading(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"parse SC21 log, 50 lines", "parse SC21 log, 50 lines", "SC21 log of 50 lines to a PNG of 4 panels, whole process",
		"parse study CSV, 50 lines", "study CSV of 50 lines to a PNG of 4 panels, whole process",
		"20 runs to the first figure, whole process",
	}
	beside := len(want) - 1 // records that have pandas as their peer
	for _, k := range speedFileKinds() {
		want = append(want, "read "+k.name+", one core")
	}
	for _, k := range memoryFileKinds() {
		want = append(want, "peak memory, "+k.name+" of ")
	}
	if len(records) != len(want) {
		t.Fatalf("%d records: %+v", len(records), records)
	}
	for i, r := range records {
		peer := "required"
		switch {
		case i == 1:
			peer = "fake pandas, str.extract"
		case i < beside:
			peer = "fake pandas"
		}
		if !strings.HasPrefix(r.Name, want[i]) || r.Peer != peer || !(r.Value > 0) || !(r.Ratio > 0) || r.Machine == "" || r.Commit == "" {
			t.Errorf("record %d: %+v", i, r)
		}
		if (r.Target > 0) != (i >= beside) {
			t.Errorf("record %d: target %g, want one unless pandas is the peer", i, r.Target)
		}
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestMeasureReadingErrors(t *testing.T) {
	peer := fakeReader(t)
	o := ReadOptions{Lines: 50, Repeats: 1, Peer: peer}
	t.Setenv("FAKE_BLIND", "1")
	if _, err := MeasureReading(t.Context(), o); err == nil || !strings.Contains(err.Error(), "fake pandas wrote no image") {
		t.Errorf("error %v", err)
	}
	t.Setenv("FAKE_EXIT", "3")
	if _, err := MeasureReading(t.Context(), o); !errors.Is(err, ErrPeerMissing) || !strings.Contains(err.Error(), InstallCommand) {
		t.Errorf("error %v", err)
	}
	for _, bad := range []ReadOptions{{Lines: 1, Repeats: 1}, {Lines: 10}, {Lines: 10, Repeats: 1, Runs: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	for _, request := range []string{"parse", "parse\t/nowhere", "other\ta\tb"} {
		if err := answerReadRequests(t.Context(), strings.NewReader(request+"\n"), io.Discard); err == nil {
			t.Errorf("request %q is accepted", request)
		}
	}
}

// options returns the options to read a file of the kind.
func (k generatedFileKind) options() logread.Options {
	if k.template == "" {
		return logread.Options{}
	}
	return logread.Options{Lines: []string{k.template}}
}

// TestReadFiles: what is generated is read as its kind, as a run of values; the
// same seed gives the same file.
func TestReadFiles(t *testing.T) {
	for _, k := range append(speedFileKinds(), memoryFileKinds()...) {
		path := filepath.Join(t.TempDir(), k.file)
		size := int64(1_000_000)
		if _, err := k.writeFile(path, size); err != nil {
			t.Fatal(err)
		}
		logs, err := k.options().Read(context.Background(), path)
		if err != nil {
			t.Errorf("%s: %v", k.name, err)
			continue
		}
		cut := k.name == "MLPerf log" && len(logs.Problems) == 1 // its run_stop would stand at the end
		if len(logs.Runs) != 1 || len(logs.Problems) > 0 && !cut {
			t.Errorf("%s: %d runs, problems %.500v", k.name, len(logs.Runs), fmt.Sprint(logs.Problems))
			continue
		}
		if r := logs.Runs[0]; len(r.Epochs)+len(r.Curves)+len(r.Trials)+len(r.Spans) == 0 || r.Info.Workers != 4 {
			t.Errorf("%s: %d workers, no value", k.name, r.Info.Workers)
		}
		again := filepath.Join(t.TempDir(), k.file)
		if _, err := k.writeFile(again, size); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(path)
		if got, errAgain := os.ReadFile(again); err != nil || errAgain != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: another file for the same seed: %v, %v", k.name, err, errAgain)
		}
	}
}

// TestEveryFormatIsTimed: each format that logread lists has a kind of file whose reading is
// timed, unless its files are short.
func TestEveryFormatIsTimed(t *testing.T) {
	timed := map[string]bool{}
	for _, k := range speedFileKinds() {
		path := filepath.Join(t.TempDir(), k.file)
		if _, err := k.writeFile(path, 20_000); err != nil {
			t.Fatal(err)
		}
		reports, err := k.options().Explain(t.Context(), path)
		if err != nil || len(reports) != 1 {
			t.Fatalf("%s: %v, %d reports", k.name, err, len(reports))
		}
		timed[reports[0].Kind] = true
	}
	for _, short := range []string{
		"job script", "W&B summary", "W&B metadata", "benchy JSON", "configuration", "MLflow settings", // documents of a run
		"Markdown page", "JSON results", // tables and results that people write by hand or once per run
		"Jupyter notebook",                                                       // most of its bytes are pictures
		"Slurm", "bash time", "GNU time", "zsh time", "seff", "torchrun failure", // a few lines per run
		"sacct",                              // a line per job
		"nccl-tests", "OSU micro-benchmarks", // tables of at most 16,384 rows
	} {
		if timed[short] {
			t.Errorf("%s is timed, but listed as short", short)
		}
		timed[short] = true
	}
	for _, name := range logread.FormatNames() {
		if !timed[name] {
			t.Errorf("no kind of file times the format %q: add one to patternKinds", name)
		}
	}
}

// TestBesideLogs: both logs give the values that the four panels need, and a
// picture of the size that the peer draws.
func TestBesideLogs(t *testing.T) {
	const lines = 404
	for _, l := range comparedLogs() {
		path := filepath.Join(t.TempDir(), l.file)
		if _, err := l.write(path, lines); err != nil {
			t.Fatal(err)
		}
		logs, err := logread.Options{}.Read(t.Context(), path)
		if err != nil || len(logs.Runs) != 1 || len(logs.Problems) > 0 {
			t.Fatalf("%s: %v, %d runs, problems %v", l.name, err, len(logs.Runs), logs.Problems)
		}
		epochs := map[string]int{"SC21 log": (lines - 4) / 4, "study CSV": lines}[l.name]
		r := logs.Runs[0]
		if len(r.Epochs) != epochs || r.Info.Workers != 4 {
			t.Errorf("%s: %d epochs of %d workers, expected %d of 4", l.name, len(r.Epochs), r.Info.Workers, epochs)
		}
		if last := r.Epochs[epochs-1]; !(last.Seconds > 0 && last.TrainLoss > 0 && last.ValLoss > 0) {
			t.Errorf("%s: the last epoch is %+v", l.name, last)
		}
		picture := filepath.Join(t.TempDir(), "four.png")
		if err := drawPanels(path, picture); err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
		f, err := os.Open(picture)
		if err != nil {
			t.Fatal(err)
		}
		size, err := png.DecodeConfig(f)
		if err != nil || size.Width != panelsWidth || size.Height != panelsHeight {
			t.Errorf("%s: a picture of %d by %d, %v", l.name, size.Width, size.Height, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, k := range speedFileKinds() {
		b.Run(strings.ReplaceAll(k.name, " ", "_"), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), k.file)
			size, err := k.writeFile(path, 8_000_000)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(size)
			for b.Loop() {
				if _, err := k.options().Read(context.Background(), path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
