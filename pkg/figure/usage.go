package figure

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/runs/usage"
	"lockstep/pkg/scaling"
)

const usageFigureName = "usage"

// maxUsageLines is the largest number of lines in a panel; a reader cannot distinguish more.
const maxUsageLines = 8

// Usage draws the resources that the workers of a run and their machines used over time. The page
// has a panel for each recorded quantity: CPU, memory, network, power, and the utilization and
// memory of the GPUs. The samples are read from the files usage-<rank>.csv in the run folder.
// Options.Run selects the run; by default, it is the one with the most recorded workers.
func (o Options) Usage(study *scaling.Study) (*Figure, error) {
	study, err := o.selectSeries(study, usageFigureName)
	if err != nil {
		return nil, err
	}
	run, records, err := o.findRecordedUsage(study)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", usageFigureName, err)
	}
	u := newUsageDrawing(o, study, records)
	var panels []*Figure
	var missing []string
	for _, p := range usagePanels() {
		f, err := u.drawPanel(p)
		switch {
		case err != nil:
			return nil, fmt.Errorf("draw figure %s: %w", usageFigureName, err)
		case f == nil:
			missing = append(missing, p.what)
		default:
			panels = append(panels, f)
		}
	}
	name := filepath.Base(run.Dir)
	title := o.chooseTitle("Usage of " + name)
	if o.NoTitle {
		title = ""
	}
	page, err := Panels(title, panels...)
	if err != nil {
		return nil, err
	}
	page.name, page.options = usageFigureName, o
	page.caption = u.caption(name, page.caption, missing)
	page.computeTable = func() { page.table = usageTable(records, u.begin) }
	if o.WidthInches > 0 {
		page.Height *= vg.Length(o.WidthInches) * vg.Inch / page.Width
		page.Width = vg.Length(o.WidthInches) * vg.Inch
	}
	if o.HeightInches > 0 {
		page.Height = vg.Length(o.HeightInches) * vg.Inch
	}
	return page, page.checkSize()
}

// Usage draws the resources that the workers of a run used over time; see Options.Usage.
func Usage(study *scaling.Study) (*Figure, error) { return Options{}.Usage(study) }

func (o Options) findRecordedUsage(study *scaling.Study) (*runs.Run, []usage.Record, error) {
	workers := map[*runs.Run]int{}
	var all []*runs.Run
	for i := range study.Runs {
		r := &study.Runs[i]
		ranks, err := usage.Ranks(r.Dir)
		if err != nil || len(ranks) == 0 || o.Run != "" && !strings.Contains(r.Dir, o.Run) { // an error: not a folder
			continue
		}
		workers[r], all = len(ranks), append(all, r)
	}
	slices.SortStableFunc(all, func(a, b *runs.Run) int { return workers[b] - workers[a] })
	for _, r := range all {
		records, _, err := usage.Read(r.Dir) // only damaged files have rows that cannot be read
		if err != nil {
			return nil, nil, err
		}
		if records = slices.DeleteFunc(records, func(r usage.Record) bool { return len(r.Samples) == 0 }); len(records) > 0 {
			return r, records, nil
		}
	}
	if o.Run != "" {
		return nil, nil, fmt.Errorf("no run with recorded usage (usage-<rank>.csv) has %q in its name", o.Run)
	}
	return nil, nil, errors.New("usage is not recorded: no run has a file usage-<rank>.csv with samples; runs of at least one second have one, unless LOCKSTEP_USAGE=off was set")
}

// usageQuantity is a quantity in a panel, with one line per worker or per machine.
type usageQuantity struct {
	value      func(usage.Sample) float64
	name       string // in the legend, of a quantity of a machine; empty: only the machine
	perMachine bool
	dashes     []vg.Length
}

// allProcessesName is the name of the line that shows the CPU time of all processes of a machine.
const allProcessesName = "all processes"

type usagePanel struct {
	what, title string // of the quantity, in a sentence and as a title
	unit        func(largest float64) (name string, unit float64)
	quantities  []usageQuantity
	note        string // for the caption
}

