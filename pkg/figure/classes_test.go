package figure

import (
	"math"
	"strings"
	"testing"
)

// TestClassIoUs: one run has a line per class in its masks, and the mean. Several runs have their means, as
// the axis says.
func TestClassIoUs(t *testing.T) {
	f, err := IoU(classified(t, []int{1}, nil))
	check(t, err)
	var names []string
	for _, e := range f.legend {
		names = append(names, e.Name)
	}
	if got := strings.Join(names, "; "); got != "background; cell; dividing, round; mean; constant predictor (mean)" {
		t.Errorf("the legend has %s", got)
	}
	if f.heading != "IoU of each class, 1 worker (cells)" || !strings.Contains(f.Caption(), "One run with 1 worker.") {
		t.Errorf("title %q, caption %q", f.heading, f.Caption())
	}
	if !strings.Contains(f.Caption(), "on the held-out data") || !strings.Contains(f.Caption(), "Not in the held-out masks, and left out of the mean: nucleus.") {
		t.Errorf("the caption is %s", f.Caption())
	}
	table := f.Table()
	if table.Nrow() != 60 || table.Elem(58, 1).String() != "nucleus" || !math.IsNaN(table.Elem(58, 2).Float()) || table.Elem(59, 1).String() != "mean" || table.Elem(59, 4).Float() != 9100 {
		t.Errorf("the table has %d rows:\n%v", table.Nrow(), table)
	}
	if tex := f.TeX(); !strings.Contains(tex, "12 & dividing, round &") || strings.Contains(tex, "11 & ") {
		t.Errorf("the table for TeX does not have the last epoch alone:\n%s", tex)
	}

	study := classified(t, []int{1, 2}, nil)
	f, err = IoU(study)
	check(t, err)
	if f.plot.Y.Label.Text != "mean IoU" || f.heading != "Mean IoU on the test set (cells)" {
		t.Errorf("several runs: %q of %q", f.plot.Y.Label.Text, f.heading)
	}
	f, err = Options{}.Curve(study, "iou", "epoch")
	check(t, err)
	if f.plot.Y.Label.Text != "mean IoU" {
		t.Errorf("the curve's axis is %q", f.plot.Y.Label.Text)
	}
}

// TestEvaluatedPart: figures call the evaluated data the validation set if the data have a third part.
func TestEvaluatedPart(t *testing.T) {
	three := map[string]any{"data": map[string]any{"validation_images": 4.0}}
	f, err := IoU(classified(t, []int{1, 2}, three))
	check(t, err)
	if !strings.Contains(f.heading, "on the validation set") || !strings.Contains(f.Caption(), "on the validation set after training") {
		t.Errorf("%q: %s", f.heading, f.Caption())
	}
	f, err = IoU(classified(t, []int{1}, three))
	check(t, err)
	if !strings.Contains(f.Caption(), "on the validation data") {
		t.Errorf("one run: %s", f.Caption())
	}
}
