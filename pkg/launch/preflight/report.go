package preflight

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
)

// Report is the result of a check of all nodes.
type Report struct {
	Site         string    `json:"site,omitempty"` // "" for this machine
	Job          string    `json:"job,omitempty"`  // id
	QueueSeconds float64   `json:"queue_seconds"`  // that the job waited for its start
	RunSeconds   float64   `json:"run_seconds"`
	Nodes        []Node    `json:"nodes"` // by rank
	Problems     []Problem `json:"problems"`
	// Output contains the last lines of the job's output that are not findings, such as messages of
	// srun. It is empty if nothing failed.
	Output []string `json:"output,omitempty"`
}

// Node is what the check found on one node.
type Node struct {
	Name     string    `json:"name"`
	Rank     int       `json:"rank"`
	Findings []Finding `json:"findings"`
}

// Problem is what is wrong on one or several nodes, and what to do.
type Problem struct {
	Nodes   []string `json:"nodes"`
	Check   string   `json:"check"`
	What    string   `json:"what"`
	Next    string   `json:"next"`
	Warning bool     `json:"warning"` // a run would work, but probably not as intended
}

// Failed returns the number of problems that would make a run fail.
func (r *Report) Failed() int {
	n := 0
	for _, p := range r.Problems {
		if !p.Warning {
			n++
		}
	}
	return n
}

// The report has a warning about larger clock differences and lower bandwidths than these.
const (
	largestSkew   = 0.1   // seconds; times in the logs of several nodes can then not be compared
	slowBandwidth = 100e6 // bytes per second; less than a network of 1 Gb/s
)

// newReport makes the report of a check with the given number of tasks. ranks contains what each
// task has written; a task that has written nothing is missing in it. names contains the node of
// each rank, and is shorter if some nodes are unknown. others contains the other lines of output.
func newReport(tasks int, names []string, ranks map[int]*rankOutput, others []string) *Report {
	r := &Report{Problems: []Problem{}}
	names = nodeNames(tasks, names, ranks)
	missing := false
	for rank := range tasks {
		n := Node{Name: names[rank], Rank: rank}
		o := ranks[rank]
		if o == nil || o.facts == nil {
			missing = true
			n.Findings = []Finding{failedFinding(checkTask, "its task has reported nothing: it did not start, ended at once, or hangs",
				"read the messages at the end of this report; if they name no cause, check again with other nodes, and tell the site's support the name of this one")}
		} else {
			n.Findings = slices.Concat(o.findings, nodeDifferenceFindings(rank, names, ranks))
			if o.facts.Ended == 0 {
				missing = true
				n.Findings = append(n.Findings, failedFinding(checkTask, "its task ended before all checks were done",
					"read the messages at the end of this report, and check again; if it fails again, tell the site's support the name of this node"))
			}
		}
		for i := range n.Findings {
			n.Findings[i].Detail = addNodeNames(n.Findings[i].Detail, names)
		}
		order := orderedCheckNames()
		slices.SortStableFunc(n.Findings, func(a, b Finding) int { return slices.Index(order, a.Check) - slices.Index(order, b.Check) })
		r.Nodes = append(r.Nodes, n)
	}
	r.collectProblems()
	if missing {
		r.Output = others
	}
	return r
}

// nodeNames returns a unique name for each rank: its node, followed by the rank if the node has
// several tasks.
func nodeNames(tasks int, known []string, ranks map[int]*rankOutput) []string {
	names := make([]string, tasks)
	count := map[string]int{}
	for rank := range names {
		switch o := ranks[rank]; {
		case o != nil && o.facts != nil && o.facts.Node != "":
			names[rank] = clean.EscapeText(o.facts.Node)
		case rank < len(known):
			names[rank] = known[rank]
		default:
			names[rank] = fmt.Sprintf("the node of rank %d", rank)
		}
		count[names[rank]]++
	}
	for rank, name := range names {
		if count[name] > 1 {
			names[rank] = fmt.Sprintf("%s task %d", name, rank)
		}
	}
	return names
}

