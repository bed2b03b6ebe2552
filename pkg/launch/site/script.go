package site

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
)

// defaultOutputPattern is the default pattern for the name of a job's output: the job's name and its number.
const defaultOutputPattern = "%x-%j.out"

// Script returns the job script of j for sbatch. It returns an error if j depends on a value of the
// profile that is Unknown, or has a value that a job script cannot contain. Script does not compare
// j with the cluster; Check does.
func (p *Profile) Script(j Job) (string, error) {
	header, err := p.scriptHeader(j)
	if err != nil {
		return "", err
	}
	j = p.Complete(j)
	return header + strings.Join(append(p.scriptSetupLines(j), p.commandLine(j)), "\n") + "\n", nil
}

// ArrayScript returns the script of a job array for sbatch. It returns the same errors as Script.
// list is a file with one folder per line: task i of the array runs the file named script in the
// folder in line i+1. That script sets up the environment and starts the workers, so that j.Command
// and j.Environment are not used.
func (p *Profile) ArrayScript(j Job, list, script string) (string, error) {
	j.Command = []string{list, script} // is checked like a command
	header, err := p.scriptHeader(j)
	if err != nil {
		return "", err
	}
	return header + fmt.Sprintf(`# Each task of the array runs the script of the run whose folder is in its line of the list.
run=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" %s)
exec bash "$run"/%s
`, process.QuoteShellArgument(list), process.QuoteShellArgument(script)), nil
}

// SequenceScript returns the script of a job that does several runs one after another. It returns
// the same errors as Script. list is a file with one folder per line, and in each of these folders
// the job runs the file named script. The output goes to a file in the folder, and the exit code to
// a file named exit there. If the job is requeued, it skips folders whose exit code is 0. j.Command
// and j.Environment are not used.
func (p *Profile) SequenceScript(j Job, list, script, exit string) (string, error) {
	j.Command = []string{list, script} // is checked like a command
	header, err := p.scriptHeader(j)
	if err != nil {
		return "", err
	}
	return header + fmt.Sprintf(`# The runs of the list, one after another. After a requeue, the job continues with those that are not done.
status=0
while IFS= read -r run <&3; do
  [ "$(cat "$run"/%[2]s 2>/dev/null)" = 0 ] && continue
  bash "$run"/%[1]s >>"$run/slurm-$SLURM_JOB_ID.out" 2>&1 3<&-
  code=$?
  echo "$code" >"$run"/%[2]s
  [ "$code" -eq 0 ] || status=$code
done 3<%[3]s
exit "$status"
`, process.QuoteShellArgument(script), process.QuoteShellArgument(exit), process.QuoteShellArgument(list)), nil
}

// scriptHeader returns the first lines of a script: the interpreter and the #SBATCH options of j.
func (p *Profile) scriptHeader(j Job) (string, error) {
	fail := func(problem Problem) (string, error) {
		return "", fmt.Errorf("write job script for site %s: %s", p.Name, problem)
	}
	for _, problem := range []*Problem{p.unknownProblem(j), j.checkSizes(), j.checkTexts()} {
		if problem != nil {
			return fail(*problem)
		}
	}
	j = p.Complete(j)
	if found := p.checkStartCommand(j); len(found) > 0 {
		return fail(found[0])
	}
	var b strings.Builder
	b.WriteString("#!/bin/bash\n")
	for _, o := range p.sbatchOptions(j) {
		b.WriteString("#SBATCH " + o + "\n")
	}
	b.WriteString("\n")
	return b.String(), nil
}

