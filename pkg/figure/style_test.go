package figure

import (
	"testing"

	"gonum.org/v1/plot"

	"lockstep/pkg/figure/internal/element"
)

// TestStyleOfOwnPlots: a plot of one's own gets what a figure has, and keeps
// ticks that its author chose.
func TestStyleOfOwnPlots(t *testing.T) {
	Style(nil) // a notebook must not panic
	own := plot.New()
	own.Y.Tick.Marker = plot.ConstantTicks{{Value: 1, Label: "one"}}
	Style(own)
	f, err := Speedup(synthetic(t, []string{"ddp"}, []int{1, 2}, 1, 4))
	check(t, err)
	ours := f.Plot()
	if own.Title.TextStyle.Font != ours.Title.TextStyle.Font || own.X.Label.TextStyle.Font != ours.X.Label.TextStyle.Font || own.Y.Tick.Label.Font != ours.Y.Tick.Label.Font {
		t.Error("the fonts are not those of a figure")
	}
	if _, ok := own.X.Tick.Marker.(element.ValueTicks); !ok {
		t.Errorf("the ticks are %T", own.X.Tick.Marker)
	}
	if _, ok := own.Y.Tick.Marker.(plot.ConstantTicks); !ok {
		t.Errorf("the author's ticks became %T", own.Y.Tick.Marker)
	}
	if LineStyle(1).Color != element.NewSeriesStyle(1).Line.Color || GlyphStyle(2).Shape != element.NewSeriesStyle(2).Glyph.Shape || LineStyle(-1).Color == nil {
		t.Error("the looks are not those of the series of a figure")
	}
}
