package train

import (
	"encoding/json"
	"slices"

	"lockstep/pkg/internal/topology"
	"lockstep/pkg/runs"
)

// BindingVariable is the environment variable in which a launcher tells a worker the CPUs of the
// run's workers: a runs.Binding in JSON.
const BindingVariable = "LOCKSTEP_BINDING"

// readBinding returns the binding in this worker's environment, or nil if there is none, or if it
// is for another number of workers than world. getenv is os.Getenv except in tests.
func readBinding(getenv func(string) string, world int) *runs.Binding {
	var b runs.Binding
	if json.Unmarshal([]byte(getenv(BindingVariable)), &b) != nil || b.Mode == "" {
		return nil
	}
	if len(b.CPUs) > 0 && len(b.CPUs) != world {
		return nil
	}
	return &b
}

// countWorkersSharingCPUs returns the number of workers whose CPUs overlap with those of the given
// rank, itself included, or all localWorkers of this machine if the workers are not bound.
func countWorkersSharingCPUs(b *runs.Binding, rank, localWorkers int) int {
	if b == nil || rank >= len(b.CPUs) {
		return localWorkers
	}
	own, err := topology.ParseList(b.CPUs[rank])
	if err != nil {
		return localWorkers
	}
	n := 0
	for _, text := range b.CPUs {
		cpus, err := topology.ParseList(text)
		if err == nil && slices.ContainsFunc(cpus, func(id int) bool { return slices.Contains(own, id) }) {
			n++
		}
	}
	return n
}

// describeHost describes this machine. For bound workers, Cores counts the cores of all workers of
// the run, not only of this one.
func describeHost(b *runs.Binding) runs.Host {
	host := runs.DescribeHost()
	if b != nil && len(b.CPUs) > 0 {
		if cpus, err := topology.ParseList(b.Allowed); err == nil && len(cpus) > 0 {
			host.Cores = len(cpus)
		}
	}
	return host
}
