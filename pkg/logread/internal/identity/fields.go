package identity

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

type evidenceClass struct {
	source runs.Source
	kind   record.EvidenceKind
}

// evidenceOrder returns the classes of evidence from the strongest to the weakest. All kinds for
// which EvidenceKind.IsStated is true are equally strong. Among equally strong evidence, the first
// is used. There is one exception to this order: if the content shows more ranks than a weaker
// source states workers, the ranks are used.
func evidenceOrder() []evidenceClass {
	return []evidenceClass{
		{runs.SourceUser, record.Stated},        // --as, or lockstep-logs.yaml
		{runs.SourceContent, record.Stated},     // run.json, or what the program has logged: world_size, a list of devices
		{runs.SourceConfig, record.Stated},      // a file of settings, a job script, or a job's accounting
		{runs.SourceCommand, record.Stated},     // of the launcher that started the program
		{runs.SourceUser, record.AtLeast},       // the files of a pattern with {rank}
		{runs.SourceContent, record.AtLeast},    // the ranks in the lines
		{runs.SourceContent, record.Derived},    // the global batch over the batch of a device
		{runs.SourceRunName, record.Stated},     // in a table, such as an export of W&B
		{runs.SourceFolderName, record.Stated},  // an inner folder before an outer one
		{runs.SourceFileName, record.Stated},    //
		{runs.SourceFolderName, record.AtLeast}, // folders that are numbered as ranks
		{runs.SourceFileName, record.AtLeast},   // files that are numbered as ranks
		{runs.SourceContent, record.Devices},    // "Using 2 GPUs"
	}
}

func evidencePrecedence(e record.Evidence) int {
	s := evidenceClass{e.Origin.Source, e.Kind}
	if e.Kind.IsStated() {
		s.kind = record.Stated
	}
	return slices.Index(evidenceOrder(), s)
}

// strongestEvidence returns the strongest evidence about a property. ok is false if there is none.
func strongestEvidence(all []record.Evidence, property runs.Property) (best record.Evidence, ok bool) {
	for _, e := range all {
		if e.Property == property && (!ok || evidencePrecedence(e) < evidencePrecedence(best)) {
			best, ok = e, true
		}
	}
	config := evidencePrecedence(record.Evidence{Origin: runs.Origin{Source: runs.SourceConfig}})
	for _, e := range all {
		if e.Property == property && e.Kind == record.AtLeast && e.Number > best.Number && evidencePrecedence(best) >= config {
			best = e
		}
	}
	return best, ok
}

// setRunProperties sets the properties that identify the run of p, and Run.Origins. path contains
// the names that are used as evidence. It reports which evidence is used, which is outweighed, and
// contradictions.
func setRunProperties(p *record.Part, path names.Path) {
	info := &p.Run.Info
	info.Status = cmp.Or(info.Status, runs.StatusDone)
	info.Workers, info.Nodes, info.Seed, info.Series = 0, 0, 0, ""
	p.Run.Origins = map[runs.Property]runs.Origin{}
	for _, property := range runs.Properties() {
		e, ok := strongestEvidence(p.Evidence, property)
		if !ok {
			continue
		}
		p.Run.Origins[property] = e.Origin
		switch byUser := e.Origin.Source == runs.SourceUser; property {
		case runs.PropertyWorkers:
			info.Workers = int(e.Number)
		case runs.PropertyNodes:
			info.Nodes = int(e.Number)
		case runs.PropertySeed:
			info.Seed = e.Number
		case runs.PropertySeries:
			info.Series = e.Text
		case runs.PropertyBatch:
			if byUser {
				info.BatchPerWorker, info.GlobalBatch = int(e.Number), 0
			}
		case runs.PropertyModel:
			if byUser {
				record.SetConfigValue(info, "model", e.Text)
			}
		case runs.PropertyRank: // of the file; no field of the run
		}
		reportEvidence(p, e)
	}
	if info.Workers == 0 {
		p.Report.AddProblem(0, "the number of workers is unknown: expected it in the path, such as 4GPU/ or log_4.csv; set it with --as '%s'", examplePattern(p))
	}
	if info.Study == "" {
		info.Study = path.Study(info.Series, !p.SeriesFromPath)
	}
	info.GlobalBatch = cmp.Or(info.GlobalBatch, info.BatchPerWorker*info.Workers)
	if info.BatchPerWorker == 0 && info.Workers > 0 && info.GlobalBatch%info.Workers == 0 {
		info.BatchPerWorker = info.GlobalBatch / info.Workers
	}
}

