package launch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/queue"
)

// SlurmDryRun returns what Slurm would do: each job script and the command that submits it. It
// submits nothing, and also works away from the cluster. It then lists what could not be checked,
// and the scripts contain comments in place of unknown values.
func SlurmDryRun(ctx context.Context, name string, s Sweep) (string, error) {
	p, err := Plan(ctx, OnSlurm+":"+name, s)
	if err != nil {
		return "", err
	}
	return p.String(), nil
}

// String describes each run: the run folder, and the environment and command of its processes. On
// Slurm it describes the job scripts instead.
func (p *SweepPlan) String() string {
	var b strings.Builder
	switch {
	case p.On == OnSlurm:
		p.describeJobScripts(&b)
	case p.owner != nil && p.owner.Path == "":
		fmt.Fprintf(&b, "# %s is being trained: nothing to start; its progress would be shown\n", p.owner.Study)
	case p.owner != nil:
		fmt.Fprintf(&b, "# %s: nothing to start; its progress would be shown\n", p.owner.DescribeRunning())
	default:
		p.describeProcesses(&b)
	}
	return b.String()
}

// describeProcesses implements String for a sweep that is not on Slurm.
func (p *SweepPlan) describeProcesses(b *strings.Builder) {
	b.WriteString(p.waits)
	for _, note := range p.notes() {
		fmt.Fprintf(b, "# %s\n", note)
	}
	b.WriteString(p.describeGPUs())
	b.WriteString("# The runs, one after another. SECRET is a new secret for each run, and PORT is a free port.\n\n")
	for i := range p.Runs {
		r := &p.Runs[i]
		if r.Action == ActionNone {
			fmt.Fprintf(b, "# %s is %s: nothing to run\n", r.Name, r.Reason)
		} else {
			inOneProcess := ""
			if r.Workers > 1 && r.Processes == 1 {
				inOneProcess = " in one process"
			}
			fmt.Fprintf(b, "# %s: would %s %s%s, %s each, in %s\n", r.Name, r.Action, english.FormatCount(r.Workers, "worker"), inOneProcess, english.FormatCount(p.Sweep.Threads, "thread"), r.Dir)
			b.WriteString(p.describeCommands(r))
		}
		if r.StudyLogs != "" {
			fmt.Fprintf(b, "# %s: would then write its study log to %s\n", r.Name, r.StudyLogs)
		}
		b.WriteString("\n")
	}
}

// describeExpectedWait describes what s would have to wait for on this machine, or returns "" if nothing.
func (s *Sweep) describeExpectedWait() (string, error) {
	if !s.mustQueue() {
		return "", nil
	}
	folder, err := queue.FindLocksFolder()
	if err != nil {
		return "", err
	}
	next := queue.LockedEntry{Entry: queue.Entry{Folder: folder, ID: queue.NewSweepID(time.Now())}}
	first, err := next.FindPredecessor()
	if first == nil || err != nil {
		return "", err
	}
	what := "would wait for its end"
	if s.NoWait {
		what = "would not start"
	}
	return fmt.Sprintf("# %s: this sweep %s, unless --now (Now) is given\n", first.DescribeRunning(), what), nil
}

// formatCommand returns environment variables and a command as for a shell.
func formatCommand(variables, argv []string) string {
	var words []string
	for _, kv := range variables {
		name, value, _ := strings.Cut(kv, "=")
		words = append(words, name+"="+process.QuoteShellArgument(value))
	}
	for _, arg := range argv {
		words = append(words, process.QuoteShellArgument(arg))
	}
	return strings.Join(words, " ") + "\n"
}

// describeCommands returns the environment and command of r's first process, as for a shell, and
// how the other processes differ.
func (p *SweepPlan) describeCommands(r *PlannedRun) string {
	if p.On == OnMPI {
		args, _ := p.mpiArguments(r, placeholderPorts(r.Processes)) // planEnvironments has returned the error
		return formatCommand(r.Environment, args)
	}
	text := fmt.Sprintf("# %s\n%s", r.Binding, formatCommand(r.Environment, p.processCommand(r)))
	if r.Processes == 1 {
		return text
	}
	other, _ := p.workerVariables(r, 1, placeholderPorts(r.Processes), placeholderSecret)
	var differ []string
	for i, kv := range other {
		if name, _, _ := strings.Cut(kv, "="); kv != r.Environment[i] {
			differ = append(differ, name)
		}
	}
	others := "rank 1"
	if r.Processes > 2 {
		others = fmt.Sprintf("ranks 1-%d", r.Processes-1)
	}
	return text + fmt.Sprintf("# and %s, with other values of %s\n", others, strings.Join(differ, " and "))
}
