package launch

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/slurm"
	"lockstep/pkg/launch/site"
	"lockstep/pkg/runs"
)

// defaultArraySize is the largest number of tasks of an array unless SlurmOptions.ArraySize is
// given. Slurm's default configuration allows 1001.
const defaultArraySize = 1000

// submission is what one call of sbatch submits: the job script of one run, or a job array of
// runs that need the same resources.
type submission struct {
	runs   []*slurmRun
	script string // path of the script for sbatch

	// Of an array; else "".
	array string // text of the script
	list  string // path of the list of run folders
}

// describe writes to b what would be submitted.
func (n submission) describe(b *strings.Builder) {
	for i, r := range n.runs {
		if path := filepath.Join(r.dir, scriptName); i == 0 {
			fmt.Fprintf(b, "# %s: would write %s\n%s\n", r.name, path, r.script)
		} else { // the scripts of an array differ only in these
			fmt.Fprintf(b, "# %s: would write %s: the script above with the folder, seed and arguments of this run\n", r.name, path)
		}
	}
	if n.list != "" {
		fmt.Fprintf(b, "\n# would write the list of these %d run folders to %s, and the script of the job array to %s\n%s\n", len(n.runs), n.list, n.script, n.array)
	}
	fmt.Fprintf(b, "# and submit it:\n# %s\n\n", strings.Join(slurm.SubmitCommand(process.QuoteArgument(n.script)), " "))
}

// submissionList shows submissions in a notebook before they are submitted. Its HTML form shows each
// script once the user opens it.
type submissionList []submission

func (l submissionList) String() string {
	var b strings.Builder
	for _, n := range l {
		n.describe(&b)
	}
	return b.String()
}

