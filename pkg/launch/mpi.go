package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/launch/internal/mpirun"
	"lockstep/pkg/launch/internal/workers"
	"lockstep/pkg/train"
)

// MPIOptions are the fields of a Sweep that only MPI uses.
type MPIOptions struct {
	// Command is the name or path of mpirun. The default is mpirun, or mpiexec if there is no
	// mpirun. Its further options are set by its environment variables, such as OMPI_MCA_btl.
	Command string
	// Hostfile is the path of a file with the hosts that mpirun uses, in its format: lines such as
	// "node1 slots=4" for Open MPI and "node1:4" for MPICH. The default is this machine, or the
	// nodes that a scheduler has allocated. The run folders and the lockstep command must have the
	// same paths on all hosts, and the workers read the secret from the user's token file.
	Hostfile string
}

// MPI starts the runs of s like Local, but mpirun of Open MPI or MPICH starts the workers of each
// run. The workers have the same command and the same run folder as with Local, and take their ranks
// from mpirun's variables. A program other than lockstep may call MPI; it also gets the variables that
// it gets from Local.
//
// The workers of lockstep exchange gradients by Lockstep's own transports, as with Local, unless
// LOCKSTEP_COLLECTIVE=mpi is set. MPI is not the default, because it was slower on one machine
// (environment/benchmarks.md). It may be faster on a network such as InfiniBand: "lockstep bench
// allreduce" measures both.
func MPI(ctx context.Context, s Sweep) (*Job, error) {
	if err := s.useMPI(); err != nil {
		return nil, err
	}
	return Local(ctx, s)
}

// useMPI makes mpirun start the workers of s. It returns an error if mpirun cannot run s.
func (s *Sweep) useMPI() error {
	s.onMPI = true
	if err := s.Validate(); err != nil {
		return &train.UsageError{Err: err}
	}
	return nil
}

// validateMPI returns an error if mpirun cannot run s, or if s has options of MPI without mpirun. cores
// is the number of cores that the workers of a run may use: those of this machine, or math.MaxInt if
// the workers may be on several machines.
func (s Sweep) validateMPI() (cores int, err error) {
	cores = runtime.NumCPU()
	switch {
	case !s.onMPI && s.MPI != MPIOptions{}:
		return cores, errors.New("the options of MPI are only for sweeps that mpirun starts: use launch.MPI (--on mpi)")
	case !s.onMPI:
		return cores, nil
	case s.Bind != "" && s.Bind != BindNone:
		return cores, fmt.Errorf("binding %q is for local sweeps: leave it out (Bind, --bind), because mpirun binds the workers; set OMPI_MCA_hwloc_base_binding_policy (Open MPI) or HYDRA_BINDING (MPICH) to choose how", s.Bind)
	}
	if s.MPI.Hostfile != "" {
		if _, err := mpirun.FirstHost(s.MPI.Hostfile); err != nil {
			return cores, err
		}
	}
	if s.mayUseSeveralHosts() {
		cores = math.MaxInt
	}
	return cores, nil
}

// mayUseSeveralHosts reports whether mpirun may start workers of s on other machines.
func (s Sweep) mayUseSeveralHosts() bool {
	return s.MPI.Hostfile != "" || allocatedNodes() > 1
}

// knownNodes returns the number of machines on which the workers of each run are, or 0 if mpirun
// chooses the machines.
func (s Sweep) knownNodes() int {
	if s.onMPI && s.mayUseSeveralHosts() {
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

// findMPI finds mpirun for s.
func (s *Sweep) findMPI(ctx context.Context) (err error) {
	s.mpirun, err = mpirun.Find(ctx, s.MPI.Command)
	return err
}

// mpiVariables returns the variables that the launcher adds to the environment of mpirun: the address
// of rank 0, and the port and the secret if all workers are on this machine. On another machine the
// launcher cannot know which port is free.
func (s Sweep) mpiVariables(port int, token string) ([]string, error) {
	switch {
	case s.MPI.Hostfile != "":
		host, err := mpirun.FirstHost(s.MPI.Hostfile)
		return []string{"MASTER_ADDR=" + host}, err
	case allocatedNodes() > 1:
		return []string{"MASTER_ADDR=" + rendezvous.FirstHost(os.Getenv("SLURM_JOB_NODELIST"))}, nil
	}
	return []string{"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(port), "LOCKSTEP_TOKEN=" + token}, nil
}

// mpiArguments returns mpirun and its arguments for the worker command argv. foreign is true for a
// program other than lockstep.
func (r *run) mpiArguments(argv []string, foreign bool) ([]string, error) {
	command, err := workers.RankTask{
		Dir: r.dir, Ranks: r.replicasPerProcess(), Seed: r.seed, Threads: r.sweep.Threads, Foreign: foreign, Grace: r.sweep.gracePeriod,
	}.Command(argv)
	if err != nil {
		return nil, err
	}
	several := r.sweep.mayUseSeveralHosts()
	return r.sweep.mpirun.Arguments(mpirun.Job{
		Processes: r.workers / r.replicasPerProcess(), Hostfile: r.sweep.MPI.Hostfile, SeveralHosts: several,
		Oversubscribe: !several || r.sweep.Oversubscribe, // Validate has compared the workers with the cores of this machine
		Forward:       forwardedVariables(),
		Command:       command,
	}), nil
}

// forwardedVariables returns the names of the environment variables that workers on other machines
// get from mpirun. The secret is not one of them: those workers read the token file.
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
func (r *run) mpiEnvironment(ctx context.Context) ([]string, error) {
	port := 0
	if !r.sweep.mayUseSeveralHosts() {
		var err error
		if port, err = rendezvous.FindFreePort(ctx); err != nil {
			return nil, err
		}
	}
	set, err := r.sweep.mpiVariables(port, rand.Text())
	if err != nil {
		return nil, err
	}
	without := append(rendezvous.RankVariables(), train.BindingVariable, "LOCKSTEP_TOKEN")
	if r.sweep.mayUseSeveralHosts() {
		if _, err := rendezvous.CreateToken(os.Getenv); err != nil {
			return nil, err
		}
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(without, name)
	})
	return append(env, set...), nil
}

// startMPI starts mpirun, which starts the workers of the run with the arguments argv. The caller's
// goroutine must stay locked to its thread; see startWorkers.
func (r *run) startMPI(ctx context.Context, argv []string, foreign bool) (*workers.Group, error) {
	args, err := r.mpiArguments(argv, foreign)
	if err != nil {
		return nil, err
	}
	env, err := r.mpiEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	c := workers.NewGroup(r.processes(foreign))
	rank0, err := c.StartMPI(workers.MPIProcesses{
		Count: r.workers / r.replicasPerProcess(), Argv: args, Env: env, StopSignal: r.sweep.mpirun.StopSignal(),
	})
	if err != nil {
		return nil, errors.Join(err, c.Kill())
	}
	r.setRank0Output(rank0)
	return c, nil
}
