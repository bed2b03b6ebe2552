package logread

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// explained reads a folder and returns the report of each file by its name.
func explained(t *testing.T, dir string) (*Logs, map[string]Report) {
	t.Helper()
	logs, err := Options{}.Read(t.Context(), dir)
	check(t, err)
	byName := map[string]Report{}
	for _, r := range logs.Reports {
		name, err := filepath.Rel(dir, r.Path)
		check(t, err)
		byName[name] = r
	}
	return logs, byName
}

// TestCompressed checks that each fixture gives the same result uncompressed
// and in each compression.
func TestCompressed(t *testing.T) {
	plain, err := Options{}.Read(t.Context(), "testdata/tree")
	check(t, err)
	for ending, pack := range compressors() {
		dir := filepath.Join(t.TempDir(), "tree")
		check(t, filepath.WalkDir("testdata/tree", func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			check(t, err)
			name, err := filepath.Rel("testdata/tree", path)
			check(t, err)
			write(t, dir, map[string]string{name + ending: string(pack(t, text))})
			return nil
		}))
		packed, err := Options{}.Read(t.Context(), dir)
		check(t, err)
		if len(packed.Runs) != len(plain.Runs) {
			t.Fatalf("%s: %d runs, expected %d", ending, len(packed.Runs), len(plain.Runs))
		}
		for i, r := range packed.Runs {
			want := plain.Runs[i]
			if r.Kind != want.Kind || r.Info.Series != want.Info.Series || r.Info.Workers != want.Info.Workers || len(r.Epochs) != len(want.Epochs) {
				t.Errorf("%s: %s %s of %d workers and %d epochs, expected %s %s of %d and %d", r.Dir, r.Kind, r.Info.Series, r.Info.Workers, len(r.Epochs),
					want.Kind, want.Info.Series, want.Info.Workers, len(want.Epochs))
			}
		}
		for _, r := range packed.Reports {
			if r.Compression == "" {
				t.Errorf("%s: compression is not in the report", r.Path)
			}
		}
	}
}

// TestPackedFileCut checks that the content of a truncated compressed file is
// read up to its end.
func TestPackedFileCut(t *testing.T) {
	var b strings.Builder
	b.WriteString(strings.SplitAfter(twoRows, "\n")[0])
	for i := range 20000 {
		fmt.Fprintf(&b, "%d,%d.%06d,0.5,0.001,1.0,1.0,0.9\n", i, i%977, i*7919%1000000)
	}
	for ending, pack := range compressors() {
		name := "log_2.csv" + ending
		packed := pack(t, []byte(b.String()))
		dir := t.TempDir()
		write(t, dir, map[string]string{name: string(packed[:len(packed)*3/4])})
		logs, reports := explained(t, dir)
		if len(logs.Runs) != 1 || len(logs.Runs[0].Epochs) < 1000 || len(logs.Runs[0].Epochs) >= 20000 {
			t.Errorf("%s: runs %d, expected one with a part of its epochs", name, len(logs.Runs))
		}
		if text := reports[name].String(); !strings.Contains(text, "the compressed file is truncated") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestCutAnywhere checks that a compressed file that was cut at any byte is
// reported as truncated.
func TestCutAnywhere(t *testing.T) {
	text := []byte(twoRows + "2,1.500000,0.300000,0.001000,1.000000,1.000000,0.900000\n")
	for ending, pack := range compressors() {
		packed := slices.Concat(pack(t, text[:len(twoRows)]), pack(t, text[len(twoRows):])) // two streams
		first := len(pack(t, text[:len(twoRows)]))
		for n := 32; n < len(packed); n++ {
			if n == first {
				continue // a complete file
			}
			dir := t.TempDir()
			write(t, dir, map[string]string{"log_2.csv" + ending: string(packed[:n])})
			_, reports := explained(t, dir)
			if text := reports["log_2.csv"+ending].String(); !strings.Contains(text, "truncated") && !strings.Contains(text, "unexpected EOF") {
				t.Errorf("%s cut to %d of %d bytes: %s", ending, n, len(packed), text)
			}
		}
		run := readOne(t, "log_2.csv"+ending, string(packed))
		if len(run.Epochs) != 3 || len(run.Problems) != 0 {
			t.Errorf("%s: %d epochs, problems %v", ending, len(run.Epochs), run.Problems)
		}
	}
}

// TestZipBomb checks that a file that decompresses to thousands of times its
// size, at least 128 MiB, is neither read to its end nor kept in memory.
func TestZipBomb(t *testing.T) {
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedFastest))
	check(t, err)
	lines := bytes.Repeat([]byte("a line that says nothing, over and over again\n"), 1<<15)
	for range 1 << 8 {
		_, err = z.Write(lines)
		check(t, err)
	}
	check(t, z.Close())
	for name, packed := range map[string][]byte{
		"zstd":  packed.Bytes(),
		"xz":    bytes.Repeat(xzPacked(t, bytes.Repeat(lines, 4)), 1<<6),
		"bzip2": bytes.Repeat(bzip2Packed(t, append(bytes.Repeat([]byte("a"), 1<<15-1), '\n')), 1<<13),
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"job.out": string(packed)})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, reports := explained(t, dir)
		runtime.ReadMemStats(&after)
		r := reports["job.out"]
		if got := after.TotalAlloc - before.TotalAlloc; got > 256<<20 {
			t.Errorf("%s: %d bytes allocated", name, got)
		}
		if !strings.Contains(r.String(), "decompression stopped") || r.Bytes > 128<<20 {
			t.Errorf("%s: %d bytes of content read of %d packed: %s", name, r.Bytes, len(packed), r)
		}
	}
}

