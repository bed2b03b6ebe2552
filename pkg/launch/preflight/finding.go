package preflight

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// The values of Finding.Result.
const (
	ResultOK      = "ok"
	ResultWarning = "warning" // a run would work, but probably not as intended
	ResultFailed  = "failed"
)

// Finding is what one check found on one node.
type Finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	Next   string `json:"next,omitempty"` // what to do, unless the result is ResultOK
}

// nodeFacts contains properties of the node of a task, which are compared with those of other
// nodes. A zero field is not known yet.
type nodeFacts struct {
	Node    string `json:"node"`
	World   int    `json:"world"`
	Build   string `json:"build"` // of lockstep
	Go      string `json:"go"`
	System  string `json:"system"`
	Kernel  string `json:"kernel"`
	Driver  string `json:"driver,omitempty"` // of the GPUs
	Joined  bool   `json:"joined,omitempty"`
	Started int64  `json:"started_unix_ms"`
	Ended   int64  `json:"ended_unix_ms,omitempty"` // after the last check

	Network *networkFacts `json:"network,omitempty"` // nil if the ranks did not join
}

// networkFacts contains the measurements between this rank and others. The bandwidth between two
// neighboring ranks is in the facts of the lower rank.
type networkFacts struct {
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"` // to the next rank; 0 for the last rank
	LatencySeconds float64 `json:"latency_seconds,omitempty"`  // one way, to the next rank
	SkewSeconds    float64 `json:"skew_seconds"`               // this node's clock minus that of rank 0
	SkewError      float64 `json:"skew_error_seconds"`         // the largest error of SkewSeconds
}

// outputLine is a line of a task's output. Either Facts or Finding is set.
type outputLine struct {
	ID      string     `json:"lockstep_doctor"` // of the check, so that no other output looks like it
	Rank    int        `json:"rank"`
	Facts   *nodeFacts `json:"facts,omitempty"`
	Finding *Finding   `json:"finding,omitempty"`
}

// maxTextBytes limits the texts of a finding, so that a line has less than 1024 bytes. Slurm splits
// longer lines, and lines of other tasks may come between the pieces.
const maxTextBytes = 380

type taskReporter struct {
	mu   sync.Mutex
	out  io.Writer
	id   string
	rank int
}

func (r *taskReporter) writeLine(l outputLine) {
	l.ID, l.Rank = r.id, r.rank
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(l) != nil {
		return // a number that JSON does not have; none is written
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = io.WriteString(r.out, b.String()) // without its output, a task can report nothing
}

func (r *taskReporter) addFinding(f Finding) {
	f.Detail, f.Next = shorten(f.Detail), shorten(f.Next)
	r.writeLine(outputLine{Finding: &f})
}

// shorten returns text as one line of at most maxTextBytes.
func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxTextBytes {
		return text
	}
	end := maxTextBytes - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// rankOutput is what the task of one rank has reported.
type rankOutput struct {
	facts    *nodeFacts // nil if it has reported nothing
	findings []Finding
}

// maxKeptOtherLines is the number of other lines of output, such as error messages of srun, that
// readRankOutputs keeps.
const maxKeptOtherLines = 12

// readRankOutputs reads the output of all tasks of a check. id is the id of the check. ranks
// contains the reports of each rank, and others the last lines that are not reports.
func readRankOutputs(r io.Reader, id string) (ranks map[int]*rankOutput, others []string) {
	ranks = map[int]*rankOutput{}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		text := strings.TrimSpace(s.Text())
		var l outputLine
		if i := strings.Index(text, `{"lockstep_doctor":`); i >= 0 && json.Unmarshal([]byte(text[i:]), &l) == nil && l.ID == id {
			o := ranks[l.Rank]
			if o == nil {
				o = &rankOutput{}
				ranks[l.Rank] = o
			}
			if l.Facts != nil {
				o.facts = l.Facts
			}
			if l.Finding != nil && len(o.findings) < maxFindings {
				o.findings = append(o.findings, *l.Finding)
			}
			continue
		}
		if text != "" {
			others = append(others, text)
			if len(others) > maxKeptOtherLines {
				others = slices.Delete(others, 0, 1)
			}
		}
	}
	return ranks, others
}

// maxFindings limits the findings of a rank; there are about 10 checks.
const maxFindings = 100

func passedFinding(check, format string, args ...any) Finding {
	return Finding{Check: check, Result: ResultOK, Detail: fmt.Sprintf(format, args...)}
}

// failedFinding returns the finding of a problem that would make a run fail.
func failedFinding(check, detail, next string) Finding {
	return Finding{Check: check, Result: ResultFailed, Detail: detail, Next: next}
}

// warningFinding returns the finding of a problem that would probably make a run slower or its logs wrong.
func warningFinding(check, detail, next string) Finding {
	return Finding{Check: check, Result: ResultWarning, Detail: detail, Next: next}
}
