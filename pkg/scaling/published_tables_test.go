package scaling

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// TestPublishedTables reads logs/published with the default rule, and compares the results with
// the conclusions of the tables' sources: the speed-ups and efficiencies of the U-Net study at
// 14 GPUs, of ResNet-50 at 128 and of CIFAR-10 at 4, and the efficiency of weak scaling at 32
// nodes.
func TestPublishedTables(t *testing.T) {
	for _, c := range []struct {
		file, series string
		rule         Rule
		workers      int
		speedup      float64 // NaN where none was published
		efficiency   float64
		tolerance    float64
	}{
		{"unet2d-v100.csv", "PyTorch native", DefaultRule(), 14, 11.970, .855, 2e-3},
		{"unet2d-v100.csv", "PyTorch Horovod", DefaultRule(), 14, 6.013, .430, 2e-3},
		{"unet2d-v100.csv", "TensorFlow native", DefaultRule(), 14, 11.237, .803, 2e-3},
		{"unet2d-v100.csv", "TensorFlow Horovod", DefaultRule(), 14, 13.453, .961, 2e-3}, // of seconds rounded to 1e-3 of 2.786
		{"resnet50-booster.csv", "ResNet-50", DefaultRule(), 128, 71.214, math.NaN(), 1e-3},
		{"resnet-cifar10-power.csv", "ResNet50V2", DefaultRule(), 4, 3.75, math.NaN(), 1e-9},
		{"sc21-weak-scaling.csv", "real data, batch 64", Rule{Per: PerNode, DropFirst: 1}, 128, math.NaN(), .78, 5e-3},
		{"sc21-weak-scaling.csv", "real data, batch 128", Rule{Per: PerNode, DropFirst: 1}, 128, math.NaN(), .89, 5e-3},
		{"sc21-weak-scaling.csv", "data only, batch 64", Rule{Per: PerNode, DropFirst: 1}, 128, math.NaN(), .97, 5e-3}, // 82200/(32·2653), read off the plot
	} {
		s, err := Read(filepath.Join("..", "..", "logs", "published", c.file))
		check(t, err)
		s, err = s.WithRule(c.rule)
		check(t, err)
		i, err := s.findPointIndex(c.series, c.workers)
		check(t, err)
		p := s.Points[i]
		if d := math.Abs(p.Speedup.Value - c.speedup); d > c.tolerance {
			t.Errorf("%s, %s: speed-up %.4f, published %.3f", c.file, c.series, p.Speedup.Value, c.speedup)
		}
		if d := math.Abs(p.Efficiency.Value - c.efficiency); d > max(6e-4, c.tolerance) { // published to three digits, or two
			t.Errorf("%s, %s: efficiency %.4f, published %.3f", c.file, c.series, p.Efficiency.Value, c.efficiency)
		}
		if math.IsNaN(p.Speedup.Value) || len(s.Problems) > 0 {
			t.Errorf("%s: %+v, problems %v", c.file, p, s.Problems)
		}
	}
	s, err := Read(filepath.Join("..", "..", "logs", "published", "sc21-weak-scaling.csv"))
	check(t, err)
	for batch, want := range map[string]float64{"64": .25, "128": .12} {
		o, err := s.Overhead("synthetic, batch "+batch, "synthetic, batch "+batch+", no communication")
		check(t, err)
		if got := o.Rows[len(o.Rows)-1].Overhead.Value; math.Abs(got-want) > 5e-3 {
			t.Errorf("batch %s: communication costs %.3f, published %.2f", batch, got, want)
		}
		if m := s.Mode("synthetic, batch " + batch); m.Scaling != ScalingWeak {
			t.Errorf("the published weak scaling is %s: %s", m.Scaling, m.Why)
		}
	}
	s, err = Read(filepath.Join("..", "..", "logs", "published", "sc21-trials.csv"))
	check(t, err)
	if m := s.Mode("baseline"); m.Scaling != ScalingUnknown || !strings.Contains(m.Why, "nothing scales") {
		t.Errorf("%+v", m)
	}
	b, err := s.Bottleneck()
	check(t, err)
	bound := map[string]string{}
	for _, r := range b.Rows {
		bound[r.Series] = r.Bound
	}
	if bound["baseline"] != BoundInput || bound["GPU loader"] != BoundCompute || len(b.Rows) != 5 {
		t.Errorf("bounds %v", bound)
	}
}