func usagePanels() []usagePanel {
	fixed := func(name string) func(float64) (string, float64) {
		return func(float64) (string, float64) { return name, 1 }
	}
	return []usagePanel{
		{"CPU", "CPU", fixed("busy cores"), []usageQuantity{
			{value: func(s usage.Sample) float64 { return s.CPUCores }},
			{value: func(s usage.Sample) float64 { return s.MachineCPUCores }, name: allProcessesName, perMachine: true, dashes: element.DashPatterns()[1]},
		}, "CPU: busy cores of each worker, and of all processes of the machine (dashed)."},
		{"memory", "Memory", memoryUnit, []usageQuantity{
			{value: func(s usage.Sample) float64 { return s.MemoryBytes }},
		}, "Memory: resident memory of each worker."},
		{"network", "Network", byteRateUnit, []usageQuantity{
			{value: func(s usage.Sample) float64 { return s.ReceivedBytesPerSecond }, name: "received", perMachine: true},
			{value: func(s usage.Sample) float64 { return s.SentBytesPerSecond }, name: "sent", perMachine: true, dashes: element.DashPatterns()[1]},
			{value: func(s usage.Sample) float64 { return s.LoopbackBytesPerSecond }, name: "within the machine", perMachine: true, dashes: element.DashPatterns()[2]},
		}, "Network: all traffic of the machine; traffic of InfiniBand, of shared memory and of unix sockets is not included."},
		{"power of the processors", "Power of the processors", fixed("W"), []usageQuantity{
			{value: func(s usage.Sample) float64 { return s.ProcessorWatts }, perMachine: true},
		}, ""},
		{"GPU", "GPU", fixed("time with a kernel (%)"), []usageQuantity{
			{value: func(s usage.Sample) float64 { return s.GPUPercent }},
		}, ""},
		{"GPU memory", "GPU memory", memoryUnit, []usageQuantity{
			{value: func(s usage.Sample) float64 { return s.GPUMemoryBytes }},
		}, ""},
		{"GPU power", "GPU power", fixed("W"), []usageQuantity{
			{value: func(s usage.Sample) float64 { return s.GPUWatts }},
		}, ""},
	}
}

// memoryUnit returns a unit that suits sizes up to largest bytes: its name, and its size in bytes.
func memoryUnit(largest float64) (name string, unit float64) {
	if largest >= 1<<30 {
		return "GiB", 1 << 30
	}
	return "MiB", 1 << 20
}

// byteRateUnit returns a unit that suits rates up to largest bytes per second: its name, and its
// value in bytes per second.
func byteRateUnit(largest float64) (name string, unit float64) {
	if largest >= 1e5 {
		return "MB/s", 1e6
	}
	return "kB/s", 1e3
}

type usageFigureBuilder struct {
	options  Options
	study    *scaling.Study
	all      []usage.Record
	shown    []usage.Record // workers that have a line
	machines []usage.Record // of each machine, the worker with the lowest rank
	begin    time.Time      // of the first interval
	seconds  float64        // from begin to the last sample
	epochs   []float64      // seconds since begin at which an epoch ended
}

func newUsageDrawing(o Options, study *scaling.Study, records []usage.Record) *usageFigureBuilder {
	u := &usageFigureBuilder{options: o, study: study, all: records, shown: records}
	u.options.Title, u.options.XLabel, u.options.YLabel, u.options.study = "", "", "", ""
	u.options.WidthInches, u.options.HeightInches = 0, 0 // of the page
	if n := len(records); n > maxUsageLines {
		u.shown = nil
		for k := range maxUsageLines {
			u.shown = append(u.shown, records[k*(n-1)/(maxUsageLines-1)])
		}
	}
	var end time.Time
	for _, r := range records {
		if host := recordHost(r); !slices.ContainsFunc(u.machines, func(m usage.Record) bool { return recordHost(m) == host }) {
			u.machines = append(u.machines, r)
		}
		first, last := r.Samples[0], r.Samples[len(r.Samples)-1]
		if start := sampleStart(first); u.begin.IsZero() || start.Before(u.begin) {
			u.begin = start
		}
		if last.Time.After(end) {
			end = last.Time
		}
	}
	u.machines = u.machines[:min(len(u.machines), maxUsageLines)]
	u.seconds = end.Sub(u.begin).Seconds()
	samples := records[0].Samples
	for i := 1; i < len(samples); i++ {
		if before := samples[i-1]; before.Epoch > 0 && samples[i].Epoch > before.Epoch {
			u.epochs = append(u.epochs, sampleStart(samples[i]).Sub(u.begin).Seconds())
		}
	}
	return u
}

func recordHost(r usage.Record) string { return r.Samples[len(r.Samples)-1].Host }

func sampleStart(s usage.Sample) time.Time {
	return s.Time.Add(-time.Duration(s.Seconds * float64(time.Second)))
}

// drawPanel draws a panel. It returns nil if none of its quantities was recorded.
func (u *usageFigureBuilder) drawPanel(p usagePanel) (*Figure, error) {
	extent := element.EmptyExtent()
	for _, q := range p.quantities {
		for _, r := range u.quantityRecords(q) {
			for _, s := range r.Samples {
				extent.Add(q.value(s))
			}
		}
	}
	if !(extent.Hi >= extent.Lo) {
		return nil, nil
	}
	unitName, unit := p.unit(extent.Hi)
	timeName, timeUnit := element.ChooseTimeUnit(u.seconds)
	f := u.options.newFigure(usageFigureName+"_"+strings.ReplaceAll(p.what, " ", "_"), p.title, "time ("+timeName+")", unitName)
	f.plot.X.Min, f.plot.X.Max = 0, u.seconds/timeUnit
	element.SetValueAxis(&f.plot.Y, element.Extent{Lo: 0, Hi: extent.Hi / unit}, element.EmptyExtent(), false, false)
	u.markEpochs(f, timeUnit)
	for _, q := range p.quantities {
		for i, r := range u.quantityRecords(q) {
			u.drawLine(f, q, i, r, unit, timeUnit)
		}
	}
	f.caption = p.note
	f.table = dataframe.New() // the page has the table
	return f.finishLayout(u.study)
}

