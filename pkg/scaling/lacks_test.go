package scaling

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// Runs that lack the same thing share one problem, which names the runs and the flag that
// helps.
func TestLackProblems(t *testing.T) {
	dir := t.TempDir()
	for i := range 6 {
		name := filepath.Join(dir, "run "+strings.Repeat("x", i+1)+".out")
		check(t, os.WriteFile(name, fmt.Appendf(nil, "Epoch 1/1\n10/10 - %ds - loss: 0.5\n", 40+i), 0o644))
	}
	s, err := Read(dir)
	check(t, err)
	var found []string
	for _, p := range s.Problems {
		if strings.Contains(p.Reason, "workers") {
			found = append(found, p.String())
		}
	}
	if len(found) != 1 {
		t.Fatalf("problems about workers: %q, want one for all 6 runs", found)
	}
	for _, part := range []string{filepath.Join(dir, "run x.out") + ": ", "--as '", "likewise 5 more runs: ", "run xxxx.out and 2 more"} {
		if !strings.Contains(found[0], part) {
			t.Errorf("problem %q does not contain %q", found[0], part)
		}
	}
}

// A log of one epoch is not counted by the default rule. The problem names the flag that
// counts it.
func TestUncountedEpochs(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{DefaultRule(), "0 of 1 epochs count by the rule (mean over the epochs of a run, the first left out; median over repeated runs); count the first epochs too with --drop-first 0"},
		{Rule{Epochs: "5"}, "0 of 1 epochs count by the rule (epoch 5 of each run, median over repeated runs); choose another epoch with --epochs"},
	} {
		all := []runs.Run{weak(1, 1, 20), weak(2, 1, 20), weak(4, 1, 20)}
		s, err := FromRuns(all)
		check(t, err)
		s, err = s.WithRule(c.rule)
		check(t, err)
		if len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0].Reason, c.want) {
			t.Errorf("problems %q, want one: %q", s.Problems, c.want)
		}
	}
	s, err := FromRuns([]runs.Run{weak(1, 1, 20)})
	check(t, err)
	s, err = s.WithRule(Rule{})
	check(t, err)
	if len(s.Problems) != 0 || math.IsNaN(s.Points[0].EpochSeconds.Value) {
		t.Errorf("with --drop-first 0: problems %q, seconds %v", s.Problems, s.Points[0].EpochSeconds.Value)
	}
}

// Messages about a rule name the flags of the command line.
func TestRuleErrorsNameFlags(t *testing.T) {
	for flag, rule := range map[string]Rule{
		"--drop-first": {DropFirst: -1}, "--epochs": {Epochs: "all"}, "--repeats": {Repeats: "best"}, "--samples-per-epoch": {SamplesPerEpoch: -1},
		"--baseline": {Baseline: "most"}, "--per": {Per: "rack"}, "--confidence": {Confidence: 2},
	} {
		if err := rule.Validate(); err == nil || !strings.HasPrefix(err.Error(), "invalid "+flag+" ") {
			t.Errorf("%+v: error %v, want one that begins with %q", rule, err, "invalid "+flag)
		}
	}
}

// The name of a study that is also the name of its series is not repeated.
func TestSeriesNameNotDoubled(t *testing.T) {
	a, b, c, d := weak(1, 1, 20, 10), weak(1, 1, 20, 12), weak(1, 1, 20, 14), weak(1, 1, 20, 16)
	a.Info.Study, a.Info.Series = "cifar10", "cifar10"
	b.Info.Study, b.Info.Series = "imagenet", "resnet"
	c.Info.Study, c.Info.Series = "unet_b32", "unet-b32" // the name of a folder, and the series that it gives
	d.Info.Study, d.Info.Series = "unet-b32", "unet-b32" // of another study
	s, err := FromRuns([]runs.Run{a, b, c, d})
	check(t, err)
	if got := strings.Join(s.Series(), "|"); got != "cifar10|imagenet resnet|unet-b32|unet_b32" {
		t.Errorf("series %q", got)
	}
	for _, r := range []*runs.Run{&a, &b} { // which the user named
		r.Info.Series, r.Origins = "mine", map[runs.Property]runs.Origin{runs.PropertySeries: {Source: runs.SourceUser}}
	}
	s, err = FromRuns([]runs.Run{a, b, c})
	check(t, err)
	if got := strings.Join(s.Series(), "|"); got != "mine|unet_b32" {
		t.Errorf("a series that the user named: %q", got)
	}
}

// TestUnknownWorkersOfKnownNodes checks that the problem of a run whose nodes are known shows a
// pattern that computes the workers from the nodes.
func TestUnknownWorkersOfKnownNodes(t *testing.T) {
	s, err := FromRuns([]runs.Run{{Dir: "n2/out.log", Info: runs.Info{Series: "a", Nodes: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Reason, "'NAME_{nodes}.EXT=workers:{nodes}*N', where N is") {
		t.Errorf("problems %v, expected a pattern with {nodes}", s.Problems)
	}
}

// TestAdviceOnMissingTimes: the note on runs without times names what they have, and what would help.
func TestAdviceOnMissingTimes(t *testing.T) {
	lines, empty := loggedRun("a", 1), loggedRun("b", 1)
	lines.Kind, lines.Curves = "JSON lines", []runs.Curve{{Name: "dt", Steps: []int64{1}, Values: []float64{2}}}
	s := study(t, []runs.Run{lines, empty})
	wantLine(t, s.Notes, "series a", "no epochs, but the curves dt; give the time the name epoch_time or step_time")
	wantLine(t, s.Notes, "series b", "neither epochs nor curves; name the time with --line")
}

// TestAdviceOnUnknownWorkers: the workers per node are a column of a table that has the nodes.
func TestAdviceOnUnknownWorkers(t *testing.T) {
	s := readTable(t, "nodes,cards,epoch_time\n1,8,100\n2,8,52\n")
	if len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Reason, "set it with --columns 'workers_per_node=NAME' in a table") {
		t.Errorf("problems %v", s.Problems)
	}
}
