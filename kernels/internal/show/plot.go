package show

import (
	"bytes"
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// The size of a plot in a notebook.
const (
	plotWidth  = 6 * vg.Inch
	plotHeight = 4 * vg.Inch
)

func renderPlot(p *plot.Plot) (Bundle, error) {
	w, err := p.WriterTo(plotWidth, plotHeight, "svg")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return nil, err
	}
	text := "(plot)"
	if p.Title.Text != "" {
		text = fmt.Sprintf("(plot: %s)", p.Title.Text)
	}
	return Bundle{SVG: b.String(), Text: text}, nil
}
