package logread

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/record"
)

// benchBytes is the length in bytes of the texts that the benchmarks read: some
// hundred thousand lines, more than fit into the cache of a core.
const benchBytes = 4 << 20

// dense returns the path and the content of a log of one format in which every
// line contains values. This is the slowest case for a reader, since it ignores
// other lines after a few bytes. The numbers have as many digits as the
// programs write (%.6f by pandas for the U-Net study, Python's repr of a
// float32 for Lightning). Only their lengths matter, so a formula generates the
// values.
func dense(name string) (path string, text []byte) {
	var b bytes.Buffer
	line := func(format string, a ...any) { fmt.Fprintf(&b, format, a...) }
	loss := func(i int) float64 { return 2.5/(1+0.01*float64(i%1000)) + float64(i*7919%1000)*1e-5 }
	float32Repr := func(i int) float64 { return float64(float32(loss(i))) }
	at := time.Date(2021, 11, 12, 0, 32, 26, 118e6, time.UTC)
	stamp := func(i int) string {
		return at.Add(time.Duration(i) * 250 * time.Millisecond).Format("2006-01-02 15:04:05,000")
	}
	begin := func(p string, header string) { path = p; b.WriteString(header) }
	for i := 0; b.Len() < benchBytes; i++ {
		switch name {
		case "study CSV":
			if i == 0 {
				begin("log_4.csv", ",time_per_epoch,loss,lr,training_time,test_time,iou\n")
			}
			line("%d,%.6f,%.6f,0.001000,38765.412019,29.629347,0.899849\n", i, 189+loss(i), loss(i))
		case "Lightning metrics":
			if i == 0 {
				begin("metrics.csv", "epoch,step,train_loss,val_acc,val_f1,val_loss\n")
			}
			if i%50 == 49 {
				line("%d,%d,,%v,%v,%v\n", i/50, i, float32Repr(i)/4, float32Repr(i+1)/4, float32Repr(i+2))
			}
			line("%d,%d,%v,,,\n", i/50, i, float32Repr(i))
		case "MLPerf log":
			if i == 0 {
				begin("result_0.txt", "")
				line(`:::MLLOG {"namespace": "", "time_ms": %d, "event_type": "INTERVAL_START", "key": "run_start", "value": null}`+"\n", 1714835509498)
			}
			line(`:::MLLOG {"namespace": "", "time_ms": %d, "event_type": "POINT_IN_TIME", "key": "tracked_stats", "value": {"throughput": %.3f}, "metadata": {"step": %d}}`+"\n",
				1714835509498+250*i, 340+loss(i), i)
		case "DLLogger":
			if i == 0 {
				begin("log.json", "")
			}
			line(`DLLL {"timestamp": "%.6f", "datetime": "2020-04-20 18:24:17.913850", "elapsedtime": "%.6f", "type": "LOG", "step": [%d, %d], "data": {"average_loss": %.6f}}`+"\n",
				1587451057.91385+float64(i)/4, 91.665232+float64(i)/4, i/1000, i%1000, loss(i))
		case "torchtitan":
			if i == 0 {
				begin("llama_8gpu.log", "")
			}
			line("[rank0]:%s - root - INFO - step: %2d  loss: %7.4f  memory: %5.2fGiB(%.2f%%)  tps: %d,%03d  mfu: %.2f%%\n",
				stamp(i), i, loss(i), 30+loss(i), 40+loss(i), 7+i%80, i*7%1000, 35+loss(i))
		case "rates by rank": // of srun -l, 64 ranks
			if i == 0 {
				begin("hep.log", "")
			}
			seconds := 1400 + 10*loss(i)
			line("%*d: %s INFO Train samples 32768 time %.2fs rate %.4f samples/s\n", 2, i%64, stamp(i), seconds, 32768/seconds)
		case "SC21 log":
			if i == 0 {
				begin("out.log", "")
			}
			seconds := 750 + loss(i)
			line("%s - root - INFO - Time taken for epoch %d is %v sec, avg %v samples/sec\n", stamp(4*i), i+1, seconds, 65536/seconds)
			line("%s - root - INFO -   Avg train loss=%.6f\n%[1]s - root - INFO -   Avg val loss=%.6f\n", stamp(4*i+1), loss(i), loss(i+1))
			line("%s - root - INFO -   Total validation time: %v sec\n", stamp(4*i+3), 73+loss(i))
		case "Keras log":
			if i == 0 {
				begin("resnet-501.out", "")
			}
			line("Epoch %d/1000000\n196/196 - %ds - loss: %.4f - accuracy: %.4f - val_loss: %.4f - val_accuracy: %.4f\n",
				i+1, 40+i%10, loss(i), 1/(1+loss(i)), loss(i+1), 1/(1+loss(i+1)))
		case "U-Net study stdout":
			if i == 0 {
				begin("stdout_n1.txt", "")
			}
			line("[INFO] EPOCH: %d/1000000\nTrain loss: %.6f, elapsed time: %.2f\n", i+1, loss(i), 189+loss(i))
		case "Horovod synthetic":
			if i == 0 {
				begin("synthetic.log", "Model: ResNet50\nBatch size: 32\nNumber of GPUs: 8\n")
			}
			line("Iter #%d: %.1f img/sec per GPU\n", i, 1785+loss(i))
		case "plain loss lines":
			if i == 0 {
				begin("main.log", "")
			}
			line("%d %v\n", i+1, float32Repr(i))
		}
	}
	return path, b.Bytes()
}