// TestXZDictionary checks that an xz file that needs too large a dictionary is
// refused.
func TestXZDictionary(t *testing.T) {
	packed := xzPacked(t, []byte(twoRows))
	const property = 12 + 4 // after the header of the stream, and the size, flags and filter of the block
	packed[property] = 36   // 1 GiB
	dir := t.TempDir()
	write(t, dir, map[string]string{"log_2.csv.xz": string(packed)})
	if _, reports := explained(t, dir); !strings.Contains(reports["log_2.csv.xz"].String(), "unpack xz: got a dictionary of 1024 MiB, want at most 128 MiB") {
		t.Error(reports["log_2.csv.xz"])
	}
}

// TestPickle checks that pickles of each protocol are recognized, reported and
// not run. Running the first one would create a file.
func TestPickle(t *testing.T) {
	dir := t.TempDir()
	trap := filepath.Join(dir, "trap")
	// os.system("touch …"), as pickle protocol 0 writes it.
	text := "cos\nsystem\n(S'touch " + trap + "'\ntR."
	files := map[string]string{
		"history.pkl": text, "log_2.csv": "\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00.", // a pickle that is named as a log
		"model.pt": "PK\x03\x04\x00\x00archive/data.pkl", "old.log": "(dp0\nS'loss'\np1\nF0.5\ns.",
	}
	write(t, dir, files)
	logs, reports := explained(t, dir)
	if len(logs.Runs) > 0 {
		t.Errorf("runs %v", logs.Runs)
	}
	for name := range files {
		if !strings.Contains(reports[name].Skipped, "it is a pickle") {
			t.Errorf("%s: %s", name, reports[name])
		}
	}
	if _, err := os.Stat(trap); !errors.Is(err, os.ErrNotExist) {
		t.Error("the pickle was run")
	}
	if _, _, err := Read(filepath.Join(dir, "history.pkl")); err == nil || !strings.Contains(err.Error(), "export the values as CSV or JSON") {
		t.Errorf("named itself: error %v", err)
	}
}

