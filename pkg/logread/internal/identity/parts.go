package identity

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/merge"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// joinParts decides which principal parts belong to the same run, and returns one part per run. It
// uses the following evidence, from the strongest to the weakest:
//
//   - files of nodes: their lines have different ranks, and their paths differ only in a number;
//   - files of ranks: a pattern has {rank}, or a number follows rank, worker, gpu or task (joinRankFiles);
//   - states of one run, such as the trainer_state.json of each checkpoint: only the last one is used;
//   - logs with the same start and the same epochs, such as out.log and the output of the job;
//   - parts of a run that was resumed (joinResumedRuns).
//
// Parts with a differing identity (see differ) are never joined.
func (d *Resolver) joinParts(parts []*record.Part) []*record.Part {
	return joinResumedRuns(joinCopiedLogs(dropEarlierRunStates(d.joinRankFiles(parts))))
}

// settingsDiffer reports whether the contents of parts state different numbers of workers, series,
// models, batches, learning rates or planned epochs.
func settingsDiffer(parts []*record.Part) bool {
	seen := map[string]string{}
	for _, p := range parts {
		info := &p.Run.Info
		values := map[string]string{"series": info.Series}
		for key, n := range map[string]int{"world": info.Workers, "nodes": info.Nodes, "global batch": info.GlobalBatch, "batch per worker": info.BatchPerWorker} {
			if n > 0 {
				values[key] = strconv.Itoa(n)
			}
		}
		for _, key := range append(record.BatchSettingKeys(), "lr", "learning_rate", "model", "arch", "epochs") {
			if v, ok := info.Config[key]; ok {
				values[key] = fmt.Sprint(v)
			}
		}
		for key, value := range values {
			if before := seen[key]; before != "" && value != "" && before != value {
				return true
			}
			seen[key] = cmp.Or(seen[key], value)
		}
	}
	return false
}

// partRanks describes the ranks whose files were joined to a part. For a part that has it, numbers
// in the path are ranks.
type partRanks struct {
	ranks []int
	path  string // the path whose names identify the run; empty for that of the file
}

