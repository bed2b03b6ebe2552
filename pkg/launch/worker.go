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
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/workers"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// processes describes the processes of the run.
func (r *run) processes(foreign bool) workers.Run {
	return workers.Run{
		Dir: r.dir, Ranks: r.replicasPerProcess(), Foreign: foreign, Resume: r.resume,
		Label: fmt.Sprintf("%s n%d s%d", r.variant.Label, r.workers, r.seed), Output: r.out,
		GracePeriod: r.sweep.gracePeriod, KillNow: r.killNow,
	}
}

// startWorkers starts the processes of the run. If one cannot be started, it kills the
// others. The caller's goroutine must stay locked to its thread while the processes run:
// the operating system kills a worker when the thread that started it ends.
func (r *run) startWorkers(ctx context.Context, argv []string, foreign bool) (c *workers.Group, planned binding.Binding, err error) {
	perProcess := r.replicasPerProcess()
	ports := make([]int, r.workers/perProcess) // by process
	for i := range ports {
		if ports[i], err = rendezvous.FindFreePort(ctx); err != nil {
			return nil, planned, err
		}
	}
	token := rand.Text()
	c = workers.NewGroup(r.processes(foreign))
	err = r.withBinding(ctx, func(b binding.Binding) error {
		planned = b
		return b.WithThreadBinder(func(bind func(rank int) error) error {
			for process := range ports {
				rank := process * perProcess
				if err := bind(rank); err != nil {
					return err
				}
				env := r.workerEnvironment(process, ports, token, foreign)
				if !foreign {
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

// workerEnvironment returns the environment of a worker: the launcher's environment, with the
// variables of workerVariables added or replaced.
func (r *run) workerEnvironment(process int, ports []int, token string, foreign bool) []string {
	set, without := r.workerVariables(process, ports, token, foreign)
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(without, name) || slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	})
	return append(env, set...)
}

// workerVariables returns the environment variables that describe a worker's rank, run and threads, and
// the names of variables of the launcher that the worker must not get. process is the number of the
// worker's process, and ports contains a free port for each process. foreign is true for a program
// other than lockstep.
func (r *run) workerVariables(process int, ports []int, token string, foreign bool) (set, without []string) {
	set = []string{"LOCKSTEP_TOKEN=" + token, "LOCKSTEP_RUN=" + r.dir, "LOCKSTEP_SEED=" + strconv.FormatInt(r.seed, 10)}
	without = []string{train.BindingVariable}
	if r.method.Name == strategy.NameMultiWorker {
		addresses := make([]string, len(ports))
		for i, port := range ports {
			addresses[i] = "127.0.0.1:" + strconv.Itoa(port)
		}
		set = append(set, rendezvous.FormatTFConfig(addresses, process))
		without = append(without, rendezvous.RankVariables()...)
	} else {
		n := strconv.Itoa(len(ports))
		set = append(set, "RANK="+strconv.Itoa(process), "WORLD_SIZE="+n, "LOCAL_RANK="+strconv.Itoa(process), "LOCAL_WORLD_SIZE="+n,
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(ports[0]))
	}
	if foreign {
		set = append(set, workers.ThreadVariables(r.sweep.Threads)...)
	}
	return set, without
}