// TestLinksAndOtherFiles reads a folder with a link cycle, a pipe, a folder
// named like a log, an archive and source code.
func TestLinksAndOtherFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"a/log_2.csv": twoRows, "log_4.csv/log_8.csv": twoRows, "logs.tar": strings.Repeat("\x00", 257) + "ustar\x00" + strings.Repeat("\x00", 300),
		"empty.log": "", "log_16.csv.gz.gz": string(gzipped(t, gzipped(t, []byte(twoRows)))), "photo.png": "\x89PNG\r\n\x1a\n\x00\x00", "notes.md": "# notes\n",
	})
	check(t, os.Symlink(dir, filepath.Join(dir, "a", "loop")))
	check(t, os.Symlink("log_2.csv", filepath.Join(dir, "a", "latest.csv")))
	makePipe(t, filepath.Join(dir, "pipe.log"))
	logs, reports := explained(t, dir)
	var names []string
	for _, r := range logs.Runs {
		names = append(names, strings.TrimPrefix(r.Dir, dir+"/"))
	}
	if d := cmp.Diff([]string{"a/log_2.csv", "log_4.csv/log_8.csv"}, names); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for name, want := range map[string]string{
		"a/loop": "it is a link to a folder that is read as " + dir, "a/latest.csv": "it is a link to a file that is read as " + dir + "/a/log_2.csv", "pipe.log": "neither a file nor a folder",
		"logs.tar": "it is a tar archive", "empty.log": "the file is empty", "log_16.csv.gz.gz": "it is compressed twice", "photo.png": "unknown file format", "notes.md": "unknown file format",
	} {
		if r := reports[name]; !strings.Contains(r.Skipped, want) || len(r.Unused) > 0 {
			t.Errorf("%s: %s, expected %q", name, r, want)
		}
	}
	if len(logs.Problems) > 0 {
		t.Errorf("problems %v", logs.Problems)
	}
	linked, _, err := Read(filepath.Join(dir, "a", "latest.csv")) // named itself, a link is followed
	check(t, err)
	if len(linked) != 1 {
		t.Errorf("got %d runs from the link", len(linked))
	}
}

// TestClockJumps checks that impossible epoch times are not used and that a
// clock that was set back is reported.
func TestClockJumps(t *testing.T) {
	run := readOne(t, "out_2gpu.log", `2021-10-31 02:59:00,000 - root - INFO - Configuration name: base
2021-10-31 02:59:10,000 - root - INFO - Time taken for epoch 1 is 10.0 sec, avg 100.0 samples/sec
2021-10-31 02:00:10,000 - root - INFO - Time taken for epoch 2 is -3540.0 sec, avg -0.3 samples/sec
2021-10-31 02:00:20,000 - root - INFO - Time taken for epoch 3 is 10.0 sec, avg 100.0 samples/sec
`)
	if len(run.Epochs) != 3 || !math.IsNaN(run.Epochs[1].Seconds) || run.Epochs[2].Seconds != 10 {
		t.Fatalf("epochs %+v", run.Epochs)
	}
	want := []string{":3: got an epoch of -3540 s: the clock was set during the epoch", ":3: the clock goes back by 59m0s;"}
	for i, p := range run.Problems {
		if i >= len(want) || !strings.Contains(p.String(), want[i]) {
			t.Errorf("problem %s, expected %q", p, want)
		}
	}
	if len(run.Problems) != len(want) {
		t.Errorf("problems %v", run.Problems)
	}
	study := readOne(t, "log_2.csv", strings.Replace(twoRows, "189.552807", "-3.5", 1))
	if len(study.Problems) != 1 || study.Problems[0].Line != 3 || !math.IsNaN(study.Epochs[1].Seconds) {
		t.Errorf("problems %v, epochs %+v", study.Problems, study.Epochs)
	}
}

