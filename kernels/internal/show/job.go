package show

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"lockstep/pkg/launch"
)

// A statusReporter, such as *launch.Job, reports the status of a sweep's runs, which may be in progress.
type statusReporter interface {
	Dir() string
	Note() string // message of package launch, such as that the sweep ran already
	Status() []launch.RunStatus
}

var _ statusReporter = (*launch.Job)(nil)

// renderStatus returns a table with one row per run, followed by the notes that are not empty.
func renderStatus(notes []string, runs []launch.RunStatus) Bundle {
	head := []string{"run", "workers", "seed", "state", "epoch", "seconds", "train_loss", "samples_per_second"}
	var rows [][]string
	failed := false
	for _, r := range runs {
		failed = failed || r.Err != nil
	}
	if failed {
		head = append(head, "error")
	}
	for _, r := range runs {
		row := []string{
			r.Name, strconv.Itoa(r.Workers), strconv.FormatInt(r.Seed, 10), r.State, formatProgress(r),
			formatNumber(r.Seconds, r.Seconds > 0), formatNumber(r.Last.TrainLoss, r.Epoch > 0), formatNumber(r.Last.SamplesPerSecond, r.Epoch > 0),
		}
		if failed {
			text := ""
			if r.Err != nil {
				text = shorten(r.Err.Error(), 4*maxItems)
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	var page, text strings.Builder
	page.WriteString("<table border=\"1\" class=\"dataframe\">\n<thead><tr>")
	for _, h := range head {
		fmt.Fprintf(&page, "<th>%s</th>", h)
	}
	page.WriteString("</tr></thead>\n<tbody>\n")
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, row := range rows {
		page.WriteString("<tr>")
		for i, c := range row {
			align := "right"
			if i == 0 || i == 3 || i == 8 {
				align = "left"
			}
			fmt.Fprintf(&page, "<td style=\"text-align: %s\">%s</td>", align, html.EscapeString(c))
		}
		page.WriteString("</tr>\n")
		fmt.Fprintln(w, strings.ReplaceAll(strings.Join(row, "\t"), "\n", " "))
	}
	_ = w.Flush() // writes to memory, so it cannot fail
	page.WriteString("</tbody>\n</table>\n")
	for _, n := range notes {
		if n != "" {
			fmt.Fprintf(&page, "<p>%s</p>\n", html.EscapeString(n))
			fmt.Fprintln(&text, n)
		}
	}
	return Bundle{HTML: page.String(), Text: strings.TrimSuffix(text.String(), "\n")}
}

// formatProgress returns the number of epochs done or, if it is unknown, of output lines. It returns "" if there
// are no lines either.
func formatProgress(r launch.RunStatus) string {
	switch {
	case r.Epochs > 0:
		return fmt.Sprintf("%d of %d", r.Epoch, r.Epochs)
	case r.Lines > 0:
		return fmt.Sprintf("(%d lines)", r.Lines)
	}
	return ""
}

// formatNumber returns "" for an unknown number and NaN.
func formatNumber(v float64, known bool) string {
	if !known || math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', 5, 64)
}
