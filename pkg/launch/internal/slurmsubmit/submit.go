package slurmsubmit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"lockstep/pkg/internal/process"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/slurm"
	"lockstep/pkg/launch/site"
	"lockstep/pkg/runs"
)

// defaultArraySize is the default largest number of tasks of an array. Slurm's default
// configuration allows 1001.
const defaultArraySize = 1000

const arrayPrefix = "array-"

// Submission is what one call of sbatch submits: the job script of one run, a job array of runs
// that need the same resources, or one job that executes all runs one after another.
type Submission struct {
	Runs   []*Run
	script string // path of the script for sbatch

	// The text of the script, and the path of the list of run folders. Both are "" for a single
	// run.
	text string // of the script
	list string // path of the list of run folders

	isArray bool
}

func (n Submission) describe(b *strings.Builder) {
	for i, r := range n.Runs {
		if path := filepath.Join(r.Dir, scriptName); i == 0 {
			fmt.Fprintf(b, "# %s: would write %s\n%s\n", r.Name, path, r.script)
		} else if n.isArray { // the scripts of an array differ only in these
			fmt.Fprintf(b, "# %s: would write %s: the script above with the folder, seed and arguments of this run\n", r.Name, path)
		} else {
			fmt.Fprintf(b, "# %s: would write %s\n%s\n", r.Name, path, r.script)
		}
	}
	if n.list != "" {
		what := "the job for all of them"
		if n.isArray {
			what = "the job array"
		}
		fmt.Fprintf(b, "\n# would write the list of these %d run folders to %s, and the script of %s to %s\n%s\n", len(n.Runs), n.list, what, n.script, n.text)
	}
	fmt.Fprintf(b, "# and submit it:\n# %s\n\n", strings.Join(slurm.SubmitCommand(process.QuoteShellArgument(n.script)), " "))
}

// Submissions shows submissions in a notebook before they are submitted, each script collapsed.
type Submissions []Submission

func (l Submissions) String() string {
	var b strings.Builder
	for _, n := range l {
		n.describe(&b)
	}
	return b.String()
}

// HTML returns one collapsed section for each submission.
func (l Submissions) HTML() string {
	var b strings.Builder
	for _, n := range l {
		var text strings.Builder
		n.describe(&text)
		// The classic notebook's styles would hide the triangle that opens the section.
		fmt.Fprintf(&b, "<details><summary style=\"display: list-item\">Job script of %s</summary>\n<pre>%s</pre>\n</details>\n", html.EscapeString(n.String()), html.EscapeString(text.String()))
	}
	return b.String()
}

// String names the runs.
func (n Submission) String() string {
	if len(n.Runs) == 1 {
		return "run " + n.Runs[0].Name
	}
	return fmt.Sprintf("runs %s to %s (%d)", n.Runs[0].Name, n.Runs[len(n.Runs)-1].Name, len(n.Runs))
}

