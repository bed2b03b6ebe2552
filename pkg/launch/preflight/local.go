package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/mpi"
	"lockstep/pkg/internal/english"
)

const (
	checkRendezvous       = "rendezvous"
	checkNetworkInterface = "interface"
	checkBandwidth        = "bandwidth"
	checkClock            = "clock"
	checkGPUs             = "GPUs"
	checkNCCL             = "NCCL"
	checkMPI              = "MPI"
	checkScratch          = "scratch"
	checkHome             = "home"
	checkLogs             = "logs"
	checkVersions         = "versions"
	checkFolders          = "folders" // home and logs, if they do not answer
	checkTask             = "task"    // that has not reported
)

// orderedCheckNames returns the names of the checks in the order of the report: causes before effects.
func orderedCheckNames() []string {
	return []string{
		checkTask, checkHome, checkLogs, checkFolders, checkRendezvous, checkNetworkInterface, checkBandwidth, checkClock, checkMPI, checkNCCL, checkGPUs, checkScratch, checkVersions,
	}
}

// markerName returns the name of a file that the check with the given id creates in a shared
// folder. If a task finds the file, its node shares the folder with the program that submitted the
// job.
func markerName(id string) string { return ".lockstep-doctor-" + id }

// markerTimeout is how long a task waits for the marker file. Clients of a network file system may
// keep an old list of files for some seconds.
const markerTimeout = 5 * time.Second

// sharedFolderFindings returns findings about the home folder and the logs folder: whether this
// node shares them with the program that submitted the job.
func sharedFolderFindings(ctx context.Context, o NodeOptions, getenv func(string) string) []Finding {
	token, err := rendezvous.TokenPath(getenv)
	if err != nil {
		return []Finding{failedFinding(checkHome, err.Error(), "ask the site why jobs have no home folder"), markerFinding(ctx, checkLogs, o.Logs, o.ID, adviceLogs)}
	}
	return []Finding{
		markerFinding(ctx, checkHome, filepath.Dir(token), o.ID, adviceHome),
		markerFinding(ctx, checkLogs, o.Logs, o.ID, adviceLogs),
	}
}

const (
	adviceHome = "the workers read their secret there: ask the site for a folder that all nodes share, and set XDG_STATE_HOME to it on the login node and in exports of a copy of the profile"
	adviceLogs = "runs are written there: set LOCKSTEP_LOGS to a folder that all nodes share and where you may write; the site's documentation names it"
)

// markerFinding reports whether dir has the marker file, and whether this process may write to it.
func markerFinding(ctx context.Context, check, dir, id, next string) Finding {
	path := filepath.Join(dir, markerName(id))
	for deadline := time.Now().Add(markerTimeout); ; {
		_, err := os.Stat(path)
		if err == nil {
			break
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return failedFinding(check, fmt.Sprintf("%s is not the same folder on this node: %v", dir, errors.Unwrap(err)), next)
		}
		time.Sleep(100 * time.Millisecond)
	}
	f, err := os.CreateTemp(dir, markerName(id)+"-")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return failedFinding(check, fmt.Sprintf("cannot write to %s: %v", dir, err), next)
	}
	return passedFinding(check, "%s is shared", dir)
}

func mpiFinding(s *clib.Search) Finding {
	const use = "only --on mpi, LOCKSTEP_COLLECTIVE=mpi and programs that call MPI need it"
	var found, unusable []string
	for _, name := range []clib.LibraryName{clib.OpenMPI, clib.MPICH} {
		l, err := mpi.Open(s, name)
		var missing *clib.NotFoundError
		switch {
		case err == nil:
			version, _, _ := strings.Cut(l.Version(), "\n")
			version, _, _ = strings.Cut(strings.Replace(version, "MPICH Version:", "MPICH", 1), ",")
			found = append(found, fmt.Sprintf("%s (%s)", strings.Join(strings.Fields(version), " "), l.Path))
		case errors.Is(err, clib.ErrUnsupported), errors.As(err, &missing) && len(missing.Broken) == 0:
		case missing != nil:
			problem, advice := missing.Describe()
			unusable = append(unusable, fmt.Sprintf("%s is %s: %s", name, problem, advice))
		default:
			unusable = append(unusable, err.Error())
		}
	}
	switch {
	case len(unusable) > 0 && len(found) == 0:
		return warningFinding(checkMPI, strings.Join(unusable, "; "), use)
	case len(found) == 0:
		return passedFinding(checkMPI, "none found; %s", use)
	}
	return passedFinding(checkMPI, "%s", strings.Join(append(found, unusable...), "; "))
}

