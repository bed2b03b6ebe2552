package logread

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/programfile"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// claimContent turns what the content of p's file states about the run (Run.Info and the
// settings that the program has logged) into claims.
func claimContent(p *record.Part, source runs.Source, detail string) {
	info := &p.Run.Info
	others := p.Claims
	p.Claims = nil
	for _, c := range []struct {
		property runs.Property
		n        int
	}{
		{runs.PropertyWorkers, info.Workers},
		{runs.PropertyNodes, info.Nodes},
		{runs.PropertyBatch, info.BatchPerWorker},
		{runs.PropertyBatch, info.GlobalBatch},
	} {
		if c.n > 0 {
			p.AddClaim(c.property, int64(c.n), source, detail)
		}
	}
	if p.SeedKnown {
		p.AddClaim(runs.PropertySeed, info.Seed, source, detail)
	}
	if p.RankKnown {
		p.AddClaim(runs.PropertyRank, int64(p.Rank), source, detail)
	}
	if info.Series != "" {
		p.AddTextClaim(runs.PropertySeries, info.Series, source, detail)
	}
	p.Claims = append(p.Claims, others...)
	claimConfig(p, info.Config, source, detail)
}

// claimAccounting turns the accounting of a job into claims about the job's run. The name of the
// job is part of the command that submitted it.
func claimAccounting(job *record.Part) {
	claimContent(job, runs.SourceConfig, filepath.Base(job.Run.File))
	for i, c := range job.Claims {
		if c.Property == runs.PropertySeries {
			job.Claims[i].Origin.Source = runs.SourceCommand
		}
	}
}

// claimConfig adds what settings state about p's run. The claims of a setting that is a flag of
// the run's command have the command as their source.
func claimConfig(p *record.Part, config map[string]any, source runs.Source, detail string) {
	if len(config) == 0 {
		return
	}
	add := func(property runs.Property, n float64, text string, keys ...string) {
		from, where := source, detail
		if source == runs.SourceContent && isFlagOf(p.Run.Info.Command, keys[0]) {
			from, where = runs.SourceCommand, strings.Join(p.Run.Info.Command, " ")
		}
		where = strings.TrimPrefix(where+": ", ": ") + strings.Join(keys, " × ")
		p.Claims = append(p.Claims, record.Claim{Property: property, Number: int64(n), Text: text, Origin: runs.Origin{Source: from, Detail: where}})
	}
	nodes, nodesKey := configCount(config, "num_nodes", "nnodes", "n_nodes", "nodes", "num_machines")
	if nodesKey != "" {
		add(runs.PropertyNodes, nodes, "", nodesKey)
	}
	if n, key := configCount(config, "world_size", "n_gpus", "num_gpus", "ngpus", "ranks", "nranks", "num_processes", "n_workers"); key != "" {
		add(runs.PropertyWorkers, n, "", key)
	} else if n, key := configCount(config, "devices", "gpus", "nproc_per_node"); key != "" { // on each node
		switch product := n * max(nodes, 1); {
		case product > record.MaxWorkers:
		case nodesKey == "":
			add(runs.PropertyWorkers, n, "", key)
			p.Claims[len(p.Claims)-1].PerNode = true
		default:
			add(runs.PropertyWorkers, product, "", key, nodesKey)
		}
	}
	for _, key := range []string{"seed", "random_seed", "manual_seed", "seed_everything"} {
		if v, ok := record.ConfigNumber(config, key); ok {
			add(runs.PropertySeed, v, "", key)
			break
		}
	}
	for _, key := range batchKeys() {
		if v, ok := record.ConfigNumber(config, key); ok && v >= 1 && v <= 1<<31 {
			add(runs.PropertyBatch, v, "", key)
			break
		}
	}
	for _, key := range []string{"model", "arch", "model_name", "network"} {
		if text, ok := config[key].(string); ok && text != "" {
			add(runs.PropertyModel, 0, text, key)
			break
		}
	}
}

// isFlagOf reports whether --key is a flag of the command.
func isFlagOf(command []string, key string) bool {
	return slices.ContainsFunc(command, func(w string) bool {
		name, _, _ := strings.Cut(w, "=")
		return name == "--"+key
	})
}

// configCount returns the first setting that is a count, and its key, or "" if there is none.
// The settings may be in a section of the launcher or trainer.
func configCount(config map[string]any, keys ...string) (n float64, key string) {
	for _, section := range []string{"", "trainer/", "training/", "train/", "distributed/", "launcher/"} {
		for _, k := range keys {
			k = section + k
			if n, ok := record.ConfigNumber(config, k); ok {
				if record.IsPlausibleCount(n) {
					return n, k
				}
				continue
			}
			// Lightning and others also take a list of devices, such as "0,1".
			if text, ok := config[k].(string); ok && strings.Contains(text, ",") {
				if n := countDevices(text); n > 0 {
					return float64(n), k
				}
			}
		}
	}
	return 0, ""
}

// countDevices returns the number of devices in a list such as "0,1,2" or "[0, 1]", or 0 if the
// text is not such a list.
func countDevices(text string) int {
	n := 0
	for word := range strings.SplitSeq(strings.Trim(text, "[] "), ",") {
		word = strings.TrimSpace(word)
		if word == "" && n > 0 {
			continue // "0," is a list of one device
		}
		if _, err := strconv.Atoi(word); err != nil {
			return 0
		}
		n++
	}
	return n
}

