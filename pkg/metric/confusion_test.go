package metric_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/metric"
)

func ExampleConfusion() {
	// Five pixels of three classes, of which one does not count. The logits of a class are contiguous.
	logits := []float32{
		2, 1, 0, 0, 9,
		0, 3, 1, 4, 0,
		1, 0, 5, 1, 0,
	}
	c := metric.NewConfusion(3)
	if err := c.AddLogits(logits, []float32{0, 1, 2, 2, metric.Ignored}); err != nil {
		fmt.Println(err)
		return
	}
	for k := range 3 {
		iou, dice := c.ClassScores(k)
		fmt.Printf("class %d: %d pixels, IoU %.3f, Dice %.3f\n", k, c.Pixels(k), iou, dice)
	}
	iou, _ := c.MeanScores()
	constant, _ := c.ConstantScores()
	fmt.Printf("mean IoU %.3f, without any training %.3f\n", iou, constant)
	// Output:
	// class 0: 1 pixels, IoU 1.000, Dice 1.000
	// class 1: 1 pixels, IoU 0.500, Dice 0.667
	// class 2: 2 pixels, IoU 0.500, Dice 0.667
	// mean IoU 0.667, without any training 0.167
}

// TestConfusionOfOddLogits: the first largest logit wins, NaN never does, and where all are NaN
// it is class 0.
func TestConfusionOfOddLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	c := metric.NewConfusion(2)
	z := []float32{
		1, nan, nan, nan, inf, 1, // class 0
		1, 2, nan, inf, inf, nan, // class 1
	}
	if err := c.AddLogits(z, []float32{1, 1, 1, 1, 1, 1}); err != nil {
		t.Fatal(err)
	}
	if want := []int64{0, 0, 4, 2}; !slices.Equal(c.Counts, want) {
		t.Errorf("counts are %v, want %v", c.Counts, want)
	}
}

// TestAbsentClass: a class without a true pixel is in no mean, also if it is predicted. The
// constant prediction has the share of the most frequent class, divided by the present classes.
func TestAbsentClass(t *testing.T) {
	c := &metric.Confusion{Classes: 3, Counts: []int64{6, 1, 1, 0, 0, 0, 0, 1, 1}}
	iou, dice := c.MeanScores()
	constantIoU, constantDice := c.ConstantScores()
	absentIoU, absentDice := c.ClassScores(1)
	if !slices.Equal(c.Absent(), []int{1}) || !math.IsNaN(absentIoU) || !math.IsNaN(absentDice) {
		t.Errorf("absent are %v with the scores %g and %g", c.Absent(), absentIoU, absentDice)
	}
	for name, v := range map[string][2]float64{
		"IoU": {iou, (6./8 + 1./3) / 2}, "Dice": {dice, (12./14 + 2./4) / 2},
		"constant IoU": {constantIoU, .8 / 2}, "constant Dice": {constantDice, 2 * .8 / 1.8 / 2},
	} {
		if math.Abs(v[0]-v[1]) > 1e-15 {
			t.Errorf("%s is %g, want %g", name, v[0], v[1])
		}
	}
	if iou, _ := metric.NewConfusion(2).MeanScores(); !math.IsNaN(iou) {
		t.Errorf("no pixels have the IoU %g", iou)
	}
}

func TestConfusionErrors(t *testing.T) {
	for _, c := range []struct {
		z, t []float32
		want string
	}{
		{[]float32{1, 2}, []float32{2}, "target 0 is 2, want a class index from 0 to 1, or 255"},
		{[]float32{1, 2}, []float32{0.5}, "target 0 is 0.5"},
		{[]float32{1, 2}, []float32{-1}, "target 0 is -1"},
		{[]float32{1, 2}, []float32{float32(math.NaN())}, "target 0 is NaN"},
		{[]float32{1, 2, 3}, []float32{0}, "3 logits for 1 pixels and 2 classes"},
	} {
		if err := metric.NewConfusion(2).AddLogits(c.z, c.t); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestConfusionIsExact: counts of samples, summed as numbers over ranks, are the counts of all.
func TestConfusionIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, first, second := metric.NewConfusion(3), metric.NewConfusion(3), metric.NewConfusion(3)
		counted := int64(0)
		for i := range rapid.IntRange(0, 5).Draw(t, "samples") {
			z := rapid.SliceOfN(rapid.Float32Range(-2, 2), 12, 12).Draw(t, "z")
			y := make([]float32, 4)
			for k := range y {
				y[k] = rapid.SampledFrom([]float32{0, 1, 2, metric.Ignored}).Draw(t, "y")
				if y[k] != metric.Ignored {
					counted++
				}
			}
			part := first
			if i > 2 {
				part = second
			}
			if whole.AddLogits(z, y) != nil || part.AddLogits(z, y) != nil {
				t.Fatal("a target is refused")
			}
		}
		sum := first.Slice()
		for i, v := range second.Slice() {
			sum[i] += v
		}
		got := metric.ConfusionFromSlice(sum, 3)
		first.Add(second)
		if !slices.Equal(got.Counts, whole.Counts) || !slices.Equal(first.Counts, whole.Counts) || whole.Total() != counted {
			t.Fatalf("parts give %v and %v, the whole %v of %d pixels", got, first, whole, counted)
		}
	})
}
