package programfile

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// sameEpoch reports whether two epochs are equal bit by bit, so that NaN equals
// NaN.
func sameEpoch(a, b runs.Epoch) bool {
	for _, e := range []*runs.Epoch{&a, &b} {
		for _, v := range []*float64{
			&e.Seconds, &e.SamplesPerSecond, &e.TrainLoss, &e.ValLoss, &e.IoU, &e.Dice, &e.ValSeconds, &e.LearningRate, &e.Accuracy, &e.ValAccuracy,
		} {
			if math.IsNaN(*v) {
				*v = math.Inf(-1)
			}
		}
	}
	return a == b
}

// TestChunks checks that a long table gives the same result, including line
// numbers, whether it is read in chunks or not. The tables have defects at
// various positions.
func TestChunks(t *testing.T) {
	row := func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, "%d,%.6f,%.6f,0.001000,38765.412019,29.629347,0.899849\n", i, 189+float64(i%97)/7, 1/(1+float64(i)))
	}
	const piece = 1 << 20 // bytes from which a file is read in pieces
	const header = ",time_per_epoch,loss,lr,training_time,test_time,iou\n"
	for name, at := range map[string]func(b *bytes.Buffer, i int){
		"good":  row,
		"again": func(b *bytes.Buffer, i int) { row(b, i%70_000) },
		"other totals": func(b *bytes.Buffer, i int) {
			row(b, i)
			fmt.Fprintf(b, "%d,1.5,,0.001,%d.5,3,0.%d\n", i+1_000_000, i/30_000, i/30_000)
		},
		"growing rows": func(b *bytes.Buffer, i int) { fmt.Fprintf(b, "%d,1%s,1,1,1,1,1\n", i, strings.Repeat("0", i/2000)) },
		"shrinking": func(b *bytes.Buffer, i int) {
			fmt.Fprintf(b, "%d,1%s,1,1,1,1,1\n", i, strings.Repeat("0", 60-min(60, i/2000)))
		},
		"damaged": func(b *bytes.Buffer, i int) {
			switch row(b, i); {
			case i%20_011 == 0:
				b.WriteString("1,2\n\n\n")
			case i == 5000: // in the first piece of two or three
				b.WriteString("x" + strings.Repeat("y", 2*scan.MaxLine) + "\r\n")
			case i%10_007 == 0:
				fmt.Fprintf(b, "%d,-1.5,,0.001,1,2,3\r\n", i)
			}
		},
	} {
		var b bytes.Buffer
		b.WriteString(header)
		size := 3 * piece
		if name == "damaged" {
			size = 8 * piece
		}
		for i := 0; b.Len() < size; i++ {
			at(&b, i)
		}
		b.WriteString("77,1.0") // torn
		read := func(abreast int, text []byte) ([]*record.Part, *record.Report) {
			report := &record.Report{Path: "log_4.csv"}
			in := &record.Input{Path: report.Path, Reader: bytes.NewReader(text), Size: int64(len(text)), Report: report, ReaderAt: bytes.NewReader(text), Goroutines: abreast}
			if pieces := in.Split(); (len(pieces) > 1) != (abreast > 1) {
				t.Fatalf("%s: %d pieces for %d goroutines", name, len(pieces), abreast)
			}
			parts, err := readStudyLog(context.Background(), in)
			if err != nil {
				t.Fatal(err)
			}
			report.Bytes = 0
			return parts, report
		}
		texts := [][]byte{b.Bytes()}
		if name == "good" {
			texts = append(texts, append([]byte("\"\"\niou\n"), b.Bytes()...)) // with an unknown header
		}
		for _, text := range texts {
			want, wantReport := read(1, text)
			for _, abreast := range []int{2, 3} {
				got, gotReport := read(abreast, text)
				if len(got) != len(want) || len(got) > 0 && !slices.EqualFunc(got[0].Run.Epochs, want[0].Run.Epochs, sameEpoch) {
					t.Errorf("%s: other epochs in %d pieces", name, abreast)
				}
				if len(got) > 0 && !reflect.DeepEqual(got[0].Run.Info, want[0].Run.Info) && !strings.Contains(fmt.Sprint(want[0].Run.Info.Test), "NaN") {
					t.Errorf("%s: %+v in %d pieces, expected %+v", name, got[0].Run.Info, abreast, want[0].Run.Info)
				}
				if !reflect.DeepEqual(gotReport, wantReport) {
					t.Errorf("%s: %+v in %d pieces, expected %+v", name, gotReport, abreast, wantReport)
				}
			}
		}
	}
}
