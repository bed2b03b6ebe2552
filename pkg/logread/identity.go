package logread

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// setIdentity sets the properties of p's run that identify it, and Run.Origins. path is the path
// whose names count. Of several sources, the one with the highest precedence counts (see
// runs.Source). Contradictions are reported.
func setIdentity(p *record.Part, path string) {
	info := &p.Run.Info
	if info.Status == "" {
		info.Status = runs.StatusDone
	}
	p.Run.Origins = map[runs.Property]runs.Origin{}
	for _, property := range runs.Properties() {
		c, ok := choose(p.Claims, property)
		if !ok {
			continue
		}
		reportContradictions(p, c)
		p.Run.Origins[property] = c.Origin
		switch property {
		case runs.PropertyWorkers:
			info.Workers = int(c.Number)
		case runs.PropertyNodes:
			info.Nodes = int(c.Number)
		case runs.PropertySeed:
			info.Seed = c.Number
		case runs.PropertySeries:
			info.Series = c.Text
		case runs.PropertyBatch:
			if c.Origin.Source == runs.SourceUser {
				info.BatchPerWorker, info.GlobalBatch = int(c.Number), 0
			}
		case runs.PropertyModel:
			if c.Origin.Source == runs.SourceUser {
				setSetting(info, "model", c.Text)
			}
		case runs.PropertyRank: // of the file; no field of the run
		}
		reportOrigin(p.Report, c)
	}
	if info.Workers == 0 {
		p.Report.AddProblem(0, "the number of workers is unknown: expected it in the path, such as 4GPU/ or log_4.csv; set it with --as '%s'", asExample(p))
	}
	setSeriesAndStudy(p, path)
	if info.GlobalBatch == 0 && info.BatchPerWorker > 0 {
		info.GlobalBatch = info.BatchPerWorker * info.Workers
	}
	if info.BatchPerWorker == 0 && info.Workers > 0 && info.GlobalBatch%info.Workers == 0 {
		info.BatchPerWorker = info.GlobalBatch / info.Workers
	}
}

// setSetting sets one setting of a run.
func setSetting(info *runs.Info, key string, value any) {
	if info.Config == nil {
		info.Config = map[string]any{}
	}
	info.Config[key] = value
}

// reportOrigin adds the origin of a property to the report.
func reportOrigin(r *record.Report, c record.Claim) {
	text := fmt.Sprintf("%s: from %s", describeValue(c), c.Origin)
	if c.Origin.Source.IsAssumed() {
		r.AddAssumptionOnce("%s (assumed)", text)
	} else if !slices.Contains(r.Known, text) && len(r.Known) < maxKnown {
		r.Known = append(r.Known, text)
	}
}

// maxKnown is the largest number of properties that the report of a file lists. A table may have
// thousands of runs.
const maxKnown = 100

// asExample returns a pattern with which a user can state the number of workers of p's run.
func asExample(p *record.Part) string {
	if p.Run.Info.Nodes > 0 {
		return fmt.Sprintf("%s=workers:%d*GPUS_PER_NODE", filepath.Base(p.Run.File), p.Run.Info.Nodes)
	}
	return filepath.Base(p.Run.File) + "=workers:N"
}

