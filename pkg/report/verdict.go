package report

import (
	"errors"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"

	"lockstep/pkg/scaling"
)

// result is what a study was asked, with its sentences.
type result struct {
	id, title, html string
	verdicts        []verdict
}

// analyses asks the study everything that it may have an answer to. What it
// has none for is left out.
func (b *builder) analyses() []result {
	var out []result
	for _, of := range []func() (result, bool){
		b.settings, b.fits, b.comparisons, b.bottleneck, b.overhead, b.collective, b.timeUse, b.stragglers, b.quality, b.cost, b.budget,
	} {
		if r, ok := of(); ok {
			out = append(out, r)
		}
	}
	return out
}

// verdicts are the sentences: speed first, then what kind of scaling it is,
// then what the analyses say, then what counts against it.
func (b *builder) verdicts(results []result) []verdict {
	out := b.speeds()
	out = append(out, b.modes()...)
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
		text := fmt.Sprintf("%s could not be used or must be known", plural(n, "thing"))
		if failed > 0 {
			text += fmt.Sprintf("; %s failed or were cancelled and do not count", plural(failed, "run"))
		}
		if diverged > 0 {
			text += fmt.Sprintf("; the loss of %s is no number", plural(diverged, "run"))
		}
		out = append(out, verdict{"Problems", text + ".", "#read"})
	}
	for i := range out {
		out[i].Text = b.shorter(strings.TrimSuffix(out[i].Text, ".") + ".")
	}
	return out
}

// fewOfEach leaves the first sentences about each thing, with how many more there
// are.
func fewOfEach(all []verdict) []verdict {
	counts := map[string]int{}
	for _, v := range all {
		counts[v.About]++
	}
	var out []verdict
	seen := map[string]int{}
	for _, v := range all {
		seen[v.About]++
		switch n := seen[v.About]; {
		case n <= mostSeries:
			out = append(out, v)
		case n == mostSeries+1:
			out = append(out, verdict{About: v.About, Text: more(counts[v.About], mostSeries, "like these", "lockstep scaling"+flagOf(v.About)) + ".", Link: v.Link})
		}
	}
	return out
}

// flagOf returns the option of lockstep scaling that lists the sentences about
// something.
func flagOf(about string) string {
	flags := map[string]string{
		"Scaling": "modes", "Law": "fit", "All-reduce": "collective", "Time": "time-use", "Bottleneck": "bottleneck", "Quality": "quality",
	}
	if f := flags[about]; f != "" {
		return " --show " + f
	}
	return ""
}

// speeds says of each series how fast it is at its most workers.
func (b *builder) speeds() []verdict {
	var out []verdict
	for i, p := range b.top() {
		v := verdict{About: "Speed"}
		switch {
		case p.Baseline > 0 && p.Size > p.Baseline && known(p.Speedup.Value):
			v.About = "Speed-up"
			v.Text = fmt.Sprintf("%s is %s times as fast at %s as at %d", p.Series, number(p.Speedup.Value), plural(p.Size, b.unit()), p.Baseline)
			if known(p.Speedup.Low) {
				v.Text += fmt.Sprintf(" (%s)", between(p))
			}
			v.Text += fmt.Sprintf(": %s of the ideal.", percent(p.Efficiency.Value))
			if i < mostSeries { // of the others the page has no sentence
				v.Link = "#" + b.explain(p.Series, "speedup", p.Workers)
			}
		case known(p.Throughput.Value):
			v.Text = fmt.Sprintf("%s trains on %s samples a second at %s.", p.Series, number(p.Throughput.Value), plural(p.Workers, "worker"))
		case known(p.EpochSeconds.Value):
			v.Text = fmt.Sprintf("%s takes %s s for an epoch at %s.", p.Series, number(p.EpochSeconds.Value), plural(p.Workers, "worker"))
		default:
			continue
		}
		out = append(out, v)
	}
	return out
}

// modes says once what kind of scaling series have alike.
func (b *builder) modes() []verdict {
	var out []verdict
	var names [][]string
	for _, m := range b.study.Modes().Rows {
		if m.Scaling == scaling.ScalingUnknown {
			continue
		}
		i := slices.IndexFunc(out, func(v verdict) bool { return v.Text == m.Why })
		if i < 0 {
			out = append(out, verdict{About: "Scaling", Text: m.Why})
			names = append(names, nil)
			i = len(out) - 1
		}
		names[i] = append(names[i], m.Series)
	}
	for i := range out {
		who := strings.Join(names[i][:min(len(names[i]), mostSeries)], ", ")
		if n := len(names[i]); n > mostSeries {
			who += fmt.Sprintf(" and %d more series", n-mostSeries)
		}
		if len(out) == 1 && len(names[i]) == len(b.study.Series()) && len(names[i]) > 1 {
			who = "All series"
		}
		out[i].Text = who + ": " + out[i].Text + "."
	}
	return out
}

// settings is what differs between the series.
func (b *builder) settings() (result, bool) {
	s := b.settingRows()
	left := note(more(len(s.Series), mostSeries, "series", "lockstep scaling"))
	return result{id: "settings", title: "What differs between the series", html: s.FirstHTML(mostSeries) + left}, len(s.Rows) > 0
}

