package identity

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/pattern"
	"lockstep/pkg/logread/internal/programfile"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/repeats"
	"lockstep/pkg/logread/internal/trace"
	"lockstep/pkg/runs"
)

// Resolver decides what identifies the runs in and below a path.
type Resolver struct {
	Root string // the path that is read; its parent folders are not searched
	// Patterns returns the user's patterns for a file, in order of precedence.
	Patterns func(file string) []pattern.Pattern
	// Ignores, if not nil, reports whether to ignore a piece of evidence. Only tests set it.
	Ignores func(record.Evidence) bool

	runFolders map[string]*record.Part        // parts of run folders by path
	matches    map[*record.Part]pattern.Match // what the pattern that matches the file states
	ranks      map[*record.Part]partRanks     // parts whose files are those of ranks
	titles     names.TitleFolders             // folders with numbered titles
	folders    map[string][]*record.Part      // principal parts by folder
	file       string                         // of which path contains the names
	path       names.Path
}

// IdentifyRuns decides which parts are one run, and what identifies each run. The runs are in the order
// of their first parts.
func (d *Resolver) IdentifyRuns(parts []*record.Part) []runs.Run {
	d.runFolders, d.matches, d.ranks, d.titles = map[string]*record.Part{}, map[*record.Part]pattern.Match{}, map[*record.Part]partRanks{}, names.TitleFolders{}
	for _, p := range parts {
		d.titles.Add(p.Run.File)
		if p.Role == record.RunFolder {
			d.runFolders[filepath.Clean(p.Report.Path)] = p
		}
	}
	parts = d.joinRunFolders(parts)
	pairStdoutAndStderr(parts)
	byRole := map[record.PartRole][]*record.Part{}
	for _, p := range parts {
		if p.Role != record.RunFolder {
			d.addPatternEvidence(p)
		}
		if p.Role == record.Principal {
			addContentEvidence(p, runs.SourceContent, "")
		}
		byRole[p.Role] = append(byRole[p.Role], p)
	}
	main := d.joinParts(byRole[record.Principal])
	companions := trace.JoinTraceFiles(events.JoinEventFiles(byRole[record.Companion]))
	for _, p := range companions {
		addContentEvidence(p, runs.SourceContent, "")
	}
	main = append(main, d.joinCompanionFiles(d.joinRankFiles(companions), main)...)
	d.addFolderConfigs(byRole[record.Config], main)
	jobs := byRole[record.Accounting]
	known := map[string]bool{}
	for _, p := range jobs {
		known[p.Run.Info.JobIDs[record.SlurmJobKey]] = true
	}
	for _, p := range main {
		setJobID(p, known)
	}
	main = append(main, joinJobAccounting(jobs, main)...)
	interpretDeviceOptions(main, d.titles)
	isMain := map[*record.Part]bool{}
	for _, p := range main {
		isMain[p] = true
		d.decideProperties(p)
	}
	dropKnownNumbers(main)
	for _, p := range slices.Concat(byRole[record.RunFolder], main) {
		p.RemoveImpossibleTimes()
	}
	alignStudies(main)
	addProblemsToRuns(main)
	var found []runs.Run
	for _, p := range parts {
		if p.Role == record.RunFolder || isMain[p] {
			found = append(found, p.Run)
		}
	}
	return found
}

func (d *Resolver) addPatternEvidence(p *record.Part) {
	for _, one := range d.Patterns(p.Report.Path) {
		m, ok := one.Match(p.Run.File)
		if !ok {
			continue
		}
		d.matches[p] = m
		p.Report.AddAssumptionOnce("the pattern %q matches", one)
		for _, e := range m.Evidence {
			if e.Property != runs.PropertyRank || !p.RankKnown {
				p.Evidence = append(p.Evidence, e)
			}
		}
		for _, why := range m.Problems {
			p.Report.AddProblem(p.Line, "%s", why)
		}
		return
	}
}