func (p *Profile) sbatchOptions(j Job) []string {
	var all []string
	text := func(option, value string) {
		if value != "" {
			all = append(all, "--"+option+"="+quoteOption(value))
		}
	}
	number := func(option string, n int) {
		if n > 0 {
			all = append(all, "--"+option+"="+strconv.Itoa(n))
		}
	}
	text("job-name", j.Name)
	text("partition", j.Partition)
	text("constraint", p.Constraint)
	text("account", j.Account)
	text("reservation", j.Reservation)
	number("nodes", j.Nodes)
	if j.Tasks != j.Nodes*j.TasksPerNode {
		number("ntasks", j.Tasks)
	}
	number("ntasks-per-node", j.TasksPerNode)
	number("cpus-per-task", j.CPUsPerTask)
	text("mem", j.Memory)
	if j.GPUsPerNode > 0 && p.GPUFlag != "" {
		all = append(all, strings.TrimSuffix(p.GPUFlag, "N")+strconv.Itoa(j.GPUsPerNode))
	}
	if j.Time > 0 {
		text("time", formatTimeLimit(j.Time))
	}
	text("dependency", j.Dependency)
	text("array", j.Array)
	text("signal", j.Signal)
	if j.Requeue {
		all = append(all, "--requeue")
	}
	// By default the job would get all limits (ulimit) of the process that submits it, such as those of
	// memory and threads on a login node or in a JupyterHub. Only a forbidden core dump stays forbidden.
	all = append(all, "--propagate=CORE")
	text("image", p.Image)
	output, errors := p.Output, p.Error
	if j.Output != "" {
		output, errors = j.Output, ""
	}
	output = cmp.Or(output, defaultOutputPattern)
	text("output", joinFilePattern(j.Folder, output))
	if errors != "" {
		text("error", joinFilePattern(j.Folder, errors))
	}
	return all
}

// joinFilePattern returns the path of a file in folder whose name is a pattern, such as %j.out. It escapes
// each % in folder.
func joinFilePattern(folder, pattern string) string {
	if folder == "" || filepath.IsAbs(pattern) {
		return pattern
	}
	return filepath.Join(strings.ReplaceAll(folder, "%", "%%"), pattern)
}

// quoteOption returns a value as sbatch reads it back from a #SBATCH line. Between double quotes,
// only the double quote itself needs a backslash (measured with Slurm 22.05, where a space needs
// quotes and # would begin a comment). There are no backslashes in values: see checkTexts.
func quoteOption(value string) string {
	if optionPattern.MatchString("x" + value) {
		return value
	}
	return `"` + strings.ReplaceAll(value, `"`, `\"`) + `"`
}

// formatTimeLimit returns a time limit for sbatch, rounded up to seconds: [days-]hours:minutes:seconds.
func formatTimeLimit(limit time.Duration) string {
	s := int64((limit + time.Second - 1) / time.Second)
	clock := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if days := s / (24 * 3600); days > 0 {
		return fmt.Sprintf("%d-%s", days, clock)
	}
	return clock
}

func (p *Profile) scriptSetupLines(j Job) []string {
	var lines []string
	if j.Begin != "" {
		lines = append(lines, j.Begin)
	}
	if p.PurgeModules {
		lines = append(lines, "module purge")
	}
	for _, m := range p.Modules {
		lines = append(lines, "module load "+process.QuoteShellArgument(m)+" || exit 1")
	}
	if j.CPUsPerTask > 0 {
		// Since Slurm 22.05, srun does not take --cpus-per-task over from sbatch.
		lines = append(lines, `export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"`)
	}
	if j.Part && j.GPUsPerNode > 0 && !p.StartsBySrun(j) { // the job may have more GPUs
		lines = append(lines, fmt.Sprintf(`export CUDA_VISIBLE_DEVICES="$(echo "${CUDA_VISIBLE_DEVICES:-%s}" | cut -d, -f1-%d)"`, formatIndexList(j.GPUsPerNode), j.GPUsPerNode))
	} else if p.ListGPUs && j.GPUsPerNode > 1 && j.GPUsPerNode == p.GPUsPerNode.valueOrZero() {
		lines = append(lines, "export CUDA_VISIBLE_DEVICES="+formatIndexList(j.GPUsPerNode))
	}
	if p.NetworkInterface != "" {
		for _, name := range []string{"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} {
			lines = append(lines, "export "+name+"="+process.QuoteShellArgument(p.NetworkInterface))
		}
	}
	if p.Scratch != "" {
		lines = append(lines, `export LOCKSTEP_SCRATCH="`+p.Scratch+`"`)
	}
	for _, e := range p.Exports {
		name, value, _ := strings.Cut(e, "=")
		lines = append(lines, "export "+name+`="`+value+`"`)
	}
	for _, e := range j.Environment {
		name, value, _ := strings.Cut(e, "=")
		lines = append(lines, "export "+name+"="+process.QuoteShellArgument(value))
	}
	return lines
}

