package tune

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"lockstep/pkg/data"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/train"
)

func formatLoaderSetting(s train.LoaderConfig) string {
	kind := cmp.Or(s.Kind, data.LoaderLowMem)
	text := fmt.Sprintf("%s, %s, prefetch %d", kind, english.FormatCount(s.Workers, "worker"), s.Prefetch)
	if s.Workers == 0 {
		text = kind + ", 0 workers"
	}
	if len(s.Order) > 0 && !slices.Equal(s.Order, data.DefaultOrder()) {
		text += ", " + strings.Join(s.Order, " ")
	}
	return text
}

// formatSampleRate formats a rate in samples per second: as an integer if it is at least 1000, else with
// four significant digits.
func formatSampleRate(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// Sentence returns one sentence that names the fastest setting, the setting to use, and the
// measurements that support it.
func (l *LoaderTuning) Sentence() string {
	now, fastest, smallest := l.Trials[l.Now], l.Trials[l.Fastest], l.Trials[l.Smallest]
	text := fmt.Sprintf("the fastest loader is %s, with %s samples/s", formatLoaderSetting(fastest.Setting), formatSampleRate(fastest.Rate))
	switch {
	case l.Fastest == l.Now:
		text += ", which is the config's setting"
	case fastest.Times.Low > 1:
		text += fmt.Sprintf(", %v times as fast as the config's setting (%s)", fastest.Times, formatLoaderSetting(now.Setting))
	default:
		text += fmt.Sprintf(", %v times as fast as the config's setting (%s), a difference within noise", fastest.Times, formatLoaderSetting(now.Setting))
	}
	switch {
	case l.Alone:
		text += "; no other setting is as fast within noise"
	case l.Smallest == l.Fastest:
		text += "; it is also the smallest setting that is as fast within noise"
	case l.Smallest == l.Now:
		text += "; the smallest setting that is as fast within noise is the config's setting"
	default:
		text += fmt.Sprintf("; the smallest setting that is as fast within noise is %s (%s)", formatLoaderSetting(smallest.Setting), formatSampleRate(smallest.Rate))
	}
	return text + "; " + l.trainingSentence() + "."
}

// trainingSentence says how much loading slows the training down, and whether another setting makes
// it faster.
func (l *LoaderTuning) trainingSentence() string {
	if l.Training == nil {
		return "whether training waits for the loader was not measured"
	}
	synthetic, full := l.Training[1].Rate, l.Training[2].Rate
	cost := fmt.Sprintf("with the config's setting, training runs at %s samples/s (FULL), %v of the %s samples/s without loading (SYNTHETIC); the loader alone is %.3g times as fast as training without loading",
		formatSampleRate(full), l.Full, formatSampleRate(synthetic), l.loaderToTrainingRatio())
	switch {
	case l.isLoadingNegligible():
		return "but the loader is not the bottleneck: " + cost + ": keep the config's setting"
	case l.comparedSettingIndex() == l.Now:
		return cost + ": no other setting makes training faster"
	}
	best := "the smallest setting"
	if l.Enough >= 0 {
		best = fmt.Sprintf("%s, which is %.3g times as fast as training without loading,", formatLoaderSetting(l.Trials[l.Enough].Setting), l.Trials[l.Enough].Rate/synthetic)
	}
	if l.Gain.Low > 1 {
		return fmt.Sprintf("%s; %s makes training %v times as fast: use it", cost, best, l.Gain)
	}
	return fmt.Sprintf("%s; %s makes training %v times as fast, no gain beyond noise: keep the config's setting", cost, best, l.Gain)
}

// Write writes a table of all settings, the notes, the sentence and the flags to w.
func (l *LoaderTuning) Write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "loader\tsamples/s\ttimes the config's\tmemory\trounds\t")
	for i, t := range l.Trials {
		var marks []string
		for _, m := range []struct {
			is   bool
			text string
		}{
			{i == l.Now, "the config's"},
			{i == l.Fastest, "fastest"},
			{i == l.Smallest, "smallest as fast"},
			{i == l.Enough, "enough"},
			{t.OtherBatches, "other batches: not advised"},
		} {
			if m.is {
				marks = append(marks, m.text)
			}
		}
		times := t.Times
		if i == l.Now {
			times.Low = math.NaN()
		}
		fmt.Fprintf(tw, "%s\t%s\t%v\t%s\t%d\t%s\n", formatLoaderSetting(t.Setting), formatSampleRate(t.Rate), times, formatMiB(t.MemoryBytes), len(t.Rates), strings.Join(marks, ", "))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, n := range l.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	_, err := fmt.Fprintf(w, "samples/s: median over the rounds; intervals: 95 %% (Student's t), of the ratio to the config's setting in the same round\n%s\n%s\n", l.Sentence(), l.Flags())
	return err
}

// Flags returns the advised setting as --set flags for lockstep train and lockstep launch.
func (l *LoaderTuning) Flags() string {
	var flags []string
	for _, kv := range FormatOverrides(l.AdvisedSetting()) {
		if strings.ContainsAny(kv, "[") {
			kv = "'" + kv + "'"
		}
		flags = append(flags, "--set "+kv)
	}
	return strings.Join(flags, " ")
}
