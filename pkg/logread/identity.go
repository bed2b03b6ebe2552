package logread

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// runIdentifier derives a run's number of workers, series and seed from the
// path and the configuration if the log itself does not contain them.
type runIdentifier struct {
	countBefore, countAfter, seed, digit, nodes *regexp.Regexp
}

// sharedRunIdentifier returns the runIdentifier that all readers share.
// Compiling its expressions takes as long as reading ten thousand lines.
var sharedRunIdentifier = sync.OnceValue(newRunIdentifier)

// newRunIdentifier compiles the regular expressions that find numbers in names.
func newRunIdentifier() *runIdentifier {
	const noun = `n?(?:gpus?|workers?|ranks?|procs?|devices?|tasks?)`
	return &runIdentifier{
		// 4GPU, 8_workers; n4, np8, gpus-2, world_size_16. The workers of a
		// data loader (num_workers_8) do not count.
		countBefore: regexp.MustCompile(`(?i)(?:^|[^a-z0-9])([0-9]+)[-_ ]?` + noun + `(?:[^a-z0-9]|$)`),
		countAfter:  regexp.MustCompile(`(?i)(?:^|[^a-z0-9])(?:` + noun + `[-_= ]?|world[-_]?size[-_=]?|np?|ws|g)([0-9]+)(?:[^a-z0-9]|$)`),
		seed:        regexp.MustCompile(`(?i)(?:^|[^a-z0-9])(?:seed[-_= ]?|rep(?:eat)?[-_=]?|run[-_=]?|r|s)([0-9]+)(?:[^a-z0-9]|$)`),
		nodes:       regexp.MustCompile(`(?i)(?:^|[^a-z0-9])(?:([0-9]+)[-_ ]?nodes?|n?nodes?[-_= ]?([0-9]+))(?:[^a-z0-9]|$)`),
		digit:       regexp.MustCompile(`^[0-9]{1,4}$`),
	}
}

// setMissingProperties sets the properties of p's run that are still missing.
// The sources in order of precedence: the fields that a user's pattern captured
// (byPattern), the content of the file, its path, its configuration.
func (d *runIdentifier) setMissingProperties(p *record.Part, byPattern nameFields) {
	info := &p.Run.Info
	if info.Status == "" {
		info.Status = runs.StatusDone
	}
	byPath := d.parsePath(p.Run.File)
	if n := byPattern.workers; n > 0 {
		if info.Workers > 0 && info.Workers != n {
			p.Report.AddAssumption("%s: from the pattern; the file has %d", english.Count(n, "worker"), info.Workers)
		}
		info.Workers = n
	}
	if info.Workers == 0 && byPath.workers > 0 {
		info.Workers = byPath.workers
		p.Report.AddAssumption("%s: %s", english.Count(byPath.workers, "worker"), byPath.why)
	}
	if info.Workers == 0 {
		d.setWorkersFromConfig(p)
	}
	if info.Workers == 0 {
		p.Report.AddProblem(0, "the number of workers is unknown: expected it in the path, such as 4GPU/ or log_4.csv; set it with --as 'NAME_{workers}.EXT'")
	}
	if n := d.findNodes(p.Run.File); info.Nodes == 0 && n > 0 {
		info.Nodes = n
		p.Report.AddAssumption("%s: from the path", english.Count(n, "node"))
	}
	switch {
	case byPattern.seed >= 0:
		info.Seed = int64(byPattern.seed)
	case p.SeedKnown:
	case byPath.seed >= 0:
		info.Seed = int64(byPath.seed)
		p.Report.AddAssumption("repeat %d: from the path", byPath.seed)
	default:
		if s, ok := record.ConfigNumber(info.Config, "seed", "random_seed", "manual_seed"); ok {
			info.Seed = int64(s)
			p.Report.AddAssumption("seed %d: from the configuration", info.Seed)
		}
	}
	if byPattern.series != "" {
		info.Series = byPattern.series
	}
	if info.Series == "" {
		info.Series, p.SeriesFromPath = d.seriesFromPath(p.Run.File), true
		p.Report.AddAssumption("series %q: from the path", info.Series)
	} else if info.Study == "" {
		info.Study = d.studyFromPath(p.Run.File, info.Series)
	}
	if info.Study == "" {
		info.Study = d.studyFromPath(p.Run.File, "")
	}
	if info.GlobalBatch == 0 && info.BatchPerWorker > 0 {
		info.GlobalBatch = info.BatchPerWorker * info.Workers
	}
	if info.BatchPerWorker == 0 && info.Workers > 0 && info.GlobalBatch%info.Workers == 0 {
		info.BatchPerWorker = info.GlobalBatch / info.Workers
	}
}

// pathFields contains what the path of a file reveals about its run.
type pathFields struct {
	workers, seed int    // -1 if the path does not have it
	why           string // description of the name with the number of workers
}

// isRunName reports whether a name contains a worker count or a repeat number.
func (d *runIdentifier) isRunName(name string) bool {
	_, before := findNumber(d.countBefore, name)
	_, after := findNumber(d.countAfter, name)
	_, seed := findNumber(d.seed, name)
	return before || after || seed
}

// pathElements returns the names of a path that are searched: the file name
// without its extensions, followed by up to four folders, innermost first.
func pathElements(path string) []string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	base := record.UncompressedName(filepath.Base(path))
	found := []string{strings.TrimSuffix(base, filepath.Ext(base))}
	for range 4 {
		path = filepath.Dir(path)
		name := filepath.Base(path)
		if name == string(filepath.Separator) || name == "." {
			break
		}
		found = append(found, name)
	}
	return found
}