var rankPattern = regexp.MustCompile(`\brank (\d+)\b( of \d+)?`)

// addNodeNames adds the name of the node after each rank in text.
func addNodeNames(text string, names []string) string {
	return rankPattern.ReplaceAllStringFunc(text, func(found string) string {
		m := rankPattern.FindStringSubmatch(found)
		rank, err := strconv.Atoi(m[1])
		if err != nil || rank >= len(names) || m[2] != "" {
			return found
		}
		return fmt.Sprintf("%s (%s)", found, names[rank])
	})
}

// nodeDifferenceFindings compares the facts of a rank with those of the other ranks, and returns the findings
// about that rank.
func nodeDifferenceFindings(rank int, names []string, ranks map[int]*rankOutput) []Finding {
	f := ranks[rank].facts
	all := []Finding{versionFinding(rank, names, ranks)}
	if f.Network == nil {
		return all
	}
	measured, direction, other := f.Network, "to", rank+1
	if other == len(names) {
		direction, other = "from", rank-1
		if o := ranks[other]; o != nil && o.facts != nil {
			measured = o.facts.Network
		}
	}
	if measured != nil && measured.BytesPerSecond > 0 {
		detail := fmt.Sprintf("%s %s %s, latency %s", formatRate(measured.BytesPerSecond), direction, names[other], formatShortDuration(measured.LatencySeconds))
		if measured.BytesPerSecond < slowBandwidth {
			all = append(all, warningFinding(checkBandwidth, detail, "that is less than a network of 1 Gb/s: check which interface is used, and ask the site for the name of the fast one (network_interface)"))
		} else {
			all = append(all, passedFinding(checkBandwidth, "%s", detail))
		}
	}
	if rank == 0 {
		return append(all, passedFinding(checkClock, "the other nodes are compared with this clock"))
	}
	detail := fmt.Sprintf("%s %s, ± %s", formatShortDuration(math.Abs(f.Network.SkewSeconds)), aheadOrBehind(f.Network.SkewSeconds)+names[0], formatShortDuration(f.Network.SkewError))
	if math.Abs(f.Network.SkewSeconds)-f.Network.SkewError > largestSkew {
		return append(all, warningFinding(checkClock, detail, "times in the logs of these nodes cannot be compared: tell the site's support that the clock of this node is wrong (NTP)"))
	}
	return append(all, passedFinding(checkClock, "%s", detail))
}

// aheadOrBehind returns "ahead of " or "behind " for a clock skew in seconds.
func aheadOrBehind(skew float64) string {
	if skew < 0 {
		return "behind "
	}
	return "ahead of "
}

// versionFinding returns the finding about the software versions on a node. All nodes must have
// this program's build of lockstep.
func versionFinding(rank int, names []string, ranks map[int]*rankOutput) Finding {
	f := ranks[rank].facts
	words := []string{"lockstep " + f.Build, f.Go, f.System, "kernel " + f.Kernel}
	if f.Driver != "" {
		words = append(words, f.Driver)
	}
	detail := strings.Join(words, ", ")
	if f.Build != buildid.ID {
		return failedFinding(checkVersions, fmt.Sprintf("this node runs lockstep build %s, but this program is build %s", f.Build, buildid.ID),
			"install lockstep in a folder that all nodes share, remove other copies on this node, and start it from there")
	}
	for other := range rank {
		if o := ranks[other]; o != nil && o.facts != nil && o.facts.Driver != f.Driver {
			return warningFinding(checkVersions, fmt.Sprintf("%s; on %s the driver of the GPUs is %q", detail, names[other], o.facts.Driver),
				"tell the site's support that the nodes have different drivers; NCCL may be slower or fail")
		}
	}
	return passedFinding(checkVersions, "%s", detail)
}