// quantityRecords returns the records for which the panel has a line of this quantity.
func (u *usageFigureBuilder) quantityRecords(q usageQuantity) []usage.Record {
	if q.perMachine {
		return u.machines
	}
	return u.shown
}

// markEpochs draws a vertical line at the end of each epoch, unless there would be too many lines.
func (u *usageFigureBuilder) markEpochs(f *Figure, timeUnit float64) {
	const most = 50
	if len(u.epochs) > most {
		return
	}
	for _, at := range u.epochs {
		style := draw.LineStyle{Color: color.NRGBA{R: 200, G: 200, B: 200, A: 255}, Width: 0.8}
		f.plot.Add(&plotter.Line{XYs: plotter.XYs{{X: at / timeUnit, Y: f.plot.Y.Min}, {X: at / timeUnit, Y: f.plot.Y.Max}}, LineStyle: style})
	}
}

// drawSeriesLine draws the i-th line of a quantity and adds it to the legend. The line has gaps where the
// run was interrupted.
func (u *usageFigureBuilder) drawLine(f *Figure, q usageQuantity, i int, r usage.Record, unit, timeUnit float64) {
	style := element.NewSeriesStyle(i).Line
	style.Dashes = q.dashes
	name := fmt.Sprintf("rank %d", r.Rank)
	if q.perMachine {
		name = strings.Trim(recordHost(r)+": "+q.name, ": ")
		if len(u.machines) == 1 && q.name != "" {
			name = q.name
		}
	}
	if q.name == allProcessesName { // beside the lines of the workers
		style.Color = element.WithAlpha(element.Gray(), uint8(255/(1+i)))
	}
	var parts []plotter.XYs
	connected := false // whether the next point continues the last part
	for k, s := range r.Samples {
		v := q.value(s)
		if k > 0 && sampleStart(s).Sub(r.Samples[k-1].Time).Seconds() > s.Seconds {
			connected = false
		}
		if math.IsNaN(v) {
			connected = false
			continue
		}
		if !connected {
			parts = append(parts, plotter.XYs{{X: sampleStart(s).Sub(u.begin).Seconds() / timeUnit, Y: v / unit}})
		}
		connected = true
		last := len(parts) - 1
		parts[last] = append(parts[last], plotter.XY{X: s.Time.Sub(u.begin).Seconds() / timeUnit, Y: v / unit})
	}
	if len(parts) == 0 {
		return
	}
	for _, part := range parts {
		x, y := make([]float64, len(part)), make([]float64, len(part))
		for k, p := range part {
			x[k], y[k] = p.X, p.Y
		}
		f.plot.Add(element.LineWithGlyphs(element.NewLineData(x, y, 0, 1).Condense(), lineOnlyStyle(style))...)
	}
	f.legend = append(f.legend, element.LegendEntry{Name: name, Icons: []plot.Thumbnailer{element.LegendKey(lineOnlyStyle(style))}})
}

// caption describes the page about the run with the given name. panels is the caption of the
// panels, and missing lists the quantities without a panel.
func (u *usageFigureBuilder) caption(name, panels string, missing []string) string {
	c := fmt.Sprintf("What the workers of %s and their machines used; n = 1 run, one sample per second, in a long run fewer.", name)
	if len(u.shown) < len(u.all) {
		c += fmt.Sprintf(" %d of %s are drawn; the table has all.", len(u.shown), english.FormatCount(len(u.all), "worker"))
	}
	if len(u.epochs) > 0 {
		c += " Vertical lines: the first sample of a later epoch."
	}
	c += " " + panels
	if len(missing) > 0 {
		c += " Not recorded in this run: " + strings.Join(missing, ", ") + "."
	}
	return c
}

// usageTable returns one row per sample. The column seconds is the time since begin. Values that
// were not recorded are NaN.
func usageTable(records []usage.Record, begin time.Time) dataframe.DataFrame {
	var ranks, epochs []int
	var hosts []string
	var seconds []float64
	values := make([][]float64, len(usage.Columns()))
	for _, r := range records {
		for _, s := range r.Samples {
			ranks, hosts, epochs = append(ranks, r.Rank), append(hosts, s.Host), append(epochs, s.Epoch)
			seconds = append(seconds, s.Time.Sub(begin).Seconds())
			for i, v := range s.Values() {
				values[i] = append(values[i], v)
			}
		}
	}
	columns := []series.Series{
		series.New(ranks, series.Int, "rank"), series.New(hosts, series.String, "host"), series.New(epochs, series.Int, "epoch"),
		series.New(seconds, series.Float, "seconds"),
	}
	for i, name := range usage.Columns() {
		columns = append(columns, series.New(values[i], series.Float, name))
	}
	return dataframe.New(columns...)
}
