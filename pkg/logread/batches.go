package logread

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// BatchTrial is the outcome of one job: its batch size, and whether the job
// trained with it or ran out of memory.
type BatchTrial struct {
	Batch int // per worker, or as in the job's command; see From
	Fits  bool
	Job   string         // the run's folder or file
	From  string         // where the batch size comes from
	Proof []runs.Problem // the lines that show it: the last epoch, or the messages
}

// BatchLimit is the largest batch size that fits into memory, as observed in
// the jobs of one series.
type BatchLimit struct {
	Series  string
	Tried   []BatchTrial // by batch size; of equal sizes those that fit come first
	Good    int          // largest batch size that trained, 0 if none did
	Failing int          // smallest batch size that ran out of memory, 0 if none did
	Unknown []BatchTrial // jobs that ran out of memory with an unknown batch size
}

// BatchLimits returns, for each series, the batch sizes that trained and those
// that ran out of memory. The output files of one job (job.out and job.err)
// count as one job.
func BatchLimits(all []runs.Run) []BatchLimit {
	var limits []BatchLimit
	for _, j := range groupByJob(all) {
		t, series, ok := j.describeTrial()
		if !ok || t.Fits && t.Batch == 0 {
			continue
		}
		series = trimBatchSize(series)
		i := slices.IndexFunc(limits, func(l BatchLimit) bool { return l.Series == series })
		if i < 0 {
			i = len(limits)
			limits = append(limits, BatchLimit{Series: series})
		}
		l := &limits[i]
		switch {
		case t.Batch == 0:
			l.Unknown = append(l.Unknown, t)
			continue
		case t.Fits:
			l.Good = max(l.Good, t.Batch)
		case l.Failing == 0 || t.Batch < l.Failing:
			l.Failing = t.Batch
		}
		l.Tried = append(l.Tried, t)
	}
	for i := range limits {
		slices.SortStableFunc(limits[i].Tried, func(a, b BatchTrial) int {
			return cmp.Or(cmp.Compare(a.Batch, b.Batch), boolToInt(!a.Fits)-boolToInt(!b.Fits))
		})
	}
	return limits
}

// boolToInt returns 1 for true and 0 for false. As a sort key, it puts elements for which the
// condition is true last.
func boolToInt(is bool) int {
	if is {
		return 1
	}
	return 0
}

type job struct{ runs []runs.Run }

// groupByJob groups the runs by job: files whose names differ only in the
// extension belong to one job, which may start several runs.
func groupByJob(all []runs.Run) []job {
	var out []job
	at := map[string]int{}
	isError := func(r runs.Run) bool { return len(r.OutOfMemory) > 0 && len(r.Epochs) == 0 }
	errorsLast := slices.Clone(all) // error files without epochs belong to the last run of their job
	slices.SortStableFunc(errorsLast, func(a, b runs.Run) int {
		return boolToInt(isError(a)) - boolToInt(isError(b))
	})
	for _, r := range errorsLast {
		key := r.Dir
		if r.Kind != files.RunFolderKind {
			file, part, _ := strings.Cut(r.Dir, "#") // a file may have several runs
			key = strings.TrimSuffix(file, filepath.Ext(file)) + "#" + part
			if isError(r) {
				for n := 2; ; n++ {
					next := strings.TrimSuffix(key, "#"+part) + "#" + strconv.Itoa(n)
					if _, ok := at[next]; !ok {
						break
					}
					key = next
				}
				if i, ok := at[key]; ok {
					own, _ := findBatchSize(r)
					if before, _ := findBatchSize(out[i].runs[0]); own > 0 && before > 0 && own != before { // a later command of the script
						key += "#" + strconv.Itoa(own)
					}
				}
			}
		}
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, job{})
		}
		out[i].runs = append(out[i].runs, r)
	}
	return out
}

// describeTrial returns the outcome of the job, with batch size 0 if it is
// unknown, and the job's series. ok is false if the job neither trained nor ran
// out of memory.
func (j job) describeTrial() (t BatchTrial, series string, ok bool) {
	var trained *runs.Problem
	for _, r := range j.runs {
		if t.Job == "" || len(r.Epochs) > 0 {
			t.Job, series = r.Dir, r.Info.Series
		}
		if t.Batch == 0 {
			t.Batch, t.From = findBatchSize(r)
		}
		t.Proof = append(t.Proof, r.OutOfMemory...)
		if len(r.OutOfMemory) == 0 && r.Info.Status == runs.StatusFailed && isOutOfMemory(r.Info.Error) {
			t.Proof = append(t.Proof, runs.Problem{File: r.Dir, Reason: r.Info.Error})
		}
		switch e, tr := len(r.Epochs), len(r.Trials); {
		case r.Info.Status == runs.StatusFailed:
		case e > 0:
			done := runs.Problem{File: r.File, Line: r.Epochs[e-1].Line, Reason: fmt.Sprintf("epoch %d is done", r.Epochs[e-1].Epoch)}
			if trained = &done; len(r.OutOfMemory) > 0 { // before the first epoch
				done.Reason += ": the job continued, perhaps with a smaller batch"
				t.Proof = append(t.Proof, done)
			}
		case tr > 0: // a benchmark
			trained = &runs.Problem{File: r.File, Line: r.Trials[tr-1].Line, Reason: fmt.Sprintf("a rate of %.4g was measured", r.Trials[tr-1].Rate)}
		}
	}
	switch {
	case len(t.Proof) > 0:
	case trained != nil:
		t.Fits, t.Proof = true, []runs.Problem{*trained}
	default:
		return t, "", false
	}
	return t, series, true
}