// parsePath searches the names of a path for the worker count and the repeat
// number, starting with the file name.
func (d *runIdentifier) parsePath(path string) pathFields {
	t := pathFields{workers: -1, seed: -1}
	names := pathElements(path)
	for i, name := range names {
		n, ok := findNumber(d.countBefore, name)
		if !ok || isLoaderCount(name) {
			n, ok = findNumber(d.countAfter, name)
		}
		if ok && !isLoaderCount(name) && t.workers < 0 && n > 0 {
			t.workers, t.why = n, fmt.Sprintf("the name %q", name)
			// A bare number in a folder named for a worker count numbers the
			// runs: base/4GPU/00/out.log.
			for _, below := range names[:i] {
				if d.digit.MatchString(below) && t.seed < 0 {
					t.seed, _ = strconv.Atoi(below)
				}
			}
		}
		if s, ok := findNumber(d.seed, name); ok && t.seed < 0 && i < 2 {
			t.seed = s
		}
	}
	return t
}

// findNodes returns the number of nodes that a path contains, or 0. A number
// that is part of a host name does not count. Such a number begins with 0, or
// follows the singular "node", as in node01 and node7.
func (d *runIdentifier) findNodes(path string) int {
	for _, name := range pathElements(path) {
		if !hasDigit(name) {
			continue
		}
		m := d.nodes.FindStringSubmatch(name)
		if m == nil || m[1] == "" && (strings.HasPrefix(m[2], "0") || !strings.Contains(strings.ToLower(m[0]), "nodes")) {
			continue
		}
		if n, err := strconv.Atoi(m[1] + m[2]); err == nil && n > 0 && n <= record.MaxWorkers {
			return n
		}
	}
	return 0
}

// isLoaderCount reports whether the number in a name is a number of data loader
// workers, not of ranks.
func isLoaderCount(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "num_workers") || strings.Contains(name, "num-workers") || strings.Contains(name, "loader")
}

// findNumber returns the number that re captures in text. ok is false if re
// does not match or the number is larger than MaxWorkers.
func findNumber(re *regexp.Regexp, text string) (n int, ok bool) {
	if !hasDigit(text) {
		return 0, false
	}
	m := re.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil && n <= record.MaxWorkers
}

// hasDigit reports whether text contains a digit. It is a fast check before the
// expressions of a runIdentifier, which match only names with a digit and are a
// hundred times as slow.
func hasDigit(text string) bool { return strings.ContainsAny(text, "0123456789") }

// setWorkersFromConfig sets the number of workers from the configuration, if it
// has one.
func (d *runIdentifier) setWorkersFromConfig(p *record.Part) {
	c := p.Run.Info.Config
	if n, ok := record.ConfigNumber(c, "world_size", "n_gpus", "num_gpus", "gpus", "ngpus", "ranks", "nranks", "num_processes", "n_workers"); ok && record.IsPlausibleCount(n) {
		p.Run.Info.Workers = int(n)
		p.Report.AddAssumption("%s: from the configuration", english.Count(int(n), "worker"))
		return
	}
	devices, ok := record.ConfigNumber(c, "devices", "nproc_per_node", "trainer/devices")
	if !ok || !record.IsPlausibleCount(devices) {
		return
	}
	nodes, ok := record.ConfigNumber(c, "num_nodes", "nnodes", "nodes")
	if !ok || !record.IsPlausibleCount(nodes) || nodes*devices > record.MaxWorkers {
		nodes = 1
	}
	p.Run.Info.Workers = int(devices * nodes)
	p.Report.AddAssumption("%s: devices %d × nodes %d of the configuration", english.Count(p.Run.Info.Workers, "worker"), int(devices), int(nodes))
}

// meaninglessNames returns names of files and folders that do not describe what
// ran.
func meaninglessNames() []string {
	return []string{
		"out", "err", "log", "logs", "stdout", "stderr", "output", "metrics", "trainer_state", "train", "training", "validation", "eval", "test",
		"results", "result", "slurm", "job", "run", "runs", "events", "checkpoint", "version", "lightning_logs", "tensorboard", "tb", "hparams", "benchy", "console", "sacct", "trace", "trainer", "state", "dllogger", "result", "synthetic", "stats",
	}
}

// seriesFromPath returns the innermost name of the path that describes what
// ran, without its numbers. If no name does, it returns the file name.
func (d *runIdentifier) seriesFromPath(path string) string {
	names := pathElements(path)
	for _, name := range names {
		if text := d.meaningfulPart(name); text != "" {
			return text
		}
	}
	return names[0]
}

// studyFromPath returns the innermost folder whose name describes something
// other than the series. If no folder does, it returns the folder of the file.
func (d *runIdentifier) studyFromPath(path, series string) string {
	names := pathElements(path)[1:]
	for _, name := range names {
		if d.meaningfulPart(name) != "" && name != series {
			return name
		}
	}
	if len(names) == 0 {
		return series
	}
	return names[0]
}

// meaningfulPart returns name without the numbers of workers, repeats and jobs,
// or "" if only meaningless words such as "logs" are left.
func (d *runIdentifier) meaningfulPart(name string) string {
	if strings.HasPrefix(name, "events.out.tfevents") {
		return ""
	}
	for _, re := range []*regexp.Regexp{d.countBefore, d.countAfter, d.seed} {
		if !hasDigit(name) {
			break
		}
		if m := re.FindStringIndex(name); m != nil && !isLoaderCount(name) {
			name = name[:m[0]] + "_" + name[m[1]:]
		}
	}
	var words []string
	plain := true
	for _, w := range strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '-' || r == '.' || r == ' ' }) {
		if strings.Trim(w, "0123456789") == "" {
			continue
		}
		words = append(words, w)
		known := false
		for _, p := range meaninglessNames() {
			known = known || strings.EqualFold(w, p)
		}
		plain = plain && known
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
