package site

import (
	"strings"
	"testing"
	"time"
)

// noon is when the clusters of the tests were asked.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// courseCluster returns a cluster with two partitions and two reservations.
func courseCluster() *Cluster {
	return &Cluster{
		Now: noon,
		Partitions: []Partition{
			{Name: "batch", Default: true, State: "up", Nodes: 2, CPUsPerNode: 8, GPUsPerNode: 4, MemoryMiB: 4000, TimeLimit: time.Hour},
			{Name: "old", State: "DRAIN", Nodes: 1, CPUsPerNode: 8, NoGPUs: true},
		},
		Reservations: []Reservation{{Name: "day-1", End: noon.Add(-time.Hour)}, {Name: "day-2", End: noon.Add(2*time.Hour + 5*time.Second)}},
	}
}

// TestCheck has one case for each problem, with its whole message.
func TestCheck(t *testing.T) {
	base := Job{Name: "a", Command: []string{"true"}, Account: "project1"}
	for _, c := range []struct {
		site    string
		cluster *Cluster
		change  func(*Job)
		want    []string // a problem's message; "warning: " before it if it is a warning
	}{
		{"generic", courseCluster(), func(*Job) {}, nil},
		{"generic", nil, func(j *Job) { j.Partition, j.Reservation, j.Nodes = "nowhere", "never", 1000 }, nil}, // nothing is known
		{"generic", &Cluster{}, func(j *Job) { j.Partition, j.Nodes = "nowhere", 1000 }, nil},
		{"generic", nil, func(j *Job) { j.Nodes = -1 }, []string{"the job has -1 nodes: use 1 to 1048576, or 0 for the default"}},
		{"generic", nil, func(j *Job) { j.CPUsPerTask = 1 << 40 }, []string{"the job has 1099511627776 CPUs per task: use 1 to 1048576, or 0 for the default"}},
		{"generic", nil, func(j *Job) { j.Time = -1 }, []string{"the time limit is -1ns: use a positive one, or 0 for the partition's"}},
		{"generic", nil, func(j *Job) { j.Command = nil }, []string{"the job has no command: name the program that the job runs"}},
		{"generic", nil, func(j *Job) { j.Name = "a b" }, []string{`the name "a b" cannot be written to a job script: use letters, digits and -_.,:/ without spaces, as in unet-n4`}},

		{"generic", nil, func(j *Job) { j.Tasks, j.Nodes, j.TasksPerNode = 5, 2, 2 }, []string{"the job has 5 tasks, but 2 nodes with 2 tasks each have room for 4: use more nodes, more tasks per node, or fewer tasks"}},
		{"generic", nil, func(j *Job) { j.Tasks, j.Nodes = 2, 3 }, []string{"the job has 3 nodes for 2 tasks: use at most 2 nodes, because each node needs a task"}},
		{"bsc-cte-power", nil, func(j *Job) { j.TasksPerNode, j.GPUsPerNode = 4, 4 }, []string{
			"site bsc-cte-power starts programs directly, as 1 task, but the job has 4 tasks: use one process for all workers (--processes one for a program, the strategy mirrored for Lockstep's training), or write a command that starts several tasks, such as srun, to start in a copy of the profile",
			"warning: the job has 4 tasks per node, but site bsc-cte-power starts 1: use 1 task per node",
		}},
		{"generic", nil, func(j *Job) { j.MPI = true }, nil},

		{"jsc-booster", nil, func(j *Job) { j.TasksPerNode, j.CPUsPerTask = 4, 25 }, []string{"the job needs 100 CPUs per node (4 tasks × 25 CPUs), but a node of site jsc-booster has 96: use at most 24 CPUs per task, or fewer tasks per node"}},
		// The rule of CTE-POWER: 1 GPU: 40 to 80; 2: exactly 80; 3: 120 to 160; 4: 160.
		{"bsc-cte-power", nil, func(j *Job) { j.GPUsPerNode, j.GPUsPerTask, j.CPUsPerTask = 1, 1, 39 }, []string{"the job needs 39 CPUs per node (1 task × 39 CPUs), but site bsc-cte-power allows 40 to 80 with 1 GPU: use 40 CPUs per task"}},
		{"bsc-cte-power", nil, func(j *Job) { j.GPUsPerNode, j.GPUsPerTask, j.CPUsPerTask = 2, 2, 81 }, []string{"the job needs 81 CPUs per node (1 task × 81 CPUs), but site bsc-cte-power allows exactly 80 with 2 GPUs: use 80 CPUs per task"}},
		{"bsc-cte-power", nil, func(j *Job) { j.GPUsPerNode, j.GPUsPerTask, j.CPUsPerTask = 3, 3, 80 }, []string{"the job needs 80 CPUs per node (1 task × 80 CPUs), but site bsc-cte-power allows 120 to 160 with 3 GPUs: use 120 CPUs per task"}},
		{"bsc-cte-power", nil, func(j *Job) { j.GPUsPerNode, j.GPUsPerTask, j.CPUsPerTask = 4, 4, 40 }, []string{"the job needs 40 CPUs per node (1 task × 40 CPUs), but site bsc-cte-power allows exactly 160 with 4 GPUs: use 160 CPUs per task"}},
		{"bsc-cte-power", nil, func(j *Job) { j.GPUsPerNode, j.GPUsPerTask = 3, 3 }, nil},

		{"generic", nil, func(j *Job) { j.TasksPerNode, j.GPUsPerNode = 4, 2 }, []string{"the workers of a node need 4 GPUs, but the job asks for 2 GPUs per node: use one worker per GPU: 4 GPUs per node, or fewer tasks per node"}},
		{"generic", nil, func(j *Job) { j.TasksPerNode, j.GPUsPerNode = 2, 4 }, []string{"warning: the workers of a node need 2 GPUs, but the job asks for 4 GPUs per node: ask for 2 GPUs per node, or use more tasks per node; the other GPUs would be idle"}},
		{"jsc-booster", nil, func(j *Job) { j.TasksPerNode, j.GPUsPerNode = 8, 8 }, []string{"the job asks for 8 GPUs per node, but a node of site jsc-booster has 4: use at most 4 GPUs per node and more nodes"}},
		{"jsc-booster", nil, func(j *Job) { j.GPUsPerNode, j.GPUsPerTask = 8, 8 }, []string{"each process of the job uses 8 GPUs, but a node of site jsc-booster has 4, and a process cannot use several nodes: use at most 4 GPUs per process, or a program with one process per GPU"}},
		{"generic", courseCluster(), func(j *Job) { j.GPUsPerNode, j.GPUsPerTask = 5, 5 }, []string{"the job asks for 5 GPUs per node, but partition batch has 4, so that it would wait for ever: use at most 4 GPUs per process, or a program with one process per GPU, or another partition (Partition, --partition)"}},
		{"generic", nil, func(j *Job) { j.GPUsPerNode, j.GPUsPerTask = 16, 16 }, nil}, // it is not known how many a node has
		{"generic", nil, func(j *Job) {
			j.TasksPerNode, j.GPUsPerNode, j.Environment = 2, 2, []string{"A=b", "CUDA_VISIBLE_DEVICES=0"}
		}, []string{"CUDA_VISIBLE_DEVICES=0 shows 1 GPU to each task, but the workers of a node need 2: remove it from exports in the site profile or from the environment, because Slurm sets it, or list all GPUs of the node"}},
		{"generic", nil, func(j *Job) {
			j.TasksPerNode, j.GPUsPerNode, j.Environment = 2, 2, []string{"CUDA_VISIBLE_DEVICES=0,1"}
		}, nil},

		{"jsc-booster", nil, func(j *Job) { j.Account = "" }, []string{"site jsc-booster requires an account, and the job has none: give the name of your project's account (Account, --account)"}},
		{"generic", nil, func(j *Job) { j.Account = "" }, nil},
		{"generic", nil, func(j *Job) { j.Time, j.Estimate = time.Hour, 2*time.Hour }, []string{"warning: the time limit is 1h0m0s, but the job will probably take 2h0m0s: raise the time limit (Time, --time), or train fewer epochs"}},

		{"generic", courseCluster(), func(j *Job) { j.Partition = "bathc" }, []string{`the cluster has no partition "bathc" (did you mean batch?): use one of batch, old (Partition, --partition)`}},
		{"generic", &Cluster{Partitions: []Partition{{Name: "a"}}}, func(*Job) {}, []string{"the cluster has no default partition, and the job names none: use one of a (Partition, --partition)"}},
		{"generic", courseCluster(), func(j *Job) { j.Partition, j.GPUsPerNode = "old", 1 }, []string{
			"partition old is drain and starts no jobs: use another partition, or wait until the site has started it again",
			"the job asks for GPUs, but partition old has none: use a partition with GPUs, train on CPUs (device: cpu), or start a program without GPUs (GPUsPerWorker, --gpus-per-worker 0)",
		}},
		{"generic", courseCluster(), func(j *Job) { j.Nodes = 3 }, []string{"the job asks for 3 nodes, but partition batch has 2, so that it would wait for ever: use fewer workers, more workers on each node (TasksPerNode, --tasks-per-node), or another partition (Partition, --partition)"}},
		{"generic", courseCluster(), func(j *Job) { j.TasksPerNode = 100 }, []string{"the job asks for 100 CPUs per node, but partition batch has 8, so that it would wait for ever: use fewer workers on each node (TasksPerNode, --tasks-per-node), fewer CPUs for each (CPUsPerTask, --cpus-per-task), or another partition (Partition, --partition)"}},
		{"generic", courseCluster(), func(j *Job) { j.TasksPerNode, j.GPUsPerNode = 5, 5 }, []string{"the job asks for 5 GPUs per node, but partition batch has 4, so that it would wait for ever: use fewer GPUs on each node (GPUsPerNode, --gpus-per-node), or another partition (Partition, --partition)"}},
		{"generic", courseCluster(), func(j *Job) { j.Memory = "5G" }, []string{"the job asks for 5G of memory per node (5120 MiB), but partition batch has 4000 MiB, so that it would wait for ever: use less memory (Memory, --mem), or another partition (Partition, --partition)"}},
		{"generic", courseCluster(), func(j *Job) { j.Memory = "4000M" }, nil},
		{"generic", nil, func(j *Job) { j.Memory = "much" }, []string{`"much" is not an amount of memory for sbatch: use a number and a unit, as in 800M or 16G (Memory, --mem)`}},
		{"generic", courseCluster(), func(j *Job) { j.Time = 61 * time.Minute }, []string{"the time limit is 1h1m0s, but partition batch allows 1h0m0s, so that the job would wait for ever: lower the time limit (Time, --time), or use another partition (Partition, --partition)"}},

		{"generic", courseCluster(), func(j *Job) { j.Reservation = "day-3" }, []string{`the cluster has no reservation "day-3" (did you mean day-1?), or it has expired: remove it, or use one of day-1, day-2`}},
		{"generic", &Cluster{}, func(j *Job) { j.Reservation = "day-3" }, []string{`the cluster has no reservation "day-3", or it has expired: remove it, because the cluster has no reservation now`}},
		{"generic", courseCluster(), func(j *Job) { j.Reservation = "day-1" }, []string{"reservation day-1 expired at 2026-03-01 11:00: remove it, or use one that has not expired"}},
		{"generic", courseCluster(), func(j *Job) { j.Reservation = "day-2" }, nil},
		{"generic", func() *Cluster {
			c := courseCluster()
			c.Partitions[0].TimeLimit = 0
			return c
		}(), func(j *Job) { j.Reservation, j.Time = "day-2", 3*time.Hour }, []string{"reservation day-2 ends at 2026-03-01 14:00, before a job of 3h0m0s that starts now, so that it would wait for ever: lower the time limit below 2h0m0s, or remove the reservation"}},
	} {
		j := base
		c.change(&j)
		var got []string
		for _, problem := range answered(t, c.site).Check(j, c.cluster) {
			text := problem.String()
			if problem.Warning {
				text = "warning: " + text
			}
			if problem.Field == "" {
				t.Errorf("no field: %s", text)
			}
			got = append(got, text)
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s, %+v: got\n%s\nwant\n%s", c.site, j, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// TestCheckUnknown checks the message for the values of a profile that nobody has looked up, and
// for a profile without a command for MPI or a flag for GPUs.
func TestCheckUnknown(t *testing.T) {
	p, err := Load("jsc-booster")
	if err != nil {
		t.Fatal(err)
	}
	want := "modules, network_interface and scratch are ask-your-site in the profile of site jsc-booster: ask the site's support or read its documentation, write the answers to a copy of the profile (lockstep sites show), and give the copy's path as the site"
	if got := p.Check(Job{Account: "a", Command: []string{"true"}}, nil); len(got) != 1 || got[0].String() != want {
		t.Errorf("got %v, want %q", got, want)
	}
	p, err = Parse("my.yaml", []byte("start: srun\naccount: optional\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		job  Job
		want string
	}{
		{Job{MPI: true}, "site my.yaml has no command that starts MPI programs: write the site's command to mpi_command in a copy of the profile, or start the tasks by Slurm instead of MPI"},
		{Job{GPUsPerNode: 1}, "the job asks for 1 GPU per node, but site my.yaml has no GPUs by its profile (gpu_flag is empty): start a program without GPUs (GPUsPerWorker, --gpus-per-worker 0), train on CPUs (device: cpu), or, if the site has GPUs, write its flag, such as --gres=gpu:N, to gpu_flag in a copy of the profile"},
	} {
		c.job.Command = []string{"true"}
		if got := p.Check(c.job, nil); len(got) != 1 || got[0].String() != c.want {
			t.Errorf("got %v, want %q", got, c.want)
		}
	}
	if _, err := p.Script(Job{MPI: true, Command: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "no command that starts MPI programs") {
		t.Errorf("a script without a command for MPI: got error %v", err)
	}
	if _, err := p.Script(Job{GPUsPerNode: 1, Command: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "has no GPUs by its profile") {
		t.Errorf("a script without a flag for GPUs: got error %v", err)
	}
}

// TestCheckExports: a profile exports CUDA_VISIBLE_DEVICES=0 for jobs with one GPU.
func TestCheckExports(t *testing.T) {
	p, err := Parse("own.yaml", []byte("account: optional\nstart: srun\ngpu_flag: --gres=gpu:N\nexports: [CUDA_VISIBLE_DEVICES=0]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for gpus, want := range map[int]int{1: 0, 2: 1} {
		found := p.Check(Job{Name: "a", Command: []string{"true"}, TasksPerNode: gpus, GPUsPerNode: gpus}, nil)
		if len(found) != want || want > 0 && !strings.HasPrefix(found[0].What, "CUDA_VISIBLE_DEVICES=0 shows 1 GPU to each task") {
			t.Errorf("%d GPUs: got %v, want %d problems", gpus, found, want)
		}
	}
}

// TestCheckUnknownPartition: the message about values that nobody has looked up is enough.
func TestCheckUnknownPartition(t *testing.T) {
	p, err := Load("bsc-cte-power")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range p.Check(Job{Name: "a", Command: []string{"true"}}, courseCluster()) {
		if problem.Field == "Partition" || strings.Contains(problem.What, "no partition") {
			t.Errorf("got %s", problem)
		}
	}
}
