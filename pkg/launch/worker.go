package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/workers"
	"lockstep/pkg/train"
)

// toWorkersRun describes the processes of the run, to start them.
func (r *runningRun) toWorkersRun() workers.Run {
	g := r.PlannedRun.toWorkersRun()
	g.Output, g.GracePeriod, g.KillNow = r.out, r.plan.Sweep.gracePeriod, r.killNow
	return g
}

// toWorkersRun describes the processes of the run for a process that does not start them.
func (r *PlannedRun) toWorkersRun() workers.Run {
	return workers.Run{
		Dir: r.Dir, Ranks: r.workersPerProcess(), Foreign: r.Program, Resume: r.Action == ActionContinue,
		Label: fmt.Sprintf("%s n%d s%d", r.Label, r.Workers, r.Seed),
	}
}

// startWorkers starts the processes of the run. If one cannot be started, it kills the others. The
// caller's goroutine must stay locked to its thread while the processes run: the operating system
// kills a worker when the thread that started it ends.
func (r *runningRun) startWorkers(ctx context.Context) (c *workers.Group, planned binding.Binding, err error) {
	ports, err := findFreePorts(ctx, r.Processes)
	if err != nil {
		return nil, planned, err
	}
	token := rand.Text()
	c = workers.NewGroup(r.toWorkersRun())
	argv := r.plan.processCommand(r.PlannedRun)
	err = r.withBinding(ctx, func(b binding.Binding) error {
		planned = b
		return b.WithThreadBinder(func(bind func(rank int) error) error {
			for process := range ports {
				rank := process * r.workersPerProcess()
				if err := bind(rank); err != nil {
					return err
				}
				env := r.plan.workerEnvironment(r.PlannedRun, process, ports, token)
				if !r.Program {
					env = append(env, b.EnvironmentEntry())
				}
				out, err := c.Start(rank, argv, env)
				if err != nil {
					return err
				}
				r.setRank0Output(out)
			}
			return nil
		})
	})
	if err != nil {
		return nil, planned, errors.Join(err, c.Kill())
	}
	return c, planned, nil
}

func findFreePorts(ctx context.Context, n int) ([]string, error) {
	ports := make([]string, n)
	for i := range ports {
		port, err := rendezvous.FindFreePort(ctx)
		if err != nil {
			return nil, err
		}
		ports[i] = strconv.Itoa(port)
	}
	return ports, nil
}

// workerEnvironment returns the launcher's environment with the variables of workerVariables added
// or replaced.
func (p *SweepPlan) workerEnvironment(r *PlannedRun, number int, ports []string, token string) []string {
	set, without := p.workerVariables(r, number, ports, token)
	return process.ModifiedEnvironment(set, without...)
}

// workerVariables returns the environment variables that describe a worker's rank, run and threads.
// without lists variables of the launcher that the worker must not get. process is the number of
// the worker's process in r, ports contains a free port for each process, and token is the run's
// secret.
func (p *SweepPlan) workerVariables(r *PlannedRun, process int, ports []string, token string) (set, without []string) {
	set = []string{"LOCKSTEP_TOKEN=" + token, "LOCKSTEP_RUN=" + r.Dir, "LOCKSTEP_SEED=" + strconv.FormatInt(r.Seed, 10)}
	without = []string{train.BindingVariable}
	if r.TFConfig {
		set = append(set, rendezvous.FormatTFConfig(localAddresses(ports), process))
	}
	if r.TFConfig && !r.Program {
		without = append(without, rendezvous.RankVariables()...)
	} else {
		n := strconv.Itoa(len(ports))
		set = append(set, "RANK="+strconv.Itoa(process), "WORLD_SIZE="+n, "LOCAL_RANK="+strconv.Itoa(process), "LOCAL_WORLD_SIZE="+n,
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+ports[0])
	}
	if r.Program {
		set = append(set, workers.ThreadVariables(p.Sweep.Threads*r.workersPerProcess())...)
	}
	if r.GPUs > 0 { // of one process; see Sweep.GPUsPerWorker
		if all := localGPUs(); len(all) >= r.GPUs {
			set = append(set, visibleDevicesVariable+"="+strings.Join(all[:r.GPUs], ","))
		}
	}
	return set, without
}

func localAddresses(ports []string) []string {
	addresses := make([]string, len(ports))
	for i, port := range ports {
		addresses[i] = "127.0.0.1:" + port
	}
	return addresses
}
