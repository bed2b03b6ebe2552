package scaling

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// onCores returns a run of a series on a machine with the given number of cores.
func onCores(series string, workers, threads, cores int, change func(*runs.Run)) runs.Run {
	r := weak(workers, 1, 4, 2, 2)
	r.Dir = series + "-" + r.Dir
	r.Info.Series, r.Info.ThreadsPerWorker, r.Info.Nodes = series, threads, 1
	r.Info.Host.Cores = cores
	if change != nil {
		change(&r)
	}
	return r
}

// TestSharedCores checks when workers count as sharing cores: if they have more threads than the cores on
// which they may run.
func TestSharedCores(t *testing.T) {
	onHosts := func(hosts ...string) func(*runs.Run) {
		return func(r *runs.Run) {
			r.Info.Nodes = 0
			for rank, host := range hosts {
				r.Workers = append(r.Workers, runs.Worker{Rank: rank, Host: host})
			}
		}
	}
	bound := func(b runs.Binding) func(*runs.Run) { return func(r *runs.Run) { r.Info.Binding = &b } }
	for name, c := range map[string]struct {
		workers, threads, cores int
		change                  func(*runs.Run)
		want                    int
	}{
		"enough":                       {2, 1, 2, nil, 0},
		"more workers than cores":      {4, 1, 2, nil, 2},
		"more threads than cores":      {2, 2, 2, nil, 2},
		"one worker":                   {1, 4, 2, nil, 0},
		"unknown cores":                {4, 1, 0, nil, 0},
		"unknown threads":              {4, 0, 2, nil, 2},
		"on an accelerator":            {4, 1, 2, func(r *runs.Run) { r.Info.Accelerator = "NVIDIA H200" }, 0},
		"with GPUs":                    {4, 1, 2, func(r *runs.Run) { r.Info.GPUs = 4 }, 0},
		"on two machines":              {4, 1, 2, func(r *runs.Run) { r.Info.Nodes = 2 }, 0},
		"unknown machines":             {4, 1, 2, func(r *runs.Run) { r.Info.Nodes = 0 }, 0},
		"ranks on two machines":        {4, 1, 2, onHosts("a", "a", "b", "b"), 0},
		"ranks on one of two machines": {4, 1, 2, onHosts("a", "a", "a", "b"), 2},
		"allowed a part":               {4, 1, 8, bound(runs.Binding{Mode: "none", Allowed: "4-5"}), 2},
		"bound to equal cores":         {4, 1, 8, bound(runs.Binding{Mode: "cores", CPUs: []string{"0", "1", "0", "1"}}), 2},
		"bound to different cores":     {4, 1, 4, bound(runs.Binding{Mode: "cores", CPUs: []string{"0", "1", "2", "3"}}), 0},
		"bound to a wrong list":        {4, 1, 2, bound(runs.Binding{Mode: "cores", CPUs: []string{"x"}}), 2},
	} {
		s := study(t, []runs.Run{onCores("ddp", c.workers, c.threads, c.cores, c.change)})
		if got := s.Points[0].SharedCores; got != c.want {
			t.Errorf("%s: %d shared cores, want %d", name, got, c.want)
		}
		if said := strings.Contains(strings.Join(s.Cautions(), "\n"), "shared"); said != (c.want > 0) {
			t.Errorf("%s: cautions %q", name, s.Cautions())
		}
		if several := strings.Contains(strings.Join(s.Cautions(), "\n"), "4 workers shared 2 cores of a machine;"); several != (name == "ranks on one of two machines") {
			t.Errorf("%s: cautions %q", name, s.Cautions())
		}
	}
}

// TestCautionsComeFirst checks that what limits the meaning of the times is at the beginning of the notes
// of a study, of its comparisons, and of a gate, and nowhere else.
func TestCautionsComeFirst(t *testing.T) {
	var all []runs.Run
	for _, n := range []int{1, 2, 4, 8} {
		all = append(all, onCores("ddp", n, 1, 2, nil), onCores("ring", n, 1, 2, nil), onCores("wide", n, 1, 8, nil))
		silent := onCores("silent", n, 1, 8, nil)
		silent.Info.Unreal = "nobody spoke"
		if n == 1 {
			silent.Info.Unreal = ""
		}
		all = append(all, silent)
	}
	for i := range all {
		if all[i].Info.Series == "wide" && all[i].Info.Workers == 2 {
			for e := range 3 {
				all[i].Loads = append(all[i].Loads, runs.Load{Epoch: e + 1, Seconds: 2, Cores: 8, OtherSeconds: 1})
			}
		}
	}
	s := study(t, all)
	shared := "ddp, ring: 4 and 8 workers shared 2 cores; their times say little about scaling: run at most one thread per core"
	disturbed := "1 of 16 runs disturbed by other load: wide-ddp-n2-s1 (other processes used 0.50 cores); their times say little about scaling: repeat them on an idle machine"
	want := []string{"losses and scores of silent with more than 1 worker are not real and are left out; only its times are: nobody spoke", shared, disturbed}
	if got := s.Cautions(); !slices.Equal(got, want) {
		t.Fatalf("cautions %q, want %q", got, want)
	}
	text := s.String()
	for _, w := range want {
		if at := strings.Index(text, "caution: "+w); at < 0 || at > strings.Index(text, "rule: ") || strings.Count(text, w) != 1 {
			t.Errorf("%q is not once before the rule:\n%s", w, text)
		}
		if !slices.Contains(s.Notes, w) {
			t.Errorf("the notes lack %q", w)
		}
	}
	if !strings.Contains(text, "shared cores") {
		t.Errorf("no column:\n%s", text)
	}
	if note := s.ConditionsNote(); !strings.Contains(note, "shared 2 cores") || !strings.Contains(note, "disturbed") {
		t.Errorf("conditions %q", note)
	}
	wide, err := study(t, []runs.Run{all[6], all[6]}).WithRule(s.Rule) // only the disturbed run, twice
	check(t, err)
	if note := wide.ConditionsNote(); note != "2 of 2 runs disturbed by other load" {
		t.Errorf("conditions %q", note)
	}
	c, err := s.CompareSeries("ddp", "wide")
	check(t, err)
	text = c.String()
	about := []string{"caution: ddp: 4 and 8 workers shared 2 cores", "caution: 1 of 8 runs disturbed"}
	for _, w := range about {
		if at := strings.Index(text, w); at < 0 || at > strings.Index(text, "as fast as") || strings.Contains(text, "silent") {
			t.Errorf("the comparison does not begin with %q:\n%s", w, text)
		}
	}
	g, err := Gate(s, s, 0.05)
	check(t, err)
	if text := g.String(); !strings.Contains(text, "caution: "+shared) {
		t.Errorf("the gate does not say %q:\n%s", shared, text)
	}
}