// BenchmarkText reads dense text logs of each format. MB/s is per second of
// wall time. cpuMB/s is per second of processor time of the complete process,
// including garbage collection, in the best round: the speed of one core on a
// shared machine.
func BenchmarkText(b *testing.B) {
	for _, name := range []string{
		"study CSV", "Lightning metrics", "MLPerf log", "DLLogger", "torchtitan", "rates by rank", "SC21 log", "Keras log", "U-Net study stdout",
		"Horovod synthetic", "plain loss lines",
	} {
		b.Run(name, func(b *testing.B) {
			path, text := dense(name)
			all := files.Formats(nil)
			k := all[len(all)-1] // text logs
			for _, other := range files.Formats(nil) {
				if other.Name == name || other.Name == "CSV table" && name == "Lightning metrics" {
					k = other
				}
			}
			lines := int64(bytes.Count(text, []byte("\n")))
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			best := time.Hour
			for b.Loop() {
				before := processTime()
				report := &record.Report{Path: path, Kind: k.Name}
				parts, err := k.Read(context.Background(), &record.Input{Path: path, Reader: bytes.NewReader(text), Size: int64(len(text)), Report: report})
				if err != nil || len(parts) != 1 || report.Lines != lines || report.LinesUsed < lines-1 || len(report.Unused) > 1 { // MLPerf: no run_stop
					b.Fatalf("%d runs, %d of %d lines used, %v, %v", len(parts), report.LinesUsed, lines, report.Unused, err)
				}
				best = min(best, processTime()-before)
			}
			b.ReportMetric(float64(len(text))/1e6/best.Seconds(), "cpuMB/s")
		})
	}
}

// processTime returns the processor time that the process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSmallFiles reads a folder of 300 logs of 100 lines, for which the cost per file
// counts more than that per line.
func BenchmarkSmallFiles(b *testing.B) {
	dir := b.TempDir()
	for i := range 300 {
		var text bytes.Buffer
		for e := range 50 {
			fmt.Fprintf(&text, "2021-11-12 00:%02d:26,118 - root - INFO - Time taken for epoch %d is %.6f sec, avg 87.38 samples/sec\n", e, e+1, 750+float64(e)/100)
			fmt.Fprintf(&text, "2021-11-12 00:%02d:27,118 - root - INFO -   Avg train loss=0.5%d\n", e, e)
		}
		folder := filepath.Join(dir, fmt.Sprintf("%dGPU/%02d", 1<<(i%6), i/6))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "out.log"), text.Bytes(), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Read(dir); err != nil {
			b.Fatal(err)
		}
	}
}
