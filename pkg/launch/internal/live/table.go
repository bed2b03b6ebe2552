// Package live shows the runs of a sweep while they run: a table with one row per run, and the
// speed-up curve so far, both replaced in place in a cell or a terminal.
package live

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// RunRow describes a run. Unknown numbers are NaN.
type RunRow struct {
	Run     string // name of the run folder
	Workers int
	Job     string // id of the job of Slurm; "" on this machine
	State   string
	// Note says why the run waits or has failed. For a run whose output has no epochs, it is the
	// last line of that output.
	Note                        string
	Epoch, Epochs               int // Epochs is 0 if unknown
	SamplesPerSecond, Loss, IoU float64
	Elapsed                     time.Duration
	End                         time.Time // the estimated end of a running run, or zero if unknown
}

// States of a run in addition to the values of status in run.json.
const (
	stateWaiting    = "waiting"
	stateNotStarted = "not started" // and its sweep has ended
)

// RunTable is a table of runs. Its methods HTML and String show it in a cell and as text.
type RunTable struct {
	Heading string // shown above the rows; may be empty
	Rows    []RunRow
	Notes   []string // shown below the rows
}

const unknownText = "–"

type tableColumn struct {
	name  string
	left  bool // whether its text begins at the left
	value func(RunRow) string
}

// columns returns the columns of the table. It omits the column of job ids if no run has one, and
// the column of the estimated end if all runs have ended.
func (t RunTable) columns() []tableColumn {
	all := []tableColumn{
		{"run", true, func(r RunRow) string { return clean.EscapeText(r.Run) }},
		{"workers", false, func(r RunRow) string { return fmt.Sprint(r.Workers) }},
	}
	if slices.ContainsFunc(t.Rows, func(r RunRow) bool { return r.Job != "" }) {
		all = append(all, tableColumn{"job", false, func(r RunRow) string { return r.Job }})
	}
	all = append(all,
		tableColumn{"state", true, func(r RunRow) string { return r.State }},
		tableColumn{"epoch", false, RunRow.formatEpoch},
		tableColumn{"samples/s", false, func(r RunRow) string { return formatNumber("%.1f", r.SamplesPerSecond) }},
		tableColumn{"loss", false, func(r RunRow) string { return formatNumber("%.4f", r.Loss) }},
		tableColumn{"IoU", false, func(r RunRow) string { return formatNumber("%.4f", r.IoU) }},
		tableColumn{"elapsed", false, func(r RunRow) string { return formatElapsed(r.Elapsed) }},
	)
	if slices.ContainsFunc(t.Rows, func(r RunRow) bool { return r.State == runs.StatusRunning || r.State == stateWaiting }) {
		all = append(all, tableColumn{"ends about", false, func(r RunRow) string { return formatEstimatedEnd(r.End, time.Now()) }})
	}
	return all
}

// formatEpoch returns the number of epochs done, as "3 of 20".
func (r RunRow) formatEpoch() string {
	switch {
	case r.Epochs > 0:
		return fmt.Sprintf("%d of %d", r.Epoch, r.Epochs)
	case r.Epoch > 0:
		return fmt.Sprint(r.Epoch)
	}
	return unknownText
}

func formatNumber(format string, v float64) string {
	if math.IsNaN(v) {
		return unknownText
	}
	return fmt.Sprintf(format, v)
}

// formatElapsed formats d to the second, and long durations to the minute, so that the text seldom
// changes.
func formatElapsed(d time.Duration) string {
	const short = 10 * time.Minute // below it, seconds are shown
	switch s := int(d / time.Second); {
	case d <= 0:
		return unknownText
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case d < short:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case d < time.Hour:
		return fmt.Sprintf("%d min", s/60)
	default:
		return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
	}
}