func formatIndexList(n int) string {
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	return strings.Join(numbers, ",")
}

func (p *Profile) commandLine(j Job) string {
	var words []string
	if p.Time {
		words = append(words, "time")
	}
	if start := p.startCommand(j); start != StartPlain {
		program, options, _ := strings.Cut(start, " ")
		words = append(words, program)
		if j.Part { // srun would start as many tasks as the job has
			words = append(words, p.srunStepOptions(j)...)
		}
		if options != "" {
			words = append(words, options)
		}
	}
	for _, arg := range j.Command {
		words = append(words, process.QuoteShellArgument(arg))
	}
	return strings.Join(words, " ")
}

// srunStepOptions returns the options of srun for a job that is a part of a larger one.
func (p *Profile) srunStepOptions(j Job) []string {
	options := []string{fmt.Sprintf("--nodes=%d", j.Nodes), fmt.Sprintf("--ntasks=%d", j.Tasks), fmt.Sprintf("--ntasks-per-node=%d", j.TasksPerNode)}
	if j.CPUsPerTask > 0 {
		options = append(options, fmt.Sprintf("--cpus-per-task=%d", j.CPUsPerTask))
	}
	if j.GPUsPerNode > 0 && p.GPUFlag != "" {
		options = append(options, strings.TrimSuffix(p.GPUFlag, "N")+strconv.Itoa(j.GPUsPerNode))
	}
	return options
}

// startCommand returns the command that starts the tasks of j, such as srun, or StartPlain if the
// job script runs the program directly.
func (p *Profile) startCommand(j Job) string {
	switch {
	case j.MPI:
		return p.MPICommand
	case p.PlainOneTask && j.Tasks == 1:
		return StartPlain
	}
	return p.Start
}

// StartsBySrun reports whether srun starts the tasks of j.
func (p *Profile) StartsBySrun(j Job) bool {
	words := strings.Fields(p.startCommand(j))
	return len(words) > 0 && filepath.Base(words[0]) == "srun"
}

// checkStartCommand returns the problems that keep p from starting the tasks of j with their GPUs.
func (p *Profile) checkStartCommand(j Job) []Problem {
	var found []Problem
	switch start := p.startCommand(j); {
	case start == "":
		found = append(found, Problem{
			Field: "mpi_command", What: fmt.Sprintf("site %s has no command that starts MPI programs", p.Name),
			Next: "write the site's command to mpi_command in a copy of the profile, or start the tasks by Slurm instead of MPI",
		})
	case j.Part && start != StartPlain && !p.StartsBySrun(j):
		found = append(found, Problem{
			Field: "start", What: fmt.Sprintf("site %s starts tasks by %s, which would start them on all nodes of the one job", p.Name, start),
			Next: "submit each run as a job of its own (leave out OneJob, --one-job), or write srun to start in a copy of the profile",
		})
	case start == StartPlain && j.Tasks > 1:
		found = append(found, Problem{
			Field: "start", What: fmt.Sprintf("site %s starts programs directly, as 1 task, but the job has %d tasks", p.Name, j.Tasks),
			Next: "use one process for all workers (--processes one for a program, the strategy mirrored for Lockstep's training), or write a command that starts several tasks, such as srun, to start in a copy of the profile",
		})
	}
	if p.GPUFlag == "" && j.GPUsPerNode > 0 {
		found = append(found, Problem{
			Field: "gpu_flag", What: fmt.Sprintf("the job asks for %s per node, but site %s has no GPUs by its profile (gpu_flag is empty)", english.FormatCount(j.GPUsPerNode, "GPU"), p.Name),
			Next: "start a program without GPUs (GPUsPerWorker, --gpus-per-worker 0), train on CPUs (device: cpu), or, if the site has GPUs, write its flag, such as --gres=gpu:N, to gpu_flag in a copy of the profile",
		})
	}
	return found
}
