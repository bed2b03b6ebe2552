package scaling

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
	"lockstep/pkg/scaling/internal/verdict"
)

// OverheadRow is the cost of communication at one worker count.
type OverheadRow struct {
	Workers, Size int
	With, Without Estimate // speed: throughput, or 1/seconds
	Overhead      Estimate // (without − with)/without, 0 to 1
}

// Overhead is the cost of communication in a series. The speed of the series is compared with that
// of another series that does the same work without communication.
//
// Its table has one row per worker count: workers, size, and the estimates with, without
// and overhead, each with _low and _high.
type Overhead struct {
	analysis
	With, Without string
	Measure       string
	Compared      string // what was compared, such as "throughput", or the trials SYNTHETIC
	Rows          []OverheadRow
	Sentence      string
	rule          Rule
}

// Overhead compares a series with one that does the same work without communication. For each
// worker count that both have, it returns the fraction of the speed that communication costs:
// (without − with)/without. If both series have trials named SYNTHETIC, it compares these instead,
// because loading data hides communication.
func (s *Study) Overhead(with, without string) (*Overhead, error) {
	compared := ""
	if only := s.newTrialStudy(TrialSynthetic, with, without); only != nil {
		compared = "the trials SYNTHETIC, which train on data in memory"
		if left := s.workerCountsMissingIn(only, with, without); len(left) > 0 {
			compared += "; not compared at " + verdict.FormatWorkers(left) + ", where a series lacks them"
		}
		s = only
	}
	c, err := s.CompareSeries(with, without)
	if err != nil {
		return nil, fmt.Errorf("compute overhead: %w", err)
	}
	o := &Overhead{With: with, Without: without, Compared: compared, rule: s.Rule}
	var cells []observe.RunGroup
	for _, r := range c.Rows {
		i, err := s.findPointIndex(with, r.Workers)
		if err != nil {
			return nil, fmt.Errorf("compute overhead: %w", err)
		}
		j, err := s.findPointIndex(without, r.Workers)
		if err != nil {
			return nil, fmt.Errorf("compute overhead: %w", err)
		}
		a, b := s.Points[i], s.Points[j]
		row := OverheadRow{Workers: r.Workers, Size: a.Size, With: a.Throughput, Without: b.Throughput}
		switch r.Measure {
		case "epoch_seconds":
			row.With, row.Without = invert(a.EpochSeconds), invert(b.EpochSeconds)
		case "wall_seconds":
			row.With, row.Without = invert(a.WallSeconds), invert(b.WallSeconds)
		}
		o.Measure = r.Measure
		row.Overhead = Estimate(stats.Estimate(r.Ratio).Complement())
		o.Rows = append(o.Rows, row)
		cells = append(cells, s.cells[i], s.cells[j])
	}
	o.Compared = cmp.Or(o.Compared, describeSpeedMeasure(o.Measure, cells))
	o.analysis = analysis{o}
	o.Sentence = o.summarize()
	return o, nil
}

// workerCountsMissingIn returns the worker counts at which both series have points in s, but not in
// other.
func (s *Study) workerCountsMissingIn(other *Study, a, b string) (counts []string) {
	has := func(s *Study, series string, workers int) bool {
		_, err := s.findPointIndex(series, workers)
		return err == nil
	}
	for _, p := range s.Points {
		if n := p.Workers; p.Series == a && has(s, b, n) && !(has(other, a, n) && has(other, b, n)) {
			counts = append(counts, strconv.Itoa(n))
		}
	}
	return counts
}

