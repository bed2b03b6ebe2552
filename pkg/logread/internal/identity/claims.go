package identity

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// ClaimContent turns what the content of p's file states about the run (Run.Info and the
// settings that the program has logged) into claims.
func ClaimContent(p *record.Part, source runs.Source, detail string) {
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
	ClaimConfig(p, info.Config, source, detail)
}

// ClaimAccounting turns the accounting of a job into claims about the job's run. The name of the
// job is part of the command that submitted it.
func ClaimAccounting(job *record.Part) {
	ClaimContent(job, runs.SourceConfig, filepath.Base(job.Run.File))
	for i, c := range job.Claims {
		if c.Property == runs.PropertySeries {
			job.Claims[i].Origin.Source = runs.SourceCommand
		}
	}
}

// ClaimConfig adds what settings state about p's run. The claims of a setting that is a flag of
// the run's command have the command as their source.
func ClaimConfig(p *record.Part, config map[string]any, source runs.Source, detail string) {
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
	for _, key := range BatchKeys() {
		if v, ok := record.ConfigNumber(config, key); ok && v >= 1 && v <= 1<<31 {
			add(runs.PropertyBatch, v, "", key)
			break
		}
	}
	for _, key := range record.ModelKeys() {
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

// BatchKeys returns the names of settings with a batch size, first those that state it per worker.
func BatchKeys() []string {
	return []string{
		"per_device_train_batch_size", "batch_size_per_gpu", "batch-size-per-gpu", "local_batch_size", "micro_batch_size",
		"batch_size", "batch-size", "train_batch_size", "train-batch-size", "batch", "bs",
	}
}
