package table

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
)

// lightningText reads a table of Lightning, with the fast path or with readRow
// for each row, and returns the result as text.
func lightningText(text []byte, usual bool, n int) string {
	var source io.Reader = bytes.NewReader(text)
	if n > 0 {
		source = recordtest.NewSmallReader(source, n)
	}
	in := &record.Input{Path: "metrics.csv", Reader: source, Size: int64(len(text)), Report: &record.Report{Path: "metrics.csv"}}
	r := newTableReader(in, nil)
	if err := r.begin(); err != nil {
		return err.Error()
	}
	if err := r.readLines(context.Background(), usual); err != nil {
		return err.Error()
	}
	parts := r.finish()
	return recordtest.FormatParts(parts, in.Report, [2]int64{})
}

func lightningTable(rng *rand.Rand, rows int) []byte {
	b := bytes.NewBufferString("epoch,step,train_loss,val_acc,val_f1,val_loss\n")
	for i := range rows {
		switch {
		case i%20 == 19:
			fmt.Fprintf(b, "%d,%d,,%v,%v,%v\n", i/20, i*50, rng.Float32(), rng.Float32(), rng.Float32())
		case i%50 == 7:
			fmt.Fprintf(b, "%d,%d,,,%v,\n", i/20, i*50, rng.Float32())
		default:
			fmt.Fprintf(b, "%d,%d,%v,,,\n", i/20, i*500_000, rng.Float64())
		}
	}
	return b.Bytes()
}

// TestFastRows compares the fast path for Lightning's rows with readRow.
func TestFastRows(t *testing.T) {
	parts := []string{",", ",,", "-", "e5", ".", " ", "\r", "x", "nan", "0", "123456789", "12345678901234567", "\n", "5,5,0.5,,,", "1,,0.5,,,", ",5,0.5,,,", "7,7,,0.5,,"}
	rng := rand.New(rand.NewPCG(15, 16))
	for round := range 400 {
		text := recordtest.Mutate(rng, lightningTable(rng, 100), parts)
		want := lightningText(text, false, 0)
		for _, n := range []int{0, 1 + rng.IntN(500)} {
			if got := lightningText(text, true, n); got != want {
				t.Fatalf("round %d, reading %d bytes at a time: %s\n%s", round, n, recordtest.DescribeDifference(got, want), text)
			}
		}
	}
}

// TestFastRowsAfterLaterEpoch checks that values of the fast path belong to their epoch if a
// row of another form adds a later epoch, which can move the epochs in memory.
func TestFastRowsAfterLaterEpoch(t *testing.T) {
	b := bytes.NewBufferString("epoch,step,train_loss,val_acc,val_f1,val_loss\n")
	for i := range 300 {
		fmt.Fprintf(b, "%d,%d,0.5,,,\n%d,%d, 0.75,,,\n%d,%d,0.%d,,,\n", i, 3*i, i+1, 3*i+1, i, 3*i+2, i+1)
	}
	if got, want := lightningText(b.Bytes(), true, 0), lightningText(b.Bytes(), false, 0); got != want {
		t.Error(recordtest.DescribeDifference(got, want))
	}
}

// FuzzFastRows compares the fast path for Lightning's rows with readRow.
func FuzzFastRows(f *testing.F) {
	recordtest.AddSeeds(f, "lightning/version_0/metrics.csv")
	f.Add(lightningTable(rand.New(rand.NewPCG(1, 2)), 50))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<14 {
			return
		}
		_, rows, _ := bytes.Cut(b, []byte("\n"))
		text := slices.Concat(b, rows, rows)
		if got, want := lightningText(text, true, 0), lightningText(text, false, 0); got != want {
			t.Error(recordtest.DescribeDifference(got, want))
		}
	})
}
