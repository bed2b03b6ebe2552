package launch

import (
	"fmt"
	"strings"

	"lockstep/pkg/internal/english"
)

// runProblems lists problems of the runs of a sweep. A problem that several runs have is listed
// once, with the names of these runs.
type runProblems struct {
	texts []string            // in the order of add
	runs  map[string][]string // names of the runs with a problem, by its text
}

// maxProblemRuns is the largest number of runs that a problem names.
const maxProblemRuns = 4

// add adds a problem of a run.
func (p *runProblems) add(run, text string) {
	if p.runs == nil {
		p.runs = map[string][]string{}
	}
	if p.runs[text] == nil {
		p.texts = append(p.texts, text)
	}
	p.runs[text] = append(p.runs[text], run)
}

// lines returns one line per problem, such as "runs ddp-n2-s1 and ddp-n4-s1: …".
func (p *runProblems) lines() []string {
	var lines []string
	for _, text := range p.texts {
		names := p.runs[text]
		switch n := len(names); {
		case n == 1:
			lines = append(lines, fmt.Sprintf("run %s: %s", names[0], text))
		case n <= maxProblemRuns:
			lines = append(lines, fmt.Sprintf("runs %s: %s", english.List(names), text))
		default:
			lines = append(lines, fmt.Sprintf("runs %s and %d more: %s", strings.Join(names[:maxProblemRuns-1], ", "), n-maxProblemRuns+1, text))
		}
	}
	return lines
}