// gpuFindings returns the findings about the GPUs of this task and about NCCL, and the version of the
// GPUs' driver, or "".
func gpuFindings(o NodeOptions, getenv func(string) string) (found []Finding, driver string) {
	m := engine.Devices()
	for _, d := range m.Devices {
		if d.Kind == "cuda" {
			driver = d.Driver
		}
	}
	return []Finding{gpuFinding(o, m, getenv("CUDA_VISIBLE_DEVICES")), ncclFinding(m, driver != "")}, driver
}

// gpuFinding returns the finding about the GPUs of m. visible is CUDA_VISIBLE_DEVICES.
func gpuFinding(o NodeOptions, m *engine.Machine, visible string) Finding {
	var names []string
	for _, d := range m.Devices {
		if d.Kind == "cuda" {
			names = append(names, d.Name)
		}
	}
	have := len(names)
	slices.Sort(names)
	detail := english.FormatCount(have, "GPU")
	if have > 0 {
		detail += ": " + strings.Join(slices.Compact(names), ", ")
	}
	if visible != "" {
		detail += "; CUDA_VISIBLE_DEVICES=" + visible
	}
	listed := len(strings.FieldsFunc(visible, func(c rune) bool { return c == ',' }))
	switch {
	case have == 0 && o.GPUs == 0:
		return passedFinding(checkGPUs, "none")
	case have == 0:
		return failedFinding(checkGPUs, fmt.Sprintf("the job has %s on this node, but none can be used: %s", english.FormatCount(o.GPUs, "GPU"), m.NoGPU),
			"tell the site's support the name of the node and this message; if you train on CPUs, check again with --gpus 0")
	case visible != "" && listed < o.GPUs:
		return failedFinding(checkGPUs, fmt.Sprintf("the job has %s on this node, but CUDA_VISIBLE_DEVICES=%s shows %d to this task", english.FormatCount(o.GPUs, "GPU"), visible, listed),
			"remove CUDA_VISIBLE_DEVICES from your environment and from exports in the profile, because Slurm sets it")
	case have < o.GPUs:
		return failedFinding(checkGPUs, fmt.Sprintf("the job has %s on this node, but the driver finds %s", english.FormatCount(o.GPUs, "GPU"), detail),
			"tell the site's support the name of the node: a GPU is missing; or correct gpus_per_node in a copy of the profile")
	case m.NoGPU != "":
		return failedFinding(checkGPUs, detail+", which cannot be used: "+m.NoGPU, "load the site's modules for CUDA and cuDNN: write their names to modules in a copy of the profile")
	}
	return passedFinding(checkGPUs, "%s", detail)
}

// ncclFinding returns the finding about NCCL. gpus reports whether this node has a GPU.
func ncclFinding(m *engine.Machine, gpus bool) Finding {
	i := slices.IndexFunc(m.Libraries, func(l engine.Library) bool { return l.Name == string(clib.NCCL) })
	switch {
	case i >= 0 && m.Libraries[i].Problem == "":
		return passedFinding(checkNCCL, "%s (%s)", m.Libraries[i].Version, m.Libraries[i].Path)
	case !gpus:
		return passedFinding(checkNCCL, "not needed: no GPU")
	case i < 0:
		return failedFinding(checkNCCL, "not looked for", "report this as a fault of Lockstep")
	}
	next := "write the site's module with NCCL to modules in a copy of the profile, because gradients pass through the host without it"
	if advice := m.Libraries[i].Advice; advice != "" {
		next += "; " + advice
	}
	return failedFinding(checkNCCL, m.Libraries[i].Problem, next)
}