// HTML returns one closed section for each submission.
func (l submissionList) HTML() string {
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
func (n submission) String() string {
	if len(n.runs) == 1 {
		return "run " + n.runs[0].name
	}
	return fmt.Sprintf("runs %s to %s (%d)", n.runs[0].name, n.runs[len(n.runs)-1].name, len(n.runs))
}

// planSubmissions groups the runs that are to be submitted. Runs that need the same resources are one
// job array, whatever runs are between them.
func (p *slurmPlan) planSubmissions() ([]submission, error) {
	size := p.s.Slurm.ArraySize
	if size == 0 {
		size = defaultArraySize
	}
	var all []submission
	var resources []site.Job // of each submission
	for _, r := range p.sweep.all {
		if r.script == "" {
			continue
		}
		// Only these fields of the job belong to the run.
		needs := r.placed
		needs.Name, needs.Folder, needs.Environment, needs.Begin, needs.Command = "", "", nil, "", nil
		needs.Estimate, needs.Source = 0, ""
		found := false
		for i := len(all) - 1; i >= 0 && !found; i-- {
			if found = len(all[i].runs) < size && reflect.DeepEqual(resources[i], needs); found {
				all[i].runs = append(all[i].runs, r)
			}
		}
		if !found {
			all = append(all, submission{runs: []*slurmRun{r}, script: filepath.Join(r.dir, scriptName)})
			resources = append(resources, needs)
		}
	}
	number := 0
	for i := range all {
		if len(all[i].runs) == 1 {
			continue
		}
		number++
		if err := p.planArray(&all[i], number, resources[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// planArray makes n a job array. number is its number in the sweep, and j the job of its runs
// without what differs among them.
func (p *slurmPlan) planArray(n *submission, number int, j site.Job) (err error) {
	folder := filepath.Join(p.dir, queue.RecordsFolder)
	name := filepath.Join(folder, fmt.Sprintf("%s-array-%d", p.id, number))
	n.script, n.list = name+".sh", name+".txt"
	j.Name = fmt.Sprintf("%s-n%d", p.s.Study, n.runs[0].workers)
	j.Folder, j.Output, j.Array = folder, slurmOutputName("%A_%a"), fmt.Sprintf("0-%d", len(n.runs)-1)
	n.array, err = p.profile.ArrayScript(j, n.list, scriptName)
	return err
}

// submit submits the jobs of the runs that are to be done. If that fails, it cancels the jobs that it
// has submitted and removes what it has written.
func (p *slurmPlan) submit(ctx context.Context) error {
	for _, r := range p.sweep.all {
		if r.skip { // perhaps no process was attached to the sweep when the run ended
			if err := r.writeStudyLog(); err != nil {
				return err
			}
		}
	}
	if len(p.submissions) == 0 {
		return nil
	}
	if _, err := rendezvous.CreateToken(os.Getenv); err != nil {
		return err
	}
	for i, n := range p.submissions {
		err := context.Cause(ctx)
		if err != nil {
			err = fmt.Errorf("interrupted before %s was submitted; jobs submitted before were canceled: %w", n, err)
		} else {
			err = p.submitRuns(ctx, n)
		}
		if err != nil {
			return errors.Join(err, p.withdraw(ctx, p.submissions[:i+1]))
		}
	}
	err := p.s.saveLineTemplates(p.dir)
	if err == nil {
		err = p.createRecord()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w; the jobs were canceled", err), p.withdraw(ctx, p.submissions))
	}
	return nil
}

// submitRuns writes the files of a submission and submits it.
func (p *slurmPlan) submitRuns(ctx context.Context, n submission) error {
	err := p.writeFiles(n)
	if err != nil {
		return fmt.Errorf("%s: %w", n, err)
	}
	id, err := p.sweep.client.Submit(ctx, n.script)
	if err != nil {
		return fmt.Errorf("%s: %w", n, err)
	}
	for i, r := range n.runs {
		if r.job.ID = id; n.list != "" {
			r.job.ID = slurm.TaskID(id, i)
		}
	}
	for _, r := range n.runs {
		if err := p.writeJobFile(r); err != nil {
			return fmt.Errorf("%s: %w; job %s was canceled", n, err, id)
		}
	}
	return nil
}

// withdraw cancels the jobs of submissions, and removes what writeFiles has written for them, so
// that a job which the controller accepts later does nothing.
func (p *slurmPlan) withdraw(ctx context.Context, all []submission) error {
	var ids []string
	var errs []error
	for _, n := range all {
		for _, r := range n.runs {
			if r.job.ID != "" {
				ids = append(ids, r.job.ID)
			}
		}
		errs = append(errs, p.removeFiles(n))
	}
	errs = append(errs, p.sweep.client.Cancel(context.WithoutCancel(ctx), ids, false))
	_ = os.Remove(filepath.Join(p.dir, queue.RecordsFolder)) // unless it has other files
	_ = os.Remove(p.dir)
	return errors.Join(errs...)
}

// writeFiles writes the job scripts of a submission, the descriptions of the jobs without their
// ids, and of an array its script and the list of its run folders.
func (p *slurmPlan) writeFiles(n submission) error {
	var list strings.Builder
	for _, r := range n.runs {
		if err := runfolder.Make(r.dir); err != nil {
			return err
		}
		if err := runs.RemoveTemporary(r.dir); err != nil {
			return err
		}
		if err := writeScript(filepath.Join(r.dir, scriptName), r.script); err != nil {
			return err
		}
		if err := p.writeJobFile(r); err != nil {
			return err
		}
		fmt.Fprintln(&list, r.dir)
	}
	if n.list == "" {
		return nil
	}
	if err := runfolder.Make(filepath.Dir(n.list)); err != nil {
		return err
	}
	if err := wholefile.WriteBytes(n.list, []byte(list.String()), 0o644); err != nil {
		return runfolder.WrapWriteError("write list of runs", err)
	}
	return writeScript(n.script, n.array)
}

// writeScript writes a job script.
func writeScript(path, text string) error {
	return runfolder.WrapWriteError("write job script", wholefile.WriteBytes(path, []byte(text), 0o755))
}

// writeJobFile writes the description of the job of a run.
func (p *slurmPlan) writeJobFile(r *slurmRun) error {
	return jobFile{
		Job: r.job.ID, Site: p.name, Study: p.s.Study, Series: r.variant.series, Workers: r.workers, Nodes: r.placed.Nodes, Seed: r.seed,
		Threads: p.s.Threads, Command: r.command, Submission: p.id,
	}.write(r.dir)
}

// removeFiles removes what writeFiles has written, and the folders that are empty then.
func (p *slurmPlan) removeFiles(n submission) error {
	var errs []error
	remove := func(path string) {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, r := range n.runs {
		remove(filepath.Join(r.dir, scriptName))
		remove(filepath.Join(r.dir, jobFileName))
		_ = os.Remove(r.dir) // unless it has other files
	}
	if n.list != "" {
		remove(n.list)
		remove(n.script)
	}
	return errors.Join(errs...)
}

// createRecord writes the record of the sweep, by which Attach finds it.
func (p *slurmPlan) createRecord() error {
	if err := runfolder.Make(filepath.Join(p.dir, queue.RecordsFolder)); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	p.sweep.record = &queue.Record{
		ID: p.id, Study: p.s.Study, Dir: p.dir, Host: host, Started: time.Now(), Detach: true, Site: p.name, Path: queue.RecordPath(p.dir, p.id),
	}
	p.sweep.saveRecord()
	if _, err := queue.ReadRecord(p.sweep.record.Path); err != nil {
		return err
	}
	if err := addToSlurmList(p.sweep.record); err != nil {
		p.warnings = append(p.warnings, fmt.Sprintf("warning: lockstep jobs does not show this sweep: %v", err))
	}
	return nil
}
