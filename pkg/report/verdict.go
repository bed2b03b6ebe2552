package report

import (
	"errors"
	"fmt"
	"html"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

// analysis is one aspect of a study, with the conclusions about this aspect.
type analysis struct {
	id, title, html string
	verdicts        []conclusion
}

// analyze returns the analyses for which the study has data. Each method analyzeX returns false if
// it has nothing to show.
func (b *pageBuilder) analyze() []analysis {
	var out []analysis
	for _, of := range []func() (analysis, bool){
		b.analyzeSettings, b.analyzeFits, b.analyzeComparisons, b.analyzeBottleneck, b.analyzeOverhead, b.analyzeCollective, b.analyzeTimeUse, b.analyzeStragglers, b.analyzeUsage, b.analyzeQuality, b.analyzeClasses, b.analyzeImageScores, b.analyzeFinalTest, b.analyzeCost, b.analyzeBudget,
	} {
		if r, ok := of(); ok {
			out = append(out, r)
		}
	}
	return out
}

// allConclusions returns the conclusions in this order: cautions about the measured times, speed,
// strong or weak scaling, the analyses, problems.
func (b *pageBuilder) allConclusions(results []analysis) []conclusion {
	var out []conclusion
	for _, text := range b.study.Cautions() {
		out = append(out, conclusion{About: "Caution", Text: text})
	}
	out = append(out, b.speedConclusions()...)
	out = append(out, b.scalingModeConclusions()...)
	for _, r := range results {
		for _, v := range r.verdicts {
			v.Link = "#" + r.id
			out = append(out, v)
		}
	}
	if n := len(b.study.Problems); n > 0 {
		failed, diverged := 0, 0
		for _, p := range b.study.Points {
			failed, diverged = failed+p.Failed, diverged+p.Diverged
		}
		text := fmt.Sprintf("%s could not be used or must be known", english.FormatCount(n, "thing"))
		if failed > 0 {
			text += fmt.Sprintf("; %s failed or were cancelled and do not count", english.FormatCount(failed, "run"))
		}
		if diverged > 0 {
			text += fmt.Sprintf("; the loss of %s is no number", english.FormatCount(diverged, "run"))
		}
		out = append(out, conclusion{"Problems", text + ".", "#read"})
	}
	for i := range out {
		out[i].Text = b.shortenPaths(strings.TrimSuffix(out[i].Text, ".") + ".")
	}
	return out
}

// limitConclusionsPerSubject keeps at most maxSeries conclusions about each subject, and adds a note with the number
// of the others.
func limitConclusionsPerSubject(all []conclusion) []conclusion {
	counts := map[string]int{}
	for _, v := range all {
		counts[v.About]++
	}
	var out []conclusion
	seen := map[string]int{}
	for _, v := range all {
		seen[v.About]++
		switch n := seen[v.About]; {
		case n <= maxSeries:
			out = append(out, v)
		case n == maxSeries+1:
			out = append(out, conclusion{About: v.About, Text: describeOmitted(counts[v.About], maxSeries, "like these", "lockstep scaling"+showFlagFor(v.About)) + ".", Link: v.Link})
		}
	}
	return out
}

// showFlagFor returns the option that makes the command lockstep scaling list the conclusions about
// a subject, such as " --show fit". It returns "" if the command lists them by default.
func showFlagFor(subject string) string {
	tables := map[string]string{
		"Scaling": "modes", "Law": "fit", "All-reduce": "collective", "Time": "time-use", "Bottleneck": "bottleneck", "Quality": "quality",
	}
	if t := tables[subject]; t != "" {
		return " --show " + t
	}
	return ""
}

// speedConclusions states the speed of each series at its largest worker count.
func (b *pageBuilder) speedConclusions() []conclusion {
	var out []conclusion
	for i, p := range b.largestPointPerSeries() {
		v := conclusion{About: "Speed"}
		switch {
		case p.Baseline > 0 && p.Size > p.Baseline && isMeasured(p.Speedup.Value):
			v.About = "Speed-up"
			v.Text = fmt.Sprintf("%s is %s times as fast at %s as at %d", p.Series, formatNumber(p.Speedup.Value), english.FormatCount(p.Size, b.sizeUnit()), p.Baseline)
			if isMeasured(p.Speedup.Low) {
				v.Text += fmt.Sprintf(" (%s)", speedupInterval(p))
			}
			v.Text += ": " + describeEfficiency(p) + "."
			if i < maxSeries { // the page shows no sentence about the others
				v.Link = "#" + b.addExplanation(p.Series, "speedup", p.Workers)
			}
		case isMeasured(p.Throughput.Value) && p.ThroughputUnit != "samples/s":
			v.Text = fmt.Sprintf("%s reaches %s %s at %s.", p.Series, formatNumber(p.Throughput.Value), p.ThroughputUnit, english.FormatCount(p.Workers, "worker"))
		case isMeasured(p.Throughput.Value):
			v.Text = fmt.Sprintf("%s trains on %s samples a second at %s.", p.Series, formatNumber(p.Throughput.Value), english.FormatCount(p.Workers, "worker"))
		case isMeasured(p.EpochSeconds.Value):
			v.Text = fmt.Sprintf("%s takes %s s for an epoch at %s.", p.Series, formatNumber(p.EpochSeconds.Value), english.FormatCount(p.Workers, "worker"))
		default:
			continue
		}
		out = append(out, v)
	}
	return out
}

// describeEfficiency returns the efficiency of p as text. If the confidence interval contains the
// ideal, the text says that the speed-up is not distinguishable from the ideal.
func describeEfficiency(p scaling.Point) string {
	if e := p.Efficiency; isMeasured(e.Low) && e.Low <= 1 && e.High >= 1 {
		return "not distinguishable from the ideal " + formatNumber(float64(p.Size)/float64(p.Baseline))
	}
	return formatPercent(p.Efficiency.Value) + " of the ideal"
}

// scalingModeConclusions states which series show strong or weak scaling. Series with the same
// reason share one sentence.
func (b *pageBuilder) scalingModeConclusions() []conclusion {
	var out []conclusion
	var names [][]string
	for _, m := range b.study.Modes().Rows {
		if m.Scaling == scaling.ScalingUnknown {
			continue
		}
		i := slices.IndexFunc(out, func(v conclusion) bool { return v.Text == m.Why })
		if i < 0 {
			out = append(out, conclusion{About: "Scaling", Text: m.Why})
			names = append(names, nil)
			i = len(out) - 1
		}
		names[i] = append(names[i], m.Series)
	}
	for i := range out {
		who := strings.Join(names[i][:min(len(names[i]), maxSeries)], ", ")
		if n := len(names[i]); n > maxSeries {
			who += fmt.Sprintf(" and %d more series", n-maxSeries)
		}
		if len(out) == 1 && len(names[i]) == len(b.study.Series()) && len(names[i]) > 1 {
			who = "All series"
		}
		out[i].Text = who + ": " + out[i].Text + "."
	}
	return out
}

func (b *pageBuilder) analyzeSettings() (analysis, bool) {
	s := b.differingSettings()
	left := formatNoteHTML(describeOmitted(len(s.Series), maxSeries, "series", "lockstep scaling"))
	return analysis{id: "settings", title: "What differs between the series", html: s.FirstHTML(maxSeries) + left}, len(s.Rows) > 0
}

func (b *pageBuilder) differingSettings() *scaling.Settings {
	if b.differing == nil {
		b.differing = b.study.Settings()
	}
	return b.differing
}

// analyzeFits shows the scaling model of each series, or that it has too few worker counts for a fit.
func (b *pageBuilder) analyzeFits() (analysis, bool) {
	r := analysis{id: "fits", title: "Laws of scaling"}
	var parts []string
	for _, name := range b.study.Series() {
		f, err := b.study.Fit(name)
		if n := b.countMeasuredWorkerCounts(name); errors.Is(err, scaling.ErrTooFew) && n > 1 {
			r.verdicts = append(r.verdicts, conclusion{About: "Law", Text: fmt.Sprintf("%s: %v: there are %d", name, scaling.ErrTooFew, n)})
			parts = append(parts, "<p>"+html.EscapeString(err.Error())+"</p>")
		}
		if err != nil {
			continue
		}
		r.verdicts = append(r.verdicts, conclusion{About: "Law", Text: f.Sentence})
		parts = append(parts, "<h3>"+html.EscapeString(name)+"</h3>\n"+f.HTML())
	}
	r.html = joinFirstSeries(parts, "lockstep scaling --show fit")
	return r, len(parts) > 0
}

// joinFirstSeries joins at most maxSeries parts, one per series. If there are more, it adds a note
// with the number of the others and the command that lists them.
func joinFirstSeries(parts []string, command string) string {
	return strings.Join(parts[:min(len(parts), maxSeries)], "\n") + formatNoteHTML(describeOmitted(len(parts), maxSeries, "series", command))
}

// countMeasuredWorkerCounts returns the number of worker counts at which the speed of a series is known.
func (b *pageBuilder) countMeasuredWorkerCounts(series string) int {
	n := 0
	for _, p := range b.study.Points {
		if p.Series == series && (isMeasured(p.Throughput.Value) || isMeasured(p.EpochSeconds.Value) || isMeasured(p.WallSeconds.Value)) {
			n++
		}
	}
	return n
}

func (b *pageBuilder) analyzeComparisons() (analysis, bool) {
	r := analysis{id: "comparison", title: "Comparison of the series"}
	var parts []string
	for _, pair := range b.comparedPairs() {
		c, err := b.study.CompareSeries(pair[0], pair[1])
		if err != nil || len(c.Rows) == 0 {
			continue
		}
		sentence := c.Rows[len(c.Rows)-1].Sentence
		if len(c.Pooled) > 0 {
			sentence = c.Pooled[0].Sentence
		}
		r.verdicts = append(r.verdicts, conclusion{About: "Comparison", Text: sentence})
		parts = append(parts, fmt.Sprintf("<h3>%s and %s</h3>\n%s", html.EscapeString(pair[0]), html.EscapeString(pair[1]), c.HTML()))
	}
	r.html = strings.Join(parts, "\n")
	return r, len(parts) > 0
}

// comparedPairs returns the pairs of series to compare. It ignores series that were measured
// without communication (see figure.Options.CommunicationPairs). If there are at most four series,
// it returns the pairs whose names start with the same word, such as PyTorch native and PyTorch
// Horovod. If there are no such pairs and at most three series, it returns all pairs.
func (b *pageBuilder) comparedPairs() [][2]string {
	pairs := b.options.Figures.CommunicationPairs(b.study)
	names := slices.DeleteFunc(b.study.Series(), func(name string) bool {
		return slices.ContainsFunc(pairs, func(p [2]string) bool { return p[1] == name })
	})
	if len(names) > 4 {
		return nil
	}
	var all, alike [][2]string
	for i, x := range names {
		for _, y := range names[i+1:] {
			all = append(all, [2]string{x, y})
			if strings.EqualFold(strings.Fields(x + " -")[0], strings.Fields(y + " -")[0]) {
				alike = append(alike, [2]string{x, y})
			}
		}
	}
	switch {
	case len(alike) > 0:
		return alike
	case len(names) <= 3:
		return all
	}
	return nil
}

// analyzeBottleneck shows whether loading data or computing limits the speed, based on the trials
// of each run (see scaling.BottleneckRow).
func (b *pageBuilder) analyzeBottleneck() (analysis, bool) {
	x, err := b.study.Bottleneck()
	if err != nil || len(x.Rows) == 0 {
		return analysis{}, false
	}
	r := analysis{id: "bottleneck", title: "Input or computation", html: x.FirstHTML(maxPoints) + formatNoteHTML(describeOmitted(len(x.Rows), maxPoints, "rows", "lockstep scaling --show bottleneck"))}
	for _, row := range x.Rows {
		r.verdicts = append(r.verdicts, conclusion{About: "Bottleneck", Text: row.Sentence})
	}
	return r, true
}

// analyzeOverhead shows how much communication slows the first series of each pair that
// figure.Options.CommunicationPairs returns.
func (b *pageBuilder) analyzeOverhead() (analysis, bool) {
	r := analysis{id: "overhead", title: "What communication costs"}
	var parts []string
	for _, p := range b.options.Figures.CommunicationPairs(b.study) {
		o, err := b.study.Overhead(p[0], p[1])
		if err != nil || len(o.Rows) == 0 {
			continue
		}
		r.verdicts = append(r.verdicts, conclusion{About: "Communication", Text: p[0] + ": " + o.Sentence})
		parts = append(parts, "<h3>"+html.EscapeString(p[0])+"</h3>\n"+o.HTML())
	}
	r.html = joinFirstSeries(parts, "lockstep scaling --show overhead")
	return r, len(parts) > 0
}

// analyzeCollective shows the latency and the bandwidth of each series' all-reduce, unless too few
// runs measured its time.
func (b *pageBuilder) analyzeCollective() (analysis, bool) {
	r := analysis{id: "collective", title: "Latency and bandwidth of the all-reduce"}
	var parts []string
	for _, name := range b.study.Series() {
		c, err := b.study.Collective(name)
		if err != nil {
			continue // too few runs
		}
		r.verdicts = append(r.verdicts, conclusion{About: "All-reduce", Text: c.Sentence})
		parts = append(parts, "<h3>"+html.EscapeString(name)+"</h3>\n"+c.HTML())
	}
	r.html = joinFirstSeries(parts, "lockstep scaling --show collective")
	return r, len(parts) > 0
}

// analyzeTimeUse shows the fractions of a step that are spent on computing, on waiting for
// communication and on waiting for data, based on step spans and traces.
func (b *pageBuilder) analyzeTimeUse() (analysis, bool) {
	t := b.study.TimeUse()
	if len(t.Rows) == 0 {
		return analysis{}, false
	}
	r := analysis{id: "time-use", title: "Where a step's time goes", html: t.FirstHTML(maxPoints) + formatNoteHTML(describeOmitted(len(t.Rows), maxPoints, "rows", "lockstep scaling --show time-use"))}
	for _, row := range t.Rows {
		if !(row.Step.Value > 0) {
			continue
		}
		share := func(s scaling.Estimate) string { return formatPercent(s.Value / row.Step.Value) }
		text := fmt.Sprintf("a step of %s at %s takes %s ms: %s computes, %s waits for communication, %s for data",
			row.Series, english.FormatCount(row.Workers, "worker"), formatNumber(1000*row.Step.Value), share(row.Compute), share(row.Exposed), share(row.Data))
		if row.Idle.Value > 0.005*row.Step.Value {
			text += fmt.Sprintf(", %s is idle", share(row.Idle))
		}
		r.verdicts = append(r.verdicts, conclusion{About: "Time", Text: strings.ToUpper(text[:1]) + text[1:] + "."})
	}
	return r, true
}

func (b *pageBuilder) analyzeStragglers() (analysis, bool) {
	x := b.study.Stragglers()
	if len(x.Rows) == 0 {
		return analysis{}, false
	}
	return analysis{
		id: "stragglers", title: "Who comes last to the collective",
		html:     x.FirstHTML(maxPoints) + formatNoteHTML(describeOmitted(len(x.Rows), maxPoints, "rows", "lockstep scaling --show stragglers")),
		verdicts: []conclusion{{About: "Stragglers", Text: strings.ToUpper(x.Sentence[:1]) + x.Sentence[1:]}},
	}, true
}

func (b *pageBuilder) analyzeQuality() (analysis, bool) {
	q := b.study.Quality()
	r := analysis{id: "quality", title: "Quality and the global batch"}
	for _, row := range q.Rows {
		if row.Sentence != "" {
			r.verdicts = append(r.verdicts, conclusion{About: "Quality", Text: row.Sentence})
		}
	}
	if len(r.verdicts) == 0 {
		return r, false
	}
	r.html = q.FirstHTML(maxPoints) + formatNoteHTML(describeOmitted(len(q.Rows), maxPoints, "rows", "lockstep scaling --show quality"))
	return r, true
}

func (b *pageBuilder) analyzeCost() (analysis, bool) {
	if !b.options.Costs && b.options.Price == 0 {
		return analysis{}, false
	}
	c, err := b.study.Cost(b.options.Price)
	if err != nil {
		return analysis{id: "cost", title: "Cost", html: "<p>" + html.EscapeString(err.Error()) + "</p>", verdicts: []conclusion{{About: "Cost", Text: err.Error() + "."}}}, true
	}
	title := "Cost"
	if b.options.Price > 0 {
		title = strings.TrimSpace(fmt.Sprintf("Cost, a device-hour at %g %s", b.options.Price, b.options.Currency))
	}
	left := formatNoteHTML(describeOmitted(len(c.Rows), maxPoints, "rows", fmt.Sprintf("lockstep scaling --show cost=%g", b.options.Price)))
	return analysis{id: "cost", title: title, html: c.FirstHTML(maxPoints) + left, verdicts: []conclusion{{About: "Cost", Text: c.Sentence}}}, true
}

func (b *pageBuilder) analyzeBudget() (analysis, bool) {
	if b.options.Budget == 0 {
		return analysis{}, false
	}
	x, err := b.study.Budget(b.options.Budget, b.options.Project)
	title := fmt.Sprintf("With %g device-hours", b.options.Budget)
	if err != nil {
		return analysis{id: "budget", title: title, html: "<p>" + html.EscapeString(err.Error()) + "</p>", verdicts: []conclusion{{About: "Budget", Text: err.Error() + "."}}}, true
	}
	command := fmt.Sprintf("lockstep scaling --show budget=%g", b.options.Budget)
	if n := b.options.Project.Epochs; n > 0 {
		command += fmt.Sprintf(",epochs=%d", n)
	}
	if n := b.options.Project.Seeds; n > 0 {
		command += fmt.Sprintf(",seeds=%d", n)
	}
	left := formatNoteHTML(describeOmitted(len(x.Rows), maxPoints, "rows", command))
	r := analysis{id: "budget", title: title, html: x.FirstHTML(maxPoints) + left}
	for i, row := range x.Rows {
		if i > 0 && row.Predicted && x.Rows[i-1].Series == row.Series { // a prediction of the series' model, after its measurements
			r.verdicts[len(r.verdicts)-1].Text += " " + row.Sentence
			continue
		}
		r.verdicts = append(r.verdicts, conclusion{About: "Budget", Text: row.Sentence})
	}
	return r, true
}
