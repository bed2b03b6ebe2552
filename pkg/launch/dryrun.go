package launch

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/runs"
)

// LocalDryRun describes what Local would do: for each run the folder, and the environment and
// command of its workers. It starts nothing and writes nothing. It returns the error that Local
// would return.
func LocalDryRun(ctx context.Context, s Sweep) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	s = s.withDefaults()
	text, err := s.describePlan(ctx)
	if err != nil {
		return "", fmt.Errorf("launch %s: %w", s.Study, err)
	}
	return text, nil
}

// MPIDryRun is like LocalDryRun for MPI: it returns the commands of mpirun.
func MPIDryRun(ctx context.Context, s Sweep) (string, error) {
	if err := s.useMPI(); err != nil {
		return "", err
	}
	return LocalDryRun(ctx, s)
}

// describePlan implements LocalDryRun for a sweep that has been validated and has its defaults.
func (s *Sweep) describePlan(ctx context.Context) (string, error) {
	root, err := runs.PlanLogs(s.logsFolder())
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, s.Study)
	l, err := planLocalSweep(ctx, s, dir)
	if err == nil {
		err = l.checkSameConfigs()
	}
	if err != nil {
		return "", err
	}
	for _, r := range queue.ReadRecords(dir) {
		if !r.HasEnded() && r.Site == "" && r.IsAlive() {
			return fmt.Sprintf("# %s: nothing to start; its progress would be shown\n", r.Describe()), nil
		}
	}
	for _, r := range l.all {
		if owner, alive, err := runs.OwnerOf(r.dir); err != nil {
			return "", err
		} else if alive {
			return fmt.Sprintf("# %s is being trained: nothing to start; its progress would be shown\n", newSingleRunRecord(r.dir, owner).Study), nil
		}
	}
	if _, err := l.checkFolders(); err != nil {
		return "", err
	}
	waits, err := s.describeWait()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(waits)
	b.WriteString("# The runs, one after another. SECRET is a new secret for each run, and PORT is a free port.\n\n")
	for _, r := range l.all {
		text, err := r.describePlan(l.binary)
		if err != nil {
			return "", err
		}
		b.WriteString(text + "\n")
	}
	return b.String(), nil
}

// describeWait returns a line about the sweep on this machine that s would wait for, or "".
func (s *Sweep) describeWait() (string, error) {
	if !s.mustQueue() {
		return "", nil
	}
	folder, err := queue.Folder()
	if err != nil {
		return "", err
	}
	next := queue.LockedEntry{Entry: queue.Entry{Folder: folder, ID: queue.NewID(time.Now())}}
	first, err := next.FindPredecessor()
	if first == nil || err != nil {
		return "", err
	}
	what := "would wait for its end"
	if s.NoWait {
		what = "would not start"
	}
	return fmt.Sprintf("# %s: this sweep %s, unless --now (Now) is given\n", first.Describe(), what), nil
}

// describePlan returns what the launcher would do for the run. binary is the lockstep command.
func (r *run) describePlan(binary string) (string, error) {
	s := r.sweep
	var b strings.Builder
	if r.skip {
		fmt.Fprintf(&b, "# %s is done: nothing to run\n", r.name)
	} else {
		verb := "start"
		if r.resume {
			verb = "continue"
		}
		fmt.Fprintf(&b, "# %s: would %s %s, %s each, in %s\n", r.name, verb, english.Count(r.workers, "worker"), english.Count(s.Threads, "thread"), r.dir)
		text, err := r.describeCommands(binary)
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	folder, err := r.studyLogFolder()
	if folder != "" {
		fmt.Fprintf(&b, "# %s: would then write its study log to %s\n", r.name, folder)
	}
	return b.String(), err
}

// describeCommands returns the environment and the command of the run's first process, as for a
// shell, and how the other processes differ.
func (r *run) describeCommands(binary string) (string, error) {
	s, argv := r.sweep, r.command
	if !s.isForeign() {
		argv = append([]string{binary}, r.trainArguments()...)
	}
	count := r.workers / r.replicasPerProcess()
	placeholders := strings.NewReplacer("MASTER_PORT=0", "MASTER_PORT=PORT", "127.0.0.1:0", "127.0.0.1:PORT")
	line := func(variables, argv []string) string {
		var words []string
		for _, kv := range variables {
			name, value, _ := strings.Cut(kv, "=")
			words = append(words, placeholders.Replace(name+"="+process.QuoteArgument(value)))
		}
		for _, arg := range argv {
			words = append(words, process.QuoteArgument(arg))
		}
		return strings.Join(words, " ") + "\n"
	}
	if s.onMPI {
		args, err := r.mpiArguments(argv, s.isForeign())
		if err != nil {
			return "", err
		}
		variables, err := s.mpiVariables(0, "SECRET")
		return line(variables, args), err
	}
	b, err := r.planBinding(binding.Read())
	if err != nil {
		return "", err
	}
	variables, _ := r.workerVariables(0, make([]int, count), "SECRET", s.isForeign())
	text := fmt.Sprintf("# %s\n%s", b, line(variables, argv))
	if count > 1 {
		other, _ := r.workerVariables(1, make([]int, count), "SECRET", s.isForeign())
		var differ []string
		for i, kv := range other {
			if name, _, _ := strings.Cut(kv, "="); kv != variables[i] {
				differ = append(differ, name)
			}
		}
		others := "rank 1"
		if count > 2 {
			others = fmt.Sprintf("ranks 1-%d", count-1)
		}
		text += fmt.Sprintf("# and %s, with other values of %s\n", others, strings.Join(differ, " and "))
	}
	return text, nil
}