// PlanSubmissions groups the given runs into submissions; each run must have a job script. Runs
// that need the same resources become one job array of at most size tasks, even if other runs are
// between them. A size of 0 means defaultArraySize.
func (b *SweepJobs) PlanSubmissions(given []*Run, size int) (Submissions, error) {
	size = cmp.Or(size, defaultArraySize)
	var all Submissions
	var resources []site.Job // of each submission
	for _, r := range given {
		// The fields that differ between runs that need the same resources do not count.
		needs := r.job
		needs.Name, needs.Folder, needs.Environment, needs.Begin, needs.Command = "", "", nil, "", nil
		needs.Estimate, needs.Source = 0, ""
		found := false
		for i := len(all) - 1; i >= 0 && !found; i-- {
			if found = len(all[i].Runs) < size && reflect.DeepEqual(resources[i], needs); found {
				all[i].Runs = append(all[i].Runs, r)
			}
		}
		if !found {
			all = append(all, Submission{Runs: []*Run{r}, script: filepath.Join(r.Dir, scriptName)})
			resources = append(resources, needs)
		}
	}
	number := 0
	for i := range all {
		if len(all[i].Runs) == 1 {
			continue
		}
		number++
		if err := b.makeArray(&all[i], number, resources[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// makeArray turns n into a job array. number counts the arrays of the sweep. j is the job of n's
// runs, without the fields in which they differ.
func (b *SweepJobs) makeArray(n *Submission, number int, j site.Job) (err error) {
	folder := filepath.Join(b.Dir, queue.RecordsFolder)
	name := filepath.Join(folder, fmt.Sprintf("%s-%s%d", b.ID, arrayPrefix, number))
	n.script, n.list, n.isArray = name+".sh", name+".txt", true
	j.Name = fmt.Sprintf("%s-n%d", b.Study, n.Runs[0].Workers)
	j.Folder, j.Output, j.Array = folder, JobOutputName("%A_%a"), fmt.Sprintf("0-%d", len(n.Runs)-1)
	n.text, err = b.Profile.ArrayScript(j, n.list, scriptName)
	return err
}

// PlanOneJob returns the submission of a single job that executes the given runs one after another.
// Each run must have a job script. j is a job with the resources of the largest run.
func (b *SweepJobs) PlanOneJob(given []*Run, j site.Job) (Submissions, error) {
	if len(given) == 0 {
		return nil, nil
	}
	folder := filepath.Join(b.Dir, queue.RecordsFolder)
	name := filepath.Join(folder, b.ID+"-job")
	n := Submission{Runs: given, script: name + ".sh", list: name + ".txt"}
	j.Name, j.Folder, j.Output, j.Part = b.Study, folder, JobOutputName("%j"), false
	var err error
	n.text, err = b.Profile.SequenceScript(j, n.list, scriptName, exitName)
	return Submissions{n}, err
}

// Submit submits all. On failure, it cancels the jobs that it has submitted and removes the files
// that it has written.
func (b *SweepJobs) Submit(ctx context.Context, client slurm.Client, all Submissions) error {
	for i, n := range all {
		err := context.Cause(ctx)
		if err != nil {
			err = fmt.Errorf("interrupted before %s was submitted; jobs submitted before were canceled: %w", n, err)
		} else {
			err = b.submitOne(ctx, client, n)
		}
		if err != nil {
			return errors.Join(err, b.Withdraw(ctx, client, all[:i+1]))
		}
	}
	return nil
}

func (b *SweepJobs) submitOne(ctx context.Context, client slurm.Client, n Submission) error {
	err := b.writeSubmissionFiles(n)
	if err != nil {
		return fmt.Errorf("%s: %w", n, err)
	}
	id, err := client.Submit(ctx, n.script)
	if err != nil {
		return fmt.Errorf("%s: %w", n, err)
	}
	for i, r := range n.Runs {
		if r.ID = id; n.isArray {
			r.ID = slurm.ArrayTaskID(id, i)
		}
	}
	for _, r := range n.Runs {
		if err := b.writeDescription(r); err != nil {
			return fmt.Errorf("%s: %w; job %s was canceled", n, err, id)
		}
	}
	return nil
}

// Withdraw cancels the jobs of all and removes the files that describe them. A job that the
// controller accepts afterwards then does nothing; see withdrawalCheck.
func (b *SweepJobs) Withdraw(ctx context.Context, client slurm.Client, all Submissions) error {
	var ids []string
	var errs []error
	for _, n := range all {
		for _, r := range n.Runs {
			if r.ID != "" {
				ids = append(ids, r.ID)
			}
		}
		errs = append(errs, b.removeSubmissionFiles(n))
	}
	errs = append(errs, client.Cancel(context.WithoutCancel(ctx), ids, false))
	_ = os.Remove(filepath.Join(b.Dir, queue.RecordsFolder)) // unless it has other files
	_ = os.Remove(b.Dir)
	return errors.Join(errs...)
}

// writeSubmissionFiles writes the job scripts of a submission, and the descriptions of the jobs without their
// ids. For several runs it also writes the script of the submission and the list of the run folders.
func (b *SweepJobs) writeSubmissionFiles(n Submission) error {
	var list strings.Builder
	for _, r := range n.Runs {
		if err := runfolder.MakeDir(r.Dir); err != nil {
			return err
		}
		if err := runs.RemoveTemporary(r.Dir); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(r.Dir, exitName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // it would count as the result of this job
		}
		if err := writeScript(filepath.Join(r.Dir, scriptName), r.script); err != nil {
			return err
		}
		if err := b.writeDescription(r); err != nil {
			return err
		}
		fmt.Fprintln(&list, r.Dir)
	}
	if n.list == "" {
		return nil
	}
	if err := runfolder.MakeDir(filepath.Dir(n.list)); err != nil {
		return err
	}
	if err := wholefile.WriteBytes(n.list, []byte(list.String()), 0o644); err != nil {
		return runfolder.WrapWriteError("write list of runs", err)
	}
	return writeScript(n.script, n.text)
}

func writeScript(path, text string) error {
	return runfolder.WrapWriteError("write job script", wholefile.WriteBytes(path, []byte(text), 0o755))
}

// removeSubmissionFiles removes the files of writeSubmissionFiles, and the folders that become empty.
func (b *SweepJobs) removeSubmissionFiles(n Submission) error {
	var errs []error
	remove := func(path string) {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, r := range n.Runs {
		remove(filepath.Join(r.Dir, scriptName))
		remove(filepath.Join(r.Dir, descriptionName))
		_ = os.Remove(r.Dir) // unless it has other files
	}
	if n.list != "" {
		remove(n.list)
		remove(n.script)
	}
	return errors.Join(errs...)
}
