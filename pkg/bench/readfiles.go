package bench

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The files are generated from a seed, in the formats that programs write.

// A filePieceAppender appends the n-th piece (from 0) of a file to b: a line, a record or a few lines.
type filePieceAppender func(b []byte, rng *rand.Rand, n int) []byte

type generatedFileKind struct {
	name, file string  // a file whose name ends with .gz is compressed
	required   float64 // MB/s
	piece      filePieceAppender
	end        string // text after the last piece
	template   string // of the lines, if no known program writes them
}

func (k generatedFileKind) newParseRequest(path string) string {
	request := requestParse + "\t" + path
	if k.template != "" {
		request += "\t" + k.template
	}
	return request
}

// speedFileKinds returns the kinds of files with a required reading speed.
func speedFileKinds() []generatedFileKind {
	kinds := []generatedFileKind{
		{name: "study CSV", file: "log_4.csv", piece: appendStudyRow},
		{name: "SC21 log", file: "4GPU/out.log", piece: newSC21Appender(8)},
		{name: "SC21 log, gzip", file: "4GPU/out.log.gz", piece: newSC21Appender(8)},
		{name: "SC21 log, epochs alone", file: "4GPU/out.log", piece: newSC21Appender(0)},
		{name: "Keras output", file: "4GPU/keras.out", piece: newPatternAppender("", "Epoch <m>/1000000\n156/156 - 24s - loss: 0.9999 - accuracy: 0.9999 - val_loss: 0.9999 - val_accuracy: 0.9999 - 24s/epoch - 121ms/step\n")},
		{name: "Horovod synthetic", file: "4GPU/horovod.out", piece: newPatternAppender("Model: resnet50\nBatch size: 64\nNumber of GPUs: 4\nRunning benchmark...\n", "Iter #<n>: 1799.9 img/sec per GPU\n")},
		{name: "srun -l", file: "4GPU/srun.out", piece: newPatternAppender("", srunLine("0")+srunLine("1")+srunLine("2")+srunLine("3"))},
		{name: "MLPerf log", file: "4GPU/mlperf.log", piece: newPatternAppender(`:::MLLOG {"namespace": "", "time_ms": 1714835500000, "event_type": "INTERVAL_START", "key": "run_start", "value": null, "metadata": {"file": "train.py", "lineno": 1}}`+"\n",
			`:::MLLOG {"namespace": "", "time_ms": 1714835500400, "event_type": "POINT_IN_TIME", "key": "tracked_stats", "value": {"throughput": 399.999}, "metadata": {"step": <n>}}`+"\n")},
		{name: "DLLogger", file: "4GPU/dllogger.log", piece: newPatternAppender("", `DLLL {"timestamp": "1587451057.81385", "datetime": "2020-04-21 02:24:17.813850", "elapsedtime": "<n>.000000", "type": "LOG", "step": [<e>, <n>], "data": {"average_loss": 0.999999}}`+"\n")},
		{name: "Lightning metrics", file: "4GPU/metrics.csv", piece: appendLightningRow},
		{
			name: "lines of a template", file: "4GPU/out.log", piece: newPatternAppender("", "Epoch <m>: loss 0.9999 time 109.999s, 599.9 samples/sec\n"),
			template: "Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec",
		},
	}
	kinds = append(kinds, patternFileKinds()...)
	for i := range kinds {
		kinds[i].required = textRate
	}
	return append(kinds,
		generatedFileKind{name: "events, scalars alone", file: "4GPU/events.out.tfevents.1", required: scalarsRate, piece: newTensorBoardAppender(0)},
		generatedFileKind{name: "events, records of 4 kB", file: "4GPU/events.out.tfevents.2", required: eventsRate, piece: newTensorBoardAppender(4096)},
	)
}

// srunLine returns a pattern for newPatternAppender: one line of a rank, labeled by srun -l.
func srunLine(rank string) string {
	return rank + ": 2018-10-07 20:36:08,348 INFO Train samples 32768 time 1424.70s rate 23.0000 samples/s\n"
}

// memoryFileKinds returns the kinds of files whose peak memory is measured. The reader skips most of them.
func memoryFileKinds() []generatedFileKind {
	return []generatedFileKind{
		{name: "SC21 log", file: "4GPU/out.log", piece: newSC21Appender(1000)},
		{name: "events", file: "4GPU/events.out.tfevents.1", piece: newTensorBoardAppender(1 << 16)},
	}
}

// writeStudyLog writes a log of the U-Net study, and returns its size in bytes.
func writeStudyLog(path string, rows int) (float64, error) {
	size, err := writeFilePieces(path, appendStudyRow, "", func(n int, _ int64) bool { return n <= rows }) // the first is the header
	return float64(size), err
}

// writeFile writes a file of at least size bytes, and returns the size of its uncompressed content.
func (k generatedFileKind) writeFile(path string, size int64) (int64, error) {
	return writeFilePieces(path, k.piece, k.end, func(_ int, written int64) bool { return written < size })
}