func (d *Resolver) decideProperties(p *record.Part) {
	ranks, numbersAreRanks := d.ranks[p]
	if file := cmp.Or(ranks.path, p.Run.File); file != d.file || d.path == nil { // a table may have many runs
		d.file, d.path = file, names.ParsePath(file)
	}
	if run, ok := p.Run.Info.Config["run"].(string); ok {
		p.Evidence = append(p.Evidence, names.ParseRunName(run).Evidence(nil)...)
	}
	p.Evidence = append(p.Evidence, d.evidenceFromNames(d.file, d.path)...)
	if e, ok := d.path.NumberEvidence(); ok && !numbersAreRanks {
		if _, known := strongestEvidence(p.Evidence, runs.PropertyWorkers); !known {
			p.Evidence = append(p.Evidence, e)
		}
	}
	if p.RanksProblem != "" {
		p.Report.AddProblem(p.Line, "%s", p.RanksProblem)
	}
	series := d.path.SeriesEvidence()
	if d.Ignores != nil {
		p.Evidence, series = slices.DeleteFunc(p.Evidence, d.Ignores), slices.DeleteFunc(series, d.Ignores)
	}
	_, stated := strongestEvidence(p.Evidence, runs.PropertySeries)
	if p.SeriesFromPath = !stated; !stated && len(series) > 0 {
		p.Evidence = append(p.Evidence, series[0])
	}
	setRunProperties(p, d.path)
	ranks.reportMissingRanks(p)
}

// dropKnownNumbers leaves numbers out of series and studies that were guessed from paths, where the paths differ only
// in numbers. It leaves out a number that states the workers, nodes or seed of each run, as in fast1.log, fast2.log
// and fast4.log. It also leaves out r1 and r2 at the end of unet-2gpu-r1 and unet-2gpu-r2, and s1 and s2, if these
// numbers count from 0 or 1.
func dropKnownNumbers(parts []*record.Part) {
	type path struct {
		part   *record.Part
		text   string
		places [][]int // of the numbers
		masked []byte
	}
	siblings := map[string][]path{}
	for _, p := range parts {
		if p.Run.Dir == p.Run.File { // no run of a table
			text, _ := filepath.Abs(p.Run.File) // empty without a working directory
			key := numbersInName.ReplaceAllString(text, "\x00")
			siblings[key] = append(siblings[key], path{p, text, numbersInName.FindAllStringIndex(text, -1), []byte(text)})
		}
	}
	for _, paths := range siblings {
		for k := range paths[0].places {
			found := map[int]bool{}
			isProperty := [3]bool{true, true, true}
			for _, x := range paths {
				number := x.text[x.places[k][0]:x.places[k][1]]
				n, _ := strconv.Atoi(number) // digits
				found[n] = true
				for j, v := range []int64{int64(x.part.Run.Info.Workers), int64(x.part.Run.Info.Nodes), x.part.Run.Info.Seed} {
					isProperty[j] = isProperty[j] && number == strconv.FormatInt(v, 10)
				}
			}
			before := 0 // the letters that are left out
			if at := paths[0].places[k]; repeats.CountFromStart(slices.Collect(maps.Keys(found))) && namedRepeat.MatchString(paths[0].text[at[0]-min(at[0], 2):]) {
				before = 1
			}
			for _, x := range paths {
				if at := x.places[k]; len(found) > 1 && (isProperty != [3]bool{} || before > 0) {
					copy(x.masked[at[0]-before:], strings.Repeat("#", at[1]-at[0]+before))
				}
			}
		}
		for _, x := range paths {
			if string(x.masked) != x.text {
				setNamesFromPath(x.part, names.ParseMaskedPath(x.text, string(x.masked)))
			}
		}
	}
}

// namedRepeat matches the number of a repeat at the end of a name, from the separator before it.
var namedRepeat = regexp.MustCompile(`(?i)^[-_./ ][rs][0-9]{1,2}(?:[./]|$)`)