// formatEstimatedEnd formats the estimated time t: with seconds if it is less than ten minutes after now,
// and with the date if it is on another day.
func formatEstimatedEnd(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	switch {
	case t.IsZero():
		return unknownText
	case t.Format(time.DateOnly) != now.Format(time.DateOnly):
		return t.Format("2006-01-02 15:04")
	case t.Sub(now) < 10*time.Minute:
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}

// notes returns the lines below the table: the note of each run, then t.Notes. A note that several
// runs have in common appears once.
func (t RunTable) notes() []string {
	var order []string
	names := map[string][]string{}
	for _, r := range t.Rows {
		if r.Note == "" {
			continue
		}
		if names[r.Note] == nil {
			order = append(order, r.Note)
		}
		names[r.Note] = append(names[r.Note], r.Run)
	}
	var all []string
	for _, note := range order {
		who := english.JoinAnd(names[note])
		if n := len(names[note]); n > 3 {
			who = fmt.Sprintf("%s and %d other runs", names[note][0], n-1)
		}
		all = append(all, who+": "+note)
	}
	all = append(all, t.Notes...)
	for i, note := range all {
		all[i] = clean.EscapeText(note)
	}
	return all
}

// stateColors are the colors of the states in a cell; they are legible on light and dark pages.
var stateColors = map[string]string{
	runs.StatusRunning: "#1f77b4", runs.StatusDone: "#2a9d4a", runs.StatusFailed: "#d62728", runs.StatusCanceled: "#b07700", stateWaiting: "#888", stateNotStarted: "#888",
}

// HTML returns the table for a cell.
func (t RunTable) HTML() string {
	columns := t.columns()
	var b strings.Builder
	cell := func(tag string, c tableColumn, content string) {
		align := "right"
		if c.left {
			align = "left"
		}
		fmt.Fprintf(&b, `<%s style="text-align: %s; white-space: nowrap; padding: 2px 8px">%s</%s>`, tag, align, content, tag)
	}
	if t.Heading != "" {
		fmt.Fprintf(&b, "<div>%s</div>\n", html.EscapeString(clean.EscapeText(t.Heading)))
	}
	b.WriteString("<table class=\"lockstep-runs\">\n<thead><tr>")
	for _, c := range columns {
		cell("th", c, c.name)
	}
	b.WriteString("</tr></thead>\n<tbody>\n")
	for _, r := range t.Rows {
		b.WriteString("<tr>")
		for _, c := range columns {
			text := html.EscapeString(c.value(r))
			switch {
			case c.name == "state":
				text = fmt.Sprintf(`<span style="color: %s">●</span> %s`, stateColors[r.State], text)
			case c.name == "epoch" && r.Epochs > 0:
				text = fmt.Sprintf(`<progress max="%d" value="%d" style="width: 6em; vertical-align: middle"></progress> %s`, r.Epochs, min(r.Epoch, r.Epochs), text)
			}
			cell("td", c, text)
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody>\n</table>\n")
	for _, note := range t.notes() {
		fmt.Fprintf(&b, "<div><small>%s</small></div>\n", html.EscapeString(note))
	}
	return b.String()
}

// String returns the table as text.
func (t RunTable) String() string { return strings.Join(t.formatLines(math.MaxInt), "\n") }

// formatLines returns the table as lines of text. If there are more than height, it leaves out rows,
// first of runs that are done or waiting, and adds a line with their number.
func (t RunTable) formatLines(height int) []string {
	var heading []string
	if t.Heading != "" {
		heading = []string{clean.EscapeText(t.Heading)}
	}
	notes := t.notes()
	shown, omitted := t.limitRows(height - len(heading) - len(notes) - 2) // the head, and the line about the omitted rows
	columns := t.columns()
	text := [][]string{nil}
	for _, c := range columns {
		text[0] = append(text[0], c.name)
	}
	for _, r := range shown {
		var row []string
		for _, c := range columns {
			row = append(row, c.value(r))
		}
		text = append(text, row)
	}
	all := append(heading, alignColumns(text, func(i int) bool { return columns[i].left })...)
	if omitted != "" {
		all = append(all, omitted)
	}
	return append(all, notes...)
}

// limitRows returns at most max(n, 3) rows. omitted is a line that counts the rows left out, or ""
// if there are none.
func (t RunTable) limitRows(n int) (shown []RunRow, omitted string) {
	const least = 3
	leave := len(t.Rows) - max(n, least)
	if leave <= 0 {
		return t.Rows, ""
	}
	counts := map[string]int{}
	left := make([]bool, len(t.Rows))
	states := []string{runs.StatusDone, stateWaiting, stateNotStarted, runs.StatusCanceled, runs.StatusFailed, runs.StatusRunning}
	for _, state := range states {
		for i, r := range t.Rows {
			if r.State == state && leave > 0 {
				left[i], leave = true, leave-1
				counts[state]++
			}
		}
	}
	for i, r := range t.Rows {
		if !left[i] {
			shown = append(shown, r)
		}
	}
	var parts []string
	for _, state := range states {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
		}
	}
	return shown, "not shown: " + strings.Join(parts, ", ")
}

// alignColumns pads the cells of rows so that columns line up, and returns one line per row. left
// reports whether a column is aligned to the left.
func alignColumns(rows [][]string, left func(column int) bool) []string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var lines []string
	for _, row := range rows {
		var b strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if left(i) {
				c += pad
			} else {
				c = pad + c
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(c)
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}
