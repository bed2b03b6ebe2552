package figure

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/runs/transfers"
	"lockstep/pkg/scaling"
)

// Transfers draws a recorded all-reduce over time. Each rank has a row, and each transfer is an
// arrow from the moment it was sent to the moment it was received. Transfers is not in Names,
// because run folders contain no such recording: the command lockstep transfers makes one, and
// draws it with --out.
func (o Options) Transfers(r *transfers.Recording) (*Figure, error) {
	const name = "transfers"
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	if len(r.Transfers) == 0 {
		return nil, fmt.Errorf("draw figure %s: one rank alone sends nothing: record two or more workers", name)
	}
	f := o.newFigure(name, "All-reduce, "+r.Algorithm, "time", "")
	unitName, unit := element.ChooseTimeUnit(r.Duration().Seconds())
	f.plot.X.Label.Text = "time (" + unitName + ")"
	add, copies := arrowPlotter{color: addedTransferColor()}, arrowPlotter{color: copiedTransferColor()}
	for _, t := range r.Transfers {
		a := arrow{
			from: plotter.XY{X: t.Sent.Seconds() / unit, Y: -float64(t.From)},
			to:   plotter.XY{X: t.Received.Seconds() / unit, Y: -float64(t.To)},
		}
		if t.Add {
			add.list = append(add.list, a)
		} else {
			copies.list = append(copies.list, a)
		}
	}
	for _, kind := range []struct {
		name   string
		arrows arrowPlotter
	}{{"added by the receiver", add}, {"copied by the receiver", copies}} {
		if len(kind.arrows.list) > 0 {
			f.plot.Add(kind.arrows)
			f.legend = append(f.legend, element.LegendEntry{Name: kind.name, Icons: []plot.Thumbnailer{kind.arrows}})
		}
	}
	ticks := make(element.RowTicks, r.Ranks)
	for rank := range ticks {
		ticks[rank] = "rank " + strconv.Itoa(rank)
	}
	f.plot.Y.Tick.Marker = ticks
	f.plot.Y.Min, f.plot.Y.Max = 0.5-float64(r.Ranks), 0.5
	f.plot.X.Min, f.plot.X.Max = 0, r.Duration().Seconds()/unit
	f.caption = r.Describe() + " Each arrow begins when its sender sent the chunks, and ends when its receiver had them. n = 1 all-reduce."
	f.computeTable = func() { f.table = transfersTable(r) }
	return f.finishLayout(&scaling.Study{})
}

// transfersTable returns a row for each transfer: step (from 1), from, to, chunks, bytes, added,
// sent_seconds, waited_seconds and received_seconds.
func transfersTable(r *transfers.Recording) dataframe.DataFrame {
	var step, from, to, first, last, bytes []int
	var added []bool
	var sent, waited, received []float64
	for _, t := range r.Transfers {
		step, from, to, bytes = append(step, t.Step+1), append(from, t.From), append(to, t.To), append(bytes, t.Bytes)
		first, last, added = append(first, t.Lo), append(last, t.Hi-1), append(added, t.Add)
		sent, waited, received = append(sent, t.Sent.Seconds()), append(waited, t.Waited.Seconds()), append(received, t.Received.Seconds())
	}
	return dataframe.New(
		series.New(step, series.Int, "step"), series.New(from, series.Int, "from"), series.New(to, series.Int, "to"),
		series.New(first, series.Int, "first_chunk"), series.New(last, series.Int, "last_chunk"),
		series.New(bytes, series.Int, "bytes"), series.New(added, series.Bool, "added"),
		series.New(sent, series.Float, "sent_seconds"), series.New(waited, series.Float, "waited_seconds"), series.New(received, series.Float, "received_seconds"),
	)
}

type arrow struct{ from, to plotter.XY }

type arrowPlotter struct {
	list  []arrow
	color color.NRGBA
}

func (a arrowPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, one := range a.list {
		from, to := vg.Point{X: x(one.from.X), Y: y(one.from.Y)}, vg.Point{X: x(one.to.X), Y: y(one.to.Y)}
		a.draw(&c, from, to)
	}
}

func (a arrowPlotter) draw(c *draw.Canvas, from, to vg.Point) {
	c.StrokeLine2(draw.LineStyle{Color: a.color, Width: vg.Points(1)}, from.X, from.Y, to.X, to.Y)
	d := to.Sub(from)
	length := vg.Length(math.Hypot(float64(d.X), float64(d.Y)))
	if length == 0 {
		return
	}
	const head = vg.Length(5)
	along := d.Scale(min(head, length) / length)
	across := vg.Point{X: -along.Y, Y: along.X}.Scale(0.35)
	base := to.Sub(along)
	c.FillPolygon(a.color, []vg.Point{to, base.Add(across), base.Sub(across)})
}

func (a arrowPlotter) DataRange() (xmin, xmax, ymin, ymax float64) {
	x, y := element.EmptyExtent(), element.EmptyExtent()
	for _, one := range a.list {
		x.Add(one.from.X, one.to.X)
		y.Add(one.from.Y, one.to.Y)
	}
	return x.Lo, x.Hi, y.Lo, y.Hi
}

func (a arrowPlotter) Thumbnail(c *draw.Canvas) {
	middle := (c.Min.Y + c.Max.Y) / 2
	a.draw(c, vg.Point{X: c.Min.X, Y: middle}, vg.Point{X: c.Max.X, Y: middle})
}