// TestNoContradiction checks that a comparison does not call a series faster and then says that there is
// no difference.
func TestNoContradiction(t *testing.T) {
	var all []runs.Run
	for _, n := range []int{1, 2} {
		for seed, seconds := range []float64{2, 2.4, 2.8} {
			for i, series := range []string{"a", "b"} {
				x := seconds * (1 + 0.02*float64(i))
				r := weak(n, int64(seed+1), x, x, x)
				r.Info.Series, r.Dir = series, series+r.Dir
				all = append(all, r)
			}
		}
	}
	c, err := study(t, all).CompareSeries("a", "b")
	check(t, err)
	if len(c.Pooled) != 1 || c.Pooled[0].Verdict != VerdictNone || c.Pooled[0].Faster != 2 {
		t.Fatalf("%+v", c.Pooled)
	}
	if text := c.Pooled[0].Sentence; strings.Contains(text, "faster") || !strings.Contains(text, "show no difference beyond chance") {
		t.Error(text)
	}
	for _, r := range c.Rows {
		if !strings.HasSuffix(r.Sentence, "The runs show no difference: the interval contains 1.") || r.Ratio.Low > 1 {
			t.Error(r.Sentence)
		}
	}
}

// TestStragglerInOneRun checks that the sentence about a straggler states what the repeated runs show.
func TestStragglerInOneRun(t *testing.T) {
	for name, c := range map[string]struct {
		late [3]int // by run, the rank that is late; −1: none
		want string
	}{
		"once":        {[3]int{1, -1, -1}, "; it is a straggler in this one only of the 3 repeated runs of ddp at 4 workers, and the others show none"},
		"always":      {[3]int{1, 1, 1}, "; it is a straggler in each of the 3 repeated runs of ddp at 4 workers"},
		"twice":       {[3]int{1, -1, 1}, "; it is a straggler in 2 of the 3 repeated runs of ddp at 4 workers"},
		"other ranks": {[3]int{2, 3, -1}, "; it is a straggler in this one only of the 3 repeated runs of ddp at 4 workers, and another rank is in 1"},
	} {
		dir := t.TempDir()
		for i, late := range c.late {
			writeSteps(t, filepath.Join(dir, "run"+string(rune('a'+i))), 4, i+1, runs.Info{}, func(rank, step int) runs.Step {
				at := 0.1
				if rank == late || late < 0 && rank == step%4 {
					at += 0.03
				}
				return runs.Step{Forward: 0.2, UntilCollective: at}
			})
		}
		s, err := Read(dir)
		check(t, err)
		if got := s.Stragglers().Sentence; !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %q, want %q at the end", name, got, c.want)
		}
	}
}

// TestOneProcessIsNamed: workers in one process and profiled runs are named with the cautions, and on the axis if
// all series are of this kind.
func TestOneProcessIsNamed(t *testing.T) {
	change := func(processes int, profiler string) func(*runs.Run) {
		return func(r *runs.Run) { r.Info.Processes, r.Info.Profiler = processes, profiler }
	}
	one := []runs.Run{onCores("keras", 1, 1, 8, change(1, "")), onCores("keras", 4, 1, 8, change(1, "nsys"))}
	s := study(t, one)
	want := []string{"the workers of keras are in one process", "times of profiled runs include the profiler's work: keras with 4 workers, seed 1 (nsys)"}
	if got := s.Cautions(); !slices.Equal(got, want) || s.SizeName() != "workers in one process" {
		t.Errorf("got cautions %q and the size %q, want %q", got, s.SizeName(), want)
	}
	s = study(t, append(one, onCores("ddp", 4, 1, 8, change(4, ""))))
	if got := s.Cautions(); len(got) != 2 || got[0] != want[0] || s.SizeName() != "workers" {
		t.Errorf("got cautions %q and the size %q beside another series", got, s.SizeName())
	}
	if s = study(t, one[:1]); len(s.Cautions()) != 0 || s.SizeName() != "workers" {
		t.Errorf("got cautions %q and the size %q for one worker", s.Cautions(), s.SizeName())
	}
}
