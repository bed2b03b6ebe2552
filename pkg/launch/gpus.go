package launch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/train"
)

const visibleDevicesVariable = "CUDA_VISIBLE_DEVICES"

// localGPUs returns the indices or IDs of this machine's GPUs, in the format of
// CUDA_VISIBLE_DEVICES. If that variable is set, only the GPUs in it count.
func localGPUs() []string {
	if list, ok := os.LookupEnv(visibleDevicesVariable); ok {
		return strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
	}
	devices, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is valid
	all := make([]string, len(devices))
	for i := range all {
		all[i] = strconv.Itoa(i)
	}
	return all
}

// validateGPUs returns an error if GPUsPerWorker or OneProcess cannot be used where the sweep is to
// run. on is OnLocal, OnMPI or OnSlurm.
func (s Sweep) validateGPUs(on string) error {
	switch {
	case s.OneProcess && on == OnMPI:
		return fmt.Errorf("OneProcess (--processes one) starts one process per run, which needs no mpirun: use launch.Local or launch.Slurm (--on)")
	case s.GPUsPerWorker > 0 && on != OnSlurm && !s.OneProcess && s.hasCommand():
		return fmt.Errorf("got %s per worker (GPUsPerWorker, --gpus-per-worker): on this machine each process sees all GPUs, and takes the one with the number LOCAL_RANK: leave it out, or start one process per run (OneProcess, --processes one)", english.FormatCount(s.GPUsPerWorker, "GPU"))
	}
	return nil
}

func (p *SweepPlan) planGPUs(ctx context.Context) error {
	s := &p.Sweep
	switch {
	case !s.hasCommand():
		return nil // its config decides
	case s.GPUsPerWorker == NoGPUs:
		p.GPUReason = "by --gpus-per-worker 0 (NoGPUs)"
		return nil
	case s.GPUsPerWorker > 0:
		p.GPUsPerWorker, p.GPUReason = s.GPUsPerWorker, "by --gpus-per-worker"
	case p.On == OnSlurm && s.Slurm.GPUsPerNode > 0:
		p.GPUsPerWorker, p.GPUReason = 1, "by --gpus-per-node"
	case p.On == OnSlurm:
		cluster, err := p.readClusterOnce(ctx)
		if err != nil {
			return err
		}
		gpus, reason := p.jobs.profile.GPUsByDefault(s.Slurm.Partition, cluster)
		if p.GPUReason = "because " + reason; gpus {
			p.GPUsPerWorker = 1
		}
	case s.OneProcess:
		if n := len(localGPUs()); n > 0 {
			p.GPUsPerWorker, p.GPUReason = 1, "because this machine has "+english.FormatCount(n, "GPU")
		}
	}
	if has := len(localGPUs()); p.On != OnSlurm && p.GPUsPerWorker*slices.Max(s.Workers) > has {
		return &train.UsageError{Err: fmt.Errorf("%s with %s each need %s in one process, but this machine has %d (%s, /dev/nvidia*): use fewer workers, or --gpus-per-worker 0 for none",
			english.FormatCount(slices.Max(s.Workers), "worker"), english.FormatCount(p.GPUsPerWorker, "GPU"), english.FormatCount(p.GPUsPerWorker*slices.Max(s.Workers), "GPU"), has, visibleDevicesVariable)}
	}
	return nil
}

// describeGPUs describes the GPUs of a program's workers, or returns "" for Lockstep's own training.
func (p *SweepPlan) describeGPUs() string {
	if !p.Sweep.hasCommand() || p.GPUReason == "" {
		return ""
	}
	if p.GPUsPerWorker == 0 {
		return "# no GPUs, " + p.GPUReason + "; --gpus-per-worker asks for them\n"
	}
	return fmt.Sprintf("# %s per worker, %s; --gpus-per-worker 0 asks for none\n", english.FormatCount(p.GPUsPerWorker, "GPU"), p.GPUReason)
}
