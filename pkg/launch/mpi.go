package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/mpirun"
	"lockstep/pkg/launch/internal/workers"
	"lockstep/pkg/train"
)

// MPIOptions are the fields of a Sweep that only MPI uses.
type MPIOptions struct {
	// Command is the name or path of mpirun. The default is mpirun, or mpiexec if there is no
	// mpirun. Its further options are set by its environment variables, such as OMPI_MCA_btl.
	Command string
	// Hostfile is the path of a file with the hosts, in mpirun's format: lines such as
	// "node1 slots=4" for Open MPI and "node1:4" for MPICH. The default is this machine, or the
	// nodes that a scheduler has allocated. The run folders and the lockstep command must have the
	// same paths on all hosts, and the workers read the secret from the user's token file.
	Hostfile string
}

// MPI starts the runs of s like Local, but mpirun of Open MPI or MPICH starts the workers of each run.
// They have the same command and run folder as with Local, and take their ranks from mpirun's variables.
// A program other than lockstep may call MPI; it also gets the variables that it gets from Local.
//
// The workers of lockstep exchange gradients by Lockstep's own transports, as with Local, unless
// LOCKSTEP_COLLECTIVE=mpi is set. MPI is not the default, because it was slower on one machine
// (environment/benchmarks.md). It may be faster on a network such as InfiniBand: "lockstep bench
// allreduce" measures both.
func MPI(ctx context.Context, s Sweep) (*Job, error) { return startSweep(ctx, OnMPI, "", s) }

func (s Sweep) validateMPI() error {
	if s.Framework == FrameworkTensorFlow && s.mayUseSeveralHosts() {
		return errors.New("TF_CONFIG needs the address of each worker, which only mpirun knows if it may use several machines: leave out --env tensorflow (Framework), start the program by Slurm (--on slurm:SITE), or use this machine only")
	}
	if s.Bind != "" && s.Bind != BindNone {
		return fmt.Errorf("binding %q is for local sweeps: leave it out (Bind, --bind), because mpirun binds the workers; set OMPI_MCA_hwloc_base_binding_policy (Open MPI) or HYDRA_BINDING (MPICH) to choose how", s.Bind)
	}
	if s.MPI.Hostfile == "" {
		return nil
	}
	_, err := mpirun.ReadFirstHost(s.MPI.Hostfile)
	return err
}

// mayUseSeveralHosts reports whether mpirun may start workers of s on other machines.
func (s Sweep) mayUseSeveralHosts() bool {
	return s.MPI.Hostfile != "" || allocatedNodes() > 1
}

// nodesPerRun returns the number of machines on which each run's workers are, or 0 if mpirun chooses them.
func (p *SweepPlan) nodesPerRun() int {
	if p.On == OnMPI && p.Sweep.mayUseSeveralHosts() {
		return 0
	}
	return 1
}

// allocatedNodes returns the number of nodes that Slurm has allocated to this process's job, or 0.
func allocatedNodes() int {
	n, err := strconv.Atoi(os.Getenv("SLURM_JOB_NUM_NODES"))
	if err != nil {
		return 0
	}
	return n
}

// mpiVariables returns the variables that the launcher adds to mpirun's environment. They contain
// the address of rank 0, and if all workers are on this machine, also port and token. On another
// machine, the launcher cannot know which port is free.
func (s Sweep) mpiVariables(port, token string) ([]string, error) {
	switch {
	case s.MPI.Hostfile != "":
		host, err := mpirun.ReadFirstHost(s.MPI.Hostfile)
		return []string{"MASTER_ADDR=" + host}, err
	case allocatedNodes() > 1:
		return []string{"MASTER_ADDR=" + rendezvous.FirstHost(os.Getenv("SLURM_JOB_NODELIST"))}, nil
	}
	return []string{"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port, "LOCKSTEP_TOKEN=" + token}, nil
}

// mpiArguments returns mpirun and its arguments for the run r. ports contains a free port for each
// process, for TF_CONFIG.
func (p *SweepPlan) mpiArguments(r *PlannedRun, ports []string) ([]string, error) {
	task := workers.RankTask{
		Dir: r.Dir, Ranks: r.workersPerProcess(), Seed: r.Seed, Threads: p.Sweep.Threads, Foreign: r.Program, Grace: p.Sweep.gracePeriod,
		Disturbed: p.disturbed,
	}
	if r.Program && r.TFConfig {
		task.TFAddresses = localAddresses(ports)
	}
	command, err := task.LaunchCommand(p.processCommand(r))
	if err != nil {
		return nil, err
	}
	several := p.Sweep.mayUseSeveralHosts()
	return p.mpirun.Arguments(mpirun.Job{
		Processes: r.Processes, Hostfile: p.Sweep.MPI.Hostfile, SeveralHosts: several,
		Oversubscribe: !several || p.Sweep.Oversubscribe, // Validate has compared the workers with the cores of this machine
		Forward:       forwardedVariables(),
		Command:       command,
	}), nil
}

// forwardedVariables returns the names of the environment variables that mpirun passes on to
// workers on other machines. They do not include the secret, which those workers read from the
// token file.
func forwardedVariables() []string {
	names := []string{"MASTER_ADDR"}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		listed := slices.Contains([]string{"PATH", "LD_LIBRARY_PATH", "PYTHONPATH"}, name)
		for _, prefix := range []string{"LOCKSTEP_", "NCCL_", "GLOO_"} {
			listed = listed || strings.HasPrefix(name, prefix)
		}
		if listed && name != "LOCKSTEP_TOKEN" && name != train.BindingVariable {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// mpiEnvironment returns the environment of mpirun. mpirun sets the variables of each rank.
func (s Sweep) mpiEnvironment(ctx context.Context) ([]string, error) {
	port := 0
	if !s.mayUseSeveralHosts() {
		var err error
		if port, err = rendezvous.FindFreePort(ctx); err != nil {
			return nil, err
		}
	}
	set, err := s.mpiVariables(strconv.Itoa(port), rand.Text())
	if err != nil {
		return nil, err
	}
	if s.mayUseSeveralHosts() {
		if _, err := rendezvous.CreateToken(os.Getenv); err != nil {
			return nil, err
		}
	}
	return process.ModifiedEnvironment(set, append(rendezvous.RankVariables(), train.BindingVariable, "LOCKSTEP_TOKEN")...), nil
}

// startMPI starts mpirun, which starts the workers of the run. The caller's goroutine must stay
// locked to its thread; see startWorkers.
func (r *runningRun) startMPI(ctx context.Context) (*workers.Group, error) {
	ports, err := findFreePorts(ctx, r.Processes)
	if err != nil {
		return nil, err
	}
	args, err := r.plan.mpiArguments(r.PlannedRun, ports)
	if err != nil {
		return nil, err
	}
	env, err := r.plan.Sweep.mpiEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	c := workers.NewGroup(r.toWorkersRun())
	rank0, err := c.StartMPI(workers.MPIProcesses{
		Count: r.Processes, Argv: args, Env: env, StopSignal: r.plan.mpirun.StopSignal(),
	})
	if err != nil {
		return nil, errors.Join(err, c.Kill())
	}
	r.setRank0Output(rank0)
	return c, nil
}
