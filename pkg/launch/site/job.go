package site

import (
	"cmp"
	"fmt"
	"time"

	"lockstep/pkg/internal/english"
)

// Job is a job for Slurm. Fields that are empty or 0 get the profile's values.
type Job struct {
	Name   string // also %x in names of files
	Folder string // absolute path of the folder for the job's output; empty: the folder of sbatch

	Nodes        int
	TasksPerNode int // at most, if Tasks is given
	Tasks        int // 0: Nodes × TasksPerNode
	CPUsPerTask  int
	GPUsPerNode  int
	GPUsPerTask  int    // GPUs that each task uses, for the lint; 0 means 1
	CPUFactor    int    // multiplies cpus_per_task of the profile, which is for one worker with at most one GPU; 0 means 1
	Memory       string // of each node, as in sbatch --mem, such as 16G; empty leaves it to the partition

	Time     time.Duration // limit; 0 leaves it to the partition
	Estimate time.Duration // how long the job will probably take, for the lint; 0 if unknown
	Source   string        // from what the estimate is known, such as "10 epochs took 5m0s with 1 worker"

	Account, Partition, Reservation string
	Dependency                      string // as in sbatch --dependency, such as afterok:123
	Array                           string // as in sbatch --array, such as 0-49%4
	Output                          string // name of the file for both outputs, in Folder
	Signal                          string // as in sbatch --signal, such as USR1@120
	Requeue                         bool

	Begin       string   // lines that the script runs first
	Environment []string // NAME=VALUE, exported literally
	Command     []string // program and arguments, passed on literally
	MPI         bool     // start the tasks by the profile's mpi_command
	Part        bool     // the job is a part of a larger job, whose script runs the script of this one
}

// maxWorkers limits the number of workers, so that products of sizes do not overflow.
const maxWorkers = 1 << 20

// Place returns j with the nodes, tasks and GPUs for the given number of workers. Each task has
// workersPerTask workers, which is 1 except for strategies such as mirrored and for programs that
// use several GPUs in one process. gpusPerWorker may be 0.
//
// A node gets as many workers as the profile allows (workers_per_node, and gpus_per_node if they
// need GPUs). Place uses as few nodes as possible, and the numbers of tasks on two nodes differ by
// at most one. With 2 workers per node this is the rule of the U-Net study: one worker is 1 task on
// 1 node, and N workers are 2 tasks on each of N/2 nodes.
func (p *Profile) Place(j Job, workers, workersPerTask, gpusPerWorker int) (Job, error) {
	workersPerTask = max(1, workersPerTask)
	switch {
	case gpusPerWorker < 0 || gpusPerWorker > maxWorkers:
		return Job{}, fmt.Errorf("place workers with %d GPUs each at site %s: use 0 to %d GPUs per worker", gpusPerWorker, p.Name, maxWorkers)
	case workers < 1 || workers > maxWorkers:
		return Job{}, fmt.Errorf("place %d workers at site %s: use 1 to %d workers", workers, p.Name, maxWorkers)
	case workers%workersPerTask != 0:
		return Job{}, fmt.Errorf("place %d workers at site %s: they cannot be divided among tasks with %d workers each: use a multiple of %d", workers, p.Name, workersPerTask, workersPerTask)
	}
	perNode := p.WorkersPerNode.valueOrZero() / workersPerTask
	if perNode == 0 {
		perNode = 1 // not known, or one task needs more than a node has: the lint says so
	}
	gpusPerTask := workersPerTask * gpusPerWorker
	if has := p.GPUsPerNode.valueOrZero(); has > 0 && gpusPerTask > 0 {
		perNode = max(1, min(perNode, has/gpusPerTask))
	}
	if fixed := p.TasksPerNode.valueOrZero(); fixed > 0 {
		perNode = fixed
	}
	j.Tasks = workers / workersPerTask
	j.Nodes = (j.Tasks + perNode - 1) / perNode
	j.TasksPerNode = (j.Tasks + j.Nodes - 1) / j.Nodes
	j.GPUsPerTask, j.GPUsPerNode = gpusPerTask, j.TasksPerNode*gpusPerTask
	j.CPUFactor = max(workersPerTask, gpusPerTask)
	return j, nil
}