// pathName is the name of a file (without its extensions) or of a folder above it.
type pathName struct {
	names.Fields
	name   string
	source runs.Source // SourceFileName or SourceFolderName
}

// maxPathFolders is the number of folders above a file whose names are searched.
const maxPathFolders = 4

// pathNames returns the names of a path that are searched: the file name, followed by up to four
// folders, innermost first.
func pathNames(path string) []pathName {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	base := record.UncompressedName(filepath.Base(path))
	if ext := filepath.Ext(base); strings.Trim(ext, ".0123456789") != "" { // not the 0 in rank.0
		base = strings.TrimSuffix(base, ext)
	}
	found := []pathName{newPathName(base, runs.SourceFileName)}
	for range maxPathFolders {
		path = filepath.Dir(path)
		name := filepath.Base(path)
		if name == string(filepath.Separator) || name == "." {
			break
		}
		found = append(found, newPathName(name, runs.SourceFolderName))
	}
	return found
}

// newPathName parses a name. The host in the name of an event file, and in the name of the
// folder that PyTorch's SummaryWriter creates (Aug12_10-00-00_host), says nothing about a run.
func newPathName(name string, source runs.Source) pathName {
	fields := names.Parse(name)
	if isEventsName(name) || len(name) > len(summaryWriterStamp) && isSummaryWriterStamp(name[:len(summaryWriterStamp)]) {
		fields = names.Parse("")
		fields.Rest = name
	}
	return pathName{fields, name, source}
}

// isEventsName reports whether a file has a name of TensorBoard's event files.
func isEventsName(name string) bool { return strings.HasPrefix(name, "events.out.tfevents") }

// summaryWriterStamp is the form of the time at the beginning of a folder's name.
const summaryWriterStamp = "Aug12_10-00-00_"

// isSummaryWriterStamp reports whether text has the form of summaryWriterStamp.
func isSummaryWriterStamp(text string) bool {
	for i := range len(summaryWriterStamp) {
		got, form := text[i], summaryWriterStamp[i]
		switch isDigit := got >= '0' && got <= '9'; {
		case form >= '0' && form <= '9' && !isDigit:
			return false
		case form == '_' || form == '-':
			if got != form {
				return false
			}
		case form >= 'A' && isDigit:
			return false
		}
	}
	return true
}

// claimNames adds what the names in a path say about p's run. The name of a folder counts more
// than that of the file, and an inner folder more than an outer one. numbersAreRanks is set if a
// number after gpu, worker, rank or task in the path cannot be a number of workers.
func claimNames(p *record.Part, path string, numbersAreRanks bool) {
	if study, ok := programfile.ParseStudyName(path); ok {
		claimStudyName(p, study, filepath.Base(path))
	}
	all := pathNames(path)
	countAt := -1 // index of the first name with a number of workers
	for i, f := range all {
		if f.Workers > 0 {
			p.AddClaim(runs.PropertyWorkers, int64(f.Workers), f.source, f.name)
			if countAt < 0 {
				countAt = i
			}
		}
		if f.Nodes > 0 {
			p.AddClaim(runs.PropertyNodes, int64(f.Nodes), f.source, f.name)
		}
		if f.Seed >= 0 && i < 2 {
			p.AddClaim(runs.PropertySeed, int64(f.Seed), f.source, f.name)
		}
	}
	// A bare number in a folder named for a worker count numbers the runs: base/4GPU/00/out.log.
	for _, f := range all[:max(countAt, 0)] {
		if seed, err := strconv.Atoi(f.name); err == nil && seed >= 0 && len(f.name) <= maxRepeatDigits {
			p.AddClaim(runs.PropertySeed, int64(seed), f.source, f.name)
			break
		}
	}
	if slices.ContainsFunc(p.Claims, func(c record.Claim) bool { return c.Property == runs.PropertyWorkers }) || numbersAreRanks {
		return
	}
	for _, f := range all {
		switch {
		case f.Number < 0:
			continue
		case (f.Word == "gpu" || f.Word == "worker") && f.Number > 0 && f.name[f.At] != '0':
			p.AddClaim(runs.PropertyWorkers, int64(f.Number), f.source, f.name)
		default:
			p.AddClaim(runs.PropertyRank, int64(f.Number), f.source, f.name)
		}
		return
	}
}

// maxRepeatDigits is the number of digits of a name that is only the number of a repeat. Longer
// numbers are those of jobs.
const maxRepeatDigits = 3

// claimStudyName adds what a file name of the U-Net study says.
func claimStudyName(p *record.Part, study programfile.StudyName, name string) {
	p.AddClaim(runs.PropertyWorkers, int64(study.Workers), runs.SourceFileName, name)
	p.AddTextClaim(runs.PropertySeries, study.Series, runs.SourceFileName, name)
	if study.Repeat > 0 {
		p.AddClaim(runs.PropertySeed, int64(study.Repeat), runs.SourceFileName, name)
	}
}

// describeValue returns a claim's property and value, such as "workers 4".
func describeValue(c record.Claim) string {
	if c.Text != "" {
		return fmt.Sprintf("%s %q", c.Property, c.Text)
	}
	return fmt.Sprintf("%s %d", c.Property, c.Number)
}
