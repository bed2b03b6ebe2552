package live

import (
	"fmt"
	"html"
	"math"
	"strings"

	"lockstep/pkg/figure"
	"lockstep/pkg/scaling"
)

// SpeedupCurve is the speed-up over the number of workers, as package scaling computes it.
type SpeedupCurve struct {
	study   *scaling.Study
	figure  *figure.Figure // nil unless it was drawn
	partial bool           // whether runs are in progress
}

// NewSpeedupCurve returns the speed-up of a study, or nil if no series has one at two worker counts. If
// partial is set, the title says that the curve is the speed-up so far. If withFigure is set,
// NewSpeedupCurve also draws the figure for a cell.
func NewSpeedupCurve(study *scaling.Study, partial, withFigure bool) (*SpeedupCurve, error) {
	counts := map[string]int{}
	enough := false
	for _, p := range study.Points {
		if !math.IsNaN(p.Speedup.Value) {
			counts[p.Series]++
			enough = enough || counts[p.Series] > 1
		}
	}
	if !enough {
		return nil, nil
	}
	c := &SpeedupCurve{study: study, partial: partial}
	if !withFigure {
		return c, nil
	}
	var o figure.Options
	if partial {
		o.Title = c.title()
	}
	var err error
	c.figure, err = o.Speedup(study)
	return c, err
}

func (c *SpeedupCurve) title() string {
	title := "Speed-up"
	if c.partial {
		title += " so far"
	}
	if kind := c.study.SourceKind(); kind != "" {
		title += " (" + kind + ")"
	}
	return title
}

// HTML returns the figure with its caption for a cell.
func (c *SpeedupCurve) HTML() string {
	if c.figure == nil {
		return "<pre>" + html.EscapeString(c.String()) + "</pre>"
	}
	return c.figure.HTML()
}

// String returns the numbers of the curve as text.
func (c *SpeedupCurve) String() string { return strings.Join(c.formatLines(), "\n") }

// formatLines returns a table of the numbers of the curve, with a title.
func (c *SpeedupCurve) formatLines() []string {
	rows := [][]string{{"series", "workers", c.study.ThroughputUnit(), "speed-up", "efficiency"}}
	for _, p := range c.study.Points {
		if math.IsNaN(p.Speedup.Value) {
			continue
		}
		rows = append(rows, []string{
			p.Series, fmt.Sprint(p.Workers), formatNumber("%.1f", p.Throughput.Value),
			formatNumber("%.2f", p.Speedup.Value), formatNumber("%.0f %%", p.Efficiency.Value*100), //nolint:mnd // percent
		})
	}
	return append([]string{c.title()}, alignColumns(rows, func(i int) bool { return i == 0 })...)
}