// settingRows returns the settings in which the series differ, which it finds once.
func (b *builder) settingRows() *scaling.Settings {
	if b.differing == nil {
		b.differing = b.study.Settings()
	}
	return b.differing
}

// fits returns the law of each series, or why none is named.
func (b *builder) fits() (result, bool) {
	r := result{id: "fits", title: "Laws of scaling"}
	var parts []string
	for _, name := range b.study.Series() {
		f, err := b.study.Fit(name)
		if n := b.counts(name); errors.Is(err, scaling.ErrTooFew) && n > 1 {
			r.verdicts = append(r.verdicts, verdict{About: "Law", Text: fmt.Sprintf("%s: %v: there are %d", name, scaling.ErrTooFew, n)})
			parts = append(parts, "<p>"+escape(err.Error())+"</p>")
		}
		if err != nil {
			continue
		}
		r.verdicts = append(r.verdicts, verdict{About: "Law", Text: f.Sentence})
		parts = append(parts, "<h3>"+escape(name)+"</h3>\n"+f.HTML())
	}
	r.html = firstSeries(parts, "lockstep scaling --show fit")
	return r, len(parts) > 0
}

// firstSeries joins the parts of the first series, with how many more there are and
// the command that lists them.
func firstSeries(parts []string, command string) string {
	return strings.Join(parts[:min(len(parts), mostSeries)], "\n") + note(more(len(parts), mostSeries, "series", command))
}

// counts returns at how many worker counts a series has a speed.
func (b *builder) counts(series string) int {
	n := 0
	for _, p := range b.study.Points {
		if p.Series == series && (known(p.Throughput.Value) || known(p.EpochSeconds.Value) || known(p.WallSeconds.Value)) {
			n++
		}
	}
	return n
}

// comparisons are of series with each other, where there are few.
func (b *builder) comparisons() (result, bool) {
	r := result{id: "comparison", title: "Comparison of the series"}
	var parts []string
	for _, pair := range b.rivals() {
		c, err := b.study.CompareSeries(pair[0], pair[1])
		if err != nil || len(c.Rows) == 0 {
			continue
		}
		said := c.Rows[len(c.Rows)-1].Sentence
		if len(c.Pooled) > 0 {
			said = c.Pooled[0].Sentence
		}
		r.verdicts = append(r.verdicts, verdict{About: "Comparison", Text: said})
		parts = append(parts, fmt.Sprintf("<h3>%s and %s</h3>\n%s", escape(pair[0]), escape(pair[1]), c.HTML()))
	}
	r.html = strings.Join(parts, "\n")
	return r, len(parts) > 0
}

