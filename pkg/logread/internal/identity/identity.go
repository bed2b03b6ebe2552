package identity

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Set sets the properties of p's run that identify it, and Run.Origins. path is the path
// whose names count. Of several sources, the one with the highest precedence counts (see
// runs.Source). Contradictions are reported.
func Set(p *record.Part, path string) {
	info := &p.Run.Info
	if info.Status == "" {
		info.Status = runs.StatusDone
	}
	p.Run.Origins = map[runs.Property]runs.Origin{}
	for _, property := range runs.Properties() {
		c, ok := Choose(p.Claims, property)
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
	text := fmt.Sprintf("%s: from %s", c, c.Origin)
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

// Choose returns the claim about a property that counts. ok is false if there is none. The ranks
// that the file shows count more than a name, and more than a configuration or a command that
// states fewer workers.
func Choose(all []record.Claim, property runs.Property) (best record.Claim, ok bool) {
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
	type statement struct {
		source runs.Source
		n      int64
	}
	equal := false                 // one of them has the same precedence as best
	listed := map[statement]bool{} // a command and its flags state the same
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
		if by := (statement{from, c.Number}); !listed[by] {
			listed[by] = true
			equal = equal || from == best.Origin.Source
			others = append(others, fmt.Sprintf("%s states %d", c.Origin, c.Number))
		}
	}
	if len(others) == 0 {
		return
	}
	noun := strings.TrimSuffix(string(best.Property), "s")
	counts := string(best.Origin.Source)
	if equal {
		counts = "the first of them"
	}
	text := fmt.Sprintf("%s states %s, but %s; %s counts", best.Origin, english.Count(int(best.Number), noun), english.List(others), counts)
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

// SetJobID sets the number of a run's Slurm job from the name of the file that
// Slurm wrote: slurm-1234.out, name-1234.out, or slurm-1234_5.out for a task of
// a job array. known contains the numbers of the jobs whose accounting was read.
// If the name has two numbers, SetJobID uses the number that known contains.
func SetJobID(p *record.Part, known map[string]bool) {
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
