package figure_test

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"lockstep/pkg/figure"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// In a notebook the last line of a cell would be figure.Speedup(study), which
// shows the figure.
func Example() {
	run := func(workers int, seconds float64) runs.Run {
		r := runs.Run{Dir: fmt.Sprintf("ddp-n%d-s1", workers), Info: runs.Info{Study: "cells", Series: "ddp", Workers: workers}}
		for e := 1; e <= 3; e++ {
			r.Epochs = append(r.Epochs, runs.Epoch{Epoch: e, Seconds: seconds, Samples: 100 * workers})
		}
		return r
	}
	study, err := scaling.FromRuns([]runs.Run{run(1, 10), run(2, 12.5)})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := figure.Speedup(study)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Name(), f.Table().Col("speedup").Float())
	// Output: speedup [1 1.6]
}

// A plot of your own that looks like the figures of this package.
func ExampleStyle() {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Memory", "batch per worker", "memory (GiB)"
	figure.Style(p)
	for i, name := range []string{"float32", "mixed precision"} {
		slope := 0.5 / float64(i+1)
		line, points, err := plotter.NewLinePoints(plotter.XYs{{X: 1, Y: 1 + slope}, {X: 2, Y: 1 + 2*slope}, {X: 4, Y: 1 + 4*slope}})
		if err != nil {
			fmt.Println(err)
			return
		}
		line.LineStyle, points.GlyphStyle = figure.LineStyle(i), figure.GlyphStyle(i)
		p.Add(line, points)
		p.Legend.Add(name, line, points)
	}
	picture, err := p.WriterTo(6.4*vg.Inch, 4.2*vg.Inch, "svg") // or p.Save(width, height, "memory.png")
	if err != nil {
		fmt.Println(err)
		return
	}
	var size counter
	if _, err := picture.WriteTo(&size); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Title.TextStyle.Font.Name(), p.X.Tick.Label.Font.Size, figure.LineStyle(0).Color, size > 0)
	// Output: LiberationSans-Regular 11 {0 114 178 255} true
}

// counter counts the bytes that are written to it.
type counter int

// Write implements io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
