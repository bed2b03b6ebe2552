package slurmsubmit

import (
	"fmt"
	"strings"

	"lockstep/pkg/internal/english"
)

// RunProblems lists problems of the runs of a sweep, each once with the names of its runs.
type RunProblems struct {
	texts []string            // in the order of Add
	runs  map[string][]string // names of the runs with a problem, by its text
}

const maxNamedRuns = 4

// IsEmpty reports whether there are no problems.
func (p *RunProblems) IsEmpty() bool { return len(p.texts) == 0 }

// Add adds a problem of a run.
func (p *RunProblems) Add(run, text string) {
	if p.runs == nil {
		p.runs = map[string][]string{}
	}
	if p.runs[text] == nil {
		p.texts = append(p.texts, text)
	}
	p.runs[text] = append(p.runs[text], run)
}

// Lines returns one line per problem, such as "runs ddp-n2-s1 and ddp-n4-s1: …".
func (p *RunProblems) Lines() []string {
	var lines []string
	for _, text := range p.texts {
		names := p.runs[text]
		switch n := len(names); {
		case n == 1:
			lines = append(lines, fmt.Sprintf("run %s: %s", names[0], text))
		case n <= maxNamedRuns:
			lines = append(lines, fmt.Sprintf("runs %s: %s", english.JoinAnd(names), text))
		default:
			lines = append(lines, fmt.Sprintf("runs %s and %d more: %s", strings.Join(names[:maxNamedRuns-1], ", "), n-maxNamedRuns+1, text))
		}
	}
	return lines
}