// writeFilePieces writes pieces to a file while more returns true, and then end. Random numbers have the same seed
// in every file. It returns the size of the uncompressed content in bytes.
func writeFilePieces(path string, piece filePieceAppender, end string, more func(n int, written int64) bool) (size int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	var to io.Writer = f
	finish := f.Close
	if strings.HasSuffix(path, ".gz") {
		z := gzip.NewWriter(f)
		to, finish = z, func() error { return errors.Join(z.Close(), f.Close()) }
	}
	w := bufio.NewWriterSize(to, 1<<20)
	rng := rand.New(rand.NewPCG(21, 0))
	var b []byte
	for n := 0; more(n, size); n++ {
		b = piece(b[:0], rng, n)
		size += int64(len(b))
		if _, err := w.Write(b); err != nil {
			return size, errors.Join(err, finish())
		}
	}
	_, err = w.WriteString(end)
	return size + int64(len(end)), errors.Join(err, w.Flush(), finish())
}

// writeSC21Log writes the given number of lines per epoch of a log of the SC21 study, and returns
// its size in bytes.
func writeSC21Log(path string, lines int) (float64, error) {
	size, err := writeFilePieces(path, newSC21Appender(0), "", func(n int, _ int64) bool { return 4*n < lines })
	return float64(size), err
}

// appendStudyRow appends the header if n is 0, else a row.
func appendStudyRow(b []byte, rng *rand.Rand, n int) []byte {
	if n == 0 {
		return append(b, ",time_per_epoch,loss,val_loss,lr,training_time,test_time,iou\n"...)
	}
	loss := 0.05 + 0.5*math.Exp(-float64(n)/10_000)
	return fmt.Appendf(b, "%d,%.6f,%.6f,%.6f,0.001000,18987654.123456,29.629347,0.899849\n",
		n-1, 190+10*rng.Float64(), loss+0.002*rng.Float64(), loss+0.02+0.002*rng.Float64())
}

// newSC21Appender appends the four lines of a header, then alternately linesBetween lines of about a hundred
// bytes and the four lines of one epoch.
func newSC21Appender(linesBetween int) filePieceAppender {
	start := time.Date(2021, 11, 12, 0, 32, 26, 0, time.UTC)
	return func(b []byte, rng *rand.Rand, n int) []byte {
		line := func(format string, a ...any) {
			b = start.Add(time.Duration(n)*time.Second).AppendFormat(b, "2006-01-02 15:04:05,000")
			b = append(fmt.Appendf(append(b, " - root - INFO - "...), format, a...), '\n')
		}
		switch {
		case n == 0:
			line("Configuration name: base")
			line("global_batch_size 64")
			line("world_size 4")
			line("num_epochs 25000")
		case n%(linesBetween+1) != 0:
			line("iteration %08d of the data loader took %.9f sec, queue %03d", n, rng.Float64(), rng.IntN(100))
		default:
			seconds := 700 + rng.Float64()
			line("Time taken for epoch %d is %.13f sec, avg %.14f samples/sec", n/(linesBetween+1), seconds, 65536/seconds)
			line("  Avg train loss=%.6f", rng.Float64())
			line("  Avg val loss=%.6f", rng.Float64())
			line("  Total validation time: %.14f sec", 70+rng.Float64())
		}
		return b
	}
}

// appendLightningRow appends the header if n is 0, else a row of PyTorch Lightning's metrics.
func appendLightningRow(b []byte, rng *rand.Rand, n int) []byte {
	switch {
	case n == 0:
		return append(b, "epoch,step,train_loss,val_acc,val_f1,val_loss\n"...)
	case n%20 == 0:
		return fmt.Appendf(b, "%d,%d,,%v,%v,%v\n", n/20-1, n*50-1, rng.Float32(), rng.Float32(), rng.Float32())
	}
	return fmt.Appendf(b, "%d,%d,%v,,,\n", n/20, n*50-1, rng.Float64())
}

// newTensorBoardAppender appends records of TensorBoard's event files, each with a scalar and, if image > 0, an
// image of that many bytes.
func newTensorBoardAppender(image int) filePieceAppender {
	tags := []string{"Loss/train", "Loss/valid", "Learning Rate", "Avg iters per sec"}
	blob := make([]byte, image)
	table := crc32.MakeTable(crc32.Castagnoli)
	masked := func(b []byte) uint32 {
		crc := crc32.Checksum(b, table)
		return (crc>>15 | crc<<17) + 0xa282ead8 // tensorflow/core/lib/hash/crc32c.h
	}
	var event, summary, value []byte
	field := func(to []byte, n protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, n, protowire.BytesType), b)
	}
	return func(b []byte, rng *rand.Rand, n int) []byte {
		value = field(value[:0], 1, []byte(tags[n%len(tags)]))
		value = protowire.AppendFixed32(protowire.AppendTag(value, 2, protowire.Fixed32Type), math.Float32bits(rng.Float32()))
		summary = field(summary[:0], 1, value)
		if image > 0 {
			for i := 0; i+8 <= len(blob); i += 256 {
				binary.LittleEndian.PutUint64(blob[i:], rng.Uint64())
			}
			value = field(value[:0], 1, []byte("sample"))
			summary = field(summary, 1, field(value, 4, blob))
		}
		event = protowire.AppendFixed64(protowire.AppendTag(event[:0], 1, protowire.Fixed64Type), math.Float64bits(1.7e9+float64(n)))
		event = protowire.AppendVarint(protowire.AppendTag(event, 2, protowire.VarintType), uint64(n))
		event = field(event, 5, summary)
		head := len(b)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(event)))
		b = binary.LittleEndian.AppendUint32(b, masked(b[head:]))
		b = append(b, event...)
		return binary.LittleEndian.AppendUint32(b, masked(event))
	}
}
