package identity

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// addContentEvidence adds to p's evidence what the content of its file states: Run.Info, and the settings
// that the program has logged.
func addContentEvidence(p *record.Part, source runs.Source, detail string) {
	info := &p.Run.Info
	others := p.Evidence
	p.Evidence = nil
	workers := record.Stated
	if p.WorkersDerived {
		workers = record.Derived
	}
	for _, c := range []struct {
		property runs.Property
		n        int
		kind     record.EvidenceKind
	}{
		{runs.PropertyWorkers, info.Workers, workers},
		{runs.PropertyNodes, info.Nodes, record.Stated},
		{runs.PropertyBatch, info.BatchPerWorker, record.Stated},
		{runs.PropertyBatch, info.GlobalBatch, record.Stated},
	} {
		if c.n > 0 {
			p.AddEvidence(c.property, int64(c.n), c.kind, source, detail)
		}
	}
	if p.SeedKnown {
		p.AddEvidence(runs.PropertySeed, info.Seed, record.Stated, source, detail)
	}
	if p.RankKnown {
		p.AddEvidence(runs.PropertyRank, int64(p.Rank), record.Stated, source, detail)
	}
	if info.Series != "" {
		p.AddTextEvidence(runs.PropertySeries, info.Series, source, detail)
	}
	p.Evidence = append(append(p.Evidence, others...), settingsEvidence(info.Config, info.Command, source, detail)...)
}

// settingsEvidence returns what settings state about a run. A setting that is also a flag of the
// run's command has the command as its source.
func settingsEvidence(config map[string]any, command []string, source runs.Source, detail string) (found []record.Evidence) {
	if len(config) == 0 {
		return nil
	}
	add := func(property runs.Property, n float64, text string, kind record.EvidenceKind, keys ...string) {
		from, where := source, detail
		if source == runs.SourceContent && isFlagOf(command, keys[0]) {
			from, where = runs.SourceCommand, strings.Join(command, " ")
		}
		where = strings.TrimPrefix(where+": ", ": ") + strings.Join(keys, " × ")
		found = append(found, record.Evidence{Property: property, Number: int64(n), Text: text, Kind: kind, Origin: runs.Origin{Source: from, Detail: where}})
	}
	nodes, nodesKey := findConfigCount(config, "num_nodes", "nnodes", "n_nodes", "nodes", "num_machines")
	if nodesKey != "" {
		add(runs.PropertyNodes, nodes, "", record.Stated, nodesKey)
	}
	if n, key := findConfigCount(config, "world_size", "n_gpus", "num_gpus", "ngpus", "ranks", "nranks", "num_processes", "n_workers"); key != "" {
		add(runs.PropertyWorkers, n, "", record.Stated, key)
	} else if n, key := findConfigCount(config, "devices", "gpus", "nproc_per_node"); key != "" { // on each node
		text, _ := config[key].(string)
		isList := strings.Contains(text, ",")
		switch product := n * max(nodes, 1); {
		case product > record.MaxWorkers || isFlagOf(command, key): // package launchline reads a flag
		case nodesKey == "" && isList:
			add(runs.PropertyWorkers, n, "", record.DeviceList, key)
		case nodesKey == "":
			add(runs.PropertyWorkers, n, "", record.PerNode, key)
		default:
			add(runs.PropertyWorkers, product, "", record.Stated, key, nodesKey)
		}
	}
	for _, c := range []struct {
		property runs.Property
		keys     []string
		most     float64
	}{
		{runs.PropertySeed, []string{"seed", "random_seed", "manual_seed", "seed_everything"}, 1 << 62},
		{runs.PropertyBatch, record.BatchSettingKeys(), 1 << 31},
	} {
		for _, key := range c.keys {
			if v, ok := record.ConfigNumber(config, key); ok && v <= c.most && (v >= 1 || c.property == runs.PropertySeed) {
				add(c.property, v, "", record.Stated, key)
				break
			}
		}
	}
	for _, key := range record.ModelSettingKeys() {
		if text, ok := config[key].(string); ok && text != "" {
			add(runs.PropertyModel, 0, text, record.Stated, key)
			break
		}
	}
	return found
}

func isFlagOf(command []string, key string) bool {
	return slices.ContainsFunc(command, func(w string) bool {
		name, _, _ := strings.Cut(w, "=")
		return name == "--"+key
	})
}

// findConfigCount returns the value of the first of the given keys whose setting is a count, and that
// key. key is "" if there is none. Settings may be in a section for the launcher or trainer.
func findConfigCount(config map[string]any, keys ...string) (n float64, key string) {
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
				if n := record.CountDevices(text); n > 0 {
					return float64(n), k
				}
			}
		}
	}
	return 0, ""
}

// jobFilePattern matches the name of a file that ends with the number of a Slurm job, such as
// train-1234.out, or of a job array and its task, such as slurm-1234_5.out.
var jobFilePattern = regexp.MustCompile(`^(?:(.*[-_.])?([0-9]{3,})_|.+[-_.])([0-9]+)\.(?:out|output|err|error|log|txt)$`)

// setJobID sets the Slurm job of p from the name of its file. If the name has two numbers, the one
// in known counts: the jobs whose accounting was read.
func setJobID(p *record.Part, known map[string]bool) {
	m := jobFilePattern.FindStringSubmatch(record.UncompressedName(filepath.Base(p.Run.File)))
	if p.Run.Info.JobIDs[record.SlurmJobKey] != "" || m == nil {
		return
	}
	id := m[3]
	if task := m[2] + "_" + m[3]; m[2] != "" && !known[id] && (known[task] || m[1] == "slurm-") {
		id = task
	}
	if len(id) < 3 {
		return
	}
	record.PutInMap(&p.Run.Info.JobIDs, record.SlurmJobKey, id)
}
