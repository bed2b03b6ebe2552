package textlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/logread/internal/scan"
)

// slowText reads a text without fast paths and returns the result as text.
func slowText(text []byte) string {
	in := &record.Input{Path: "a.log", Reader: bytes.NewReader(text), Size: int64(len(text)), Report: &record.Report{Path: "a.log"}}
	log := newReader(in)
	for {
		line, ok := log.Lines.Next()
		if !ok {
			break
		}
		log.parseLine(line)
	}
	in.Report.Lines = int64(log.Lines.Number)
	return recordtest.FormatParts(log.finish(), in.Report, log.Counts)
}

// fastText reads a text with fast paths, in chunks of at least the given number
// of bytes and by the given number of goroutines, and returns the result as
// text. Each Read returns at most n bytes; 0 means no limit.
func fastText(ctx context.Context, text []byte, least int64, abreast, n int) string {
	var r io.Reader = bytes.NewReader(text)
	if n > 0 {
		r = recordtest.NewSmallReader(r, n)
	}
	in := &record.Input{Path: "a.log", Reader: r, Size: int64(len(text)), Report: &record.Report{Path: "a.log"}, ReaderAt: bytes.NewReader(text), Goroutines: abreast}
	log := newReader(in)
	epochReaderOf(log.Log).minChunk = least
	if err := log.read(ctx); err != nil {
		return err.Error()
	}
	in.Report.Lines, in.Report.Bytes = int64(log.Lines.Number), 0
	return recordtest.FormatParts(log.finish(), in.Report, log.Counts)
}

// sc21Text returns a log with the given number of epochs, numbered from first.
func sc21Text(rng *rand.Rand, first, epochs int) []byte {
	at := time.Date(2021, 11, 12, 0, 32, 26, 118e6, time.UTC)
	var b bytes.Buffer
	line := func(format string, a ...any) {
		at = at.Add(time.Duration(rng.IntN(100_000)-200) * time.Millisecond) // sometimes back, by less than a second
		b.WriteString(at.Format("2006-01-02 15:04:05,000") + " - root - INFO - ")
		fmt.Fprintf(&b, format+"\n", a...)
	}
	if first == 1 {
		line("Configuration name: base")
		line("global_batch_size 64")
	}
	for i := range epochs {
		seconds := 750 + 10*rng.Float64()
		line("Time taken for epoch %d is %v sec, avg %v samples/sec", first+i, seconds, 65536/seconds)
		line("  Avg train loss=%.6f", rng.Float64())
		line("  Avg val loss=%.6f", rng.Float64())
		line("  Total validation time: %v sec", 70+rng.Float64())
	}
	return b.Bytes()
}