// Overheads returns the overhead of each pair of series, with and without communication. If no
// pairs are given, it uses CommunicationPairs.
func (s *Study) Overheads(pairs ...[2]string) ([]*Overhead, error) {
	if len(pairs) == 0 {
		pairs = s.CommunicationPairs()
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("compute overhead: no series is known to be without communication, neither by run.json (strategy.no_communication) nor by its name, such as \"A, no communication\"; name two with lockstep scaling --show overhead=WITH:WITHOUT or lockstep plot --pair WITH:WITHOUT, in a notebook with figure.Options.Pairs; the series are %s", english.QuoteNames(s.Series()))
	}
	var all []*Overhead
	for _, p := range pairs {
		o, err := s.Overhead(p[0], p[1])
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// describeSpeedMeasure describes the measure of speed that was compared. For a logged throughput, it
// describes its source.
func describeSpeedMeasure(measure string, cells []observe.RunGroup) string {
	all := observe.SpeedMeasures()
	words := all[slices.IndexFunc(all, func(m observe.SpeedMeasure) bool { return m.Name == measure })].Words
	return english.JoinOr(observe.Distinct(cells, func(c observe.RunGroup) string {
		if source := c.RateSource(); measure == "throughput" && source != "" {
			return source
		}
		return words
	}))
}

// summarize describes the cost of communication at two worker counts: the largest, and the smallest
// above 1.
func (o *Overhead) summarize() string {
	last := o.Rows[len(o.Rows)-1]
	text := fmt.Sprintf("communication costs %s of the speed at %s", english.FormatPercent(last.Overhead.Value), o.rule.formatSize(last.Size))
	if last.Overhead.Value < 0 {
		text = fmt.Sprintf("communication costs no speed at %s: with it the series is %s faster than without", o.rule.formatSize(last.Size), english.FormatPercent(-last.Overhead.Value))
	}
	switch {
	case math.IsNaN(last.Overhead.Low):
	case last.Overhead.Low <= 0 && last.Overhead.High >= 0:
		text += fmt.Sprintf(" (%s to %s: the runs do not show that it costs anything)", english.FormatPercent(last.Overhead.Low), english.FormatPercent(last.Overhead.High))
	default:
		text += fmt.Sprintf(" (%s to %s)", english.FormatPercent(last.Overhead.Low), english.FormatPercent(last.Overhead.High))
	}
	// A single worker does not communicate.
	if i := slices.IndexFunc(o.Rows, func(r OverheadRow) bool { return r.Workers > 1 }); i >= 0 && i < len(o.Rows)-1 {
		share := "none"
		if v := o.Rows[i].Overhead.Value; v >= 0 {
			share = english.FormatPercent(v)
		}
		text += fmt.Sprintf(", and %s at %s", share, o.rule.formatSize(o.Rows[i].Size))
	}
	return text + ". Compared: " + o.Compared + "."
}

func invert(e Estimate) Estimate { return Estimate(stats.Estimate(e).Inverse()) }

func (o *Overhead) table(maxRows int) resultTable {
	g := grid.Grid[OverheadRow]{What: "overhead", Rows: limitRows(o.Rows, maxRows), Columns: []grid.Column[OverheadRow]{
		{Name: "workers", Brief: true, Count: func(r OverheadRow) int { return r.Workers }},
		{Name: "size", Count: func(r OverheadRow) int { return r.Size }},
	}}
	g.Columns = append(g.Columns, estimateColumns("with", func(r OverheadRow) Estimate { return r.With })...)
	g.Columns = append(g.Columns, estimateColumns("without", func(r OverheadRow) Estimate { return r.Without })...)
	g.Columns = append(g.Columns, estimateColumns("overhead", func(r OverheadRow) Estimate { return r.Overhead })...)
	g.Remarks = []string{
		o.Sentence,
		fmt.Sprintf("with: %s; without: %s; of %s; overhead = (without − with)/without", o.With, o.Without, rateDescriptions[o.Measure]),
		"rule: " + o.rule.describeCountedEpochs(),
	}
	return g
}

// noCommunicationPattern matches the part of a series name that marks a series without
// communication, such as ", no communication" or "_noddp".
var noCommunicationPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)[\s,;:()_-]*(?:\b|_)(?:(?:no|without)[\s_-]+(?:communication|comm|all-?reduce|sync)|no[\s_-]?ddp)\b[)]?`)
})

// CommunicationPairs returns the pairs of series that differ only in communication; the first of
// each pair communicates. If run.json states whether a series communicates, its name is ignored,
// and its partner is the series that differs in the fewest other settings. Other pairs are found by
// names such as "A" and "A, no communication".
func (s *Study) CommunicationPairs() [][2]string {
	groups := s.groupBySeries()
	var pairs [][2]string
	for _, g := range groups {
		communicates, stated := readCommunicationSetting(g)
		if stated && communicates {
			continue
		}
		partner := ""
		if stated {
			partner = findCommunicatingSeries(g, groups)
		}
		if with := noCommunicationPattern().ReplaceAllString(g.Name, ""); partner == "" && with != g.Name && slices.ContainsFunc(groups, func(o observe.Series) bool { return o.Name == with }) {
			partner = with
		}
		if partner != "" {
			pairs = append(pairs, [2]string{partner, g.Name})
		}
	}
	return pairs
}

// readCommunicationSetting reports whether the workers of a series communicate. stated is false unless
// all of its runs name the same strategy in run.json.
func readCommunicationSetting(g observe.Series) (communicates, stated bool) {
	for i, r := range g.Runs {
		options, _ := r.Info.Config["strategy"].(map[string]any) // only the name, or nothing, if all are the defaults
		without, _ := options["no_communication"].(bool)
		if r.Info.Strategy == "" || i > 0 && communicates == without {
			return false, false
		}
		communicates = !without
	}
	return communicates, len(g.Runs) > 0
}

// findCommunicatingSeries returns the series that communicates, does the same work as g, and
// differs from g in the fewest other settings. It returns "" if there is none, or more than one.
func findCommunicatingSeries(g observe.Series, groups []observe.Series) string {
	fewest, partner := math.MaxInt, ""
	for _, o := range groups {
		if communicates, stated := readCommunicationSetting(o); !stated || !communicates || !haveCommonWorkerCount(g, o) {
			continue
		}
		differences := slices.DeleteFunc(verdict.DifferingSettings([]observe.Series{g, o}), func(d verdict.DifferingSetting) bool { return d.Setting == "strategy.no_communication" })
		if slices.ContainsFunc(differences, isWorkloadSetting) {
			continue
		}
		switch n := len(differences); {
		case n < fewest:
			fewest, partner = n, o.Name
		case n == fewest:
			partner = ""
		}
	}
	return partner
}

func isWorkloadSetting(d verdict.DifferingSetting) bool {
	return slices.Contains([]string{"strategy", "batch per worker", "the number of parameters", "the number of threads per worker"}, d.Setting) || strings.HasPrefix(d.Setting, "model.")
}

func haveCommonWorkerCount(a, b observe.Series) bool {
	return slices.ContainsFunc(a.Runs, func(r runs.Run) bool {
		return slices.ContainsFunc(b.Runs, func(o runs.Run) bool { return r.Info.Workers == o.Info.Workers })
	})
}
