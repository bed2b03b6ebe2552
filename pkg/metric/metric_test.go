package metric_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/metric"
)

func Example() {
	truth := []float32{1, 1, 1, 0, 0, 0, 0, 0}
	logits := []float32{3, 0.1, -1, 2, -2, -2, -2, 0}
	c := metric.CountLogits(logits, truth)
	fmt.Printf("%+v\n", c)
	// (2+1) / (3+3−2+1) and (2·2+1) / (3+3+1)
	fmt.Printf("IoU %.3f, Dice %.3f, accuracy %.3f\n", c.IoU(), c.Dice(), c.Accuracy())
	iou, dice := c.ConstantScores()
	fmt.Printf("without any training: IoU %.3f, Dice %.3f\n", iou, dice)
	// Output:
	// {TP:2 FP:1 FN:1 TN:4}
	// IoU 0.600, Dice 0.714, accuracy 0.750
	// without any training: IoU 0.444, Dice 0.583
}

// TestScores: worked by hand from (Σyp+1)/(Σy+Σp−Σyp+1) and (2Σyp+1)/(Σy+Σp+1).
func TestScores(t *testing.T) {
	for _, c := range []struct {
		name                        string
		counts                      metric.Counts
		iou, dice, accuracy         float64
		constantIoU, constantDice   float64
		allZeroAccuracy, allOneDice float64
	}{
		{"nothing", metric.Counts{}, 1, 1, 0, 1, 1, 0, 1},
		{"all right", metric.Counts{TP: 4, TN: 6}, 1, 1, 1, 5. / 11, 9. / 15, 0.6, 9. / 15},
		{"all wrong", metric.Counts{FP: 6, FN: 4}, 1. / 11, 1. / 11, 0, 5. / 11, 9. / 15, 0.6, 9. / 15},
		{"empty truth, empty prediction", metric.Counts{TN: 10}, 1, 1, 1, 1, 1, 1, 1. / 11},
		{"mixed", metric.Counts{TP: 30, FP: 10, FN: 20, TN: 40}, 31. / 61, 61. / 91, 0.7, 51. / 101, 101. / 151, 0.5, 101. / 151},
	} {
		iou, dice := c.counts.ConstantScores()
		for _, v := range []struct {
			name      string
			got, want float64
		}{
			{"IoU", c.counts.IoU(), c.iou},
			{"Dice", c.counts.Dice(), c.dice},
			{"accuracy", c.counts.Accuracy(), c.accuracy},
			{"constant IoU", iou, c.constantIoU},
			{"constant Dice", dice, c.constantDice},
			{"accuracy of all 0", c.counts.AllZero().Accuracy(), c.allZeroAccuracy},
			{"Dice of all 1", c.counts.AllOne().Dice(), c.allOneDice},
		} {
			if math.Abs(v.got-v.want) > 1e-15 {
				t.Errorf("%s: %s is %g, want %g", c.name, v.name, v.got, v.want)
			}
		}
	}
}

// TestThreshold: σ(z) > 0.5 is z > 0, and exactly 0.5 is background.
func TestThreshold(t *testing.T) {
	tiny := float32(math.SmallestNonzeroFloat32)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	z := []float32{tiny, 0, -tiny, inf, -inf, nan}
	ones := []float32{1, 1, 1, 1, 1, 1}
	if c := metric.CountLogits(z, ones); c != (metric.Counts{TP: 2, FN: 4}) {
		t.Errorf("logits: %+v, want 2 TP and 4 FN", c)
	}
}

// TestIgnoredPixels: they are neither right nor wrong.
func TestIgnoredPixels(t *testing.T) {
	z, y := []float32{1, -1, 1, -1}, []float32{1, metric.Ignored, metric.Ignored, 0}
	want := metric.Counts{TP: 1, TN: 1}
	if c := metric.CountLogits(z, y); c != want {
		t.Errorf("logits: %+v, want %+v", c, want)
	}
}

// TestSplitIsExact: counts of parts, summed as numbers over ranks, are the counts of the whole.
func TestSplitIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := rapid.SliceOfN(rapid.Float32Range(-2, 2), 0, 60).Draw(t, "z")
		y := make([]float32, len(z))
		for i := range y {
			y[i] = float32(rapid.IntRange(0, 1).Draw(t, "y"))
		}
		cut := rapid.IntRange(0, len(z)).Draw(t, "cut")
		whole := metric.CountLogits(z, y)
		a, b := metric.CountLogits(z[:cut], y[:cut]), metric.CountLogits(z[cut:], y[cut:])
		sum := a.Slice()
		for i, v := range b.Slice() {
			sum[i] += v
		}
		if got := metric.CountsFromSlice(sum); got != whole {
			t.Fatalf("parts give %+v, the whole %+v", got, whole)
		}
		a.Add(b)
		if a != whole || whole.Total() != int64(len(z)) {
			t.Fatalf("Add gives %+v, the whole is %+v of %d", a, whole, len(z))
		}
	})
}

func TestLengths(t *testing.T) {
	for name, f := range map[string]func(){
		"targets": func() { metric.CountLogits(make([]float32, 2), make([]float32, 1)) },
		"slice":   func() { metric.CountsFromSlice(make([]float64, 3)) },
		"classes": func() { metric.ConfusionFromSlice(make([]float64, 5), 2) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of another length are accepted", name)
				}
			}()
			f()
		}()
	}
}