// GPUsByDefault reports whether a worker of a program should get a GPU unless the user decides
// otherwise, that is, whether the partition is known to have GPUs. If partition is "", the default
// partition counts. c may be nil. reason explains the answer to users, as in "partition booster has
// 4 GPUs per node".
func (p *Profile) GPUsByDefault(partition string, c *Cluster) (gpus bool, reason string) {
	part := c.Partition(p.Complete(Job{Partition: partition}).Partition)
	switch has := p.GPUsPerNode.valueOrZero(); {
	case p.GPUFlag == "":
		return false, fmt.Sprintf("site %s has no GPUs by its profile (gpu_flag is empty)", p.Name)
	case part != nil && part.NoGPUs:
		return false, fmt.Sprintf("partition %s has no GPUs", part.Name)
	case part != nil && part.GPUsPerNode > 0:
		return true, fmt.Sprintf("partition %s has %s per node", part.Name, english.FormatCount(part.GPUsPerNode, "GPU"))
	case has > 0:
		return true, fmt.Sprintf("site %s has %s per node by its profile", p.Name, english.FormatCount(has, "GPU"))
	}
	return false, fmt.Sprintf("it is not known whether site %s has GPUs", p.Name)
}

// Complete returns j with missing values filled in from the profile, such as the partition, the
// reservation, the output and the CPUs per task.
func (p *Profile) Complete(j Job) Job {
	j.Nodes = cmp.Or(j.Nodes, 1)
	if j.TasksPerNode == 0 {
		j.TasksPerNode = max(1, p.TasksPerNode.valueOrZero(), (j.Tasks+j.Nodes-1)/j.Nodes)
	}
	if j.Tasks == 0 {
		j.Tasks = j.Nodes * j.TasksPerNode
	}
	if j.Partition == "" && len(p.Partitions) > 0 {
		j.Partition = p.Partitions[0]
	}
	j.Reservation = cmp.Or(j.Reservation, p.Reservation)
	if j.CPUsPerTask == 0 && j.TasksPerNode > 0 {
		j.CPUsPerTask = p.cpusPerTask(j)
	}
	return j
}

// cpusPerTask returns the number of CPUs of each task of j according to the profile, or 0 if the
// profile has no rule for it. The keys cpus_by_gpus and divide_cores are about the CPUs of a node,
// which its tasks share. A single task gets all of them, however many GPUs it has, as in the course
// at JSC.
func (p *Profile) cpusPerTask(j Job) int {
	if r := p.findCPUsRange(j.GPUsPerNode); r != nil {
		return max(1, r.Min/j.TasksPerNode)
	}
	if p.DivideCores {
		return p.CoresPerNode.valueOrZero() / j.TasksPerNode
	}
	return p.CPUsPerTask.valueOrZero() * max(1, j.CPUFactor)
}

// findCPUsRange returns the profile's rule for the CPUs of a job. gpus is the number of GPUs of the
// job on each node. The result is nil if there is no such rule.
func (p *Profile) findCPUsRange(gpus int) *CPUsRange {
	for i := range p.CPUsByGPUs {
		if r := &p.CPUsByGPUs[i]; r.GPUs == gpus {
			return r
		}
	}
	return nil
}

// checkSizes returns a problem if a size of j is negative or implausibly large, and otherwise nil.
func (j Job) checkSizes() *Problem {
	for _, s := range []struct {
		field, name string
		n           int
	}{
		{"Nodes", "nodes", j.Nodes},
		{"TasksPerNode", "tasks per node", j.TasksPerNode},
		{"Tasks", "tasks", j.Tasks},
		{"CPUsPerTask", "CPUs per task", j.CPUsPerTask},
		{"GPUsPerNode", "GPUs per node", j.GPUsPerNode},
		{"GPUsPerTask", "GPUs per task", j.GPUsPerTask},
		{"CPUFactor", "times the site's CPUs per task", j.CPUFactor},
	} {
		if s.n < 0 || s.n > maxWorkers {
			return &Problem{Field: s.field, What: fmt.Sprintf("the job has %d %s", s.n, s.name), Next: fmt.Sprintf("use 1 to %d, or 0 for the default", maxWorkers)}
		}
	}
	if j.Time < 0 {
		return &Problem{Field: "Time", What: fmt.Sprintf("the time limit is %v", j.Time), Next: "use a positive one, or 0 for the partition's"}
	}
	return nil
}