// rivals are the pairs of series that somebody would compare: two of two, and
// of three or four those whose names begin alike (PyTorch native and PyTorch
// Horovod), or all three where no two do.
func (b *builder) rivals() [][2]string {
	names := slices.DeleteFunc(b.study.Series(), func(name string) bool {
		return slices.ContainsFunc(b.pairs(), func(p [2]string) bool { return p[1] == name })
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

// bottleneck is input or computation, from the trials.
func (b *builder) bottleneck() (result, bool) {
	x, err := b.study.Bottleneck()
	if err != nil || len(x.Rows) == 0 {
		return result{}, false
	}
	r := result{id: "bottleneck", title: "Input or computation", html: x.FirstHTML(mostPoints) + note(more(len(x.Rows), mostPoints, "rows", "lockstep scaling --show bottleneck"))}
	for _, row := range x.Rows {
		r.verdicts = append(r.verdicts, verdict{About: "Bottleneck", Text: row.Sentence})
	}
	return r, true
}

// pairs are series with and without communication.
func (b *builder) pairs() [][2]string {
	if len(b.options.Figures.Pairs) > 0 {
		return b.options.Figures.Pairs
	}
	without := regexp.MustCompile(`(?i)[\s,;:()_-]*\b(no|without)[\s_-]+(communication|comm|all-?reduce|sync)\b[)]?`)
	var out [][2]string
	for _, name := range b.study.Series() {
		with := without.ReplaceAllString(name, "")
		if with != name && slices.Contains(b.study.Series(), with) {
			out = append(out, [2]string{with, name})
		}
	}
	return out
}

// overhead is what communication costs.
func (b *builder) overhead() (result, bool) {
	r := result{id: "overhead", title: "What communication costs"}
	var parts []string
	for _, p := range b.pairs() {
		o, err := b.study.Overhead(p[0], p[1])
		if err != nil || len(o.Rows) == 0 {
			continue
		}
		r.verdicts = append(r.verdicts, verdict{About: "Communication", Text: p[0] + ": " + o.Sentence})
		parts = append(parts, "<h3>"+escape(p[0])+"</h3>\n"+o.HTML())
	}
	r.html = firstSeries(parts, "lockstep scaling --show overhead")
	return r, len(parts) > 0
}

// collective is the latency and the bandwidth of the all-reduce of each series
// with enough runs that tell its time.
func (b *builder) collective() (result, bool) {
	r := result{id: "collective", title: "Latency and bandwidth of the all-reduce"}
	var parts []string
	for _, name := range b.study.Series() {
		c, err := b.study.Collective(name)
		if err != nil {
			continue // too few runs
		}
		r.verdicts = append(r.verdicts, verdict{About: "All-reduce", Text: c.Sentence})
		parts = append(parts, "<h3>"+escape(name)+"</h3>\n"+c.HTML())
	}
	r.html = firstSeries(parts, "lockstep scaling --show collective")
	return r, len(parts) > 0
}

// timeUse is where a step's time goes, from step spans and traces.
func (b *builder) timeUse() (result, bool) {
	t := b.study.TimeUse()
	if len(t.Rows) == 0 {
		return result{}, false
	}
	r := result{id: "time-use", title: "Where a step's time goes", html: t.FirstHTML(mostPoints) + note(more(len(t.Rows), mostPoints, "rows", "lockstep scaling --show time-use"))}
	for _, row := range t.Rows {
		if !(row.Step.Value > 0) {
			continue
		}
		share := func(s scaling.Estimate) string { return percent(s.Value / row.Step.Value) }
		text := fmt.Sprintf("a step of %s at %s takes %s ms: %s computes, %s waits for communication, %s for data",
			row.Series, plural(row.Workers, "worker"), number(1000*row.Step.Value), share(row.Compute), share(row.Exposed), share(row.Data))
		if row.Idle.Value > 0.005*row.Step.Value {
			text += fmt.Sprintf(", %s is idle", share(row.Idle))
		}
		r.verdicts = append(r.verdicts, verdict{About: "Time", Text: strings.ToUpper(text[:1]) + text[1:] + "."})
	}
	return r, true
}

// stragglers are the ranks that the others wait for.
func (b *builder) stragglers() (result, bool) {
	x := b.study.Stragglers()
	if len(x.Rows) == 0 {
		return result{}, false
	}
	return result{
		id: "stragglers", title: "Who comes last to the collective",
		html:     x.FirstHTML(mostPoints) + note(more(len(x.Rows), mostPoints, "rows", "lockstep scaling --show stragglers")),
		verdicts: []verdict{{About: "Stragglers", Text: x.Sentence}},
	}, true
}

// quality is what large batches do.
func (b *builder) quality() (result, bool) {
	q := b.study.Quality()
	r := result{id: "quality", title: "Quality and the global batch"}
	for _, row := range q.Rows {
		if row.Sentence != "" {
			r.verdicts = append(r.verdicts, verdict{About: "Quality", Text: row.Sentence})
		}
	}
	if len(r.verdicts) == 0 {
		return r, false
	}
	r.html = q.FirstHTML(mostPoints) + note(more(len(q.Rows), mostPoints, "rows", "lockstep scaling --show quality"))
	return r, true
}

// cost is time against device-hours, where it was asked for.
func (b *builder) cost() (result, bool) {
	if !b.options.Costs && b.options.Price == 0 {
		return result{}, false
	}
	c, err := b.study.Cost(b.options.Price)
	if err != nil {
		return result{id: "cost", title: "Cost", html: "<p>" + escape(err.Error()) + "</p>", verdicts: []verdict{{About: "Cost", Text: err.Error() + "."}}}, true
	}
	title := "Cost"
	if b.options.Price > 0 {
		title = strings.TrimSpace(fmt.Sprintf("Cost, a device-hour at %g %s", b.options.Price, b.options.Currency))
	}
	left := note(more(len(c.Rows), mostPoints, "rows", fmt.Sprintf("lockstep scaling --show cost=%g", b.options.Price)))
	return result{id: "cost", title: title, html: c.FirstHTML(mostPoints) + left, verdicts: []verdict{{About: "Cost", Text: c.Sentence}}}, true
}

// budget is how many workers so many device-hours buy.
func (b *builder) budget() (result, bool) {
	if b.options.Budget == 0 {
		return result{}, false
	}
	x, err := b.study.Budget(b.options.Budget)
	title := fmt.Sprintf("With %g device-hours", b.options.Budget)
	if err != nil {
		return result{id: "budget", title: title, html: "<p>" + escape(err.Error()) + "</p>", verdicts: []verdict{{About: "Budget", Text: err.Error() + "."}}}, true
	}
	left := note(more(len(x.Rows), mostPoints, "rows", fmt.Sprintf("lockstep scaling --show budget=%g", b.options.Budget)))
	r := result{id: "budget", title: title, html: x.FirstHTML(mostPoints) + left}
	for i, row := range x.Rows {
		if i > 0 && row.Predicted && x.Rows[i-1].Series == row.Series { // by its law, behind what was measured
			r.verdicts[len(r.verdicts)-1].Text += " " + row.Sentence
			continue
		}
		r.verdicts = append(r.verdicts, verdict{About: "Budget", Text: row.Sentence})
	}
	return r, true
}

// escape is text as it may stand in a page.
func escape(text string) string { return html.EscapeString(text) }