func isOutOfMemory(reason string) bool {
	low := strings.ToLower(reason)
	return slices.ContainsFunc([]string{"out of memory", "out_of_memory", "of gpu memory at batch", "oom-kill"}, func(mark string) bool { return strings.Contains(low, mark) })
}

// batchSizePattern matches bs64, batch_64, batch-size=64 and b64 in a path.
var batchSizePattern = regexp.MustCompile(`(?i)(?:^|[^a-z0-9])(?:batch(?:[-_ ]?size)?|bs|b)[-_= ]?([0-9]+)(?:[^0-9]|$)`)

var jobNumberSuffix = regexp.MustCompile(`[-_.][0-9]{4,}$`)

// trimBatchSize removes the batch size and the job number from the name of a
// series that was taken from a file name, so that unet-bs32 and unet-bs64
// belong to one series.
func trimBatchSize(series string) string {
	series = jobNumberSuffix.ReplaceAllString(series, "")
	if at := batchSizePattern.FindStringSubmatchIndex(series); at != nil {
		series = strings.TrimRight(series[:at[0]], "-_. ") + series[at[3]:]
	}
	return strings.Trim(series, "-_. ")
}

// findBatchSize returns a run's batch size and where it was found: in the log, the configuration,
// or a name in the path. batch is 0 if it is unknown.
func findBatchSize(r runs.Run) (batch int, from string) {
	if r.Info.BatchPerWorker > 0 {
		return r.Info.BatchPerWorker, "batch per worker of the log"
	}
	for _, key := range record.BatchSettingKeys() {
		if v, ok := r.Info.Config[key].(float64); ok && v >= 1 && v == float64(int(v)) {
			return int(v), key + " of the command or configuration"
		}
	}
	for _, name := range []string{filepath.Base(r.Dir), filepath.Base(filepath.Dir(r.Dir))} {
		if m := batchSizePattern.FindStringSubmatch(name); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil && n > 0 {
				return n, "the name " + name
			}
		}
	}
	return 0, ""
}

// String returns one line per job, each followed by the lines of the logs that
// prove its outcome. The last line is the verdict.
func (l BatchLimit) String() string {
	var b strings.Builder
	for _, t := range slices.Concat(l.Tried, l.Unknown) {
		what, outcome := fmt.Sprintf("batch %d", t.Batch), "trained"
		if t.Batch == 0 {
			what = "unknown batch"
		}
		if !t.Fits {
			outcome = "ran out of memory"
		}
		fmt.Fprintf(&b, "%s: %s in %s", what, outcome, t.Job)
		if t.From != "" {
			fmt.Fprintf(&b, " (%s)", t.From)
		}
		b.WriteByte('\n')
		for _, p := range t.Proof {
			fmt.Fprintf(&b, "    %s\n", p)
		}
	}
	b.WriteString(l.Verdict() + "\n")
	return b.String()
}

// Verdict returns one sentence with the largest batch size that trained and the
// smallest that ran out of memory.
func (l BatchLimit) Verdict() string {
	head := ""
	if l.Series != "" {
		head = l.Series + ": "
	}
	switch {
	case l.Good > 0 && l.Failing > l.Good:
		return fmt.Sprintf("%slast good batch: %d; first failing batch: %d", head, l.Good, l.Failing)
	case l.Good > 0 && l.Failing > 0:
		return fmt.Sprintf("%sbatch %d trained, yet batch %d ran out of memory: the jobs differ in more than their batch; compare jobs of equal settings", head, l.Good, l.Failing)
	case l.Good > 0 && len(l.Unknown) > 0:
		return fmt.Sprintf("%slast good batch: %d; a job ran out of memory, but its batch size is unknown: put it in the file's name, such as bs64.err", head, l.Good)
	case l.Good > 0:
		return fmt.Sprintf("%slast good batch: %d; no job ran out of memory, so a larger one may fit", head, l.Good)
	case l.Failing > 0:
		return fmt.Sprintf("%sfirst failing batch: %d; no job is known to have trained with a smaller one", head, l.Failing)
	}
	return head + "a job ran out of memory, but its batch size is unknown: put it in the file's name, such as bs64.err"
}