// maxListedProperties limits the properties in a file's report, since a table may have thousands of runs.
const maxListedProperties = 100

// reportEvidence adds to the report of p that best is used for a property, and which evidence it
// outweighs. Contradictory numbers of workers or nodes become a problem.
func reportEvidence(p *record.Part, best record.Evidence) {
	r := p.Report
	if text := fmt.Sprintf("%s: from %s", best, best.Origin); best.Origin.Source.IsAssumed() {
		r.AddAssumptionOnce("%s (assumed)", text)
	} else if !slices.Contains(r.Known, text) && len(r.Known) < maxListedProperties {
		r.Known = append(r.Known, text)
	}
	type statement struct {
		source runs.Source
		n      int64
	}
	var contradictions []string
	listed := map[statement]bool{} // a command and its flags state the same
	counts := string(best.Origin.Source)
	for _, e := range p.Evidence {
		if e.Property != best.Property || e.Number == best.Number && e.Text == best.Text || e.Property == runs.PropertyBatch && e.Origin == best.Origin {
			continue // or the batch of a worker and that of all workers
		}
		if text := fmt.Sprintf("%s from %s, by %s", e, e.Origin, best.Origin.Source); !slices.Contains(r.Outweighed, text) && len(r.Outweighed) < maxListedProperties {
			r.Outweighed = append(r.Outweighed, text)
		}
		by := statement{e.Origin.Source, e.Number}
		isCount := e.Property == runs.PropertyWorkers || e.Property == runs.PropertyNodes
		contradicts := e.Kind != record.Derived && !(e.Kind == record.AtLeast && e.Number < best.Number) && !(e.Kind != record.Stated && e.Kind.IsStated() && best.Number%e.Number == 0) &&
			e.Origin.Source.Precedence() >= best.Origin.Source.Precedence() &&
			!(e.Property == runs.PropertyNodes && e.Origin.Source.IsAssumed() && int(e.Number) == p.Run.Info.Workers && !strings.Contains(strings.ToLower(e.Origin.Detail), "node")) // n4 may count workers
		if e.Kind == record.Devices { // perhaps of one of several equal nodes
			contradicts = best.Number%e.Number != 0
		}
		if !isCount || !contradicts || listed[by] {
			continue
		}
		listed[by] = true
		if e.Origin.Source == best.Origin.Source {
			counts = "the first of them"
		}
		contradictions = append(contradictions, fmt.Sprintf("%s states %d", e.Origin, e.Number))
	}
	if len(contradictions) == 0 {
		return
	}
	noun := strings.TrimSuffix(string(best.Property), "s")
	text := fmt.Sprintf("%s states %s, but %s; %s counts", best.Origin, english.FormatCount(int(best.Number), noun), english.JoinAnd(contradictions), counts)
	if best.Origin.Source == runs.SourceUser { // who knows better
		r.AddAssumptionOnce("%s", text)
		return
	}
	r.AddProblem(p.Line, "%s", text)
}

// examplePattern returns a pattern, as an example for the user, that states the number of workers
// of p's run.
func examplePattern(p *record.Part) string {
	if p.Run.Info.Nodes > 0 {
		return fmt.Sprintf("%s=workers:%d*GPUS_PER_NODE", filepath.Base(p.Run.File), p.Run.Info.Nodes)
	}
	return filepath.Base(p.Run.File) + "=workers:N"
}

// RankFromPath returns the rank in the path of a log.
func RankFromPath(path string) int {
	e, _ := names.ParsePath(path).NumberEvidence()
	return int(e.Number)
}