func formatShortDuration(seconds float64) string {
	switch {
	case seconds >= 1:
		return fmt.Sprintf("%.3g s", seconds)
	case seconds >= 1e-3:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g µs", seconds*1e6)
}

// collectProblems sets the problems of r from the findings, failures before warnings, each with all
// its nodes.
func (r *Report) collectProblems() {
	for _, n := range r.Nodes {
		for _, f := range n.Findings {
			if f.Result == ResultOK {
				continue
			}
			i := slices.IndexFunc(r.Problems, func(p Problem) bool { return p.Check == f.Check && p.What == f.Detail && p.Next == f.Next })
			if i >= 0 {
				r.Problems[i].Nodes = append(r.Problems[i].Nodes, n.Name)
				continue
			}
			r.Problems = append(r.Problems, Problem{Nodes: []string{n.Name}, Check: f.Check, What: f.Detail, Next: f.Next, Warning: f.Result == ResultWarning})
		}
	}
	order := orderedCheckNames()
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		if a.Warning != b.Warning {
			if b.Warning {
				return -1
			}
			return 1
		}
		return slices.Index(order, a.Check) - slices.Index(order, b.Check)
	})
}

// addJobProblem adds the problem that the job itself has failed, after the problems of tasks that
// did not report. If no task has reported anything, it becomes the only problem.
func (r *Report) addJobProblem(reason string, others []string) {
	p := Problem{Check: "job", What: reason, Next: "read the messages at the end of this report; if a module or a command is not found, correct it in a copy of the profile"}
	begun := false
	for _, n := range r.Nodes {
		p.Nodes = append(p.Nodes, n.Name)
		begun = begun || n.Findings[0].Check != checkTask
	}
	if !begun {
		p.What += ", and no task has reported anything"
		r.Problems = nil
	}
	i := 0
	for i < len(r.Problems) && r.Problems[i].Check == checkTask {
		i++
	}
	r.Problems = slices.Insert(r.Problems, i, p)
	r.Output = others
}

// String formats the report as text: a line about the job, a table for each node, and the problems.
func (r *Report) String() string {
	var b strings.Builder
	round := func(seconds float64) time.Duration {
		return time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond)
	}
	if r.Job != "" {
		fmt.Fprintf(&b, "Site %s, job %s: waited %v in the queue, ran for %v.\n", r.Site, r.Job, round(r.QueueSeconds), round(r.RunSeconds))
	} else {
		fmt.Fprintf(&b, "This machine, %s: ran for %v.\n", english.FormatCount(len(r.Nodes), "task"), round(r.RunSeconds))
	}
	marks := map[string]string{ResultOK: "ok", ResultWarning: "!", ResultFailed: "--"}
	for _, n := range r.Nodes {
		fmt.Fprintf(&b, "\n%s (rank %d)\n", n.Name, n.Rank)
		var table strings.Builder
		w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		for _, f := range n.Findings {
			_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\n", marks[f.Result], clean.EscapeText(f.Check), clean.EscapeText(f.Detail)) // a strings.Builder never fails
		}
		_ = w.Flush()
		b.WriteString(table.String())
	}
	if len(r.Problems) == 0 {
		b.WriteString("\nNo problem was found.\n")
	} else {
		b.WriteString("\nProblems\n")
	}
	for i, p := range r.Problems {
		kind := ""
		if p.Warning {
			kind = " (warning)"
		}
		fmt.Fprintf(&b, "  %d. %s, %s%s: %s\n     Next: %s.\n", i+1, english.JoinAnd(p.Nodes), clean.EscapeText(p.Check), kind, clean.EscapeText(p.What), clean.EscapeText(p.Next))
	}
	if r.Site != "" && !strings.HasSuffix(r.Site, ".yaml") && slices.ContainsFunc(r.Problems, func(p Problem) bool { return strings.Contains(p.Next, "copy of the profile") }) {
		fmt.Fprintf(&b, "\nTo change a copy of the profile: lockstep sites show %s > my-site.yaml, edit the file, and use --on slurm:my-site.yaml.\n", r.Site)
	}
	if len(r.Output) > 0 {
		b.WriteString("\nMessages of the job\n")
		for _, l := range r.Output {
			fmt.Fprintf(&b, "  %s\n", clean.EscapeText(l))
		}
	}
	return b.String()
}
