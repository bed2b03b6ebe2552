package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/topology"
	"lockstep/pkg/launch"
	"lockstep/pkg/runs"
)

// finding is one line of the report.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`
}

func doctorCommand() *cobra.Command {
	var asJSON bool
	var cluster clusterCheck
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine or a cluster offers and what is missing",
		Long: `Without flags, doctor shows what this machine offers and what is missing.

--cluster checks what the workers of a run need of each other: whether they can join each
other, by which network interface and how fast, MPI, NCCL, GPUs, the scratch folder, shared
folders, clocks and versions. On this machine it starts two processes. With --on slurm:SITE
it submits a job with one task on each of two nodes (--nodes), waits for it, and shows a
table for each node and, for each problem, the next step. It takes less than a minute of
run time, besides the time in the queue. Ctrl-C cancels the job.

Exit code 1: something failed on a node.`,
		Example: `  lockstep doctor
  lockstep doctor --cluster
  lockstep doctor --cluster --on slurm:local-test --gpus 0
  lockstep doctor --cluster --on slurm:my-site.yaml --nodes 4 --account training2023 --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if is, err := cluster.isRequested(c); err != nil {
				return err
			} else if is {
				return cluster.run(c, asJSON)
			}
			found := runChecks(c.Context())
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(found)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, f := range found {
				mark := "ok"
				if !f.OK {
					mark = "--"
				}
				line := fmt.Sprintf("%s\t%s\t%s", mark, f.Name, f.Detail)
				if f.Advice != "" {
					line += " (" + f.Advice + ")"
				}
				if _, err := fmt.Fprintln(w, line); err != nil {
					return err
				}
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cluster.addFlags(c.Flags())
	return c
}

func runChecks(ctx context.Context) []finding {
	host := runs.DescribeHost()
	found := []finding{
		{Name: "lockstep", OK: true, Detail: fmt.Sprintf("build %s, %s %s/%s", buildid.ID, runtime.Version(), runtime.GOOS, runtime.GOARCH)},
		processorFinding(host),
		{Name: "memory", OK: true, Detail: fmt.Sprintf("%.1f GiB", float64(host.MemoryBytes)/(1<<30))},
		topologyFinding(),
		bindingFinding(),
		rankFinding(os.Getenv),
		sharedMemoryFinding(),
		logsFolderFinding(),
	}
	found = append(found, gpuFindings(engine.Devices())...)
	return append(found,
		programFinding(ctx, "jupyter", "notebooks", "apt-get install jupyter-notebook jupyter-nbconvert jupyter-client", "--version"),
		kernelspecFinding(ctx),
		programFinding(ctx, "go", "building the kernel", "install Go 1.26 or newer", "version"),
	)
}

// processorFinding reports the processor and the instruction sets that the CPU engine can use, the
// best first. It omits plain Go, which is slow and used only on request.
func processorFinding(host runs.Host) finding {
	f := finding{Name: "processor", Detail: fmt.Sprintf("%s, %s", host.CPU, english.FormatCount(host.Cores, "core"))}
	sets, err := engine.InstructionSets(engine.DefaultOptions().Precision)
	if err != nil {
		f.Advice = err.Error()
		return f
	}
	f.Detail += ", instruction sets: " + strings.Join(sets, ", ")
	if rounded, err := engine.InstructionSets("bf16"); err == nil && rounded[0] != "go" {
		f.Detail += "; with precision bf16: " + strings.Join(slices.DeleteFunc(rounded, func(s string) bool { return s == "go" }), ", ")
	}
	if f.OK = sets[0] != "go"; !f.OK {
		f.Advice = "the plain Go kernels are used, which are slower"
	}
	return f
}

func gpuFindings(m *engine.Machine) []finding {
	var found []finding
	gpus := false
	for _, d := range m.Devices {
		if d.Kind == "cuda" {
			gpus = true
			found = append(found, finding{Name: fmt.Sprintf("GPU %d", d.Index), OK: m.NoGPU == "", Detail: fmt.Sprintf(
				"%s, %.1f GiB, compute capability %s, %d multiprocessors, %s", d.Name, float64(d.MemoryBytes)/(1<<30), d.Compute, d.Units, d.Driver)})
		}
	}
	if m.NoGPU != "" {
		found = append(found, finding{Name: "GPU", Detail: m.NoGPU, Advice: "training on the CPU does not need it"})
	}
	for _, l := range m.Libraries {
		f := finding{Name: l.Name, OK: l.Problem == "", Detail: strings.TrimSpace(l.Version + " " + l.Path)}
		if !f.OK {
			f.Detail, f.Advice = l.Problem, "needed for "+l.Use
			if gpus && l.Advice != "" {
				f.Advice += "; " + l.Advice
			}
		}
		found = append(found, f)
	}
	if m.NoGPU != "" && len(m.Looked) > 0 {
		found = append(found, finding{Name: "looked in", Detail: strings.Join(m.Looked, "; ")})
	}
	return found
}

// topologyFinding reports the sockets, NUMA nodes and cores, and the CPUs that this process may use.
func topologyFinding() finding {
	f := finding{Name: "topology"}
	allowed, err := topology.AllowedCPUs()
	if errors.Is(err, errors.ErrUnsupported) {
		f.Detail, f.OK = "not read on "+runtime.GOOS, true
		return f
	}
	m, merr := topology.ReadMachine(os.DirFS("/sys/devices/system"))
	if err = errors.Join(err, merr); err != nil {
		f.Detail = err.Error()
		return f
	}
	n := m.CountHardware()
	f.OK = true
	f.Detail = fmt.Sprintf("%s, %s, %s, %s", english.FormatCount(n.Packages, "socket"), english.FormatCount(n.Nodes, "NUMA node"), english.FormatCount(n.Cores, "core"), english.FormatCount(n.CPUs, "CPU"))
	if n.CPUs > n.Cores {
		f.Detail += " (SMT)"
	}
	f.Detail += "; lockstep may use CPUs " + topology.FormatCPUList(allowed)
	if quota, _ := topology.CPUQuota(os.DirFS("/")); !math.IsInf(quota, 1) {
		f.Detail += fmt.Sprintf(", for the time of %.3g", quota)
	}
	return f
}

// bindingFinding reports how lockstep launch would bind one worker per usable core.
func bindingFinding() finding {
	f := finding{Name: "binding"}
	workers := runtime.NumCPU()
	if allowed, err := topology.AllowedCPUs(); err == nil {
		if m, err := topology.ReadMachine(os.DirFS("/sys/devices/system")); err == nil {
			workers = max(1, m.RestrictToCPUs(allowed).CountHardware().Cores)
		}
	}
	b, err := launch.Sweep{}.PlanBinding(workers)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK = b.Mode != launch.BindNone
	f.Detail = fmt.Sprintf("lockstep launch --workers %d: %s", workers, b)
	if !f.OK && runtime.GOOS == "linux" {
		f.Advice = "--bind cores or --bind numa binds them anyway"
	}
	return f
}

// rankFinding reports the rank that lockstep train would have here and the launcher whose variables set it,
// the address of rank 0, and the workers' secret.
func rankFinding(getenv func(string) string) finding {
	f := finding{Name: "ranks"}
	e, err := rendezvous.FromEnv(getenv)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK = true
	if e.Source == "" {
		f.Detail = "lockstep train is the only worker: no launcher's variables are set"
	} else {
		f.Detail = fmt.Sprintf("lockstep train is rank %d of %d, from %s", e.Rank, e.World, e.Source)
	}
	if e.World > 1 {
		f.Detail += fmt.Sprintf(" (local rank %d of %d)", e.LocalRank, e.LocalWorld)
		if !e.ConnectsToMaster() {
			f.Detail += "; MPI connects the ranks, which need no secret"
			return f
		}
		f.Detail += "; rank 0 at " + e.Address()
	}
	path, err := rendezvous.TokenPath(getenv)
	if err == nil {
		_, err = os.Stat(path)
	}
	switch {
	case e.TokenFrom != "":
		f.Detail += "; secret from " + e.TokenFrom
	case e.World > 1:
		f.OK, f.Advice = false, "the workers have no secret: any user of this machine could join them; set LOCKSTEP_TOKEN, or run lockstep launch once"
	case err == nil:
		f.Detail += "; under srun and mpirun, the secret is in " + path
	default:
		f.Detail += "; lockstep launch writes a secret for srun and mpirun"
	}
	return f
}

// sharedMemoryFinding reports whether files can be created in /dev/shm, which only Linux has.
func sharedMemoryFinding() finding {
	if runtime.GOOS != "linux" {
		return finding{Name: "shared memory", OK: true, Detail: "not used on " + runtime.GOOS + ": workers exchange gradients through unix sockets"}
	}
	f := finding{Name: "shared memory", Detail: "/dev/shm"}
	t, err := os.CreateTemp("/dev/shm", "lockstep-doctor-")
	if err != nil {
		f.Advice = "workers exchange gradients through files in " + os.TempDir() + " instead: " + err.Error()
		return f
	}
	f.OK = true
	if err := t.Close(); err == nil {
		err = os.Remove(t.Name())
		f.OK = err == nil
	}
	return f
}

func logsFolderFinding() finding {
	dir, err := runs.ResolveLogs("logs")
	if err != nil {
		return finding{Name: "logs", Detail: err.Error()}
	}
	return finding{Name: "logs", OK: true, Detail: dir}
}

// programFinding reports whether a program is installed, and the first line that it prints when called
// with args. use is the program's purpose, and advice is shown if it is missing.
func programFinding(ctx context.Context, name, use, advice string, args ...string) finding {
	f := finding{Name: name}
	path, err := exec.LookPath(name)
	if err != nil {
		f.Detail, f.Advice = "not found; needed for "+use, advice
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	f.OK, f.Detail = err == nil, path+": "+first
	if err != nil {
		f.Detail += " (" + err.Error() + ")"
		f.Advice = advice
	}
	return f
}

// kernelspecFinding reports whether Jupyter finds Lockstep's kernel.
func kernelspecFinding(ctx context.Context) finding {
	f := finding{Name: "kernel Go (Lockstep)", Advice: "lockstep kernel install --user"}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "jupyter", "kernelspec", "list", "--json").Output()
	if err != nil {
		f.Detail = "list Jupyter's kernels: " + err.Error()
		return f
	}
	var list struct {
		Kernelspecs map[string]struct {
			Dir string `json:"resource_dir"`
		} `json:"kernelspecs"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		f.Detail = "read Jupyter's list of kernels: " + err.Error()
		return f
	}
	k, ok := list.Kernelspecs["lockstep"]
	if !ok {
		f.Detail = "not installed"
		return f
	}
	return finding{Name: f.Name, OK: true, Detail: k.Dir}
}