// TestEpochLines compares the fast path for epoch lines with the functions of
// the formats. The logs contain other lines and defects, and are read with
// various sizes of reads.
func TestEpochLines(t *testing.T) {
	parts := []string{
		"-", "+", "e5", ".", " ", "  ", ",", ":", "\r", "\t", "x", "_", "nan", "0", "9", "12345678", "12345678901234567890", "\n", "- ", "=",
		" samples/sec", "avg", "\xff", "Avg val loss=0.5", "T",
	}
	lines := []string{
		"", "other", "0: x", "2021-11-12 00:00:00,000 - root - INFO - iteration 7", "2021-13-40 00:32:26,118 - root - INFO -   Avg val loss=0.5",
		"2021-11-12 00:32:26,118 - root - INFO - Configuration name: base", "2021-11-12 00:32:26,118 - root - INFO - Configuration name: other",
		"2030-01-01 00:32:26,118 - root - INFO - Time taken for epoch 1 is 5 sec, avg 2 samples/sec", "2031-01-01 00:32:26,118 - root - INFO -   Avg val loss=0.5",
		"2031-01-01 00:32:26,118 - other - INFO -   Avg val loss=0.5", "2031-01-01 00:32:26,118 INFO Avg val loss=0.5", "2031-01-01 00:32:26,118 Avg val loss=0.5",
		"2031-01-01T00:32:26.118 - root - INFO - Avg val loss=0.5", "2031-01-01 99:99:99,999 - root - INFO - Avg val loss=0.5",
		"021-11-12 00:32:26,118 - root - INFO - Time taken for epoch 77 is 5 sec, avg 2 samples/sec", "3: 2031-01-01 00:32:26,118 - root - INFO - Avg val loss=0.5",
		"2031-01-01 00:32:26,118 - root - INFO - Time taken for epoch 5000 is 0.0 sec, avg 2 samples/sec", "2031-01-01 00:32:26,118 - root - INFO - Time taken for epoch 6000 is 1 sec",
		"2031-01-01 00:32:26,118 - root - INFO - DONE ---- rank 3", "Epoch 1/5", "PyTorch Settings:", "Root Cause (first observed failure):", "Iter #1: 5 img/sec per GPU",
		"2031-01-01 00:32:26,118 - root - INFO -          Avg val loss=0.25",
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 300 {
		text := sc21Text(rng, 1, 40)
		for range rng.IntN(12) * rng.IntN(2) {
			at := rng.IntN(len(text))
			switch rng.IntN(6) {
			case 0:
				text = slices.Insert(text, at, []byte(parts[rng.IntN(len(parts))])...)
			case 1:
				text = slices.Delete(text, at, at+1)
			case 2: // a line between others
				end := at + bytes.IndexByte(text[at:], '\n') + 1
				text = slices.Insert(text, end, []byte(lines[rng.IntN(len(lines))]+"\n")...)
			case 3: // a stretch of it again, or a part of it is missing
				to := min(len(text), at+rng.IntN(1000))
				if rng.IntN(2) == 0 {
					text = slices.Insert(text, to, slices.Clone(text[at:to])...)
				} else {
					text = slices.Delete(text, at, to)
				}
			case 4:
				text = append(text, sc21Text(rng, 1+rng.IntN(2)*rng.IntN(60), 20)...)
			default:
				text[at] = byte(rng.IntN(256))
			}
			if len(text) == 0 {
				text = []byte{'\n'}
			}
		}
		if round%10 == 9 {
			text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
		}
		want := slowText(text)
		for _, n := range []int{0, 1 + rng.IntN(2000)} {
			if got := fastText(t.Context(), text, 0, 1, n); got != want {
				t.Fatalf("round %d, reading %d bytes at a time: %s\n%s", round, n, recordtest.DescribeDifference(got, want), text)
			}
		}
	}
}

// TestEpochLinesAreUsed checks that the fast path reads nearly all lines of a
// log of the usual form.
func TestEpochLinesAreUsed(t *testing.T) {
	text := sc21Text(rand.New(rand.NewPCG(1, 2)), 1, 2000)
	log := newReader(&record.Input{Path: "a.log", Reader: bytes.NewReader(text), Size: int64(len(text)), Report: &record.Report{}})
	if err := log.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if epochReaderOf(log.Log).parsedBytes < int64(len(text))*99/100 {
		t.Errorf("%d of %d bytes were read in usual form", epochReaderOf(log.Log).parsedBytes, len(text))
	}
}

// TestAhead checks that a long log gives the same result whether it is read
// ahead in chunks or not. The logs contain other lines in chunks that are read
// ahead, before the first chunk, and at the beginnings of chunks.
func TestAhead(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	in := func(text []byte, at float64, what string) []byte {
		i := int(at * float64(len(text)))
		i += bytes.IndexByte(text[i:], '\n') + 1
		return slices.Insert(slices.Clone(text), i, []byte(what)...)
	}
	good := sc21Text(rng, 1, 2000)
	stamp := "2031-01-01 00:32:26,118 - root - INFO - "
	for name, text := range map[string][]byte{
		"good":                   good,
		"from 0":                 append(sc21Text(rng, 0, 1500), "end\n"...),
		"torn":                   good[:len(good)-3],
		"another line":           in(good, 0.7, "another\n"),
		"in each piece":          in(in(in(in(good, 0.3, "x\n"), 0.5, "y\n"), 0.7, "z\n"), 0.9, "\n"),
		"many others":            bytes.ReplaceAll(good, []byte("INFO -   Avg v"), []byte("INFO - x\n2021-11-12 00:32:26,118 - root - INFO - Avg v")),
		"an epoch again":         in(good, 0.6, stamp+"Time taken for epoch 7 is 5 sec, avg 2 samples/sec\n"),
		"an epoch far ahead":     in(good, 0.6, stamp+"Time taken for epoch 100000 is 5 sec, avg 2 samples/sec\n"),
		"a run more":             in(good, 0.6, stamp+"Time taken for epoch 1 is 5 sec, avg 2 samples/sec\n"),
		"another heading":        bytes.ReplaceAll(good[:len(good)/2*2], []byte("epoch 1500 is"), []byte("epoch 1500 IS")),
		"half of it other":       append(bytes.Clone(good[:len(good)/2]), bytes.ReplaceAll(good[len(good)/2:], []byte(" root "), []byte(" other "))...),
		"clock back":             in(good, 0.6, "2020-01-01 00:00:00,000 - root - INFO -   Avg val loss=0.5\n"),
		"clock ahead":            in(good, 0.2, "2040-01-01 00:00:00,000 - root - INFO -   Avg val loss=0.5\n"),
		"clock ahead at the end": in(good, 0.999, "2040-01-01 00:00:00,000 - root - INFO -   Avg val loss=0.5\n"),
		"block":                  in(good, 0.4, stamp+"Configuration name: base\n"),
		"other settings":         in(good, 0.4, stamp+"Configuration name: other\n"+stamp+"global_batch_size 9\n"),
		"long line":              in(good, 0.8, strings.Repeat("x", 2*scan.MaxLine)+"\n"),
		"CRLF":                   bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")),
		"CR in one":              in(good, 0.5, "a\rb\n"),
		"missing epochs":         slices.Concat(good[:len(good)/2], []byte("\n"), good[len(good)*3/4:]),
		"twice":                  slices.Concat(good, good),
		"more lines in some":     bytes.ReplaceAll(good, []byte("  Total v"), []byte("  Avg train loss=0.5\n2021-11-12 00:32:26,118 - root - INFO -   Total v")),
		"gaps in numbers":        bytes.ReplaceAll(good, []byte(" epoch 1"), []byte(" epoch 91")),
		"rank":                   in(good, 0.4, "3: x\n"+"3: "+stamp+"Time taken for epoch 3 is 5 sec, avg 2 samples/sec\n"),
	} {
		want := slowText(text)
		for _, abreast := range []int{1, 2, 3, 16} {
			for _, least := range []int64{1 << 11, 1 << 14, 1 << 16} {
				if got := fastText(t.Context(), text, least, abreast, int(least)); got != want {
					t.Errorf("%s, pieces of %d bytes, %d abreast: %s", name, least, abreast, recordtest.DescribeDifference(got, want))
				}
			}
		}
	}
}

// TestAheadTakes checks that every chunk of a log of the usual form is adopted
// without copying its epochs.
func TestAheadTakes(t *testing.T) {
	text := sc21Text(rand.New(rand.NewPCG(3, 4)), 1, 4000)
	in := &record.Input{Path: "a.log", Reader: bytes.NewReader(text), Size: int64(len(text)), Report: &record.Report{}, ReaderAt: bytes.NewReader(text), Goroutines: 4}
	log := newReader(in)
	epochReaderOf(log.Log).minChunk = 1 << 15
	if err := log.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := epochReaderOf(log.Log).ahead
	if a == nil || len(a.chunks) < 8 || a.joined != len(a.chunks) || a.stopped.Load() && log.Lines.Err != nil {
		t.Fatalf("it was not read in pieces: %+v", a)
	}
	epochs := log.Current.Epochs.All[0].Epochs
	if len(epochs) != 4000 || &epochs[0] != &a.epochs[0] {
		t.Errorf("%d epochs, expected 4000, in the room that was made for them", len(epochs))
	}
	if len(a.epochs) > 4000*5/4 {
		t.Errorf("room for %d epochs was made of 4000", len(a.epochs))
	}
	for i, p := range a.chunks {
		if i < len(a.chunks)-1 && p.read != p.to {
			t.Errorf("piece %d of [%d, %d) was read up to %d", i, p.from, p.to, p.read)
		}
	}
	if in.Report.Bytes > int64(len(text)) {
		t.Errorf("%d bytes counted of %d", in.Report.Bytes, len(text))
	}
}

// TestAheadOfShort checks that the short logs of FuzzEpochLines are read in
// chunks, like long logs.
func TestAheadOfShort(t *testing.T) {
	text := sc21Text(rand.New(rand.NewPCG(3, 4)), 1, 90)
	in := &record.Input{Path: "a.log", Reader: recordtest.NewSmallReader(bytes.NewReader(text), 1<<12), Size: int64(len(text)), Report: &record.Report{}, ReaderAt: bytes.NewReader(text), Goroutines: 3}
	log := newReader(in)
	epochReaderOf(log.Log).minChunk = 1 << 10
	if err := log.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	joined := 0
	for _, p := range epochReaderOf(log.Log).ahead.chunks {
		if p.read == p.to {
			joined++
		}
	}
	if joined < 10 {
		t.Errorf("%d of %d pieces were taken, expected more than half of some 20", joined, len(epochReaderOf(log.Log).ahead.chunks))
	}
}

// TestAheadOfFile reads a file whose size has changed, a file with an
// unreadable part, and a file with a canceled context.
func TestAheadOfFile(t *testing.T) {
	text := sc21Text(rand.New(rand.NewPCG(5, 6)), 1, 2000)
	want := slowText(text)
	read := func(ctx context.Context, size int64, at io.ReaderAt) (string, error) {
		in := &record.Input{Path: "a.log", Reader: bytes.NewReader(text), Size: size, Report: &record.Report{Path: "a.log"}, ReaderAt: at, Goroutines: 3}
		log := newReader(in)
		epochReaderOf(log.Log).minChunk = 1 << 14
		if err := log.read(ctx); err != nil {
			return "", err
		}
		in.Report.Lines = int64(log.Lines.Number)
		return recordtest.FormatParts(log.finish(), in.Report, log.Counts), nil
	}
	for _, size := range []int64{int64(len(text)), int64(len(text)) * 3 / 4, int64(len(text)) / 3} { // it has grown since
		if got, err := read(t.Context(), size, bytes.NewReader(text)); err != nil || got != want {
			t.Errorf("a size of %d of %d: %v %s", size, len(text), err, recordtest.DescribeDifference(got, want))
		}
	}
	cut := text[:len(text)*2/3] // it was cut since
	if got, err := read(t.Context(), int64(len(text)), bytes.NewReader(cut)); err != nil || got == "" {
		t.Errorf("a file that was cut: %q, %v", got, err)
	}
	failed := errors.New("disk failed")
	if _, err := read(t.Context(), int64(len(text)), &failingAt{bytes.NewReader(text), int64(len(text)) / 2, failed}); !errors.Is(err, failed) {
		t.Errorf("a disk that fails in the middle: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := read(ctx, int64(len(text)), bytes.NewReader(text)); !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
}

// failingAt is an io.ReaderAt that fails from an offset on, except for the
// short reads that search for the beginning of a chunk.
type failingAt struct {
	r    io.ReaderAt
	from int64
	err  error
}

func (f *failingAt) ReadAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > f.from && len(p) > aheadProbe {
		return 0, f.err
	}
	return f.r.ReadAt(p, at)
}

// TestSamplesOf compares computeSamples with math.Round.
func TestSamplesOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	old := func(seconds, rate float64) int {
		if samples := seconds * rate; samples > 0.5 && samples < 1<<40 && math.Abs(samples-math.Round(samples)) < 1e-9*samples {
			return int(math.Round(samples))
		}
		return 0
	}
	for range 100_000 {
		n := math.Trunc(math.Ldexp(rng.Float64(), rng.IntN(45)))
		seconds := 1000 * rng.Float64()
		for _, rate := range []float64{n / seconds, (n + 0.5) / seconds, math.Nextafter(n/seconds, 0), math.Nextafter((n+0.5)/seconds, 0)} {
			if got, want := computeSamples(seconds, rate), old(seconds, rate); got != want {
				t.Fatalf("%v s × %v: %d, expected %d", seconds, rate, got, want)
			}
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), -1, 0, 0.3, 1 << 41} {
		if got := computeSamples(1, v); got != 0 {
			t.Errorf("%v samples are taken for %d", v, got)
		}
	}
}

// FuzzEpochLines compares the fast path for epoch lines with the functions of
// the formats. The text is placed before, between and after parts of a log of
// the usual form, and after itself, so that its lines are also read by the fast
// path and in chunks.
func FuzzEpochLines(f *testing.F) {
	recordtest.AddSeeds(f, "sc21/base/4GPU/00/out.log", "sc21/pm-crop64-1234567.out", "srun/hep.log", "keras/resnet-501.out", "horovod/synthetic.log")
	rng := rand.New(rand.NewPCG(11, 12))
	good := sc21Text(rng, 1, 30)
	more := sc21Text(rng, 31, 60)
	f.Add(good[:2000])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<13 {
			return
		}
		for _, text := range [][]byte{slices.Concat(good, b, more, b), slices.Concat(b, b, b)} {
			want := slowText(text)
			for _, abreast := range []int{1, 3} {
				if got := fastText(t.Context(), text, 1<<10, abreast, 1<<12); got != want {
					t.Errorf("%d abreast: %s", abreast, recordtest.DescribeDifference(got, want))
				}
			}
		}
	})
}