// joinRankFiles joins the files of the nodes and ranks of one run, and returns the joined and other parts.
func (d *Resolver) joinRankFiles(parts []*record.Part) []*record.Part {
	joined := map[*record.Part]bool{} // into another part, or the files of nodes
	gone := map[*record.Part]bool{}
	for _, ofNodes := range []bool{true, false} {
		for _, group := range merge.GroupRankFiles(parts, d.matches, ofNodes) {
			if slices.ContainsFunc(group, func(f merge.RankFile) bool { return joined[f.Part] }) {
				continue
			}
			ranks, origin, ok := decideRanks(group, ofNodes)
			if !ok {
				if !ofNodes && len(group) > 1 && group[0].Rank == 0 { // numbers that start at 0 are no numbers of workers
					for _, f := range group {
						d.ranks[f.Part] = partRanks{}
					}
				}
				continue
			}
			first := group[0].Part
			d.ranks[first] = partRanks{ranks, group[0].Path}
			if len(group) == 1 {
				if !first.RankKnown && origin.Source != runs.SourceUser {
					first.AddEvidence(runs.PropertyRank, int64(ranks[0]), record.Stated, origin.Source, origin.Detail)
				}
				continue
			}
			firstRanks := make([]int, len(group))
			for i, f := range group {
				own := ranks[i*len(ranks)/len(group) : (i+1)*len(ranks)/len(group)]
				firstRanks[i] = own[0]
				f.Part.RanksProblem = ""
				if joined[f.Part] = true; i > 0 {
					gone[f.Part] = true
					f.Part.Report.AddAssumption("%s of the run in %s", merge.DescribeRanks(own), first.Run.File)
				}
			}
			merge.JoinRankFiles(group, firstRanks)
			first.Evidence = slices.DeleteFunc(first.Evidence, func(e record.Evidence) bool {
				return e.Property == runs.PropertyRank || ofNodes && e.Property == runs.PropertyWorkers && e.Kind == record.AtLeast
			})
			first.AddEvidence(runs.PropertyWorkers, int64(slices.Max(ranks))+1, record.AtLeast, origin.Source, origin.Detail)
			if ofNodes {
				first.Ranks = slices.Sorted(slices.Values(ranks))
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p *record.Part) bool { return gone[p] })
}

// decideRanks returns the ranks of the files of a group, and where they are known from. ok is false
// if the numbers in their paths are not the nodes or ranks of one run.
//
// The files of nodes are one run if no two have the same rank, and together they have all ranks or,
// if they state the number of workers, at least no others. Each must have equally many ranks;
// otherwise the mean of their mean losses is not the mean of all ranks. The numbers of other files
// are ranks if the user, the contents, or a number of workers in them says so, or if they start at
// 0: gpu1.log, gpu2.log and gpu4.log may be runs with 1, 2 and 4 workers.
func decideRanks(group []merge.RankFile, ofNodes bool) (ranks []int, origin runs.Origin, ok bool) {
	origin = group[0].Origin
	world, known := 0, 0
	parts := make([]*record.Part, len(group))
	for i, f := range group {
		parts[i] = f.Part
		world = cmp.Or(world, f.Part.Run.Info.Workers)
		switch {
		case ofNodes:
			if len(f.Part.Ranks) != len(group[0].Part.Ranks) {
				return nil, origin, false
			}
			ranks = append(ranks, f.Part.Ranks...)
		case i > 0 && f.Rank == group[i-1].Rank: // rank0.log and rank00.log
			return nil, origin, false
		default:
			ranks = append(ranks, f.Rank)
		}
		if f.Part.RankKnown {
			known++
		}
	}
	if origin.Source == runs.SourceUser {
		return ranks, runs.Origin{Source: runs.SourceUser, Detail: "a file for each rank"}, true
	}
	if settingsDiffer(parts) || !ofNodes && ranInSequence(parts) {
		return nil, origin, false
	}
	ofContent := runs.Origin{Source: runs.SourceContent, Detail: "the ranks of " + english.FormatCount(len(group), "file")}
	if ofNodes {
		ok = len(group) > 1 && areDistinct(ranks) && slices.Max(ranks) < cmp.Or(world, len(ranks))
		return ranks, ofContent, ok
	}
	if known == len(group) {
		stated := make([]int, len(group))
		for i, p := range parts {
			stated[i] = p.Rank
		}
		if !areDistinct(stated) || len(stated) == 1 && stated[0] != ranks[0] {
			return nil, origin, false // each file is the log of a run, such as that of its rank 0
		}
		return stated, ofContent, true
	}
	if world > 0 {
		return ranks, origin, slices.Max(ranks) < world && len(group) <= world && world > 1
	}
	return ranks, origin, ranks[0] == 0 && len(group) > 1
}

func areDistinct(numbers []int) bool {
	return len(slices.Compact(slices.Sorted(slices.Values(numbers)))) == len(numbers)
}

func ranInSequence(parts []*record.Part) bool {
	var lastStart, firstEnd time.Time
	for _, p := range parts {
		info := &p.Run.Info
		if info.Started.After(lastStart) {
			lastStart = info.Started
		}
		if !info.Ended.IsZero() && (firstEnd.IsZero() || info.Ended.Before(firstEnd)) {
			firstEnd = info.Ended
		}
	}
	return !firstEnd.IsZero() && firstEnd.Before(lastStart)
}

// reportMissingRanks adds a problem that names the ranks of p's run without a file. There is none if
// only rank 0 has a file, as is common.
func (f partRanks) reportMissingRanks(p *record.Part) {
	if len(f.ranks) == 0 || len(f.ranks) == 1 && f.ranks[0] == 0 {
		return
	}
	var missing []int
	for rank := range p.Run.Info.Workers {
		if !slices.Contains(f.ranks, rank) {
			missing = append(missing, rank)
		}
	}
	verb := "have"
	if len(missing) == 1 {
		verb = "has"
	}
	if len(missing) > 0 {
		p.Report.AddProblem(0, "%s of %d %s no file: only the values of the other ranks are used", merge.DescribeRanks(missing), p.Run.Info.Workers, verb)
	}
}

func dropEarlierRunStates(parts []*record.Part) []*record.Part {
	last := map[string]*record.Part{}
	for _, p := range parts {
		if l := last[p.StateOf]; p.StateOf != "" && (l == nil || l.State < p.State) {
			last[p.StateOf] = p
		}
	}
	return slices.DeleteFunc(parts, func(p *record.Part) bool {
		earlier := p.StateOf != "" && last[p.StateOf] != p
		if earlier {
			p.Report.AddAssumption("an earlier state of the run; the state in %s counts", last[p.StateOf].Run.File)
		}
		return earlier
	})
}

// joinCopiedLogs joins logs with the same start and the same epochs, and returns one part per run.
func joinCopiedLogs(parts []*record.Part) (kept []*record.Part) {
	started := map[time.Time][]*record.Part{}
	for _, p := range parts {
		same := started[p.Run.Info.Started]
		i := slices.IndexFunc(same, func(k *record.Part) bool {
			return slices.EqualFunc(k.Run.Epochs, p.Run.Epochs, func(x, y runs.Epoch) bool { return x.Epoch == y.Epoch && x.Seconds == y.Seconds }) &&
				!settingsDiffer([]*record.Part{k, p})
		})
		if i >= 0 {
			p.Report.AddAssumption("the same start and the same epochs as in %s: one run", same[i].Run.File)
			merge.FillMissingPartValues(same[i], p)
			continue
		}
		kept = append(kept, p)
		if !p.Run.Info.Started.IsZero() && len(p.Run.Epochs) > 0 {
			started[p.Run.Info.Started] = append(same, p)
		}
	}
	return kept
}

// joinCompanionFiles adds each companion (event files, traces, tables of GPUs) to its run, and returns
// those without one as runs of their own, one per folder.
func (d *Resolver) joinCompanionFiles(companions, parts []*record.Part) (own []*record.Part) {
	d.folders = map[string][]*record.Part{}
	for _, p := range parts {
		folder := filepath.Dir(p.Run.File)
		d.folders[folder] = append(d.folders[folder], p)
	}
	groups := map[string]*record.Part{}
	for _, p := range companions {
		folder := merge.PrefixCurvesWithSplit(p)
		if ranks, ok := d.ranks[p]; ok && len(d.folders[folder]) == 0 {
			folder = filepath.Dir(ranks.path) // each rank has a folder
		}
		if to := d.runFolders[folder]; to != nil {
			p.Report.AddAssumption("belongs to the run in %s", folder)
			to.Run.Spans = append(to.Run.Spans, p.Run.Spans...)
			continue
		}
		to, why := d.findRun(folder)
		if strings.HasPrefix(p.Run.Dir, folder+"#") { // a further run of the folder
			own = append(own, p)
			continue
		}
		if to == nil && groups[folder] != nil {
			to, why = groups[folder], "of the same folder"
		}
		if to != nil {
			p.Report.AddAssumption("belongs to the run in %s (%s)", to.Run.File, why)
			merge.FillMissingPartValues(to, p)
			continue
		}
		p.Run.Dir = folder
		groups[folder] = p
		own = append(own, p)
		if why != "" {
			p.Report.AddAssumption("%s", why)
		}
	}
	return own
}

// findRun returns the only run in folder and how it was found. If the folder has no run, findRun
// looks in its parent and grandparent, but not above a folder that names a worker count or a
// repeat, since such a folder is a separate run. If a folder has several runs, run is nil and why
// is the reason.
func (d *Resolver) findRun(folder string) (run *record.Part, why string) {
	for range 3 {
		here := d.folders[folder]
		switch {
		case len(here) == 1:
			return here[0], "the only run of " + folder
		case len(here) > 1:
			return nil, fmt.Sprintf("%s has %d runs, and it is unknown to which of them this file belongs; it becomes a separate run", folder, len(here))
		case folder == filepath.Clean(d.Root), names.ParseFolder(filepath.Base(folder)).DescribesRun():
			return nil, ""
		}
		folder = filepath.Dir(folder)
	}
	return nil, ""
}
