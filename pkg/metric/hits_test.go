package metric_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"lockstep/pkg/metric"
)

func ExampleHits() {
	// Three samples of three classes: the first two are guessed right.
	logits := []float32{2, 1, 0, 0, 3, 1, 5, 1, 2}
	h, err := metric.CountClasses(logits, []float32{0, 1, 1}, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("accuracy %.3f, always the most frequent class %.3f\n", h.Accuracy(), h.ConstantAccuracy())
	// Output: accuracy 0.667, always the most frequent class 0.667
}

// TestHits: counts of shards add up to those of the whole, whatever the split.
func TestHits(t *testing.T) {
	nan := float32(math.NaN())
	logits := []float32{1, 1, 0, 2, nan, 3, nan, nan, -1, 0, 0, 0}
	target := []float32{0, 1, 1, 1} // ties go to the first class; NaN is no guess but where nothing else is
	whole, err := metric.CountClasses(logits, target, 3)
	if err != nil {
		t.Fatal(err)
	}
	if whole.Right != 1 || whole.Total() != 4 || whole.Accuracy() != 0.25 || whole.ConstantAccuracy() != 0.75 {
		t.Errorf("got %+v, accuracy %g, constant %g", whole, whole.Accuracy(), whole.ConstantAccuracy())
	}
	for cut := range 5 {
		sum := make([]float64, 4)
		for _, part := range [][2]int{{0, cut}, {cut, 4}} {
			h, err := metric.CountClasses(logits[3*part[0]:3*part[1]], target[part[0]:part[1]], 3)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range h.Slice() {
				sum[i] += v
			}
		}
		if got := metric.HitsFromSlice(sum); fmt.Sprint(got) != fmt.Sprint(whole) {
			t.Errorf("cut at %d: %+v, want %+v", cut, got, whole)
		}
	}
	for _, c := range []struct {
		logits, target []float32
		classes        int
		want           string
	}{
		{[]float32{1, 2}, []float32{2}, 2, "target 0 is 2, want a class index from 0 to 1"},
		{[]float32{1, 2}, []float32{0.5}, 2, "target 0 is 0.5"},
		{[]float32{1, 2}, []float32{-1}, 2, "target 0 is -1"},
		{[]float32{1, 2}, []float32{nan}, 2, "target 0 is NaN"},
		{[]float32{1, 2, 3}, []float32{0}, 2, "3 logits for 1 samples and 2 classes"},
	} {
		if _, err := metric.CountClasses(c.logits, c.target, c.classes); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if empty := (metric.Hits{}); empty.Accuracy() != 0 || empty.ConstantAccuracy() != 0 {
		t.Error("no samples have a score")
	}
}
