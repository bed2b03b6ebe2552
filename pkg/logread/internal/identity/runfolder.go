package identity

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/merge"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/trace"
	"lockstep/pkg/runs"
)

// joinRunFolders adds the files in each run folder of another program to the folder's run, and returns the
// other parts. The run keeps what run.json contains: workers, seed, series, nodes, status and wall time.
func (d *Resolver) joinRunFolders(parts []*record.Part) (kept []*record.Part) {
	inside := map[*record.Part][]*record.Part{} // nil contains the parts of no folder, and the folders
	for _, p := range parts {
		folder := d.runFolderOf(p)
		inside[folder] = append(inside[folder], p)
	}
	setWorkersFromDevices(slices.Collect(maps.Values(d.runFolders)), inside)
	for _, p := range inside[nil] {
		if kept = append(kept, p); len(inside[p]) > 0 {
			kept = append(kept, joinRunFolder(p, inside[p])...)
		}
	}
	return kept
}

// setWorkersFromDevices sets the number of workers of run folders with one process to the number of devices
// in the command, such as --n_gpus 2, unless their logs state another number. run.json only counts
// processes.
func setWorkersFromDevices(folders []*record.Part, inside map[*record.Part][]*record.Part) {
	for _, p := range folders {
		if info := &p.Run.Info; info.Workers == 1 && info.Processes == 0 {
			p.Evidence = launchline.CommandEvidence(info.Command, strings.Join(info.Command, " "))
		}
	}
	interpretDeviceOptions(folders, nil)
	for _, p := range folders {
		_, ok := strongestEvidence(p.Evidence, runs.PropertyWorkers)
		for _, log := range inside[p] {
			if log := *log; ok && log.Role == record.Principal {
				addContentEvidence(&log, runs.SourceContent, filepath.Base(log.Run.File))
				p.Evidence = append(p.Evidence, log.Evidence...)
			}
		}
		if e, ok := strongestEvidence(p.Evidence, runs.PropertyWorkers); ok {
			p.Run.Info.Workers = int(e.Number)
			reportEvidence(p, e)
		}
	}
}

// runFolderOf returns the other program's run folder that contains the file of p, or nil.
func (d *Resolver) runFolderOf(p *record.Part) *record.Part {
	for dir := filepath.Dir(filepath.Clean(p.Report.Path)); p.Role != record.RunFolder; dir = filepath.Dir(dir) {
		if folder := d.runFolders[dir]; folder != nil && len(folder.Run.Info.Command) > 0 {
			return folder
		} else if folder != nil || dir == filepath.Dir(dir) {
			break
		}
	}
	return nil
}

// joinRunFolder adds the parts to the run of folder. Of a file with several runs, such as a
// training that starts again at epoch 1, it returns one part for each further run.
func joinRunFolder(folder *record.Part, parts []*record.Part) []*record.Part {
	byRole := map[record.PartRole][]*record.Part{}
	for _, p := range parts {
		byRole[p.Role] = append(byRole[p.Role], p)
	}
	nth := map[*record.Report]int{} // number of runs of each file so far
	into := []*record.Part{folder}  // the run of the folder and further runs
	byRun := [][]*record.Part{nil}
	for _, p := range joinResumedRuns(dropEarlierRunStates(byRole[record.Principal])) {
		n := nth[p.Report]
		nth[p.Report]++
		if n == len(byRun) {
			byRun, into = append(byRun, nil), append(into, newFurtherRun(folder, n+1))
		}
		byRun[n] = append(byRun[n], p)
	}
	for n, principals := range byRun {
		for _, p := range joinWorkerLogs(folder, principals) {
			addToRunFolder(into[n], p)
		}
	}
	for _, p := range trace.JoinTraceFiles(events.JoinEventFiles(byRole[record.Companion])) {
		merge.PrefixCurvesWithSplit(p)
		addToRunFolder(folder, p)
	}
	for _, p := range slices.Concat(byRole[record.Config], byRole[record.Accounting]) {
		addToRunFolder(folder, p)
	}
	for i, p := range parts {
		if slices.IndexFunc(parts, func(o *record.Part) bool { return o.Report == p.Report }) == i {
			folder.Run.Problems = append(folder.Run.Problems, p.Report.Problems()...)
		}
	}
	return into[1:]
}

// newFurtherRun returns the part of the n-th run of a file in the run folder. Its
// wall time is unknown, because the folder's covers all runs.
func newFurtherRun(folder *record.Part, n int) *record.Part {
	p := &record.Part{Role: record.Principal, Report: folder.Report, SeedKnown: true}
	p.Run.Info = folder.Run.Info
	p.Run.Info.Schema, p.Run.Info.WallSeconds = 0, 0
	p.Run.Info.Config, p.Run.Info.JobIDs = maps.Clone(p.Run.Info.Config), maps.Clone(p.Run.Info.JobIDs)
	p.Run.Dir, p.Run.File = folder.Run.Dir+"#"+strconv.Itoa(n), folder.Run.Dir
	return p
}

func addToRunFolder(folder, p *record.Part) {
	info := &p.Run.Info
	if p.Role == record.Principal && info.Workers > 0 && info.Workers != folder.Run.Info.Workers {
		p.Report.AddProblem(0, "the log states %s, but run.json %d; run.json counts", english.FormatCount(info.Workers, "worker"), folder.Run.Info.Workers)
	}
	p.Report.AddAssumptionOnce("belongs to the run in %s", folder.Run.Dir)
	info.Status, info.Error = "", "" // the launcher knows how the workers ended
	folder.Run.OutOfMemory = append(folder.Run.OutOfMemory, p.Run.OutOfMemory...)
	merge.FillMissingRunValues(&folder.Run, p.Run)
}

// joinWorkerLogs merges the workers' logs in folder into one part. It returns this part, followed
// by the other parts.
func joinWorkerLogs(folder *record.Part, parts []*record.Part) (all []*record.Part) {
	var workers []merge.RankFile
	for _, p := range parts {
		rank, ok := runs.WorkerLogRank(record.UncompressedName(filepath.Base(p.Report.Path)))
		if ok && rank < folder.Run.Info.Workers && filepath.Dir(p.Report.Path) == filepath.Clean(folder.Report.Path) {
			workers = append(workers, merge.RankFile{Part: p, Rank: rank})
		} else {
			all = append(all, p)
		}
	}
	if len(workers) == 0 {
		return all
	}
	slices.SortStableFunc(workers, func(a, b merge.RankFile) int { return cmp.Compare(a.Rank, b.Rank) })
	ranks := make([]int, len(workers))
	for i, f := range workers {
		if ranks[i] = f.Rank; i > 0 {
			f.Part.Report.AddAssumption("rank %d of the run in %s", f.Rank, folder.Run.Dir)
		}
	}
	if len(workers) > 1 {
		merge.JoinRankFiles(workers, ranks)
	}
	return append([]*record.Part{workers[0].Part}, all...)
}