// choose returns the claim about a property that counts. ok is false if there is none. The ranks
// that the file shows count more than a name, and more than a configuration or a command that
// states fewer workers.
func choose(all []record.Claim, property runs.Property) (best record.Claim, ok bool) {
	var claims []record.Claim
	for _, c := range all {
		if c.Property == property {
			claims = append(claims, c)
		}
	}
	if len(claims) == 0 {
		return best, false
	}
	precedence := func(c record.Claim) float64 {
		switch {
		case !c.AtLeast:
			return float64(c.Origin.Source.Precedence())
		case c.Origin.Source.IsAssumed():
			return float64(c.Origin.Source.Precedence()) + 0.5
		}
		return float64(runs.SourceCommand.Precedence()) + 0.5
	}
	slices.SortStableFunc(claims, func(a, b record.Claim) int {
		switch x, y := precedence(a), precedence(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	best = claims[0]
	for _, c := range claims {
		if c.AtLeast && c.Number > best.Number && best.Origin.Source.Precedence() >= runs.SourceConfig.Precedence() {
			best = c
		}
	}
	return best, true
}

// reportContradictions reports the claims about the number of workers or nodes that differ from
// the one that counts.
func reportContradictions(p *record.Part, best record.Claim) {
	if best.Property != runs.PropertyWorkers && best.Property != runs.PropertyNodes {
		return
	}
	var others []string
	for _, c := range p.Claims {
		from := c.Origin.Source
		switch {
		case c.Property != best.Property, c.Number == best.Number, c.AtLeast && c.Number < best.Number:
			continue
		case c.PerNode && best.Number%c.Number == 0:
			continue
		case from.Precedence() < best.Origin.Source.Precedence():
			continue
		}
		if text := fmt.Sprintf("%s states %d", c.Origin, c.Number); !slices.Contains(others, text) {
			others = append(others, text)
		}
	}
	if len(others) == 0 {
		return
	}
	noun := strings.TrimSuffix(string(best.Property), "s")
	text := fmt.Sprintf("%s states %s, but %s; %s counts", best.Origin, english.Count(int(best.Number), noun), english.List(others), best.Origin.Source)
	if best.Origin.Source == runs.SourceUser { // who knows better
		p.Report.AddAssumptionOnce("%s", text)
		return
	}
	p.Report.AddProblem(p.Line, "%s", text)
}

// setSeriesAndStudy sets the series, unless a claim has set it, and the study.
func setSeriesAndStudy(p *record.Part, path string) {
	info := &p.Run.Info
	_, stated := p.Run.Origins[runs.PropertySeries]
	if !stated {
		name, origin := seriesFromPath(path)
		info.Series, p.SeriesFromPath = name, true
		p.Run.Origins[runs.PropertySeries] = origin
		reportOrigin(p.Report, record.Claim{Property: runs.PropertySeries, Text: name, Origin: origin})
	}
	if info.Study == "" {
		info.Study = studyFromPath(path, info.Series, stated)
	}
}

// isRunName reports whether a name contains a number of workers or nodes, a repeat number, or a
// number that may be a rank.
func isRunName(name string) bool {
	f := newPathName(name, runs.SourceFolderName)
	return f.Workers > 0 || f.Nodes > 0 || f.Seed >= 0 || f.Number >= 0
}

// meaninglessNames returns names of files and folders that do not describe what
// ran.
func meaninglessNames() []string {
	return []string{
		"out", "err", "log", "logs", "stdout", "stderr", "output", "metrics", "trainer_state", "train", "training", "validation", "eval", "test",
		"results", "result", "slurm", "job", "run", "runs", "events", "checkpoint", "version", "lightning_logs", "tensorboard", "tb", "hparams", "benchy", "console", "sacct", "trace", "trainer", "state", "dllogger", "result", "synthetic", "stats",
	}
}

// seriesFromPath returns the innermost name of the path that describes what ran, without its
// numbers, and the origin of the series. If no name does, it returns the file name.
func seriesFromPath(path string) (series string, origin runs.Origin) {
	all := pathNames(path)
	for _, f := range all {
		if text := meaningfulPart(f); text != "" {
			return text, runs.Origin{Source: f.source, Detail: f.name}
		}
	}
	return all[0].name, runs.Origin{Source: runs.SourceFileName, Detail: all[0].name}
}

// studyFromPath returns the innermost folder whose name describes something other than the
// series, and is not the name of a run of the series, such as unet-n2-s1 of unet. If no folder
// does, it returns the folder of the file. A series whose name is not stated, but comes from the
// path, may have the name of its study.
func studyFromPath(path, series string, stated bool) string {
	all := pathNames(path)[1:]
	for _, f := range all {
		text := meaningfulPart(f)
		isRun := text == series && text != f.name && isRunName(f.name)
		if text != "" && !isRun && !(stated && f.name == series) {
			return f.name
		}
	}
	if len(all) == 0 {
		return series
	}
	return all[0].name
}

// meaningfulPart returns a name without the numbers of workers, nodes, ranks, repeats and jobs,
// or "" if only meaningless words such as "logs" are left.
func meaningfulPart(f pathName) string {
	if isEventsName(f.name) {
		return ""
	}
	var words []string
	plain := true
	for _, w := range strings.FieldsFunc(f.Rest, func(r rune) bool { return r == '_' || r == '-' || r == '.' || r == ' ' }) {
		if strings.Trim(w, "0123456789") == "" {
			continue
		}
		words = append(words, w)
		plain = plain && slices.ContainsFunc(meaninglessNames(), func(known string) bool { return strings.EqualFold(w, known) })
	}
	if plain {
		return ""
	}
	return strings.Join(words, "-")
}

// setJobID sets the number of a run's Slurm job from the name of the file that
// Slurm wrote: slurm-1234.out, name-1234.out, or slurm-1234_5.out for a task of
// a job array. known contains the numbers of the jobs whose accounting was read.
// If the name has two numbers, setJobID uses the number that known contains.
func setJobID(p *record.Part, known map[string]bool) {
	if p.Run.Info.JobIDs[record.SlurmJobKey] != "" {
		return
	}
	base := record.UncompressedName(filepath.Base(p.Run.File))
	stem := strings.TrimSuffix(base, filepath.Ext(base))
	switch filepath.Ext(base) {
	case ".out", ".err", ".log", ".txt":
	default:
		return
	}
	i := strings.LastIndexAny(stem, "-_.")
	if i <= 0 {
		return
	}
	id := stem[i+1:]
	if strings.Trim(id, "0123456789") != "" || id == "" {
		return
	}
	if k := strings.LastIndexAny(stem[:i], "-_."); stem[i] == '_' && !known[id] { // a task, after the job of its array
		task := stem[k+1:]
		job := stem[k+1 : i]
		if len(job) >= 3 && strings.Trim(job, "0123456789") == "" && (known[task] || stem[:k+1] == "slurm-") {
			id = task
		}
	}
	if len(id) < 3 {
		return
	}
	if p.Run.Info.JobIDs == nil {
		p.Run.Info.JobIDs = map[string]string{}
	}
	p.Run.Info.JobIDs[record.SlurmJobKey] = id
}
