package textlog

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// TestShapes compares lines that are read by their learned shape with the same
// lines read by the functions of the formats. For the latter, so many lines
// without a shape precede each line that no shape is learned.
func TestShapes(t *testing.T) {
	parts := []string{"-", "+", "e5", ".", ".5", " ", "\"", "\\", "x", "_", "nan", "1e999", "12345678901234567890", "0.12345678901234567", ",", "}", "]", "null", "true", "- ", ": "}
	for name, line := range map[string]string{
		"keras":        "196/196 - 24s - loss: 0.1234 - accuracy: 0.5 - val_loss: 1.5 - val_acc: 0.25 - lr: 0.001 - 24s/epoch - 121ms/step",
		"keras 3":      "10/10 - 49s - 245ms/step - accuracy: 0.2506 - loss: 2.0408",
		"keras bar":    "10/10 [=====] - 49s 245ms/step - loss: 2.0408 - top_5: 0.25",
		"keras 1":      " - 890ms - loss: 1.9173 - acc: 0.2980 - val_loss: 1.6662",
		"MLPerf":       `:::MLLOG {"namespace": "", "time_ms": 1714835509498, "event_type": "POINT_IN_TIME", "key": "tracked_stats", "value": {"throughput": 341.957, "2": 7, "text": "7"}, "metadata": {"step": 1, "first_epoch_num": 3, "lineno": 20, "file": "a.py"}}`,
		"DLLogger":     `DLLL {"timestamp": "1587451057.91385", "datetime": "2020-04-21 02:24:17", "elapsedtime": "91.665232", "type": "LOG", "step": [0, 0, 100], "data": {"average_loss": 3.62, "lr": "0.5", "none": null}}`,
		"DLLogger int": `DLLL {"data": {"a": 1, "b": 2}, "step": [ 3 , 4 ], "type": "LOG", "timestamp": 15}`,
	} {
		rng := rand.New(rand.NewPCG(5, 6))
		var lines []string
		for range 3000 {
			b := []byte(line)
			for i, c := range b { // other digits, so that no two lines are the same
				if scan.IsDigit(c) && rng.IntN(3) == 0 && i > 0 && b[i-1] != '"' && b[i-1] != '_' {
					b[i] = byte('0' + rng.IntN(10))
				}
			}
			if strings.HasPrefix(name, "keras") && name != "keras 1" {
				copy(b, line[:7])
			}
			for range rng.IntN(3) * rng.IntN(2) * rng.IntN(2) {
				at := rng.IntN(len(b))
				if rng.IntN(2) == 0 {
					b = slices.Insert(b, at, []byte(parts[rng.IntN(len(parts))])...)
				} else {
					b = slices.Delete(b, at, at+1)
				}
			}
			lines = append(lines, string(b))
		}
		text := strings.Join(lines, "\n") + "\n"
		with, without := readShapeLog(text, true), readShapeLog(text, false)
		hits := 0
		for _, f := range formatsWithShapes() {
			hits += with.ShapesOf(f).Hits
		}
		got := 0
		for _, f := range formatsWithShapes() {
			got += without.ShapesOf(f).Hits
		}
		if got > 0 || hits < 500 {
			t.Errorf("%s: %d lines of a known shape, and %d where none is learned; expected 500 or more and none", name, hits, got)
		}
		if got, want := shapeLogResult(with), shapeLogResult(without); got != want {
			t.Errorf("%s: got\n%.2000s\nexpected\n%.2000s", name, got, want)
		}
	}
}

// readShapeLog reads a log, with or without learning shapes.
func readShapeLog(text string, learn bool) *reader {
	in := &record.Input{Path: "a.log", Reader: strings.NewReader(text), Size: int64(len(text)), Report: &record.Report{Path: "a.log"}}
	log := newReader(in)
	if !learn {
		for _, f := range formatsWithShapes() {
			log.ShapesOf(f).Learned = 1 << 30
		}
	}
	for {
		line, ok := log.Lines.Next()
		if !ok {
			return log
		}
		log.parseLine(line)
	}
}

// FuzzShapes compares lines that are read by their learned shape with the same
// lines read by the functions of the formats. Each text is read twice, so that
// its lines have shapes the second time.
func FuzzShapes(f *testing.F) {
	recordtest.AddSeeds(f, "keras/resnet-501.out", "keras/1/horovod_gpus-2.log", "mlperf/result_0.txt", "dllogger/log_8gpu.json", "srun/hep.log")
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<15 {
			return
		}
		text := string(b) + "\n" + string(b)
		if got, want := shapeLogResult(readShapeLog(text, true)), shapeLogResult(readShapeLog(text, false)); got != want {
			t.Errorf("got\n%.2000s\nexpected\n%.2000s", got, want)
		}
	})
}

func shapeLogResult(log *reader) string {
	var b strings.Builder
	for _, p := range log.finish() {
		if test := p.Run.Info.Test; test != nil {
			fmt.Fprintln(&b, *test)
			p.Run.Info.Test = nil
		}
		fmt.Fprintln(&b, p.Run)
	}
	fmt.Fprintln(&b, *log.In.Report, log.Counts)
	return b.String()
}

// TestShapesGiveUp checks that only a limited number of shapes is learned from
// a log whose lines do not resemble each other.
func TestShapesGiveUp(t *testing.T) {
	var b bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&b, "1/1 - 1s - loss: 0.5 - name%d: 0.5\n", i)
	}
	report := &record.Report{Path: "a.log"}
	parts, err := readFile(context.Background(), &record.Input{Path: "a.log", Reader: &b, Report: report})
	if err != nil || len(parts) != 1 || len(parts[0].Run.Epochs) != 1000 {
		t.Fatalf("%d runs, %v", len(parts), err)
	}
	var s scan.ShapeCache
	for i := range 1000 {
		if line := fmt.Appendf(nil, "x%d", i); s.Match(line) == nil {
			s.Keep(s.Learn(line))
		}
	}
	if s.Hits != 0 || s.Learned > 100 {
		t.Errorf("%d hits, %d shapes learned", s.Hits, s.Learned)
	}
}

// formatsWithShapes returns the formats that read frequent lines by their shapes.
func formatsWithShapes() []logline.FormatID {
	return []logline.FormatID{logline.Keras, logline.MLPerf, logline.DLLogger}
}
