package report

import (
	"fmt"
	"html"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/runs/usage"
)

// maxUsageRuns limits the runs whose recorded usage is shown, because the page reads all samples of
// these runs.
const maxUsageRuns = 20

func (b *pageBuilder) analyzeUsage() (analysis, bool) {
	r := analysis{id: "usage", title: "What the workers used"}
	var rows [][]string
	recorded := 0
	for i := range b.study.Runs {
		ranks, err := usage.Ranks(b.study.Runs[i].Dir)
		if err != nil || len(ranks) == 0 { // an error: not a folder
			continue
		}
		if recorded++; recorded > maxUsageRuns {
			continue
		}
		if row, ok := usageRow(b.study.Runs[i]); ok {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return r, false
	}
	head := []string{
		"run", "workers", "busy cores per worker", "busy cores per machine", "peak memory of a worker in MiB", "received per machine in kB/s", "sent per machine in kB/s",
		"processors in W", "processors in kJ", "GPU busy in %", "peak GPU memory in MiB", "GPUs in W", "GPUs in kJ",
	}
	const texts = 2
	r.html = tableHTML(head, rows, texts) +
		formatNoteHTML("Means over the time that was recorded, peaks, and sums of power and energy over the machines or workers. A GPU that several workers share counts for each. What no machine recorded has no column.") +
		formatNoteHTML(describeOmitted(recorded, maxUsageRuns, "runs", "lockstep plot --only usage --run NAME"))
	return r, true
}

// usageRow returns the cells of a run, in the order of the table's header. ok is false if nothing
// was recorded.
func usageRow(run runs.Run) (row []string, ok bool) {
	records, _, err := usage.Read(run.Dir)
	records = slices.DeleteFunc(records, func(r usage.Record) bool { return len(r.Samples) == 0 })
	if err != nil || len(records) == 0 {
		return nil, false
	}
	var workers, machines []usage.Summary // the values of a machine are in the records of all its workers
	for _, r := range records {
		s := r.Summarize()
		workers = append(workers, s)
		if !slices.ContainsFunc(machines, func(m usage.Summary) bool { return m.Host == s.Host }) {
			machines = append(machines, s)
		}
	}
	const mib, kilo = 1 << 20, 1e3
	mean := func(all []usage.Summary, unit float64, value func(usage.Summary) float64) string {
		return formatNumber(sumUsageSummaries(all, value) / float64(len(all)) / unit)
	}
	sum := func(all []usage.Summary, unit float64, value func(usage.Summary) float64) string {
		return formatNumber(sumUsageSummaries(all, value) / unit)
	}
	peak := func(value func(usage.Summary) float64) string {
		largest := math.NaN()
		for _, s := range workers {
			if v := value(s); !math.IsNaN(v) && !(v <= largest) {
				largest = v
			}
		}
		return formatNumber(largest / mib)
	}
	return []string{
		filepath.Base(run.Dir), english.FormatCount(len(workers), "worker") + " on " + english.FormatCount(len(machines), "machine"),
		mean(workers, 1, func(s usage.Summary) float64 { return s.CPUCores }),
		mean(machines, 1, func(s usage.Summary) float64 { return s.MachineCPUCores }),
		peak(func(s usage.Summary) float64 { return s.PeakMemoryBytes }),
		mean(machines, kilo, func(s usage.Summary) float64 { return s.ReceivedBytesPerSecond }),
		mean(machines, kilo, func(s usage.Summary) float64 { return s.SentBytesPerSecond }),
		sum(machines, 1, func(s usage.Summary) float64 { return s.ProcessorWatts }),
		sum(machines, kilo, func(s usage.Summary) float64 { return s.ProcessorJoules }),
		mean(workers, 1, func(s usage.Summary) float64 { return s.GPUPercent }),
		peak(func(s usage.Summary) float64 { return s.PeakGPUMemoryBytes }),
		sum(workers, 1, func(s usage.Summary) float64 { return s.GPUWatts }),
		sum(workers, kilo, func(s usage.Summary) float64 { return s.GPUJoules }),
	}, true
}

// sumUsageSummaries returns the sum of value over all summaries, or NaN if it is NaN for any of them.
func sumUsageSummaries(all []usage.Summary, value func(usage.Summary) float64) float64 {
	sum := 0.0
	for _, s := range all {
		sum += value(s)
	}
	return sum
}

// tableHTML returns a table as HTML. It omits columns without a value in any row. The first texts
// columns contain text, the others numbers.
func tableHTML(head []string, rows [][]string, texts int) string {
	var b strings.Builder
	line := func(element string, cells []string) {
		b.WriteString("<tr>")
		for i, c := range cells {
			if i >= texts && !slices.ContainsFunc(rows, func(row []string) bool { return row[i] != "–" }) {
				continue
			}
			class := ""
			if i >= texts {
				class = ` class="number"`
			}
			fmt.Fprintf(&b, "<%s%s>%s</%s>", element, class, html.EscapeString(c), element)
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("<table>\n<thead>")
	line("th", head)
	b.WriteString("</thead>\n<tbody>\n")
	for _, row := range rows {
		line("td", row)
	}
	b.WriteString("</tbody>\n</table>")
	return b.String()
}