// TestFastLines compares the fast paths for lines of Keras, of Horovod's
// benchmark and of the ranks' rates with the functions of the formats.
func TestFastLines(t *testing.T) {
	parts := []string{
		"-", "+", "e5", ".", " ", "\r", "x", "nan", "0", "123456789", "\n", ":", "/", "Epoch 1/9", "Epoch 7/9", "Epoch 9/7", "0: ", "[rank1]: ",
		"10/10 - 2s - loss: 0.5", " - 2s - loss: 0.5", "10/10 - 2s - loss: x", "Root Cause (first observed failure):", "PyTorch Settings:",
		"Iter #0: 5 img/sec per GPU", "Iter #7: 5.5 img/sec per CPU", "Total img/sec on 4 GPU(s): 6 +-1", "Number of GPUs: 4",
		"2: 2018-10-07 20:36:09,348 INFO Train samples 32768 time 0s rate 22 samples/s", "2018-10-07 20:36:09,348 INFO Train samples 5 time 1s rate 5 samples/s",
		"2: 2018-10-06 20:36:09.348 INFO Train samples 5 time 1s rate 5 samples/s", "Time taken for epoch 1 is 5 sec",
	}
	for name, line := range map[string]func(b *bytes.Buffer, rng *rand.Rand, i int){
		"Keras": func(b *bytes.Buffer, rng *rand.Rand, i int) {
			fmt.Fprintf(b, "Epoch %d/100\n196/196 - %ds - loss: %.4f - accuracy: %.4f - val_loss: %.4f - lr: 0.001 - 24s/epoch - 121ms/step\n", i+1, rng.IntN(30), rng.Float64(), rng.Float64(), 9*rng.Float64())
		},
		"Keras of two": func(b *bytes.Buffer, rng *rand.Rand, i int) {
			fmt.Fprintf(b, "Epoch %d/100\nEpoch %[1]d/100\n - 24s - loss: %.4f\n - 24s - loss: %.4f\n", i+1, rng.Float64(), rng.Float64())
		},
		"Horovod": func(b *bytes.Buffer, rng *rand.Rand, i int) {
			if i == 0 {
				b.WriteString("Model: ResNet50\nBatch size: 32\nNumber of GPUs: 4\n")
			}
			fmt.Fprintf(b, "Iter #%d: %.1f img/sec per GPU\n", i, 1785+9*rng.Float64())
		},
		"rates": func(b *bytes.Buffer, rng *rand.Rand, i int) {
			seconds := 1400 + rng.Float64()
			fmt.Fprintf(b, "%2d: 2018-10-07 20:36:%02d,%03d INFO Train samples 32768 time %.2fs rate %.4f samples/s\n", i%12, i%60, rng.IntN(1000), seconds, 32768/seconds)
		},
	} {
		rng := rand.New(rand.NewPCG(13, 14))
		for round := range 200 {
			var b bytes.Buffer
			for i := range 60 {
				line(&b, rng, i)
			}
			text := recordtest.Mutate(rng, b.Bytes(), parts)
			want := slowText(text)
			for _, n := range []int{0, 1 + rng.IntN(500)} {
				if got := fastText(t.Context(), text, 0, 1, n); got != want {
					t.Fatalf("%s, round %d, reading %d bytes at a time: %s\n%s", name, round, n, recordtest.DescribeDifference(got, want), text)
				}
			}
		}
	}
}