// setNamesFromPath sets the series and the study of p that were guessed from its path by another form of the path.
func setNamesFromPath(p *record.Part, path names.Path) {
	info := &p.Run.Info
	isGuessed := info.Study == names.ParsePath(p.Run.File).Study(info.Series, !p.SeriesFromPath)
	if series := path.SeriesEvidence()[0]; p.SeriesFromPath && series.Text != info.Series {
		p.Report.AddAssumption("series %q: without the numbers in the name that are known", series.Text)
		info.Series, p.Run.Origins[runs.PropertySeries] = series.Text, series.Origin
	}
	if isGuessed {
		info.Study = path.Study(info.Series, !p.SeriesFromPath)
	}
}

// evidenceFromNames returns what the names in a path show, first those of the U-Net study's files.
func (d *Resolver) evidenceFromNames(file string, path names.Path) []record.Evidence {
	return append(programfile.StudyEvidence(file), path.Evidence(d.titles)...)
}

// interpretDeviceOptions decides whether a number in an option such as --gpus 2 is a number of devices or
// the index of a device. It is an index if another run of the same script, or else in the same folder, has a list of
// devices, such as --gpus 0,1, unless the path states the same number of workers.
func interpretDeviceOptions(parts []*record.Part, titles names.TitleFolders) {
	program := func(p *record.Part) string {
		return cmp.Or(launchline.ParseCommand(p.Run.Info.Command).Script, filepath.Dir(p.Run.File))
	}
	lists := map[string]bool{}
	for _, p := range parts {
		if slices.ContainsFunc(p.Evidence, func(e record.Evidence) bool { return e.Kind == record.DeviceList }) {
			lists[program(p)] = true
		}
	}
	for _, p := range parts {
		for i := range p.Evidence {
			e := &p.Evidence[i]
			isStated := func(n record.Evidence) bool { return n.Property == runs.PropertyWorkers && n.Number == e.Number }
			if e.Kind == record.Device && lists[program(p)] && !slices.ContainsFunc(names.ParsePath(p.Run.File).Evidence(titles), isStated) {
				e.Origin.Detail += fmt.Sprintf("; %d is the number of a device, since other commands list devices", e.Number)
				e.Number = 1
			}
		}
		p.Evidence = slices.DeleteFunc(p.Evidence, func(e record.Evidence) bool { return e.Kind == record.Device && e.Number == 0 })
	}
}

// alignStudies corrects studies that were guessed from paths. If the series of a run was also
// guessed from its path, the run gets the study of a run in the same folder whose log states the
// same series.
func alignStudies(parts []*record.Part) {
	type place struct{ folder, series string }
	placeOf := func(p *record.Part) place { return place{filepath.Dir(p.Run.File), p.Run.Info.Series} }
	studies := map[place]string{}
	for _, p := range parts {
		if !p.SeriesFromPath {
			studies[placeOf(p)] = p.Run.Info.Study
		}
	}
	for _, p := range parts {
		if study := studies[placeOf(p)]; p.SeriesFromPath && study != "" && study != p.Run.Info.Study {
			p.Run.Info.Study = study
			p.Report.AddAssumption("study %q: from the other runs of series %q in the same folder", study, p.Run.Info.Series)
		}
	}
}

// addProblemsToRuns adds the problems of each file to its run; in a file with several runs, the
// line of a problem determines the run.
func addProblemsToRuns(parts []*record.Part) {
	byFile := map[*record.Report][]*record.Part{}
	for _, p := range parts {
		byFile[p.Report] = append(byFile[p.Report], p)
	}
	for report, parts := range byFile {
		for _, problem := range report.Problems() {
			to := parts[0]
			for _, p := range parts {
				if problem.Line >= p.Line && strings.HasPrefix(p.Run.File, problem.File) {
					to = p
				}
			}
			to.Run.Problems = append(to.Run.Problems, problem)
		}
	}
}
