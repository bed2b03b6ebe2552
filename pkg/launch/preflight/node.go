package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/clib"
)

// The time limits of the parts of a check. Their sum, taskTimeout, is below a minute.
const (
	nodeTimeout    = 15 * time.Second // for the checks of the node itself
	joinTimeout    = 20 * time.Second // for the rendezvous; the nodes may begin it up to nodeTimeout apart
	networkTimeout = 12 * time.Second
	taskTimeout    = nodeTimeout + joinTimeout + networkTimeout

	// hangTimeout is the time after the end of the first task at which srun ends the others. It is
	// longer than nodeTimeout, so that a task with slower node checks can end by itself.
	hangTimeout = 30 * time.Second
)

// NodeOptions contains the options of RunNode. The job script passes them to each task as one argument.
type NodeOptions struct {
	ID        string        `json:"id"`
	Logs      string        `json:"logs"`                // the folder in which the marker file is
	Interface string        `json:"interface,omitempty"` // network_interface of the site profile
	Site      string        `json:"site,omitempty"`
	GPUs      int           `json:"gpus,omitempty"` // that the job has on each node
	Join      time.Duration `json:"join,omitempty"` // replaces joinTimeout in tests
}

// ParseNodeOptions parses the argument of lockstep doctor --node.
func ParseNodeOptions(text string) (NodeOptions, error) {
	var o NodeOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil || o.ID == "" {
		return o, fmt.Errorf("invalid --node %q: only job scripts use it: use lockstep doctor --cluster", text)
	}
	return o, nil
}

func (o NodeOptions) encodeArgument() (string, error) {
	text, err := json.Marshal(o)
	return string(text), err
}

// RunNode examines this node as one task of a check, and writes its findings to out. It returns no
// error for a problem of the node, because a launcher may end the other tasks when one task fails.
func RunNode(ctx context.Context, o NodeOptions, out io.Writer) error {
	getenv := func(name string) string {
		switch name {
		case "LOCKSTEP_COLLECTIVE":
			return "tcp" // as between machines, also if all tasks are on one
		case "LOCKSTEP_ALGORITHM":
			return ""
		}
		return os.Getenv(name)
	}
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	env, enverr := rendezvous.FromEnv(getenv)
	r := &taskReporter{out: out, id: o.ID, rank: env.Rank}
	if enverr != nil {
		r.rank, _ = strconv.Atoi(getenv("SLURM_PROCID"))
	}
	f := describeNode(env)
	r.writeLine(outputLine{Facts: f})
	driver := checkNode(ctx, o, getenv, r)
	f.Driver = driver
	r.writeLine(outputLine{Facts: f})
	switch {
	case enverr != nil:
		r.addFinding(failedFinding(checkRendezvous, enverr.Error(), "first solve the problem with the home folder, if there is one, because the secret is there; otherwise give every task what the message names: exports in a copy of the profile sets variables"))
	case env.World == 1:
		r.addFinding(passedFinding(checkRendezvous, "one task, which has no other to join"))
	default:
		checkNetwork(ctx, o, env, r, f)
	}
	f.Ended = time.Now().UnixMilli()
	r.writeLine(outputLine{Facts: f})
	return nil
}

// describeNode returns what is known about the node without any check.
func describeNode(env rendezvous.Env) *nodeFacts {
	f := &nodeFacts{
		World: env.World, Build: buildid.ID, Go: runtime.Version(), System: distributionName(os.ReadFile), Started: time.Now().UnixMilli(),
		Node: os.Getenv("SLURMD_NODENAME"),
	}
	if f.Node == "" {
		f.Node, _ = os.Hostname()
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return f
}

// distributionName returns the name of the operating system's distribution, such as "Debian GNU/Linux 12
// (bookworm)".
func distributionName(read func(path string) ([]byte, error)) string {
	text, err := read("/etc/os-release")
	if err == nil {
		for l := range strings.Lines(string(text)) {
			if value, is := strings.CutPrefix(strings.TrimSpace(l), "PRETTY_NAME="); is {
				return strings.Trim(value, `"'`)
			}
		}
	}
	return runtime.GOOS
}

// checkNode runs the checks that need no other node, all at the same time. It reports each check
// when the check ends, or after nodeTimeout that it has not ended. It returns the version of the
// GPUs' driver, or "".
func checkNode(ctx context.Context, o NodeOptions, getenv func(string) string, r *taskReporter) (driver string) {
	type result struct {
		check    int
		findings []Finding
		driver   string
	}
	checks := []struct {
		name string
		run  func() ([]Finding, string)
	}{
		{checkFolders, func() ([]Finding, string) { return sharedFolderFindings(ctx, o, getenv), "" }},
		{checkScratch, func() ([]Finding, string) {
			return []Finding{scratchSpeedFinding(o.Site, getenv("LOCKSTEP_SCRATCH"))}, ""
		}},
		{checkGPUs, func() ([]Finding, string) { return gpuFindings(o, getenv) }},
		{checkMPI, func() ([]Finding, string) { return []Finding{mpiFinding(clib.NewSearch(clib.Environment{}))}, "" }},
	}
	results := make(chan result, len(checks)) // a check that ends too late must not block
	for i, c := range checks {
		go func() {
			findings, driver := c.run()
			results <- result{i, findings, driver}
		}()
	}
	missing := make([]bool, len(checks))
	for i := range missing {
		missing[i] = true
	}
	timer := time.NewTimer(nodeTimeout)
	defer timer.Stop()
	for range checks {
		select {
		case got := <-results:
			missing[got.check] = false
			for _, f := range got.findings {
				r.addFinding(f)
			}
			if got.driver != "" {
				driver = got.driver
			}
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		break
	}
	for i, c := range checks {
		if missing[i] {
			r.addFinding(failedFinding(c.name, fmt.Sprintf("the check did not end within %v", nodeTimeout), "a file system of this node probably does not answer: tell the site's support the name of the node, and exclude the node until then"))
		}
	}
	return driver
}

func checkNetwork(ctx context.Context, o NodeOptions, env rendezvous.Env, r *taskReporter, f *nodeFacts) {
	limit := joinTimeout
	if o.Join > 0 {
		limit = o.Join
	}
	given := env.MasterAddr
	env = env.ResolveMaster(ctx)
	r.addFinding(interfaceFinding(o, env))
	where := "rank 0 at " + env.Address()
	if env.MasterAddr != given {
		where += fmt.Sprintf(", from Slurm's configuration, because the name %s does not resolve", given)
	}
	begin := time.Now()
	// All tasks use the same build ID here, so that tasks of different builds can join. The report
	// names the nodes with another build.
	group, err := rendezvous.Join(ctx, env, rendezvous.Options{BuildID: "lockstep doctor", Timeout: limit, Group: collective.Options{Timeout: networkTimeout}})
	if err != nil {
		r.addFinding(failedFinding(checkRendezvous, err.Error(), joinFailureAdvice(env)))
		return
	}
	f.Joined = true
	r.addFinding(passedFinding(checkRendezvous, "%d ranks joined in %.2g s; %s", env.World, time.Since(begin).Seconds(), where))
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	n, err := measureNetwork(ctx, group)
	if err = errors.Join(err, group.Close()); err != nil {
		r.addFinding(failedFinding(checkBandwidth, err.Error(), "run the check again; if it fails again, tell the site's support the names of the nodes: the connection between them is unreliable"))
		return
	}
	f.Network = n
}
