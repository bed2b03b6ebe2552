package logread

import (
	"fmt"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/runs"
)

// SeparateSeries gives runs that are not repeats of each other different series
// names: it changes Info.Series in all. Read, Follow and Rows call it.
//
// Runs of one series with the same number of workers are repeats only if they agree in everything that is
// known about them: model, mode, batch per worker, learning rate, nodes, samples per epoch, planned
// epochs, unit of the throughput, options of the command and settings that name no place, job, time or device and
// are no measurements, and words and numbers in the names of files and folders other than those of repeats
// (unet_s1024.log, unet_s2048.log).
// Runs with the same seed, or with rates that differ by more than 3 times, are no repeats either, unless
// run.json identifies them or their paths are equal but for the number of the repeat. Across worker
// counts, runs may differ, for example in a global batch that grows with the workers. A series that the
// user has named by a pattern, such as --as 'unet_*.log=series:unet', is not separated.
//
// The result has one note per separated series: what differs, the new names, and how to join them.
func SeparateSeries(all []runs.Run) (notes []string) {
	for _, s := range identity.SeparateSeries(all) {
		notes = append(notes, s.String())
	}
	return notes
}

// separateSeries separates the series, and adds explanations to Notes and to the reports of the
// files.
func (l *Logs) separateSeries() {
	separated := identity.SeparateSeries(l.Runs)
	if len(separated) == 0 {
		return
	}
	series := map[string]string{} // by file; the names of all of its runs are in the note
	for _, r := range l.Runs {
		series[r.File] = r.Info.Series
	}
	why := map[string]string{}
	for _, s := range separated {
		l.Notes = append(l.Notes, s.String())
		for _, file := range s.Files {
			why[file] = fmt.Sprintf("series %q: separated from the other runs of %q with equally many workers, which differ in %s", series[file], s.Series, english.JoinAnd(s.Differences))
		}
	}
	l.Reports = slices.Clone(l.Reports)
	for i := range l.Reports {
		if text := why[l.Reports[i].Path]; text != "" {
			l.Reports[i].Assumed = append(slices.Clone(l.Reports[i].Assumed), text)
		}
	}
}
