// Package mpirun finds the mpirun of Open MPI or MPICH, and writes its arguments.
package mpirun

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/internal/process"
)

// The implementations of MPI.
const (
	OpenMPI = "Open MPI"
	MPICH   = "MPICH" // and others whose launcher is Hydra, such as Intel MPI
)

const versionTimeout = 30 * time.Second

// FlightRecordSignal is the signal that asks the ranks to write the records of their collective operations.
// Both implementations of mpirun forward it to the ranks.
const FlightRecordSignal = unix.SIGALRM

// Launcher is an mpirun of this machine.
type Launcher struct {
	Path string
	Kind string // OpenMPI or MPICH
}

const installAdvice = "install Open MPI (on Debian: apt install openmpi-bin) or MPICH (apt install mpich), load the cluster's module (module load openmpi), or name the program (MPIOptions.Command, --mpirun)"

// Find returns the launcher with the given name or path. If name is empty, it looks for mpirun,
// then for mpiexec.
func Find(ctx context.Context, name string) (Launcher, error) {
	names := []string{name}
	if name == "" {
		names = []string{"mpirun", "mpiexec"}
	}
	for _, n := range names {
		path, err := exec.LookPath(n)
		if errors.Is(err, exec.ErrDot) {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			continue
		}
		kind, err := queryImplementation(ctx, path)
		return Launcher{Path: path, Kind: kind}, err
	}
	return Launcher{}, fmt.Errorf("no %s on this machine: %s", names[0], installAdvice)
}

// queryImplementation asks the mpirun at path for its version, and returns its implementation of MPI.
func queryImplementation(ctx context.Context, path string) (string, error) {
	ctx, cancel := process.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("ask %s for its version: %w", path, context.Cause(ctx))
	case strings.Contains(text, "Open MPI"), strings.Contains(text, "OpenRTE"), strings.Contains(text, "open-mpi.org"):
		return OpenMPI, nil
	case strings.Contains(text, "HYDRA"), strings.Contains(text, "Intel(R) MPI"):
		return MPICH, nil
	case err != nil:
		return "", fmt.Errorf("ask %s for its version: %w: %s", path, err, text)
	}
	first, _, _ := strings.Cut(text, "\n")
	return "", fmt.Errorf("%s belongs to neither Open MPI nor MPICH (its version is %q): %s", path, first, installAdvice)
}

// Job describes what mpirun starts.
type Job struct {
	Processes     int
	Hostfile      string   // "" for this machine, or for the nodes that a scheduler has allocated
	SeveralHosts  bool     // whether the processes may be on other machines
	Oversubscribe bool     // whether a host may get more processes than it has slots
	Forward       []string // names of the environment variables that processes on other machines get
	Command       []string
}

// Arguments returns mpirun and its arguments for j.
func (l Launcher) Arguments(j Job) []string {
	args := []string{l.Path}
	if l.Kind == MPICH {
		if j.Hostfile != "" {
			args = append(args, "-f", j.Hostfile)
		}
		// MPICH's mpirun (Hydra) passes on the whole environment, does not count slots, and does
		// not bind the ranks.
		return slices.Concat(args, []string{"-n", strconv.Itoa(j.Processes)}, j.Command)
	}
	if os.Geteuid() == 0 {
		args = append(args, "--allow-run-as-root")
	}
	if j.Hostfile != "" {
		args = append(args, "--hostfile", j.Hostfile)
	}
	if j.Oversubscribe {
		args = append(args, "--oversubscribe")
	}
	if os.Getenv("OMPI_MCA_hwloc_base_binding_policy") == "" && os.Getenv("PRTE_MCA_hwloc_default_binding_policy") == "" {
		args = append(args, "--bind-to", "none") // its default is one core for each process
	}
	if j.SeveralHosts {
		for _, name := range j.Forward {
			args = append(args, "-x", name)
		}
	}
	return slices.Concat(args, []string{"-n", strconv.Itoa(j.Processes)}, j.Command)
}

// StopSignal returns the signal to send to mpirun so that all ranks are asked to end. For Open MPI
// it is SIGUSR2, which mpirun forwards; after SIGTERM, Open MPI would kill the ranks after two
// seconds. For MPICH it is SIGTERM, which mpirun forwards; SIGUSR2 would end MPICH's mpirun.
func (l Launcher) StopSignal() unix.Signal {
	if l.Kind == OpenMPI {
		return unix.SIGUSR2
	}
	return unix.SIGTERM
}

// StopSignals returns the signals by which mpirun may ask a rank to end.
func StopSignals() []os.Signal { return []os.Signal{unix.SIGTERM, unix.SIGUSR2} }

// ReadFirstHost returns the first host in the hostfile at path, where mpirun starts rank 0. The
// lines of a hostfile are "node1 slots=4" for Open MPI and "node1:4" for MPICH.
func ReadFirstHost(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read hostfile: %w", err)
	}
	defer func() { _ = f.Close() }()
	return parseFirstHost(f, path)
}

// parseFirstHost implements ReadFirstHost for the content r of the file.
func parseFirstHost(r io.Reader, path string) (string, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		host := fields[0]
		if name, slots, ok := strings.Cut(host, ":"); ok {
			if _, err := strconv.Atoi(slots); err == nil {
				host = name
			}
		}
		return host, nil
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read hostfile %s: %w", path, err)
	}
	return "", fmt.Errorf("read hostfile %s: it names no host: write one host per line, such as \"node1 slots=4\" for Open MPI or \"node1:4\" for MPICH", path)
}
