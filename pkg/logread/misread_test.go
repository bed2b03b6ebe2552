package logread

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// The property test of this package: nothing is misread in silence. The files misread*_test.go
// have its parts: the table of samples, the mutations, the checks of the values, of the identity
// and of the counts of lines, and the faults that were found.

var (
	misreadSeed   = flag.Uint64("misread.seed", 1, "seed of TestNothingIsMisread; 0: the time")
	misreadRounds = flag.Int("misread.rounds", 300, "number of folders that TestNothingIsMisread reads")
)

// TestNothingIsMisread reads folders with samples that were cut, mixed, concatenated, resumed, renamed
// and compressed, and with runs in several modes. Each value that is read must be in a file of its run, or be derived by a rule
// of the table of derivations; it must have the name, epoch, step and rank that it has in the
// sample; what identifies a run must be in the content or in the path, as its origin states;
// runs in different modes are no repeats; and each line must be counted as used, ignored or unused.
func TestNothingIsMisread(t *testing.T) {
	seed := *misreadSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-misread.seed=%d", seed)
	all := readSamples(t)
	for round := range *misreadRounds {
		p := newPlan(rand.New(rand.NewPCG(seed, uint64(round))), len(all))
		wrong, how := checkPlan(t, all, p)
		if len(wrong) == 0 {
			continue
		}
		for smaller := true; smaller; { // remove what the failure does not need
			smaller = false
			for _, q := range p.smaller() {
				if w, h := checkPlan(t, all, q); len(w) > 0 {
					p, wrong, how, smaller = q, w, h, true
					break
				}
			}
		}
		t.Errorf("round %d of -misread.seed=%d:\n  %s\n%s", round, seed, how, strings.Join(wrong[:min(len(wrong), 10)], "\n"))
	}
}

// checkPlan reads the mutants of a plan and returns what is wrong with the result, and what the
// mutations are.
func checkPlan(t *testing.T, all []*sample, p plan) (wrong []string, how string) {
	t.Helper()
	c := misreadChecker{dir: t.TempDir()}
	c.mutants = p.apply(t, all)
	var texts []string
	for _, m := range c.mutants {
		texts = append(texts, m.how)
		for _, f := range m.files {
			write(t, c.dir, map[string]string{f.path: string(f.bytes)})
		}
	}
	rows, logs, problems := readRows(t, c.dir)
	c.rows, c.runs, c.reports, c.problems = rows, logs.Runs, logs.Reports, problems
	return slices.Concat(c.checkLines(), c.checkRows(), c.checkIdentity(), c.checkModes()), strings.Join(texts, "\n  ")
}