// TestTwoRunsInOneFile checks that a run begins at epoch 1, at a new
// configuration, or at a command.
func TestTwoRunsInOneFile(t *testing.T) {
	for name, text := range map[string]string{
		"epochs_2gpu.out":  "Epoch 1/2\n2/2 - 9s - loss: 1.5\nEpoch 2/2\n2/2 - 8s - loss: 1.2\nEpoch 1/2\n2/2 - 7s - loss: x\n2/2 - 6s - loss: 1.0\n",
		"command_2gpu.out": "python a.py\nEpoch 1/1\n2/2 - 9s - loss: 1.5\npython b.py\nEpoch 1/1\n2/2 - 7s - loss: 1.5\n",
		"config_2gpu.out": "2021-11-12 00:32:26,118 - root - INFO - Configuration name: a\n2021-11-12 00:33:26,118 - root - INFO - Time taken for epoch 1 is 9.0 sec, avg 1.5 samples/sec\n" +
			"2021-11-12 00:34:26,118 - root - INFO - Configuration name: b\n2021-11-12 00:35:26,118 - root - INFO - Time taken for epoch 1 is 7.0 sec, avg 1.5 samples/sec\n",
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{name: text})
		found, _, err := Read(dir)
		check(t, err)
		if len(found) != 2 || found[0].Epochs[0].Seconds != 9 || found[1].Epochs[0].Seconds != 7 {
			t.Errorf("%s: %d runs: %+v", name, len(found), found)
			continue
		}
		if found[0].Dir != filepath.Join(dir, name) || found[1].Dir != filepath.Join(dir, name)+"#2" {
			t.Errorf("%s: runs at %s and %s", name, found[0].Dir, found[1].Dir)
		}
	}
}

// TestLineEnds checks that each fixture gives the same result with Windows line
// endings.
func TestLineEnds(t *testing.T) {
	plain, err := Options{}.Read(t.Context(), "testdata/tree")
	check(t, err)
	dir := filepath.Join(t.TempDir(), "tree")
	check(t, os.CopyFS(dir, os.DirFS("testdata/tree")))
	check(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		check(t, err)
		return os.WriteFile(path, bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")), 0o644)
	}))
	windows, err := Options{}.Read(t.Context(), dir)
	check(t, err)
	if len(windows.Runs) != len(plain.Runs) || len(windows.Problems) != len(plain.Problems) {
		t.Fatalf("%d runs and %d problems, expected %d and %d", len(windows.Runs), len(windows.Problems), len(plain.Runs), len(plain.Problems))
	}
	for i, r := range windows.Runs {
		want := plain.Runs[i]
		if fmt.Sprint(r.Epochs) != fmt.Sprint(want.Epochs) || fmt.Sprint(r.Trials) != fmt.Sprint(want.Trials) || fmt.Sprint(r.Curves) != fmt.Sprint(want.Curves) {
			t.Errorf("%s differs:\n%v\n%v", r.Dir, r.Epochs, want.Epochs)
		}
	}
}

// TestTornEnd checks that a last line without a line end is used only if it is
// known to be complete.
func TestTornEnd(t *testing.T) {
	for _, c := range []struct {
		text   string
		epochs int
		says   string
	}{
		{"Epoch 1/2\n2/2 - 9s - loss: 1.5\nEpoch 2/2\n2/2 - 8s - loss: 1.2", 1, "last line is torn"},
		{"2021-11-12 00:33:26,118 - root - INFO - Time taken for epoch 1 is 9.0 sec, avg 1.5 samples/sec", 1, ""},
		{"2021-11-12 00:33:26,118 - root - INFO - Time taken for epoch 1 is 9.0 sec, avg 1.5 samples/sec\n2021-11-12 00:33:26,118 - root - INFO - Time taken for epoch 2 is 9.", 1, "last line is torn"},
	} {
		run := readOne(t, "job_2gpu.out", c.text)
		if len(run.Epochs) != c.epochs || (c.says == "") != (len(run.Problems) == 0) || c.says != "" && !strings.Contains(run.Problems[0].Reason, c.says) {
			t.Errorf("%q: %d epochs, problems %v", c.text, len(run.Epochs), run.Problems)
		}
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, path := range []string{"testdata/tree", "testdata/tree/sc21/base/4GPU/00/out.log"} {
		if _, err := (Options{}).Read(ctx, path); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", path, err)
		}
	}
}
